"""What a log can hold: plain data, and how the values that JSON lacks are written.

`normalize` is called once, when a value is recorded: it copies the value into plain lists and dicts, so that what runs
on is exactly what a later reader will find, and raises with the path to the first thing that cannot be stored. JSON
lacks infinities, integers beyond 64 bits, bytes, dates and decimals; they travel as ``{"$type": ..., "value": ...}``,
and so do the values of `divebook.events.classes` and `divebook.events.arrow`, as `Recorded`.
"""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from divebook.errors import UnstorableValueError
from divebook.events.arrow import LIBRARIES, Arrow, ForeignScalar, record_foreign
from divebook.events.bulk import MANY, collector_resting
from divebook.events.by_hash import ByHash
from divebook.events.classes import Instance, Member, record_instance
from divebook.events.recorded import CONTAINERS, TAG, BigInt, Container, NonFinite, Recorded, TaggedDict
from divebook.events.stored_file import StoredFile

T = TypeVar("T")

MAX_DEPTH = 200
INSTANCE_DEPTH = 2
"""Levels that an instance counts for, since that many more calls make it again."""
MAX_DIGITS = 4300
"""Digits of an integer that Python reads and writes."""
_ATOMS = frozenset({str, bool, type(None)})
_SCALARS = (datetime, date, time, timedelta, Decimal, bytes)
_EXACT = frozenset({date, timedelta, Decimal, bytes})
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1


_Place: TypeAlias = "str | tuple[_Place, str | int]"
"""The path of a value: text, or that of what holds it and its key there; it is written out only in errors."""


def normalize(value: Any, path: str = "value", known: Collection[int] = ()) -> Any:
    """Return `value` as plain data that the log holds exactly.

    Parameters
    ----------
    value
        JSON-like data; tuples become lists, numpy scalars become Python numbers. Dates, times, decimals and bytes stay;
        frames, arrays and instances of allowed classes become `Recorded`.
    path
        Name of the value, for the error.
    known
        The ``id`` of values that the log has already, since variables were taken whole: they stay as they are, where
        they are the value itself or stand in it under keys.

    Raises
    ------
    UnstorableValueError
        With the path to the offending part.
    """
    if known and id(value) in known:
        return value
    if known and type(value) is dict and TAG not in value and all(type(key) is str for key in value):
        return {key: normalize(item, f"{path}.{key}", known) for key, item in value.items()}
    try:
        return _normalize(value, path, 0)
    except RecursionError:
        raise UnstorableValueError(path, "nested too deeply; is it part of itself?") from None


def _written(place: _Place) -> str:
    if isinstance(place, str):
        return place
    holder, key = place
    return f"{_written(holder)}.{key}" if isinstance(key, str) else f"{_written(holder)}[{key}]"


def _normalize(value: Any, path: _Place, depth: int) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        return value if _INT64_MIN <= value <= _UINT64_MAX else _big(value, _written(path))
    if kind is float:
        return value if math.isfinite(value) else NonFinite(value)
    if depth >= MAX_DEPTH:
        raise UnstorableValueError(_written(path), f"nested deeper than {MAX_DEPTH} levels; is it part of itself?")
    if kind is dict or isinstance(value, Mapping):
        return _normalize_mapping(value, path, depth)
    if kind is list or kind is tuple:
        if len(value) < MANY:
            return _normalize_items(value, path, depth)
        with collector_resting():
            return _normalize_items(value, path, depth)
    return _normalize_other(value, _written(path), depth)


def _normalize_items(value: Sequence[Any], path: _Place, depth: int) -> list[Any]:
    return [
        item if type(item) in _ATOMS else _normalize(item, (path, index), depth + 1) for index, item in enumerate(value)
    ]


def _big(value: int, path: str) -> BigInt:
    if value.bit_length() > MAX_DIGITS * 3.32:  # log2(10), rounded down
        raise UnstorableValueError(path, f"an integer of more than {MAX_DIGITS} digits; store it as bytes or a float")
    return BigInt(value)


