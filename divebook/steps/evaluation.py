"""Evaluation of conditions, items and templates in asynchronous code.

An evaluation takes about 30 microseconds, less than a switch to a thread. It therefore runs on the engine's event loop,
with a short time limit. Expressions are pure, so one that exceeds the limit is evaluated again in a thread with the
full limit. Other paths are not delayed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import anyio.from_thread
import anyio.to_thread

from divebook.errors import (
    ScriptLimitError,
)
from divebook.scripting import (
    Interpreter,
    Limits,
    default_interpreter,
    evaluate_condition,
    evaluate_items,
    render_templates,
)
from divebook.scripting.templates import fill_values, is_to_be_filled
from divebook.steps.script_step import T

INLINE = Interpreter(Limits(seconds=0.05))
"""Interpreter for the first try. Its process is started at the first use."""


async def condition_holds(condition: str, names: Mapping[str, Any]) -> bool:
    """Return the truth value of a condition."""
    return await _evaluate(lambda interpreter: evaluate_condition(condition, names, interpreter))


async def items_of(items: Any, names: Mapping[str, Any], *, flatten: bool) -> list[Any] | dict[str, Any]:
    """Return the items of `Each.Items`; see `evaluate_items`. Templates in a list are rendered."""
    if isinstance(items, list):
        items = (await filled({"items": items}, names))["items"]
    return await _evaluate(lambda interpreter: evaluate_items(items, names, interpreter, flatten=flatten))


async def render_texts(texts: Sequence[str], names: Mapping[str, Any]) -> list[str]:
    """Render the ``${...}`` in texts."""
    return await _evaluate(lambda interpreter: render_templates(texts, names, interpreter))


async def filled(
    values: Mapping[str, Any], names: Mapping[str, Any], *, cache: MutableMapping[int, Any] | None = None
) -> dict[str, Any]:
    """Render the strings of a mapping at any depth; see `fill_values`."""
    if not is_to_be_filled(values):
        return dict(values)
    return await _evaluate(lambda interpreter: fill_values(values, names, interpreter, cache))


async def _evaluate(evaluate: Callable[[Interpreter], T]) -> T:
    try:
        return evaluate(INLINE)
    except ScriptLimitError:
        return await anyio.to_thread.run_sync(evaluate, default_interpreter())
