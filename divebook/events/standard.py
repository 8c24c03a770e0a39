"""Values of the standard library that JSON lacks: paths, UUIDs, fractions, addresses, ranges, time zones.

Their classes are recognised by module and name, and a class is imported when a value is opened: a log that holds one
is read without it. Dates, decimals and bytes are no part of this; they lie in events and state as they are.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import datetime, time, timedelta, timezone
from pickle import PicklingError
from typing import Any, NamedTuple

from divebook.errors import UnopenableValueError, UnstorableValueError
from divebook.events.recorded import Recorded

LONGEST_RANGE = 100_000
"""Numbers of a range that scripts and JSON get as a list."""
_PATHS = frozenset({"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"})


class StandardValue(Recorded):
    """The recorded form of a value of the standard library.

    Parameters
    ----------
    tag
        The kind of value, a key of `KINDS`.
    content
        Texts and small integers from which the value is made.
    """

    __slots__ = ("content", "tag")

    def __init__(self, tag: str, content: list[Any]) -> None:
        self.tag, self.content = tag, content  # type: ignore[misc]

    def data(self) -> Any:
        """Return the texts and integers that describe the value."""
        return self.content

    def open(self) -> Any:
        """Make the value again."""
        try:
            return KINDS[self.tag].make(*self.content)
        # NotImplementedError: a path of another operating system. KeyError: a time zone that this machine lacks.
        except (NotImplementedError, KeyError, TypeError, ValueError, OSError) as error:
            raise UnopenableValueError(self.tag, f"{self.content} cannot be opened on this machine: {error}") from error

    def plain(self) -> Any:
        """Return the text, list or datetime that scripts and JSON get."""
        return KINDS[self.tag].plain(*self.content)

    def summary(self) -> str:
        """Return the value as text."""
        return KINDS[self.tag].text(*self.content)


class _Kind(NamedTuple):
    """The functions from the recorded content of a kind of value to the value, its plain form and its text."""

    make: Callable[..., Any]
    plain: Callable[..., Any]
    text: Callable[..., str]


def _of(module: str, name: str, known: frozenset[str], text: str) -> Any:
    """Return an instance of a class of the standard library, made of its text."""
    if name not in known:
        raise ValueError(f"unknown class {name!r} of {module}")
    return getattr(importlib.import_module(module), name)(text)


def _range(start: str, stop: str, step: str) -> range:
    return range(int(start), int(stop), int(step))


def _range_text(start: str, stop: str, step: str) -> str:
    return f"range({start}, {stop}, {step})"


def _plain_range(start: str, stop: str, step: str) -> list[int]:
    numbers = _range(start, stop, step)
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
    "timezone": _Kind(_fixed_zone, lambda *content: str(_fixed_zone(*content)), lambda *own: str(_fixed_zone(*own))),
    "zone": _Kind(_zone, str, str),
    "zoned": _Kind(_zoned, lambda text, *_: datetime.fromisoformat(text), _first),
    "folded_time": _Kind(_folded_time, lambda text, *_: time.fromisoformat(text), _first),
}

_CONTENTS: dict[tuple[str, str], Callable[[Any], StandardValue]] = {
    ("uuid", "UUID"): lambda value: StandardValue("uuid", [str(value)]),
    ("fractions", "Fraction"): lambda value: StandardValue("fraction", [str(value)]),
    ("builtins", "complex"): lambda value: StandardValue("complex", [repr(value)]),
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
    return [offset // timedelta(microseconds=1), own_name(offset, value.tzname(None))]


def own_name(offset: timedelta, name: str | None) -> str | None:
    """Return the name of a fixed time zone, or None where `timezone` makes the same name from the offset.

    `timezone` keeps no trace of whether a name was passed.
    """
    return None if name == timezone(offset).tzname(None) else name


def record_standard(value: Any, path: str) -> StandardValue | None:
    """Return the recorded form of a value of the standard library; None for any other value.

    Raises
    ------
    UnstorableValueError
        Its text cannot be written, or its time zone has no name.
    """
    cls = type(value)
    package = cls.__module__.partition(".")[0]  # that of paths is pathlib._local in Python 3.13
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
    """Return the recorded form of a datetime or time that ISO text does not hold exactly; None if it needs none.

    ISO text has neither the key nor the name of a zone, and no `fold`, which tells the two hours of the end of summer
    time apart. A time in a `ZoneInfo` such as Europe/Berlin has no offset either.
    """
    zone, key, name = value.tzinfo, None, None
    if zone is not None and type(zone).__module__.startswith("zoneinfo"):
        key = key_of(zone, path)
    elif zone is not None and (offset := value.utcoffset()) is not None:
        name = own_name(offset, value.tzname())
    if key is None and name is None and not value.fold:
        return None
    names = [key, name] if name is not None else [key]
    if isinstance(value, datetime):
        return StandardValue("zoned", [value.isoformat(), key, value.fold, *names[1:]])
    text = value.isoformat() if key is None else value.replace(tzinfo=None).isoformat()
    return StandardValue("folded_time", [text, value.fold, *(names if key or name else [])])


def key_of(zone: Any, path: str) -> str:
    """Return the key of a `ZoneInfo`, under which the database of time zones has it."""
    if zone.key is None:
        raise UnstorableValueError(path, f"{zone!r} has no key; use ZoneInfo('Area/City')")
    try:
        zone.__reduce__()
    except PicklingError:  # read from a file: its key need not be the one of the database
        message = f"{zone!r} was read from a file, and the database may have other rules; use ZoneInfo({zone.key!r})"
        raise UnstorableValueError(path, message) from None
    return str(zone.key)