def _normalize_mapping(value: Mapping[Any, Any], path: _Place, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        if type(key) is not str:
            where = f"{_written(path)}[{key!r}]"
            raise UnstorableValueError(where, f"keys must be text, not {type(key).__name__}; use str(key)")
        plain[key] = item if type(item) in _ATOMS else _normalize(item, (path, key), depth + 1)
    return TaggedDict(plain) if TAG in plain else plain


def _normalize_other(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind in _EXACT or isinstance(value, Recorded):
        return value
    if kind.__module__.partition(".")[0] in LIBRARIES:
        return _normalize_foreign(value, path, depth)
    recorded = record_instance(value, path, lambda field, where: _normalize_field(field, where, depth + INSTANCE_DEPTH))
    if recorded is not None:
        return recorded
    if isinstance(value, _SCALARS):
        return _scalar(value, path)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return _normalize(float(value) if isinstance(value, float) else int(value), path, depth)
    raise UnstorableValueError(path, f"{_kind(value)} is not plain data; {_advice(value)}")


def _normalize_foreign(value: Any, path: str, depth: int) -> Any:
    recorded = record_foreign(value, path, lambda part, where: _normalize(part, where, depth + 1))
    if recorded is None:
        raise UnstorableValueError(path, f"{_kind(value)} is not plain data; {_advice(value)}")
    return recorded


def _scalar(value: Any, path: str) -> Any:
    """Return a date, time, decimal or bytes as it would come back: of the plain class, at a fixed offset from UTC."""
    if type(value) is datetime and not value.fold and (value.tzinfo is None or value.tzinfo is UTC):
        return value
    tagged = tag(value)
    back = _DECODERS[tagged[TAG]](tagged["value"])
    if isinstance(value, datetime | time) and value.tzinfo is not None and back.tzinfo is None:
        raise UnstorableValueError(path, f"{value!r} has a time zone but no offset; give it a date, or a fixed offset")
    return back


def _normalize_field(value: Any, path: str, depth: int) -> Any:
    """Return the field of a class as it is recorded: its tuples, sets and keys stay, as those of plain data do not."""
    kind = type(value)
    if depth >= MAX_DEPTH:
        raise UnstorableValueError(path, f"nested deeper than {MAX_DEPTH} levels; is it part of itself?")
    if kind is list or kind is tuple:
        items = [_normalize_field(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        return items if kind is list else Container("tuple", items)
    if kind is set or kind is frozenset:
        return Container(kind.__name__, _in_order([_normalize_field(item, path, depth + 1) for item in value]))
    if kind is not dict:
        return _normalize(value, path, depth)
    if all(type(key) is str for key in value):
        fields = {key: _normalize_field(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
        return TaggedDict(fields) if TAG in fields else fields
    pairs = ((key, item, f"{path}[{key!r}]") for key, item in value.items())
    return Container(
        "map",
        [
            Container("tuple", [_normalize_field(key, where, depth + 1), _normalize_field(item, where, depth + 1)])
            for key, item, where in pairs
        ],
    )


def _in_order(items: list[Any]) -> list[Any]:
    return sorted(items, key=lambda item: (type(item).__name__, repr(item)))


def _kind(value: Any) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _advice(value: Any) -> str:
    if isinstance(value, set | frozenset):
        return "use sorted(value) to make a list"
    if hasattr(value, "to_dict"):
        return "use value.to_dict('records') or another plain form"
    if hasattr(value, "collect"):
        return "use value.collect()"
    if hasattr(value, "__fspath__"):
        return "use str(value)"
    if hasattr(value, "__next__"):
        return "use list(value)"
    if hasattr(value, "tolist"):
        return "use value.tolist()"
    return "return text, numbers, lists, dicts, dates, bytes, frames, or instances of classes given to divebook.allow"


_ENCODERS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (BigInt, "int", int.__repr__),
    (NonFinite, "float", float.__repr__),
    (TaggedDict, "dict", lambda value: [[key, item] for key, item in value.items()]),
    (bytes, "bytes", lambda value: base64.b64encode(value).decode()),
    (datetime, "datetime", datetime.isoformat),
    (date, "date", date.isoformat),
    (time, "time", time.isoformat),
    (timedelta, "timedelta", lambda value: _normalize(value // timedelta(microseconds=1), "timedelta", 0)),
    (Decimal, "decimal", Decimal.__str__),
)


def _as(kind: type[T], value: Any) -> T:
    """Return a part of a recorded value, once it is sure what it is."""
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _container(name: str) -> Callable[[Any], Container]:
    if name != "map":
        return lambda items: Container(name, untag(_as(list, items)))
    return lambda items: Container(name, [_pair(untag(pair)) for pair in _as(list, items)])


def _pair(pair: Any) -> Container:
    """Return the entry of a mapping: a tuple of two."""
    key, value = _as(Container, pair).items
    return Container("tuple", [key, value])


def _instance(name: str, value: Mapping[str, Any]) -> Instance:
    fields, extra = untag(_as(dict, value["fields"])), value.get("extra")
    unset = [_as(str, field) for field in _as(list, value.get("unset", []))]
    more = None if extra is None else untag(_as(dict, extra))
    return Instance(name, _as(str, value["class"]), fields, unset, more)


def _member(value: Mapping[str, Any]) -> Member:
    return Member(_as(str, value["class"]), _as(str, value["name"]), untag(value["value"]))


def _arrow(value: Mapping[str, Any]) -> Arrow:
    shape = [_as(int, length) for length in _as(list, value["shape"])]
    return Arrow(_kind_of_library(value["kind"]), shape, untag(_as(dict, value["layout"])), _as(str, value["data"]))


def _foreign(value: Mapping[str, Any]) -> ForeignScalar:
    parts = untag(_as(list, value["parts"]))
    if not parts:
        raise ValueError("its parts are missing")
    return ForeignScalar(_kind_of_library(value["kind"]), parts)


def _kind_of_library(kind: Any) -> str:
    if _as(str, kind).partition(".")[0] not in LIBRARIES:
        raise ValueError(f"{kind!r} is of no library that is known here")
    return str(kind)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: BigInt(_as(str, text)),
    "float": lambda text: NonFinite(_as(str, text)),
    "dict": lambda pairs: TaggedDict((_as(str, key), untag(item)) for key, item in pairs),
    "bytes": base64.b64decode,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda microseconds: timedelta(microseconds=untag(microseconds)),
    "decimal": lambda text: Decimal(_as(str, text)),
    "dataclass": functools.partial(_instance, "dataclass"),
    "model": functools.partial(_instance, "model"),
    "enum": _member,
    "arrow": _arrow,
    "scalar": _foreign,
    ByHash.tag: lambda value: ByHash(untag(value)),
    StoredFile.tag: lambda value: StoredFile(*_as(list, value)),
    **{name: _container(name) for name in CONTAINERS},
}


def tag(value: Any) -> dict[str, Any]:
    """Return the tagged form of a value that JSON lacks; meant as an encoder's hook for unknown types."""
    if isinstance(value, Recorded):
        return {TAG: value.tag, "value": value.data()}
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
    if not isinstance(name, str) or name not in _DECODERS:
        raise ValueError(f"values of type {name!r} are not known to this version of divebook")
    try:
        return _DECODERS[name](value["value"])
    # What its decoder raises for content that nobody wrote so; a number that is none is an ArithmeticError.
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"a value of type {name!r} is not as it is written: {type(error).__name__}: {error}"
        ) from error
