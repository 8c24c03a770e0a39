"""Where a person's code runs: the seam between the engine, which records calls, and what makes them.

The log stays with the process that drives the execution: the intent of a call is recorded before `Compute.run`, and
what comes back after it. A backend must only be truthful about this: the result, the error that the code raised, or
`OutcomeUnknownError` where the call may have begun and its end is not known. For a call that may not be made twice a
person is asked then.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import anyio

from divebook.engine.operations import Slot
from divebook.execution.threads import in_thread


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
