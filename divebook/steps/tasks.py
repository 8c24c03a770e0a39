"""The tasks in which a workflow function awaits its calls: its own, those of `ctx.gather`, and others it made itself.

A call gets its place where it is made. Calls that are made one after the other and awaited in tasks, as by
``asyncio.gather(double(1), double(2))``, therefore work; a call that is made inside such a task would get its place by
speed, and is refused. (`tests/execution/test_own_tasks.py`)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from divebook.errors import StepError
from divebook.execution.strands import Strands, UnderWay

ADVICE = (
    "is made in a task of its own, so that its place in the log would depend on speed; "
    "write `await ctx.gather(...)` in place of asyncio.gather, a task group or create_task"
)


class Tasks:
    """Counts the calls under way as strands, so that the function rests only when none has anything left to do.

    As a context manager it surrounds one call.
    """

    def __init__(self, strands: Strands) -> None:
        self._strands, self._loop = strands, asyncio.get_running_loop()
        self._placing = {asyncio.current_task()}
        """Tasks whose calls get their places in an order that is always the same."""
        self._gathered: set[asyncio.Task[object] | None] = set()
        """Those of `ctx.gather`, which are strands already."""
        self._others: set[asyncio.Task[object]] = set()
        self._under_way = UnderWay(strands)
        self._has_ended = False
        """Whether the function has returned or raised."""

    def require_place(self, what: str, name: str = "") -> None:
        """Raise StepError unless the present task may give a call its place."""
        try:
            has_place = asyncio.current_task() in self._placing
        except RuntimeError:  # there is no loop on this thread
            has_place = False
        if not has_place:
            raise StepError(f"{what}{name} {ADVICE}")

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Surround what a strand of `ctx.gather` awaits."""
        task = asyncio.current_task()
        self._placing.add(task)
        self._gathered.add(task)
        try:
            yield
        finally:
            self._placing.discard(task)
            self._gathered.discard(task)

    def _present(self) -> asyncio.Task[object] | None:
        return asyncio.current_task(self._loop)  # to name the loop takes a third of the time

    async def settle(self) -> None:
        """In a task of the function's own: let those that were made with it begin before anything is waited for."""
        task = self._present()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._others.add(task)
        await asyncio.sleep(0)

    def __enter__(self) -> bool:
        """Return whether the present task is one of the function's own making."""
        if self._has_ended:  # a task that was made and had not begun yet
            raise asyncio.CancelledError("the workflow function has ended")
        task = self._present()
        if task not in self._gathered:
            self._under_way.begin()
        if is_another := task not in self._placing:  # what the function does meanwhile is not known
            self._strands.forbid_staying()
        return is_another

    def __exit__(self, *_: object) -> None:
        if self._present() not in self._gathered:
            self._under_way.end()

    async def stop(self) -> None:
        """Cancel what the function began and did not wait for; its tasks make no further calls."""
        self._has_ended = True
        left = [task for task in self._others if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
