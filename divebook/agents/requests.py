"""What the log keeps of the requests of a turn: each only what is new since the one before it.

`RequestRecord` is given what pydantic-ai is about to send, and gives what is written; how it is read is said in
`divebook.projections.requests`, which puts it together again (`test_rebuilt_equals_sent`).

pydantic-ai hands the same message objects on from request to request, so that what was written of each is kept, with a
copy of what it held. A message that is another object, or holds something else by now, is dumped again: a copy costs
time, and an edit in place is not missed (`test_an_edit_in_place_is_not_missed`).
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, cast, get_origin

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
from pydantic_ai.settings import ModelSettings, ThinkingLevel
from pydantic_ai.usage import RequestUsage

from divebook.agents.models import cost_of, tokens_of
from divebook.agents.signatures import plain_data
from divebook.documents.policy import Policy, resolved
from divebook.engine.operations import Setting
from divebook.errors import OperationError, SetupError, UnstorableValueError
from divebook.events.codec import by_hash, canonical_hash, encode, short_hash, storable
from divebook.projections.spans import COST
from divebook.text.redaction import logger, shared
from divebook.workflow.resources import AgentDefinition
from divebook.workflow.resources import ModelSettings as SettingsDefinition

if TYPE_CHECKING:
    from pydantic_ai.durable_exec import ModelRequestParams
    from pydantic_ai.models import Model


# Settings, responses, usage and content in pydantic-ai's form, for agents of one request and for whole turns.


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
"""Fields of messages, parts and tools that no model sees, most of which differ from run to run."""
_TAGS = frozenset({"kind", "part_kind"})
_SETS = ("revealed_tool_names", "introduced_tool_names", "deferred_capability_ids")
_UNSEEN: Mapping[str, Any] = {
    "instruction_parts": True,
    "function_tools": {"__all__": {"metadata"}},
    "output_tools": {"__all__": {"metadata"}},
}
_PARAMETERS = TypeAdapter(ModelRequestParameters)
_ATOMS = frozenset({str, int, float, bool, bytes, type(None), datetime})
_UNTOUCHED = _ATOMS | {RequestUsage}
"""Types of parts of a message that need not be looked into: they cannot change, or no model sees them."""
_FREE = frozenset({"model", "settings"})
"""Parts of the setting that may change while a turn waits: a fix of them makes no other agent."""


class Described(NamedTuple):
    """One request, as it is written down."""

    number: int
    parameters: Mapping[str, Any]
    """Compared on replay."""
    setting: Setting | None
    """Kept and not compared; None where it is that of the request before."""
    tokens: int
    """What its messages count as at most."""

    @property
    def key(self) -> str:
        """Name of the operation in its turn."""
        return f"model-{self.number}"


class _Told(NamedTuple):
    """What is written of a message, and what it held then."""

    message: ModelMessage
    """Kept, so that no other object gets its id."""
    mark: Mapping[str, Any]
    held: _Held
    tokens: int


class RequestRecord:
    """The requests of one turn.

    Parameters
    ----------
    agent
        Name of the agent.
    history
        Messages of earlier turns of its thread, as `whole` gave them, which stand in front of the first request.
    """

    def __init__(self, agent: str, history: Sequence[Mapping[str, Any]] = ()) -> None:
        self.agent, self.requests = agent, 0
        self._marks: list[Mapping[str, Any]] = list(history)
        """What was written of each message of the latest request."""
        self._told: list[_Told] = []
        """The same with the messages; nothing of what stands in front in a thread."""
        self._held = _Held.of_all(())
        """What all these messages held then."""
        self._sent: list[ModelMessage] = []
        self._tokens = 0
        """What they count as at most."""
        self._answers: dict[int, Any] = {}
        """By number of the request: what its response held when it came."""
        self._results: dict[str, tuple[str, Any] | None] = {}
        """By tool-call id: the tool and what it returned; None where the model gave one id to several calls."""
        self._settings = _Settings()

    def describe(
        self,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        model: str,
    ) -> Described:
        """Return what is written of the next request."""
        self.requests += 1
        before = self._marks
        if self._told and self._goes_on(messages):
            told = [self._told_of(message) for message in messages[len(self._told) :]]
            self._told += told
            self._sent += messages[len(self._sent) :]
            self._tokens += sum(entry.tokens for entry in told)
            self._held.add(entry.held for entry in told)
            self._marks, kept = [*before, *(entry.mark for entry in told)], len(before)
        else:
            known = {id(entry.message): entry for entry in self._told}
            self._told = [self._told_of(message, known.get(id(message))) for message in messages]
            self._held = _Held.of_all(entry.held for entry in self._told)
            self._marks, self._sent = [entry.mark for entry in self._told], [*messages]
            self._tokens = sum(entry.tokens for entry in self._told)
            kept = _same(before, self._marks)
        said: dict[str, Any] = {"agent": self.agent, "request": self.requests}
        new = self._marks[kept:]
        if kept < len(before) or new != self._usual(messages[kept:]):
            said |= {"kept": kept, "new": new}
        setting = self._settings.tell(messages, settings, parameters, model)
        return Described(self.requests, said, setting, self._tokens)

    def _usual(self, added: Sequence[ModelMessage]) -> list[Mapping[str, Any]]:
        """Return what nearly every request adds, which need not be said: an answer, and what its calls returned."""
        calls = [call for answer in added[:1] if isinstance(answer, ModelResponse) for call in answer.tool_calls]
        returned = [{"tool": call.tool_call_id} for call in calls]
        return [{"response": self.requests - 1}, {"parts": returned, "kind": "request"}]

    def answered(self, number: int, response: ModelResponse) -> None:
        """Take the response to a request, made of what the log has of it: later requests only name it."""
        self._answers[number] = _picture(response)

    def called(self, tool_call_id: str, tool: str, result: Mapping[str, Any]) -> None:
        """Take the recorded result of a tool call: later requests only name it."""
        returned = (tool, result.get("result")) if "kind" not in result else None
        self._results[tool_call_id] = None if tool_call_id in self._results else returned

    def _goes_on(self, messages: Sequence[ModelMessage]) -> bool:
        """Tell whether the messages of the request before stand in front, as they were: so it is nearly always."""
        is_longer = len(messages) >= len(self._sent)
        return is_longer and all(map(operator.is_, self._sent, messages)) and self._held.is_unchanged()

    def _told_of(self, message: ModelMessage, known: _Told | None = None) -> _Told:
        """Return what is written of a message, which is the same as before where it is as it was."""
        if known is not None and known.held.is_unchanged():
            return known
        return _Told(message, self._mark(message), _Held(message), tokens_of(message))

    def _mark(self, message: ModelMessage) -> Mapping[str, Any]:
        """Return what is written of a message; of a response that is as it came only the number of its request."""
        if isinstance(message, ModelResponse):
            picture = _picture(message)
            same = (number for number, held in reversed(self._answers.items()) if held == picture)
            number = next(same, None)
            return whole(message) if number is None else {"response": number}
        told = whole(message)
        return {**told, "parts": [self._part(part) for part in told["parts"]]}

    def _part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a part of a message; of what a call returned only the id of the call."""
        if part["part_kind"] != "tool-return" or part.keys() - _RETURNED or part.get("content_file_digests"):
            return part
        known = self._results.get(part["tool_call_id"])
        is_known = known is not None and known == (part["tool_name"], part.get("content"))
        return {"tool": part["tool_call_id"]} if is_known else part


