"""The executions of a map: what each is given, and the key under which it is found again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.environment import Environment
from divebook.execution.execution import Execution
from divebook.workflow.definition import Workflow

FRAME, STEP, ITEMS, GIVEN, ASKED = "frame", "rows", "items", "given", "asked"
"""Names of inputs, and of the one step."""


def key_of(name: str, number: int) -> str:
    """Return the start key of what is kept under a name; `number` counts how often it was begun anew."""
    return f"map {name}" if number == 1 else f"map#{number} {name}"


def inputs_of(workflow: Workflow, frame: Any, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs of a map: the frame, and where its rows are items of a step these as well."""
    (step,) = workflow.steps
    if step.action:
        return {FRAME: frame, GIVEN: dict(given or {})}
    if step.each is not None and step.each.rows is not None:
        return {FRAME: frame, ITEMS: [], GIVEN: dict(given or {})}
    from divebook.events.arrow.rows import records_of

    return {FRAME: frame, ITEMS: records_of(frame), GIVEN: dict(given or {})}


def known_by(environment: Environment, key: str) -> Execution | None:
    """Return the execution of a start key, if there is one."""
    found = environment.store.records(key=key)
    return environment.execution(found[0].execution_id) if found else None
