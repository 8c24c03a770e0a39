"""The types of step that every environment has, each with what carries it out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

from divebook.agents import Agent
from divebook.errors import ApprovalDeniedError, StepError
from divebook.questions.answer import value_of
from divebook.questions.question import CONFIRMATION
from divebook.runtime.children import BeginSuccessor, DriveChild
from divebook.runtime.context import StepContext
from divebook.runtime.errors import clean_failure
from divebook.runtime.step import Handler, Outcome
from divebook.scripting import value_text
from divebook.steps.action import ActionStep, ScriptStep, filled, render_texts
from divebook.steps.actions import Action
from divebook.steps.call import call
from divebook.steps.function import FunctionStep
from divebook.steps.prompt import ContentBuilder, PromptStep
from divebook.steps.turns import AgentServices
from divebook.text.ranges import SECONDS
from divebook.workflow.functions import UserFunction, find_rollback
from divebook.workflow.json_schemas import require_schema
from divebook.workflow.step import CONTINUE, ROLLBACK, Step

# Wait steps: time passes, or a signal comes; a restart waits only for what is left.


async def wait_step(context: StepContext) -> Outcome:
    """Let the step's `Seconds` pass, or wait that long at most for its `Signal`, whose payload is the step's value."""
    seconds = await _seconds(context)
    if context.step.signal is None:
        await context.sleep(seconds or 0.0)
        return Outcome("", None)
    (name,) = await render_texts([context.step.signal], context.names)
    payload = await context.signal(name, seconds)
    return Outcome(value_text(payload), payload)


async def _seconds(context: StepContext) -> float | None:
    """Return the step's `Seconds`; a text is a template that gives a number."""
    written = context.step.seconds
    if written is None:
        return None
    if isinstance(written, str):
        (written,) = await render_texts([written], context.names)
    try:
        seconds = float(written or 0)
    except (ValueError, OverflowError):
        seconds = math.nan
    if not SECONDS.fits(seconds):
        raise StepError(f'Seconds of wait step "{context.step.name}" must be {SECONDS}, got {written!r:.60}')
    return seconds


# Interrupt steps: a person is asked, and the workflow waits for the answer without costing anything.


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


# Workflow steps: another workflow runs as an execution of its own, once; its outputs are the value of the step.


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


# Steps with which an execution ends here and goes on as a new one, with its variables and a short log.


class ContinueStep:
    """Carries out steps of type ``continue_as_new``."""

    def __init__(self, begin_successor: BeginSuccessor) -> None:
        self._begin_successor = begin_successor

    async def __call__(self, context: StepContext) -> NoReturn:
        """Begin the same workflow anew, with the variables as they are and the step's `Inputs` in place of its own."""
        given = context.storable({**context.inputs, **await filled(context.step.inputs, context.names)}, "Inputs")
        await context.go_on_as_new(given, f"step {context.step.name}", self._begin_successor)


# What undoes a step, an item of it or a call: a function is called as one operation, with what was filled in then.


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


def built_in_handlers(
    find_agent: Callable[[str | None], Agent | None],
    find_action: Callable[[str], Action],
    content: ContentBuilder,
    script: ScriptStep,
    *,
    drive_child: DriveChild,
    begin_successor: BeginSuccessor,
    offers: AgentServices,
) -> dict[str, Handler]:
    """Return what carries out each type of step, by type."""
    prompts = PromptStep(find_agent, content, offers)
    return {
        "prompt": prompts,
        "action": ActionStep(find_action),
        f"{ROLLBACK} action": RollbackStep(find_action),
        f"{ROLLBACK} step": RollbackStep(find_rollback),
        "script": script,
        "wait": wait_step,
        "interrupt": interrupt_step,
        "workflow": WorkflowStep(drive_child),
        CONTINUE: ContinueStep(begin_successor),
        "function": FunctionStep(drive_child, prompts.ask, begin_successor),
    }
