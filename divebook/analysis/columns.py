"""Construction of DataFrames with fixed columns. Each column has a dtype, a description and a function for its values.

pandas is used here first; other modules make their frames with these functions. An empty frame has the same columns as
a full one. Absent values are missing: ``NaN`` for texts and costs, ``<NA>`` for numbers, ``NaT`` for times. Times are
UTC, costs US dollars.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from divebook.errors import SetupError
from divebook.events.classes import Instance
from divebook.events.event import to_datetime
from divebook.events.recorded import garbage_collection_paused, opened
from divebook.questions.bounds import dollars
from divebook.scripting.prelude import NOTHING, Attribute, Item
from divebook.stores.pages import Numbers

MakerT = TypeVar("MakerT", bound=Callable[..., pd.DataFrame])

TEXT = "str"
COUNT = "int64"
NUMBER = "Int64"
ANYTHING = "object"
MOMENT = "datetime64[us, UTC]"
SPAN = "timedelta64[us]"
MONEY = "float64"


class Column(NamedTuple):
    """Column of a DataFrame: dtype, description, and the function or attribute that returns its values."""

    dtype: str
    meaning: str
    value: Callable[[Any], Any] | str = ""
    """Function of a row, or the name of an attribute of the row, such as ``record.note``; by default the name of the
    column.
    """


Columns: TypeAlias = Mapping[str, Column]


def frame(columns: Columns, rows: Iterable[Any]) -> pd.DataFrame:
    """Return a DataFrame with the columns that `columns` defines, and one row per object in `rows`.

    The columns are made one after the other. Times and durations may be integers of microseconds, which pandas converts
    several times faster than datetimes.
    """
    with garbage_collection_paused():
        rows = [*rows]
        arrays = {
            name: pd.Series([*map(_value_of(name, column), rows)], dtype=column.dtype)
            for name, column in columns.items()
        }
        return pd.DataFrame(arrays, copy=False)


def _value_of(name: str, column: Column) -> Callable[[Any], Any]:
    return column.value if callable(column.value) else attrgetter(column.value or name)


def frame_of_table(columns: Columns, table: Any) -> pd.DataFrame:
    """Return a DataFrame with the columns that `columns` defines. `table` is an object that returns all values of one
    column at a time.
    """
    arrays = {name: whole_column(column, name, table) for name, column in columns.items()}
    return pd.DataFrame(
        {name: pd.Series(each, dtype=each.dtype, copy=False) for name, each in arrays.items()}, copy=False
    )


def whole_column(column: Column, name: str, table: Any) -> Any:
    """Return all values of one column, from the table object that computes them."""
    return column.value(table) if callable(column.value) else getattr(table, column.value or name)


def utc(microseconds: Any) -> pd.Series:
    """Convert an array of times in microseconds since 1970 to a Series of UTC times."""
    return pd.Series(microseconds.view("M8[us]")).dt.tz_localize("UTC")


def documented(columns: Columns) -> Callable[[MakerT], MakerT]:
    """Return a decorator that appends a table of a DataFrame's columns (name, dtype, content) to the docstring of the
    function that makes the DataFrame.
    """

    def add(make: MakerT) -> MakerT:
        rows = [("column", "dtype", "content"), *((name, each.dtype, each.meaning) for name, each in columns.items())]
        # The widths of a reStructuredText table must hold for its widest cell.
        widths = [max(len(row[place]) for row in rows) for place in range(3)]
        rule = "  ".join("=" * width for width in widths)
        head, *lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        make.__doc__ = "\n".join([inspect.cleandoc(make.__doc__ or ""), "", rule, head, rule, *lines, rule])
        return make

    return add


# --- columns that several frames have ---------------------------------------------------------------------------------


def _consumed(name: str) -> Callable[[Any], int | None]:
    # An empty consumption stands for no model call, and its tokens are missing instead of 0.
    return lambda row: row.usage.get(name, 0) if row.usage else None


def _cost(row: Any) -> float | None:
    return dollars(row.usage.get("cost")) if row.usage else None


def _duration(row: Any) -> int | None:
    started = row.started_us
    ended = row.ended_us
    return None if started is None or ended is None else ended - started


TIMES: Columns = {
    "started": Column(MOMENT, "time of the start", "started_us"),
    "ended": Column(MOMENT, "time of the end", "ended_us"),
    "duration": Column(SPAN, "time from start to end", _duration),
}
CONSUMED: Columns = {
    "input_tokens": Column(
        NUMBER, "input tokens of model calls; missing without model calls", _consumed("input_tokens")
    ),
    "output_tokens": Column(
        NUMBER, "output tokens of model calls; missing without model calls", _consumed("output_tokens")
    ),
    "cache_read_tokens": Column(
        NUMBER, "input tokens of model calls that were read from the provider's cache", _consumed("cache_read_tokens")
    ),
    "cache_write_tokens": Column(
        NUMBER, "input tokens of model calls that were written to the provider's cache", _consumed("cache_write_tokens")
    ),
    "cost": Column(MONEY, "cost in US dollars, as far as prices are known", _cost),
}


def moment(microseconds: int | None) -> datetime | None:
    """Convert a time in microseconds since 1970 to a datetime; None stays None."""
    return None if microseconds is None else to_datetime(microseconds)


# --- columns that a user adds to frames, by path: ``outputs.label``, ``variables.rows.*.score`` -----------------------


ALL = "*"
Part: TypeAlias = Attribute | Item | str
_PART = re.compile(r"\.?(?:(?P<all>\*)|\[(?P<index>-?\d+)\]|\[\"(?P<key>[^\"]*)\"\]|(?P<name>[^.\[\]*]+))")
# The first type that fits all values counts, so that integers come before floats. `type(value) in kinds` keeps True
# from being an integer.
_TYPES: Sequence[tuple[tuple[type, ...], str]] = (
    ((bool,), "boolean"),
    ((int,), "Int64"),
    ((int, float), "Float64"),
    ((str,), "str"),
)
# pandas' integers have 64 bits; a column with a larger one becomes a column of objects.
_INT64 = range(-(2**63), 2**63)


class UserColumn(NamedTuple):
    """Column that a user adds to a DataFrame, with the path to its values.

    Examples
    --------
    >>> column = UserColumn.of("scores", "variables.rows.*.score")
    >>> column.root, column.value_in({"rows": [{"score": 1}, {}, {"score": 3}]})
    ('variables', [1, None, 3])
    """

    name: str
    root: str
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, name: str, path: str) -> Self:
        """Create a column that a user adds, from the text of its path: names, ``[0]``, ``["a key"]``, and ``*`` for
        each entry of a list or mapping.

        Raises
        ------
        SetupError
            The text is not a path.
        """
        parts: list[Part] = []
        place = 0
        text = str(path)
        # Each match begins where the last one ended, so that text that is not a part of a path stops the loop.
        while match := _PART.match(text, place):
            parts.append(_part(match))
            place = match.end()
        # The first part is the root, and must be a name.
        if not parts or place < len(text) or not isinstance(parts[0], Attribute):
            raise SetupError(
                f"columns: {name} must be a path such as 'outputs.label' or 'variables.rows.*.score', not {path!r}"
            )
        return cls(name, parts[0].name, tuple(parts[1:]))

    def value_in(self, value: Any) -> Any:
        """Follow the path of this column inside a value, and return the value found there; None if the path does not
        exist in the value.

        With ``*`` the result is a flat list, in which None stands for an entry without the value.
        """
        values = [value]
        for part in self.parts:
            # `*` turns one value into many; all other parts keep the number of values.
            values = [below for each in values for below in _below(each, part)]
        shown = [None if each is NOTHING else opened(each, lenient=True) for each in values]
        # Without `*` there is exactly one value.
        return shown if ALL in self.parts else shown[0]


def _part(match: re.Match[str]) -> Part:
    if match["all"]:
        return ALL
    if match["index"]:
        return Item(int(match["index"]))
    return Attribute(match["name"] if match["key"] is None else match["key"])


def _below(value: Any, part: Part) -> Iterable[Any]:
    if isinstance(part, Attribute | Item):
        return [part.of(value)]
    # An instance of a user's class has its fields as plain data, without the class.
    if isinstance(value, Instance):
        value = value.plain()
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def inferred_column(values: Sequence[Any]) -> pd.Series:
    """Convert a list of values to a pandas Series. Its dtype is boolean, integer, float or string if all present values
    have that type, else object.
    """
    present = [value for value in values if value is not None]
    for kinds, dtype in _TYPES:
        if present and all(type(value) in kinds and _fits(value) for value in present):
            return pd.Series(list(values), dtype=dtype)
    return pd.Series(list(values), dtype="object")


def _fits(value: Any) -> bool:
    return type(value) is not int or value in _INT64


# --- cumulative operations on the rows of a table ---------------------------------------------------------------------
#
# Each row belongs to a group, and some rows are flagged. `latest` and `running_count` look, for each row, at the
# flagged rows of the same group up to that row. For example:
#
#     row            0  1  2  3  4
#     group          a  b  a  a  b
#     flag           x  .  .  x  .
#     latest         0 -1  0  3 -1
#     running_count  1  0  1  2  0


NONE = -1
"""Row number that stands for no row."""
ROW = np.int32
"""Type of row numbers; small, because a log of a million events has a dozen such columns while its frame is made."""


def none(length: int) -> Numbers:
    """Return an array of `length` row numbers that are all `NONE` (no row). It is a view of a single element, so that
    it needs no memory.
    """
    # `broadcast_to` repeats one element, with a stride of 0.
    return np.broadcast_to(ROW(NONE), length)


def latest(groups: Numbers, flags: Numbers) -> Numbers:
    """Return for each row the number of the nearest row in the same group that has a true flag: the row itself or an
    earlier one. The result is an array, with `NONE` where no such row exists.
    """
    if not flags.any():
        return none(len(groups))
    # A stable sort by group: each group becomes a run of consecutive places, in which the rows keep their order. In the
    # example above: order = 0 2 3 1 4.
    order = np.argsort(groups, kind="stable")
    place = np.arange(len(order), dtype=ROW)
    # For each place, the place where its group begins, and the last flagged place up to it. If that place lies before
    # the beginning, it belongs to another group.
    start = np.maximum.accumulate(np.where(_begins(groups[order]), place, ROW(0)))
    flagged = np.maximum.accumulate(np.where(flags[order], place, ROW(NONE)))
    rows = np.empty(len(order), dtype=ROW)
    rows[order] = np.where(flagged >= start, order[flagged], NONE)
    return rows


def running_count(groups: Numbers, flags: Numbers) -> Numbers:
    """Return for each row the number of rows in the same group that have a true flag, from the first row up to this
    row. The result is an array.
    """
    order = np.argsort(groups, kind="stable")
    counts = np.empty(len(order), dtype=np.int64)
    # Sums over all groups. The sum at the beginning of the group is subtracted from each row of the group.
    sums = np.cumsum(flags[order])
    begins = _begins(groups[order])
    before = np.where(begins, sums - flags[order], 0)
    counts[order] = sums - np.maximum.accumulate(before) if len(order) else sums
    return counts


def since(groups: Numbers, flags: Numbers, starts: Numbers) -> Numbers:
    """Return for each row the number of rows in the same group that have a true flag, after row number `starts` of this
    row and up to this row. The result is an array, with 0 where `starts` is `NONE` (no row).
    """
    if not flags.any():
        return np.zeros(len(groups), dtype=np.int64)
    counts = running_count(groups, flags)
    return np.where(starts == NONE, 0, counts - counts[starts])


def _begins(groups: Numbers) -> Numbers:
    """Return a boolean array that is True at the first row of each group. The rows must be sorted by group."""
    # Without rows, `min` makes the first part empty as well.
    return np.concatenate([np.ones(min(len(groups), 1), dtype=bool), groups[1:] != groups[:-1]])


# --- concatenation of the parts of a column, which are read page by page ----------------------------------------------


def joined(parts: list[Numbers]) -> Numbers:
    """Join arrays of numbers to one array; an empty list gives an empty array."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def coded(parts: list[Any]) -> Any:
    """Join Arrow dictionary arrays of strings to one array with one common dictionary."""
    kind = pa.dictionary(pa.int32(), pa.string())
    # A page without a value of this column has no dictionary that could be joined.
    if parts and pa.types.is_null(parts[0].type):
        return pa.nulls(len(parts[0]), kind)
    return pa.chunked_array(parts, kind).unify_dictionaries().combine_chunks() if parts else pa.array([], kind)


