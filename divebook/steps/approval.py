"""Approval of calls of actions, steps and tools by rules and by people.

The policy decides about a call that the log does not have, and never again: a rule may have expired or been revoked
since. If the policy requires a person, the question and its answer decide, whatever happened to the policy later.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from divebook.engine.approvals import (
    BY_PERSON,
    BY_RULE,
    Approved,
    Denied,
    StandingRule,
    ToolCall,
    Verdict,
    schema_of_answer,
    shown_on_card,
)
from divebook.engine.operations import VERDICT
from divebook.errors import ApprovalDeniedError, DefinitionError
from divebook.events.event import to_datetime
from divebook.events.values import normalize
from divebook.questions import Question
from divebook.questions.question import CONFIRMATION
from divebook.runtime.context import StepContext
from divebook.runtime.waiting import ApprovalPolicy
from divebook.steps.conversations import DurableLog, Entry
from divebook.text.format import local_time
from divebook.workflow.json_schemas import require_schema
from divebook.workflow.resources import ASK, DENY, Approvals


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
    """Decide whether a call may be made, and with which arguments. Ask a person if the policy requires it.

    A denial by a rule is recorded, because another rule may apply when the caller runs again. Order of the decision: a
    recorded denial; a recorded question, with its wording; a call that the log already has; the current policy.

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
    question_before = context.question_of(key)
    if question_before is not None:
        data = {**(question_before.data or {}), call.kind: call.tool, "parameters": dict(call.arguments)}
        answer = await ask(message=question_before.message, data=data, schema=question_before.schema)
        return await _decision_of(context, call, answer, operation, denied)
    if context.record_of(operation) is not None:
        return Approved(dict(call.arguments))
    mode_of_dialect = context.workflow.manner.confirmation_mode
    verdict = await context.approving.verdict(replace(call, mode=mode_of_dialect) if mode_of_dialect else call)
    if verdict.outcome == DENY:
        return await denied(verdict)
    if verdict.outcome != ASK:
        return Approved(dict(call.arguments), verdict.rule)
    data = shown_on_card(call, verdict.rule)
    answer_schema = schema_of_answer(_valid_schema(schema))
    answer = await ask(message=verdict.reason or description or None, data=data, schema=answer_schema)
    return await _decision_of(context, call, answer, operation, denied)


async def _decision_of(
    context: StepContext,
    call: ToolCall,
    question: Question,
    operation: str | int,
    denied: Callable[[Verdict], Awaitable[Denied]],
) -> Approved | Denied:
    """Return the decision of a person. A rule that denies the call by now, or the edited arguments, takes precedence
    over the approval.
    """
    response: Mapping[str, Any] = question.response or {}
    if response.get("approved") is not True:
        reason = response.get("text") or ""
        return Denied(f"{BY_PERSON}{_with_reason(reason)}", reason)
    arguments = _arguments(question, response, call)
    if context.record_of(operation) is None:
        verdict = await context.approving.verdict(replace(call, arguments=arguments))
        if verdict.outcome == DENY:
            return await denied(verdict)
    if context.miss_policy is None or context.miss_policy.writes:
        await context.approving.keep(question)
    return Approved(arguments, f"question {question.id}")


async def _denied(context: StepContext, call: ToolCall, key: str, within: str | None, verdict: Verdict) -> Denied:
    """Return the recorded denial of a call by a rule; record `verdict` if the log has none."""

    async def reasons() -> Mapping[str, str]:
        return {"rule": verdict.rule, **({"reason": verdict.reason} if verdict.reason else {})}

    parameters = {call.kind: call.tool}
    recorded = await context.operation(VERDICT, parameters, reasons, key=key, repeatable=True, within=within)
    reason = recorded.get("reason", "")
    return Denied(f"{BY_RULE} {call.tool}{_with_reason(reason)}", reason, recorded["rule"])


def _with_reason(reason: str) -> str:
    return f": {reason}" if reason else ""


def _arguments(question: Question, response: Mapping[str, Any], call: ToolCall) -> dict[str, Any]:
    """Return the arguments from the answer or the recorded question: the code that asked may have changed since."""
    edited = response.get("data") or {}
    return dict(edited.get("parameters", (question.data or {}).get("parameters", call.arguments)))


