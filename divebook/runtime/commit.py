"""Group commit: writes the records of all executions of a store together, at the end of each turn of the engine's event
loop, or earlier for a single path.

A local store is written to on the loop itself, because handing a commit to a thread would cost more than the commit
(``benchmarks/floor.py``). Any other store is written to from a thread, one commit at a time. Records made in the
meantime form the next commit (``tests/runtime/test_journal.py``).

Two optimizations:

- While several executions of a local store run, the wait for the disk is separated from the commit (`Syncs`). The loop
  continues, and everything it commits during one disk sync shares the next one.
- If a single path is running and the last remote commit was fast, the loop sends the next commit itself and waits at
  most `MOMENT` seconds for the answer. Handing it to a thread and being woken takes as long as the server does. A
  thread waits for slower answers.
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

from divebook.definitions.step import Retry
from divebook.errors import StoreBusyError, StoreError
from divebook.events.catalog import RUNNING
from divebook.runtime.compute.threads import ThreadCall, run_engine_call, start_engine_call
from divebook.stores.append import FULL, Appending, Batch
from divebook.stores.base import EventStore
from divebook.text.format import in_parts
from divebook.text.redaction import logger


# Example: in one turn of the loop, two executions record events and wait for them. The first record schedules
# `_end_turn`. At the end of the turn it takes one batch of each journal, and writes both in one transaction. The two
# paths that wait in `Journal.durable` then wake, and each checks whether its own events are durable.
class GroupCommit:
    """Writer of the records of all executions of one store. It writes once at the end of a turn of the engine's event
    loop, and in between if `commit_now` is called.

    If only one path was active in the last turn, its records are written at once, not at the end of the turn. This
    happens only a few times in a row, so that other tasks of the loop get their turn.

    While the store is busy (locked by another process, full disk, lost connection), pending records stay in memory and
    are written again after growing pauses. No run fails because of it, and no operation starts before its record is
    written.
    """

    def __init__(self, calls: StoreCalls) -> None:
        self.calls = calls
        self.store = calls.store
        self._is_direct = calls.are_direct
        # The one task that writes to a remote store. While it runs, new records wait in `_dirty` for its next turn.
        self._commit_task: asyncio.Task[None] | None = None
        # Journals with unwritten records, in the order in which they became dirty. A dict serves as an ordered set.
        self._dirty: dict[Committing, None] = {}
        self._heavy_writes: dict[Committing, asyncio.Task[None]] = {}
        """Journals that a separate thread writes at present, although the store is local: those with large values."""
        # Futures of code that waits in `Journal.durable` for the next commit.
        self._waiting: list[asyncio.Future[None]] = []
        self._syncs: Syncs[Committing] = Syncs(calls.store)
        # True if `_end_turn` will run: at the end of this turn, or after the pause for a busy store.
        self._is_scheduled = False
        self._later: dict[Committing, None] = {}
        """Journals whose records may wait for the records that follow; written with the next commit."""
        self._is_timed = False
        self._was_alone = self._was_quick = False
        """`_was_alone` is True if a single path was running in the last turn. `_was_quick` is True if the last commit
        in a thread took less than `MOMENT` seconds.
        """
        self._in_a_row = 0
        self._refusals = 0
        """Number of attempts in a row that the busy store refused."""
        self._is_logged = False
        self.held_up: StoreUnavailable | None = None
        """Why the store cannot be written to at present, or None if it can."""

    def schedule(self, journal: Committing) -> None:
        """Write the records of a journal that are not written yet at the end of this turn of the event loop, or
        earlier.
        """
        self._dirty[journal] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def schedule_later(self, journal: Committing) -> None:
        """Write the records of a journal together with the next write of any journal, after `LATEST` seconds at the
        latest.
        """
        self._later[journal] = None
        if not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(LATEST, self._end_wait)

    def _end_wait(self) -> None:
        self._is_timed = False
        # `_later` is emptied by `_join_later` when the scheduled commit takes place.
        for journal in self._later:
            self.schedule(journal)

    def next_commit(self, journal: Committing, *, is_written: bool) -> asyncio.Future[None]:
        """Return a future that is done when the records that a journal has now were written or refused. The code that
        waits for it must then check again whether its event was written.

        With `is_written`, all records of the journal are in the store, and the future is done when they are durable.
        """
        done = asyncio.get_running_loop().create_future()
        if is_written:
            self._syncs.until_durable(journal, done)
        else:
            self._waiting.append(done)
        return done

    @property
    def is_alone(self) -> bool:
        """True if a new record should be written at once. No other path is then likely to record events in this turn of
        the event loop, so that waiting for the end of the turn would save no write.
        """
        # In these cases others may join the commit at the end of the turn, and one commit costs less than two.
        if not self._was_alone or self._waiting or self.held_up is not None:
            return False
        if self._is_direct:
            # Without a limit, a path that never waits would keep the loop for itself: no timer or message would be
            # handled.
            return self._in_a_row < MOST_IN_A_ROW and not self._syncs.are_shared
        return self._was_quick and self._commit_task is None and self._in_a_row < MOST_ELSEWHERE

    def commit_now(self) -> None:
        """Write all records that are not written yet, without waiting for the end of the turn. A local store is written
        on the loop; for a remote store the write is only started. Do nothing while the store is busy.
        """
        self._in_a_row += 1
        # While the store is busy, `_try_later` has scheduled the next attempt, which writes these records too.
        if self.held_up is None:
            if self._later:
                self._join_later()
            if self._is_direct:
                self._write()
            else:
                self._write_briefly()

    def _end_turn(self) -> None:
        self._is_scheduled = False
        if self._later:
            self._join_later()
        # The last turn predicts the next one: if at most one journal had records and at most one caller waited, a
        # commit at once would not have split a shared commit.
        self._was_alone = len(self._waiting) <= 1 and len(self._dirty) <= 1
        self._in_a_row = 0
        if self._is_direct:
            self._write()
        elif self._commit_task is None:
            if self._was_alone and self._was_quick and self.held_up is None:
                self._write_briefly()
            else:
                self._start_thread_commit(None)

    def _start_thread_commit(self, pending: PendingCommit | None) -> None:
        work = self._write_in_thread(pending)
        self._commit_task = asyncio.get_running_loop().create_task(work, name="divebook-commit")

    def _join_later(self) -> None:
        # Records that may wait do not cause a commit, but join one that takes place.
        if self._dirty:
            self._dirty |= self._later
            self._later = {}

    def _write(self) -> None:
        """Write the records of all journals to a local store, on the event loop.

        Large values are first moved to a thread. If the sync is separate, the waiting futures are completed after the
        sync, otherwise at once.
        """
        if self._dirty:
            # Large values first: `_take` then collects the remaining journals only.
            for journal in self._dirty:
                if journal.is_heavy:
                    self._start_heavy_writes()
                    break
            batches = self._take()
            is_synced_later = self._syncs.must_sync_later(batches)
            # One transaction for all executions. One outcome for each batch: a fenced or faulty batch does not spoil
            # the others.
            outcomes = self._append(batches.values(), is_synced_later=is_synced_later)
            self._end(batches, outcomes, is_durable=not is_synced_later)
            # Checkpoints come after the commit, because they must not be newer than the log.
            for journal in batches:
                if journal.is_checkpoint_due:
                    journal.put_checkpoint()
            # The callers stay asleep until the shared sync has ended. `_wake` below would wake them too early.
            if is_synced_later and any(outcome is None for outcome in outcomes):
                outcomes_of_batches = zip(batches.items(), outcomes, strict=True)
                sequences = {
                    journal: batch.last_sequence for (journal, batch), refusal in outcomes_of_batches if refusal is None
                }
                waiting = self._waiting
                self._waiting = []
                self._syncs.wait_for(sequences, waiting)
        if self._waiting:
            self._wake()

    def _start_heavy_writes(self) -> None:
        """Start a thread for each journal whose unwritten records have large values. The thread encodes, compresses and
        writes them, while the loop continues with the other executions.
        """
        for journal in tuple(self._dirty):
            if journal.is_heavy and journal not in self._heavy_writes:
                # Removed here, so that the commit on the loop does not write the same records.
                del self._dirty[journal]
                work = self._write_heavy(journal)
                self._heavy_writes[journal] = asyncio.get_running_loop().create_task(work, name="divebook-large-values")

    async def _write_heavy(self, journal: Committing) -> None:
        """Write the records of one journal in a thread, because they have large values.

        Later records of the same journal wait, so that the order is kept.
        """
        # `_take` skips this journal while it is in `_heavy_writes`. Otherwise a later, small batch could be written
        # first.
        batches = {journal: journal.take_batch(is_heavy=True)}
        try:
            self._end(batches, await self._append_in_thread(batches))
        finally:
            del self._heavy_writes[journal]
            # Records that came during the write were held back by `_take`.
            if journal in self._dirty and self.held_up is None:
                self.schedule(journal)
            self._wake()

    def _write_briefly(self) -> None:
        if self._dirty:
            pending = self._append_briefly()
            # A slow answer and the writing of a checkpoint both need a thread.
            if not pending.is_over or any(journal.is_checkpoint_due for journal in pending.batches):
                self._start_thread_commit(pending)
        self._wake()

    def _append_briefly(self) -> PendingCommit:
        """Write the records of all journals to a remote store. The event loop waits for `MOMENT` seconds at most; a
        thread waits for a slower answer of the store. Return the commit, which may still be running.
        """
        batches = self._take()
        started_at = time.perf_counter()
        count = len(batches)
        try:
            appending = self.store.append_in_a_moment([*batches.values()], MOMENT)
        except Exception as error:  # noqa: BLE001 - every caller that waits for the write raises it again
            appending = Appending(list, [error] * count)
        seconds = time.perf_counter() - started_at
        if appending.answers is not None:
            # The measurement decides whether the next commit of a single path is tried on the loop again.
            self._was_quick = seconds < MOMENT
            self._end(batches, appending.answers)
            return PendingCommit(batches, None)
        call = self.calls.start_in_thread(lambda: _finished(appending, count))
        pending = PendingCommit(batches, call, seconds)
        # If the store could not even send the batch, the thread has just started the write, so the loop grants it one
        # `MOMENT`. A batch that was sent has used its `MOMENT` already.
        if not appending.is_begun and call.within(MOMENT) is not None:
            self._end_pending(pending)
        return pending

    async def _write_in_thread(self, pending: PendingCommit | None) -> None:
        """Write records in a thread until none are left. If `pending` is a commit that has been started already, finish
        it first.

        While the store is busy, it stops: `_try_later` has scheduled the next attempt. Checkpoints are written between
        commits.
        """
        try:
            # One commit at a time. Records of all executions that arrive during a commit form the next one, so a slow
            # server gets few large commits instead of many small ones.
            while pending is not None or self._dirty:
                pending = pending or self._hand_over()
                if not pending.is_over:
                    await self._wait_for(pending)
                self._wake()
                # The timer of `_try_later` starts a new task.
                if self.held_up is not None:
                    return
                for journal in pending.batches:
                    if journal.is_checkpoint_due:
                        await self.calls.once(journal.put_checkpoint)
                pending = None
        finally:
            self._commit_task = None
            # After an error of this task as well, callers must check their condition again.
            self._wake()

    def _hand_over(self) -> PendingCommit:
        batches = self._take()
        return PendingCommit(batches, self.calls.start_in_thread(lambda: self._append(batches.values())))

    async def _wait_for(self, pending: PendingCommit) -> None:
        assert pending.call is not None  # noqa: S101 - it is not over
        try:
            await pending.call.end()
        # The thread may still write them. The journals get an error, since their outcome is not known here.
        except asyncio.CancelledError:
            self._stop(pending.batches)
            raise
        self._end_pending(pending)

    def _end_pending(self, pending: PendingCommit) -> None:
        assert pending.call is not None and pending.call.outcome is not None  # noqa: S101, PT018 - the call is over
        outcomes, error = pending.call.outcome
        pending.is_over = True
        self._was_quick = pending.seconds_on_loop + pending.call.seconds < MOMENT
        if error is None:
            self._end(pending.batches, outcomes)
        else:  # not an `Exception`: those are among the outcomes
            self._stop(pending.batches)

    def _take(self) -> dict[Committing, Batch]:
        journals = self._dirty
        self._dirty = {}
        # Journals with a running heavy write stay dirty: their later records must not overtake the large ones.
        if self._heavy_writes:
            self._dirty = {journal: None for journal in journals if journal in self._heavy_writes}
            journals = {journal: None for journal in journals if journal not in self._heavy_writes}
        batches: dict[Committing, Batch] = {}
        for journal in journals:
            batch = journal.take_batch()
            # A journal can be dirty without records, if `commit_now` wrote them after they were scheduled.
            if batch.records:
                batches[journal] = batch
        return batches

    def _append(self, batches: Iterable[Batch], *, is_synced_later: bool = False) -> Sequence[Exception | None]:
        batches = [*batches]
        try:
            return self.store.append_unsynced(batches) if is_synced_later else self.store.append_all(batches)
        except Exception as error:  # noqa: BLE001 - every caller that waits for the write raises it again
            return [error] * len(batches)

    async def _append_in_thread(self, batches: Mapping[Committing, Batch]) -> Sequence[Exception | None]:
        try:
            return await self.calls.in_thread(lambda: self._append(batches.values()))
        # The thread may still write the batches. Their outcome is unknown here, so the journals get an error.
        except asyncio.CancelledError:
            self._stop(batches)
            raise

    def _stop(self, batches: Mapping[Committing, Batch]) -> None:
        error = StoreError(
            "the engine was stopped while it wrote events to the store; resume the executions that are in the store"
        )
        self._end(batches, [error] * len(batches))

    def _end(
        self, batches: Mapping[Committing, Batch], outcomes: Sequence[Exception | None], *, is_durable: bool = True
    ) -> None:
        """Report the outcome of each batch to its journal, and schedule another attempt for the batches that the store
        refused because it was busy.

        These batches are written again later, before all others.
        """
        busy: dict[Committing, StoreBusyError] = {}
        for (journal, batch), outcome in zip(batches.items(), outcomes, strict=True):
            journal.committed(batch, outcome, is_durable=is_durable)
            if isinstance(outcome, StoreBusyError):
                busy[journal] = outcome
        # A store can write some batches and be busy for others: Postgres writes in several transactions if another
        # process has changed one of the logs (tests/runtime/mixed_outcomes.py). An accepted or faulty batch shows that
        # the store answers, so the pause before the next attempt starts small again.
        if len(busy) < len(batches) and self.held_up is not None:
            self._note_available()
        if busy:
            self._try_later(busy)

    def _wake(self) -> None:
        waiting = self._waiting
        if waiting:
            self._waiting = []
            wake(waiting)

    def _try_later(self, busy: Mapping[Committing, StoreBusyError]) -> None:
        """Write the records of journals again after a pause. `busy` has the error with which the store refused each of
        them.
        """
        # The refused journals come first: their records are older than those that came meanwhile.
        self._dirty = {**dict.fromkeys(busy), **self._dirty}
        error = next(iter(busy.values()))
        loop = asyncio.get_running_loop()
        before = self.held_up
        # `since` survives further refusals, so that people see the whole time of the outage.
        since = loop.time() if before is None else before.since
        self.held_up = StoreUnavailable(str(error), since, "disk" if self.store.local else "server")
        # Not an `Outage`: this one is shown to people, ends with the first success, and is logged earlier, because the
        # records of all executions wait here.
        if not self._is_logged and loop.time() - self.held_up.since >= PATIENCE_SECONDS:
            self._is_logged = True
            _log.warning(
                "%s. Executions wait for the store and then continue automatically; their new events stay in memory "
                "until then",
                error,
            )
        # Set, so that new records do not schedule an attempt before the pause is over.
        self._is_scheduled = True
        self._refusals += 1
        loop.call_later(STORE_PAUSES.delay(self._refusals), self._end_turn)

    def _note_available(self) -> None:
        if self._is_logged:
            _log.warning("%s can be written again; executions continue", self.store.location)
        self.held_up = None
        self._refusals = 0
        self._is_logged = False


# --- shared disk syncs -----------------------------------------------------------------------------------------------
#
# A single execution waits for the disk on the loop: a thread would cost it more than it gains. As soon as a second
# execution runs, a thread syncs the commits of the loop, one sync at a time. Everything committed during one sync
# shares the next one (tests/runtime/test_syncs.py).


_STOPPED = StoreError(
    "the engine was stopped while it wrote events to the store; resume the executions that are in the store"
)


class Durable(Protocol):
    """Protocol of an event log (journal) for `Syncs`, which notifies it when its written events are durable."""

    def synced(self, sequence: int, error: Exception | None) -> None:
        """Note that the events up to the number `sequence` are durable. If `error` is not None, they could not be made
        durable.
        """


J = TypeVar("J", bound=Durable)


class _Round(Generic[J]):
    """One disk sync that is shared by several event logs. Lists the logs whose written events it makes durable, and the
    futures that wait for it.
    """

    def __init__(self) -> None:
        self.sequences: dict[J, int] = {}
        self.waiting: list[asyncio.Future[None]] = []


class Syncs(Generic[J]):
    """Disk syncs of one store, each shared by the commits of several executions. Lives on the engine's event loop."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._are_apart = store.syncs_apart
        self._running: weakref.WeakSet[J] = weakref.WeakSet()
        """Journals of running executions with full durability, if the store supports separate syncs."""
        self.are_shared = False
        """True if several running executions would wait for the disk, so that a shared sync saves time."""
        self._present: _Round[J] | None = None
        self._next: _Round[J] = _Round()

    def must_sync_later(self, batches: Mapping[J, Batch]) -> bool:
        """Return whether these batches should be committed without waiting for the disk. A thread then makes them
        durable afterwards.

        That requires a store with separate syncs, a batch with full durability, and several running executions or a
        sync in progress. Also updates the set of running journals.
        """
        if not self._are_apart:
            return False
        are_full = False
        usual = self._store.durability
        # Executions with relaxed durability never wait for the disk, so they do not count.
        for journal, batch in batches.items():
            if (batch.durability or usual) == FULL:
                are_full = True
                if batch.status == RUNNING:
                    self._running.add(journal)
                else:
                    self._running.discard(journal)
        self.are_shared = len(self._running) > 1
        return are_full and (self.are_shared or self._present is not None)

    def wait_for(self, sequences: Mapping[J, int], waiting: Iterable[asyncio.Future[None]]) -> None:
        """Request that the next disk sync makes written events durable, and then completes the futures in `waiting`.
        `sequences` has the number of the last event of each log.
        """
        # Only the next round covers these events: a sync in progress may have begun before they were written.
        self._next.sequences |= sequences
        self._next.waiting += waiting
        if self._present is None:
            self._begin()

    def until_durable(self, journal: J, done: asyncio.Future[None]) -> None:
        """Set the result of the future `done` when all events of a log that are written now are durable: after the
        present disk sync, or after the next one.
        """
        # If the newest events of the log were written during the present sync, only the next sync covers them.
        present = self._next if self._present is None or journal in self._next.sequences else self._present
        present.waiting.append(done)

    def _begin(self) -> None:
        self._present = self._next
        self._next = _Round()
        task = asyncio.get_running_loop().create_task(run_engine_call(self._store.sync), name="divebook-sync")
        task.add_done_callback(functools.partial(self._end, self._present))

    def _end(self, disk_sync: _Round[J], task: asyncio.Task[None]) -> None:
        # The next sync starts before callbacks of this one run, so that the disk is not idle meanwhile.
        self._present = None
        if self._next.sequences:
            self._begin()
        error = _STOPPED if task.cancelled() else task.exception()
        failure = error if error is None or isinstance(error, Exception) else StoreError(repr(error))
        for journal, sequence in disk_sync.sequences.items():
            journal.synced(sequence, failure)
        wake(disk_sync.waiting)


def wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    """Set the result of all futures of code that waits for a write or a disk sync.

    The code that awaits them checks its condition again; some of it then waits for the next write as well.
    """
    for done in waiting:
        if not done.done():  # the future of a cancelled path is done already
            done.set_result(None)


# --- calls of the store from the event loop --------------------------------------------------------------------------
#
# A local store is called on the loop, any other in a thread. Nothing else in `divebook.runtime` calls a store on the
# loop. A commit to SQLite takes less time than handing it to a thread (``benchmarks/floor.py``). A commit over a
# network would block every other execution (``tests/runtime/test_remote_stores.py``).
#
# If a store cannot be written to at present (locked by another process, full disk, unreachable), the call is repeated:
# no run fails because of it (``tests/runtime/test_held_up.py``). Pauses grow only to one second, because a lock is
# often short.


_log = logger(__name__)
T = TypeVar("T")
STORE_PAUSES = Retry(seconds=0.05, max_seconds=1.0, jitter=0.0)
"""Pauses between two attempts to reach a busy store, or to get a held lease. The number of attempts is not used: a call
is repeated until the store answers.
"""
CALL_PATIENCE_SECONDS = 10.0
"""Seconds after which a waiting call is logged, for example one that waits for a free session of a pool."""
CALL_THREADS = 16
"""Maximum number of threads for single calls."""
WORK_THREADS = 64
"""Maximum number of threads for functions passed to `StoreCalls.work`. Such a function waits for the loop, which makes
single calls, so single calls have threads of their own and never wait for such a function.
"""

