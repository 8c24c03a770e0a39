"""Python on the line of a magic: ``$name`` and ``$expression``, in the names of the place that the line stands in.

A word or a value that begins with ``$`` is Python as a whole. Where IPython would replace something inside a text, or a
``{name}``, the line is refused and the error says what to write: nothing that looks like Python ever becomes a text
(`tests/notebook/test_expressions.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from IPython.core.error import UsageError

from divebook.errors import nearest
from divebook.text.cuts import one_line
from divebook.workflow.yaml_value import QUOTES

_BEGINNING = re.compile(r"\$(?=[^\W\d]|[(\[\"'])")
_NAME = re.compile(r"[^\W\d]\w*")
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_REPLACED_BY_IPYTHON = re.compile(r"\$(?:[^\W\d]|[(\[{$])|(?<!\{)\{[^\W\d][^{}:]*\}(?!\})")
_SHOWN = 60


def is_expression(text: str) -> bool:
    """Return whether a word is Python."""
    return _BEGINNING.match(text) is not None


def expression_end(line: str, start: int) -> int:
    """Return the place after the expression that begins at a ``$``: at white space outside of brackets and quotes."""
    expected: list[str] = []
    position = start + 1
    while position < len(line) and (expected or not line[position].isspace()):
        character = line[position]
        if character in QUOTES:
            position = _string_end(line, position)
            continue
        if character in _CLOSED_BY:
            expected.append(_CLOSED_BY[character])
        elif expected and character == expected[-1]:
            expected.pop()
        position += 1
    if expected:
        raise UsageError(f"{expected[-1]} is missing at the end of {line[start : start + 20]!r}")
    return position


def _string_end(line: str, start: int) -> int:
    found = re.compile(rf"{line[start]}(?:\\.|[^\\{line[start]}])*{line[start]}").match(line, start)
    if found is None:
        raise UsageError(f"the quote {line[start]} before {line[start + 1 : start + 21]!r} is not closed")
    return found.end()


@dataclass(frozen=True, slots=True)
class Names:
    """The names that expressions may use."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    own: Sequence[str] | None = None
    """Which of them are worth suggesting; all, if None."""

    def value(self, what: str, text: str) -> Any:
        """Return the value of ``$expression``; `what` names its place in errors: ``input 'n'``.

        Raises
        ------
        UsageError
            It is no Python, or has raised something.
        """
        source = text[1:]
        if _NAME.fullmatch(source) and source not in self.variables:
            raise UsageError(f"{what}: {self._unknown(source)}")
        try:
            return eval(compile(source, "<%dive>", "eval"), dict(self.variables))  # noqa: S307 - the person's own cell
        except SyntaxError as error:
            advice = "single quotes make it a text"
            raise UsageError(f"{what}: {text} is not a Python expression ({error.msg}); {advice}") from error
        except NameError as error:
            raise UsageError(f"{what}: {text}: {self._unknown(error.name or '')}") from error
        except Exception as error:
            raised = f"{type(error).__name__}: {one_line(str(error), _SHOWN)}"
            raise UsageError(f"{what}: {text} raises {raised}; run it in a cell of its own to see where") from error

    def _unknown(self, name: str) -> str:
        own = self.variables if self.own is None else self.own
        close = nearest(name, (known for known in own if not known.startswith("_")))
        advice = f"did you mean ${close}?" if close else "define it in a cell, or quote the value if it is text"
        return f"there is no variable {name!r} ({advice})"


def as_word(what: str, text: str, value: Any) -> str:
    """Return the value of an expression as a word: a text, a number, a path, or the id or name that something has."""
    for found in (value, getattr(value, "id", None), getattr(value, "name", None)):
        if isinstance(found, str):
            return found
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise UsageError(f"{what}: {text} is a {type(value).__name__}; a text, a number or something with an .id is needed")


def refuse_inside(what: str, text: str) -> None:
    """Refuse a text in which IPython would replace something; single quotes tell that it is meant."""
    found = next((found for part in _open_parts(text) for found in _REPLACED_BY_IPYTHON.finditer(part)), None)
    if found is None:
        return
    raise UsageError(f"{what}: nothing is replaced inside {one_line(text, _SHOWN)}; {_advice(text)}")


def _advice(text: str) -> str:
    named = re.fullmatch(r"\$?\{([^{}]+)\}", text) or re.fullmatch(r"[\"]?\$+([\w.]+)[\"]?", text)
    if named:
        return f"write ${named[1]} for the value, or '{text.strip(chr(34))}' for that text"
    if text[:1] in "[{":
        return f"write Python after a dollar, {'$[a, b]' if text[0] == '[' else '$dict(a=b)'}, or quote the text in it"
    bare = text.strip('"')
    python = re.sub(r"\$\{?([^\W\d]\w*)\}?", r"{\1}", bare)
    return f"write $f\"{python}\" for the value, or '{bare}' for that text"


def _open_parts(text: str) -> Iterable[str]:
    """Yield what is not in single quotes; they count where a text or, inside brackets, a value begins."""
    if text[:1] == "'":
        return
    if text[:1] not in {"[", "{"}:
        yield text
        return
    yield from re.split(r"(?<=[\[{,: ])'(?:[^']|'')*'", text)
