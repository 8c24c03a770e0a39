"""Recorded forms of values of pandas, polars, numpy and pyarrow (the forms in which a log stores them), and the
registry of functions that record such values.

The modules that import these libraries are imported lazily: where a value exists, its library is loaded already.
"""

from __future__ import annotations

import importlib
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from divebook.errors import UnopenableValueError, UnstorableValueError
from divebook.events.recorded import Normalize, Recorded
from divebook.libraries import install_command

LIBRARIES = frozenset({"numpy", "pandas", "polars", "pyarrow"})

# Function that records a value, by library and class; the module is one of this package.
_RECORDERS = {
    ("pandas", "DataFrame"): "frames.record_frame",
    ("pandas", "Series"): "frames.record_series",
    ("pandas", "Timestamp"): "frames.record_scalar",
    ("pandas", "Timedelta"): "frames.record_scalar",
    ("pandas", "Period"): "frames.record_scalar",
    ("pandas", "Interval"): "frames.record_scalar",
    ("pandas", "NaTType"): "frames.record_scalar",
    ("pandas", "NAType"): "frames.record_scalar",
    ("numpy", "datetime64"): "frames.record_scalar",
    ("numpy", "timedelta64"): "frames.record_scalar",
    ("numpy", "ndarray"): "frames.record_array",
    ("polars", "DataFrame"): "polars_frames.record_frame",
    ("polars", "Series"): "polars_frames.record_series",
    ("pyarrow", "Table"): "ipc.record_table",
}
_PYTHON_NUMBERS = "biufSU"
"""Kinds of numpy dtypes whose scalars are recorded as Python values: bool, integers, float, text and bytes."""


def record_foreign(value: Any, path: str, normalize: Normalize) -> Any:
    """Return the recorded form of a value whose class is in one of the `LIBRARIES`; None if that class cannot be
    recorded.

    Raises
    ------
    UnstorableValueError
        Something in it cannot be stored.
    """
    cls = type(value)
    library = cls.__module__.partition(".")[0]
    name = cls.__qualname__
    # "RangeIndex", "DatetimeIndex" ... are all recorded as "Index". The layout says which one it is.
    if library == "pandas" and name.endswith("Index"):
        name = "Index"
        recorder = "frames.record_index"
    else:
        recorder = _RECORDERS.get((library, name), "")
    if recorder:
        module, _, function = recorder.partition(".")
        return getattr(importlib.import_module(f"divebook.events.arrow.{module}"), function)(value, path, normalize)
    if library == "numpy" and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a dtype has no `item`
        return _python_number(value, path, normalize)
    return None


def _python_number(value: Any, path: str, normalize: Normalize) -> Recorded | None:
    """Convert a numpy scalar to the equal Python value and return its recorded form. Raise UnstorableValueError if
    Python has no equal value.
    """
    # `item` returns the scalar itself if Python has no such type, for example for a long double.
    plain = value.item()
    if value.dtype.kind not in _PYTHON_NUMBERS or type(plain) is type(value):
        raise UnstorableValueError(
            path, f"numpy.{value.dtype} has no counterpart in Python; use float(value) or str(value)"
        )
    recorded: Recorded | None = normalize(plain, path)
    return recorded


# --- recorded forms: a table, series, index or array, and a scalar of pandas or numpy ---


MOST_CELLS = 100_000
"""Maximum number of cells of a table that scripts get."""

_MODULES = {
    "pandas": "divebook.events.arrow.frames",
    "polars": "divebook.events.arrow.polars_frames",
    "numpy": "divebook.events.arrow.frames",
    "pyarrow": "divebook.events.arrow.ipc",
}
"""Module that opens the values of a library, by library. It has functions ``open_value(stored)`` and
``rows(value)``."""


