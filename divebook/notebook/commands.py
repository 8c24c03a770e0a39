"""Sub-commands of ``%dive``, and the parser for the words, options, inputs and Python expressions of a line.

`line_command` makes a sub-command of each command that `divebook.commands` declares: its words, options and help come
from the declaration. Options that every sub-command has (``--store``), or every one that drives a run
(``--background``), are added here.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Any

from IPython.core.error import UsageError

from divebook.commands.command import NOTEBOOK, Parameter, ParameterError, option
from divebook.commands.command import Command as DeclaredCommand
from divebook.commands.table import COMMANDS as TABLE
from divebook.commands.table import spelled_in_notebook
from divebook.definitions.yaml_text import BRACKETS, QUOTES, value_typed
from divebook.errors import DefinitionError, nearest
from divebook.text.format import visible
from divebook.text.redaction import one_line, shared

# --- Python expressions on the line of a magic: ``$name`` and ``$expression`` ----------------------------------------
#
# A word or value that starts with ``$`` is Python as a whole. IPython itself also replaces ``$name`` and ``{name}``
# inside a text. A line in which it would do so is rejected, and the error states the right form. Therefore nothing that
# looks like Python is ever taken as text (`tests/notebook/test_expressions.py`).


# ``$x``, ``$(1 + 1)``, ``$[1, 2]`` and ``$'a'`` are expressions; ``$5`` is a text.
_EXPRESSION_START = re.compile(r"\$(?=[^\W\d]|[(\[\"'])")
_NAME = re.compile(r"[^\W\d]\w*")
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
# IPython replaces ``$name`` and ``{name}``. ``$(...)``, ``$[...]`` and ``${...}`` look as if they were replaced too.
# Doubled braces (``{{name}}``) stay as they are.
_REPLACED_BY_IPYTHON = re.compile(r"\$(?:[^\W\d]|[(\[{$])|(?<!\{)\{[^\W\d][^{}:]*\}(?!\})")
_VALUE_INSIDE = re.compile(r"\$\{([^{}]+)\}|\$([^\W\d]\w*)|(?<!\{)\{([^\W\d][^{}]*)\}(?!\})")
"""Pattern of what people write in a text for the value of a variable; one of its groups is the expression."""
_CALCULATION = re.compile(r"\$[\d.]+(?:[-+*/%]+[\d.]+)+")
_MAX_SHOWN = 60
"""Maximum number of characters of a text or message that an error quotes."""


def is_expression(text: str) -> bool:
    """Return whether a word of a line is a Python expression (``$name``, ``$(...)``)."""
    return _EXPRESSION_START.match(text) is not None


def expression_end(line: str, start: int) -> int:
    """Return the index after the last character of the Python expression that starts with ``$`` at index `start`.

    The expression ends at the first white space outside brackets and quotes.
    """
    # A stack of the closing brackets that are still expected, the innermost last.
    expected: list[str] = []
    position = start + 1
    while position < len(line) and (expected or not line[position].isspace()):
        character = line[position]
        # Brackets and spaces in a Python string do not count. Python strings escape quotes by backslashes, unlike YAML.
        if character in QUOTES:
            position = _string_end(line, position)
            continue
        if character in _CLOSED_BY:
            expected.append(_CLOSED_BY[character])
        elif expected and character == expected[-1]:
            expected.pop()
        position += 1
    if expected:
        raise UsageError(f"the closing {expected[-1]} of {line[start : start + 20]!r} is missing")
    return position


def _string_end(line: str, start: int) -> int:
    """Return the index after the closing quote of the Python string that starts at index `start`."""
    quote = line[start]
    # A backslash and the character after it are one unit, so that ``\"`` does not end the string.
    string = re.compile(rf"{quote}(?:\\.|[^\\{quote}])*{quote}").match(line, start)
    if string is None:
        raise UsageError(f"the closing quote {quote} is missing after {line[start + 1 : start + 21]!r}")
    return string.end()


@dataclass(frozen=True, slots=True)
class Names:
    """The Python variables that expressions such as ``$name`` in a ``%dive`` line may use."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    user_names: Sequence[str] | None = None
    """Names to suggest in errors: the user's variables, without IPython's. None: suggest all variables."""

    def value(self, what: str, text: str) -> Any:
        """Evaluate a Python expression, written as ``$expression``.

        Parameters
        ----------
        what
            The place of the expression, for errors: ``input 'n'``.

        Raises
        ------
        UsageError
            The text is not a Python expression, or the expression raised an exception.
        """
        source = text[1:]
        # A plain name is checked before it is evaluated, so that the error can suggest a similar variable.
        if _NAME.fullmatch(source) and source not in self.variables:
            raise UsageError(f"{what}: {self._unknown(source)}")
        try:
            # `eval` adds ``__builtins__`` to its globals, so it gets a copy and the user's variables stay unchanged.
            return eval(compile(source, "<%dive>", "eval"), dict(self.variables))  # noqa: S307 - the person's own cell
        except SyntaxError as error:
            advice = "put a string in single quotes"
            raise UsageError(f"{what}: {text} is not a Python expression ({error.msg}); {advice}") from error
        except NameError as error:
            raise UsageError(f"{what}: {text}: {self._unknown(error.name or '')}") from error
        # The expression is the person's code and can raise anything. A traceback would mainly show lines of divebook.
        except Exception as error:
            raised = f"{type(error).__name__}: {one_line(str(error), _MAX_SHOWN)}"
            raise UsageError(
                f"{what}: {text} raises {raised}; run the expression in a separate cell to see the traceback"
            ) from error

    def _unknown(self, name: str) -> str:
        candidates = self.variables if self.user_names is None else self.user_names
        # Names with an underscore belong to IPython (``_``, ``_i1``) or are private.
        close = nearest(name, (candidate for candidate in candidates if not candidate.startswith("_")))
        advice = (
            f"did you mean ${close}?" if close else "define the variable in a cell, or put the value in single quotes"
        )
        return f"there is no variable {name!r} ({advice})"


