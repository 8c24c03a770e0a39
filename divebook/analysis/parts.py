"""Columns in parts, as they come page by page, made whole; and texts that are coded, each kept once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from divebook.analysis.grouped import NONE
from divebook.store.pages import Numbers


def joined(parts: list[Numbers]) -> Numbers:
    """Return numbers as one."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def coded(parts: list[Any]) -> Any:
    """Return dictionary arrays as one."""
    kind = pa.dictionary(pa.int32(), pa.string())
    if parts and pa.types.is_null(parts[0].type):
        return pa.nulls(len(parts[0]), kind)
    return pa.chunked_array(parts, kind).unify_dictionaries().combine_chunks() if parts else pa.array([], kind)


def chunked(parts: list[Any], kind: Any, length: int) -> Any:
    """Return the parts of a column as one; of a part that says nothing there is but the length.

    A column that says nothing takes no room.
    """
    if all(isinstance(part, int) or part.null_count == len(part) for part in parts):
        return pa.chunked_array([pa.nulls(length)])
    return pa.chunked_array([pa.nulls(part, kind) if isinstance(part, int) else part for part in parts], kind)


def known_numbers(numbers: Any) -> tuple[Numbers, Numbers]:
    """Return whole numbers, and where there are any; where there are none at all, they take no room."""
    if numbers.null_count == len(numbers):
        return np.broadcast_to(np.int64(0), len(numbers)), np.broadcast_to(np.False_, len(numbers))
    return numbers.fill_null(0).to_numpy(), numbers.is_valid().to_numpy()


def flags(flagged: Any) -> Numbers:
    """Return which are true; what says nothing is not."""
    if flagged.null_count == len(flagged):
        return np.broadcast_to(np.False_, len(flagged))
    found: Numbers = flagged.fill_null(False).to_numpy()  # noqa: FBT003 - Arrow's own
    return found


def coded_are(coded: Any, test: Callable[[str], bool]) -> Numbers:
    """Return which coded texts pass a test; none does that is missing."""
    passes = np.array([*(test(name) for name in coded.dictionary.to_pylist()), False], dtype=bool)
    found: Numbers = passes[coded.indices.fill_null(len(passes) - 1).to_numpy()]
    return found


def or_missing(coded: Any) -> Any:
    """Return coded texts with missing ones in place of empty ones."""
    names = pa.array([name or None for name in coded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(coded.indices, names)


def taken(coded: Any, rows: Numbers) -> Any:
    """Return the coded texts of some rows, missing for NONE."""
    return coded.take(pa.array(rows, mask=rows == NONE))


def whole(numbers: Numbers, known: Numbers) -> Any:
    """Return whole numbers as a column of pandas, with the places where they are known."""
    return pd.arrays.IntegerArray(numbers.astype(np.int64, copy=False), ~known)
