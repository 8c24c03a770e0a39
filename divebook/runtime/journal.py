"""`Journal`: the event log of one running execution, and the only code that appends events to it.

`Journal.record` takes an event payload (a fact). Facts that follow each other at once on the same path share one
record, which is a row of the store (`RecordBuilder`). The records are folded into a mutable draft of the state when the
state is requested. The draft becomes an immutable `state` when a caller wants to keep it.

The journal passes its records to the `GroupCommit` of the store, which writes the records of all executions of one turn
of the event loop in one transaction. `await journal.durable()` returns when everything recorded so far is on disk. It
is awaited before every external call, so that the intent of the call and every result it may depend on are safe first.
A call that is declared idempotent may begin earlier: `await journal.nearly_durable()` lets it run a few calls ahead of
the log. If the process dies meanwhile, the call is made again, and so are the idempotent calls before it whose results
were not written. The end of any other call is durable before the next call begins, and so is the start of the
execution.

A fact passes these points: recorded (part of the state in memory), handed over (`take_batch`), written (`committed`),
durable (`synced`). If the process dies before the write, the fact is lost, and the resumed code records it again. That
is safe, because no external call was made that depends on it. If the process dies after the write, the next driver
reads the fact from the store. A batch is one transaction, so a record is never written in part. If a connection breaks
during a write, the batch may or may not be in the log. It is sent again with `Batch.again`, and the store does not
write it twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from threading import Lock, get_ident
from typing import Any

import anyio.lowlevel

from divebook.engine.checkpoint import dump_state
from divebook.engine.evolve import evolve_records, follow
from divebook.engine.instructions import Fact
from divebook.engine.state import Draft, ExecutionState
from divebook.errors import ConnectionLostError, DivebookError, StoreBusyError, StoreClosedError
from divebook.events import Event, catalog
from divebook.events.catalog import RUNNING, WAITING, Payload
from divebook.events.event import MICROSECONDS, Record
from divebook.events.recorded import ATOMS, Recorded
from divebook.runtime.clock import Clock, Ids
from divebook.runtime.commit import GroupCommit, StoreUnavailable
from divebook.runtime.concurrency import Suspended
from divebook.stores.append import FIRST_TOKEN, Batch, Durability
from divebook.stores.leases import Owner
from divebook.text.redaction import logger


class Journal:
    """Event log of one execution while it runs: records events, folds them into the state, and passes them to
    `GroupCommit`.

    Parameters
    ----------
    state
        The fold of the events that the store already holds.
    token
        Fencing token of the lease under which to write. A new execution gets its first lease with its first events.
    durability
        Durability of its writes, if it differs from the default of the store.
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
        """Id of the execution."""
        self.clock = clock
        self.recorded = state.last_sequence
        """Sequence number up to which events are recorded."""
        self.written = state.last_sequence
        """Sequence number up to which events are in the store."""
        self._durable = state.last_sequence
        """Sequence number up to which events are durable in the store."""
        self.error: Exception | None = None
        self.is_heavy = False
        """True if a pending record takes long to write."""
        self.is_stopping = False
        """True if the code that runs on this log was asked to stop."""
        self.is_parked = False
        """True if this process no longer drives the execution. Further records of its code are refused."""
        # True inside `delayed_writes`: new records then do not schedule a commit.
        self._is_delayed = False
        # Time of the last `reopen` in microseconds; 0 if the code was never parked.
        self._resumed_at = 0
        self._early_calls: deque[tuple[int, int]] = deque()
        """Sequence number and time of the start of each call that began before its start was durable, oldest first."""
        self._required = state.last_sequence
        """Sequence number up to which events must be durable before any further call begins."""
        self._stored_status = state.status if state.last_sequence else RUNNING
        """Status of the execution after the latest batch."""
        self._is_waiting = False
        """True if all unwritten records may wait for the records that follow them."""
        self.on_first_commit: Callable[[], object] | None = None
        """Called once, when the first events are durable in the store. From then on the execution can receive messages.
        None afterwards.
        """
        self._commit = commit
        self._token = token
        self._durability = durability
        self._state = state
        # Only this thread folds facts into the draft. Other threads only seal the draft, under `_lock`.
        self._thread_id = get_ident()
        self._lock = Lock()
        self._draft: Draft | None = None
        """The state being changed; None if `_state` is up to date."""
        self._latest = RecordBuilder(self.execution_id, ids, state.last_us)
        self._unfolded: list[tuple[Record, int]] = []
        """Records that the draft lacks, each with the number of its facts that the draft has."""
        self._unsealed: list[tuple[Record, int]] = []
        """Records that are in the draft but not in the latest immutable state."""
        self._is_folded = True
        # Closed records that no batch contains yet. The record that still grows is in `_latest`.
        self._pending: list[Record] = []
        self._batch: tuple[Batch, ExecutionState | None] | None = None
        """The batch handed over last, and the state after it if a checkpoint is due."""
        self._is_in_doubt = False
        """True if the next batch may already be in the log, because a connection was lost during a write."""
        self._next_checkpoint = _checkpoint_after(state.last_sequence)

    @property
    def held_up(self) -> StoreUnavailable | None:
        """Reason why the store cannot be written to at present; None if it can."""
        return self._commit.held_up

    @property
    def state(self) -> ExecutionState:
        """State of the execution: the fold of all events recorded so far, immutable.

        Records are folded when the state is read, and before they are written. In a thread other than the journal's
        own, this is the state at the last read.
        """
        if not self._is_folded and get_ident() == self._thread_id:
            self._fold()
        with self._lock:
            return self._seal()

    @property
    def present(self) -> ExecutionState:
        """Current state of the execution, which may still change. Read fields from it at once, and do not keep a
        reference to it.

        For the journal's own thread only. It costs less than `state`, which is immutable.
        """
        if not self._is_folded:
            self._fold()
        return self._draft or self._state

    def record(
        self,
        data: Payload,
        path: str = "",
        step: str = "",
        *,
        more: Sequence[Payload] = (),
        may_wait: bool = False,
        now: int | None = None,
    ) -> None:
        """Append an event, given by its payload, path and step. It changes the state at once. It is written at the end
        of this turn of the event loop, or earlier if code waits for the write (`durable`).

        A fact that `may_wait` is written together with the next one, if that follows soon.

        Parameters
        ----------
        more
            Payloads of further events of the same time, path and step.
        now
            The present time in microseconds since 1970, if the caller has read the clock already.

        Raises
        ------
        StoreError
            An earlier event could not be written.
        CorruptStoreError
            An earlier event does not follow from the state.
        Suspended
            This process no longer drives the execution.
        """
        if now is None:
            now = self.clock.now()
        latest = self._latest
        for fact in (data, *more):
            # The error is checked only where a record begins: all facts of one record are written or refused together.
            if not latest.facts or not latest.join(fact, path, step, now):
                if latest.facts:
                    self._close()
                if self.error is not None:
                    raise self.error
                if self.is_parked:
                    raise Suspended
                latest.begin(fact, path, step, self.recorded + 1, now)
                # If older records are pending, a commit is scheduled already, and it takes this record as well.
                if not self._pending and not self._is_delayed:
                    self._is_waiting = may_wait
                    if may_wait:
                        self._commit.schedule_later(self)
                    else:
                        self._commit.schedule(self)
            self.recorded += 1
            get_value = _LARGE_FIELDS.get(type(fact))
            if get_value is not None and not self.is_heavy:
                value = get_value(fact)
                # Numbers, missing values and short strings, which are most frequent, need no call.
                is_light = len(value) <= HEAVY if type(value) is str else type(value) in _LIGHT
                self.is_heavy = not is_light and is_heavy(value)
        # The earlier facts may wait, but this one may not. They share its commit.
        if self._is_waiting and not may_wait:
            self._end_wait()
        self._is_folded = False

    @property
    def moment(self) -> int:
        """Time of the latest record, in microseconds since 1970."""
        return self._latest.recorded_at

    @contextmanager
    def delayed_writes(self) -> Iterator[None]:
        """Hold back the writing of events inside the `with` block, and then until the code that these events resume has
        run for a turn of the event loop.

        The facts of the block and of that code then share one commit
        (test_an_answer_is_taken_in_with_the_resumption_and_the_call_that_follows_it).
        """
        self._is_delayed = True
        try:
            yield
        finally:
            self._is_delayed = False
            if self.written < self.recorded:
                self._commit.schedule(self)

    def seconds_since(self, moment: int) -> float:
        """Return the seconds since a time in microseconds. If waiting code in memory (parked code) was resumed since,
        count only from the resumption, because replay does not repeat the time before it.
        """
        # Example: a time limit began at 0 s, the code was parked until 60 s, and it asks at 65 s. The result is 5 s, as
        # for code that a replay starts again at 60 s.
        return (self.clock.now() - max(moment, self._resumed_at)) / MICROSECONDS

    def park(self) -> None:
        """Refuse all further events, because this process stops driving the execution. Events recorded before are still
        written.
        """
        self._close()
        self.is_parked = True

    def reopen(self, commit: GroupCommit, token: int) -> None:
        """Accept events again under a new lease. No other process may have written to the log since `park`."""
        self._commit = commit
        self._token = token
        self.is_parked = False
        self._resumed_at = self.clock.now()

    def _close(self) -> None:
        """End the record to which events were added last, so that the next commit writes it."""
        latest = self._latest
        if latest.facts:
            record = latest.record()
            # The record object is final now. If the draft lacks its last facts, it gets them with the next fold.
            self._pending.append(record)
            if latest.folded < len(record.facts):
                self._unfolded.append((record, latest.folded))
            latest.facts = []

    def _seal(self) -> ExecutionState:
        """Convert the mutable draft of the state to the immutable state, and return this state. The caller must hold
        the lock.
        """
        if self._draft is not None:
            self._state = self._draft.sealed()
            self._draft = None
            self._unsealed = []
        return self._state

    def _fold(self) -> None:
        """Fold all events recorded so far into the mutable draft of the state."""
        unfolded = self._unfolded
        latest = self._latest
        # The latest record may grow later. `folded` notes how many of its facts the draft has, so that a later fold
        # applies only the facts added since.
        if latest.folded < len(latest.facts):
            unfolded.append((latest.record(), latest.folded))
            latest.folded = len(latest.facts)
        self._unfolded = []
        self._is_folded = True
        with self._lock:
            # Sealing bounds the work of `_refuse`, which folds all unsealed records a second time.
            if len(self._unsealed) > MOST_UNSEALED:
                self._seal()
            self._unsealed += unfolded
            if self._draft is None:
                self._draft = Draft(self._state)
            try:
                follow(self._draft, unfolded)
            except Exception:  # noqa: BLE001 - `_refuse` folds again, meets the same error and keeps it
                self._refuse()

    def _refuse(self) -> None:
        """Discard a record that contradicts the state of the execution, and all records after it. Set `error`, which is
        raised by later calls. Such a record is a bug of the engine.

        The draft may be half changed, so this folds the unsealed records again, one by one, to find the faulty one.
        """
        unsealed = self._unsealed
        self._unsealed = []
        self._draft = None
        for record, folded in unsealed:
            try:
                self._state = evolve_records(self._state, [(record, folded)])
            except Exception as error:  # noqa: BLE001 - each later `record` and `durable` raises it
                self.error = error
                self._latest.facts = []
                # Records before the faulty one are sound, and are still written.
                self._pending = [before for before in self._pending if before.sequence < record.sequence]
                return

    async def event(self, sequence: int) -> Event:
        """Return the event with this sequence number, even if it is not written yet.

        Searches the batch being written, the pending records and the latest record first, then reads the store.
        """
        batch_records = () if self._batch is None else self._batch[0].records
        latest = (self._latest.record(),) if self._latest.facts else ()
        events = (event for record in (*batch_records, *self._pending, *latest) for event in record.events())
        event = next((event for event in events if event.sequence == sequence), None)
        if event is None:
            calls = self._commit.calls
            # An event is in memory until its batch is committed, so an event that was not found above is in the
            # store.
            (event,) = await calls.patiently(lambda: calls.store.read(self.execution_id, sequence - 1, 1))
        return event

    def record_all(self, facts: Sequence[Fact]) -> None:
        """Append several events, each with its path and step."""
        for fact in facts:
            self.record(fact.data, fact.path, fact.step)

    async def durable(self) -> None:
        """Wait until all events recorded so far are durable in the store.

        Raises
        ------
        StoreError
            The write failed. Nothing recorded since the last success is in the store.
        """
        recorded = self.recorded
        # The caller waits, so records with `may_wait` must not wait any longer.
        if self._is_waiting:
            self._end_wait()
        if self.written < recorded and self.error is None and self._commit.is_alone:
            # Waiting for the end of the turn costs more than the commit, and no other path would join it
            # (test_a_path_without_company_does_not_wait_for_the_end_of_its_turn).
            if self.is_stopping:
                await anyio.lowlevel.checkpoint_if_cancelled()  # a path that never waits would not notice it
            self._commit.commit_now()
        if self._durable < recorded or self.error is not None:
            await self._until_durable(recorded)

    async def _until_durable(self, recorded: int) -> None:
        """Wait until the events up to the number `recorded` are durable. The end of the turn writes them."""
        # In a loop, because a commit may fail on a busy store, or may have taken the records of another journal only.
        while self._durable < recorded and self.error is None:
            await self._commit.next_commit(self, is_written=self.written >= recorded)
        if self.error is not None:
            raise self.error

    def require_durable(self) -> None:
        """Require that the events recorded so far are durable before any further call begins, even an idempotent one.

        They include the end of a call that is not declared idempotent, or the first event by which the execution runs.
        """
        self._required = self.recorded

    async def nearly_durable(self) -> None:
        """Wait until an idempotent call may begin, whose start was just recorded: at once, if it is at most
        `MOST_EARLY_CALLS` calls and `EARLY_MICROSECONDS` ahead of the log. Otherwise wait until all events recorded so
        far are durable, and raise as `durable` does.
        """
        early = self._early_calls
        while early and early[0][0] <= self._durable:
            early.popleft()
        now = self._latest.recorded_at
        is_near = not early or (len(early) < MOST_EARLY_CALLS and now - early[0][1] < EARLY_MICROSECONDS)
        if not is_near:
            await self._until_durable(self.recorded)
        elif (
            self._required > self._durable
            # The execution itself must be in the store: `start` waits for that, and other processes look for it.
            or not self.written
            # A death during the call is counted only if the store knows that the execution runs
            # (test_an_execution_that_kills_its_workers_beside_a_wait_is_withheld).
            or self._stored_status != RUNNING
            or self.is_stopping
            or self.error is not None
            or self.held_up is not None
        ):
            await self.durable()
        elif self.recorded > self._durable:
            early.append((self.recorded, now))

    def _end_wait(self) -> None:
        """Write events that wait for a following event (recorded with `may_wait`) at the end of this turn. They wait no
        longer, because another event follows or code waits for the write.
        """
        self._is_waiting = False
        self._commit.schedule(self)

    def take_batch(self, *, is_heavy: bool = False) -> Batch:
        """Return the records that are not written yet as a batch for the store. Called by `GroupCommit`."""
        # The record must be closed before the state is read: status, `wake_at` and `taken` of the batch are those
        # after its last event.
        if self._latest.facts:
            self._close()
        present = self.present
        # The first batch of a log acquires the first lease in the same transaction. No other process can therefore
        # drive the new execution in between.
        owner = Owner.current() if self._token is None and self.written == 0 else None
        pending = self._pending
        status = present.status
        self._pending = []
        self.is_heavy = False
        self._is_waiting = False
        if status != self._stored_status:
            self._stored_status = status
            self.require_durable()
        batch = Batch(
            self.execution_id,
            self.written,
            pending,
            self._token,
            owner,
            status,
            present.wake_at if status == WAITING else None,
            present.taken,
            self._durability,
            is_heavy,
            self._is_in_doubt,
            parent=present.parent,
            is_checked=True,
        )
        # Set before the write succeeds, because further batches may be taken meanwhile. `committed` undoes it if the
        # store refuses.
        if owner is not None:
            self._token = FIRST_TOKEN
        # A checkpoint must match a written batch. The state is kept here, since later facts change the draft.
        self._batch = batch, self.state if self.recorded >= self._next_checkpoint else None
        return batch

    def committed(self, batch: Batch, outcome: Exception | None, *, is_durable: bool = True) -> None:
        """Handle the outcome of writing a batch: None if it was written, else the error. Records that a busy store
        refused are written again later. Called by `GroupCommit`.

        More facts may have been recorded since the batch was taken.
        """
        if outcome is None:
            self.written = batch.last_sequence
            self._is_in_doubt = False
            if is_durable:
                self.synced(self.written, None)
        elif isinstance(outcome, StoreBusyError):
            # The batch stays first in line, before records made since
            # (test_a_busy_store_ends_no_run_and_nothing_is_done_twice).
            self._pending = [*batch.records, *self._pending]
            self.is_heavy = self.is_heavy or batch.is_heavy
            # The server may have committed the batch before the connection broke. The flag makes the store look
            # before it writes.
            self._is_in_doubt = self._is_in_doubt or isinstance(outcome, ConnectionLostError)
            # The lease was not written either, so the next attempt must acquire it again.
            if batch.acquire is not None:
                self._token = None
        else:
            # The first error is the cause. Records that were made during the write cannot follow the refused ones, and
            # an attempt to write them would replace the cause with an error about their numbers.
            if self.error is None:
                self.error = outcome
            self._close()
            self._pending = []
            self.is_heavy = False

    def synced(self, sequence: int, error: Exception | None) -> None:
        """Note that the events up to the number `sequence` are durable. If `error` is not None, they could not be made
        durable, and nothing more can be recorded. Called by `GroupCommit`.
        """
        if error is not None:
            self.error = error
            return
        self._durable = max(self._durable, sequence)  # a later batch may have become durable first
        if self.on_first_commit is not None:
            self.on_first_commit()
            self.on_first_commit = None

    @property
    def is_checkpoint_due(self) -> bool:
        """True if a checkpoint of the state should be stored now."""
        return self.written >= self._next_checkpoint

    def put_checkpoint(self) -> None:
        """Store a checkpoint: the state after the last written batch. Readers then need not fold the log from its
        beginning. Do nothing if no state was kept with that batch.

        Checkpoints are optional, so a failure is only logged.
        """
        state = None if self._batch is None else self._batch[1]
        size = 0
        if state is None:
            return
        try:
            data = dump_state(state)
            size = len(data)
            self._commit.store.put_checkpoint(self.execution_id, state.last_sequence, data)
        except StoreClosedError:
            return  # the run has just ended and its store was closed
        except DivebookError as error:
            place = self.execution_id, state.last_sequence
            _log.warning("execution %s has no checkpoint at event %s: %s", *place, error)
        # After a failure as well: the next attempt waits for the usual distance.
        self._next_checkpoint = _checkpoint_after(state.last_sequence, size)


