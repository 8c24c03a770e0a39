"""One computer on virtual time: a loop that leaps to the next timer, and a clock and chance that follow a seed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

WALL = 1_700_000_000
MICROSECONDS = 1_000_000


class StuckError(AssertionError):
    """Everything waits, and nothing can ever happen."""


class Machine:
    """What outlives a process: the time, and the source of identifiers.

    Attributes
    ----------
    uptime
        Virtual seconds since the beginning; never goes back.
    wall
        Seconds since 1970 at the beginning, as the wall clock has it now; a person may set it.
    """

    def __init__(self, random: Random) -> None:
        self.uptime, self.wall = 0.0, float(WALL)
        self._random = random

    def now(self) -> int:
        """Return microseconds since 1970."""
        return int((self.wall + self.uptime) * MICROSECONDS)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    def bits(self, count: int) -> int:
        """Return random bits."""
        return self._random.getrandbits(count)


class _Leap:
    """Stands where the loop waits for the network: waiting takes no time at all."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StuckError("nothing is ready and no timer is set")
        self._machine.uptime += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop on a machine's time that runs what is ready in an order drawn by chance."""

    def __init__(self, machine: Machine, random: Random | None = None) -> None:
        super().__init__()
        self._machine, self._random = machine, random
        self._selector = _Leap(machine)
        self._numbers: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._created = 0

    def time(self) -> float:
        """Return virtual seconds."""
        return self._machine.uptime

    def create_task(self, coro: Coroutine[Any, Any, Any], **settings: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        """Create a task and remember its number."""
        task = super().create_task(coro, **settings)
        self._created += 1
        self._numbers[task] = self._created
        return task

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        if self._random is not None and len(ready) > 1:
            # Tasks are kept in sets, whose order follows from addresses: by number first, so that a seed repeats.
            handles = sorted(ready, key=self._number)
            self._random.shuffle(handles)
            ready.clear()
            ready.extend(handles)
        super()._run_once()  # type: ignore[misc]

    def _number(self, handle: asyncio.Handle) -> int:
        task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        return self._numbers.get(task, 0) if isinstance(task, asyncio.Task) else 0

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""
