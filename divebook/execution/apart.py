"""A task that comes to rest and goes on, for code that waits for its end or its next rest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Apart:
    """Work in a task of its own, which outlives those who wait for it to come to rest; on one loop."""

    def __init__(self) -> None:
        self.is_resting = False
        """Whether the work stands still, and nobody waits for it."""
        self._task: asyncio.Task[None] | None = None
        self._standstill: asyncio.Future[None] | None = None
        """Done when the work has ended, or rests."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the work is left."""
        return self._task is None or self._task.done()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work."""
        self._task = asyncio.get_running_loop().create_task(work, name="divebook-paths")
        self._task.add_done_callback(self._note_end)

    def rest(self) -> None:
        """Let the one who waits go: the work stands still."""
        self.is_resting = True
        self._end_wait()

    def _end_wait(self) -> None:
        if self._standstill is not None and not self._standstill.done():
            self._standstill.set_result(None)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if self.is_resting and not task.cancelled():
            task.exception()  # of code that was let go: what it did is replayed
        self._end_wait()

    async def pursue(self, going_on: Coroutine[Any, Any, None] | None = None) -> None:
        """Let the work go on, and return when it has ended or rests; what it raised is raised here.

        Cancelled, it cancels the work, and waits for its end.
        """
        assert self._task is not None  # noqa: S101 - `begin` comes first
        self.is_resting, self._standstill = False, asyncio.get_running_loop().create_future()
        try:
            if going_on is not None:
                await going_on
            await self._standstill
        except BaseException:
            self._task.cancel()
            await self.gone()
            raise
        if not self.is_resting:
            self._task.result()

    async def gone(self) -> None:
        """Return when nothing of the work is left."""
        if self._task is not None:
            await asyncio.wait((self._task,))
