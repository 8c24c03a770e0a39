"""Approval of tool calls, actions and steps: by rules of the environment, or by a person.

The rules are applied only to a call that the log does not have. A recorded decision is never made again, because a rule
may have expired or been revoked since. If the rules require a person, the recorded question and its answer decide, even
if the rules changed later.
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
from divebook.steps.conversations import DurableLog, Entry
from divebook.text.format import local_time
from divebook.workflow.json_schemas import require_schema
from divebook.workflow.resources import ASK, DENY, Approvals


class EnvironmentApprovalPolicy:
    """Approval policy of an environment: configured rules and modes, and permanent rules that people created in their
    answers.

    Implements the protocol `divebook.runtime.waiting.ApprovalPolicy`.

    Parameters
    ----------
    table
        Returns the rules and modes for an agent's name. An empty name stands for calls without an agent.
    """

    def __init__(self, table: Callable[[str], Approvals], log: DurableLog) -> None:
        self._table = table
        self._log = log

    def table(self, agent: str) -> Approvals:
        """Return the configured approval rules and modes that apply to the calls of one agent."""
        return self._table(agent)

    async def lasting(self) -> Iterable[StandingRule]:
        """Read from the store the active permanent rules: approval rules that a person created for all executions and
        that are not revoked. Call on the engine's event loop.
        """
        return await self._log.on_loop(self.standing)

    async def keep(self, rule: StandingRule) -> None:
        """Store a permanent approval rule, so that it applies to all executions from now on. A rule that was revoked
        stays revoked.
        """
        # The id of the rule is the key of the entry, so keeping a rule twice has no effect.
        entry = {ADDED: rule._asdict()}
        await self._log.on_loop(lambda: self._log.write(RULES, rule.rule_id, entry, rule.by or NOBODY))

    def standing(self) -> list[StandingRule]:
        """Read from the store the active permanent approval rules, like `lasting`, but blocking and from any thread."""
        return rules_in(self._log.entries(RULES))

    def revoke(self, rule_id: str, by: str) -> None:
        """Revoke a permanent approval rule, so that it no longer applies to any execution."""
        self._log.write(RULES, f"{REVOKED}/{rule_id}", {REVOKED: rule_id}, by)


async def approve(
    context: StepContext,
    call: ToolCall,
    schema: Mapping[str, Any] | None,
    *,
    key: str,
    operation: str | int,
    attempt: int | None = None,
    description: str = "",
    within: str | None = None,
) -> Approved | Denied:
    """Decide whether a tool call, action or step may be executed, and with which arguments. Ask a person if the
    approval rules require one.

    A denial by a rule is recorded, because another rule may apply when the caller runs again. The first of these that
    exists decides: a recorded denial; a recorded question, asked again with its recorded wording; the recorded result
    of the call; the current rules.

    Parameters
    ----------
    schema
        JSON schema of the arguments. Arguments that a person edits must match the schema; until then the question stays
        open.
    key
        Name of the question within the step.
    operation
        Key of the operation of the call. A call whose operation is in the log is not checked again.
    attempt
        Number of the attempt at the call that is looked up; see `StepContext.record_of`.
    description
        Description of the call, shown to the person.
    within
        Id of the operation that waits for the answer; see `StepContext.enclosing`.
    """
    # A rule that allows a call need not name an argument that has its default value.
    call = replace(call, defaults=_defaults(schema))
    deny = functools.partial(_denied, context, call, f"{key}-denied", within)
    # A recorded denial stands, whatever the rules say now.
    if context.record_of(f"{key}-denied") is not None:
        return await deny(Verdict(DENY, rule="a rule that held before"))
    ask = functools.partial(context.interrupt, CONFIRMATION, f"Run {call.tool}?", key=key, within=within)
    is_recorded = context.record_of(operation, attempt) is not None
    # A recorded question is asked again with its recorded wording, so that the log matches.
    question_before = context.question_of(key)
    if question_before is not None:
        data = {**(question_before.data or {}), call.kind: call.tool, "parameters": dict(call.arguments)}
        answer = await ask(message=question_before.message, data=data, schema=question_before.schema)
        return await _decision_of(context, call, answer, is_recorded=is_recorded, deny=deny)
    # The call itself is in the log, so it was allowed when it was made.
    if is_recorded:
        return Approved(dict(call.arguments))
    # Only now the current rules decide.
    mode_of_dialect = context.workflow.manner.confirmation_mode
    verdict = await context.approving.verdict(replace(call, mode=mode_of_dialect) if mode_of_dialect else call)
    if verdict.outcome == DENY:
        return await deny(verdict)
    if verdict.outcome != ASK:
        return Approved(dict(call.arguments), verdict.rule)
    data = shown_on_card(call, verdict.rule)
    answer_schema = schema_of_answer(_valid_schema(schema))
    answer = await ask(message=verdict.reason or description or None, data=data, schema=answer_schema)
    return await _decision_of(context, call, answer, is_recorded=is_recorded, deny=deny)


async def _decision_of(
    context: StepContext,
    call: ToolCall,
    question: Question,
    *,
    is_recorded: bool,
    deny: Callable[[Verdict], Awaitable[Denied]],
) -> Approved | Denied:
    """Convert a person's answer to an approval question into an approval or a denial. Deny the call even after an
    approval if the current rules deny it, or deny the arguments that the person edited. `is_recorded` is True if the
    log has the call.
    """
    response: Mapping[str, Any] = question.response or {}
    if response.get("approved") is not True:
        reason = response.get("text") or ""
        return Denied(f"{BY_PERSON}{_with_reason(reason)}", reason)
    arguments = _arguments(question, response, call)
    # The person may have edited the arguments, and a rule may have been added while the question was open. A call that
    # is in the log was allowed already, and is not judged again.
    if not is_recorded:
        verdict = await context.approving.verdict(replace(call, arguments=arguments))
        if verdict.outcome == DENY:
            return await deny(verdict)
    # A replay or trial must not create permanent rules from recorded answers.
    if context.miss_policy is None or context.miss_policy.writes:
        await context.approving.keep(question)
    return Approved(arguments, f"question {question.id}")


async def _denied(context: StepContext, call: ToolCall, key: str, within: str | None, verdict: Verdict) -> Denied:
    """Return the denial of a call by an approval rule. If the log has no denial of this call yet, `verdict`, the
    decision of the current rules, is recorded and returned; otherwise the recorded denial is returned.
    """

    async def reasons() -> Mapping[str, str]:
        return {"rule": verdict.rule, **({"reason": verdict.reason} if verdict.reason else {})}

    parameters = {call.kind: call.tool}
    denial = await context.operation(VERDICT, parameters, reasons, key=key, repeatable=True, within=within)
    reason = denial.get("reason", "")
    return Denied(f"{BY_RULE} {call.tool}{_with_reason(reason)}", reason, denial["rule"])


def _with_reason(reason: str) -> str:
    return f": {reason}" if reason else ""


def _arguments(question: Question, response: Mapping[str, Any], call: ToolCall) -> dict[str, Any]:
    """Return the arguments with which an approved call is made: the arguments that the person edited, else the
    arguments shown in the question, else the arguments of `call`.

    The arguments of the question take precedence because the code that asked the question may have changed since.
    """
    # Edited arguments are complete: they replace all arguments that were shown.
    edits = response.get("data") or {}
    return dict(edits.get("parameters", (question.data or {}).get("parameters", call.arguments)))


def _defaults(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the default values of a tool's arguments by argument name, read from the tool's JSON schema. Arguments
    without a default are left out.

    The schema may come from a server and is not validated here: parts of another type are ignored.
    """
    properties = (schema or {}).get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: of["default"] for name, of in properties.items() if isinstance(of, Mapping) and "default" in of}


