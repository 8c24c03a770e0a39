"""Time limits of steps and calls, measured by the execution's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from divebook.errors import TimedOutError
from divebook.execution.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, call: Callable[[], Awaitable[T]], error: TimedOutError) -> T:
    """Make a call and wait for it so many seconds at most.

    Raises
    ------
    TimedOutError
        The `error`, if it took longer. It is a `TimeoutError`: a call that may not be made twice may have taken effect.
    """
    with anyio.CancelScope() as scope:
        alarm = asyncio.create_task(_ring(clock, seconds, scope))
        try:
            return await call()
        finally:
            alarm.cancel()
    raise error


async def _ring(clock: Clock, seconds: float, scope: anyio.CancelScope) -> None:
    await clock.sleep(seconds)
    scope.cancel()
