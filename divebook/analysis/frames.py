"""The past as DataFrames with fixed columns; the one door to pandas.

An empty frame has the same columns and dtypes as a full one. Texts that are absent are missing values (``NaN``), as
are absent numbers (``<NA>``) and times (``NaT``); times are UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import pandas as pd

from divebook.engine.state import PathState
from divebook.events import Event, catalog
from divebook.events.event import to_datetime
from divebook.history.spans import Span, spans_of
from divebook.questions import Question
from divebook.store import ExecutionRecord

TEXT, COUNT, NUMBER, ANYTHING = "str", "int64", "Int64", "object"
MOMENT, SPAN = "datetime64[us, UTC]", "timedelta64[us]"

EVENT_COLUMNS = {
    "sequence": COUNT,
    "timestamp": MOMENT,
    "type": TEXT,
    "path": TEXT,
    "step": TEXT,
    "iteration": NUMBER,
    "operation_id": TEXT,
    "operation_type": TEXT,
    "duration": SPAN,
    "input_tokens": NUMBER,
    "output_tokens": NUMBER,
    "error": TEXT,
    "data": ANYTHING,
}
OPERATION_COLUMNS = {
    "operation_id": TEXT,
    "type": TEXT,
    "path": TEXT,
    "step": TEXT,
    "visit": COUNT,
    "iteration": NUMBER,
    "status": TEXT,
    "attempts": COUNT,
    "started": MOMENT,
    "ended": MOMENT,
    "duration": SPAN,
    "input_tokens": NUMBER,
    "output_tokens": NUMBER,
    "error": TEXT,
    "parameters": ANYTHING,
    "result": ANYTHING,
}
STEP_COLUMNS = {
    "step": TEXT,
    "type": TEXT,
    "path": TEXT,
    "visit": COUNT,
    "status": TEXT,
    "items": COUNT,
    "started": MOMENT,
    "ended": MOMENT,
    "duration": SPAN,
    "output": TEXT,
    "error": TEXT,
}
PATH_COLUMNS = {
    "path": TEXT,
    "parent": TEXT,
    "status": TEXT,
    "step": TEXT,
    "started": MOMENT,
    "ended": MOMENT,
    "duration": SPAN,
    "error": TEXT,
}
RUN_COLUMNS = {
    "execution_id": TEXT,
    "workflow": TEXT,
    "status": TEXT,
    "started": MOMENT,
    "ended": MOMENT,
    "duration": SPAN,
    "events": COUNT,
    "bytes": COUNT,
    "error": TEXT,
    "durability": TEXT,
}
QUESTION_COLUMNS = {
    "interrupt_id": TEXT,
    "execution_id": TEXT,
    "step": TEXT,
    "kind": TEXT,
    "question": TEXT,
    "asked": MOMENT,
    "expires": MOMENT,
}


def events_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return a log with one row per event, oldest first.

    ==============  ===================  ====================================================================
    column          dtype                content
    ==============  ===================  ====================================================================
    sequence        int64                1, 2, 3 ... without gaps
    timestamp       datetime64[us, UTC]  when it was recorded
    type            str                  ``step_started``, ``operation_completed`` ...
    path            str                  line of progress, such as ``main-1-2``
    step            str                  step of the workflow
    iteration       Int64                index of the item of `Each`
    operation_id    str                  operation it belongs to
    operation_type  str                  ``agent_response``, ``action_execution`` ...
    duration        timedelta64[us]      on ``*_completed``, ``*_failed``, ``*_cancelled``: time since its start
    input_tokens    Int64                on ``operation_completed`` of model calls only, so that it can be summed
    output_tokens   Int64                same
    error           str                  why it failed
    data            object               the whole payload, a dict
    ==============  ===================  ====================================================================
    """
    starts = _Starts()
    return _frame(EVENT_COLUMNS, [_event_row(event, starts) for event in events])


def _event_row(event: Event, starts: _Starts) -> tuple[Any, ...]:
    data = event.data.to_data()
    operation_id = data.get("operation_id")
    usage = data.get("usage") if isinstance(event.data, catalog.OperationCompleted) else None
    return (
        event.sequence,
        event.timestamp,
        event.event_type,
        event.path or None,
        event.step or None,
        starts.iteration_of(operation_id, data.get("iteration_index")),
        operation_id,
        data.get("operation_type"),
        starts.duration(event, operation_id),
        *_tokens(usage),
        data.get("error"),
        data,
    )


