"""Steps with which an execution ends here and goes on as a new one, with its variables and a short log."""

from __future__ import annotations

from typing import NoReturn

from divebook.execution.children import BeginSuccessor
from divebook.execution.context import StepContext
from divebook.steps.evaluation import filled


class ContinueStep:
    """Carries out steps of type ``continue_as_new``."""

    def __init__(self, begin_successor: BeginSuccessor) -> None:
        self._begin_successor = begin_successor

    async def __call__(self, context: StepContext) -> NoReturn:
        """Begin the same workflow anew, with the variables as they are and the step's `Inputs` in place of its own."""
        given = context.storable({**context.inputs, **await filled(context.step.inputs, context.names)}, "Inputs")
        await context.go_on_as_new(given, f"step {context.step.name}", self._begin_successor)
