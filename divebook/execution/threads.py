"""Threads for code that blocks: many, so that one which waits for an execution does not keep others from beginning."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from divebook.errors import OperationError

T = TypeVar("T")
MOST_THREADS = 256
"""How many calls may block at a time; more wait for their turn."""

_limiter: RunVar[anyio.CapacityLimiter] = RunVar("divebook blocking calls")


class _Present(threading.local):
    """Whose place this thread has, and on which loop."""

    place: tuple[asyncio.AbstractEventLoop, anyio.CapacityLimiter] | None = None


_present = _Present()
if hasattr(os, "register_at_fork"):
    # The loop stays in the parent.
    os.register_at_fork(after_in_child=lambda: setattr(_present, "place", None))


async def in_thread(function: Callable[[], T], *, abandoned: bool = False) -> T:
    """Call a function that may block, in a thread of its own, so that the engine's loop goes on.

    A cancelled caller waits for the thread to end, unless it may be `abandoned`.

    Raises
    ------
    OperationError
        It raised GeneratorExit, with which asyncio would throw away the coroutine that awaits it.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(MOST_THREADS)
        _limiter.set(limiter)

    place = (asyncio.get_running_loop(), limiter)

    def call() -> T:
        _present.place = place
        try:
            return function()
        except GeneratorExit as error:
            raise OperationError(f"it raised GeneratorExit({error}) outside of any generator") from error
        finally:
            _present.place = None

    return await anyio.to_thread.run_sync(call, limiter=limiter, abandon_on_cancel=abandoned)


@contextmanager
def lending_place() -> Iterator[None]:
    """While the block waits for an execution, let another call have the place of this thread, if it has one.

    Otherwise steps that wait for executions could take all places, and those executions would wait for one for ever.
    """
    if _present.place is None:
        yield
        return
    loop, limiter = _present.place
    loop.call_soon_threadsafe(_add_places, limiter, 1)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(_add_places, limiter, -1)


def _add_places(limiter: anyio.CapacityLimiter, count: int) -> None:
    limiter.total_tokens += count
