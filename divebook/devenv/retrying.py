"""Tries again what fails because somebody far away does not answer: the engine, an index of packages, a registry."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from divebook.errors import ContainerError, DivebookError, EngineUnavailableError, ShellExecutionError

T = TypeVar("T")
ATTEMPTS, FIRST = 3, 0.5
"""Tries in all, and seconds before the second; each next wait is twice as long."""
_PASSING = ("connection", "timed out", "timeout", "temporary failure", "name resolution", "network is unreachable")
_LASTING = (FileNotFoundError, PermissionError)


def is_passing(error: DivebookError) -> bool:
    """Return whether another try may help: not where the engine is not there, or knows no such image or package."""
    if isinstance(error, EngineUnavailableError):
        return not isinstance(error.__cause__, _LASTING)
    if isinstance(error, ShellExecutionError | ContainerError):
        return any(sign in str(error).lower() for sign in _PASSING)
    return False


@dataclass
class Retrying:
    """Tries again, a little later each time."""

    told: Callable[[str], None] = lambda _: None
    """Hears why something is tried again."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what some work comes to; raises what its last try did."""
        wait = FIRST
        for attempt in range(1, ATTEMPTS):
            try:
                return await work()
            except DivebookError as error:
                if not is_passing(error):
                    raise
                self.told(f"attempt {attempt} of {ATTEMPTS} failed: {error}")
            await self.sleep(wait * (0.5 + self.chance()))  # not all at once, where many wait
            wait *= 2
        return await work()
