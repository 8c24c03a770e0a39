"""Conversion of Python values to data that a log can contain (`normalize`), and to and from JSON with tagged values
(dicts with the key ``$type``).

`normalize` runs once, when a value is recorded. It copies the value into plain lists and dicts, so that running code
gets exactly the same value as a later reader. It raises an error with the path to the first part that cannot be stored.
A value comes back with its original type, or is refused.

JSON lacks infinities, integers beyond 64 bits, bytes, dates and decimals. They are written in tagged form, and so are
`Recorded` values: tuples, sets and other containers, and the values of `divebook.events.recorded`,
`divebook.events.classes` and `divebook.events.arrow`. Examples (Python value, then JSON in the log)::

    [1, "a", None]          [1, "a", null]
    (1, 2)                  {"$type": "tuple", "value": [1, 2]}
    {1: "a"}                {"$type": "map", "value": [{"$type": "tuple", "value": [1, "a"]}]}
    float("inf")            {"$type": "float", "value": "inf"}
    b"ab"                   {"$type": "bytes", "value": "YWI="}
    date(2026, 1, 2)        {"$type": "date", "value": "2026-01-02"}
    deque([1], maxlen=3)    {"$type": "deque", "value": {"items": [1], "maxlen": 3}}
    Path("a/b")             {"$type": "path", "value": ["PosixPath", "a/b"]}
    {"$type": "x"}          {"$type": "dict", "value": [["$type", "x"]]}

Three conversions change the type. A scalar of numpy becomes a Python number. An instance of a subclass of str, int,
float, bytes, Decimal, date, time, datetime or timedelta becomes an instance of that class. A time zone that is neither
a `zoneinfo.ZoneInfo` nor a `datetime.timezone` becomes a fixed offset of the same name.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import math
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, TypeVar
from uuid import UUID

from divebook import plugins
from divebook.errors import DivebookError, UnopenableValueError, UnstorableValueError
from divebook.events.arrow import LIBRARIES, Arrow, ForeignScalar, record_foreign
from divebook.events.classes import (
    Instance,
    Member,
    PluginValue,
    kind_of,
    name_of,
    record_by_plugin,
    record_instance,
)
from divebook.events.recorded import (
    CONTAINERS,
    FACTORIES,
    KINDS,
    MANY,
    SEQUENCES,
    TAG,
    BigInt,
    Container,
    Deque,
    NonFinite,
    Recorded,
    StandardValue,
    TaggedDict,
    garbage_collection_paused,
    opened,
    record_moment,
    record_standard,
)

# --- values that a store keeps once, under their hash ---
#
# For values that are the same in many calls, such as schemas. In a store the value is a blob named by the hash of its
# content (`divebook.stores.encoding`), even if it is short; an export holds it in full. Values are compared by digest,
# so the cost of a comparison does not depend on the length.


class ByHash(Recorded):
    """Recorded form of a value that a store keeps only once, under its hash; created by
    `divebook.events.codec.by_hash`.
    """

    __slots__ = ("content", "value")
    tag: ClassVar[str] = "by_hash"

    def __init__(self, value: Any) -> None:
        self.value = value
        self.content: bytes | None = None
        """JSON of the value; None until `divebook.events.codec.content_of` encodes it."""

    def data(self) -> Any:
        """Return the value that the store keeps by its hash, in normalized form (plain data and recorded forms)."""
        return self.value

    def to_python(self) -> Any:
        """Build a new copy of the value that the store keeps by its hash, in which recorded forms are opened."""
        return opened(self.value)

    def plain(self) -> Any:
        """Return the value that the store keeps by its hash, in normalized form (plain data and recorded forms)."""
        return self.value

    def summary(self) -> str:
        """Return the type and the length of the stored value, such as ``dict of 12, stored by its hash``."""
        length = f" of {len(self.value):,}" if isinstance(self.value, str | list | dict) else ""
        return f"{type(self.value).__name__}{length}, stored by its hash"


# --- contents of files ---
#
# A log holds the digest of a file only. Its store keeps the content beside the log, as a blob of the unchanged bytes
# (`divebook.stores.encoding`), and `divebook.stores.maintenance` reads it. A log of a thousand snapshots is therefore
# read as fast as a log without snapshots.


_DIGEST = re.compile(r"[0-9a-f]{64}")


class StoredFile(Recorded):
    """Recorded form of a file: digest and size. Only the store has the content.

    Parameters
    ----------
    digest
        SHA-256 of the content, hexadecimal.
    size
        Bytes.
    content
        The content, if the store has yet to save it; None if the store has it already.
    """

    __slots__ = ("content", "digest", "size")
    tag: ClassVar[str] = "file"

    def __init__(self, digest: str, size: int, content: bytes | None = None) -> None:
        if not _DIGEST.fullmatch(digest) or type(size) is not int or size < 0:
            raise ValueError(f"{digest!r} with {size!r} bytes does not identify the content of a file")
        self.digest = digest
        self.size = size
        self.content = content

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return the recorded form of a file from its content. The content is attached, since the store has yet to save
        it.
        """
        return cls(sha256(content).hexdigest(), len(content), content)

    @staticmethod
    def all_in(payload: object) -> Iterator[StoredFile]:
        """Return an iterator over the `StoredFile` objects in the payload of an event; it yields nothing for events
        that are not about files.
        """
        # Only events about the files of a workspace have this field: a list of rows, one for each file.
        rows: Sequence[Any] = getattr(payload, "files", None) or ()
        return (part for row in rows if isinstance(row, list) for part in row if type(part) is StoredFile)

    def data(self) -> Any:
        """Return the digest and the size of the file."""
        return [self.digest, self.size]

    def to_python(self) -> NoReturn:
        """Raise UnopenableValueError, because the log does not contain the content of the file."""
        raise UnopenableValueError("file", "the content of a file is in the store, not in the log")

    def plain(self) -> NoReturn:
        """Raise ValueError, because the log does not contain the content of the file."""
        raise ValueError("the content of a file is in the store, not in the log: read it with files(...)")

    def summary(self) -> str:
        """Return a description of the file for people, with its size in bytes."""
        return f"file of {self.size:,} bytes"


