"""Frames of what a store holds: executions, questions, and the logs of many executions in one frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
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
from divebook.engine.state import ExecutionState
from divebook.errors import StoreError
from divebook.events.catalog import FAILED
from divebook.events.recorded import opened
from divebook.execution.register import folded
from divebook.history.failures import Failure, failure_in
from divebook.history.framed import Framed
from divebook.questions import Question
from divebook.store import EventStore, ExecutionRecord
from divebook.text.shown import plural


class _Kept(NamedTuple):
    """What a store knows of an execution."""

    record: ExecutionRecord
    state: ExecutionState | None
    """None where its log is damaged, of which `check` and `show` tell more."""

    failure: Failure | None
    """Of one that has failed: why."""

    @property
    def started_at(self) -> datetime | None:
        return self.record.started_at

    @property
    def ended_at(self) -> datetime | None:
        return self.record.ended_at

    @property
    def usage(self) -> dict[str, int] | None:
        return None if self.state is None else self.state.usage.to_dict()


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
    "note": Column(TEXT, "the note given at its start", "record.note"),
}
SHOWN_FIRST = ("execution_id", "workflow", "status", "started", "duration")
TELLING = ("cost", "error", "tags", "note")
"""What notebooks show of executions: these columns always, and those where one says something."""


@documented(RUN_COLUMNS)
def runs_frame(records: Iterable[ExecutionRecord], store: EventStore) -> pd.DataFrame:
    """Return one row per execution of a store."""
    return frame(
        RUN_COLUMNS, [_Kept(record, _last_state(record, store), _failure(record, store)) for record in records]
    )


def _last_state(record: ExecutionRecord, store: EventStore) -> ExecutionState | None:
    """Return how an execution stands; None where its log is damaged."""
    try:
        return folded(store, record.execution_id)
    except StoreError:
        return None


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


def frame_of(kind: str, parts: Iterable[Any]) -> pd.DataFrame:
    """Return a frame of one execution: of its events, or of its questions, each with the execution's id."""
    return _OF_ONE[kind](parts)


@dataclass(frozen=True)
class Frames(Framed):
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
    _made: dict[str, pd.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per execution: `runs_frame`."""
        return runs_frame(self.records, self.store)

    @cached_property
    def questions(self) -> pd.DataFrame:
        """One row per question: `questions_frame`."""
        states = ((record.execution_id, _last_state(record, self.store)) for record in self.records)
        asked = [(name, question) for name, state in states if state for question in state.interrupts.values()]
        return questions_frame(asked)

    def __repr__(self) -> str:
        count = plural(len(self.records), "execution")
        kinds = [kind for kind in ("runs", *_OF_ONE) if kind.isidentifier()]
        return f"<Frames of {count} in {self.store.location}: {', '.join(kinds)}, costs()>"

    def _frame(self, kind: str) -> pd.DataFrame:
        if kind not in self._made:
            self._made[kind] = self._together(_OF_ONE[kind])
        return self._made[kind]

    def _together(self, make: Callable[[Iterable[Any]], pd.DataFrame]) -> pd.DataFrame:
        made = []
        for record in self.records:
            try:
                one = make(self.store.history(record.execution_id))
            except StoreError:
                continue
            one.insert(0, "execution_id", pd.Series([record.execution_id] * len(one), dtype=TEXT))
            made.append(one)
        if not made:
            made = [make(())]
            made[0].insert(0, "execution_id", pd.Series([], dtype=TEXT))
        return pd.concat(made, ignore_index=True)


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
