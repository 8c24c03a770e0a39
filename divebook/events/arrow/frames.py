"""Recording of pandas' frames, numpy arrays, and scalars of both in a log, with their exact dtypes, and their
restoration.

A frame consists of columns and indexes. Each column becomes one or several Arrow arrays in the stream of the value.
Plain data describe the column: its dtype, and the numbers of its arrays in the stream, for example::

    Series([1, 2])                          {"numpy": "<i8", "at": 0}
    Series(["a", "b"], dtype="category")    {"categories": {"string": ..., "at": 1}, "ordered": False, "at": 0}
    Series([1, (2, 3)], dtype=object)       {"objects": [1, {"tuple": [2, 3]}]}

Arrow has no type for Python objects. They are recorded one by one like other values of the log, except that tuples have
a shorter form. The Arrow metadata of pandas are not used: they lose dtypes, labels and frequencies, and differ between
versions (``tests/events/test_arrow.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from divebook.errors import UnstorableValueError
from divebook.events.arrow.foreign import Arrow, ForeignScalar
from divebook.events.arrow.ipc import as_array, in_one_piece, read_arrays, without_residue, write_arrays
from divebook.events.recorded import Normalize, custom_zone_name, key_of, opened

Description = dict[str, Any]
_NUMBERS = "biuf"
_MOMENTS = "Mm"


# --- frames, series and indexes ---


def record_frame(frame: pd.DataFrame, path: str, normalize: Normalize) -> Arrow:
    """Return the recorded form of a pandas DataFrame, in which a log stores it."""
    # The order of these entries is the order of the arrays in the stream. Readers use the numbers (`at`) only.
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
    """Return the recorded form of a pandas Series, in which a log stores it."""
    writer = ColumnWriter(normalize)
    layout = {
        "name": writer.plain_label(series.name, f"{path}.name"),
        "index": _index(writer, series.index, f"{path}.index"),
        "data": writer.add(series.array, path),
        "attrs": normalize(dict(series.attrs), f"{path}.attrs"),
        **_flags(series),
    }
    return Arrow("pandas.Series", series.shape, layout, write_arrays(writer.arrays))


def record_index(index: pd.Index[Any], path: str, normalize: Normalize) -> Arrow:
    """Return the recorded form of a pandas Index of any class, in which a log stores it."""
    writer = ColumnWriter(normalize)
    layout = {"index": _index(writer, index, path)}
    return Arrow("pandas.Index", index.shape, layout, write_arrays(writer.arrays))


def _flags(value: Any) -> dict[str, bool]:
    return {} if value.flags.allows_duplicate_labels else {"duplicate_labels": False}


def _with_flags(value: Any, layout: Any) -> Any:
    return value.set_flags(allows_duplicate_labels=False) if "duplicate_labels" in layout else value


def _index(writer: ColumnWriter, index: Any, path: str) -> Description:
    names = [writer.plain_label(name, f"{path}.names") for name in index.names]
    if isinstance(index, pd.RangeIndex):
        return {"names": names, "range": [index.start, index.stop, index.step]}
    if isinstance(index, pd.MultiIndex):
        codes = [writer.add(np.asarray(codes), path) for codes in index.codes]
        return {"names": names, "levels": [writer.add(level.array, path) for level in index.levels], "codes": codes}
    described: Description = {"names": names, "values": writer.add(index.array, path)}
    # The frequency of a PeriodIndex is part of its dtype.
    frequency = getattr(index, "freqstr", None)
    if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex) and frequency:
        described["frequency"] = frequency
    return described


def open_value(stored: Arrow) -> Any:
    """Build a pandas DataFrame, Series or Index, or a numpy array, from its recorded form (the form in which a log
    stores it).
    """
    if stored.kind == "numpy.ndarray":
        return _open_array(stored)
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
    """Return a DataFrame as a list of records, or another value as a list. Missing values of pandas become None."""
    if isinstance(value, np.ndarray):
        return _array_rows(value)
    if not isinstance(value, pd.DataFrame):
        return [plain_scalar(cell) for cell in value.tolist()]
    labels = [str(label) for label in value.columns]
    if len(set(labels)) < len(labels):
        raise ValueError(
            "has several columns with the same name, which records cannot have; rename them in an earlier step"
        )
    # By position, and column by column: iterating over rows would convert the values of a row to one common type.
    columns = [rows(value.iloc[:, at]) for at in range(len(labels))]
    return [dict(zip(labels, row, strict=True)) for row in zip(*columns, strict=True)]


# --- columns ---


class ColumnWriter:
    """Converter of the columns of a pandas object to Arrow arrays. It describes each column, so that `read_column` can
    restore it.
    """

    def __init__(self, normalize: Normalize) -> None:
        self.arrays: list[Any] = []
        self._normalize = normalize

    def add(self, values: Any, path: str) -> Description:
        """Add a column to the collected Arrow arrays; return the description from which `read_column` restores the
        column.

        `values` is an array as in `Series.array`.

        Raises
        ------
        UnstorableValueError
            The dtype of the column, or an object in it, cannot be stored.
        """
        # Each branch records the numbers of a column and the little that the numbers lack: dtype, zone, categories.
        if type(values) is pd.arrays.NumpyExtensionArray:
            values = values.to_numpy()
        dtype = values.dtype
        if isinstance(dtype, np.dtype):  # also for pandas' own array classes, such as those of moments
            return self._add_numpy(np.asarray(values), path)
        if isinstance(dtype, pd.CategoricalDtype):
            codes = self._put(as_array(np.asarray(values.codes), path))
            return {"categories": self.add(dtype.categories.array, path), "ordered": bool(dtype.ordered), "at": codes}
        if isinstance(dtype, pd.IntervalDtype):
            return {"ends": [self.add(end.array, path) for end in (values.left, values.right)], "closed": dtype.closed}
        if isinstance(dtype, pd.DatetimeTZDtype):
            return {
                "zone": zone_content(dtype.tz, path),
                "unit": dtype.unit,
                "at": self._put(as_array(values.asi8, path)),
            }
        if isinstance(dtype, pd.PeriodDtype):
            return {"period": str(dtype), "at": self._put(as_array(values.asi8, path))}
        return self._add_extension_array(values, dtype, path)

    def _put(self, array: Any) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1

    def _add_numpy(self, values: np.ndarray[Any, Any], path: str) -> Description:
        kind = values.dtype.kind
        if kind == "O":
            return {"objects": [self.plain_label(cell, f"{path}[{row}]") for row, cell in enumerate(values.tolist())]}
        # Long doubles, complex numbers and records are refused, since Arrow has no type for them.
        if kind not in _NUMBERS + _MOMENTS or values.dtype.itemsize > 8:
            raise _unsupported_dtype(values.dtype, path)
        # Arrow needs the byte order of the machine. The description has the original dtype, such as ">i4".
        numbers = values.astype(values.dtype.newbyteorder("="), copy=False)
        return {
            "numpy": values.dtype.str,
            "at": self._put(as_array(numbers.view("i8") if kind in _MOMENTS else numbers, path)),
        }

    def _add_extension_array(self, values: Any, dtype: Any, path: str) -> Description:
        """Convert a pandas extension array to an Arrow array, add it to the collected arrays, and return its
        description.
        """
        if isinstance(dtype, pd.StringDtype):
            missing = "NA" if dtype.na_value is pd.NA else "nan"
            at = self._put(as_array(values, path, "large_string"))
            return {"string": dtype.storage, "missing": missing, "at": at}
        if isinstance(dtype, pd.ArrowDtype):
            return {"arrow": str(dtype), "at": self._put(in_one_piece(values.__arrow_array__()))}
        # Int64, Float32, boolean ...: numbers with a mask of missing values.
        if isinstance(getattr(dtype, "numpy_dtype", None), np.dtype) or isinstance(dtype, pd.BooleanDtype):
            return {"nullable": str(dtype), "at": self._put(without_residue(as_array(values, path)))}
        raise _unsupported_dtype(dtype, path)

    def plain_label(self, value: Any, path: str) -> Any:
        """Return a cell, or the name of a column, as plain data that a log can contain. `label_of` restores it from
        them.
        """
        if type(value) is tuple:
            return {"tuple": [self.plain_label(item, path) for item in value]}
        plain = self._normalize(value, path)
        # A dict of user data is wrapped, so that it differs from {"tuple": ...}.
        return {"value": plain} if isinstance(plain, dict) else plain


def _unsupported_dtype(dtype: Any, path: str) -> UnstorableValueError:
    return UnstorableValueError(
        path, f"columns of dtype {dtype} cannot be stored; convert the column with astype() first"
    )


def label_of(recorded: Any) -> Any:
    """Return the cell or column name for `recorded`, the plain data that `ColumnWriter.plain_label` returned for it."""
    if not isinstance(recorded, dict):
        return opened(recorded)
    return tuple(map(label_of, recorded["tuple"])) if "tuple" in recorded else opened(recorded["value"])


def zone_content(zone: Any, path: str) -> str | list[Any]:
    """Return a time zone as plain data, from which `zone_of` restores it. The data are the zone's name, if pandas
    restores the zone from it. Otherwise they are a list: of the name for a `ZoneInfo`, of offset and name for a fixed
    time zone.

    A fixed offset is not recorded by its name alone: pandas would read ``timezone(timedelta(hours=1), "CET")`` as the
    zone CET, which has a summer time.
    """
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        if offset % timedelta(seconds=1):  # pandas accepts such an offset, but does not calculate exactly
            raise UnstorableValueError(path, f"{zone!r} has fractions of a second; use an offset of whole seconds")
        name = custom_zone_name(offset, zone.tzname(None))
        if name is not None or offset % timedelta(minutes=1):
            return [offset // timedelta(microseconds=1), name]
    elif type(zone).__module__.startswith("zoneinfo"):
        key = key_of(zone, path)  # pandas reads the name UTC as `datetime.UTC`, which is a different zone
        return key if type(pd.DatetimeTZDtype("ns", key).tz) is type(zone) else [key]
    # Zones of other libraries have their name in `zone` (pytz) or in their text. It is used if pandas accepts it.
    for name in (getattr(zone, "key", None), getattr(zone, "zone", None), str(zone)):
        try:
            if name:
                pd.DatetimeTZDtype("ns", name)
                return str(name)
        except (LookupError, TypeError, ValueError, OSError):
            continue
    offset = zone.utcoffset(None)
    if offset is None:
        raise UnstorableValueError(path, f"{zone!r} has no name; use tz_convert with a name such as 'UTC'")
    return [offset // timedelta(microseconds=1), custom_zone_name(offset, zone.tzname(None))]


def zone_of(content: str | list[Any]) -> Any:
    """Return the time zone for `content`, the plain data that `zone_content` returned for it. If `content` is a name,
    it is returned unchanged, because pandas accepts a name as a time zone.
    """
    if isinstance(content, str):
        return content
    if len(content) == 1:
        return ZoneInfo(content[0])
    offset = timedelta(microseconds=content[0])
    name = content[1]
    return timezone(offset) if name is None else timezone(offset, name)


def read_column(description: Description, arrays: Sequence[Any]) -> Any:
    """Restore a pandas column of a recorded value. `description` is the result of `ColumnWriter.add` for this column,
    `arrays` has the Arrow arrays of the recorded value.

    The memory of the result may be written to.
    """
    # The keys of the description show which branch of `ColumnWriter.add` has written it.
    if "objects" in description:
        return _objects(description["objects"])
    if "ends" in description:
        left, right = (pd.Index(read_column(end, arrays)) for end in description["ends"])
        return pd.arrays.IntervalArray.from_arrays(left, right, closed=description["closed"])
    array = arrays[description["at"]]
    if "numpy" in description:
        return _numbers(array, description["numpy"])
    if "categories" in description:
        categories = index_of(read_column(description["categories"], arrays))
        dtype = pd.CategoricalDtype(categories, ordered=description["ordered"])
        return pd.Categorical.from_codes(_numbers(array), dtype=dtype)
    if "zone" in description:
        naive = pd.DatetimeIndex(_numbers(array).view(f"M8[{description['unit']}]"))
        return naive.tz_localize("UTC").tz_convert(zone_of(description["zone"])).array
    if "period" in description:
        period: Any = pd.api.types.pandas_dtype(description["period"])
        return pd.arrays.PeriodArray(_numbers(array), dtype=period)
    return _arrow_dtype(description, array).__from_arrow__(array)


def _objects(cells: Sequence[Any]) -> np.ndarray[Any, Any]:
    # `np.array(cells)` would turn cells that are lists of one length into rows.
    values = np.empty(len(cells), dtype=object)
    for row, cell in enumerate(cells):
        values[row] = label_of(cell)
    return values


def _numbers(array: Any, dtype: str | None = None) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False, writable=True)
    if dtype is None:
        return values
    target = np.dtype(dtype)
    return values.view(target) if target.kind in _MOMENTS else values.astype(target, copy=False)


def _arrow_dtype(description: Description, array: Any) -> Any:
    if "string" in description:
        missing = pd.NA if description["missing"] == "NA" else np.nan
        return pd.StringDtype(description["string"], na_value=missing)
    if "arrow" in description:
        return pd.ArrowDtype(array.type)
    return pd.api.types.pandas_dtype(description["nullable"])


def index_of(values: Any) -> pd.Index[Any]:
    """Return a pandas Index with the given values. It has the dtype of the values, since pandas would otherwise infer
    one.
    """
    index: pd.Index[Any] = pd.Index(values, dtype=values.dtype, tupleize_cols=False, copy=False)
    return index


# --- arrays ----------------------------------------------------------------------------------------------------------
#
# Arrays of numpy, flattened in C order.


_TEXTS = "US"


def record_array(array: np.ndarray[Any, Any], path: str, normalize: Normalize) -> Arrow:
    """Return the recorded form of a numpy array, in which a log stores it."""
    flat = array.ravel()
    dtype = array.dtype
    layout: dict[str, Any] = {"dtype": dtype.str}
    if dtype.kind == "O":
        layout["objects"] = [normalize(cell, f"{path}[{place}]") for place, cell in enumerate(flat.tolist())]
        return Arrow("numpy.ndarray", array.shape, layout, write_arrays([]))
    # Moments and complex numbers are written as the plain numbers that they consist of.
    values: Any = flat
    if dtype.kind in _MOMENTS:
        values = flat.view("i8")
    elif dtype.kind in _TEXTS:
        values = flat.tolist()
    elif dtype.kind == "c" and dtype.itemsize <= 16:
        values = flat.view(flat.real.dtype)
    elif dtype.kind not in _NUMBERS or dtype.itemsize > 8:
        raise UnstorableValueError(path, f"arrays of dtype {dtype} cannot be stored; use a DataFrame, or astype()")
    if isinstance(values, np.ndarray):
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
    type_ = {"U": "large_string", "S": "large_binary"}.get(dtype.kind)
    return Arrow("numpy.ndarray", array.shape, layout, write_arrays([as_array(values, path, type_)]))


def _open_array(stored: Arrow) -> Any:
    """Build a numpy array from its recorded form (the form in which a log stores it)."""
    dtype = np.dtype(stored.layout["dtype"])
    if "objects" in stored.layout:
        return _object_array(stored).reshape(stored.shape)
    values = read_arrays(stored.stream)[0].to_numpy(zero_copy_only=False, writable=True)
    if dtype.kind in _MOMENTS:
        return values.view(dtype).reshape(stored.shape)
    if dtype.kind == "c":
        values = values.view(np.result_type(values.dtype, np.complex64))
    return values.astype(dtype, copy=False).reshape(stored.shape)


def _object_array(stored: Arrow) -> np.ndarray[Any, Any]:
    cells = stored.layout["objects"]
    values = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        values[place] = opened(cell)
    return values


def _array_rows(array: np.ndarray[Any, Any]) -> Any:
    """Return a numpy array as nested lists of Python values."""
    if array.dtype.kind in _MOMENTS:
        unit = array.dtype.name.partition("[")[0]
        array = array.astype(f"{unit}[us]")
    return array.tolist()


# --- scalars ---------------------------------------------------------------------------------------------------------
#
# Scalars of pandas and numpy without an exact counterpart in Python, as text, number and unit.


def record_scalar(value: Any, path: str, normalize: Normalize) -> ForeignScalar:
    """Return the recorded form of a scalar of pandas or numpy that has no exact counterpart in Python."""
    # Each scalar is recorded as its readable text first, and then as the exact number and unit from which it is built.
    if value is pd.NaT or value is pd.NA:
        return ForeignScalar(f"pandas.{'NaT' if value is pd.NaT else 'NA'}", [str(value)])
    if isinstance(value, np.datetime64 | np.timedelta64):
        return ForeignScalar(f"numpy.{type(value).__name__}", [str(value), int(value.view("i8")), value.dtype.str])
    if isinstance(value, pd.Timestamp):
        zone = None if value.tz is None else zone_content(value.tz, path)
        fold = [value.fold] if value.fold else []
        parts = [value.isoformat(), int(value.asm8.view("i8")), value.unit, zone, *fold]
        return ForeignScalar("pandas.Timestamp", parts)
    if isinstance(value, pd.Timedelta):
        return ForeignScalar("pandas.Timedelta", [str(value), int(value.asm8.view("i8")), value.unit])
    if isinstance(value, pd.Period):
        return ForeignScalar("pandas.Period", [str(value), value.ordinal, value.freqstr])
    ends = [normalize(end, path) for end in (value.left, value.right)]
    return ForeignScalar("pandas.Interval", [str(value), *ends, value.closed])


def open_scalar(kind: str, parts: Sequence[Any]) -> Any:
    """Build a scalar of pandas or numpy from its recorded form (the form in which a log stores it)."""
    _, *rest = parts
    return _OPEN[kind](*rest)


def _timestamp(number: int, unit: str, zone: str | list[Any] | None, fold: int = 0) -> Any:
    # With a zone, the number counts units since 1970 in UTC. It is read as UTC and then converted to the zone.
    moment = pd.Timestamp(np.datetime64(number, unit))  # type: ignore[call-overload]
    if zone is not None:
        moment = moment.tz_localize("UTC").tz_convert(zone_of(zone))
    # In an hour that occurs twice, `fold` follows from the moment. At any other time, the creator of the value set it.
    return moment.replace(fold=1) if fold > moment.fold else moment


_OPEN: dict[str, Any] = {
    "pandas.NaT": lambda: pd.NaT,
    "pandas.NA": lambda: pd.NA,
    "pandas.Timestamp": _timestamp,
    "pandas.Timedelta": lambda number, unit: pd.Timedelta(np.timedelta64(number, unit)),
    "pandas.Period": lambda ordinal, freq: pd.Period(ordinal=ordinal, freq=freq),
    "pandas.Interval": lambda left, right, closed: pd.Interval(opened(left), opened(right), closed),
    "numpy.datetime64": lambda number, dtype: np.int64(number).view(dtype),
    "numpy.timedelta64": lambda number, dtype: np.int64(number).view(dtype),
}


def plain_scalar(value: Any) -> Any:
    """Return the Python counterpart of a scalar of pandas or numpy; None for a missing value.

    Other values are returned unchanged.
    """
    if value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime(warn=False)
    if isinstance(value, pd.Timedelta):
        return value.to_pytimedelta()
    if isinstance(value, np.datetime64 | np.timedelta64):
        # Python counts microseconds. Finer units are cut, and coarser ones such as days are converted.
        unit = value.dtype.name.partition("[")[0]
        return value.astype(f"{unit}[us]").item()
    return str(value) if isinstance(value, pd.Period | pd.Interval) else value
