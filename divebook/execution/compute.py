"""Where a person's code runs: in threads, or in any `concurrent.futures.Executor`, such as a pool of processes.

The log stays with the process that drives the execution: the intent of a call is recorded before `Compute.run`, and
what comes back after it. A backend must only be truthful about this: the result, the error that the code raised, or
`OutcomeUnknownError` where the call may have begun and its end is not known. A call that may be made twice is then
made again, for any other a person is asked.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from divebook.errors import OutcomeUnknownError
from divebook.execution.threads import in_thread


@dataclass(frozen=True, slots=True)
class Task:
    """One call of code that may block."""

    key: str
    """The same for the same call of the same execution, in whatever process it is made."""
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    is_limited: bool = False
    """Whether the call has a time limit, after which it is no longer waited for."""


class Compute(Protocol):
    """Runs tasks."""

    async def run(self, task: Task) -> Any:
        """Return the result; cancelling the await gives the task up."""


class Threads:
    """A thread of this process for each task; the default."""

    async def run(self, task: Task) -> Any:
        """Return the result; what has begun is waited for, unless it has a time limit."""
        call = functools.partial(task.function, *task.args, **task.kwargs)
        return await in_thread(call, abandoned=task.is_limited)


class Pool:
    """Any executor: threads, processes, loky, ``client.get_executor()`` of Dask.

    To an executor that does not share this process's memory, functions travel by value (cloudpickle), since the name of
    a ``@step`` leads to what records its calls and not to the function itself.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._shares_memory = isinstance(executor, ThreadPoolExecutor)

    async def run(self, task: Task) -> Any:
        """Return the result.

        Raises
        ------
        OutcomeUnknownError
            The executor broke while the task was with it, as when one of its processes died.
        """
        try:
            return await asyncio.wrap_future(self._submit(task))
        except BrokenExecutor as error:
            raise OutcomeUnknownError(f"{type(error).__name__} while {task.key} was running: {error}") from error

    def _submit(self, task: Task) -> Any:
        if self._shares_memory:
            return self._executor.submit(task.function, *task.args, **task.kwargs)
        import cloudpickle

        return self._executor.submit(call_shipped, cloudpickle.dumps((task.function, task.args, dict(task.kwargs))))


def call_shipped(code: bytes) -> Any:
    """Make a call that came from another process."""
    import cloudpickle

    function, args, kwargs = cloudpickle.loads(code)
    return function(*args, **kwargs)


def compute_of(given: Compute | Executor | None) -> Compute:
    """Return what runs tasks; by default threads."""
    if given is None:
        return Threads()
    return Pool(given) if isinstance(given, Executor) else given
