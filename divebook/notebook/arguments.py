"""The line of a magic: words, options, and ``key=value`` whose values are YAML, or ``$expression`` in Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from IPython.core.error import UsageError

from divebook.errors import DefinitionError, nearest
from divebook.notebook.expressions import Names, as_word, expression_end, is_expression, refuse_inside
from divebook.text.cuts import one_line
from divebook.workflow.yaml_value import BRACKETS, QUOTES, value_typed

_KEY = re.compile(r"([^\W\d][\w.-]*)=")
_LONG_KEY = re.compile(r"(?:--)?[^\W\d][\w.:-]*=")
"""Also the second question of a step, ``step:2=``, and an option."""
REPEATED = ("answer", "include", "input", "label", "prompt", "result", "set", "tag", "untag")
"""Options that may be given several times: their values are joined by line breaks."""
_TEXT_TYPES = ("string", "str", "text")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The words, options and values that follow a sub-command."""

    words: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Values as they were written."""
    options: Mapping[str, str] = field(default_factory=dict)
    """By long name; a flag has the value ``""``."""
    data: Mapping[int, Any] = field(default_factory=dict)
    """By position: the values of words that were written as ``$expression``, and are not texts."""
    names: Names = Names()
    """What expressions may use."""

    def has(self, flag: str) -> bool:
        """Return whether a flag was given."""
        return flag in self.options

    def several(self, name: str) -> list[str]:
        """Return all values of an option that may be given several times."""
        return list(filter(None, self.options.get(name, "").split("\n")))

    def only_word(self, what: str, advice: str = "") -> str:
        """Return the one word; UsageError, which ends with the advice, if there is none, or another one."""
        if len(self.words) != 1:
            found = " ".join(self.words) or "nothing"
            raise UsageError(f"one {what} is needed here, found {found}{advice}")
        return self.words[0]


def split(line: str) -> list[str]:
    """Return the words of a line; quotes and brackets keep a word together where YAML would, or Python after a ``$``.

    A quote counts only at the beginning of a word or value, so that ``name=O'Brien`` is one word.

    >>> split("run audit names=[a, 'b c'] title='two words' who=O'Brien")
    ['run', 'audit', "names=[a, 'b c']", "title='two words'", "who=O'Brien"]
    """
    words, position = [], 0
    while position < len(line):
        if line[position].isspace():
            position += 1
            continue
        end = _word_end(line, position)
        words.append(line[position:end])
        position = end
    return words


def _word_end(line: str, start: int) -> int:
    key = _LONG_KEY.match(line, start)
    position = key.end() if key else start
    if is_expression(line[position:]):
        return expression_end(line, position)
    if position < len(line) and line[position] in QUOTES:
        return _quote_end(line, position)
    if position < len(line) and line[position] in BRACKETS:
        return _bracket_end(line, position)
    while position < len(line) and not line[position].isspace():
        position += 1
    return position


def _quote_end(line: str, start: int) -> int:
    r"""Return the place after the closing quote; in single quotes ``''`` is one, in double quotes ``\"`` is."""
    quote, position = line[start], start + 1
    while position < len(line):
        doubled = quote == "'" and line[position : position + 2] == "''"
        if doubled or (quote == '"' and line[position] == "\\"):
            position += 2
        elif line[position] == quote:
            return position + 1
        else:
            position += 1
    raise UsageError(f"the quote {quote} before {line[start + 1 : start + 21]!r} is not closed")


def _bracket_end(line: str, start: int) -> int:
    expected, position = [BRACKETS[line[start]]], start + 1
    while position < len(line):
        character = line[position]
        if character in QUOTES and line[position - 1] in "[{,: ":
            position = _quote_end(line, position)
            continue
        if character in BRACKETS:
            expected.append(BRACKETS[character])
        elif character == expected[-1]:
            expected.pop()
            if not expected:
                return position + 1
        position += 1
    raise UsageError(f"{expected[-1]} is missing at the end of {line[start : start + 20]!r}")


def parse(
    words: Iterable[str],
    flags: Mapping[str, str],
    valued: Mapping[str, str],
    *,
    inputs: bool,
    names: Names | None = None,
    data_word: int | None = None,
) -> Arguments:
    """Sort words into options, inputs and the rest.

    Parameters
    ----------
    flags, valued
        Long names of the options without and with a value, by every spelling: ``{"-b": "background"}``.
    inputs
        Whether ``key=value`` is allowed.
    names
        What expressions may use; None leaves them as they are written.
    data_word
        The position of the word that may be any value.
    """
    plain: list[str] = []
    given: dict[str, str] = {}
    options: dict[str, str] = {}
    data: dict[int, Any] = {}
    remaining = iter(words)
    for word in remaining:
        key = _KEY.match(word)
        spelled, equals, value = word.partition("=")
        if word.startswith("-") and word != "-":
            name, written = _option(spelled, value if equals else None, remaining, flags, valued)
            found = _text(f"option {spelled}", written, names)
            options[name] = f"{options[name]}\n{found}" if name in REPEATED and name in options else found
        elif key and inputs:
            if key[1] in given:
                raise UsageError(f"input {key[1]!r} is given twice")
            given[key[1]] = word[key.end() :]
        elif names is not None and len(plain) == data_word and is_expression(word):
            data[len(plain)] = names.value(word, word)
            plain.append(word)
        else:
            plain.append(_text(one_line(word, 40), word, names))
    return Arguments(tuple(plain), given, options, data, names or Names())


def _text(what: str, written: str, names: Names | None) -> str:
    """Return a word without its quotes, or what its expression stands for."""
    if names is not None and is_expression(written):
        return as_word(what, written, names.value(what, written))
    if names is not None:
        refuse_inside(what, written)
    return _unquoted(written)


def _option(
    spelled: str, value: str | None, remaining: Iterable[str], flags: Mapping[str, str], valued: Mapping[str, str]
) -> tuple[str, str]:
    if spelled in flags and value is None:
        return flags[spelled], ""
    if spelled not in valued:
        known = [*flags, *valued]
        close = nearest(spelled, known)
        advice = f"did you mean {close}?" if close else f"known: {', '.join(known) or 'none'}"
        raise UsageError(f"unknown option {spelled} ({advice})")
    found = value if value is not None else next(iter(remaining), None)
    if found is None:
        raise UsageError(f"option {spelled} needs a value")
    return valued[spelled], found


def _unquoted(word: str) -> str:
    return str(value_typed(word)) if word.startswith(tuple(QUOTES)) else word


def values(
    written: Mapping[str, str],
    types: Mapping[str, str | None],
    variables: Mapping[str, Any],
    own: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Return the inputs that were written.

    Parameters
    ----------
    types
        Declared types by input; a plain word is a text where one is declared (``version=1.10``).
    variables
        The kernel's, for ``$name``.
    own
        Which of them are worth suggesting; all, if None.
    """
    names = Names(variables, None if own is None else tuple(own))
    return {name: _value(name, text, types.get(name), names) for name, text in written.items()}


def _value(name: str, text: str, declared: str | None, names: Names) -> Any:
    what = f"input {name!r}"
    if is_expression(text):
        return names.value(what, text)
    refuse_inside(what, text)
    if (declared or "").lower() in _TEXT_TYPES and text[:1] not in {*QUOTES, *BRACKETS}:
        return text
    try:
        return value_typed(text)
    except DefinitionError as error:
        problem = error.problems[0]
        raise UsageError(f"{what}: {problem.message} in {text!r}") from None