T = TypeVar("T")

MAX_DEPTH = 200
# A value counts deeper than it is nested if opening it needs more nested calls. So everything that can be recorded can
# also be opened without a RecursionError (test_what_is_not_too_deep_to_be_recorded_can_be_opened).
INSTANCE_DEPTH = 2
"""Number of levels that an instance, tuple or set counts for, since opening it takes that many nested
function calls."""
PAIRS_DEPTH = 4
"""Number of levels that a mapping of pairs counts for, since each pair is a tuple."""
MAX_DIGITS = 4300
"""Maximum number of digits of an integer that Python converts from and to text."""
_ATOMS = frozenset({str, bool, type(None)})
_SCALARS = (datetime, date, time, timedelta, Decimal, bytes)
_EXACT = frozenset({date, timedelta, bytes})
_COLLECTIONS = frozenset({set, frozenset, deque})
_INTERNAL = frozenset({"divebook", "immutables"})
"""Packages whose mappings contain variables and parts of definitions, and are recorded as dicts."""
_INT64_MIN = -(2**63)
_UINT64_MAX = 2**64 - 1


_Path: TypeAlias = "str | tuple[_Path, str | int]"
"""Path to a value: text, or a pair of the container's path and the key.

A pair is converted to text only for an error.
"""


_RECORDABLE = (
    *(str, int, float, complex, bytes, bytearray, list, tuple, set, frozenset, deque, range, type(None), Mapping),
    *(date, time, timedelta, tzinfo, Decimal, Fraction, UUID, PurePath, Recorded),
    *(IPv4Address, IPv6Address, IPv4Network, IPv6Network),
)


_CONVERTED = (str, int, float, bytes, datetime, date, time, timedelta, Decimal)
"""Classes as whose instances a log contains instances of their subclasses. A datetime is also a date."""