def as_word(what: str, text: str, value: Any) -> str:
    """Convert the value of a Python expression in a ``%dive`` line to a text, which replaces the expression in the
    line.

    The value is a string, number or path, or an object with an ``id`` or ``name``. Other values raise `UsageError`.
    """
    # Runs and questions have an ``id``, agents and workflows a ``name``: ``%dive show $run``.
    for candidate in (value, getattr(value, "id", None), getattr(value, "name", None)):
        if isinstance(candidate, str):
            return candidate
    # A truth value is an instance of int, but ``True`` is a mistake wherever a word is expected.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise UsageError(
        f"{what}: {text} is a {type(value).__name__}; expected a string, a number or an object with an .id"
    )


def refuse_inside(what: str, text: str) -> None:
    """Raise `UsageError` if a text contains a variable such as ``{name}``. IPython replaces such variables in the lines
    of other magics, but divebook does not replace them.

    A text in single quotes is allowed.
    """
    # A calculation that starts with a number would stay a text without a word, although `$n/2` is one.
    if _CALCULATION.fullmatch(text):
        raise UsageError(
            f"{what}: {text} is read as a string; write $({text[1:]}) for the result of the calculation, "
            f"or '{text}' for this string"
        )
    if not any(_REPLACED_BY_IPYTHON.search(part) for part in _unquoted_parts(text)):
        return
    raise UsageError(f"{what}: variables inside {one_line(text, _MAX_SHOWN)} are not replaced; {_advice(text)}")


def _advice(text: str) -> str:
    """Return the last part of an error message about a text such as ``{name}`` or ``[a, b]``. It explains how to write
    the text as a Python expression, and how to write it as a literal text. What it says to write is accepted in place
    of the text.
    """
    key = _LONG_KEY.match(text)
    name = "" if key is None else key[0]
    value = text[len(name) :]
    # "{city}" -> "write $city for the value, or '{city}' for this string"
    match = re.fullmatch(r"\$?\{([^{}]+)\}", value) or re.fullmatch(r"[\"]?\$+([\w.]+)[\"]?", value)
    try:
        plain = value.strip('"') if match else _unquoted(value)
    except DefinitionError:  # double quotes in which a backslash has no meaning
        plain = value[1:-1]
    # YAML has control characters in double quotes only, in which divebook looks for variables as well.
    literal = name + single_quoted(plain if plain.isprintable() else value[1:-1])
    if match and not name and _is_one_expression(f"${match[1]}"):
        return f"write ${match[1]} for the value, or {literal} for this string"
    # "[$a, $b]" -> "write a Python expression after a dollar sign, such as $[a, b], or put each string inside ..."
    if not name and value[:1] in ("[", "{"):
        return (
            "write a Python expression after a dollar sign, such as "
            f"{'$[a, b]' if value[0] == '[' else '$dict(a=b)'}, or put each string inside it in single quotes"
        )
    # "${city}.txt" -> 'write $f"{city}.txt" for the value'
    python = f"${_f_string(name + plain)}"
    if _is_one_expression(python):
        return f"write {python} for the value, or {literal} for this string"
    return f"write {literal} for this string, or pass the Python variable of a string: $text"


