"""Conversion of execution states to bytes and back. A state as bytes is a checkpoint: with it, readers need not fold a
long log from its beginning.

A checkpoint is a cache. One of another version, or one that does not fit its log, is ignored; deleting all checkpoints
changes nothing. Large values are in the log already, so a checkpoint refers to the events that hold them and copies
only small values. Example: the variables ``{"n": 1, "text": "..."}``, where event 7 set the long text, become
``[[["n", 1]], [["text", 7]]]``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from divebook.engine.maps import Map
from divebook.engine.state import ExecutionState, OpenStep, OperationRecord, PathState, is_large
from divebook.errors import UNFIT
from divebook.events.catalog import COMPLETED, Payload
from divebook.events.codec import decode, encode_parts
from divebook.questions.bounds import Bounds

# --- states as bytes -------------------------------------------------------------------------------------------------
#
# A checkpoint is JSON with the fields that differ from their defaults. Example: an execution has the variables {"n": 2,
# "text": "<long>"}, and event 7 set the text. Its open step began with {"n": 1, "text": "<long>"}.
#
#     {"version": 10,
#      "facts": [7],                                             events to read, for large values
#      "state": {"variables": [[["n", 2]], [["text", 7]]],       small values, then places of large ones
#                "paths": [{"open": {"entry_variables": 1}}]},   snapshot 1
#      "differences": [{"new": [], "old": [[["n", 1]], []]}]}    snapshot 1: the present variables, except n = 1
#
# Other fields are left out here. Snapshot 0 stands for the present variables. Many paths that began with the same
# variables share one snapshot.


# Raised with every change of the written form, or of the meaning of a field. Checkpoints have no upcast: a state of
# another version is folded from its log again.
VERSION = 10
BEGINNING = 1
"""Event that holds the inputs, except those that a fork changed."""

Facts: TypeAlias = Callable[[Sequence[int]], Mapping[int, Payload]]
"""Function that returns the payloads of some events by sequence number."""

ValueIn: TypeAlias = Callable[[Any, Any], Any]
"""Function that returns the value of a key in an event."""

T = TypeVar("T")
_ABSENT = object()
_SHORT = OperationRecord._fields.index("result") + 1
"""Number of fields of an operation that are written if the others have their defaults, as they nearly always do."""
_REST = tuple(OperationRecord._field_defaults[name] for name in OperationRecord._fields[_SHORT:])


def dump_state(state: ExecutionState) -> bytes:
    """Return the state of an execution as bytes, for a checkpoint."""
    return encode_parts(_Writer(state).written(), _plain)


def load_state(raw: bytes, facts: Facts) -> ExecutionState | None:
    """Return the state that `dump_state` wrote, or None if the bytes have another version or do not fit the log.

    Parameters
    ----------
    facts
        Called once for all events that hold large values.
    """
    try:
        data = decode(raw)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            return None
        # One read of the log for all events that hold large values.
        return _Loading(data, facts(data["facts"])).state()
    except UNFIT:
        return None


class _Writer:
    """Converter of an execution's state to plain data, from which a checkpoint is made."""

    def __init__(self, state: ExecutionState) -> None:
        self._state = state
        self._facts: set[int] = set()
        self._snapshots: dict[int, int] = {id(state.variables): 0}
        """Numbers of the sets of variables by identity (`id`). Most paths share their set with others."""
        self._differences: list[dict[str, Any]] = []
        """Differences between the present variables and the snapshots with the numbers 1, 2 ..."""

    def written(self) -> dict[str, Any]:
        """Return the state as a dict for the checkpoint. Its values are plain, or named tuples that `_plain` converts
        when the dict is encoded.
        """
        state = self._state
        # Places of large values (`variables_at` and others) are written together with the values that they belong to.
        fields = _differing(self._state, "variables_at")
        # The last event of a completed execution holds its outputs, unless annotations follow it.
        end_event = (
            state.last_sequence if state.lifecycle == COMPLETED and state.annotated_at < state.last_sequence else 0
        )
        for name, place in (("inputs", BEGINNING), ("outputs", end_event)):
            if name in fields:
                # Event 1 does not have the inputs that a fork changed. These are copied, however large they are.
                inside = state.edited_inputs if name == "inputs" else ()
                large = [key for key, value in fields[name].items() if place and key not in inside and is_large(value)]
                fields[name] = self._values(fields[name], dict.fromkeys(large, place))
        fields["variables"] = self._values(state.variables, state.variables_at)
        fields["paths"] = [self._path(path) for path in state.paths.values()]
        return {
            "version": VERSION,
            "facts": sorted(self._facts),
            "state": fields,
            "differences": self._differences,
        }

    def _values(self, values: Mapping[Any, Any], places: Mapping[Any, int]) -> list[Any]:
        """Split a mapping into two lists: pairs of key and small value, and pairs of key and event number. The event
        with this number holds the value of the key, which is too large for the checkpoint.
        """
        if not places:
            return [list(values.items()), []]
        # `places` may have keys that `values` lacks, as in the differences of a snapshot.
        outside = [(key, places[key]) for key in values if key in places]
        self._facts.update(place for _, place in outside)
        return [[pair for pair in values.items() if pair[0] not in places], outside]

    def _path(self, path: PathState) -> dict[str, Any]:
        written = _differing(path, "outputs_at", "variables_at")
        if path.step_outputs:
            written["step_outputs"] = self._values(path.step_outputs, path.outputs_at)
        if path.variables:
            written["variables"] = self._snapshot(path.variables, path.variables_at)
        if path.open is not None:
            written["open"] = self._open(path.open)
        return written

    def _open(self, open_step: OpenStep) -> dict[str, Any]:
        written = _differing(open_step, "entry_at", "iterations_at")
        written["entry_variables"] = self._snapshot(open_step.entry_variables, open_step.entry_at)
        if open_step.iterations:
            written["iterations"] = self._values(open_step.iterations, open_step.iterations_at)
        if open_step.operations:
            written["operations"] = self._operations(open_step.operations)
        return written

    def _operations(self, operations: Map[str, OperationRecord]) -> list[Any]:
        """Split the records of operations into two lists: complete records, and records without their result. A large
        result is left out, and is read later from the event with which the operation ended.
        """
        inside = []
        outside = []
        for record in operations.values():
            row = record[:_SHORT] if record[_SHORT:] == _REST else tuple(record)
            # A result that the change of a fork set has no event of an end (`ended_sequence` 0), so it is copied.
            if record.ended_sequence and is_large(record.result):
                # Field `_SHORT - 1` is the result. None takes its place until the log is read.
                outside.append((*row[: _SHORT - 1], None, *row[_SHORT:]))
                self._facts.add(record.ended_sequence)
            else:
                inside.append(row)
        return [inside, outside]

    def _snapshot(self, variables: Map[str, Any], places: Map[str, int]) -> int:
        """Return the number that a set of variables has in the checkpoint. If the set is not in the checkpoint yet, add
        its differences from the present variables of the execution under a new number.
        """
        number = self._snapshots.get(id(variables))
        if number is None:
            number = len(self._snapshots)
            self._snapshots[id(variables)] = number
            now = self._state.variables
            # Compared by identity. A value that is equal but another object is written as a difference, which only
            # costs space.
            old = {key: value for key, value in variables.items() if now.get(key, _ABSENT) is not value}
            new = [key for key in now if key not in variables]
            self._differences.append({"new": new, "old": self._values(old, places)})
        return number