_calls: RunVar[anyio.CapacityLimiter] = RunVar("divebook store calls")
_works: RunVar[anyio.CapacityLimiter] = RunVar("divebook work on stores")


class Outage:
    """Failed attempts at one call of a store that is busy or out of reach. A warning is logged once, after
    `CALL_PATIENCE_SECONDS`, since short locks are normal where several processes share a file.

    Parameters
    ----------
    consequence
        Sentence that the warning ends with: what waits for the store.
    since
        Monotonic time at which the first attempt began, in seconds.
    """

    def __init__(self, consequence: str, since: float) -> None:
        self._consequence = consequence
        self._since = since
        self._failures = 0
        self._is_logged = False

    def pause_after(self, error: StoreError) -> float:
        """Count a failed attempt, and return the pause in seconds before the next."""
        self._failures += 1
        if not self._is_logged and time.monotonic() - self._since >= CALL_PATIENCE_SECONDS:
            self._is_logged = True
            _log.warning("%s. %s", error, self._consequence)
        return STORE_PAUSES.delay(self._failures)


class StoreCalls:
    """Access to one store for code on the engine's event loop, which must not be blocked for long.

    A local store is called directly on the loop, any other store in a thread.
    """

    def __init__(self, store: EventStore) -> None:
        self.store = store

    @property
    def are_direct(self) -> bool:
        """True if functions that call the store run on the event loop itself, because the store is local."""
        return self.store.local

    async def once(self, call: Callable[[], T]) -> T:
        """Call a function that uses the store a single time, and return its result; errors are not retried. For a local
        store the function runs on the loop, for any other store in a thread.
        """
        return call() if self.store.local else await self.in_thread(call)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Call a function that uses the store in a thread, and return its result. Unlike `once`, this uses a thread
        even for a local store, so that the event loop is never blocked.
        """
        return await _in_thread(call, _calls, CALL_THREADS)

    def start_in_thread(self, call: Callable[[], object]) -> ThreadCall:
        """Start a function in a thread and return at once. The loop can block for a short time on the returned handle
        (`within`), or await its end (`end`).
        """
        return start_engine_call(call)

    async def patiently(self, call: Callable[[], T]) -> T:
        """Call a function that uses the store, and repeat the call while the store is busy. Return its result. The
        event loop continues meanwhile.

        The function may run several times, so it must be repeatable.
        """
        return await _patiently(lambda: self.once(call))

    async def work(self, function: Callable[[], T]) -> T:
        """Call a function that uses the store several times, and return its result. In between it may wait for the
        engine's event loop, so for a remote store it runs in a thread.

        Like the function of `patiently`, it may run several times.
        """
        if self.store.local:
            return await self.patiently(function)
        return await _patiently(lambda: _in_thread(function, _works, WORK_THREADS))


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    since = time.monotonic()
    outage: Outage | None = None
    while True:
        try:
            return await call()
        except StoreBusyError as error:
            outage = outage or Outage("An execution waits for the store and then continues automatically", since)
            await asyncio.sleep(outage.pause_after(error))


async def _in_thread(function: Callable[[], T], limiter: RunVar[anyio.CapacityLimiter], limit: int) -> T:
    # Limiters belong to one event loop, so they are created in it on first use instead of at import.
    try:
        places = limiter.get()
    except LookupError:
        places = anyio.CapacityLimiter(limit)
        limiter.set(places)
    return await anyio.to_thread.run_sync(function, limiter=places)


PATIENCE_SECONDS = 2.0
"""Seconds until a busy store is logged. `RunInternals.held_up` shows it at once."""
MOST_IN_A_ROW = 16
"""Maximum number of commits of a single path on the loop between two of its turns."""
MOST_ELSEWHERE = 4
"""Maximum number of commits of a single path through a thread between two turns of the loop."""
MOMENT = 0.002
"""Seconds that the loop waits at most for a commit in a thread."""
LATEST = 0.01
"""Seconds after which deferred records are written at the latest."""


class Committing(Protocol):
    """Protocol of an event log (journal) for `GroupCommit`: it provides batches of records to write, and is notified
    whether they were written.
    """

    is_heavy: bool
    """True if a pending record takes long to write."""

    def take_batch(self, *, is_heavy: bool = False) -> Batch:
        """Return the records that are not written yet as a batch. From now on they count as passed to the store."""

    def committed(self, batch: Batch, outcome: Exception | None, *, is_durable: bool = True) -> None:
        """Handle the outcome of writing a batch: None if it was written, else the error. If `is_durable` is False, a
        call of `synced` follows when the batch is durable.
        """

    def synced(self, sequence: int, error: Exception | None) -> None:
        """Note that the events up to the number `sequence` are durable. If `error` is not None, they could not be made
        durable.
        """

    @property
    def is_checkpoint_due(self) -> bool:
        """True if a checkpoint of the state should be stored now."""

    def put_checkpoint(self) -> None:
        """Store a checkpoint of the execution's state after the latest batch."""


