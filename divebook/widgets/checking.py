"""Validation of untrusted JSON data, from browsers and saved notebooks, against the types of
`divebook.widgets.protocol`.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from enum import EnumType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from divebook.errors import SavedRunError
from divebook.text.redaction import one_line
from divebook.widgets.protocol import Ack

MAX_WHOLE = 2**53
"""Largest absolute value of an integer; a larger integer is invalid, because browsers do not store it exactly."""
MAX_NUMBER = 1e15
"""Limit of the absolute value of a float; larger numbers are invalid."""


def checked(data: Any, expected: Any) -> Any:
    """Return plain JSON data unchanged if it is valid for the type `expected`, else raise an error.

    `expected` is a TypedDict, a plain type, or a list, dict, union or literal of such types.

    Raises
    ------
    SavedRunError
        The data does not have the type; the text contains the first mismatch.

    >>> checked({"x": [1]}, dict[str, list[int]])
    {'x': [1]}
    """
    misfit = misfit_of(data, expected, "run")
    if misfit is not None:
        raise SavedRunError(misfit)
    return data


def misfit_of(data: Any, expected: Any, name: str) -> str | None:
    """Check JSON data against the type `expected`. Return a text that describes the first invalid value; None if all
    values are valid.

    `name` is the name of the data in the text.

    >>> misfit_of({"n": "x"}, dict[str, int], "message")
    'message[n] is "x", which it cannot be'
    """
    return next(_misfits(data, expected, name), None)


def refusal(message: Any, union: Any) -> str | None:
    """Check a message from a browser against the message types in `union`. Return the reason why it is invalid; None if
    it is valid for one of the types.

    >>> from divebook.widgets.protocol import ReplayToKernel
    >>> refusal({"type": "stat", "view": "v"}, ReplayToKernel)
    'no message has the type "stat"; known are state, event, events, said, at, picture, bundle'
    """
    # {"state": StateRequest, "event": EventRequest, ...}: the literal of the field ``type`` identifies a message.
    kinds = {get_args(get_type_hints(kind)["type"])[0]: kind for kind in get_args(union)}
    name = message.get("type") if isinstance(message, dict) else None
    # The type may be anything that JSON allows, also a list, which cannot be a key.
    if not isinstance(name, str) or name not in kinds:
        return f"no message has the type {_shown(name)}; known are {', '.join(kinds)}"
    # Half a surrogate pair is valid JSON, but cannot be encoded as UTF-8 in an answer.
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
    """Return the reply to a browser that has sent an invalid message. It states that the kernel ignored the message, so
    that the browser does not send it again.
    """
    # A message without a usable id gets an empty one. The page then has no command to which the reply belongs.
    identity = message.get("id") if isinstance(message, Mapping) else None
    text = f"the kernel does not understand this message, and did nothing: {why}. Reload the page"
    return Ack(
        type="ack", id=identity if isinstance(identity, str) and _is_whole(identity) else "", accepted=False, text=text
    )


def _misfits(data: Any, expected: Any, where: str) -> Iterator[str]:
    """Check JSON data against the type `expected`, and yield a text about each invalid value. In these texts the data
    is called `where`, for example ``message``.

    Data is valid for a union if it is valid for one of the union's types. Entries of lists and dicts, and fields of
    TypedDicts, are checked recursively. All other types are plain types or literals.
    """
    origin = get_origin(expected)
    # The types of a union are tried one after the other. A text about each of them would be long, so only the value is
    # shown.
    if origin in (Union, types.UnionType):
        if all(next(_misfits(data, one, where), None) for one in get_args(expected)):
            yield f"{where} is {_mismatch(data)}"
    # JSON has no other collections, and the keys of its objects are strings. So only the values are checked.
    elif origin in (list, dict) and isinstance(data, origin):
        inner = get_args(expected)[-1]
        for key, part in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _misfits(part, inner, f"{where}[{str(key)[:40]}]")
    elif is_typeddict(expected) and isinstance(data, dict):
        yield from _misfits_of_fields(data, expected, where)
    elif not (expected is Any or (origin is Literal and data in get_args(expected)) or _is_plain(data, expected)):
        yield f"{where} is {_mismatch(data)}"


def _misfits_of_fields(data: dict[str, Any], expected: Any, where: str) -> Iterator[str]:
    # Undeclared fields are ignored (`tests/notebook/test_saved.py::test_an_unknown_column_is_ignored`).
    for key, kind in get_type_hints(expected).items():
        if key in data:
            yield from _misfits(data[key], kind, f"{where}.{key}")
        else:
            yield f"{where}.{key} is missing"


def _is_plain(data: Any, expected: Any) -> bool:
    if expected is type(None):
        return data is None
    # `InterruptStatus` and the like are `StrEnum`; plain strings are equal to their members.
    if isinstance(expected, EnumType):
        return data in list(expected)
    # `type` and not `isinstance`: True and False are instances of int.
    if expected is float:
        return type(data) in (int, float) and abs(data) < MAX_NUMBER
    if expected is int:
        return type(data) is int and abs(data) <= MAX_WHOLE
    return expected in (str, bool) and type(data) is expected


def _mismatch(data: Any) -> str:
    return f"{_shown(data)}, which it cannot be"


def _shown(data: Any) -> str:
    try:
        return one_line(json.dumps(data)[:200], 40)
    except (TypeError, ValueError, RecursionError):  # what no JSON holds
        return f"a {type(data).__name__}"
