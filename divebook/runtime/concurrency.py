"""Concurrent tasks of one path (items of a parallel `Each`, or calls of a `gather`), and waiting for messages.

Names in the code call such a task a strand. A task that waits for an answer parks: its coroutine stays in memory and
continues there when the answer arrives. If all tasks of a path are parked, nothing can happen on the path. The tasks
then stay in memory, if `divebook.runtime.runner` has room. Otherwise they are unwound with `Suspended`, and replayed
from the log when there is an answer (test_questions_asked_side_by_side_keep_their_answers_whatever_ended_first).

Example: `gather(ask("A"), ask("B"), model())` has three tasks. Both `ask` tasks park while the model call runs. When it
ends, the count of running tasks is 0 and the path is idle.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from divebook.questions import Question
from divebook.runtime.clock import StepLog

STRAND: ContextVar[str] = ContextVar("divebook_strand", default="")
"""Position of the running code among nested `gather` calls, such as ``gather-1.0-``; empty outside of any `gather`. It
is part of the keys of operations.
"""


class Suspended(BaseException):
    """Exception that leaves the code of a step, because the code cannot continue before an answer or a signal arrives.
    The code is replayed later.
    """


class ContinuedAsNew(Suspended):
    """Exception that leaves the code of a step, because its execution ends and continues as a successor execution."""

    def __init__(self, successor: str, reason: str, inputs: Mapping[str, Any]) -> None:
        super().__init__()
        self.successor = successor
        self.reason = reason
        self.inputs = inputs


class CallCounter:
    """Counter of the calls for which one concurrent task of a path waits, while the task does nothing else.

    The first call counts in place of the task, and each further call counts as one more running task. A call that waits
    for calls of its own has its own `CallCounter`.
    """

    def __init__(self, calls: ConcurrentCalls) -> None:
        self._calls = calls
        self._count = 0

    def begin(self) -> None:
        """Note that the task waits for one more call, which is running now."""
        # Example: a task makes two calls at once. It counts as 1 before, as 2 while both run, and as 1 after each
        # end.
        self._calls.running += self._count > 0
        self._count += 1

    def end(self) -> None:
        """Note that a call for which the task waits has ended. After the last call, the task itself counts as running
        again.
        """
        self._count -= 1
        if self._count:
            self._calls.leave()

    def __enter__(self) -> None:
        """Count one call as running inside the `with` block. Blocks may overlap."""
        self.begin()

    def __exit__(self, *error: object) -> None:
        self.end()


class ConcurrentCalls:
    """Counter of the concurrent tasks of one path, while a step of the path runs. It distinguishes running tasks from
    parked ones, which wait for a message.

    At first there is one task, which runs the step's own code.

    Parameters
    ----------
    idle
        Called when all tasks are parked, to unwind them now or later.
    changed
        Called when the tasks become blocked or unblocked; see `is_blocked`.
    """

    def __init__(self, idle: Callable[[ConcurrentCalls], None], changed: Callable[[], None] = lambda: None) -> None:
        # Number of running tasks; parked ones do not count.
        self.running = 1
        self.are_parked = False
        """True while the execution is not driven. A task that continues all the same is unwound."""
        self._idle = idle
        self._changed = changed
        self._may_park = True
        self._open_calls = 0
        self._parked: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._waiting_alone: list[asyncio.Future[None]] = []
        """Tasks that wait until no other task runs."""
        self._pauses: set[anyio.CancelScope] = set()
        self._are_ending = False

    @contextmanager
    def before_attempt(self) -> Iterator[None]:
        """Wrap the pause before another attempt, so that `end` can interrupt the pause.

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
        """Allow no further attempts of failed calls, and interrupt the pauses before attempts, because the step has
        failed. Running calls finish.
        """
        # Otherwise the path would sleep to the end of a pause for nothing
        # (test_a_path_whose_failure_is_caught_sleeps_no_longer).
        self._are_ending = True
        for pause in self._pauses:
            pause.cancel()

    @contextmanager
    def side_by_side(self, count: int) -> Iterator[Callable[[], AbstractContextManager[None]]]:
        """Count `count` concurrent tasks of the path as running inside the `with` block. The code of the block itself
        is not counted, because it only waits for them.

        Yields a function that makes the context manager in which each task runs. The first task that raises an error
        counts as running until the block ends, because the block continues with that error.
        """
        remaining = count
        has_failed = False

        @contextmanager
        def strand() -> Iterator[None]:
            nonlocal remaining, has_failed
            is_first_failure = False
            try:
                yield
            except Exception:
                is_first_failure = not has_failed
                has_failed = True
                raise
            finally:
                remaining -= 1
                # One task gives its place to the waiting one, which continues: the first that failed, else the last. If
                # the failed task left, and all others were parked, the path would be parked before the others are
                # cancelled (test_a_failed_branch_is_not_held_up_by_branches_that_wait).
                if not is_first_failure and (remaining or has_failed):
                    self.leave()

        # The waiting task counts for one of them.
        self.running += max(0, count - 1)
        try:
            yield strand
        finally:
            # Strands that were cancelled before they started.
            self.running -= remaining if has_failed else max(0, remaining - 1)

    @contextmanager
    def open_call(self) -> Iterator[None]:
        """Mark a running call as open inside the `with` block, in which the call waits for the answer to a question
        that it has asked a person.

        The task of the call parks for the answer. The call itself cannot be replayed, so no task of the path is unwound
        meanwhile. If all tasks are parked, the path is blocked.
        """
        self._open_calls += 1
        try:
            yield
        finally:
            self._open_calls -= 1

    async def alone(self) -> None:
        """Wait until no other task of the path is running. Each has then ended or is parked, and none of the parked
        ones is inside a running call.

        Used before unwinding the other tasks, which would abort their running calls.
        """
        # This future is never completed, so the wait ends only when no other task runs.
        never = asyncio.get_running_loop().create_future()
        await self.wait_beside_others(never)

    async def wait_beside_others(self, change: asyncio.Future[None]) -> bool:
        """Wait for a future that another task of the path completes. Return True when it is done. Return False as soon
        as no other task runs any more that could complete it.

        The waiting task does not count as running. If two tasks wait for each other, each in turn learns that nothing
        can change.
        """
        if change.done():
            return True
        # The present task is the one that still counts.
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
        """Wait until `is_ready` returns True. Meanwhile the present task is parked: its code stays in memory, and it
        does not count as running.

        Raises
        ------
        Suspended
            No task of the path has anything left to do, and the path is unwound.
        """
        if is_ready():
            return
        # Entered before `leave`, which looks at `_parked` to decide whether the path is idle.
        parked = asyncio.get_running_loop().create_future()
        self._parked[parked] = is_ready
        self.leave()
        try:
            woken = await parked
        except asyncio.CancelledError:
            # Still parked, so `_release` has not counted this task as running again.
            if self._parked.pop(parked, None) is not None:
                self._continue()
            if self.are_parked:  # a time limit of user code; its handling is replayed
                raise Suspended from None
            raise
        if not woken:
            raise Suspended

    def wake(self) -> None:
        """Wake those waiting (parked) tasks whose function `is_ready` returns True. Call this after an answer, a signal
        or a deadline.
        """
        for parked, is_ready in list(self._parked.items()):
            if is_ready():
                self._release(parked, woken=True)

    def leave(self) -> None:
        """Note that one task has ended or is parked. If no other task of the path runs then, report by the functions
        `idle` and `changed` that the path is idle or blocked.
        """
        self.running -= 1
        # In this order: only an answer helps an open call; then a task that waits until it is alone continues; only
        # then are the parked tasks kept or unwound.
        if self.is_blocked:
            self._changed()
        elif self.running <= 0 and self._waiting_alone:
            # Counted before the woken task runs, so that another `leave` in between does not wake a second one.
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
        """Count a task that was parked as running again."""
        was_blocked = self.is_blocked
        self.running += 1
        if was_blocked:
            self._changed()

    @property
    def is_idle(self) -> bool:
        """True if all tasks of the path wait for a message (are parked) and could be ended and replayed later. This is
        impossible while one of their calls is still open.
        """
        return self.running <= 0 and bool(self._parked) and not self._open_calls

    @property
    def is_blocked(self) -> bool:
        """True if all tasks of the path wait for a message (are parked) but must stay in memory, because one of their
        calls is still open and cannot be replayed.
        """
        return self.running <= 0 and self._open_calls > 0

    @property
    def parked(self) -> int:
        """Number of tasks of the path that are parked: they wait for an answer, a signal or a deadline, and their code
        stays in memory.
        """
        return len(self._parked)

    def forbid_parking(self) -> None:
        """Keep no waiting tasks in memory (park none) from now on: when all of them wait, they are unwound. Used for
        code that runs in addition to the counted tasks.
        """
        self._may_park = False

    def unwind(self) -> None:
        """Raise `Suspended` in all waiting (parked) tasks, and in each task that would wait later. Replay then runs the
        step again.
        """
        self._may_park = False
        for parked in list(self._parked):
            self._release(parked, woken=False)

    def _release(self, parked: asyncio.Future[bool], *, woken: bool) -> None:
        del self._parked[parked]
        # Counted before the task runs: a `leave` in between must not find the path idle.
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
    """Yield to the event loop after every `STARTS_A_TURN` started tasks, so that other tasks can run. `number` counts
    the started tasks from 1.

    The first calls are then running or done while the others start. This also spreads the ends of calls of equal
    duration.
    """
    if number % STARTS_A_TURN == 0:
        await checkpoint()


