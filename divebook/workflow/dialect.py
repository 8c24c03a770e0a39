"""The dialects in which definitions are written, and what an execution does otherwise in each.

`divebook.workflow` reads a text with the help of `dive`; at run time only the `DialectRules` of a workflow matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from divebook.text.syntax import each_text, literal, parse_python, with_literal_depths

# What only files of the old system hold: its names, and its script language, translated when a text is read.
#
# Its scripts are written in a language with ``:=``, ``&&``, ``c ? a : b``, ``nil``, ``time.now()`` and
# ``rand.intn(9)``; files may hold Python as well, which stays as it is. Shown by ``tests/dialects``.


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
_WORDS = {"&&": " and ", "||": " or ", "!": "not ", ":=": "=", ";": "\n"}
_CONSTANTS = {"true": "True", "false": "False", "nil": "None"}
_CALLS = {
    "time.now": ("datetime.now", "from datetime import datetime"),
    "rand.intn": ("random.randrange", "import random"),
    "rand.int": ("(lambda: random.randrange(2**63))", "import random"),
    "rand.float": ("random.random", "import random"),
}
"""Functions of the clock and of chance: what they are in Python, and what that needs to be imported."""
_TYPES = ("action", "prompt", "script")
"""What gives a step its type, in the order in which they are tried."""
_OPENING = "([{"
_CLOSING = ")]}"
_TEMPLATE = re.compile(r"(\$*)\$\{([^}]*)\}")
_CHOICE = re.compile(r"if\s+(?P<test>[^{}]+?)\s*\{\s*(?P<then>[^{}\n]+?)\s*\}\s*else\s*\{\s*(?P<other>[^{}\n]+?)\s*\}")


def script(text: str) -> str:
    """Return a script in Python.

    Examples
    --------
    >>> print(script("x := inputs.n > 1 && true"))
    x = inputs.n > 1  and  True
    """
    translated = expression(text)
    imports = {needed for name, needed in _CALLS.values() if name in translated and needed not in text}
    used = sorted(imports) if translated != text else []
    return "\n".join([*used, translated])


def expression(text: str) -> str:
    """Return an expression in Python; the clock and chance, which only scripts have, stay as they are named there.

    Examples
    --------
    >>> expression('len(state.found) > 0 ? "some" : "none"')
    '("some" if len(state.found) > 0 else "none")'
    """
    tokens = [(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(_CHOICE.sub(_as_choice, text))]
    if not _is_foreign(text, tokens):
        return text
    translated = "".join(_choices([_word(kind, token) for kind, token in tokens]))
    return translated if _is_python(translated) else text  # so that an error speaks of what was written


def template(text: str) -> str:
    """Return a text with its ``${...}`` in Python; the legacy dialect has no escapes.

    >>> template("costs $${state.price}")
    'costs ${"$"}${state.price}'
    """
    return _TEMPLATE.sub(_slot, text)


def _slot(found: re.Match[str]) -> str:
    dollars, inside = found.groups()
    if not inside.strip():  # literal
        return f"{dollars}$${{{inside}}}" if dollars else found[0]
    return (f'${{"{dollars}"}}' if dollars else "") + f"${{{expression(inside)}}}"


def wrapped(text: str) -> str:
    """Return a condition or items, with or without their ``$(...)``, in Python."""
    stripped = text.strip()
    if not (stripped.startswith("$(") and stripped.endswith(")")):
        return text if stripped.lower() in ("true", "false") else expression(text)
    return f"$({expression(stripped[2:-1])})"


def step(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a step was given with its code in Python, and the type that the old system took it for."""
    values = dict(given)
    for name, translate in (("script", script), ("prompt", template)):
        if isinstance(values.get(name), str):
            values[name] = translate(values[name])
    parameters = values.get("parameters") or {}
    values["parameters"] = with_literal_depths(parameters, has_values=False, template=template)
    if "edges" in values:
        values["edges"] = tuple(replace(to, condition=to.condition and wrapped(to.condition)) for to in values["edges"])
    each = values.get("each")
    if each and isinstance(each.items, str) and each.items.strip().startswith("$("):
        values["each"] = replace(each, items=wrapped(each.items))
    elif each and isinstance(each.items, list):
        values["each"] = replace(each, items=each_text(each.items, literal))
    values["type"] = values.get("type") or next((name for name in _TYPES if values.get(name)), "")
    return values


