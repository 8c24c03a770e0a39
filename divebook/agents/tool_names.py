"""Translation of tool names that model providers do not accept.

Providers accept letters, digits, ``_`` and ``-``, at most 64 characters, and no leading digit. An MCP server may name a
tool ``files.read`` or ``2fa_code``. Such a name is replaced in the request to the model and restored in the response.
The log, approval rules, questions and frames contain the real name. In the replacement, each character that is not
accepted becomes ``_``. If the result collides with another name, a digest of the real name is appended. The replacement
is therefore deterministic, independent of the order of tools, and unique within a request.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic_ai.durable_exec import ModelRequestParams
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from divebook.engine.operations import Write, arguments_part

M = TypeVar("M", bound=ModelMessage)


LONGEST = 64


_SAFE = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")


_REFUSED = re.compile(r"[^A-Za-z0-9_-]")


_DIGEST = 8
"""Minimum number of digest characters."""


_ARGUMENTS = arguments_part("", "").partition(":")[0]


class ToolNames:
    """Translation between the real tool names of one request and the names that are sent to the provider."""

    def __init__(self, safe: Mapping[str, str]) -> None:
        self._safe = safe
        self._real = {sent: name for name, sent in safe.items()}

    @classmethod
    def of(cls, params: ModelRequestParams) -> ToolNames | None:
        """Return the translation for the tools and tool calls in a request; None if the provider accepts all names."""
        parameters = params.model_request_parameters
        names = {tool.name for tool in (*parameters.function_tools, *parameters.output_tools)}
        names |= {name for message in params.messages for part in message.parts if (name := _tool_of(part))}
        safe = safe_names(names)
        return cls(safe) if safe else None

    def sent(self, params: ModelRequestParams) -> ModelRequestParams:
        """Return a copy of a request with the translated tool names."""
        return ModelRequestParams(
            params.model_id,
            messages=[_renamed(message, self._safe) for message in params.messages],
            model_settings=self._settings(params.model_settings),
            model_request_parameters=self._parameters(params.model_request_parameters),
            run_context=params.run_context,
        )

    def _settings(self, settings: ModelSettings | None) -> ModelSettings | None:
        choice = (settings or {}).get("tool_choice")
        if not isinstance(choice, list):
            return settings
        chosen: Any = [self._safe.get(name, name) for name in choice]
        return ModelSettings(**{**(settings or {}), "tool_choice": chosen})

    def _parameters(self, parameters: ModelRequestParameters) -> ModelRequestParameters:
        changed: dict[str, Any] = {
            field: frozenset(self._safe.get(name, name) for name in names)
            for field in ("revealed_tool_names", "introduced_tool_names")
            if (names := getattr(parameters, field))
        }
        changed |= {
            field: [replace(tool, name=self._safe.get(tool.name, tool.name)) for tool in getattr(parameters, field)]
            for field in ("function_tools", "output_tools")
        }
        return replace(parameters, **changed)

    def answered(self, response: ModelResponse) -> ModelResponse:
        """Return a copy of a response with the real tool names."""
        return _renamed(response, self._real)

    def written(self, write: Write) -> Write:
        """Wrap a function that receives streamed text, so that the function receives the real tool names."""

        def renamed(text: str, part: str) -> None:
            kind, _, rest = part.partition(":")
            name, _, call = rest.partition(":")
            write(text, arguments_part(self._real[name], call) if kind == _ARGUMENTS and name in self._real else part)

        return lambda text, part="": renamed(text, part) if part else write(text)


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Return a replacement for each tool name that providers do not accept, by the real name.

    Examples
    --------
    >>> safe_names(["files.read", "plain", "2fa_code"])
    {'2fa_code': '_2fa_code', 'files.read': 'files_read'}
    """
    all_names = set(names)
    accepted = {name for name in all_names if _SAFE.fullmatch(name)}
    candidates = {name: _cleaned(name) for name in sorted(all_names - accepted)}
    counts = Counter(candidates.values())
    replacements: dict[str, str] = {}
    for name, cleaned in candidates.items():
        is_usable = cleaned not in accepted and counts[cleaned] == 1 and len(name) < LONGEST
        replacements[name] = (
            cleaned if is_usable else _with_digest(name, cleaned, accepted | counts.keys() | set(replacements.values()))
        )
    return replacements


def _cleaned(name: str) -> str:
    cleaned = _REFUSED.sub("_", name)
    return cleaned if _SAFE.match(cleaned) else f"_{cleaned}"


def _with_digest(name: str, cleaned: str, used_names: set[str]) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(_DIGEST, LONGEST - 1):
        candidate = f"{cleaned[: LONGEST - 1 - length]}_{digest[:length]}"
        if candidate not in used_names:
            return candidate
    raise AssertionError(name)  # only if all 55 digest prefixes are names of tools


def _tool_of(part: Any) -> str | None:
    """Return the tool name in a message part; None if the part has no tool name."""
    name = getattr(part, "tool_name", None)
    return name if isinstance(name, str) else None


def _renamed(message: M, names: Mapping[str, str]) -> M:
    """Return a copy of a message in which the tool names of calls and results are replaced."""
    parts: list[Any] = [*message.parts]
    for number, part in enumerate(parts):
        if (name := names.get(_tool_of(part) or "")) is not None:
            parts[number] = replace(part, tool_name=name)
    changed: Any = {"parts": parts}
    return replace(message, **changed)
