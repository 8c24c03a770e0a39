"""Where a definition is at fault: the line of a script, a condition or a ``${...}`` that went wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from divebook.engine.retries import telling
from divebook.errors import Problem, ScriptError, position_in
from divebook.execution.tracing import source_place
from divebook.text.cuts import one_line
from divebook.workflow.definition import Step, Workflow

MOST_CODE = 60
"""Characters of an expression that names its place."""


def definition_place(workflow: Workflow, step: Step, error: BaseException, code: str = "") -> Mapping[str, Any] | None:
    """Return the line of a step's definition that an error is about; None if it is about something else.

    `code` is what was evaluated, where the error does not say that.
    """
    source = telling(error)
    if not isinstance(source, ScriptError) or source.raised_at is not None:
        return None
    text = code or source.code
    return code_place(workflow, step, text, source.line or 1) if text else None


def code_place(workflow: Workflow, step: Step, code: str, line: int) -> Mapping[str, Any]:
    """Return a line of a script or an expression of a step, in the file or cell if it is known from which it came."""
    lines = code.splitlines()
    written = workflow.written
    number = next(place for place, known in enumerate(workflow.steps) if known.name == step.name)
    text = lines[line - 1].strip() if line <= len(lines) else ""
    if not written.name or not text:
        what = f"line {line} of the script" if len(lines) > 1 else one_line(code, MOST_CODE)
        return source_place(what, lines, line)
    problem = Problem(text, place=("Steps", number))
    start = written.located(problem, re.escape(lines[0].strip()))
    at = written.located(problem, re.escape(text)) if line == 1 else start.at(start.line + line - 1, start.column)
    whole = [""] * written.above + written.text.splitlines()
    return source_place(position_in(written.name, at.line, at.column), whole, at.line)