class _Starts:
    """When everything in a log began, and to which item each operation belongs."""

    def __init__(self) -> None:
        self._started: dict[tuple[Any, ...], int] = {}
        self._iterations: dict[str, int | None] = {}

    def iteration_of(self, operation_id: str | None, index: int | None) -> int | None:
        if operation_id is None:
            return index
        return self._iterations.setdefault(operation_id, index)

    def duration(self, event: Event, operation_id: str | None) -> timedelta | None:
        """Return the time between an event and the start of what it ends; None if it ends nothing."""
        subject, _, change = event.event_type.rpartition("_")
        index = event.data.iteration_index if isinstance(event.data, catalog.IterationCompleted) else None
        if isinstance(event.data, catalog.IterationStarted):
            index = event.data.iteration_index
        key = (subject, event.path, event.step, operation_id, index)
        if change == "started":
            self._started[key] = event.recorded_at
            return None
        if isinstance(event.data, catalog.OperationCompleted | catalog.OperationFailed):
            return timedelta(microseconds=event.data.duration / 1000)
        began = self._started.get(key) if change in ("completed", "failed", "cancelled") else None
        return None if began is None else timedelta(microseconds=event.recorded_at - began)


def operations_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per operation (model call, action, script ...) of a log, in the order in which they began.

    ==============  ===================  ====================================================================
    column          dtype                content
    ==============  ===================  ====================================================================
    operation_id    str                  the same for the same place in every execution of the workflow
    type            str                  ``agent_response``, ``action_execution``, ``script_execution`` ...
    path, step      str                  where
    visit           int64                how often this path had entered the step
    iteration       Int64                index of the item of `Each`
    status          str                  ``running``, ``completed``, ``failed``, ``cancelled``
    attempts        int64                how often it was begun
    started, ended  datetime64[us, UTC]  when
    duration        timedelta64[us]      from the first start to the end
    input_tokens    Int64                model calls only
    output_tokens   Int64                same
    error           str                  why it failed
    parameters      object               what it was asked, a dict
    result          object               what it returned
    ==============  ===================  ====================================================================
    """
    return _frame(OPERATION_COLUMNS, [_operation_row(span) for span in spans_of(events) if span.kind == "operation"])


def _operation_row(span: Span) -> tuple[Any, ...]:
    times = _times(span)
    asked = None if span.parameters is None else dict(span.parameters)
    place = (span.operation_id, span.type, span.path, span.step, span.visit, span.iteration)
    return (*place, span.status, span.attempts, *times, *_tokens(span.usage), span.error, asked, span.result)


def steps_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per visit to a step, in the order in which they began.

    ==============  ===================  ====================================================================
    column          dtype                content
    ==============  ===================  ====================================================================
    step, type      str                  its name; ``prompt``, ``action``, ``script``, ``wait``
    path            str                  line of progress that entered it
    visit           int64                how often this path had entered it
    status          str                  ``running``, ``completed``, ``failed``, ``cancelled``
    items           int64                items of `Each` that are done
    started, ended  datetime64[us, UTC]  when
    duration        timedelta64[us]      time between them
    output          str                  its text
    error           str                  why it failed
    ==============  ===================  ====================================================================
    """
    return _frame(STEP_COLUMNS, [_step_row(span) for span in spans_of(events) if span.kind == "step"])


def _step_row(span: Span) -> tuple[Any, ...]:
    head = (span.step, span.type, span.path, span.visit, span.status, span.items)
    return (*head, *_times(span), span.result, span.error)


