"""Pool of threads for blocking calls of user code, and the protocol of all executors (`Compute`).

The pool has many threads, so that calls that wait for an execution do not keep others from starting. A thread makes one
call after another and returns each result to the event loop of the caller. If the previous call returned at once, the
loop blocks for a moment for this one: two threads that wake each other take half the time of one turn and wake-up of
the loop (``python -m benchmarks --only cores``). Otherwise one wake-up of the loop is shared by all calls that return
until then.
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
"""Result and exception of a call; one of them is None."""
MOST_THREADS = 256
"""Maximum number of blocking calls at a time, and of those made by libraries. Further calls wait."""
MOST_IDLE = 32
"""Maximum number of idle threads."""
QUICK_SECONDS = 0.0001
"""Maximum duration of a call that counts as immediate."""
MOMENT_SECONDS = 0.0002
"""Seconds that the loop blocks at most for the next call after an immediate one."""
TURNS_TO_COMMIT = 4
"""Turns of the loop from the return of a call to the commit of its result: future set, result recorded, written."""


class ThreadCall:
    """Blocking call that a thread of the pool runs. The object carries its outcome from the thread to the event loop,
    which can wait for it. Created on the loop, in the context of the caller.
    """

    __slots__ = ("_returned", "context", "ended", "function", "handle", "outcome", "seconds")

    def __init__(self, handle: LoopHandle, function: Callable[[], Any]) -> None:
        self.handle = handle
        self.function = function
        # Copied on the loop: the call sees the context variables of its caller, such as its workspace.
        self.context = contextvars.copy_context()
        self.ended: asyncio.Future[None] | None = None
        """Done on the loop once the call has returned; None if the loop blocks for it instead."""
        self.outcome: Outcome | None = None
        self.seconds = 0.0
        """Duration of the call in seconds."""
        # A lock serves as an event: it is held until the call has returned.
        self._returned = threading.Lock()
        self._returned.acquire()

    def make(self) -> None:
        """Run the function in the present thread, and store its result or exception in `outcome`."""
        started_at = time.perf_counter()
        outcome: Outcome
        try:
            outcome = self.context.run(self.function), None
        except BaseException as raised:  # noqa: BLE001 - the exception belongs to the caller
            outcome = None, raised
        self.seconds = time.perf_counter() - started_at
        # The local reference would keep an exception, its traceback and this frame alive in a cycle.
        self.outcome = outcome
        del outcome

    def hand_over(self) -> None:
        """Notify the caller that the call has returned: its outcome can then be read, and the caller is woken if it
        waits. Called in the thread of the call.

        The caller first creates the future and then checks the outcome. This thread first stores the outcome and then
        checks the future. At least one of them therefore sees the other.
        """
        self._returned.release()
        if self.ended is not None:
            self.handle.queue_returned(self)

    def at_once(self) -> Outcome | None:
        """Return the outcome (result and exception) of the call if it returns within `MOMENT_SECONDS`, else None.

        The loop waits only if the previous call was immediate.
        """
        return self.within(MOMENT_SECONDS) if self.handle.is_quick else self.outcome

    def within(self, seconds: float) -> Outcome | None:
        """Return the outcome (result and exception) of the call if it returns within `seconds`, else None. The event
        loop blocks meanwhile.
        """
        self._returned.acquire(timeout=seconds)
        return self.outcome

    async def end(self) -> Outcome:
        """Wait until the call has returned, and return its outcome (result and exception). The event loop continues
        meanwhile.
        """
        self.ended = self.handle.loop.create_future()
        if self.outcome is None:
            await self.ended
        assert self.outcome is not None  # noqa: S101 - stored before the future was done
        return self.outcome


async def in_thread(function: Callable[[], T], *, abandoned: bool = False) -> T:
    """Run a blocking function in a thread and return its result, while the engine's event loop continues.

    A cancelled caller waits for the end of the function, unless it may be `abandoned`.

    Raises
    ------
    OperationError
        The function raised GeneratorExit, with which asyncio would close the awaiting coroutine.
    """
    await checkpoint_if_cancelled()
    handle = handle_of_loop()
    # One borrower for each call, because a limiter gives one borrower only one place.
    borrower = object()
    try:
        # Tried first, because the awaiting form takes a turn of the loop even if a place is free.
        handle.limiter.acquire_on_behalf_of_nowait(borrower)
    except anyio.WouldBlock:
        await handle.limiter.acquire_on_behalf_of(borrower)
    try:
        call = ThreadCall(handle, function)
        _THREAD_POOL.make(call)
        result, error = call.at_once() or await (call.end() if abandoned else _wait_for_end(call))
    finally:
        handle.limiter.release_on_behalf_of(borrower)
    handle.is_quick = call.seconds < QUICK_SECONDS
    # The traceback of an error references the call, and the call the error: a cycle.
    call.outcome = None
    if error is None:
        return cast("T", result)
    try:
        if isinstance(error, GeneratorExit):
            raise OperationError(f"it raised GeneratorExit({error}) outside of any generator") from error
        raise error
    finally:
        del error  # its traceback references this frame


async def open_to_libraries() -> None:
    """Raise the number of threads that libraries may use through anyio on the running event loop from 40 to
    `MOST_THREADS`.

    For example, pydantic-ai itself calls the plain functions among the tools of one of its own agents.
    """
    anyio.to_thread.current_default_thread_limiter().total_tokens = MOST_THREADS


async def run_engine_call(function: Callable[[], None]) -> None:
    """Run a quick function of the engine in a thread, and wait for its end. It starts at once, even if many calls of
    user code block their threads.
    """
    _, error = await start_engine_call(function).end()
    if error is not None:
        raise error


def start_engine_call(function: Callable[[], Any]) -> ThreadCall:
    """Start a function of the engine in a thread, without waiting for its end. Return the `ThreadCall` from which the
    running loop gets the outcome.
    """
    call = ThreadCall(handle_of_loop(), function)
    _THREAD_POOL.make(call)
    return call


async def _wait_for_end(call: ThreadCall) -> Outcome:
    """Wait for the outcome of a call and return it, even if the cancel scope of the caller is cancelled meanwhile.

    A shield around each call would cost as much as all other Python code here.
    """
    try:
        return await call.end()
    except asyncio.CancelledError:
        if anyio.current_effective_deadline() != -math.inf:  # no scope was cancelled: a direct `Task.cancel`
            raise
    with anyio.CancelScope(shield=True):
        await call.end()
    return cast("Outcome", call.outcome)


# Example of a shared wake-up: ten calls return within one turn of the loop. The first one schedules `_settle`, and the
# others only join the queue. One run of `_settle` completes the futures of all ten.
class LoopHandle:
    """Data about one event loop that makes blocking calls in threads. Limits the number of these calls, and wakes the
    callers when calls have returned. Created on the loop.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.limiter = anyio.CapacityLimiter(MOST_THREADS)
        self.is_quick = False
        """True if the last returned call was immediate."""
        self._returned: deque[ThreadCall] = deque()
        self._is_woken = False

    def queue_returned(self, call: ThreadCall) -> None:
        """Queue a call that has returned, so that the loop wakes its caller. Called in the thread of the call."""
        self._returned.append(call)
        if not self._is_woken:  # `_settle` clears the flag before it reads the queue, so nothing is missed
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed, so no caller waits
                self.loop.call_soon_threadsafe(self._settle)

    def turn(self, times: int) -> None:
        """Wait until the event loop has run `times` turns. Call this in a thread other than the loop's."""
        for _ in range(times):
            turn_event = threading.Event()
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(turn_event.set)
                if not turn_event.wait(1):
                    return

    def _settle(self) -> None:
        self._is_woken = False
        while self._returned:
            call = self._returned.popleft()
            if call.ended is not None and not call.ended.done():  # otherwise the call was abandoned
                call.ended.set_result(None)


