"""How frames are made: fixed columns, full or empty, each with dtype, meaning and value; the door to pandas.

What is absent is a missing value: ``NaN`` for texts and costs, ``<NA>`` for numbers, ``NaT`` for times. Times are UTC,
costs US dollars.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pandas as pd

from divebook.engine.bounds import NANODOLLARS
from divebook.events.event import to_datetime

MakerT = TypeVar("MakerT", bound=Callable[..., pd.DataFrame])

TEXT, COUNT, NUMBER, ANYTHING = "str", "int64", "Int64", "object"
MOMENT, SPAN, MONEY = "datetime64[us, UTC]", "timedelta64[us]", "float64"


class Column(NamedTuple):
    """One column of a frame."""

    dtype: str
    meaning: str
    value: Callable[[Any], Any] | str = ""
    """From what a row is about; or an attribute of that, such as ``record.note``, if it is not the column's name."""


Columns: TypeAlias = Mapping[str, Column]


def frame(columns: Columns, rows: Iterable[Any]) -> pd.DataFrame:
    """Return a frame with just these columns, and a row for each thing; things are looked at in turn, as they come."""
    values = [
        column.value if callable(column.value) else attrgetter(column.value or name) for name, column in columns.items()
    ]
    cells = [[value(row) for value in values] for row in rows]
    made = zip(*cells, strict=True) if cells else ((),) * len(columns)
    return pd.DataFrame(
        {name: pd.Series(list(each), dtype=columns[name].dtype) for name, each in zip(columns, made, strict=True)}
    )


def frame_of_table(columns: Columns, table: Any) -> pd.DataFrame:
    """Return a frame with just these columns, each of which a table has as a whole."""
    made = {name: whole_column(column, name, table) for name, column in columns.items()}
    return pd.DataFrame(
        {name: pd.Series(each, dtype=each.dtype, copy=False) for name, each in made.items()}, copy=False
    )


def whole_column(column: Column, name: str, table: Any) -> Any:
    """Return a column that a table has as a whole."""
    return column.value(table) if callable(column.value) else getattr(table, column.value or name)


def utc(microseconds: Any) -> pd.Series:
    """Return an array of times of the log as frames have them."""
    return pd.Series(microseconds.view("M8[us]")).dt.tz_localize("UTC")


def documented(columns: Columns) -> Callable[[MakerT], MakerT]:
    """Return a decorator that adds a table of the columns to the docstring of what makes the frame."""

    def add(make: MakerT) -> MakerT:
        rows = [("column", "dtype", "content"), *((name, each.dtype, each.meaning) for name, each in columns.items())]
        widths = [max(len(row[place]) for row in rows) for place in range(3)]
        rule = "  ".join("=" * width for width in widths)
        head, *lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        make.__doc__ = "\n".join([inspect.cleandoc(make.__doc__ or ""), "", rule, head, rule, *lines, rule])
        return make

    return add


# --- columns that several frames have ------------------------------------------------------------------------------


def _consumed(name: str) -> Callable[[Any], int | None]:
    return lambda row: row.usage.get(name, 0) if row.usage else None


def _cost(row: Any) -> float | None:
    cost = row.usage.get("cost") if row.usage else None
    return None if cost is None else cost / NANODOLLARS


def _duration(row: Any) -> timedelta | None:
    started, ended = row.started_at, row.ended_at
    return None if started is None or ended is None else ended - started


TIMES: Columns = {
    "started": Column(MOMENT, "when it began", "started_at"),
    "ended": Column(MOMENT, "when it ended", "ended_at"),
    "duration": Column(SPAN, "time between them", _duration),
}
CONSUMED: Columns = {
    "input_tokens": Column(NUMBER, "tokens that model calls read; missing without any", _consumed("input_tokens")),
    "output_tokens": Column(NUMBER, "tokens that model calls wrote; missing likewise", _consumed("output_tokens")),
    "cache_read_tokens": Column(
        NUMBER, "of the input tokens, those read from the provider's cache", _consumed("cache_read_tokens")
    ),
    "cache_write_tokens": Column(
        NUMBER, "of the input tokens, those written to the provider's cache", _consumed("cache_write_tokens")
    ),
    "cost": Column(MONEY, "US dollars, as far as prices are known", _cost),
}


def moment(microseconds: int | None) -> datetime | None:
    """Return a time of the log as frames have it."""
    return None if microseconds is None else to_datetime(microseconds)
