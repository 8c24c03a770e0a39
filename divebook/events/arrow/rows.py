"""Rows of a frame as calls: its columns as lists, and what the calls gave as frames that are joined to it."""

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
"""Columns of what rows gave: why one failed, and what it gave that has no names of its own."""
UNKNOWN = f"{OutcomeUnknownError.__name__}:"
"""With this begins the error of a row of which nobody knows whether its call went through."""
EXACT = 2**53
"""Larger whole numbers are not all fractions of a processor."""
_NUMBERS = {pd.Series([1]).dtype}
Ended: TypeAlias = tuple[int, Any, str | None]
"""A row that has ended: its position, what it gave, and why it failed."""


def columns_of(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of a DataFrame of pandas or polars, a table of Arrow, or a list of mappings.

    Raises
    ------
    StepError
        It is none of them, or two columns have the same name.
    """
    if isinstance(frame, list):
        _as_pandas(frame)  # which refuses what is no mapping
        named = list(dict.fromkeys(str(name) for row in frame for name in row))
        rows = [{str(name): cell for name, cell in row.items()} for row in frame]
        return {name: [row.get(name) for row in rows] for name in named}
    if isinstance(frame, pd.DataFrame) and frame.columns.nlevels > 1:
        raise StepError("Rows takes a frame whose columns have one level of names; join the levels first")
    names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
    if names is None:
        names = _as_pandas(frame).columns
    found: dict[str, list[Any]] = {}
    for at, name in enumerate(map(str, names)):
        if name in found:
            raise StepError(f"Rows takes a frame whose columns have names of their own; two are called {name!r}")
        column = frame.iloc[:, at] if isinstance(frame, pd.DataFrame) else frame[name]
        found[name] = (getattr(column, "to_pylist", None) or column.to_list)()
    return found


def count_of(frame: Any) -> int:
    """Return how many rows a frame has, which one without columns may have, too."""
    return int(getattr(frame, "num_rows", None) or len(frame))


def records_of(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame, each as a mapping of its columns to their values."""
    columns = columns_of(frame)
    cells = zip(*columns.values(), strict=True) if columns else [()] * count_of(frame)
    return [dict(zip(columns, row, strict=True)) for row in cells]


def frame_of(ended: Sequence[Ended]) -> pd.DataFrame:
    """Return what rows that have ended gave, by position; with a column ``error`` if one of them failed."""
    rows = [{} if error is not None else _named(value) for _, value, error in ended]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if ERROR in columns:
        taken = [error is None and ERROR in row for row, (*_, error) in zip(rows, ended, strict=True)]
        ended = [(row[0], None, _TAKEN) if is_taken else row for row, is_taken in zip(ended, taken, strict=True)]
        return frame_of(ended)
    told: dict[str, Any] = {name: _column([row.get(name) for row in rows]) for name in columns}
    if any(error is not None for *_, error in ended):
        told[ERROR] = pd.array([error for *_, error in ended], dtype="str")
    return pd.DataFrame(told, index=[at for at, *_ in ended])


_TAKEN = f"StepError: it gave a column {ERROR!r}, which says why a row failed: give it another name"


def _named(value: Any) -> Mapping[str, Any]:
    """Return what a row gave by the names of columns, which are texts: keys, or fields of a dataclass or model."""
    kind = None if isinstance(value, (str, int, float, Mapping)) else kind_of(type(value))
    if kind == "dataclass":
        value = {field: getattr(value, field) for field in value.__dataclass_fields__ if hasattr(value, field)}
    elif kind == "model":
        value = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if not isinstance(value, Mapping):
        return {RESULT: value}
    return value if all(type(name) is str for name in value) else {str(name): cell for name, cell in value.items()}


def _column(cells: list[Any]) -> Any:
    """Return a column; whole numbers beside nothing, or beside fractions, lose no digit."""
    if any(cell is None for cell in cells):
        return pd.Series(cells, dtype=object).array
    made = pd.Series(cells)
    if made.dtype == float and any(type(cell) is int and abs(cell) > EXACT for cell in cells):
        made = pd.Series(cells, dtype=object)
    return made.array


def standing_of(parts: Sequence[Any]) -> dict[int, bool]:
    """Return the rows that recorded parts have, by position: whether each has failed."""
    found: dict[int, bool] = {}
    for part in parts:
        frame = part.open()
        failed = frame[ERROR].notna() if ERROR in frame else [False] * len(frame)
        found.update(zip(map(int, frame.index), map(bool, failed), strict=True))
    return found


def outcome_of(length: int, rounds: Sequence[tuple[int, Sequence[Any]]]) -> pd.DataFrame:
    """Return what rows gave, by position, with the column ``error``; rows that have not ended have nothing.

    Parameters
    ----------
    rounds
        Of the first time, and of each time that what had failed was called again: how many rows that were, and the
        recorded parts, whose positions are among the rows that had failed until then.
    """
    found = pd.DataFrame({ERROR: pd.Series(dtype=object)})
    for number, (count, parts) in enumerate(rounds):
        positions: Sequence[int] = failed_in(found) if number else range(length)
        positions = positions if len(positions) == count else settled_in(found)
        opened = [part.open() for part in parts]
        for frame in opened:
            frame.index = pd.Index([positions[int(at)] for at in frame.index])
        named_alike = _whole([frame.assign(**{ERROR: frame.get(ERROR)}) for frame in opened])
        together = pd.concat([*([found] if len(found) else []), *named_alike]) if named_alike else found
        found = together[~together.index.duplicated(keep="last")]
    named = [name for name in found.columns if name != ERROR]
    ordered = found[[*named, ERROR]].sort_index()
    return ordered.assign(**{name: _inferred(ordered[name]) for name in named}).astype({ERROR: "str"})


def _whole(frames: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return frames that can be put together without whole numbers becoming fractions where some lack a column."""
    types: dict[str, set[Any]] = {}
    for frame in frames:
        for name in frame.columns:
            types.setdefault(name, set()).add(frame[name].dtype)
    count = {name: sum(name in frame for frame in frames) for name in types}
    mixed = {
        name for name, kinds in types.items() if len(kinds) > 1 or (count[name] < len(frames) and {*kinds} & _NUMBERS)
    }
    return [frame.astype({name: object for name in frame.columns if name in mixed}) for frame in frames]


def _inferred(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of the type of its values; whole numbers beside nothing stay whole numbers."""
    if column.dtype != object:
        return column
    known = column.dropna()
    if len(known) < len(column) and len(known) and all(type(value) is int for value in known):
        return column.astype("Int64") if known.abs().max() < 2**63 else column
    kinds = {type(value) for value in known}
    if kinds == {int, float} and any(type(value) is int and abs(value) > EXACT for value in known):
        return column
    return column.infer_objects()


def failed_in(outcome: pd.DataFrame) -> list[int]:
    """Return the positions of the rows that failed, ascending."""
    return sorted(int(at) for at in outcome.index[outcome[ERROR].notna()]) if ERROR in outcome else []


def settled_in(outcome: pd.DataFrame) -> list[int]:
    """Return the positions of those rows among them whose calls are known to have failed, ascending."""
    failed = failed_in(outcome)
    return [at for at, why in zip(failed, outcome[ERROR].loc[failed], strict=True) if not why.startswith(UNKNOWN)]


def joined(frame: Any, outcome: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with what its rows gave beside it; columns of the same names give way."""
    base = _as_pandas(frame)
    beside = outcome.copy() if len(outcome) == len(base) else outcome.reindex(range(len(base)))
    beside.index = base.index  # row by row: labels of an index may stand there more than once
    return pd.concat([base.drop(columns=[name for name in beside.columns if name in base.columns]), beside], axis=1)


def part_of(frame: Any, positions: Sequence[int]) -> pd.DataFrame:
    """Return some rows of a frame."""
    return _as_pandas(frame).iloc[list(positions)]


def _as_pandas(frame: Any) -> pd.DataFrame:
    if isinstance(frame, list) and all(isinstance(row, Mapping) for row in frame):
        return pd.DataFrame(frame)
    if isinstance(frame, pd.DataFrame):
        return frame
    made = frame.to_pandas() if hasattr(frame, "to_pandas") else None
    if isinstance(made, pd.DataFrame):
        return made
    other = next((row for row in frame if not isinstance(row, Mapping)), None) if isinstance(frame, list) else None
    given = f"a {type(frame).__name__}" + ("" if other is None else f" with {type(other).__name__} in it")
    raise StepError(
        f"Rows takes a DataFrame, an Arrow table or a list of mappings, not {given}; make one of it: "
        "pandas.DataFrame({'text': ...})"
    )


# The columns of a frame, counted at once: texts, numbers and truths without a look at each cell.


_NUMBER_KINDS = frozenset({"integer", "floating", "mixed-integer-float"})
_ALIKE = _NUMBER_KINDS | {"string", "boolean"}
"""What pandas calls objects that are all numbers, and that are all of one such type."""


def count_rows(recorded: Recorded, tallies: dict[str, ColumnTally]) -> None:
    """Count what rows gave, by column, but for those that failed; anything else than a frame has none.

    Raises
    ------
    UnopenableValueError
        It holds what cannot be made again in this process.
    """
    frame = recorded.open()
    if isinstance(frame, pd.DataFrame):
        count_frame(frame, tallies)


def count_frame(frame: pd.DataFrame, tallies: dict[str, ColumnTally]) -> None:
    """Count what stands in the columns of a frame, but for rows with an error."""
    if ERROR in frame and (is_sound := frame[ERROR].isna().to_numpy()).sum() < len(frame):
        frame = frame[is_sound]
    for at, name in enumerate(map(str, frame.columns)):
        if name == ERROR or (name not in tallies and len(tallies) >= MOST_COUNTED):
            continue
        _count(frame.iloc[:, at], tallies.setdefault(name, ColumnTally()))


def _count(column: pd.Series[Any], tally: ColumnTally) -> None:
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.dtype.categories.dtype)
    dtype = column.dtype
    kind = None
    if pd.api.types.is_object_dtype(dtype):
        kind = pd.api.types.infer_dtype(column, skipna=True)
        if kind not in _ALIKE:
            tally.add(column.tolist())
            return
    present = column.dropna()
    tally.empty += len(column) - len(present)
    if isinstance(dtype, pd.StringDtype) or kind == "string":
        if tally.texts is None:  # free text costs no more
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
    places[(finite < 0) & (places == 0)] = -1  # as `place_of` has it
    first = int(places.min())
    counts = np.bincount(places - first).tolist()
    tally.bins.widen(least, greatest)
    tally.bins.take(exponent, {first + at: count for at, count in enumerate(counts) if count})
    tally.are_whole = tally.are_whole and bool((finite == np.floor(finite)).all())
    tally.add_whole(_few(finite) if tally.are_whole and tally.whole is not None else None)


def _few(numbers: np.ndarray[Any, Any]) -> Mapping[int, int] | None:
    """Return how often each whole number came, if few of them are different."""
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) > MOST_WHOLE:
        return None
    return {int(value): int(count) for value, count in zip(values, counts, strict=True)}