class StoreUnavailable(NamedTuple):
    """Reason why a store cannot be written to at present, and the time since which it cannot."""

    reason: str
    since: float
    """Time at which the store became unavailable, in seconds of the loop's clock (`time.monotonic`)."""
    resource: str = "disk"

    def __str__(self) -> str:
        """Return the reason as text for people: ``waiting for the disk since 12 s: ...``, or ``waiting for the server
        ...``.
        """
        return f"waiting for the {self.resource} since {in_parts(int(time.monotonic() - self.since))}: {self.reason}"


class PendingCommit:
    """Batches that were passed to the store, and the thread call that writes them. `call` is None if they are written
    already.

    `seconds_on_loop` is the time in seconds that the loop spent on them before the thread started.
    """

    def __init__(
        self, batches: Mapping[Committing, Batch], call: ThreadCall | None, seconds_on_loop: float = 0.0
    ) -> None:
        self.batches = batches
        self.call = call
        self.seconds_on_loop = seconds_on_loop
        self.is_over = call is None
        """True once the journals have received the outcomes."""


def _finished(appending: Appending, count: int) -> Sequence[Exception | None]:
    """Finish an append of `count` batches, and return the outcome of each batch."""
    try:
        return appending.finish()
    except Exception as error:  # noqa: BLE001 - every caller that waits for the write raises it again
        return [error] * count
