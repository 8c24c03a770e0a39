"""Workflow steps: another workflow runs as an execution of its own, once; its outputs are the value of the step."""

from __future__ import annotations

from divebook.execution.children import DriveChild
from divebook.execution.context import StepContext
from divebook.execution.iterations import Outcome
from divebook.scripting import value_text
from divebook.steps.evaluation import filled, render_texts


class WorkflowStep:
    """Carries out workflow steps."""

    def __init__(self, drive_child: DriveChild) -> None:
        self._drive_child = drive_child

    async def __call__(self, context: StepContext) -> Outcome:
        """Run the workflow with the step's `Inputs` filled in; it counts in the bounds of this one."""
        step = context.step
        (name,) = await render_texts([step.workflow or ""], context.names)
        inputs = context.storable(await filled(step.inputs, context.names), "Inputs")
        child = await context.child(name, inputs, self._drive_child, key="workflow")
        return Outcome(value_text(child["outputs"]), child["outputs"])
