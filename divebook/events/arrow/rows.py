"""Frames of row-wise calls: conversion of the input frame to columns, and of the results of the rows to a frame that
can be joined to the input.

`Each` with `Rows` makes one call per row of a frame. Results are recorded in parts. A part is a frame indexed by row
position, with a column ``error`` if a row of the part failed. For a frame with the column ``text`` and three rows::

    first part            second part                joined
       label                 label  error               text   label  error
    0  praise             1  None   ValueError: ...  0  good   praise None
    2  blame                                         1  ?      None   ValueError: ...
                                                     2  bad    blame  None
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from divebook.errors import OutcomeUnknownError, StepError
from divebook.events.arrow.tally import MOST_COUNTED, MOST_WHOLE, ColumnTally, exponent_of
from divebook.events.classes import kind_of
from divebook.events.recorded import Recorded

ERROR, RESULT = "error", "result"
"""Columns of the results: the error of a failed row, and a result that has no column names."""
UNKNOWN = f"{OutcomeUnknownError.__name__}:"
"""Beginning of the error text of a row whose call has an unknown outcome."""
EXACT = 2**53
"""Largest integer up to which all integers are exact as floats."""
_NUMBERS = {pd.Series([1]).dtype}
EndedRow: TypeAlias = tuple[int, Any, str | None]
"""Position of a row that has ended, its result, and its error (None if it succeeded)."""


def columns_of(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of a DataFrame of pandas or polars, an Arrow table, or a list of mappings: a list of cells for
    each column name.

    Raises
    ------
    StepError
        The value is not one of these, two columns have the same name, or column names have several levels.
    """
    if isinstance(frame, list):
        _as_pandas(frame)  # raises for a row that is not a mapping
        column_names = list(dict.fromkeys(str(name) for row in frame for name in row))
        rows = [{str(name): cell for name, cell in row.items()} for row in frame]
        return {name: [row.get(name) for row in rows] for name in column_names}
    if isinstance(frame, pd.DataFrame) and frame.columns.nlevels > 1:
        raise StepError("Rows takes a frame whose columns have one level of names; join the levels first")
    # pyarrow has `column_names`, pandas and polars have `columns`.
    names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
    if names is None:
        names = _as_pandas(frame).columns
    columns: dict[str, list[Any]] = {}
    for at, name in enumerate(map(str, names)):
        if name in columns:
            raise StepError(f"Rows takes a frame whose columns have different names; two are called {name!r}")
        column = frame.iloc[:, at] if isinstance(frame, pd.DataFrame) else frame[name]
        to_list = getattr(column, "to_pylist", None) or column.to_list  # pyarrow has to_pylist
        columns[name] = to_list()
    return columns


def count_of(frame: Any) -> int:
    """Return the number of rows of a frame, even if the frame has no columns."""
    return int(getattr(frame, "num_rows", None) or len(frame))


