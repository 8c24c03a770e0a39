"""Concurrent strands of one path: items of a parallel `Each`, or calls of a `gather`.

A strand that waits for an answer parks in place, so the answer finds it there and nothing is unwound. If all strands
are parked, nothing can happen. They then stay in memory, if `divebook.runtime.runner` has room, or are unwound with
`Suspended` and later replayed when there is an answer
(test_questions_asked_side_by_side_keep_their_answers_whatever_ended_first).

Example: `gather(ask("A"), ask("B"), model())` has three strands. Both `ask` strands park while the model call runs.
When it ends, the count of running strands is 0 and the path is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from divebook.questions import Question
from divebook.runtime.clock import StepLog


class Suspended(BaseException):
    """Unwinds a step that cannot continue before a message from outside."""


class ContinuedAsNew(Suspended):
    """Unwinds a step whose execution continues as a successor."""

    def __init__(self, successor: str, reason: str, inputs: Mapping[str, Any]) -> None:
        super().__init__()
        self.successor = successor
        self.reason = reason
        self.inputs = inputs


class CallCounter:
    """Count of calls that one strand waits for while it does nothing else. The first call uses the strand's own place.

    Each further call counts as one more strand. A call that waits for calls of its own has its own `CallCounter`.
    """

    def __init__(self, calls: ConcurrentCalls) -> None:
        self._calls = calls
        self._count = 0

    def begin(self) -> None:
        """Count one more call."""
        self._calls.running += self._count > 0
        self._count += 1

    def end(self) -> None:
        """Count one call less. The last one returns the place to the strand."""
        self._count -= 1
        if self._count:
            self._calls.leave()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call for the duration of the block."""
        self.begin()
        try:
            yield
        finally:
            self.end()


