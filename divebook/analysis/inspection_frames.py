"""What a run waited for and spent, as DataFrames."""

from __future__ import annotations

from datetime import timedelta

import pandas as pd

from divebook.analysis.columns import (
    COUNT,
    MOMENT,
    NUMBER,
    SPAN,
    TEXT,
    Column,
    Columns,
    documented,
    frame,
    moment,
)
from divebook.replay.inspected import Inspected

PART_COLUMNS: Columns = {
    "spent": Column(
        TEXT,
        "``model``, ``tools``, ``actions``, ``scripts``, ``workflows``, ``other calls``, ``people``, ``asleep``, "
        "``paused``, ``stopped``, ``overhead``",
    ),
    "called": Column(TEXT, "what was called: the action, the agent ...", lambda part: part.called or None),
    "path": Column(TEXT, "the path it is on"),
    "step": Column(TEXT, "the step it belongs to", lambda part: part.step or None),
    "iteration": Column(NUMBER, "index of the item of `Each`", "item"),
    "operation_id": Column(TEXT, "the operation"),
    "started": Column(MOMENT, "when the end began to wait for it", lambda part: moment(part.started_us)),
    "ended": Column(MOMENT, "until when", lambda part: moment(part.ended_us)),
    "duration": Column(SPAN, "time between them", lambda part: timedelta(microseconds=part.took_us)),
}


@documented(PART_COLUMNS)
def parts_frame(found: Inspected) -> pd.DataFrame:
    """Return one row per part of the critical path, oldest first; the durations add up to that of the run."""
    return frame(PART_COLUMNS, found.parts)


TIME_COLUMNS: Columns = {
    "spent": Column(TEXT, "what the time went into, as in the parts", lambda row: row[0]),
    "duration": Column(SPAN, "how long", lambda row: timedelta(microseconds=row[1])),
    "share": Column("float64", "of the run's duration, from 0 to 1", lambda row: row[2]),
}


@documented(TIME_COLUMNS)
def times_frame(found: Inspected) -> pd.DataFrame:
    """Return one row per kind of time along the critical path, the most first."""
    whole = max(1, found.duration_us)
    return frame(TIME_COLUMNS, [(kind, took, took / whole) for kind, took in found.spent.items()])


RETRY_COLUMNS: Columns = {
    "event": Column(COUNT, "the event that says so", "sequence"),
    "path": Column(TEXT, "the path it is on"),
    "step": Column(TEXT, "the step"),
    "iteration": Column(NUMBER, "index of the item of `Each`", "item"),
    "call": Column(TEXT, "the call that was made again, where a step makes several"),
    "attempt": Column(COUNT, "the attempt that failed, from 1"),
    "error": Column(TEXT, "why"),
    "delay": Column(SPAN, "pause before the next one", lambda tried: timedelta(seconds=tried.delay)),
}


@documented(RETRY_COLUMNS)
def retries_frame(found: Inspected) -> pd.DataFrame:
    """Return one row per attempt that failed and was followed by another."""
    return frame(RETRY_COLUMNS, found.retried)