# --- grouping of facts into records ----------------------------------------------------------------------------------
#
# Facts that follow each other at once form one record: one row of the store and one change of the state.
#
# The grouping depends only on order, place and time of the facts, not on when the state is read in between. Readers of
# the log see single events (tests/runtime/test_gathering.py).


SAME_MOMENT = 1000
"""Microseconds within which consecutive facts count as simultaneous."""
# The usual life of a step gives one or two records: `StepStarted, OperationStarted` before its call, then
# `OperationCompleted, StateMutated, StepCompleted, PathCompleted` after it.
MAY_FOLLOW: Mapping[type[Payload], frozenset[type[Payload]]] = {
    catalog.PathStarted: frozenset({catalog.StepStarted}),
    catalog.StepStarted: frozenset({catalog.OperationStarted, catalog.IterationStarted}),
    catalog.IterationStarted: frozenset({catalog.StateMutated, catalog.OperationStarted}),
    catalog.OperationCompleted: frozenset(
        {
            catalog.StateMutated,
            catalog.RollbackAdded,
            catalog.StepCompleted,
            catalog.IterationCompleted,
            catalog.OperationStarted,
        }
    ),
    catalog.StateMutated: frozenset({catalog.StepCompleted, catalog.OperationStarted, catalog.RollbackAdded}),
    catalog.RollbackAdded: frozenset({catalog.StepCompleted, catalog.IterationCompleted}),
    catalog.IterationCompleted: frozenset({catalog.IterationStarted, catalog.StepCompleted}),
    catalog.StepCompleted: frozenset({catalog.PathCompleted}),
}
"""For each type of fact, the types that may directly follow it on the same path within one record."""
_NOTHING: frozenset[type[Payload]] = frozenset()


