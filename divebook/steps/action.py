"""Action steps: parameters are rendered, then a named function is called as one operation."""

from __future__ import annotations

from collections.abc import Callable

from divebook.errors import ApprovalDeniedError, StepError
from divebook.execution.context import StepContext
from divebook.execution.error_texts import clean_failure, clean_text
from divebook.execution.iterations import Outcome
from divebook.scripting import value_text
from divebook.steps.actions import Action
from divebook.steps.call import call
from divebook.steps.evaluation import filled
from divebook.steps.rows import run_rows


class ActionStep:
    """Carries out action steps with the actions that `find` has at that moment."""

    def __init__(self, find: Callable[[str], Action]) -> None:
        self._find = find

    async def __call__(self, context: StepContext) -> Outcome:
        """Call the action; its result is the step's value, and as text its output."""
        name, parameters = context.step.action, context.step.parameters
        if not name:
            raise StepError(f'no action specified for action step "{context.step.name}"')
        action = self._find(name)
        keeps_text = context.workflow.manner.keeps_text
        parameters = await filled(parameters, context.names, known=context.known)
        try:
            if context.step.each is not None and context.step.each.rows is not None:
                frame = await filled({"rows": context.step.each.rows}, context.names, known=context.known)
                return await run_rows(context, action, parameters, frame["rows"])
            result = await call(context, action, parameters)
        except ApprovalDeniedError:
            raise
        except Exception as error:
            told = clean_text(error) if keeps_text else clean_failure(error)
            raise StepError(f"action {name} failed: {told}") from error
        text = value_text(result)
        return Outcome(text, text if keeps_text else result)
