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

from divebook.engine.operations import ACTION_EXECUTION, STEP_EXECUTION
from divebook.errors import StepError
from divebook.events.recorded import opened
from divebook.execution.compute import Task, Threads
from divebook.execution.context import StepContext
from divebook.execution.engine_thread import ENGINE
from divebook.steps.approval import approved
from divebook.workflow.functions import CONTEXT, CURRENT, IDEMPOTENCY_KEY, StepFunction, UserFunction


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
    if function.approval:
        arguments = await _approved(context, function, arguments, "approval" if key is None else f"{key}-approval")
    operation_type, parameters = recorded or _recorded(function, arguments)
    name = context.next_key() if key is None else key
    invoked = functools.partial(invoke, context, function, arguments, name)

    async def made() -> Any:
        return kept(await invoked())  # type: ignore[misc]

    make = invoked if kept is None else made

    def attempt(failures: int) -> Awaitable[Any]:
        return context.operation(
            operation_type,
            parameters,
            make,
            key=name,
            repeatable=function.is_repeatable,
            attempt=failures,
            timeout=function.timeout,
        )

    policy = function.retry if context.step.retry is None else None
    return await context.retried(name, policy, attempt)


def _recorded(function: UserFunction, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what the log says of a call: its kind and its parameters."""
    if isinstance(function, StepFunction):
        return STEP_EXECUTION, {"step": function.name, "arguments": dict(arguments)}
    return ACTION_EXECUTION, {"action_name": function.name, "params": dict(arguments)}


async def _approved(
    context: StepContext, function: UserFunction, arguments: Mapping[str, Any], key: str
) -> Mapping[str, Any]:
    """Return the arguments that a person approved."""
    shown = function.with_defaults(arguments) if isinstance(function, StepFunction) else dict(arguments)
    return await approved(context, function.kind, function.name, shown, description=function.description, key=key)


async def invoke(context: StepContext, function: UserFunction, arguments: Mapping[str, Any], key: str | int) -> Any:
    """Call the function itself, unrecorded: steps inside steps are ordinary calls."""
    given = opened(dict(arguments))
    if function.takes_key and IDEMPOTENCY_KEY not in given:
        given[IDEMPOTENCY_KEY] = context.idempotency_key("step" if isinstance(key, int) else key)
    if function.kind == "action" and function.takes_context:
        given.setdefault(CONTEXT, CallContext(context))
    try:
        args, kwargs = function.bound(given)
    except TypeError as error:
        raise StepError(f"{function.label} {error}") from error
    token = CURRENT.set(None)
    try:
        if _is_coroutine_function(function.function):
            return await function.function(*args, **kwargs)
        is_limited = function.timeout is not None or context.is_limited
        task = Task(f"{context.execution_id}/{context.path}/{key}", function.function, args, kwargs, is_limited)
        stays_here = function.stays_here or isinstance(given.get(CONTEXT), CallContext)
        result = await (Threads() if stays_here else context.compute).run(task)
        return await result if inspect.isawaitable(result) else result
    finally:
        CURRENT.reset(token)


_is_coroutine_function: Callable[[Any], bool] = functools.lru_cache(maxsize=1024)(inspect.iscoroutinefunction)
