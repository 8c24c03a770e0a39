"""Events as bytes and back.

A payload is one JSON object. `encode_line`/`decode_line` write a whole event as one JSON line, with the seed's keys.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin

import orjson

from divebook.errors import CorruptStoreError, DivebookError, InvalidEventError, NewerStoreError, UnstorableValueError
from divebook.events.catalog import PAYLOADS, Mutation, Payload, StateMutated
from divebook.events.classes import Instance
from divebook.events.event import Event, to_microseconds, validate
from divebook.events.payload import WHOLE, declared, missing_field, wrong_field
from divebook.events.recorded import TAG, BigInt, Container, NonFinite, Recorded, StandardValue, TaggedDict
from divebook.events.upcast import FORM, upcast
from divebook.events.values import ByHash, normalize, tag, untag
from divebook.text.format import visible

# What a payload says, if each of its fields holds just what its class declares: the check of `shapes`, compiled.
#
# Nearly all payloads do, so a class gets a function of its own that looks at each field once. It knows only plain
# types; for all else, and to say what is wrong, there is `divebook.events.codec.looked_through`, which gives the same
# where both answer (test_what_the_compiled_check_lets_pass_is_what_the_other_gives).


Said: TypeAlias = Callable[[Any], dict[str, Any]]
"""Returns what a payload says, ready to be encoded."""

_CONDITIONS: Mapping[Any, str] = {
    str: "t is not str",
    bool: "t is not bool",
    int: "not (t is int and -WHOLE <= v < WHOLE)",
    float: "not (t is float and v - v == 0)",  # which infinities and NaN are not
    Mapping[str, Any]: "t is not dict",
    Sequence[Any]: "t is not list and t is not tuple",
}


def compiled(kind: type[Payload], otherwise: Said) -> Said:
    """Return a function for the payloads of a class, which asks `otherwise` of one that is not all plain, or wrong."""
    if kind is StateMutated:
        return _changes(otherwise)
    if kind.to_data is not Payload.to_data:
        return otherwise
    lines = [f"def plain(payload):\n data = { ({FORM: kind.form} if kind.form else {})!r}"]
    lines += [_looked_at(name, hint) for name, hint in declared(kind).items()]
    names: dict[str, Any] = {"WHOLE": WHOLE, "otherwise": otherwise}
    exec("\n".join([*lines, " return data"]), names)  # noqa: S102 - as dataclasses do, of our own classes
    plain: Said = names["plain"]
    return plain


def _looked_at(name: str, hint: Any) -> str:
    """Return the lines that take over one field, or give up."""
    read = f" v = payload.{name}"
    taken = f"data[{name!r}] = v"
    if hint is Any:
        return f"{read}\n if v is not None: {taken}"
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    unfit = " and ".join(f"({_CONDITIONS[choice]})" for choice in choices if choice in _CONDITIONS) or "True"
    if types.NoneType not in choices:
        return f"{read}\n t = type(v)\n if {unfit}: return otherwise(payload)\n {taken}"
    return f"{read}\n if v is not None:\n  t = type(v)\n  if {unfit}: return otherwise(payload)\n  {taken}"


def _changes(otherwise: Said) -> Said:
    """Return the function for changes of variables, which are of a class of their own."""

    def plain(payload: StateMutated) -> dict[str, Any]:
        mutations = payload.mutations
        if type(mutations) is not tuple:
            return otherwise(payload)
        data: list[dict[str, Any]] = []
        for mutation in mutations:
            if type(mutation) is not Mutation:
                return otherwise(payload)
            data.append(mutation.to_data())
        return {"mutations": data}

    return plain


P = TypeVar("P", bound=Payload)

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
DEEPEST = 254
"""Levels of lists and mappings that `encode` writes."""
_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_SMALL = frozenset({int, float, bool, type(None)})
"""What can always be written, once it is normalized."""
TAGGED = f'"{TAG}"'.encode()
"""In what has no such bytes, nothing is written in a form of ours."""


def encode(data: Any, path: str = "data") -> bytes:
    """Encode normalized data as JSON; `path` names it in errors.

    Raises
    ------
    UnstorableValueError
        Text that is not valid Unicode, or more than 64 MiB.
    """
    return _encoded(data, path, _OPTIONS)


def encode_all(data: Sequence[Any], tagged: Callable[[Any], Any] = tag) -> list[bytes]:
    """Encode several things as `encode` does; `tagged` is to do with values that JSON lacks what `tag` does."""
    try:
        lines = [orjson.dumps(each, tagged, _OPTIONS) for each in data]
    except TypeError:
        return list(map(encode, data))  # says which, and where
    for line in lines:
        if len(line) > MAX_PAYLOAD_BYTES:
            check_size(len(line))
    return lines


def encode_parts(data: Any, plain: Callable[[Any], Any]) -> bytes:
    """Encode data with parts that `plain` turns into normalized data, each when its turn comes; of any size."""

    def written(part: Any) -> Any:
        found = plain(part)
        return tag(part) if found is part else found

    return _dumped(data, "data", _OPTIONS | orjson.OPT_PASSTHROUGH_DATACLASS, written)


def encode_shown(data: Any, *, tagged: bool = False) -> bytes:
    """Encode normalized data as JSON for people: frames, classes and the like as a few words, never in full.

    Parameters
    ----------
    tagged
        For programs: dates, bytes and infinities stay in tagged form, so that they are not taken for texts.
    """
    return orjson.dumps(data, default=_tagged_hint if tagged else _hint, option=_OPTIONS)


def _tagged_hint(value: Any) -> Any:
    return _hint(value) if isinstance(value, BigInt | Recorded) else tag(value)


def _hint(value: Any) -> Any:
    if isinstance(value, BigInt):
        return orjson.Fragment(int.__repr__(value))
    if isinstance(value, NonFinite):
        return float.__repr__(value)
    if isinstance(value, TaggedDict):
        return dict(value)
    if isinstance(value, Container):
        return {_shown_key(key): item for key, item in value.plain().items()} if value.is_mapping else value.items
    return f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)


def _shown_key(key: Any) -> str:
    return key if isinstance(key, str) else encode_shown(normalize(key)).decode().strip('"')


def _dumped(data: Any, path: str, option: int, default: Callable[[Any], Any]) -> bytes:
    try:
        return orjson.dumps(data, default=default, option=option)
    except TypeError as error:
        raise UnstorableValueError(locate_surrogate(data, path) or path, str(error)) from None


def _encoded(data: Any, path: str, option: int, tagged: Callable[[Any], Any] = tag) -> bytes:
    encoded = _dumped(data, path, option, tagged)
    if len(encoded) > MAX_PAYLOAD_BYTES:
        check_size(len(encoded), path)
    return encoded


def check_size(size: int, path: str = "data") -> None:
    """Raise UnstorableValueError if an event cannot hold so many bytes."""
    if size > MAX_PAYLOAD_BYTES:
        raise UnstorableValueError(
            path,
            f"{size:,} bytes are more than the {MAX_PAYLOAD_BYTES:,} one event may hold; "
            "store it as a document and keep its path",
        )


def storable(value: Any, path: str) -> Any:
    """Return the value as plain data, once it is sure that an event can hold it.

    Raises
    ------
    UnstorableValueError
        With the path to what cannot be stored.
    """
    plain = normalize(value, path)
    if type(plain) not in _SMALL:
        encode(plain, path)
    return plain


def locate_surrogate(value: Any, path: str) -> str | None:
    """Return the place of the first string that has no form in UTF-8, or None."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return path
        return None
    pairs = (
        ((f"{path}.{key}", part) for key, item in value.items() for part in (key, item))
        if isinstance(value, dict)
        else ((f"{path}[{index}]", item) for index, item in enumerate(value))
        if isinstance(value, list | tuple)
        else ()
    )
    return next((found for where, item in pairs if (found := locate_surrogate(item, where))), None)


