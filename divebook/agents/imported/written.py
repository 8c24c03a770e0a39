"""What agents said and did, as others have it, written as the log of an execution in which each turn is a step.

The form is that of `divebook.agents.requests`, so that such a log is shown, framed, compared and forked like any other
(`tests/test_imported_logs.py`). It says nothing of what the source does not: a call without a result stays open, and
what has no end comes in as a picture (`divebook.store.jsonl`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, TOOL_CALL, Place, operation_name
from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.codec import short_hash
from divebook.events.event import Event
from divebook.events.ids import type_id
from divebook.events.values import normalize
from divebook.history.requests import call_name
from divebook.workflow.definition import Edge, Step, Workflow

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

MAIN = "main"
_COUNTED = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(slots=True)
class SaidCall:
    """A call of a tool."""

    id: str
    tool: str
    arguments: Any
    result: Any = None
    error: str | None = None
    is_retry: bool = False
    """Whether the error only told the model to call otherwise."""
    has_ended: bool = False
    began: int = 0
    """Times are microseconds since 1970; 0 where the source does not say."""
    ended: int = 0


@dataclass(slots=True)
class SaidRequest:
    """A request to a model; messages have pydantic-ai's JSON form."""

    sent: Sequence[Mapping[str, Any]]
    """All that was sent, from the first message on."""
    response: Mapping[str, Any] | None
    error: str | None = None
    model: str | None = None
    instructions: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = ()
    calls: Sequence[SaidCall] = ()
    began: int = 0
    ended: int = 0


@dataclass(slots=True)
class SaidTurn:
    """An agent at work until its answer."""

    agent: str
    prompt: str
    requests: Sequence[SaidRequest]
    output: Any = None
    error: str | None = None
    has_ended: bool = True


def log_of(name: str, turns: Sequence[SaidTurn], source: str, now: int) -> list[Event]:
    """Return the log of an execution whose steps are turns.

    Parameters
    ----------
    name
        Of its workflow.
    source
        What all this was read from: the ids of the execution and its events are made of it, so that the same source is
        the same execution whenever it is read.
    now
        The time of what has none, microseconds since 1970.
    """
    writer = _Writer(source, _first_moment(turns) or now)
    steps = [f"turn {number}" if len(turns) > 1 else "turn" for number in range(1, len(turns) + 1)]
    workflow = _workflow(name, steps, turns)
    writer.add(
        catalog.ExecutionStarted(
            name, {}, workflow.to_dict(), workflow.fingerprint, origin=catalog.IMPORT, seed=writer.seed
        )
    )
    writer.add(catalog.PathStarted(steps[0]), MAIN)
    for step, turn in zip(steps, turns, strict=True):
        if not _Turn(writer, step, turn).write():
            return writer.events
    writer.add(catalog.PathCompleted(steps[-1]), MAIN)
    writer.add(catalog.ExecutionCompleted({"result": normalize(turns[-1].output, "output")}, writer.used() or None))
    return writer.events


def _first_moment(turns: Sequence[SaidTurn]) -> int:
    return min((request.began for turn in turns for request in turn.requests if request.began), default=0)


def _workflow(name: str, steps: Sequence[str], turns: Sequence[SaidTurn]) -> Workflow:
    following = [[Edge(step)] for step in steps[1:]] + [[]]
    return Workflow(
        name,
        [
            Step(step, type="prompt", agent=turn.agent, prompt=turn.prompt.replace("${", "$${"), edges=edges)
            for step, turn, edges in zip(steps, turns, following, strict=True)
        ],
    )


