"""Waiting for a store that cannot be written to just now: locked by another process, or on a full disk.

No run ends of it: what has happened stays in memory and is written as soon as that is possible, and nothing new begins
that is not written (``tests/execution/test_held_up.py``). Pauses grow only to a second, since a lock is often short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from divebook.errors import StoreBusyError

T = TypeVar("T")
SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two attempts: the first pause, and the longest that it grows to."""


def longer(pause: float) -> float:
    """Return the pause after one that was in vain."""
    return min(LONGEST, pause * 2)


async def until_written(action: Callable[[], T]) -> T:
    """Return what the action returns once the store lets it through; the loop goes on meanwhile."""
    pause = SHORTEST
    while True:
        try:
            return action()
        except StoreBusyError:
            await asyncio.sleep(pause)
            pause = longer(pause)
