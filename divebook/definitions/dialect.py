"""Dialects of definitions: rules of execution for each dialect, and translation of the legacy Dive dialect to Python.

The dialect ``divebook`` is strict. The dialect ``dive`` reads files of the legacy Dive system, and executes them as the
legacy system did. When such a file is read, its scripts and templates are translated to Python (`script`, `expression`,
`template`). At run time only the `DialectRules` of a workflow matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from divebook.errors import SetupError
from divebook.text.arguments import describe
from divebook.text.syntax import each_text, literal, parse_python, with_literal_depths


@dataclass(frozen=True, slots=True)
class DialectRules:
    """Rules of execution that depend on the dialect of a definition. The defaults are the rules of the dialect
    ``divebook``.
    """

    is_strict: bool = True
    """True if keys and settings that would fail or have no effect are reported as errors when a definition is read."""
    has_extensions: bool = True
    """True if waits, questions, retries and other features that the legacy system lacks are available."""
    keeps_text: bool = False
    """True if the result of an action or an item is stored as text, and errors do not contain their place."""
    flattens_items: bool = False
    """True if nested items of ``Each`` are flattened recursively."""
    numbers_all_branches: bool = False
    """True if new paths are numbered over the whole execution. Otherwise they are numbered below each path."""
    writes_state: bool = True
    """True if scripts may change any variable, not only the variable that `Store` of their step names."""
    converts_inputs: bool = True
    """True if a string for an input is converted to the `Type` of the input, such as a number or a list."""
    confirmation_mode: str = ""
    """Approval mode of tools without rules or settings. Empty if each tool decides."""
    qualifies_tools: bool = True
    """True if tools of equal names get the name of their MCP server as a prefix. If False, an agent cannot have
    both.
    """
    null_text: str = ""
    """Output text of a script without a value."""


# --- translation of the legacy script language ----------------------------------------------------------------------
#
# Legacy scripts use ``:=``, ``&&``, ``c ? a : b``, ``nil``, ``time.now()`` and ``rand.intn(9)``. Files may contain
# Python as well, which stays unchanged (``tests/dialects``). A text is split into tokens, each token is replaced
# (`_word`), and conditional expressions are rearranged bracket by bracket (`_choices`). For ``n > 0 ? f(a) : nil`` the
# tokens become ``n > 0 ? f(a) : None``, and the result is ``(f(a) if n > 0 else None)``.


PROVIDERS = ("anthropic", "openai", "openai-completions", "groq", "ollama")
TOOLS = (
    "read_file",
    "write_file",
    "list_directory",
    "text_editor",
    "command",
    "fetch",
    "web_search",
    "generate_image",
    "assign_work",
    "anthropic_code_execution",
    "anthropic_computer",
    "anthropic_web_search",
)

_TOKEN = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`)|(?P<comment>\#[^\n]*|//[^\n]*)"""
    r"""|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(?P<operator>:=|&&|\|\||[!=<>]=|[-+*/%]=|[!?:;,()\[\]{}])"""
    r"""|(?P<line>\n)|(?P<other>[^\S\n]+|.)"""
)
# Spaces around words, because ``a&&b`` has none.
_WORDS = {"&&": " and ", "||": " or ", "!": "not ", ":=": "=", ";": "\n"}
_CONSTANTS = {"true": "True", "false": "False", "nil": "None"}
_CALLS = {
    "time.now": ("datetime.now", "from datetime import datetime"),
    "rand.intn": ("random.randrange", "import random"),
    "rand.int": ("(lambda: random.randrange(2**63))", "import random"),
    "rand.float": ("random.random", "import random"),
}
"""Legacy functions for the clock and random numbers, with the Python function and the import that each needs."""
_TYPES = ("action", "prompt", "script")
"""Fields that determine the type of a step, in order of priority."""
_OPENING = "([{"
_CLOSING = ")]}"
_TEMPLATE = re.compile(r"(\$*)\$\{([^}]*)\}")
# The conditional expression ``if a { b } else { c }``. Branches with nested braces or several lines do not match.
_CHOICE = re.compile(r"if\s+(?P<test>[^{}]+?)\s*\{\s*(?P<then>[^{}\n]+?)\s*\}\s*else\s*\{\s*(?P<other>[^{}\n]+?)\s*\}")


