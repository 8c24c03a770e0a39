"""Settings, responses, usage and content in pydantic-ai's form, for agents of one request and for whole turns."""

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

from divebook.agents.prices import cost_of
from divebook.agents.results import plain_data
from divebook.documents.policy import Policy
from divebook.documents.references import resolved
from divebook.errors import SetupError, UnstorableValueError
from divebook.events.codec import storable
from divebook.history.spans import COST
from divebook.text.logs import logger
from divebook.text.redaction import shared
from divebook.workflow.definition import AgentDefinition
from divebook.workflow.definition import ModelSettings as SettingsDefinition

if TYPE_CHECKING:
    from pydantic_ai.models import Model

T = TypeVar("T")
_log = logger(__name__)
CUT_OFF = "the reply was cut off: its stream ended without a finish reason before it was complete"
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


_ASSUMED = ("stop", "tool_call")
"""Finish reasons that adapters fill in where a provider sent none."""
_STATES_REASON_ALONE = "xai"
"""The one provider whose adapter has the finish reason but not the provider's own word for it."""


def states_its_end(response: ModelResponse) -> bool:
    """Return whether the provider itself said why the response ended.

    Adapters for chat completions put "stop" where a provider sent no reason; what the provider sent is in
    `provider_details`. A model that is a function or a test has no address, and always answers completely.
    """
    if response.provider_url is None or (response.provider_details or {}).get("finish_reason"):
        return True
    if response.provider_name == _STATES_REASON_ALONE:
        return response.finish_reason is not None
    return response.finish_reason is not None and response.finish_reason not in _ASSUMED


def require_whole(response: ModelResponse, agent: str) -> None:
    """Refuse a response that was cut off on its way, and warn of one that its limit of tokens has cut.

    Adapters that read every response as a stream leave the finish reason out where the stream ended early. Where a
    whole body came without one, they fill one in.

    Raises
    ------
    ModelConnectionError
        The response is not complete.
    """
    if response.finish_reason is None and not states_its_end(response):
        raise ModelConnectionError(str(response.model_name), CUT_OFF)
    if response.finish_reason == "length":
        _log.warning("agent %s: its model was cut off at the limit of tokens; raise MaxTokens", agent)


def plain_response(response: ModelResponse, asked: Model | None = None) -> dict[str, Any]:
    """Return a response as plain data, without empty fields and without what no log may hold.

    `asked` is the model that was asked: its price counts where that of the model which the response names is unknown.

    Its finish reason is the one that the provider sent, or none.
    """
    if not states_its_end(response):
        response = replace(response, finish_reason=None)
    data: dict[str, Any] = _RESPONSE.dump_python(_told_apart(response), mode="json", exclude_none=True)
    data["parts"] = shared().without_named(data["parts"])
    data["usage"] = {name: value for name, value in data["usage"].items() if value}
    cost = (response.provider_details or {}).get(COST)
    data[COST] = cost_of(response, asked) if cost is None else cost
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