_RETURNED = {"tool_name", "content", "tool_call_id", "part_kind", "content_file_digests"}
"""All that is said of what a tool returned where nothing is special about it."""


class _Settings:
    """What requests are made with, said where it changes."""

    def __init__(self) -> None:
        self._given: Any = None
        self._held = _Held(None)
        self._said: dict[str, Any] = {}
        self._hash = ""

    def tell(
        self,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        model: str,
    ) -> Setting | None:
        """Return what has changed since the request before, and the hash of the whole; None if nothing has."""
        instructions = _instructions(messages, parameters)
        given = model, instructions, settings, parameters
        if given == self._given and self._held.is_unchanged():
            return None
        full = _setting(settings, parameters, instructions, model)
        changed = {name: value for name, value in full.items() if self._said.get(name) != value}
        gone = dict.fromkeys(self._said.keys() - full.keys())
        told = {name: value for name, value in full.items() if name not in _FREE}
        self._said, self._hash = full, short_hash(told, "setting")
        self._given, self._held = given, _Held(given)
        return Setting({**changed, **gone}, self._hash) if changed or gone else None


def made_with(
    messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters, model: str
) -> dict[str, Any]:
    """Return all that a request is made with, besides its messages."""
    return _setting(settings, parameters, _instructions(messages, parameters), model)


