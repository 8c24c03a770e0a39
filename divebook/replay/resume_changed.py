"""Resumption with a changed definition: the part of the log that the definition reproduces, and the plan of the
remaining calls.

The definition runs against the log without external calls (`divebook.replay.verify`); the events before the first
difference are kept. The rest is rehearsed in memory: repeated calls are answered from the log, and code stops where a
new call would run (`tests/replay/test_going_on.py`). Example: steps a, b, c ran, and b was corrected. The events of a
are kept. If c makes the same call as before, the recorded result of the call is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from divebook.definitions.definition import Workflow
from divebook.engine.operations import (
    ACTION_EXECUTION,
    CHILD_WORKFLOW,
    RANDOM_GENERATION,
    STEP_EXECUTION,
    TIME_ACCESS,
    TIMER,
    TOOL_CALL,
    VERSION_DECISION,
    operation_kind,
    operation_name,
)
from divebook.engine.state import ExecutionState, undone_in
from divebook.errors import SetupError
from divebook.events import catalog
from divebook.events.catalog import RUNNING
from divebook.events.event import Event
from divebook.replay.recorded_answers import COMPUTED
from divebook.replay.verify import FirstDifference, verified
from divebook.replay.what_if import (
    Planned,
    Rehearsal,
    Variant,
    items_to_come,
    later_calls,
    likely_cost,
    likely_items,
    likely_turns,
    planned_call,
)
from divebook.report.model import Items, Report
from divebook.report.shown import Shown
from divebook.runtime.forks import ForkSource, made_again, point_before
from divebook.runtime.manager import Control
from divebook.runtime.run import Run
from divebook.text.format import plural, price

_ENDS = (catalog.OperationCompleted, catalog.OperationFailed, catalog.InterruptResolved, catalog.InterruptExpired)
_DONE_AGAIN = COMPUTED | {TIMER, TIME_ACCESS, RANDOM_GENERATION, VERSION_DECISION}
"""Operations that run again at no cost. Their unused recorded ends are not counted."""
_COMPUTED_KINDS = {operation_kind(kind) for kind in _DONE_AGAIN}
# Calls that may have an effect outside of divebook.
_OUTSIDE = frozenset({ACTION_EXECUTION, STEP_EXECUTION, TOOL_CALL})


class Kept(NamedTuple):
    """Result of comparing a changed definition with a log: the last event that the definition reproduces, and the first
    difference.
    """

    at: int
    """Number of the last event that is kept."""
    first: FirstDifference | None
    """First difference between definition and log; None if the definition reproduces the whole log."""


@dataclass(frozen=True, slots=True, repr=False)
class ResumePlan(Shown):
    """Plan of a resumption with a changed definition: the results it would reuse, and the calls it would make.

    The plan is computed without external calls. `summary` is one line, `lines` the whole plan.
    """

    source: str
    """Id of the execution that would be resumed."""
    workflow: str
    at: int
    """Number of the last event of the log that would be kept."""
    first: FirstDifference | None
    """First difference between the changed definition and the log."""
    reused: int
    """Number of recorded results and answers that would be used, before and after event `at`."""
    kinds: Mapping[str, int]
    """Number of reused results by kind: ``{"action": 10, "model call": 2}``."""
    live: tuple[Planned, ...]
    """Calls that would certainly be made."""
    asked: tuple[str, ...]
    """Steps in which a person would be asked."""
    behind: tuple[str, ...]
    """Steps after these calls and questions, and later calls of the functions that make them. They depend on the
    results.
    """
    at_hand: int
    """Number of recorded results that the steps in `behind` may reuse if they make equal calls."""
    cost: float | None
    """Estimated cost of the calls in dollars, from recorded calls of the same agents; None without such records."""
    unsure: tuple[Planned, ...] = ()
    """Calls with a recorded start but no recorded end. They may have taken effect, and would be made again."""
    edited: tuple[str, ...] = ()
    """Names of the functions that were edited since the log was recorded."""
    items: Mapping[str, int] = field(default_factory=dict)
    """Number of items, by step, that would start later because the step already runs its maximum number of items at the
    same time.
    """
    children: tuple[str, ...] = ()
    """Child executions that failed. They would start again as new executions that reuse the old results."""
    undone: tuple[str, ...] = ()
    """Steps whose results are not reused, because a rollback undid or will undo their effects."""

    @property
    def saves(self) -> bool:
        """True if the resumption would reuse at least one result of an external call or one answer of a person, not
        only computed values.
        """
        return not self.kinds.keys() <= _COMPUTED_KINDS

    @property
    def summary(self) -> str:
        """The counted results and calls, the cost and the questions of the resumption, in one line."""
        text = f"{plural(self.reused, 'operation')} reused, {len(self.live)} live"
        if self.cost is None:
            text += ", at an unknown cost"
        elif self.live and self.cost:
            text += f", about {price(self.cost)}"
        if self.asked:
            text += f", {plural(len(self.asked), 'question')} asked in {', '.join(self.asked)}"
        # Items and steps whose number of calls cannot be known before the live calls have returned.
        unknown = [*(f"{plural(count, 'item')} of {step}" for step, count in self.items.items()), *self.behind]
        if not unknown:
            return text
        # Otherwise "0 operations reused" would be the whole account of a plan that ends at its first call.
        more = f", which may reuse up to {self.at_hand} more" if self.at_hand else ""
        return f"{text}, then unknown: {_listed(unknown)}{more}"

    @property
    def lines(self) -> tuple[str, ...]:
        """Whole plan of the resumption as lines of text."""
        counted = ", ".join(plural(count, kind) for kind, count in self.kinds.items()) or "nothing"
        lines = [f"plan to continue {self.source} of {self.workflow!r}: {self.summary}"]
        lines += [f"reused: {counted}; {plural(self.at, 'event')} kept unchanged"]
        lines += [f"first difference: {self.first}"] if self.first is not None else []
        # {call: how often it would be made}, since an `Each` makes the same call for many items.
        calls = [f"{call}{f', {times:,} times' * (times > 1)}" for call, times in Counter(self.live).items()]
        lines += [f"live: {_listed(calls)}"] if self.live else []
        if (self.behind or self.items) and self.at_hand:
            lines += [
                f"after that: {plural(self.at_hand, 'recorded result')} available for calls with the same arguments"
            ]
        lines += [f"repeated, although the first call may have taken effect: {call}" for call in self.unsure]
        lines += [f"reused: the child execution {child}" for child in self.children]
        lines += (
            [f"repeated, because it was rolled back in {self.source}: {_listed(self.undone)}"] if self.undone else []
        )
        lines += (
            [f"reused results of functions that were edited after the run: {', '.join(self.edited)}"]
            if self.edited
            else []
        )
        return tuple(lines)

    def report(self) -> Report:
        """Return the whole plan: its summary, the first difference, and the calls that would be made."""
        title, *more = self.lines
        return Report(title, blocks=(Items(tuple(more)),))


def kept_by(execution: Run, control: Control, workflow: Workflow) -> Kept:
    """Compare a changed definition with the log of an execution, without external calls. Return the last event that can
    be kept, and the first difference.

    Raises
    ------
    SetupError
        The comparison is impossible: something that the definition needs is missing, or the log is damaged.
    """
    verification = verified(execution, control, workflow)
    # Nothing was compared at all, and the reason is the first unchecked part: a missing function, a damaged log. A log
    # that was compared in part can be continued from the compared part.
    if not verification.compared and verification.divergence is None and verification.unchecked:
        raise SetupError(
            f"execution {execution.id} cannot continue with another definition: {verification.unchecked[0]}"
        )
    events = execution.history()
    end = len(events) if verification.divergence is None else verification.divergence.sequence - 1
    # A rollback of the source, or its cancellation by this resumption, undoes the work from event `undone.before` on.
    # That work must be done again, so it is not in the part that is kept.
    undone = undone_in(events, is_left=True)
    end = end if undone is None else min(end, undone.before)
    # Events that were recorded together stay together, so the fork point may be earlier. Event 1 is always kept.
    at = point_before(ForkSource(execution.store, execution.id), min(end, len(events)))
    _require_no_changes_after(events, at)
    return Kept(at, verification.divergence)


def _require_no_changes_after(events: Sequence[Event], at: int) -> None:
    """Raise `SetupError` if a fork with a change follows event `at` in the log, where the resumption would continue.

    The resumption would lose such a change, because no definition contains it.
    """
    # A fork inside the kept part is kept with its change.
    for event in events[at:]:
        data = event.data
        if isinstance(data, catalog.ExecutionForked) and (data.change or data.model):
            raise SetupError(
                f"execution {event.execution_id} is a fork whose change takes effect at event {event.sequence}, but "
                f"the new definition already differs after event {at}, so the change of the fork would be lost. "
                f"Resume {data.source} with the new definition, and fork the resulting run"
            )


def resume_plan(variant: Variant, rehearsal: Rehearsal, reusable: Kept) -> ResumePlan:
    """Return the plan of a resumption with a changed definition, from the rehearsal of the fork that the resumption
    would start.
    """
    source = variant.source
    events = variant.events
    workflow = variant.workflow
    code = variant.forked.code
    at = reusable.at
    events_of_fork = rehearsal.events
    # Signals that no step has received were not requested, and are not results of calls.
    unused = (end for end in rehearsal.answers.pool.unused() if end.was_asked_for and end.content[0] not in _DONE_AGAIN)
    live = Counter(map(planned_call, rehearsal.unanswered))
    # Failed calls are made again, and calls at which the rehearsal stopped have no result, so neither counts as reused.
    kinds = _reused(
        events_of_fork, at, made_again(events).union(request.operation_id for request in rehearsal.unanswered)
    )
    questions = tuple(dict.fromkeys(q.step for q in rehearsal.state.interrupts.values() if q.is_open))
    steps_after = rehearsal.steps_after(workflow)
    items = items_to_come(events_of_fork, rehearsal.state)
    # None means that the cost of one part is unknown, and then the sum is unknown too.
    costs = (
        likely_cost(events, rehearsal.unanswered),
        likely_items(events, items),
        likely_turns(events, workflow, steps_after),
    )
    edited = () if code is None else tuple(sorted(_edited(source.state.code, dict(code))))
    return ResumePlan(
        source.id,
        workflow.name,
        at,
        reusable.first,
        kinds.total(),
        dict(kinds.most_common()),
        tuple(live.elements()),
        questions,
        (*map(later_calls, rehearsal.functions_open(workflow)), *steps_after),
        sum(1 for _ in unused),
        None if None in costs else sum(cost or 0 for cost in costs),
        tuple(_without_outcome(source.state, events)),
        edited,
        items,
        tuple(_children(rehearsal)),
        () if (undone := undone_in(events, is_left=True)) is None else undone.steps,
    )


def _children(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield the ids of the source's child executions that did not complete. New child executions would reuse their
    results.
    """
    for request in rehearsal.unanswered:
        like = rehearsal.answers.child_like(request) if request.operation_type == CHILD_WORKFLOW else None
        if like is not None:
            yield like.source


