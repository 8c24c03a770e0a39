"""Activity of a run: periods in which it worked, waited, slept or was paused, and the progress of steps with items.

Header, nodes, reports, the shell and the list of runs all use this fold.

Each moment of a run belongs to exactly one activity. ``worked``: a call runs. ``waited``: no call runs, and a question
is open. ``asleep``: no call runs, and a timer or signal is awaited. ``paused``: the run waits in a queue, or a person
paused it. ``stopped``: the run or its process ended, and the run was resumed later. The time between two calls counts
as work. For example, seconds from the start: call 0-2, question 2-62, call 62-63, then paused. The run worked 3 s, and
waited 60 s.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.engine.operations import CHILD_WORKFLOW, ENCLOSING
from divebook.engine.state import SLEEPS
from divebook.errors import UnopenableValueError
from divebook.events import Event, catalog
from divebook.events.arrow.tally import MOST_COUNTED, ColumnTally
from divebook.events.recorded import Recorded
from divebook.text.format import seconds
from divebook.text.passwords import looks_secret
from divebook.text.redaction import one_line

Doing: TypeAlias = Literal["worked", "waited", "paused", "asleep", "stopped"]
WORKED: Doing = "worked"
WAITED: Doing = "waited"
PAUSED: Doing = "paused"
ASLEEP: Doing = "asleep"
STOPPED: Doing = "stopped"
SHORTEST_US = 50_000
"""Minimum length, in microseconds, of a period without calls. A shorter period lies between two calls and counts as
work.
"""
MOST_ITEMS = 10**12
"""Upper limit for the number of items in a log. The engine records no larger number, but a foreign log could."""
LATEST_ENDS = 50
"""Number of most recently ended items from which the remaining time is estimated."""


class Phase(NamedTuple):
    """Period of a run in which no call ran, because the run waited, slept, was paused or was stopped."""

    doing: Doing
    started_us: int
    ended_us: int | None = None
    """End in microseconds; None while the period lasts."""


@dataclass(slots=True)
class ItemProgress:
    """Progress of a step with ``Each`` (a step that runs once for each item): numbers of items that are done, failed
    and remaining.
    """

    step: str
    done: int = 0
    """Number of items that have ended and will not run again."""
    total: int = 0
    """Number of all items; 0 if the log does not contain the number."""
    failed: int = 0
    """Number of items whose latest attempt has failed."""
    failed_open: int = 0
    """Number of the failed items that are not in `done`: they run again when the run is resumed."""
    running: int = 0
    """Number of visits to the step that have not ended."""
    left_us: int | None = None
    """Estimated remaining time in microseconds; None if there is no estimate."""
    at_us: int = 0
    """Time at which the latest item ended, in microseconds since 1970."""
    ends: deque[int] = field(default_factory=deque)
    """Working time of the run, in microseconds, when the step started and when each of the latest items ended."""


@dataclass(slots=True)
class _Visit:
    """One visit of a path to a step with ``Each``, with the numbers of its items."""

    progress: ItemProgress
    begun_us: int = 0
    """Start of the run's current activity when the first item event of this visit was recorded."""
    done: int = 0
    total: int = 0
    failed: set[int] = field(default_factory=set)
    failed_open: set[int] = field(default_factory=set)
    is_running: bool = True


class _Open:
    """Ids of the operations, or of the questions, that have started and not ended yet, grouped by the path on which
    they started.
    """

    def __init__(self) -> None:
        self._by_path: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_path)

    def add(self, path: str, name: str) -> None:
        self._by_path.setdefault(path, set()).add(name)

    def discard(self, path: str, name: str) -> None:
        names = self._by_path.get(path, set())
        names.discard(name)
        if not names:
            self.drop(path)

    def drop(self, path: str) -> None:
        self._by_path.pop(path, None)


