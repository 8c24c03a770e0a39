"""numpy's arrays, flattened in C order."""

from __future__ import annotations

from typing import Any

import numpy as np

from divebook.errors import UnstorableValueError
from divebook.events.arrow.foreign import Arrow
from divebook.events.arrow.ipc import as_array, read_arrays, write_arrays
from divebook.events.recorded import Normalize, opened

_NUMBERS = "biuf"
_MOMENTS = "Mm"
_TEXTS = "US"


def record_array(array: np.ndarray[Any, Any], path: str, normalize: Normalize) -> Arrow:
    """Return what the log holds of an array."""
    flat = array.ravel()
    dtype = array.dtype
    layout: dict[str, Any] = {"dtype": dtype.str}
    if dtype.kind == "O":
        layout["objects"] = [normalize(cell, f"{path}[{place}]") for place, cell in enumerate(flat.tolist())]
        return Arrow("numpy.ndarray", array.shape, layout, write_arrays([]))
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


def open_value(stored: Arrow) -> Any:
    """Make an array again."""
    dtype = np.dtype(stored.layout["dtype"])
    if "objects" in stored.layout:
        return _objects(stored).reshape(stored.shape)
    values = read_arrays(stored.stream)[0].to_numpy(zero_copy_only=False, writable=True)
    if dtype.kind in _MOMENTS:
        return values.view(dtype).reshape(stored.shape)
    if dtype.kind == "c":
        values = values.view(np.result_type(values.dtype, np.complex64))
    return values.astype(dtype, copy=False).reshape(stored.shape)


def _objects(stored: Arrow) -> np.ndarray[Any, Any]:
    cells = stored.layout["objects"]
    values = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        values[place] = opened(cell)
    return values


def rows(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as nested lists."""
    if array.dtype.kind in _MOMENTS:
        unit = array.dtype.name.partition("[")[0]
        array = array.astype(f"{unit}[us]")
    return array.tolist()
