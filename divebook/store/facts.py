"""What the facts of a record are written as, a type and its data, and how they are read again.

A record of one fact is written as its event always was. The type of several facts is made of their names
(``step_started+operation_started``), their data are a JSON list, a line each. Of a value that an earlier one of them
has in full only the place is written: ``{"$type": "same", "value": [0, "result"]}`` (`divebook.store.repeats`). A
user's own data cannot look like that (`divebook.store.blobs`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from divebook.errors import CorruptStoreError, InvalidEventError
from divebook.events.catalog import Payload
from divebook.events.codec import TAGGED, decode_payload, encode, encode_all, parse, payload_from
from divebook.events.recorded import ATOMS, TAG, Recorded
from divebook.events.values import tag, untag

Body: TypeAlias = dict[str, Any]
"""What one fact says, as plain data (`Payload.to_data`)."""

JOINT = "+"
LEAST = 48
"""Characters of a text that may have a reference in its place."""
_SHORT = ATOMS - {str}
_SAME = f'{{"{TAG}":"same",'.encode()


@functools.lru_cache(maxsize=1024)
def type_of(kinds: tuple[type[Payload], ...]) -> str:
    """Return the type of a record, by the classes of its facts."""
    return JOINT.join([kind.event_type for kind in kinds])


@functools.cache
def names_of(record_type: str) -> tuple[str, ...]:
    """Return the event types that a record's type is made of."""
    return tuple(record_type.split(JOINT))


def width_of(record_type: str) -> int:
    """Return how many events a record of that type stands for."""
    return record_type.count(JOINT) + 1


def encode_facts(bodies: Sequence[Body], tagged: Callable[[Any], Any] = tag) -> bytes:
    """Return the data of a record; `tagged` as for `encode_all`."""
    return joined(encode_all(bodies, tagged))


def joined(lines: Sequence[bytes]) -> bytes:
    """Return the data of a record whose facts are encoded."""
    return lines[0] if len(lines) == 1 else b"[" + b",\n".join(lines) + b"]"


def places(bodies: Sequence[Body], first: int = 0) -> list[tuple[Any, Any, list[Any]]]:
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
                for holder, key, _ in places([body], index):
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
