"""What if: an execution gone through once more with one change, answered from its log.

First it is gone through unchanged, in memory and without a call: where that differs from its log, a difference after
the change would say nothing. Then comes exactly one change (`tests/replay/test_what_if.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

from divebook.bounds import Bounds
from divebook.engine.ahead import steps_ahead
from divebook.engine.change import Change
from divebook.engine.evolve import fold
from divebook.engine.forked import require_reach, snapped
from divebook.engine.operations import (
    ENCLOSING,
    RANDOM_GENERATION,
    SCRIPT_EXECUTION,
    STAGE_ATTEMPT,
    TIME_ACCESS,
    TIMER,
    VERDICT,
    VERSION_DECISION,
    operation_name,
)
from divebook.engine.state import ExecutionState
from divebook.errors import SetupError, UnfaithfulError, did_you_mean
from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.execution import Execution
from divebook.execution.wanted import Wanted
from divebook.replay.differences import Difference, differences
from divebook.replay.fork_points import point_of
from divebook.replay.pool import REQUESTS, RecordedEnds
from divebook.replay.recorded_answers import TOOLS
from divebook.replay.rehearsal import Rehearsal, World, forked_by, rehearsed
from divebook.workflow.definition import Workflow

FULL, PARTLY = "full", "partly"
NANODOLLARS = 1_000_000_000
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


@dataclass(frozen=True, slots=True)
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
    differences: tuple[Difference, ...]
    """What came out otherwise than in its source, in the order of the source's log."""

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
    def diff(self) -> Difference | None:
        """The first thing that came out otherwise; None if nothing did."""
        return self.differences[0] if self.differences else None

    @property
    def outputs(self) -> Mapping[str, Any]:
        """What it came to."""
        return self.execution.outputs

    def __repr__(self) -> str:
        tally = self.tally
        told = f"{tally.served} served, {tally.live} live, {tally.blocked} blocked, {tally.unused} unused"
        return f"<what-if {self.execution.id} of {self.source}: {self.execution.status}, {told}>"


class Planned(NamedTuple):
    """A call that would be made."""

    operation_type: str
    name: str
    step: str


@dataclass(frozen=True, slots=True)
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
            told += f", about ${self.cost:.2f}"
        return told + (f", then unknown: {', '.join(self.unknown)}" if self.unknown else "")


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


def proposed(
    source: Execution,
    change: Change | Mapping[str, Any] | None,
    at: int | None,
    code: Mapping[str, str],
    *,
    tools: str,
    bounds: Bounds | None = None,
) -> Proposal:
    """Return what is asked of an execution, checked against its log.

    Raises
    ------
    SetupError
        There is nothing of what is to be changed, or no such way with tools.
    """
    if tools not in TOOLS:
        advice = did_you_mean(tools, TOOLS) or f"there are {', '.join(TOOLS)}"
        raise SetupError(f"a what-if cannot treat actions and tools as {tools!r} ({advice})")
    events, wanted = source.history(), Change.of(change)
    if at is not None and not 1 <= at <= len(events):
        raise SetupError(f"execution {source.id} has {len(events)} events; at is 1 to {len(events)}, not {at!r}")
    where = point_of(events, wanted) if at is None else snapped(events, at)
    before = fold(source.id, events[:where])
    require_reach(wanted, before)
    workflow = wanted.workflow(source.workflow)
    is_other = workflow is not source.workflow
    forked = catalog.ExecutionForked(
        source.id,
        where,
        workflow.name,
        change=wanted.to_data() or None,
        origin=catalog.WHAT_IF,
        definition=workflow.stored if is_other else None,
        text=workflow.source if is_other else None,
        fingerprint=workflow.fingerprint if is_other else None,
        bounds=None if bounds is None else _beside(bounds, before).to_dict(),
        seed=before.seed,
        code=code or None,
        model=wanted.model,
        tools=tools,
    )
    return Proposal(source.id, events, source.state, workflow, wanted, forked)


def _beside(own: Bounds, before: ExecutionState) -> Bounds:
    """Return the bounds of a what-if beside what its source had spent: that is not its own."""
    spent = before.usage
    return replace(
        own,
        max_llm_calls=None if own.max_llm_calls is None else own.max_llm_calls + before.ledger.llm_calls,
        max_tokens=None if own.max_tokens is None else own.max_tokens + spent.input_tokens + spent.output_tokens,
        max_cost=None if own.max_cost is None else own.max_cost + Decimal(spent.cost) / NANODOLLARS,
    )


def require_faithful(world: World, asked: Proposal) -> None:
    """Raise `UnfaithfulError` unless the source comes to the same once more, without a change and without a call."""
    unchanged = replace(
        asked.forked, at=1, change=None, definition=None, text=None, fingerprint=None, bounds=None, model=None
    )
    again = rehearsed(world, asked.events, unchanged)
    found = next(differences(asked.events, again.events, (asked.state, again.state)), None)
    if found is not None:
        raise UnfaithfulError(asked.source, str(found))


def planned(world: World, asked: Proposal) -> Plan:
    """Return what would be reused and what would be live, without a call."""
    came, at = rehearsed(world, asked.events, asked.forked), asked.forked.at
    told = tally(asked.events, came.events, forked_by(came.events))
    before = sum(isinstance(event.data, _ENDS) for event in asked.events[:at])
    live = tuple(_planned(wanted) for wanted in came.unanswered)
    return Plan(asked.source, at, asked.change, before + told.served, live, _price(asked, came), _behind(asked, came))


def _planned(wanted: Wanted) -> Planned:
    kind = wanted.operation_type
    return Planned(kind, operation_name(kind, wanted.parameters) or "", wanted.place.step)


def _behind(asked: Proposal, came: Rehearsal) -> tuple[str, ...]:
    """Return the steps that come after those at which code rests."""
    if came.state.is_over or not came.unanswered:
        return ()
    resting = {wanted.place.step for wanted in came.unanswered}
    ahead = steps_ahead(asked.workflow, came.state)
    return tuple(step.name for step in asked.workflow.steps if step.name in ahead and step.name not in resting)


def _price(asked: Proposal, came: Rehearsal) -> float | None:
    """Return about what the calls that would be made cost, by what such calls of the same agents did."""
    spent: dict[str | None, list[int]] = {}
    agents: dict[str, str | None] = {}
    for event in asked.events:
        match event.data:
            case catalog.OperationStarted() as data if data.operation_type in REQUESTS:
                agents[data.operation_id] = data.name
            case catalog.OperationCompleted() as data if data.operation_id in agents and data.usage:
                spent.setdefault(agents[data.operation_id], []).append(data.usage.get("cost", 0))
    wanted = [operation_name(each.operation_type, each.parameters) for each in came.unanswered]
    wanted = [agent for each, agent in zip(came.unanswered, wanted, strict=True) if each.operation_type in REQUESTS]
    if any(agent not in spent for agent in wanted):
        return None
    return sum(sum(spent[agent]) / len(spent[agent]) for agent in wanted) / NANODOLLARS


def result_of(execution: Execution, asked: Proposal) -> WhatIf:
    """Return what a what-if came to that has ended, or rests."""
    own = execution.history()
    forked = forked_by(own)
    found = tuple(differences(asked.events, own, (asked.state, execution.state)))
    return WhatIf(execution, asked.source, asked.forked.at, asked.change, tally(asked.events, own, forked), found)
