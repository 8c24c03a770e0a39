"""One execution's log and its single writer.

`Journal.record` takes a fact, which joins the record before it if it may (`divebook.execution.gathering`). Records are
folded when somebody asks for the `state`, and handed to the `GroupCommit` of their store, which writes everything that
all executions have recorded in one turn of the event loop as one transaction. `await journal.durable()` returns when
all that was recorded so far is on disk; it stands before every call to the outside, so that a call's intent, and every
result it may depend on, are safe before it is made.

Commits are made once per turn of the engine's loop, for all executions of a store together. A store on this machine
is written to where the loop stands: handing a commit to a thread would cost more than the commit
(``benchmarks/floor.py``). Any other is written to from a thread, one commit at a time; what is recorded meanwhile makes
up the next one (``tests/execution/test_journal.py``).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from threading import get_ident
from typing import NamedTuple

import anyio.lowlevel

from divebook.engine.checkpoint import dump_state
from divebook.engine.evolve import evolve_record
from divebook.engine.instructions import Fact
from divebook.engine.state import ExecutionState
from divebook.errors import ConnectionLostError, DivebookError, StoreBusyError, StoreError
from divebook.events import Event
from divebook.events.catalog import Payload
from divebook.events.record import Record
from divebook.execution.clock import Clock, Ids
from divebook.execution.gathering import Gathering
from divebook.execution.store_calls import SHORTEST, StoreCalls, longer
from divebook.store.batches import FIRST_TOKEN, Batch
from divebook.store.durability import Durability
from divebook.store.owner import Owner
from divebook.text.logs import logger

CHECKPOINT_EVENTS = 2000
"""Events after which the state is kept as well, so that a reader need not fold the log from its beginning."""
CHECKPOINT_BYTES = 100
"""Bytes of a checkpoint that take as long to write as an event takes to be read and folded, with a margin of five."""
NEVER = sys.maxsize
PATIENCE_SECONDS = 2.0
"""How long the store is busy before that is said; what people see at once is `Execution.held_up`."""
MOST_IN_A_ROW = 8
"""Commits of a single path between two turns of the loop."""

_log = logger(__name__)


class Standstill(NamedTuple):
    """A store that nothing can be written to."""

    reason: str
    since: float
    """Seconds on the clock of the loop, which is `time.monotonic`."""

    def __str__(self) -> str:
        """Return it in words: ``waiting for the disk since 12 s: ...``."""
        return f"waiting for the disk since {time.monotonic() - self.since:.0f} s: {self.reason}"


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
        self._dirty: dict[Journal, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._is_scheduled = False
        self._was_alone = False
        self._in_a_row = 0
        self._pause, self._is_said = SHORTEST, False
        self.held_up: Standstill | None = None
        """Why nothing can be written at present; None if nothing is in the way."""

    def schedule(self, journal: Journal) -> None:
        """Have the journal's pending events written, at the end of this turn at the latest."""
        self._dirty[journal] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def next_commit(self) -> asyncio.Future[None]:
        """Return a future that is done when the present turn's events have been written or refused."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        return done

    @property
    def is_alone(self) -> bool:
        """Whether waiting for the end of the turn would most likely bring no company."""
        is_alone = self._was_alone and not self._waiting and self._in_a_row < MOST_IN_A_ROW
        return is_alone and self.held_up is None and self.calls.are_direct

    def commit_now(self) -> None:
        """Write what is pending, on the loop, unless the store is busy."""
        self._in_a_row += 1
        if self.held_up is None:
            self._write()

    def _end_turn(self) -> None:
        self._is_scheduled = False
        self._was_alone = len(self._waiting) <= 1 and len(self._dirty) <= 1
        self._in_a_row = 0
        if self.calls.are_direct:
            self._write()
        elif self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._write_elsewhere(), name="divebook-commit")

    def _write(self) -> None:
        if self._dirty:
            batches = self._take()
            self._end(batches, self._append(batches.values()))
            for journal in batches:
                if journal.is_checkpoint_due:
                    journal.put_checkpoint()
        self._wake()

    async def _write_elsewhere(self) -> None:
        """Write what is pending, and what is recorded meanwhile, until nothing is left."""
        try:
            while self._dirty:
                batches = self._take()
                self._end(batches, await self._appended(batches))
                self._wake()
                if self.held_up is not None:
                    return
                for journal in batches:
                    if journal.is_checkpoint_due:
                        await self.calls.once(journal.put_checkpoint)
        finally:
            self._under_way = None
            self._wake()

    def _take(self) -> dict[Journal, Batch]:
        journals, self._dirty = self._dirty, {}
        return {journal: batch for journal in journals if (batch := journal.take_batch()).records}

    def _append(self, batches: Iterable[Batch]) -> Sequence[Exception | None]:
        batches = list(batches)
        try:
            return self.store.append_all(batches)
        except Exception as error:  # noqa: BLE001 - it is raised again by everyone who waits for the write
            return [error] * len(batches)

    async def _appended(self, batches: Mapping[Journal, Batch]) -> Sequence[Exception | None]:
        try:
            return await self.calls.once(lambda: self._append(batches.values()))
        except asyncio.CancelledError:
            stopped = StoreError("the engine was stopped during a commit; what the store holds can be resumed")
            self._end(batches, [stopped] * len(batches))
            raise

    def _end(self, batches: Mapping[Journal, Batch], outcomes: Sequence[Exception | None]) -> None:
        """Tell the journals what came of their batches; what could not be written yet is written first, and later."""
        for (journal, batch), outcome in zip(batches.items(), outcomes, strict=True):
            journal.committed(batch, outcome)
        busy = outcomes[0] if outcomes else None
        if isinstance(busy, StoreBusyError):  # it is that of them all
            self._try_later(batches, busy)
        else:
            self._go_on()

    def _wake(self) -> None:
        """Let those look again who wait for a write; some may wait for the next one."""
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            if not done.done():  # a cancelled path waits no longer
                done.set_result(None)

    def _try_later(self, journals: Iterable[Journal], error: StoreBusyError) -> None:
        self._dirty = {**dict.fromkeys(journals), **self._dirty}
        loop, before = asyncio.get_running_loop(), self.held_up
        self.held_up = Standstill(str(error), loop.time() if before is None else before.since)
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


class Journal:
    """The log of one execution, while it runs.

    Parameters
    ----------
    state
        The fold of what the store already holds.
    token
        The fencing token of the lease under which to write; a new execution gets its first lease with its first events.
    durability
        How events are written, if not as the store does by default.
    """

    def __init__(
        self,
        state: ExecutionState,
        commit: GroupCommit,
        clock: Clock,
        ids: Ids,
        *,
        token: int | None = None,
        durability: Durability | None = None,
    ) -> None:
        self.execution_id = state.execution_id
        """The execution this is the log of."""
        self.clock = clock
        self.recorded = state.last_sequence
        """Sequence number up to which events are recorded."""
        self.written = state.last_sequence
        """Sequence number up to which events are durable."""
        self.error: Exception | None = None
        self._ids, self._commit, self._token, self._durability = ids, commit, token, durability
        self._state, self._home = state, get_ident()
        self._latest: Gathering | None = None
        self._pending: list[Record] = []
        self._batch: tuple[Batch, ExecutionState] | None = None
        """What was handed over last, and the state after it."""
        self._is_in_doubt = False
        """Whether what is written next may be in the log already."""
        self._next_checkpoint = _checkpoint_after(state.last_sequence)

    @property
    def held_up(self) -> Standstill | None:
        """Why nothing can be written at present; None if nothing is in the way."""
        return self._commit.held_up

    @property
    def state(self) -> ExecutionState:
        """The fold of everything recorded so far; another thread than the journal's own gets the latest that was made.

        It is folded when somebody asks for it, and at the end of the turn.
        """
        latest = self._latest
        if latest is not None and not latest.is_folded and get_ident() == self._home:
            self._fold(latest)
        return self._state

    def record(self, data: Payload, path: str = "", step: str = "") -> None:
        """Append a fact: it counts from now on, and is written at the end of this turn of the loop.

        Raises
        ------
        StoreError
            An earlier event could not be written.
        CorruptStoreError
            An earlier event does not follow the state.
        """
        now, latest = self.clock.now(), self._latest
        if latest is not None and latest.may_be_joined(data, path, step, now) and self._ids.follow():
            latest.join(data, step)
        else:
            self._close()
            if self.error is not None:
                raise self.error
            self._latest = Gathering(data, path, step, (self._ids.event(now), self.recorded + 1, now))
        self.recorded += 1
        self._commit.schedule(self)

    @property
    def moment(self) -> int:
        """When the latest fact was recorded, microseconds since 1970."""
        return self._state.last_us if self._latest is None else self._latest.recorded_at

    def _close(self) -> None:
        """Let nothing more join the latest record: it waits to be written."""
        latest = self._latest
        if latest is None:
            return
        if not latest.is_folded:
            self._fold(latest)
        if self._latest is not None:
            self._pending.append(latest.record(self.execution_id))
            self._latest = None

    def _fold(self, latest: Gathering) -> None:
        record = latest.record(self.execution_id)
        try:
            self._state = evolve_record(self._state, record, latest.folded)
        except Exception as error:  # noqa: BLE001 - everyone who records or waits for the write raises it
            self.error, self._latest = error, None
        latest.folded = len(record.facts)

    async def event(self, sequence: int) -> Event:
        """Return one event of the log, also one that is not written yet."""
        under_way = () if self._batch is None else self._batch[0].records
        latest = () if self._latest is None else (self._latest.record(self.execution_id),)
        events = (event for record in (*under_way, *self._pending, *latest) for event in record.events())
        known = next((event for event in events if event.sequence == sequence), None)
        if known is None:
            calls = self._commit.calls
            (known,) = await calls.patiently(lambda: calls.store.read(self.execution_id, sequence - 1, 1))
        return known

    def record_all(self, facts: Sequence[Fact]) -> None:
        """Append several facts."""
        for fact in facts:
            self.record(fact.data, fact.path, fact.step)

    async def durable(self) -> None:
        """Return when everything recorded so far is written.

        Raises
        ------
        StoreError
            It could not be; nothing recorded since the last success is in the store.
        """
        recorded = self.recorded
        if self.written < recorded and self.error is None and self._commit.is_alone:
            # Waiting for the end of the turn costs more than the commit, and no other path would join it
            # (test_a_path_without_company_does_not_wait_for_the_end_of_its_turn).
            await anyio.lowlevel.checkpoint_if_cancelled()  # what does not wait would not hear of it
            self._commit.commit_now()
        while self.written < recorded and self.error is None:
            await self._commit.next_commit()
        if self.error is not None:
            raise self.error

    def take_batch(self) -> Batch:
        """Hand over what waits to be written; for `GroupCommit`."""
        self._close()
        owner = Owner.current() if self._token is None and self.written == 0 else None
        state = self._state
        batch = Batch(
            self.execution_id,
            self.written,
            tuple(self._pending),
            self._token,
            owner,
            status=state.status,
            wake_at=state.wake_at,
            taken=state.taken,
            durability=self._durability,
            again=self._is_in_doubt,
        )
        if owner is not None:
            self._token = FIRST_TOKEN
        self._pending, self._batch = [], (batch, state)
        return batch

    def committed(self, batch: Batch, outcome: Exception | None) -> None:
        """Hear what came of a batch, while more may have been recorded; for `GroupCommit`."""
        if isinstance(outcome, StoreBusyError):
            # It stays the first to be written, before what was recorded since
            # (test_a_busy_store_ends_no_run_and_nothing_is_done_twice).
            self._pending = [*batch.records, *self._pending]
            self._is_in_doubt = self._is_in_doubt or isinstance(outcome, ConnectionLostError)
            if batch.acquire is not None:
                self._token = None
        elif outcome is not None:
            self.error = outcome
        else:
            self.written, self._is_in_doubt = batch.last_sequence, False

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the state is to be kept now."""
        return self.written >= self._next_checkpoint

    def put_checkpoint(self) -> None:
        """Keep the state as of the latest batch. Nothing depends on it: an execution goes on where that fails."""
        if self._batch is None:
            return
        state = self._batch[1]
        try:
            dumped = dump_state(state)
            if dumped is not None:
                self._commit.store.put_checkpoint(self.execution_id, state.last_sequence, dumped)
            self._next_checkpoint = _checkpoint_after(state.last_sequence, len(dumped or b""))
        except DivebookError as error:
            self._next_checkpoint = NEVER  # a state only grows
            place = self.execution_id, state.last_sequence
            _log.warning("execution %s has no checkpoint at event %s: %s", *place, error)


def _checkpoint_after(sequence: int, size: int = 0) -> int:
    """Return the event at which the next checkpoint is due, after one of so many bytes.

    They become rarer as the log and the state grow, so that all of them together cost a constant part of the run.
    """
    return sequence + max(CHECKPOINT_EVENTS, sequence // 2, size // CHECKPOINT_BYTES)
