"""What a sub-command of ``%dive`` is: a method whose docstring is its help, and lists its words and options.

A line of it that begins with ``--name`` is an option, with a value if a word follows after one space (``--tag TAG``);
``-n,`` before it is a short spelling. A line that begins with a word in capitals is a word that it takes, and
``KEY=VALUE`` says that it takes inputs. A usage that ends with ``...`` takes any number of words. One that can go on in
the ``--background`` returns a run that is waited for.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from IPython.core.error import UsageError

from divebook.errors import DefinitionError, nearest
from divebook.text.format import visible
from divebook.text.redaction import one_line, shared
from divebook.workflow.yaml_text import BRACKETS, QUOTES, value_typed

# Python on the line of a magic: ``$name`` and ``$expression``, in the names of the place that the line stands in.
#
# A word or a value that begins with ``$`` is Python as a whole. Where IPython would replace something inside a text, or
# a ``{name}``, the line is refused and the error says what to write: nothing that looks like Python ever becomes a text
# (`tests/notebook/test_expressions.py`).


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


# The line of a magic: words, options, and ``key=value`` whose values are YAML, or ``$expression`` in Python.


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
    words = []
    position = 0
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
    quote = line[start]
    position = start + 1
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
    expected = [BRACKETS[line[start]]]
    position = start + 1
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


Method: TypeAlias = "Callable[[Any, Arguments], Any]"

HELP_OPTIONS = frozenset({"--help", "-h"})
_OPTION = re.compile(r"^(?:(-\w), )?--([\w-]+)(?: (\S))?", re.MULTILINE)
_WORD = re.compile(r"^[A-Z]+ ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command of ``%dive``."""

    usage: str
    method: Method
    help: str
    """What it does, in full."""
    flags: Mapping[str, str]
    valued: Mapping[str, str]
    """Long names of the options without and with a value, by every spelling."""
    most_words: int
    inputs: bool
    data_word: int | None
    """The position of the word that may be any value."""

    @property
    def whole_help(self) -> str:
        """How it is written, and what it does."""
        return f"%dive {self.usage}\n\n{self.help}"

    def parse(self, words: list[str], names: Names | None = None) -> Arguments:
        """Sort what follows it; words that would be ignored are refused."""
        found = parse(words, self.flags, self.valued, inputs=self.inputs, names=names, data_word=self.data_word)
        extra = " ".join(found.words[self.most_words :])
        name = self.usage.split()[0]
        if extra and self.inputs:
            raise UsageError(f"unexpected {extra!r}; write inputs as key=value, and texts with spaces in quotes")
        if extra and self.most_words:
            raise UsageError(f"unexpected {extra!r} after %dive {name}; put texts with spaces in quotes")
        if extra:
            raise UsageError(f"%dive {name} takes no words, found {extra!r}; %dive {name}? lists its options")
        return found


def command(usage: str, *, data_word: int | None = None) -> Callable[[Method], Command]:
    """Make a sub-command of a method that takes `Arguments`."""

    def made(method: Method) -> Command:
        text = inspect.getdoc(method) or ""
        flags: dict[str, str] = {}
        valued: dict[str, str] = {}
        for short, name, value in _OPTION.findall(text):
            (valued if value else flags).update(dict.fromkeys(filter(None, (f"--{name}", short)), name))
        words = sys.maxsize if usage.endswith(" ...") else len(_WORD.findall(text))
        return Command(usage, method, text, flags, valued, words, "\nKEY=VALUE" in text, data_word)

    return made


def help_with(word: str, commands: Mapping[str, Command]) -> str:
    """Return what a sub-command does, or a key of definitions means; UsageError if there is neither."""
    from divebook.errors import NotFoundError
    from divebook.workflow.schema import help_about

    if word in commands:
        return commands[word].whole_help
    try:
        return help_about(word)
    except NotFoundError as error:
        close = nearest(word, (*commands, *error.available))
        advice = (
            f"did you mean %dive help {close}?" if close else "%dive help lists all sub-commands, %dive keys all keys"
        )
        raise UsageError(f"there is neither a sub-command nor a key {word!r} ({advice})") from None


def command_called(name: str, commands: Mapping[str, Command]) -> Command:
    """Return the sub-command of that name; UsageError if there is none."""
    if name not in commands:
        close = nearest(name, commands)
        advice = f"did you mean %dive {close}?" if close else f"there are: {', '.join(commands)}"
        raise UsageError(f"%dive {name} does not exist ({advice})")
    return commands[name]


# What magics print: their answers, without secrets and control characters.


def tell(text: str) -> None:
    """Print an answer."""
    sys.stdout.write(visible(shared().text(text)) + "\n")


# Which of a shell's names are the user's own.


_NOTHING = object()


def own_variables(shell: Any) -> Iterator[str]:
    """Yield the names a user has given, newest last: without IPython's own, such as ``In`` and ``exit``."""
    hidden = shell.user_ns_hidden
    for name, value in shell.user_ns.items():
        if not name.startswith("_") and value is not hidden.get(name, _NOTHING):
            yield name


# Which line of a cell called a magic: shown with an error where a cell has several lines.


def line_in_cell(shell: Any) -> tuple[int, str] | None:
    """Return the number and the text of the line that is being run; None where a cell has only one, or none is run."""
    number = _line_number(shell)
    history = getattr(shell, "history_manager", None)
    written = history.input_hist_raw[-1] if history is not None and history.input_hist_raw else ""
    lines = written.splitlines()
    if number is None or len(written.strip().splitlines()) < 2 or not 1 <= number <= len(lines):
        return None
    return number, lines[number - 1]


def _line_number(shell: Any) -> int | None:
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    frame = sys._getframe()  # noqa: SLF001 - the public way, inspect.stack, reads every source file
    while name_of is not None and frame is not None:
        if name_of(frame.f_code.co_filename) is not None:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None
