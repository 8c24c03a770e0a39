"""Calls of users' functions as recorded operations: approval, retries, time limit, and one operation per attempt.

`call` is used for action steps, functions with ``@step``, functions of pipeline stages, and all other code that passes
arguments to users' functions.
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


class ToolContext:
    """Object through which an action accesses the execution that calls it. The action receives it as its parameter
    ``context``.
    """

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self.execution_id = context.execution_id

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
    operation_type, parameters = recorded or _operation_of(function, arguments)
    compute = compute_for(context, function, arguments)

    workspace = workspace_of(context, function)
    # The rollback of the function itself takes precedence over the one that its step names.
    step_function = function if isinstance(function, StepFunction) and function.rollback is not None else None
    rollback_event = None if step_function is None else functools.partial(_rollback_event, step_function, arguments)
    is_of_step = context.step.rollback is not None and context.step.type == "action"
    rollback_owner = None
    if step_function is not None:
        rollback_owner = BY_CALL
    elif is_of_step:
        rollback_owner = BY_STEP

    # A call with a time limit waits for a slot of its executor first, so that waiting does not use up the time.
    is_limited = function.timeout is not None or context.is_limited

    def attempt(failures: int) -> Awaitable[Any]:
        run_function = functools.partial(invoke, context, function, arguments, name, compute, failures=failures)
        # Checked before each attempt, because a cell may define the rollback function again meanwhile.
        if step_function is not None:
            run_function = functools.partial(_call_with_own_rollback, step_function, run_function)
        slot = compute.slot(repeatable=function.is_repeatable, limited=is_limited)
        if convert is not None or slot is not None:
            run_function = functools.partial(call_in_slot, run_function, slot, convert)
        return context.operation(
            operation_type,
            parameters,
            run_function,
            key=name,
            repeatable=function.is_repeatable,
            attempt=failures,
            timeout=function.timeout,
            noted=rollback_event,
            slot=slot,
            workspace=workspace,
            undone=rollback_owner,
        )

    # A step with a retry policy is repeated as a whole, so its calls are not retried as well.
    policy = function.retry if context.step.retry is None else None
    return await context.retried(name, policy, attempt)


async def _call_with_own_rollback(function: StepFunction, run_function: Callable[[], Awaitable[Any]]) -> Any:
    """Call a step function that has a rollback function. Before the call, raise an error if the rollback function
    cannot be found again by its name, because the name now refers to another function.
    """
    assert function.rollback is not None  # noqa: S101 - callers check this
    require_unambiguous_name(function.rollback)
    return await run_function()


def _rollback_event(function: StepFunction, arguments: Mapping[str, Any], result: Any) -> catalog.RollbackAdded:
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
    return None if function.workspace is None else named_workspace(context, function.label, function.workspace)


def named_workspace(context: StepContext, label: str, name: str = "") -> str:
    """Return the name of a workspace, by default the workspace of the step or else of the workflow; raise `StepError`
    if none is set.
    """
    workspace = name or context.step.workspace or context.workflow.workspace
    if not workspace:
        raise StepError(f"{label} works in a workspace, and none is named: add Workspace to the workflow")
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


def _operation_of(function: UserFunction, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(function, StepFunction):
        return STEP_EXECUTION, {"step": function.name, "arguments": dict(arguments)}
    return ACTION_EXECUTION, {"action_name": function.name, "params": dict(arguments)}


async def _approved(
    context: StepContext, function: UserFunction, arguments: Mapping[str, Any], key: str, operation: str | int
) -> Mapping[str, Any]:
    """Ask a person to approve a call of a user's function. Return the approved arguments, which the person may have
    edited.
    """
    # People also see the values of parameters that the call leaves out.
    shown = function.with_defaults(arguments) if isinstance(function, StepFunction) else dict(arguments)
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
    is_here = function.workspace is not None
    # Objects of this process, such as a workspace or a context, cannot be sent to another process.
    is_bound = function.stays_here or is_here or (takes.context and CONTEXT not in arguments)
    if executor is None:
        # Without a named executor, such a function stays in this process instead of the environment's default executor.
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
) -> Any:
    """Call a user's function in its executor, without recording the call as an operation.

    Steps that the function calls are ordinary function calls too. `failures` is the number of earlier failures of this
    operation, if that number differs from the failures of the step.
    """
    # Opened for each attempt, because a failed attempt may have changed its arguments.
    values = opened(dict(arguments))
    takes = function.takes
    if takes.key and IDEMPOTENCY_KEY not in values:
        # A call without a name has a number as its key. It is the one call of an action step.
        values[IDEMPOTENCY_KEY] = context.idempotency_key("step" if isinstance(key, int) else key, arguments)
    if takes.context and function.kind == "action":
        values.setdefault(CONTEXT, ToolContext(context))
    try:
        args, kwargs = function.bound(values)
    except TypeError as error:
        raise StepError(f"{function.label} {error}") from error
    # Without a current workflow context, `@step` functions that the function calls run as ordinary functions.
    token = CURRENT.set(None)
    try:
        if takes.is_async:
            # A decorator may make the function return another awaitable.
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
