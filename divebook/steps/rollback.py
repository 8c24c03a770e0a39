"""What undoes a step, an item of it or a call: a function is called as one operation, with what was filled in then."""

from __future__ import annotations

from collections.abc import Callable

from divebook.errors import ApprovalDeniedError, NotFoundError, StepError
from divebook.execution.context import StepContext
from divebook.execution.error_texts import clean_failure
from divebook.execution.iterations import Outcome
from divebook.scripting import value_text
from divebook.steps.call import call
from divebook.workflow.functions import ROLLBACK_FUNCTIONS, StepFunction
from divebook.workflow.user_functions import UserFunction


class RollbackStep:
    """Calls what undoes steps, with the functions that `find` has at that moment."""

    def __init__(self, find: Callable[[str], UserFunction]) -> None:
        self._find = find

    async def __call__(self, context: StepContext) -> Outcome:
        """Make the call; its result is shown and kept nowhere else."""
        name = context.step.action or ""
        function = self._find(name)
        try:
            result = await call(context, function, context.step.parameters)
        except ApprovalDeniedError:
            raise
        except Exception as error:
            raise StepError(f"{name} failed: {clean_failure(error)}") from error
        return Outcome(value_text(result), result)


def find_rollback(name: str) -> StepFunction:
    """Return the function of this process that was given to ``@step(rollback=...)`` last under a name.

    Raises
    ------
    NotFoundError
        There is none.
    """
    found = ROLLBACK_FUNCTIONS.get(name)
    if found is None:
        told = f"function {name} is not defined here; run the cell that gives it to @step(rollback={name})"
        raise NotFoundError("function", name, ROLLBACK_FUNCTIONS, told)
    return found
