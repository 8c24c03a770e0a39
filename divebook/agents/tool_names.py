"""Names of tools as providers take them: letters, digits, ``_`` and ``-``, at most 64, not beginning with a digit.

An MCP server may call a tool ``files.read``, ``2fa_code`` or anything else. Such a name is replaced on the way to the
model, and put back into what the model answers. Everything else, the log, rules, cards and frames, has the real name.

A name that providers take stays as it is. Any other one has each sign that they refuse replaced by ``_``; where that is
the name of another tool as well, a digest of the real name stands at its end. So the same tools always have the same
names, whatever order they come in, and no two of a request have the same one.
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
"""Characters of a digest, unless that is not enough."""
_ARGUMENTS = arguments_part("", "").partition(":")[0]


def safe_names(names: Iterable[str]) -> dict[str, str]:
    """Return names that providers take for those that they refuse, by the real names.

    Examples
    --------
    >>> safe_names(["files.read", "plain", "2fa_code"])
    {'2fa_code': '_2fa_code', 'files.read': 'files_read'}
    """
    every = set(names)
    taken = {name for name in every if _SAFE.fullmatch(name)}
    wanted = {name: _cleaned(name) for name in sorted(every - taken)}
    counts = Counter(wanted.values())
    found: dict[str, str] = {}
    for name, cleaned in wanted.items():
        is_own = cleaned not in taken and counts[cleaned] == 1 and len(name) < LONGEST
        found[name] = cleaned if is_own else _with_digest(name, cleaned, taken | counts.keys() | set(found.values()))
    return found


def _cleaned(name: str) -> str:
    cleaned = _REFUSED.sub("_", name)
    return cleaned if _SAFE.match(cleaned) else f"_{cleaned}"


def _with_digest(name: str, cleaned: str, taken: set[str]) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(_DIGEST, LONGEST - 1):
        made = f"{cleaned[: LONGEST - 1 - length]}_{digest[:length]}"
        if made not in taken:
            return made
    raise AssertionError(name)  # all 55 beginnings of its digest would have to be names of tools


class ToolNames:
    """The names of the tools of one request, for the model and back."""

    def __init__(self, safe: Mapping[str, str]) -> None:
        self._safe = safe
        self._real = {sent: name for name, sent in safe.items()}

    @classmethod
    def of(cls, params: ModelRequestParams) -> ToolNames | None:
        """Return the names of a request, with those of calls in its messages; None where none is to be replaced."""
        parameters = params.model_request_parameters
        names = {tool.name for tool in (*parameters.function_tools, *parameters.output_tools)}
        names |= {name for message in params.messages for part in message.parts if (name := _tool_of(part))}
        safe = safe_names(names)
        return cls(safe) if safe else None

    def sent(self, params: ModelRequestParams) -> ModelRequestParams:
        """Return a request with the names that its provider takes."""
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
        """Return a response with the real names."""
        return _renamed(response, self._real)

    def written(self, write: Write) -> Write:
        """Return what takes the pieces of a response, and hands them on under the real names."""

        def renamed(text: str, part: str) -> None:
            kind, _, rest = part.partition(":")
            name, _, call = rest.partition(":")
            write(text, arguments_part(self._real[name], call) if kind == _ARGUMENTS and name in self._real else part)

        return lambda text, part="": renamed(text, part) if part else write(text)


def _tool_of(part: Any) -> str | None:
    """Return the tool that a part of a message names, if it names one."""
    name = getattr(part, "tool_name", None)
    return name if isinstance(name, str) else None


def _renamed(message: M, names: Mapping[str, str]) -> M:
    """Return a message whose calls and results name their tools anew."""
    parts: list[Any] = [*message.parts]
    for number, part in enumerate(parts):
        if (name := names.get(_tool_of(part) or "")) is not None:
            parts[number] = replace(part, tool_name=name)
    changed: Any = {"parts": parts}
    return replace(message, **changed)
