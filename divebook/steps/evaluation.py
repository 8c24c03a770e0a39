"""Conditions, items and templates from async code.

They take some 30 microseconds, less than handing them to a thread costs, so they run on the engine's loop with a short
limit; what exceeds it is pure, and is evaluated again in a thread with the full limit, so that nothing else is held up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import anyio.to_thread

from divebook.errors import ScriptLimitError
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
from divebook.workflow.rules import is_expression

T = TypeVar("T")
INLINE = Interpreter(Limits(seconds=0.05))
"""For the first try; a process of its own, started when first used."""


async def condition_holds(condition: str, names: Mapping[str, Any]) -> bool:
    """Return the truth of a condition."""
    return await _evaluated(lambda interpreter: evaluate_condition(condition, names, interpreter))


async def items_of(items: Any, names: Mapping[str, Any], *, flatten: bool) -> list[Any] | dict[str, Any]:
    """Return the items of `Each.Items` as written; see `evaluate_items`."""
    return await _evaluated(lambda interpreter: evaluate_items(items, names, interpreter, flatten=flatten))


async def render_texts(texts: Sequence[str], names: Mapping[str, Any]) -> list[str]:
    """Return the texts with their ``${...}`` filled in."""
    return await _evaluated(lambda interpreter: render_templates(texts, names, interpreter))


def is_to_be_filled(given: Mapping[str, Any]) -> bool:
    """Return whether `filled` has anything to fill in."""
    return bool(given) and any(isinstance(text, str) and "$" in text for text in given.values())


async def filled(
    given: Mapping[str, Any],
    names: Mapping[str, Any],
    *,
    values: bool = True,
    known: MutableMapping[int, Any] | None = None,
) -> dict[str, Any]:
    """Fill in top-level texts: ``${...}`` inside a text gives text, a whole ``$(...)`` its value as it is.

    Anything inside lists and maps is passed as it is written; so is ``$(...)`` without `values`, as in the dialect
    ``dive``. What ``$(...)`` only refers to, ``state.rows`` for example, stays as it is, also what no script could
    take, and is put into `known` by its ``id``.
    """
    made = dict(given)
    expressions, templates = {}, {}
    for key, text in given.items():
        if not isinstance(text, str):
            continue
        if values and is_expression(text):
            expressions[key] = text.strip()[2:-1]
        elif "${" in text:
            templates[key] = text
    if expressions:
        made.update(zip(expressions, await _values_of(list(expressions.values()), names, known), strict=True))
    if templates:
        made.update(zip(templates, await render_texts(list(templates.values()), names), strict=True))
    return made


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
