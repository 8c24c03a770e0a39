"""Encoding of events and values as JSON, decoding, and checks of payloads before they are recorded.

A payload is one JSON object. `encode_line` and `decode_line` write and read a whole event as one line of JSON::

    {"id": "event_...", "execution_id": "exec_...", "sequence": 3, "timestamp": "2026-01-02T03:04:05.000006Z",
     "event_type": "step_started", "path": "main", "step": "ask", "data": {"step_type": "action", "visit": 1}}
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import repeat
from typing import Any, TypeAlias, TypeVar

import orjson

from divebook.errors import CorruptStoreError, DivebookError, InvalidEventError, NewerStoreError, UnstorableValueError
from divebook.events.catalog import PAYLOADS, Mutation, Payload, StateMutated
from divebook.events.classes import Instance, Member, PluginValue
from divebook.events.event import Event, to_microseconds, validate
from divebook.events.payload import WHOLE, choices_of, declared, missing_field, wrong_field
from divebook.events.recorded import TAG, BigInt, Container, NonFinite, Recorded, StandardValue, TaggedDict
from divebook.events.upcast import FORM, upcast
from divebook.events.values import ByHash, normalize, tag, untag
from divebook.text.format import rfc3339, visible

P = TypeVar("P", bound=Payload)

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
MAX_LEVELS = 254
"""Maximum number of nested lists and mappings that `encode` writes."""
# Without these options orjson would write dates as plain strings, and `BigInt`, `NonFinite` and `TaggedDict` like the
# classes that they derive from. With them it passes such values to `tag`.
_JSON_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_ALWAYS_STORABLE = frozenset({int, float, bool, type(None)})
"""Classes of normalized values that can always be encoded."""
TAGGED = f'"{TAG}"'.encode()
"""Bytes that occur in any JSON with tagged values. JSON without these bytes needs no `untag`."""


def encode(data: Any, path: str = "data") -> bytes:
    """Encode normalized data (plain data and recorded forms) as JSON; `path` names the data in errors.

    Raises
    ------
    UnstorableValueError
        Text that is not valid Unicode, or more than 64 MiB.
    """
    return _encode_limited(data, path, _JSON_OPTIONS)


def encode_all(data: Sequence[Any], tagged: Callable[[Any], Any] = tag) -> list[bytes]:
    """Encode several normalized values as JSON, each as `encode` does.

    `tagged` replaces `tag`: it converts values that JSON lacks to data that JSON has.
    """
    try:
        lines = list(map(orjson.dumps, data, repeat(tagged), repeat(_JSON_OPTIONS)))
    # This error does not say which value is wrong, so all are encoded again, one by one.
    except TypeError as error:
        _raise_hidden(error)
        return [_encode_limited(each, "data", _JSON_OPTIONS, tagged) for each in data]  # raises an error with the place
    for line in lines:
        if len(line) > MAX_PAYLOAD_BYTES:
            check_size(len(line))
    return lines


def encode_parts(data: Any, plain: Callable[[Any], Any]) -> bytes:
    """Encode data of any size as JSON. `plain` converts each part that JSON cannot represent, when the encoder reaches
    this part.

    `plain` returns a part itself to leave it to `tag`.
    """

    def convert(part: Any) -> Any:
        # `part` unchanged means that `plain` does not know it: a value of the log, which gets its tagged form.
        converted = plain(part)
        return tag(part) if converted is part else converted

    return _dump(data, "data", _JSON_OPTIONS | orjson.OPT_PASSTHROUGH_DATACLASS, convert)


def encode_shown(data: Any, *, tagged: bool = False) -> bytes:
    """Encode normalized data as JSON to be shown to people. Frames, instances and bytes are replaced by short
    descriptions.

    Parameters
    ----------
    tagged
        Keep dates, bytes and infinities in tagged form, so that a program can tell them from strings.
    """
    return orjson.dumps(data, default=_tagged_description if tagged else _description, option=_JSON_OPTIONS)


def plain_shown(data: Any) -> Any:
    """Return normalized data as `encode_shown` shows it, but with instances and enum members as plain data, as which
    they can be given back as input: an enum member as its value, an instance as its fields.

    >>> plain_shown({"colour": Member("shop.Colour", "RED", "red")})
    {'colour': 'red'}
    """

    def plain_or_description(value: Any) -> Any:
        if isinstance(value, timedelta):  # inputs do not read the text that Python gives it
            return _duration(value)
        return value.plain() if isinstance(value, Instance | Member | PluginValue) else _description(value)

    try:
        return json.loads(orjson.dumps(data, default=plain_or_description, option=_JSON_OPTIONS))
    except TypeError:  # a forged instance may have parts that are not valid; its description does not have them
        return json.loads(encode_shown(data))


def _tagged_description(value: Any) -> Any:
    return _description(value) if isinstance(value, BigInt | Recorded) else tag(value)


def _description(value: Any) -> Any:
    # A number of any length is valid JSON, but orjson itself writes only 64 bits.
    if isinstance(value, BigInt):
        return orjson.Fragment(int.__repr__(value))
    if isinstance(value, NonFinite):
        return float.__repr__(value)
    if isinstance(value, TaggedDict):
        return dict(value)
    # {(1, 2): "a"} is shown as {"[1,2]": "a"}: keys of JSON objects are strings.
    if isinstance(value, Container):
        return {_shown_key(key): item for key, item in value.plain().items()} if value.is_mapping else value.items
    return f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)


def _shown_key(key: Any) -> str:
    return key if isinstance(key, str) else encode_shown(normalize(key)).decode().strip('"')


def _dump(data: Any, path: str, option: int, default: Callable[[Any], Any]) -> bytes:
    try:
        return orjson.dumps(data, default=default, option=option)
    except TypeError as error:
        _raise_hidden(error)
        # orjson names no place. The usual cause is a lone surrogate such as "\ud800", which is searched for here.
        raise UnstorableValueError(locate_surrogate(data, path) or path, str(error)) from None


def _raise_hidden(error: TypeError) -> None:
    """Raise the original error if a conversion function (`default`) has raised it, because orjson hides it behind its
    own error. This is done only for interruptions such as Ctrl-C, and for errors that state which value cannot be
    stored.
    """
    hidden = error.__cause__
    if isinstance(hidden, UnstorableValueError) or not isinstance(hidden, Exception | None):
        raise hidden


def _encode_limited(data: Any, path: str, option: int, tagged: Callable[[Any], Any] = tag) -> bytes:
    encoded = _dump(data, path, option, tagged)
    if len(encoded) > MAX_PAYLOAD_BYTES:
        check_size(len(encoded), path)
    return encoded


def check_size(size: int, path: str = "data") -> None:
    """Raise UnstorableValueError if `size`, the size of encoded data in bytes, is more than one event can contain."""
    if size > MAX_PAYLOAD_BYTES:
        raise UnstorableValueError(
            path,
            f"{size:,} bytes are more than the limit of {MAX_PAYLOAD_BYTES:,} bytes per event; store the value as a "
            "document, and record the path of the document",
        )


def storable(value: Any, path: str, replace: Callable[[Any], Any] | None = None) -> Any:
    """Return a value in normalized form (plain data and recorded forms), after a check that an event can contain it.

    Parameters
    ----------
    value
        Any object.
    path
        Name of the value, for the error.
    replace
        Called with a value that cannot be stored; returns what is stored in its place, or the value itself if nothing
        can take its place.

    Raises
    ------
    UnstorableValueError
        With the path to the part that cannot be stored.
    """
    kind = type(value)
    if value is None or kind is bool or (kind is int and -WHOLE <= value < WHOLE):  # needs no conversion
        return value
    try:
        plain = normalize(value, path)
        if type(plain) not in _ALWAYS_STORABLE:
            encode(plain, path)
    except UnstorableValueError:
        replacement = value if replace is None else replace(value)
        if replacement is value:
            raise
    else:
        return plain
    return storable(replacement, path)


def locate_surrogate(value: Any, path: str) -> str | None:
    """Return the path to the first string in a value that UTF-8 cannot encode; None if all strings can be encoded."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return path
        return None
    parts: Iterable[tuple[str, Any]] = ()
    # A key may be the wrong string as well as its value.
    if isinstance(value, dict):
        parts = ((f"{path}.{key}", part) for key, item in value.items() for part in (key, item))
    elif isinstance(value, list | tuple):
        parts = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    for part_path, part in parts:
        surrogate_path = locate_surrogate(part, part_path)
        if surrogate_path:
            return surrogate_path
    return None


