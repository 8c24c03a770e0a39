"""Writes what executions have recorded: once per turn of the engine's loop, for all executions of a store together.

Where several executions are under way the wait for the disk comes apart from the commit (`divebook.runtime.commit`):
the loop goes on, and what it commits meanwhile shares the next wait.

A store on this machine is written to where the loop stands: handing a commit to a thread would cost more than the
commit (``benchmarks/floor.py``). Any other is written to from a thread, one commit at a time; what is recorded
meanwhile makes up the next one (``tests/execution/test_journal.py``). Where a single path is under way, and the commit
before took a moment, the loop sends the next one itself, and waits a moment for the answer: to hand it to a thread, to
turn and be woken takes as long as the server does. What takes longer a thread waits for.
"""

from __future__ import annotations

import asyncio
import functools
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from divebook.errors import StoreBusyError, StoreError
from divebook.events.catalog import RUNNING
from divebook.runtime.compute.threads import ThreadCall, aside, begun_aside
from divebook.store.append import FULL, Appending, Batch
from divebook.store.base import EventStore
from divebook.text.format import in_parts
from divebook.text.redaction import logger

# Waits for the disk for many executions together, while the engine's loop goes on.
#
# A single execution waits where it stands: a thread would cost it more than it gains. As soon as a second one is under
# way, what the loop commits is brought to the disk by a thread, one time after the other; all that is committed during
# one shares the next (tests/execution/test_syncs.py).


_STOPPED = StoreError("the engine was stopped during a commit; what the store holds can be resumed")


class Durable(Protocol):
    """A journal, as far as its durability is concerned."""

    def synced(self, sequence: int, error: Exception | None) -> None:
        """Hear that its events up to one are durable, or why they are not."""


J = TypeVar("J", bound=Durable)


class _Round(Generic[J]):
    """What is brought to the disk at once, and those who wait for that."""

    def __init__(self) -> None:
        self.reached: dict[J, int] = {}
        self.waiting: list[asyncio.Future[None]] = []


class Syncs(Generic[J]):
    """The waits for the disk of one store; on the engine's loop."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._running: weakref.WeakSet[J] = weakref.WeakSet()
        """The journals of executions that go on and wait for the disk, of a store that can be waited for apart."""
        self._present: _Round[J] | None = None
        self._next: _Round[J] = _Round()

    @property
    def are_shared(self) -> bool:
        """Whether several executions would wait for the disk."""
        return len(self._running) > 1

    def come_apart(self, batches: Mapping[J, Batch]) -> bool:
        """Return whether these batches are to be written first, and waited for later."""
        if not self._store.syncs_apart:
            return False
        are_full, usual = False, self._store.durability
        for journal, batch in batches.items():
            if (batch.durability or usual) == FULL:
                are_full = True
                (self._running.add if batch.status == RUNNING else self._running.discard)(journal)
        return are_full and (self.are_shared or self._present is not None)

    def wait_for(self, written: Mapping[J, int], waiting: Iterable[asyncio.Future[None]]) -> None:
        """Have what is written of executions brought to the disk, and then those woken who wait for it."""
        self._next.reached |= written
        self._next.waiting += waiting
        if self._present is None:
            self._begin()

    def until_durable(self, journal: J, done: asyncio.Future[None]) -> None:
        """Have somebody woken once what is written of an execution is durable."""
        present = self._next if self._present is None or journal in self._next.reached else self._present
        present.waiting.append(done)

    def _begin(self) -> None:
        self._present, self._next = self._next, _Round()
        task = asyncio.get_running_loop().create_task(aside(self._store.sync), name="divebook-sync")
        task.add_done_callback(functools.partial(self._end, self._present))

    def _end(self, ended: _Round[J], task: asyncio.Task[None]) -> None:
        self._present = None
        if self._next.reached:
            self._begin()
        error = _STOPPED if task.cancelled() else task.exception()
        failure = error if error is None or isinstance(error, Exception) else StoreError(repr(error))
        for journal, sequence in ended.reached.items():
            journal.synced(sequence, failure)
        wake(ended.waiting)


def wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    """Let those look again who wait for a write; some may wait for the next one."""
    for done in waiting:
        if not done.done():  # a cancelled path waits no longer
            done.set_result(None)


# The one way from the engine's loop to a store: a call where it stands if the store is on this machine, else a thread.
#
# Nothing else in `divebook.runtime` calls a store on the loop. A commit to SQLite takes less time than handing it to a
# thread (``benchmarks/floor.py``); one over a network would hold up every other execution
# (``tests/execution/test_remote_stores.py``).
#
# A store that cannot be written to just now (locked by another process, on a full disk, out of reach) is waited for: no
# run ends of it (``tests/execution/test_held_up.py``). Pauses grow only to a second, since a lock is often short.


_log = logger(__name__)
T = TypeVar("T")
SHORTEST, LONGEST = 0.05, 1.0
"""Seconds between two attempts: the first pause, and the longest that it grows to."""
CALL_PATIENCE_SECONDS = 10.0
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
            if not is_said and time.monotonic() - since >= CALL_PATIENCE_SECONDS:
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


PATIENCE_SECONDS = 2.0
"""How long the store is busy before that is said; what people see at once is `Execution.held_up`."""
MOST_IN_A_ROW, MOST_ELSEWHERE = 16, 4
"""Commits of a single path between two turns of the loop: where they are made on it, and in a thread."""
MOMENT = 0.002
"""Seconds for which the loop waits, at most, for a commit that a thread makes."""
LATEST = 0.01
"""Seconds after which that is written at the latest which may wait for what follows upon it."""


class Committing(Protocol):
    """A journal, as far as its commits are concerned."""

    is_heavy: bool
    """Whether what waits to be written takes long to write."""

    def take_batch(self, *, is_heavy: bool = False) -> Batch:
        """Hand over what waits to be written."""

    def committed(self, batch: Batch, outcome: Exception | None, *, is_durable: bool = True) -> None:
        """Hear what came of a batch; one that is not durable yet will be `synced`."""

    def synced(self, sequence: int, error: Exception | None) -> None:
        """Hear that its events up to one are durable, or why they are not."""

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the state is to be kept now."""

    def put_checkpoint(self) -> None:
        """Keep the state as of the latest batch."""


