"""Sandboxed Python for conditions, templates, each-items and script steps.

`Interpreter` runs code. `evaluate_condition`, `evaluate_items` and `render_template` evaluate deterministic
expressions. `Interpreter.run_script` runs a script step, which may use the clock, randomness and documents.

A text passes through these modules: `syntax` parses, checks and rewrites it into a `Program`; `references` looks up a
value that it only refers to; `structure` assembles lists and mappings outside the sandbox; `interpreter` sends the rest
to a process of `sandbox`, which starts with the code of `prelude`; `values` converts the result to plain data. `needs`
analyses code without running it. Only `sandbox` imports Monty, and only when the first expression runs.
"""

from divebook.scripting.interpreter import Interpreter, default_interpreter
from divebook.scripting.needs import check_condition, check_expression, check_script, check_template
from divebook.scripting.prelude import Context, Host, Limits
from divebook.scripting.syntax import look_up
from divebook.scripting.templates import (
    evaluate_condition,
    evaluate_conditions,
    evaluate_items,
    render_template,
    render_templates,
    truth,
)
from divebook.scripting.values import value_text

__all__ = [
    "Context",
    "Host",
    "Interpreter",
    "Limits",
    "check_condition",
    "check_expression",
    "check_script",
    "check_template",
    "default_interpreter",
    "evaluate_condition",
    "evaluate_conditions",
    "evaluate_items",
    "look_up",
    "render_template",
    "render_templates",
    "truth",
    "value_text",
]
