"""Conversion between the fields of an envelope and plain data: JSON values, and copies of objects of other types.

The type annotations of the fields determine how each field is written and read. Data that are read may be wrong at any
place: values that cannot be used are left out, and each is reported as a problem.
"""

from __future__ import annotations

import copy
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Union, get_args, get_origin, get_type_hints

from divebook.errors import BoundsError, UncopyableValueError, UnstorableValueError
from divebook.events.codec import tagged_form
from divebook.events.recorded import TAG, TaggedDict, opened
from divebook.events.values import MAX_DEPTH, normalize, untag
from divebook.questions.bounds import Bounds
from divebook.text.format import rfc3339

SPARSE: Final = {"sparse": True}
"""Metadata of a field that is left out of plain data if its value is None."""

UNREADABLE: Final[Any] = object()
"""Result of reading a value that cannot be used."""

# Instances of these types are shared by copies.
_IMMUTABLE = (str, int, float, complex, bool, bytes, type(None), Decimal, date, time, timedelta, tzinfo)
_DEPTH = 2
"""Nesting depth at which the entries of the deepest fields begin. `_data` counts from this depth, so that a value that
was read can also be written."""
_SHOWN = 60
"""Number of characters of a wrong text that the report of a problem shows."""


class EnvelopePart:
    """Base class of those dataclasses that occur as values in an envelope's fields, such as a question."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


# --- copies -----------------------------------------------------------------------------------------------------------


def deep_copy(value: Any, path: str, depth: int = 0) -> Any:
    """Return an independent deep copy of a value.

    Parameters
    ----------
    value
        Any object, usually plain data.
    path
        Name of the value, for the error message.
    depth
        Nesting depth of the value in the object that is copied.

    Raises
    ------
    UncopyableValueError
        A part of the value cannot be copied, or is nested deeper than 200 levels. The error has the path of the part.
    """
    kind = type(value)
    if isinstance(value, _IMMUTABLE):
        return value
    if depth >= MAX_DEPTH:
        raise UncopyableValueError(path, f"nested deeper than {MAX_DEPTH} levels, possibly because it contains itself")
    # Exact types only: an instance of a subclass may have further attributes, which `copy.deepcopy` keeps.
    if kind is dict:
        return {key: deep_copy(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(deep_copy(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value))
    if isinstance(value, EnvelopePart):
        return copied(value, path, depth)
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise UncopyableValueError(path, f"objects of type {kind.__qualname__} cannot be copied ({error})") from error


def copied(part: Any, path: str, depth: int = 0) -> Any:
    """Return an independent deep copy of an `EnvelopePart`, such as a question."""
    names = [each.name for each in fields(part)]
    return replace(part, **{name: deep_copy(getattr(part, name), f"{path}.{name}", depth) for name in names})


def copied_map(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return an independent deep copy of a mapping, as a dict."""
    return {key: deep_copy(item, f"{path}.{key}", 1) for key, item in value.items()}


def copied_maps(values: Sequence[Mapping[str, Any] | None], path: str) -> list[dict[str, Any] | None]:
    """Return independent deep copies of the mappings in a list. Entries that are None stay None."""
    return [None if item is None else copied_map(item, f"{path}[{index}]") for index, item in enumerate(values)]


# --- writing ----------------------------------------------------------------------------------------------------------


def saved_form(value: Any, path: str) -> Any:
    """Convert data of the user, such as metadata, to JSON data with tagged values. The result shares no objects with
    the value. Raise `UncopyableValueError` if that is not possible.

    An object of a class that no log can hold is copied.
    """
    if isinstance(value, float) or _is_json(value):  # the fields that are numbers are read as such
        return deep_copy(value, path)
    try:
        return tagged_form(normalize(value, path), path)
    except UnstorableValueError:
        return deep_copy(value, path)


def recorded_form(value: Any, path: str) -> Any:
    """Convert data of the user to the values that the log records, so that `open_data` returns them unchanged.

    Raises the errors of `normalize`.
    """
    return _escaped(normalize(value, path))


def _escaped(value: Any) -> Any:
    # Earlier versions recorded tagged forms, which `open_data` still opens. A dict of the user with the key ``$type``
    # must not be opened, since it may come from a model. It is therefore recorded as the tagged form of a dict.
    if type(value) is TaggedDict:
        return TaggedDict({TAG: "dict", "value": [[key, _escaped(item)] for key, item in value.items()]})
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def plain(value: Any, path: str, data_form: Callable[[Any, str], Any] = saved_form) -> Any:
    """Convert the value of an envelope's field to plain data that shares no objects with it.

    `data_form` converts the data of the user in it, and raises an error if that is not possible: `saved_form` for a
    saved state, or `recorded_form` for a state that the log records.
    """
    if isinstance(value, datetime):
        return rfc3339(value)
    # Enumeration members are strings, too.
    if isinstance(value, str | Decimal):
        return str(value)
    if isinstance(value, Bounds):
        return value.to_dict()
    if isinstance(value, EnvelopePart):
        return plain_part(value, type(value), path, data_form)
    # Lists in the fields hold values of one type.
    if isinstance(value, list) and value and isinstance(value[0], EnvelopePart):
        return [plain_part(item, type(item), f"{path}[{index}]", data_form) for index, item in enumerate(value)]
    return data_form(value, path)


