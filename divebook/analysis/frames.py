"""A log as DataFrames: one row per event, operation, item or visit to a step, in fixed columns.

`divebook.analysis.agent_frames` has what agents said and called.

An empty frame has the same columns and dtypes as a full one; `divebook.analysis.columns` says what is missing how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from divebook.analysis.columns import (
    ANYTHING,
    CONSUMED,
    COUNT,
    MOMENT,
    NUMBER,
    SPAN,
    TEXT,
    TIMES,
    Column,
    Columns,
    documented,
    frame,
    frame_of_table,
    utc,
)
from divebook.analysis.event_table import EventTable
from divebook.engine.state import PathState
from divebook.events import Event
from divebook.history.spans import spans_of
from divebook.store.pages import EventPage
from divebook.store.past import History

FAILED: Columns = {
    "error_type": Column(TEXT, "class of the error"),
    "error": Column(TEXT, "why it failed"),
    "traceback": Column(TEXT, "where in a person's code that was", "trace"),
}


def _said(name: str) -> Callable[[EventTable], Any]:
    return lambda table: table.said(name)


def _consumed(name: str) -> Callable[[EventTable], Any]:
    return lambda table: table.costs() if name == "cost" else table.tokens(name)


EVENT_COLUMNS: Columns = {
    "sequence": Column(COUNT, "1, 2, 3 ... without gaps", lambda table: table.sequences),
    "timestamp": Column(MOMENT, "when it was recorded", lambda table: utc(table.recorded_at)),
    "type": Column(TEXT, "``step_started``, ``operation_completed`` ...", EventTable.types),
    "name": Column(TEXT, "what an operation calls; how a person's own event is named", EventTable.names),
    "path": Column(TEXT, "its path, such as ``main-1-2``", EventTable.paths),
    "step": Column(TEXT, "step of the workflow", EventTable.steps),
    "iteration": Column(NUMBER, "index of the item of `Each`", EventTable.iterations),
    "item": Column(ANYTHING, "the item", EventTable.items),
    "operation_id": Column(TEXT, "operation it belongs to", _said("operation_id")),
    "operation_type": Column(TEXT, "``agent_response``, ``action_execution`` ...", _said("operation_type")),
    "agent": Column(TEXT, "the agent of a model call", lambda table: table.given("agent")),
    "model": Column(TEXT, "the model that was called", lambda table: table.given("model")),
    "attempts": Column(NUMBER, "attempts at its step or call until then", EventTable.attempts),
    "duration": Column(
        SPAN, "on ``*_completed``, ``*_failed``, ``*_cancelled``: time since its start", EventTable.durations
    ),
    **{name: column._replace(value=_consumed(name)) for name, column in CONSUMED.items()},
    "error_type": Column(TEXT, "class of the error of an operation", _said("error_type")),
    "error": Column(TEXT, "why it failed", _said("error")),
    "traceback": Column(TEXT, "where in a person's code that was", _said("trace")),
    "data": Column(ANYTHING, "the whole payload, a dict", EventTable.data),
}


@documented(EVENT_COLUMNS)
def events_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return a log with one row per event, oldest first; tokens stand on the ends of model calls, to be summed.

    It is made of columns, and not event by event: of a history (`Execution.history`) no event is made. Above 10,000
    events the column `data` has the dtype `payload`: its dicts are made when they are looked at, and
    ``frame["data"].astype(object)`` makes them all.
    """
    return frame_of_table(
        EVENT_COLUMNS, EventTable(events.pages() if isinstance(events, History) else [EventPage.of([*events])])
    )


OPERATION_COLUMNS: Columns = {
    "operation_id": Column(TEXT, "its id: equal for the same place in every execution of the workflow"),
    "type": Column(TEXT, "``agent_response``, ``action_execution``, ``script_execution`` ..."),
    "name": Column(TEXT, "what is called: the action, the agent, the signal ...", "called"),
    "agent": Column(TEXT, "the agent of a model call"),
    "model": Column(TEXT, "the model that was called"),
    "path": Column(TEXT, "the path it is on"),
    "step": Column(TEXT, "the step it belongs to"),
    "visit": Column(COUNT, "how often this path had entered the step"),
    "iteration": Column(NUMBER, "index of the item of `Each`"),
    "item": Column(ANYTHING, "the item"),
    "status": Column(
        TEXT, "``running``, ``completed``, ``failed``, ``cancelled``; ``waiting``: a person is asked what became of it"
    ),
    "attempts": Column(COUNT, "which attempt it was; every attempt that was recorded has its row"),
    **TIMES,
    **CONSUMED,
    **FAILED,
    "parameters": Column(
        ANYTHING, "what it was asked, a dict", lambda span: None if span.parameters is None else dict(span.parameters)
    ),
    "result": Column(ANYTHING, "what it returned"),
}


@documented(OPERATION_COLUMNS)
def operations_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per operation (model call, action, script ...) of a log, in the order in which they began.

    The pauses before further attempts at one are left out: `attempts` counts these, and the events have the pauses.
    """
    return frame(
        OPERATION_COLUMNS, [span for span in spans_of(events) if span.kind == "operation" and not span.is_pause]
    )


ITEM_COLUMNS: Columns = {
    "step": Column(TEXT, "the step it belongs to"),
    "path": Column(TEXT, "the path it is on"),
    "visit": Column(COUNT, "how often this path had entered the step"),
    "iteration": Column(COUNT, "index of the item"),
    "key": Column(TEXT, "its key, if the items of `Each` are a mapping", "item_key"),
    "item": Column(ANYTHING, "the item"),
    "status": Column(TEXT, "``running``, ``completed``, ``failed``, ``cancelled``"),
    "attempts": Column(COUNT, "how often it was begun"),
    **TIMES,
    **CONSUMED,
    **FAILED,
    "result": Column(ANYTHING, "its result"),
}


@documented(ITEM_COLUMNS)
def items_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per item of `Each`, in the order in which they began."""
    return frame(ITEM_COLUMNS, [span for span in spans_of(events) if span.kind == "item"])


STEP_COLUMNS: Columns = {
    "step": Column(TEXT, "its name"),
    "type": Column(TEXT, "``prompt``, ``action``, ``script``, ``wait`` ..."),
    "agent": Column(TEXT, "the agent of its first model call"),
    "model": Column(TEXT, "the model of that call"),
    "path": Column(TEXT, "the path that entered it"),
    "visit": Column(COUNT, "how often this path had entered it"),
    "status": Column(TEXT, "``running``, ``completed``, ``failed``, ``cancelled``"),
    "attempts": Column(COUNT, "how often it was begun"),
    "items": Column(COUNT, "items of `Each` that are done"),
    **TIMES,
    **CONSUMED,
    "output": Column(TEXT, "its text", "result"),
    **FAILED,
    "error": Column(TEXT, "why it failed or was cancelled"),
}


@documented(STEP_COLUMNS)
def steps_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return one row per visit to a step, in the order in which they began."""
    return frame(STEP_COLUMNS, [span for span in spans_of(events) if span.kind == "step"])


PATH_COLUMNS: Columns = {
    "path": Column(TEXT, "its id", "id"),
    "parent": Column(TEXT, "the id of the path it branched off"),
    "status": Column(TEXT, "``running``, ``completed``, ``failed``, ``cancelled`` ..."),
    "step": Column(TEXT, "where it is, or ended", "current_step"),
    **TIMES,
    "error": Column(TEXT, "why it failed or was cancelled"),
}


@documented(PATH_COLUMNS)
def paths_frame(paths: Iterable[PathState]) -> pd.DataFrame:
    """Return one row per path."""
    return frame(PATH_COLUMNS, paths)
