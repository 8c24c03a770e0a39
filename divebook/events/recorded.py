"""Recorded forms: immutable descriptions, stored in a log, of Python values that JSON cannot represent.

This file has the base class (`Recorded`), and the forms of containers and of values of the standard library.

Events and the state of an execution contain recorded forms. A recorded form describes a value as plain data, so that it
needs neither the class nor the library of the value. When user code gets the value (a DataFrame, a dataclass), `opened`
builds a new one. For example, a tuple with a path has three forms::

    (1, Path("a"))                                                             the value of user code
    Container("tuple", [1, StandardValue("path", ["PosixPath", "a"])])         in events and in the state
    {"$type": "tuple", "value": [1, {"$type": "path", "value": [...]}]}        in the log

This has three effects. Code receives the same value whether a call ran now or was replayed from the log. Changes that
code makes to the value do not reach the log. A log can be read where the class or library is missing.
"""

from __future__ import annotations

import base64
import gc
import importlib
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pickle import PicklingError
from typing import Any, ClassVar, NamedTuple, TypeAlias

from divebook.errors import UnopenableValueError, UnstorableValueError

# --- pause of the garbage collection while many small values are built ---


MANY = 4096
"""Minimum length of a list for which pausing the garbage collection saves time."""


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collection inside the `with` block, for code that builds many small values.

    Otherwise Python would scan all objects of the kernel several times meanwhile, which takes longer than building the
    values (`benchmarks/values.py`). If two threads use this at a time, the first one that leaves its block ends the
    pause.
    """
    # A caller that has turned off the collection itself finds it turned off afterwards.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


TAG = "$type"
ATOMS = frozenset({str, int, float, bool, type(None)})

Normalize: TypeAlias = Callable[[Any, str], Any]
"""Function from a value and its path to plain data or a recorded form; raises `UnstorableValueError`."""


class BigInt(int):
    """Integer beyond 64 bits, which the log stores as a string because JSON readers would round a number."""


class NonFinite(float):
    """Float that JSON cannot represent: NaN, infinity or minus infinity."""


class TaggedDict(dict[str, Any]):
    """Dict of user data that has the key ``$type``. The log stores it as pairs of key and value, so that it is not
    mistaken for a recorded form, which has the same key.
    """


class Recorded(ABC):
    """Base class of recorded forms. A recorded form describes a Python value as plain data, and its `open` builds the
    value again.
    """

    __slots__ = ()
    tag: ClassVar[str]
    """Name of the kind of value, which the log stores under the key ``$type``."""

    @abstractmethod
    def data(self) -> Any:
        """Return the plain data that describe the recorded value. The log stores them under the key ``value``."""

    @abstractmethod
    def to_python(self) -> Any:
        """Build a new Python value, equal to the original, from the recorded form.

        Raises
        ------
        UnopenableValueError
            The class of the value is not allowed in this process or has changed, or its library is missing.
        """

    @abstractmethod
    def summary(self) -> str:
        """Return a short description of the recorded value for people."""

    @abstractmethod
    def plain(self) -> Any:
        """Return the value as plain data for scripts and JSON. Raise ValueError with advice if it has no such form."""

    def least_bytes(self) -> int:
        """Return a lower bound of the encoded size in bytes, computed without encoding the value."""
        return 0

    def inside(self) -> Any:
        """Return the values that the recorded value contains as a list or mapping, in recorded form; None if it
        contains none.
        """
        return None

    def parts(self, change: Callable[[Any], Any]) -> Recorded:  # noqa: ARG002 - for those that have parts
        """Return a copy of the recorded form in which each contained value is replaced by the result of `change`. If
        the recorded form contains no values, return it unchanged.
        """
        return self

    def with_named_parts(self, change: Callable[[str, Any], Any]) -> Recorded:
        """Return a copy of the recorded form in which each contained value is replaced by ``change(name, value)``. The
        name is that of the field or key, and empty for the items of a sequence, which are one value.
        """
        return self.parts(lambda part: change("", part))

    def __repr__(self) -> str:
        return self.summary()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recorded) and self.tag == other.tag and bool(self.data() == other.data())

    def __hash__(self) -> int:
        return hash((type(self), self.summary()))


class Container(Recorded):
    """Recorded form of a tuple, a set, or a mapping that JSON cannot represent.

    A mapping is a list of pairs, so its keys may be of any type and keep their order.
    """

    __slots__ = ("items", "tag")

    def __init__(self, tag: str, items: list[Any]) -> None:
        self.tag = tag  # type: ignore[misc]
        self.items = items

    @property
    def is_mapping(self) -> bool:
        """True if the container is a mapping. Its items are then pairs of key and value."""
        return self.tag not in SEQUENCES and self.tag != "deque"

    def data(self) -> Any:
        """Return the items of the recorded container; for a mapping, pairs of key and value."""
        return self.items

    def to_python(self) -> Any:
        """Build the tuple, set or mapping; recorded forms among its items are opened as well."""
        try:
            return CONTAINERS[self.tag](opened(self.items))
        except TypeError as error:  # an unhashable part, in a log that was edited by hand
            raise UnopenableValueError(self.tag, f"it cannot be restored: {error}") from error

    def plain(self) -> Any:
        """Return the items of the container as a list, or for a mapping as a dict, whose keys are hashable."""
        if not self.is_mapping:
            return self.items
        pairs = (pair.items for pair in self.items)
        return {_plain_key(key): item for key, item in pairs}

    def summary(self) -> str:
        """Return the kind of the container and its number of items: ``tuple of 3``."""
        return f"{self.tag} of {len(self.items):,}"

    def inside(self) -> Any:
        """Return the items of the recorded container as a list, or for a mapping as a dict, whose keys are hashable."""
        return self.plain()

    def with_named_parts(self, change: Callable[[str, Any], Any]) -> Recorded:
        """Return a copy of the recorded container. The name of a value of a mapping is its key as text."""
        if not self.is_mapping:
            return super().with_named_parts(change)
        pairs = (pair.items for pair in self.items)
        return Container(
            self.tag, [Container("tuple", [change("", key), change(str(key), part)]) for key, part in pairs]
        )

    def least_bytes(self) -> int:
        """Return a lower bound of the encoded size in bytes: each item takes at least a character and a comma."""
        return 2 * len(self.items)

    def parts(self, change: Callable[[Any], Any]) -> Recorded:
        """Return a copy of the recorded container. Its items are ``change(items)``, where `items` is the list of the
        items of this container.
        """
        return Container(self.tag, change(self.items))


class Deque(Container):
    """Recorded form of a `collections.deque`, with its maximum length (None without a limit)."""

    __slots__ = ("maxlen",)

    def __init__(self, items: list[Any], maxlen: int | None) -> None:
        super().__init__("deque", items)
        self.maxlen = maxlen

    def data(self) -> Any:
        """Return the items and the maximum length of the recorded deque."""
        return {"items": self.items, "maxlen": self.maxlen}

    def to_python(self) -> Any:
        """Build the deque; recorded forms among its items are opened as well."""
        return deque(opened(self.items), self.maxlen)

    def parts(self, change: Callable[[Any], Any]) -> Recorded:
        """Return a copy of the recorded deque. Its items are ``change(items)``, where `items` is the list of the items
        of this deque.
        """
        return Deque(change(self.items), self.maxlen)


def _plain_key(key: Any) -> Any:
    if isinstance(key, Container):
        return tuple(map(_plain_key, key.items))
    if not isinstance(key, Recorded):
        return key
    try:
        plain = key.plain()
    except ValueError:  # a range that is too long for a list
        return key.summary()
    # The plain form of a key may be a list, which a dict does not accept as a key.
    return plain if isinstance(plain, Hashable) else key.summary()


SEQUENCES: dict[str, Callable[[Iterable[Any]], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
FACTORIES: dict[str, Callable[[], Any] | None] = {
    "None": None,
    **{factory.__name__: factory for factory in (int, float, complex, str, bytes, bool, list, tuple, dict, set)},
    **{factory.__name__: factory for factory in (frozenset, bytearray, deque, Counter, OrderedDict, Decimal, Fraction)},
}
"""Default factories of a `defaultdict` that a log can name, by name."""
CONTAINERS: dict[str, Callable[[Iterable[Any]], Any]] = {
    **SEQUENCES,
    "map": dict,
    "OrderedDict": OrderedDict,
    "Counter": lambda pairs: Counter(dict(pairs)),
    **{f"defaultdict({name})": partial(defaultdict, factory) for name, factory in FACTORIES.items()},
}
"""Function that builds a container from its opened items, by tag."""


def opened(value: Any, *, lenient: bool = False) -> Any:
    """Return a copy of data from a log for user code, in which recorded forms are replaced by newly built Python
    values.

    Parameters
    ----------
    lenient
        Leave a value that cannot be opened in recorded form, instead of raising.

    Raises
    ------
    UnopenableValueError
        See `Recorded.open`.
    """
    return value if type(value) in ATOMS else _opened(value, lenient)


def _opened(value: Any, lenient: bool) -> Any:  # noqa: FBT001 - it calls itself for every part of a value
    # Exact types first: most values of a log are atoms, dicts and lists, and `isinstance` is slower.
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict or kind is TaggedDict:
        fresh = value.copy()
        for key, item in value.items():
            if type(item) not in ATOMS:
                fresh[key] = _opened(item, lenient)
        return fresh
    if kind is list:
        if len(value) < MANY:
            return [item if type(item) in ATOMS else _opened(item, lenient) for item in value]
        with garbage_collection_paused():
            return [_opened(item, lenient) for item in value]
    # Lists and dicts above are copied, and a recorded form becomes a new value. What user code changes in the result
    # therefore reaches neither the state nor another step.
    if isinstance(value, Recorded):
        return _opened_or_recorded(value) if lenient else value.to_python()
    return _builtin(value)


def _opened_or_recorded(value: Recorded) -> Any:
    try:
        return value.to_python()
    except UnopenableValueError:
        return value


def _builtin(value: Any) -> Any:
    """Convert an instance of the marker classes `BigInt` and `NonFinite` to a plain int or float. Any other value is
    returned unchanged.
    """
    if isinstance(value, BigInt):
        return int(value)
    return float(value) if isinstance(value, NonFinite) else value


# --- values of the standard library that JSON lacks: paths, UUIDs, fractions, addresses, ranges, time zones ---
#
# Their classes are recognised by module and name. A class is imported only when a value is opened, so a log is read
# without it. Dates, decimals and bytes are not among them: events and the state hold those values directly. A signaling
# NaN is, because every comparison with the decimal itself raises an error; so is a bytearray, which code can change.


LONGEST_RANGE = 100_000
"""Maximum length of a range that scripts and JSON get as a list."""
_PATHS = frozenset({"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"})


class StandardValue(Recorded):
    """Recorded form of a standard-library value such as a path, UUID, fraction, IP address, range or time zone.

    Parameters
    ----------
    tag
        The kind of value, a key of `KINDS`.
    content
        Strings and small integers from which the value is built.
    """

    __slots__ = ("content", "tag")

    def __init__(self, tag: str, content: list[Any]) -> None:
        self.tag = tag  # type: ignore[misc]
        self.content = content

    def data(self) -> Any:
        """Return the strings and integers from which the standard-library value is built again."""
        return self.content

    def to_python(self) -> Any:
        """Build the standard-library value from its recorded form."""
        try:
            return KINDS[self.tag].make(*self.content)
        # NotImplementedError: a path of another operating system. KeyError: a time zone that this machine lacks.
        except (NotImplementedError, KeyError, TypeError, ValueError, OSError) as error:
            raise UnopenableValueError(self.tag, f"{self.content} cannot be opened on this machine: {error}") from error

    def plain(self) -> Any:
        """Return the value in the form in which scripts and JSON get it: a string, list or datetime."""
        return KINDS[self.tag].plain(*self.content)

    def summary(self) -> str:
        """Return the value as text, such as the path or the UUID."""
        return KINDS[self.tag].text(*self.content)


class _Kind(NamedTuple):
    """Functions for one kind of standard-library value (path, UUID, ...). Each is called with the recorded content of a
    value.

    `make` builds the value, `plain` returns its form for scripts, and `text` returns its text.
    """

    make: Callable[..., Any]
    plain: Callable[..., Any]
    text: Callable[..., str]


def _of(module: str, name: str, allowed_names: frozenset[str], text: str) -> Any:
    """Build a standard-library object from a string: call the class `name` of a module with the string. Raise
    ValueError if the class is not in `allowed_names`.
    """
    # The log names only classes of these short lists, never any attribute of a module.
    if name not in allowed_names:
        raise ValueError(f"unknown class {name!r} of {module}")
    return getattr(importlib.import_module(module), name)(text)


def _range(start: str, stop: str, step: str) -> range:
    return range(int(start), int(stop), int(step))


def _range_text(start: str, stop: str, step: str) -> str:
    return f"range({start}, {stop}, {step})"


def _plain_range(start: str, stop: str, step: str) -> list[int]:
    numbers = _range(start, stop, step)
    # `len` of a range fails beyond 2**63, but a slice of the range is short.
    if len(numbers[: LONGEST_RANGE + 1]) > LONGEST_RANGE:
        raise ValueError(f"is {_range_text(start, stop, step)}, too long for a list; use its ends")
    return list(numbers)


def _fixed_zone(microseconds: int, name: str | None) -> timezone:
    offset = timedelta(microseconds=microseconds)
    return timezone(offset) if name is None else timezone(offset, name)


_ADDRESSES = frozenset(f"IPv{version}{kind}" for version in (4, 6) for kind in ("Address", "Network", "Interface"))


def _path(name: str, text: str) -> Any:
    return _of("pathlib", name, _PATHS, text)


def _address(name: str, text: str) -> Any:
    return _of("ipaddress", name, _ADDRESSES, text)


def _bytearray(text: str) -> bytearray:
    return bytearray(base64.b64decode(text))


def _signaling_nan(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_snan():
        raise ValueError(f"{text!r} is not a signaling NaN")
    return value


def _only(module: str, name: str) -> Callable[[str], Any]:
    return lambda text: _of(module, name, frozenset({name}), text)


_zone = _only("zoneinfo", "ZoneInfo")


def _zoned(text: str, key: str | None, fold: int, name: str | None = None) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=_zone_of(moment, key, name), fold=fold)


def _folded_time(text: str, fold: int, key: str | None = None, name: str | None = None) -> time:
    moment = time.fromisoformat(text)
    return moment.replace(tzinfo=_zone_of(moment, key, name), fold=fold)


def _zone_of(moment: datetime | time, key: str | None, name: str | None) -> Any:
    if key is not None:
        return _zone(key)
    offset = moment.utcoffset()
    return moment.tzinfo if name is None or offset is None else timezone(offset, name)


def _second(name: str, text: str) -> str:
    del name
    return str(text)


def _first(text: str, *_: Any) -> str:
    return str(text)


KINDS: dict[str, _Kind] = {
    "path": _Kind(_path, _second, _second),
    "uuid": _Kind(_only("uuid", "UUID"), str, str),
    "fraction": _Kind(_only("fractions", "Fraction"), str, str),
    "complex": _Kind(complex, str, str),
    "address": _Kind(_address, _second, _second),
    "range": _Kind(_range, _plain_range, _range_text),
    "bytearray": _Kind(_bytearray, base64.b64decode, lambda text: f"{len(base64.b64decode(text)):,} bytes"),
    "signaling_nan": _Kind(_signaling_nan, str, str),
    "timezone": _Kind(
        _fixed_zone, lambda *content: str(_fixed_zone(*content)), lambda *content: str(_fixed_zone(*content))
    ),
    "zone": _Kind(_zone, str, str),
    # The contents of the last two: ["2026-01-02T03:00:00+01:00", "Europe/Berlin", 0] and ["02:30:00", 0,
    # "Europe/Berlin"].
    "zoned": _Kind(_zoned, lambda text, *_: datetime.fromisoformat(text), _first),
    "folded_time": _Kind(_folded_time, lambda text, *_: time.fromisoformat(text), _first),
}

# Numbers are recorded as strings: those of a range or a fraction may have more than 64 bits.
_CONTENTS: dict[tuple[str, str], Callable[[Any], StandardValue]] = {
    ("uuid", "UUID"): lambda value: StandardValue("uuid", [str(value)]),
    ("fractions", "Fraction"): lambda value: StandardValue("fraction", [str(value)]),
    ("builtins", "complex"): lambda value: StandardValue("complex", [repr(value)]),
    ("builtins", "bytearray"): lambda value: StandardValue("bytearray", [base64.b64encode(value).decode()]),
    ("builtins", "range"): lambda value: StandardValue("range", [str(value.start), str(value.stop), str(value.step)]),
    ("datetime", "timezone"): lambda value: StandardValue("timezone", _fixed_zone_content(value)),
    **{
        ("pathlib", name): lambda value: StandardValue("path", [type(value).__name__, str(value)])
        for name in sorted(_PATHS)
    },
    **{
        ("ipaddress", name): lambda value: StandardValue("address", [type(value).__name__, str(value)])
        for name in sorted(_ADDRESSES)
    },
}


def _fixed_zone_content(value: timezone) -> list[Any]:
    offset = value.utcoffset(None)
    return [offset // timedelta(microseconds=1), custom_zone_name(offset, value.tzname(None))]


def custom_zone_name(offset: timedelta, name: str | None) -> str | None:
    """Return the name of a fixed time zone if it was chosen by user code; None if `timezone` derives the same name from
    the offset.

    `timezone` does not store whether a name was passed.
    """
    return None if name == timezone(offset).tzname(None) else name


def record_standard(value: Any, path: str) -> StandardValue | None:
    """Return the recorded form of a standard-library value; None for a value of any other class.

    Raises
    ------
    UnstorableValueError
        The text of the value cannot be written, or its time zone has no name.
    """
    cls = type(value)
    package = cls.__module__.partition(".")[0]  # the module of paths is pathlib._local in Python 3.13
    if (package, cls.__qualname__) == ("zoneinfo", "ZoneInfo"):
        return StandardValue("zone", [key_of(value, path)])
    contents = _CONTENTS.get((package, cls.__qualname__))
    if contents is None:
        return None
    try:
        return contents(value)
    except ValueError as error:  # Python does not write integers of more than 4300 digits
        raise UnstorableValueError(path, f"{error}; store it as text") from error


def record_moment(value: datetime | time, path: str) -> StandardValue | None:
    """Return the recorded form of a datetime or time, in which a log stores it. Return None if ISO text represents the
    value exactly.

    ISO text has neither the key nor the name of a zone, and no `fold`, which distinguishes the two hours at the end
    of summer time. A time in a `ZoneInfo` such as Europe/Berlin has no offset either.
    """
    # Examples of recorded forms, and of a value that ISO text represents exactly (None):
    #
    #     3:00 in ZoneInfo("Europe/Berlin")          zoned, with the key of the zone
    #     3:00 in timezone(1 hour, "CET")            zoned, with the name of the zone
    #     2:30 with fold=1                           zoned, with fold 1
    #     3:00 in timezone(1 hour), or without one   None
    zone = value.tzinfo
    key = None
    name = None
    if zone is not None and type(zone).__module__.startswith("zoneinfo"):
        key = key_of(zone, path)
    # Zones that pydantic creates for the offsets of strings have no names, although `tzname` returns the offset.
    elif zone is not None and not type(zone).__module__.startswith("pydantic_core"):
        offset = value.utcoffset()
        name = None if offset is None else custom_zone_name(offset, value.tzname())
    if key is None and name is None and not value.fold:
        return None
    # The name is left out if there is none.
    names = [key, name] if name is not None else [key]
    if isinstance(value, datetime):
        return StandardValue("zoned", [value.isoformat(), key, value.fold, *names[1:]])
    # A time alone has no date, so its zone of the database has no offset that could be written.
    text = value.isoformat() if key is None else value.replace(tzinfo=None).isoformat()
    return StandardValue("folded_time", [text, value.fold, *(names if key or name else [])])


def key_of(zone: Any, path: str) -> str:
    """Return the key of a `ZoneInfo` in the time zone database, such as ``Europe/Berlin``. Raise UnstorableValueError
    if it has no key.
    """
    if zone.key is None:
        raise UnstorableValueError(path, f"{zone!r} has no key; use ZoneInfo('Area/City')")
    try:
        zone.__reduce__()
    except PicklingError:  # read from a file: its key may differ from the key in the database
        message = f"{zone!r} was read from a file, and the time zone database may have other rules"
        raise UnstorableValueError(path, f"{message}; use ZoneInfo({zone.key!r})") from None
    return str(zone.key)
