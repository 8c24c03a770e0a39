"""Syntax of templates: text that contains ``${expression}``, and whole values written as ``$(expression)``.

One dollar sign before either is an escape: ``$${HOME}`` is the text ``${HOME}``, and ``$$(date)`` as a whole value is
the text ``$(date)``. Of several dollar signs the last but one is the escape: ``$$${x}`` is the text ``$${x}``. A dollar
sign directly before a value is written as an expression: ``${"$"}${state.price}``.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast, overload

from divebook.errors import TemplateError

_ATTEMPTS = 100


@overload
def parse_python(source: str, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse_python(source: str, mode: Literal["eval"]) -> ast.Expression: ...
def parse_python(source: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """Parse Python source into a syntax tree. Safe to use from several threads.

    Python 3.11 counts the recursion depth of trees for all threads together, and raises SystemError if two threads
    parse at the same time (https://github.com/python/cpython/issues/106905). Parsing is then repeated.

    Raises
    ------
    SyntaxError, ValueError, RecursionError, MemoryError
        As `ast.parse`.
    """
    # The last attempt, after the loop, lets the error through.
    for _ in range(_ATTEMPTS):
        try:
            return cast("ast.Module | ast.Expression", ast.parse(source, mode=mode))
        except SystemError:
            continue
    return cast("ast.Module | ast.Expression", ast.parse(source, mode=mode))


_OPENING = re.compile(r"\$?\$\{")
_PLAIN_OPENING = re.compile(r"\$\{")
_ESCAPED_VALUE = re.compile(r"\s*\$\$+\(.*\)\s*", re.DOTALL)
_MOST_BRACES = 64
"""Largest number of closing braces that are tried as the end of one expression."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A ``${expression}`` in a template. `expression` is its text without the ``${`` and ``}``."""

    expression: str


def is_expression(text: str) -> bool:
    """Return True if a text has the form ``$(...)``, which stands for a value of any type."""
    stripped = text.strip()
    return stripped.startswith("$(") and stripped.endswith(")")


def is_escaped_expression(text: str) -> bool:
    """Return True if a text has the form ``$$(...)``, which stands for the text ``$(...)``."""
    return _ESCAPED_VALUE.fullmatch(text) is not None


def without_escape(text: str) -> str:
    """Remove the first dollar sign of a text ``$$(...)``. The result is evaluated as a template, in which ``$(...)`` is
    plain text.
    """
    return text.replace("$", "", 1)


@lru_cache(maxsize=1024)
def split(text: str, *, escapes: bool = True) -> tuple[str | Slot, ...]:
    """Split a template into literal texts and expressions, in order. An empty ``${}`` is a literal text.

    Raises
    ------
    TemplateError
        An expression is not closed.
    """
    parts: list[str | Slot] = []
    position = 0
    opening = _OPENING if escapes else _PLAIN_OPENING
    is_sound = True
    while (match := opening.search(text, position)) is not None:
        parts.append(text[position : match.start()])
        if match[0] == "$${":
            parts.append("${")
            position = match.end()
            continue
        # A template with one expression that is not Python fails anyway. To try all ends of its other expressions would
        # take minutes in a template with thousands of them.
        end, is_python = _end_of_expression(text, match.end(), opening, _MOST_BRACES if is_sound else 0)
        is_sound = is_sound and is_python
        inside = text[match.end() : end]
        parts.append(Slot(inside.strip()) if inside.strip() else text[match.start() : end + 1])
        position = end + 1
    return (*parts, text[position:])


def _end_of_expression(text: str, start: int, opening: re.Pattern[str], tries: int) -> tuple[int, bool]:
    """Return the position of the brace that closes a ``${...}`` expression, and True if the expression is valid Python.

    A closing brace may be part of the expression, as in ``${{"a": 1}["a"]}``. Each closing brace is therefore tried
    until the text before it parses as Python. If none of the first `tries` does, the first closing brace is returned
    with False. If the template has more openings than closing braces, an expression is not closed, which is an error.
    """
    # The first closing brace is also the end that is reported for text that is not Python.
    first = end = text.find("}", start)
    if first < 0:
        raise _unclosed(text)
    if tries == 0:
        return first, False
    for _ in range(tries):
        if not text[start:end].strip() or _is_python(text[start:end]):
            return end, True
        end = text.find("}", end + 1)
        if end < 0:
            # The text ended before a valid expression did. Either a brace is missing, or the expression is wrong
            # Python.
            break
    openings = opening.findall(text).count("${")
    if openings > text.count("}"):
        raise _unclosed(text)
    return first, False


def _unclosed(text: str) -> TemplateError:
    return TemplateError(f"unclosed template expression in string: {text} (write $${{ for the text ${{)")


def _is_python(text: str) -> bool:
    source = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    # An expression over several lines is valid inside parentheses, as in a call. The closing one has its own line,
    # behind a comment that may end the last line.
    return _parses(source) or ("\n" in source and _parses(f"({source}\n)"))


def _parses(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes such as "\d"
            parse_python(source, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def literal(text: str) -> str:
    """Escape a text so that a definition does not evaluate it: return the template, or the ``$$(...)`` value, whose
    result is this text.

    >>> literal("echo ${HOME}"), literal("$(date)"), literal("costs $5")
    ('echo $${HOME}', '$$(date)', 'costs $5')
    """
    return _escaped_value(text.replace("${", "$${"))


def _escaped_value(text: str) -> str:
    """Escape a text of the form ``$(...)`` or ``$$(...)`` with one more dollar sign, so that it stands for the text
    itself.
    """
    return text.replace("$", "$$", 1) if is_expression(text) or is_escaped_expression(text) else text


def with_escapes(text: str) -> str:
    """Convert a template of an early stored version (form 0), whose syntax had no escapes, to the present syntax. The
    meaning stays the same.

    >>> with_escapes("costs $${state.price}")
    'costs ${"$"}${state.price}'
    """
    if "$${" not in text:
        return text
    # The former syntax is read without escapes, and its literal texts are written with them.
    try:
        parts = split(text, escapes=False)
    except TemplateError:  # the step fails with this error, as it did before
        return text
    written = ""
    for part in parts:
        if isinstance(part, Slot):
            # A dollar sign here would make the opening of the expression an escape.
            bare = written.rstrip("$")
            dollars = written[len(bare) :]
            written = bare + (f'${{"{dollars}"}}' if dollars else "") + f"${{{part.expression}}}"
        else:
            written += part.replace("${", "$${")
    return written


def texts_in(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield a pair for each string in a JSON value, at any depth: the path of the string, as a tuple of keys and
    indexes, and the string. Keys of mappings are not included.

    >>> list(texts_in({"headers": {"X": "a"}, "ids": ["b", 1]}))
    [(('headers', 'X'), 'a'), (('ids', 0), 'b')]
    """
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_in(item, (*place, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts_in(item, (*place, index))


def each_text(value: Any, change: Callable[[str], Any]) -> Any:
    """Apply a function to each string in a JSON value, at any depth, and return the new value. Keys of mappings stay
    unchanged.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: each_text(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [each_text(item, change) for item in value]
    return value


def with_literal_depths(
    values: Mapping[str, Any], *, has_values: bool = True, template: Callable[[str], str] = with_escapes
) -> dict[str, Any]:
    """Convert values from a former syntax, in which only strings at the top level of a mapping were templates. Deeper
    strings were plain text: they are escaped, so that the present syntax does not evaluate them either.

    Parameters
    ----------
    has_values
        True if ``$(...)`` stood for a value. In the dialect ``dive`` it was text.
    template
        Function that converts a template of the first level.

    Examples
    --------
    >>> with_literal_depths({"path": "${state.a}", "env": {"HOME": "${HOME}"}})
    {'path': '${state.a}', 'env': {'HOME': '$${HOME}'}}
    """

    def first_level(text: str) -> str:
        # A former ``$(...)`` was a value in this dialect, and keeps its meaning. Where it was text, it gets an escape.
        return text if has_values and is_expression(text) else _escaped_value(template(text))

    return {
        name: first_level(value) if isinstance(value, str) else each_text(value, literal)
        for name, value in values.items()
    }
