"""What runs on a Dask cluster: calls that were shipped, and a plugin of the scheduler that gives each away once.

Dask runs a task again where the worker that had it, or its result, is lost. A call that may not be made twice is
therefore claimed under a key of its own before it begins, and a second start of it makes nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import get_worker
from distributed.diagnostics.plugin import SchedulerPlugin

from divebook.execution.shipping import make_shipped


class Claims(SchedulerPlugin):
    """Gives each key to the first that asks, as long as the scheduler knows its task."""

    name = "divebook-claims"
    idempotent = True

    def __init__(self) -> None:
        self._taken: set[str] = set()

    async def start(self, scheduler: Any) -> None:
        """Let workers ask."""

        async def claim(key: str) -> bool:
            is_first = key not in self._taken
            self._taken.add(key)
            return is_first

        scheduler.handlers["divebook_claim"] = claim

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Forget the key of a task that is forgotten."""
        if finish == "forgotten":
            self._taken.discard(str(key))


def make_once(call: bytes, key: str) -> bytes | None:
    """Make a shipped call in a worker and return what it came to; None if it was begun before."""
    worker: Any = get_worker()
    asked = worker.scheduler.divebook_claim
    is_first = asyncio.run_coroutine_threadsafe(_asked(asked, key), worker.loop.asyncio_loop).result()
    return make_shipped(call) if is_first else None


async def _asked(claim: Any, key: str) -> bool:
    return bool(await claim(key=key))
