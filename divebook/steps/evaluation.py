"""Conditions, items and templates from async code.

They take some 30 microseconds, less than handing them to a thread costs, so they run on the engine's loop with a short
limit; what exceeds it is pure, and is evaluated again in a thread with the full limit, so that nothing else is held up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import anyio.to_thread

from divebook.errors import Place, ScriptLimitError
from divebook.scripting import (
    Context,
    Interpreter,
    Limits,
    default_interpreter,
    evaluate_condition,
    evaluate_items,
    look_up,
    render_templates,
)
from divebook.scripting.reference import NOTHING
from divebook.text.templates import is_escaped_expression, is_expression, texts_in, without_escape

T = TypeVar("T")
INLINE = Interpreter(Limits(seconds=0.05))
"""For the first try; a process of its own, started when first used."""


async def condition_holds(condition: str, names: Mapping[str, Any]) -> bool:
    """Return the truth of a condition."""
    return await _evaluated(lambda interpreter: evaluate_condition(condition, names, interpreter))


async def items_of(items: Any, names: Mapping[str, Any], *, flatten: bool) -> list[Any] | dict[str, Any]:
    """Return the items of `Each.Items` as written; see `evaluate_items`. Templates in a list are filled in."""
    if isinstance(items, list):
        items = (await filled({"items": items}, names))["items"]
    return await _evaluated(lambda interpreter: evaluate_items(items, names, interpreter, flatten=flatten))


async def render_texts(texts: Sequence[str], names: Mapping[str, Any]) -> list[str]:
    """Return the texts with their ``${...}`` filled in."""
    return await _evaluated(lambda interpreter: render_templates(texts, names, interpreter))


def is_to_be_filled(values: Any) -> bool:
    """Return whether `filled` has anything to fill in."""
    return any("$" in text for _, text in texts_in(values))


async def filled(
    values: Mapping[str, Any], names: Mapping[str, Any], *, known: MutableMapping[int, Any] | None = None
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
        made.update(zip(expressions, await _values_of(list(expressions.values()), names, known), strict=True))
    if templates:
        made.update(zip(templates, await render_texts(list(templates.values()), names), strict=True))
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


async def _values_of(
    expressions: Sequence[str], names: Mapping[str, Any], known: MutableMapping[int, Any] | None
) -> list[Any]:
    found = [look_up(text, names) for text in expressions]
    if known is not None:
        known.update((id(value), value) for value in found if value is not NOTHING)
    others = [text for text, value in zip(expressions, found, strict=True) if value is NOTHING]
    if not others:
        return found
    values = await _evaluated(lambda interpreter: interpreter.evaluate(Context.VALUE, others, names))
    left = iter(values)
    return [next(left) if value is NOTHING else value for value in found]


async def _evaluated(evaluate: Callable[[Interpreter], T]) -> T:
    try:
        return evaluate(INLINE)
    except ScriptLimitError:
        return await anyio.to_thread.run_sync(evaluate, default_interpreter())
