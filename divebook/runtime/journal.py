"""One execution's log and its single writer.

`Journal.record` takes a fact, which joins the record before it if it may (`divebook.runtime.journal`). Records are
folded when somebody asks what they lead to, into a draft that becomes a `state` where somebody keeps it, and handed to
the `GroupCommit` of their store, which writes everything that all executions have recorded in one turn of the event
loop as one transaction. `await journal.durable()` returns when all that was recorded so far is on disk; it stands
before every call to the outside, so that a call's intent, and every result it may depend on, are safe before it is
made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from operator import attrgetter
from threading import Lock, get_ident
from typing import Any

import anyio.lowlevel

from divebook.engine.bounds import Fact
from divebook.engine.changes import Draft
from divebook.engine.checkpoint import dump_state
from divebook.engine.evolve import evolve_records, follow
from divebook.engine.state import ExecutionState
from divebook.errors import ConnectionLostError, DivebookError, StoreBusyError, StoreClosedError
from divebook.events import Event, catalog
from divebook.events.catalog import WAITING, Payload
from divebook.events.event import Record
from divebook.events.recorded import ATOMS, Recorded
from divebook.runtime.clock import MICROSECONDS, Clock, Ids
from divebook.runtime.commit import GroupCommit, StoreUnavailable
from divebook.runtime.concurrency import Suspended
from divebook.store.append import FIRST_TOKEN, Batch, Durability
from divebook.store.leases import Owner
from divebook.text.redaction import logger

# Facts that follow upon each other at once, gathered into one record: a row of the store and one change of the state.
#
# Which facts a record holds depends on nothing but their order, place and time, and not on who looks at the state in
# between; readers of the log see events (tests/execution/test_gathering.py).


SAME_MOMENT = 1000
"""Microseconds within which facts that follow upon each other happened at one moment."""
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
"""What the end of one thing, or its beginning, leads to at once on the same path: what a record goes on with."""
_NOTHING: frozenset[type[Payload]] = frozenset()


class RecordBuilder:
    """The latest record of a log, which the next fact may join; one object for all of them.

    Attributes
    ----------
    facts
        What it stands for so far; none where nothing may join it any more.
    folded
        How many of them the state has.
    recorded_at
        When, microseconds since 1970.
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
        "facts",
        "folded",
        "recorded_at",
    )

    def __init__(self, execution_id: str, ids: Ids, recorded_at: int) -> None:
        self._execution_id, self._ids, self.recorded_at = execution_id, ids, recorded_at
        self._path = self._step = self._id = ""
        self._sequence, self.folded = 0, 0
        self._record: Record | None = None
        self.facts: list[Payload] = []
        self._may_follow = _NOTHING

    def begin(self, data: Payload, path: str, step: str, sequence: int, now: int) -> None:
        """Begin a record with its first fact."""
        self._id, self._sequence, self.recorded_at = self._ids.event(now), sequence, now
        self._path, self._step = path, step
        self._record, self.facts, self.folded = None, [data], 0
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)

    def join(self, data: Payload, path: str, step: str, now: int) -> bool:
        """Take a fact in if it belongs here; return whether it does."""
        if (
            type(data) not in self._may_follow
            or path != self._path
            or not 0 <= now - self.recorded_at < SAME_MOMENT
            or (step != self._step and step and self._step)
            or not self._ids.follow()
        ):
            return False
        self.facts.append(data)
        self._may_follow = MAY_FOLLOW.get(type(data), _NOTHING)
        self._record = None
        if step:
            self._step = step
        return True

    def record(self) -> Record:
        """Return it as it stands."""
        record = self._record
        if record is None:
            facts = tuple(self.facts)
            record = self._record = Record(
                self._id, self._execution_id, self._sequence, self.recorded_at, facts, self._path, self._step
            )
        return record

    def end(self) -> None:
        """Let nothing join it any more."""
        self.facts, self._may_follow = [], _NOTHING


