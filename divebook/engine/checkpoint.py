"""A state as bytes and back: a cached fold, so that a long log need not be read from its beginning.

Large values stand in the log already: a checkpoint names the events that hold them (`divebook.engine.checkpoint`), and
copies only what is small. Nothing depends on it: one of another version, or that does not fit its log, is ignored, and
deleting all of them changes nothing. What the fields of a state hold, their types say; values of users are apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from immutables import Map

from divebook.engine.state import ExecutionState, OpenStep, OperationRecord, PathState
from divebook.errors import UNFIT
from divebook.events.catalog import COMPLETED, Payload
from divebook.events.codec import decode, encode_parts
from divebook.events.recorded import ATOMS
from divebook.questions.bounds import Bounds

# Where the log holds the large values of a state: a checkpoint names those events instead of copying them.


K = TypeVar("K")

SMALL = 64
"""Characters of a text that is as soon copied as found again."""


def is_large(value: Any) -> bool:
    """Return whether a value is to be looked up in the log."""
    kind = type(value)
    return len(value) > SMALL if kind is str else kind not in ATOMS and bool(value)


def placed(places: Map[K, int], key: K, value: Any, sequence: int) -> Map[K, int]:
    """Return the places of large values by key, once an event has set one of the values."""
    if is_large(value):
        return places.set(key, sequence)
    return places.delete(key) if places and key in places else places


def moved(places: Map[K, int], others: Map[K, int], keys: Map[K, Any]) -> Map[K, int]:
    """Return the places once the values under some keys are those of others."""
    for key in keys if places else ():
        if key in places and key not in others:
            places = places.delete(key)
    return places.update(others) if others else places


VERSION = 8
BEGINNING = 1
"""The event that holds the inputs, but for those that a fork changed."""

Facts: TypeAlias = Callable[[Sequence[int]], Mapping[int, Payload]]
"""Returns what some events of a log say, by sequence number."""

ValueIn: TypeAlias = Callable[[Any, Any], Any]
"""Returns the value that an event holds under a key."""

T = TypeVar("T")
_ABSENT = object()
_SHORT = OperationRecord._fields.index("result") + 1
"""How many fields of an operation are written if the others are at their defaults, as they nearly always are."""
_REST = tuple(OperationRecord._field_defaults[name] for name in OperationRecord._fields[_SHORT:])


def dump_state(state: ExecutionState) -> bytes:
    """Return a state as bytes."""
    return encode_parts(_Writer(state).written(), _plain)


def load_state(raw: bytes, facts: Facts) -> ExecutionState | None:
    """Return the state that `dump_state` wrote; None if another version did, or if it does not fit the log.

    Parameters
    ----------
    facts
        Asked once, for the events that hold the large values.
    """
    try:
        data = decode(raw)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            return None
        return _Loading(data, facts(data["facts"])).state()
    except UNFIT:
        return None


class _Writer:
    """What is written of one state."""

    def __init__(self, state: ExecutionState) -> None:
        self._state = state
        self._facts: set[int] = set()
        self._snapshots: dict[int, int] = {id(state.variables): 0}
        """Numbers of the variables as they stood at some time, by identity: most paths share theirs."""
        self._differences: list[dict[str, Any]] = []
        """Between the present variables and those numbered 1, 2 ..."""

    def written(self) -> dict[str, Any]:
        """Return it with plain parts, or such as `_plain` makes plain."""
        state = self._state
        whole = _differing(self._state, "variables_at")
        # Nothing follows that but what people say of it.
        ended = state.last_sequence if state.lifecycle == COMPLETED and state.annotated_at < state.last_sequence else 0
        for name, place in (("inputs", BEGINNING), ("outputs", ended)):
            if name in whole:
                inside = state.edited_inputs if name == "inputs" else ()
                large = [key for key, value in whole[name].items() if place and key not in inside and is_large(value)]
                whole[name] = self._values(whole[name], dict.fromkeys(large, place))
        whole["variables"] = self._values(state.variables, state.variables_at)
        whole["paths"] = [self._path(path) for path in state.paths.values()]
        return {
            "version": VERSION,
            "facts": sorted(self._facts),
            "state": whole,
            "differences": self._differences,
        }

    def _values(self, values: Mapping[Any, Any], places: Mapping[Any, int]) -> list[Any]:
        """Return the small values, and the places of the large ones."""
        if not places:
            return [list(values.items()), []]
        outside = [(key, places[key]) for key in values if key in places]
        self._facts.update(place for _, place in outside)
        return [[held for held in values.items() if held[0] not in places], outside]

    def _path(self, path: PathState) -> dict[str, Any]:
        written = _differing(path, "outputs_at", "variables_at")
        if path.step_outputs:
            written["step_outputs"] = self._values(path.step_outputs, path.outputs_at)
        if path.variables:
            written["variables"] = self._snapshot(path.variables, path.variables_at)
        if path.open is not None:
            written["open"] = self._open(path.open)
        return written

    def _open(self, opened: OpenStep) -> dict[str, Any]:
        written = _differing(opened, "entry_at", "iterations_at")
        written["entry_variables"] = self._snapshot(opened.entry_variables, opened.entry_at)
        if opened.iterations:
            written["iterations"] = self._values(opened.iterations, opened.iterations_at)
        if opened.operations:
            written["operations"] = self._operations(opened.operations)
        return written

    def _operations(self, operations: Map[str, OperationRecord]) -> list[Any]:
        """Return the calls with small results, and those whose result the event of their end holds."""
        inside = []
        outside = []
        for record in operations.values():
            row = record[:_SHORT] if record[_SHORT:] == _REST else tuple(record)
            if record.ended_sequence and is_large(record.result):
                outside.append((*row[: _SHORT - 1], None, *row[_SHORT:]))
                self._facts.add(record.ended_sequence)
            else:
                inside.append(row)
        return [inside, outside]

    def _snapshot(self, variables: Map[str, Any], places: Map[str, int]) -> int:
        """Return the number of the variables as they stood at some time."""
        found = self._snapshots.get(id(variables))
        if found is None:
            found = self._snapshots[id(variables)] = len(self._snapshots)
            now = self._state.variables
            old = {key: value for key, value in variables.items() if now.get(key, _ABSENT) is not value}
            new = [key for key in now if key not in variables]
            self._differences.append({"new": new, "old": self._values(old, places)})
        return found


class _Loading:
    """A state on its way back."""

    def __init__(self, data: Mapping[str, Any], facts: Mapping[int, Payload]) -> None:
        self._told = dict(data["state"])
        self._facts = facts
        self._snapshots = [self._values(self._told["variables"], _variable)]
        self._snapshots += [self._snapshot(difference) for difference in data["differences"]]

    def state(self) -> ExecutionState:
        """Return it."""
        told = self._told
        paths = [self._path(path) for path in told["paths"]]
        told["variables"], told["variables_at"] = self._snapshots[0]
        told["paths"] = Map({path.id: path for path in paths})
        for name in told.keys() & {"inputs", "outputs"}:
            values, _ = self._values(told[name], _entry_of(name))
            told[name] = dict(values)
        return _made(ExecutionState, told)

    def _values(self, written: Sequence[Any], value_in: ValueIn) -> tuple[Map[Any, Any], Map[Any, int]]:
        """Return values by key, and the places of the large ones."""
        inside, outside = written
        places = dict(outside)
        values = dict(inside)
        for key, place in outside:
            values[key] = value_in(self._facts[place], key)
        return Map(values), Map(places)

    def _snapshot(self, difference: Mapping[str, Any]) -> tuple[Map[str, Any], Map[str, int]]:
        variables, places = self._snapshots[0]
        old, old_at = self._values(difference["old"], _variable)
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
        return _made(PathState, written)

    def _open(self, written: dict[str, Any]) -> OpenStep:
        written["entry_variables"], written["entry_at"] = self._snapshots[written["entry_variables"]]
        if "iterations" in written:
            items, places = self._values(written["iterations"], lambda fact, _: fact.result)
            written |= {"iterations": items, "iterations_at": places}
        if "operations" in written:
            written["operations"] = self._operations(*written["operations"])
        return _made(OpenStep, written)

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
    """Return what an event has set a variable to."""
    return {mutation.key: mutation.value for mutation in fact.mutations}[key]


def _operation(row: Sequence[Any]) -> OperationRecord:
    record = OperationRecord(*row)
    if len(row) == _SHORT:
        return record
    return _made(OperationRecord, record._asdict())


def _plain(part: Any) -> Any:
    """Return a part of the state in plain form, its own parts left as they are; any other value as it is."""
    if isinstance(part, Map):
        return list(part.items())
    if isinstance(part, Bounds):
        return part.to_dict()
    return _differing(part) if hasattr(part, "_fields") else part


def _differing(record: Any, *without: str) -> dict[str, Any]:
    """Return a record as a dict of what differs from its defaults, as few of its fields do."""
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
    """Return the defaults of the fields of a dataclass or named tuple, `MISSING` where there is none."""
    if is_dataclass(kind):
        return {entry.name: entry.default for entry in fields(kind)}
    return {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}


def _made(kind: Callable[..., T], told: Mapping[str, Any]) -> T:
    """Make a record of what was written of it; parts that are made already stay as they are."""
    readers = _readers(kind)
    return kind(
        **{
            name: value if (read := readers[name]) is None or type(value) not in (list, dict) else read(value)
            for name, value in told.items()
        }
    )


@functools.cache
def _readers(kind: Any) -> Mapping[str, Callable[[Any], Any] | None]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """Return what makes a value of a type from its plain form, a list or a mapping; None where that is the value."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        return _reader(arguments[0])
    if origin is tuple:
        return tuple
    if origin in (Map, Mapping):
        return functools.partial(_map, read=_reader(arguments[1]))
    if kind is Bounds:
        return Bounds.from_dict
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return functools.partial(_made, kind)
    return None


def _map(pairs: Any, read: Callable[[Any], Any] | None) -> Any:
    if not isinstance(pairs, list):  # some are plain dicts
        return pairs
    return Map({key: item if read is None else read(item) for key, item in pairs})
