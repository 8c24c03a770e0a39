"""Rows of a frame as calls: its columns as lists, and what the calls gave as frames that are joined to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pandas as pd

from divebook.errors import StepError

ERROR, RESULT = "error", "result"
"""Columns of what rows gave: why one failed, and what it gave that has no names of its own."""
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
        frame = _as_pandas(frame)
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


def frame_of(ended: Sequence[Ended]) -> pd.DataFrame:
    """Return what rows that have ended gave, by position; with a column ``error`` if one of them failed."""
    named = [value if isinstance(value, Mapping) else {RESULT: value} for _, value, error in ended if error is None]
    columns = list(dict.fromkeys(str(name) for value in named for name in value))
    if ERROR in columns:
        ended = [row if row[2] is not None or not _has_error(row[1]) else (row[0], None, _TAKEN) for row in ended]
        return frame_of(ended)
    rows = [
        {} if error is not None else value if isinstance(value, Mapping) else {RESULT: value}
        for _, value, error in ended
    ]
    told: dict[str, Any] = {name: _column([row.get(name) for row in rows]) for name in columns}
    if any(error is not None for *_, error in ended):
        told[ERROR] = pd.array([error for *_, error in ended], dtype="str")
    return pd.DataFrame(told, index=[at for at, *_ in ended])


_TAKEN = f"StepError: it gave a column {ERROR!r}, which says why a row failed: give it another name"


def _has_error(value: Any) -> bool:
    return isinstance(value, Mapping) and ERROR in value


def _column(cells: list[Any]) -> Any:
    """Return a column; whole numbers beside nothing stay whole numbers."""
    if any(cell is None for cell in cells):
        return pd.Series(cells, dtype=object).array
    return pd.Series(cells).array


def positions_of(parts: Sequence[Any]) -> set[int]:
    """Return the positions of all rows that recorded parts have."""
    return {int(at) for part in parts for at in part.open().index}


def outcome_of(length: int, rounds: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Return what rows gave, by position, with the column ``error``; rows that have not ended have nothing.

    Parameters
    ----------
    rounds
        The recorded parts of the first time, and of each time that what had failed was called again: these have the
        positions among the rows that had failed until then.
    """
    found = pd.DataFrame({ERROR: pd.Series(dtype=object)})
    for number, parts in enumerate(rounds):
        positions = failed_in(found) if number else range(length)
        opened = [part.open() for part in parts]
        for frame in opened:
            frame.index = pd.Index([positions[int(at)] for at in frame.index])
        named_alike = [frame.assign(**{ERROR: frame.get(ERROR)}) for frame in opened]
        together = pd.concat([*([found] if len(found) else []), *named_alike]) if named_alike else found
        found = together[~together.index.duplicated(keep="last")]
    named = [name for name in found.columns if name != ERROR]
    return found[[*named, ERROR]].sort_index().infer_objects().astype({ERROR: "str"})


def failed_in(outcome: pd.DataFrame) -> list[int]:
    """Return the positions of the rows that failed, ascending."""
    return sorted(int(at) for at in outcome.index[outcome[ERROR].notna()]) if ERROR in outcome else []


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
