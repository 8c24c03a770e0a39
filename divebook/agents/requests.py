"""What the log keeps of the requests of a turn: each only what is new since the one before it.

`RequestRecord` is given what pydantic-ai is about to send, and gives what is written; how it is read is said in
`divebook.history.requests`, which puts it together again (`test_rebuilt_equals_sent`).

pydantic-ai hands the same message objects on from request to request, so that what was written of each is kept, with a
copy of what it held. A message that is another object, or holds something else by now, is dumped again: a copy costs
time, and an edit in place is not missed (`test_an_edit_in_place_is_not_missed`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, Self, cast, get_origin

from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from divebook.agents.prices import tokens_of
from divebook.agents.wire import plainly
from divebook.engine.operations import Setting
from divebook.events.codec import by_hash, encode, short_hash

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
