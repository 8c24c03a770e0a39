"""What a session holds, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from divebook.analysis.shown import one_line, plural
from divebook.environment import Environment
from divebook.workflow.definition import InputDefinition, Workflow

WIDTH = 96


def contents(environment: Environment) -> str:
    """Return the workflows, agents and actions of an environment."""
    workflows = [_workflow_line(workflow) for workflow in environment.workflows.values()]
    agents = [f"{one_line(agent.name, 40)}  {agent.model_name}" for agent in environment.agents.values()]
    actions = textwrap.wrap(", ".join(environment.actions), WIDTH)
    return "\n".join([*_section("workflows", workflows), *_section("agents", agents), *_section("actions", actions)])


def questions(environment: Environment) -> str:
    """Return the questions that wait for an answer, and how to give it."""
    asked = [
        f"{question.interrupt_id}  ({execution_id})\n    {one_line(question.question, 200)}"
        for execution_id, question in environment.interrupts()
    ]
    advice = ["to answer: %dive answer ID ANSWER"] if asked else []
    return "\n".join([*_section("questions", asked or ["none"]), *advice])


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines or ["none yet"])]


def _workflow_line(workflow: Workflow) -> str:
    inputs = ", ".join(map(_input_text, workflow.inputs))
    about = f"  {one_line(workflow.description, 60)}" if workflow.description else ""
    return f"{one_line(workflow.name, 40)}({inputs})  {plural(len(workflow.steps), 'step')}{about}"


def _input_text(definition: InputDefinition) -> str:
    if definition.has_default:
        return f"{definition.name}={one_line(repr(definition.default), 20)}"
    return f"{definition.name}=None" if definition.required is False else definition.name
