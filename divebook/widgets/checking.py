"""Plain data of strangers against the types of `divebook.widgets.protocol`: looked at before it is used."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from enum import EnumType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from divebook.errors import SavedRunError
from divebook.text.redaction import one_line
from divebook.widgets.protocol import Ack

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
    misfit = misfit_of(data, wanted, "run")
    if misfit is not None:
        raise SavedRunError(misfit)
    return data


def misfit_of(data: Any, wanted: Any, name: str) -> str | None:
    """Return the first place in which data is not of a type, `name` being the whole; None if there is none.

    >>> misfit_of({"n": "x"}, dict[str, int], "message")
    'message[n] is "x", which it cannot be'
    """
    return next(_misfits(data, wanted, name), None)


def refusal(message: Any, known: Any) -> str | None:
    """Return why a message of a browser is none of a union of messages; None if it is one of them.

    >>> from divebook.widgets.protocol import ReplayToKernel
    >>> refusal({"type": "stat", "view": "v"}, ReplayToKernel)
    'no message has the type "stat"; known are state, event, events, said, at, picture, bundle'
    """
    kinds = {get_args(get_type_hints(kind)["type"])[0]: kind for kind in get_args(known)}
    name = message.get("type") if isinstance(message, dict) else None
    if not isinstance(name, str) or name not in kinds:
        return f"no message has the type {_shown(name)}; known are {', '.join(kinds)}"
    halved = next((key for key, part in message.items() if isinstance(part, str) and not _is_whole(part)), None)
    if halved is not None:
        return f"message.{halved} holds half a character, which cannot be sent back"
    return misfit_of(message, kinds[name], "message")


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refused(message: Any, why: str) -> Ack:
    """Return the answer to a message of a wrong shape, so that its sender does not send it again and again."""
    given = message.get("id") if isinstance(message, Mapping) else None
    text = f"the kernel does not understand this message, and did nothing: {why}. Reload the page"
    return Ack(type="ack", id=given if isinstance(given, str) and _is_whole(given) else "", accepted=False, text=text)


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
    return f"{_shown(data)}, which it cannot be"


def _shown(data: Any) -> str:
    try:
        return one_line(json.dumps(data)[:200], 40)
    except (TypeError, ValueError, RecursionError):  # what no JSON holds
        return f"a {type(data).__name__}"