class Group:
    """Group of asyncio tasks that end together, on one event loop. Tasks are started inside the `with` block of
    `running`.
    """

    def __init__(self) -> None:
        self.is_open = False
        """True while the block runs, so that tasks can start."""
        self._scope = _scope_class()()
        """Cancel scope around the block."""
        self._tasks: dict[asyncio.Task[None], tuple[anyio.CancelScope, Coroutine[Any, Any, object]]] = {}
        self._background: set[asyncio.Task[None]] = set()
        """Tasks that the block does not wait for."""
        self._error: BaseException | None = None
        self._next_end_future: asyncio.Future[None] | None = None
        """Future that is done as soon as another task has ended."""

    @property
    def is_cancelled(self) -> bool:
        """True if `cancel` was called for the task group."""
        return self._scope.cancel_called

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Wrap the code that starts the tasks of the group. At the end of the `with` block, wait for all tasks except
        background tasks, which are then cancelled.

        An error of a task or of the block cancels the others. The first error is raised.
        """
        with self._scope:
            self.is_open = True
            try:
                yield
                # Tasks may start further tasks, so the number is checked after each end.
                while len(self._tasks) > len(self._background):
                    await self._next_end()
            finally:
                self.is_open = False
                if self._tasks:
                    self.cancel_all()
                    # The tasks still run their `finally` blocks. No task outlives the group, even if the caller is
                    # cancelled again.
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

    def spawn(self, work: Coroutine[Any, Any, object], *, is_background: bool = False) -> None:
        """Start a task of the group that runs a coroutine. If the block of `running` has ended already, the task is
        cancelled at once.

        The block does not wait for tasks that are `is_background`.
        """
        scope = _scope_class()()
        if self.is_cancelled or not self.is_open:
            scope.cancel()
        task = asyncio.get_running_loop().create_task(_run(scope, work), name="divebook-side-by-side")
        task.add_done_callback(self._on_task_end)
        self._tasks[task] = scope, work
        if is_background:
            self._background.add(task)

    def cancel_all(self) -> None:
        """Cancel the `with` block of `running` and all tasks of the group. May be called before the block starts."""
        self._scope.cancel()
        for scope, _ in self._tasks.values():
            scope.cancel()

    def cancel_background(self) -> None:
        """Cancel the background tasks, also if they have not started yet."""
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
            self.cancel_all()
        if self._next_end_future is not None and not self._next_end_future.done():
            self._next_end_future.set_result(None)


@functools.cache
def _scope_class() -> type[anyio.CancelScope]:
    """Return the class of cancel scopes on asyncio. `anyio.CancelScope` would look up the event loop library at each
    call.
    """
    return type(anyio.CancelScope())


async def _run(scope: anyio.CancelScope, work: Coroutine[Any, Any, object]) -> None:
    """Await a coroutine inside a cancel scope. If the scope was cancelled before, close the coroutine instead."""
    with scope:
        if scope.cancel_called:
            work.close()
        else:
            await work


# --- timers ---


def call_later_if_alive(seconds: float, method: Callable[[], None]) -> asyncio.TimerHandle:
    """Call a method after some seconds, unless its object is gone by then. The timer keeps neither the object alive nor
    the context of the caller, such as the messages of a run. Call on the event loop.
    """
    reference = weakref.WeakMethod(method)

    def call() -> None:
        bound = reference()
        if bound is not None:
            bound()

    return asyncio.get_running_loop().call_later(seconds, call, context=Context())


# --- waiting for messages from outside -------------------------------------------------------------------------------


async def _nothing(_interrupt_id: str) -> None:
    """Skip the expiry of a question: stands for the function that makes a question expire. Used when a log is only
    replayed, because the log has the outcomes of all questions.
    """


def _ignore_wait(_path: str, _interrupt_id: str) -> None:
    """Skip the look-up of a recorded answer, which only a verification needs."""


class Waits:
    """Waits of one execution for answers, signals and deadlines. It has a counter of concurrent tasks for each path."""

    def __init__(self, journal: StepLog) -> None:
        self.idle: Callable[[ConcurrentCalls], None] = ConcurrentCalls.unwind
        """Called with the `ConcurrentCalls` of a path whose tasks are all parked."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the tasks of a path become blocked or unblocked."""
        self.expire: Callable[[str], Awaitable[None]] = _nothing
        """Called with the id of an open question that shall expire now."""
        self.before_answer: Callable[[str, str], None] = _ignore_wait
        """Called with the path and the id of a question before a task waits for its answer."""
        self._calls: dict[str, ConcurrentCalls] = {}
        """Task counter of the present step of each path, by path id. Created when first used."""
        self.deadlines: Callable[[str, int], None] | None = None
        """Set a timer that checks a path again at a time, in microseconds."""
        self._journal = journal

    def enter(self, path: str) -> None:
        """Forget the counter of the concurrent tasks of a path, because the path enters another step."""
        self._calls.pop(path, None)

    def concurrent_calls(self, path: str) -> ConcurrentCalls:
        """Return the counter of the concurrent tasks in the step that a path runs now."""
        if path not in self._calls:
            self._calls[path] = ConcurrentCalls(self.idle, self._on_change)
        return self._calls[path]

    def _on_change(self) -> None:
        self.changed()

    def is_blocked(self, path: str) -> bool:
        """Return whether a path (branch) of the execution can only continue after an answer: a running call has asked a
        question, and all other tasks of the path wait too.
        """
        calls = self._calls.get(path)
        return calls is not None and calls.is_blocked

    def count(self, path: str) -> int:
        """Return the number of concurrent tasks of a path, running or parked, at least 1."""
        calls = self._calls.get(path)
        # Without a counter, only the step's own code runs.
        return 1 if calls is None else calls.running + calls.parked

    async def until(self, path: str, is_ready: Callable[[], bool]) -> None:
        """Wait until `is_ready` returns True. Meanwhile the present task of the path is parked: it does not count as
        running.

        The condition is checked after each message and at the times passed to `look_again`; see `ConcurrentCalls.park`.
        """
        await self.concurrent_calls(path).park(is_ready)

    def look_again(self, path: str, at: int | None) -> None:
        """Set a timer after which the waiting tasks of a path check whether they can continue, even if no message has
        arrived. The time is in microseconds; None sets no timer.
        """
        if at is not None and self.deadlines is not None:
            self.deadlines(path, at)

    async def wait_for_answer(self, path: str, interrupt_id: str) -> Question:
        """Wait until a question is answered or has expired, and return the question with its answer.

        Raises
        ------
        Suspended
            It is open, and no strand of the path has anything else to do.
        """

        def is_settled() -> bool:
            return not self._journal.state.interrupts[interrupt_id].is_open

        self.before_answer(path, interrupt_id)
        await self.until(path, is_settled)
        return self._journal.state.interrupts[interrupt_id]