class Activity:
    """Computes the phases of a run (working, waiting, paused, ...) and the progress of its steps from the log, one
    event at a time.

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> facts = [catalog.ExecutionStarted("w"), catalog.ExecutionPaused("lunch"), catalog.ExecutionResumed()]
    >>> activity = Activity()
    >>> for number, data in enumerate(facts, 1):
    ...     activity.take(Event("event_1", "exec_1", number, number * 1_000_000, data))
    >>> activity.phases, activity.spent("worked", now_us=5_000_000) / 1e6
    ([Phase(doing='paused', started_us=2000000, ended_us=3000000)], 3.0)
    """

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        """Phases that have ended, oldest first."""
        self.doing: Doing = WORKED
        """Activity of the run since `since_us`; ``stopped`` after its end."""
        self.since_us = self.last_us = 0
        """Start of the current activity (`since_us`) and time of the last event (`last_us`), in microseconds since
        1970.
        """
        self._started_us = 0
        # Working time is not counted. It is the whole time without the idle phases, so that the times between calls
        # count as work.
        self._idle: dict[Doing, int] = {}
        """Sum of the ended phases by activity, in microseconds."""
        self._halted: Doing | None = None
        """``paused`` or ``stopped`` if the run cannot continue by itself, else None."""
        self._calls = _Open()
        self._sleeps = _Open()
        self._questions = _Open()
        self._visits: dict[tuple[str, str], _Visit] = {}
        """Latest visit to each step with ``Each``, by path and step."""
        self._steps: dict[str, ItemProgress] = {}

    def take(self, event: Event) -> None:
        """Update the activity with the next event of the log."""
        change = self._CHANGES.get(type(event.data))
        # The clock of a machine may be set back, or another machine may continue the run; times never decrease here.
        moment = max(event.recorded_at, self.last_us)
        if change is not None:
            change(self, event, event.data)
            # After each event the activity is determined anew, from what is open then.
            self._turn_to(self._present_doing(), moment)
        self.last_us = moment

    # --- what is read off it ---------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True if the run has ended. Such a run can still be resumed."""
        return self._halted == STOPPED

    def before(self, doing: Doing) -> int:
        """Return the total time in microseconds that the run has spent on an activity in earlier phases. The current
        phase, which began at `since_us`, is not included.
        """
        if doing != WORKED:
            return self._idle.get(doing, 0)
        return self.since_us - self._started_us - sum(self._idle.values())

    def spent(self, doing: Doing, now_us: int = 0) -> int:
        """Return the total time of an activity in microseconds, up to the end of the run. For a run that has not ended:
        up to `now_us` or the last event, whichever is later.
        """
        # A run that has ended does not grow: `since_us` is its end.
        until = self.since_us if self.is_over else max(now_us, self.last_us)
        return self.before(doing) + (until - self.since_us if doing == self.doing else 0)

    @property
    def times(self) -> list[str]:
        """Total time that the run spent on each activity up to the last event, as texts such as ``worked 2.0 s``."""
        return time_texts(*map(self.spent, (WORKED, WAITED, PAUSED, ASLEEP)))

    @property
    def current(self) -> Phase | None:
        """Current period in which the run waits, sleeps or is paused; None while the run works and after its end."""
        return None if self.doing == WORKED or self.is_over else Phase(self.doing, self.since_us)

    @property
    def progress(self) -> list[ItemProgress]:
        """Progress of each step with ``Each`` of the run, in the order in which the steps started."""
        return list(self._steps.values())

    # --- what goes on ----------------------------------------------------------------------------------------------

    def _present_doing(self) -> Doing:
        # The order is a priority: a call that runs counts as work although a question is open at the same time.
        if self._halted is not None:
            return self._halted
        if self._calls:
            return WORKED
        if self._questions:
            return WAITED
        # Nothing is open between two calls: code of the workflow or the engine runs.
        return ASLEEP if self._sleeps else WORKED

    def _turn_to(self, doing: Doing, moment: int) -> None:
        if doing == self.doing:
            return
        # A shorter phase is dropped, and its time counts as work (`before`).
        if self.doing != WORKED and moment - self.since_us >= SHORTEST_US:
            self._note(Phase(self.doing, self.since_us, moment))
        self.doing = doing
        self.since_us = moment

    def _note(self, phase: Phase) -> None:
        self.phases.append(phase)
        took = (phase.ended_us or 0) - phase.started_us
        self._idle[phase.doing] = self._idle.get(phase.doing, 0) + took

    def _execution_started(self, event: Event, _data: catalog.Payload) -> None:
        self._started_us = self.since_us = max(event.recorded_at, self.last_us)

    def _execution_forked(self, event: Event, _data: catalog.Payload) -> None:
        """Reset all times and open operations at a fork, since the earlier events belong to the execution that was
        forked.
        """
        # The source ended at its last event as far as this fork is concerned. The fork starts at its own event, with
        # all times at 0.
        self._turn_to(STOPPED, self.last_us)
        self._turn_to(WORKED, max(event.recorded_at, self.last_us))
        self._halted = None
        self._idle = {}
        self._started_us = self.since_us
        self._calls = _Open()
        self._sleeps = _Open()
        self._questions = _Open()

    def _execution_resumed(self, _event: Event, _data: catalog.Payload) -> None:
        """Update the activity for a resumption. Calls of the ended process no longer run; timers, signals and child
        executions are still awaited.
        """
        # The process died while it worked, and nothing says how long it still lived. The time since the last event
        # counts as stopped (test_the_time_after_a_process_ended_until_the_next_took_over_is_nobodys).
        if self._halted is None and self.doing == WORKED:
            self._turn_to(STOPPED, self.last_us)
        self._halted = None
        self._calls = _Open()

    def _execution_paused(self, _event: Event, _data: catalog.Payload) -> None:
        self._halted = PAUSED

    def _execution_ended(self, _event: Event, _data: catalog.Payload) -> None:
        self._halted = STOPPED
        for visit in self._visits.values():
            _stop(visit)

    def _operation_started(self, event: Event, data: catalog.OperationStarted) -> None:
        # A turn of an agent lasts as long as its calls, which are counted themselves.
        if data.operation_type in ENCLOSING:
            return
        # A child execution works for its parent, so that it counts as a call here.
        is_sleep = data.operation_type in SLEEPS and data.operation_type != CHILD_WORKFLOW
        (self._sleeps if is_sleep else self._calls).add(event.path, data.operation_id)

    def _operation_ended(self, event: Event, data: catalog.OperationCompleted | catalog.OperationFailed) -> None:
        self._calls.discard(event.path, data.operation_id)
        self._sleeps.discard(event.path, data.operation_id)

    def _interrupt_raised(self, event: Event, data: catalog.InterruptRaised) -> None:
        self._questions.add(event.path, data.interrupt_id)
        # A call of unknown outcome does not run while a person is asked about it.
        self._calls.discard(event.path, data.operation_id or "")

    def _interrupt_settled(self, event: Event, data: catalog.InterruptResolved | catalog.InterruptExpired) -> None:
        self._questions.discard(event.path, data.interrupt_id)

    def _step_left(self, event: Event, _data: catalog.Payload) -> None:
        """Remove the open operations and questions of a path that leaves a step, because no event in the log will
        record their end.
        """
        for open_calls in (self._calls, self._sleeps, self._questions):
            open_calls.drop(event.path)
        visit = self._visits.get((event.path, event.step))
        if visit is not None:
            _stop(visit)

    # --- items -----------------------------------------------------------------------------------------------------

    def _step_started(self, event: Event, _data: catalog.Payload) -> None:
        """Remove the items of an earlier visit from the progress of a step, because the path has entered the step
        again.
        """
        # The number of items belongs to the latest visit of each path. `progress` is that of the step over all paths.
        before = self._visits.pop((event.path, event.step), None)
        if before is not None:
            _stop(before)
            progress = before.progress
            progress.done = progress.done - before.done
            progress.total = progress.total - before.total
            progress.failed -= len(before.failed)
            progress.failed_open -= len(before.failed_open)

    def _item_started(self, event: Event, data: catalog.IterationStarted) -> None:
        visit = self._visits.get((event.path, event.step))
        # A step that continues after a resumption has the visit of before, which was stopped.
        if visit is None or not visit.is_running:
            visit = self._begun(event, visit)
        # Only the first item of a visit that starts has the total. `MOST_ITEMS` limits what a foreign log may claim.
        if data.total and not visit.total:
            visit.total = min(max(0, data.total), MOST_ITEMS)
            visit.progress.total += visit.total
        # The item runs again after its failure.
        if data.iteration_index in visit.failed:
            visit.failed.remove(data.iteration_index)
            visit.progress.failed -= 1
        if data.iteration_index in visit.failed_open:
            visit.failed_open.remove(data.iteration_index)
            visit.progress.failed_open -= 1

    def _begun(self, event: Event, visit: _Visit | None) -> _Visit:
        """Return the visit to a step to which an event about an item belongs, and mark it as running. Create the visit
        if it does not exist yet.
        """
        if visit is None:
            progress = self._steps.setdefault(event.step, ItemProgress(event.step))
            # The event may be that of rows which have already completed: the visit began before it, when the current
            # activity did.
            visit = self._visits[event.path, event.step] = _Visit(progress, self.since_us or event.recorded_at)
        progress = visit.progress
        visit.is_running = True
        # The pace is measured from now on, because the time without running visits is not time per item.
        if not progress.running:
            progress.ends = deque([self.spent(WORKED, event.recorded_at)], maxlen=LATEST_ENDS + 1)
        progress.running += 1
        return visit

    def _item_completed(self, event: Event, _data: catalog.Payload) -> None:
        self._item_done(event, self._visits.get((event.path, event.step)))

    def _item_failed(self, event: Event, data: catalog.IterationFailed) -> None:
        visit = self._visits.get((event.path, event.step))
        if visit is None:
            return
        visit.failed.add(data.iteration_index)
        visit.progress.failed += 1
        # A result of None ends the step, and the item runs again when the run is resumed. Otherwise it is done.
        if data.result is None:
            visit.failed_open.add(data.iteration_index)
            visit.progress.failed_open += 1
        else:
            self._item_done(event, visit)

    def _item_done(self, event: Event, visit: _Visit | None) -> None:
        if visit is None:
            return
        progress = visit.progress
        visit.done = visit.done + 1
        progress.done += 1
        progress.at_us = event.recorded_at
        # Working time instead of time of day: a pause for a person does not make items look slow.
        progress.ends.append(self.spent(WORKED, event.recorded_at))
        progress.left_us = _left_us(progress)

    def _rows_completed(self, event: Event, data: catalog.RowsCompleted) -> None:
        visit = self._visits.get((event.path, event.step))
        if visit is None or not visit.is_running:
            visit = self._begun(event, visit)
        progress = visit.progress
        # The total of this visit replaces the one from its earlier events; other visits of the step are added.
        progress.total = progress.total - visit.total + data.total
        visit.total = data.total
        progress.done = progress.done + data.rows
        visit.done = visit.done + data.rows
        progress.failed += data.failed
        # The event does not name the rows. Any numbers serve, since only their count matters.
        visit.failed.update(range(len(visit.failed), len(visit.failed) + data.failed))
        progress.at_us = event.recorded_at
        # Rows end in large groups, too few for a mean of the latest ends. The mean since the visit started is used
        # instead.
        progress.left_us = (
            (progress.total - progress.done) * (event.recorded_at - visit.begun_us) // max(1, progress.done)
        )

    _ENDS: ClassVar[list[type]] = [kind for kind, status in STATUS_AFTER.items() if status in TERMINAL]
    _CHANGES: ClassVar[dict[type, Callable[[Activity, Event, Any], None]]] = {
        **dict.fromkeys(_ENDS, _execution_ended),
        catalog.ExecutionStarted: _execution_started,
        catalog.ExecutionForked: _execution_forked,
        catalog.ExecutionResumed: _execution_resumed,
        catalog.ExecutionPaused: _execution_paused,
        catalog.ExecutionEnqueued: _execution_paused,
        catalog.StepStarted: _step_started,
        catalog.StepCompleted: _step_left,
        catalog.StepFailed: _step_left,
        catalog.PathCompleted: _step_left,
        catalog.PathFailed: _step_left,
        catalog.OperationStarted: _operation_started,
        catalog.OperationCompleted: _operation_ended,
        catalog.OperationFailed: _operation_ended,
        catalog.InterruptRaised: _interrupt_raised,
        catalog.InterruptResolved: _interrupt_settled,
        catalog.InterruptExpired: _interrupt_settled,
        catalog.IterationStarted: _item_started,
        catalog.IterationCompleted: _item_completed,
        catalog.IterationFailed: _item_failed,
        catalog.RowsCompleted: _rows_completed,
    }


