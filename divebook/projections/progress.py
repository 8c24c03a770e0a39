"""How a run went on: when calls ran, when it waited for people, was paused or asleep, and how far its steps have come.

One fold for all who say so: header, nodes, reports, the shell and the list of runs read it off here.

Every moment of a run belongs to one thing: a call runs (``worked``); no call runs, and a question is open (``waited``);
no call runs, and a timer or a signal is awaited (``asleep``); it waits in a queue, or somebody has paused it
(``paused``); it had ended, or its process had, and was taken up again later (``stopped``). The moments between two
calls count as work.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from divebook.engine.changes import SLEEPS
from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.engine.operations import CHILD_WORKFLOW, ENCLOSING
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
"""What is shorter lies between two calls: nobody was waited for."""
MOST_ITEMS = 10**12
"""Larger numbers, of a log that was not written by an engine, are not believed."""
LATEST_ENDS = 50
"""Items from whose ends it is estimated how long the others will take."""


class Phase(NamedTuple):
    """A time in which no call ran."""

    doing: Doing
    started_us: int
    ended_us: int | None = None
    """None while it lasts."""


@dataclass(slots=True)
class ItemProgress:
    """How far a step with `Each` has come, in the latest visit of each path."""

    step: str
    done: int = 0
    """Items that have ended and are not made again."""
    total: int = 0
    """0 in logs that do not say."""
    failed: int = 0
    running: int = 0
    """Visits that have not ended."""
    left_us: int | None = None
    """How long the others will take, as the latest ones let expect; None where nothing can be said."""
    at_us: int = 0
    """When the latest one ended."""
    ends: deque[int] = field(default_factory=deque)
    """On the clock of work: when it began, and the latest ends of items."""


@dataclass(slots=True)
class _Visit:
    """A visit of one path to a step with `Each`."""

    progress: ItemProgress
    begun_us: int = 0
    """When what it does at present began, the first time that items of it began or ended."""
    done: int = 0
    total: int = 0
    failed: set[int] = field(default_factory=set)
    is_running: bool = True


class _Open:
    """What is under way, by path."""

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
    """Follows a log, event by event.

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> facts = [catalog.ExecutionStarted("w"), catalog.ExecutionPaused("lunch"), catalog.ExecutionResumed()]
    >>> course = Activity()
    >>> for number, data in enumerate(facts, 1):
    ...     course.take(Event("event_1", "exec_1", number, number * 1_000_000, data))
    >>> course.stretches, course.spent("worked", now_us=5_000_000) / 1e6
    ([Phase(doing='paused', started_us=2000000, ended_us=3000000)], 3.0)
    """

    def __init__(self) -> None:
        self.stretches: list[Phase] = []
        """Those that are over, oldest first."""
        self.doing: Doing = WORKED
        """What it does since `since_us`; ``stopped`` once it has ended."""
        self.since_us = self.last_us = 0
        """When that began, and when the last event was recorded."""
        self._started_us = 0
        self._idle: dict[Doing, int] = {}
        """How long the stretches took that are over."""
        self._halted: Doing | None = None
        """Why nothing goes on, where it is paused or over."""
        self._calls, self._sleeps, self._questions = _Open(), _Open(), _Open()
        self._visits: dict[tuple[str, str], _Visit] = {}
        """The latest to each step with items, by path and step."""
        self._steps: dict[str, ItemProgress] = {}

    def take(self, event: Event) -> None:
        """Let one event have its effect."""
        change = self._CHANGES.get(type(event.data))
        moment = max(event.recorded_at, self.last_us)
        if change is not None:
            change(self, event, event.data)
            self._turn_to(self._present_doing(), moment)
        self.last_us = moment

    # --- what is read off it ---------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether it has ended; it may still be resumed."""
        return self._halted == STOPPED

    def before(self, doing: Doing) -> int:
        """Return how many microseconds it did something up to `since_us`."""
        if doing != WORKED:
            return self._idle.get(doing, 0)
        return self.since_us - self._started_us - sum(self._idle.values())

    def spent(self, doing: Doing, now_us: int = 0) -> int:
        """Return how many microseconds it did something: to its end, else to `now_us`, or the last event if later."""
        until = self.since_us if self.is_over else max(now_us, self.last_us)
        return self.before(doing) + (until - self.since_us if doing == self.doing else 0)

    @property
    def times(self) -> list[str]:
        """How long it did what, up to the last event, as people read it."""
        return times_told(*map(self.spent, (WORKED, WAITED, PAUSED, ASLEEP)))

    @property
    def lasting(self) -> Phase | None:
        """The stretch that has not ended, if there is one."""
        return None if self.doing == WORKED or self.is_over else Phase(self.doing, self.since_us)

    @property
    def progress(self) -> list[ItemProgress]:
        """How far the steps with `Each` have come, in the order in which they began."""
        return list(self._steps.values())

    # --- what goes on ----------------------------------------------------------------------------------------------

    def _present_doing(self) -> Doing:
        if self._halted is not None:
            return self._halted
        if self._calls:
            return WORKED
        if self._questions:
            return WAITED
        return ASLEEP if self._sleeps else WORKED

    def _turn_to(self, doing: Doing, moment: int) -> None:
        if doing == self.doing:
            return
        if self.doing != WORKED and moment - self.since_us >= SHORTEST_US:
            self._note(Phase(self.doing, self.since_us, moment))
        self.doing = doing
        self.since_us = moment

    def _note(self, stretch: Phase) -> None:
        self.stretches.append(stretch)
        took = (stretch.ended_us or 0) - stretch.started_us
        self._idle[stretch.doing] = self._idle.get(stretch.doing, 0) + took

    def _execution_started(self, event: Event, _data: catalog.Payload) -> None:
        self._started_us = self.since_us = max(event.recorded_at, self.last_us)

    def _execution_forked(self, event: Event, _data: catalog.Payload) -> None:
        """Count anew: the time before was the source's, and so is what was in flight."""
        self._turn_to(STOPPED, self.last_us)
        self._turn_to(WORKED, max(event.recorded_at, self.last_us))
        self._halted = None
        self._idle = {}
        self._started_us = self.since_us
        self._calls, self._sleeps, self._questions = _Open(), _Open(), _Open()

    def _execution_resumed(self, _event: Event, _data: catalog.Payload) -> None:
        """Go on. What ran when the process ended runs no more; timers, signals and executions are still awaited."""
        if self._halted is None and self.doing == WORKED:
            self._turn_to(STOPPED, self.last_us)
        self._halted, self._calls = None, _Open()

    def _execution_paused(self, _event: Event, _data: catalog.Payload) -> None:
        self._halted = PAUSED

    def _execution_ended(self, _event: Event, _data: catalog.Payload) -> None:
        self._halted = STOPPED
        for visit in self._visits.values():
            _stop(visit)

    def _operation_started(self, event: Event, data: catalog.OperationStarted) -> None:
        if data.operation_type in ENCLOSING:
            return
        is_sleep = data.operation_type in SLEEPS and data.operation_type != CHILD_WORKFLOW
        (self._sleeps if is_sleep else self._calls).add(event.path, data.operation_id)

    def _operation_ended(self, event: Event, data: catalog.OperationCompleted | catalog.OperationFailed) -> None:
        self._calls.discard(event.path, data.operation_id)
        self._sleeps.discard(event.path, data.operation_id)

    def _interrupt_raised(self, event: Event, data: catalog.InterruptRaised) -> None:
        self._questions.add(event.path, data.interrupt_id)
        self._calls.discard(event.path, data.operation_id or "")

    def _interrupt_settled(self, event: Event, data: catalog.InterruptResolved | catalog.InterruptExpired) -> None:
        self._questions.discard(event.path, data.interrupt_id)

    def _step_left(self, event: Event, _data: catalog.Payload) -> None:
        """Forget what a path has left open: no event will report its end."""
        for known in (self._calls, self._sleeps, self._questions):
            known.drop(event.path)
        visit = self._visits.get((event.path, event.step))
        if visit is not None:
            _stop(visit)

    # --- items -----------------------------------------------------------------------------------------------------

    def _step_started(self, event: Event, _data: catalog.Payload) -> None:
        """Begin to count anew for a path that enters a step again."""
        before = self._visits.pop((event.path, event.step), None)
        if before is not None:
            _stop(before)
            told = before.progress
            told.done = told.done - before.done
            told.total = told.total - before.total
            told.failed -= len(before.failed)

    def _item_started(self, event: Event, data: catalog.IterationStarted) -> None:
        visit = self._visits.get((event.path, event.step))
        if visit is None or not visit.is_running:
            visit = self._begun(event, visit)
        if data.total and not visit.total:
            visit.total = min(max(0, data.total), MOST_ITEMS)
            visit.progress.total += visit.total
        if data.iteration_index in visit.failed:
            visit.failed.remove(data.iteration_index)
            visit.progress.failed -= 1

    def _begun(self, event: Event, visit: _Visit | None) -> _Visit:
        """Return the visit that has items from now on, a new one or one that goes on."""
        if visit is None:
            progress = self._steps.setdefault(event.step, ItemProgress(event.step))
            visit = self._visits[event.path, event.step] = _Visit(progress, self.since_us or event.recorded_at)
        told = visit.progress
        visit.is_running = True
        if not told.running:
            told.ends = deque([self.spent(WORKED, event.recorded_at)], maxlen=LATEST_ENDS + 1)
        told.running += 1
        return visit

    def _item_completed(self, event: Event, _data: catalog.Payload) -> None:
        self._item_done(event, self._visits.get((event.path, event.step)))

    def _item_failed(self, event: Event, data: catalog.IterationFailed) -> None:
        visit = self._visits.get((event.path, event.step))
        if visit is not None:
            visit.failed.add(data.iteration_index)
            visit.progress.failed += 1
        if data.result is not None:
            self._item_done(event, visit)

    def _item_done(self, event: Event, visit: _Visit | None) -> None:
        if visit is None:
            return
        told = visit.progress
        visit.done = visit.done + 1
        told.done += 1
        told.at_us = event.recorded_at
        told.ends.append(self.spent(WORKED, event.recorded_at))
        told.left_us = _left_us(told)

    def _rows_completed(self, event: Event, data: catalog.RowsCompleted) -> None:
        visit = self._visits.get((event.path, event.step))
        if visit is None or not visit.is_running:
            visit = self._begun(event, visit)
        told = visit.progress
        told.total = told.total - visit.total + data.total
        visit.total = data.total
        told.done = told.done + data.rows
        visit.done = visit.done + data.rows
        told.failed += data.failed
        visit.failed.update(range(len(visit.failed), len(visit.failed) + data.failed))
        told.at_us = event.recorded_at
        told.left_us = (told.total - told.done) * (event.recorded_at - visit.begun_us) // max(1, told.done)

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