def decode(raw: bytes | str) -> Any:
    """Decode JSON that `encode` wrote, and convert tagged forms (dicts with the key ``$type``) to the values that they
    represent.
    """
    mark: bytes | str = TAGGED if isinstance(raw, bytes) else TAGGED.decode()
    # Each level of nesting takes two brackets, so text that is shorter than that cannot be too deep.
    value = orjson.loads(raw) if len(raw) <= 2 * MAX_LEVELS else _check_depth(orjson.loads(raw), raw)
    return untag(value) if mark in raw else value  # type: ignore[operator]


def parse(raw: bytes | str) -> Any:
    """Parse JSON and return plain data, in which tagged forms remain dicts with the key ``$type``. Raise ValueError for
    invalid JSON.
    """
    return orjson.loads(raw) if len(raw) <= 2 * MAX_LEVELS else _check_depth(orjson.loads(raw), raw)


def tagged_form(value: Any, path: str = "data") -> Any:
    """Convert normalized data to plain JSON data. Values that JSON lacks are in tagged form, as in a log: dicts with
    the key ``$type``. The result shares no objects with the value.

    >>> tagged_form({"day": date(2026, 1, 2), "n": 1})
    {'day': {'$type': 'date', 'value': '2026-01-02'}, 'n': 1}

    Raises the errors of `encode`.
    """
    return parse(encode(value, path))