class RecordBuilder:
    """Builder of the record that is still growing at the end of a log. A record is one row of the store, and holds
    events that follow each other at once.

    The journal reuses one object for all records.

    Attributes
    ----------
    facts
        The facts of the record so far. It is empty if no record is growing, and `begin` must come next.
    folded
        Number of these facts that are folded into the state.
    recorded_at
        Time of the record, in microseconds since 1970.
    """

    __slots__ = (
        "_execution_id",
        "_id",
        "_ids",
        "_may_follow",
        "_path",
        "_record",
        "_sequence",
        "_step",
        "_width",
        "facts",
        "folded",
        "recorded_at",
    )

    def __init__(self, execution_id: str, ids: Ids, recorded_at: int) -> None:
        self._execution_id = execution_id
        self._ids = ids
        self.recorded_at = recorded_at
        self._path = self._step = self._id = ""
        self._sequence = 0
        self._width = 1
        """Number of facts of the latest record; its ids are used up, also after `facts` was emptied."""
        self.folded = 0
        self._record: Record | None = None
        self.facts: list[Payload] = []
        self._may_follow = _NOTHING

    def begin(self, data: Payload, path: str, step: str, sequence: int, now: int) -> None:
        """Start a new record with its first event. It replaces the earlier record in this object."""
        self._id = self._ids.event(now, self._width - 1)
        self._width = 1
        self._sequence = sequence
        self.recorded_at = now
        self._path = path
        self._step = step
        self._record = None
        self.facts = [data]
        self.folded = 0
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)

    def join(self, data: Payload, path: str, step: str, now: int) -> bool:
        """Add an event to the record if it may be part of it: it has the same path and step, and follows the last event
        at once. Return whether it was added.
        """
        if type(data) not in self._may_follow or path != self._path:
            return False
        if step and self._step and step != self._step:  # a record belongs to one step
            return False
        # The ids of the events of a record follow each other.
        if not 0 <= now - self.recorded_at < SAME_MOMENT or self._width > self._ids.following:
            return False
        self._width += 1
        self.facts.append(data)
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)
        self._record = None
        if step:
            self._step = step
        return True

    def record(self) -> Record:
        """Return the events that were added so far as a `Record`."""
        record = self._record
        if record is None:
            facts = tuple(self.facts)
            record = self._record = Record(
                self._id, self._execution_id, self._sequence, self.recorded_at, facts, self._path, self._step
            )
        return record


