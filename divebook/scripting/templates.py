"""Evaluation of templates, conditions, loop items and parameters. Their syntax is defined in `divebook.text.syntax`.

All expressions of several texts are evaluated in the sandbox together, because one evaluation takes as long as a
trivial step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from divebook.errors import (
    Place,
    ScriptError,
    ScriptLimitError,
    ScriptSyntaxError,
    TemplateError,
    UndefinedVariableError,
)
from divebook.scripting.interpreter import Interpreter, default_interpreter
from divebook.scripting.prelude import NOTHING, SAFE_NAMES, Purpose
from divebook.scripting.syntax import compile_expression, look_up
from divebook.scripting.values import scalar_text
from divebook.text.syntax import Slot, is_escaped_expression, is_expression, split, texts_in, without_escape

MAX_CHARACTERS = 64 * 1024 * 1024
"""Largest number of characters of all values in templates that are rendered together. It equals the size limit of an
event in bytes.
"""
_MOST_SHOWN = 40
"""Largest number of characters of an expression that an error message quotes."""


def render_template(text: str, names: Mapping[str, Any], interpreter: Interpreter | None = None) -> str:
    """Render a template: replace every ``${expression}`` in a text by the value of the expression.

    Raises
    ------
    TemplateError
        An expression is not closed, is not Python, uses an unknown name, or fails.
    ScriptLimitError
        The values have more than `MAX_CHARACTERS` characters.
    """
    return render_templates([text], names, interpreter)[0]


def render_templates(
    texts: Sequence[str], names: Mapping[str, Any], interpreter: Interpreter | None = None
) -> list[str]:
    """Render several templates. All their expressions are evaluated together."""
    # [[text or Slot, ...], ...]: the parts of each template in order.
    templates = [split(text) for text in texts]
    slots = [part.expression for parts in templates for part in parts if isinstance(part, Slot)]
    if not slots:
        return ["".join(_literals(parts)) for parts in templates]
    # The values are consumed in the order in which the slots were collected.
    values = iter(_evaluated(slots, names, interpreter or default_interpreter()))
    return ["".join(next(values) if isinstance(part, Slot) else part for part in parts) for parts in templates]


def escape_hint(expression: str) -> str:
    """Return advice for an error message about ``${expression}``: the spelling that shows it as plain text instead of
    evaluating it.
    """
    # A long expression would hide the advice. Dots stand for it.
    shown = expression if len(expression) <= _MOST_SHOWN and "\n" not in expression else "..."
    return f"write $${{{shown}}} for the text ${{{shown}}}"


def expressions_of(text: str) -> list[str]:
    """Return the expressions in a template, in order. Raise `TemplateError` if an expression is not closed."""
    return [part.expression for part in split(text) if isinstance(part, Slot)]


def _literals(parts: tuple[str | Slot, ...]) -> Iterator[str]:
    return (part for part in parts if isinstance(part, str))


def rendered(value: Any) -> str:
    """Convert a value to the text that a template shows. List items and ``key: value`` entries are separated by blank
    lines.
    """
    if isinstance(value, Mapping):
        return "\n\n".join(f"{scalar_text(key)}: {rendered(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return "\n\n".join(rendered(item) for item in value)
    return scalar_text(value)


def _evaluated(slots: Sequence[str], names: Mapping[str, Any], interpreter: Interpreter) -> list[str]:
    # All expressions are checked before any is evaluated, so that a typing mistake is reported without a run.
    for slot in slots:
        _check(slot, names)
    try:
        values = interpreter.evaluate(Purpose.TEMPLATE, slots, names)
        return list(_within_limit(map(rendered, values)))
    # The limit applies to all expressions together. None of them can be named as the cause.
    except ScriptLimitError:
        raise
    except ScriptError as error:
        raise _blame(slots, names, interpreter, error) from error


def _within_limit(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts one by one, unchanged. Raise `ScriptLimitError` as soon as the texts have more than `MAX_CHARACTERS`
    characters together.
    """
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
    """Find the expression of a template that caused an error, and return a `TemplateError` that names the expression.

    All expressions were evaluated together, and `error` does not identify the failed one. They are therefore evaluated
    again one by one.
    """
    for slot in slots:
        try:
            rendered(interpreter.evaluate(Purpose.TEMPLATE, [slot], names)[0])
        except ScriptError as slot_error:
            error.code = slot
            return TemplateError(f'failed to evaluate template expression "{slot}": {slot_error}')
    # Each expression works alone, and fails only together with others.
    return TemplateError(f"failed to evaluate template expressions: {error}")