def is_recordable_type(cls: type) -> bool:
    """Return False if a log can contain no instance of a class, whatever its value is. Instances of a class that
    `divebook.allow` accepts, or for which a plugin is installed, count as recordable.
    """
    if issubclass(cls, _RECORDABLE) or kind_of(cls) is not None:
        return True
    if cls.__module__.partition(".")[0] in {*LIBRARIES, *_INTERNAL}:
        return True
    if plugins.distribution_of(plugins.VALUES, name_of(cls)) is not None:
        return True
    # A subclass of these may be recordable.
    return cls is object or inspect.isabstract(cls) or bool(cls.__subclasses__()) or getattr(cls, "_is_protocol", False)


def recorded_base(cls: type) -> type | None:
    """Return the built-in class whose instances a log contains in place of the instances of a subclass, such as `str`
    for ``class Name(str)``; None for a class whose instances come back as they were, or are refused.
    """
    base = next((base for base in _CONVERTED if issubclass(cls, base)), None)
    if base is None or cls in (base, bool) or kind_of(cls) is not None:
        return None
    if cls.__module__.partition(".")[0] in {*LIBRARIES, *_INTERNAL}:
        return None
    return None if plugins.distribution_of(plugins.VALUES, name_of(cls)) is not None else base


def normalize(value: Any, path: str = "value", recorded_ids: Collection[int] = ()) -> Any:
    """Convert a value to data that a log can contain without loss: plain data and recorded forms (`Recorded`).

    Parameters
    ----------
    value
        JSON-like data. Dates, times, decimals and bytes stay; tuples, sets, mappings with other keys than strings,
        paths, frames, arrays and instances of allowed classes become `Recorded`.
    path
        Name of the value, for the error.
    recorded_ids
        The ``id`` of values that the log holds already because they are unchanged variables. They are returned as they
        are if they are the value itself or stand in it under keys.

    Raises
    ------
    UnstorableValueError
        With the path to the offending part.
    """
    # These values are in normalized form already. The caller holds them (in a mapping from id to value), so that their
    # ids cannot pass to other objects.
    if recorded_ids and id(value) in recorded_ids:
        return value
    if recorded_ids and type(value) is dict and TAG not in value and all(type(key) is str for key in value):
        return {key: normalize(item, f"{path}.{key}", recorded_ids) for key, item in value.items()}
    try:
        return _normalize(value, path, 0)
    except RecursionError:
        raise UnstorableValueError(path, "nested too deeply; does it contain itself?") from None
    except DivebookError:
        raise
    # A class may raise anything when its attributes or items are read, even SystemExit and KeyboardInterrupt. Nothing
    # is awaited here, so a CancelledError also comes from the class (`tests/odd_results.py`).
    except BaseException as error:
        name = type(error).__name__
        raise UnstorableValueError(
            path, f"its class, or that of a value in it, raised {name} when it was read; use plain data"
        ) from error


def _path_text(place: _Path) -> str:
    if isinstance(place, str):
        return place
    holder, key = place
    return f"{_path_text(holder)}.{key}" if isinstance(key, str) else f"{_path_text(holder)}[{key}]"


def _normalize(value: Any, path: _Path, depth: int) -> Any:
    # Exact types only: instances of subclasses go to `_normalize_other`.
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        return value if _INT64_MIN <= value <= _UINT64_MAX else _big(value, _path_text(path))
    if kind is float:
        return value if math.isfinite(value) else NonFinite(value)
    # Also reached by a list that contains itself, before Python's recursion limit is.
    if depth >= MAX_DEPTH:
        # Its whole path would be an error text of many lines.
        raise UnstorableValueError(
            f"{_path_text(path):.80}...", f"nested deeper than {MAX_DEPTH} levels; does it contain itself?"
        )
    if kind is dict or kind is TaggedDict:
        return _normalize_mapping(value, path, depth)
    if kind is list:
        if len(value) < MANY:
            return _normalize_items(value, path, depth)
        with garbage_collection_paused():
            return _normalize_items(value, path, depth)
    # A tuple counts `INSTANCE_DEPTH` levels, of which `_normalize_items` adds one.
    if kind is tuple:
        return Container("tuple", _normalize_items(value, path, depth + INSTANCE_DEPTH - 1))
    return _normalize_other(value, _path_text(path), depth)


