"""Summaries of event logs for lists of runs, cached results computed from one log (`ReadLog`), and the critical path of
a run.

A summary is small and plain, so that a store keeps it beside its list of executions. It covers the events up to a
sequence number; `Summing` adds the later events of a growing log.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from divebook.definitions.definition import hidden_steps
from divebook.engine.lifecycle import (
    PAUSED,
    RECORDED_AS,
    SHOWN_STATUSES,
    STATUS_AFTER,
    TERMINAL,
    shown_status,
    unknown_status,
)
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
from divebook.errors import (
    UNFIT,
    ExecutionNotFoundError,
    ReadOnlyStoreError,
    StoreError,
    did_you_mean,
)
from divebook.events import Event, catalog
from divebook.events.catalog import (
    BADGED,
    CANCELLED,
    COMPLETED,
    FAILED,
    NOT_RESUMED_AUTOMATICALLY,
    PENDING,
    RUNNING,
    UNCOUNTED,
    WAITING,
)
from divebook.events.codec import decode, encode, readable
from divebook.events.event import to_datetime
from divebook.projections.activity import PAUSED as ACTIVITY_PAUSED
from divebook.projections.activity import STOPPED, WORKED, Activity, Spreads, activity_of
from divebook.projections.spans import Span, spans_of
from divebook.questions.bounds import dollars
from divebook.questions.question import is_overdue
from divebook.stores import EventStore, ExecutionRecord
from divebook.stores.backend import StoredSummary
from divebook.text.format import local_time, plural, price
from divebook.text.redaction import Redactor, one_line, shared

# Part of each stored summary. Another number makes all stored summaries invalid, so that logs are read again.
VERSION = 4
WIDTH = 200
"""Maximum number of characters of a text in a summary."""
INPUTS = 3
"""Maximum number of inputs that a summary lists."""
_QUESTIONS = frozenset({catalog.InterruptRaised, catalog.InterruptResolved, catalog.InterruptExpired})


@dataclass(frozen=True, slots=True)
class RunLine:
    """Data for one line in a list of runs: the record of an execution, and the summary of its log."""

    record: ExecutionRecord
    summary: Summary | None
    """Summary of the log; None if the log cannot be read, or has not been read yet."""
    questions: int = 0
    """Number of open questions of the execution, without the expired ones."""
    expired: int = 0
    """Number of questions that have expired since the execution stopped. A resumption asks them again."""
    is_left: bool = False
    """True if the process of the execution ended while the execution was running."""

    @property
    def id(self) -> str:
        """Id of the execution, ``exec_...``."""
        return self.record.execution_id

    @property
    def badge(self) -> str:
        """``what-if``, ``trial`` or ``fork`` for an execution that was started in this way; an empty string for other
        executions.
        """
        return badge_of(self.record)

    def named(self, width: int) -> str:
        """Return the name of the workflow, cut to a maximum width, with the badge of the execution."""
        return badged(one_line(self.record.workflow_name, width), self.badge)

    @property
    def is_counted(self) -> bool:
        """True if the execution counts in totals over several runs. What-ifs and trials do not count."""
        return self.record.origin not in UNCOUNTED

    @property
    def status(self) -> str:
        """Status of the execution for people; see `divebook.engine.lifecycle.shown_status`."""
        is_paused = self.summary is not None and self.summary.is_paused
        return shown_status(self.record.status, is_paused=is_paused, is_driven=not self.is_left)

    @property
    def error(self) -> str:
        """Error text of the failed execution with its location in the code; empty if the execution has not failed."""
        error = "" if self.summary is None else self.summary.error
        return error if self.record.status == FAILED else ""

    @property
    def about(self) -> str:
        """Text about the run: its error if it failed, else the time at which its process ended, else its note, else
        its inputs.
        """
        if self.error or self.summary is None:
            # The item in the error text is not counted again: "KeyError: 'b' and 3 more".
            more = 0 if self.summary is None else self.summary.failed
            return f"{self.error} and {more:,} more" if self.error and more else self.error
        if self.is_left:
            return f"{PROCESS_ENDED} at {local_time(to_datetime(self.summary.last_us))}"
        return self.record.note or self.summary.inputs

    @property
    def stand(self) -> str:
        """Progress of the run in words, such as failed items, open questions, completed items or the current step. For
        a cancelled run, it names the person who cancelled it. Empty if there is nothing to report.
        """
        summary = self.summary
        if summary is not None and self.record.status == COMPLETED and summary.failed:
            # A run may complete although items failed, if its step skips or keeps them.
            return f"{plural(summary.failed, 'item')} failed"
        if summary is None or self.record.status not in (RUNNING, WAITING, FAILED, CANCELLED):
            return ""
        if self.questions or self.expired:
            is_open = [plural(self.questions, "question")] if self.questions else []
            has_expired = [f"{plural(self.expired, 'question')} expired"] if self.expired else []
            return ", ".join(is_open + has_expired)
        is_going_on = self.status in (RUNNING, WAITING)
        items = f"{summary.done:,} of {summary.total:,}" if summary.total else ""
        if is_going_on:
            return items or (f"at step {summary.step}" if summary.step else "")
        if self.record.status == CANCELLED and summary.ended_by:
            return summary.ended_by
        kept_items = f"{items} completed" if items else ""
        at = f"at step {summary.step}" if self.record.status in (RUNNING, WAITING) and summary.step else ""
        return ", ".join(filter(None, [at, kept_items]))

    @property
    def way_on(self) -> str:
        """Text about the point at which a stopped run would continue, such as ``continues at step a (2 of 4 items
        completed)``.
        """
        summary = self.summary
        if summary is None or not summary.step:
            return "continues where it stopped"
        kept_items = f" ({summary.done:,} of {summary.total:,} items completed)" if summary.total else ""
        return f"continues at step {summary.step}{kept_items}"

    @property
    def cost(self) -> int | None:
        """Cost of the run in nanodollars; None if the run called no model, or if its log has not been read yet."""
        return None if self.summary is None else self.summary.cost

    @property
    def price(self) -> str:
        """Cost of the run as text; empty if it called no model."""
        return "" if self.cost is None else price(dollars(self.cost))

    def worked_us(self, now_us: int) -> int | None:
        """Return the working time of the run up to now, in microseconds; None if its log was not read."""
        if self.summary is None:
            return None
        summary = self.summary
        # A run that does not work now has a fixed working time.
        if not summary.works:
            return summary.worked_us
        # `since_us` is the start of the current work, whose time is not in `worked_us` yet.
        until = now_us if self.status == RUNNING else summary.last_us
        return summary.worked_us + max(0, until - summary.since_us)


class Summary(NamedTuple):
    """Facts from the log of an execution that a list of runs shows in one line."""

    inputs: str = ""
    """Inputs as a short text."""
    cost: int | None = None
    """Cost in nanodollars; None if no model was called."""
    worked_us: int = 0
    """Working time up to `since_us`, in microseconds."""
    waited_us: int = 0
    works: bool = False
    """True if the run has been working since `since_us`; False if it waits, is paused or has ended."""
    since_us: int = 0
    last_us: int = 0
    """Time of the last event, in microseconds since 1970."""
    is_paused: bool = False
    """True if a person has paused the run."""
    step: str = ""
    """Name of the current or the last step."""
    done: int = 0
    """Completed items of `step`; 0 if the step has no items."""
    total: int = 0
    """Number of all items of `step`; 0 if it has no items, or if the log does not contain the number."""
    error: str = ""
    """Error text with its location; empty unless the run failed."""
    failed: int = 0
    """Number of failed items, without the item in `error`."""
    ended_by: str = ""
    """Person or rule that cancelled the run."""
    expiries: Sequence[int] = ()
    """Times at which its open questions expire, in microseconds since 1970; without those that never expire."""

    def to_data(self) -> bytes:
        """Encode the summary as bytes, with a version number."""
        return encode([VERSION, *self])

    @classmethod
    def from_data(cls, data: bytes) -> Summary | None:
        """Decode a summary from bytes; return None if another version wrote them."""
        try:
            # The fields are stored without names, so that their number must be that of this version.
            version, *parts = decode(data)
            if version != VERSION or len(parts) != len(cls._fields):
                return None
            summary = cls(*parts)
            return summary._replace(expiries=tuple(summary.expiries))
        except UNFIT:
            return None


class Summing:
    """Computes the summary of an event log, one event at a time.

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> summing = Summing()
    >>> summing.take([Event("event_1", "exec_1", 1, 5_000_000, catalog.ExecutionStarted("w", {"rows": [1, 2]}))])
    >>> summing.summary().inputs, summing.sequence
    ('2 rows', 1)
    """

    def __init__(self) -> None:
        self.sequence = 0
        """Sequence number of the last applied event."""
        self._activity = Activity()
        self._usage = NO_USAGE
        self._asked_models = False
        self._inputs_text = self._step = self._error = self._ended_by = ""
        self._is_paused = False
        """True if a person has paused the run. An activity is paused also while the run is in a queue."""
        self._expiries: dict[str, int] = {}
        """Time of expiry of each open question that has one."""
        self._failed_item: int | None = None
        """Index of the item that made a step fail. The error text of the run contains it."""
        self._redactor = shared().fresh()
        # The inputs are needed again if a fork changes some of them.
        self._inputs: Mapping[str, Any] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Update the summary with the next events of the log."""
        for event in events:
            self._activity.take(event)
            self._read(event, event.data)
            self.sequence = event.sequence

    def summary(self) -> Summary:
        """Return the summary of the events applied so far."""
        activity = self._activity
        at = next((progress for progress in activity.progress if progress.step == self._step), None)
        return Summary(
            inputs=self._inputs_text,
            # 0 is a known cost: a model that costs nothing, or an answer from the cache.
            cost=self._usage.cost if self._asked_models else None,
            worked_us=activity.before(WORKED),
            waited_us=activity.before("waited"),
            works=activity.doing == WORKED and not activity.is_over,
            since_us=activity.since_us,
            last_us=activity.last_us,
            is_paused=self._is_paused,
            step=one_line(self._step, WIDTH),
            done=0 if at is None else at.done,
            total=0 if at is None else at.total,
            error=self._error,
            failed=self._others_failed(),
            ended_by=self._ended_by,
            expiries=tuple(self._expiries.values()),
        )

    def _others_failed(self) -> int:
        """Return the number of failed items, without the item that the error text of the run already names."""
        is_in_error = bool(self._error) and self._failed_item is not None
        return max(
            0, sum(progress.failed for progress in self._activity.progress) - is_in_error
        )  # old logs do not say that items fail

    def _read(self, event: Event, data: Any) -> None:
        """Note what the next event changes in the summary: usage, open questions, the current step and the status. The
        activity has followed it already.
        """
        kind = type(data)
        # A resumption or an end may also match a branch below.
        if kind is catalog.ExecutionPaused or kind in STATUS_AFTER:
            self._is_paused = kind is catalog.ExecutionPaused
        if kind in (catalog.OperationCompleted, catalog.OperationFailed):
            if data.usage:
                self._usage = self._usage.plus(data.usage)
                self._asked_models = True
        elif kind in _QUESTIONS:
            self._expiries.pop(data.interrupt_id, None)
            if kind is catalog.InterruptRaised and data.expires_at is not None:
                self._expiries[data.interrupt_id] = data.expires_at
        elif kind is catalog.StepStarted:
            self._step = event.step
            self._failed_item = None
        elif kind is catalog.StepFailed:
            self._failed_item = data.iteration_index
        elif kind is catalog.ExecutionStarted:
            self._learn(data.inputs)
        elif kind in STATUS_AFTER:
            self._read_status(data)

    def _read_status(self, data: Any) -> None:
        kind = type(data)
        if kind is catalog.ExecutionForked:  # what its source consumed counts there
            self._usage = NO_USAGE
            self._asked_models = False
            self._expiries = {}
            self._learn({**self._inputs, **(data.change or {}).get("inputs", {})})
        # A resumed run has no error any more, until it fails again.
        self._error = self._clean(data.error) if kind is catalog.ExecutionFailed else ""
        self._ended_by = (
            self._clean(data.reason.removeprefix("cancelled ")) if kind is catalog.ExecutionCancelled else ""
        )

    def _learn(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs
        self._redactor.learn(inputs)
        self._inputs_text = self._clean(in_words(inputs, self._redactor))

    def _clean(self, text: str) -> str:
        return one_line(self._redactor.text(text), WIDTH)


def in_words(inputs: Mapping[str, Any], redactor: Redactor) -> str:
    """Format the inputs of a run as a short text: collections by their size, and short values as they are.

    >>> in_words({"packages": ["a", "b"], "depth": 2, "note": None, "api_key": "s3cr3t"}, Redactor())
    '2 packages, depth 2, api_key [redacted]'
    """
    present = {name: value for name, value in inputs.items() if value not in (None, "")}
    texts = [_in_words(name, value, redactor) for name, value in list(present.items())[:INPUTS]]
    if len(present) > INPUTS:
        texts.append("...")
    return ", ".join(texts)


def _in_words(name: str, value: Any, redactor: Redactor) -> str:
    # `packages=["a", "b"]` -> "2 packages"; `data={...}` with 3 keys -> "data with 3 parts".
    if isinstance(value, list | tuple | dict):
        is_plural = name.endswith("s")
        return plural(len(value), name[:-1]) if is_plural else f"{name} with {plural(len(value), 'part')}"
    shown = redactor.value({name: value if isinstance(value, str) else readable(value)})
    return f"{name} {one_line(shown[name], 40)}"


# --- lines of the lists of executions --------------------------------------------------------------------------------
#
# A line combines the row of the store with the summary of the log. Summaries are stored, so that a list of thousands of
# executions reads no logs. Of a running execution only the new events are read. A list that cannot wait passes a time
# limit; summaries that are not ready by then appear in the next call.


PROCESS_ENDED = "Interrupted: its process ended"
"""Text about a run whose process ended while the run was running."""
FOR_EVER = float("inf")
_PAGE = 50


def newest_run(store: EventStore, workflows: Container[str] | None = None) -> ExecutionRecord | None:
    """Return the newest execution that is not a what-if and not a trial; None if there is none. With `workflows`, only
    executions of workflows with these names count.

    What-ifs and trials are made to examine a run, so people still mean the examined run.
    """
    # `takewhile` ends at the first empty page.
    pages = (store.records(limit=_PAGE, offset=offset) for offset in itertools.count(0, _PAGE))
    records = itertools.chain.from_iterable(itertools.takewhile(bool, pages))
    candidates = (record for record in records if record.origin not in NOT_RESUMED_AUTOMATICALLY)
    return next((record for record in candidates if workflows is None or record.workflow_name in workflows), None)


def badge_of(record: ExecutionRecord) -> str:
    """Return the word ``what-if``, ``trial`` or ``fork`` for an execution that was started in this way; an empty string
    for other executions.
    """
    return record.origin if record.origin in BADGED else ""


def badged(name: str, badge: str) -> str:
    """Return the name of a workflow, followed by the badge of its execution (such as ``trial``) in parentheses; without
    parentheses if the badge is empty.

    >>> badged("roses", "trial"), badged("roses", "")
    ('roses (trial)', 'roses')
    """
    return f"{name} ({badge})" if badge else name


def status_in(store: EventStore, execution_id: str) -> str:
    """Return the status of an execution that people see."""
    return Overview(store).statuses([store.record(execution_id)])[execution_id]


def records_with(
    store: EventStore, status: str | None = None, *, limit: int = 0, **filters: Any
) -> list[ExecutionRecord]:
    """Return the summary rows of the executions that have a status, newest first.

    Parameters
    ----------
    status
        A status that people see; None for all.
    limit
        Maximum number of rows; 0 for all.
    filters
        Filters of `EventStore.records`.

    Raises
    ------
    NotFoundError
        No run can have this status.
    """
    if status is None:
        return store.records(limit=limit, **filters)
    if status not in SHOWN_STATUSES:
        raise unknown_status(status, SHOWN_STATUSES)
    recorded = RECORDED_AS[status]
    if status in TERMINAL or status == PENDING:
        return store.records(status, limit=limit, **filters)
    # The store does not know which of these are paused, or have lost their process. Few executions have not ended.
    records = [record for each in recorded for record in store.records(each, **filters)]
    records.sort(key=lambda record: record.created_at, reverse=True)
    statuses = Overview(store).statuses(records)
    matching = [record for record in records if statuses[record.execution_id] == status]
    return matching[:limit] if limit else matching


def no_runs_note(store: EventStore, filters: Mapping[str, Any]) -> str:
    """Return the text for a list without runs. It names the workflow that a misspelt filter probably meant.

    Parameters
    ----------
    filters
        Filters of `EventStore.records` that are not None.
    """
    if not filters:
        return "no runs yet"
    workflow = filters.get("workflow")
    names = {record.workflow_name for record in store.records()} if workflow else set()
    advice = None if workflow in names else did_you_mean(str(workflow), names)
    return "no runs match these filters" + (f" ({advice})" if advice else "")


class Overview:
    """Computes the lines of a list of runs, with a cache of the summaries of their logs."""

    def __init__(self, store: EventStore, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self._clock = clock
        # An entry is valid as long as the store has no later event of its execution.
        self._known: dict[str, tuple[int, Summary]] = {}
        """Cached summaries by execution, each with the sequence number of the last event that it includes."""
        self._following: dict[str, Summing] = {}
        """Folds of the logs of executions that have not ended, by execution."""

    def lines(self, records: Sequence[ExecutionRecord], patience: float = FOR_EVER) -> list[RunLine]:
        """Return the line of each execution. At most `patience` seconds are spent on reading logs; after that, lines
        have no summary.
        """
        return self._lines(records, self.summaries(records, patience))

    def known_lines(self, records: Sequence[ExecutionRecord]) -> list[RunLine]:
        """Return the line of each execution without reading any log: summaries that are not cached are missing."""
        return self._lines(records, {name: summary for name, (_, summary) in self._known.items()})

    def moving(self, records: Sequence[ExecutionRecord]) -> tuple[list[tuple[str, str]], set[str]]:
        """Return the open questions of all executions, and the ids of those of the given executions that are recorded
        as running although their process has ended.
        """
        return self.store.asking(), self._left_runs(records)

    def _left_runs(self, records: Sequence[ExecutionRecord]) -> set[str]:
        running = [record.execution_id for record in records if record.status == RUNNING]
        if not running:
            return set()
        driven = {lease.execution_id for lease in self.store.live_leases()}
        ids = set()
        for name in running:
            # A run that has ended since the records were read has no lease either. Its row is read again.
            with suppress(ExecutionNotFoundError):
                if name not in driven and self.store.record(name).status == RUNNING:
                    ids.add(name)
        return ids

    def statuses(self, records: Sequence[ExecutionRecord]) -> dict[str, str]:
        """Return the statuses of executions that people see, by id. Only the logs of executions that may be paused are
        read.
        """
        paused = self.summaries([record for record in records if record.status in RECORDED_AS[PAUSED]])
        left_ids = self._left_runs(records)
        lines = (
            RunLine(record, paused.get(record.execution_id), is_left=record.execution_id in left_ids)
            for record in records
        )
        return {line.id: line.status for line in lines}

    def _lines(self, records: Sequence[ExecutionRecord], summaries: Mapping[str, Summary]) -> list[RunLine]:
        questions, left_ids = self.moving(records)
        counts = Counter(execution_id for execution_id, _ in questions)
        now_us = time.time_ns() // 1000
        lines = []
        for record in records:
            name = record.execution_id
            summary = summaries.get(name)
            # A process that drives a run records the expiry itself.
            expiries = summary.expiries if summary is not None and record.status == WAITING else ()
            expired = min(counts[name], sum(is_overdue(each, now_us) for each in expiries))
            lines.append(RunLine(record, summary, counts[name] - expired, expired, name in left_ids))
        return lines

    def summaries(self, records: Sequence[ExecutionRecord], patience: float = FOR_EVER) -> Mapping[str, Summary]:
        """Return the summaries of executions by id. At most `patience` seconds are spent on reading logs; summaries
        that are not ready by then are left out.
        """
        # Three sources of a summary, the cheapest first: this cache, the store, the log.
        self._recall([record for record in records if not self._is_known(record)])
        # The limit counts from here: reading stored summaries is quick.
        until = self._clock() + patience
        read = {}
        for record in records:
            if not self._is_known(record) and self._clock() < until and self._read(record):
                read[record.execution_id] = record
        # All summaries are written to the store in one call.
        self._keep(read.values())
        names = [record.execution_id for record in records]
        return {name: self._known[name][1] for name in names if name in self._known}

    def _is_known(self, record: ExecutionRecord) -> bool:
        entry = self._known.get(record.execution_id)
        # The log may have grown since the records were read, so that the entry may be newer.
        return entry is not None and entry[0] >= record.last_sequence

    def _recall(self, records: Sequence[ExecutionRecord]) -> None:
        """Load the saved summaries of some executions from the store into the cache."""
        for name, (sequence, data) in self.store.summaries([record.execution_id for record in records]).items():
            summary = Summary.from_data(data)
            if summary is not None:
                self._known[name] = (sequence, summary)

    def _read(self, record: ExecutionRecord) -> bool:
        """Read the new events of an execution and update its summary in the cache. Return True if the summary should be
        saved in the store; it is not saved while the execution is running.
        """
        name = record.execution_id
        # Only events after the ones that were folded before are read.
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
        # The summary of a running execution would be outdated at once.
        return record.status != RUNNING

    def _keep(self, records: Iterable[ExecutionRecord]) -> None:
        stored = {}
        for record in records:
            sequence, summary = self._known[record.execution_id]
            stored[record.execution_id] = StoredSummary(sequence, summary.to_data())
        if stored:
            try:
                self.store.put_summaries(stored)
            except ReadOnlyStoreError:  # then the next process reads the logs again
                return


# --- cached projections of one log -----------------------------------------------------------------------------------


class ReadLog(tuple[Event, ...]):  # noqa: SLOT001 - it keeps what was read off it
    """Events of an execution as a tuple, with cached results that are computed from them: spans, activity and
    distributions of values.

    The report, the failures and the saved form of one run share one of these, because a fold of a long log takes as
    long as all the rest (`tests/notebook/test_failed.py`).
    """

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Convert events to a `ReadLog`. If they are a `ReadLog` already, return it, so that its cached results are
        used.
        """
        return events if isinstance(events, cls) else cls(events)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Spans of the log; read-only."""
        return tuple(spans_of(self))

    @cached_property
    def shown_spans(self) -> tuple[Span, ...]:
        """Spans of the log, without steps that people do not see, such as the router of a pipeline; read-only."""
        has_hidden = any(hidden_steps(event.data) for event in self if not event.step)
        return tuple(spans_of(self, for_people=True)) if has_hidden else self.spans

    @cached_property
    def activity(self) -> Activity:
        """Activity of the run; read-only."""
        return activity_of(self)

    @cached_property
    def spreads(self) -> Spreads:
        """Distributions of the values in the results of rows and items, as cached counts; read-only."""
        spreads = Spreads()
        for event in self:
            spreads.take(event)
        return spreads


# --- the critical path of a run --------------------------------------------------------------------------------------
#
# The critical path contains, for each moment of the run, the call or question that the end of the run waited for. The
# search starts at the end and moves backwards in time. On a path, the call that ended last is the one that the next
# call waited for. Within an item of `Each`, calls of the same item have precedence. At a join the search continues on
# the path that released it: the one that arrived last, or one that ended elsewhere after all arrivals. At the beginning
# of a branch the search continues on the path that split, and at the beginning of a rollback on the path that failed.
# Time between two calls is overhead, unless the run was paused or stopped then. The parts therefore cover the duration
# of the run without a gap (`tests/projections/test_critical_path.py`). Example, seconds from the start:
#
#     main    | fetch 0-2 | split at 2                   join at 9 | report 9-10 |
#     main-1              | translate 2-5 |
#     main-2              | classify 2-9                  |
#
# The result is fetch 0-2, classify 2-9, report 9-10. Nothing waited for translate.


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
"""Kind of the time on the critical path.

``actions``: actions, and functions made with ``@step``. ``workflows``: other executions. ``asleep``: timers, signals,
pauses before further attempts. ``stopped``: no process drove the run.
"""
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
    """Part of the critical path of a run: a call, an open question, a pause or overhead."""

    spent: Spent
    """Kind of the time."""
    started_us: int
    ended_us: int
    path: str
    step: str = ""
    item: int | None = None
    called: str = ""
    """Name of the called action, agent, tool, ...; for a question, its kind."""
    operation_id: str | None = None

    @property
    def duration(self) -> timedelta:
        """Duration of this part of the critical path."""
        return timedelta(microseconds=self.ended_us - self.started_us)

    @property
    def started_at(self) -> datetime:
        """Time at which this part began to delay the end of the run."""
        return to_datetime(self.started_us)

    @property
    def ended_at(self) -> datetime:
        """Time at which this part ended."""
        return to_datetime(self.ended_us)


@dataclass(slots=True)
class _PathOfRun:
    """Facts about one path (branch) of a run that the search for the critical path of the run needs."""

    began_us: int = 0
    parent: str | None = None
    """Id of the path that split into this path; for a rollback, of the path whose end started it."""
    parts: list[PathPart] = field(default_factory=list)
    """Calls and questions on the path, ordered by their ends."""
    joins: list[_Join] = field(default_factory=list)
    """Joins after which the path continued, oldest first."""
    is_waiting: bool = False
    """True if the path waits at a join."""
    last: int = 0
    """Sequence number of the last event on the path, without its cancellation."""


class _Join(NamedTuple):
    """Join at which a path waited for other paths, and the event that released it."""

    joined_us: int
    """Time at which the path continued."""
    released_us: int
    released_by: str
    """Id of the path that released the join, because it arrived there or ended."""


def critical_path(events: Iterable[Event]) -> list[PathPart]:
    """Return the critical path of a run: the parts that its end waited for, oldest first. For a running execution, it
    ends at the last event.

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
    """Return the times at which a run started and ended. A fork starts at the time of the fork."""
    # A fork has the time of its source in the events before the fork; only its own time counts.
    forks = [event.recorded_at for event in log if isinstance(event.data, catalog.ExecutionForked)]
    began = forks[-1] if forks else log[0].recorded_at
    # A clock that was set back must not make the duration negative.
    return began, max(began, *(event.recorded_at for event in log))


def _paths(log: ReadLog) -> dict[str, _PathOfRun]:
    """Return the data that the search for the critical path needs about each path (branch) of a run, by name of the
    path.

    Structure comes from the events of paths, questions from the interrupt events, and calls from the spans of
    operations.
    """
    paths: dict[str, _PathOfRun] = defaultdict(_PathOfRun)
    arrival: Event | None = None
    for event in log:
        if event.path:
            _follow(paths, event, arrival)
            arrival = event if _has_arrived(paths[event.path], event.data) else arrival
    for part in _question_parts(log):
        paths[part.path].parts.append(part)
    for span in log.spans:
        # A turn is as long as its requests and calls, which are parts themselves.
        if span.kind == "operation" and span.type not in ENCLOSING:
            paths[span.path].parts.append(_call(span, log[-1].recorded_at))
    for path in paths.values():
        # `_waited_for` searches by the time of the end.
        path.parts.sort(key=lambda part: (part.ended_us, part.started_us))
    return paths


def _follow(paths: dict[str, _PathOfRun], event: Event, arrival: Event | None) -> None:
    """Update the data about a path (branch of a run) with an event: a start, branch, wait or join.

    `arrival` is the latest event before this one with which a path arrived at a join or ended.
    """
    path = paths[event.path]
    is_first = path.last == 0
    # The end of a run does not wait for a path that is cancelled because another one failed.
    if not isinstance(event.data, catalog.PathCancelled):
        path.last = event.sequence
    match event.data:
        case catalog.PathStarted():
            path.began_us = event.recorded_at
            # Only the first path and the rollbacks did not split from a path. A rollback starts when a path ends.
            if path.parent is None and is_first and arrival is not None:
                path.parent = arrival.path
        case catalog.PathBranched() as data:
            for new_path in (paths[new_path["id"]] for new_path in data.new_paths):
                # A parent has earlier events, also in a damaged log. The search from path to parent therefore ends.
                if new_path.last == 0:
                    new_path.parent = event.path
        case catalog.PathWaiting():
            path.is_waiting = True
        case catalog.PathJoined():
            path.is_waiting = False
            # A path may survive several joins, so that each join needs its own release. The runner releases joins
            # directly after a path has arrived or ended (`Runner._drive`).
            if arrival is not None:
                path.joins.append(_Join(event.recorded_at, arrival.recorded_at, arrival.path))


def _has_arrived(path: _PathOfRun, data: catalog.Payload) -> bool:
    """Return True if an event is the arrival of its path at a join or the end of its path, which may release joins."""
    # A waiting path completes because it is joined into another path: it arrived before.
    is_end = isinstance(data, catalog.PathCompleted | catalog.PathFailed) and not path.is_waiting
    return is_end or isinstance(data, catalog.PathWaiting)


def _question_parts(log: ReadLog) -> Iterator[PathPart]:
    """Yield one part of the critical path for each question in a log: the time from the question until its answer or
    expiry.
    """
    open_questions: dict[str, tuple[Event, catalog.InterruptRaised]] = {}
    for event in log:
        if isinstance(event.data, catalog.InterruptRaised):
            open_questions[event.data.interrupt_id] = event, event.data
        elif isinstance(event.data, catalog.InterruptResolved | catalog.InterruptExpired):
            raising = open_questions.pop(event.data.interrupt_id, None)
            if raising is not None:
                yield _question(*raising, event.recorded_at)
        elif isinstance(event.data, catalog.ExecutionForked):
            # The fork has answers to the questions of its source, or asks them again.
            open_questions.clear()
    # A question that is still open lasts until the last event.
    for raised, question in open_questions.values():
        yield _question(raised, question, log[-1].recorded_at)


def _question(raised: Event, question: catalog.InterruptRaised, ended_us: int) -> PathPart:
    # The clock may have been set back in between.
    ended = max(raised.recorded_at, ended_us)
    return PathPart("people", raised.recorded_at, ended, raised.path, raised.step, called=question.kind)


def _call(span: Span, last_us: int) -> PathPart:
    ended = max(span.started_us, last_us if span.ended_us is None else span.ended_us)
    spent = _SPENT.get(span.type, "other calls")
    called = span.called or ""
    return PathPart(spent, span.started_us, ended, span.path, span.step, span.iteration, called, span.operation_id)


def _backwards(paths: dict[str, _PathOfRun], began: int, ended: int) -> Iterator[PathPart]:
    """Yield the calls and questions that the end of the run waited for, the last one first.

    `now` moves from the end towards the beginning. Each iteration takes the latest event before `now` on the current
    path: a join (continue on the path that released it), a call or question (yield it), or the start of a branch
    (continue on the path that split).
    """
    if not paths:
        return
    # The run ends where its last event is.
    name = max(paths, key=lambda name: paths[name].last)
    # Parts and joins before these indexes are still to be visited. They only decrease, so that the loop ends.
    remaining = {name: len(path.parts) for name, path in paths.items()}
    joins = {name: len(path.joins) for name, path in paths.items()}
    now = ended
    latest = None
    while now > began:
        path = paths[name]
        place = _waited_for(path.parts, remaining[name], now, latest)
        # The search may reach a path at a time before its latest joins.
        while joins[name] and path.joins[joins[name] - 1].joined_us > now:
            joins[name] -= 1
        join = path.joins[joins[name] - 1] if joins[name] else None
        # A join counts only if no call of the path ended after it.
        if join is not None and (place is None or path.parts[place].ended_us <= join.joined_us):
            joins[name] -= 1
            name = join.released_by
            # The path that released the join made the others wait, from its arrival or end backwards.
            now = min(now, join.released_us)
            latest = None
        elif place is not None:
            latest = path.parts[place]
            remaining[name] = place
            # A part that began before the run (the source of a fork), or that ended after `now`, is cut to the time
            # that counts.
            yield latest._replace(started_us=max(began, latest.started_us), ended_us=min(now, latest.ended_us))
            now = latest.started_us
        elif path.parent is not None:
            # The branch has no earlier part: it waited for the path that split.
            now = min(now, path.began_us or now)
            name = path.parent
            latest = None
        else:
            return


def _waited_for(parts: Sequence[PathPart], remaining: int, now: int, latest: PathPart | None) -> int | None:
    """Return the index of the call or question of a path that was the last to end before `now`; None if there is none.
    A call of the same item as `latest` is preferred.
    """
    # The last part that ended at or before `now`.
    place = min(remaining, bisect_right(parts, now, key=lambda part: part.ended_us)) - 1
    if place < 0:
        return None
    # Parallel items end in any order. The call of the same item before this one is what it waited for, although a call
    # of another item may have ended later.
    if latest is not None and latest.item is not None:
        for nearby in range(place, max(-1, place - _NEAR), -1):
            if (parts[nearby].step, parts[nearby].item) == (latest.step, latest.item):
                return nearby
    return place


_NEAR = 200
"""Number of earlier parts that are searched for a call of the same item."""


def _with_gaps(backwards: Iterable[PathPart], began: int, ended: int) -> list[PathPart]:
    """Return the parts of the critical path in chronological order. Gaps between them are filled with parts for
    overhead.
    """
    parts: list[PathPart] = []
    now = ended
    path = ""
    step = ""
    for part in backwards:
        # Going backwards, the gap lies between the end of this part and the start of the part found before.
        if part.ended_us < now:
            parts.append(PathPart(OVERHEAD, part.ended_us, now, path or part.path, step or part.step))
        # A part without length belongs to the path, but has no time.
        if part.ended_us > part.started_us:
            parts.append(part)
        now = min(now, part.started_us)
        path = part.path
        step = part.step
    if now > began:
        parts.append(PathPart(OVERHEAD, began, now, path, step))
    return parts[::-1]


def _interrupted(log: ReadLog, parts: Iterable[PathPart]) -> Iterator[PathPart]:
    """Yield the parts of the critical path without the times when the run was paused or stopped. These times are
    yielded as separate parts.

    A part 10-20 with a pause 12-15 becomes the part 10-12, the pause 12-15 and the part 15-20.
    """
    # The phase that lasts has no end yet.
    current = log.activity.current
    phases = [*log.activity.phases, *([current] if current is not None else [])]
    breaks = [phase for phase in phases if phase.doing in (ACTIVITY_PAUSED, STOPPED)]
    for part in parts:
        now = part.started_us
        for phase in breaks:
            begins = max(now, phase.started_us)
            # A phase without an end lasts beyond the part.
            ends = min(part.ended_us, part.ended_us if phase.ended_us is None else phase.ended_us)
            if begins < ends:
                if now < begins:
                    yield part._replace(started_us=now, ended_us=begins)
                yield PathPart(
                    "paused" if phase.doing == ACTIVITY_PAUSED else "stopped", begins, ends, part.path, part.step
                )
                now = ends
        if now < part.ended_us:
            yield part._replace(started_us=now)