# --- detection of large facts ----------------------------------------------------------------------------------------
#
# Large values take long to write. The check is an estimate that looks at few parts of a value, because it runs for
# every fact.


HEAVY = 1024 * 1024
"""Characters or bytes above which handing a commit to a thread pays off."""
_MANY = 16 * 1024
"""Number of parts of a list or mapping that counts as large."""
_FEW = 16
"""Number of parts up to which each part is inspected."""
_LEVELS = 3
_LIGHT = ATOMS - {str}
# Only these facts carry values of users. All other facts are small by construction.
_LARGE_FIELDS = {
    catalog.ExecutionStarted: attrgetter("inputs"),
    catalog.ExecutionCompleted: attrgetter("outputs"),
    catalog.OperationStarted: attrgetter("parameters"),
    catalog.OperationCompleted: attrgetter("result"),
    catalog.StepCompleted: attrgetter("output"),
    catalog.IterationStarted: attrgetter("item"),
    catalog.EventEmitted: attrgetter("data"),
}
"""The field of each type of fact that may be large. A variable needs no entry: its value was the result of a call
before."""


def is_heavy(value: Any, levels: int = _LEVELS) -> bool:
    """Return whether a value of an event is probably so large that it should be encoded and written in a thread, so
    that the event loop is not blocked. Containers are inspected down to `levels`.
    """
    # An estimate that must be cheap: it runs for each record. It does not look into long containers, whose length
    # decides.
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) > HEAVY
    if kind is dict or kind is list:
        if len(value) > _FEW or not levels:
            return len(value) > _MANY
        for part in value.values() if kind is dict else value:
            # Numbers and short texts need no call of their own.
            is_light = len(part) <= HEAVY if type(part) is str else type(part) in _LIGHT
            if not is_light and is_heavy(part, levels - 1):
                return True
        return False
    return kind not in _LIGHT and isinstance(value, Recorded) and value.least_bytes() > HEAVY


CHECKPOINT_EVENTS = 500
"""Events after which a checkpoint of the state is stored, so that a reader need not fold the whole log."""
CHECKPOINT_BYTES = 50
"""Bytes of a checkpoint that take as long to write as one event takes to read and fold, with a safety factor of ten."""

MOST_EARLY_CALLS = 16
"""Maximum number of idempotent calls of an execution that begin before their starts are durable."""
EARLY_MICROSECONDS = 10_000
"""Time since the oldest such start after which the next call waits for the log."""
MOST_UNSEALED = 64
"""Records kept for a second folding attempt, in case one of them does not follow from the state."""

_log = logger(__name__)


def _checkpoint_after(sequence: int, size: int = 0) -> int:
    """Return the sequence number at which the next checkpoint is due, after a checkpoint of `size` bytes at `sequence`.

    The distance grows with the log and the state, so that all checkpoints together cost a constant part of the run.
    """
    # A quarter of the log: checkpoints at 500, 1000, 1500, 2000, 2500, 3125, 3906 ... With a state of 1 MB, the next
    # one is due after at least 20,971 events.
    return sequence + max(CHECKPOINT_EVENTS, sequence // 4, size // CHECKPOINT_BYTES)