def activity_of(events: Iterable[Event]) -> Activity:
    """Return the activity of a run (periods of working and waiting, progress of steps), computed from its events."""
    activity = Activity()
    for event in events:
        activity.take(event)
    return activity


def _stop(visit: _Visit) -> None:
    """Mark a visit to a step as no longer running, and update the estimated remaining time of the step."""
    if visit.is_running:
        visit.is_running = False
        progress = visit.progress
        progress.running -= 1
        # The estimate is None once no visit of the step runs.
        progress.left_us = _left_us(progress)


def _left_us(progress: ItemProgress) -> int | None:
    """Return the estimated remaining time of a step with ``Each``, from the mean time between the latest ends of items.
    Return None if fewer than two items have ended, or the step does not run.
    """
    remaining = progress.total - progress.done
    ends = progress.ends
    if not progress.running or remaining < 0 or len(ends) < 2:
        return None
    # 51 ends are 50 intervals: with ends at 0, 4 and 10 s and 3 remaining items, the estimate is 3 * 10 / 2 = 15 s.
    return remaining * (ends[-1] - ends[0]) // (len(ends) - 1)


def time_texts(worked_us: int, waited_us: int = 0, paused_us: int = 0, asleep_us: int = 0) -> list[str]:
    """Format the time that a run spent on each activity, such as ``worked 2.0 s``. Activities without any time are left
    out, except working.

    >>> time_texts(2_000_000, 63_000_000)
    ['worked 2.0 s', 'waited for you 1 min 03 s']
    """
    texts = [f"worked {seconds(worked_us / 1e6)}"]
    for label, took_us in ("waited for you", waited_us), ("paused", paused_us), ("slept", asleep_us):
        if took_us > 0:
            texts.append(f"{label} {seconds(took_us / 1e6)}")
    return texts