def _reused(events_of_fork: Sequence[Event], at: int, repeated: Container[str]) -> Counter[str]:
    """Count the recorded results that a resumption reuses, by kind of operation. This includes the results up to event
    `at`, which are kept, and later ones.

    Operations in `repeated` are not counted: they failed, and are made again.
    """
    counts: Counter[str] = Counter()
    for event in events_of_fork:
        data = event.data
        if not isinstance(data, _ENDS) or getattr(data, "operation_id", None) in repeated:
            continue
        # Up to the fork point, all results are in the log of the fork. After it, `served` names the event of the source
        # from which a result was taken; without it the result was computed in the rehearsal.
        if event.sequence <= at or (data.served and "sequence" in data.served):
            counts[operation_kind(getattr(data, "operation_type", "")) or "answer"] += 1
    return counts


def _edited(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    # Functions that one side does not have were added or removed, and not edited.
    return {label for label in before if label in after and after[label] != before[label]}


def _without_outcome(source: ExecutionState, events: Sequence[Event]) -> Iterator[Planned]:
    """Yield those calls of an execution that may have taken effect although their outcome is not known: they have
    started, and the log has no end.
    """
    # Only an open step has calls without an outcome: those of an ended step are over.
    open_steps = (path.open for path in source.paths.values() if path.open is not None)
    for record in (record for step in open_steps for record in step.operations.values()):
        if record.status == RUNNING and record.operation_type in _OUTSIDE:
            started = events[record.started_sequence - 1]
            parameters = getattr(started.data, "parameters", None)
            yield Planned(record.operation_type, operation_name(record.operation_type, parameters) or "", started.step)


def _listed(words: Sequence[str]) -> str:
    """Join words to an enumeration, such as "a, b and c"."""
    # `filter` removes the empty first part of a single word.
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""
