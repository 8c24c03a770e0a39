"""Recording of polars' DataFrame and Series in a log, as the IPC stream that polars itself writes, and their
restoration.
"""

from __future__ import annotations

import io
from typing import Any

import polars as pl

from divebook.errors import UnstorableValueError
from divebook.events.arrow.foreign import Arrow
from divebook.events.recorded import Normalize


def record_frame(frame: pl.DataFrame, path: str, _normalize: Normalize) -> Arrow:
    """Return the recorded form of a polars DataFrame, in which a log stores it."""
    return Arrow("polars.DataFrame", frame.shape, {}, _ipc_stream(frame, path))


def record_series(series: pl.Series, path: str, _normalize: Normalize) -> Arrow:
    """Return the recorded form of a polars Series, in which a log stores it."""
    return Arrow("polars.Series", series.shape, {}, _ipc_stream(series.to_frame(), path))


def _ipc_stream(frame: pl.DataFrame, path: str) -> bytes:
    objects = [name for name, dtype in frame.schema.items() if dtype == pl.Object]
    if objects:
        raise UnstorableValueError(
            f"{path}[{objects[0]!r}]",
            "a column of the type Object cannot be stored; convert it first, for example with cast(pl.String)",
        )
    sink = io.BytesIO()
    # One chunk per column, so that equal frames have equal bytes however they were built.
    frame.rechunk().write_ipc_stream(sink)
    return sink.getvalue()


def open_value(stored: Arrow) -> Any:
    """Build a polars DataFrame or Series from its recorded form (the form in which a log stores it)."""
    frame = pl.read_ipc_stream(stored.stream, use_pyarrow=False)
    return frame if stored.kind == "polars.DataFrame" else frame.to_series()


def rows(value: Any) -> Any:
    """Return a polars DataFrame as a list of records, and a Series as a list."""
    return value.to_dicts() if isinstance(value, pl.DataFrame) else value.to_list()
