"""Sandboxed Python for conditions, templates, items of loops and script steps.

`Interpreter` runs code. `evaluate_condition`, `evaluate_items` and `render_template` evaluate deterministic
expressions. `Interpreter.run_script` runs a script step, which may use the clock, randomness and documents.

The modules process a piece of code in this order: `syntax` parses, checks and rewrites the code into a `Program`.
`prelude` looks up values to which an expression only refers (`Reference`), without the sandbox. `structure` assembles
lists and mappings outside the sandbox. `interpreter` sends all other code to a process of `sandbox`, which starts with
the helper functions of `prelude`. `values` converts the result to plain data. `needs` analyses code without running it.
Only `sandbox` imports Monty, and only when the first expression runs.
"""

from divebook.scripting.interpreter import Interpreter, default_interpreter
from divebook.scripting.needs import check_condition, check_expression, check_script, check_template
from divebook.scripting.prelude import Host, Limits, Purpose
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
    "Host",
    "Interpreter",
    "Limits",
    "Purpose",
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