class StoreUnavailable(NamedTuple):
    """A store that nothing can be written to."""

    reason: str
    since: float
    """Seconds on the clock of the loop, which is `time.monotonic`."""
    what: str = "disk"

    def __str__(self) -> str:
        """Return it in words: ``waiting for the disk since 12 s: ...``, or for the server."""
        return f"waiting for the {self.what} since {in_parts(int(time.monotonic() - self.since))}: {self.reason}"


class PendingCommit:
    """Batches that a thread writes, or has written, after so many seconds; without a call they are written."""

    def __init__(self, batches: Mapping[Committing, Batch], call: ThreadCall | None, waited: float = 0.0) -> None:
        self.batches, self.call, self.waited = batches, call, waited
        self.is_over = call is None
        """Whether the journals have heard what came of them."""


class GroupCommit:
    """Writes what the executions of one store recorded, once per turn of the loop.

    It lives on one event loop. A path that had the latest turn for itself does not wait for the end of its turn where
    commits are made on the loop: it commits at once, a few times in a row, so that everybody else on the loop still
    gets their turn.

    While the store is busy (its lock is held by another process, the disk is full, the connection is lost) all that was
    recorded stays in memory and is tried again, in ever longer pauses: no run ends because of it, and nothing begins
    that is not written.
    """

    def __init__(self, calls: StoreCalls) -> None:
        self.calls, self.store = calls, calls.store
        self._under_way: asyncio.Task[None] | None = None
        self._dirty: dict[Committing, None] = {}
        self._apart: dict[Committing, asyncio.Task[None]] = {}
        """What is being written from threads, although the others are written to on the loop."""
        self._waiting: list[asyncio.Future[None]] = []
        self._syncs: Syncs[Committing] = Syncs(calls.store)
        self._is_scheduled = False
        self._later: dict[Committing, None] = {}
        """What may wait for what follows upon it; it is written with the next ones."""
        self._is_timed = False
        self._was_alone = self._was_quick = False
        """Whether a single path was under way in the latest turn; whether the thread's latest commit took a moment."""
        self._in_a_row = 0
        self._pause, self._is_said = SHORTEST, False
        self.held_up: StoreUnavailable | None = None
        """Why nothing can be written at present; None if nothing is in the way."""

    def schedule(self, journal: Committing) -> None:
        """Have the journal's pending events written, at the end of this turn at the latest."""
        self._dirty[journal] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def schedule_later(self, journal: Committing) -> None:
        """Have its pending events written together with what follows upon them, or after `LATEST` seconds."""
        self._later[journal] = None
        if not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(LATEST, self._end_wait)

    def _end_wait(self) -> None:
        self._is_timed = False
        for journal in self._later:
            self.schedule(journal)

    def next_commit(self, journal: Committing, *, is_written: bool) -> asyncio.Future[None]:
        """Return a future that is done when the present turn's events have been written or refused.

        If what the journal has recorded `is_written` already, it is done when that is durable.
        """
        done = asyncio.get_running_loop().create_future()
        if is_written:
            self._syncs.until_durable(journal, done)
        else:
            self._waiting.append(done)
        return done

    @property
    def is_alone(self) -> bool:
        """Whether waiting for the end of the turn would most likely bring no company."""
        if not self._was_alone or self._waiting or self.held_up is not None or self._syncs.are_shared:
            return False
        if self.calls.are_direct:
            return self._in_a_row < MOST_IN_A_ROW
        return self._was_quick and self._under_way is None and self._in_a_row < MOST_ELSEWHERE

    def commit_now(self) -> None:
        """Write what is pending while the loop stands still, or begin to, unless the store is busy."""
        self._in_a_row += 1
        if self.held_up is None:
            self._join_later()
            if self.calls.are_direct:
                self._write()
            else:
                self._write_in_a_moment()

    def _end_turn(self) -> None:
        self._is_scheduled = False
        self._join_later()
        self._was_alone = len(self._waiting) <= 1 and len(self._dirty) <= 1
        self._in_a_row = 0
        if self.calls.are_direct:
            self._write()
        elif self._under_way is None:
            if self._was_alone and self._was_quick and self.held_up is None:
                self._write_in_a_moment()
            else:
                self._begin_elsewhere(None)

    def _begin_elsewhere(self, handed: PendingCommit | None) -> None:
        work = self._write_elsewhere(handed)
        self._under_way = asyncio.get_running_loop().create_task(work, name="divebook-commit")

    def _join_later(self) -> None:
        if self._dirty and self._later:
            self._dirty |= self._later
            self._later = {}

    def _write(self) -> None:
        if self._dirty:
            self._part_heavy()
            batches = self._take()
            is_apart = self._syncs.come_apart(batches)
            outcomes = self._append(batches.values(), is_apart=is_apart)
            self._end(batches, outcomes, is_durable=not is_apart)
            for journal in batches:
                if journal.is_checkpoint_due:
                    journal.put_checkpoint()
            if is_apart and any(outcome is None for outcome in outcomes):
                written = zip(batches.items(), outcomes, strict=True)
                reached = {journal: batch.last_sequence for (journal, batch), refusal in written if refusal is None}
                waiting, self._waiting = self._waiting, []
                self._syncs.wait_for(reached, waiting)
        self._wake()

    def _part_heavy(self) -> None:
        """Have large values encoded, hashed, packed and written by a thread: the others go on meanwhile."""
        for journal in [journal for journal in self._dirty if journal.is_heavy and journal not in self._apart]:
            del self._dirty[journal]
            work = self._write_apart(journal)
            self._apart[journal] = asyncio.get_running_loop().create_task(work, name="divebook-large-values")

    async def _write_apart(self, journal: Committing) -> None:
        """Write what one execution has recorded; what it records meanwhile waits, so that all stays in order."""
        batches = {journal: journal.take_batch(is_heavy=True)}
        try:
            self._end(batches, await self._appended(batches))
        finally:
            del self._apart[journal]
            if journal in self._dirty and self.held_up is None:
                self.schedule(journal)
            self._wake()

    def _write_in_a_moment(self) -> None:
        if self._dirty:
            handed = self._handed_in_a_moment()
            if not handed.is_over or any(journal.is_checkpoint_due for journal in handed.batches):
                self._begin_elsewhere(handed)
        self._wake()

    def _handed_in_a_moment(self) -> PendingCommit:
        """Write what is pending, or begin to: on the loop as far as that takes a moment, the rest in a thread."""
        batches, began = self._take(), time.perf_counter()
        count = len(batches)
        try:
            appending = self.store.append_in_a_moment([*batches.values()], MOMENT)
        except Exception as error:  # noqa: BLE001 - it is raised again by everyone who waits for the write
            appending = Appending(list, [error] * count)
        waited = time.perf_counter() - began
        if appending.answers is not None:
            self._was_quick = waited < MOMENT
            self._end(batches, appending.answers)
            return PendingCommit(batches, None)
        call = self.calls.begun(lambda: _outcomes(appending.finish, count))
        handed = PendingCommit(batches, call, waited)
        if not appending.is_begun and call.within(MOMENT) is not None:
            self._end_handed(handed)
        return handed

    async def _write_elsewhere(self, handed: PendingCommit | None) -> None:
        """Write what is handed over, what is pending, and what is recorded meanwhile, until nothing is left."""
        try:
            while handed is not None or self._dirty:
                handed = handed or self._hand_over()
                if not handed.is_over:
                    await self._until_over(handed)
                self._wake()
                if self.held_up is not None:
                    return
                for journal in handed.batches:
                    if journal.is_checkpoint_due:
                        await self.calls.once(journal.put_checkpoint)
                handed = None
        finally:
            self._under_way = None
            self._wake()

    def _hand_over(self) -> PendingCommit:
        batches = self._take()
        return PendingCommit(batches, self.calls.begun(lambda: self._append(batches.values())))

    async def _until_over(self, handed: PendingCommit) -> None:
        assert handed.call is not None  # noqa: S101 - it is not over
        try:
            await handed.call.end()
        except asyncio.CancelledError:
            self._stop(handed.batches)
            raise
        self._end_handed(handed)

    def _end_handed(self, handed: PendingCommit) -> None:
        assert handed.call is not None and handed.call.outcome is not None  # noqa: S101, PT018 - the call is over
        outcomes, error = handed.call.outcome
        handed.is_over, self._was_quick = True, handed.waited + handed.call.seconds < MOMENT
        if error is None:
            self._end(handed.batches, outcomes)
        else:  # no `Exception`, which is among the outcomes
            self._stop(handed.batches)

    def _take(self) -> dict[Committing, Batch]:
        journals, self._dirty = self._dirty, {}
        if self._apart:
            self._dirty = {journal: None for journal in journals if journal in self._apart}
            journals = {journal: None for journal in journals if journal not in self._apart}
        return {journal: batch for journal in journals if (batch := journal.take_batch()).records}

    def _append(self, batches: Iterable[Batch], *, is_apart: bool = False) -> Sequence[Exception | None]:
        batches = [*batches]
        append = self.store.append_unsynced if is_apart else self.store.append_all
        return _outcomes(lambda: append(batches), len(batches))

    async def _appended(self, batches: Mapping[Committing, Batch]) -> Sequence[Exception | None]:
        try:
            return await self.calls.in_thread(lambda: self._append(batches.values()))
        except asyncio.CancelledError:
            self._stop(batches)
            raise

    def _stop(self, batches: Mapping[Committing, Batch]) -> None:
        stopped = StoreError("the engine was stopped during a commit; what the store holds can be resumed")
        self._end(batches, [stopped] * len(batches))

    def _end(
        self, batches: Mapping[Committing, Batch], outcomes: Sequence[Exception | None], *, is_durable: bool = True
    ) -> None:
        """Tell the journals what came of their batches; what could not be written yet is written first, and later."""
        for (journal, batch), outcome in zip(batches.items(), outcomes, strict=True):
            journal.committed(batch, outcome, is_durable=is_durable)
        busy = outcomes[0] if outcomes else None
        if isinstance(busy, StoreBusyError):  # it is that of them all
            self._try_later(batches, busy)
        elif self.held_up is not None:
            self._go_on()

    def _wake(self) -> None:
        waiting = self._waiting
        if waiting:
            self._waiting = []
            wake(waiting)

    def _try_later(self, journals: Iterable[Committing], error: StoreBusyError) -> None:
        self._dirty = {**dict.fromkeys(journals), **self._dirty}
        loop, before = asyncio.get_running_loop(), self.held_up
        since = loop.time() if before is None else before.since
        self.held_up = StoreUnavailable(str(error), since, "disk" if self.store.local else "server")
        if not self._is_said and loop.time() - self.held_up.since >= PATIENCE_SECONDS:
            self._is_said = True
            _log.warning("%s. Executions wait for it and go on by themselves; what they did is kept in memory", error)
        self._is_scheduled = True
        loop.call_later(self._pause, self._end_turn)
        self._pause = longer(self._pause)

    def _go_on(self) -> None:
        if self._is_said:
            _log.warning("%s can be written again; executions go on", self.store.location)
        self.held_up, self._pause, self._is_said = None, SHORTEST, False


def _outcomes(append: Callable[[], Sequence[Exception | None]], count: int) -> Sequence[Exception | None]:
    try:
        return append()
    except Exception as error:  # noqa: BLE001 - it is raised again by everyone who waits for the write
        return [error] * count
