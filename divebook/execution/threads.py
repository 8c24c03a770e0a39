"""Threads for code that blocks: many, so that one which waits for an execution does not keep others from beginning.

A thread makes one call after the other, and hands each result to the loop that the call came from. Handing over takes
one queue and one wake-up of the loop, shared by all that return meanwhile: a fifth of what anyio's threads take, which
go with the task that started them (``python -m benchmarks --only cores``).
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import anyio
from anyio.lowlevel import RunVar, checkpoint_if_cancelled

from divebook.errors import OperationError

T = TypeVar("T")
Outcome = tuple[Any, BaseException | None]
"""What a call returned, or raised."""
MOST_THREADS = 256
"""How many calls may block at a time; more wait for their turn."""
MOST_IDLE = 32
"""How many threads are kept for later calls."""
TURNS_TO_COMMIT = 4
"""Of the loop, from the return of a call to the commit of its result: it is settled, recorded, written."""


async def in_thread(function: Callable[[], T], *, abandoned: bool = False) -> T:
    """Call a function that may block, in a thread of its own, so that the engine's loop goes on.

    A cancelled caller waits for the thread to end, unless it may be `abandoned`.

    Raises
    ------
    OperationError
        It raised GeneratorExit, with which asyncio would throw away the coroutine that awaits it.
    """
    await checkpoint_if_cancelled()
    home = home_of_loop()
    place = object()
    try:
        home.limiter.acquire_on_behalf_of_nowait(place)
    except anyio.WouldBlock:
        await home.limiter.acquire_on_behalf_of(place)
    try:
        call = _Call(home, function)
        _CREW.make(call)
        result, error = await (call.ended if abandoned else _to_its_end(call))
    finally:
        home.limiter.release_on_behalf_of(place)
    if error is None:
        return cast("T", result)
    try:
        if isinstance(error, GeneratorExit):
            raise OperationError(f"it raised GeneratorExit({error}) outside of any generator") from error
        raise error
    finally:
        del error  # its traceback holds this frame


async def aside(function: Callable[[], None]) -> None:
    """Make a quick call of the engine's own in a thread, however many calls block."""
    call = _Call(home_of_loop(), function)
    _CREW.make(call)
    _, error = await call.ended
    if error is not None:
        raise error


async def _to_its_end(call: _Call) -> Outcome:
    """Return what a call comes to, also to a caller whose scope is cancelled meanwhile.

    A shield around each call would cost as much as the rest of what is done here in Python.
    """
    try:
        return await call.ended
    except asyncio.CancelledError:
        if anyio.current_effective_deadline() != -math.inf:  # no scope: somebody's `Task.cancel`
            raise
    if call.outcome is None:  # else it returned in the same turn of the loop
        call.ended = call.home.loop.create_future()
        with anyio.CancelScope(shield=True):
            await call.ended
    return cast("Outcome", call.outcome)