def chunked(parts: list[Any], kind: Any, length: int) -> Any:
    """Join parts of an Arrow column to one column. A part is an Arrow array, or an integer, which stands for that many
    missing values.

    A column without any value needs no memory.
    """
    if all(isinstance(part, int) or part.null_count == len(part) for part in parts):
        return pa.chunked_array([pa.nulls(length)])
    return pa.chunked_array([pa.nulls(part, kind) if isinstance(part, int) else part for part in parts], kind)


def known_numbers(numbers: Any) -> tuple[Numbers, Numbers]:
    """Convert an Arrow array of integers to two NumPy arrays: the numbers, with 0 for missing values, and booleans that
    are True for values that are not missing.
    """
    if numbers.null_count == len(numbers):
        return np.broadcast_to(np.int64(0), len(numbers)), np.broadcast_to(np.False_, len(numbers))
    return numbers.fill_null(0).to_numpy(), numbers.is_valid().to_numpy()


def flags(flagged: Any) -> Numbers:
    """Convert an Arrow array of booleans to a NumPy array, with False for missing values."""
    if flagged.null_count == len(flagged):
        return np.broadcast_to(np.False_, len(flagged))
    values: Numbers = flagged.fill_null(False).to_numpy()  # noqa: FBT003 - Arrow's own
    return values