def _f_string(text: str) -> str:
    """Return the f-string that has the values of ``$name``, ``${...}`` and ``{name}`` in place of these parts."""
    quote = "'" if '"' in text and "'" not in text else '"'

    def escaped(part: str) -> str:
        return part.replace("\\", r"\\").replace(quote, f"\\{quote}").replace("{", "{{").replace("}", "}}")

    parts = []
    end = 0
    for match in _VALUE_INSIDE.finditer(text):
        parts += [escaped(text[end : match.start()]), f"{{{match[match.lastindex or 0]}}}"]
        end = match.end()
    return "".join([f"f{quote}", *parts, escaped(text[end:]), quote])


def _is_one_expression(word: str) -> bool:
    """Return whether a word of a line is one Python expression."""
    try:
        ast.parse(word[1:], mode="eval")
        return is_expression(word) and split(word) == [word]
    except (SyntaxError, UsageError):
        return False


def single_quoted(text: str) -> str:
    """Return a text in single quotes, as YAML reads it."""
    return "'" + text.replace("'", "''") + "'"


def _unquoted_parts(text: str) -> Iterable[str]:
    """Yield the parts of a word of a ``%dive`` line that are not in single quotes.

    A quote counts only at the start of the text, after ``key=``, or, in brackets, at the start of a value.
    """
    key = _LONG_KEY.match(text)
    value = text if key is None else text[key.end() :]
    if value[:1] == "'":
        return
    if value[:1] not in {"[", "{"}:
        yield text
        return
    # The white space, comma, colon or bracket before a quote shows that a value starts there. ``O'Brien`` has no such
    # quote.
    yield from re.split(r"(?<=[\[{,: ])'(?:[^']|'')*'", text)


# --- the line of a magic: words, options, and ``key=value`` with values in YAML or Python ----------------------------


_KEY = re.compile(r"([^\W\d][\w.-]*:?)=")
"""Pattern of the start of an input: ``key=`` with YAML, ``key:=`` with JSON. The name of the latter keeps its colon."""
_LONG_KEY = re.compile(r"(?:--)?[^\W\d][\w.:-]*=")
"""Pattern of the start of a word with a value: ``key=``, ``step:2=`` (second question of a step) or ``--option=``."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parsed words, options and inputs that follow the sub-command in a ``%dive`` line."""

    words: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The text of each ``key=value`` by key. The values are not parsed yet."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The value of each option by its long name, the last one if it occurs several times; empty for an option without a
    value.
    """
    data: Mapping[int, Any] = field(default_factory=dict)
    """Values of Python expressions that may be any object, by the position of the word."""
    names: Names = Names()
    """The variables that Python expressions of the line may use."""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """All values of each option by its long name."""

    def has(self, flag: str) -> bool:
        """Return whether the ``%dive`` line contains the option with this long name."""
        return flag in self.options

    def several(self, name: str) -> list[str]:
        """Return all values of an option that may occur several times in a ``%dive`` line; empty without the option."""
        return [*self.values.get(name, ())]


def split(line: str) -> list[str]:
    """Split a ``%dive`` line into words.

    Quotes and brackets keep a word together, as in YAML, or after ``$`` as in Python. A quote counts only at the start
    of a word or value, so that ``name=O'Brien`` is one word.

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
    """Return the index after the last character of the word that starts at index `start` of a ``%dive`` line."""
    # ``names=[a, b]`` is one word: the quotes or brackets after the key keep it together.
    key = _LONG_KEY.match(line, start)
    position = key.end() if key else start
    # Python comes first: after ``$``, brackets and quotes follow the rules of Python.
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
    r"""Return the index after the closing quote of the YAML string that starts at index `start`.

    ``''`` inside single quotes, and ``\"`` inside double quotes, do not end the string.
    """
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
    raise UsageError(f"the closing quote {quote} is missing after {line[start + 1 : start + 21]!r}")


