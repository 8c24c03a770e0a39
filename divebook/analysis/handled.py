"""What became of many executions with which one thing was done, as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from divebook.analysis.columns import TEXT, Column, Columns, documented, frame

HANDLED_COLUMNS: Columns = {
    "execution_id": Column(TEXT, "``exec_...``, as it was named where the store has none of that id"),
    "before": Column(TEXT, "its status before; missing where the store has none", lambda row: row.before or None),
    "status": Column(TEXT, "the status of what came of it", lambda row: row.status or None),
    "made": Column(TEXT, "the execution that came of it, where that is another one", lambda row: row.made or None),
    "error_type": Column(
        TEXT, "class of the error", lambda row: None if row.error is None else type(row.error).__name__
    ),
    "error": Column(TEXT, "why nothing was done", lambda row: None if row.error is None else str(row.error)),
}


@documented(HANDLED_COLUMNS)
def handled_frame(rows: Iterable[Any]) -> pd.DataFrame:
    """Return one row per execution, in the order in which they were named; see `divebook.config.many.handle_each`."""
    return frame(HANDLED_COLUMNS, rows)
