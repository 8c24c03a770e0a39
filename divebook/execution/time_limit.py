"""Time limits of steps and calls, measured by the execution's clock."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

from divebook.errors import TimedOutError
from divebook.execution.clock import Clock
from divebook.execution.log import StepLog
from divebook.execution.unrecorded_waits import engine_code
from divebook.workflow.step import Step

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
    with engine_code():  # the clock may be a person's
        await clock.sleep(seconds)
    scope.cancel()


class TimeLimit:
    """How long the calls of a step may take: each its own time, and all of them that of the step."""

    def __init__(self, step: Step, journal: StepLog) -> None:
        self._whole, self._name, self._journal = step.timeout, f"step {step.name!r}", journal
        self._began_at = 0 if step.timeout is None else journal.clock.now()

    def of(
        self, call: Callable[..., Awaitable[T]], timeout: float | None, called: str | None = None
    ) -> Callable[..., Awaitable[T]]:
        """Return the call with a limit to its time; `called` is the name of what it calls, for the error."""

        async def limited(*arguments: Any) -> T:
            seconds, error = self._left(timeout, called)
            return await within(self._journal.clock, seconds, functools.partial(call, *arguments), error)

        return limited

    def _left(self, timeout: float | None, called: str | None) -> tuple[float, TimedOutError]:
        """Return the seconds that a call may take, and the error after them: of the call, or of the step around it."""
        whole, own = self._whole, math.inf if timeout is None else timeout
        spent = self._journal.seconds_since(self._began_at)
        left = math.inf if whole is None else max(0.0, whole - spent)
        if whole is None or own < left:
            return own, TimedOutError(f"a call of {self._name if called is None else repr(called)}", own)
        return left, TimedOutError(self._name, whole)
