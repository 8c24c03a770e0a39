"""Templates: text with ``${expression}`` in it (syntax: `divebook.text.templates`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from divebook.errors import ScriptError, ScriptLimitError, ScriptSyntaxError, TemplateError, UndefinedVariableError
from divebook.scripting.contexts import SAFE_NAMES, Context
from divebook.scripting.interpreter import Interpreter, default_interpreter
from divebook.scripting.program import compile_expression
from divebook.scripting.values import scalar_text
from divebook.text.templates import Slot, split

MAX_CHARACTERS = 64 * 1024 * 1024
"""Characters of the values in templates that are rendered together: as many as one event of a log may hold bytes."""
_MOST_SHOWN = 40
"""Characters of an expression that an error repeats."""


def render_template(text: str, names: Mapping[str, Any], interpreter: Interpreter | None = None) -> str:
    """Return `text` with every ``${expression}`` replaced by its value.

    Raises
    ------
    TemplateError
        If an expression is not closed, not Python, uses an unknown name or fails.
    ScriptLimitError
        If the values have more than `MAX_CHARACTERS` characters.
    """
    return render_templates([text], names, interpreter)[0]


def render_templates(
    texts: Sequence[str], names: Mapping[str, Any], interpreter: Interpreter | None = None
) -> list[str]:
    """Return all texts rendered, evaluating their expressions together."""
    templates = [split(text) for text in texts]
    slots = [part.expression for parts in templates for part in parts if isinstance(part, Slot)]
    if not slots:
        return ["".join(_literals(parts)) for parts in templates]
    values = iter(_evaluated(slots, names, interpreter or default_interpreter()))
    return ["".join(next(values) if isinstance(part, Slot) else part for part in parts) for parts in templates]


def escape_hint(expression: str) -> str:
    """Return how to write the text ``${expression}`` itself; part of the errors of an expression that is unsound."""
    shown = expression if len(expression) <= _MOST_SHOWN and "\n" not in expression else "..."
    return f"write $${{{shown}}} for the text ${{{shown}}}"


def expressions_of(text: str) -> list[str]:
    """Return the expressions of a template; raises `TemplateError` if one is not closed."""
    return [part.expression for part in split(text) if isinstance(part, Slot)]


def _literals(parts: tuple[str | Slot, ...]) -> Iterator[str]:
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
        values = interpreter.evaluate(Context.TEMPLATE, slots, names)
        return list(_within_limit(map(rendered, values)))
    except ScriptLimitError:
        raise
    except ScriptError as error:
        raise _blame(slots, names, interpreter, error) from error


def _within_limit(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts as long as they have at most `MAX_CHARACTERS` characters together."""
    characters = 0
    for text in texts:
        characters += len(text)
        if characters > MAX_CHARACTERS:
            raise ScriptLimitError(
                f"the values in a template have more than {MAX_CHARACTERS:,} characters; "
                "refer to fewer or shorter values"
            )
        yield text


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
        raise TemplateError(f'failed to parse template expression "{slot}": {error}; {escape_hint(slot)}') from error
    except UndefinedVariableError as error:
        error.code = slot
        hint = f"; {escape_hint(slot)}" if slot.isidentifier() or error.hint is None else ""
        raise TemplateError(f"{error} in template expression ${{{slot}}}{hint}") from error