def _setting(
    settings: ModelSettings | None, parameters: ModelRequestParameters, instructions: str, model: str
) -> dict[str, Any]:
    """Return all that a request is made with, besides its messages; what is long is kept once, under its hash."""
    dumped = _shortened(parameters, _PARAMETERS.dump_python(parameters, mode="json", exclude=_UNSEEN))
    tools = [
        _shortened(tool, said)
        for tool, said in zip(parameters.function_tools, dumped.pop("function_tools", ()), strict=True)
    ]
    dumped.update({name: sorted(dumped[name]) for name in _SETS if name in dumped})
    said = _said_settings(settings)
    return {
        "model": model,
        **({"settings": said} if said else {}),
        **({"instructions": by_hash(instructions, "instructions")} if instructions else {}),
        **({"tools": by_hash(tools, "tools")} if tools else {}),
        **({"output": by_hash(dumped, "output")} if dumped else {}),
    }


def _said_settings(settings: ModelSettings | None) -> dict[str, Any]:
    """Return the settings as plain data; values of headers may be keys, and are never said."""
    said: dict[str, Any] = plainly(dict(settings or {}))
    headers = said.get("extra_headers")
    return {**said, "extra_headers": dict.fromkeys(headers, "[redacted]")} if isinstance(headers, dict) else said


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> str:
    """Return what the model is told before all messages, as pydantic-ai finds it."""
    if parameters.instruction_parts is not None:
        return "\n\n".join(part.content for part in parameters.instruction_parts if part.content)
    found = (message.instructions for message in reversed(messages) if not isinstance(message, ModelResponse))
    return next(found, None) or ""


