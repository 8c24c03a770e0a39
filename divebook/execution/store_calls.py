"""The one way from the engine's loop to a store: a call where it stands if the store is on this machine, else a thread.

Nothing else in `divebook.execution` calls a store on the loop. A commit to SQLite takes less time than handing it to a
thread (``benchmarks/floor.py``); one over a network would hold up every other execution
(``tests/execution/test_remote_stores.py``).

A store that cannot be written to just now (locked by another process, on a full disk, out of reach) is waited for: no
run ends of it (``tests/execution/test_held_up.py``). Pauses grow only to a second, since a lock is often short.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from divebook.errors import StoreBusyError
from divebook.execution.threads import ThreadCall, begun_aside
from divebook.store.base import EventStore
from divebook.text.logs import logger

_log = logger(__name__)
T = TypeVar("T")
SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two attempts: the first pause, and the longest that it grows to."""
PATIENCE_SECONDS = 10.0
"""After which it is said that a call waits: so long a pool without a free session is waited for, say."""
CALLS, WORKS = 16, 64
"""Threads at a time for single calls, and for work. Work asks the loop, which makes calls: calls never wait for it."""

_calls: RunVar[anyio.CapacityLimiter] = RunVar("divebook store calls")
_works: RunVar[anyio.CapacityLimiter] = RunVar("divebook work on stores")


def longer(pause: float) -> float:
    """Return the pause after one that did not help."""
    return min(LONGEST, pause * 2)


class StoreCalls:
    """Calls one store for code on the engine's loop."""

    def __init__(self, store: EventStore) -> None:
        self.store = store

    @property
    def are_direct(self) -> bool:
        """Whether calls are made on the loop itself."""
        return self.store.local

    async def once(self, call: Callable[[], T]) -> T:
        """Return what a call of the store returns."""
        return call() if self.store.local else await self.in_thread(call)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Return what a call returns that takes long, whatever the store; the loop goes on meanwhile."""
        return await _in_thread(call, _calls, CALLS)

    def begun(self, call: Callable[[], object]) -> ThreadCall:
        """Begin a call in a thread, whatever the store: the loop may wait a moment for it, or await it."""
        return begun_aside(call)

    async def patiently(self, call: Callable[[], T]) -> T:
        """Return what a call returns once the store lets it through; the loop goes on meanwhile.

        It may be made several times, so it is one that can be repeated.
        """
        return await _patiently(lambda: self.once(call))

    async def work(self, function: Callable[[], T]) -> T:
        """Return what a function returns that calls the store several times and may ask the loop in between.

        As `patiently`, it may be called several times.
        """
        if self.store.local:
            return await self.patiently(function)
        return await _patiently(lambda: _in_thread(function, _works, WORKS))


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    pause, since, is_said = SHORTEST, time.monotonic(), False
    while True:
        try:
            return await call()
        except StoreBusyError as error:
            if not is_said and time.monotonic() - since >= PATIENCE_SECONDS:
                is_said = True
                _log.warning("%s. An execution waits for it, and goes on by itself", error)
            await asyncio.sleep(pause)
            pause = longer(pause)


async def _in_thread(function: Callable[[], T], limiter: RunVar[anyio.CapacityLimiter], most: int) -> T:
    try:
        places = limiter.get()
    except LookupError:
        places = anyio.CapacityLimiter(most)
        limiter.set(places)
    return await anyio.to_thread.run_sync(function, limiter=places)