def _is_json(value: Any, depth: int = 0) -> bool:
    """Return True if a value can be stored as it is: it has JSON types only, and no dict in it looks like a tagged
    value. Tagged values are dicts by which the event log represents objects of other types.
    """
    match value:
        case None | bool() | str() | int():
            return True
        case float():
            return math.isfinite(value)
        case dict() if depth < MAX_DEPTH and TAG not in value:
            return all(isinstance(key, str) and _is_json(item, depth + 1) for key, item in value.items())
        case list() if depth < MAX_DEPTH:
            return all(_is_json(item, depth + 1) for item in value)
    return False


def plain_part(
    part: EnvelopePart, kind: type[EnvelopePart], path: str, data_form: Callable[[Any, str], Any] = saved_form
) -> dict[str, Any]:
    """Return the fields of an `EnvelopePart` as a dict of plain data.

    Only the fields that the class `kind` declares are included: the part may be an instance of a subclass with more
    fields.
    """
    values = {each.name: plain(getattr(part, each.name), f"{path}.{each.name}", data_form) for each in fields(kind)}
    return {each.name: values[each.name] for each in fields(kind) if not _is_left_out(each, values[each.name])}


def _is_left_out(each: Field[Any], value: Any) -> bool:
    return value is None and "sparse" in each.metadata


# --- reading ----------------------------------------------------------------------------------------------------------


def open_data(value: Any) -> Any:
    """Convert data from JSON or from the log of an execution to Python objects, for example a saved state. Values in
    tagged or recorded form become the objects that they represent.

    Data with a dict that only looks like a tagged value stays unchanged. A value that cannot be opened stays in
    recorded form.
    """
    try:
        return opened(untag(value), lenient=True)
    # The latter for data that is a part of itself, for which `deep_copy` has an error with its path.
    except (ValueError, RecursionError):
        return value


