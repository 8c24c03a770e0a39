"""Calls of users' functions as recorded operations: approval, retries, time limit, and one operation per attempt.

`call` is used for action steps, functions with ``@step``, functions of pipeline stages, and all other code that passes
arguments to users' functions.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from divebook.definitions.functions import (
    CONTEXT,
    CURRENT,
    IDEMPOTENCY_KEY,
    RecordedFunction,
    UserFunction,
    place_of,
    require_unambiguous_name,
    typed_arguments,
)
from divebook.definitions.json_schemas import require_schema
from divebook.definitions.resources import ASK, DENY
from divebook.engine.approvals import (
    BY_PERSON,
    BY_RULE,
    Approved,
    Denied,
    ToolCall,
    Verdict,
    schema_of_answer,
    shown_on_card,
)
from divebook.engine.operations import ACTION_EXECUTION, STEP_EXECUTION, VERDICT, Slot
from divebook.engine.state import BY_CALL, BY_STEP
from divebook.errors import RENAMED, ApprovalDeniedError, DefinitionError, StepError, missing_attribute
from divebook.events import catalog
from divebook.events.codec import short_hash, storable
from divebook.events.recorded import ATOMS, opened
from divebook.events.values import normalize
from divebook.questions import Question
from divebook.questions.question import CONFIRMATION
from divebook.questions.wording import approval_of
from divebook.runtime.clock import mark_lost
from divebook.runtime.compute.threads import THREADS, Compute, Task
from divebook.runtime.context import StepContext
from divebook.runtime.loop import ENGINE
from divebook.scripting.templates import is_to_be_filled


class ToolContext:
    """Object through which an action or tool accesses the execution that calls it.

    It is passed as the parameter with the annotation ``ToolContext``, whatever its name. An action also receives it as
    a parameter ``context`` without an annotation and without a default. Models do not see this parameter of a tool.

    Attributes
    ----------
    run_id
        Id of the run that makes the call.
    """

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self.run_id = context.run_id

    if not TYPE_CHECKING:  # a type checker would accept any name otherwise

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, RENAMED)

    def emit(self, name: str, data: Any = None) -> None:
        """Record an application event in the log of the execution. Callable from the thread of the action. If the call
        is repeated, its events are recorded again.
        """
        # An action in a thread passes the event to the engine's loop. An async action runs on that loop already.
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
    prepared: PreparedCall | None = None,
    recorded: tuple[str, Mapping[str, Any]] | None = None,
    convert: Callable[[Any], Any] | None = None,
) -> Any:
    """Call a user's function as a recorded operation, with approval and retries. Return its result in recorded form.

    Parameters
    ----------
    arguments
        Arguments by parameter name.
    key
        Name of the operation within the step. By default, operations are numbered.
    prepared
        The result of `prepared_call` for this function, if the caller has it.
    recorded
        Type and parameters of the operation in the log, if they differ from the function and its arguments.
    convert
        Converts the result to the form that the log stores.

    Raises
    ------
    ApprovalDeniedError
        A person or a rule denied the call.
    Exception
        The error of the last attempt; an `OperationError` if it comes from the log.
    """
    name = context.next_key() if key is None else key
    # The action records its operations itself.
    if function.makes_calls:
        return await function.function(context, workspace_of(context, function), arguments, name)
    if function.approval:
        # The call of an action step has no name, and neither has its approval.
        approval_key = "approval" if key is None else f"{key}-approval"
        arguments = await _approved(context, function, arguments, approval_key, name)
    # A function that a stage of a pipeline makes for one call is not kept.
    if recorded is not None:
        prepared = PreparedCall(context, function)
    elif prepared is None:
        prepared = prepared_call(context, function)
    digest = None
    if recorded is not None:
        operation_type, parameters = recorded
    elif arguments is context.step.parameters:
        operation_type = prepared.operation_type
        parameters, digest = prepared.literal
    else:
        operation_type, parameters = prepared.operation_type, prepared.parameters_of(arguments)
    compute = THREADS if prepared.runs_on_loop else compute_for(context, function, arguments)
    # A call with a time limit waits for a slot of its executor first, so that waiting does not use up the time.
    is_limited = function.timeout is not None or context.is_limited
    is_repeatable = prepared.is_repeatable
    step_function = prepared.step_function
    rollback_event = None if step_function is None else functools.partial(_rollback_event, step_function, arguments)

    def attempt(failures: int) -> Awaitable[Any]:
        run_function = functools.partial(
            invoke, context, function, arguments, name, compute, failures=failures, prepared=prepared
        )
        # Checked before each attempt, because a cell may define the rollback function again meanwhile.
        if step_function is not None:
            run_function = functools.partial(_call_with_own_rollback, step_function, run_function)
        slot = None if prepared.runs_on_loop else compute.slot(repeatable=is_repeatable, limited=is_limited)
        if convert is not None or slot is not None:
            run_function = functools.partial(call_in_slot, run_function, slot, convert)
        return context.operation(
            operation_type,
            parameters,
            run_function,
            key=name,
            repeatable=is_repeatable,
            may_begin_early=prepared.may_begin_early,
            attempt=failures,
            timeout=function.timeout,
            noted=rollback_event,
            slot=slot,
            workspace=prepared.workspace,
            undone=prepared.rollback_owner,
            digest=digest,
        )

    # A step with a retry policy is repeated as a whole, so its calls are not retried as well.
    policy = function.retry if context.step.retry is None else None
    if policy is None and context.is_fresh:  # the usual case: nothing has failed, and nothing is retried
        return await attempt(0)
    return await context.retried(name, policy, attempt)


# --- what the calls of a function in a step have in common ------------------------------------------------------------


class PreparedCall:
    """Parts that all calls of a function in a step have in common, computed once for all runs of an environment.

    Attributes
    ----------
    definitions
        The function, the step and the workflow. They are kept alive, so that no other object gets their ids.
    step_parameters
        The parameters of the step for which this was computed. Code can change those of the step.
    workspace
        Name of the workspace in which the function works, or None.
    step_function
        The function, if it has a rollback function of its own; otherwise None.
    rollback_owner
        Reference to the rollback of the call, as in `divebook.events.catalog.OperationStarted`.
    has_templates
        True if the parameters of the step have templates to fill.
    runs_on_loop
        True if the function is async and has no executor, so that it runs on the loop of the engine.
    takes
        Properties of the function and its parameters.
    keeps_text
        True if a step stores the text of a result, as in the dialect ``dive``, and not the result itself.
    converts_arguments
        True if arguments are converted to the annotated types of the parameters.
    """

    def __init__(self, context: StepContext, function: UserFunction) -> None:
        step = context.step
        self.definitions = function, step, context.workflow
        self.step_parameters = copy.deepcopy(step.parameters) if step.parameters else {}
        self.has_templates = bool(step.parameters) and is_to_be_filled(step.parameters)
        self.operation_type = STEP_EXECUTION if isinstance(function, RecordedFunction) else ACTION_EXECUTION
        self.workspace = workspace_of(context, function)
        # The rollback of the function itself takes precedence over the one that its step names.
        self.step_function: RecordedFunction | None = None
        self.rollback_owner: str | None = None
        if isinstance(function, RecordedFunction) and function.rollback is not None:
            self.step_function = function
            self.rollback_owner = BY_CALL
        elif step.rollback is not None and step.type == "action":
            self.rollback_owner = BY_STEP
        self.is_repeatable = function.is_repeatable
        # What happens in a workspace, and what can be undone, must be in the log before it happens.
        self.may_begin_early = function.idempotent and self.workspace is None and self.rollback_owner is None
        self.takes = function.takes
        self.runs_on_loop = self.takes.is_async and step.executor is None and function.executor is None
        self.keeps_text = context.workflow.manner.keeps_text
        self.converts_arguments = _converts_arguments(context, function)

    @functools.cached_property
    def literal(self) -> tuple[Mapping[str, Any], str]:
        """Parameters and their hash, as the log has them, for a call with the parameters of the step."""
        _, step, _ = self.definitions
        parameters = normalize(self.parameters_of(step.parameters), "parameters")
        return parameters, short_hash(parameters, "parameters")

    def parameters_of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the operation of a call, from its arguments by name."""
        function, _, _ = self.definitions
        if self.operation_type == STEP_EXECUTION:
            return {"step": function.name, "arguments": dict(arguments)}
        return {"action_name": function.name, "params": dict(arguments)}