class _Loading:
    """Converter of a checkpoint's plain data to an execution's state. Large values are not in the checkpoint: they are
    read from the log.
    """

    def __init__(self, data: Mapping[str, Any], facts: Mapping[int, Payload]) -> None:
        self._fields = dict(data["state"])
        self._facts = facts
        self._snapshots = [self._values(self._fields["variables"], _variable)]
        self._snapshots += [self._snapshot(difference) for difference in data["differences"]]

    def state(self) -> ExecutionState:
        """Return the execution's state that the plain data of the checkpoint describes."""
        data = self._fields
        paths = [self._path(path) for path in data["paths"]]
        data["variables"], data["variables_at"] = self._snapshots[0]
        data["paths"] = Map({path.id: path for path in paths})
        # Both are plain dicts in a state, and their places are not part of it.
        for name in data.keys() & {"inputs", "outputs"}:
            values, _ = self._values(data[name], _entry_of(name))
            data[name] = dict(values)
        return _record_of(ExecutionState, data)

    def _values(self, written: Sequence[Any], value_in: ValueIn) -> tuple[Map[Any, Any], Map[Any, int]]:
        """Rebuild a mapping that `_Writer._values` has split, by reading its large values from their events. Return the
        mapping and the numbers of these events.
        """
        inside, outside = written
        places = dict(outside)
        values = dict(inside)
        for key, place in outside:
            values[key] = value_in(self._facts[place], key)
        return Map(values), Map(places)

    def _snapshot(self, difference: Mapping[str, Any]) -> tuple[Map[str, Any], Map[str, int]]:
        variables, places = self._snapshots[0]
        old, old_at = self._values(difference["old"], _variable)
        # Start from the present variables: remove those that are new since, and restore the old values.
        # Places of the present values do not hold for the old values. `old_at` has those of the old ones.
        for key in [*difference["new"], *old]:
            if key in places:
                places = places.delete(key)
        for key in difference["new"]:
            variables = variables.delete(key)
        return variables.update(old), places.update(old_at)

    def _path(self, written: dict[str, Any]) -> PathState:
        if "step_outputs" in written:
            outputs, places = self._values(written["step_outputs"], lambda fact, _: fact.output)
            written |= {"step_outputs": outputs, "outputs_at": places}
        if "variables" in written:
            written["variables"], written["variables_at"] = self._snapshots[written["variables"]]
        if "open" in written:
            written["open"] = self._open(written["open"])
        return _record_of(PathState, written)

    def _open(self, written: dict[str, Any]) -> OpenStep:
        written["entry_variables"], written["entry_at"] = self._snapshots[written["entry_variables"]]
        if "iterations" in written:
            items, places = self._values(written["iterations"], lambda fact, _: fact.result)
            written |= {"iterations": items, "iterations_at": places}
        if "operations" in written:
            written["operations"] = self._operations(*written["operations"])
        return _record_of(OpenStep, written)

    def _operations(
        self, inside: Sequence[Sequence[Any]], outside: Sequence[Sequence[Any]]
    ) -> Map[str, OperationRecord]:
        records = [_operation(row) for row in inside]
        for record in map(_operation, outside):
            fact: Any = self._facts[record.ended_sequence]
            records.append(record._replace(result=fact.result))
        return Map({record.operation_id: record for record in records})