def course_of(events: Iterable[Event]) -> Activity:
    """Return how a run has gone on, by its log."""
    course = Activity()
    for event in events:
        course.take(event)
    return course


def _stop(visit: _Visit) -> None:
    """Note that a visit has ended, or rests."""
    if visit.is_running:
        visit.is_running = False
        told = visit.progress
        told.running -= 1
        told.left_us = _left_us(told)


def _left_us(told: ItemProgress) -> int | None:
    left = told.total - told.done
    ends = told.ends
    if not told.running or left < 0 or len(ends) < 2:
        return None
    return left * (ends[-1] - ends[0]) // (len(ends) - 1)


def times_told(worked_us: int, waited_us: int = 0, paused_us: int = 0, asleep_us: int = 0) -> list[str]:
    """Return how long a run did what, as people read it; what took no time is left out, but for the work.

    >>> times_told(2_000_000, 63_000_000)
    ['worked 2.0 s', 'waited for you 1 min 03 s']
    """
    told = ("waited for you", waited_us), ("paused", paused_us), ("slept", asleep_us)
    return [f"worked {seconds(worked_us / 1e6)}", *(f"{what} {seconds(took / 1e6)}" for what, took in told if took > 0)]


# What the rows and items of a step gave, column by column, as far as it can be told at a glance.
#
# `Spreads` follows a log; counting what it was told of costs something, and is left until somebody looks. Of texts,
# truths and whole numbers with few different values the most frequent are named; of other numbers there are some twenty
# bins; free text is left out. Texts are as people may see them (`divebook.text.redaction`), and a column whose name is
# one of secrets is not told.


