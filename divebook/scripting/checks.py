"""Parsing without running: whether a text is what its context takes. Names and values are not looked at."""

from __future__ import annotations

from divebook.scripting.conditions import unwrapped
from divebook.scripting.program import compile_expression, compile_script
from divebook.scripting.template import expressions_of


def check_script(text: str) -> None:
    """Raise `ScriptSyntaxError` unless a script can be parsed and its context allows it."""
    compile_script(text)


def check_condition(text: str) -> None:
    """Raise `ScriptSyntaxError` unless a condition can be parsed."""
    expression = unwrapped(text)
    if expression.lower() not in ("true", "false"):
        compile_expression(expression)


def check_expression(text: str) -> None:
    """Raise `ScriptSyntaxError` unless ``$(...)`` can be parsed."""
    compile_expression(unwrapped(text))


def check_template(text: str) -> None:
    """Raise `TemplateError` or `ScriptSyntaxError` unless all ``${...}`` of a text can be parsed."""
    for expression in expressions_of(text):
        compile_expression(expression)