def _check(slot: str, names: Mapping[str, Any]) -> None:
    try:
        compile_expression(slot).require(names, SAFE_NAMES)
    except ScriptSyntaxError as error:
        error.code = slot
        raise TemplateError(f'failed to parse template expression "{slot}": {error}; {escape_hint(slot)}') from error
    except UndefinedVariableError as error:
        error.code = slot
        # An identifier in ``${...}`` may be a variable of a shell, for which the author needs the escape.
        hint = f"; {escape_hint(slot)}" if slot.isidentifier() or error.hint is None else ""
        raise TemplateError(f"{error} in template expression ${{{slot}}}{hint}") from error


# --- conditions of edges: ``$(state.count > 3)`` or ``state.count > 3`` -----------------------------------------------


LITERALS = {"true": True, "false": False}


def evaluate_condition(text: str, names: Mapping[str, Any], interpreter: Interpreter | None = None) -> bool:
    """Evaluate the condition of an edge. Return True if its value is true; see `truth`.

    Raises
    ------
    ScriptError
        It cannot be evaluated.
    """
    return evaluate_conditions([text], names, interpreter)[0]


def evaluate_conditions(
    texts: Sequence[str], names: Mapping[str, Any], interpreter: Interpreter | None = None
) -> list[bool]:
    """Evaluate several conditions together. Return a boolean for each, in order."""
    expressions = [unwrapped(text) for text in texts]
    # Constants never reach the sandbox: a definition with ``true`` conditions starts no process.
    to_evaluate = [expression for expression in expressions if expression.lower() not in LITERALS]
    if not to_evaluate:
        return [LITERALS[expression.lower()] for expression in expressions]
    values = iter((interpreter or default_interpreter()).evaluate(Purpose.CONDITION, to_evaluate, names))
    literals = (LITERALS.get(expression.lower()) for expression in expressions)
    return [truth(next(values)) if literal is None else literal for literal in literals]


def unwrapped(text: str) -> str:
    """Remove ``$(...)`` and surrounding space from an expression. If the text has no ``$(...)``, remove only the
    surrounding space.
    """
    text = text.strip()
    return text[2:-1].strip() if text.startswith("$(") and text.endswith(")") else text


def truth(value: Any) -> bool:
    """Convert the value of a condition to a boolean, as Python does, except that the string "false" is false."""
    if isinstance(value, str):
        return value != "" and value.lower() != "false"
    return bool(value)


# --- items of an ``Each`` block --------------------------------------------------------------------------------------


_PREFIX = "failed to resolve each items: "


def evaluate_items(
    items: Any, names: Mapping[str, Any], interpreter: Interpreter | None = None, *, flatten: bool = False
) -> list[Any] | dict[str, Any]:
    """Evaluate the expression or list for the items of an ``Each`` loop. Return a list of items, or a mapping of items
    by their keys.

    A list is returned as it is. An expression ``$(...)`` is evaluated: a list results in its items, a mapping in its
    values with their keys, any other value in one item. With `flatten`, as in the dialect ``dive``, nested lists and
    mappings are flattened recursively.

    Raises
    ------
    ScriptError
        `items` is neither a list nor an expression, or cannot be evaluated.
    """
    # A list in the definition is never flattened.
    if isinstance(items, list | tuple):
        return list(items)
    try:
        # The rows of a frame are flattened as well. Only the sandbox converts a frame to rows.
        purpose = Purpose.TEMPLATE if flatten else Purpose.EACH
        [value] = (interpreter or default_interpreter()).evaluate(purpose, [_expression(items)], names)
        # A mapping of plain values keeps its keys. With nested values it is flattened, and keys have no meaning any
        # more.
        if isinstance(value, Mapping) and not (flatten and any(map(_is_nested, value.values()))):
            return {str(key): item for key, item in value.items()}
        return list(_flattened(value) if flatten else _listed(value))
    except ScriptError as error:
        # The kind of the error is kept, since a limit is handled differently from other errors.
        kind = ScriptLimitError if isinstance(error, ScriptLimitError) else ScriptError
        raise kind(f"{_PREFIX}{error}", error.line) from error


