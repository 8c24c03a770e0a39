"""Handlers of the built-in step types, except prompt, script and function steps, which have files of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

from divebook.agents import Agent
from divebook.definitions.functions import UserFunction, find_rollback
from divebook.definitions.json_schemas import require_schema
from divebook.definitions.step import CONTINUE, ROLLBACK, Step
from divebook.errors import ApprovalDeniedError, StepError
from divebook.questions.answer import value_of
from divebook.questions.question import CONFIRMATION
from divebook.runtime.calls import call, prepared_call
from divebook.runtime.children import BeginSuccessor, DriveChild
from divebook.runtime.context import StepContext
from divebook.runtime.errors import clean_failure, clean_text
from divebook.runtime.step import Handler, Outcome
from divebook.scripting import value_text
from divebook.steps.actions import Action
from divebook.steps.function import FunctionStep
from divebook.steps.prompt import AgentServices, ContentBuilder, PromptStep
from divebook.steps.row_calls import run_rows
from divebook.steps.script_step import ScriptStep, filled, render_texts
from divebook.text.ranges import SECONDS


async def wait_step(context: StepContext) -> Outcome:
    """Execute a wait step: sleep for its `Seconds`, or wait for its `Signal`, at most for its `Seconds`. The value of
    the step is the payload of the signal.
    """
    seconds = await _seconds(context)
    if context.step.signal is None:
        await context.sleep(seconds or 0.0)
        return Outcome("", None)
    (name,) = await render_texts([context.step.signal], context.names)
    payload = await context.wait_signal(name, seconds)
    return Outcome(value_text(payload), payload)


async def _seconds(context: StepContext) -> float | None:
    """Return the `Seconds` of a wait step as a number, after rendering if they are a template. Return None if the step
    has no `Seconds`; raise `StepError` for an invalid number.
    """
    value = context.step.seconds
    if value is None:
        return None
    if isinstance(value, str):
        (value,) = await render_texts([value], context.names)
    try:
        # An empty text means 0 seconds.
        seconds = float(value or 0)
    # NaN fits no range, so that one check reports all invalid values.
    except (ValueError, OverflowError):
        seconds = math.nan
    if not SECONDS.fits(seconds):
        raise StepError(f'Seconds of wait step "{context.step.name}" must be {SECONDS}, got {value!r:.60}')
    return seconds


async def interrupt_step(context: StepContext) -> Outcome:
    """Execute a step that asks a person a question. The value of the step is the answer: a text, data that match the
    question's schema, or True for an approval.

    After a confirmation the path continues only with an approval, unless the definition examines the answer itself
    (with Store, or with conditions of its edges).
    """
    ask = context.step.ask
    if ask is None:
        raise StepError(f'no question specified for interrupt step "{context.step.name}"; add Ask')
    if ask.schema is not None:
        require_schema(ask.schema)
    question, message = await render_texts([ask.question, ask.message or ""], context.names)
    answered_question = await context.interrupt(
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
    value = value_of(answered_question)
    # No part of the definition would notice a refusal, so it must stop the path.
    if ask.kind == CONFIRMATION and value is not True and not _looks_itself(context.step):
        raise ApprovalDeniedError(question, (answered_question.response or {}).get("text") or "")
    return Outcome(value_text(value), value)


def _looks_itself(step: Step) -> bool:
    return bool(step.store) or any(edge.condition for edge in step.edges)


class WorkflowStep:
    """Handler of workflow steps, which run another workflow as a child execution. The child is started only once; its
    outputs are the value of the step.
    """

    def __init__(self, drive_child: DriveChild) -> None:
        self._drive_child = drive_child

    async def __call__(self, context: StepContext) -> Outcome:
        """Run the workflow that the step names, with the rendered `Inputs` of the step. The child's consumption counts
        in the bounds of the parent execution.
        """
        step = context.step
        (name,) = await render_texts([step.workflow or ""], context.names)
        inputs = context.storable(await filled(step.inputs, context.names), "Inputs")
        # A step has one child at each visit, so a fixed key is enough.
        child = await context.child(name, inputs, self._drive_child, key="workflow")
        return Outcome(value_text(child["outputs"]), child["outputs"])


class ContinueStep:
    """Handler of ``continue_as_new`` steps: the execution ends, and a successor with an empty log continues with its
    variables.
    """

    def __init__(self, begin_successor: BeginSuccessor) -> None:
        self._begin_successor = begin_successor

    async def __call__(self, context: StepContext) -> NoReturn:
        """Start the successor execution. It gets the inputs of this execution; the step's rendered `Inputs` are added,
        or replace inputs of the same name.
        """
        inputs = context.storable({**context.inputs, **await filled(context.step.inputs, context.names)}, "Inputs")
        await context.go_on_as_new(inputs, f"step {context.step.name}", self._begin_successor)


class RollbackStep:
    """Handler of rollback steps, which call the function that undoes an earlier step, a loop item or a call.

    Parameters
    ----------
    find
        Returns the rollback function currently registered under a name.
    """

    def __init__(self, find: Callable[[str], UserFunction]) -> None:
        self._find = find

    async def __call__(self, context: StepContext) -> Outcome:
        """Call the rollback function with the parameters of the step. The function's result is displayed and has no
        other effect. Raise `StepError` if the function fails.
        """
        function = self._find(context.step.action or "")
        try:
            result = await call(context, function, context.step.parameters)
        # A denial keeps its class, because the call itself did not fail.
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
    services: AgentServices,
) -> dict[str, Handler]:
    """Return the handlers of the built-in step types, by step type."""
    prompts = PromptStep(find_agent, content, services)
    return {
        "prompt": prompts,
        "action": ActionStep(find_action),
        # Rollback steps are not written in definitions: the engine creates one for each function that undoes something.
        f"{ROLLBACK} action": RollbackStep(find_action),
        f"{ROLLBACK} step": RollbackStep(find_rollback),
        "script": script,
        "wait": wait_step,
        "interrupt": interrupt_step,
        "workflow": WorkflowStep(drive_child),
        CONTINUE: ContinueStep(begin_successor),
        "function": FunctionStep(drive_child, prompts.ask, begin_successor),
    }


class ActionStep:
    """Handler of action steps, which call a named Python function.

    Parameters
    ----------
    find
        Returns the action currently registered under a name.
    """

    def __init__(self, find: Callable[[str], Action]) -> None:
        self._find = find

    async def __call__(self, context: StepContext) -> Outcome:
        """Render the parameters of the step and call its action with them. The action's result is the value of the
        step; its text is the output.
        """
        name = context.step.action
        parameters = context.step.parameters
        if not name:
            raise StepError(f'no action specified for action step "{context.step.name}"')
        action = self._find(name)
        prepared = prepared_call(context, action)
        if prepared.has_templates:
            parameters = await filled(parameters, context.names, cache=context.known)
        try:
            # The frame is evaluated by itself: it is not a parameter of the action.
            if context.step.each is not None and context.step.each.rows is not None:
                frame = await filled({"rows": context.step.each.rows}, context.names, cache=context.known)
                return await run_rows(context, action, parameters, frame["rows"])
            result = await call(context, action, parameters, prepared=prepared)
        except ApprovalDeniedError:
            raise
        except Exception as error:
            text_of_error = clean_text(error) if prepared.keeps_text else clean_failure(error)
            raise StepError(f"action {name} failed: {text_of_error}") from error
        text = value_text(result)
        return Outcome(text, text if prepared.keeps_text else result)