def _valid_schema(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a tool's JSON schema unchanged; return None if the schema is missing or invalid, because an MCP server may
    send anything.
    """
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
    """Ask a person to approve an action or step that requires approval of every call. Return the parameters that were
    approved, which the person may have edited.

    Raises
    ------
    ApprovalDeniedError
        A person or a rule denied the call.
    """
    call = ToolCall(name, normalize(parameters, "parameters"), asks=True, kind=kind)
    decision = await approve(context, call, None, key=key, operation=operation, description=description)
    # Actions and steps have no model that could react to a denial, so a denial is an error.
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


def rules_in(entries: Iterable[Entry]) -> list[StandingRule]:
    """Compute the permanent approval rules from the entries of their durable log. Return the rules that are not
    revoked, oldest first.
    """
    rules: dict[str, StandingRule] = {}
    revoked_ids: set[str] = set()
    for entry in entries:
        # Another version of divebook may have written further fields.
        if ADDED in entry.value:
            fields = {name: value for name, value in entry.value[ADDED].items() if name in StandingRule._fields}
            rules[fields["rule_id"]] = StandingRule(**fields)
        elif REVOKED in entry.value:
            revoked_ids.add(entry.value[REVOKED])
    # A revocation counts wherever it stands in the log.
    return [rule for rule in rules.values() if rule.rule_id not in revoked_ids]


def rule_in_words(rule: StandingRule, execution_id: str | None) -> str:
    """Describe an approval rule in one sentence for people. `execution_id` is the run that the rule is limited to; None
    for all runs.
    """
    server = f" of {rule.server}" if rule.server else ""
    agent = f" by agent {rule.agent}" if rule.agent else ""
    until = "" if rule.expires_us is None else f", until {local_time(to_datetime(rule.expires_us))}"
    scope = "every run" if execution_id is None else execution_id
    author = f" (made by {rule.by})" if rule.by else ""
    return f"{rule.outcome} {rule.kind} {rule.tool}{server}{agent} with {rule.arguments} in {scope}{until}{author}"
