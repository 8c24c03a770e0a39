"""Plain data of strangers against the types of `divebook.widgets.protocol`: looked at before it is used."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from enum import EnumType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from divebook.errors import SavedRunError
from divebook.text.shown import one_line

MAX_WHOLE, MAX_NUMBER = 2**53, 1e15
"""Larger numbers are not believed."""


def checked(data: Any, wanted: Any) -> Any:
    """Return plain data that is of a type: a TypedDict of plain types, lists, dicts, unions and literals.

    Raises
    ------
    SavedRunError
        With the first place that is not.

    >>> checked({"x": [1]}, dict[str, list[int]])
    {'x': [1]}
    """
    misfit = next(_misfits(data, wanted, "run"), None)
    if misfit is not None:
        raise SavedRunError(misfit)
    return data


def _misfits(data: Any, wanted: Any, where: str) -> Iterator[str]:
    """Yield the places in which data is not of a type."""
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        if all(next(_misfits(data, one, where), None) for one in get_args(wanted)):
            yield f"{where} is {_told(data)}"
    elif origin in (list, dict) and isinstance(data, origin):
        inner = get_args(wanted)[-1]
        for key, part in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _misfits(part, inner, f"{where}[{str(key)[:40]}]")
    elif is_typeddict(wanted) and isinstance(data, dict):
        yield from _misfits_of_fields(data, wanted, where)
    elif not (wanted is Any or (origin is Literal and data in get_args(wanted)) or _is_plain(data, wanted)):
        yield f"{where} is {_told(data)}"


def _misfits_of_fields(data: dict[str, Any], wanted: Any, where: str) -> Iterator[str]:
    for key, kind in get_type_hints(wanted).items():
        if key in data:
            yield from _misfits(data[key], kind, f"{where}.{key}")
        else:
            yield f"{where}.{key} is missing"


def _is_plain(data: Any, wanted: Any) -> bool:
    if wanted is type(None):
        return data is None
    if isinstance(wanted, EnumType):
        return data in list(wanted)
    if wanted is float:
        return type(data) in (int, float) and abs(data) < MAX_NUMBER
    if wanted is int:
        return type(data) is int and abs(data) <= MAX_WHOLE
    return wanted in (str, bool) and type(data) is wanted


def _told(data: Any) -> str:
    return f"{one_line(json.dumps(data)[:200], 40)}, which it cannot be"
