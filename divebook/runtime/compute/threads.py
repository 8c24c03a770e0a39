"""Threads for code that blocks: many, so that one which waits for an execution does not keep others from beginning.

A thread makes one call after the other, and hands each result to the loop that the call came from. Where the call
before returned at once the loop waits a moment for this one: two threads that wake each other take half of what it
costs to let the loop turn and to wake it (``python -m benchmarks --only cores``). Otherwise one wake-up of the loop is
shared by all that return meanwhile.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import functools
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast, runtime_checkable

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar, checkpoint_if_cancelled

from divebook.engine.operations import Slot
from divebook.errors import OperationError

T = TypeVar("T")
Outcome = tuple[Any, BaseException | None]
"""What a call returned, or raised."""
MOST_THREADS = 256
"""How many calls may block at a time, and how many of those that libraries make; more wait for their turn."""
MOST_IDLE = 32
"""How many threads are kept for later calls."""
QUICK_SECONDS, MOMENT_SECONDS = 0.0001, 0.0002
"""What a call takes at most that returned at once, and how long the loop waits then for the next one."""
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
        call = ThreadCall(home, function)
        _CREW.make(call)
        result, error = call.at_once() or await (call.end() if abandoned else _to_its_end(call))
    finally:
        home.limiter.release_on_behalf_of(place)
    home.is_quick, call.outcome = call.seconds < QUICK_SECONDS, None  # the traceback of an error holds the call
    if error is None:
        return cast("T", result)
    try:
        if isinstance(error, GeneratorExit):
            raise OperationError(f"it raised GeneratorExit({error}) outside of any generator") from error
        raise error
    finally:
        del error  # its traceback holds this frame


async def open_to_libraries() -> None:
    """Let as many calls of libraries block on this loop as of ours: they go by way of anyio, whose threads are 40.

    Such are the ordinary functions among the tools of an agent of pydantic-ai, which taken as it is calls them itself.
    """
    anyio.to_thread.current_default_thread_limiter().total_tokens = MOST_THREADS


async def aside(function: Callable[[], None]) -> None:
    """Make a quick call of the engine's own in a thread, however many calls block."""
    _, error = await begun_aside(function).end()
    if error is not None:
        raise error


def begun_aside(function: Callable[[], Any]) -> ThreadCall:
    """Begin a call of the engine's own in a thread, on the loop that is to hear what it comes to."""
    call = ThreadCall(home_of_loop(), function)
    _CREW.make(call)
    return call


async def _to_its_end(call: ThreadCall) -> Outcome:
    """Return what a call comes to, also to a caller whose scope is cancelled meanwhile.

    A shield around each call would cost as much as the rest of what is done here in Python.
    """
    try:
        return await call.end()
    except asyncio.CancelledError:
        if anyio.current_effective_deadline() != -math.inf:  # no scope: somebody's `Task.cancel`
            raise
    with anyio.CancelScope(shield=True):
        await call.end()
    return cast("Outcome", call.outcome)


