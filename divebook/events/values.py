"""What a log can hold: plain data, and how the few values JSON lacks are written.

`normalize` is called once, when a value is recorded: it copies the value into plain lists and dicts, so that what runs
on is exactly what a later reader will find, and raises with the path to the first thing that cannot be stored. JSON
lacks infinities, integers beyond 64 bits, bytes, dates and decimals; they travel as ``{"$type": ..., "value": ...}``.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from divebook.errors import UnstorableValueError

MAX_DEPTH = 200
TAG = "$type"
_ATOMS = frozenset({str, bool, type(None)})
_SCALARS = (datetime, date, time, timedelta, Decimal, bytes)
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1


class BigInt(int):
    """An integer that JSON readers would round; written as text."""


class NonFinite(float):
    """A float that JSON has no word for: nan, inf, -inf."""


class TaggedDict(dict[str, Any]):
    """A dict with a key that looks like our own tag."""


def normalize(value: Any, path: str = "value") -> Any:
    """Return `value` as plain data that the log holds exactly.

    Parameters
    ----------
    value
        JSON-like data; tuples become lists, numpy scalars become Python numbers. Dates, times, decimals and bytes stay.
    path
        Name of the value, for the error.

    Raises
    ------
    UnstorableValueError
        With the path to the offending part.
    """
    return _normalize(value, path, 0)


def _normalize(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        return value if _INT64_MIN <= value <= _UINT64_MAX else BigInt(value)
    if kind is float:
        return value if math.isfinite(value) else NonFinite(value)
    if depth >= MAX_DEPTH:
        raise UnstorableValueError(path, f"nested deeper than {MAX_DEPTH} levels; is it part of itself?")
    if kind is dict or isinstance(value, Mapping):
        return _normalize_mapping(value, path, depth)
    if kind is list or kind is tuple:
        return [_normalize(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    return _normalize_other(value, path, depth)


def _normalize_mapping(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        if type(key) is not str:
            raise UnstorableValueError(f"{path}[{key!r}]", f"keys must be text, not {type(key).__name__}; use str(key)")
        plain[key] = _normalize(item, f"{path}.{key}", depth + 1)
    return TaggedDict(plain) if TAG in plain else plain


def _normalize_other(value: Any, path: str, depth: int) -> Any:
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | int | float):
        return _normalize(float(value) if isinstance(value, float) else int(value), path, depth)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return _normalize(value.item(), path, depth)
    raise UnstorableValueError(path, f"{_kind(value)} is not plain data; {_advice(value)}")


def _kind(value: Any) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _advice(value: Any) -> str:
    if isinstance(value, set | frozenset):
        return "use sorted(value) to make a list"
    if hasattr(value, "model_dump"):
        return "use value.model_dump()"
    if hasattr(value, "__dataclass_fields__"):
        return "use dataclasses.asdict(value)"
    if hasattr(value, "to_dict"):
        return "use value.to_dict('records') or another plain form"
    if hasattr(value, "__fspath__"):
        return "use str(value)"
    if hasattr(value, "__next__"):
        return "use list(value)"
    return "return text, numbers, lists, dicts, dates or bytes"


_ENCODERS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (BigInt, "int", int.__repr__),
    (NonFinite, "float", float.__repr__),
    (TaggedDict, "dict", lambda value: [[key, item] for key, item in value.items()]),
    (bytes, "bytes", lambda value: base64.b64encode(value).decode()),
    (datetime, "datetime", datetime.isoformat),
    (date, "date", date.isoformat),
    (time, "time", time.isoformat),
    (timedelta, "timedelta", lambda value: value // timedelta(microseconds=1)),
    (Decimal, "decimal", str),
)

_DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": BigInt,
    "float": NonFinite,
    "dict": lambda pairs: TaggedDict((key, untag(item)) for key, item in pairs),
    "bytes": base64.b64decode,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda microseconds: timedelta(microseconds=microseconds),
    "decimal": Decimal,
}


def tag(value: Any) -> dict[str, Any]:
    """Return the tagged form of a value that JSON lacks; meant as an encoder's hook for unknown types."""
    for cls, name, encode in _ENCODERS:
        if isinstance(value, cls):
            return {TAG: name, "value": encode(value)}
    raise TypeError(f"{_kind(value)} was not normalized before it was written")


def untag(value: Any) -> Any:
    """Undo `tag` everywhere inside decoded JSON."""
    if isinstance(value, list):
        return [untag(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = value.get(TAG)
    if name is None:
        return {key: untag(item) for key, item in value.items()}
    if name not in _DECODERS:
        raise ValueError(f"values of type {name!r} are not known to this version of divebook")
    return _DECODERS[name](value["value"])