def whole(message: ModelMessage) -> dict[str, Any]:
    """Return a message as the log has it where it says all of it: without what is unstable or says nothing."""
    (dumped,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    told = _shortened(message, dumped)
    told.pop("instructions", None)
    told["parts"] = [_shortened(part, said) for part, said in zip(message.parts, told["parts"], strict=True)]
    return told


def messages_of(told: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """Return the messages of which `whole` made these."""
    return ModelMessagesTypeAdapter.validate_json(encode(list(told)))


def _shortened(value: Any, dumped: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was dumped of an object, without what is unstable or as it is by default."""
    silent = _defaults(cast("Any", type(value)))
    return {
        name: item
        for name, item in dumped.items()
        if name not in UNSTABLE and (name not in silent or silent[name] != item)
    }


@lru_cache(maxsize=256)
def _defaults(cls: Any) -> Mapping[str, Any]:
    """Return the fields of a class that need not be said, by their default: a later version may have more of them."""
    empty: dict[str, Any] = {
        entry.name: [] for entry in fields(cls) if get_origin(entry.default_factory) in (list, set)
    }
    known = {entry.name: entry.default for entry in fields(cls) if entry.default is not MISSING}
    return {name: value for name, value in {**empty, **known}.items() if name not in _TAGS}


class _Held:
    """What a value held when it was looked at: all its dicts and lists, with a copy of each."""

    __slots__ = ("now", "then")

    def __init__(self, value: Any) -> None:
        self.now: list[Any] = []
        self._take(value)
        self.then = [held.copy() for held in self.now]

    @classmethod
    def of_all(cls, parts: Iterable[_Held]) -> Self:
        """Return what several values held."""
        made = cls(None)
        made.add(parts)
        return made

    def add(self, parts: Iterable[_Held]) -> None:
        """Add what further values held."""
        for part in parts:
            self.now += part.now
            self.then += part.then

    def _take(self, value: Any) -> None:
        held = _held(value)
        if held is not None:
            self.now.append(held)
            for item in held if type(held) is list else held.values():
                if type(item) not in _UNTOUCHED:
                    self._take(item)
        elif type(value) is tuple:
            for item in value:
                self._take(item)

    def is_unchanged(self) -> bool:
        """Tell whether all of it is as it was, at the cost of one comparison."""
        return self.now == self.then


def _picture(value: Any) -> Any:
    """Return all that a message holds but what is unstable, in a form that no later change of it reaches."""
    held = _held(value)
    if held is None:
        return tuple(map(_picture, value)) if type(value) is tuple else value
    if type(held) is list:
        return [item if type(item) in _ATOMS else _picture(item) for item in held]
    if held is value:
        return {name: item if type(item) in _ATOMS else _picture(item) for name, item in held.items()}
    return type(value), {name: _picture(item) for name, item in held.items() if name not in UNSTABLE}


def _held(value: Any) -> Any:
    """Return the dict or list that holds what a value has; None where it cannot change, or is no data."""
    kind = type(value)
    if kind is dict or kind is list:
        return value
    return vars(value) if "__dataclass_fields__" in vars(kind) else None


def _same(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> int:
    """Return how many in front are the same."""
    for number, (old, new) in enumerate(zip(before, now, strict=False)):
        if old is not new and old != new:
            return number
    return min(len(before), len(now))


# What a request to a model fails with: an error of one class with the same fields, live and from the log.
#
# Fallbacks, hooks and policies look at the class of an error, at its status, and at how long the provider asks to wait.
# The log has the names of classes and what lay in the fields (`divebook.runtime.errors`). From that, the same error is
# made both times (`tests/agents/test_errors_alike.py`).


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
"""What a status may mean; those that say more come before those that they derive from."""
MOST_BODY = 8_000
"""Characters of a provider's answer that are kept."""


@contextmanager
def keepable_errors() -> Iterator[None]:
    """Leave in an error of a model what the log can keep: no headers, which name accounts, and plain data."""
    try:
        yield
    except ModelAPIError as error:
        make_keepable(error)
        raise


def make_keepable(error: ModelAPIError) -> None:
    """Leave in an error of a model what the log can keep, see `keepable_errors`."""
    fields = vars(error)
    for name in [name for name in fields if name.startswith("_")]:
        del fields[name]  # what pydantic-ai has attached on the way is for the process alone
    if "headers" in fields:
        fields["headers"] = None
    body = shared().value(plainly(error.body, str))
    error.body = body if len(str(body)) <= MOST_BODY else f"{str(body)[:MOST_BODY]}..."
    error.message = shared().text(error.message)
    error.args = (error.message,)


_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError)
"""Errors that the adapters of providers raise by accident when a reply lacks a part that they expect."""


@contextmanager
def readable_replies(model: str) -> Iterator[None]:
    """Raise a clear error where the adapter of a provider stumbles over a reply.

    An error out of a person's own model is left as it is: there its traceback says more.

    Raises
    ------
    UnexpectedModelBehavior
        The reply does not have the expected form.
    """
    try:
        yield
    except _UNREADABLE as error:
        if not _is_from_adapter(error):
            raise
        raise exceptions.UnexpectedModelBehavior(
            f"the reply of {model} cannot be read ({error}). A provider or a filter that withholds an answer sends an "
            "empty list of choices. Try again, or use another Model"
        ) from error


def _is_from_adapter(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.startswith("pydantic_ai.models.")


@contextmanager
def errors_as_raised() -> Iterator[None]:
    """Raise what the log has of a failed request as pydantic-ai's code expects it."""
    try:
        yield
    except OperationError as error:
        raised = _as_raised(error)
        if raised is error:  # which must not become its own cause
            raise
        raise raised from error


def _as_raised(error: OperationError) -> Exception:
    """Return a recorded error; one with a status is an error of HTTP.

    The log cannot say it by the class alone: pydantic-ai makes the classes of errors with a status and a category
    inside itself, and gives them the name of the category.
    """
    told: Mapping[str, Any] = vars(error)
    if not isinstance(error, ModelAPIError) or not isinstance(told.get("status_code"), int):
        return error
    category = next((category for category in CATEGORIES if category in type(error).__mro__), None)
    names = ("status_code", "model_name", "body", "provider_error_code", "provider_error_type", "retry_after")
    known: dict[str, Any] = {name: told.get(name) for name in names}
    made = ModelHTTPError.for_category(category, **known, in_stream=told.get("in_stream") is True)
    made.message, made.args = str(error), (str(error),)
    return made


# Answers that a turn takes from elsewhere, and asks no model for: from a cache, or from a run that is played again.


class RequestToSend:
    """A request as it would be sent: the one of a number in its turn, to a model of some name."""

    def __init__(self, number: int, model: str, params: ModelRequestParams) -> None:
        self.number, self._model, self._params = number, model, params

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """Its messages in the form of the log, without what differs on every run."""
        return [whole(message) for message in self._params.messages]

    @cached_property
    def digest(self) -> str:
        """The same for the same model, settings, instructions, tools, output and messages, whichever agent sends it.

        The model is one at an address, and headers count as they are written: a gateway may answer by them.
        """
        params = self._params
        address = getattr(params.run_context.model, "base_url", None)
        headers = (params.model_settings or {}).get("extra_headers")
        made = made_with(params.messages, params.model_settings, params.model_request_parameters, self._model)
        return canonical_hash({"made": made, "address": address, "headers": headers, "messages": self.messages})


class ResponseSource(Protocol):
    """Where answers come from."""

    async def find(self, sent: RequestToSend) -> Mapping[str, Any] | None:
        """Return the response to a request in the form of the log; None to have the model asked."""

    async def keep(self, sent: RequestToSend, response: Mapping[str, Any]) -> None:
        """Take a response that a model has just given."""
