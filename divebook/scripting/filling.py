"""Templates and values in the lists and mappings that a step, or a schedule, is given."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from divebook.errors import Place
from divebook.scripting.contexts import Context
from divebook.scripting.interpreter import Interpreter
from divebook.scripting.program import look_up
from divebook.scripting.reference import NOTHING
from divebook.scripting.template import render_templates
from divebook.text.templates import is_escaped_expression, is_expression, texts_in, without_escape


def is_to_be_filled(values: Any) -> bool:
    """Return whether `fill_values` has anything to fill in."""
    return any("$" in text for _, text in texts_in(values))


def fill_values(
    values: Mapping[str, Any],
    names: Mapping[str, Any],
    interpreter: Interpreter,
    known: MutableMapping[int, Any] | None = None,
) -> dict[str, Any]:
    """Fill in the strings of a mapping at any depth: ``${...}`` gives text, a whole ``$(...)`` its value as it is.

    Keys of mappings are passed as they are written. What ``$(...)`` only refers to, ``state.rows`` for example, stays
    as it is, also what no script could take, and is put into `known` by its ``id``.
    """
    expressions, templates = {}, {}
    for place, text in texts_in(values):
        if is_expression(text):
            expressions[place] = text.strip()[2:-1]
        elif is_escaped_expression(text):
            templates[place] = without_escape(text)
        elif "${" in text:
            templates[place] = text
    made: dict[Place, Any] = {}
    if expressions:
        made.update(zip(expressions, _values_of(list(expressions.values()), names, interpreter, known), strict=True))
    if templates:
        made.update(zip(templates, render_templates(list(templates.values()), names, interpreter), strict=True))
    return {key: _with(value, made, (key,)) for key, value in values.items()}


def _with(value: Any, made: Mapping[Place, Any], place: Place) -> Any:
    """Return a value with others in some places; lists and mappings are copied."""
    if place in made:
        return made[place]
    if isinstance(value, Mapping):
        return {key: _with(item, made, (*place, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with(item, made, (*place, index)) for index, item in enumerate(value)]
    return value


def _values_of(
    expressions: Sequence[str],
    names: Mapping[str, Any],
    interpreter: Interpreter,
    known: MutableMapping[int, Any] | None,
) -> list[Any]:
    found = [look_up(text, names) for text in expressions]
    if known is not None:
        known.update((id(value), value) for value in found if value is not NOTHING)
    others = [text for text, value in zip(expressions, found, strict=True) if value is NOTHING]
    left = iter(interpreter.evaluate(Context.VALUE, others, names) if others else ())
    return [next(left) if value is NOTHING else value for value in found]
