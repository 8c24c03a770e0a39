"""Conversions between pydantic-ai and the log: settings, responses, usage and content.

Single requests and whole turns use them.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from pydantic import TypeAdapter
from pydantic_ai.exceptions import ModelConnectionError
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelResponse,
    ModelResponsePart,
    ToolCallPart,
    UserContent,
)
from pydantic_ai.settings import ModelSettings, ThinkingLevel

from divebook.agents.models import cost_of
from divebook.agents.signatures import plain_data
from divebook.documents.policy import Policy, resolved
from divebook.errors import SetupError, UnstorableValueError
from divebook.events.codec import storable
from divebook.projections.spans import COST
from divebook.text.redaction import logger, shared
from divebook.workflow.resources import AgentDefinition
from divebook.workflow.resources import ModelSettings as SettingsDefinition

if TYPE_CHECKING:
    from pydantic_ai.models import Model


T = TypeVar("T")


_log = logger(__name__)


CUT_OFF = "the reply was cut off: its stream ended without a finish reason before it was complete"


_RESPONSE = TypeAdapter(ModelResponse)


_ANY = TypeAdapter[Any](Any)


def plain_json(value: Any, fallback: Callable[[Any], Any] = repr) -> Any:
    """Return a value as plain JSON data. `fallback` converts values that pydantic does not know."""
    return _ANY.dump_python(value, mode="json", fallback=fallback)


async def in_time(request: Awaitable[T], seconds: float) -> T:
    """Await a response; raise `TimeoutError` after `seconds`.

    A provider's own timeout applies to each received piece only, not to the whole response.
    """
    with anyio.move_on_after(seconds):
        return await request
    raise TimeoutError(f"the response was not complete after {seconds:g} seconds; to allow more, raise ResponseTimeout")


def response_of(recorded: Mapping[str, Any]) -> ModelResponse:
    """Return a recorded response in pydantic-ai's form."""
    return _RESPONSE.validate_python({key: value for key, value in recorded.items() if key != COST})


_ASSUMED = ("stop", "tool_call")
"""Finish reasons that adapters fill in if the provider sent none."""


_STATES_REASON_ALONE = "xai"
"""Provider whose adapter has the finish reason but not the provider's original value."""


def has_stated_end(response: ModelResponse) -> bool:
    """Return True if the provider itself stated why the response ended.

    Adapters for chat completions fill in "stop" if the provider sent no reason. The original value is in
    `provider_details`. Function and test models have no address, and always answer completely.
    """
    if response.provider_url is None or (response.provider_details or {}).get("finish_reason"):
        return True
    if response.provider_name == _STATES_REASON_ALONE:
        return response.finish_reason is not None
    return response.finish_reason is not None and response.finish_reason not in _ASSUMED


def require_whole(response: ModelResponse, agent: str) -> None:
    """Raise for a truncated response, and log a warning if the token limit cut it.

    Adapters that read every response as a stream leave the finish reason out if the stream ended early. If a complete
    body had none, they fill one in.

    Raises
    ------
    ModelConnectionError
        The response is not complete.
    """
    if response.finish_reason is None and not has_stated_end(response):
        raise ModelConnectionError(str(response.model_name), CUT_OFF)
    if response.finish_reason == "length":
        _log.warning("agent %s: its model was cut off at the limit of tokens; raise MaxTokens", agent)


def plain_response(response: ModelResponse, requested: Model | None = None) -> dict[str, Any]:
    """Return a response as plain data, without empty fields and named secrets.

    `requested` is the requested model. Its price is used if the price of the model named in the response is unknown.
    The finish reason is the one that the provider sent, or None.
    """
    if not has_stated_end(response):
        response = replace(response, finish_reason=None)
    data: dict[str, Any] = _RESPONSE.dump_python(_with_unique_ids(response), mode="json", exclude_none=True)
    data["parts"] = shared().without_named(data["parts"])
    data["usage"] = {name: value for name, value in data["usage"].items() if value}
    cost = (response.provider_details or {}).get(COST)
    data[COST] = cost_of(response, requested) if cost is None else cost
    try:
        storable(data, "response")
    except UnstorableValueError:  # text that is not valid Unicode
        return dict(plain_data(data))
    return data


