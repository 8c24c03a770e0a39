"""Which functions of an execution are not what they were when it was started."""

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
    """A function that differs from the one that an execution was started with."""

    label: str
    """Kind and name: ``step parse``, ``function clean``, ``class Order``."""
    change: str
    """``changed``, ``new`` or ``gone``."""
    reaches: tuple[str, ...]
    """Labels of the workflows, steps and actions that use it: what they did before may be different now."""
    by_workflow: bool = False
    """Whether the function of the workflow uses it itself, and not only through steps: anything may be different."""


class HasFunctions(Protocol):
    """What the functions of a workflow are looked for in: an `Environment`."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """Its actions by name."""

    @property
    def workflows(self) -> Mapping[str, Workflow]:
        """Its workflows by name."""


def roots_of(workflow: Workflow, actions: Mapping[str, Action]) -> dict[str, Callable[..., Any]]:
    """Return the functions that a workflow names itself, by label; those of divebook are left out."""
    if workflow.start.type == FUNCTION:
        known = WORKFLOW_FUNCTIONS.get(workflow.name)
        return {} if known is None else {f"workflow {workflow.name}": known.function}
    called = {step.action for step in workflow.steps if step.action}
    found = {f"action {name}": actions[name].function for name in sorted(called & actions.keys())}
    return {label: function for label, function in found.items() if not _is_ours(function)}


def _is_ours(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]


def changed_functions(state: ExecutionState, environment: HasFunctions) -> list[ChangedFunction]:
    """Return what is different now, in the order of the labels; nothing for a log that does not say what it was."""
    return changed_since(state.code, state.workflow_name, environment)


def changed_since(code: Mapping[str, str], workflow_name: str, environment: HasFunctions) -> list[ChangedFunction]:
    """Return what differs now from digests of the functions of a workflow; nothing where there are none."""
    workflow = environment.workflows.get(workflow_name)
    if not code or workflow is None:
        return []
    parts = parts_of(roots_of(workflow, environment.actions))
    before, now = dict(code), {label: part.digest for label, part in parts.items()}
    different = sorted(label for label in before | now if before.get(label) != now.get(label))
    return [_changed(label, before, parts) for label in different]


def _changed(label: str, before: Mapping[str, str], parts: Mapping[str, Any]) -> ChangedFunction:
    change = "gone" if label not in parts else "changed" if label in before else "new"
    users = sorted(name for name in reaching(parts, label) if name.startswith(CALLED))
    own = {name: part for name, part in parts.items() if not name.startswith(CALLED[1:])}
    uses_it = label in own and any(name.startswith(CALLED[0]) for name in reaching(own, label))
    return ChangedFunction(label, change, tuple(users), uses_it)
