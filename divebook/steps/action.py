"""Action steps: parameters are rendered, then a named function is called as one operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from divebook.engine.retries import failure_text, text_of
from divebook.errors import ApprovalDeniedError, NotFoundError, StepError
from divebook.execution.context import StepContext
from divebook.execution.iterations import Outcome
from divebook.scripting import value_text
from divebook.steps.actions import Action
from divebook.steps.call import call
from divebook.steps.evaluation import render_texts, values_of
from divebook.workflow.rules import is_expression


class ActionStep:
    """Carries out action steps with the actions that `find` knows at that moment."""

    def __init__(self, actions: Callable[[], Mapping[str, Action]]) -> None:
        self._actions = actions

    async def __call__(self, context: StepContext) -> Outcome:
        """Call the action; its result is the step's value, and as text its output."""
        action = self._find(context)
        try:
            result = await call(context, action, await self._parameters(context))
        except ApprovalDeniedError:
            raise
        except Exception as error:
            told = text_of(error) if context.workflow.dialect == "dive" else failure_text(error)
            raise StepError(f"action execution operation failed: {told}") from error
        text = value_text(result)
        return Outcome(text, text if context.workflow.dialect == "dive" else result)

    def _find(self, context: StepContext) -> Action:
        name = context.step.action
        if not name:
            raise StepError(f'no action specified for action step "{context.step.name}"')
        known = self._actions()
        if name not in known:
            raise NotFoundError("action", name, known, f'action "{name}" not found')
        return known[name]

    @staticmethod
    async def _parameters(context: StepContext) -> dict[str, Any]:
        """Fill in the top-level texts: ``${...}`` inside a text gives text, a whole ``$(...)`` its value as it is.

        Anything inside lists and maps is passed as it is written; so is ``$(...)`` in the dialect ``dive``.
        """
        parameters = dict(context.step.parameters)
        texts = {key: value for key, value in parameters.items() if isinstance(value, str)}
        expressions = {} if context.workflow.dialect == "dive" else {k: v for k, v in texts.items() if is_expression(v)}
        templates = {key: text for key, text in texts.items() if "${" in text and key not in expressions}
        if expressions:
            values = await values_of([text.strip()[2:-1] for text in expressions.values()], context.names)
            parameters.update(zip(expressions, values, strict=True))
        if templates:
            rendered = await render_texts(list(templates.values()), context.names)
            parameters.update(zip(templates, rendered, strict=True))
        return parameters
