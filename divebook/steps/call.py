"""The one way to call a person's function from a step: approved, tried again, limited in time, and recorded once.

Action steps, functions made with ``@step``, those of a pipeline's stages, and whatever else hands arguments to such a
function come through `call`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
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
from divebook.engine.operations import ACTION_EXECUTION, STEP_EXECUTION, VERDICT, Slot
from divebook.engine.state import BY_CALL, BY_STEP
from divebook.errors import ApprovalDeniedError, DefinitionError, StepError
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.events.event import to_datetime
from divebook.events.recorded import opened
from divebook.events.values import normalize
from divebook.questions import Question
from divebook.questions.question import CONFIRMATION
from divebook.runtime.clock import mark_lost
from divebook.runtime.compute.threads import THREADS, Compute, Task
from divebook.runtime.context import StepContext
from divebook.runtime.loop import ENGINE
from divebook.steps.conversations import DurableLog, Entry
from divebook.text.format import local_time
from divebook.workflow.functions import (
    CONTEXT,
    CURRENT,
    IDEMPOTENCY_KEY,
    StepFunction,
    UserFunction,
    place_of,
    require_itself,
)
from divebook.workflow.json_schemas import require_schema
from divebook.workflow.servers import ASK, DENY, Approvals

# Calls that a person must approve first, and may change: of actions, steps and tools alike.
#
# The policy is asked about a call that the log does not have, and never again: a rule may have expired since, or been
# revoked. Where it wants a person's yes, the question and its answer decide, whatever has become of the policy.


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
    data = shown_on_card(call, verdict.rule)
    wanted = schema_of_answer(_sound(schema))
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
    if context.miss_policy is None or context.miss_policy.writes:
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


class CallContext:
    """What an action may tell the execution that calls it, if it has a parameter ``context``."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self.execution_id = context.execution_id

    def emit(self, name: str, data: Any = None) -> None:
        """Record an event of the action's own, also from its thread; one of a call that is made again comes again."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            ENGINE.call(functools.partial(self._context.emit, name, data))
        else:
            self._context.emit(name, data)


async def call(
    context: StepContext,
    function: UserFunction,
    arguments: Mapping[str, Any],
    key: str | None = None,
    *,
    recorded: tuple[str, Mapping[str, Any]] | None = None,
    kept: Callable[[Any], Any] | None = None,
) -> Any:
    """Call a function with arguments by name, and return the recorded form of its result.

    Parameters
    ----------
    key
        Name of the call within the step, where there are several; by default calls are numbered.
    recorded
        What the log says of the call, where that is not its arguments: its kind and its parameters.
    kept
        Makes of the result what the log keeps.

    Raises
    ------
    ApprovalDeniedError
        A person said no.
    Exception
        Whatever the last attempt raised; an `OperationError` where the log has it.
    """
    name = context.next_key() if key is None else key
    if function.makes_calls:
        return await function.function(context, workspace_of(context, function), arguments, name)
    if function.approval:
        asked = "approval" if key is None else f"{key}-approval"
        arguments = await _approved(context, function, arguments, asked, name)
    operation_type, parameters = recorded or _recorded(function, arguments)
    compute = compute_for(context, function, arguments)

    workspace = workspace_of(context, function)
    undone = function if isinstance(function, StepFunction) and function.rollback is not None else None
    noted = None if undone is None else functools.partial(_undoing, undone, arguments)
    is_of_step = context.step.rollback is not None and context.step.type == "action"
    by = BY_CALL if undone is not None else BY_STEP if is_of_step else None

    is_limited = function.timeout is not None or context.is_limited

    def attempt(failures: int) -> Awaitable[Any]:
        invoked = functools.partial(invoke, context, function, arguments, name, compute, failures=failures)
        if undone is not None:
            invoked = functools.partial(_undone_by_its_own, undone, invoked)
        slot = compute.slot(repeatable=function.is_repeatable, limited=is_limited)
        return context.operation(
            operation_type,
            parameters,
            invoked if kept is None and slot is None else functools.partial(made_in_slot, invoked, slot, kept),
            key=name,
            repeatable=function.is_repeatable,
            attempt=failures,
            timeout=function.timeout,
            noted=noted,
            slot=slot,
            workspace=workspace,
            undone=by,
        )

    policy = function.retry if context.step.retry is None else None
    return await context.retried(name, policy, attempt)


async def _undone_by_its_own(function: StepFunction, invoked: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call, unless another function than its own would undo it."""
    assert function.rollback is not None  # noqa: S101 - who asks has looked
    require_itself(function.rollback)
    return await invoked()


