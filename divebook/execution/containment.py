"""Keeps what code inside a step raises from ending more than that step.

SystemExit, a cancellation that the code made itself, and GeneratorExit would otherwise unwind the engine's own tasks,
and with them executions that have nothing to do with it (`tests/execution/test_failing.py` raises each of them).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from divebook.errors import OperationError
from divebook.execution.strands import Suspended
from divebook.execution.unrecorded_waits import engine_code


async def contained(call: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> Any:
    """Await code that is not ours; what would end the whole engine, were it let through, becomes an ordinary error.

    `loop` is the one that runs, which takes longer to find than to be given.

    Raises
    ------
    OperationError
        The code called `sys.exit`, or raised KeyboardInterrupt or another error that derives from BaseException alone,
        or a cancellation that no code asked for.
    """
    task = asyncio.current_task(loop)
    try:
        with engine_code():
            return await call
    except (Exception, Suspended):
        raise
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling():
            raise
        raise OperationError("it was cancelled from inside: something it awaited was cancelled") from error
    except GeneratorExit as error:
        if _running_task() is not task:  # it was not raised: this very coroutine is being thrown away
            raise
        raise _ending(error) from error
    except BaseExceptionGroup as group:
        _, others = group.split(Suspended)  # from a task group of the code's own
        if others is None:
            raise Suspended from group
        raise (others if isinstance(others, Exception) else _ending(group)) from group
    except BaseException as error:
        raise _ending(error) from error


def _ending(error: BaseException) -> OperationError:
    return OperationError(f"it raised {type(error).__name__}({error}), which would end the engine")


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # there is no loop on this thread
        return None