class LoopHandle:
    """A loop that calls come from: how many may block at a time, and what comes back to it. Made on the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.limiter = anyio.CapacityLimiter(MOST_THREADS)
        self.is_quick = False
        """Whether the call that returned last did so at once."""
        self._returned: deque[ThreadCall] = deque()
        self._is_woken = False

    def take_back(self, call: ThreadCall) -> None:
        """Take a call that has returned, in its thread, where somebody awaits it."""
        self._returned.append(call)
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
            call = self._returned.popleft()
            if call.ended is not None and not call.ended.done():  # else abandoned
                call.ended.set_result(None)


class ThreadCall:
    """A call that may block. Made on the loop, in the context of the caller."""

    __slots__ = ("_returned", "context", "ended", "function", "home", "outcome", "seconds")

    def __init__(self, home: LoopHandle, function: Callable[[], Any]) -> None:
        self.home, self.function = home, function
        self.context = contextvars.copy_context()
        self.ended: asyncio.Future[None] | None = None
        """Where the loop goes on meanwhile: to be done on the loop once it has returned."""
        self.outcome: Outcome | None = None
        self.seconds = 0.0
        """How long it took."""
        self._returned = threading.Lock()
        self._returned.acquire()

    def make(self) -> None:
        """Make it, in its thread, and keep what it comes to."""
        began = time.perf_counter()
        outcome: Outcome
        try:
            outcome = self.context.run(self.function), None
        except BaseException as raised:  # noqa: BLE001 - it belongs to the caller
            outcome = None, raised
        self.seconds = time.perf_counter() - began
        self.outcome = outcome
        del outcome

    def hand_over(self) -> None:
        """Let the caller have the outcome, in the thread of the call; one that is to await it looks for it after that.

        Of the two looks, of the caller at the outcome and of this at the future, one at least comes late enough.
        """
        self._returned.release()
        if self.ended is not None:
            self.home.take_back(self)

    def at_once(self) -> Outcome | None:
        """Return what it came to if it returns in a moment, and it is likely that it does."""
        return self.within(MOMENT_SECONDS) if self.home.is_quick else self.outcome

    def within(self, seconds: float) -> Outcome | None:
        """Return what it came to, or None if it takes longer: the loop stands still meanwhile."""
        self._returned.acquire(timeout=seconds)
        return self.outcome

    async def end(self) -> Outcome:
        """Return what it comes to, while the loop goes on."""
        self.ended = self.home.loop.create_future()
        if self.outcome is None:
            await self.ended
        assert self.outcome is not None  # noqa: S101 - it was kept before the future was done
        return self.outcome


class _WorkerThread(threading.Thread):
    """A thread that makes calls. It is a daemon: `_ThreadPool.leave` knows for which of them the process must wait."""

    def __init__(self, crew: _ThreadPool) -> None:
        super().__init__(name="divebook-call", daemon=True)
        self.calls: SimpleQueue[ThreadCall | None] = SimpleQueue()
        self.call: ThreadCall | None = None
        self._crew = crew

    def run(self) -> None:
        """Make calls until there is to be no more."""
        goes_on = True
        while goes_on and (call := self.calls.get()) is not None:
            _present.home = call.home
            call.make()
            _present.home = self.call = None
            goes_on = self._crew.has_back(self)
            call.hand_over()
            del call  # nothing of a call lives on in an idle thread


class _ThreadPool:
    """The threads of this process."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)  # only the thread that forks lives on in the child

    def _forget(self) -> None:
        _present.home = _present.latest = None
        self._idle: list[_WorkerThread] = []
        self._busy: set[_WorkerThread] = set()
        self.homes: weakref.WeakSet[LoopHandle] = weakref.WeakSet()
        self._has_begun = self._is_leaving = False

    def make(self, call: ThreadCall) -> None:
        """Have a call made by a thread that has nothing to do, or a new one."""
        try:
            hand = self._idle.pop()
        except IndexError:
            hand = self._begun()
        hand.call = call
        self._busy.add(hand)
        hand.calls.put(call)

    def _begun(self) -> _WorkerThread:
        if not self._has_begun:
            self._has_begun = True
            atexit.register(self.leave)  # called before what was registered earlier, such as the engine's own end
        hand = _WorkerThread(self)
        hand.start()
        return hand

    def has_back(self, hand: _WorkerThread) -> bool:
        """Take back a thread that has made its call; return whether there may be more for it."""
        self._busy.discard(hand)
        if self._is_leaving or len(self._idle) >= MOST_IDLE:
            return False
        self._idle.append(hand)
        return True

    def rest(self) -> None:
        """End the threads that have nothing to do, and return once they are gone."""
        ended: list[_WorkerThread] = []
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
            if call is not None and (call.ended is None or not call.ended.done()):
                hand.join()
        for home in list(self.homes):
            home.turn(TURNS_TO_COMMIT)


class _Present(threading.local):
    """What a thread has to do with homes."""

    home: LoopHandle | None = None
    """Whose place it has."""
    latest: LoopHandle | None = None
    """That of the loop that ran on it last."""


_present = _Present()
_CREW = _ThreadPool()
rest = _CREW.rest
_home: RunVar[LoopHandle] = RunVar("divebook blocking calls")


def home_of_loop() -> LoopHandle:
    """Return that of the running loop."""
    latest = _present.latest
    if latest is not None and latest.loop is asyncio.get_running_loop():
        return latest
    try:
        found = _home.get()
    except LookupError:
        found = LoopHandle()
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


