"""What if: an execution gone through once more with one change, answered from its log.

First it is driven unchanged against its log, without a call (`divebook.replay.verify`): where that differs, a
difference after the change would say nothing. Then comes exactly one change (`tests/replay/test_what_if.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.forks import Change
from divebook.engine.operations import CHILD_WORKFLOW, ENCLOSING, TIMER, operation_kind, operation_name
from divebook.engine.state import ExecutionState
from divebook.errors import ExecutionNotFoundError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.projections.compare import BLOCKED, IS_COMPUTED, LIVE, Divergence, as_text, way_of
from divebook.projections.comparison import BADGE, CELL, FAINT, RULE, Comparison, safe, styled
from divebook.questions.bounds import Bounds
from divebook.replay.recorded_answers import RecordedEnds
from divebook.replay.rehearsal import (
    Planned,
    RehearsalHost,
    forked_by,
    items_to_come,
    likely_cost,
    likely_items,
    planned_call,
    rehearsed,
)
from divebook.runtime.execution import Execution
from divebook.store import EventStore
from divebook.text.format import AS_TEXT, plural, price
from divebook.text.redaction import one_line, shared
from divebook.workflow.definition import Workflow

# How the operations of a what-if were answered, as its log says. Pure.


_MADE_ANEW = IS_COMPUTED | ENCLOSING | {TIMER}
"""What is not served, so that a recorded result of it is not left over."""
_CALLS = catalog.OperationCompleted | catalog.OperationFailed
ENDS = catalog.OperationCompleted | catalog.OperationFailed | catalog.InterruptResolved | catalog.InterruptExpired


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

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def tally(source: Sequence[Event], own: Sequence[Event], forked: Event) -> Tally:
    """Return how a what-if was answered, as its log says."""
    begun = forked.data
    assert isinstance(begun, catalog.ExecutionForked)  # noqa: S101 - the only event that begins one
    pool = RecordedEnds(begun.source, source, begun.at)
    counted = Counter[str]()
    for event in own:
        if event.sequence > forked.sequence and isinstance(event.data, ENDS):
            told = event.data.served
            counted[way_of(event.data)] += 1
            if told is not None and told.get("execution") == begun.source:
                pool.use(told["sequence"])
    left = sum(end.was_asked_for and end.asked[0] not in _MADE_ANEW for end in pool.left())
    return Tally(**{name: counted[name] for name in ("served", "live", "blocked", "computed", "skipped")}, unused=left)


class Answered(NamedTuple):
    """A call of a what-if that was not answered from the log of its source."""

    sequence: int
    """The event of the what-if that says how it ended."""
    way: str
    """``live``, or ``blocked``: not executed."""
    what: str
    """In words: ``action 'pay'``."""
    step: str


def not_served(own: Iterable[Event], forked: Event) -> Iterator[Answered]:
    """Yield the calls that were made, and those that were not, in the order of their ends."""
    begun: dict[str, str] = {}
    for event in own:
        if isinstance(event.data, catalog.OperationStarted):
            data = event.data
            name = data.name or operation_name(data.operation_type, data.parameters) or ""
            begun[data.operation_id] = f"{operation_kind(data.operation_type)} {name}".rstrip()
        elif event.sequence > forked.sequence and isinstance(event.data, _CALLS):
            way = way_of(event.data)
            if way in (LIVE, BLOCKED):
                yield Answered(event.sequence, way, begun[event.data.operation_id], event.step)


def begun_in(own: Iterable[Event], forked: Event) -> list[str]:
    """Return the executions of other workflows that a what-if has begun itself."""
    begun: dict[str, str] = {}
    for event in own:
        data = event.data
        if event.sequence <= forked.sequence:
            continue
        if isinstance(data, catalog.OperationStarted) and data.operation_type == CHILD_WORKFLOW:
            begun[data.operation_id] = (data.parameters or {})["signal"]
        elif isinstance(data, _CALLS) and data.served is not None:
            begun.pop(data.operation_id, None)
    return list(begun.values())


# What a what-if came to, and how people read it: how it was answered, and both runs beside each other.


MOST = 12
"""Calls that are named."""
_WHOLE = "padding:4px 10px 4px 0;text-align:left;vertical-align:top;white-space:nowrap"
"""The style of a cell whose words are not broken."""
_OF_EACH = ("what-if", "status", "served", "live", "blocked", "unused", "cost", "outputs")


FULL = "full"
PARTLY = "partly"


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
    calls: Sequence[Answered] = ()
    """The calls that were not answered from the log: live, or blocked."""
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

    def __str__(self) -> str:
        return _as_text(self)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 - as IPython calls it
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return _as_html(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        """Return what has JupyterLab's extension lead through the differences, as in a comparison."""
        return self.comparison._repr_mimebundle_()


