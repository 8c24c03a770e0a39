"""Templates: text with ``${expression}`` in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from divebook.errors import ScriptError, ScriptLimitError, ScriptSyntaxError, TemplateError, UndefinedVariableError
from divebook.scripting.contexts import SAFE_NAMES, Context
from divebook.scripting.interpreter import Interpreter, default_interpreter
from divebook.scripting.program import compile_expression
from divebook.scripting.syntax import parse_expression
from divebook.scripting.values import scalar_text

_OPEN = "${"
_MOST_BRACES = 64
"""How many closing braces are tried as the end of one expression."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """An expression's place in a template."""

    expression: str


def render_template(text: str, names: Mapping[str, Any], interpreter: Interpreter | None = None) -> str:
    """Return `text` with every ``${expression}`` replaced by its value.

    Raises
    ------
    TemplateError
        If an expression is not closed, not Python, uses an unknown name or fails.
    """
    return render_templates([text], names, interpreter)[0]


def render_templates(
    texts: Sequence[str], names: Mapping[str, Any], interpreter: Interpreter | None = None
) -> list[str]:
    """Return all texts rendered, evaluating their expressions together."""
    templates = [_split(text) for text in texts]
    slots = [part.expression for parts in templates for part in parts if isinstance(part, _Slot)]
    if not slots:
        return ["".join(_literals(parts)) for parts in templates]
    values = iter(_evaluated(slots, names, interpreter or default_interpreter()))
    return ["".join(next(values) if isinstance(part, _Slot) else part for part in parts) for parts in templates]


def expressions_of(text: str) -> list[str]:
    """Return the expressions of a template; raises `TemplateError` if one is not closed."""
    return [part.expression for part in _split(text) if isinstance(part, _Slot)]


def _literals(parts: tuple[str | _Slot, ...]) -> Iterator[str]:
    return (part for part in parts if isinstance(part, str))


def rendered(value: Any) -> str:
    """Return a value as template text: list items and ``key: value`` entries are separated by blank lines."""
    if isinstance(value, Mapping):
        return "\n\n".join(f"{scalar_text(key)}: {rendered(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return "\n\n".join(rendered(item) for item in value)
    return scalar_text(value)


def _evaluated(slots: Sequence[str], names: Mapping[str, Any], interpreter: Interpreter) -> list[str]:
    for slot in slots:
        _check(slot, names)
    try:
        return [rendered(value) for value in interpreter.evaluate(Context.TEMPLATE, slots, names)]
    except ScriptLimitError:
        raise
    except ScriptError as error:
        raise _blame(slots, names, interpreter, error) from error


def _blame(
    slots: Sequence[str], names: Mapping[str, Any], interpreter: Interpreter, error: ScriptError
) -> TemplateError:
    """Return the error for the first slot that fails on its own; only `error`, of all of them, says what happened."""
    for slot in slots:
        try:
            rendered(interpreter.evaluate(Context.TEMPLATE, [slot], names)[0])
        except ScriptError as own:
            error.code = slot
            return TemplateError(f'failed to evaluate template expression "{slot}": {own}')
    return TemplateError(f"failed to evaluate template expressions: {error}")


def _check(slot: str, names: Mapping[str, Any]) -> None:
    try:
        compile_expression(slot).require(names, SAFE_NAMES)
    except ScriptSyntaxError as error:
        error.code = slot
        raise TemplateError(f'failed to parse template expression "{slot}": {error}') from error
    except UndefinedVariableError as error:
        error.code = slot
        raise TemplateError(f"{error} in template expression ${{{slot}}}") from error


@lru_cache(maxsize=1024)
def _split(text: str) -> tuple[str | _Slot, ...]:
    """Return the literal texts and expressions of a template, in order."""
    parts: list[str | _Slot] = []
    position = 0
    while (start := text.find(_OPEN, position)) >= 0:
        end = _end_of_expression(text, start + len(_OPEN))
        inside = text[start + len(_OPEN) : end]
        parts.append(text[position:start])
        parts.append(_Slot(inside.strip()) if inside.strip() else text[start : end + 1])
        position = end + 1
    return (*parts, text[position:])


def _end_of_expression(text: str, start: int) -> int:
    """Return the first closing brace before which the text is Python; failing that, the first one."""
    first = end = text.find("}", start)
    if first < 0:
        raise TemplateError(f"unclosed template expression in string: {text}")
    for _ in range(_MOST_BRACES):
        if not text[start:end].strip() or _is_python(text[start:end]):
            return end
        end = text.find("}", end + 1)
        if end < 0:
            break
    if text.count(_OPEN) > text.count("}"):
        raise TemplateError(f"unclosed template expression in string: {text}")
    return first


def _is_python(text: str) -> bool:
    try:
        parse_expression(text)
    except ScriptSyntaxError:
        return False
    return True
