"""A state as bytes and back: a cached fold, so that a long log need not be read from its beginning.

What the fields of a state hold, their types say. Nothing depends on a checkpoint: one of another version is ignored,
and deleting all of them changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from immutables import Map

from divebook.bounds import Bounds
from divebook.engine.state import ExecutionState, Snapshot
from divebook.errors import UnstorableValueError
from divebook.events.codec import decode, encode_parts

VERSION = 3
MOST_BYTES = 8 * 1024 * 1024
"""Of a checkpoint: what it holds is not shared with the log, so that large values would be written once more."""


def dump_state(state: ExecutionState) -> bytes | None:
    """Return a state as bytes; None where frames or texts make it so large that folding the log is no slower."""
    try:
        dumped = encode_parts({"version": VERSION, "state": state}, _plain)
    except UnstorableValueError:  # beyond what one event may hold
        return None
    return dumped if len(dumped) <= MOST_BYTES else None


def load_state(raw: bytes) -> ExecutionState | None:
    """Return the state that `dump_state` wrote, or None if another version of divebook did."""
    data = decode(raw)
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return None
    try:
        return _reader(ExecutionState)(data["state"])  # type: ignore[misc,no-any-return]  # it has one
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _plain(part: Any) -> Any:
    """Return a part of the state in plain form, its own parts left as they are; any other value as it is."""
    if isinstance(part, Map):
        return list(part.items())
    if isinstance(part, Bounds):
        return part.to_dict()
    return _differing(part) if isinstance(part, Snapshot) or hasattr(part, "_fields") else part


def _differing(record: Any) -> dict[str, Any]:
    """Return a record as a dict of what differs from its defaults."""
    return {
        name: value
        for name, default in _defaults(type(record))
        if (value := getattr(record, name)) is not default and value != default
    }


_DEFAULTS: dict[Any, tuple[tuple[str, Any], ...]] = {}


def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a dataclass or named tuple with their defaults, `MISSING` where there is none."""
    if kind not in _DEFAULTS:
        known = {entry.name: entry.default for entry in fields(kind)} if is_dataclass(kind) else kind._field_defaults
        names = known if is_dataclass(kind) else kind._fields
        _DEFAULTS[kind] = tuple((name, known.get(name, MISSING)) for name in names)
    return _DEFAULTS[kind]


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """Return what makes a value of a type from its plain form; None where that is the value itself."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        inner = _reader(arguments[0])
        return inner and (lambda value: None if value is None else inner(value))
    if origin is tuple:
        return tuple
    if origin in (Map, Mapping):
        return functools.partial(_map, read=_reader(arguments[1]))
    if kind is Bounds:
        return Bounds.from_dict
    if isinstance(kind, type) and (issubclass(kind, Snapshot) or hasattr(kind, "_fields")):
        return functools.partial(_record, kind, {name: _reader(each) for name, each in get_type_hints(kind).items()})
    return None


def _map(pairs: Any, read: Callable[[Any], Any] | None) -> Any:
    if not isinstance(pairs, list):  # inputs and outputs are plain dicts
        return pairs
    return Map({key: item if read is None else read(item) for key, item in pairs})


def _record(kind: Any, readers: Mapping[str, Callable[[Any], Any] | None], data: Mapping[str, Any]) -> Any:
    return kind(**{name: value if (read := readers[name]) is None else read(value) for name, value in data.items()})