# Where a person's code runs: the seam between the engine, which records calls, and what makes them.
#
# The log stays with the process that drives the execution: the intent of a call is recorded before `Compute.run`, and
# what comes back after it. A backend must only be truthful about this: the result, the error that the code raised, or
# `OutcomeUnknownError` where the call may have begun and its end is not known. For a call that may not be made twice a
# person is asked then.


class Task(NamedTuple):
    """One call of code that may block."""

    key: str
    """The same for the same call of the same execution, in whatever process it is made."""
    label: str
    """What is called, for messages: ``step "crunch"``."""
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    is_limited: bool
    """Whether the call has a time limit, after which it is no longer waited for."""
    repeatable: bool
    """Whether making it twice does no harm."""
    is_given_up: Callable[[], bool]
    """Whether its execution was cancelled."""


class LimitedSlot:
    """A slot where a fixed number of calls can be under way."""

    def __init__(self, places: anyio.CapacityLimiter) -> None:
        self._places = places
        self._is_held = False

    async def __aenter__(self) -> Self:
        await self._places.acquire_on_behalf_of(self)
        self._is_held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the next call have it; once is the same as twice."""
        if self._is_held:
            self._is_held = False
            self._places.release_on_behalf_of(self)


class Places:
    """So many slots at a time, on whatever loop asks for them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._limiter: tuple[asyncio.AbstractEventLoop, anyio.CapacityLimiter] | None = None

    def slot(self) -> LimitedSlot:
        """Return one; on the loop that is to wait for it."""
        return LimitedSlot(self.limiter())

    def limiter(self) -> anyio.CapacityLimiter:
        """Return what counts them on this loop."""
        loop = asyncio.get_running_loop()
        if self._limiter is None or self._limiter[0] is not loop:
            self._limiter = loop, anyio.CapacityLimiter(self._size)
        return self._limiter[1]

    def resize(self, size: int) -> None:
        """Have so many from now on; on the loop of the slots."""
        self._size = size
        if self._limiter is not None:
            self._limiter[1].total_tokens = size


class Slots:
    """Several slots, held together."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots

    async def __aenter__(self) -> None:
        try:
            for slot in self._slots:
                await slot.__aenter__()
        except BaseException:
            self.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the next call have them."""
        for slot in self._slots:
            slot.release()


@runtime_checkable
class Compute(Protocol):
    """Runs tasks."""

    @property
    def shares_memory(self) -> bool:
        """Whether code runs in this process."""

    def slot(self, *, repeatable: bool, limited: bool) -> Slot | None:
        """Return what a call must hold while it is under way, if only so many can be. On the engine's loop.

        One that is not repeatable is best under way only where it really runs: should this process die, a person is
        asked about each. So is one with a time limit, in which it is to run and not to wait.
        """

    async def run(self, task: Task) -> Any:
        """Return the result; cancelling the await gives the task up."""


async def carried_out(task: Task, made: asyncio.Future[Any], cut: Callable[[], object]) -> Any:
    """Return what comes of a task which others carry out.

    Cancelled, it gives the task up with `cut` if that has a time limit, or may be made twice, or its execution was
    cancelled; any other is waited for, so that what became of it is known.
    """
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        if made.cancelled():  # it was raised by the function
            raise
        is_ours = anyio.current_effective_deadline() == -math.inf  # and not somebody's `Task.cancel`
        is_cut = task.is_limited or task.repeatable or task.is_given_up() or not is_ours
        if is_cut:
            cut()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((made,))
        if is_cut:
            _ = made.cancelled() or made.exception()  # whatever it is, nobody waits for it
            raise
        return made.result()


class Threads:
    """A thread of this process for each task; the default."""

    shares_memory = True

    def slot(self, *, repeatable: bool, limited: bool) -> None:
        """Let it begin at once: there are enough threads."""

    async def run(self, task: Task) -> Any:
        """Return the result; what has begun is waited for, unless it has a time limit."""
        call = functools.partial(task.function, *task.args, **task.kwargs)
        return await in_thread(call, abandoned=task.is_limited)


THREADS = Threads()