def decode(raw: bytes | str) -> Any:
    """Decode what `encode` wrote."""
    mark: bytes | str = TAGGED if isinstance(raw, bytes) else TAGGED.decode()
    value = orjson.loads(raw) if len(raw) <= 2 * DEEPEST else _not_too_deep(orjson.loads(raw), raw)
    return untag(value) if mark in raw else value  # type: ignore[operator]


def parse(raw: bytes | str) -> Any:
    """Parse JSON and leave what `tag` wrote as it is; ValueError says what is wrong."""
    return orjson.loads(raw) if len(raw) <= 2 * DEEPEST else _not_too_deep(orjson.loads(raw), raw)


def _not_too_deep(value: Any, raw: bytes | str) -> Any:
    """Return decoded JSON, unless it is nested deeper than anything that `encode` writes."""
    begins: Sequence[Any] = (b"[", b"{") if isinstance(raw, bytes) else ("[", "{")
    if sum(map(raw.count, begins)) > DEEPEST:
        try:
            # A tenth of a walk through it, and just as exact
            # (test_what_is_nested_deeper_than_anything_written_is_refused).
            orjson.dumps(value)
        except TypeError:
            raise ValueError(f"nested deeper than {DEEPEST} levels, which no log can hold") from None
    return value


def canonical_hash(data: Any, path: str = "data", *, whole: bool = False) -> str:
    """SHA-256 (hexadecimal) of normalized data, the same for every order of keys; refuses what `encode` refuses.

    What is kept by its hash counts by that; by all that it holds if the `whole` is meant.
    """
    return hashlib.sha256(_encoded(data, path, _OPTIONS | orjson.OPT_SORT_KEYS, tag if whole else _hashed)).hexdigest()