class _WorkerThread(threading.Thread):
    """Thread of the pool, which makes one blocking call after another.

    It is a daemon: `_ThreadPool.leave` decides for which calls the process must wait.
    """

    def __init__(self, pool: _ThreadPool) -> None:
        super().__init__(name="divebook-call", daemon=True)
        self.calls: SimpleQueue[ThreadCall | None] = SimpleQueue()
        self.call: ThreadCall | None = None
        self._pool = pool

    def run(self) -> None:
        """Make the calls in the queue of this thread until the pool ends the thread."""
        is_kept = True
        while is_kept and (call := self.calls.get()) is not None:
            _present.handle = call.handle
            call.make()
            # Put back before the outcome is handed over: the loop may start the next call at once, and then finds this
            # thread idle instead of starting another one.
            _present.handle = self.call = None
            is_kept = self._pool.put_back(self)
            call.hand_over()
            del call  # an idle thread must not reference a call


class _ThreadPool:
    """Pool of the threads of this process that make blocking calls for event loops."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)  # only the forking thread exists in the child

    def _forget(self) -> None:
        _present.handle = _present.latest = None
        self._idle: list[_WorkerThread] = []
        self._busy: set[_WorkerThread] = set()
        self.handles: weakref.WeakSet[LoopHandle] = weakref.WeakSet()
        self._is_registered = self._is_leaving = False

    def make(self, call: ThreadCall) -> None:
        """Make a call in an idle thread, or in a new thread if none is idle."""
        # Popping is atomic, so loops in several threads need no lock.
        try:
            thread = self._idle.pop()
        except IndexError:
            thread = self._new_thread()
        thread.call = call
        self._busy.add(thread)
        thread.calls.put(call)

    def _new_thread(self) -> _WorkerThread:
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self.leave)  # runs before earlier registrations, such as the engine's own
        thread = _WorkerThread(self)
        thread.start()
        return thread

    def put_back(self, thread: _WorkerThread) -> bool:
        """Make a thread idle again after its call. Return False if the thread must end instead, because enough threads
        are idle or the process ends.
        """
        self._busy.discard(thread)
        if self._is_leaving or len(self._idle) >= MOST_IDLE:
            return False
        self._idle.append(thread)
        return True

    def rest(self) -> None:
        """End all idle threads of the pool, and wait until they have ended. Threads with a call continue."""
        idle_threads: list[_WorkerThread] = []
        with suppress(IndexError):
            while True:
                idle_threads.append(self._idle.pop())
                idle_threads[-1].calls.put(None)
        for thread in idle_threads:
            thread.join()  # immediate, because it is idle (test_unloading_leaves_no_thread_file_or_socket)

    def leave(self) -> None:
        """Prepare the end of the process: wait for the calls that a caller still awaits, and until their results are
        committed.

        Such a call may be in the middle of a payment. A call that was given up may never end, so it is not awaited.
        """
        self._is_leaving = True
        self.rest()
        for thread in list(self._busy):
            # The future of a call that was given up is cancelled, and so is done.
            call = thread.call
            if call is not None and (call.ended is None or not call.ended.done()):
                thread.join()
        for handle in list(self.handles):
            handle.turn(TURNS_TO_COMMIT)


class _Present(threading.local):
    """Thread-local reference to the event loops (as `LoopHandle` objects) for which the present thread works."""

    handle: LoopHandle | None = None
    """Loop on whose limit the present call of this thread counts."""
    latest: LoopHandle | None = None
    """Handle of the loop that last ran on this thread."""


_present = _Present()
_THREAD_POOL = _ThreadPool()
rest = _THREAD_POOL.rest
_handle: RunVar[LoopHandle] = RunVar("divebook blocking calls")


def handle_of_loop() -> LoopHandle:
    """Return the `LoopHandle` of the running event loop. Create it when first needed."""
    # Usually a thread runs one loop, so the last handle is the right one.
    latest = _present.latest
    if latest is not None and latest.loop is asyncio.get_running_loop():
        return latest
    try:
        handle = _handle.get()
    except LookupError:
        handle = LoopHandle()
        _handle.set(handle)
        _THREAD_POOL.handles.add(handle)
    _present.latest = handle
    return handle


@contextmanager
def lend_slot() -> Iterator[None]:
    """Stop counting this thread among the limited blocking calls while the `with` block runs, because the block only
    waits for an execution.

    Otherwise steps that wait for executions could take all places, and those executions would wait for a place for
    ever.
    """
    handle = _present.handle
    if handle is None:
        yield
        return
    # The limiter belongs to the loop, and this is another thread.
    handle.loop.call_soon_threadsafe(_add_places, handle.limiter, 1)
    try:
        yield
    finally:
        handle.loop.call_soon_threadsafe(_add_places, handle.limiter, -1)


def _add_places(limiter: anyio.CapacityLimiter, count: int) -> None:
    limiter.total_tokens += count


# --- interface of executors ------------------------------------------------------------------------------------------
#
# It separates the engine, which records calls, from the code that runs them.
#
# The log stays with the process that drives the execution: the start of a call is recorded before `Compute.run`, the
# outcome after it. An executor must report the result, the error of the code, or `OutcomeUnknownError` if the call may
# have started and its end is unknown. A person is then asked about a call that is not repeatable.


class Task(NamedTuple):
    """One blocking call of user code that an executor runs: the function, its arguments, and flags such as whether it
    may be repeated.
    """

    key: str
    """Key of the call within its execution; the same in every process."""
    label: str
    """Description of the call for messages: ``step "crunch"``."""
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    is_limited: bool
    """True if the call has a time limit, after which it is not awaited any more."""
    repeatable: bool
    """True if running it twice does no harm."""
    is_given_up: Callable[[], bool]
    """Return whether its execution was cancelled."""


class LimitedSlot:
    """Permit of one call to run, where the number of concurrent calls is limited.

    Parameters
    ----------
    must_keep
        Return whether a released slot stays occupied. `free` frees such a slot later.
    """

    def __init__(
        self, limiter: anyio.CapacityLimiter, must_keep: Callable[[LimitedSlot], bool] = lambda _: False
    ) -> None:
        self._limiter = limiter
        self._must_keep = must_keep
        self._is_held = False

    async def __aenter__(self) -> Self:
        await self._limiter.acquire_on_behalf_of(self)
        self._is_held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the slot for the next call, unless `must_keep` says that it stays occupied. Idempotent."""
        if self._is_held:
            self._is_held = False
            if not self._must_keep(self):
                self.free()

    def free(self) -> None:
        """Release the slot in any case, even if `release` was called and has kept it occupied."""
        self._limiter.release_on_behalf_of(self)


