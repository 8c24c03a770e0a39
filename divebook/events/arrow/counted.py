"""The columns of a frame, counted at once: texts, numbers and truths without a look at each cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from divebook.events.arrow.rows import ERROR
from divebook.events.recorded import Recorded
from divebook.events.tally import MOST_COUNTED, MOST_WHOLE, ColumnTally, exponent_of

_NUMBERS = frozenset({"integer", "floating", "mixed-integer-float"})
_ALIKE = _NUMBERS | {"string", "boolean"}
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
    dtype, kind = column.dtype, None
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
    elif (pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype)) or kind in _NUMBERS:
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
    tally.empty, tally.endless = tally.empty + none, tally.endless + len(numbers) - len(finite) - none
    if not len(finite):
        return
    least, greatest = float(finite.min()), float(finite.max())
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