# --- distributions of the results of rows and items, column by column ------------------------------------------------
#
# `Spreads` follows a log. Counting is expensive, so it happens only when a reader asks for the distributions. Columns
# of texts, booleans and integers with few distinct values list the most frequent values. Other numbers get about twenty
# bins. Free text is omitted. Texts are redacted (`divebook.text.redaction`), and columns whose name looks like a secret
# are omitted.


MOST_STEPS = 3
"""Maximum number of steps whose distributions are shown."""
MOST_COLUMNS = 3
"""Maximum number of columns that are shown for each step."""
MOST_VALUES = 8
"""Maximum number of values that are shown for each column."""
LEAST_NUMBERS = 8
"""Minimum count of numbers for grouping them into bins; fewer numbers are more informative themselves."""
NAME = 40
RESULT = "result"
"""Column name for results that have no fields (`divebook.events.arrow.rows`)."""

Kind: TypeAlias = Literal["values", "numbers"]


class Counted(NamedTuple):
    """Value of a result column, or bin of numbers, with the number of rows in which it occurs."""

    name: str
    rows: int


class Distribution(NamedTuple):
    """Distribution of the values in one result column of a step."""

    name: str
    kind: Kind
    parts: tuple[Counted, ...]
    """Most frequent values with their counts, the most frequent first; for numbers all bins, ascending."""
    others: Counted
    """Number of further values as a label such as ``3 others``, with the number of their rows."""
    empty: int
    """Number of rows without a value."""
    least: str = ""
    greatest: str = ""
    """Least and greatest value of a column of numbers, as text."""
    middle: str = ""
    """Approximate median of a column of numbers, as text."""

    @property
    def words(self) -> str:
        """Distribution as one line of text: ``label: praise 812, blame 164, 3 others 24``."""
        if self.kind == "numbers":
            texts = [f"{self.least} to {self.greatest}", f"median about {self.middle}"]
            if self.others.rows:
                texts.append(f"{self.others.rows:,} {self.others.name}")
        else:
            texts = [f"{name} {rows:,}" for name, rows in (*self.parts, self.others) if rows]
        if self.empty:
            texts.append(f"{self.empty:,} empty")
        return f"{self.name}: {', '.join(texts)}"


