"""Recorded form of the model requests of an agent's turn: each request stores only the messages that the previous
request did not have.

`RequestRecord` gets the messages that pydantic-ai is about to send, and returns the recorded form.
`divebook.projections.model_requests` describes this form and rebuilds the messages (`test_rebuilt_equals_sent`).
Example: request 2 sends the messages of request 1, the response to request 1, and the results of its tool calls.
Because this is the usual case, the record of request 2 contains only the request number.

pydantic-ai passes the same message objects from request to request. The recorded form of each is therefore cached, with
a copy of the object's content. A new or changed object is dumped again. The copy costs time, but detects an edit in
place (`test_an_edit_in_place_is_not_missed`).
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import MISSING, fields, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast, get_origin

import anyio
from pydantic import TypeAdapter
from pydantic_ai import exceptions
from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponsePart,
    ToolCallPart,
    UserContent,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings, ThinkingLevel
from pydantic_ai.usage import RequestUsage

from divebook.agents.models import cost_of, tokens_of
from divebook.agents.signatures import plain_data, tool_name_of
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.resources import ModelSettings as SettingsDefinition
from divebook.documents.policy import Policy, resolved
from divebook.engine.operations import Setting
from divebook.errors import OperationError, SetupError, UnstorableValueError
from divebook.events.codec import by_hash, canonical_hash, encode, short_hash, storable
from divebook.projections.model_requests import call_name
from divebook.projections.spans import COST
from divebook.text.redaction import logger, shared

if TYPE_CHECKING:
    from pydantic_ai.durable_exec import ModelRequestParams
    from pydantic_ai.models import Model


MAX_RETRIES = "max_retries"
"""Key of the limit of corrections in a part that asks the model for a correction."""


class RequestRecord:
    """Converter of the model requests of one turn to their recorded form. It remembers the latest request, so that only
    the messages that are new in the next one are recorded.

    Parameters
    ----------
    agent
        Name of the agent.
    history
        Messages of earlier turns of the conversation, in the form of `whole`. They precede the first request.
    """

    def __init__(self, agent: str, history: Sequence[Mapping[str, Any]] = ()) -> None:
        self.agent = agent
        self.requests = 0
        self._marks: list[Mapping[str, Any]] = list(history)
        """Recorded form of each message of the latest request."""
        self._dumped: list[_DumpedMessage] = []
        """Recorded form of each message with the message object. Earlier turns of the conversation are not included."""
        self._copied_content = _ContentCopy(None)
        """Copy of the content of all these messages."""
        self._sent: list[ModelMessage] = []
        self._tokens = 0
        """Upper estimate of their tokens."""
        self._called_tools: set[str] = set()
        """Names of the tools that they call."""
        self._answers: dict[int, Any] = {}
        """Content of each response when it arrived, by request number."""
        self._results: dict[str, tuple[str, Any] | None] = {}
        """Tool and result by tool-call id; None if the model used one id for several calls."""
        self._settings = _Settings()

    def describe(
        self,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        model: str,
    ) -> Described:
        """Return the recorded form of the turn's next model request: its parameters, and its setting if that has
        changed.

        If the messages extend those of the previous request, only the new ones are dumped. Otherwise all messages are
        compared with the previous request, and the first difference determines how many are kept.
        """
        self.requests += 1
        previous_marks = self._marks
        # The usual case: the request adds messages to those of the previous one.
        if self._dumped and self._extends_previous(messages):
            self._add(self._dump(message) for message in messages[len(self._dumped) :])
            same_count = len(previous_marks)
        else:
            # The first request of the turn, or one whose history was edited, for example shortened by a hook. In the
            # first request of a continued conversation, the previous messages are those of its earlier turns.
            cached = {id(entry.message): entry for entry in self._dumped}
            self._dumped = []
            self._marks = []
            self._sent = []
            self._tokens = 0
            self._called_tools = set()
            self._copied_content = _ContentCopy(None)
            self._add(self._dump(message, cached.get(id(message))) for message in messages)
            same_count = _same(previous_marks, self._marks)
        parameters_of_request: dict[str, Any] = {"agent": self.agent, "request": self.requests}
        new_marks = self._marks[same_count:]
        # The usual case is left out of the record, which keeps most records short.
        if same_count < len(previous_marks) or new_marks != self._usual(messages[same_count:]):
            parameters_of_request |= {"kept": same_count, "new": new_marks}
        setting = self._settings.tell(messages, settings, parameters, model)
        return Described(self.requests, parameters_of_request, setting, self._tokens, self._called_tools)

    def _add(self, entries: Iterable[_DumpedMessage]) -> None:
        """Add messages at the end of the latest request."""
        self._marks = [*self._marks]  # the previous request still needs its list
        for entry in entries:
            self._dumped.append(entry)
            self._marks.append(entry.mark)
            self._sent.append(entry.message)
            self._tokens += entry.tokens
            self._called_tools |= entry.called_tools
            self._copied_content.add(entry.content)

    def _usual(self, new_messages: Sequence[ModelMessage]) -> list[Mapping[str, Any]]:
        """Return the messages by which a request usually continues the previous one, in recorded form: the previous
        response, and the results of its tool calls. The log has their content already, so that a request with exactly
        these messages records none.
        """
        first = new_messages[0] if new_messages else None
        calls = first.tool_calls if isinstance(first, ModelResponse) else []
        # Request 2 after a call of `c1`: {"response": 1}, {"parts": [{"tool": "c1"}], "kind": "request"}.
        result_marks = [{"tool": call.tool_call_id} for call in calls]
        return [{"response": self.requests - 1}, {"parts": result_marks, "kind": "request"}]

    def answered(self, number: int, response: ModelResponse) -> None:
        """Remember the response to request `number`, so that later requests can be recorded with a reference to it
        instead of a copy.
        """
        self._answers[number] = _copy_of_content(response)

    def called(self, tool_call_id: str, tool: str, result: Mapping[str, Any]) -> None:
        """Remember the result of a tool call, so that later requests can be recorded with a reference to the call's id
        instead of a copy.
        """
        # A payload with a kind is a message to the model (`tool_failed`, `model_retry`), not a result.
        tool_and_result = (tool, result.get("result")) if "kind" not in result else None
        # With one id for several calls, a reference would be ambiguous, so their results are recorded as a whole.
        self._results[tool_call_id] = None if tool_call_id in self._results else tool_and_result

    def _extends_previous(self, messages: Sequence[ModelMessage]) -> bool:
        """Return True if a request begins with all messages of the previous request, unchanged. Then only its new
        messages must be converted.
        """
        is_longer = len(messages) >= len(self._sent)
        # The identity of the messages is compared first, then whether one of them was edited in place.
        return is_longer and all(map(operator.is_, self._sent, messages)) and self._copied_content.is_unchanged()

    def _dump(self, message: ModelMessage, cached: _DumpedMessage | None = None) -> _DumpedMessage:
        """Convert a message to its recorded form. If `cached`, an earlier result for this message, is still valid
        because the message has not changed, return `cached`.
        """
        # The same object may have been edited in place, so its content is compared, not its identity.
        if cached is not None and cached.content.is_unchanged():
            return cached
        called_tools = {name for part in message.parts if (name := tool_name_of(part)) is not None}
        return _DumpedMessage(message, self._mark(message), _ContentCopy(message), tokens_of(message), called_tools)

    def _mark(self, message: ModelMessage) -> Mapping[str, Any]:
        """Return the recorded form of a message. A response that is unchanged since the model sent it becomes a
        reference to the request that it answered.
        """
        if isinstance(message, ModelResponse):
            content = _copy_of_content(message)
            # Most often the latest response is the one that is sent back.
            for number, response_content in reversed(self._answers.items()):
                if response_content == content:
                    return {"response": number}
            return whole(message)
        dumped = whole(message)
        return {**dumped, "parts": [self._part(part) for part in dumped["parts"]]}

    def _part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the recorded form of one part of a message. A tool result that is unchanged since the call becomes a
        reference to the call.
        """
        # A result with further fields, such as metadata, or with files is recorded as a whole.
        if part["part_kind"] != "tool-return" or part.keys() - _RETURNED or part.get("content_file_digests"):
            return part
        result = self._results.get(part["tool_call_id"])
        is_unchanged = result is not None and result == (part["tool_name"], part.get("content"))
        return {"tool": part["tool_call_id"]} if is_unchanged else part


