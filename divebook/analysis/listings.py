"""Frames of what a store holds: executions, questions, and the logs of many executions in one frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import pandas as pd

from divebook.analysis import frames
from divebook.analysis.columns import (
    ANYTHING,
    CONSUMED,
    COUNT,
    MOMENT,
    SPAN,
    TEXT,
    TIMES,
    consumed,
    frame,
    moment,
    times,
)
from divebook.engine.state import ExecutionState
from divebook.errors import StoreError
from divebook.events import Event
from divebook.events.recorded import opened
from divebook.execution.register import folded
from divebook.questions import Question
from divebook.store import EventStore, ExecutionRecord

RUN_COLUMNS = {
    "execution_id": TEXT,
    "workflow": TEXT,
    "status": TEXT,
    **TIMES,
    "inputs": ANYTHING,
    "outputs": ANYTHING,
    **CONSUMED,
    "events": COUNT,
    "bytes": COUNT,
    "error": TEXT,
    "durability": TEXT,
    "origin": TEXT,
    "tags": ANYTHING,
    "note": TEXT,
}
SHOWN_FIRST = ("execution_id", "workflow", "status", "started", "duration")
TELLING = ("cost", "error", "tags", "note")
"""What notebooks show of executions: these columns always, and those where one says something."""
QUESTION_COLUMNS = {
    "interrupt_id": TEXT,
    "execution_id": TEXT,
    "path": TEXT,
    "step": TEXT,
    "kind": TEXT,
    "question": TEXT,
    "status": TEXT,
    "asked": MOMENT,
    "expires": MOMENT,
    "settled": MOMENT,
    "waited": SPAN,
    "answer": ANYTHING,
    "answered_by": TEXT,
}


def runs_frame(records: Iterable[ExecutionRecord], store: EventStore) -> pd.DataFrame:
    """Return one row per execution of a store.

    ==================  ===================  ================================================================
    column              dtype                content
    ==================  ===================  ================================================================
    execution_id        str                  ``exec_...``
    workflow            str                  its name
    status              str                  ``running``, ``completed``, ``failed``, ``cancelled`` ...
    started, ended      datetime64[us, UTC]  when
    duration            timedelta64[us]      time between them
    inputs, outputs     object               dicts; None where the log cannot be read
    input_tokens        Int64                of all its model calls, as far as it has come
    output_tokens       Int64                same
    cache_read_tokens   Int64                of the input tokens, those that the provider had kept
    cache_write_tokens  Int64                of the input tokens, those that it keeps for later
    cost                float64              US dollars, as far as prices are known
    events              int64                length of its log
    bytes               int64                the same in bytes of payload, large values included
    error               str                  why it failed or was cancelled
    durability          str                  ``full``, or ``relaxed``: a power failure may take the latest events
    origin              str                  where it comes from: ``run``, ``fork``, ``child``, ``import`` ...
    tags                object               a list of texts
    note                str                  what was said of it as it began
    ==================  ===================  ================================================================
    """
    return frame(RUN_COLUMNS, [_run_row(record, _last_state(record, store)) for record in records])


def _last_state(record: ExecutionRecord, store: EventStore) -> ExecutionState | None:
    """Return how an execution stands; None where its log is damaged, which `check` and `show` tell more of."""
    try:
        return folded(store, record.execution_id)
    except StoreError:
        return None


def _run_row(record: ExecutionRecord, state: ExecutionState | None) -> tuple[Any, ...]:
    head = (record.execution_id, record.workflow_name or None, record.status)
    values = (None, None) if state is None else (_opened(state.inputs), _opened(state.outputs))
    spent = consumed(None if state is None else state.usage.to_dict())
    extent = (record.last_sequence, record.size)
    return (
        *head,
        *times(record.started_at, record.ended_at),
        *values,
        *spent,
        *extent,
        record.error,
        record.durability,
        record.origin,
        list(record.tags),
        record.note,
    )


def _opened(values: Mapping[str, Any]) -> Any:
    return opened(dict(values), lenient=True)


def questions_frame(asked: Iterable[tuple[str, Question]], now_us: int | None = None) -> pd.DataFrame:
    """Return one row per question, given with the id of its execution.

    ============  ===================  =======================================================================
    column        dtype                content
    ============  ===================  =======================================================================
    interrupt_id  str                  ``ask_...``, what answering needs
    execution_id  str                  ``exec_...``
    path, step    str                  which step asks
    kind          str                  ``clarification``, ``confirmation`` ...
    question      str                  its text
    status        str                  ``pending``, ``resolved`` or ``expired``
    asked         datetime64[us, UTC]  when
    expires       datetime64[us, UTC]  when it expires; missing if never
    settled       datetime64[us, UTC]  when it was answered, or expired
    waited        timedelta64[us]      how long the execution waited for that; until now if it still does
    answer        object               what was answered
    answered_by   str                  who
    ============  ===================  =======================================================================
    """
    now = time.time_ns() // 1000 if now_us is None else now_us
    return frame(QUESTION_COLUMNS, [_question_row(execution_id, question, now) for execution_id, question in asked])


def _question_row(execution_id: str, asked: Question, now: int) -> tuple[Any, ...]:
    place = (asked.id, execution_id, asked.path, asked.step, asked.kind, asked.question, asked.status)
    settled = asked.settled_us
    waited = moment(now if settled is None else settled)
    span = None if waited is None else waited - asked.raised_at
    return (
        *place,
        asked.raised_at,
        asked.expires_at,
        moment(settled),
        span,
        opened(asked.response, lenient=True),
        asked.answered_by,
    )


_OF_ONE: Mapping[str, Callable[[Iterable[Any]], pd.DataFrame]] = {
    "events": frames.events_frame,
    "operations": frames.operations_frame,
    "steps": frames.steps_frame,
    "items": frames.items_frame,
    "questions": questions_frame,
}


def frame_of(kind: str, parts: Iterable[Any]) -> pd.DataFrame:
    """Return a frame of one execution: of its events, or of its questions, each with the execution's id."""
    return _OF_ONE[kind](parts)