def _check_depth(value: Any, raw: bytes | str) -> Any:
    """Return `value`, which was decoded from the JSON `raw`. Raise ValueError if it is nested deeper than any value
    that `encode` writes.

    Each level needs an opening bracket, so few brackets in `raw` prove that the value is not too deep.
    """
    begins: Sequence[Any] = (b"[", b"{") if isinstance(raw, bytes) else ("[", "{")
    # Brackets inside strings count as well, so a flat value may reach the exact test, which then passes it.
    if sum(map(raw.count, begins)) > MAX_LEVELS:
        try:
            # orjson refuses values that are too deep. That takes a tenth of the time of a walk in Python
            # (test_what_is_nested_deeper_than_anything_written_is_refused).
            orjson.dumps(value)
        except TypeError:
            raise ValueError(f"nested deeper than {MAX_LEVELS} levels, which a log cannot store") from None
    return value


def canonical_hash(data: Any, path: str = "data", *, whole: bool = False) -> str:
    """Return the SHA-256, in hexadecimal, of a value in the form in which a log stores it. The order of the keys in
    dicts does not matter.

    Raises the errors of `encode`.

    A `ByHash` value enters the hash by its digest; with `whole`, by its full content.
    """
    return hashlib.sha256(
        _encode_limited(data, path, _JSON_OPTIONS | orjson.OPT_SORT_KEYS, tag if whole else _hash_form)
    ).hexdigest()


def short_hash(data: Any, path: str = "data") -> str:
    """Return the first 16 digits of the SHA-256 of a value, enough to compare the operations of one execution."""
    return canonical_hash(data, path)[:16]