def with_cleaned_text(recorded: Mapping[str, Any], cleaned: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a response whose text and arguments are filtered by `cleaned`.

    Data that only the provider reads stays unchanged.
    """
    return {**recorded, "parts": [_with_cleaned_text(part, cleaned) for part in recorded["parts"]]}


def _with_cleaned_text(part: Mapping[str, Any], cleaned: Callable[[Any], Any]) -> Mapping[str, Any]:
    if part.get("signature"):  # the provider rejects a signed thought that was changed
        return part
    return {**part, **{name: cleaned(part[name]) for name in ("content", "args") if name in part}}


def _with_unique_ids(response: ModelResponse) -> ModelResponse:
    """Return a response in which all tool-call ids are unique, because each call needs its own operation key."""
    ids = [call.tool_call_id for call in response.tool_calls]
    if len(set(ids)) == len(ids):
        return response
    used_ids: set[str] = set()
    return replace(response, parts=[_with_unique_id(part, used_ids) for part in response.parts])


def _with_unique_id(part: ModelResponsePart, used_ids: set[str]) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart):
        return part
    model_id = part.tool_call_id
    number = 1
    name = model_id
    while name in used_ids:
        number += 1
        name = f"{model_id}-{number}"
    used_ids.add(name)
    return replace(part, tool_call_id=name)


def concise(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response as a turn records it: without default values, and without its time, which the event has."""
    silent = {"kind": "response", "state": "complete", COST: None, "timestamp": recorded.get("timestamp")}
    return {name: value for name, value in recorded.items() if name not in silent or silent[name] != value}


def usage_of(recorded: Mapping[str, Any]) -> dict[str, int]:
    """Return the consumption of a recorded response in the units of the log."""
    used = recorded["usage"]
    names = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens")
    cost = {"cost": recorded[COST]} if recorded.get(COST) else {}
    return {"requests": 1} | {name: used[name] for name in names if used.get(name)} | cost


def settings_of(definition: AgentDefinition) -> ModelSettings:
    """Return pydantic-ai's model settings for an agent."""
    settings = ModelSettings(timeout=definition.response_timeout, max_retries=0)
    declared = definition.model_settings
    if declared is None:
        return settings
    for name in ("temperature", "presence_penalty", "frequency_penalty", "max_tokens", "parallel_tool_calls"):
        value = getattr(declared, name)
        if value is not None:
            settings[name] = value
    return _with_special_settings(settings, declared)


def _with_special_settings(settings: ModelSettings, declared: SettingsDefinition) -> ModelSettings:
    if declared.reasoning_effort:
        settings["thinking"] = cast("ThinkingLevel", declared.reasoning_effort)
    if declared.request_headers:
        settings["extra_headers"] = {name: ", ".join(values) for name, values in declared.request_headers.items()}
    return settings


def with_values(settings: ModelSettings | None, policy: Policy) -> ModelSettings | None:
    """Resolve references (``env://KEY``) in settings. The result is for the request only and must not be recorded."""
    if settings is None or not settings.get("extra_headers"):
        return settings
    return {**settings, "extra_headers": resolved(settings["extra_headers"], policy)}


def user_block(block: Mapping[str, Any]) -> UserContent:
    """Return a content block in pydantic-ai's form."""
    kind = block.get("type")
    if kind == "text":
        return str(block["text"])
    source = block.get("source") or {}
    if kind not in ("image", "document") or source.get("type") not in ("base64", "url"):
        raise SetupError(f"content block of type {kind!r} is not known; use text, image or document")
    if source["type"] == "base64":
        return BinaryContent(base64.b64decode(source["data"]), media_type=source["media_type"])
    return ImageUrl(source["url"]) if kind == "image" else DocumentUrl(source["url"])
