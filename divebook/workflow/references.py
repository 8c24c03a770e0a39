"""Agents and actions that the steps of a workflow name but that are not defined."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator

from divebook.errors import Place, Problem, did_you_mean
from divebook.text.names import same_name
from divebook.workflow.definition import Workflow


def missing_agents(workflow: Workflow, known: Iterable[str], among: Container[str] | None = None) -> list[Problem]:
    """Return the steps that name an agent which is not `known`; a step without one takes the default agent.

    With `among` only those steps are looked at.
    """
    names = frozenset(known)
    return [
        _no_agent(step.agent, names).below("Steps", index, "Agent")
        for index, step in enumerate(workflow.steps)
        if step.agent is not None and same_name(step.agent, names) is None and (among is None or step.name in among)
    ]


def missing_actions(
    workflow: Workflow, known: Collection[str], among: Container[str] | None = None
) -> Iterator[tuple[Problem, str]]:
    """Yield the steps that name an action which is not `known`, and its name; with `among` only those steps."""
    for index, step in enumerate(workflow.steps):
        named: list[tuple[str | None, Place]] = [(step.action, ("Action",))] if step.type == "action" else []
        if step.rollback is not None:
            named.append((step.rollback.action, ("Rollback", "Action")))
        for name, place in named if among is None or step.name in among else ():
            if name and same_name(name, known) is None:
                message = f'action "{name}" of step "{step.name}" not found'
                hint = did_you_mean(name, known)
                yield Problem(message, key="Action", hint=hint, place=("Steps", index, *place)), name


def missing_workflows(
    workflow: Workflow, known: Collection[str], among: Container[str] | None = None
) -> Iterator[tuple[Problem, str]]:
    """Yield the steps that name a workflow which is not `known`, and its name; with `among` only those steps."""
    for index, step in enumerate(workflow.steps):
        name = step.workflow if among is None or step.name in among else None
        if name and "${" not in name and same_name(name, known) is None:
            hint, place = did_you_mean(name, known), ("Steps", index, "Workflow")
            yield Problem(f"workflow not found: {name}", key="Workflow", hint=hint, place=place), name


def _no_agent(name: str, known: Iterable[str]) -> Problem:
    names = sorted(known)
    others = f"there is {', '.join(names[:10])}" if names else "no agent is defined"
    return Problem(f"agent {name} not found", key="Agent", hint=did_you_mean(name, names) or others)
