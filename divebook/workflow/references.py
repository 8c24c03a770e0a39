"""Agents that the steps of a workflow name but that are not defined."""

from __future__ import annotations

from collections.abc import Container, Iterable

from divebook.errors import Problem, did_you_mean
from divebook.workflow.definition import Workflow


def missing_agents(workflow: Workflow, known: Iterable[str], among: Container[str] | None = None) -> list[Problem]:
    """Return the steps that name an agent which is not `known`; a step without one takes the default agent.

    With `among` only those steps are looked at.
    """
    names = frozenset(known)
    return [
        _no_agent(step.agent, names).below("Steps", index, "Agent")
        for index, step in enumerate(workflow.steps)
        if step.agent is not None and step.agent not in names and (among is None or step.name in among)
    ]


def _no_agent(name: str, known: Iterable[str]) -> Problem:
    names = sorted(known)
    others = f"there is {', '.join(names[:10])}" if names else "no agent is defined"
    return Problem(f"agent {name} not found", key="Agent", hint=did_you_mean(name, names) or others)