MOST_STEPS, MOST_COLUMNS, MOST_VALUES = 3, 3, 8
"""Steps of which it is told, columns of each, and values of each of these."""
LEAST_NUMBERS = 8
"""Fewer numbers say more by themselves than in bins."""
NAME = 40
RESULT = "result"
"""The column of what has no names of its own (`divebook.events.arrow.rows`)."""

Kind: TypeAlias = Literal["values", "numbers"]


class Counted(NamedTuple):
    """A value, or a bin of numbers, and in how many rows it is."""

    name: str
    rows: int


class Distribution(NamedTuple):
    """What one column holds."""

    name: str
    kind: Kind
    parts: tuple[Counted, ...]
    """The most frequent values, the most frequent first; or all bins, ascending."""
    others: Counted
    """How many other values there are, in words, and in how many rows."""
    empty: int
    """Rows that gave nothing here."""
    least: str = ""
    greatest: str = ""
    """Of numbers."""
    middle: str = ""
    """About the number that half of them do not exceed."""

    @property
    def words(self) -> str:
        """It as a line of text: ``label: praise 812, blame 164, 3 others 24``."""
        told = [f"{name} {rows:,}" for name, rows in (*self.parts, self.others) if rows]
        if self.kind == "numbers":
            beyond = [f"{self.others.rows:,} {self.others.name}"] if self.others.rows else []
            told = [f"{self.least} to {self.greatest}", f"median about {self.middle}", *beyond]
        return f"{self.name}: {', '.join([*told, *([f'{self.empty:,} empty'] if self.empty else [])])}"


