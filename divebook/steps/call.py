"""Calls of users' functions from steps: approval, retries, time limit, and one recorded operation per attempt.

Action steps, functions with ``@step``, functions of pipeline stages, and all other code that passes arguments to users'
functions use `call`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from divebook.engine.operations import ACTION_EXECUTION, STEP_EXECUTION, Slot
from divebook.engine.state import BY_CALL, BY_STEP
from divebook.errors import StepError
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.events.recorded import opened
from divebook.runtime.clock import mark_lost
from divebook.runtime.compute.threads import THREADS, Compute, Task
from divebook.runtime.context import StepContext
from divebook.runtime.loop import ENGINE
from divebook.steps.approval import approved_parameters
from divebook.workflow.functions import (
    CONTEXT,
    CURRENT,
    IDEMPOTENCY_KEY,
    StepFunction,
    UserFunction,
    place_of,
    require_unambiguous_name,
)


class CallContext:
    """Access of an action to the execution that calls it. An action with a parameter ``context`` gets it."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self.execution_id = context.execution_id

    def emit(self, name: str, data: Any = None) -> None:
        """Record an event of the action, also from its thread. A repeated call records its events again."""
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
    convert: Callable[[Any], Any] | None = None,
) -> Any:
    """Call a function with arguments by name; return the recorded form of its result.

    Parameters
    ----------
    key
        Name of the call within the step. By default calls are numbered.
    recorded
        Kind and parameters that the log records, if they are not those of the function and its arguments.
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
    if function.makes_calls:
        return await function.function(context, workspace_of(context, function), arguments, name)
    if function.approval:
        approval_key = "approval" if key is None else f"{key}-approval"
        arguments = await _approved(context, function, arguments, approval_key, name)
    operation_type, parameters = recorded or _operation_of(function, arguments)
    compute = compute_for(context, function, arguments)

    workspace = workspace_of(context, function)
    undone = function if isinstance(function, StepFunction) and function.rollback is not None else None
    rollback_event = None if undone is None else functools.partial(_rollback_event, undone, arguments)
    is_of_step = context.step.rollback is not None and context.step.type == "action"
    by = BY_CALL if undone is not None else BY_STEP if is_of_step else None

    is_limited = function.timeout is not None or context.is_limited

    def attempt(failures: int) -> Awaitable[Any]:
        invoked = functools.partial(invoke, context, function, arguments, name, compute, failures=failures)
        if undone is not None:
            invoked = functools.partial(_call_with_own_rollback, undone, invoked)
        slot = compute.slot(repeatable=function.is_repeatable, limited=is_limited)
        return context.operation(
            operation_type,
            parameters,
            invoked if convert is None and slot is None else functools.partial(call_in_slot, invoked, slot, convert),
            key=name,
            repeatable=function.is_repeatable,
            attempt=failures,
            timeout=function.timeout,
            noted=rollback_event,
            slot=slot,
            workspace=workspace,
            undone=by,
        )

    policy = function.retry if context.step.retry is None else None
    return await context.retried(name, policy, attempt)


async def _call_with_own_rollback(function: StepFunction, invoked: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call, unless another function has replaced its rollback."""
    assert function.rollback is not None  # noqa: S101 - who asks has looked
    require_unambiguous_name(function.rollback)
    return await invoked()


def _rollback_event(function: StepFunction, arguments: Mapping[str, Any], result: Any) -> catalog.RollbackAdded:
    assert function.rollback is not None  # noqa: S101 - who asks has looked
    parameters = storable(function.undoing(arguments, result), "parameters")
    return catalog.RollbackAdded(function.rollback.name, parameters, "step", place_of(function.rollback))


def workspace_of(context: StepContext, function: UserFunction) -> str | None:
    """Return the workspace in which a call works: that of the function, else of the step, else of the workflow.

    Raises
    ------
    StepError
        It works in one, and none is named.
    """
    return None if function.workspace is None else named_workspace(context, function.label, function.workspace)


def named_workspace(context: StepContext, label: str, name: str = "") -> str:
    """Return the name of a workspace, by default that of the step or workflow; raise `StepError` if none is set."""
    workspace = name or context.step.workspace or context.workflow.workspace
    if not workspace:
        raise StepError(f"{label} works in a workspace, and none is named: add Workspace to the workflow")
    return workspace


async def call_in_slot(
    invoked: Callable[[], Awaitable[Any]], slot: Slot | None, convert: Callable[[Any], Any] | None = None
) -> Any:
    """Make a call, and release its slot as soon as it has returned."""
    try:
        result = await invoked()
    finally:
        if slot is not None:
            slot.release()  # whatever follows, such as a question, keeps no other call waiting
    if convert is None:
        return result
    try:
        return convert(result)
    except Exception as error:
        mark_lost(error, result)
        raise


def _operation_of(function: UserFunction, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the recorded kind and parameters of a call."""
    if isinstance(function, StepFunction):
        return STEP_EXECUTION, {"step": function.name, "arguments": dict(arguments)}
    return ACTION_EXECUTION, {"action_name": function.name, "params": dict(arguments)}


async def _approved(
    context: StepContext, function: UserFunction, arguments: Mapping[str, Any], key: str, operation: str | int
) -> Mapping[str, Any]:
    """Return the arguments that a person approved."""
    shown = function.with_defaults(arguments) if isinstance(function, StepFunction) else dict(arguments)
    return await approved_parameters(
        context, function.kind, function.name, shown, description=function.description, key=key, operation=operation
    )


def compute_for(context: StepContext, function: UserFunction, arguments: Mapping[str, Any]) -> Compute:
    """Return the executor of a function: that of the step, else of the function, else of the environment.

    Raises
    ------
    StepError
        It cannot run where it is to.
    """
    executor = context.step.executor or function.executor
    takes = function.takes
    is_here = function.workspace is not None
    is_bound = function.stays_here or is_here or (takes.context and CONTEXT not in arguments)
    if executor is None:
        return THREADS if takes.is_async or is_bound else context.executors.default
    compute = context.executors.named(executor)
    if takes.is_async:
        raise StepError(f"{function.label} is async and runs on the engine's loop: write def, or name no executor")
    if is_bound and not compute.shares_memory:
        raise StepError(
            f"{function.label} takes what lives in this process only ({'workspace' if is_here else CONTEXT}) and "
            'cannot run in another: leave that out, or let it run in a thread: executor="thread"'
        )
    return compute


def _is_awaitable(result: object) -> bool:
    """Return True if a function returned an awaitable.

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
) -> Any:
    """Call the function itself without recording it: steps inside steps are ordinary calls.

    `failures` is the number of earlier failures of the call, if it differs from that of the step.
    """
    values = opened(dict(arguments))
    takes = function.takes
    if takes.key and IDEMPOTENCY_KEY not in values:
        values[IDEMPOTENCY_KEY] = context.idempotency_key("step" if isinstance(key, int) else key)
    if takes.context and function.kind == "action":
        values.setdefault(CONTEXT, CallContext(context))
    try:
        args, kwargs = function.bound(values)
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
