"""Writes what executions have recorded: once per turn of the engine's loop, for all executions of a store together.

Where several executions are under way the wait for the disk comes apart from the commit (`divebook.execution.syncs`):
the loop goes on, and what it commits meanwhile shares the next wait.

A store on this machine is written to where the loop stands: handing a commit to a thread would cost more than the
commit (``benchmarks/floor.py``). Any other is written to from a thread, one commit at a time; what is recorded
meanwhile makes up the next one (``tests/execution/test_journal.py``). Where a single path is under way, and the commit
before took a moment, the loop sends the next one itself, and waits a moment for the answer: to hand it to a thread, to
turn and be woken takes as long as the server does. What takes longer a thread waits for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from divebook.errors import StoreBusyError, StoreError
from divebook.execution.store_calls import SHORTEST, StoreCalls, longer
from divebook.execution.syncs import Syncs, wake
from divebook.execution.threads import ThreadCall
from divebook.store.appending import Appending
from divebook.store.batches import Batch
from divebook.text.durations import in_parts
from divebook.text.logs import logger

PATIENCE_SECONDS = 2.0
"""How long the store is busy before that is said; what people see at once is `Execution.held_up`."""
MOST_IN_A_ROW, MOST_ELSEWHERE = 16, 4
"""Commits of a single path between two turns of the loop: where they are made on it, and in a thread."""
MOMENT = 0.002
"""Seconds for which the loop waits, at most, for a commit that a thread makes."""
LATEST = 0.01
"""Seconds after which that is written at the latest which may wait for what follows upon it."""

_log = logger(__name__)


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


class Standstill(NamedTuple):
    """A store that nothing can be written to."""

    reason: str
    since: float
    """Seconds on the clock of the loop, which is `time.monotonic`."""
    what: str = "disk"

    def __str__(self) -> str:
        """Return it in words: ``waiting for the disk since 12 s: ...``, or for the server."""
        return f"waiting for the {self.what} since {in_parts(int(time.monotonic() - self.since))}: {self.reason}"


class Handed:
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
        self.held_up: Standstill | None = None
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

    def _begin_elsewhere(self, handed: Handed | None) -> None:
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

    def _handed_in_a_moment(self) -> Handed:
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
            return Handed(batches, None)
        call = self.calls.begun(lambda: _outcomes(appending.finish, count))
        handed = Handed(batches, call, waited)
        if not appending.is_begun and call.within(MOMENT) is not None:
            self._end_handed(handed)
        return handed

    async def _write_elsewhere(self, handed: Handed | None) -> None:
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

    def _hand_over(self) -> Handed:
        batches = self._take()
        return Handed(batches, self.calls.begun(lambda: self._append(batches.values())))

    async def _until_over(self, handed: Handed) -> None:
        assert handed.call is not None  # noqa: S101 - it is not over
        try:
            await handed.call.end()
        except asyncio.CancelledError:
            self._stop(handed.batches)
            raise
        self._end_handed(handed)

    def _end_handed(self, handed: Handed) -> None:
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
        self.held_up = Standstill(str(error), since, "disk" if self.store.local else "server")
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