Columns: TypeAlias = dict[str, ColumnTally]


class Spreads:
    """Counts how often each value occurs in the results of rows and items, by step and column, one event at a time.

    Examples
    --------
    >>> spreads = Spreads()
    >>> for number, value in enumerate(["good", "bad", "good"], 1):
    ...     fact = catalog.IterationCompleted(number, {"text": value})
    ...     spreads.take(Event(f"event_{number}", "exec_1", number, number, fact, "main", "mark"))
    >>> [spread.words for spread in spreads.of("mark")]
    ['result: good 2, bad 1']
    """

    def __init__(self) -> None:
        self._visits: dict[str, dict[str, Columns]] = {}
        """Counts of values by step, path and column."""
        # The event itself is not kept: a result may be large, and an entry is removed when it was counted.
        self._waiting: deque[tuple[Columns, str, Any, int]] = deque()
        """Results that are not counted yet: target columns, step, result, and number of rows in it."""
        self._results: dict[str, tuple[Distribution, ...]] = {}
        """Computed distributions by step. An entry is removed when more results are counted."""

    def take(self, event: Event) -> None:
        """Apply the next event of the log. If the event has a result, the result is only queued; the method `count`
        counts its values.
        """
        data = event.data
        if isinstance(data, catalog.RowsCompleted):
            self._waiting.append((self._columns(event), event.step, data.result, max(1, data.rows)))
        elif isinstance(data, catalog.IterationCompleted):
            self._waiting.append((self._columns(event), event.step, result_of(data.result), 1))
        elif isinstance(data, catalog.StepStarted) and event.step in self._visits:
            self._visits[event.step].pop(event.path, None)  # it begins anew
            self._results.pop(event.step, None)

    @property
    def is_behind(self) -> bool:
        """True if the queue has results whose values are not counted yet."""
        return bool(self._waiting)

    def count(self, most: float = math.inf) -> None:
        """Count the values in the queued results, but stop after about `most` rows."""
        # Values of items are collected by column first, so that each tally gets one list. Frames of rows are counted as
        # a whole.
        items: dict[int, tuple[Columns, dict[str, list[Any]]]] = {}
        while self._waiting and most > 0:
            columns, step, result, rows = self._waiting.popleft()
            most -= rows
            self._results.pop(step, None)
            if isinstance(result, Recorded) and result.tag == "arrow":
                _count_rows(result, columns)
            else:
                cells = items.setdefault(id(columns), (columns, {}))[1]
                # A result that is not a mapping is counted in the column `result`.
                row = result if isinstance(result, Mapping) else {RESULT: result}
                for name, cell in row.items():
                    cells.setdefault(name, []).append(cell)
        for columns, cells in items.values():
            _count_cells(cells, columns)

    def of(self, step: str) -> tuple[Distribution, ...]:
        """Count all queued results, and return the distributions of a step. Only the latest visit of each path to the
        step is included.
        """
        self.count()
        return self.so_far(step)

    def so_far(self, step: str) -> tuple[Distribution, ...]:
        """Return the distributions of a step, computed only from the results that have been counted so far."""
        if step not in self._results:
            self._results[step] = spreads_of(_together(self._visits.get(step, {}).values()))
        return self._results[step]

    def latest(self, steps: Iterable[ItemProgress]) -> dict[str, tuple[Distribution, ...]]:
        """Return the distributions by step name, for the steps that are running; if none is running, for all steps. At
        most `MOST_STEPS` steps are returned, the latest ones.
        """
        all_steps = [*steps]
        running = [progress for progress in all_steps if progress.running]
        spreads_by_step: dict[str, tuple[Distribution, ...]] = {}
        for progress in running or all_steps:
            spreads = self.so_far(progress.step)
            if spreads:
                spreads_by_step[progress.step] = spreads
        return dict([*spreads_by_step.items()][-MOST_STEPS:])

    def _columns(self, event: Event) -> Columns:
        return self._visits.setdefault(event.step, {}).setdefault(event.path, {})


