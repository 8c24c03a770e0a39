"""Conditions of edges: ``$(state.count > 3)``, the wrapper optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divebook.scripting.contexts import Context
from divebook.scripting.interpreter import Interpreter, default_interpreter

LITERALS = {"true": True, "false": False}


def evaluate_condition(text: str, names: Mapping[str, Any], interpreter: Interpreter | None = None) -> bool:
    """Return whether a condition holds.

    Raises
    ------
    ScriptError
        If it cannot be evaluated.
    """
    return evaluate_conditions([text], names, interpreter)[0]


def evaluate_conditions(
    texts: Sequence[str], names: Mapping[str, Any], interpreter: Interpreter | None = None
) -> list[bool]:
    """Return whether each condition holds, evaluating all of them together."""
    expressions = [unwrapped(text) for text in texts]
    asked = [expression for expression in expressions if expression.lower() not in LITERALS]
    if not asked:
        return [LITERALS[expression.lower()] for expression in expressions]
    values = iter((interpreter or default_interpreter()).evaluate(Context.CONDITION, asked, names))
    literals = (LITERALS.get(expression.lower()) for expression in expressions)
    return [truth(next(values)) if literal is None else literal for literal in literals]


def unwrapped(text: str) -> str:
    """Return the expression inside ``$(...)``, or the text itself, without surrounding space."""
    text = text.strip()
    return text[2:-1].strip() if text.startswith("$(") and text.endswith(")") else text


def truth(value: Any) -> bool:
    """Return the truth of a condition's value: Python's own, but the text "false" in any case is false."""
    if isinstance(value, str):
        return value != "" and value.lower() != "false"
    return bool(value)