class Arrow(Recorded):
    """Recorded form of a table, series, index or array, with its cells in an Arrow IPC stream.

    Parameters
    ----------
    kind
        Library and class, such as ``pandas.DataFrame``.
    shape
        Lengths, outermost first.
    layout
        Plain data that describe how the arrays of the stream form the value.
    content
        The Arrow IPC stream as bytes, or in base64 as in the log. The other one is computed on demand. The text is
        cached, since it is written, hashed and compared several times.
    """

    __slots__ = ("_stream", "_text", "kind", "layout", "shape")
    tag = "arrow"

    def __init__(self, kind: str, shape: Sequence[int], layout: Mapping[str, Any], content: str | bytes) -> None:
        self.kind = kind
        self.shape = tuple(shape)
        self.layout = layout
        self._text = content if isinstance(content, str) else None
        self._stream = content if isinstance(content, bytes) else None

    @property
    def content(self) -> str:
        """Arrow IPC stream in base64, as the log contains it."""
        # Cached for the next writer. The bytes stay as well if the value was recorded in this process.
        if self._text is None:
            self._text = b64encode(self.stream).decode("ascii")
        return self._text

    @property
    def stream(self) -> bytes:
        """Arrow IPC stream of the value as bytes. Do not write to these bytes: `open` may build the value on the same
        memory, without a copy.
        """
        return b64decode(self.content) if self._stream is None else self._stream

    def data(self) -> Any:
        """Return the recorded form as plain data: the `kind`, `shape` and `layout` of the value, and last its Arrow IPC
        stream in base64.
        """
        return {"kind": self.kind, "shape": list(self.shape), "layout": self.layout, "data": self.content}

    def to_python(self) -> Any:
        """Build the table, series, index or array from its recorded form."""
        return _open_checked(self.kind, lambda: _module_of(self.kind).open_value(self))

    def least_bytes(self) -> int:
        """Return a lower bound of the encoded size in bytes, without encoding the value. This is the length of the
        Arrow stream in base64 if that was computed before; otherwise it is the length of the stream as bytes.
        """
        return len(self._text or self._stream or "")

    def plain(self) -> Any:
        """Return the table as a list of records, or another value as a list. Raise ValueError if it has more cells than
        `MOST_CELLS`.
        """
        cells = math.prod(self.shape)
        if cells > MOST_CELLS:
            raise ValueError(
                f"is a {self.summary()}, but scripts take at most {MOST_CELLS:,} cells; pass it to an action, or "
                "reduce it in an earlier step"
            )
        return _module_of(self.kind).rows(self.to_python())

    def head(self, count: int) -> list[Any]:
        """Return the first `count` rows or values, in the same form as `plain` but for a value of any size."""
        return list(_module_of(self.kind).rows(self.to_python()[:count]))

    def summary(self) -> str:
        """Return the class and the shape of the value: ``DataFrame 1,000 x 3``."""
        lengths = " x ".join(f"{length:,}" for length in self.shape)
        return f"{self.kind.rpartition('.')[2]} {lengths}".rstrip()


class ForeignScalar(Recorded):
    """Recorded form of a scalar of pandas or numpy: a time, time span, period, interval or missing value.

    Parameters
    ----------
    kind
        Library and class, such as ``pandas.Timestamp``.
    parts
        Plain data, the readable text first.
    """

    __slots__ = ("kind", "parts_")
    tag = "scalar"

    def __init__(self, kind: str, parts: Sequence[Any]) -> None:
        self.kind = kind
        self.parts_ = list(parts)

    def data(self) -> Any:
        """Return the kind of the scalar (library and class) and the plain values from which it is built again."""
        return {"kind": self.kind, "parts": self.parts_}

    def to_python(self) -> Any:
        """Build the scalar of pandas or numpy from its recorded form."""
        return _open_checked(self.kind, lambda: _scalars(self.kind).open_scalar(self.kind, self.parts_))

    def plain(self) -> Any:
        """Return the Python counterpart of the scalar; None for a missing value."""
        return _scalars(self.kind).plain_scalar(self.to_python())

    def summary(self) -> str:
        """Return the scalar as readable text."""
        return str(self.parts_[0])


def _open_checked(kind: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    # Errors of the libraries for content that they did not write (tests/events/test_shapes.py).
    except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise UnopenableValueError(kind, f"its content differs from the recorded content: {error}") from error


def _module_of(kind: str) -> Any:
    return _loaded(kind, _MODULES[kind.partition(".")[0]])


def _scalars(kind: str) -> Any:
    return _loaded(kind, "divebook.events.arrow.frames")


def _loaded(kind: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = error.name or module
        raise UnopenableValueError(kind, f"{name} is not installed here; {install_command(name)}") from error