def _hash_form(value: Any) -> Any:
    """Convert a value to the form from which its hash is computed. This is the form that older versions of divebook
    recorded, so that equal values have equal hashes in all versions.

    Older versions recorded a tuple as a list, a mapping of the standard library as a dict, and a datetime in a named
    zone at its offset. Their hashes must still match, so those forms are hashed. The fields of an instance kept tuples
    and sets already, so there a tuple is hashed as a tuple.
    """
    # The hash decides whether a recorded call is the requested one. A value on the left is hashed as the form on the
    # right:
    #
    #     tuple (1, 2)                        list [1, 2]
    #     dataclass instance Order(7)         class name and fields, with tuples in it as tuples
    #     ByHash of 2 MB of tool schemas      {"$type": "by_hash", "value": "<SHA-256 of its JSON>"}
    if type(value) is ByHash:
        return {TAG: ByHash.tag, "value": digest_of(value)}
    if isinstance(value, Instance):
        return orjson.Fragment(orjson.dumps(tag(value), _field_hash_form, _JSON_OPTIONS | orjson.OPT_SORT_KEYS))
    if isinstance(value, Container) and value.tag == "tuple":
        return value.items
    return _field_hash_form(value)


def _field_hash_form(value: Any) -> Any:
    if isinstance(value, Container) and value.is_mapping:
        # Other keys than strings do not fit into an object of JSON, so such a mapping is hashed as its pairs.
        keys_and_values = value.plain()
        if all(type(key) is str for key in keys_and_values):
            return TaggedDict(keys_and_values) if TAG in keys_and_values else keys_and_values
    return tag(value.plain() if isinstance(value, StandardValue) and value.tag in ("zoned", "folded_time") else value)


def by_hash(value: Any, path: str = "value") -> ByHash:
    """Return a value as `ByHash`, the recorded form of a value that a store keeps only once, under the value's hash.

    Raises `UnstorableValueError`.
    """
    recorded = ByHash(normalize(value, path))
    content_of(recorded, path)
    return recorded


def content_of(recorded: ByHash, path: str = "value") -> bytes:
    """Return the JSON of a `ByHash` value, which the store keeps under the hash of this JSON. The value is encoded only
    once.
    """
    if recorded.content is None:
        recorded.content = encode(recorded.value, path)
    return recorded.content


def digest_of(recorded: ByHash) -> str:
    """Return the SHA-256 (hexadecimal) of the JSON of a `ByHash` value. The store keeps the value under this hash."""
    return hashlib.sha256(content_of(recorded)).hexdigest()


def decode_payload(event_type: str, raw: bytes | str) -> Payload:
    """Decode the payload of an event from JSON. Data in the format of an older version are converted first.

    Raises
    ------
    NewerStoreError
        The type is not known: a newer version wrote it.
    CorruptStoreError
        The bytes are not valid data of that type.
    """
    try:
        return payload_from(event_type, decode(raw))
    except (ValueError, KeyError, TypeError, InvalidEventError) as error:
        raise CorruptStoreError(f"a {event_type} event cannot be read: {error}") from error


def payload_from_store(event_type: str, data: Any) -> Payload:
    """Build the payload of an event type from plain data that were read from a store. Raise CorruptStoreError if they
    are not valid, as `decode_payload` does.
    """
    try:
        return payload_from(event_type, data)
    except (ValueError, KeyError, TypeError, InvalidEventError) as error:
        raise CorruptStoreError(f"a {event_type} event cannot be read: {error}") from error


def payload_from(event_type: str, data: Any) -> Payload:
    """Build the payload of an event type from plain data. Data in the format of an older version are converted first.

    Raises
    ------
    NewerStoreError
        The event type is unknown.
    InvalidEventError
        The data are missing, or a field does not hold a value of its declared type.
    """
    try:
        event_type, data = upcast(event_type, data)
    except (TypeError, AttributeError) as error:
        raise InvalidEventError(f"{event_type}: data validation failed: {error}") from error
    kind = PAYLOADS.get(event_type)
    if kind is None:
        raise NewerStoreError(
            f"event type {event_type!r} is not known to this version of divebook; upgrade divebook to read this log"
        )
    if not isinstance(data, dict):
        raise InvalidEventError(f"{event_type}: data is required")
    # The types are checked before the payload exists: constructors and properties may rely on them.
    wrong = wrong_field(kind, data)
    if wrong is not None:
        raise InvalidEventError(f"{event_type}: {wrong}")
    return kind.from_data(data)


def valid_data(payload: Payload) -> dict[str, Any]:
    """Return the plain data of a payload after a check of all fields; raise InvalidEventError for a wrong field.

    Such a payload is never recorded. Uses the compiled check of its class.
    """
    return DATA_FUNCTIONS[type(payload)](payload)