def _converts_arguments(context: StepContext, function: UserFunction) -> bool:
    """Return whether the arguments of a function are converted to the annotated types of its parameters."""
    # The arguments of other functions come from Python code, or are converted by the agent's library.
    return function.kind == "action" and context.workflow.manner.converts_inputs


MOST_PREPARED = 1024
"""Maximum number of prepared calls that an environment keeps. The oldest one is dropped first."""


def prepared_call(context: StepContext, function: UserFunction) -> PreparedCall:
    """Return the parts that all calls of a function in the step of a context have in common."""
    prepared_calls = context.prepared_calls
    key = id(function), id(context.step), id(context.workflow)
    prepared = prepared_calls.get(key)
    if prepared is None or prepared.step_parameters != context.step.parameters:
        prepared = prepared_calls[key] = PreparedCall(context, function)
        if len(prepared_calls) > MOST_PREPARED:
            prepared_calls.popitem(last=False)
    return prepared


async def _call_with_own_rollback(function: RecordedFunction, run_function: Callable[[], Awaitable[Any]]) -> Any:
    """Call a step function that has a rollback function. Before the call, raise an error if the rollback function
    cannot be found again by its name, because the name now refers to another function.
    """
    assert function.rollback is not None  # noqa: S101 - callers check this
    require_unambiguous_name(function.rollback)
    return await run_function()


