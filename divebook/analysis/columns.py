"""How frames are made: fixed columns with fixed dtypes, full or empty; the door to pandas.

What is absent is a missing value: ``NaN`` for texts and costs, ``<NA>`` for numbers, ``NaT`` for times. Times are UTC,
costs US dollars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pandas as pd

from divebook.engine.bounds import NANODOLLARS
from divebook.events.event import to_datetime

TEXT, COUNT, NUMBER, ANYTHING = "str", "int64", "Int64", "object"
MOMENT, SPAN, MONEY = "datetime64[us, UTC]", "timedelta64[us]", "float64"

CONSUMED = {
    "input_tokens": NUMBER,
    "output_tokens": NUMBER,
    "cache_read_tokens": NUMBER,
    "cache_write_tokens": NUMBER,
    "cost": MONEY,
}
"""What model calls consumed; cache tokens are among the input tokens."""
TIMES = {"started": MOMENT, "ended": MOMENT, "duration": SPAN}


def frame(columns: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    """Return rows as a frame with just these columns."""
    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pd.DataFrame(
        {name: pd.Series(list(column), dtype=columns[name]) for name, column in zip(columns, values, strict=True)}
    )


def consumed(usage: Mapping[str, int] | None) -> tuple[int | float | None, ...]:
    """Return the values of `CONSUMED`; missing where no model was called, or no price is known."""
    if not usage:
        return (None,) * len(CONSUMED)
    *tokens, _ = CONSUMED
    cost = usage.get("cost")
    return (*(usage.get(name, 0) for name in tokens), None if cost is None else cost / NANODOLLARS)


def moment(microseconds: int | None) -> datetime | None:
    """Return a time of the log as frames have it."""
    return None if microseconds is None else to_datetime(microseconds)


def times(
    started: datetime | None, ended: datetime | None
) -> tuple[datetime | None, datetime | None, timedelta | None]:
    """Return the values of `TIMES`."""
    return started, ended, None if started is None or ended is None else ended - started
