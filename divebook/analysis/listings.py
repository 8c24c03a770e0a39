"""Frames of what a store holds: executions and questions; `divebook.analysis.whole_store` has those of many logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, get_args

import pandas as pd

from divebook.analysis import agent_frames, frames
from divebook.analysis.columns import (
    ANYTHING,
    CONSUMED,
    COUNT,
    MOMENT,
    SPAN,
    TEXT,
    TIMES,
    Column,
    Columns,
    documented,
    frame,
    moment,
)
from divebook.analysis.inspection_frames import parts_frame, retries_frame, times_frame
from divebook.analysis.provenance_frame import why_frame
from divebook.analysis.row_frames import rows_frame
from divebook.analysis.trial_frame import trial_frame
from divebook.engine.state import ExecutionState
from divebook.errors import StoreError
from divebook.events.catalog import FAILED
from divebook.events.recorded import opened
from divebook.execution.register import folded
from divebook.history.failures import Failure, failure_in
from divebook.questions import Question
from divebook.store import EventStore, ExecutionRecord


class _Kept(NamedTuple):
    """What a store knows of an execution."""

    record: ExecutionRecord
    state: ExecutionState | None
    """None where its log is damaged, of which `check` and `show` tell more."""

    failure: Failure | None
    """Of one that has failed: why."""
    damage: str | None
    """Why its log cannot be read."""

    @property
    def started_at(self) -> datetime | None:
        return self.record.started_at

    @property
    def ended_at(self) -> datetime | None:
        return self.record.ended_at

    @property
    def usage(self) -> dict[str, int] | None:
        return None if self.state is None else self.state.own_usage.to_dict()


def _values(part: str) -> Callable[[_Kept], Any]:
    return lambda kept: None if kept.state is None else opened(dict(getattr(kept.state, part)), lenient=True)


def _why(part: str) -> Callable[[_Kept], str | None]:
    return lambda kept: None if kept.failure is None else getattr(kept.failure, part) or None


RUN_COLUMNS: Columns = {
    "execution_id": Column(TEXT, "``exec_...``", "record.execution_id"),
    "workflow": Column(TEXT, "its name", lambda kept: kept.record.workflow_name or None),
    "status": Column(TEXT, "``running``, ``completed``, ``failed``, ``cancelled`` ...", "record.status"),
    **TIMES,
    "inputs": Column(ANYTHING, "a dict; None where the log cannot be read", _values("inputs")),
    "outputs": Column(ANYTHING, "a dict; None where the log cannot be read", _values("outputs")),
    **CONSUMED,
    "events": Column(COUNT, "length of its log", "record.last_sequence"),
    "bytes": Column(COUNT, "size of its payloads, large values included", "record.size"),
    "error_type": Column(TEXT, "class of the error", _why("error_type")),
    "error": Column(TEXT, "why it failed or was cancelled", "record.error"),
    "traceback": Column(TEXT, "where in a person's code that was", _why("traceback")),
    "durability": Column(
        TEXT, "``full``, or ``relaxed``: a power failure may take the latest events", "record.durability"
    ),
    "origin": Column(TEXT, "where it comes from: ``run``, ``fork``, ``child``, ``import`` ...", "record.origin"),
    "tags": Column(ANYTHING, "a list of texts", lambda kept: list(kept.record.tags)),
    "note": Column(TEXT, "what a person wants to remember of it", "record.note"),
    "labels": Column(ANYTHING, "a dict; None where the log cannot be read", _values("labels")),
    "damage": Column(TEXT, "why its log cannot be read"),
}
SHOWN_FIRST = ("execution_id", "workflow", "status", "started", "duration")
TELLING = ("cost", "error", "tags", "note")
"""What notebooks show of executions: these columns always, and those where one says something."""


@documented(RUN_COLUMNS)
def runs_frame(records: Iterable[ExecutionRecord], store: EventStore) -> pd.DataFrame:
    """Return one row per execution of a store."""
    return frame(RUN_COLUMNS, [_kept(record, store) for record in records])


def _kept(record: ExecutionRecord, store: EventStore) -> _Kept:
    try:
        state, damage = folded(store, record.execution_id), None
    except StoreError as error:
        state, damage = None, str(error)
    return _Kept(record, state, _failure(record, store), damage)


def _failure(record: ExecutionRecord, store: EventStore) -> Failure | None:
    """Return why an execution has failed, for which its log is read; None of all others, and where that is damaged."""
    if record.status != FAILED:
        return None
    try:
        return failure_in([*store.history(record.execution_id)], record.error or "")
    except StoreError:
        return None


class _Asking(NamedTuple):
    """A question, who asks it, and until when its waiting is counted."""

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
    "interrupt_id": Column(TEXT, "``ask_...``, what answering needs", "question.id"),
    "execution_id": Column(TEXT, "``exec_...``"),
    "path": Column(TEXT, "the path that asks", "question.path"),
    "step": Column(TEXT, "the step that asks", "question.step"),
    "kind": Column(TEXT, "``clarification``, ``confirmation`` ...", "question.kind"),
    "question": Column(TEXT, "its text", "question.question"),
    "status": Column(TEXT, "``pending``, ``resolved`` or ``expired``", "question.status"),
    "asked": Column(MOMENT, "when", "question.raised_at"),
    "expires": Column(MOMENT, "when it expires; missing if never", "question.expires_at"),
    "settled": Column(MOMENT, "when it was answered, or expired"),
    "waited": Column(SPAN, "how long the execution waited for that; until now if it still does"),
    "answer": Column(ANYTHING, "what was answered", lambda asking: opened(asking.question.response, lenient=True)),
    "answered_by": Column(TEXT, "who", "question.answered_by"),
}


@documented(QUESTION_COLUMNS)
def questions_frame(asked: Iterable[tuple[str, Question]], now_us: int | None = None) -> pd.DataFrame:
    """Return one row per question, given with the id of its execution."""
    now = time.time_ns() // 1000 if now_us is None else now_us
    return frame(QUESTION_COLUMNS, [_Asking(execution_id, question, now) for execution_id, question in asked])


_OF_FINDINGS: Mapping[str, Callable[[Any], pd.DataFrame]] = {
    "why": why_frame,
    "trial": trial_frame,
    "critical path": parts_frame,
    "times": times_frame,
    "retries": retries_frame,
    "rows": rows_frame,
}
"""Frames of what was found out about a log, made of that and not of its events."""
_OF_ONE: Mapping[str, Callable[[Iterable[Any]], pd.DataFrame]] = {
    "events": frames.events_frame,
    "operations": frames.operations_frame,
    "model_calls": agent_frames.model_calls_frame,
    "messages": agent_frames.messages_frame,
    "tool_calls": agent_frames.tool_calls_frame,
    "steps": frames.steps_frame,
    "items": frames.items_frame,
    "questions": questions_frame,
    **{f"costs by {by}": partial(agent_frames.costs_frame, by=by) for by in get_args(agent_frames.By)},
}


def frame_of(kind: str, parts: Any) -> pd.DataFrame:
    """Return a frame of one execution: of its events, of its questions, each with the execution's id, or a finding."""
    return (_OF_ONE.get(kind) or _OF_FINDINGS[kind])(parts)


class Display(Protocol):
    """A way to show a frame other than as a table."""

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