@dataclass(frozen=True)
class Frames:
    """The frames of many executions, each made when it is first asked for: those of one, with `execution_id` in front.

    Logs that cannot be read are left out; `runs` has them all.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:", workflows=[Workflow("w", [Step("s", script="1 + 1")])])
    >>> _ = [environment.start("w").wait() for _ in range(2)]
    >>> Frames(environment.store, environment.executions(workflow="w")).steps.groupby("step").size().to_dict()
    {'s': 2}
    """

    store: EventStore
    records: Sequence[ExecutionRecord]

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per execution: `runs_frame`."""
        return runs_frame(self.records, self.store)

    @cached_property
    def events(self) -> pd.DataFrame:
        """One row per event: `divebook.analysis.frames.events_frame`."""
        return self._together(frames.events_frame)

    @cached_property
    def operations(self) -> pd.DataFrame:
        """One row per operation: `divebook.analysis.frames.operations_frame`."""
        return self._together(frames.operations_frame)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per visit to a step: `divebook.analysis.frames.steps_frame`."""
        return self._together(frames.steps_frame)

    @cached_property
    def items(self) -> pd.DataFrame:
        """One row per item of `Each`: `divebook.analysis.frames.items_frame`."""
        return self._together(frames.items_frame)

    @cached_property
    def questions(self) -> pd.DataFrame:
        """One row per question: `questions_frame`."""
        states = ((record.execution_id, _last_state(record, self.store)) for record in self.records)
        asked = [(name, question) for name, state in states if state for question in state.interrupts.values()]
        return questions_frame(asked)

    def _together(self, make: Callable[[Iterable[Event]], pd.DataFrame]) -> pd.DataFrame:
        made = []
        for record in self.records:
            try:
                one = make(self.store.read(record.execution_id))
            except StoreError:
                continue
            one.insert(0, "execution_id", pd.Series([record.execution_id] * len(one), dtype=TEXT))
            made.append(one)
        if not made:
            made = [make(())]
            made[0].insert(0, "execution_id", pd.Series([], dtype=TEXT))
        return pd.concat(made, ignore_index=True)


class Display(Protocol):
    """How something is shown other than as a table."""

    def in_cell(self) -> bool:
        """Show it in the present cell of IPython; return False where that is not possible."""

    def widget(self) -> Any:
        """Return what marimo shows."""


class RunsTable(pd.DataFrame):
    """A frame of executions: notebooks show what tells them apart, the frame has all of `RUN_COLUMNS`."""

    def _repr_html_(self) -> str | None:
        """Return a table that fits into a page: the first columns, and of `TELLING` those that say something."""
        table = pd.DataFrame(self)
        if not {*SHOWN_FIRST} <= {*table}:
            return table._repr_html_()  # type: ignore[operator,no-any-return]  # pandas' own, which it does not declare
        told = [name for name in TELLING if name in table and any(map(_says_something, table[name]))]
        brief = table[[*SHOWN_FIRST, *told]].copy()
        brief["started"] = brief["started"].dt.floor("s")
        return brief._repr_html_()  # type: ignore[operator,no-any-return]


def _says_something(value: Any) -> bool:
    return bool(value) if isinstance(value, list | dict | str) else bool(pd.notna(value))


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