def paths_frame(paths: Iterable[PathState]) -> pd.DataFrame:
    """Return one row per path.

    ==============  ===================  ====================================================================
    column          dtype                content
    ==============  ===================  ====================================================================
    path, parent    str                  its id; the id of the path it branched off
    status          str                  ``running``, ``completed``, ``failed``, ``cancelled`` ...
    step            str                  where it is, or ended
    started, ended  datetime64[us, UTC]  when
    duration        timedelta64[us]      time between them
    error           str                  why it failed or was cancelled
    ==============  ===================  ====================================================================
    """
    rows = [(p.id, p.parent, p.status, p.current_step, *_stretch(p.started_at, p.ended_at), p.error) for p in paths]
    return _frame(PATH_COLUMNS, rows)


def runs_frame(records: Iterable[ExecutionRecord]) -> pd.DataFrame:
    """Return one row per execution of a store.

    ==============  ===================  ====================================================================
    column          dtype                content
    ==============  ===================  ====================================================================
    execution_id    str                  ``exec_...``
    workflow        str                  its name
    status          str                  ``running``, ``completed``, ``failed``, ``cancelled`` ...
    started, ended  datetime64[us, UTC]  when
    duration        timedelta64[us]      time between them
    events          int64                length of its log
    bytes           int64                the same in bytes of payload, large values included
    error           str                  why it failed or was cancelled
    durability      str                  ``full``, or ``relaxed``: a power failure may take the latest events
    ==============  ===================  ====================================================================
    """
    return _frame(RUN_COLUMNS, [_run_row(record) for record in records])


class Display(Protocol):
    """How something is shown other than as a table."""

    def in_cell(self) -> bool:
        """Show it in the present cell of IPython; return False where that is not possible."""

    def widget(self) -> Any:
        """Return what marimo shows."""


class ShownFrame(pd.DataFrame):
    """A frame that notebooks show in a way of its own; whatever is made of it is an ordinary frame."""

    _display: Display | None = None

    @classmethod
    def of(cls, frame: pd.DataFrame, display: Display | None) -> ShownFrame:
        """Return a frame that is shown so; None for a table."""
        shown = cls(frame)
        shown._display = display
        return shown

    def _ipython_display_(self) -> None:
        if self._display is None or not self._display.in_cell():
            raise NotImplementedError  # IPython shows the table then

    def _display_(self) -> Any:
        """Return what marimo shows of it."""
        return pd.DataFrame(self) if self._display is None else self._display.widget()


def questions_frame(asked: Iterable[tuple[str, Question]]) -> pd.DataFrame:
    """Return one row per question, given with the id of its execution.

    ============  ===================  ===================================================
    column        dtype                content
    ============  ===================  ===================================================
    interrupt_id  str                  ``ask_...``, what answering needs
    execution_id  str                  ``exec_...``
    step          str                  which step asks
    kind          str                  ``clarification``, ``confirmation`` ...
    question      str                  its text
    asked         datetime64[us, UTC]  when
    expires       datetime64[us, UTC]  when it expires; missing if never
    ============  ===================  ===================================================
    """
    return _frame(QUESTION_COLUMNS, [_question_row(execution_id, question) for execution_id, question in asked])


def _question_row(execution_id: str, asked: Question) -> tuple[Any, ...]:
    expires = None if asked.expires_us is None else to_datetime(asked.expires_us)
    return asked.interrupt_id, execution_id, asked.step, asked.kind, asked.question, asked.raised_at, expires


def _run_row(record: ExecutionRecord) -> tuple[Any, ...]:
    times = _stretch(record.started_at, record.ended_at)
    name = record.workflow_name or None
    extent = (record.last_sequence, record.size)
    return (record.execution_id, name, record.status, *times, *extent, record.error, record.durability)


def _times(span: Span) -> tuple[datetime | None, datetime | None, timedelta | None]:
    return _stretch(to_datetime(span.started_us), None if span.ended_us is None else to_datetime(span.ended_us))


def _stretch(
    started: datetime | None, ended: datetime | None
) -> tuple[datetime | None, datetime | None, timedelta | None]:
    return started, ended, None if started is None or ended is None else ended - started


def _tokens(usage: Mapping[str, int] | None) -> tuple[int | None, int | None]:
    return (usage.get("input_tokens", 0), usage.get("output_tokens", 0)) if usage else (None, None)


def _frame(columns: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pd.DataFrame(
        {name: pd.Series(list(column), dtype=columns[name]) for name, column in zip(columns, values, strict=True)}
    )
