"""What a session holds, as text."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable

from divebook.environment import Environment
from divebook.execution import Execution
from divebook.questions import Question
from divebook.questions.wording import example_answer, schema_in_words, wanted_answer
from divebook.text.shown import one_line, plural
from divebook.text.times import local_time
from divebook.workflow.definition import InputDefinition, Workflow

WIDTH = 96


def contents(environment: Environment) -> str:
    """Return the workflows, agents and actions of an environment."""
    workflows = [_workflow_line(workflow) for workflow in environment.workflows.values()]
    agents = [f"{one_line(agent.name, 40)}  {agent.model_name}" for agent in environment.agents.values()]
    actions = textwrap.wrap(", ".join(environment.actions), WIDTH)
    return "\n".join([*_section("workflows", workflows), *_section("agents", agents), *_section("actions", actions)])


def questions(environment: Environment, store: str | None = None) -> str:
    """Return the questions that wait for an answer, and how to give it in a session that names this store."""
    asked = ["\n    ".join(question_lines(*found, store)) for found in environment.interrupts()]
    return "\n".join(_section("questions", asked or ["none"]))


def question_lines(execution_id: str, question: Question, store: str | None = None) -> Iterable[str]:
    """Yield the lines of one question: who asks, what, what fits, until when, and what to type."""
    yield f"{question.interrupt_id}  {question.kind}  ({execution_id}, step {one_line(question.step, 40)})"
    yield one_line(question.question, 200)
    if question.message:
        yield one_line(question.message, 200)
    wanted = wanted_answer(question)
    if question.schema is not None:
        wanted = f"{wanted}: {one_line(schema_in_words(question.schema), 200)}"
    until = "" if question.expires_at is None else f", until {local_time(question.expires_at)}"
    yield f"answer with {wanted}{until}"
    again = "" if store is None else f" --store {store}"
    yield f"to answer: %dive answer {question.interrupt_id} {example_answer(question)}{again}"


def ways_to_answer(execution: Execution) -> list[str]:
    """Return the questions of an execution, and the commands that answer them, here and in a shell."""
    location = execution.store.location
    lines = []
    for question in execution.interrupts:
        lines += ["waits for an answer:", *(f"  {line}" for line in question_lines(execution.id, question))]
        if location != "memory:":
            words = ["divebook", "answer", question.interrupt_id, example_answer(question), "--store", location]
            lines.append(f"  or in a shell: {shlex.join(words)}")
    return lines


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