class _Writer:
    """Gives events their numbers, ids and times, which never go back."""

    def __init__(self, source: str, first: int) -> None:
        digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).digest()
        self._chance = int.from_bytes(digest[:9], "big")
        self.seed = digest[9:17].hex()
        self._now = first
        self._id = type_id("exec", first // 1000, self._chance)
        self.events: list[Event] = []
        self.usages: list[Mapping[str, int]] = []

    def add(self, data: Payload, path: str = "", step: str = "", at: int = 0) -> int:
        """Append an event; return its number."""
        self._now = max(self._now, at)
        number = len(self.events) + 1
        identifier = type_id("event", self._now // 1000, self._chance + number)
        self.events.append(Event(identifier, self._id, number, self._now, data, path, step))
        return number

    def used(self) -> dict[str, int]:
        """Return what all requests have consumed together."""
        names = {name for usage in self.usages for name in usage}
        return {name: sum(usage.get(name, 0) for usage in self.usages) for name in sorted(names)}


class _Asked:
    """What is written of the requests of a turn, as of one that runs here: else no fork could go on inside it.

    Messages that pydantic-ai cannot read are written as they are: such a turn is shown, and forked at its beginning.
    """

    def __init__(self, turn: SaidTurn) -> None:
        from pydantic import ValidationError

        from divebook.agents.requests import RequestRecord, messages_of  # takes half a second; only for such a file

        self._agent, self._record = turn.agent, RequestRecord(turn.agent)
        self._read: dict[int, ModelMessage] = {}
        self._before: list[Mapping[str, Any]] = []
        self._answer: Mapping[str, Any] | None = None
        """What the request before was answered with."""
        came = [request.response for request in turn.requests if request.response is not None]
        sent = [message for request in turn.requests for message in request.sent]
        said = {id(message): message for message in (*came, *sent)}
        try:
            read = dict(zip(said, messages_of(list(said.values())), strict=True))
        except ValidationError:
            return
        answers = {_key(message): id(message) for message in reversed(came)}  # who sends one on may say less of it
        self._read = {place: read[answers.get(_key(message), place)] for place, message in said.items()}

    def describe(self, number: int, request: SaidRequest) -> Mapping[str, Any]:
        """Return what is written of the next request."""
        if not self._read:
            return self._as_said(number, request)
        from pydantic_ai.models import ModelRequestParameters

        sent = [self._read[id(message)] for message in request.sent]
        told = self._record.describe(sent, None, ModelRequestParameters(), request.model or "").parameters
        if request.response is not None:
            response: Any = self._read[id(request.response)]
            self._record.answered(number, response)
        for call in request.calls:
            if call.has_ended and call.error is None:
                self._record.called(call.id, call.tool, {"result": call.result})
        return told

    def _as_said(self, number: int, request: SaidRequest) -> Mapping[str, Any]:
        sent = list(request.sent)
        kept = _common(self._before, sent)
        new = [{"response": number - 1} if message == self._answer else message for message in sent[kept:]]
        self._before, self._answer = sent, request.response
        return {"agent": self._agent, "request": number, "kept": kept, "new": new}


class _Turn:
    """Writes one turn as a step."""

    def __init__(self, writer: _Writer, step: str, turn: SaidTurn) -> None:
        self._writer, self._step, self._turn = writer, step, turn
        self._holder = 0
        self._asked = _Asked(turn)
        self._set: dict[str, Any] = {}
        self._is_whole = True

    def write(self) -> bool:
        """Append its events; return whether what follows may begin."""
        turn, requests = self._turn, self._turn.requests
        self._add(catalog.StepStarted("prompt"), requests[0].began if requests else 0)
        asked = {"agent": turn.agent, "prompt": turn.prompt}
        model = next((request.model for request in requests if request.model), None)
        self._holder = 0
        self._holder = self._begin(AGENT_TURN, "turn", asked, {"model": model} if model else None, 0)
        for number, request in enumerate(requests, 1):
            self._write_request(number, request)
        if turn.error is not None:
            return self._fail(turn.error)
        if not turn.has_ended or not self._is_whole:
            return False
        finish = (requests[-1].response or {}).get("finish_reason") if requests else None
        self._end(AGENT_TURN, "turn", {"output": turn.output, "requests": len(requests), "finish_reason": finish}, 0, 0)
        text = turn.output if isinstance(turn.output, str) else short_text(turn.output)
        self._add(catalog.StepCompleted(text, usage=self._writer.used() or None))
        return True

    def _fail(self, error: str) -> bool:
        identity = self._place("turn").operation_id
        self._add(catalog.OperationFailed(identity, AGENT_TURN, 0, error))
        told = f"agent {self._turn.agent} failed: {error}"
        self._add(catalog.StepFailed(told))
        self._writer.add(catalog.PathFailed(told), MAIN)
        self._writer.add(catalog.ExecutionFailed(told))
        return False

    def _write_request(self, number: int, request: SaidRequest) -> None:
        key, asked = f"model-{number}", self._asked.describe(number, request)
        setting = {
            "model": request.model,
            "settings": dict(request.settings),
            "instructions": request.instructions,
            "tools": list(request.tools),
        }
        told = {name: value for name, value in setting.items() if value != self._set.get(name) and value}
        self._set.update(told)
        self._begin(AGENT_RESPONSE, key, asked, told or None, request.began)
        if request.error is not None:
            identity = self._place(key).operation_id
            self._add(catalog.OperationFailed(identity, AGENT_RESPONSE, _lasted(request), request.error), request.ended)
        elif request.response is None:
            self._is_whole = False
        else:
            usage = _usage(request.response)
            self._writer.usages.append(usage)
            said = request.response.items()
            result = {name: value for name, value in said if name != "kind" and value is not None}
            self._end(AGENT_RESPONSE, key, result, _lasted(request), request.ended, usage=usage)
        for call in request.calls:
            self._write_call(number, call)

    def _write_call(self, number: int, call: SaidCall) -> None:
        key = f"tool-{number}-{call_name(call.id)}"
        asked = {"agent": self._turn.agent, "tool": call.tool, "arguments": call.arguments}
        self._begin(TOOL_CALL, key, asked, None, call.began)
        if not call.has_ended:
            self._is_whole = False
        elif call.is_retry:
            self._end(TOOL_CALL, key, {"kind": "model_retry", "message": call.error}, _lasted(call), call.ended)
        elif call.error is not None:
            identity = self._place(key).operation_id
            self._add(catalog.OperationFailed(identity, TOOL_CALL, _lasted(call), call.error), call.ended)
        else:
            self._end(TOOL_CALL, key, {"result": call.result}, _lasted(call), call.ended)

    def _begin(
        self, kind: str, key: str, parameters: Mapping[str, Any], setting: Mapping[str, Any] | None, at: int
    ) -> int:
        plain = normalize(parameters, "parameters")
        told = None if setting is None else normalize(setting, "setting")
        started = catalog.OperationStarted(
            self._place(key).operation_id,
            kind,
            plain,
            short_hash(plain, "parameters"),
            key=key,
            name=operation_name(kind, plain),
            setting=told,
            setting_hash=None if told is None else short_hash(told, "setting"),
            within=self._holder or None,
        )
        return self._add(started, at)

    def _end(
        self, kind: str, key: str, result: Any, lasted: int, at: int, *, usage: Mapping[str, int] | None = None
    ) -> None:
        identity = self._place(key).operation_id
        data = catalog.OperationCompleted(identity, kind, lasted, normalize(result, "result"), usage or None)
        self._add(data, at)

    def _place(self, key: str) -> Place:
        return Place(MAIN, self._step, 1, None, key)

    def _add(self, data: Payload, at: int = 0) -> int:
        return self._writer.add(data, MAIN, self._step, at)


def short_text(value: Any) -> str:
    """Return a value as the text of a step."""
    from divebook.events.codec import encode

    return "" if value is None else encode(normalize(value, "output")).decode()


def _key(message: Mapping[str, Any]) -> str:
    """Return what tells a message from others: what it says."""
    return short_hash(normalize([message.get("kind", "response"), message["parts"]], "parts"), "parts")


def _common(before: Sequence[Any], now: Sequence[Any]) -> int:
    """Return with how many equal messages two lists begin."""
    pairs = zip(before, now, strict=False)
    return next((place for place, (old, new) in enumerate(pairs) if old != new), min(len(before), len(now)))


def _lasted(of: SaidRequest | SaidCall) -> int:
    """Return how long something took, nanoseconds."""
    return max(0, of.ended - of.began) * 1000 if of.began and of.ended else 0


def _usage(response: Mapping[str, Any]) -> dict[str, int]:
    told = response.get("usage")
    counts = told if isinstance(told, Mapping) else {}
    known = {name: counts[name] for name in _COUNTED if type(counts.get(name)) is int and counts[name] > 0}
    return {"requests": 1, **known}
