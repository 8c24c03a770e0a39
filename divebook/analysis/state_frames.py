"""Frames of how executions stood: their variables as they changed, and what each agent consumed of each model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from divebook.analysis.agent_frames import ModelSum, sums_by_model
from divebook.analysis.columns import CONSUMED, COUNT, MOMENT, TEXT, Column, Columns, documented, frame
from divebook.engine.evolve import fold
from divebook.engine.state import ExecutionState
from divebook.events import Event
from divebook.events.catalog import ExecutionForked
from divebook.events.recorded import opened
from divebook.store import ExecutionRecord

VARIABLE_COLUMNS: Columns = {
    "execution_id": Column(TEXT, "``exec_...``"),
    "sequence": Column(COUNT, "number of the event that changed a variable", "event.sequence"),
    "timestamp": Column(MOMENT, "when it was recorded", "event.timestamp"),
    "path": Column(TEXT, "the path that changed it", lambda row: row.event.path or None),
    "step": Column(TEXT, "the step that changed it", lambda row: row.event.step or None),
}
"""Those before the columns of the variables."""


class VariablesThen(NamedTuple):
    """How the variables of an execution stood after an event that changed one."""

    execution_id: str
    event: Event
    variables: Mapping[str, Any]


def standings(execution_id: str, events: Iterable[Event]) -> Iterator[VariablesThen]:
    """Give how the variables stood after each event that changed one, oldest first."""
    state = ExecutionState(execution_id)
    for event in events:
        before, state = state.variables, fold(execution_id, (event,), state)
        if state.variables is not before:
            yield VariablesThen(execution_id, event, state.variables)


@documented(VARIABLE_COLUMNS)
def variables_frame(rows: Iterable[VariablesThen]) -> pd.DataFrame:
    """Return one row per event that changed variables, with a column for each variable, as it stood then.

    The columns of variables are sorted and have the dtype ``object``; a variable that is called as one of the columns
    before them has ``variables.`` before its name. What a variable was not yet, or no more, is None.
    """
    stood = list(rows)
    names = sorted({name for row in stood for name in row.variables})
    made = frame(VARIABLE_COLUMNS, stood)
    shown = {id(row.variables): opened(dict(row.variables), lenient=True) for row in stood}
    values = {
        column_of(name): pd.Series([shown[id(row.variables)].get(name) for row in stood], dtype="object")
        for name in names
    }
    return pd.concat([made, pd.DataFrame(values, index=made.index)], axis=1)


def column_of(variable: str) -> str:
    """Return the name of the column of a variable."""
    return f"variables.{variable}" if variable in VARIABLE_COLUMNS else variable


def forked_at(events: Iterable[Event]) -> int:
    """Return the number of the event with which a log goes on apart from that of its source; 0 if it has none."""
    return max((event.sequence for event in events if isinstance(event.data, ExecutionForked)), default=0)


class _Consumption(NamedTuple):
    """What an agent of an execution consumed of a model."""

    record: ExecutionRecord
    total: ModelSum

    @property
    def usage(self) -> Mapping[str, int]:
        return self.total.usage


USAGE_COLUMNS: Columns = {
    "execution_id": Column(TEXT, "``exec_...``", "record.execution_id"),
    "workflow": Column(TEXT, "its name", lambda row: row.record.workflow_name or None),
    "origin": Column(TEXT, "where it comes from: ``run``, ``fork``, ``child``, ``import`` ...", "record.origin"),
    "agent": Column(TEXT, "who asked", lambda row: row.total.agent or None),
    "model": Column(TEXT, "the model that was asked", lambda row: row.total.model or None),
    "requests": Column(COUNT, "requests to it", "total.requests"),
    "cached": Column(COUNT, "answers from a cache, which cost nothing", "total.cached"),
    **CONSUMED,
}


@documented(USAGE_COLUMNS)
def usage_frame(logs: Iterable[tuple[ExecutionRecord, Sequence[Event]]]) -> pd.DataFrame:
    """Return one row per execution, agent and model, with what was consumed; of a fork what it did itself."""
    rows = [
        _Consumption(record, total) for record, events in logs for total in sums_by_model(events, forked_at(events))
    ]
    return frame(USAGE_COLUMNS, rows)
