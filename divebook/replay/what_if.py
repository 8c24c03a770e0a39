"""What if: an execution gone through once more with one change, answered from its log.

First it is driven unchanged against its log, without a call (`divebook.replay.verify`): where that differs, a
difference after the change would say nothing. Then comes exactly one change (`tests/replay/test_what_if.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from divebook.bounds import Bounds
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.change import Change
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionNotFoundError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.execution import Execution
from divebook.history.comparison import Comparison
from divebook.replay.planned_calls import Planned, items_to_come, likely_cost, likely_items, planned_call
from divebook.replay.rehearsal import World, forked_by, rehearsed
from divebook.replay.tally import ENDS, Answered, Tally, begun_in, not_served, tally
from divebook.replay.what_if_result import WhatIf
from divebook.store import EventStore
from divebook.text.shown import plural, price
from divebook.workflow.definition import Workflow


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """What a changed execution would take from the log, and what it would do anew: known without a single call."""

    source: str
    at: int
    change: Change
    reused: int
    """Operations whose recorded results hold, those before the change included."""
    live: tuple[Planned, ...]
    """Calls that would be made for sure."""
    cost: float | None
    """About what they would cost in dollars, and the items of `Each` behind them, as such calls of the source did; None
    where it has none of a model, or another workflow is among them."""
    unknown: tuple[str, ...]
    """Steps behind these calls, and items of `Each`: what they would do depends on what those return."""
    blocked: int = 0
    """Calls that would not be executed, up to there."""

    def __str__(self) -> str:
        told = f"{plural(self.reused, 'operation')} reused, {len(self.live)} live"
        if self.cost is not None and self.live:
            told += f", about {price(self.cost)}"
        told += f", {self.blocked} blocked" if self.blocked else ""
        return told + (f", then unknown: {', '.join(self.unknown)}" if self.unknown else "")

    def __repr__(self) -> str:
        live = "".join(f"\n  live: {call}" for call in self.live)
        return f"plan of a what-if of {self.source}, from event {self.at + 1} on: {self}{live}"


class Proposal(NamedTuple):
    """What is asked, once it is checked."""

    source: str
    events: Sequence[Event]
    """Its whole log."""
    state: ExecutionState
    workflow: Workflow
    change: Change
    forked: catalog.ExecutionForked
    """How the what-if begins."""


def bounds_beside(own: Bounds, before: ExecutionState) -> Bounds:
    """Return the bounds of a what-if beside what its source had spent: that is not its own."""
    spent = before.usage
    return replace(
        own,
        max_llm_calls=None if own.max_llm_calls is None else own.max_llm_calls + before.ledger.llm_calls,
        max_tokens=None if own.max_tokens is None else own.max_tokens + spent.input_tokens + spent.output_tokens,
        max_cost=None if own.max_cost is None else own.max_cost + Decimal(spent.cost) / NANODOLLARS,
    )


def planned(world: World, asked: Proposal) -> Plan:
    """Return what would be reused and what would be live, without a call."""
    came, at = rehearsed(world, asked.events, asked.forked), asked.forked.at
    told = tally(asked.events, came.events, forked_by(came.events))
    before = sum(isinstance(event.data, ENDS) for event in asked.events[:at])
    live, items = tuple(planned_call(wanted) for wanted in came.unanswered), items_to_come(came.events, came.state)
    costs = likely_cost(asked.events, came.unanswered), likely_items(asked.events, items)
    return Plan(
        asked.source,
        at,
        asked.change,
        before + told.served,
        live,
        None if None in costs else sum(cost or 0 for cost in costs),
        (*(f"{step} ({plural(count, 'more item')})" for step, count in items.items()), *came.behind(asked.workflow)),
        told.blocked,
    )


def result_of(execution: Execution, asked: Proposal, unchecked: Sequence[str] = ()) -> WhatIf:
    """Return what a what-if came to that has ended, or rests."""
    own = execution.history()
    told, calls = _answered(execution.store, asked.events, own)
    compared = Comparison([asked.events, own])
    return WhatIf(execution, asked.source, asked.forked.at, asked.change, told, compared, calls, unchecked)


def _answered(store: EventStore, source: Sequence[Event], own: Sequence[Event]) -> tuple[Tally, tuple[Answered, ...]]:
    """Return how a what-if was answered, and those of other workflows in it, and what was not from a log."""
    forked = forked_by(own)
    told, calls = tally(source, own, forked), [*not_served(own, forked)]
    for child in begun_in(own, forked):
        try:
            inner = store.read(child)
        except ExecutionNotFoundError:
            continue  # it has not begun, or was deleted
        begun = forked_by(inner).data
        assert isinstance(begun, catalog.ExecutionForked)  # noqa: S101 - that is what it looks for
        more, others = _answered(store, store.read(begun.source), inner)
        told += more
        calls += [call._replace(step=f"{call.step} of {child}") for call in others]
    return told, tuple(calls)
