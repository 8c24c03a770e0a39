"""Scalars of pandas and numpy that Python has no exact counterpart of, as text and unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from divebook.events.arrow.columns import zone_content, zone_of
from divebook.events.arrow.foreign import ForeignScalar
from divebook.events.recorded import Normalize, opened


def record_scalar(value: Any, path: str, normalize: Normalize) -> ForeignScalar:
    """Return what the log holds of a scalar."""
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
    """Make a scalar again."""
    _, *rest = parts
    return _OPEN[kind](*rest)


def _timestamp(number: int, unit: str, zone: str | list[Any] | None, fold: int = 0) -> Any:
    moment = pd.Timestamp(np.datetime64(number, unit))  # type: ignore[call-overload]
    if zone is not None:
        moment = moment.tz_localize("UTC").tz_convert(zone_of(zone))
    # In an hour that comes twice `fold` follows from the moment; at any other it is a mark of who made the value.
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
    """Return Python's counterpart of a scalar, None for what is missing; anything else as it is."""
    if value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime(warn=False)
    if isinstance(value, pd.Timedelta):
        return value.to_pytimedelta()
    if isinstance(value, np.datetime64 | np.timedelta64):
        unit = value.dtype.name.partition("[")[0]
        return value.astype(f"{unit}[us]").item()
    return str(value) if isinstance(value, pd.Period | pd.Interval) else value
