"""Agents that a definition names and nobody has defined."""

from __future__ import annotations

from collections.abc import Container, Iterable

from divebook.errors import Problem
from divebook.workflow.definition import Definitions, Workflow
from divebook.workflow.graph import did_you_mean


def check_references(definitions: Definitions, known_agents: Iterable[str] = ()) -> list[Problem]:
    """Return the steps and agents that name an agent which neither `definitions` nor `known_agents` hold."""
    known = {*known_agents, *(agent.name for agent in definitions.agents)}
    problems = [
        found.below("Workflows", index)
        for index, workflow in enumerate(definitions.workflows)
        for found in missing_agents(workflow, known)
    ]
    for index, agent in enumerate(definitions.agents):
        for number, name in enumerate(agent.subordinates):
            if name not in known:
                problems.append(_no_agent(name, known).below("Agents", index, "Subordinates", number))
    return [found.at(*definitions.positions.get(found.place, (0, 0))) for found in problems]


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