def _normalize_items(value: Sequence[Any], path: _Path, depth: int) -> list[Any]:
    return [
        item if type(item) in _ATOMS else _normalize(item, (path, index), depth + 1) for index, item in enumerate(value)
    ]


def _big(value: int, path: str) -> BigInt:
    if value.bit_length() > MAX_DIGITS * 3.32:  # log2(10), rounded down
        raise UnstorableValueError(path, f"an integer of more than {MAX_DIGITS} digits; store it as bytes or a float")
    return BigInt(value)


def _normalize_mapping(value: Mapping[Any, Any], path: _Path, depth: int) -> Any:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        # One other key is enough: all entries are then recorded as pairs, which keep the types and the order of keys.
        if type(key) is not str:
            return _normalize_pairs("map", value, _path_text(path), depth)
        kind = type(item)
        is_plain = kind in _ATOMS or (kind is int and _INT64_MIN <= item <= _UINT64_MAX)
        plain[key] = item if is_plain else _normalize(item, (path, key), depth + 1)
    return TaggedDict(plain) if TAG in plain else plain


def _normalize_pairs(tag: str, value: Mapping[Any, Any], path: str, depth: int) -> Container:
    """Convert a mapping to the recorded form of a list of pairs, because JSON cannot represent the mapping's class or
    its keys.
    """
    within = depth + PAIRS_DEPTH
    pairs = (
        (key, item, f"{path}.{key}" if type(key) is str else f"{path}[{key!r:.60}]") for key, item in value.items()
    )
    return Container(
        tag,
        [
            Container("tuple", [_normalize(key, f"{place} (the key)", within), _normalize(item, place, within)])
            for key, item, place in pairs
        ],
    )


def _normalize_other_mapping(value: Mapping[Any, Any], path: str, depth: int) -> Any:
    if type(value).__module__.partition(".")[0] in _INTERNAL:
        return _normalize_mapping(value, path, depth)
    return _normalize_pairs(_tag_of_mapping(value, path), value, path, depth)


def _tag_of_mapping(value: Mapping[Any, Any], path: str) -> str:
    """Return the tag under which the log stores a standard-library mapping, such as ``Counter``. Raise
    `UnstorableValueError` for a mapping of another class.
    """
    kind = type(value)
    if kind is OrderedDict or kind is Counter:
        return kind.__name__
    # A subclass would come back as its base class, so it is refused.
    if not isinstance(value, defaultdict) or kind is not defaultdict:
        raise UnstorableValueError(path, f"{_class_name(value)} would be read back as a dict; use dict(value)")
    factory = value.default_factory
    name = "None" if factory is None else getattr(factory, "__name__", "")
    if name not in FACTORIES or FACTORIES[name] is not factory:
        raise UnstorableValueError(path, "a defaultdict whose factory is not a built-in type; use dict(value)")
    return f"defaultdict({name})"


