"""The concurrent strands of one path: items of a parallel `Each`, calls of a `gather`.

A strand that has to wait for an answer parks where it stands: the answer then finds it there, and nothing is unwound.
When all are parked nothing can happen: they stay as they are, where `divebook.runtime.runner` has room for them, or
are let go with `Suspended`, and what they did is replayed when there is an answer
(test_questions_asked_side_by_side_keep_their_answers_whatever_ended_first).
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
    """Unwinds a step that cannot go on before something comes from outside."""


class GoesOnElsewhere(Suspended):
    """Unwinds a step whose execution goes on as another one."""

    def __init__(self, successor: str, reason: str, inputs: Mapping[str, Any]) -> None:
        super().__init__()
        self.successor, self.reason, self.inputs = successor, reason, inputs


class CallCounter:
    """The calls that one strand waits for and does nothing else meanwhile: the first of them takes its place.

    Each further one is a strand more. A call that is itself such a strand, since it waits for calls of its own, has an
    `CallCounter` of its own.
    """

    def __init__(self, strands: ConcurrentCalls) -> None:
        self._strands, self._count = strands, 0

    def begin(self) -> None:
        """Count one more."""
        self._strands.running += self._count > 0
        self._count += 1

    def end(self) -> None:
        """Count one less; the last one gives its place back."""
        self._count -= 1
        if self._count:
            self._strands.leave()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Surround one."""
        self.begin()
        try:
            yield
        finally:
            self.end()


class ConcurrentCalls:
    """The strands of one path while its step runs; begins with one, the step's own.

    Parameters
    ----------
    idle
        Called when all are parked: lets them go, at once or later.
    changed
        Called when the strands become blocked, and when they stop being so; see `is_blocked`.
    """

    def __init__(self, idle: Callable[[ConcurrentCalls], None], changed: Callable[[], None] = lambda: None) -> None:
        self.running = 1
        self.are_resting = False
        """Whether the execution is not driven: what moves all the same is let go."""
        self._idle, self._changed, self._may_stay = idle, changed, True
        self._open_calls = 0
        self._parked: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._last: list[asyncio.Future[None]] = []
        """Strands that wait until no other runs."""
        self._pauses: set[anyio.CancelScope] = set()
        self._are_ending = False

    @contextmanager
    def before_attempt(self) -> Iterator[None]:
        """Let a strand pause in the block before it tries something again.

        Raises
        ------
        Suspended
            Nothing is to be tried again, also where that is said only during the pause.
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
        """Let no strand try anything again: the step has failed (test_a_path_whose_failure_is_caught_sleeps_no_longer).

        What is under way comes to its end.
        """
        self._are_ending = True
        for pause in self._pauses:
            pause.cancel()

    @contextmanager
    def side_by_side(self, count: int) -> Iterator[Callable[[], AbstractContextManager[None]]]:
        """Begin `count` strands and wait for them inside the block, with nothing to do meanwhile.

        What the block receives makes the context in which each of them runs.
        """
        left = count

        @contextmanager
        def strand() -> Iterator[None]:
            nonlocal left
            try:
                yield
            finally:
                left -= 1
                if left:  # else its place is taken by the one that waits for them, which goes on now
                    self.leave()

        self.running += max(0, count - 1)
        try:
            yield strand
        finally:
            self.running -= max(0, left - 1)  # those that were cancelled before they began

    @contextmanager
    def open_call(self) -> Iterator[None]:
        """Surround a question that is asked during a call, which stays open until the answer comes.

        The strand of the call parks for the answer. The call itself cannot be replayed, so no strand of the path is
        let go meanwhile; when all are parked, the path is blocked.
        """
        self._open_calls += 1
        try:
            yield
        finally:
            self._open_calls -= 1

    async def alone(self) -> None:
        """Return when no other strand runs: each has ended, or is parked without an open call.

        For one that is about to unwind the others, which would cut what they have under way.
        """
        never = asyncio.get_running_loop().create_future()
        await self.wait_beside_others(never)

    async def wait_beside_others(self, change: asyncio.Future[None]) -> bool:
        """Wait for a change that another strand brings; return False once no other strand runs.

        The strand does not count as running meanwhile. Two strands that wait for each other are thus told one by one
        that nothing can come.
        """
        if change.done():
            return True
        if self.running <= 1 and not self._open_calls:
            return False
        alone = asyncio.get_running_loop().create_future()
        self._last.append(alone)
        self.leave()
        try:
            await asyncio.wait((alone, change), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if alone in self._last:  # the change came first, or the strand was cancelled
                self._last.remove(alone)
                self._continue()
        return change.done()

    async def park(self, is_ready: Callable[[], bool]) -> None:
        """Return when `is_ready`, at once if it is already.

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
            if self.are_resting:  # a time limit of the code's own; what it does then is replayed
                raise Suspended from None
            raise
        if not woken:
            raise Suspended

    def wake(self) -> None:
        """Let those go on that are ready; call it when something has come from outside."""
        for parked, is_ready in list(self._parked.items()):
            if is_ready():
                self._release(parked, woken=True)

    def leave(self) -> None:
        """Let a strand end, or rest; where it was the last that was not parked, nothing is left to do."""
        self.running -= 1
        if self.is_blocked:
            self._changed()
        elif self.running <= 0 and self._last:
            self.running += 1
            waiting = self._last.pop(0)
            if not waiting.done():  # else it was cancelled, and does not know it yet
                waiting.set_result(None)
        elif self.is_idle:
            if self._may_stay:
                self._idle(self)
            else:
                self.let_go()

    def _continue(self) -> None:
        """Count a strand that was parked as running again."""
        was_blocked = self.is_blocked
        self.running += 1
        if was_blocked:
            self._changed()

    @property
    def is_idle(self) -> bool:
        """Whether all are parked, and can be let go."""
        return self.running <= 0 and bool(self._parked) and not self._open_calls

    @property
    def is_blocked(self) -> bool:
        """Whether all are parked, and cannot be let go because a call is open."""
        return self.running <= 0 and self._open_calls > 0

    @property
    def parked(self) -> int:
        """How many are."""
        return len(self._parked)

    def forbid_staying(self) -> None:
        """Have them let go when they are idle: there is code that is not counted among them."""
        self._may_stay = False

    def let_go(self) -> None:
        """Unwind all that are parked; after that the others do not stay either, since the step is replayed."""
        self._may_stay = False
        for parked in list(self._parked):
            self._release(parked, woken=False)

    def _release(self, parked: asyncio.Future[bool], *, woken: bool) -> None:
        del self._parked[parked]
        self._continue()
        if not parked.done():  # else it was cancelled, and does not know it yet
            parked.set_result(woken)