def checked_data(payload: Payload) -> dict[str, Any]:
    """Return the plain data of a payload after a check of all fields. This slow check follows the declared types, so
    that its errors describe the wrong field.
    """
    try:
        data = payload.to_data()
    except AttributeError as error:  # an entry that is not of the class it should be
        raise InvalidEventError(f"{payload.event_type}: {error}") from error
    # Two checks, since `to_data` leaves out None: types of the fields that are there, and None where it is not allowed.
    wrong = wrong_field(type(payload), data) or missing_field(payload)
    if wrong is not None:
        raise InvalidEventError(f"{payload.event_type}: {wrong}")
    return data


# --- compiled checks of payloads ---
#
# `valid_data` checks each payload before it is recorded. The generic check (`checked_data`) interprets the declared
# type of each field, which is slow. Nearly all payloads hold plain values of the declared types, so each class gets a
# compiled function that tests each field once.


DataFunction: TypeAlias = Callable[[Any], dict[str, Any]]
"""Function that returns the plain data of a payload; raises InvalidEventError for a wrong field."""

_CONDITIONS: Mapping[Any, str] = {
    str: "t is not str",
    bool: "t is not bool",
    int: "not (t is int and -WHOLE <= v < WHOLE)",
    float: "not (t is float and v - v == 0)",  # false for infinities and NaN: their difference is NaN
    Mapping[str, Any]: "t is not dict",
    Mapping[str, str]: "t is not dict or not {*map(type, v), *map(type, v.values())} <= TEXTS",
    Mapping[str, int]: "t is not dict or not all(type(n) is int and -WHOLE <= n < WHOLE for n in v.values())",
    Sequence[Any]: "t is not list and t is not tuple",
}


def compile_data_function(kind: type[Payload], fallback: DataFunction) -> DataFunction:
    """Return a compiled function that converts payloads of one class to plain data and checks all their fields.

    The compiled function calls `fallback` if a field is wrong or not of a plain type.

    For a class with the fields ``name: str`` and ``visit: int | None`` it is::

        def plain(payload):
            data = {}
            v = payload.name
            t = type(v)
            if t is not str: return fallback(payload)
            data["name"] = v
            v = payload.visit
            if v is not None:
                t = type(v)
                if (not (t is int and -WHOLE <= v < WHOLE)): return fallback(payload)
                data["visit"] = v
            return data

    The fallback is `checked_data`, which raises an error that describes the wrong field. Where the compiled function
    returns data, both return the same (test_what_the_compiled_check_lets_pass_is_what_the_other_gives).
    """
    if kind is StateMutated:
        return _state_mutated_data(fallback)
    # A class that converts its fields itself does not match the generated code.
    if kind.to_data is not Payload.to_data:
        return fallback
    lines = [f"def plain(payload):\n data = { ({FORM: kind.form} if kind.form else {})!r}"]
    lines += [_field_lines(name, hint) for name, hint in declared(kind).items()]
    names: dict[str, Any] = {"WHOLE": WHOLE, "TEXTS": {str}, "fallback": fallback}
    exec("\n".join([*lines, " return data"]), names)  # noqa: S102 - as dataclasses do, of our own classes
    plain: DataFunction = names["plain"]
    return plain


def _field_lines(name: str, hint: Any) -> str:
    """Return Python source lines for a function that `compile_data_function` compiles. They check one field of a
    payload and copy it into the dict `data`; if the field is wrong, they call the function `fallback`.
    """
    read = f" v = payload.{name}"
    copy = f"data[{name!r}] = v"
    if hint is Any:
        return f"{read}\n if v is not None: {copy}"
    choices = choices_of(hint)
    # `t is not str and t is not dict`: a union is wrong only if all its types are. A type without a condition, such as
    # a sequence of strings, gives `True`: any value goes to the slow check.
    unfit = " and ".join(f"({_CONDITIONS[choice]})" for choice in choices if choice in _CONDITIONS) or "True"
    if types.NoneType not in choices:
        return f"{read}\n t = type(v)\n if {unfit}: return fallback(payload)\n {copy}"
    return f"{read}\n if v is not None:\n  t = type(v)\n  if {unfit}: return fallback(payload)\n  {copy}"


