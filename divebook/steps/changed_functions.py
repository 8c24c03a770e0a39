"""Comparison of the functions of a workflow with those that an execution was started with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from divebook.engine.state import ExecutionState
from divebook.steps.actions import Action
from divebook.workflow.code import parts_of, reaching
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import FUNCTION, WORKFLOW_FUNCTIONS

CALLED = ("workflow ", "step ", "action ")


class ChangedFunction(NamedTuple):
    """Function that differs from the version that an execution was started with."""

    label: str
    """Kind and name: ``step parse``, ``function clean``, ``class Order``."""
    change: str
    """``changed``, ``new`` or ``gone``."""
    reaches: tuple[str, ...]
    """Labels of the workflows, steps and actions that use it. Their behaviour may have changed."""
    by_workflow: bool = False
    """True if the workflow function itself uses it, not only through steps. Everything may have changed then."""


class HasFunctions(Protocol):
    """Container in which the functions of a workflow are looked up: an `Environment`."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """Actions by name."""

    @property
    def workflows(self) -> Mapping[str, Workflow]:
        """Workflows by name."""


def roots_of(workflow: Workflow, actions: Mapping[str, Action]) -> dict[str, Callable[..., Any]]:
    """Return the functions that a workflow names directly, by label, without those of divebook."""
    if workflow.start.type == FUNCTION:
        registered = WORKFLOW_FUNCTIONS.get(workflow.name)
        return {} if registered is None else {f"workflow {workflow.name}": registered.function}
    called = {step.action for step in workflow.steps if step.action}
    functions = {f"action {name}": actions[name].function for name in sorted(called & actions.keys())}
    return {label: function for label, function in functions.items() if not _is_of_divebook(function)}


def _is_of_divebook(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]


def changed_functions(state: ExecutionState, environment: HasFunctions) -> list[ChangedFunction]:
    """Return the functions that have changed, by label; an empty list if the log has no digests."""
    return changed_since(state.code, state.workflow_name, environment)


def changed_since(code: Mapping[str, str], workflow_name: str, environment: HasFunctions) -> list[ChangedFunction]:
    """Compare the functions of a workflow with recorded digests; return the changed ones. Return an empty list without
    digests.
    """
    workflow = environment.workflows.get(workflow_name)
    if not code or workflow is None:
        return []
    parts = parts_of(roots_of(workflow, environment.actions))
    before = dict(code)
    now = {label: part.digest for label, part in parts.items()}
    different = sorted(label for label in before | now if before.get(label) != now.get(label))
    return [_changed(label, before, parts) for label in different]


def _changed(label: str, before: Mapping[str, str], parts: Mapping[str, Any]) -> ChangedFunction:
    change = "gone" if label not in parts else "changed" if label in before else "new"
    users = sorted(name for name in reaching(parts, label) if name.startswith(CALLED))
    parts_of_function = {name: part for name, part in parts.items() if not name.startswith(CALLED[1:])}
    uses_it = label in parts_of_function and any(
        name.startswith(CALLED[0]) for name in reaching(parts_of_function, label)
    )
    return ChangedFunction(label, change, tuple(users), uses_it)
