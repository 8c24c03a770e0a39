"""What runs in a Dask cluster: shipped calls in its workers, and in its scheduler who may begin one.

Dask begins a task again whenever it has lost its worker or its result. A call that may not be made twice therefore asks
the scheduler first, which gives each key away once (`tests/execution/test_dask.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from divebook.execution.shipping import make_shipped

CLAIM = "divebook_claim"
MOST_TAKEN = 10_000
"""Keys that are kept before those are looked for that are gone."""


def begin(call: bytes, key: str | None = None) -> bytes | None:
    """Make a shipped call, in a worker; with a key only if none has begun under it, else None is returned."""
    return make_shipped(call) if key is None or _is_claimed(key) else None


def _is_claimed(key: str) -> bool:
    """Return whether the scheduler has given a key to the task of this thread."""
    from distributed import get_worker

    worker = get_worker()

    async def claim() -> bool:
        answer: bool = await getattr(worker.scheduler, CLAIM)(key=key)
        return answer

    return asyncio.run_coroutine_threadsafe(claim(), worker.loop.asyncio_loop).result()


def install(dask_scheduler: Any) -> None:
    """Have a scheduler give keys away, if it does not yet."""
    dask_scheduler.handlers.setdefault(CLAIM, Claims(dask_scheduler).claim)


class Claims:
    """Gives each key of a task to the first that asks; one whose task nobody wants any more, to none."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._taken = scheduler, set[str]()

    def claim(self, key: str) -> bool:
        """Return whether whoever asks may begin."""
        if key in self._taken or key not in self._scheduler.tasks:
            return False
        if len(self._taken) >= MOST_TAKEN:
            self._taken.intersection_update(self._scheduler.tasks)
        self._taken.add(key)
        return True