def content(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a content entry was given, with its code in Python."""
    return {key: script(to) if key == "dynamic" and isinstance(to, str) else to for key, to in given.items()}


def _is_foreign(text: str, tokens: Sequence[tuple[str, str]]) -> bool:
    """Whether a text is no Python, or uses a name that only the old language has."""
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
    if kind == "text":
        return repr(token[1:-1]) if token[0] == "`" else token
    if kind == "comment":
        return "#" + token.lstrip("#/")
    if kind == "name":
        return _CALLS[token][0] if token in _CALLS else _CONSTANTS.get(token, token)
    return _WORDS.get(token, token) if kind == "operator" else token


def _as_choice(found: re.Match[str]) -> str:
    """Turn ``if a { b } else { c }``, which is a value in the old language, into a choice."""
    return f"({found['test']} ? {found['then']} : {found['other']})"


def _choices(words: Sequence[str]) -> Iterator[str]:
    """Turn every ``c ? a : b`` into Python's form, bracket by bracket."""
    part: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        if word in ("\n", ",", "=") or word in _CLOSING:
            yield _choice(part)
            yield word
            part = []
        elif word in _OPENING:
            end = _end(words, position)
            part.append("".join((word, *_choices(words[position + 1 : end]), *words[end : end + 1])))
            position = end
        else:
            part.append(word)
        position += 1
    yield _choice(part)


def _end(words: Sequence[str], start: int) -> int:
    """Return where the bracket that opens at `start` closes."""
    depth = 0
    for position in range(start, len(words)):
        depth += (words[position] in _OPENING) - (words[position] in _CLOSING)
        if depth == 0:
            return position
    return len(words)


def _choice(words: Sequence[str]) -> str:
    """Return one part without brackets of its own, its choice written as Python does."""
    if "?" not in words:
        return "".join(words)
    asked = words.index("?")
    key = max((index for index in range(asked) if words[index] == ":"), default=-1)  # of a map
    depth = 1
    middle = asked
    while depth and middle + 1 < len(words):
        middle += 1
        depth += (words[middle] == "?") - (words[middle] == ":")
    if depth:
        return "".join(words)
    test = "".join(words[key + 1 : asked])
    then = _choice(words[asked + 1 : middle])
    space = test[: len(test) - len(test.lstrip())]
    chosen = f"{space}({then.strip()} if {test.strip()} else {_choice(words[middle + 1 :]).strip()})"
    return "".join(words[: key + 1]) + chosen


# What executions of the two dialects do differently, as data.


Dialect = Literal["divebook", "dive"]
"""``divebook`` is strict; ``dive`` reads a file of the old system as it did, with warnings."""

OWN: Dialect = "divebook"


@dataclass(frozen=True, slots=True)
class DialectRules:
    """How the executions of a workflow behave where the dialects differ; the defaults are our own."""

    is_strict: bool = True
    """Whether what would fail or be ignored is refused before anything runs."""
    has_extensions: bool = True
    """Whether there are waits, questions, retries and whatever else the old system did not have."""
    keeps_text: bool = False
    """Whether an action's result, and each item's, is stored as text, and errors are reported without their place."""
    flattens_items: bool = False
    """Whether nested items of ``Each`` are flattened all the way down."""
    numbers_all_branches: bool = False
    """Whether new paths are numbered over the whole execution and not below each path."""
    writes_state: bool = True
    """Whether scripts may change variables beside their step's Store."""
    converts_inputs: bool = True
    """Whether a text typed for an input becomes a number, or a list, where the input's Type says so."""
    confirmation_mode: str = ""
    """When calls of tools ask a person, where neither rules nor settings say; empty leaves it to each tool."""
    qualifies_tools: bool = True
    """Whether tools of one name have that of their server in front; else an agent cannot have both."""
    null_text: str = ""
    """What a script without a value prints."""


MANNERS: Mapping[Dialect, DialectRules] = {
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


__all__ = ["MANNERS", "OWN", "Dialect", "DialectRules"]