def short_hash(data: Any, path: str = "data") -> str:
    """Return so much of a hash as tells one operation of an execution from another, or what it was made with."""
    return canonical_hash(data, path)[:16]


def _hashed(value: Any) -> Any:
    """Return the form of a value that its hash covers.

    Older versions recorded a tuple as a list, a mapping of the standard library as a dict, and a datetime in a named
    zone at its offset. Their hashes must still match, so those forms are hashed. The fields of an instance kept tuples
    and sets already, so there a tuple is hashed as a tuple.
    """
    if type(value) is ByHash:
        return {TAG: ByHash.tag, "value": digest_of(value)}
    if isinstance(value, Instance):
        return orjson.Fragment(orjson.dumps(tag(value), _hashed_field, _OPTIONS | orjson.OPT_SORT_KEYS))
    if isinstance(value, Container) and value.tag == "tuple":
        return value.items
    return _hashed_field(value)


def _hashed_field(value: Any) -> Any:
    if isinstance(value, Container) and value.is_mapping:
        keys_and_values = value.plain()
        if all(type(key) is str for key in keys_and_values):
            return TaggedDict(keys_and_values) if TAG in keys_and_values else keys_and_values
    return tag(value.plain() if isinstance(value, StandardValue) and value.tag in ("zoned", "folded_time") else value)


def by_hash(value: Any, path: str = "value") -> ByHash:
    """Return a value as the log keeps it once, under its hash; raises `UnstorableValueError`."""
    found = ByHash(normalize(value, path))
    content_of(found, path)
    return found


def content_of(kept: ByHash, path: str = "value") -> bytes:
    """Return what is kept: the value as JSON."""
    if kept.content is None:
        kept.content = encode(kept.value, path)
    return kept.content


def digest_of(kept: ByHash) -> str:
    """Return the hash under which a value is kept, hexadecimal."""
    return hashlib.sha256(content_of(kept)).hexdigest()


def decode_payload(event_type: str, raw: bytes | str) -> Payload:
    """Decode a payload by its event type, older forms included.

    Raises
    ------
    NewerStoreError
        The type is not known: a newer version wrote it.
    CorruptStoreError
        The bytes are not what that type looks like.
    """
    try:
        return payload_from(event_type, decode(raw))
    except (ValueError, KeyError, TypeError, InvalidEventError) as error:
        raise CorruptStoreError(f"a {event_type} event cannot be read: {error}") from error


def payload_read(event_type: str, data: Any) -> Payload:
    """Build a payload of what a store holds, as `payload_from` does; raises as `decode_payload`."""
    try:
        return payload_from(event_type, data)
    except (ValueError, KeyError, TypeError, InvalidEventError) as error:
        raise CorruptStoreError(f"a {event_type} event cannot be read: {error}") from error


def payload_from(event_type: str, data: Any) -> Payload:
    """Build a payload from plain data, after bringing old forms up to date."""
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
    wrong = wrong_field(kind, data)
    if wrong is not None:
        raise InvalidEventError(f"{event_type}: {wrong}")
    return kind.from_data(data)


def sound_data(payload: Payload) -> dict[str, Any]:
    """Return what a payload says; InvalidEventError if it could not be read again, so that it is never recorded."""
    return SOUND[type(payload)](payload)


def looked_through(payload: Payload) -> dict[str, Any]:
    """Return what any payload says, as `sound_data` does."""
    try:
        data = payload.to_data()
    except AttributeError as error:  # an entry that is not of the class it should be
        raise InvalidEventError(f"{payload.event_type}: {error}") from error
    wrong = wrong_field(type(payload), data) or missing_field(payload)
    if wrong is not None:
        raise InvalidEventError(f"{payload.event_type}: {wrong}")
    return data


class _Sound(dict[type, Said]):
    """By class of payload, what `sound_data` does; the function is made when the first one comes."""

    def __missing__(self, kind: type) -> Said:
        if not issubclass(kind, Payload):
            raise InvalidEventError(f"data is required and must be a payload, got {kind.__name__}")
        self[kind] = compiled(kind, looked_through)
        return self[kind]


SOUND = _Sound()


