"""Which values of which library can be recorded, and by what: each library is loaded already where its value is."""

from __future__ import annotations

import importlib
from typing import Any

from divebook.errors import UnstorableValueError
from divebook.events.recorded import Normalize, Recorded

LIBRARIES = frozenset({"numpy", "pandas", "polars", "pyarrow"})

_RECORDERS = {
    ("pandas", "DataFrame"): "frames.record_frame",
    ("pandas", "Series"): "frames.record_series",
    ("pandas", "Timestamp"): "scalars.record_scalar",
    ("pandas", "Timedelta"): "scalars.record_scalar",
    ("pandas", "Period"): "scalars.record_scalar",
    ("pandas", "Interval"): "scalars.record_scalar",
    ("pandas", "NaTType"): "scalars.record_scalar",
    ("pandas", "NAType"): "scalars.record_scalar",
    ("numpy", "datetime64"): "scalars.record_scalar",
    ("numpy", "timedelta64"): "scalars.record_scalar",
    ("numpy", "ndarray"): "arrays.record_array",
    ("polars", "DataFrame"): "polars_frames.record_frame",
    ("polars", "Series"): "polars_frames.record_series",
    ("pyarrow", "Table"): "ipc.record_table",
}
_PYTHON_NUMBERS = "biufSU"
"""Kinds of numpy's scalars that become Python's."""


def record_foreign(value: Any, path: str, normalize: Normalize) -> Any:
    """Return what the log holds of a value of one of the `LIBRARIES`; None if it cannot be recorded.

    Raises
    ------
    UnstorableValueError
        Something in it cannot be stored.
    """
    cls = type(value)
    library = cls.__module__.partition(".")[0]
    name = cls.__qualname__
    if library == "pandas" and name.endswith("Index"):
        name, recorder = "Index", "frames.record_index"
    else:
        recorder = _RECORDERS.get((library, name), "")
    if recorder:
        module, _, function = recorder.partition(".")
        return getattr(importlib.import_module(f"divebook.events.arrow.{module}"), function)(value, path, normalize)
    if library == "numpy" and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a dtype has no item
        return _python_number(value, path, normalize)
    return None


def _python_number(value: Any, path: str, normalize: Normalize) -> Recorded | None:
    """Return a scalar of numpy as Python's own, where that is the same."""
    plain = value.item()
    if value.dtype.kind not in _PYTHON_NUMBERS or type(plain) is type(value):
        raise UnstorableValueError(path, f"numpy.{value.dtype} has no counterpart in Python; use float(value) or text")
    recorded: Recorded | None = normalize(plain, path)
    return recorded
