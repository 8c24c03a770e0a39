"""The one way to call a person's function from a step: approved, tried again, limited in time, and recorded once.

Action steps, functions made with ``@step``, those of a pipeline's stages, and whatever else hands arguments to such a
function come through `call`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from divebook.engine.operations import ACTION_EXECUTION, STEP_EXECUTION, Slot
from divebook.engine.rolling_back import BY_CALL, BY_STEP
from divebook.errors import StepError
from divebook.events import catalog
from divebook.events.codec import storable
from divebook.events.recorded import opened
from divebook.execution.compute import THREADS, Compute, Task
from divebook.execution.context import StepContext
from divebook.execution.engine_thread import ENGINE
from divebook.execution.lost_results import mark_lost
from divebook.steps.approval import approved
from divebook.workflow.functions import CURRENT, StepFunction
from divebook.workflow.undoing import place_of, require_itself
from divebook.workflow.user_functions import CONTEXT, IDEMPOTENCY_KEY, UserFunction


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
    given, takes = opened(dict(arguments)), function.takes
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
