"""Recording and building of pandas' DataFrame, Series and Index. Their columns are in
`divebook.events.arrow.columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from divebook.events.arrow.columns import ColumnWriter, Description, index_of, label_of, plain_scalar, read_column
from divebook.events.arrow.foreign import Arrow
from divebook.events.arrow.ipc import read_arrays, write_arrays
from divebook.events.recorded import Normalize, opened


def record_frame(frame: pd.DataFrame, path: str, normalize: Normalize) -> Arrow:
    """Return the recorded form of a pandas DataFrame."""
    writer = ColumnWriter(normalize)
    labels = [f"{path}[{label!r}]" for label in frame.columns]
    layout = {
        "columns": _index(writer, frame.columns, f"{path}.columns"),
        "index": _index(writer, frame.index, f"{path}.index"),
        "data": [writer.add(frame.iloc[:, at].array, label) for at, label in enumerate(labels)],
        "attrs": normalize(dict(frame.attrs), f"{path}.attrs"),
        **_flags(frame),
    }
    return Arrow("pandas.DataFrame", frame.shape, layout, write_arrays(writer.arrays))


def record_series(series: pd.Series[Any], path: str, normalize: Normalize) -> Arrow:
    """Return the recorded form of a pandas Series."""
    writer = ColumnWriter(normalize)
    layout = {
        "name": writer.label(series.name, f"{path}.name"),
        "index": _index(writer, series.index, f"{path}.index"),
        "data": writer.add(series.array, path),
        "attrs": normalize(dict(series.attrs), f"{path}.attrs"),
        **_flags(series),
    }
    return Arrow("pandas.Series", series.shape, layout, write_arrays(writer.arrays))


def record_index(index: pd.Index[Any], path: str, normalize: Normalize) -> Arrow:
    """Return the recorded form of a pandas Index of any class."""
    writer = ColumnWriter(normalize)
    layout = {"index": _index(writer, index, path)}
    return Arrow("pandas.Index", index.shape, layout, write_arrays(writer.arrays))


def _flags(value: Any) -> dict[str, bool]:
    return {} if value.flags.allows_duplicate_labels else {"duplicate_labels": False}


def _with_flags(value: Any, layout: Any) -> Any:
    return value.set_flags(allows_duplicate_labels=False) if "duplicate_labels" in layout else value


def _index(writer: ColumnWriter, index: Any, path: str) -> Description:
    names = [writer.label(name, f"{path}.names") for name in index.names]
    if isinstance(index, pd.RangeIndex):
        return {"names": names, "range": [index.start, index.stop, index.step]}
    if isinstance(index, pd.MultiIndex):
        codes = [writer.add(np.asarray(codes), path) for codes in index.codes]
        return {"names": names, "levels": [writer.add(level.array, path) for level in index.levels], "codes": codes}
    described: Description = {"names": names, "values": writer.add(index.array, path)}
    frequency = getattr(index, "freqstr", None)
    if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex) and frequency:
        described["frequency"] = frequency
    return described


# --- reading -------------------------------------------------------------------------------------------------------


def open_value(stored: Arrow) -> Any:
    """Build the DataFrame, Series or Index of a recorded form."""
    arrays = read_arrays(stored.stream)
    layout = stored.layout
    index = _read_index(layout["index"], arrays)
    if stored.kind == "pandas.Index":
        return index
    if stored.kind == "pandas.Series":
        values = read_column(layout["data"], arrays)
        series = pd.Series(values, index=index, dtype=values.dtype, name=label_of(layout["name"]), copy=False)
        series.attrs = opened(layout["attrs"])
        return _with_flags(series, layout)
    return _read_frame(layout, index, arrays)


def _read_frame(layout: Any, index: pd.Index[Any], arrays: Sequence[Any]) -> pd.DataFrame:
    columns = (read_column(column, arrays) for column in layout["data"])
    # By number, not by label, since labels may occur more than once.
    series = {at: pd.Series(v, index=index, dtype=v.dtype, copy=False) for at, v in enumerate(columns)}
    frame = pd.DataFrame(series, index=index, copy=False)
    frame.columns = _read_index(layout["columns"], arrays)
    frame.attrs = opened(layout["attrs"])
    flagged: pd.DataFrame = _with_flags(frame, layout)
    return flagged


def _read_index(described: Description, arrays: Sequence[Any]) -> Any:
    names = [label_of(name) for name in described["names"]]
    if "range" in described:
        start, stop, step = described["range"]
        return pd.RangeIndex(start, stop, step, name=names[0])
    if "levels" in described:
        levels = [index_of(read_column(level, arrays)) for level in described["levels"]]
        if "codes" not in described:  # logs of earlier versions have the full values of each level
            return pd.MultiIndex.from_arrays(levels, names=names)
        codes = [read_column(column, arrays) for column in described["codes"]]
        return pd.MultiIndex(levels, codes, names=names)  # type: ignore[arg-type]  # the stubs know no Index as a level
    index = index_of(read_column(described["values"], arrays))
    if "frequency" in described:
        index.freq = described["frequency"]  # type: ignore[attr-defined]
    return index.set_names(names)


def rows(value: Any) -> Any:
    """Return a DataFrame as a list of records, and a Series or Index as a list; missing values are None."""
    if not isinstance(value, pd.DataFrame):
        return [plain_scalar(cell) for cell in value.tolist()]
    labels = [str(label) for label in value.columns]
    if len(set(labels)) < len(labels):
        raise ValueError("has several columns of one name, which records cannot have; rename them in a step before")
    columns = [rows(value.iloc[:, at]) for at in range(len(labels))]
    return [dict(zip(labels, row, strict=True)) for row in zip(*columns, strict=True)]
