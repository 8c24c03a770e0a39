"""What every definition dataclass can do: become plain JSON and come back unchanged.

A field that holds other records names their class with `one` or `many`; everything else is plain JSON already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, ClassVar, Self, TypeAlias

from divebook.errors import DefinitionError, Problem, UnstorableValueError
from divebook.events.values import normalize

Reader: TypeAlias = Callable[[Any], Any]

_ATOMS = frozenset({str, int, float, bool, type(None)})


def one(record: type[Record]) -> Any:
    """Declare a field that holds a `record` or None."""
    return field(default=None, metadata={"record": record})


def many(record: type[Record]) -> Any:
    """Declare a field that holds a tuple of `record`."""
    return field(default=(), metadata={"record": record})


def json_value(value: Any, name: str) -> Any:
    """Return `value` as plain JSON; raises `DefinitionError` with the path to the first part that is not."""
    if not value and type(value) is dict:
        return {}
    try:
        return json.loads(json.dumps(normalize(value, name), allow_nan=False))
    except (UnstorableValueError, TypeError, ValueError, RecursionError) as error:
        raise DefinitionError([Problem(f"{error}", key=name, hint="definitions hold JSON values only")]) from error


def require_text(value: Any, what: str, hint: str) -> None:
    """Raise `DefinitionError` unless `value` is a text."""
    if not isinstance(value, str):
        raise DefinitionError([Problem(f"{what} must be a text, got {value!r}", hint=hint)])


def plain(value: Any) -> Any:
    """Return `value` with records as dicts and tuples as lists."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


class Record:
    """Base of the definition dataclasses."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON from which `from_dict` makes an equal record; fields at their default are left out."""
        stored = {}
        for name, default, keeps_equals in _defaults(type(self)):
            value = getattr(self, name)
            if value is default or (not keeps_equals and type(value) is type(default) and value == default):
                continue
            stored[name] = plain(value)
        return stored

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make a record of what `to_dict` returned; an unknown key is a `DefinitionError`."""
        return cls(**arguments(cls, data))


def _is_stored(entry: Field[Any]) -> bool:
    return entry.init and not entry.metadata.get("transient")


_STORED: dict[type[Record], dict[str, Field[Any]]] = {}
_DEFAULTS: dict[type[Record], tuple[tuple[str, Any, bool], ...]] = {}
_READERS: dict[type[Record], dict[str, Reader | None]] = {}


def _stored_fields(cls: type[Record]) -> dict[str, Field[Any]]:
    if cls not in _STORED:
        _STORED[cls] = {entry.name: entry for entry in fields(cls) if _is_stored(entry)}
    return _STORED[cls]


def _defaults(cls: type[Record]) -> tuple[tuple[str, Any, bool], ...]:
    """Return name and default of the stored fields, and whether a value that only equals the default is stored."""
    if cls not in _DEFAULTS:
        _DEFAULTS[cls] = tuple(
            (name, _default(entry), bool(entry.metadata.get("always"))) for name, entry in _stored_fields(cls).items()
        )
    return _DEFAULTS[cls]


def _default(entry: Field[Any]) -> Any:
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default


def arguments(cls: type[Record], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored fields of `cls` as its constructor takes them."""
    readers = _readers(cls)
    if not data.keys() <= readers.keys():
        unknown = next(key for key in data if key not in readers)
        raise DefinitionError(
            [Problem(f"stored {cls.__name__} has the unknown field {unknown!r}: a newer divebook wrote it")],
            "<stored definition>",
        )
    return {key: value if (read := readers[key]) is None else read(value) for key, value in data.items()}


def _readers(cls: type[Record]) -> dict[str, Reader | None]:
    """Return for each stored field what brings its plain form back; None where that is the value itself."""
    if cls not in _READERS:
        _READERS[cls] = {name: _reader(entry) for name, entry in _stored_fields(cls).items()}
    return _READERS[cls]


def _reader(entry: Field[Any]) -> Reader | None:
    record: type[Record] | None = entry.metadata.get("record")
    if record is None:
        return _as_tuple if entry.metadata.get("tuple") or isinstance(entry.default, tuple) else None

    def read(value: Any) -> Any:
        if isinstance(value, list):
            return tuple([record.from_dict(item) for item in value])
        return None if value is None else record.from_dict(value)

    return read


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