def with_recorded_limits(parameters: Mapping[str, Any], recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a request in which each request for a correction states the same limit of corrections as
    in the recorded parameters of the same request.

    The limit is not part of what the model reads. A person who has raised it wants more corrections after the recorded
    ones.
    """
    if "new" not in parameters or len(parameters["new"]) != len(recorded.get("new") or ()):
        return parameters
    pairs = zip(parameters["new"], recorded["new"], strict=True)
    return {**parameters, "new": [_with_limits(mark, recorded_mark) for mark, recorded_mark in pairs]}


def _with_limits(mark: Mapping[str, Any], recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = mark.get("parts") or ()
    recorded_parts = recorded.get("parts") or ()
    if len(parts) != len(recorded_parts):
        return mark
    new_parts = []
    for part, recorded_part in zip(parts, recorded_parts, strict=True):
        retry = part.get("retry")
        limit = (recorded_part.get("retry") or {}).get(MAX_RETRIES)
        new_parts.append(part if not retry or limit is None else {**part, "retry": {**retry, MAX_RETRIES: limit}})
    return {**mark, "parts": new_parts} if parts else mark


# --- conversions -----------------------------------------------------------------------------------------------------
#
# Conversions between pydantic-ai and the log: settings, responses, usage and content.
#
# Single requests and whole turns use them.


T = TypeVar("T")


_log = logger(__name__)


CUT_OFF = "the reply was cut off: its stream ended without a finish reason before it was complete"


_RESPONSE = TypeAdapter(ModelResponse)


_ANY = TypeAdapter[Any](Any)


def plain_json(value: Any, fallback: Callable[[Any], Any] = repr) -> Any:
    """Convert a value to plain JSON data. `fallback` converts values of types that pydantic cannot serialize; by
    default they become their `repr`.
    """
    return _ANY.dump_python(value, mode="json", fallback=fallback)


async def in_time(request: Awaitable[T], seconds: float) -> T:
    """Await a model response and return it. Raise `TimeoutError` if the response is not complete after `seconds`.

    A provider's own timeout applies to each received piece only, not to the whole response.
    """
    with anyio.CancelScope() as scope:
        # The timer is set in an empty context. A timer that was cancelled stays in the event loop until its time has
        # come, and refers to its context until then: to the messages and dependencies of this run.
        Context().run(setattr, scope, "deadline", anyio.current_time() + seconds)
        return await request
    # Reached only if the time limit has cancelled the block, which the scope leaves without an error.
    raise TimeoutError(f"the response was not complete after {seconds:g} seconds; to allow more, raise ResponseTimeout")


def response_of(recorded: Mapping[str, Any]) -> ModelResponse:
    """Convert a recorded response to pydantic-ai's `ModelResponse`."""
    return _RESPONSE.validate_python({key: value for key, value in recorded.items() if key != COST})


_ASSUMED = ("stop", "tool_call")
"""Finish reasons that adapters fill in if the provider sent none."""


_STATES_REASON_ALONE = "xai"
"""Provider whose adapter has the finish reason but not the provider's original value."""


def has_stated_end(response: ModelResponse) -> bool:
    """Return True if the provider itself sent the reason why the response ended. Return False if the reason is missing
    or assumed by pydantic-ai: the response may then be cut off.

    Adapters for chat completions fill in "stop" if the provider sent no reason. The original value is in
    `provider_details`. Function and test models have no address, and always answer completely.
    """
    if response.provider_url is None or (response.provider_details or {}).get("finish_reason"):
        return True
    if response.provider_name == _STATES_REASON_ALONE:
        return response.finish_reason is not None
    return response.finish_reason is not None and response.finish_reason not in _ASSUMED


def require_whole(response: ModelResponse, agent: str) -> None:
    """Raise an error if a response was cut off. If a response reached the token limit, only log a warning.

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
        _log.warning("agent %s: the response of the model was cut off at the token limit; raise MaxTokens", agent)


def plain_response(response: ModelResponse, requested: Model | None = None) -> dict[str, Any]:
    """Convert a model response to plain data for the log. Empty fields are left out, and known secrets are redacted.

    `requested` is the requested model. Its price is used if the price of the model named in the response is unknown.
    The finish reason is the one that the provider sent, or None.
    """
    if not has_stated_end(response):
        response = replace(response, finish_reason=None)
    data: dict[str, Any] = _RESPONSE.dump_python(_with_unique_ids(response), mode="json", exclude_none=True)
    data["parts"] = shared().without_named(data["parts"])
    data["usage"] = {name: value for name, value in data["usage"].items() if value}
    # A scripted model states its cost itself.
    cost = (response.provider_details or {}).get(COST)
    data[COST] = cost_of(response, requested) if cost is None else cost
    try:
        storable(data, "response")
    except UnstorableValueError:  # text that is not valid Unicode
        return dict(plain_data(data))
    return data


def with_cleaned_text(recorded: Mapping[str, Any], cleaned: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy of a recorded response whose texts and tool arguments were converted by the function `cleaned`, for
    example to redact credentials.

    Signed thoughts stay unchanged, because the provider rejects a changed one.
    """
    return {**recorded, "parts": [_with_cleaned_text(part, cleaned) for part in recorded["parts"]]}


def _with_cleaned_text(part: Mapping[str, Any], cleaned: Callable[[Any], Any]) -> Mapping[str, Any]:
    if part.get("signature"):  # the provider rejects a signed thought that was changed
        return part
    return {**part, **{name: cleaned(part[name]) for name in ("content", "args") if name in part}}


def _with_unique_ids(response: ModelResponse) -> ModelResponse:
    """Return a response in which every tool call has an id with a different name, because the operation key of a call
    contains that name. A response without duplicate names is returned unchanged.
    """
    # The name of an unusual id is a hash, which a model can send as the id of another call.
    names = [call_name(call.tool_call_id or call.tool_name) for call in response.tool_calls]
    if len(set(names)) == len(names):
        return response
    used_names: set[str] = set()
    return replace(response, parts=[_with_unique_id(part, used_names) for part in response.parts])


def _with_unique_id(part: ModelResponsePart, used_names: set[str]) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart):
        return part
    # A call without an id has the name of its tool in its place (`GuardedToolset.call_tool`).
    model_id = unique_id = part.tool_call_id or part.tool_name
    number = 1
    while call_name(unique_id) in used_names:
        number += 1
        unique_id = f"{model_id}-{number}"
    used_names.add(call_name(unique_id))
    return part if unique_id == model_id else replace(part, tool_call_id=unique_id)


