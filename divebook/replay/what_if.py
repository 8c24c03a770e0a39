"""What if: an execution gone through once more with one change, answered from its log.

First it is driven unchanged against its log, without a call (`divebook.replay.verify`): where that differs, a
difference after the change would say nothing. Then comes exactly one change (`tests/replay/test_what_if.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

from divebook.bounds import Bounds
from divebook.engine.bounds import NANODOLLARS
from divebook.engine.change import Change
from divebook.engine.operations import (
    ENCLOSING,
    RANDOM_GENERATION,
    SCRIPT_EXECUTION,
    STAGE_ATTEMPT,
    TIME_ACCESS,
    TIMER,
    VERDICT,
    VERSION_DECISION,
)
from divebook.engine.state import ExecutionState
from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.execution import Execution
from divebook.history.aligned import Divergence
from divebook.history.comparison import Comparison
from divebook.replay.planned_calls import Planned, likely_cost, planned_call
from divebook.replay.pool import RecordedEnds
from divebook.replay.rehearsal import World, forked_by, rehearsed
from divebook.text.shown import price
from divebook.workflow.definition import Workflow

FULL, PARTLY = "full", "partly"
_COMPUTED = frozenset({SCRIPT_EXECUTION, TIME_ACCESS, RANDOM_GENERATION, VERDICT, STAGE_ATTEMPT, VERSION_DECISION})
_MADE_ANEW = _COMPUTED | ENCLOSING | {TIMER}
"""What is not served, so that a recorded result of it is not left over."""
_ENDS = catalog.OperationCompleted | catalog.OperationFailed | catalog.InterruptResolved | catalog.InterruptExpired


@dataclass(frozen=True, slots=True)
class Tally:
    """How the operations of a what-if were answered."""

    served: int = 0
    """From the log of the source, answers of people included."""
    live: int = 0
    """Executed: model calls, and what its `tools` allow."""
    blocked: int = 0
    """Not executed, since there is no recorded result."""
    computed: int = 0
    """Scripts, and readings of clock and chance at places that the source never came to."""
    skipped: int = 0
    """Sleeps."""
    unused: int = 0
    """Recorded results that nobody asked for."""


def tally(source: Sequence[Event], own: Sequence[Event], forked: Event) -> Tally:
    """Return how a what-if was answered, as its log says."""
    begun = forked.data
    assert isinstance(begun, catalog.ExecutionForked)  # noqa: S101 - the only event that begins one
    pool, counted = RecordedEnds(begun.source, source, begun.at), Counter[str]()
    for event in own:
        if event.sequence > forked.sequence and isinstance(event.data, _ENDS):
            told = event.data.served
            counted[_way(event.data, told)] += 1
            if told is not None and told.get("execution") == begun.source:
                pool.use(told["sequence"])
    left = sum(end.was_asked_for and end.asked[0] not in _MADE_ANEW for end in pool.left())
    return Tally(**{name: counted[name] for name in ("served", "live", "blocked", "computed", "skipped")}, unused=left)


def _way(data: Any, told: Mapping[str, Any] | None) -> str:
    """Return how an operation was answered."""
    kind = getattr(data, "operation_type", "")
    if told is not None:
        return "blocked" if "blocked" in told else "served"
    if kind == TIMER:
        return "skipped"
    if kind in _COMPUTED:
        return "computed"
    return "live" if kind and kind not in ENCLOSING else "other"


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf:
    """What an execution came to with one change.

    Examples
    --------
    ::

        found = environment.what_if(run.id, {"inputs": {"city": "Bonn"}})
        found.outputs, found.served, found.blocked, str(found.diff)
    """

    execution: Execution
    """Its own execution, of origin ``what-if``."""
    source: str
    """Id of the execution that it was forked from."""
    at: int
    """The last event that it shares with that."""
    change: Change
    tally: Tally
    comparison: Comparison
    """It beside its source, place by place."""
    unchecked: Sequence[str] = ()
    """What of its source could not be held against its log before, and why."""

    @property
    def served(self) -> int:
        """How many operations and questions were answered from the log of its source."""
        return self.tally.served

    @property
    def live(self) -> int:
        """How many calls were made: of models, and of what its `tools` allow."""
        return self.tally.live

    @property
    def blocked(self) -> int:
        """How many calls were not made, since there is no recorded result."""
        return self.tally.blocked

    @property
    def unused(self) -> int:
        """How many recorded results nobody asked for."""
        return self.tally.unused

    @property
    def cost(self) -> float:
        """What it has spent itself, in dollars."""
        return self.execution.state.own_usage.cost / NANODOLLARS

    @property
    def comparable(self) -> str:
        """Whether it can be compared with its source: ``full``, or ``partly``: it was blocked, or has not ended."""
        return FULL if self.execution.state.is_over and not self.blocked else PARTLY

    @property
    def diff(self) -> Divergence | None:
        """The first thing that came out otherwise; None if nothing did."""
        return self.comparison.first

    @property
    def outputs(self) -> Mapping[str, Any]:
        """What it came to."""
        return self.execution.outputs

    def __repr__(self) -> str:
        tally = self.tally
        told = f"{tally.served} served, {tally.live} live, {tally.blocked} blocked, {tally.unused} unused"
        return f"<what-if {self.execution.id} of {self.source}: {self.execution.status}, {told}>"


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
    """About what they would cost in dollars, as such calls of the source did; None where it has none of a model."""
    unknown: tuple[str, ...]
    """Steps behind these calls: what they would do depends on what those return."""

    def __str__(self) -> str:
        told = f"{self.reused} operations reused, {len(self.live)} live"
        if self.cost is not None and self.live:
            told += f", about {price(self.cost)}"
        return told + (f", then unknown: {', '.join(self.unknown)}" if self.unknown else "")

    def __repr__(self) -> str:
        return f"<plan of a what-if of {self.source} from event {self.at} on: {self}>"


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
    before = sum(isinstance(event.data, _ENDS) for event in asked.events[:at])
    live = tuple(planned_call(wanted) for wanted in came.unanswered)
    return Plan(
        asked.source,
        at,
        asked.change,
        before + told.served,
        live,
        likely_cost(asked.events, came.unanswered),
        came.behind(asked.workflow),
    )


def result_of(execution: Execution, asked: Proposal, unchecked: Sequence[str] = ()) -> WhatIf:
    """Return what a what-if came to that has ended, or rests."""
    own = execution.history()
    told, compared = tally(asked.events, own, forked_by(own)), Comparison([asked.events, own])
    return WhatIf(execution, asked.source, asked.forked.at, asked.change, told, compared, unchecked)