Columns: TypeAlias = dict[str, ColumnTally]


class Spreads:
    """Follows a log, event by event.

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
        """What was counted, by step and path."""
        self._waiting: deque[tuple[Columns, str, Any, int]] = deque()
        """What is still to be counted: where, of which step, and of how many rows."""
        self._told: dict[str, tuple[Distribution, ...]] = {}
        """By step, unless more was counted since."""

    def take(self, event: Event) -> None:
        """Let one event have its effect."""
        data = event.data
        if isinstance(data, catalog.RowsCompleted):
            self._waiting.append((self._columns(event), event.step, data.result, max(1, data.rows)))
        elif isinstance(data, catalog.IterationCompleted):
            self._waiting.append((self._columns(event), event.step, given_by(data.result), 1))
        elif isinstance(data, catalog.StepStarted) and event.step in self._visits:
            self._visits[event.step].pop(event.path, None)  # it begins anew
            self._told.pop(event.step, None)

    @property
    def is_behind(self) -> bool:
        """Whether there is something that was not counted yet."""
        return bool(self._waiting)

    def count(self, most: float = math.inf) -> None:
        """Count what has ended, about so many rows of it."""
        items: dict[int, tuple[Columns, dict[str, list[Any]]]] = {}
        while self._waiting and most > 0:
            columns, step, given, rows = self._waiting.popleft()
            most -= rows
            self._told.pop(step, None)
            if isinstance(given, Recorded) and given.tag == "arrow":
                _count_rows(given, columns)
            else:
                cells = items.setdefault(id(columns), (columns, {}))[1]
                for name, cell in given.items() if isinstance(given, Mapping) else ((RESULT, given),):
                    cells.setdefault(name, []).append(cell)
        for columns, cells in items.values():
            _count_cells(cells, columns)

    def of(self, step: str) -> tuple[Distribution, ...]:
        """Return what the rows of a step gave in its latest visit of each path, counted to the end."""
        self.count()
        return self.so_far(step)

    def so_far(self, step: str) -> tuple[Distribution, ...]:
        """Return that of what was counted by now."""
        if step not in self._told:
            self._told[step] = spreads_of(_together(self._visits.get(step, {}).values()))
        return self._told[step]

    def latest(self, steps: Iterable[ItemProgress]) -> dict[str, tuple[Distribution, ...]]:
        """Return that of the latest steps of which there is something to tell: of those that run, if any do."""
        progress = [*steps]
        chosen = [told for told in progress if told.running] or progress
        found = {told.step: spreads for told in chosen if (spreads := self.so_far(told.step))}
        return dict([*found.items()][-MOST_STEPS:])

    def _columns(self, event: Event) -> Columns:
        return self._visits.setdefault(event.step, {}).setdefault(event.path, {})


def given_by(result: Any) -> Any:
    """Return what an item gave, as the log holds it: of a workflow function what that returned."""
    value = result.get("value", result.get("text")) if isinstance(result, Mapping) else result
    return value["result"] if isinstance(value, dict) and [*value] == ["result"] else value


def _count_rows(recorded: Recorded, columns: Columns) -> None:
    from divebook.events.arrow.rows import count_rows

    with suppress(UnopenableValueError):  # its classes are not known here, or it is damaged
        count_rows(recorded, columns)


def _count_cells(cells: Mapping[str, Sequence[Any]], columns: Columns) -> None:
    for name, found in cells.items():
        if name in columns or len(columns) < MOST_COUNTED:
            columns.setdefault(name, ColumnTally()).add(found)


def _together(visits: Iterable[Columns]) -> Columns:
    first, *others = [*visits] or [{}]
    if not others:
        return first
    found: Columns = {}
    for columns in (first, *others):
        for name, tally in columns.items():
            found.setdefault(name, ColumnTally()).merge(tally)
    return found


# --- in words ------------------------------------------------------------------------------------------------------


def spreads_of(columns: Columns) -> tuple[Distribution, ...]:
    """Return what is told of columns, in their order."""
    found = (_spread(name, tally) for name, tally in columns.items() if not looks_secret(name))
    return tuple(spread for spread in found if spread is not None)[:MOST_COLUMNS]


def _spread(name: str, tally: ColumnTally) -> Distribution | None:
    """Return what is told of a column; None of one that holds free text, or no single values."""
    has_words = bool(tally.text_count or any(tally.truths))
    many = tally.whole is None and tally.bins.count
    if many and not has_words and not tally.other and tally.bins.least < tally.bins.greatest:
        return _of_numbers(name, tally)
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
    is_free = len(counts) > total / 2 if len(counts) > MOST_VALUES else len(counts) == total
    if not total or is_free or tally.other == total:
        return None
    first = (ranked := sorted(counts, key=lambda one: (-one[1], one[0])))[:MOST_VALUES]
    rest = ranked[MOST_VALUES:]
    others = Counted(f"{len(rest):,} other{'' if len(rest) == 1 else 's'}", sum(count for _, count in rest))
    return Distribution(one_line(name, NAME), "values", tuple(Counted(*one) for one in first), others, tally.empty)


def _of_numbers(name: str, tally: ColumnTally) -> Distribution | None:
    bins = tally.bins
    if bins.count < LEAST_NUMBERS:
        return None
    exponent = max(0, bins.exponent) if tally.are_whole else bins.exponent
    listed = bins.listed(exponent)
    width = math.ldexp(1.0, exponent)
    step = 1.0 if tally.are_whole else 0.0  # from the greatest number of a bin to the least one of the next
    parts = tuple(Counted(_range(begin, begin + width - step), count) for begin, count in listed)
    middle = _about(_middle(listed, bins.count) + (width - step) / 2, width)
    ends = _number(bins.least), _number(bins.greatest)
    return Distribution(
        one_line(name, NAME), "numbers", parts, Counted("infinite", tally.endless), tally.empty, *ends, middle
    )


def _range(least: float, greatest: float) -> str:
    return _number(least) if least == greatest else f"{_number(least)} to {_number(greatest)}"


def _middle(listed: list[tuple[float, int]], count: int) -> float:
    """Return where the bin begins in which half of the numbers are reached."""
    reached = accumulate(inside for _, inside in listed)
    return next(begin for (begin, _), so_far in zip(listed, reached, strict=True) if 2 * so_far >= count)


def _named(text: str) -> str:
    return one_line(text, NAME) or '""'


def _number(value: float) -> str:
    """Return a number in few characters.

    >>> _number(1234567.0), _number(0.123456), _number(1e300)
    ('1,234,567', '0.1235', '1e+300')
    """
    return f"{int(value):,}" if value.is_integer() and abs(value) < 1e12 else f"{value:.4g}"


def _about(value: float, width: float) -> str:
    """Return a number to the digits that the width of a bin leaves."""
    digits = max(0, -math.floor(math.log10(width)))
    return _number(round(value, digits)) if digits < 12 else _number(value)
