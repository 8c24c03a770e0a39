"""The calls of tools that agents made, read off the spans of a log: what was asked, what came of it, what it cost.

A tool has no cost of its own. What a call cost is what was spent by the agents that it gave work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, TOOL_CALL
from divebook.events.catalog import FAILED
from divebook.events.recorded import opened
from divebook.history.spans import Span

Outcome: TypeAlias = Literal["", "returned", "failed", "denied", "retry"]
"""``returned``; ``failed``: the model was told an error; ``denied`` by a rule or a person; ``retry``: the tool wanted
other arguments; empty while it runs, and where it has not come back."""
DENIED = ("User denied tool call", "A rule denies")
"""How what a model hears of a denied call begins: `divebook.steps.approval` says it."""
_KEY = re.compile(r"tool-(\d+)-([^#]+)(?:#(\d+))?")


@dataclass(slots=True)
class ToolCallView:
    """One call of a tool; what it holds belongs to the log, and is not to be changed."""

    span: Span
    """Its operation: times, status, error, attempts; of several rounds the last."""
    request: int
    """Number of the request whose answer asked for it; 0 where the log does not say."""
    name: str
    """How its key names it: `divebook.history.requests.call_name`, and ``~2`` where that came twice in one answer."""
    turn: Span | None = None
    """The turn of the agent that it gave work."""
    usage: dict[str, int] = field(default_factory=dict)
    """What was consumed by that, and by all below it."""

    @property
    def tool(self) -> str:
        """What was called."""
        return str(self._given.get("tool") or self.span.called or "")

    @property
    def agent(self) -> str | None:
        """Who called it."""
        return self.span.agent

    @property
    def server(self) -> str | None:
        """The MCP server that has it; None for a function."""
        server = self._given.get("server")
        return server if isinstance(server, str) and server else None

    @property
    def arguments(self) -> Any:
        """What it was called with, after a person's changes."""
        return opened(self._given.get("arguments"), lenient=True)

    @property
    def outcome(self) -> Outcome:
        """What came of it, in a word."""
        return outcome_of(self.span)

    @property
    def result(self) -> Any:
        """What it returned, or what the model was told instead; None where nothing came."""
        payload = _mapping(opened(self.span.result, lenient=True))
        return payload.get("result", payload.get("message"))

    @property
    def _given(self) -> Mapping[str, Any]:
        return _mapping(self.span.parameters)


def outcome_of(span: Span) -> Outcome:
    """Return what came of a call of a tool."""
    if span.status == FAILED:
        return "failed"
    payload = _mapping(span.result)
    match payload.get("kind"):
        case None | "input_required":
            return ""
        case "tool_failed" | "validation_error":
            return "denied" if str(payload.get("message", "")).startswith(DENIED) else "failed"
        case "model_retry":
            return "retry"
    return "returned"


def tool_calls_in(spans: Iterable[Span]) -> list[ToolCallView]:
    """Return the calls among the spans of one log, in the order in which they began."""
    operations = [span for span in spans if span.kind == "operation"]
    calls: dict[tuple[int, str], ToolCallView] = {}
    for span in operations:
        if span.type == TOOL_CALL:
            prefix, name, number = _placed(span)
            place = span.holder, f"{prefix}{name}"
            if place in calls:
                calls[place].span = span
            else:
                calls[place] = ToolCallView(span, number, name.partition("-")[2].partition("-")[2] or name)
        elif span.type == AGENT_TURN and (call := calls.get((span.holder, _giver(span)))) is not None:
            call.turn = span
    _spend(operations, {call.turn.index: call for call in calls.values() if call.turn is not None})
    return list(calls.values())


def _placed(span: Span) -> tuple[str, str, int]:
    """Return the prefix of a call's key, its rest without the round, and the number of the request."""
    prefix, slash, last = str(span.key).partition("@")[0].rpartition("/")
    named = _KEY.fullmatch(last)
    return (prefix + slash, last.partition("#")[0], int(named[1])) if named else (prefix + slash, last, 0)


def _giver(turn: Span) -> str:
    """Return the key of the call that a turn would have its work of."""
    return str(turn.key).partition("@")[0].removesuffix("/turn").partition("/anew-")[0]


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


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping; what was cut out of a saved log is an empty one."""
    return value if isinstance(value, Mapping) else {}
