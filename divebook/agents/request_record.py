"""Recorded form of a turn's model requests: each request stores only the difference to the previous one.

`RequestRecord` gets the messages that pydantic-ai is about to send, and returns the recorded form.
`divebook.projections.requests` describes this form and rebuilds the messages (`test_rebuilt_equals_sent`). Example:
request 2 sends the messages of request 1, its response, and the results of its tool calls. Its record contains only the
request number, because this is the usual case.

pydantic-ai passes the same message objects from request to request. The recorded form of each is therefore cached, with
a copy of the object's content. A new or changed object is dumped again. The copy costs time, but detects an edit in
place (`test_an_edit_in_place_is_not_missed`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, cast, get_origin

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from divebook.agents.models import tokens_of
from divebook.engine.operations import Setting
from divebook.events.codec import by_hash, canonical_hash, encode, short_hash

if TYPE_CHECKING:
    from pydantic_ai.durable_exec import ModelRequestParams
from divebook.agents.conversions import plain_json

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


class RequestRecord:
    """Recorded requests of one turn.

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
        """The same with the message objects, without the earlier turns of the conversation."""
        self._copied_content = _ContentCopy.of_all(())
        """Copy of the content of all these messages."""
        self._sent: list[ModelMessage] = []
        self._tokens = 0
        """Upper estimate of their tokens."""
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
        """Return the recorded form of the next request.

        If the messages extend those of the previous request, only the new ones are dumped. Otherwise all messages are
        compared with the previous request, and the first difference determines how many are kept.
        """
        self.requests += 1
        before = self._marks
        if self._dumped and self._extends_previous(messages):
            added = [self._dump(message) for message in messages[len(self._dumped) :]]
            self._dumped += added
            self._sent += messages[len(self._sent) :]
            self._tokens += sum(entry.tokens for entry in added)
            self._copied_content.add(entry.content for entry in added)
            self._marks = [*before, *(entry.mark for entry in added)]
            same_count = len(before)
        else:
            cached = {id(entry.message): entry for entry in self._dumped}
            self._dumped = [self._dump(message, cached.get(id(message))) for message in messages]
            self._copied_content = _ContentCopy.of_all(entry.content for entry in self._dumped)
            self._marks = [entry.mark for entry in self._dumped]
            self._sent = [*messages]
            self._tokens = sum(entry.tokens for entry in self._dumped)
            same_count = _same(before, self._marks)
        parameters_of_request: dict[str, Any] = {"agent": self.agent, "request": self.requests}
        new = self._marks[same_count:]
        if same_count < len(before) or new != self._usual(messages[same_count:]):
            parameters_of_request |= {"kept": same_count, "new": new}
        setting = self._settings.tell(messages, settings, parameters, model)
        return Described(self.requests, parameters_of_request, setting, self._tokens)

    def _usual(self, added: Sequence[ModelMessage]) -> list[Mapping[str, Any]]:
        """Return the usual addition, which is not recorded: the previous response and the results of its calls."""
        calls = [call for answer in added[:1] if isinstance(answer, ModelResponse) for call in answer.tool_calls]
        returned = [{"tool": call.tool_call_id} for call in calls]
        return [{"response": self.requests - 1}, {"parts": returned, "kind": "request"}]

    def answered(self, number: int, response: ModelResponse) -> None:
        """Store the response to a request, built from its recorded form. Later requests refer to it by number."""
        self._answers[number] = _copy_of_content(response)

    def called(self, tool_call_id: str, tool: str, result: Mapping[str, Any]) -> None:
        """Store the recorded result of a tool call. Later requests refer to it by id."""
        returned = (tool, result.get("result")) if "kind" not in result else None
        self._results[tool_call_id] = None if tool_call_id in self._results else returned

    def _extends_previous(self, messages: Sequence[ModelMessage]) -> bool:
        """Return True in the usual case: the messages begin with the unchanged messages of the previous request."""
        is_longer = len(messages) >= len(self._sent)
        return is_longer and all(map(operator.is_, self._sent, messages)) and self._copied_content.is_unchanged()

    def _dump(self, message: ModelMessage, cached: _DumpedMessage | None = None) -> _DumpedMessage:
        """Return the recorded form of a message, reusing the cached one if the message is unchanged."""
        if cached is not None and cached.content.is_unchanged():
            return cached
        return _DumpedMessage(message, self._mark(message), _ContentCopy(message), tokens_of(message))

    def _mark(self, message: ModelMessage) -> Mapping[str, Any]:
        """Return the recorded form of a message. An unchanged response is represented by its request number."""
        if isinstance(message, ModelResponse):
            picture = _copy_of_content(message)
            same = (number for number, held in reversed(self._answers.items()) if held == picture)
            number = next(same, None)
            return whole(message) if number is None else {"response": number}
        dumped = whole(message)
        return {**dumped, "parts": [self._part(part) for part in dumped["parts"]]}

    def _part(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the recorded form of a part. A known tool result is represented by its call id."""
        if part["part_kind"] != "tool-return" or part.keys() - _RETURNED or part.get("content_file_digests"):
            return part
        result = self._results.get(part["tool_call_id"])
        is_same = result is not None and result == (part["tool_name"], part.get("content"))
        return {"tool": part["tool_call_id"]} if is_same else part


class Described(NamedTuple):
    """Recorded form of one request."""

    number: int
    parameters: Mapping[str, Any]
    """Parameters that are compared on replay."""
    setting: Setting | None
    """Setting that is recorded and not compared; None if it equals that of the previous request."""
    tokens: int
    """Upper estimate of the tokens of its messages."""

    @property
    def key(self) -> str:
        """Name of the operation in its turn."""
        return f"model-{self.number}"


class _DumpedMessage(NamedTuple):
    """Recorded form of a message, with a copy of the message's content at that time."""

    message: ModelMessage
    """The message. The reference keeps its `id` from being reused."""
    mark: Mapping[str, Any]
    content: _ContentCopy
    tokens: int


_RETURNED = {"tool_name", "content", "tool_call_id", "part_kind", "content_file_digests"}
"""Fields of an ordinary tool result."""


class _Settings:
    """Settings of requests, recorded when they change."""

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
        """Return the changes since the previous request and the hash of the whole setting.

        None if nothing has changed.
        """
        instructions = _instructions(messages, parameters)
        inputs = model, instructions, settings, parameters
        if inputs == self._inputs and self._copied_content.is_unchanged():
            return None
        full = _setting(settings, parameters, instructions, model)
        changed = {name: value for name, value in full.items() if self._recorded.get(name) != value}
        gone = dict.fromkeys(self._recorded.keys() - full.keys())
        compared = {name: value for name, value in full.items() if name not in _FREE}
        self._recorded = full
        self._hash = short_hash(compared, "setting")
        self._inputs = inputs
        self._copied_content = _ContentCopy(inputs)
        return Setting({**changed, **gone}, self._hash) if changed or gone else None


def complete_setting(
    messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters, model: str
) -> dict[str, Any]:
    """Return the complete setting of a request: everything besides its messages."""
    return _setting(settings, parameters, _instructions(messages, parameters), model)


def _setting(
    settings: ModelSettings | None, parameters: ModelRequestParameters, instructions: str, model: str
) -> dict[str, Any]:
    """Return the complete setting of a request. Long values are stored once, under their hash."""
    dumped = _shortened(parameters, _PARAMETERS.dump_python(parameters, mode="json", exclude=_UNSEEN))
    tools = [
        _shortened(tool, declared)
        for tool, declared in zip(parameters.function_tools, dumped.pop("function_tools", ()), strict=True)
    ]
    dumped.update({name: sorted(dumped[name]) for name in _SETS if name in dumped})
    declared = _plain_settings(settings)
    return {
        "model": model,
        **({"settings": declared} if declared else {}),
        **({"instructions": by_hash(instructions, "instructions")} if instructions else {}),
        **({"tools": by_hash(tools, "tools")} if tools else {}),
        **({"output": by_hash(dumped, "output")} if dumped else {}),
    }


def _plain_settings(settings: ModelSettings | None) -> dict[str, Any]:
    """Return model settings as plain data. Values of headers may be keys, so they are always redacted."""
    plain: dict[str, Any] = plain_json(dict(settings or {}))
    headers = plain.get("extra_headers")
    return {**plain, "extra_headers": dict.fromkeys(headers, "[redacted]")} if isinstance(headers, dict) else plain


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> str:
    """Return the instructions of a request, by the same rule as pydantic-ai."""
    if parameters.instruction_parts is not None:
        return "\n\n".join(part.content for part in parameters.instruction_parts if part.content)
    texts = (message.instructions for message in reversed(messages) if not isinstance(message, ModelResponse))
    return next(texts, None) or ""


def whole(message: ModelMessage) -> dict[str, Any]:
    """Return the complete recorded form of a message, without unstable fields and default values."""
    (dumped,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    recorded = _shortened(message, dumped)
    recorded.pop("instructions", None)
    recorded["parts"] = [
        _shortened(part, dumped_part) for part, dumped_part in zip(message.parts, recorded["parts"], strict=True)
    ]
    return recorded


def messages_of(recorded: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """Return the messages from the form of `whole`."""
    return ModelMessagesTypeAdapter.validate_json(encode(list(recorded)))


def _shortened(value: Any, dumped: Mapping[str, Any]) -> dict[str, Any]:
    """Remove unstable fields and default values from a dumped object."""
    silent = _defaults(cast("Any", type(value)))
    return {
        name: item
        for name, item in dumped.items()
        if name not in UNSTABLE and (name not in silent or silent[name] != item)
    }


@lru_cache(maxsize=256)
def _defaults(cls: Any) -> Mapping[str, Any]:
    """Return the default values of a class's fields. Later versions of pydantic-ai may have more fields."""
    empty: dict[str, Any] = {
        entry.name: [] for entry in fields(cls) if get_origin(entry.default_factory) in (list, set)
    }
    defaults = {entry.name: entry.default for entry in fields(cls) if entry.default is not MISSING}
    return {name: value for name, value in {**empty, **defaults}.items() if name not in _TAGS}


class _ContentCopy:
    """Change detector: all dicts and lists inside a value, with a copy of each."""

    __slots__ = ("now", "then")

    def __init__(self, value: Any) -> None:
        self.now: list[Any] = []
        self._take(value)
        self.then = [held.copy() for held in self.now]

    @classmethod
    def of_all(cls, parts: Iterable[_ContentCopy]) -> Self:
        """Return the combined detector of several values."""
        combined = cls(None)
        combined.add(parts)
        return combined

    def add(self, parts: Iterable[_ContentCopy]) -> None:
        """Add further detectors."""
        for part in parts:
            self.now += part.now
            self.then += part.then

    def _take(self, value: Any) -> None:
        """Collect the containers of a value and of its parts. Tuples are not compared, but may hold containers."""
        held = _container(value)
        if held is not None:
            self.now.append(held)
            for item in held if type(held) is list else held.values():
                if type(item) not in _UNTOUCHED:
                    self._take(item)
        elif type(value) is tuple:
            for item in value:
                self._take(item)

    def is_unchanged(self) -> bool:
        """Return True if nothing has changed since the copy. This costs one comparison."""
        return self.now == self.then


def _copy_of_content(value: Any) -> Any:
    """Return an immutable-by-convention copy of a message, without unstable fields.

    Objects become pairs of class and fields, so that equal copies mean equal messages of the same classes.
    """
    held = _container(value)
    if held is None:
        return tuple(map(_copy_of_content, value)) if type(value) is tuple else value
    if type(held) is list:
        return [item if type(item) in _ATOMS else _copy_of_content(item) for item in held]
    if held is value:
        return {name: item if type(item) in _ATOMS else _copy_of_content(item) for name, item in held.items()}
    return type(value), {name: _copy_of_content(item) for name, item in held.items() if name not in UNSTABLE}


def _container(value: Any) -> Any:
    """Return the dict or list that holds a value's content; None for immutable values."""
    kind = type(value)
    if kind is dict or kind is list:
        return value
    return vars(value) if "__dataclass_fields__" in vars(kind) else None


def _same(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> int:
    """Return the length of the common prefix."""
    for number, (old, new) in enumerate(zip(before, now, strict=False)):
        if old is not new and old != new:
            return number
    return min(len(before), len(now))


# --- other sources of responses -------------------------------------------------------------------------------------
# A turn can take responses from a cache, or from a recorded run, without asking a model.


class RequestToSend:
    """Request number `number` of a turn, to a model of the given name, before it is sent."""

    def __init__(self, number: int, model: str, params: ModelRequestParams) -> None:
        self.number = number
        self._model = model
        self._params = params

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """Its messages in recorded form, without fields that differ between runs."""
        return [whole(message) for message in self._params.messages]

    @cached_property
    def digest(self) -> str:
        """Hash of model, settings, instructions, tools, output and messages. It does not depend on the agent.

        The model is identified with its address, and headers by their literal text: a gateway may answer depending on
        them.
        """
        params = self._params
        address = getattr(params.run_context.model, "base_url", None)
        headers = (params.model_settings or {}).get("extra_headers")
        setting = complete_setting(params.messages, params.model_settings, params.model_request_parameters, self._model)
        return canonical_hash({"made": setting, "address": address, "headers": headers, "messages": self.messages})


class ResponseSource(Protocol):
    """Source of model responses."""

    async def find(self, sent: RequestToSend) -> Mapping[str, Any] | None:
        """Return the recorded form of the response to a request; None to ask the model."""

    async def keep(self, sent: RequestToSend, response: Mapping[str, Any]) -> None:
        """Store a response that a model has just given."""