def _entry_of(field: str) -> ValueIn:
    return lambda fact, key: getattr(fact, field)[key]


def _variable(fact: Any, key: str) -> Any:
    """Return the value that an event `state_mutated` has set for the variable named `key`."""
    return {mutation.key: mutation.value for mutation in fact.mutations}[key]


def _operation(row: Sequence[Any]) -> OperationRecord:
    record = OperationRecord(*row)
    if len(row) == _SHORT:
        return record
    return _record_of(OperationRecord, record._asdict())


def _plain(part: Any) -> Any:
    """Return a `Map`, `Bounds` or named tuple as a list or dict, without converting the values in it. Return any other
    value unchanged.
    """
    if isinstance(part, Map):
        return list(part.items())
    if isinstance(part, Bounds):
        return part.to_dict()
    return _differing(part) if hasattr(part, "_fields") else part


def _differing(record: Any, *without: str) -> dict[str, Any]:
    """Return the fields of a dataclass or named tuple that differ from their default values, by name, except those
    named in `without`.
    """
    kind: Any = type(record)
    defaults = _defaults(kind)
    values = record._asdict() if hasattr(record, "_asdict") else record.__dict__
    return {
        name: value
        for name, value in values.items()
        if value is not (default := defaults[name]) and value != default and name not in without
    }


@functools.cache
def _defaults(kind: Any) -> Mapping[str, Any]:
    """Return the default values of the fields of a dataclass or named tuple; `MISSING` for fields without a default."""
    if is_dataclass(kind):
        return {entry.name: entry.default for entry in fields(kind)}
    return {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}


def _record_of(kind: Callable[..., T], data: Mapping[str, Any]) -> T:
    """Create a dataclass or named tuple from its fields, which the checkpoint has as plain lists and dicts. Fields that
    already have their final type stay unchanged.
    """
    # JSON has no tuples, maps or named tuples. The type hint of a field decides what its list or dict becomes.
    readers = _readers(kind)
    values = dict[str, Any]()
    for name, value in data.items():
        read = readers[name]
        values[name] = value if read is None or type(value) not in (list, dict) else read(value)
    return kind(**values)


@functools.cache
def _readers(kind: Any) -> Mapping[str, Callable[[Any], Any] | None]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """Return the function that converts a plain list or mapping to a value of a type. Return None if no conversion is
    needed.
    """
    origin = get_origin(kind)
    arguments = get_args(kind)
    # The fields have only unions `X | None`, and None needs no conversion.
    if origin in (Union, UnionType):
        return _reader(arguments[0])
    if origin is tuple:
        return tuple
    if origin in (Map, Mapping):
        return functools.partial(_map, read=_reader(arguments[1]))
    if kind is Bounds:
        return Bounds.from_dict
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return functools.partial(_record_of, kind)
    return None


def _map(pairs: Any, read: Callable[[Any], Any] | None) -> Any:
    # `_plain` writes a `Map` as pairs, since its keys may be numbers. A plain dict of an event stays a dict.
    if not isinstance(pairs, list):
        return pairs
    return Map({key: item if read is None else read(item) for key, item in pairs})