def _state_mutated_data(fallback: DataFunction) -> DataFunction:
    """Return the function that checks `StateMutated` payloads and converts them to plain data. Unlike those of other
    classes it is not compiled, because the payload contains `Mutation` objects.
    """

    def plain(payload: StateMutated) -> dict[str, Any]:
        mutations = payload.mutations
        # `Mutation` checks its fields itself, so only the classes are left to check.
        if type(mutations) is not tuple:
            return fallback(payload)
        data: list[dict[str, Any]] = []
        for mutation in mutations:
            if type(mutation) is not Mutation:
                return fallback(payload)
            # As `Mutation.to_data`, without a call for the most frequent type.
            is_set = mutation.type == "set"
            data.append({"type": "set", "key": mutation.key, "value": mutation.value} if is_set else mutation.to_data())
        return {"mutations": data}

    return plain


class _DataFunctions(dict[type, DataFunction]):
    """Functions that check payloads and convert them to plain data, by payload class. Each is compiled when the first
    payload of its class is converted.
    """

    def __missing__(self, kind: type) -> DataFunction:
        if not issubclass(kind, Payload):
            raise InvalidEventError(f"data is required and must be a payload, got {kind.__name__}")
        self[kind] = compile_data_function(kind, checked_data)
        return self[kind]


DATA_FUNCTIONS = _DataFunctions()


def checked(payload: P) -> P:
    """Return a payload that contains values from user code, after a check that it can be encoded.

    The check runs where user code passes the values, so that only the step fails. A payload that the journal refuses
    later ends the whole run.

    Raises
    ------
    InvalidEventError, UnstorableValueError
        The payload cannot be encoded.
    """
    encode(valid_data(payload), payload.event_type)
    return payload