class SlotPool:
    """Source of a limited number of slots, which concurrent calls hold while they run. Works on any event loop."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._limiter: tuple[asyncio.AbstractEventLoop, anyio.CapacityLimiter] | None = None

    def slot(self) -> LimitedSlot:
        """Return a slot, which a call acquires in an `async with` block. Call on the event loop that waits for it."""
        return LimitedSlot(self.limiter())

    def limiter(self) -> anyio.CapacityLimiter:
        """Return the anyio capacity limiter that counts the slots on the running event loop."""
        loop = asyncio.get_running_loop()
        # A limiter works on one loop only. After the engine's loop was replaced, it starts with all slots free.
        if self._limiter is None or self._limiter[0] is not loop:
            self._limiter = loop, anyio.CapacityLimiter(self._size)
        return self._limiter[1]

    def resize(self, size: int) -> None:
        """Change the number of slots. Call on the event loop of the slots."""
        self._size = size
        if self._limiter is not None:
            self._limiter[1].total_tokens = size


class Slots:
    """Several slots (permits to run) that one call acquires and releases together."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots

    async def __aenter__(self) -> None:
        try:
            # If a later slot cannot be entered, those entered before are released.
            for slot in self._slots:
                await slot.__aenter__()
        except BaseException:
            self.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release all slots for other calls."""
        for slot in self._slots:
            slot.release()


@runtime_checkable
class Compute(Protocol):
    """Protocol of executors, which run the blocking calls of user code: in threads, processes or a cluster."""

    @property
    def shares_memory(self) -> bool:
        """True if the calls run in this process."""

    def slot(self, *, repeatable: bool, limited: bool) -> Slot | None:
        """Return the slot that a call must acquire before it starts. Return None if the executor does not limit the
        number of calls. Call on the engine's loop.

        A call that is not repeatable should start only when it can really run: if this process dies, a person is asked
        about each started call. The same holds for a call with a time limit, which must not be spent waiting.
        """

    async def run(self, task: Task) -> Any:
        """Run a task and return its result. If the awaiting code is cancelled, the task is given up, or awaited to its
        end if it must not be repeated.
        """


async def await_task(task: Task, future: asyncio.Future[Any], give_up: Callable[[], object]) -> Any:
    """Await the future of a task that runs in another thread or process, and return its result. The function `give_up`
    aborts the task.

    If cancelled, it calls `give_up` if the task has a time limit, is repeatable, or belongs to a cancelled execution.
    It waits for any other task, so that its outcome is known.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if future.cancelled():  # raised by the function
            raise
        is_ours = anyio.current_effective_deadline() == -math.inf  # False for a direct `Task.cancel`
        is_cut = task.is_limited or task.repeatable or task.is_given_up() or not is_ours
        if is_cut:
            give_up()
        # Shielded, since the scope that was cancelled would interrupt this wait again at once.
        with anyio.CancelScope(shield=True):
            await asyncio.wait((future,))
        if is_cut:
            _ = future.cancelled() or future.exception()  # the outcome is not used
            raise
        return future.result()


class Threads:
    """Executor that runs each task in a thread of this process. It is the default."""

    shares_memory = True

    def slot(self, *, repeatable: bool, limited: bool) -> None:
        """Return None: the number of calls is not limited here, because there are enough threads."""

    async def run(self, task: Task) -> Any:
        """Run a task in a thread and return its result. A cancelled caller waits for its end, unless the task has a
        time limit.
        """
        call = functools.partial(task.function, *task.args, **task.kwargs)
        return await in_thread(call, abandoned=task.is_limited)


THREADS = Threads()
