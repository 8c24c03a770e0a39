"""Calls that a person must approve first, and may change: of actions, steps and tools alike.

The policy is asked about a call that the log does not have, and never again: a rule may have expired since, or been
revoked. Where it wants a person's yes, the question and its answer decide, whatever has become of the policy.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from divebook.engine.approvals import BY_PERSON, BY_RULE, Approved, Denied, ToolCall, Verdict
from divebook.engine.cards import schema_of_answer, shown_on_card
from divebook.engine.operations import VERDICT
from divebook.errors import ApprovalDeniedError, DefinitionError
from divebook.events.values import normalize
from divebook.execution.context import StepContext
from divebook.questions import Question
from divebook.questions.kinds import CONFIRMATION
from divebook.workflow.approvals import ASK, DENY
from divebook.workflow.json_schemas import require_schema


async def approve(
    context: StepContext,
    call: ToolCall,
    schema: Mapping[str, Any] | None,
    *,
    key: str,
    operation: str | int,
    description: str = "",
    within: str | None = None,
) -> Approved | Denied:
    """Return whether a call may be made, and with which arguments; a person is asked if the policy says so.

    What a rule denies is kept: it may be another rule when the caller runs again.

    Parameters
    ----------
    schema
        JSON schema of the arguments: what a person makes of them must fit it, or the question stays open.
    key
        Name of the question within the step.
    operation
        Key of the call's own operation: one that the log has is not judged again.
    description
        What the call does, for the person.
    within
        Id of the operation that waits for the answer; see `StepContext.enclosing`.
    """
    call = replace(call, defaults=_defaults(schema))
    denied = functools.partial(_denied, context, call, f"{key}-denied", within)
    if context.record_of(f"{key}-denied") is not None:
        return await denied(Verdict(DENY, rule="a rule that held before"))
    ask = functools.partial(context.interrupt, CONFIRMATION, f"Run {call.tool}?", key=key, within=within)
    asked = context.question_of(key)
    if asked is not None:
        data = {**(asked.data or {}), call.kind: call.tool, "parameters": dict(call.arguments)}
        answer = await ask(message=asked.message, data=data, schema=asked.schema)
        return await _answered(context, call, answer, operation, denied)
    if context.record_of(operation) is not None:
        return Approved(dict(call.arguments))
    own = context.workflow.manner.confirmation_mode
    verdict = await context.approving.verdict(replace(call, mode=own) if own else call)
    if verdict.outcome == DENY:
        return await denied(verdict)
    if verdict.outcome != ASK:
        return Approved(dict(call.arguments), verdict.rule)
    data, wanted = shown_on_card(call, verdict.rule), schema_of_answer(_sound(schema))
    answer = await ask(message=verdict.reason or description or None, data=data, schema=wanted)
    return await _answered(context, call, answer, operation, denied)


async def _answered(
    context: StepContext,
    call: ToolCall,
    question: Question,
    operation: str | int,
    denied: Callable[[Verdict], Awaitable[Denied]],
) -> Approved | Denied:
    """Return what a person made of a call: what a rule denies by now, or of what they made of it, no yes allows."""
    response: Mapping[str, Any] = question.response or {}
    if response.get("approved") is not True:
        reason = response.get("text") or ""
        return Denied(f"{BY_PERSON}{_because(reason)}", reason)
    arguments = _arguments(question, response, call)
    if context.record_of(operation) is None:
        verdict = await context.approving.verdict(replace(call, arguments=arguments))
        if verdict.outcome == DENY:
            return await denied(verdict)
    if context.beyond is None or context.beyond.writes:
        await context.approving.keep(question)
    return Approved(arguments, f"question {question.id}")


async def _denied(context: StepContext, call: ToolCall, key: str, within: str | None, verdict: Verdict) -> Denied:
    """Return what the log says of a call that a rule denied, which is its `verdict` if it has nothing of it yet."""

    async def said() -> Mapping[str, str]:
        return {"rule": verdict.rule, **({"reason": verdict.reason} if verdict.reason else {})}

    asked = {call.kind: call.tool}
    kept = await context.operation(VERDICT, asked, said, key=key, repeatable=True, within=within)
    reason = kept.get("reason", "")
    return Denied(f"{BY_RULE} {call.tool}{_because(reason)}", reason, kept["rule"])


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _arguments(answered: Question, response: Mapping[str, Any], call: ToolCall) -> dict[str, Any]:
    """Return what the record of the question and its answer say: the code that asked may have changed."""
    told = response.get("data") or {}
    return dict(told.get("parameters", (answered.data or {}).get("parameters", call.arguments)))


def _defaults(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what arguments are where a call says nothing of them, as its schema says, which may be anything."""
    properties = (schema or {}).get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: of["default"] for name, of in properties.items() if isinstance(of, Mapping) and "default" in of}


def _sound(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a schema if it is one: those of servers may be anything."""
    if schema is None:
        return None
    try:
        require_schema(schema)
    except DefinitionError:
        return None
    return schema


async def approved(
    context: StepContext,
    kind: str,
    name: str,
    parameters: dict[str, Any],
    *,
    description: str = "",
    key: str,
    operation: str | int,
) -> dict[str, Any]:
    """Return the parameters with which an action or a step that asks by itself may be called.

    Raises
    ------
    ApprovalDeniedError
        A person, or a rule, said no.
    """
    call = ToolCall(name, normalize(parameters, "parameters"), asks=True, kind=kind)
    found = await approve(context, call, None, key=key, operation=operation, description=description)
    if isinstance(found, Approved):
        return found.arguments
    reason = found.reason or (f"denied by the rule: {found.rule}" if found.rule else "")
    raise ApprovalDeniedError(f"Run {name}?", reason)
