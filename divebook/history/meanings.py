"""What common errors mean, in plain words: said only where the class and the message leave no doubt.

Texts of the log are read here and never run: what a call was given stands in it as Python text.
(`tests/history/test_meanings.py`)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from divebook.text.cuts import one_line

MOST_KEYS, WIDTH = 8, 60
_TRY_AGAIN = "Continuing tries again."


class Seen(NamedTuple):
    """What there is to judge by."""

    message: str
    """Without the class."""
    given: Mapping[str, str]
    """What the call was given: Python text by name."""
    line: str
    """The line that raised it."""


def meaning(error_type: str, message: str, given: Mapping[str, str], line: str) -> str:
    """Return what an error means for a person; an empty text where that is not known for sure.

    >>> meaning("KeyError", "'label'", {"answer": "{'kind': 'bill'}"}, 'return answer["label"]')
    "answer has no key 'label'. It has: kind."
    """
    seen = Seen(message.removeprefix(error_type).removeprefix(": "), given, line)
    told = _MEANINGS.get(error_type, _of_none)
    return told(seen)


def _of_key(seen: Seen) -> str:
    key = _literal(seen.message)
    if not isinstance(key, str | int):
        return ""
    for name, index in re.findall(r"\b(\w+)\[([^\[\]]+)\]", seen.line):
        found = _literal(seen.given.get(name, ""))
        if isinstance(found, dict) and key not in found and _literal(index.strip()) == key:
            keys = one_line(", ".join(map(str, [*found][:MOST_KEYS])), 200)
            more = f" and {len(found) - MOST_KEYS:,} more" if len(found) > MOST_KEYS else ""
            return f"{name} has no key {key!r}. " + (f"It has: {keys}{more}." if found else "It is empty.")
    is_looked_up = seen.line != "" and not re.search(r"\braise\b", seen.line)
    return f"There is no key {_short(key)} in what was looked into." if is_looked_up else ""


def _of_zero(seen: Seen) -> str:
    divided = re.findall(r"[/%]\s*([A-Za-z_]\w*)", seen.line)
    zero = next((name for name in divided if seen.given.get(name) in ("0", "0.0", "False")), "")
    return f"A number was divided by zero: {zero} is {seen.given[zero]}." if zero else "A number was divided by zero."


def _of_module(seen: Seen) -> str:
    found = re.fullmatch(r"No module named '([\w.]+)'", seen.message)
    return (
        f"Python finds no module {found[1]} here. Install what has it (%pip install ...), then continue."
        if found
        else ""
    )


def _of_file(seen: Seen) -> str:
    found = re.search(r"No such file or directory: ('.*'|\".*\")$", seen.message)
    name = _literal(found[1]) if found else None
    if not isinstance(name, str):
        return ""
    place = "" if name.startswith(("/", "~")) else " in the folder in which this ran"
    return f"There is no file or folder {_short(name)}{place}."


def _of_none(seen: Seen) -> str:
    return "A value is None where another was expected." if "'NoneType' object" in seen.message else ""


def _says(text: str) -> Callable[[Seen], str]:
    return lambda _: text


def _if_met(pattern: str, text: str) -> Callable[[Seen], str]:
    return lambda seen: text if re.search(pattern, seen.message) else _of_none(seen)


_UNREACHABLE = f"The other side could not be reached. {_TRY_AGAIN}"
_MEANINGS: Mapping[str, Callable[[Seen], str]] = {
    "KeyError": _of_key,
    "ZeroDivisionError": _of_zero,
    "ModuleNotFoundError": _of_module,
    "FileNotFoundError": _of_file,
    "IndexError": _if_met(
        r"(list|tuple|string) index out of range", "It has fewer elements than the number asked for."
    ),
    "JSONDecodeError": _if_met(r"char 0\)$", "The text is empty, or no JSON from its first character on."),
    "RecursionError": _says("A function calls itself without end."),
    "PermissionError": _says("The operating system does not allow this access."),
    "ConnectionError": _says(_UNREACHABLE),
    "ConnectionRefusedError": _says(_UNREACHABLE),
    "ConnectError": _says(_UNREACHABLE),
    "TimeoutError": _says(f"No answer came in time. {_TRY_AGAIN}"),
}


def _literal(text: str) -> Any:
    """Return what a text is as a literal of Python; None for all others, and for what was cut off."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _short(value: Any) -> str:
    return one_line(repr(value), WIDTH)