def script(text: str) -> str:
    """Translate a script in the legacy Dive language to Python. Imports that the Python code needs are added at its
    beginning.

    Examples
    --------
    >>> print(script("x := inputs.n > 1 && true"))
    x = inputs.n > 1  and  True
    """
    translated = expression(text)
    # Only functions that the translation has inserted, and whose import the script does not have.
    imports = {needed for name, needed in _CALLS.values() if name in translated and needed not in text}
    used = sorted(imports) if translated != text else []
    return "\n".join([*used, translated])


def expression(text: str) -> str:
    """Translate an expression in the legacy Dive language to Python. Return it unchanged if it is valid Python already,
    or cannot be translated.

    Examples
    --------
    >>> expression('len(state.found) > 0 ? "some" : "none"')
    '("some" if len(state.found) > 0 else "none")'
    """
    # Both forms of a condition become one before the text is split: ``if a { b } else { c }`` -> ``(a ? b : c)``.
    tokens = [(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(_CHOICE.sub(_as_choice, text))]
    if not _is_foreign(text, tokens):
        return text
    translated = "".join(_choices([_word(kind, token) for kind, token in tokens]))
    return translated if _is_python(translated) else text  # an error must then quote the original text


def template(text: str) -> str:
    """Translate the ``${...}`` expressions of a legacy template to Python. The legacy dialect has no escapes, so that a
    dollar sign before ``${`` stays plain text.

    >>> template("costs $${state.price}")
    'costs ${"$"}${state.price}'
    """
    return _TEMPLATE.sub(_slot, text)


def _slot(match: re.Match[str]) -> str:
    dollars, inside = match.groups()
    # An empty ``${}`` is literal text. Behind a dollar sign it needs an escape in the present syntax.
    if not inside.strip():  # literal
        return f"{dollars}$${{{inside}}}" if dollars else match[0]
    return (f'${{"{dollars}"}}' if dollars else "") + f"${{{expression(inside)}}}"


def wrapped(text: str) -> str:
    """Translate a legacy condition, or the legacy expression for the items of a loop, to Python. If the text has the
    form ``$(...)``, the part inside is translated and the form stays.
    """
    stripped = text.strip()
    if not (stripped.startswith("$(") and stripped.endswith(")")):
        # The constants are the same in both languages, and are compared as words.
        return text if stripped.lower() in ("true", "false") else expression(text)
    return f"$({expression(stripped[2:-1])})"


def step(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the fields of a step in the legacy dialect. Its code is translated to Python. Its type is derived from
    the fields that are set, with the rules of the legacy system.
    """
    values = dict(fields)
    for name, translate in (("script", script), ("prompt", template)):
        if isinstance(values.get(name), str):
            values[name] = translate(values[name])
    parameters = values.get("parameters") or {}
    # Only strings of the first level were templates. The deeper ones are escaped.
    values["parameters"] = with_literal_depths(parameters, has_values=False, template=template)
    if "edges" in values:
        values["edges"] = tuple(replace(to, condition=to.condition and wrapped(to.condition)) for to in values["edges"])
    each = values.get("each")
    # A string without ``$(`` is not an expression, which a later check reports.
    if each and isinstance(each.items, str) and each.items.strip().startswith("$("):
        values["each"] = replace(each, items=wrapped(each.items))
    elif each and isinstance(each.items, list):
        values["each"] = replace(each, items=each_text(each.items, literal))
    # Without the key, the first of these fields that is set decides.
    values["type"] = values.get("type") or next((name for name in _TYPES if values.get(name)), "")
    return values


def content(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a content entry of a prompt in the legacy dialect. Its script (`dynamic`), if it has one, is
    translated to Python.
    """
    values = dict(fields)
    if isinstance(values.get("dynamic"), str):
        values["dynamic"] = script(values["dynamic"])
    return values


def _is_foreign(text: str, tokens: Sequence[tuple[str, str]]) -> bool:
    """Return True if legacy code must be translated: it is not valid Python, or uses a name that only the legacy
    language has.
    """
    # ``true`` and ``nil`` are valid names in Python, so that parsing alone would not notice them.
    if any(kind == "name" and (token in _CONSTANTS or token in _CALLS) for kind, token in tokens):
        return True
    return not _is_python(text)


def _is_python(text: str) -> bool:
    try:
        parse_python(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _word(kind: str, token: str) -> str:
    """Translate one token of legacy code to Python. `kind` is the group of `_TOKEN` that matched the token.

    Raw strings in backquotes become strings, ``//`` comments become ``#`` comments, and names and operators are
    translated by `_CALLS`, `_CONSTANTS` and `_WORDS`. All other tokens stay unchanged.
    """
    if kind == "text":
        # A raw string in backquotes may contain quotes and backslashes.
        return repr(token[1:-1]) if token[0] == "`" else token
    if kind == "comment":
        return "#" + token.lstrip("#/")
    if kind == "name":
        return _CALLS[token][0] if token in _CALLS else _CONSTANTS.get(token, token)
    return _WORDS.get(token, token) if kind == "operator" else token


def _as_choice(match: re.Match[str]) -> str:
    """Translate a match of the legacy expression ``if a { b } else { c }`` to the form ``(a ? b : c)``, which `_choice`
    converts to Python.
    """
    return f"({match['test']} ? {match['then']} : {match['other']})"


def _choices(words: Sequence[str]) -> Iterator[str]:
    """Yield the tokens of an expression with each choice ``c ? a : b`` converted to a conditional expression of Python,
    inner brackets first.
    """
    part: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        # These tokens end an expression, so that a condition cannot reach beyond them.
        if word in ("\n", ",", "=") or word in _CLOSING:
            yield _choice(part)
            yield word
            part = []
        elif word in _OPENING:
            end = _end(words, position)
            # The bracket with its translated content is one token of the outer expression.
            part.append("".join((word, *_choices(words[position + 1 : end]), *words[end : end + 1])))
            position = end
        else:
            part.append(word)
        position += 1
    yield _choice(part)


def _end(words: Sequence[str], start: int) -> int:
    """Return the index of the token that closes the bracket at index `start`; the number of tokens if no token closes
    it.
    """
    depth = 0
    for position in range(start, len(words)):
        depth += (words[position] in _OPENING) - (words[position] in _CLOSING)
        if depth == 0:
            return position
    return len(words)


def _choice(words: Sequence[str]) -> str:
    """Convert an expression ``c ? a : b``, as a list of tokens, to a conditional expression of Python. Tokens without a
    question mark are joined unchanged. The tokens must not contain a line break, comma or open bracket.
    """
    if "?" not in words:
        return "".join(words)
    question_mark = words.index("?")
    # A colon before the question mark ends the key of a mapping: ``{"a": c ? 1 : 2}``.
    key = max((index for index in range(question_mark) if words[index] == ":"), default=-1)
    # Find the colon that belongs to this question mark; nested choices have their own.
    depth = 1
    middle = question_mark
    while depth and middle + 1 < len(words):
        middle += 1
        depth += (words[middle] == "?") - (words[middle] == ":")
    if depth:
        return "".join(words)
    test = "".join(words[key + 1 : question_mark])
    then = _choice(words[question_mark + 1 : middle])
    # Spaces before the expression are the indentation of a line.
    space = test[: len(test) - len(test.lstrip())]
    chosen = f"{space}({then.strip()} if {test.strip()} else {_choice(words[middle + 1 :]).strip()})"
    return "".join(words[: key + 1]) + chosen


# --- rules of execution ---------------------------------------------------------------------------------------------


Dialect = Literal["divebook", "dive"]
"""Name of a dialect. ``divebook`` is strict; ``dive`` reads a file as the legacy system did, with warnings."""

OWN: Dialect = "divebook"
"""The default dialect."""


DIALECT_RULES: Mapping[Dialect, DialectRules] = {
    OWN: DialectRules(),
    "dive": DialectRules(
        is_strict=False,
        has_extensions=False,
        keeps_text=True,
        flattens_items=True,
        numbers_all_branches=True,
        writes_state=False,
        converts_inputs=False,
        confirmation_mode="if-not-read-only",
        qualifies_tools=False,
        null_text="nil",
    ),
}


def rules_of(dialect: object) -> DialectRules:
    """Return the rules of a dialect. Raise `SetupError` for a value that is not the name of a dialect."""
    rules = DIALECT_RULES.get(cast("Dialect", dialect)) if isinstance(dialect, str) else None
    if rules is None:
        raise SetupError(f"dialect must be {' or '.join(map(repr, DIALECT_RULES))}, not {describe(dialect)}")
    return rules


__all__ = ["DIALECT_RULES", "OWN", "Dialect", "DialectRules", "rules_of"]