# Which facts take long to write: those that hold a large value. They are told by a glance, for it is asked of all.


HEAVY = 1024 * 1024
"""Characters or bytes from which on it pays to hand a commit to a thread."""
_MANY = 16 * 1024
"""Parts of a list or mapping that count as much."""
_FEW = 16
"""Parts that are looked at."""
_LEVELS = 3
_LIGHT = ATOMS - {str}
_HELD = {
    catalog.ExecutionStarted: attrgetter("inputs"),
    catalog.ExecutionCompleted: attrgetter("outputs"),
    catalog.OperationStarted: attrgetter("parameters"),
    catalog.OperationCompleted: attrgetter("result"),
    catalog.StepCompleted: attrgetter("output"),
    catalog.IterationStarted: attrgetter("item"),
    catalog.EventEmitted: attrgetter("data"),
}
"""What facts hold that may be large; the value of a variable was the result of a call before."""


def is_heavy(fact: catalog.Payload) -> bool:
    """Return whether a fact holds a value that is seen to be large."""
    held = _HELD.get(type(fact))
    if held is None:
        return False
    value = held(fact)
    return type(value) not in _LIGHT and _is_heavy(value, _LEVELS)


def _is_heavy(value: Any, levels: int) -> bool:
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) > HEAVY
    if kind is dict or kind is list:
        if len(value) > _FEW or not levels:
            return len(value) > _MANY
        for part in value.values() if kind is dict else value:  # noqa: SIM110 - a generator takes twice as long
            if _is_heavy(part, levels - 1):
                return True
        return False
    return kind not in _LIGHT and isinstance(value, Recorded) and value.least_bytes() > HEAVY


CHECKPOINT_EVENTS = 500
"""Events after which the state is kept as well, so that a reader need not fold the log from its beginning."""
CHECKPOINT_BYTES = 50
"""Bytes of a checkpoint that take as long to write as an event takes to be read and folded, with a margin of ten."""

MOST_UNSEALED = 64
"""Records that are kept for a second attempt at folding them, should one of them not follow the state."""

