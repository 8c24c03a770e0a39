"""Engine thread: the thread with the event loop on which all executions run, separate from the kernel's and the
caller's loop.

A cell that blocks the kernel's loop would block every execution, and an interrupt of the kernel would hit an arbitrary
one. The thread survives user code that stops its loop. If the loop dies, all waiting callers get an error instead of
waiting for ever (`tests/runtime/test_engine_thread.py` tests each case).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from divebook.engine.inbox import Message
from divebook.errors import DivebookError, ExecutionError, FencedError, StoreError
from divebook.interrupts import interruptible_result
from divebook.processes import is_kernel
from divebook.runtime.commit import GroupCommit, StoreCalls
from divebook.runtime.compute.threads import open_to_libraries, rest
from divebook.runtime.concurrency import call_later_if_alive
from divebook.runtime.leases import DRIVEN_LEASES, LeaseKeeper
from divebook.runtime.runner import PARKED_RUNS, Runner
from divebook.runtime.waiting import guard
from divebook.stores.base import EventStore
from divebook.stores.registry import leave_open


class EngineThread:
    """Daemon thread with one asyncio event loop, on which the executions of this process run.

    It starts when first needed, and again after the loop has died.
    """

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)  # only the forking thread exists in the child

    def _forget(self) -> None:
        # A new lock: another thread may have held the old one at the moment of the fork.
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: LoopCalls | None = None
        self._futures: set[Future[Any]] = set()
        self._thread: threading.Thread | None = None
        self._stopped_loop: asyncio.AbstractEventLoop | None = None
        self._sessions: weakref.WeakValueDictionary[int, StoreSession] = weakref.WeakValueDictionary()
        self._background: set[asyncio.Task[Any]] = set()
        # The leases and the parked code belong to the loop that is gone.
        DRIVEN_LEASES.clear()
        PARKED_RUNS.forget()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running event loop. It is started if necessary."""
        with self._lock:
            return self._running_loop()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            guard(self._loop)
            # Sessions, leases and parked code of an earlier loop hold tasks and futures of that loop.
            self._sessions = weakref.WeakValueDictionary()
            self._background = set()
            DRIVEN_LEASES.clear()
            PARKED_RUNS.forget()
            self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="divebook-engine", daemon=True)
            self._thread.start()
            asyncio.run_coroutine_threadsafe(open_to_libraries(), self._loop)
            atexit.register(self.stop_if_idle)
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the event loop of the thread until the engine stops it, or until it fails. Then close the loop, and fail
        all callers that wait for it.

        Tasks that user code starts can raise SystemExit or stop the loop. Neither is meant for the engine, so the loop
        is run again. Any other exception is a fault of the loop itself, which is then closed.
        """
        try:
            # A comparison with one loop, not a flag: a new engine may be running already when an old one has been
            # stopped.
            while not loop.is_closed() and loop is not self._stopped_loop:
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    loop.run_forever()
        except Exception as error:  # noqa: BLE001 - logged, and raised for every waiting caller
            message = "the engine's event loop has ended because of an error"
            loop.call_exception_handler({"message": message, "exception": error})
            loop.close()
            self._fail_waiters(loop, f"{type(error).__name__}: {error}")
        else:
            loop.close()
            self._fail_waiters(loop, "it was closed")

    def _fail_waiters(self, loop: asyncio.AbstractEventLoop, cause: str) -> None:
        """Give every caller that waits for the event loop an error, because the loop is gone. The next caller gets a
        new loop.
        """
        with self._lock:
            # Forgotten under the lock, together with the list of waiting callers: later callers start a new loop.
            if self._loop is loop:
                self._loop = None
            futures = list(self._futures)
        message = (
            f"the engine's event loop has ended because of an error ({cause}), so all running executions have "
            "stopped; resume the executions that are in the store"
        )
        for future in futures:
            with contextlib.suppress(InvalidStateError):  # done at this moment
                future.set_exception(ExecutionError(message))

    def stop(self) -> None:
        """Stop the thread and cancel all tasks of its event loop. The next caller gets a new thread.

        Unwinds parked code first, then cancels all tasks. Each of the two steps takes at most `STOP_SECONDS`.
        """
        # Removed first, so that callers from now on get a new thread instead of a loop that is about to stop.
        with self._lock:
            loop = self._loop
            thread = self._thread
            self._loop = None
            self._thread = None
        rest()
        if loop is None or thread is None or thread is threading.current_thread():
            return

        async def wind_up() -> None:
            if unwinding := [asyncio.ensure_future(parked.wait_end()) for parked in PARKED_RUNS.unwind_all()]:
                await asyncio.wait(unwinding, timeout=STOP_SECONDS)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=STOP_SECONDS)
            await loop.shutdown_asyncgens()
            self._stopped_loop = loop
            loop.stop()

        asyncio.run_coroutine_threadsafe(wind_up(), loop)
        thread.join(2 * STOP_SECONDS)

    def stop_if_idle(self) -> None:
        """Stop the thread when the process ends, unless it drives an execution. If the thread runs on, mark the stores
        so that they are not closed at exit.
        """
        thread = self._thread
        if not DRIVEN_LEASES.is_any_driven:
            self.stop()
        # Closing a store under a thread that uses it could crash the process.
        if thread is not None and thread.is_alive():
            leave_open()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the event loop and return a concurrent future of its result. Callable from any thread."""
        # The lock makes the choice of the loop and the entry of the future one step: a loop that dies in between
        # would leave the caller waiting.
        with self._lock:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
            self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def is_current(self) -> bool:
        """Return whether the caller is on the engine's own thread, where waiting would deadlock."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def refuse_waiting(self, store: EventStore) -> None:
        """Raise `ExecutionError` on the engine's own thread if the store is remote, because waiting for the store there
        would block all executions. Otherwise do nothing.
        """
        if not store.local and self.is_current():
            raise ExecutionError(
                f"this call reads {store.location}, which would block all executions on the engine's own thread; "
                "call it in another thread: await asyncio.to_thread(...)"
            )

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the event loop and return its result. Callable from any thread.

        If a waiting caller is interrupted, the function has run completely, or never runs.
        """
        if self.is_current():
            return function()
        returned: Future[T] = Future()
        return self.outcome(lambda: returned.set_result(function()), returned)

    def outcome(self, begin: Callable[[], object], awaited: Future[T]) -> T:
        """Call `begin` on the event loop, then wait for the future `awaited` and return its result. The future is
        completed by `begin`, or by code that `begin` starts.

        For threads other than the engine's. The caller is woken once, when the future is done, even if the work takes
        several turns of the loop. If a waiting caller is interrupted, `begin` has run completely, or never runs.
        """
        # Who acquires `claimed` first decides: the call on the loop, which then runs completely, or an interrupted
        # caller, whose call then never runs. `begin_ended` is released when the call has run.
        claimed = threading.Lock()
        begin_ended = threading.Lock()
        begin_ended.acquire()

        def call() -> None:
            if claimed.acquire(blocking=False):
                try:
                    begin()
                finally:
                    begin_ended.release()

        try:
            return interruptible_result(self.begin(call, awaited), patience=PATIENCE)
        except BaseException:
            # The call has started, or has run. The interrupted caller waits for its end, so that the caller never
            # returns from the middle of a change.
            if not claimed.acquire(blocking=False):
                begin_ended.acquire()
            raise

    def begin(self, work: Callable[[], object], awaited: Future[T]) -> Future[T]:
        """Call `work` on the event loop, without waiting for the call. Return the future `awaited`, so that the caller
        can wait for its result: `work`, or code that it starts, completes it.

        From any thread. If `work` raises, the future gets its exception.
        """

        def call() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the exception belongs to the caller
                awaited.set_exception(error)

        with self._lock:
            self._futures.add(awaited)
            loop = self._running_loop()
            if self._calls is None or self._calls.loop is not loop:
                self._calls = LoopCalls(loop)
            self._calls.add(call)
        awaited.add_done_callback(self._futures.discard)
        return awaited

    def complete_later(self, future: Future[None]) -> None:
        """Set the result of a future for which another thread waits, two turns of the loop later. Call on the loop.

        The code that is about to run gets these turns first: a thread that wakes earlier would only compete with it for
        the processor. A short execution ends within them, so its caller is woken once, and finds it ended.
        """
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, _complete, future)

    def promise(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine as a task, and return a concurrent future of its result. Call on the loop."""
        return self.promise_of(self.keep(work))

    def promise_of(self, task: asyncio.Task[T], future: Future[T] | None = None) -> Future[T]:
        """Return a concurrent future of the result of a task: `future`, if it is given. Call on the loop."""
        future = future or Future()
        self._futures.add(future)

        def settle(_: asyncio.Task[T]) -> None:
            self._futures.discard(future)
            # `_fail_waiters` may have failed the future already.
            with contextlib.suppress(InvalidStateError):
                if task.cancelled():
                    future.set_exception(LeftError(LEFT))
                elif (error := task.exception()) is not None:
                    future.set_exception(error)
                else:
                    future.set_result(task.result())

        task.add_done_callback(settle)
        return future

    def session(self, store: EventStore) -> StoreSession:
        """Return the session (store calls, group commit, leases, inbox delivery) that all executions of a store share.
        Call on the loop, and keep a reference to the session.
        """
        # Held weakly: a session lives as long as an execution of the store uses it.
        session = self._sessions.get(id(store))
        if session is None:
            session = self._sessions[id(store)] = StoreSession(store)
        return session

    def held_up(self, store: EventStore) -> str | None:
        """Return the reason why a store cannot be written to at present, if an execution of this process waits for it.
        Otherwise return None.

        Callable from any thread.
        """
        session = self._sessions.get(id(store))
        outage = None if session is None else session.commit.held_up
        return None if outage is None else str(outage)

    def drives(self, store: EventStore, execution_id: str) -> bool:
        """Return whether this process has a runner for an execution, which reads the messages to it. Callable from any
        thread.
        """
        session = self._sessions.get(id(store))
        return session is not None and session.inbox.has(execution_id)

    def keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a background task on the event loop, and keep a reference to the task until it ends. Call
        on the loop.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


# --- calls and results between threads -------------------------------------------------------------------------------
#
# Many executions that are started and awaited at once hand over a call and a result each. To wake an event loop costs a
# system call, at which the threads also compete for the interpreter. What is handed over meanwhile shares one wake-up.


class LoopCalls:
    """Calls that other threads pass to an event loop. The loop is woken once for all calls that were added since it
    made the last ones.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def add(self, call: Callable[[], object]) -> None:
        """Make a call on the event loop soon, after the calls that were added before. Callable from any thread.

        Raises
        ------
        RuntimeError
            The event loop is closed.
        """
        self._calls.append(call)
        if not self._is_scheduled:
            try:
                # Set before the wake-up: `_make` may run, and reset it, before `call_soon_threadsafe` returns.
                self._is_scheduled = True
                self.loop.call_soon_threadsafe(self._make)
            except BaseException:
                # A keyboard interrupt leaves open whether the loop was woken, and calls of other threads rely on it.
                self._is_scheduled = False
                if not self.loop.is_closed():
                    self.loop.call_soon_threadsafe(self._make)
                raise

    def _make(self) -> None:
        # Reset before the calls are counted: a call that is added from now on, and not counted, wakes the loop again.
        self._is_scheduled = False
        remaining = len(self._calls)
        try:
            while remaining:
                remaining -= 1
                self._calls.popleft()()
        finally:
            if remaining:  # a call has raised, which the loop reports; the others must not be lost
                self.loop.call_soon(self._make)


class _CallsOfThread(threading.local):
    """For each thread, the calls to the event loop that last ran in it, as long as a future waits for one."""

    reference: Callable[[], LoopCalls | None] = staticmethod(lambda: None)


_of_thread = _CallsOfThread()


def awaitable_of(future: Future[T]) -> asyncio.Future[T]:
    """Return a future of the running event loop that gets the outcome of a future of another thread.

    As `asyncio.wrap_future`, except that the other future is not cancelled together with this one, since others may
    wait for it.
    """
    loop = asyncio.get_running_loop()
    calls = _of_thread.reference()
    if calls is None or calls.loop is not loop:
        calls = LoopCalls(loop)
        # Weak, so that a thread does not keep a loop that is closed. The callback below holds it.
        _of_thread.reference = weakref.ref(calls)
    target: asyncio.Future[T] = loop.create_future()

    def settle() -> None:
        if target.done():  # the code that waited for it was cancelled
            return
        if future.cancelled():
            target.cancel()
        elif (error := future.exception()) is not None:
            target.set_exception(error)
        else:
            target.set_result(future.result())

    def hand_over(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed, and nobody waits any more
            calls.add(settle)

    future.add_done_callback(hand_over)
    return target


# --- delivery of messages --------------------------------------------------------------------------------------------
#
# `InboxDelivery` passes on messages from the store to the executions that this process drives. There is one per
# store, on the engine's loop. Messages from this process are delivered at once. The store notifies about messages from
# other processes while an execution runs.


INTERVAL = 0.05
"""Seconds until the inbox delivery subscribes to the store's news. Most executions are parked before that."""


class InboxDelivery:
    """Delivery of messages (answers, signals) from the store's inbox to the executions that this process drives."""

    def __init__(self, calls: StoreCalls) -> None:
        self._calls = calls
        self._store = calls.store
        self._runners: dict[str, Runner] = {}
        self._unread: dict[str, Sequence[Message]] = {}
        """Messages that were read with the lease of an execution, until its runner takes them."""
        self._last_number: int | None = None
        """Number of the last message that was read, or None before the first read."""
        self._task: asyncio.Task[None] | None = None
        self._has_news = False
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Callable[[], None] | None = None
        """Ends the subscription to the store's news, if there is one."""

    def add(self, execution_id: str, runner: Runner, unread: Sequence[Message] | None = None) -> None:
        """Deliver the messages of an execution to its runner from now on.

        The runner reads earlier messages itself when it starts (`read`). `unread` are those that were read with its
        lease.
        """
        # While no runner listened, messages were not followed, so the next read begins anew.
        if not self._runners:
            self._last_number = None
        self._runners[execution_id] = runner
        # A message may have arrived after `unread` was read. The next read of the news finds it if it names all
        # runners, or begins before that message. A read that has begun already may have passed it by.
        if unread and self._task is None and (self._last_number is None or self._last_number < unread[-1].number):
            self._unread[execution_id] = unread
        if self._unsubscribe is None and self._timer is None:
            # Later, because a subscription costs more than a short execution takes.
            self._timer = call_later_if_alive(INTERVAL, self._listen)

    def remove(self, execution_id: str) -> None:
        """Stop delivering the messages of an execution, because its runner no longer reads them."""
        self._runners.pop(execution_id, None)
        self._unread.pop(execution_id, None)
        if not self._runners and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def has(self, execution_id: str) -> bool:
        """Return whether messages to an execution are delivered by this object, because its runner is registered here.
        Callable from any thread.
        """
        return execution_id in self._runners

    async def read(self, execution_id: str, after: int) -> Sequence[Message]:
        """Return the messages of an execution with numbers above `after`, oldest first."""
        unread = self._unread.pop(execution_id, None)
        if unread is not None:
            return unread
        return await self._calls.patiently(lambda: self._store.inbox(execution_id, after))

    async def deliver(self, execution_id: str) -> bool:
        """Make the runner of an execution read its inbox now. Return False if no runner of this process reads it."""
        runner = self._runners.get(execution_id)
        if runner is None:
            return False
        try:
            return await runner.take()
        except FencedError:  # another process drives it and reads its inbox; the local driver raises
            return False

    def _listen(self) -> None:
        self._timer = None
        if not self._runners or self._unsubscribe is not None:
            return
        loop = asyncio.get_running_loop()

        def on_news() -> None:
            if not loop.is_closed():
                # The store calls this in a thread of its own.
                loop.call_soon_threadsafe(self._start_reading)

        self._unsubscribe = self._store.on_news(on_news)

    def _start_reading(self) -> None:
        self._has_news = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._read_news(), name="divebook-inbox")

    async def _read_news(self) -> None:
        try:
            while self._has_news and self._runners:
                # Cleared before the read: news that arrives during the read causes another one.
                self._has_news = False
                self._last_number, addressed = await self._calls.patiently(self._new_messages)
                for execution_id in addressed:
                    # The next read has only later messages, so an execution that cannot read its own must not keep the
                    # others from theirs (test_an_execution_that_cannot_read_its_messages_keeps_no_other_from_them).
                    with contextlib.suppress(DivebookError):
                        await self.deliver(execution_id)
        except StoreError:  # the store is gone or damaged: the code that uses it raises
            return
        finally:
            self._task = None

    def _new_messages(self) -> tuple[int, set[str]]:
        """Return the executions for which messages may have arrived since the last check, by id, and the number of the
        last message in the store.

        The first read names all runners, because a message may have arrived after its runner started
        (test_a_signal_from_elsewhere_before_the_first_look_is_found).
        """
        if self._last_number is None:
            return self._store.last_message(), set(self._runners)
        messages = self._store.new_messages(self._last_number)
        last = max((message.number for message in messages), default=self._last_number)
        return last, {message.execution_id for message in messages}


def must_return_at_once() -> bool:
    """Return whether the calling thread runs an event loop that a wait would block.

    It is False in the thread of a kernel, whose cells have the loop to themselves: a cell that starts a run shows what
    is in the store. It is False on the engine's own thread as well.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return not is_kernel() and not ENGINE.is_current()


T = TypeVar("T")
PATIENCE = 1.0
"""Seconds for which a short wait, such as that for the start of a run, ignores a keyboard interrupt."""


class LeftError(ExecutionError):
    """Error for callers that wait for an execution which this process has stopped driving before its end."""


LEFT = (
    "it stopped when its environment was closed; resume it in an open environment, or start it again if it was not "
    "stored"
)
STOP_SECONDS = 5.0
"""Seconds that the tasks of the loop have to end when the loop is stopped."""


class StoreSession:
    """Objects on the event loop that all executions of one store share: store calls, group commit, leases, inbox
    delivery.

    The session is freed with the last execution that references it.
    """

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.calls = StoreCalls(store)
        self.commit = GroupCommit(self.calls)
        self.lease_keeper = LeaseKeeper(self.calls)
        self.inbox = InboxDelivery(self.calls)


def copy_outcome(target: Future[T], source: Future[T]) -> None:
    """Copy the result or the exception of the future `source` to the future `target`. Do nothing if `target` is done
    already.
    """
    with contextlib.suppress(InvalidStateError):  # the loop has died meanwhile
        if (error := source.exception()) is not None:
            target.set_exception(error)
        else:
            target.set_result(source.result())


def _complete(future: Future[None]) -> None:
    with contextlib.suppress(InvalidStateError):  # the loop has died, or the execution has failed meanwhile
        future.set_result(None)


def copy_error(first_commit: Future[T], driving: Future[T]) -> None:
    """Copy the exception of the future `driving`, if it has one, to the future `first_commit`. Callers who wait for the
    first commit get it then. Do nothing if `first_commit` is done already.
    """
    error = driving.exception()
    if error is not None and not first_commit.done():
        first_commit.set_exception(error)


ENGINE = EngineThread()
"""The engine thread of this process."""