def json_object(text: str, start: int = 0) -> tuple[dict[str, Any] | None, int]:
    """Parse the JSON object that begins at the position `start` of a text, such as the answer of a model. Return the
    object and the position behind it; None in place of the object if none begins there.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    return (value, end) if isinstance(value, dict) else (None, start)


def _refuse(constant: str) -> None:
    """Raise ValueError for NaN and infinities, which Python's parser accepts although JSON lacks them."""
    raise ValueError(f"{constant} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)


types_of: Callable[[type], dict[str, Any]] = functools.cache(get_type_hints)
"""Function that returns the resolved type annotations of a class."""


# Why this is not a `TypeAdapter` of pydantic, which reads dataclasses too. It was tried with 14 states, each of which
# is wrong in one field:
#
# - In its lax mode it accepts 5 of them, for example ``"yes"`` as True, 5 as a time, and a time without a time zone.
#   Its strict mode refuses the texts of times and amounts, which every saved state has.
# - It refuses a field as a whole. In 5 of the states this reader keeps the other entries of the field, at their places.
# - A validator around each type would change both, and would be as long as the methods below.
# - Importing it and building the adapters takes 15 % of the time of importing this package, which needs no pydantic.


@dataclass(slots=True)
class PlainReading:
    """Reader of the saved state of one envelope. It converts plain values to the types of the envelope's fields, and
    collects the problems.
    """

    now: datetime
    """Time that replaces times that cannot be read."""
    problems: list[str] = field(default_factory=list)

    def refuse(self, path: str, value: Any, expected: str) -> Any:
        """Note in the reader's list of problems that a value has the wrong type. Return the marker `UNREADABLE`, which
        takes the place of the value.
        """
        shown = repr(value[:_SHOWN]) if isinstance(value, str) else type(value).__name__
        self.problems.append(f"{path}: expected {expected}, not {shown}")
        return UNREADABLE

    def read(self, kind: Any, value: Any, path: str) -> Any:
        """Convert a plain value to the type of an envelope's field. If that fails, add a problem to the list of this
        reader, and return `UNREADABLE`.

        For a union, the value is read as the first type of the union, or as None if the union allows None.
        """
        # Generic types come before `issubclass`, which raises TypeError for them. All other types read a string.
        origin = get_origin(kind)
        arguments = get_args(kind)
        if origin in (Union, UnionType):
            return None if value is None and NoneType in arguments else self.read(arguments[0], value, path)
        if origin is list:
            return self._list(arguments[0], value, path)
        if origin is dict:
            return self._mapping(arguments[1], value, path)
        if kind in _SCALARS:
            return _SCALARS[kind](self, value, path)
        if issubclass(kind, EnvelopePart):
            return self._part(kind, value, path)
        # An enumeration such as `TerminalReason`.
        text = self._text(value, path)
        return text if text is UNREADABLE else kind.read(text)

    def _text(self, value: Any, path: str) -> Any:
        return str(value) if isinstance(value, str) else self.refuse(path, value, "a string")

    def _flag(self, value: Any, path: str) -> Any:
        return value if isinstance(value, bool) else self.refuse(path, value, "true or false")

    def _count(self, value: Any, path: str) -> Any:
        """Convert a plain value to an integer. The decimals of a fraction are cut off, and the fraction is noted as a
        problem.
        """
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if not isinstance(value, float) or not math.isfinite(value):
            return self.refuse(path, value, "an integer")
        if not value.is_integer():
            self.refuse(path, value, "an integer")
        return int(value)

    def _amount(self, value: Any, path: str) -> Any:
        try:
            amount = Decimal(str(value)) if isinstance(value, str | int | float | Decimal) else Decimal("nan")
        except (InvalidOperation, ValueError):  # the latter for integers that are too long to be written
            amount = Decimal("nan")
        # True is an int in Python.
        usable = amount.is_finite() and not isinstance(value, bool)
        return amount if usable else self.refuse(path, value, "a decimal number")

    def _moment(self, value: Any, path: str) -> Any:
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            # A time without a time zone could be in any zone.
            if isinstance(moment, datetime) and moment.tzinfo:
                return moment.astimezone(UTC)
        except (ValueError, OverflowError):  # no date, or one before the year 1 once it is in UTC
            pass
        return self.refuse(path, value, "a time such as 2026-01-25T10:00:00Z")

    def _data(self, value: Any, path: str) -> Any:
        try:
            return deep_copy(open_data(value), path, _DEPTH)
        except UncopyableValueError as error:
            self.problems.append(str(error))
            return UNREADABLE

    def _bounds(self, value: Any, path: str) -> Any:
        """Convert a mapping to `Bounds`. A bound that is missing or cannot be read does not limit the envelope."""
        mapping = self._mapping(Any, value, path)
        if mapping is UNREADABLE:
            return UNREADABLE
        # Each bound is checked alone, so that a wrong one does not discard the others.
        return Bounds.read({key: item for key, item in mapping.items() if self._is_bound(key, item)})

    def _is_bound(self, key: str, value: Any) -> bool:
        try:
            Bounds.from_dict({key: value})
        except BoundsError as error:
            self.problems.append(str(error))
            return False
        return True

    def _mapping(self, kind: Any, value: Any, path: str) -> Any:
        """Convert the values in a mapping of plain data to the type `kind`. Entries that cannot be converted are
        dropped and noted as problems.
        """
        if not isinstance(value, Mapping):
            return self.refuse(path, value, "a mapping")
        result = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self.refuse(f"key of {path}", key, "a string")
            elif (entry := self.read(kind, item, f"{path}.{key}")) is not UNREADABLE:
                result[str(key)] = entry
        return result

    def _list(self, kind: Any, value: Any, path: str) -> Any:
        """Convert the entries of a list of plain data to the type `kind`. Entries that cannot be converted are noted as
        problems.

        Strings that cannot be read are replaced by empty strings, and optional entries by None. All other unreadable
        entries are dropped.
        """
        if not isinstance(value, list | tuple):
            return self.refuse(path, value, "a list")
        # Unreadable strings and optional entries are replaced, so that the other entries keep their positions.
        filler: Any = UNREADABLE
        if kind is str:
            filler = ""
        elif NoneType in get_args(kind):
            filler = None
        items = [self.read(kind, item, f"{path}[{index}]") for index, item in enumerate(value)]
        filled = [filler if item is UNREADABLE else item for item in items]
        return [item for item in filled if item is not UNREADABLE]

    def _part(self, kind: type[EnvelopePart], value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return self.refuse(path, value, "a mapping")
        types = types_of(kind)
        return kind(**{each.name: self._field(each, types[each.name], value, path) for each in fields(kind)})

    def _field(self, each: Field[Any], kind: Any, mapping: Mapping[str, Any], path: str) -> Any:
        """Return the value of one field of an `EnvelopePart` (such as a question) from plain data. A field that is
        missing is noted as a problem, unless it is optional.
        """
        # Reading continues after a problem, so that all problems are reported at once. Until then a default stands for
        # the value.
        value = UNREADABLE
        if each.name in mapping:
            value = self.read(kind, mapping[each.name], f"{path}.{each.name}")
        elif "sparse" not in each.metadata:
            self.problems.append(f"{path}.{each.name}: missing")
        if value is not UNREADABLE:
            return value
        if each.default is not MISSING:
            return each.default
        if kind is datetime:
            return self.now
        return 0 if kind is int else ""


# `Any` stands for data of the user, such as metadata.
_SCALARS: Final[Mapping[Any, Callable[[PlainReading, Any, str], Any]]] = {
    Any: PlainReading._data,  # noqa: SLF001 - its own methods
    str: PlainReading._text,  # noqa: SLF001
    bool: PlainReading._flag,  # noqa: SLF001
    int: PlainReading._count,  # noqa: SLF001
    Decimal: PlainReading._amount,  # noqa: SLF001
    datetime: PlainReading._moment,  # noqa: SLF001
    Bounds: PlainReading._bounds,  # noqa: SLF001
}