def checked(payload: P) -> P:
    """Return a payload that holds what a person's code gave, once it is sure that it can be written.

    Asked where code hands it over, so that the step fails of it: one that is refused later ends the whole run.

    Raises
    ------
    InvalidEventError, UnstorableValueError
        It cannot.
    """
    encode(sound_data(payload), payload.event_type)
    return payload


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return the event as plain data with the seed's keys; empty path and step are left out."""
    record: dict[str, Any] = {
        "id": event.id,
        "execution_id": event.execution_id,
        "sequence": event.sequence,
        "timestamp": event.timestamp.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "event_type": event.event_type,
    }
    if event.path:
        record["path"] = event.path
    if event.step:
        record["step"] = event.step
    record["data"] = event.data.to_data()
    return record


_NEEDED = {"id": "event id", "execution_id": "execution id", "timestamp": "timestamp", "data": "data"}


def event_from_dict(record: dict[str, Any]) -> Event:
    """Build an event from `event_to_dict`'s form, or from the seed's older keys ``path_id`` and ``step_name``."""
    for key, name in _NEEDED.items():
        if not record.get(key) and record.get(key) != {}:
            raise InvalidEventError(f"{name} is required")
    path, step = _place(record)
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


def _place(record: dict[str, Any]) -> tuple[Any, Any]:
    """Return path and step; the old system wrote other names in their place where it had none."""
    path = record.get("path") or record.get("path_id") or ""
    step = record.get("step") or record.get("step_name") or ""
    if str(record.get("event_type")).startswith("execution_"):
        return "", ""
    operation = record["data"].get("operation_id") if isinstance(record["data"], dict) else None
    return "" if path == record.get("execution_id") else path, "" if step == operation else step


def encode_line(event: Event) -> bytes:
    """Encode an event as one line of JSON, without the line break."""
    return encode(event_to_dict(event))


def decode_line(line: bytes | str) -> Event:
    """Decode one line of JSON; InvalidEventError says what is wrong with it."""
    try:
        record = parse(line)
    except ValueError as error:
        raise InvalidEventError(f"not a line of JSON: {error}") from None
    return decode_record(record)


def decode_record(record: Any) -> Event:
    """Build an event from a line of JSON as it was parsed; InvalidEventError says what is wrong with it."""
    if not isinstance(record, dict):
        raise InvalidEventError("an event is a JSON object")
    try:
        return event_from_dict(untag(record))
    except ValueError as error:
        raise InvalidEventError(f"not an event: {error}") from error


# Recorded values as people read them, and as JSON for other programs.


def readable(value: Any, *, indent: int | None = None) -> str:
    """Return a value for people: a text as it is, a frame or the like in a few words, anything else as JSON.

    >>> readable({"big": 10**30, "small": [1]})
    '{"big": 1000000000000000000000000000000, "small": [1]}'
    """
    if isinstance(value, str):
        return visible(value)
    if type(value) is int:
        return str(value)
    data = json.loads(encode_shown(normalize(value)))
    return visible(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=indent))


def json_form(value: Any) -> Any:
    """Return a value as JSON that any program reads, by one rule for every place where divebook gives results away.

    Dates, times, decimals, fractions, paths, UUIDs and addresses become strings, a timedelta an ISO 8601 duration
    (``PT90S``); bytes become base64; NaN and infinities null; a tuple or set becomes a list; a key of a mapping becomes
    a string; a dataclass, pydantic model or named tuple becomes an object, an enum its value; a frame becomes a list of
    records. A value without such a form, such as a frame that is too large for a list, becomes a string that describes
    it.

    >>> json_form({1: (float("nan"), b"a", Decimal("0.10"))})
    {'1': [None, 'YQ==', '0.10']}
    """
    return _json_form(normalize(value))


def _json_form(value: Any) -> Any:
    match value:
        case Recorded():
            try:
                return _json_form(value.plain())
            except (ValueError, DivebookError):
                return value.summary()
        case float():
            return float(value) if math.isfinite(value) else None
        case bytes():
            return base64.b64encode(value).decode()
        case timedelta():
            return _duration(value)
        case date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case dict():
            return {_json_key(key): _json_form(item) for key, item in value.items()}
        case list() | tuple():
            return [_json_form(item) for item in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def _duration(value: timedelta) -> str:
    microseconds = abs(value) // timedelta(microseconds=1)
    seconds = f"{microseconds // 10**6}.{microseconds % 10**6:06}".rstrip("0").rstrip(".")
    return f"{'-' if value < timedelta() else ''}PT{seconds}S"


def _json_key(key: Any) -> str:
    form = _json_form(key)
    return form if isinstance(form, str) else json.dumps(form)