def result_of(result: Any) -> Any:
    """Return the result of an item from its recorded form. For a workflow function this is its return value, for any
    other item the recorded value.
    """
    value = result.get("value", result.get("text")) if isinstance(result, Mapping) else result
    # A workflow function returns `{"result": x}`; other results are values themselves.
    return value["result"] if isinstance(value, dict) and [*value] == ["result"] else value


def _count_rows(recorded: Recorded, columns: Columns) -> None:
    from divebook.events.arrow.rows import count_rows

    with suppress(UnopenableValueError):  # its classes are not known here, or it is damaged
        count_rows(recorded, columns)


def _count_cells(cells: Mapping[str, Sequence[Any]], columns: Columns) -> None:
    for name, values in cells.items():
        # The number of counted columns is limited, because each row may have other columns.
        if name in columns or len(columns) < MOST_COUNTED:
            columns.setdefault(name, ColumnTally()).add(values)


def _together(visits: Iterable[Columns]) -> Columns:
    # Usually a step has been visited on one path only, and its tallies are used as they are.
    first, *more_visits = [*visits] or [{}]
    if not more_visits:
        return first
    columns_of_all: Columns = {}
    for columns in (first, *more_visits):
        for name, tally in columns.items():
            columns_of_all.setdefault(name, ColumnTally()).merge(tally)
    return columns_of_all