_log = logger(__name__)


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
        """Sequence number up to which events are in the store."""
        self._durable = state.last_sequence
        """Sequence number up to which they are durable there."""
        self.error: Exception | None = None
        self.is_heavy = False
        """Whether what waits to be written takes long to write."""
        self.is_left = False
        """Whether what runs on it has been told to stop."""
        self.is_resting = False
        """Whether this process drives the execution no more: what its code records all the same is refused."""
        self._is_held, self._resumed_at = False, 0
        self._is_waiting = False
        """Whether all that is recorded and not written may wait for what follows upon it."""
        self.first_written: Future[None] | None = None
        """To be done once the first of its events are in the store, from where on messages can be sent to it."""
        self._commit, self._token, self._durability = commit, token, durability
        self._state, self._home, self._lock = state, get_ident(), Lock()
        self._draft: Draft | None = None
        """The state on its way; None where it is the latest that is whole."""
        self._latest = RecordBuilder(self.execution_id, ids, state.last_us)
        self._unfolded: list[tuple[Record, int]] = []
        """The records that the draft does not have yet, each with how many of its facts it has."""
        self._unsealed: list[tuple[Record, int]] = []
        """Those that it has, and the latest whole state has not."""
        self._is_folded = True
        self._pending: list[Record] = []
        self._batch: tuple[Batch, ExecutionState | None] | None = None
        """What was handed over last, and the state after it where that is to be kept."""
        self._is_in_doubt = False
        """Whether what is written next may be in the log already."""
        self._next_checkpoint = _checkpoint_after(state.last_sequence)

    @property
    def held_up(self) -> StoreUnavailable | None:
        """Why nothing can be written at present; None if nothing is in the way."""
        return self._commit.held_up

    @property
    def state(self) -> ExecutionState:
        """The fold of everything recorded so far; in another thread than the journal's own, of what was folded last.

        It is folded when somebody asks for it, and before anything is written.
        """
        if not self._is_folded and get_ident() == self._home:
            self._fold()
        with self._lock:
            return self._seal()

    @property
    def present(self) -> ExecutionState:
        """The state to look at and not to keep: it goes on changing. For the journal's own thread.

        It costs less than the `state`, which nothing changes any more.
        """
        if not self._is_folded:
            self._fold()
        return self._draft or self._state

    def record(self, data: Payload, path: str = "", step: str = "", *, may_wait: bool = False) -> None:
        """Append a fact: it counts from now on, and is written at the end of this turn of the loop.

        One that `may_wait` is written together with what follows upon it, if that comes soon.

        Raises
        ------
        StoreError
            An earlier event could not be written.
        CorruptStoreError
            An earlier event does not follow the state.
        Suspended
            The execution is at rest.
        """
        now, latest = self.clock.now(), self._latest
        if not latest.join(data, path, step, now):
            self._close()
            if self.error is not None:
                raise self.error
            if self.is_resting:
                raise Suspended
            latest.begin(data, path, step, self.recorded + 1, now)
            if not self._pending and not self._is_held:
                self._is_waiting = may_wait
                (self._commit.schedule_later if may_wait else self._commit.schedule)(self)
        if self._is_waiting and not may_wait:
            self._end_wait()
        self.recorded += 1
        self._is_folded = False
        if not self.is_heavy and is_heavy(data):
            self.is_heavy = True

    @property
    def moment(self) -> int:
        """When the latest fact was recorded, microseconds since 1970."""
        return self._latest.recorded_at

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have what the block records written after what it sets going has had its turn, and so together with that.

        (test_an_answer_is_taken_in_with_the_resumption_and_the_call_that_follows_it)
        """
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            if self.written < self.recorded:
                self._commit.schedule(self)

    def seconds_since(self, moment: int) -> float:
        """Return how long ago a moment was, without the time before the last rest: what is replayed began after it."""
        return (self.clock.now() - max(moment, self._resumed_at)) / MICROSECONDS

    def rest(self) -> None:
        """Refuse what is recorded from now on; all before that is written."""
        self._close()
        self.is_resting = True

    def go_on(self, commit: GroupCommit, token: int) -> None:
        """Take records again, under a new lease; nobody else has written since it came to rest."""
        self._commit, self._token, self.is_resting = commit, token, False
        self._resumed_at = self.clock.now()

    def _close(self) -> None:
        """Let nothing more join the latest record: it waits to be written."""
        latest = self._latest
        if latest.facts:
            record = latest.record()
            self._pending.append(record)
            if latest.folded < len(latest.facts):
                self._unfolded.append((record, latest.folded))
            latest.end()

    def _seal(self) -> ExecutionState:
        """Make the state whole that the draft has come to; whoever asks for it holds the lock."""
        if self._draft is not None:
            self._state, self._draft, self._unsealed = self._draft.sealed(), None, []
        return self._state

    def _fold(self) -> None:
        """Bring the draft up to what is recorded."""
        unfolded, latest = self._unfolded, self._latest
        if latest.folded < len(latest.facts):
            unfolded.append((latest.record(), latest.folded))
            latest.folded = len(latest.facts)
        self._unfolded, self._is_folded = [], True
        with self._lock:
            if len(self._unsealed) > MOST_UNSEALED:
                self._seal()
            self._unsealed += unfolded
            if self._draft is None:
                self._draft = Draft(self._state)
            try:
                follow(self._draft, unfolded)
            except Exception:  # noqa: BLE001 - the second attempt meets it again, and says so
                self._refuse()

    def _refuse(self) -> None:
        """Let nothing be written from the first record on that does not follow the state: a fault of the engine."""
        unsealed, self._unsealed, self._draft = self._unsealed, [], None
        for record, known in unsealed:
            try:
                self._state = evolve_records(self._state, [(record, known)])
            except Exception as error:  # noqa: BLE001 - everyone who records or waits for the write raises it
                self.error = error
                self._latest.end()
                self._pending = [before for before in self._pending if before.sequence < record.sequence]
                return

    async def event(self, sequence: int) -> Event:
        """Return one event of the log, also one that is not written yet."""
        under_way = () if self._batch is None else self._batch[0].records
        latest = (self._latest.record(),) if self._latest.facts else ()
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
        if self._is_waiting:
            self._end_wait()
        if self.written < recorded and self.error is None and self._commit.is_alone:
            # Waiting for the end of the turn costs more than the commit, and no other path would join it
            # (test_a_path_without_company_does_not_wait_for_the_end_of_its_turn).
            if self.is_left:
                await anyio.lowlevel.checkpoint_if_cancelled()  # what does not wait would not hear of it
            self._commit.commit_now()
        while self._durable < recorded and self.error is None:
            await self._commit.next_commit(self, is_written=self.written >= recorded)
        if self.error is not None:
            raise self.error

    def _end_wait(self) -> None:
        """Have written at the end of this turn what may wait: something follows upon it, or waits for it."""
        self._is_waiting = False
        self._commit.schedule(self)

    def take_batch(self, *, is_heavy: bool = False) -> Batch:
        """Hand over what waits to be written; for `GroupCommit`."""
        self._close()
        present = self.present
        owner = Owner.current() if self._token is None and self.written == 0 else None
        pending, status = self._pending, present.status
        self._pending, self.is_heavy, self._is_waiting = [], False, False
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
        )
        if owner is not None:
            self._token = FIRST_TOKEN
        self._batch = batch, self.state if self.recorded >= self._next_checkpoint else None
        return batch

    def committed(self, batch: Batch, outcome: Exception | None, *, is_durable: bool = True) -> None:
        """Hear what came of a batch, while more may have been recorded; for `GroupCommit`."""
        if outcome is None:
            self.written, self._is_in_doubt = batch.last_sequence, False
            if is_durable:
                self.synced(batch.last_sequence, None)
        elif isinstance(outcome, StoreBusyError):
            # It stays the first to be written, before what was recorded since
            # (test_a_busy_store_ends_no_run_and_nothing_is_done_twice).
            self._pending = [*batch.records, *self._pending]
            self.is_heavy = self.is_heavy or batch.is_heavy
            self._is_in_doubt = self._is_in_doubt or isinstance(outcome, ConnectionLostError)
            if batch.acquire is not None:
                self._token = None
        else:
            self.error = outcome

    def synced(self, sequence: int, error: Exception | None) -> None:
        """Hear that the events up to one are durable, or why they are not; for `GroupCommit`."""
        if error is not None:
            self.error = error
            return
        self._durable = max(self._durable, sequence)  # a later batch may have been written durably meanwhile
        if self.first_written is not None:
            if not self.first_written.done():  # another process may have taken the lease before the disk had it
                self.first_written.set_result(None)
            self.first_written = None

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the state is to be kept now."""
        return self.written >= self._next_checkpoint

    def put_checkpoint(self) -> None:
        """Keep the state as of the latest batch. Nothing depends on it: an execution goes on where that fails."""
        state, size = None if self._batch is None else self._batch[1], 0
        if state is None:
            return
        try:
            dumped = dump_state(state)
            size = len(dumped)
            self._commit.store.put_checkpoint(self.execution_id, state.last_sequence, dumped)
        except StoreClosedError:
            return  # right after the end of a run
        except DivebookError as error:
            place = self.execution_id, state.last_sequence
            _log.warning("execution %s has no checkpoint at event %s: %s", *place, error)
        self._next_checkpoint = _checkpoint_after(state.last_sequence, size)


def _checkpoint_after(sequence: int, size: int = 0) -> int:
    """Return the event at which the next checkpoint is due, after one of so many bytes.

    They become rarer as the log and the state grow, so that all of them together cost a constant part of the run.
    """
    return sequence + max(CHECKPOINT_EVENTS, sequence // 4, size // CHECKPOINT_BYTES)