def _normalize_other(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    # From cheap and exact tests to general ones. An instance of an allowed class is recorded as such, and only then as
    # the built-in class that it derives from.
    if kind in _EXACT or isinstance(value, Recorded):
        return value
    if kind in _COLLECTIONS:
        return _normalize_collection(value, path, depth)
    if kind.__module__.partition(".")[0] in LIBRARIES:
        return _normalize_foreign(value, path, depth)
    # Before mappings, scalars and strings: an allowed class may be a subclass of one of them, such as a StrEnum.
    recorded = record_instance(value, path, lambda field, where: _normalize(field, where, depth + INSTANCE_DEPTH))
    if recorded is not None:
        return recorded
    if isinstance(value, Mapping):
        return _normalize_other_mapping(value, path, depth)
    if isinstance(value, _SCALARS):
        return _scalar(value, path)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return _normalize(float(value) if isinstance(value, float) else int(value), path, depth)
    recorded = record_standard(value, path) or record_by_plugin(value, path, lambda v, p: _normalize(v, p, depth + 2))
    if recorded is None:
        raise UnstorableValueError(path, f"{_class_name(value)} is not plain data; {_advice(value)}")
    return recorded


def _normalize_collection(value: Any, path: str, depth: int) -> Container:
    if type(value) is deque:
        return Deque(_normalize_items(value, path, depth + INSTANCE_DEPTH - 1), value.maxlen)
    items = [_normalize(item, path, depth + INSTANCE_DEPTH) for item in value]
    return Container(type(value).__name__, _sorted_items(items))


def _normalize_foreign(value: Any, path: str, depth: int) -> Any:
    recorded = record_foreign(value, path, lambda part, where: _normalize(part, where, depth + 1))
    if recorded is None:
        raise UnstorableValueError(path, f"{_class_name(value)} is not plain data; {_advice(value)}")
    return recorded


def _scalar(value: Any, path: str) -> Any:
    """Return a date, time, decimal or bytes object as an instance of the base class, so that no subclass is recorded. A
    time in a named zone is returned in recorded form.
    """
    if type(value) is datetime and not value.fold and (value.tzinfo is None or value.tzinfo is UTC):
        return value
    if isinstance(value, datetime | time) and (recorded := record_moment(value, path)) is not None:
        return recorded
    # Every comparison with a signaling NaN raises, and values of a log are compared.
    if isinstance(value, Decimal) and value.is_snan():
        return StandardValue("signaling_nan", [Decimal.__str__(value)])
    if type(value) is Decimal:
        return value
    # Written and read once, which gives an instance of the base class: a subclass of date becomes a date.
    tagged = tag(value)
    back = _DECODERS[tagged[TAG]](tagged["value"])
    if isinstance(value, datetime | time) and value.tzinfo is not None and back.tzinfo is None:
        raise UnstorableValueError(path, f"{value!r} has a time zone but no offset; add a date, or use a fixed offset")
    # `fromisoformat` reads an offset of less than a second as UTC.
    if isinstance(value, datetime | time) and back.utcoffset() != value.utcoffset():
        raise UnstorableValueError(
            path, f"{value!r} has an offset with fractions of a second; use an offset of whole seconds"
        )
    return back


def _sorted_items(items: list[Any]) -> list[Any]:
    """Return the items of a set in an order that is the same in every process, so that equal sets have equal bytes."""
    # Items of different types cannot be compared, so their type names and texts are.
    return sorted(items, key=lambda item: (type(item).__name__, _sort_text(item)))


def _sort_text(item: Any) -> str:
    # The summary of a Recorded value leaves parts out: two tuples of one length would keep the random order of the set.
    return json.dumps(item, default=tag, sort_keys=True) if isinstance(item, Recorded) else repr(item)


def _class_name(value: Any) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


_ADVICE: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (lambda value: isinstance(value, Coroutine), "write `await` before the call that returned it"),
    (lambda value: isinstance(value, set | frozenset), "use sorted(value) to make a list"),
    (lambda value: hasattr(value, "_fields"), "allow its class with divebook.allow, or use tuple(value)"),
    (lambda value: hasattr(value, "to_dict"), "use value.to_dict('records') or another plain form"),
    (lambda value: hasattr(value, "collect"), "use value.collect()"),
    (lambda value: hasattr(value, "__fspath__"), "use str(value)"),
    (lambda value: hasattr(value, "__next__"), "use list(value)"),
    (lambda value: hasattr(value, "tolist"), "use value.tolist()"),
    (lambda value: isinstance(value, Sequence), "use list(value)"),
)
"""Pairs of a condition on a value that cannot be recorded, and the advice in its error; the first match applies."""


def _advice(value: Any) -> str:
    other = "return text, numbers, lists, dicts, dates, bytes, frames, or instances of classes given to divebook.allow"
    return next((advice for holds, advice in _ADVICE if holds(value)), other)


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
    """Return `value`, read from the JSON of a recorded value, if it is an instance of `kind`; otherwise raise
    TypeError.
    """
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _container(name: str) -> Callable[[Any], Container]:
    if name in SEQUENCES:
        return lambda items: Container(name, untag(_as(list, items)))
    return lambda items: Container(name, [_pair(untag(pair)) for pair in _as(list, items)])


def _pair(pair: Any) -> Container:
    """Return `pair`, an entry of a recorded mapping, if it is a tuple of two items (key and value); otherwise raise
    TypeError or ValueError.
    """
    key, value = _as(Container, pair).items
    return Container("tuple", [key, value])