def _undoing(function: StepFunction, arguments: Mapping[str, Any], result: Any) -> catalog.RollbackAdded:
    assert function.rollback is not None  # noqa: S101 - who asks has looked
    given = storable(function.undoing(arguments, result), "parameters")
    return catalog.RollbackAdded(function.rollback.name, given, "step", place_of(function.rollback))


def workspace_of(context: StepContext, function: UserFunction) -> str | None:
    """Return the workspace that a call of a function works in: its own, else that of the step, else of the workflow.

    Raises
    ------
    StepError
        It works in one, and none is named.
    """
    return None if function.workspace is None else named_workspace(context, function.label, function.workspace)


def named_workspace(context: StepContext, label: str, name: str = "") -> str:
    """Return a workspace by its name, by default that of the step or workflow; `StepError` if none is named."""
    found = name or context.step.workspace or context.workflow.workspace
    if not found:
        raise StepError(f"{label} works in a workspace, and none is named: add Workspace to the workflow")
    return found


async def made_in_slot(
    invoked: Callable[[], Awaitable[Any]], slot: Slot | None, kept: Callable[[Any], Any] | None = None
) -> Any:
    """Make a call, and give its slot back as soon as it has returned."""
    try:
        result = await invoked()
    finally:
        if slot is not None:
            slot.release()  # whatever follows, such as a question, keeps no other call waiting
    if kept is None:
        return result
    try:
        return kept(result)
    except Exception as error:
        mark_lost(error, result)
        raise


