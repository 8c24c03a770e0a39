"""A state as bytes and back: a cached fold, so that a long log need not be read from its beginning.

Nothing depends on a checkpoint. One of another version is ignored, and deleting all of them changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from immutables import Map

from divebook.bounds import Bounds
from divebook.engine.ledger import Hop, Ledger
from divebook.engine.operations import Reserved
from divebook.engine.state import ExecutionState, OpenStep, OperationRecord, PathState, Snapshot, Usage
from divebook.errors import UnstorableValueError
from divebook.events.codec import decode, encode_parts
from divebook.questions import Question

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
        return _execution(data["state"])
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


def _map(pairs: list[list[Any]], read: Any = None) -> Map[Any, Any]:
    return Map({key: item if read is None else read(item) for key, item in pairs})


def _with(data: Mapping[str, Any], **readers: Any) -> dict[str, Any]:
    """Return the data with the named fields turned back into what they were."""
    return {name: readers[name](value) if name in readers else value for name, value in data.items()}


def _execution(data: Mapping[str, Any]) -> ExecutionState:
    return ExecutionState(
        **_with(
            data,
            inputs=_values,
            outputs=_values,
            variables=_map,
            paths=lambda pairs: _map(pairs, _path),
            usage=lambda fields: Usage(**fields),
            interrupts=lambda pairs: _map(pairs, lambda fields: Question(**_with(fields, waiting=tuple))),
            bounds=Bounds.from_dict,
            ledger=_ledger,
            identity=_values,
            stopped=tuple,
            signals=lambda pairs: _map(pairs, tuple),
        )
    )


def _values(value: Any) -> Any:
    """Return inputs or outputs, which are a plain dict where there are any."""
    return _map(value) if isinstance(value, list) else value


def _path(data: Mapping[str, Any]) -> PathState:
    maps = dict.fromkeys(("step_outputs", "visits", "variables", "before"), _map)
    return PathState(**_with(data, **maps, open=_open, routing=tuple, repeats=lambda pairs: _map(pairs, tuple)))


def _ledger(data: Mapping[str, Any]) -> Ledger:
    return Ledger(
        **_with(
            data,
            edges=_map,
            children=_map,
            history=lambda pairs: _map(pairs, lambda fields: Hop(**fields)),
            errors=_map,
        )
    )


def _operation(data: Mapping[str, Any]) -> OperationRecord:
    return OperationRecord(**_with(data, error_names=tuple, reserved=lambda fields: Reserved(**fields)))


def _open(data: Mapping[str, Any] | None) -> OpenStep | None:
    if data is None:
        return None
    return OpenStep(
        **_with(
            data,
            entry_variables=_map,
            operations=lambda pairs: _map(pairs, _operation),
            iterations=_map,
            usage=lambda fields: Usage(**fields),
            failures=lambda pairs: _map(pairs, tuple),
        )
    )