def _rollback_event(function: RecordedFunction, arguments: Mapping[str, Any], result: Any) -> catalog.RollbackAdded:
    assert function.rollback is not None  # noqa: S101 - callers check this
    # The arguments of the rollback are recorded with the call, so that any process can undo it.
    parameters = storable(function.undoing(arguments, result), "parameters")
    return catalog.RollbackAdded(function.rollback.name, parameters, "step", place_of(function.rollback))


def workspace_of(context: StepContext, function: UserFunction) -> str | None:
    """Return the name of the workspace in which a function works; None for a function that needs no workspace.

    The workspace of the function takes precedence over that of the step, which takes precedence over that of the
    workflow.

    Raises
    ------
    StepError
        The function works in a workspace, but none is configured.
    """
    return None if function.workspace is None else named_workspace(context, function.kind_and_name, function.workspace)


def named_workspace(context: StepContext, label: str, name: str = "") -> str:
    """Return the name of a workspace, by default the workspace of the step or else of the workflow; raise `StepError`
    if none is set.
    """
    workspace = name or context.step.workspace or context.workflow.workspace
    if not workspace:
        raise StepError(f"{label} needs a workspace, but none is named: add Workspace to the workflow")
    return workspace


async def call_in_slot(
    run_function: Callable[[], Awaitable[Any]], slot: Slot | None, convert: Callable[[Any], Any] | None = None
) -> Any:
    """Call a function and convert its result. Release the concurrency slot of the call as soon as the function has
    returned, before the conversion.
    """
    try:
        result = await run_function()
    finally:
        if slot is not None:
            slot.release()  # a later question about this call must not delay other calls
    if convert is None:
        return result
    # The call took effect. If its result cannot be converted, people still see a description of it.
    try:
        return convert(result)
    except Exception as error:
        mark_lost(error, result)
        raise


async def _approved(
    context: StepContext, function: UserFunction, arguments: Mapping[str, Any], key: str, operation: str | int
) -> Mapping[str, Any]:
    """Ask a person to approve a call of a user's function. Return the approved arguments, which the person may have
    edited.
    """
    # People also see the values of parameters that the call leaves out.
    shown = function.with_defaults(arguments) if isinstance(function, RecordedFunction) else dict(arguments)
    return await approved_parameters(
        context, function.kind, function.name, shown, description=function.description, key=key, operation=operation
    )