def _recorded(function: UserFunction, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what the log says of a call: its kind and its parameters."""
    if isinstance(function, StepFunction):
        return STEP_EXECUTION, {"step": function.name, "arguments": dict(arguments)}
    return ACTION_EXECUTION, {"action_name": function.name, "params": dict(arguments)}


async def _approved(
    context: StepContext, function: UserFunction, arguments: Mapping[str, Any], key: str, operation: str | int
) -> Mapping[str, Any]:
    """Return the arguments that a person approved."""
    shown = function.with_defaults(arguments) if isinstance(function, StepFunction) else dict(arguments)
    return await approved(
        context, function.kind, function.name, shown, description=function.description, key=key, operation=operation
    )


def compute_for(context: StepContext, function: UserFunction, arguments: Mapping[str, Any]) -> Compute:
    """Return where the function runs: as the step says, else the function, else the environment.

    Raises
    ------
    StepError
        It cannot run where it is to.
    """
    asked = context.step.executor or function.executor
    takes = function.takes
    is_here = function.workspace is not None
    is_bound = function.stays_here or is_here or (takes.context and CONTEXT not in arguments)
    if asked is None:
        return THREADS if takes.is_async or is_bound else context.executors.default
    compute = context.executors.named(asked)
    if takes.is_async:
        raise StepError(f"{function.label} is async and runs on the engine's loop: write def, or name no executor")
    if is_bound and not compute.shares_memory:
        raise StepError(
            f"{function.label} takes what lives in this process only ({'workspace' if is_here else CONTEXT}) and "
            'cannot run in another: leave that out, or let it run in a thread: executor="thread"'
        )
    return compute


def _is_awaitable(result: object) -> bool:
    """Return whether a function returned what its result is awaited from.

    A result that cannot be looked at, such as a weak reference to what is gone, is not awaited: the function has
    returned all the same, and whoever records the result says that it cannot be stored.
    """
    try:
        return inspect.isawaitable(result)
    except BaseException:  # noqa: BLE001 - a person's class raises what it likes when it is asked for its class
        return False


async def invoke(
    context: StepContext,
    function: UserFunction,
    arguments: Mapping[str, Any],
    key: str | int,
    compute: Compute = THREADS,
    *,
    failures: int | None = None,
) -> Any:
    """Call the function itself, unrecorded: steps inside steps are ordinary calls.

    `failures` says how often the call has failed before, where that is not what the step says.
    """
    given = opened(dict(arguments))
    takes = function.takes
    if takes.key and IDEMPOTENCY_KEY not in given:
        given[IDEMPOTENCY_KEY] = context.idempotency_key("step" if isinstance(key, int) else key)
    if takes.context and function.kind == "action":
        given.setdefault(CONTEXT, CallContext(context))
    try:
        args, kwargs = function.bound(given)
    except TypeError as error:
        raise StepError(f"{function.label} {error}") from error
    token = CURRENT.set(None)
    try:
        if takes.is_async:
            result = await function.function(*args, **kwargs)
            return await result if _is_awaitable(result) else result
        task = Task(
            f"{context.execution_id}/{context.place(key, failures).operation_id}",
            function.label,
            function.function,
            args,
            kwargs,
            function.timeout is not None or context.is_limited,
            function.is_repeatable,
            context.is_given_up,
        )
        result = await compute.run(task)
        return await result if _is_awaitable(result) else result
    finally:
        CURRENT.reset(token)


# What an environment says of calls that need a person's yes: its table, and a book of the rules that people made.


RULES = "divebook/rules"
"""Start key of the book of rules."""
ADDED = "added"
REVOKED = "revoked"
NOBODY = "nobody"


class EnvironmentApprovals:
    """The rules and modes of an environment, and what people allowed for every execution.

    Parameters
    ----------
    table
        Gives the rules and modes for the calls of an agent, of no agent for an empty name.
    """

    def __init__(self, table: Callable[[str], Approvals], books: DurableLog) -> None:
        self._table = table
        self._books = books

    def table(self, agent: str) -> Approvals:
        """Return the rules and modes for the calls of an agent."""
        return self._table(agent)

    async def lasting(self) -> Iterable[StandingRule]:
        """Return the rules that people made for every execution, as the store has them at this moment."""
        return await self._books.on_loop(self.standing)

    async def keep(self, rule: StandingRule) -> None:
        """Let a rule hold in every execution; one that was revoked since stays revoked."""
        entry = {ADDED: rule._asdict()}
        await self._books.on_loop(lambda: self._books.write(RULES, rule.rule_id, entry, rule.by or NOBODY))

    def standing(self) -> list[StandingRule]:
        """Return what `lasting` does, in any thread."""
        return rules_in(self._books.entries(RULES))

    def revoke(self, rule_id: str, by: str) -> None:
        """Let a rule that holds in every execution hold no more."""
        self._books.write(RULES, f"{REVOKED}/{rule_id}", {REVOKED: rule_id}, by)


def rules_in(entries: Iterable[Entry]) -> list[StandingRule]:
    """Return the rules of the book that nobody has revoked, oldest first."""
    rules: dict[str, StandingRule] = {}
    revoked: set[str] = set()
    for entry in entries:
        if ADDED in entry.value:
            known = {name: value for name, value in entry.value[ADDED].items() if name in StandingRule._fields}
            rules[known["rule_id"]] = StandingRule(**known)
        elif REVOKED in entry.value:
            revoked.add(entry.value[REVOKED])
    return [rule for rule in rules.values() if rule.rule_id not in revoked]


def rule_in_words(rule: StandingRule, execution_id: str | None) -> str:
    """Return a rule for people; `execution_id` is the run that it holds in, None for every run."""
    server = f" of {rule.server}" if rule.server else ""
    agent = f" by agent {rule.agent}" if rule.agent else ""
    until = "" if rule.expires_us is None else f", until {local_time(to_datetime(rule.expires_us))}"
    where = "every run" if execution_id is None else execution_id
    author = f" (made by {rule.by})" if rule.by else ""
    return f"{rule.outcome} {rule.kind} {rule.tool}{server}{agent} with {rule.arguments} in {where}{until}{author}"
