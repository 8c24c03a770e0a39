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
    Interpreter,
    Limits,
    default_interpreter,
    evaluate_condition,
    evaluate_items,
    render_templates,
)
from divebook.scripting.filling import fill_values, is_to_be_filled

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


async def filled(
    values: Mapping[str, Any], names: Mapping[str, Any], *, known: MutableMapping[int, Any] | None = None
) -> dict[str, Any]:
    """Return a mapping with its strings filled in at any depth; see `fill_values`."""
    if not is_to_be_filled(values):
        return dict(values)
    return await _evaluated(lambda interpreter: fill_values(values, names, interpreter, known))


async def _evaluated(evaluate: Callable[[Interpreter], T]) -> T:
    try:
        return evaluate(INLINE)
    except ScriptLimitError:
        return await anyio.to_thread.run_sync(evaluate, default_interpreter())
