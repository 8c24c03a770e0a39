"""The calls of tools that models asked for, read off a log: with what, what came of them, what they cost.

A call is there from the answer that asks for it: one that was denied, or waits to be approved, has no operation. Work
that an agent is given has none of its own either, but its turn. A tool has no cost of its own: what a call cost is what
was spent by the agents that it gave work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, TOOL_CALL
from divebook.events.catalog import COMPLETED, FAILED, WAITING
from divebook.events.recorded import opened
from divebook.history.messages import Block, mapping_in, mappings_in, spoken_in
from divebook.history.requests import RequestView, call_name, placed, requests_in
from divebook.history.spans import DENIALS, Span

Outcome: TypeAlias = Literal["", "returned", "failed", "denied", "retry", "unknown"]
"""``returned``; ``failed``: the model heard of an error; ``denied`` by a rule or a person; ``retry``: the model heard
that it must call otherwise, since there is no such tool, its arguments do not fit, or it wanted others; ``unknown``: it
may have taken effect, and a person is asked; empty while it waits or runs, and where it has not come back."""
UNKNOWN: Outcome = "unknown"
PUT_OFF = "approval_required", "call_deferred"
"""What a tool of pydantic-ai says of a call that waits for a person, who approves it or says what it comes to."""


@dataclass(slots=True)
class ToolCallView:
    """One call of a tool; what it holds belongs to the log, and is not to be changed."""

    view: RequestView
    """The request whose answer asked for it."""
    id: str
    """As the model named it."""
    key: str
    """Its name within the turn, such as ``tool-2-call_7``."""
    asked: Block
    """What the model asked for: ``tool``, ``arguments``."""
    span: Span | None = None
    """Its operation: times, status, error, attempts; of several rounds the last. None where it has none."""
    turn: Span | None = None
    """The turn of the agent that it gave work."""
    told: Mapping[str, Any] | None = None
    """What the model was told of a call without an operation: ``text``, ``outcome``."""
    usage: dict[str, int] = field(default_factory=dict)
    """What was consumed by agents that it gave work, and by all below them."""

    @property
    def tool(self) -> str:
        """What was called, by its own name: one of a server may be called under another one."""
        return str(self._given.get("tool", self.asked["tool"]))

    @property
    def agent(self) -> str:
        """Who called it."""
        return self.view.agent

    @property
    def request(self) -> int:
        """Number of the request whose answer asked for it."""
        return self.view.n

    @property
    def server(self) -> str | None:
        """The MCP server that has it; None for a function."""
        server = self._given.get("server")
        return server if isinstance(server, str) and server else None

    @property
    def arguments(self) -> Any:
        """What it was called with, after a person's changes; before it is called what the model wrote."""
        return opened(self._given.get("arguments", self.asked["arguments"]), lenient=True)

    @property
    def under_way(self) -> Span | None:
        """What says when it ran: its operation, else the turn that it led to."""
        return self.span or self.turn

    @property
    def status(self) -> str:
        """``waiting``, ``running``, ``completed``, ``failed``, ``cancelled``."""
        if self.under_way is not None and not self.is_put_off:
            return self.under_way.status
        return COMPLETED if self.outcome else "waiting"

    @property
    def is_put_off(self) -> bool:
        """Whether its tool wanted a person to approve it, or to say what it comes to, and it was not made since."""
        return self.span is not None and mapping_in(self.span.result).get("kind") in PUT_OFF

    @property
    def outcome(self) -> Outcome:
        """What came of it, in a word."""
        span = self.under_way
        return _told_outcome(self.told) if span is None or self.is_put_off else _outcome(self, span)

    @property
    def result(self) -> Any:
        """What it returned, or what the model was told instead; None where nothing came."""
        if self.span is not None and not self.is_put_off:
            payload = mapping_in(opened(self.span.result, lenient=True))
            return payload.get("result", payload.get("message"))
        if self.turn is not None:
            answer = mapping_in(opened(self.turn.result, lenient=True))
            return answer.get("text", answer.get("output"))
        return None if self.told is None else self.told["text"]

    @property
    def changed(self) -> int:
        """The event that changed it last, as far as its own spans say."""
        return max(span.sequences[-1] for span in (self.view.span, self.span, self.turn) if span is not None)

    @property
    def _given(self) -> Mapping[str, Any]:
        return {} if self.span is None else mapping_in(self.span.parameters)


_TOLD: Mapping[Any, Outcome] = {"success": "returned", "retried": "retry", "denied": "denied"}
"""What pydantic-ai calls the outcome of a call that it, or the guard around all tools, answered by itself."""


