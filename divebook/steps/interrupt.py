"""Interrupt steps: a person is asked, and the workflow waits for the answer without costing anything."""

from __future__ import annotations

from divebook.errors import ApprovalDeniedError, StepError
from divebook.execution.context import StepContext
from divebook.execution.iterations import Outcome
from divebook.questions.answer import value_of
from divebook.questions.kinds import CONFIRMATION
from divebook.scripting import value_text
from divebook.steps.evaluation import filled, render_texts
from divebook.workflow.json_schemas import require_schema
from divebook.workflow.step import Step


async def interrupt_step(context: StepContext) -> Outcome:
    """Ask; the answer is the step's value: a text, data that fits the schema, or whether it was approved.

    Only an approval lets the path go on after a confirmation, unless the definition looks at the answer itself (with
    Store, or with conditions of its edges).
    """
    ask = context.step.ask
    if ask is None:
        raise StepError(f'no question specified for interrupt step "{context.step.name}"; add Ask')
    if ask.schema is not None:
        require_schema(ask.schema)
    question, message = await render_texts([ask.question, ask.message or ""], context.names)
    answered = await context.interrupt(
        ask.kind,
        question,
        message=message or None,
        data=await filled(ask.data, context.names) or None,
        schema=ask.schema,
        expires_in=ask.expires_in,
        default=ask.default,
        has_default=ask.has_default,
        optional=ask.optional,
    )
    value = value_of(answered)
    if ask.kind == CONFIRMATION and value is not True and not _looks_itself(context.step):
        raise ApprovalDeniedError(question, (answered.response or {}).get("text") or "")
    return Outcome(value_text(value), value)


def _looks_itself(step: Step) -> bool:
    return bool(step.store) or any(edge.condition for edge in step.edges)