def _as_text(found: WhatIf) -> str:
    """Return what a what-if came to, in lines."""
    return "\n".join([*_head(found), *_calls(found.calls), repr(found.comparison)])


def _as_html(found: WhatIf) -> str:
    """Return a what-if as a page that is saved with a notebook: A is the lane of its source, B its own."""
    first, *others = map(safe, _head(found))
    lines = [f"<div>{styled(BADGE, 'what-if')}{first.removeprefix('what-if ')}</div>"]
    lines += [f"<div>{line}</div>" for line in others]
    lines += [f'<div style="{FAINT}">{safe(line)}</div>' for line in _calls(found.calls)]
    return f'<div class="{AS_TEXT}" style="margin:4px 0">{"".join(lines)}{found.comparison._repr_html_()}</div>'


def _head(found: WhatIf) -> Iterator[str]:
    changed = ", ".join(found.change.named) or "nothing"
    yield (
        f"what-if {found.execution.id} of {found.source}, from event {found.at + 1} on; changed: {changed}; "
        f"it is {found.execution.status}"
    )
    yield f"{_counted(found)}; {_comparable(found)}"
    if found.execution.error:
        yield one_line(shared().text(f"error: {found.execution.error}"), 400)
    for reason in found.unchecked:
        yield one_line(f"not checked: {reason}", 400)


def _counted(found: WhatIf) -> str:
    tally = found.tally
    told = [f"{tally.served:,} served from the log", f"{tally.live:,} live", f"{tally.blocked:,} blocked"]
    told += [f"{tally.computed:,} computed"] if tally.computed else []
    told += [f"{plural(tally.skipped, 'sleep')} skipped"] if tally.skipped else []
    told += [f"{plural(tally.unused, 'recorded result')} unused"]
    return ", ".join([*told, f"cost {price(found.cost)}"])


def _comparable(found: WhatIf) -> str:
    """Return how far it can be compared, and why no further."""
    reasons = ["it was blocked"] if found.blocked else []
    reasons += [] if found.execution.state.is_over else ["it has not ended"]
    return f"comparable: {found.comparable}" + (f", since {' and '.join(reasons)}" if reasons else "")


def _calls(calls: Sequence[Answered]) -> Iterator[str]:
    """Yield the calls that were not answered from the log."""
    for call in calls[:MOST]:
        yield f"{call.way}: {call.what}, step {call.step} (event {call.sequence:,})"
    if calls[MOST:]:
        yield f"and {plural(len(calls) - MOST, 'more call')}: .calls has all"


class RepeatedWhatIf(list[WhatIf]):
    """Several what-ifs of one change; each shows itself, together they are a table."""

    def __str__(self) -> str:
        rows = [_OF_EACH, *map(_row, self)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(_OF_EACH))]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="{_WHOLE}">{title}</th>' for title in _OF_EACH)
        body = "".join(f'<tr style="border-top:{RULE}">{"".join(_cells(_row(found)))}</tr>' for found in self)
        return f'<table class="{AS_TEXT}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cells(row: Sequence[str]) -> Iterator[str]:
    for place, text in enumerate(row):
        style = f"{CELL};min-width:10em" if place in (0, len(row) - 1) else _WHOLE  # the id and the outputs are long
        yield f'<td style="{style}">{safe(text)}</td>'


def _row(found: WhatIf) -> tuple[str, ...]:
    tally = found.tally
    counts = (tally.served, tally.live, tally.blocked, tally.unused)
    told = one_line(shared().text(as_text(found.outputs)), 120)
    return found.execution.id, found.execution.status, *map(str, counts), price(found.cost), told


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


def planned(world: RehearsalHost, asked: Proposal) -> Plan:
    """Return what would be reused and what would be live, without a call."""
    came = rehearsed(world, asked.events, asked.forked)
    at = asked.forked.at
    told = tally(asked.events, came.events, forked_by(came.events))
    before = sum(isinstance(event.data, ENDS) for event in asked.events[:at])
    live = tuple(planned_call(wanted) for wanted in came.unanswered)
    items = items_to_come(came.events, came.state)
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
    told = tally(source, own, forked)
    calls = [*not_served(own, forked)]
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
