"""What undoes a step, an item of it or a call: a function is called as one operation, with what was filled in then."""

from __future__ import annotations

from collections.abc import Callable

from divebook.errors import ApprovalDeniedError, StepError
from divebook.execution.context import StepContext
from divebook.execution.error_texts import clean_failure
from divebook.execution.iterations import Outcome
from divebook.scripting import value_text
from divebook.steps.call import call
from divebook.workflow.user_functions import UserFunction


class RollbackStep:
    """Calls what undoes steps, with the functions that `find` has at that moment."""

    def __init__(self, find: Callable[[str], UserFunction]) -> None:
        self._find = find

    async def __call__(self, context: StepContext) -> Outcome:
        """Make the call; its result is shown and kept nowhere else."""
        function = self._find(context.step.action or "")
        try:
            result = await call(context, function, context.step.parameters)
        except ApprovalDeniedError:
            raise
        except Exception as error:
            raise StepError(f"{function.name} failed: {clean_failure(error)}") from error
        return Outcome(value_text(result), result)
