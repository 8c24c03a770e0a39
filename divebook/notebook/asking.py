"""A question to an agent as a run: a workflow of one step, so that it is recorded, resumed and shown as any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.events.classes import name_of
from divebook.workflow.answer_types import allow_answers, answer_type
from divebook.workflow.definition import InputDefinition, Workflow
from divebook.workflow.step import Step

STEP, ANSWER = "ask", "answer"


def ask_workflow(agent: str, output: str | None = None, thread: str | None = None) -> Workflow:
    """Return the workflow that asks an agent what its input says.

    The answer may have to be of an allowed class, and the question may go on with a thread.

    >>> ask_workflow("critic").name
    'ask critic'
    """
    step = Step(STEP, agent=agent, prompt="${inputs.prompt}", output=output, thread=thread, store=ANSWER)
    return Workflow(f"ask {agent}", [step], inputs=[InputDefinition("prompt", type="string")], outputs=[ANSWER])


def class_of_answer(name: str | None, variables: Mapping[str, Any]) -> str | None:
    """Return the full name of the class that a line names: one of the kernel's, which this allows, or an allowed one.

    Raises
    ------
    NotFoundError
        There is no such class.
    """
    found = variables.get(name or "")
    if not isinstance(found, type):
        answer_type(name)
        return name
    allow_answers(found)
    return name_of(found)