# --- in words ------------------------------------------------------------------------------------------------------


def spreads_of(columns: Columns) -> tuple[Distribution, ...]:
    """Return the distributions of values in at most `MOST_COLUMNS` result columns, in column order. Columns whose names
    suggest secrets are left out.
    """
    spreads = (_spread(name, tally) for name, tally in columns.items() if not looks_secret(name))
    return tuple(spread for spread in spreads if spread is not None)[:MOST_COLUMNS]


def _spread(name: str, tally: ColumnTally) -> Distribution | None:
    """Return the distribution of the values in one result column; None if the column has free text, or values other
    than texts, numbers and booleans.

    Columns of numbers with many distinct values get bins. Other columns get counts of values, in which numbers of a
    mixed column form one entry.
    """
    has_words = bool(tally.text_count or any(tally.truths))
    # `whole` counts each integer; it is None if there were too many different ones, or a number that is not an integer.
    many = tally.whole is None and tally.bins.count
    if many and not has_words and not tally.other and tally.bins.least < tally.bins.greatest:
        return _of_numbers(name, tally)
    # More different texts than can be counted: free text.
    if tally.texts is None:
        return None
    counts = [(_named(text), count) for text, count in tally.texts.items()]
    counts += [(str(truth), count) for truth, count in zip((False, True), tally.truths, strict=True) if count]
    if many:
        counts.append(("numbers" if tally.bins.least < tally.bins.greatest else _number(tally.bins.least), many))
    else:
        counts += [(_number(float(number)), count) for number, count in (tally.whole or {}).items()]
    beyond = ("infinite", tally.endless), ("no single value", tally.other)
    counts += [(kind, count) for kind, count in beyond if count]
    return _of_values(name, counts, tally)