def _bracket_end(line: str, start: int) -> int:
    """Return the index after the closing bracket of the YAML list or mapping that starts at index `start`."""
    # As in `expression_end`, a stack of the closing brackets that are still expected.
    expected = [BRACKETS[line[start]]]
    position = start + 1
    while position < len(line):
        character = line[position]
        # A quote counts only where a YAML value can start. An apostrophe inside a word does not.
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
    raise UsageError(f"the closing {expected[-1]} of {line[start : start + 20]!r} is missing")


def parse(
    words: Iterable[str],
    flags: Mapping[str, str],
    valued: Mapping[str, str],
    *,
    inputs: bool,
    names: Names | None = None,
    data_word: int | None = None,
) -> Arguments:
    """Parse the words of a ``%dive`` line after its sub-command into options, inputs and plain words.

    Parameters
    ----------
    flags, valued
        Long names of the options without and with a value, by every spelling: ``{"-b": "background"}``.
    inputs
        Whether ``key=value`` is allowed.
    names
        The variables that expressions may use; None leaves expressions as text.
    data_word
        The position of the word whose expression may have any value.

    Raises
    ------
    UsageError
        An option is unknown or lacks its value, an input is repeated, or an expression is wrong.
    """
    plain: list[str] = []
    inputs_by_name: dict[str, str] = {}
    options: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    data: dict[int, Any] = {}
    # An option without ``=`` takes its value from the same iterator, so that this loop never sees the value.
    remaining = iter(words)
    for word in remaining:
        key = _KEY.match(word)
        spelling, equals, value = word.partition("=")
        # A single dash is a plain word.
        if word.startswith("-") and word != "-":
            name, text = _option(spelling, value if equals else None, remaining, flags, valued)
            # The value of an option is evaluated at once, because options are texts. Inputs stay unparsed: their types
            # are known only after the workflow is known.
            text = _text(f"option {spelling}", text, names)
            options[name] = text
            values.setdefault(name, []).append(text)
        elif key and inputs:
            bare = key[1].removesuffix(":")
            if {bare, f"{bare}:"} & inputs_by_name.keys():
                raise UsageError(f"input {bare!r} is given twice")
            inputs_by_name[key[1]] = word[key.end() :]
        # Only the word at `data_word` may be any object. It is stored in `data`; the word itself stays in its position.
        elif names is not None and len(plain) == data_word and is_expression(word):
            data[len(plain)] = names.value(word, word)
            plain.append(word)
        else:
            plain.append(_text(one_line(word, 40), word, names))
    return Arguments(tuple(plain), inputs_by_name, options, data, names or Names(), values)


def _text(what: str, word: str, names: Names | None) -> str:
    """Return the text of one word of a ``%dive`` line. A quoted word is returned without its quotes, and a Python
    expression such as ``$name`` is replaced by its value.
    """
    if names is not None and is_expression(word):
        return as_word(what, word, names.value(what, word))
    # Without `names` the caller only completes a line, in which an unfinished text may look like anything.
    if names is not None:
        refuse_inside(what, word)
    return _unquoted(word)


def _option(
    spelling: str, value: str | None, remaining: Iterable[str], flags: Mapping[str, str], valued: Mapping[str, str]
) -> tuple[str, str]:
    """Return the long name and the value of an option as it was typed in a ``%dive`` line. Raise `UsageError` if the
    option is unknown or lacks its value.

    If the value does not follow after ``=``, it is the next of the `remaining` words.
    """
    # ``--background=yes`` is an error: a flag has no value.
    if spelling in flags and value is None:
        return flags[spelling], ""
    if spelling not in valued:
        spellings = [*flags, *valued]
        close = nearest(spelling, spellings)
        advice = f"did you mean {close}?" if close else f"available options: {', '.join(spellings) or 'none'}"
        raise UsageError(f"unknown option {spelling} ({advice})")
    # `iter` of an iterator is the iterator itself, so that this takes the next word away from the loop in `parse`.
    if value is None:
        value = next(iter(remaining), None)
    if value is None:
        raise UsageError(f"option {spelling} needs a value")
    return valued[spelling], value


def _unquoted(word: str) -> str:
    return str(value_typed(word)) if word.startswith(tuple(QUOTES)) else word


# --- sub-commands ----------------------------------------------------------------------------------------------------