def concise(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a shorter copy of a recorded response. Fields with default values are removed, and also its time, because
    the event that contains the response has the time.
    """
    # The time is compared with itself, and is therefore always left out.
    default_values = {"kind": "response", "state": "complete", COST: None, "timestamp": recorded.get("timestamp")}
    return {
        name: value for name, value in recorded.items() if name not in default_values or default_values[name] != value
    }


def usage_of(recorded: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens, the cost in nanodollars and the number of requests (1) that a recorded response consumed, as
    the log counts them.
    """
    usage = recorded["usage"]
    names = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens")
    cost = {"cost": recorded[COST]} if recorded.get(COST) else {}
    return {"requests": 1} | {name: usage[name] for name in names if usage.get(name)} | cost


def settings_of(definition: AgentDefinition) -> ModelSettings:
    """Convert the model settings in an agent's definition, such as temperature and time limit, to pydantic-ai's
    form.
    """
    # divebook retries instead of the provider's client, so that the log has each attempt.
    settings = ModelSettings(timeout=definition.response_timeout, max_retries=0)
    definition_settings = definition.model_settings
    if definition_settings is None:
        return settings
    for name in ("temperature", "presence_penalty", "frequency_penalty", "max_tokens", "parallel_tool_calls"):
        value = getattr(definition_settings, name)
        if value is not None:
            settings[name] = value
    return _with_special_settings(settings, definition_settings)


def _with_special_settings(settings: ModelSettings, definition_settings: SettingsDefinition) -> ModelSettings:
    if definition_settings.reasoning_effort:
        settings["thinking"] = cast("ThinkingLevel", definition_settings.reasoning_effort)
    if definition_settings.request_headers:
        headers = definition_settings.request_headers.items()
        settings["extra_headers"] = {name: ", ".join(values) for name, values in headers}
    return settings


def with_values(settings: ModelSettings | None, policy: Policy) -> ModelSettings | None:
    """Return model settings in which references to secrets in HTTP headers, such as ``env://KEY``, are replaced by
    their values. The result contains secrets and must not be recorded.
    """
    if settings is None or not settings.get("extra_headers"):
        return settings
    return {**settings, "extra_headers": resolved(settings["extra_headers"], policy)}


def user_block(block: Mapping[str, Any]) -> UserContent:
    """Convert a content block (text, image or document) to pydantic-ai's form."""
    kind = block.get("type")
    if kind == "text":
        return str(block["text"])
    source = block.get("source") or {}
    if kind not in ("image", "document") or source.get("type") not in ("base64", "url"):
        raise SetupError(f"content block of type {kind!r} is not known; use text, image or document")
    if source["type"] == "base64":
        return BinaryContent(base64.b64decode(source["data"]), media_type=source["media_type"])
    return ImageUrl(source["url"]) if kind == "image" else DocumentUrl(source["url"])


UNSTABLE = frozenset(
    {
        "timestamp",
        "run_id",
        "conversation_id",
        "model_id",
        "workspace_ref",
        "history_digest",
        "metadata",
        "failed_attempts",
    }
)
"""Fields of messages, parts and tools that models do not see. Most of them differ between runs."""


_TAGS = frozenset({"kind", "part_kind"})


_SETS = ("revealed_tool_names", "introduced_tool_names", "deferred_capability_ids")


# Instructions are recorded beside the parameters, and models do not see the metadata of tools.
_UNSEEN: Mapping[str, Any] = {
    "instruction_parts": True,
    "function_tools": {"__all__": {"metadata"}},
    "output_tools": {"__all__": {"metadata"}},
}


_PARAMETERS = TypeAdapter(ModelRequestParameters)


_ATOMS = frozenset({str, int, float, bool, bytes, type(None), datetime})


_UNTOUCHED = _ATOMS | {RequestUsage}
"""Types that the change detection skips: they are immutable, or models do not see them."""


_FREE = frozenset({"model", "settings"})
"""Parts of a setting that may change while a turn waits. Changing them does not make it a different agent."""


class Described(NamedTuple):
    """Model request of a turn in recorded form: its number, parameters, setting and estimated size."""

    number: int
    parameters: Mapping[str, Any]
    """Parameters that are compared on replay."""
    setting: Setting | None
    """Setting that is recorded and not compared; None if it equals that of the previous request."""
    tokens: int
    """Upper estimate of the tokens of its messages."""
    called_tools: Collection[str]
    """Names of the tools that its messages call."""

    @property
    def key(self) -> str:
        """Operation key of the request within its turn, ``model-<number>``."""
        return f"model-{self.number}"


class _DumpedMessage(NamedTuple):
    """Message with its recorded form. It also has a copy of the content, so that a later change of the message can be
    detected.
    """

    message: ModelMessage
    """The message. The reference keeps its `id` from being reused."""
    mark: Mapping[str, Any]
    content: _ContentCopy
    tokens: int
    called_tools: set[str]


_RETURNED = {"tool_name", "content", "tool_call_id", "part_kind", "content_file_digests"}
"""Fields of an ordinary tool result."""


class _Settings:
    """Setting of a turn's model requests (model, model settings, instructions, tools and output), of which only changes
    are recorded: the parts that differ from the previous request.
    """

    def __init__(self) -> None:
        self._inputs: Any = None
        self._copied_content = _ContentCopy(None)
        self._recorded: dict[str, Any] = {}
        self._hash = ""

    def tell(
        self,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        model: str,
    ) -> Setting | None:
        """Return the parts of the setting (model, instructions, tools, ...) that changed since the previous request,
        with a hash of the whole setting. Return None if nothing changed.
        """
        instructions = _instructions(messages, parameters)
        # The fields of objects are compared, because tools are new objects in each request, and a comparison of objects
        # calls a function for each of them. Equal inputs may hide an edit in place, so the copied content is compared
        # as well.
        tools = {name: [*map(vars, getattr(parameters, name))] for name in ("function_tools", "output_tools")}
        inputs = model, instructions, settings, {**vars(parameters), **tools}
        if inputs == self._inputs and self._copied_content.is_unchanged():
            return None
        setting = _setting(settings, parameters, instructions, model)
        changed = {name: value for name, value in setting.items() if self._recorded.get(name) != value}
        # A part that the setting no longer has is recorded as None.
        removed = dict.fromkeys(self._recorded.keys() - setting.keys())
        compared = {name: value for name, value in setting.items() if name not in _FREE}
        self._recorded = setting
        self._hash = short_hash(compared, "setting")
        self._inputs = inputs
        self._copied_content = _ContentCopy(inputs)
        return Setting({**changed, **removed}, self._hash) if changed or removed else None


def complete_setting(
    messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters, model: str
) -> dict[str, Any]:
    """Return the setting of a model request in recorded form: its model, model settings, instructions, tools and
    output.
    """
    return _setting(settings, parameters, _instructions(messages, parameters), model)


def _setting(
    settings: ModelSettings | None, parameters: ModelRequestParameters, instructions: str, model: str
) -> dict[str, Any]:
    """Return the setting of a model request in recorded form. Long values such as instructions are stored once and
    referred to by their hash.
    """
    dumped = _shortened(parameters, _PARAMETERS.dump_python(parameters, mode="json", exclude=_UNSEEN))
    tools = [
        _shortened(tool, dumped_tool)
        for tool, dumped_tool in zip(parameters.function_tools, dumped.pop("function_tools", ()), strict=True)
    ]
    # Sets have no stable order, and the setting is compared.
    dumped.update({name: sorted(dumped[name]) for name in _SETS if name in dumped})
    plain_settings = _plain_settings(settings)
    setting: dict[str, Any] = {"model": model}
    if plain_settings:
        setting["settings"] = plain_settings
    if instructions:
        setting["instructions"] = by_hash(instructions, "instructions")
    if tools:
        setting["tools"] = by_hash(tools, "tools")
    if dumped:
        setting["output"] = by_hash(dumped, "output")
    return setting


def _plain_settings(settings: ModelSettings | None) -> dict[str, Any]:
    """Return model settings as plain data for the log. The values of HTTP headers are redacted, because they may be
    keys.
    """
    plain: dict[str, Any] = plain_json(dict(settings or {}))
    headers = plain.get("extra_headers")
    return {**plain, "extra_headers": dict.fromkeys(headers, "[redacted]")} if isinstance(headers, dict) else plain


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> str:
    """Return the instructions that pydantic-ai sends with a request: the instructions in the parameters, or else those
    of the latest message that has instructions.
    """
    if parameters.instruction_parts is not None:
        return "\n\n".join(part.content for part in parameters.instruction_parts if part.content)
    texts = (message.instructions for message in reversed(messages) if not isinstance(message, ModelResponse))
    return next(texts, None) or ""


def whole(message: ModelMessage) -> dict[str, Any]:
    """Return the complete recorded form of a message, without references to earlier messages. Default values and fields
    that differ between runs are left out.
    """
    (dumped,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    recorded = _shortened(message, dumped)
    # Instructions belong to the setting of the request (`_setting`), not to its messages.
    recorded.pop("instructions", None)
    recorded["parts"] = [
        _shortened(part, dumped_part) for part, dumped_part in zip(message.parts, recorded["parts"], strict=True)
    ]
    return recorded


def messages_of(recorded: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """Convert recorded messages, as `whole` returns them, back to pydantic-ai's messages."""
    return ModelMessagesTypeAdapter.validate_json(encode(list(recorded)))


def _shortened(value: Any, dumped: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dump of an object without fields that have default values, and without fields that differ between
    runs, such as times.
    """
    kind: Any = type(value)
    default_values = _defaults(kind)
    return {
        name: item
        for name, item in dumped.items()
        if name not in UNSTABLE and (name not in default_values or default_values[name] != item)
    }


@lru_cache(maxsize=256)
def _defaults(cls: Any) -> Mapping[str, Any]:
    """Return the default values of a dataclass by field name, so that they can be left out of the log. Fields that name
    the type of a message are not returned, because they are always recorded.
    """
    # `field(default_factory=list[str])`: an empty collection is dumped as [].
    empty: dict[str, Any] = {
        entry.name: [] for entry in fields(cls) if get_origin(entry.default_factory) in (list, set)
    }
    defaults = {entry.name: entry.default for entry in fields(cls) if entry.default is not MISSING}
    return {name: value for name, value in {**empty, **defaults}.items() if name not in _TAGS}


class _ContentCopy:
    """Detector of in-place changes of a value: copies each dict and list inside the value, and compares the copies
    later.
    """

    __slots__ = ("containers", "copies")

    def __init__(self, value: Any) -> None:
        self.containers: list[Any] = []
        self._take(value)
        self.copies = [container.copy() for container in self.containers]

    def add(self, other: _ContentCopy) -> None:
        """Add the value of another detector, so that this detector detects its changes too."""
        self.containers += other.containers
        self.copies += other.copies

    def _take(self, value: Any) -> None:
        """Add a value and the dicts and lists inside it, at any depth, to the objects that are copied and compared. A
        tuple itself cannot change, so only its items are added.

        A container comes before its parts. Values of types in `_UNTOUCHED` are skipped without a call.
        """
        container = _container(value)
        # All containers are listed flat, and copied without depth: each nested container has a copy of its own.
        if container is not None:
            self.containers.append(container)
            for item in container if type(container) is list else container.values():
                if type(item) not in _UNTOUCHED:
                    self._take(item)
        elif type(value) is tuple:
            for item in value:
                self._take(item)

    def is_unchanged(self) -> bool:
        """Return True if no dict or list of this detector has changed since it was copied."""
        return self.containers == self.copies


def _copy_of_content(value: Any) -> Any:
    """Return a deep copy of a message, made of tuples, lists and dicts, to detect later changes of the message. Fields
    that differ between runs are left out.

    Objects become pairs of class and fields, so that equal copies mean equal messages of the same classes.
    """
    container = _container(value)
    if container is None:
        return tuple(map(_copy_of_content, value)) if type(value) is tuple else value
    if type(container) is list:
        return [item if type(item) in _ATOMS else _copy_of_content(item) for item in container]
    copied = {name: item if type(item) in _ATOMS else _copy_of_content(item) for name, item in container.items()}
    # A dict. Otherwise the container is the `__dict__` of a dataclass.
    if container is value:
        return copied
    for name in UNSTABLE:
        copied.pop(name, None)
    return type(value), copied


def _container(value: Any) -> Any:
    """Return the dict or list that holds the content of a value: a dict or list itself, or the fields of a dataclass
    instance. Return None for any other value.
    """
    kind = type(value)
    if kind is dict or kind is list:
        return value
    return vars(value) if "__dataclass_fields__" in vars(kind) else None


def _same(old_marks: Sequence[Mapping[str, Any]], new_marks: Sequence[Mapping[str, Any]]) -> int:
    """Compare two lists of recorded messages from the beginning. Return the number of equal messages before the first
    difference.
    """
    for number, (old, new) in enumerate(zip(old_marks, new_marks, strict=False)):
        if old is not new and old != new:
            return number
    return min(len(old_marks), len(new_marks))


# --- other sources of responses -------------------------------------------------------------------------------------
# A turn can take responses from a cache, or from a recorded run, without asking a model.


class RequestToSend:
    """Model request that is not sent yet. It has the forms in which a response is searched: `digest` for the response
    cache, `messages` for a recorded run.
    """

    def __init__(self, number: int, name: str, model: Model, params: ModelRequestParams) -> None:
        self.number = number
        self._name = name
        self._model = model
        self._params = params

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """Messages of the request in recorded form. Fields that differ between runs, such as times, are left out."""
        return [whole(message) for message in self._params.messages]

    @cached_property
    def digest(self) -> str:
        """Hash of everything that the model receives with the request: settings, instructions, tools, output type and
        messages. The agent's name is not included.

        The model is identified with its address, and headers by their literal text: a gateway may answer depending on
        them.
        """
        params = self._params
        headers = (params.model_settings or {}).get("extra_headers")
        setting = complete_setting(params.messages, params.model_settings, params.model_request_parameters, self._name)
        # The run context has the model of the agent, but a fallback may get this request.
        models = [
            {"address": model.base_url, "settings": plain_json(dict(model.settings or {}))}
            for model in _answering(self._model)
        ]
        return canonical_hash({"made": setting, "models": models, "headers": headers, "messages": self.messages})


def _answering(model: Model) -> Iterator[Model]:
    """Yield the models that may answer a request to `model`. There are several if it is a fallback model."""
    # Two gateways may serve different models under one name, so the address of each counts.
    while isinstance(model, WrapperModel):
        model = model.wrapped
    if isinstance(model, FallbackModel):
        for inner in model.models:
            yield from _answering(inner)
    else:
        yield model


class ResponseSource(Protocol):
    """Protocol for a source of model responses that is asked before the model, such as the response cache."""

    async def find(self, sent: RequestToSend) -> Mapping[str, Any] | None:
        """Return the response to a request in recorded form. Return None if the source has none; the model is then
        asked.
        """

    async def keep(self, sent: RequestToSend, response: Mapping[str, Any]) -> None:
        """Store a new response that the model has sent, if this source stores responses."""


# --- model errors ----------------------------------------------------------------------------------------------------
#
# Errors of model requests: recorded form, and the class that pydantic-ai's code expects.
#
# A failed request raises the same class with the same fields, live and from the log. Fallbacks, hooks and policies
# inspect class, status and retry delay. The log has class names and field values (`divebook.runtime.errors`), and both
# cases rebuild the error from them (`tests/agents/test_errors_alike.py`).


CATEGORIES = (
    exceptions.ModelRateLimitError,
    exceptions.ModelQuotaExceededError,
    exceptions.ModelOverloadedError,
    exceptions.ModelUnavailableError,
    exceptions.ModelServerError,
    exceptions.ModelContextWindowExceededError,
    exceptions.ModelAuthenticationError,
    exceptions.ModelNotFoundError,
    exceptions.ModelRequestRejectedError,
)
"""Error categories of HTTP statuses, subclasses before their base classes."""


MOST_BODY = 8_000
"""Maximum number of recorded characters of a provider's error body."""


def make_keepable(error: ModelAPIError) -> None:
    """Remove from a model error, in place, everything that must not be recorded: HTTP headers, secrets, and the end of
    a long response body.
    """
    # Reduce the error in place, because its class and traceback must stay.
    fields = vars(error)
    for name in [name for name in fields if name.startswith("_")]:
        del fields[name]  # attached by pydantic-ai, valid in this process only
    if "headers" in fields:
        fields["headers"] = None
    body = shared().value(plain_json(error.body, str))
    error.body = body if len(str(body)) <= MOST_BODY else f"{str(body)[:MOST_BODY]}..."
    error.message = shared().text(error.message)
    error.args = (error.message,)


_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError)
"""Errors that adapters of providers raise by accident if a reply lacks an expected part."""


def as_recorded(error: BaseException, model: str) -> BaseException:
    """Return an error of a model request in the form in which it is recorded: that of pydantic-ai for a malformed
    response of the provider as `UnexpectedModelBehavior` with a clear message, and one of a provider without everything
    that must not be recorded, such as secrets.

    Errors from a user's own model are not converted, because their traceback is more useful.
    """
    if isinstance(error, _UNREADABLE) and _is_from_adapter(error):
        return exceptions.UnexpectedModelBehavior(
            f"the reply of {model} cannot be read ({error}). A provider or a filter that withholds an answer sends an "
            "empty list of choices. Try again, or use another Model"
        )
    # Headers are removed, because they identify accounts.
    if isinstance(error, ModelAPIError):
        make_keepable(error)
    return error


def _is_from_adapter(error: BaseException) -> bool:
    # The innermost frame is where the error was raised.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.startswith("pydantic_ai.models.")


def as_raised(error: OperationError) -> Exception:
    """Return the recorded error of a model request with an HTTP status as an error of pydantic-ai's class. Return any
    other error unchanged.

    The class name alone is not enough: pydantic-ai creates the classes of errors with status and category dynamically,
    under the name of the category.
    """
    fields_of_error: Mapping[str, Any] = vars(error)
    if not isinstance(error, ModelAPIError) or not isinstance(fields_of_error.get("status_code"), int):
        return error
    # The classes are sorted, so the first match is the most specific category.
    category = next((category for category in CATEGORIES if category in type(error).__mro__), None)
    names = ("status_code", "model_name", "body", "provider_error_code", "provider_error_type", "retry_after")
    arguments: dict[str, Any] = {name: fields_of_error.get(name) for name in names}
    converted = ModelHTTPError.for_category(category, **arguments, in_stream=fields_of_error.get("in_stream") is True)
    # `for_category` composes a text of its own. The recorded text is the one that was shown.
    converted.message = str(error)
    converted.args = (str(error),)
    return converted
