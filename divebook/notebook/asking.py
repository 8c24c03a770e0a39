"""A question to an agent as a run: a workflow of one step, so that it is recorded, resumed and shown as any other."""

from __future__ import annotations

from divebook.workflow.definition import InputDefinition, Workflow
from divebook.workflow.step import Step

STEP, ANSWER = "ask", "answer"


def ask_workflow(agent: str) -> Workflow:
    """Return the workflow that asks an agent what its input says.

    >>> ask_workflow("critic").name
    'ask critic'
    """
    step = Step(STEP, agent=agent, prompt="${inputs.prompt}", store=ANSWER)
    return Workflow(f"ask {agent}", [step], inputs=[InputDefinition("prompt", type="string")], outputs=[ANSWER])
