"""Tasks in which a workflow function awaits its calls: its main task, those of `ctx.gather`, and tasks it created
itself.

A call gets its place in the log where it is made. Calls that are made one after the other and awaited in tasks, as by
``asyncio.gather(double(1), double(2))``, therefore work. A call that is made inside such a task would get its place by
speed, and is refused (`tests/execution/test_own_tasks.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from divebook.errors import (
    StepError,
)
from divebook.runtime.concurrency import CallCounter, ConcurrentCalls

ADVICE = (
    "is made in a task of its own, so that its place in the log would depend on speed; "
    "write `await ctx.gather(...)` in place of asyncio.gather, a task group or create_task"
)


class CallTasks:
    """Counter of the running calls of a workflow function. The function is parked only if all its tasks wait.

    As a context manager it surrounds one call.
    """

    def __init__(self, strands: ConcurrentCalls) -> None:
        self._strands = strands
        self._loop = asyncio.get_running_loop()
        self._ordered_tasks = {asyncio.current_task()}
        """Tasks whose calls get their places in a deterministic order."""
        self._gathered: set[asyncio.Task[object] | None] = set()
        """Tasks of `ctx.gather`, which are counted already."""
        self._created: set[asyncio.Task[object]] = set()
        self._under_way = CallCounter(strands)
        self._has_ended = False
        """True once the function has returned or raised."""

    def require_place(self, what: str, name: str = "") -> None:
        """Raise `StepError` unless a call of the current task has a deterministic place."""
        try:
            has_place = asyncio.current_task() in self._ordered_tasks
        except RuntimeError:  # there is no loop on this thread
            has_place = False
        if not has_place:
            raise StepError(f"{what}{name} {ADVICE}")

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Register the current task as one of `ctx.gather` inside the block."""
        task = asyncio.current_task()
        self._ordered_tasks.add(task)
        self._gathered.add(task)
        try:
            yield
        finally:
            self._ordered_tasks.discard(task)
            self._gathered.discard(task)

    def _present(self) -> asyncio.Task[object] | None:
        return asyncio.current_task(self._loop)  # to name the loop takes a third of the time

    async def let_others_start(self) -> None:
        """Yield to the tasks that were created together with the current one, so that they start before a call
        waits.
        """
        task = self._present()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._created.add(task)
        await asyncio.sleep(0)

    def __enter__(self) -> bool:
        """Return True if the function created the current task itself."""
        if self._has_ended:  # a task that was made and had not begun yet
            raise asyncio.CancelledError("the workflow function has ended")
        task = self._present()
        if task not in self._gathered:
            self._under_way.begin()
        is_created_task = task not in self._ordered_tasks
        if is_created_task:  # the function may be doing anything meanwhile
            self._strands.forbid_parking()
        return is_created_task

    def __exit__(self, *_: object) -> None:
        if self._present() not in self._gathered:
            self._under_way.end()

    async def stop(self) -> None:
        """Cancel the tasks that the function created and did not await. They make no further calls."""
        self._has_ended = True
        running = [task for task in self._created if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