class Home:
    """A loop that calls come from: how many may block at a time, and what comes back to it. Made on the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.limiter = anyio.CapacityLimiter(MOST_THREADS)
        self._returned: deque[tuple[_Call, Outcome]] = deque()
        self._is_woken = False

    def take_back(self, call: _Call, outcome: Outcome) -> None:
        """Take what a call came to, in its thread."""
        self._returned.append((call, outcome))
        if not self._is_woken:  # else what was appended is there when the loop comes to it: it lowers the flag first
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                self.loop.call_soon_threadsafe(self._settle)

    def turn(self, times: int) -> None:
        """Wait, in another thread, until the loop has turned so often."""
        for _ in range(times):
            turned = threading.Event()
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(turned.set)
                if not turned.wait(1):
                    return

    def _settle(self) -> None:
        self._is_woken = False
        while self._returned:
            call, outcome = self._returned.popleft()
            call.outcome = outcome
            if not call.ended.done():  # abandoned
                call.ended.set_result(outcome)


class _Call:
    """A call that may block. Made on the loop, in the context of the caller."""

    __slots__ = ("context", "ended", "function", "home", "outcome")

    def __init__(self, home: Home, function: Callable[[], Any]) -> None:
        self.home, self.function = home, function
        self.context = contextvars.copy_context()
        self.ended: asyncio.Future[Outcome] = home.loop.create_future()
        self.outcome: Outcome | None = None


class _Hand(threading.Thread):
    """A thread that makes calls. It is a daemon: `_Crew.leave` knows for which of them the process must wait."""

    def __init__(self, crew: _Crew) -> None:
        super().__init__(name="divebook-call", daemon=True)
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()
        self.call: _Call | None = None
        self._crew = crew

    def run(self) -> None:
        """Make calls until there is to be no more."""
        goes_on = True
        while goes_on and (call := self.calls.get()) is not None:
            _present.home = call.home
            result, error = None, None
            try:
                result = call.context.run(call.function)
            except BaseException as raised:  # noqa: BLE001 - it belongs to the caller
                error = raised
            _present.home = self.call = None
            goes_on = self._crew.has_back(self)
            call.home.take_back(call, (result, error))
            del call, result, error  # nothing of a call lives on in an idle thread


class _Crew:
    """The threads of this process."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)  # only the thread that forks lives on in the child

    def _forget(self) -> None:
        _present.home = _present.latest = None
        self._idle: list[_Hand] = []
        self._busy: set[_Hand] = set()
        self.homes: weakref.WeakSet[Home] = weakref.WeakSet()
        self._has_begun = self._is_leaving = False

    def make(self, call: _Call) -> None:
        """Have a call made by a thread that has nothing to do, or a new one."""
        try:
            hand = self._idle.pop()
        except IndexError:
            hand = self._begun()
        hand.call = call
        self._busy.add(hand)
        hand.calls.put(call)

    def _begun(self) -> _Hand:
        if not self._has_begun:
            self._has_begun = True
            atexit.register(self.leave)  # called before what was registered earlier, such as the engine's own end
        hand = _Hand(self)
        hand.start()
        return hand

    def has_back(self, hand: _Hand) -> bool:
        """Take back a thread that has made its call; return whether there may be more for it."""
        self._busy.discard(hand)
        if self._is_leaving or len(self._idle) >= MOST_IDLE:
            return False
        self._idle.append(hand)
        return True

    def rest(self) -> None:
        """End the threads that have nothing to do, and return once they are gone."""
        ended: list[_Hand] = []
        with suppress(IndexError):
            while True:
                ended.append(self._idle.pop())
                ended[-1].calls.put(None)
        for hand in ended:
            hand.join()  # at once, as it has nothing to do (test_unloading_leaves_no_thread_file_or_socket)

    def leave(self) -> None:
        """Wait, at the end of the process, for the calls that somebody waits for, and the commit of their results.

        Such a call may be in the middle of a payment; one that was given up may never end.
        """
        self._is_leaving = True
        self.rest()
        for hand in list(self._busy):
            call = hand.call
            if call is not None and not call.ended.done():
                hand.join()
        for home in list(self.homes):
            home.turn(TURNS_TO_COMMIT)


class _Present(threading.local):
    """What a thread has to do with homes."""

    home: Home | None = None
    """Whose place it has."""
    latest: Home | None = None
    """That of the loop that ran on it last."""


_present = _Present()
_CREW = _Crew()
rest = _CREW.rest
_home: RunVar[Home] = RunVar("divebook blocking calls")


def home_of_loop() -> Home:
    """Return that of the running loop."""
    latest = _present.latest
    if latest is not None and latest.loop is asyncio.get_running_loop():
        return latest
    try:
        found = _home.get()
    except LookupError:
        found = Home()
        _home.set(found)
        _CREW.homes.add(found)
    _present.latest = found
    return found


@contextmanager
def lending_place() -> Iterator[None]:
    """While the block waits for an execution, let another call have the place of this thread, if it has one.

    Otherwise steps that wait for executions could take all places, and those executions would wait for one for ever.
    """
    home = _present.home
    if home is None:
        yield
        return
    home.loop.call_soon_threadsafe(_add_places, home.limiter, 1)
    try:
        yield
    finally:
        home.loop.call_soon_threadsafe(_add_places, home.limiter, -1)


def _add_places(limiter: anyio.CapacityLimiter, count: int) -> None:
    limiter.total_tokens += count
