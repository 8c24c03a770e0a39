"""What the agents of an execution have consumed, and how many tools were called: followed from span to span."""

from __future__ import annotations

from dataclasses import dataclass

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.operations import AGENT_RESPONSE, AGENT_TURN, TOOL_CALL
from divebook.events.catalog import ExecutionForked
from divebook.events.event import Event
from divebook.history.spans import Span
from divebook.history.tool_calls import call_of
from divebook.text.cuts import one_line
from divebook.widgets.protocol.run import Header, Spender

MOST_SPENDERS = 50
NAME = 120


@dataclass(slots=True)
class _Spent:
    requests: int = 0
    tokens: int = 0
    cost: int | None = None


class Spending:
    """The sums of the spans so far; a span that has changed may be taken again."""

    def __init__(self) -> None:
        self._by_agent: dict[str, _Spent] = {}
        self._counted: set[int] = set()
        self._calls: set[tuple[int, str]] = set()
        """By the turn that holds it and its name there: several rounds, and the turn that it led to, are one call."""
        self._since = 0

    def hear(self, event: Event) -> None:
        """Let a fork begin anew: what was called before is its source's, as are tokens and cost in the header."""
        if isinstance(event.data, ExecutionForked):
            self._by_agent, self._calls, self._since = {}, set(), event.sequence

    def take(self, span: Span) -> None:
        """Count a request that has ended, and a tool call that has begun."""
        if span.sequences[0] < self._since:
            return
        if span.type == TOOL_CALL or (span.type == AGENT_TURN and span.holder >= 0):
            self._calls.add((span.holder, call_of(span)))
        if span.type != AGENT_RESPONSE or not span.usage or span.index in self._counted:
            return
        self._counted.add(span.index)
        spent = self._by_agent.setdefault(span.agent or "", _Spent())
        spent.requests += span.usage.get("requests", 1)
        spent.tokens += span.usage.get("input_tokens", 0) + span.usage.get("output_tokens", 0)
        if "cost" in span.usage:
            spent.cost = (spent.cost or 0) + span.usage["cost"]

    def of(self, header: Header) -> Header:
        """Return a header that says who spent what."""
        spenders = [
            Spender(
                agent=one_line(agent, NAME),
                requests=spent.requests,
                tokens=spent.tokens,
                cost=None if spent.cost is None else spent.cost / NANODOLLARS,
            )
            for agent, spent in list(self._by_agent.items())[:MOST_SPENDERS]
        ]
        return {**header, "tool_calls": len(self._calls), "spenders": spenders}
