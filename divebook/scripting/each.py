"""The items an ``Each`` block runs over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from divebook.errors import ScriptError, ScriptLimitError
from divebook.scripting.conditions import unwrapped
from divebook.scripting.contexts import Context
from divebook.scripting.interpreter import Interpreter, default_interpreter

_PREFIX = "failed to resolve each items: "


def evaluate_items(
    items: Any, names: Mapping[str, Any], interpreter: Interpreter | None = None, *, flatten: bool = False
) -> list[Any] | dict[str, Any]:
    """Return the items of an ``Each`` block; with their keys, where they are the values of a mapping.

    A list is taken as it is. A text ``$(...)`` is evaluated: a list gives its items, a mapping its values, any other
    value gives one item. With `flatten`, as in the dialect ``dive``, nested ones are flattened all the way down.

    Raises
    ------
    ScriptError
        If `items` is anything else, or cannot be evaluated.
    """
    if isinstance(items, list | tuple):
        return list(items)
    try:
        # Flattened are the rows of a frame as well, which only the sandbox makes of it.
        context = Context.TEMPLATE if flatten else Context.EACH
        [value] = (interpreter or default_interpreter()).evaluate(context, [_expression(items)], names)
        if isinstance(value, Mapping) and not (flatten and any(map(_is_nested, value.values()))):
            return {str(key): item for key, item in value.items()}
        return list(_flattened(value) if flatten else _listed(value))
    except ScriptError as error:
        kind = ScriptLimitError if isinstance(error, ScriptLimitError) else ScriptError
        raise kind(f"{_PREFIX}{error}", error.line) from error


def _expression(items: Any) -> str:
    if not isinstance(items, str) or not items.strip().startswith("$(") or not items.strip().endswith(")"):
        raise ScriptError(_unsupported(items))
    return unwrapped(items)


def _listed(value: Any) -> list[Any]:
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
