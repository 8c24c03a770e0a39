"""Conversion of values: results of the sandbox to plain data, values for the sandbox, and values to text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from enum import Enum
from json.encoder import encode_basestring
from typing import Any

from divebook.errors import ScriptError, UnopenableValueError
from divebook.events.recorded import Recorded

# Types that need no conversion.
_ATOMS = (type(None), bool, int, float, str, bytes)
_NUMBERS = (int, float)
_LISTS = (list, tuple)
_SETS = (set, frozenset)
_SCALARS = (str, *_NUMBERS)
_COLLECTIONS = (*_LISTS, *_SETS, Mapping)
_TIMES = (datetime, date, time)


def plain(value: Any) -> Any:
    """Convert the result of a script to plain data. Tuples and sets become lists, sets in sorted order.

    Raises
    ------
    ScriptError
        The result contains a class, an instance of a class of the script, or an exception.
    """
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return in_order([plain(item) for item in value])
    return _checked(value)


def in_order(items: list[Any]) -> list[Any]:
    """Sort the items of a set in an order that is the same in every process, even if the items cannot be compared with
    one another.
    """
    try:
        return sorted(items)
    # Items of different types, such as 1 and "a". A set has no order of its own, and that of strings differs between
    # processes.
    except TypeError:
        return sorted(items, key=lambda item: (type(item).__name__, repr(item)))


def _checked(value: Any) -> Any:
    module = type(value).__module__
    if isinstance(value, BaseException):
        raise ScriptError(f"a script cannot return an exception ({value!r}); return its text, or raise it")
    # Classes and instances of the script arrive as objects of Monty. They have a name but no data that a log can hold.
    if isinstance(value, type) or module.startswith("pydantic_monty"):
        name = getattr(value, "name", None) or getattr(value, "__name__", repr(value))
        raise ScriptError(f'a script cannot return {name}; return plain data, for example {{"x": point.x}}')
    # Singletons of Python that JSON lacks.
    if value is Ellipsis or value is NotImplemented:
        raise ScriptError(f"a script cannot return {value!r}; return plain data such as text, numbers, lists and dicts")
    return value


def sendable(value: Any, path: str) -> Any:
    """Convert a value to types that the sandbox accepts, after the sandbox has refused it. `path` says for error
    messages where the value is, such as ``state.order``.

    A frame becomes a list of records, a series or array a list, an instance a mapping of its fields, an enum member
    its value, and a missing value None.

    Raises
    ------
    ScriptError
        A value cannot be converted. The error contains its place, for example ``state.order``.
    """
    # Before the test for strings, since a member of a string enum is a string as well.
    if isinstance(value, Enum):
        return sendable(value.value, path)
    if isinstance(value, Recorded):
        return sendable(_plain(value, path), path)
    # Before the test for sequences: a string is a sequence of strings.
    if isinstance(value, str | bytes | bytearray):
        return bytes(value) if isinstance(value, bytearray) else value
    if isinstance(value, Mapping):
        return {key: sendable(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence):
        return [sendable(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, AbstractSet):
        return {sendable(item, path) for item in value}
    # Dates, durations, time zones and decimals. The last are recognized by their module, which need not be imported.
    if isinstance(value, (*_ATOMS, date, time)) or type(value).__module__ in ("datetime", "decimal", "_decimal"):
        return value
    raise ScriptError(
        f"{path} is a {type(value).__name__}, which scripts cannot read; store strings, numbers, lists and dicts "
        "instead"
    )


def _plain(value: Recorded, path: str) -> Any:
    try:
        return value.plain()
    except ValueError as error:
        raise ScriptError(f"{path} {error}") from error
    except UnopenableValueError as error:
        raise ScriptError(f"{path}: {error}") from error


def value_text(value: Any) -> str:
    """Convert the result of a script to the output text of its step. Collections become JSON, other values text.

    Examples
    --------
    >>> value_text([1, "two", True, None, 2.0])
    '[1, "two", true, null, 2]'
    """
    if type(value) is str:  # by far the most frequent type
        return value
    if not isinstance(value, _SCALARS) and isinstance(value, _COLLECTIONS):
        return _json(value)
    return scalar_text(value)


def _json(value: Any) -> str:
    if type(value) is str:  # by far the most frequent type
        return encode_basestring(value)
    if value is None:
        return "null"
    # Before lists, and with the rules of templates: 2.0 is "2".
    if isinstance(value, _NUMBERS):
        return scalar_text(value)
    if isinstance(value, _LISTS):
        return "[" + ", ".join([_json(item) for item in value]) + "]"
    if isinstance(value, Mapping):
        entries = [f"{encode_basestring(_key_text(key))}: {_json(item)}" for key, item in value.items()]
        return "{" + ", ".join(entries) + "}"
    # JSON has no sets.
    if isinstance(value, _SETS):
        return _json(in_order(list(value)))
    # Times, bytes and recorded values are their text.
    return encode_basestring(scalar_text(value))


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else scalar_text(key)


def scalar_text(value: Any) -> str:
    """Convert one value that is not a collection to the text that a template shows for it.

    None is empty, booleans are lower case, floats have as few digits as possible, bytes are decoded as UTF-8, and times
    have the ISO format. A recorded value such as a frame is its summary.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    # Before integers: a boolean is one.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError as error:  # Python refuses to write very long numbers
            raise ScriptError(f"a number cannot be written as text: {error}") from error
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, _TIMES):
        return value.isoformat()
    return value.summary() if isinstance(value, Recorded) else str(value)


def float_text(value: float) -> str:
    """Convert a float to the shortest text that parses as the same float. An exponent is used below 1e-4 and from 1e6
    on.

    These are the rules of C's ``%g`` without its rounding to six digits.

    Examples
    --------
    >>> [float_text(number) for number in (2.0, 3.14159, 1e6, 123456.5, 0.00001)]
    ['2', '3.14159', '1e+06', '123456.5', '1e-05']
    """
    # "nan", "inf" and "-inf".
    if not math.isfinite(value):
        return str(value)
    # In this range `repr` writes the shortest digits without an exponent.
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return repr(value).removesuffix(".0")
    # 17 significant digits identify every float, so that one of the candidates is equal.
    candidates = (f"{value:.{places}e}" for places in range(17))
    return next(text for text in candidates if float(text) == value)