def _of_values(name: str, counts: list[tuple[str, int]], tally: ColumnTally) -> Distribution | None:
    total = sum(count for _, count in counts)
    # Free text: more than `MOST_VALUES` different values that occur less than twice on average, or fewer values that
    # each occur once.
    is_free = len(counts) > total / 2 if len(counts) > MOST_VALUES else len(counts) == total
    if not total or is_free or tally.other == total:
        return None
    ranked = sorted(counts, key=lambda one: (-one[1], one[0]))
    first = ranked[:MOST_VALUES]
    rest = ranked[MOST_VALUES:]
    # The values after the first ones are added up as `3 others`.
    label = "other" if len(rest) == 1 else "others"
    remainder = Counted(f"{len(rest):,} {label}", sum(count for _, count in rest))
    return Distribution(one_line(name, NAME), "values", tuple(Counted(*one) for one in first), remainder, tally.empty)


def _of_numbers(name: str, tally: ColumnTally) -> Distribution | None:
    bins = tally.bins
    if bins.count < LEAST_NUMBERS:
        return None
    # Bins of whole numbers have a width of at least 1, so that their limits are whole numbers.
    exponent = max(0, bins.exponent) if tally.are_whole else bins.exponent
    listed = bins.listed(exponent)
    width = math.ldexp(1.0, exponent)
    step = 1.0 if tally.are_whole else 0.0  # from the greatest number of a bin to the least one of the next
    parts = tuple(Counted(_range(begin, begin + width - step), count) for begin, count in listed)
    # The middle of the bin that contains the median.
    middle = _about(_middle(listed, bins.count) + (width - step) / 2, width)
    ends = _number(bins.least), _number(bins.greatest)
    return Distribution(
        one_line(name, NAME), "numbers", parts, Counted("infinite", tally.endless), tally.empty, *ends, middle
    )


def _range(least: float, greatest: float) -> str:
    return _number(least) if least == greatest else f"{_number(least)} to {_number(greatest)}"


def _middle(listed: list[tuple[float, int]], count: int) -> float:
    """Return an approximate median of numbers that were counted in bins: the lower end of the bin that contains the
    median.
    """
    reached = accumulate(inside for _, inside in listed)
    # The first bin up to whose end at least half of the numbers have been counted.
    return next(begin for (begin, _), so_far in zip(listed, reached, strict=True) if 2 * so_far >= count)


def _named(text: str) -> str:
    return one_line(text, NAME) or '""'


def _number(value: float) -> str:
    """Format a number as a short text, for the label of a value or bin.

    >>> _number(1234567.0), _number(0.123456), _number(1e300)
    ('1,234,567', '0.1235', '1e+300')
    """
    return f"{int(value):,}" if value.is_integer() and abs(value) < 1e12 else f"{value:.4g}"


def _about(value: float, width: float) -> str:
    """Format a number as the limit of a bin, rounded to a precision that fits the width of the bin."""
    # width 0.25 -> 1 digit, width 10 -> 0 digits. Beyond 12 digits, rounding changes nothing that is shown.
    digits = max(0, -math.floor(math.log10(width)))
    return _number(round(value, digits)) if digits < 12 else _number(value)