def coded_are(coded: Any, test: Callable[[str], bool]) -> Numbers:
    """Return a boolean array that is True for each string of an Arrow dictionary array for which `test` returns True.
    Missing strings give False.
    """
    # The last element stands for missing strings: their index is replaced by its place.
    passes = np.array([*(test(name) for name in coded.dictionary.to_pylist()), False], dtype=bool)
    matches: Numbers = passes[coded.indices.fill_null(len(passes) - 1).to_numpy()]
    return matches


def or_missing(coded: Any) -> Any:
    """Replace the empty strings in an Arrow dictionary array by missing values."""
    # Only the entries of the dictionary change, and not the rows, which are many more.
    names = pa.array([name or None for name in coded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(coded.indices, names)


def taken_rows(coded: Any, rows: Numbers) -> Any:
    """Return the strings in some rows of an Arrow dictionary array, in the order of the row numbers `rows`. The result
    is missing where the row number is `NONE`.
    """
    # A masked row number gives a missing value.
    return coded.take(pa.array(rows, mask=rows == NONE))


def whole(numbers: Numbers, present: Numbers) -> Any:
    """Convert a NumPy array of integers to a pandas array, in which values can be missing. `present` is True for each
    value that is not missing.
    """
    return pd.arrays.IntegerArray(numbers.astype(np.int64, copy=False), ~present)