def _deque(value: Any) -> Deque:
    maxlen = None if value["maxlen"] is None else _as(int, value["maxlen"])
    deque(maxlen=maxlen)  # raises for a negative length, as in a log that was edited by hand
    return Deque(untag(_as(list, value["items"])), maxlen)


def _standard(name: str) -> Callable[[Any], StandardValue]:
    def read(content: Any) -> StandardValue:
        value = StandardValue(name, _as(list, content))
        value.summary()  # raises for content of another shape, as in a log that was edited by hand
        return value

    return read


def _instance(name: str, value: Mapping[str, Any]) -> Instance:
    fields = untag(_as(dict, value["fields"]))
    extra = value.get("extra")
    unset = [_as(str, field) for field in _as(list, value.get("unset", []))]
    recorded_extra = None if extra is None else untag(_as(dict, extra))
    private = untag(_as(dict, value.get("private", {})))
    return Instance(name, _as(str, value["class"]), fields, unset, recorded_extra, private=private)


def _member(value: Mapping[str, Any]) -> Member:
    return Member(_as(str, value["class"]), _as(str, value["name"]), untag(value["value"]))


def _plugin_value(value: Mapping[str, Any]) -> PluginValue:
    return PluginValue(_as(str, value["class"]), untag(value["content"]), _as(str, value["distribution"]))


def _arrow(value: Mapping[str, Any]) -> Arrow:
    shape = [_as(int, length) for length in _as(list, value["shape"])]
    return Arrow(_checked_kind(value["kind"]), shape, untag(_as(dict, value["layout"])), _as(str, value["data"]))


def _foreign(value: Mapping[str, Any]) -> ForeignScalar:
    parts = untag(_as(list, value["parts"]))
    if not parts:
        raise ValueError("its parts are missing")
    return ForeignScalar(_checked_kind(value["kind"]), parts)


def _checked_kind(kind: Any) -> str:
    if _as(str, kind).partition(".")[0] not in LIBRARIES:
        raise ValueError(f"{kind!r} belongs to an unknown library")
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
    PluginValue.tag: _plugin_value,
    "arrow": _arrow,
    "scalar": _foreign,
    ByHash.tag: lambda value: ByHash(untag(value)),
    StoredFile.tag: lambda value: StoredFile(*_as(list, value)),
    "namedtuple": functools.partial(_instance, "namedtuple"),
    "deque": _deque,
    **{name: _container(name) for name in CONTAINERS},
    **{name: _standard(name) for name in KINDS},
}


def tag(value: Any) -> dict[str, Any]:
    """Convert a value that JSON cannot represent to a dict with the keys ``$type`` and ``value`` (its tagged form).
    orjson calls this function while it encodes.

    ``b"ab"`` becomes ``{"$type": "bytes", "value": "YWI="}``.
    """
    if isinstance(value, Recorded):
        return {TAG: value.tag, "value": value.data()}
    # The order of `_ENCODERS` matters: a datetime is a date, so it comes first.
    for cls, name, encode in _ENCODERS:
        if isinstance(value, cls):
            return {TAG: name, "value": encode(value)}
    raise TypeError(f"{_class_name(value)} was not normalized before it was written")


def untag(value: Any) -> Any:
    """Return decoded JSON in which tagged forms (dicts with the key ``$type``) are converted to the values that they
    represent, at any depth.

    Raises ValueError for an unknown or invalid tagged form.
    """
    if isinstance(value, list):
        return [untag(item) for item in value]
    if not isinstance(value, dict):
        return value
    # A dict of user data with the key ``$type`` cannot be mistaken: it was written as {"$type": "dict", "value":
    # pairs}.
    name = value.get(TAG)
    if name is None:
        return {key: untag(item) for key, item in value.items()}
    if not isinstance(name, str) or name not in _DECODERS:
        raise ValueError(f"values of type {name!r} are not known to this version of divebook")
    try:
        return _DECODERS[name](value["value"])
    # Errors of the decoders for content that `tag` did not write; an invalid number raises an ArithmeticError.
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a value of type {name!r} has the wrong format: {type(error).__name__}: {error}") from error
