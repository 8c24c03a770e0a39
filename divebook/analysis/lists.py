"""DataFrames of the executions, questions and queues of a store, and of results about one run such as its critical
path.

`divebook.analysis.store` makes the frames from the logs of many executions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, get_args

import pandas as pd

from divebook.analysis import agents, log
from divebook.analysis.columns import (
    ANYTHING,
    CONSUMED,
    COUNT,
    MOMENT,
    MONEY,
    NUMBER,
    SPAN,
    TEXT,
    TIMES,
    Column,
    Columns,
    documented,
    frame,
    moment,
)
from divebook.engine.state import ExecutionState
from divebook.environments.environment import Environment
from divebook.errors import NotFoundError, SetupError, StoreError
from divebook.events import Event, catalog
from divebook.events.catalog import ENQUEUED, FAILED
from divebook.events.event import to_microseconds
from divebook.events.recorded import opened
from divebook.projections.compare import OperationTree, Pair, Row, describe
from divebook.projections.failures import Failure, failure_in
from divebook.projections.run_columns import cell_text, columns_in
from divebook.projections.summary import Overview, status_in
from divebook.questions import Question
from divebook.questions.bounds import dollars
from divebook.replay.inspect import Inspection
from divebook.replay.origins import ValueOrigin
from divebook.replay.provenance import ProvenanceText, ProvenanceTree
from divebook.replay.trial import StepTrial
from divebook.runtime.forks import folded
from divebook.runtime.queueing import attempts_made
from divebook.stores import EventStore, ExecutionRecord
from divebook.stores.leases import QueuedExecution, WorkerRecord
from divebook.text.format import json_time, plural

# --- queues -----------------------------------------------------------------------------------------------------------


NO_WORKER = "no running worker can run it"
INTERRUPTED = "interrupted too often, each time before it made progress"


class QueueLine:
    """Execution that waits in a queue, with the workers that can run it and the reasons why others cannot."""

    def __init__(
        self, environment: Environment, queued: QueuedExecution, workers: list[WorkerRecord], *, withheld: bool
    ) -> None:
        record = environment.store.record(queued.execution_id)
        self.queue = queued.queue
        self.priority = queued.priority
        self.execution_id = queued.execution_id
        self.workflow = queued.workflow
        self.status = status_in(environment.store, queued.execution_id)
        self.key = record.key
        self.due = record.wake_at if record.status == ENQUEUED else None
        self.attempts = attempts_made(environment.store, queued.execution_id)
        reasons = {worker.id: worker.why_not(queued) for worker in workers}
        self.workers = [name for name, reason in reasons.items() if reason is None]
        self.reasons = {name: reason for name, reason in reasons.items() if reason is not None}
        self.withheld = withheld
        # The state is only read for executions that workers skip: the reason of a pause is in the log.
        self._paused = environment.run_of(queued.execution_id).state.paused if withheld else None
        self._queued = queued

    @property
    def able_workers(self) -> str:
        """Number of workers that can run the queued execution, as text: ``2 workers``."""
        return plural(len(self.workers), "worker") if self.workers else NO_WORKER

    @property
    def why(self) -> str | None:
        """Reason why no worker runs the queued execution; None if a worker can run it."""
        if self.withheld:
            return self._paused or INTERRUPTED
        if self.workers:
            return None
        return "; ".join([NO_WORKER, *(f"{name}: {reason}" for name, reason in self.reasons.items())])

    def to_dict(self) -> dict[str, Any]:
        """Return the queued execution and its workers as plain data."""
        data = asdict(self._queued)
        data["status"] = self.status
        data["due"] = json_time(self.due)
        data["key"] = self.key
        data["attempts"] = self.attempts
        data["workers"] = self.workers
        data["reasons"] = self.reasons
        if self.withheld:
            data["why"] = self.why
        return data


def queue_lines(environment: Environment, workers: list[WorkerRecord]) -> Iterator[QueueLine]:
    """Yield the queued executions: first in the order in which workers take them, then the ones that workers skip."""
    for withheld in (False, True):
        for queued in environment.queues.queued(withheld=withheld):
            yield QueueLine(environment, queued, workers, withheld=withheld)


QUEUE_COLUMNS: Columns = {
    "queue": Column(TEXT, "name of the queue"),
    "priority": Column(COUNT, "priority; runs with a higher priority start first"),
    "execution_id": Column(TEXT, "``exec_...``"),
    "workflow": Column(TEXT, "name of the workflow"),
    "status": Column(TEXT, "``enqueued``, or the status between two workers"),
    "due": Column(MOMENT, "earliest start, UTC"),
    "key": Column(TEXT, "start key"),
    "attempts": Column(COUNT, "number of workers that died while they ran it, since its last progress"),
    "workers": Column(ANYTHING, "workers that can run the execution"),
    "why": Column(TEXT, "reason why the execution does not run: paused, interrupted too often, or no suitable worker"),
}


@documented(QUEUE_COLUMNS)
def queue_frame(environment: Environment) -> pd.DataFrame:
    """Return one row per execution that waits in a queue, in the order in which workers take them."""
    return frame(QUEUE_COLUMNS, list(queue_lines(environment, environment.queues.workers())))


# --- results of a bulk operation over several executions --------------------------------------------------------------


HANDLED_COLUMNS: Columns = {
    "execution_id": Column(TEXT, "id of the run, or the given name if the store has no such run"),
    "before": Column(
        TEXT, "status before the operation; missing if the store has no such run", lambda row: row.before or None
    ),
    "status": Column(TEXT, "status after the operation", lambda row: row.status or None),
    "made": Column(TEXT, "id of the resulting run, if it is another run", lambda row: row.new_id or None),
    "error_type": Column(
        TEXT, "class of the error", lambda row: None if row.error is None else type(row.error).__name__
    ),
    "error": Column(TEXT, "reason why the operation failed", lambda row: None if row.error is None else str(row.error)),
}


@documented(HANDLED_COLUMNS)
def handled_frame(rows: Iterable[Any]) -> pd.DataFrame:
    """Return one row per execution on which a bulk operation such as "cancel these" ran, in the order of `rows`; see
    `handle_each`.
    """
    return frame(HANDLED_COLUMNS, rows)


# --- critical path, times and retries of a run ------------------------------------------------------------------------


PART_COLUMNS: Columns = {
    "spent": Column(
        TEXT,
        "``model``, ``tools``, ``actions``, ``scripts``, ``workflows``, ``other calls``, ``people``, ``asleep``, "
        "``paused``, ``stopped``, ``overhead``",
    ),
    "called": Column(TEXT, "called action, agent ...", lambda part: part.called or None),
    "path": Column(TEXT, "path"),
    "step": Column(TEXT, "step", lambda part: part.step or None),
    "iteration": Column(NUMBER, "index of the item of `Each`", "item"),
    "operation_id": Column(TEXT, "id of the operation"),
    "started": Column(
        MOMENT, "time at which this part began to delay the end of the run", lambda part: moment(part.started_us)
    ),
    "ended": Column(MOMENT, "time at which this part ended", lambda part: moment(part.ended_us)),
    "duration": Column(SPAN, "time between both"),
}


@documented(PART_COLUMNS)
def parts_frame(inspected: Inspection) -> pd.DataFrame:
    """Return one row per part of the critical path of a run, oldest first; the
    durations add up to the run's duration.
    """
    return frame(PART_COLUMNS, inspected.parts)


TIME_COLUMNS: Columns = {
    "spent": Column(TEXT, "kind of activity, as in the parts of the critical path", lambda row: row[0]),
    "duration": Column(SPAN, "total time", lambda row: row[1]),
    "share": Column("float64", "share of the run's duration, from 0 to 1", lambda row: row[2]),
}


@documented(TIME_COLUMNS)
def times_frame(inspected: Inspection) -> pd.DataFrame:
    """Return one row per kind of activity (model calls, waiting, ...) along the critical path of a run, with its total
    time; the longest first.
    """
    shares = inspected.shares
    return frame(TIME_COLUMNS, [(kind, took, shares[kind]) for kind, took in inspected.spent.items()])


RETRY_COLUMNS: Columns = {
    "event": Column(COUNT, "number of the event that recorded the failure", "sequence"),
    "path": Column(TEXT, "path"),
    "step": Column(TEXT, "step"),
    "iteration": Column(NUMBER, "index of the item of `Each`", "item"),
    "call": Column(TEXT, "call that was retried, if the step makes several"),
    "attempt": Column(COUNT, "number of the failed attempt, from 1"),
    "error": Column(TEXT, "error message"),
    "delay": Column(SPAN, "pause before the next attempt"),
}


@documented(RETRY_COLUMNS)
def retries_frame(inspected: Inspection) -> pd.DataFrame:
    """Return one row per failed attempt at a call or step that was followed by another attempt."""
    return frame(RETRY_COLUMNS, inspected.retried)


# --- provenance of a value --------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    texts: ProvenanceText
    origin: ValueOrigin

    @property
    def description(self) -> str:
        return self.texts.head(self.origin)


def _depth(row: _Row) -> int:
    return row.texts.why.depths[row.origin.number]


def _calls(row: _Row) -> list[int]:
    return [call.sequence for call in row.origin.calls]


WHY_COLUMNS: Columns = {
    "number": Column(COUNT, "number of the value, to which `reads` and `because` refer", "origin.number"),
    "depth": Column(COUNT, "number of steps back; 0 for the requested value", _depth),
    "kind": Column(
        TEXT,
        "``input``, ``set``, ``deleted``, ``kept`` (unchanged); ``choice``, ``caught``: whether a step failed; "
        "``output``, ``state``",
        "origin.kind",
    ),
    "name": Column(TEXT, "name of the variable, or ``inputs.NAME``", lambda row: row.origin.name or None),
    "value": Column(ANYTHING, "value", lambda row: opened(row.texts.why.value(row.origin), lenient=True)),
    "event": Column(COUNT, "number of the event that recorded the value or choice", "origin.sequence"),
    "path": Column(TEXT, "path of the step", lambda row: row.origin.path or None),
    "step": Column(TEXT, "step that set the value, or that made the choice", lambda row: row.origin.step or None),
    "visit": Column(NUMBER, "number of the path's visit to the step, from 1", lambda row: row.origin.visit or None),
    "iteration": Column(NUMBER, "index of the item of `Each` that set the value", "origin.item"),
    "calls": Column(ANYTHING, "numbers of the events that started calls of the step", _calls),
    "reads": Column(ANYTHING, "numbers of the values from which it was computed", lambda row: list(row.origin.reads)),
    "because": Column(ANYTHING, "numbers of the choices on which it depends", lambda row: list(row.origin.because)),
    "told": Column(TEXT, "description of the value or choice in words", "description"),
}


@documented(WHY_COLUMNS)
def why_frame(why: ProvenanceTree) -> pd.DataFrame:
    """Return one row per value and choice that contributed to a value (its provenance). The first row is the value
    itself.
    """
    texts = ProvenanceText(why)
    return frame(WHY_COLUMNS, [_Row(texts, origin) for origin in why.origins])


# --- results of the rows of a frame, of steps with `Each` and `Rows` --------------------------------------------------


def rows_frame(log_and_step: tuple[Iterable[Event], str | None]) -> pd.DataFrame:
    """Return the results of a step that runs over the rows of a frame (``Each: Rows``), indexed by row position. The
    column ``error`` has the error of each failed row.

    If the step was visited several times, the results of the latest visit are returned.

    Parameters
    ----------
    log_and_step
        The events of a log, and the name of a step; None for the only step with rows.

    Raises
    ------
    NotFoundError
        The step does not exist or has no completed rows.
    SetupError
        Several steps have rows, and the name is None.
    """
    from divebook.events.arrow.rows import outcome_of

    # One argument, since all functions that make frames take one.
    events, step = log_and_step
    facts = [(event.step, event.data) for event in events if isinstance(event.data, catalog.RowsCompleted)]
    steps = dict.fromkeys(step for step, _ in facts)
    if step is None and len(steps) > 1:
        raise SetupError(f"several steps have rows ({', '.join(steps)}). Choose one: rows({next(iter(steps))!r})")
    name = next(iter(steps), "") if step is None else step
    parts = [data for step, data in facts if step == name]
    if not parts:
        raise NotFoundError("step with rows that have ended", name, steps)
    total = max(part.total for part in parts)
    # Positions are those of the whole frame, so that all parts are one round. The latest result of a row counts.
    outcome = outcome_of(total, [(total, [part.result for part in parts])])
    outcome.index.name = "position"
    return outcome


# --- trials -----------------------------------------------------------------------------------------------------------


TRIAL_COLUMNS: Columns = {
    "number": Column(COUNT, "0 for the recorded result, 1 for the first try"),
    "execution_id": Column(TEXT, "id of the run, ``exec_...``", "run_id"),
    "status": Column(TEXT, "``completed``, ``failed``, ``waiting`` for an answer ..."),
    "asked": Column(TEXT, "rendered prompt; for other steps the arguments of the call"),
    "value": Column(ANYTHING, "result of the step; None if it failed"),
    "error": Column(TEXT, "error message, or the reason why the step waits"),
    "model": Column(TEXT, "model that was called"),
    "tokens": Column(NUMBER, "input and output tokens; missing if no model was called"),
    "cost": Column("float64", "cost in US dollars; missing if the price is unknown"),
    "duration": Column(SPAN, "duration; missing if it has not ended"),
}


@documented(TRIAL_COLUMNS)
def trial_frame(trial: StepTrial) -> pd.DataFrame:
    """Return a DataFrame that compares the results of a trial: one row for the recorded result of the step, and one row
    per new try.
    """
    return frame(TRIAL_COLUMNS, [trial.recorded, *trial.tries])


class _RunRow(NamedTuple):
    """Data for one row of `runs_frame`: the record of an execution in the store, its state, and its failure if it
    failed.
    """

    record: ExecutionRecord
    status: str
    """Status that people see."""
    state: ExecutionState | None
    """State of the execution; None if its log is damaged. `check` and `show` report details."""

    failure: Failure | None
    """Failure of a failed execution; None for other executions."""
    damage: str | None
    """Reason why the log cannot be read; None if it can."""

    @property
    def started_us(self) -> int | None:
        return _microseconds(self.record.started_at)

    @property
    def ended_us(self) -> int | None:
        return _microseconds(self.record.ended_at)

    @property
    def usage(self) -> dict[str, int] | None:
        return None if self.state is None else self.state.own_usage.to_dict()


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else to_microseconds(time)


def _values(part: str) -> Callable[[_RunRow], Any]:
    return lambda row: None if row.state is None else opened(dict(getattr(row.state, part)), lenient=True)


def _why(part: str) -> Callable[[_RunRow], str | None]:
    return lambda row: None if row.failure is None else getattr(row.failure, part) or None


RUN_COLUMNS: Columns = {
    "execution_id": Column(TEXT, "``exec_...``", "record.execution_id"),
    "workflow": Column(TEXT, "name of the workflow", lambda row: row.record.workflow_name or None),
    "status": Column(TEXT, "``running``, ``waiting``, ``interrupted``, ``completed`` ...", "status"),
    **TIMES,
    "inputs": Column(ANYTHING, "dict; None if the log cannot be read", _values("inputs")),
    "outputs": Column(ANYTHING, "dict; None if the log cannot be read", _values("outputs")),
    **CONSUMED,
    "events": Column(COUNT, "number of events in the log", "record.last_sequence"),
    "bytes": Column(COUNT, "size of all payloads in bytes, including large values", "record.size"),
    "error_type": Column(TEXT, "class of the error", _why("error_type")),
    "error": Column(TEXT, "reason of the failure or cancellation", "record.error"),
    "traceback": Column(TEXT, "place of the error in user code", _why("traceback")),
    "durability": Column(
        TEXT, "``full``, or ``relaxed``: a power failure may lose the latest events", "record.durability"
    ),
    "origin": Column(TEXT, "origin: ``run``, ``fork``, ``child``, ``import`` ...", "record.origin"),
    "tags": Column(ANYTHING, "list of strings", lambda row: list(row.record.tags)),
    "note": Column(TEXT, "note on the run", "record.note"),
    "labels": Column(ANYTHING, "dict; None if the log cannot be read", _values("labels")),
    "damage": Column(TEXT, "reason why the log cannot be read"),
}
SHOWN_FIRST = ("execution_id", "workflow", "status", "started", "duration")
TELLING = ("cost", "error", "tags", "note")
"""Columns that notebooks show of executions: `SHOWN_FIRST` always, and these if they contain a value."""


@documented(RUN_COLUMNS)
def runs_frame(records: Iterable[ExecutionRecord], store: EventStore) -> pd.DataFrame:
    """Return one row per execution of a store, with status, times, inputs, outputs, consumption and error."""
    records = list(records)
    overview = Overview(store)
    statuses = overview.statuses(records)
    rows = frame(RUN_COLUMNS, [_run_row(record, statuses[record.execution_id], store) for record in records])
    for column in columns_in("frame"):
        cells = [cell_text(column, line) for line in overview.lines(records)]
        rows[column.title] = pd.Series(cells, rows.index, rows["execution_id"].dtype)
    return rows


def _run_row(record: ExecutionRecord, status: str, store: EventStore) -> _RunRow:
    try:
        state = folded(store, record.execution_id)
        damage = None
    # A damaged log has a row as well, with what the store knows of it.
    except StoreError as error:
        state = None
        damage = str(error)
    return _RunRow(record, status, state, _failure(record, store), damage)


def _failure(record: ExecutionRecord, store: EventStore) -> Failure | None:
    """Return the failure that ended a failed execution, read from its log; None if the execution has not failed, or its
    log is damaged.
    """
    if record.status != FAILED:
        return None
    try:
        return failure_in([*store.history(record.execution_id)], record.error or "")
    except StoreError:
        return None


class _Asking(NamedTuple):
    """Data for one row of `questions_frame`: a question, the execution that asks it, and the current time."""

    execution_id: str
    question: Question
    now_us: int

    @property
    def settled(self) -> datetime | None:
        return moment(self.question.settled_us)

    @property
    def waited(self) -> timedelta | None:
        until = self.settled or moment(self.now_us)
        return None if until is None else until - self.question.raised_at


QUESTION_COLUMNS: Columns = {
    "question_id": Column(TEXT, "id of the question, ``ask_...``", "question.id"),
    "execution_id": Column(TEXT, "``exec_...``"),
    "path": Column(TEXT, "path that asks", "question.path"),
    "step": Column(TEXT, "step that asks", "question.step"),
    "kind": Column(TEXT, "``clarification``, ``confirmation`` ...", "question.kind"),
    "question": Column(TEXT, "text of the question", "question.question"),
    "status": Column(TEXT, "``pending``, ``resolved`` or ``expired``", "question.status"),
    "asked": Column(MOMENT, "time of the question", "question.raised_at"),
    "expires": Column(MOMENT, "time of the expiry; missing if it does not expire", "question.expires_at"),
    "settled": Column(MOMENT, "time of the answer or of the expiry"),
    "waited": Column(SPAN, "time that the run waited for the answer; until now if it still waits"),
    "answer": Column(ANYTHING, "answer", lambda asking: opened(asking.question.response, lenient=True)),
    "answered_by": Column(TEXT, "person or program that answered", "question.answered_by"),
}


@documented(QUESTION_COLUMNS)
def questions_frame(questions: Iterable[tuple[str, Question]], now_us: int | None = None) -> pd.DataFrame:
    """Return one row per question. The argument contains pairs: the id of the execution that asks, and the question."""
    now = time.time_ns() // 1000 if now_us is None else now_us
    return frame(QUESTION_COLUMNS, [_Asking(execution_id, question, now) for execution_id, question in questions])


_OF_FINDINGS: Mapping[str, Callable[[Any], pd.DataFrame]] = {
    "why": why_frame,
    "trial": trial_frame,
    "critical path": parts_frame,
    "times": times_frame,
    "retries": retries_frame,
    "rows": rows_frame,
}
"""Functions that make a frame from a result about a log, by kind. They do not read the events."""
_OF_ONE: Mapping[str, Callable[[Iterable[Any]], pd.DataFrame]] = {
    "events": log.events_frame,
    "operations": log.operations_frame,
    "model_calls": agents.model_calls_frame,
    "messages": agents.messages_frame,
    "tool_calls": agents.tool_calls_frame,
    "steps": log.steps_frame,
    "items": log.items_frame,
    "questions": questions_frame,
    **{f"costs by {by}": partial(agents.costs_frame, by=by) for by in get_args(agents.By)},
}


def frame_of(kind: str, parts: Any) -> pd.DataFrame:
    """Return the DataFrame of a kind (such as ``events`` or ``why``) that describes one execution.

    `parts` are events, pairs of an execution id and a question, or a result such as a provenance.
    """
    return (_OF_ONE.get(kind) or _OF_FINDINGS[kind])(parts)


class RunsTable(pd.DataFrame):
    """DataFrame of executions that shows only its informative columns in notebooks."""

    def _repr_html_(self) -> str | None:
        """Return an HTML table of the first columns, and of those informative columns (`TELLING`) that contain a
        value.
        """
        table = pd.DataFrame(self)
        # A frame from which the user removed columns is shown as pandas shows it.
        if not {*SHOWN_FIRST} <= {*table}:
            return table._repr_html_()  # type: ignore[operator,no-any-return]  # pandas' own, which it does not declare
        informative = [name for name in TELLING if name in table and any(map(_says_something, table[name]))]
        brief = table[[*SHOWN_FIRST, *informative]].copy()
        # Microseconds make the column wide and tell nothing in a list.
        brief["started"] = brief["started"].dt.floor("s")
        return brief._repr_html_()  # type: ignore[operator,no-any-return]


def _says_something(value: Any) -> bool:
    # `pd.notna` of a list returns an array, so that containers are tested first.
    return bool(value) if isinstance(value, list | dict | str) else bool(pd.notna(value))


# --- comparison of runs -----------------------------------------------------------------------------------------------


class _Compared(NamedTuple):
    """Data for one row of `compared_frame`: a place (step, item, call, ...) in two compared runs, and the comparison of
    these runs.
    """

    pair: Pair
    row: Row

    @property
    def of_operation(self) -> str | None:
        span = self.row.present.span
        return span.type if span is not None and span.kind == "operation" else None

    @property
    def iteration(self) -> int | None:
        span = self.row.present.span
        return None if span is None else span.iteration

    @property
    def text(self) -> str | None:
        return None if self.row.difference == "same" else describe(self.row)


def _of(side: str, value: Callable[[OperationTree], Any]) -> Callable[[_Compared], Any]:
    def of_side(compared: _Compared) -> Any:
        node = getattr(compared.row, side)
        return None if node is None else value(node)

    return of_side


def _event(side: str) -> Callable[[_Compared], int | None]:
    return lambda compared: compared.row.event_of(getattr(compared.row, side))


def _cost(placed: OperationTree) -> float | None:
    return dollars(placed.cost)


def _duration(placed: OperationTree) -> timedelta | None:
    return None if placed.duration_us is None else timedelta(microseconds=placed.duration_us)


def _opened(name: str) -> Callable[[OperationTree], Any]:
    return lambda placed: opened(getattr(placed, name), lenient=True)


def _of_both(name: str, dtype: str, meaning: str, value: Callable[[OperationTree], Any]) -> Columns:
    return {f"{name}_{side}": Column(dtype, f"{meaning}, in {side.upper()}", _of(side, value)) for side in ("a", "b")}


COMPARED_COLUMNS: Columns = {
    "difference": Column(TEXT, "``same``, ``changed``, ``added``, ``removed``", "row.difference"),
    "facet": Column(TEXT, "first difference: ``asked``, ``answered`` or ``status``", "row.facet"),
    "kind": Column(TEXT, "``step``, ``item``, ``operation``, ``question``, ``variable`` ...", "row.present.kind"),
    "place": Column(TEXT, "description of the place", "row.place"),
    "path": Column(
        TEXT, "path, from A if A has the place, else from B (also for the next three columns)", "row.present.path"
    ),
    "step": Column(TEXT, "step", "row.present.step"),
    "iteration": Column(NUMBER, "index of the item of `Each`"),
    "type": Column(TEXT, "type of an operation: ``agent_response``, ``tool_call`` ...", "of_operation"),
    "name": Column(TEXT, "name of the called function, of the variable, of the input ...", "row.present.name"),
    "text": Column(TEXT, "difference of both sides in one text: ``[-before-]{+after+}``; without secrets"),
    "event_a": Column(NUMBER, "number of the event of A", _event("a")),
    "event_b": Column(NUMBER, "number of the event of B", _event("b")),
    **_of_both("status", TEXT, "status at the end", lambda placed: placed.status),
    **_of_both("asked", ANYTHING, "request: parameters, item or question", _opened("asked")),
    **_of_both("answered", ANYTHING, "response: result, output, answer or value", _opened("answered")),
    **_of_both("tokens", NUMBER, "tokens read and written", lambda placed: placed.tokens),
    **_of_both("cost", MONEY, "US dollars, as far as prices are known", _cost),
    **_of_both("duration", SPAN, "duration", _duration),
    **_of_both("child", TEXT, "child execution that was started", lambda placed: placed.child or None),
    "run_a": Column(TEXT, "id of A, the first run", "pair.a.id"),
    "run_b": Column(TEXT, "id of B, the other run", "pair.b.id"),
}


@documented(COMPARED_COLUMNS)
def compared_frame(pairs: Iterable[Pair]) -> pd.DataFrame:
    """Return one row per place (step, item, call, ...) of the compared runs, for each pair of runs, in the order of the
    first run.

    The rows of steps and items contain the consumption of the calls inside them again. To get totals, sum the rows with
    ``kind == "operation"``.
    """
    return frame(COMPARED_COLUMNS, [_Compared(pair, row) for pair in pairs for row in pair.rows])