# --- whole events ---


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return an event as plain data with the keys of exported logs, without path or step if these are empty."""
    record: dict[str, Any] = {
        "id": event.id,
        "execution_id": event.execution_id,
        "sequence": event.sequence,
        "timestamp": rfc3339(event.timestamp),
        "event_type": event.event_type,
    }
    if event.path:
        record["path"] = event.path
    if event.step:
        record["step"] = event.step
    record["data"] = event.data.to_data()
    return record


_REQUIRED_KEYS = {"id": "event id", "execution_id": "execution id", "timestamp": "timestamp", "data": "data"}


def event_from_dict(record: dict[str, Any]) -> Event:
    """Build an event from plain data as `event_to_dict` returns them. The legacy keys ``path_id`` and ``step_name`` are
    accepted as well.
    """
    for key, name in _REQUIRED_KEYS.items():
        # {} is a valid payload: some events have no fields that must be set.
        if not record.get(key) and record.get(key) != {}:
            raise InvalidEventError(f"{name} is required")
    path, step = _path_and_step(record)
    try:
        event = Event(
            id=record.get("id", ""),
            execution_id=record.get("execution_id", ""),
            sequence=record.get("sequence", 0),
            recorded_at=to_microseconds(datetime.fromisoformat(record["timestamp"])),
            data=payload_from(record.get("event_type", ""), record["data"]),
            path=path,
            step=step,
        )
        validate(event)
    except (TypeError, ValueError) as error:
        raise InvalidEventError(f"not an event: {error}") from error
    return event


def _path_and_step(record: dict[str, Any]) -> tuple[Any, Any]:
    """Return the path and the step in the plain data of an event. Both are empty for an event about the whole
    execution.

    The legacy Dive dialect wrote the execution id in place of a missing path, and the operation id in place of a
    missing step.
    """
    # Legacy line: {"path_id": "exec_1", "step_name": "op_1", ...} -> path "" and step "".
    path = record.get("path") or record.get("path_id") or ""
    step = record.get("step") or record.get("step_name") or ""
    if str(record.get("event_type")).startswith("execution_"):
        return "", ""
    operation = record["data"].get("operation_id") if isinstance(record["data"], dict) else None
    return "" if path == record.get("execution_id") else path, "" if step == operation else step


def encode_line(event: Event) -> bytes:
    """Encode an event as one line of JSON, without a line break."""
    return encode(event_to_dict(event))


def decode_line(line: bytes | str) -> Event:
    """Decode an event from one line of JSON; raise InvalidEventError if the line is not a valid event."""
    try:
        record = parse(line)
    except ValueError as error:
        raise InvalidEventError(f"not a line of JSON: {error}") from None
    return decode_record(record)


def decode_record(record: Any) -> Event:
    """Build an event from a parsed line of JSON; raise InvalidEventError if the data are not a valid event."""
    if not isinstance(record, dict):
        raise InvalidEventError("an event must be a JSON object")
    try:
        # `untag` goes through the whole line: any value in it may be in tagged form.
        return event_from_dict(untag(record))
    except ValueError as error:
        raise InvalidEventError(f"not an event: {error}") from error


# --- recorded values as text for people, and as JSON for other programs ---


def readable(value: Any, *, indent: int | None = None) -> str:
    """Return a recorded value as text for people: a string unchanged, a frame as a short description, any other value
    as JSON.

    >>> readable({"big": 10**30, "small": [1]})
    '{"big": 1000000000000000000000000000000, "small": [1]}'
    """
    if isinstance(value, str):
        return visible(value)
    if type(value) is int:
        return str(value)
    data = plain_shown(normalize(value))
    return visible(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=indent))


def json_form(value: Any, *, has_frames: bool = True) -> Any:
    """Return a value as plain JSON data for other programs. All exports of results use this conversion.

    Dates, times, decimals, fractions, paths, UUIDs and addresses become strings, a timedelta an ISO 8601 duration
    (``PT90S``); bytes become base64; NaN and infinities null; a tuple or set becomes a list; a key of a mapping becomes
    a string; a dataclass, pydantic model or named tuple becomes an object, an enum its value; a frame becomes a list of
    records, or its description if `has_frames` is False. Bytes, NaN and infinities in this form cannot be used as
    inputs again. A value without such a form, such as a frame that is too large for a list, becomes a string that
    describes the value.

    >>> json_form({1: (float("nan"), b"a", Decimal("0.10"))})
    {'1': [None, 'YQ==', '0.10']}
    """
    return _json_form(normalize(value), has_frames=has_frames)


def _json_form(value: Any, *, has_frames: bool = True) -> Any:
    match value:
        case Recorded():
            return _json_form_of_recorded(value, has_frames=has_frames)
        case float():
            return float(value) if math.isfinite(value) else None
        case bytes():
            return base64.b64encode(value).decode()
        case timedelta():
            return _duration(value)
        case date() | time():  # also a datetime, which is a subclass of date
            return value.isoformat()
        case Decimal():
            return str(value)
        case dict():
            return {_json_key(key): _json_form(item, has_frames=has_frames) for key, item in value.items()}
        case list() | tuple():
            return [_json_form(item, has_frames=has_frames) for item in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def _json_form_of_recorded(value: Recorded, *, has_frames: bool) -> Any:
    if value.tag == "arrow" and not has_frames:
        return value.summary()
    # Each form opens into plainer forms. One that has none, such as a huge frame, is described instead.
    try:
        return _json_form(value.plain(), has_frames=has_frames)
    except (ValueError, TypeError, DivebookError):  # a TypeError of a forged value
        return value.summary()


def _duration(value: timedelta) -> str:
    # -90 s -> "-PT90S", 1.5 s -> "PT1.5S". The sign is in front of the whole duration.
    microseconds = abs(value) // timedelta(microseconds=1)
    seconds = f"{microseconds // 10**6}.{microseconds % 10**6:06}".rstrip("0").rstrip(".")
    return f"{'-' if value < timedelta() else ''}PT{seconds}S"


def _json_key(key: Any) -> str:
    form = _json_form(key)
    return form if isinstance(form, str) else json.dumps(form)
