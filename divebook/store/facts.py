"""What the facts of a record are written as, a type and its data, and how they are read again.

A record of one fact is written as its event always was. The type of several facts is made of their names
(``step_started+operation_started``), their data are a JSON list, a line each. Of a value that an earlier one of them
has in full (the result of a call is the output of its step, and the value of a variable) only the place is written:
``{"$type": "same", "value": [0, "result"]}``. A user's own data cannot look like that (`divebook.store.blobs`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

from divebook.errors import CorruptStoreError, InvalidEventError
from divebook.events.catalog import Payload
from divebook.events.codec import TAGGED, decode_payload, encode, parse, payload_from
from divebook.events.recorded import ATOMS, TAG, Recorded
from divebook.events.values import untag

Body: TypeAlias = dict[str, Any]
"""What one fact says, as plain data (`Payload.to_data`)."""

JOINT = "+"
LEAST = 48
"""Characters of a text that is worth a reference."""
_SHORT = ATOMS - {str}
_SAME = f'{{"{TAG}":"same",'.encode()


def type_of(facts: Sequence[Payload]) -> str:
    """Return the type of a record."""
    return facts[0].event_type if len(facts) == 1 else JOINT.join([fact.event_type for fact in facts])


@functools.cache
def names_of(record_type: str) -> tuple[str, ...]:
    """Return the event types that a record's type is made of."""
    return tuple(record_type.split(JOINT))


def width_of(record_type: str) -> int:
    """Return how many events a record of that type stands for."""
    return record_type.count(JOINT) + 1


def encode_facts(bodies: Sequence[Body]) -> bytes:
    """Return the data of a record."""
    return joined([encode(body) for body in bodies])


def joined(lines: Sequence[bytes]) -> bytes:
    """Return the data of a record whose facts are encoded."""
    return lines[0] if len(lines) == 1 else b"[" + b",\n".join(lines) + b"]"


def without_repeats(bodies: Sequence[Body]) -> Sequence[Body]:
    """Return the bodies of a record with references in place of values that an earlier one has in full."""
    if len(bodies) == 1 or not _may_repeat(bodies):
        return bodies
    known: list[tuple[Any, list[Any]]] = []
    shortened: list[Body] | None = None
    for holder, key, place in _values(bodies):
        value = holder[key]
        for other, where in known:
            if (other is value or (type(value) is str and other == value)) and not _is_short(value):
                shortened = shortened or list(bodies)
                index = place[0]
                shortened[index] = _replaced(shortened[index], place[1:], {TAG: "same", "value": where})
                break
        else:
            known.append((value, place))
    return shortened or bodies


def _may_repeat(bodies: Sequence[Body]) -> bool:
    """Return whether two values are long at all: in most records none is, and to look closer makes many objects."""
    count = 0
    for body in bodies:
        for value in body.values():
            if type(value) is str:
                count += len(value) >= LEAST
            elif type(value) not in _SHORT:
                count += 1
    return count > 1


def _is_short(value: Any) -> bool:
    return isinstance(value, dict | list) and len(value) < LEAST and len(encode(value)) < LEAST


def _values(bodies: Sequence[Body], first: int = 0) -> list[tuple[Any, Any, list[Any]]]:
    """Return the values that may be long: what holds each, under which key, and its place in the record."""
    found: list[tuple[Any, Any, list[Any]]] = []
    for index, body in enumerate(bodies, first):
        for key, value in body.items():
            if key == "mutations":
                held = ((number, mutation) for number, mutation in enumerate(value) if "value" in mutation)
                found += [
                    (mutation, "value", [index, key, number, "value"])
                    for number, mutation in held
                    if _may_be_long(mutation["value"])
                ]
            elif type(value) not in _SHORT and _may_be_long(value):
                found.append((body, key, [index, key]))
    return found


def _may_be_long(value: Any) -> bool:
    kind = type(value)
    if kind in ATOMS or kind is bytes:
        return (kind is str or kind is bytes) and len(value) >= LEAST
    return kind is dict or kind is list or isinstance(value, Recorded)


def _replaced(value: Any, place: Sequence[Any], by: Any) -> Any:
    """Return a copy of plain data with something else at a place."""
    if not place:
        return by
    copy = value.copy()
    copy[place[0]] = _replaced(value[place[0]], place[1:], by)
    return copy


def split(record_type: str, data: bytes) -> list[bytes]:
    """Return the JSON of each fact as an event of its own would have it; `data` are opened, and whole.

    Raises
    ------
    CorruptStoreError
        They are not what that type looks like.
    """
    if JOINT not in record_type:
        return [data]
    if _SAME not in data:
        lines = data[1:-1].split(b",\n")
        if len(lines) == width_of(record_type):
            return lines
    return [encode(body) for body in _bodies(record_type, data)]


def decode_facts(record_type: str, data: bytes) -> list[Payload]:
    """Return the facts of a record; `data` are opened, and whole.

    Raises
    ------
    NewerStoreError
        The type is not known: a newer version wrote it.
    CorruptStoreError
        The data are not what that type looks like.
    """
    if JOINT not in record_type:
        return [decode_payload(record_type, data)]
    bodies = _bodies(record_type, data)
    try:
        if TAGGED in data:
            bodies = [untag(body) for body in bodies]
        return [payload_from(name, body) for name, body in zip(names_of(record_type), bodies, strict=True)]
    except (ValueError, KeyError, TypeError, InvalidEventError) as error:
        raise _unreadable(record_type, error) from error


def _bodies(record_type: str, data: bytes) -> list[Body]:
    """Return what the facts say, with what stands for a value of another fact put right."""
    try:
        bodies: list[Body] = parse(data)
        _check_count(bodies, width_of(record_type))
        if _SAME in data:
            for index, body in enumerate(bodies):
                for holder, key, _ in _values([body], index):
                    holder[key] = _resolved(holder[key], bodies[: index + 1])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _unreadable(record_type, error) from error
    return bodies


def _check_count(bodies: Any, width: int) -> None:
    count = len(bodies) if isinstance(bodies, list) else 0
    if count != width:
        raise ValueError(f"it has {count} of {width} events")


def _resolved(value: Any, earlier: Sequence[Body]) -> Any:
    if type(value) is not dict or value.get(TAG) != "same":
        return value
    found: Any = earlier
    for part in value["value"]:
        found = found[part]
    return found


def _unreadable(record_type: str, error: Exception) -> CorruptStoreError:
    return CorruptStoreError(f"a {record_type} record cannot be read: {error}")