HELP_OPTIONS = frozenset({"--help", "-h"})


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command of ``%dive``: a declared command with the syntax of a line."""

    declared: DeclaredCommand
    parameters: tuple[Parameter, ...]
    """The parameters of the declared command in a notebook, and those that every sub-command has."""
    help: str
    """Help text: description, words and options, example."""

    @property
    def name(self) -> str:
        """Name of the sub-command."""
        return self.declared.name

    @property
    def usage(self) -> str:
        """Name and words, as the list of sub-commands shows them: ``why NAME [RUN]``."""
        return self.declared.usage_in(NOTEBOOK)

    @property
    def words(self) -> list[Parameter]:
        """The words, in their order."""
        return [parameter for parameter in self.parameters if parameter.is_word]

    @property
    def options(self) -> list[Parameter]:
        """The options."""
        return [parameter for parameter in self.parameters if not parameter.is_word]

    @property
    def flags(self) -> dict[str, str]:
        """Long names of the options without a value, by spelling (``-b``, ``--background``)."""
        return {spelling: entry.long_name for entry in self.options if entry.is_flag for spelling in entry.spellings}

    @property
    def valued(self) -> dict[str, str]:
        """Long names of the options with a value, by spelling."""
        return {
            spelling: entry.long_name for entry in self.options if not entry.is_flag for spelling in entry.spellings
        }

    @property
    def repeated(self) -> frozenset[str]:
        """Long names of the options that may occur several times."""
        return frozenset(entry.long_name for entry in self.options if entry.is_repeated)

    @property
    def inputs(self) -> bool:
        """True if the sub-command takes inputs (``key=value``)."""
        return any(entry.as_words for entry in self.options)

    @property
    def whole_help(self) -> str:
        """Usage line and help text of the sub-command."""
        return f"%dive {self.usage}\n\n{self.help}"

    def parse(self, words: list[str], names: Names | None = None) -> Arguments:
        """Parse the words after this sub-command. Raise `UsageError` for words that the sub-command does not accept."""
        data_word = next((position for position, entry in enumerate(self.words) if entry.takes_object), None)
        arguments = parse(
            words,
            self.flags,
            self.valued,
            inputs=self.inputs,
            names=names,
            data_word=data_word,
        )
        most = sys.maxsize if any(entry.is_repeated for entry in self.words) else len(self.words)
        # More words than declared are a mistake, mostly a text without quotes.
        extra = " ".join(arguments.words[most:])
        if extra and self.inputs:
            raise UsageError(f"unexpected {extra!r}; write inputs as key=value, and put strings with spaces in quotes")
        if extra and most:
            raise UsageError(f"unexpected {extra!r} after %dive {self.name}; put strings with spaces in quotes")
        if extra:
            raise UsageError(
                f"unexpected {extra!r}; %dive {self.name} takes only options; to list them: %dive {self.name}?"
            )
        return arguments


# --- sub-commands that are built from the declared commands ----------------------------------------------------------


STORE = replace(
    option("--store", metavar="PATH", help="Store: a file or a postgresql:// URL. Default: the store of the session."),
    name="store",
    default=None,
)
DRIVING = tuple(
    replace(declared, name=declared.long_name, type=bool, default=False)
    for declared in (
        option(
            "--background",
            "-b",
            help="Return at once, without waiting for the run to end. To wait later: `await run` or `run.wait()`.",
        ),
        option("--no-check", help="Do not fail the cell if the run fails or is cancelled."),
        option("--strict", help="Fail the cell also if the run has to wait for an answer or a signal."),
        option("--no-data", help="Do not save the data of the run in the notebook."),
    )
)
"""Options of all sub-commands that start or continue a run."""
_HELP_WIDTH = 110
_TERM_WIDTH = 16


def notebook_parameters(declared: DeclaredCommand) -> tuple[Parameter, ...]:
    """Return the parameters of a declared command in a ``%dive`` line, with those that every sub-command has."""
    driving = DRIVING if declared.drives else ()
    return (*declared.parameters_in(NOTEBOOK), *driving, *([STORE] if declared.has_store else []))


def line_command(declared: DeclaredCommand) -> Command:
    """Return the sub-command of ``%dive`` for a declared command."""
    parameters = notebook_parameters(declared)
    return Command(declared, parameters, _help_of(declared, parameters))


def _help_of(declared: DeclaredCommand, parameters: Iterable[Parameter]) -> str:
    """Return the help text of a declared command: description, words and options, example."""
    lines = [declared.help, ""]
    for parameter in parameters:
        # "--limit N, -n": the long spelling first, as errors write it.
        short = "".join(f", {spelling}" for spelling in parameter.spellings[1:])
        term = f"{parameter.metavar if parameter.is_word else parameter.usage}{short}"
        texts = wrap(parameter.help, _HELP_WIDTH - _TERM_WIDTH)
        # A long term has a line of its own.
        if len(term) < _TERM_WIDTH:
            lines.append(term.ljust(_TERM_WIDTH) + texts.pop(0))
        else:
            lines.append(term)
        lines += [" " * _TERM_WIDTH + text for text in texts]
    if declared.notebook_help:
        lines += ["", *wrap(declared.notebook_help, _HELP_WIDTH)]
    lines += ["", f"Example: %dive {declared.notebook_example}"]
    return "\n".join(lines)


def values_of(declared: DeclaredCommand, arguments: Arguments) -> dict[str, Any]:
    """Convert the words and options of a ``%dive`` line to the values of a declared command's parameters.

    Raises
    ------
    UsageError
        A required word is missing, or a value does not fit its parameter.
    """
    values: dict[str, Any] = {}
    words = list(arguments.words)
    for parameter in declared.parameters_in(NOTEBOOK):
        if parameter.is_word:
            texts = words if parameter.is_repeated else words[:1]
            words = words[len(texts) :]
        elif parameter.is_flag:
            values[parameter.name] = arguments.has(parameter.long_name)
            continue
        elif parameter.is_repeated:
            texts = arguments.several(parameter.long_name)
            if parameter.as_words:
                # Objects of the notebook are not texts: `objects_of` returns them.
                texts += [f"{key}={text}" for key, text in arguments.inputs.items() if not is_expression(text)]
        else:
            texts = [arguments.options[parameter.long_name]] if arguments.has(parameter.long_name) else []
        position = len(arguments.words) - len(words) - 1
        if parameter.takes_object and position in arguments.data:
            # A Python expression is the value itself.
            values[parameter.name] = arguments.data[position]
        elif texts:
            read = [_read(parameter, text) for text in texts]
            values[parameter.name] = read if parameter.is_repeated else read[0]
        elif parameter.is_required:
            raise UsageError(
                f"%dive {declared.name} needs {parameter.usage}, for example: %dive {declared.notebook_example}"
            )
    return values


def objects_of(arguments: Arguments) -> dict[str, Any]:
    """Return the inputs of a ``%dive`` line that are Python expressions, by name. Raise `UsageError` for a text in
    which IPython would replace a variable.
    """
    objects: dict[str, Any] = {}
    for key, text in arguments.inputs.items():
        name = key.removesuffix(":")
        what = f"input {name!r}"
        if is_expression(text):
            objects[name] = arguments.names.value(what, text)
        else:
            refuse_inside(what, text)
    return objects


def _read(parameter: Parameter, text: str) -> Any:
    try:
        return parameter.read(text)
    except ParameterError as error:
        raise UsageError(f"{parameter.usage.partition(' ')[0]} {error.problem}") from None


def help_with(word: str, commands: Mapping[str, Command]) -> str:
    """Return the help for a word: a sub-command, or a key of definitions. Other words raise `UsageError`."""
    from divebook.definitions.schema import help_about
    from divebook.errors import NotFoundError

    # A sub-command has precedence over a key of the same name, such as ``run``.
    if word in commands:
        return commands[word].whole_help
    try:
        return help_about(word)
    except NotFoundError as error:
        close = nearest(word, (*commands, *error.available))
        advice = (
            f"did you mean %dive help {close}?"
            if close
            else "run %dive help to list all sub-commands, or %dive keys to list all keys"
        )
        raise UsageError(f"unknown sub-command or key {word!r} ({advice})") from None


def command_called(name: str, commands: Mapping[str, Command]) -> Command:
    """Return the sub-command with this name; raise `UsageError` if it does not exist."""
    if name not in commands:
        if name in TABLE:
            raise UsageError(f"{name} is a shell command; in a notebook, write {spelled_in_notebook(name)}")
        close = nearest(name, commands)
        advice = f"did you mean %dive {close}?" if close else f"available sub-commands: {', '.join(commands)}"
        raise UsageError(f"unknown sub-command %dive {name} ({advice})")
    return commands[name]


def print_answer(text: str) -> None:
    """Print a text as the output of a magic, with secrets replaced and control characters escaped."""
    sys.stdout.write(visible(shared().text(text)) + "\n")