def records_of(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame, each as a mapping of column names to values."""
    columns = columns_of(frame)
    cells = zip(*columns.values(), strict=True) if columns else [()] * count_of(frame)
    return [dict(zip(columns, row, strict=True)) for row in cells]


def frame_of(ended: Sequence[EndedRow]) -> pd.DataFrame:
    """Return the results of row-wise calls as a frame indexed by row position, with a column ``error`` if a row failed.

    A row whose own result has a column ``error`` counts as failed.
    """
    rows = [{} if error is not None else _by_column(value) for _, value, error in ended]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if ERROR in columns:
        has_error_column = [error is None and ERROR in row for row, (*_, error) in zip(rows, ended, strict=True)]
        ended = [
            (row[0], None, _ERROR_COLUMN_TAKEN) if is_clash else row
            for row, is_clash in zip(ended, has_error_column, strict=True)
        ]
        # The results of these rows are dropped, so the second call finds no column "error".
        return frame_of(ended)
    data: dict[str, Any] = {name: _column([row.get(name) for row in rows]) for name in columns}
    if any(error is not None for *_, error in ended):
        data[ERROR] = pd.array([error for *_, error in ended], dtype="str")
    return pd.DataFrame(data, index=[at for at, *_ in ended])


_ERROR_COLUMN_TAKEN = (
    f"StepError: its result has a column {ERROR!r}, a name that is reserved for row errors: rename the column"
)


def _by_column(value: Any) -> Mapping[str, Any]:
    """Return the result of one row as values by column name: the items of a mapping, the fields of an instance, or any
    other value under the name `RESULT`.
    """
    # Most results are of these classes, and need no look at their class.
    kind = None if isinstance(value, (str, int, float, Mapping)) else kind_of(type(value))
    if kind == "dataclass":
        value = {field: getattr(value, field) for field in value.__dataclass_fields__ if hasattr(value, field)}
    elif kind == "model":
        value = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if not isinstance(value, Mapping):
        return {RESULT: value}
    return value if all(type(name) is str for name in value) else {str(name): cell for name, cell in value.items()}


def _column(cells: list[Any]) -> Any:
    """Convert a list of cells to a pandas array. Integers stay exact, even if other cells are missing or floats."""
    # pandas would turn [1, None] into [1.0, NaN].
    if any(cell is None for cell in cells):
        return pd.Series(cells, dtype=object).array
    column = pd.Series(cells)
    if column.dtype == float and any(type(cell) is int and abs(cell) > EXACT for cell in cells):
        column = pd.Series(cells, dtype=object)
    return column.array


def failures_by_position(parts: Sequence[Any]) -> dict[int, bool]:
    """Return for each row position True if the row failed, otherwise False. `parts` are recorded frames, each with the
    results of some rows.
    """
    has_failed: dict[int, bool] = {}
    for part in parts:
        frame = part.to_python()
        failed = frame[ERROR].notna() if ERROR in frame else [False] * len(frame)
        has_failed.update(zip(map(int, frame.index), map(bool, failed), strict=True))
    return has_failed


def outcome_of(length: int, rounds: Sequence[tuple[int, Sequence[Any]]]) -> pd.DataFrame:
    """Return the results of all rows of a step as one frame by row position, with the column ``error``. Failed rows may
    have been called again in later `rounds`; a row has its latest result.

    Rows that have not ended are missing.

    Parameters
    ----------
    rounds
        Number of rows and recorded parts of the first round and of each later round, which called failed rows again.
        Positions in a later round count within the rows that had failed before it: position 0 is the first of them.
    """
    # Example with 4 rows, of which the rows 1 and 3 failed, and a second round in which row 3 failed again:
    #
    #     round 0   positions 0, 1, 2, 3    failed: 1, 3
    #     round 1   positions 0, 1          -> rows 1, 3; failed: 3
    #     outcome   rows 0, 2 of round 0 and rows 1, 3 of round 1
    outcome = pd.DataFrame({ERROR: pd.Series(dtype=object)})
    for number, (count, parts) in enumerate(rounds):
        positions: Sequence[int] = failed_in(outcome) if number else range(length)
        # A round calls either all failed rows, or only those that certainly failed.
        positions = positions if len(positions) == count else certainly_failed_in(outcome)
        opened = [part.to_python() for part in parts]
        for frame in opened:
            frame.index = pd.Index([positions[int(at)] for at in frame.index])
        frames = _without_mixed_types([frame.assign(**{ERROR: frame.get(ERROR)}) for frame in opened])
        combined = outcome
        if frames:
            earlier = [outcome] if len(outcome) else []
            combined = pd.concat([*earlier, *frames])
        outcome = combined[~combined.index.duplicated(keep="last")]
    names = [name for name in outcome.columns if name != ERROR]
    ordered = outcome[[*names, ERROR]].sort_index()
    return ordered.assign(**{name: _with_inferred_type(ordered[name]) for name in names}).astype({ERROR: "str"})


def _without_mixed_types(frames: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the frames with some dtypes changed to object, so that `pandas.concat` does not convert integers to
    floats.

    Columns of different dtypes, and columns of integers that some frames lack, get the dtype object.
    """
    # Example: a part with n = [2**60 + 1] (int64) and a part with n = [0.5] (float64) would be joined to floats, and
    # the first number would lose its last digits. As objects both stay exact. A frame without the column counts like
    # floats, because its missing values are NaN.
    types: dict[str, set[Any]] = {}
    for frame in frames:
        for name in frame.columns:
            types.setdefault(name, set()).add(frame[name].dtype)
    count = {name: sum(name in frame for frame in frames) for name in types}
    mixed = {
        name for name, kinds in types.items() if len(kinds) > 1 or (count[name] < len(frames) and {*kinds} & _NUMBERS)
    }
    return [frame.astype({name: object for name in frame.columns if name in mixed}) for frame in frames]


def _with_inferred_type(column: pd.Series[Any]) -> pd.Series[Any]:
    """Convert a column of dtype object to the dtype of its values. Integers together with missing values become
    ``Int64``.
    """
    if column.dtype != object:
        return column
    # [1, None] -> Int64. [1, 2.5] -> float, unless an integer is too large to be exact as a float.
    present = column.dropna()
    if len(present) < len(column) and len(present) and all(type(value) is int for value in present):
        return column.astype("Int64") if present.abs().max() < 2**63 else column
    kinds = {type(value) for value in present}
    if kinds == {int, float} and any(type(value) is int and abs(value) > EXACT for value in present):
        return column
    return column.infer_objects()


def failed_in(outcome: pd.DataFrame) -> list[int]:
    """Return the positions of the failed rows in a frame of results, ascending; an empty list if no row failed."""
    return sorted(int(at) for at in outcome.index[outcome[ERROR].notna()]) if ERROR in outcome else []


def certainly_failed_in(outcome: pd.DataFrame) -> list[int]:
    """Return the positions of the rows that certainly failed in a frame of results, ascending. Rows with an unknown
    outcome are left out.
    """
    failed = failed_in(outcome)
    return [at for at, why in zip(failed, outcome[ERROR].loc[failed], strict=True) if not why.startswith(UNKNOWN)]


def joined(frame: Any, outcome: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with the results of its rows as additional columns. A column of results replaces a column with the
    same name.
    """
    base = _as_pandas(frame)
    results = outcome.copy() if len(outcome) == len(base) else outcome.reindex(range(len(base)))
    results.index = base.index  # join row by row, since index labels may occur more than once
    replaced = [name for name in results.columns if name in base.columns]
    return pd.concat([base.drop(columns=replaced), results], axis=1)


def part_of(frame: Any, positions: Sequence[int]) -> pd.DataFrame:
    """Return the rows of a frame at the given positions as a pandas DataFrame."""
    return _as_pandas(frame).iloc[list(positions)]


def _as_pandas(frame: Any) -> pd.DataFrame:
    if isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame):
        return pd.DataFrame(frame)
    if isinstance(frame, pd.DataFrame):
        return frame
    # polars and pyarrow have this method. A Series of them has it as well, but does not convert to a DataFrame.
    converted = frame.to_pandas() if hasattr(frame, "to_pandas") else None
    if isinstance(converted, pd.DataFrame):
        return converted
    other = next((row for row in frame if not isinstance(row, Mapping)), None) if isinstance(frame, list) else None
    description = f"a {type(frame).__name__}" + ("" if other is None else f" with {type(other).__name__} in it")
    raise StepError(
        f"Rows takes a DataFrame, an Arrow table or a list of mappings, not {description}; convert it: "
        "pandas.DataFrame({'text': ...})"
    )


# --- tallies of whole columns: strings, numbers and booleans without a Python loop over the cells ---


_NUMBER_KINDS = frozenset({"integer", "floating", "mixed-integer-float"})
_UNIFORM_KINDS = _NUMBER_KINDS | {"string", "boolean"}
"""Names in pandas' `infer_dtype` for columns of objects that are all numbers, all strings or all booleans."""


def count_rows(recorded: Recorded, tallies: dict[str, ColumnTally]) -> None:
    """Count the cells of a recorded frame of results, without failed rows, and add the counts to `tallies` by column
    name. Ignore a recorded value that is not a frame.

    Raises
    ------
    UnopenableValueError
        A value in it cannot be opened in this process.
    """
    frame = recorded.to_python()
    if isinstance(frame, pd.DataFrame):
        count_frame(frame, tallies)


def count_frame(frame: pd.DataFrame, tallies: dict[str, ColumnTally]) -> None:
    """Count the cells of a frame, without failed rows, and add the counts to `tallies` by column name. At most
    `MOST_COUNTED` columns are counted.
    """
    # Without a failed row, the frame need not be copied.
    if ERROR in frame and (is_sound := frame[ERROR].isna().to_numpy()).sum() < len(frame):
        frame = frame[is_sound]
    for at, name in enumerate(map(str, frame.columns)):
        if name == ERROR or (name not in tallies and len(tallies) >= MOST_COUNTED):
            continue
        _count(frame.iloc[:, at], tallies.setdefault(name, ColumnTally()))


def _count(column: pd.Series[Any], tally: ColumnTally) -> None:
    """Count the cells of one pandas column in its tally.

    Columns of one kind of values are counted with pandas and numpy; mixed objects are counted cell by cell.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.dtype.categories.dtype)
    dtype = column.dtype
    kind = None
    if pd.api.types.is_object_dtype(dtype):
        kind = pd.api.types.infer_dtype(column, skipna=True)
        if kind not in _UNIFORM_KINDS:
            tally.add(column.tolist())
            return
    present = column.dropna()
    tally.empty += len(column) - len(present)
    if isinstance(dtype, pd.StringDtype) or kind == "string":
        if tally.texts is None:  # too many different strings: only their number counts
            tally.text_count += len(present)
        else:
            tally.add_texts(Counter(present.tolist()))
    elif pd.api.types.is_bool_dtype(dtype) or kind == "boolean":
        true = int(present.sum())
        tally.add_truths(len(present) - true, true)
    elif (pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype)) or kind in _NUMBER_KINDS:
        try:
            numbers = present.to_numpy(dtype="float64", na_value=np.nan)
        except OverflowError:  # a whole number of more than 308 digits
            tally.add(present.tolist())
        else:
            _count_numbers(numbers, tally)
    else:
        tally.other += len(present)


def _count_numbers(numbers: np.ndarray[Any, Any], tally: ColumnTally) -> None:
    none = int(np.isnan(numbers).sum())
    finite = numbers[np.isfinite(numbers)]
    tally.empty = tally.empty + none
    tally.endless = tally.endless + len(numbers) - len(finite) - none
    if not len(finite):
        return
    least = float(finite.min())
    greatest = float(finite.max())
    exponent = exponent_of(least, greatest)
    places = np.floor(np.ldexp(finite, -exponent)).astype(np.int64)
    places[(finite < 0) & (places == 0)] = -1  # as in `place_of`
    first = int(places.min())
    counts = np.bincount(places - first).tolist()
    tally.bins.widen(least, greatest)
    tally.bins.add_counts(exponent, {first + at: count for at, count in enumerate(counts) if count})
    tally.are_whole = tally.are_whole and bool((finite == np.floor(finite)).all())
    tally.add_whole(_counts_of_few(finite) if tally.are_whole and tally.whole is not None else None)


def _counts_of_few(numbers: np.ndarray[Any, Any]) -> Mapping[int, int] | None:
    """Return a mapping of each distinct integer to its count; None if there are more than `MOST_WHOLE` distinct
    integers.
    """
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) > MOST_WHOLE:
        return None
    return {int(value): int(count) for value, count in zip(values, counts, strict=True)}