# Tasks that run side by side and end together: paths of an execution, items of a step, calls of a function.
#
# A group does what anyio's task groups do, for half of what they cost a task. Each task has a cancel scope of its own,
# so that a cancellation comes again where it is caught, and waits for what is shielded
# (`tests/execution/test_groups.py`).


STARTS_A_TURN = 32


async def after_start(number: int) -> None:
    """Let the loop turn after every few tasks that are started side by side; `number` counts them from 1.

    The calls of the first ones are then under way, or done, while the others still begin, and the ends of calls that
    take equally long are spread as well.
    """
    if number % STARTS_A_TURN == 0:
        await checkpoint()


class Group:
    """Tasks, and the block that waits for them; all of it on one loop."""

    def __init__(self) -> None:
        self.is_open = False
        """Whether the block goes on, so that something can still begin."""
        self._scope = anyio.CancelScope()
        """Around the block."""
        self._tasks: dict[asyncio.Task[None], tuple[anyio.CancelScope, Coroutine[Any, Any, object]]] = {}
        self._aside: set[asyncio.Task[None]] = set()
        """Tasks that the block does not wait for."""
        self._error: BaseException | None = None
        self._left: asyncio.Future[None] | None = None
        """To be done as soon as another task has ended."""

    @property
    def is_cancelled(self) -> bool:
        """Whether all of it has been told to end."""
        return self._scope.cancel_called

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Surround what starts the tasks; at its end, wait for all of them, and cancel those that are aside.

        An error of a task, or of the block, cancels the rest, and the first one is raised.
        """
        with self._scope:
            self.is_open = True
            try:
                yield
                while len(self._tasks) > len(self._aside):
                    await self._next_end()
            finally:
                self.is_open = False
                if self._tasks:
                    self.cancel()
                    with anyio.CancelScope(shield=True):
                        while self._tasks:
                            await self._next_end()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame

    def start(self, work: Coroutine[Any, Any, object], *, is_aside: bool = False) -> None:
        """Run something in a task of its own, unless the block is over; it does not wait for what is `aside`."""
        scope = type(self._scope)()  # `anyio.CancelScope` would look for the library of the loop each time
        if self.is_cancelled or not self.is_open:
            scope.cancel()
        task = asyncio.get_running_loop().create_task(_run(scope, work), name="divebook-side-by-side")
        task.add_done_callback(self._take_leave)
        self._tasks[task] = scope, work
        if is_aside:
            self._aside.add(task)

    def cancel(self) -> None:
        """Cancel the block, also one that is still to begin, and every task."""
        self._scope.cancel()
        for scope, _ in self._tasks.values():
            scope.cancel()

    def cancel_aside(self) -> None:
        """Cancel the tasks that the block does not wait for, those that are still to begin as well."""
        for task in self._aside:
            self._tasks[task][0].cancel()

    def _next_end(self) -> asyncio.Future[None]:
        self._left = asyncio.get_running_loop().create_future()
        return self._left

    def _take_leave(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task)[1].close()  # if it was cancelled before it began
        self._aside.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None or task.cancelled():  # by somebody's `Task.cancel`, which means the whole
            self._error = self._error or error
            self.cancel()
        if self._left is not None and not self._left.done():
            self._left.set_result(None)


async def _run(scope: anyio.CancelScope, work: Coroutine[Any, Any, object]) -> None:
    """Run the work in its scope, unless that was cancelled before it began."""
    with scope:
        if scope.cancel_called:
            work.close()
        else:
            await work


# How the code of an execution waits for something from outside.


async def _nothing(_interrupt_id: str) -> None:
    """Let no question expire: a log that is only replayed has all that became of its questions."""


class Waits:
    """Where the strands of an execution wait, and for how long."""

    def __init__(self, journal: StepLog) -> None:
        self.idle: Callable[[ConcurrentCalls], None] = ConcurrentCalls.let_go
        """Takes the strands of a path that has nothing left to do."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the strands of a path become blocked, and when they stop being so."""
        self.expire: Callable[[str], Awaitable[None]] = _nothing
        """Lets an open question expire before its time."""
        self._strands: dict[str, ConcurrentCalls] = {}
        """Of the step that each path is in, where that has asked for any."""
        self.deadlines: Callable[[str, int], None] | None = None
        """Takes a path that is to be looked at again, and when (microseconds)."""
        self._journal = journal

    def enter(self, path: str) -> None:
        """Forget the strands of the step that a path was in."""
        self._strands.pop(path, None)

    def strands(self, path: str) -> ConcurrentCalls:
        """Return the strands of the step that a path is in."""
        if path not in self._strands:
            self._strands[path] = ConcurrentCalls(self.idle, self._note_change)
        return self._strands[path]

    def _note_change(self) -> None:
        self.changed()

    def is_blocked(self, path: str) -> bool:
        """Whether the step of a path has an open call, and nothing can happen there before an answer comes."""
        strands = self._strands.get(path)
        return strands is not None and strands.is_blocked

    def count(self, path: str) -> int:
        """Return how many strands a path has; one, where its step has asked for none."""
        found = self._strands.get(path)
        return 1 if found is None else found.running + found.parked

    async def until(self, path: str, is_ready: Callable[[], bool]) -> None:
        """Return when `is_ready`, at `look_again` or when something comes; see `ConcurrentCalls.park`."""
        await self.strands(path).park(is_ready)

    def look_again(self, path: str, at: int | None) -> None:
        """Let a path look again at a time, though nothing comes; None for never."""
        if at is not None and self.deadlines is not None:
            self.deadlines(path, at)

    async def answer(self, path: str, interrupt_id: str) -> Question:
        """Return a question once it is settled.

        Raises
        ------
        Suspended
            It is not, and no strand of the path has anything else to do.
        """

        def is_settled() -> bool:
            return not self._journal.state.interrupts[interrupt_id].is_open

        await self.until(path, is_settled)
        return self._journal.state.interrupts[interrupt_id]