def _expression(items: Any) -> str:
    if not isinstance(items, str) or not items.strip().startswith("$(") or not items.strip().endswith(")"):
        raise ScriptError(_unsupported(items))
    return unwrapped(items)


def _listed(value: Any) -> list[Any]:
    # An empty loop would hide a missing value.
    if value is None:
        raise ScriptError(_unsupported(value))
    return value if isinstance(value, list) else [value]


def _is_nested(value: Any) -> bool:
    return value is None or isinstance(value, list | Mapping)


def _flattened(value: Any) -> Iterator[Any]:
    if value is None:
        raise ScriptError(_unsupported(value))
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _flattened(item)
    else:
        yield value


def _unsupported(value: Any) -> str:
    advice = "write a list, or an expression such as $(state.rows)"
    return f"unsupported value for 'each' block (got {type(value).__name__}); {advice}"


# --- parameters and inputs: templates and values in lists and mappings -----------------------------------------------


def is_to_be_filled(values: Any) -> bool:
    """Return True if a value contains a string with ``$`` at any depth. If not, `fill_values` need not be called,
    because it would change nothing.
    """
    return any("$" in text for _, text in texts_in(values))


def fill_values(
    values: Mapping[str, Any],
    names: Mapping[str, Any],
    interpreter: Interpreter,
    references: MutableMapping[int, Any] | None = None,
) -> dict[str, Any]:
    """Evaluate the strings in a mapping at any depth: ``${...}`` becomes text, a whole string ``$(...)`` becomes its
    value.

    Keys of mappings are not changed. A value that ``$(...)`` only refers to, such as ``state.rows``, keeps its type,
    even if the sandbox could not accept it. It is added to `references` under its ``id``.
    """
    expressions = {}
    templates = {}
    # The strings are collected by place, evaluated together, and put back: {("rows", 0): value}.
    for place, text in texts_in(values):
        if is_expression(text):
            expressions[place] = text.strip()[2:-1]
        elif is_escaped_expression(text):
            templates[place] = without_escape(text)
        elif "${" in text:
            templates[place] = text
    results: dict[Place, Any] = {}
    if expressions:
        expression_values = _values_of(list(expressions.values()), names, interpreter, references)
        results.update(zip(expressions, expression_values, strict=True))
    if templates:
        texts = render_templates(list(templates.values()), names, interpreter)
        results.update(zip(templates, texts, strict=True))
    return {key: _with(value, results, (key,)) for key, value in values.items()}


def _with(value: Any, results: Mapping[Place, Any], place: Place) -> Any:
    """Return a copy of nested data in which some parts are replaced. The keys of `results` are the paths of these parts
    in the data, such as ``("rows", 0)``. `place` is the path of `value` itself.
    """
    if place in results:
        return results[place]
    if isinstance(value, Mapping):
        return {key: _with(item, results, (*place, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with(item, results, (*place, index)) for index, item in enumerate(value)]
    return value


def _values_of(
    expressions: Sequence[str],
    names: Mapping[str, Any],
    interpreter: Interpreter,
    references: MutableMapping[int, Any] | None,
) -> list[Any]:
    """Evaluate expressions and return their values in order. References such as ``state.a`` are looked up; all other
    expressions are evaluated in one call of the sandbox. If `references` is a mapping, each value that was looked up is
    added to it under its ``id()``.
    """
    values = [look_up(text, names) for text in expressions]
    if references is not None:
        # `references` holds the values, so that their ids cannot be reused while it exists.
        references.update((id(value), value) for value in values if value is not NOTHING)
    remaining = [text for text, value in zip(expressions, values, strict=True) if value is NOTHING]
    evaluated = iter(interpreter.evaluate(Purpose.VALUE, remaining, names) if remaining else ())
    return [next(evaluated) if value is NOTHING else value for value in values]