def _defaults(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the default values of arguments from a schema. The schema may have any form."""
    properties = (schema or {}).get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: of["default"] for name, of in properties.items() if isinstance(of, Mapping) and "default" in of}


def _valid_schema(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a schema if it is valid, else None. Schemas of servers may be anything."""
    if schema is None:
        return None
    try:
        require_schema(schema)
    except DefinitionError:
        return None
    return schema


async def approved_parameters(
    context: StepContext,
    kind: str,
    name: str,
    parameters: dict[str, Any],
    *,
    description: str = "",
    key: str,
    operation: str | int,
) -> dict[str, Any]:
    """Return the approved parameters of an action or step that always requires approval.

    Raises
    ------
    ApprovalDeniedError
        A person, or a rule, said no.
    """
    call = ToolCall(name, normalize(parameters, "parameters"), asks=True, kind=kind)
    decision = await approve(context, call, None, key=key, operation=operation, description=description)
    if isinstance(decision, Approved):
        return decision.arguments
    reason = decision.reason or (f"denied by the rule: {decision.rule}" if decision.rule else "")
    raise ApprovalDeniedError(f"Run {name}?", reason)


# --- approval policy -------------------------------------------------------------------------------------------------
#
# Approval policy of an environment: its table of rules, and the rules that people made for every execution.


RULES = "divebook/rules"
"""Start key of the durable log of rules."""


ADDED = "added"


REVOKED = "revoked"


NOBODY = "nobody"


class EnvironmentApprovalPolicy(ApprovalPolicy):
    """Approval policy with the rules and modes of an environment, and the rules that people made for every execution.

    Parameters
    ----------
    table
        Gives the rules and modes for the calls of an agent, of no agent for an empty name.
    """

    def __init__(self, table: Callable[[str], Approvals], log: DurableLog) -> None:
        self._table = table
        self._log = log

    def table(self, agent: str) -> Approvals:
        """Return the rules and modes for the calls of an agent."""
        return self._table(agent)

    async def lasting(self) -> Iterable[StandingRule]:
        """Return the current rules that people made for every execution."""
        return await self._log.on_loop(self.standing)

    async def keep(self, rule: StandingRule) -> None:
        """Apply a rule to every execution from now on. A rule that was revoked stays revoked."""
        entry = {ADDED: rule._asdict()}
        await self._log.on_loop(lambda: self._log.write(RULES, rule.rule_id, entry, rule.by or NOBODY))

    def standing(self) -> list[StandingRule]:
        """Return the same rules as `lasting`. Callable from any thread."""
        return rules_in(self._log.entries(RULES))

    def revoke(self, rule_id: str, by: str) -> None:
        """Revoke a rule for every execution."""
        self._log.write(RULES, f"{REVOKED}/{rule_id}", {REVOKED: rule_id}, by)


def rules_in(entries: Iterable[Entry]) -> list[StandingRule]:
    """Return the rules in a durable log that are not revoked, oldest first."""
    rules: dict[str, StandingRule] = {}
    revoked: set[str] = set()
    for entry in entries:
        if ADDED in entry.value:
            fields = {name: value for name, value in entry.value[ADDED].items() if name in StandingRule._fields}
            rules[fields["rule_id"]] = StandingRule(**fields)
        elif REVOKED in entry.value:
            revoked.add(entry.value[REVOKED])
    return [rule for rule in rules.values() if rule.rule_id not in revoked]


def rule_in_words(rule: StandingRule, execution_id: str | None) -> str:
    """Describe a rule for people. `execution_id` is the run that it applies to; None for every run."""
    server = f" of {rule.server}" if rule.server else ""
    agent = f" by agent {rule.agent}" if rule.agent else ""
    until = "" if rule.expires_us is None else f", until {local_time(to_datetime(rule.expires_us))}"
    where = "every run" if execution_id is None else execution_id
    author = f" (made by {rule.by})" if rule.by else ""
    return f"{rule.outcome} {rule.kind} {rule.tool}{server}{agent} with {rule.arguments} in {where}{until}{author}"