def _told_outcome(told: Mapping[str, Any] | None) -> Outcome:
    """Return what came of a call that was never made."""
    if told is None:
        return ""
    return "denied" if str(told["text"]).startswith(DENIALS) else _TOLD.get(told["outcome"], "failed")


def _outcome(call: ToolCallView, span: Span) -> Outcome:
    if span.status == WAITING:
        return UNKNOWN
    if span.status == FAILED:
        return "failed"
    if call.span is None:
        return "returned" if span.status == COMPLETED else ""
    payload = mapping_in(span.result)
    match payload.get("kind"):
        case "input_required":
            return ""
        case None if span.status != COMPLETED:
            return ""
        case "tool_failed":
            return "denied"  # any other one has failed: `divebook.history.spans.tool_failure`
        case "model_retry" | "validation_error":
            return "retry"
    return "returned"


def tool_calls_in(spans: Iterable[Span]) -> list[ToolCallView]:
    """Return the calls that the answers in one log asked for, in the order of these."""
    operations = [span for span in spans if span.kind == "operation"]
    made, turns = _made(operations)
    calls: list[ToolCallView] = []
    views = requests_in(operations)
    told = _told(views)
    for view in views:
        for call in _asked_for(view):
            place = view.span.holder, f"{placed(view.span)[0]}{call.key}"
            call.span, call.turn, call.told = made.get(place), turns.get(place), told.get((view.turn, call.id))
            calls.append(call)
    _spend(operations, {call.turn.index: call for call in calls if call.turn is not None})
    return calls


def _made(operations: Iterable[Span]) -> tuple[dict[tuple[int, str], Span], dict[tuple[int, str], Span]]:
    """Return the operations of calls, and the turns that calls led to, by the turn that holds them and the key."""
    made: dict[tuple[int, str], Span] = {}
    turns: dict[tuple[int, str], Span] = {}
    for span in operations:
        if span.type == TOOL_CALL:
            made[span.holder, call_of(span)] = span  # of rounds the last
        elif span.type == AGENT_TURN and span.holder >= 0:
            turns[span.holder, call_of(span)] = span
    return made, turns


def call_of(span: Span) -> str:
    """Return which call in its turn an operation is: all rounds of one, and the turn that it led to, are the same."""
    key = str(span.key).partition("@")[0]
    return key.removesuffix("/turn").partition("/anew-")[0] if span.type == AGENT_TURN else key.partition("#")[0]


def _asked_for(view: RequestView) -> Iterator[ToolCallView]:
    """Yield the calls that an answer asks for; the call that is the answer itself is none."""
    outputs = output_names(view)
    for block in answered(view):
        if block.get("type") == "tool_call" and block["tool"] not in outputs:
            name = str(block["id"])
            yield ToolCallView(view, name, f"tool-{view.n}-{call_name(name)}", block)


def answered(view: RequestView) -> list[Block]:
    """Return the blocks of an answer: texts, thoughts, calls; none while there is no answer."""
    return [block for said in spoken_in([view.response or {}]) for block in said.content]


def output_names(view: RequestView) -> list[str]:
    """Return the names of calls by which a model gives its answer."""
    return [str(tool.get("name", "")) for tool in mappings_in(view.output.get("output_tools"))]


def _told(views: Sequence[RequestView]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what requests say that calls returned, by turn and by the model's name of the call."""
    told: dict[tuple[str, str], dict[str, Any]] = {}
    for view in views:
        for message in mappings_in((view.span.parameters or {}).get("new")):
            for part in mappings_in(message.get("parts")):
                kind = part.get("part_kind")
                if kind in ("tool-return", "retry-prompt") and isinstance(part.get("tool_call_id"), str):
                    outcome = "retried" if kind == "retry-prompt" else part.get("outcome", "success")
                    told[view.turn, part["tool_call_id"]] = {"text": part.get("content"), "outcome": outcome}
    return told


def _spend(operations: Iterable[Span], given: Mapping[int, ToolCallView]) -> None:
    """Count what requests consumed for all calls above them."""
    holders = {span.index: span.holder for span in operations if span.type == AGENT_TURN}
    for span in operations:
        if span.type != AGENT_RESPONSE or not span.usage:
            continue
        turn = span.holder
        while turn >= 0:
            if (call := given.get(turn)) is not None:
                names = {**call.usage, **span.usage}
                call.usage = {name: call.usage.get(name, 0) + span.usage.get(name, 0) for name in names}
            turn = holders.get(turn, -1)
