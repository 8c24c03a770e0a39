"""Settings, responses, usage and content in pydantic-ai's form, for agents of one request and for whole turns."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

import anyio
from pydantic import TypeAdapter
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

from divebook.agents.prices import cost_of
from divebook.agents.results import plain_data
from divebook.documents.policy import Policy
from divebook.documents.references import resolved
from divebook.errors import SetupError, UnstorableValueError
from divebook.events.codec import storable
from divebook.history.spans import COST
from divebook.text.redaction import shared
from divebook.workflow.definition import AgentDefinition
from divebook.workflow.definition import ModelSettings as SettingsDefinition

T = TypeVar("T")
_RESPONSE, _ANY = TypeAdapter(ModelResponse), TypeAdapter[Any](Any)


def plainly(value: Any, fallback: Callable[[Any], Any] = repr) -> Any:
    """Return any value as plain data; of what pydantic does not know, what the fallback makes of it."""
    return _ANY.dump_python(value, mode="json", fallback=fallback)


async def in_time(request: Awaitable[T], seconds: float) -> T:
    """Return the response, or raise TimeoutError; a provider's own timeout holds for each piece by itself."""
    with anyio.move_on_after(seconds):
        return await request
    raise TimeoutError(f"the response was not complete after {seconds:g} seconds; to allow more, raise ResponseTimeout")


def response_of(recorded: Mapping[str, Any]) -> ModelResponse:
    """Return a recorded response in pydantic-ai's form."""
    return _RESPONSE.validate_python({key: value for key, value in recorded.items() if key != COST})


def plain_response(response: ModelResponse) -> dict[str, Any]:
    """Return a response as plain data, without what says nothing and without what no log may hold."""
    data: dict[str, Any] = _RESPONSE.dump_python(_told_apart(response), mode="json", exclude_none=True)
    data["parts"] = shared().without_named(data["parts"])
    data["usage"] = {name: value for name, value in data["usage"].items() if value}
    cost = (response.provider_details or {}).get(COST)
    data[COST] = cost_of(response) if cost is None else cost
    try:
        storable(data, "response")
    except UnstorableValueError:  # text that is no Unicode
        return dict(plain_data(data))
    return data


def with_said(recorded: Mapping[str, Any], kept: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a response with what log and tools get of its words and calls; what only its provider reads stays."""
    return {**recorded, "parts": [_with_said(part, kept) for part in recorded["parts"]]}


def _with_said(part: Mapping[str, Any], kept: Callable[[Any], Any]) -> Mapping[str, Any]:
    if part.get("signature"):  # its provider takes a signed thought back only as it was
        return part
    return {**part, **{name: kept(part[name]) for name in ("content", "args") if name in part}}


def _told_apart(response: ModelResponse) -> ModelResponse:
    """Return a response in which no two calls have one id, as a model may give them: each needs a place of its own."""
    ids = [call.tool_call_id for call in response.tool_calls]
    if len(set(ids)) == len(ids):
        return response
    taken: set[str] = set()
    return replace(response, parts=[_with_own_id(part, taken) for part in response.parts])


def _with_own_id(part: ModelResponsePart, taken: set[str]) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart):
        return part
    given, number = part.tool_call_id, 1
    name = given
    while name in taken:
        number += 1
        name = f"{given}-{number}"
    taken.add(name)
    return replace(part, tool_call_id=name)


def concise(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response as a turn records it: without what goes without saying, and its time, which the event has."""
    silent = {"kind": "response", "state": "complete", COST: None, "timestamp": recorded.get("timestamp")}
    return {name: value for name, value in recorded.items() if name not in silent or silent[name] != value}


def usage_of(recorded: Mapping[str, Any]) -> dict[str, int]:
    """Return what a recorded response says was consumed, as the log counts it."""
    used = recorded["usage"]
    names = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens")
    cost = {"cost": recorded[COST]} if recorded.get(COST) else {}
    return {"requests": 1} | {name: used[name] for name in names if used.get(name)} | cost


def settings_of(definition: AgentDefinition) -> ModelSettings:
    """Return pydantic-ai's settings for an agent."""
    settings = ModelSettings(timeout=definition.response_timeout, max_retries=0)
    own = definition.model_settings
    if own is None:
        return settings
    for name in ("temperature", "presence_penalty", "frequency_penalty", "max_tokens", "parallel_tool_calls"):
        value = getattr(own, name)
        if value is not None:
            settings[name] = value
    return _with_special_settings(settings, own)


def _with_special_settings(settings: ModelSettings, own: SettingsDefinition) -> ModelSettings:
    if own.reasoning_effort:
        settings["thinking"] = cast("ThinkingLevel", own.reasoning_effort)
    if own.request_headers:
        settings["extra_headers"] = {name: ", ".join(values) for name, values in own.request_headers.items()}
    return settings


def with_values(settings: ModelSettings | None, policy: Policy) -> ModelSettings | None:
    """Return settings with the values that they name (``env://KEY``): for the request itself, and for no log."""
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
