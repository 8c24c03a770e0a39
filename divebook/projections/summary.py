"""What a log comes to in one line: what it was given, what it cost, how long it worked, how far it came, why it ended.

A summary is small and plain, so that a store keeps it beside its list of executions, and made of the events up to one
of them: the rest of a log that grows is added to it with `Summing`.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from divebook.engine.bounds import NANODOLLARS
from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.engine.operations import (
    ACTION_EXECUTION,
    AGENT_RESPONSE,
    CACHED_RESPONSE,
    CHILD_WORKFLOW,
    ENCLOSING,
    SCRIPT_EXECUTION,
    SIGNAL_WAIT,
    STEP_EXECUTION,
    TIMER,
    TOOL_CALL,
    TOOL_DISCOVERY,
)
from divebook.engine.state import NO_USAGE
from divebook.errors import UNFIT, ExecutionNotFoundError, ReadOnlyStoreError, StoreError
from divebook.events import Event, catalog
from divebook.events.catalog import BADGED, CANCELLED, COMPLETED, FAILED, LEFT_ALONE, RUNNING, UNCOUNTED, WAITING
from divebook.events.codec import decode, encode, readable
from divebook.events.event import to_datetime
from divebook.projections.progress import PAUSED as COURSE_PAUSED
from divebook.projections.progress import STOPPED, WORKED, Activity, Spreads, course_of
from divebook.projections.spans import Span, spans_of
from divebook.store import EventStore, ExecutionRecord
from divebook.store.base import StoredSummary
from divebook.text.format import local_time, plural, price
from divebook.text.redaction import Redactor, one_line, shared
from divebook.workflow.definition import hidden_steps

VERSION = 2
WIDTH = 200
"""Characters of what a line says at most."""
INPUTS = 3
"""Inputs that it names."""


class Summary(NamedTuple):
    """What one line says of an execution."""

    given: str = ""
    """Its inputs in words."""
    cost: int | None = None
    """Nanodollars; None where no model was asked."""
    worked_us: int = 0
    """How long it worked up to `since_us`."""
    waited_us: int = 0
    works: bool = False
    """Whether it works since then; else it waits, is paused, or is over."""
    since_us: int = 0
    last_us: int = 0
    """When the last event was recorded."""
    is_paused: bool = False
    step: str = ""
    """Where it stands, or stood when it ended."""
    done: int = 0
    """Of the items of that step, or of all steps where it has none."""
    total: int = 0
    """0 where it has none, or the log does not say."""
    error: str = ""
    """Why it failed, with the place."""
    failed: int = 0
    """How many items have failed beside that."""
    ended_by: str = ""
    """Who or what cancelled it."""

    def to_data(self) -> bytes:
        """Return it as bytes."""
        return encode([VERSION, *self])

    @classmethod
    def from_data(cls, data: bytes) -> Summary | None:
        """Return what `to_data` wrote; None if another version did."""
        try:
            version, *parts = decode(data)
            return cls(*parts) if version == VERSION and len(parts) == len(cls._fields) else None
        except UNFIT:
            return None


class Summing:
    """Follows a log, event by event.

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> summing = Summing()
    >>> summing.take([Event("event_1", "exec_1", 1, 5_000_000, catalog.ExecutionStarted("w", {"rows": [1, 2]}))])
    >>> summing.summary().given, summing.sequence
    ('2 rows', 1)
    """

    def __init__(self) -> None:
        self.sequence = 0
        """The last event that is in it."""
        self._course = Activity()
        self._usage = NO_USAGE
        self._asked_models = False
        self._given = self._step = self._error = self._ended_by = ""
        self._failed_item: int | None = None
        """The item that made a step fail, which the error names."""
        self._redactor = shared().fresh()
        self._inputs: Mapping[str, Any] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Let events have their effect."""
        for event in events:
            self._course.take(event)
            self._read(event, event.data)
            self.sequence = event.sequence

    def summary(self) -> Summary:
        """Return what they come to."""
        course = self._course
        at = next((told for told in course.progress if told.step == self._step), None)
        return Summary(
            given=self._given,
            cost=self._usage.cost if self._asked_models else None,
            worked_us=course.before(WORKED),
            waited_us=course.before("waited"),
            works=course.doing == WORKED and not course.is_over,
            since_us=course.since_us,
            last_us=course.last_us,
            is_paused=course.doing == COURSE_PAUSED,
            step=one_line(self._step, WIDTH),
            done=0 if at is None else at.done,
            total=0 if at is None else at.total,
            error=self._error,
            failed=self._others_failed(),
            ended_by=self._ended_by,
        )

    def _others_failed(self) -> int:
        """Return how many items have failed, without the one that the error names."""
        named = bool(self._error) and self._failed_item is not None
        return max(0, sum(told.failed for told in self._course.progress) - named)  # old logs do not say that items fail

    def _read(self, event: Event, data: Any) -> None:
        kind = type(data)
        if kind in (catalog.OperationCompleted, catalog.OperationFailed):
            if data.usage:
                self._usage = self._usage.plus(data.usage)
                self._asked_models = True
        elif kind is catalog.StepStarted:
            self._step = event.step
            self._failed_item = None
        elif kind is catalog.StepFailed:
            self._failed_item = data.iteration_index
        elif kind is catalog.ExecutionStarted:
            self._learn(data.inputs)
        elif kind in STATUS_AFTER:
            if kind is catalog.ExecutionForked:  # what its source consumed counts there
                self._usage = NO_USAGE
                self._asked_models = False
                self._learn({**self._inputs, **(data.change or {}).get("inputs", {})})
            self._error = self._clean(data.error) if kind is catalog.ExecutionFailed else ""
            self._ended_by = (
                self._clean(data.reason.removeprefix("cancelled ")) if kind is catalog.ExecutionCancelled else ""
            )

    def _learn(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs
        self._redactor.learn(inputs)
        self._given = self._clean(in_words(inputs, self._redactor))

    def _clean(self, text: str) -> str:
        return one_line(self._redactor.text(text), WIDTH)


def in_words(inputs: Mapping[str, Any], redactor: Redactor) -> str:
    """Return inputs as a few words: the sizes of collections, and what is short as it is.

    >>> in_words({"packages": ["a", "b"], "depth": 2, "note": None, "api_key": "s3cr3t"}, Redactor())
    '2 packages, depth 2, api_key [redacted]'
    """
    given = {name: value for name, value in inputs.items() if value not in (None, "")}
    told = [_in_words(name, value, redactor) for name, value in list(given.items())[:INPUTS]]
    return ", ".join([*told, *(["..."] if len(given) > INPUTS else [])])


def _in_words(name: str, value: Any, redactor: Redactor) -> str:
    if isinstance(value, list | tuple | dict):
        is_plural = name.endswith("s")
        return plural(len(value), name[:-1]) if is_plural else f"{name} with {plural(len(value), 'part')}"
    shown = redactor.value({name: value if isinstance(value, str) else readable(value)})
    return f"{name} {one_line(shown[name], 40)}"


# Executions in one line each, as every list of them shows it: the row of the store, and what its log comes to.
#
# What a log comes to is read once and kept in the store, so that a list of thousands reads no logs; of those that go on
# only what is new is read. A list that cannot wait says how long it has: what is not there by then comes the next time.


PAUSED = "paused"
FOR_EVER = float("inf")
_PAGE = 50


def newest_run(store: EventStore) -> ExecutionRecord | None:
    """Return the newest execution that is no what-if and no trial of another one; None if there is none.

    They are made to look at a run, which stays the one that people mean.
    """
    pages = (store.records(limit=_PAGE, offset=offset) for offset in itertools.count(0, _PAGE))
    records = itertools.chain.from_iterable(itertools.takewhile(bool, pages))
    return next((record for record in records if record.origin not in LEFT_ALONE), None)


def badge_of(record: ExecutionRecord) -> str:
    """Return what an execution is where it is no run of its own: ``what-if``, ``trial`` or ``fork``; else nothing."""
    return record.origin if record.origin in BADGED else ""


def badged(name: str, badge: str) -> str:
    """Return the name of a workflow with a badge beside it, if there is one.

    >>> badged("roses", "trial"), badged("roses", "")
    ('roses (trial)', 'roses')
    """
    return f"{name} ({badge})" if badge else name


@dataclass(frozen=True, slots=True)
class RunLine:
    """An execution as a list shows it."""

    record: ExecutionRecord
    summary: Summary | None
    """None where its log cannot be read, or was not yet."""
    questions: int = 0
    """How many wait for an answer."""
    is_left: bool = False
    """Whether it had not come to rest when its process ended."""

    @property
    def id(self) -> str:
        """``exec_...``."""
        return self.record.execution_id

    @property
    def badge(self) -> str:
        """What it is where it is no run of its own: ``what-if``, ``trial`` or ``fork``; else nothing."""
        return badge_of(self.record)

    def named(self, width: int) -> str:
        """Return the name of its workflow, cut to a width, with its badge."""
        return badged(one_line(self.record.workflow_name, width), self.badge)

    @property
    def is_counted(self) -> bool:
        """Whether totals count it."""
        return self.record.origin not in UNCOUNTED

    @property
    def status(self) -> str:
        """The status for people: what nothing drives, or somebody has paused, is ``paused``."""
        status = self.record.status
        is_paused = self.is_left or (status == WAITING and self.summary is not None and self.summary.is_paused)
        return PAUSED if is_paused else status

    @property
    def error(self) -> str:
        """Why it failed, with the place."""
        told = "" if self.summary is None else self.summary.error
        return told if self.record.status == FAILED else ""

    @property
    def about(self) -> str:
        """What it is about: its error, that its kernel has stopped, its note, or its inputs."""
        if self.error or self.summary is None:
            more = 0 if self.summary is None else self.summary.failed
            return f"{self.error} and {more:,} more" if self.error and more else self.error
        if self.is_left:
            return f"The kernel stopped at {local_time(to_datetime(self.summary.last_us))}"
        return self.record.note or self.summary.given

    @property
    def stand(self) -> str:
        """How far it has come, and what is kept; how many items have failed; who cancelled it."""
        summary = self.summary
        if summary is not None and self.record.status == COMPLETED and summary.failed:
            return f"{plural(summary.failed, 'item')} failed"
        if summary is None or self.record.status not in (RUNNING, WAITING, FAILED, CANCELLED):
            return ""
        if self.questions:
            return plural(self.questions, "question")
        is_going_on = self.status in (RUNNING, WAITING)
        items = f"{summary.done:,} of {summary.total:,}" if summary.total else ""
        if is_going_on:
            return items or (f"at step {summary.step}" if summary.step else "")
        if self.record.status == CANCELLED and summary.ended_by:
            return summary.ended_by
        kept = f"{items} kept" if items else ""
        at = f"at step {summary.step}" if self.status == PAUSED and summary.step else ""
        return ", ".join(filter(None, [at, kept]))

    @property
    def way_on(self) -> str:
        """Where it goes on once it is taken up: ``picks up at step a (2 of 4 items kept)``."""
        summary = self.summary
        if summary is None or not summary.step:
            return "picks up where it was left"
        kept = f" ({summary.done:,} of {summary.total:,} items kept)" if summary.total else ""
        return f"picks up at step {summary.step}{kept}"

    @property
    def cost(self) -> int | None:
        """Nanodollars; None where no model was asked, or it is not known yet."""
        return None if self.summary is None else self.summary.cost

    @property
    def price(self) -> str:
        """What it cost as people read it; empty where no model was asked."""
        return "" if self.cost is None else price(self.cost / NANODOLLARS)

    def worked_us(self, now_us: int) -> int | None:
        """Return how long it has worked up to now, in microseconds."""
        if self.summary is None:
            return None
        goes_on = self.status == RUNNING and self.summary.works
        until = now_us if goes_on else self.summary.last_us if self.summary.works else self.summary.since_us
        return self.summary.worked_us + (max(0, until - self.summary.since_us) if self.summary.works else 0)


class Overview:
    """Makes the lines of a store's executions, and knows what it has read."""

    def __init__(self, store: EventStore, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self._clock = clock
        self._known: dict[str, tuple[int, Summary]] = {}
        """With the last event that is in each."""
        self._following: dict[str, Summing] = {}
        """Those that have not ended."""

    def lines(self, records: Sequence[ExecutionRecord], patience: float = FOR_EVER) -> list[RunLine]:
        """Return a line for each record; `patience` says how many seconds logs may be read for."""
        return self._lines(records, self.summaries(records, patience))

    def known_lines(self, records: Sequence[ExecutionRecord]) -> list[RunLine]:
        """Return a line for each record, with what is known of its log by now."""
        return self._lines(records, {name: summary for name, (_, summary) in self._known.items()})

    def moving(self) -> tuple[list[tuple[str, str]], set[str]]:
        """Return what lines say that no record does: the open questions, and which executions nothing drives."""
        left = {record.execution_id for record in self.store.orphans() if record.status == RUNNING}
        return self.store.asking(), left

    def _lines(self, records: Sequence[ExecutionRecord], summaries: Mapping[str, Summary]) -> list[RunLine]:
        asking, left = self.moving()
        asked = Counter(execution_id for execution_id, _ in asking)
        return [
            RunLine(record, summaries.get(name := record.execution_id), asked[name], name in left) for record in records
        ]

    def summaries(self, records: Sequence[ExecutionRecord], patience: float = FOR_EVER) -> Mapping[str, Summary]:
        """Return what the logs of executions come to, as far as that can be read in so many seconds."""
        self._recall([record for record in records if not self._is_known(record)])
        until = self._clock() + patience
        read = {}
        for record in records:
            if not self._is_known(record) and self._clock() < until and self._read(record):
                read[record.execution_id] = record
        self._keep(read.values())
        return {name: self._known[name][1] for record in records if (name := record.execution_id) in self._known}

    def _is_known(self, record: ExecutionRecord) -> bool:
        known = self._known.get(record.execution_id)
        return known is not None and known[0] >= record.last_sequence

    def _recall(self, records: Sequence[ExecutionRecord]) -> None:
        """Take over what the store has kept."""
        for name, (sequence, data) in self.store.summaries([record.execution_id for record in records]).items():
            summary = Summary.from_data(data)
            if summary is not None:
                self._known[name] = (sequence, summary)

    def _read(self, record: ExecutionRecord) -> bool:
        """Read what is new in a log; return whether that is worth keeping: it has come to rest."""
        name = record.execution_id
        summing = self._following.get(name) or Summing()
        try:
            summing.take(self.store.history(name, after=summing.sequence))
        except ExecutionNotFoundError:  # it was deleted
            return False
        except StoreError:  # damaged, or encrypted: its row says what is known
            self._known[name] = (record.last_sequence, Summary())
            return False
        self._known[name] = (summing.sequence, summing.summary())
        if record.status in TERMINAL:
            self._following.pop(name, None)
        else:
            self._following[name] = summing
        return record.status != RUNNING

    def _keep(self, records: Iterable[ExecutionRecord]) -> None:
        kept = {record.execution_id: self._known[record.execution_id] for record in records}
        if kept:
            try:
                self.store.put_summaries(
                    {name: StoredSummary(sequence, summary.to_data()) for name, (sequence, summary) in kept.items()}
                )
            except ReadOnlyStoreError:  # then they are read again in the next process
                return


# A log with what is read off it, each once for all who show it.


class ReadLog(tuple[Event, ...]):  # noqa: SLOT001 - it keeps what was read off it
    """The events of an execution, with their spans and their course.

    Report, failures and saved form of one run are made of one of these: a fold of a long log takes as long as all the
    rest (`tests/notebook/test_failed.py`).
    """

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Return events as a log; the same if they are one."""
        return events if isinstance(events, cls) else cls(events)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Its stretches of time, for reading only."""
        return tuple(spans_of(self))

    @cached_property
    def shown_spans(self) -> tuple[Span, ...]:
        """Its stretches of time without the steps that people do not see, for reading only."""
        has_hidden = any(hidden_steps(event.data) for event in self if not event.step)
        return tuple(spans_of(self, for_people=True)) if has_hidden else self.spans

    @cached_property
    def course(self) -> Activity:
        """How it went on, for reading only."""
        return course_of(self)

    @cached_property
    def spreads(self) -> Spreads:
        """What the rows and items of its steps gave, for reading only."""
        spreads = Spreads()
        for event in self:
            spreads.take(event)
        return spreads


# The critical path of a run: what its end waited for, moment by moment, from its beginning on.
#
# It is found from the end backwards: on a path of the run the call that ended last is what the next one waited for; in
# an item the item's own calls come first; at a join it goes on with the path that came last, at the beginning of a
# branch with the path that split. What lies between is overhead, or the run was paused or stopped. So the parts fill
# the run's duration without a gap (`tests/history/test_critical_path.py`).


Spent: TypeAlias = Literal[
    "model",
    "tools",
    "actions",
    "scripts",
    "workflows",
    "other calls",
    "people",
    "asleep",
    "paused",
    "stopped",
    "overhead",
]
"""What time goes into. ``actions``: those, and functions made with ``@step``; ``workflows``: other executions;
``asleep``: timers, signals, pauses before further attempts; ``stopped``: no process drove it."""
OVERHEAD: Spent = "overhead"
_SPENT: dict[str, Spent] = {
    AGENT_RESPONSE: "model",
    CACHED_RESPONSE: "model",
    TOOL_CALL: "tools",
    TOOL_DISCOVERY: "tools",
    ACTION_EXECUTION: "actions",
    STEP_EXECUTION: "actions",
    SCRIPT_EXECUTION: "scripts",
    CHILD_WORKFLOW: "workflows",
    TIMER: "asleep",
    SIGNAL_WAIT: "asleep",
}


class PathPart(NamedTuple):
    """A stretch of the critical path."""

    spent: Spent
    """What the time went into."""
    started_us: int
    ended_us: int
    path: str
    step: str = ""
    item: int | None = None
    called: str = ""
    """What was called: the action, the agent, the tool ...; of a question its kind."""
    operation_id: str | None = None

    @property
    def took_us(self) -> int:
        """How long it took."""
        return self.ended_us - self.started_us


@dataclass(slots=True)
class _OnePath:
    """What is known of a path of the run."""

    began_us: int = 0
    parent: str | None = None
    parts: list[PathPart] = field(default_factory=list)
    """Calls and questions, by their ends."""
    joins: list[tuple[int, list[str]]] = field(default_factory=list)
    """When it went on for others as well, and for which."""
    arrived_us: int = 0
    """When it came to the join at which it waited last."""
    last: int = 0
    """Its last event."""


def critical_path(events: Iterable[Event]) -> list[PathPart]:
    """Return the parts of the critical path, oldest first; of a run that has not ended, up to its last event.

    >>> critical_path([])
    []
    """
    log = ReadLog.of(events)
    if not log:
        return []
    paths = _paths(log)
    began, ended = _extent(log)
    parts = _with_gaps(_backwards(paths, began, ended), began, ended)
    return list(_interrupted(log, parts))


def _extent(log: Sequence[Event]) -> tuple[int, int]:
    """Return when the run began, a fork when it forked; and when it ended."""
    forks = [event.recorded_at for event in log if isinstance(event.data, catalog.ExecutionForked)]
    began = forks[-1] if forks else log[0].recorded_at
    return began, max(began, *(event.recorded_at for event in log))


def _paths(log: ReadLog) -> dict[str, _OnePath]:
    paths: dict[str, _OnePath] = defaultdict(_OnePath)
    for event in log:
        if event.path:
            _follow(paths, event)
    for part in _questions(log):
        paths[part.path].parts.append(part)
    for span in log.spans:
        if span.kind == "operation" and span.type not in ENCLOSING:
            paths[span.path].parts.append(_call(span, log[-1].recorded_at))
    for known in paths.values():
        known.parts.sort(key=lambda part: (part.ended_us, part.started_us))
    return paths


def _follow(paths: dict[str, _OnePath], event: Event) -> None:
    """Note how a path begins, splits, waits and goes on."""
    known = paths[event.path]
    known.last = event.sequence
    match event.data:
        case catalog.PathStarted():
            known.began_us = event.recorded_at
        case catalog.PathBranched() as data:
            for new_path in data.new_paths:
                paths[new_path["id"]].parent = event.path
        case catalog.PathWaiting():
            known.arrived_us = event.recorded_at
        case catalog.PathJoined() as data:
            known.joins.append((event.recorded_at, [event.path, *data.joined]))


def _questions(log: ReadLog) -> Iterator[PathPart]:
    """Yield how long each question was open."""
    asked: dict[str, tuple[Event, catalog.InterruptRaised]] = {}
    for event in log:
        if isinstance(event.data, catalog.InterruptRaised):
            asked[event.data.interrupt_id] = event, event.data
        elif isinstance(event.data, catalog.InterruptResolved | catalog.InterruptExpired):
            known = asked.pop(event.data.interrupt_id, None)
            if known is not None:
                yield _question(*known, event.recorded_at)
    for raised, question in asked.values():
        yield _question(raised, question, log[-1].recorded_at)


def _question(raised: Event, question: catalog.InterruptRaised, ended_us: int) -> PathPart:
    ended = max(raised.recorded_at, ended_us)
    return PathPart("people", raised.recorded_at, ended, raised.path, raised.step, called=question.kind)


def _call(span: Span, last_us: int) -> PathPart:
    ended = max(span.started_us, last_us if span.ended_us is None else span.ended_us)
    spent = _SPENT.get(span.type, "other calls")
    called = span.called or ""
    return PathPart(spent, span.started_us, ended, span.path, span.step, span.iteration, called, span.operation_id)


def _backwards(paths: dict[str, _OnePath], began: int, ended: int) -> Iterator[PathPart]:
    """Yield the calls and questions that the end waited for, the last first."""
    if not paths:
        return
    name = max(paths, key=lambda name: paths[name].last)
    left = {name: len(known.parts) for name, known in paths.items()}
    joins = {name: len(known.joins) for name, known in paths.items()}
    now = ended
    latest = None
    while now > began:
        known = paths[name]
        found = _waited_for(known.parts, left[name], now, latest)
        joined = known.joins[joins[name] - 1] if joins[name] else None
        if joined is not None and joined[0] <= now and (found is None or known.parts[found].ended_us <= joined[0]):
            joins[name] -= 1
            name = max(joined[1], key=lambda other: paths[other].arrived_us)
            now = min(now, paths[name].arrived_us or joined[0])
            latest = None
        elif found is not None:
            latest = known.parts[found]
            left[name] = found
            yield latest._replace(started_us=max(began, latest.started_us), ended_us=min(now, latest.ended_us))
            now = latest.started_us
        elif known.parent is not None:
            now = min(now, known.began_us or now)
            name = known.parent
            latest = None
        else:
            return


def _waited_for(parts: Sequence[PathPart], left: int, now: int, latest: PathPart | None) -> int | None:
    """Return the place of what ended last until now; in an item its own calls come first."""
    place = min(left, bisect_right(parts, now, key=lambda part: part.ended_us)) - 1
    if place < 0:
        return None
    if latest is not None and latest.item is not None:
        for own in range(place, max(-1, place - _NEAR), -1):
            if (parts[own].step, parts[own].item) == (latest.step, latest.item):
                return own
    return place


_NEAR = 200
"""Calls that are looked through for the one before in the same item."""


def _with_gaps(backwards: Iterable[PathPart], began: int, ended: int) -> list[PathPart]:
    """Return the parts oldest first, with what lies between them."""
    parts: list[PathPart] = []
    now = ended
    path = ""
    step = ""
    for part in backwards:
        if part.ended_us < now:
            parts.append(PathPart(OVERHEAD, part.ended_us, now, path or part.path, step or part.step))
        if part.took_us > 0:
            parts.append(part)
        now = min(now, part.started_us)
        path = part.path
        step = part.step
    if now > began:
        parts.append(PathPart(OVERHEAD, began, now, path, step))
    return parts[::-1]


def _interrupted(log: ReadLog, parts: Iterable[PathPart]) -> Iterator[PathPart]:
    """Yield the parts without the times in which the run was paused or stopped, which are parts of their own."""
    lasting = log.course.lasting
    known = [*log.course.stretches, *([lasting] if lasting is not None else [])]
    breaks = [stretch for stretch in known if stretch.doing in (COURSE_PAUSED, STOPPED)]
    for part in parts:
        now = part.started_us
        for stretch in breaks:
            begins = max(now, stretch.started_us)
            ends = min(part.ended_us, part.ended_us if stretch.ended_us is None else stretch.ended_us)
            if begins < ends:
                if now < begins:
                    yield part._replace(started_us=now, ended_us=begins)
                yield PathPart(
                    "paused" if stretch.doing == COURSE_PAUSED else "stopped", begins, ends, part.path, part.step
                )
                now = ends
        if now < part.ended_us:
            yield part._replace(started_us=now)
