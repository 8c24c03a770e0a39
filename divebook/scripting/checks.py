"""Parsing without running: whether a text is what its context takes. Names and values are not looked at."""

from __future__ import annotations

from divebook.errors import TemplateError
from divebook.scripting.conditions import LITERALS, unwrapped
from divebook.scripting.program import Program, compile_expression, compile_script
from divebook.scripting.template import expressions_of


def check_script(text: str) -> list[Program]:
    """Return a script; raises `ScriptSyntaxError` unless it can be parsed and its context allows it."""
    return [compile_script(text)]


def check_condition(text: str) -> list[Program]:
    """Return the expression of a condition, if it has one; raises `ScriptSyntaxError` unless it can be parsed."""
    expression = unwrapped(text)
    return [] if expression.lower() in LITERALS else [compile_expression(expression)]


def check_expression(text: str) -> list[Program]:
    """Return what ``$(...)`` holds; raises `ScriptSyntaxError` unless it can be parsed."""
    return [compile_expression(unwrapped(text))]


def check_template(text: str) -> list[Program]:
    """Return the expressions of a text; raises `TemplateError` or `ScriptSyntaxError` unless all can be parsed."""
    return [compile_expression(expression) for expression in expressions_of(text)]


def check_text(text: str) -> list[Program]:
    """Return the expressions of a text that may be one as a whole; raises as `check_template`, also if it has no end.

    >>> check_text("$(state.a")
    Traceback (most recent call last):
    ...
    divebook.errors.TemplateError: unclosed expression: $(state.a (write $$( for the text $()
    """
    if text.lstrip().startswith("$(") and ")" not in text:
        raise TemplateError(f"unclosed expression: {text} (write $$( for the text $()")
    return check_template(text)