class ConcurrentCalls:
    """The strands of one path while its step runs. There is one at first, the step's own.

    Parameters
    ----------
    idle
        Called when all strands are parked, to unwind them now or later.
    changed
        Called when the strands become blocked or unblocked; see `is_blocked`.
    """

    def __init__(self, idle: Callable[[ConcurrentCalls], None], changed: Callable[[], None] = lambda: None) -> None:
        self.running = 1
        self.are_parked = False
        """True while the execution is not driven. A strand that moves nevertheless is unwound."""
        self._idle = idle
        self._changed = changed
        self._may_park = True
        self._open_calls = 0
        self._parked: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._waiting_alone: list[asyncio.Future[None]] = []
        """Strands that wait until no other strand runs."""
        self._pauses: set[anyio.CancelScope] = set()
        self._are_ending = False

    @contextmanager
    def before_attempt(self) -> Iterator[None]:
        """Wrap the pause of a strand before a retry.

        Raises
        ------
        Suspended
            There are no more retries, even if that was decided during the pause.
        """
        if self._are_ending:
            raise Suspended
        with anyio.CancelScope() as pause:
            self._pauses.add(pause)
            try:
                yield
            finally:
                self._pauses.discard(pause)
        if self._are_ending:
            raise Suspended

    def end(self) -> None:
        """Stop further retries, because the step has failed (test_a_path_whose_failure_is_caught_sleeps_no_longer).

        Running calls finish.
        """
        self._are_ending = True
        for pause in self._pauses:
            pause.cancel()

    @contextmanager
    def side_by_side(self, count: int) -> Iterator[Callable[[], AbstractContextManager[None]]]:
        """Count `count` strands that run while the block only waits for them.

        Yields a function that makes the context manager in which each strand runs.
        """
        remaining = count

        @contextmanager
        def strand() -> Iterator[None]:
            nonlocal remaining
            try:
                yield
            finally:
                remaining -= 1
                if remaining:  # the last one gives its place to the waiting strand, which continues
                    self.leave()

        self.running += max(0, count - 1)
        try:
            yield strand
        finally:
            self.running -= max(0, remaining - 1)  # strands cancelled before they started

    @contextmanager
    def open_call(self) -> Iterator[None]:
        """Wrap a question that is asked during a call, which stays open until the answer arrives.

        The strand of the call parks for the answer. The call itself cannot be replayed, so no strand of the path is
        unwound meanwhile. If all strands are parked, the path is blocked.
        """
        self._open_calls += 1
        try:
            yield
        finally:
            self._open_calls -= 1

    async def alone(self) -> None:
        """Wait until no other strand runs: each has ended, or is parked without an open call.

        Used before unwinding the other strands, which would abort their running calls.
        """
        never = asyncio.get_running_loop().create_future()
        await self.wait_beside_others(never)

    async def wait_beside_others(self, change: asyncio.Future[None]) -> bool:
        """Wait for a change that another strand makes. Return False once no other strand runs.

        The strand does not count as running meanwhile. If two strands wait for each other, each in turn learns that no
        change can come.
        """
        if change.done():
            return True
        if self.running <= 1 and not self._open_calls:
            return False
        alone = asyncio.get_running_loop().create_future()
        self._waiting_alone.append(alone)
        self.leave()
        try:
            await asyncio.wait((alone, change), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if alone in self._waiting_alone:  # the change came first, or the strand was cancelled
                self._waiting_alone.remove(alone)
                self._continue()
        return change.done()

    async def park(self, is_ready: Callable[[], bool]) -> None:
        """Wait until `is_ready` returns True.

        Raises
        ------
        Suspended
            No strand of the path has anything left to do.
        """
        if is_ready():
            return
        parked = asyncio.get_running_loop().create_future()
        self._parked[parked] = is_ready
        self.leave()
        try:
            woken = await parked
        except asyncio.CancelledError:
            if self._parked.pop(parked, None) is not None:
                self._continue()
            if self.are_parked:  # a time limit of user code; its handling is replayed
                raise Suspended from None
            raise
        if not woken:
            raise Suspended

    def wake(self) -> None:
        """Resume the parked strands that are ready. Call this after a message from outside."""
        for parked, is_ready in list(self._parked.items()):
            if is_ready():
                self._release(parked, woken=True)

    def leave(self) -> None:
        """Count a strand as ended or parked. If it was the last running one, handle the idle or blocked path."""
        self.running -= 1
        if self.is_blocked:
            self._changed()
        elif self.running <= 0 and self._waiting_alone:
            self.running += 1
            waiting = self._waiting_alone.pop(0)
            if not waiting.done():  # otherwise it was cancelled and has not run since
                waiting.set_result(None)
        elif self.is_idle:
            if self._may_park:
                self._idle(self)
            else:
                self.unwind()

    def _continue(self) -> None:
        """Count a parked strand as running again."""
        was_blocked = self.is_blocked
        self.running += 1
        if was_blocked:
            self._changed()

    @property
    def is_idle(self) -> bool:
        """True if all strands are parked and can be unwound."""
        return self.running <= 0 and bool(self._parked) and not self._open_calls

    @property
    def is_blocked(self) -> bool:
        """True if all strands are parked and cannot be unwound because a call is open."""
        return self.running <= 0 and self._open_calls > 0

    @property
    def parked(self) -> int:
        """Number of parked strands."""
        return len(self._parked)

    def forbid_parking(self) -> None:
        """Make idle strands unwind instead of park, because code runs that is not counted among them."""
        self._may_park = False

    def unwind(self) -> None:
        """End all parked strands by unwinding them. Later ones are unwound as well, because the step is replayed."""
        self._may_park = False
        for parked in list(self._parked):
            self._release(parked, woken=False)

    def _release(self, parked: asyncio.Future[bool], *, woken: bool) -> None:
        del self._parked[parked]
        self._continue()
        if not parked.done():  # otherwise it was cancelled and has not run since
            parked.set_result(woken)


# --- task groups -----------------------------------------------------------------------------------------------------
#
# Tasks that run concurrently and end together: paths of an execution, items of a step, calls of a function.
#
# A group works like anyio's task group at half the cost per task. Each task has its own cancel scope, so a cancellation
# is raised again if it is caught, and waits for shielded code (`tests/runtime/test_groups.py`).


STARTS_A_TURN = 32


async def after_start(number: int) -> None:
    """Yield to the event loop after every few started tasks; `number` counts them from 1.

    The first calls are then running or done while the others start. This also spreads the ends of calls of equal
    duration.
    """
    if number % STARTS_A_TURN == 0:
        await checkpoint()


class Group:
    """A group of tasks, and the block that waits for them. Lives on one event loop."""

    def __init__(self) -> None:
        self.is_open = False
        """True while the block runs, so that tasks can start."""
        self._scope = anyio.CancelScope()
        """Cancel scope around the block."""
        self._tasks: dict[asyncio.Task[None], tuple[anyio.CancelScope, Coroutine[Any, Any, object]]] = {}
        self._background: set[asyncio.Task[None]] = set()
        """Tasks that the block does not wait for."""
        self._error: BaseException | None = None
        self._next_end_future: asyncio.Future[None] | None = None
        """Done as soon as another task has ended."""

    @property
    def is_cancelled(self) -> bool:
        """True if the group was cancelled."""
        return self._scope.cancel_called

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Wrap the code that starts the tasks. At its end, wait for them, then cancel the tasks that are aside.

        An error of a task or of the block cancels the others. The first error is raised.
        """
        with self._scope:
            self.is_open = True
            try:
                yield
                while len(self._tasks) > len(self._background):
                    await self._next_end()
            finally:
                self.is_open = False
                if self._tasks:
                    self.cancel()
                    with anyio.CancelScope(shield=True):
                        while self._tasks:
                            await self._next_end()
        error = self._error
        self._error = None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame

    def start(self, work: Coroutine[Any, Any, object], *, is_background: bool = False) -> None:
        """Run a coroutine as a task, or cancel it if the block has ended.

        The block does not wait for tasks that are `is_background`.
        """
        scope = type(self._scope)()  # `anyio.CancelScope` would look up the event loop library each time
        if self.is_cancelled or not self.is_open:
            scope.cancel()
        task = asyncio.get_running_loop().create_task(_run(scope, work), name="divebook-side-by-side")
        task.add_done_callback(self._on_task_end)
        self._tasks[task] = scope, work
        if is_background:
            self._background.add(task)

    def cancel(self) -> None:
        """Cancel the block and every task, even before the block starts."""
        self._scope.cancel()
        for scope, _ in self._tasks.values():
            scope.cancel()

    def cancel_background(self) -> None:
        """Cancel the tasks that the block does not wait for, including those that have not started."""
        for task in self._background:
            self._tasks[task][0].cancel()

    def _next_end(self) -> asyncio.Future[None]:
        self._next_end_future = asyncio.get_running_loop().create_future()
        return self._next_end_future

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task)[1].close()  # if it was cancelled before it started
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None or task.cancelled():  # a direct `Task.cancel` cancels the whole group
            self._error = self._error or error
            self.cancel()
        if self._next_end_future is not None and not self._next_end_future.done():
            self._next_end_future.set_result(None)


async def _run(scope: anyio.CancelScope, work: Coroutine[Any, Any, object]) -> None:
    """Run the coroutine in its scope, unless the scope was cancelled before it started."""
    with scope:
        if scope.cancel_called:
            work.close()
        else:
            await work


# --- waiting for messages from outside -------------------------------------------------------------------------------


async def _nothing(_interrupt_id: str) -> None:
    """Skip expiry: a log that is only replayed has all outcomes of its questions."""


class Waits:
    """The strands of all paths of one execution, and their deadlines."""

    def __init__(self, journal: StepLog) -> None:
        self.idle: Callable[[ConcurrentCalls], None] = ConcurrentCalls.unwind
        """Called with the strands of a path that has nothing left to do."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the strands of a path become blocked or unblocked."""
        self.expire: Callable[[str], Awaitable[None]] = _nothing
        """Expire an open question before its time."""
        self._calls: dict[str, ConcurrentCalls] = {}
        """By path: the strands of its present step, if they were requested."""
        self.deadlines: Callable[[str, int], None] | None = None
        """Set a timer that checks a path again at a time, in microseconds."""
        self._journal = journal

    def enter(self, path: str) -> None:
        """Forget the strands of the step that a path was in."""
        self._calls.pop(path, None)

    def concurrent_calls(self, path: str) -> ConcurrentCalls:
        """Return the strands of the step that a path is in."""
        if path not in self._calls:
            self._calls[path] = ConcurrentCalls(self.idle, self._on_change)
        return self._calls[path]

    def _on_change(self) -> None:
        self.changed()

    def is_blocked(self, path: str) -> bool:
        """Return whether the step of a path has an open call and can only continue with an answer."""
        calls = self._calls.get(path)
        return calls is not None and calls.is_blocked

    def count(self, path: str) -> int:
        """Return the number of strands of a path; one if its step has not requested any."""
        calls = self._calls.get(path)
        return 1 if calls is None else calls.running + calls.parked

    async def until(self, path: str, is_ready: Callable[[], bool]) -> None:
        """Wait until `is_ready` returns True.

        It is checked at `look_again` and at each message; see `ConcurrentCalls.park`.
        """
        await self.concurrent_calls(path).park(is_ready)

    def look_again(self, path: str, at: int | None) -> None:
        """Check a path again at a time, even without a message; None for never."""
        if at is not None and self.deadlines is not None:
            self.deadlines(path, at)

    async def answer(self, path: str, interrupt_id: str) -> Question:
        """Return a question once it is answered or expired.

        Raises
        ------
        Suspended
            It is open, and no strand of the path has anything else to do.
        """

        def is_settled() -> bool:
            return not self._journal.state.interrupts[interrupt_id].is_open

        await self.until(path, is_settled)
        return self._journal.state.interrupts[interrupt_id]