def compute_for(context: StepContext, function: UserFunction, arguments: Mapping[str, Any]) -> Compute:
    """Return the executor in which a user's function runs: the executor of the step, else that of the function, else
    the environment's default.

    Raises
    ------
    StepError
        An async function has an executor, or the function needs an object of this process and its executor is another
        process.
    """
    executor = context.step.executor or function.executor
    takes = function.takes
    parameter = takes.context and function.context_parameter
    is_here = function.workspace is not None
    # Objects of this process, such as a workspace or a context, cannot be sent to another process.
    is_bound = function.stays_here or is_here or (bool(parameter) and parameter not in arguments)
    if executor is None:
        # Without a named executor, such a function stays in this process instead of the environment's default executor.
        return THREADS if takes.is_async or is_bound else context.executors.default
    compute = context.executors.named(executor)
    if takes.is_async:
        raise StepError(
            f"{function.kind_and_name} is async and runs on the engine's loop: write def, or remove the executor"
        )
    if is_bound and not compute.shares_memory:
        raise StepError(
            f"{function.kind_and_name} takes an argument that exists only in this process "
            f"({'workspace' if is_here else CONTEXT}), so it cannot run in another process: remove that argument, or "
            'run the function in a thread: executor="thread"'
        )
    return compute


def _is_awaitable(result: object) -> bool:
    """Return True if the result of a function is an awaitable.

    A result that cannot be inspected, such as a dead weak reference, is not awaited: the function has returned, and the
    recorder reports that the result cannot be stored.
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
    prepared: PreparedCall | None = None,
) -> Any:
    """Call a user's function in its executor, without recording the call as an operation.

    Steps that the function calls are ordinary function calls too. `failures` is the number of earlier failures of this
    operation, if that number differs from the failures of the step.
    """
    # Opened for each attempt, because a failed attempt may have changed its arguments.
    values = opened(dict(arguments))
    converts = _converts_arguments(context, function) if prepared is None else prepared.converts_arguments
    if converts:
        values = typed_arguments(function, values)
    takes = function.takes if prepared is None else prepared.takes
    if takes.key and IDEMPOTENCY_KEY not in values:
        # A call without a name has a number as its key. It is the one call of an action step.
        values[IDEMPOTENCY_KEY] = context.idempotency_key("step" if isinstance(key, int) else key, arguments)
    if takes.context and (parameter := function.context_parameter):
        values.setdefault(parameter, ToolContext(context))
    try:
        args, kwargs = function.bound(values)
    except TypeError as error:
        raise StepError(f"{function.kind_and_name} {error}") from error
    # Without a current workflow context, `@step` functions that the function calls run as ordinary functions.
    token = CURRENT.set(None)
    try:
        if takes.is_async:
            # A decorator may make the function return another awaitable.
            result = await function.function(*args, **kwargs)
            return await result if type(result) not in ATOMS and _is_awaitable(result) else result
        task = Task(
            f"{context.run_id}/{context.place(key, failures).operation_id}",
            function.kind_and_name,
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


# --- approval --------------------------------------------------------------------------------------------------------
#
# Approval of tool calls, actions and steps: by the rules of the environment, or by a person.
#
# The rules are applied only to a call that the log does not have. A recorded decision is never made again, because a
# rule may have expired or been revoked since. If the rules require a person, the recorded question and its answer
# decide, even if the rules changed later.


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
    is_recorded = context.record_of(operation, attempt) is not None
    # A recorded question is asked again with its recorded wording, so that the log matches.
    question_before = context.question_of(key)
    if question_before is not None:
        # Only for this tool with these arguments: an approval of others must not count.
        data = {**(question_before.data or {}), call.kind: call.tool, "parameters": dict(call.arguments)}
        wording = approval_of(call.tool, question_before.message, data, question_before.schema)
        answer = await context.interrupt(CONFIRMATION, wording.question, key=key, within=within, **wording.details)
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
    wording = approval_of(call.tool, verdict.reason or description or None, data, answer_schema)
    answer = await context.interrupt(CONFIRMATION, wording.question, key=key, within=within, **wording.details)
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
