"""Tasks that run side by side and end together: paths of an execution, items of a step, calls of a function.

A group does what anyio's task groups do, for half of what they cost a task. Each task has a cancel scope of its own, so
that a cancellation comes again where it is caught, and waits for what is shielded (`tests/execution/test_groups.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

STARTS_A_TURN = 32


async def after_start(number: int) -> None:
    """Let the loop turn after every few tasks that are started side by side; `number` counts them from 1.

    The calls of the first ones are then under way, or done, while the others still begin, and the ends of calls that
    take equally long are spread as well.
    """
    if number % STARTS_A_TURN == 0:
        await checkpoint()


class Group:
    """Tasks, and the block that waits for them; all of it on one loop."""

    def __init__(self) -> None:
        self.is_open = False
        """Whether the block goes on, so that something can still begin."""
        self._scope = anyio.CancelScope()
        """Around the block."""
        self._tasks: dict[asyncio.Task[None], tuple[anyio.CancelScope, Coroutine[Any, Any, object]]] = {}
        self._aside: set[asyncio.Task[None]] = set()
        """Tasks that the block does not wait for."""
        self._error: BaseException | None = None
        self._left: asyncio.Future[None] | None = None
        """To be done as soon as another task has ended."""

    @property
    def is_cancelled(self) -> bool:
        """Whether all of it has been told to end."""
        return self._scope.cancel_called

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Surround what starts the tasks; at its end, wait for all of them, and cancel those that are aside.

        An error of a task, or of the block, cancels the rest, and the first one is raised.
        """
        with self._scope:
            self.is_open = True
            try:
                yield
                while len(self._tasks) > len(self._aside):
                    await self._next_end()
            finally:
                self.is_open = False
                if self._tasks:
                    self.cancel()
                    with anyio.CancelScope(shield=True):
                        while self._tasks:
                            await self._next_end()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame

    def start(self, work: Coroutine[Any, Any, object], *, is_aside: bool = False) -> None:
        """Run something in a task of its own, unless the block is over; it does not wait for what is `aside`."""
        scope = type(self._scope)()  # `anyio.CancelScope` would look for the library of the loop each time
        if self.is_cancelled or not self.is_open:
            scope.cancel()
        task = asyncio.get_running_loop().create_task(_run(scope, work), name="divebook-side-by-side")
        task.add_done_callback(self._take_leave)
        self._tasks[task] = scope, work
        if is_aside:
            self._aside.add(task)

    def cancel(self) -> None:
        """Cancel the block, also one that is still to begin, and every task."""
        self._scope.cancel()
        for scope, _ in self._tasks.values():
            scope.cancel()

    def cancel_aside(self) -> None:
        """Cancel the tasks that the block does not wait for, those that are still to begin as well."""
        for task in self._aside:
            self._tasks[task][0].cancel()

    def _next_end(self) -> asyncio.Future[None]:
        self._left = asyncio.get_running_loop().create_future()
        return self._left

    def _take_leave(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task)[1].close()  # if it was cancelled before it began
        self._aside.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None or task.cancelled():  # by somebody's `Task.cancel`, which means the whole
            self._error = self._error or error
            self.cancel()
        if self._left is not None and not self._left.done():
            self._left.set_result(None)


async def _run(scope: anyio.CancelScope, work: Coroutine[Any, Any, object]) -> None:
    """Run the work in its scope, unless that was cancelled before it began."""
    with scope:
        if scope.cancel_called:
            work.close()
        else:
            await work
