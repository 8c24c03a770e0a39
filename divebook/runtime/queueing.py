"""Queues: put executions into a queue, claim them for a worker, return them, and move them to another store."""

from __future__ import annotations

import asyncio
import functools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from divebook.engine.evolve import fold, fold_records
from divebook.engine.inbox import facts_of
from divebook.engine.state import ExecutionState
from divebook.errors import DivebookError, ExecutionError, NeedsPersonError
from divebook.events import catalog
from divebook.events.catalog import CANCELLED, FAILED, MOVED, RUNNING, ExecutionMoved
from divebook.events.event import Event, Record
from divebook.runtime.children import Abandoned, children_to_end, running_children
from divebook.runtime.clock import MICROSECONDS, Chance, Clock, Ids
from divebook.runtime.driver import CancelledMeanwhileError, Driver, ExecutionRegistry, WorkerRef
from divebook.runtime.leases import DRIVEN_LEASES
from divebook.runtime.loop import ENGINE, STOP_SECONDS
from divebook.store import Lease
from divebook.store.append import FULL, Batch, records_of
from divebook.store.base import EventStore
from divebook.store.leases import Owner
from divebook.store.transfer import flush, writing
from divebook.text.format import in_parts
from divebook.text.redaction import logger

# --- limit on automatic resumption -----------------------------------------------------------------------------------
#
# The log of an execution may kill each process that resumes it, so the number of automatic attempts is limited.


PAUSES = (0, 60, 600)
"""Seconds to wait since the previous attempt, for each consecutive automatic attempt."""
TAIL = 200
"""Number of last events in which the latest attempt is searched. More events than that count as progress."""
_PROGRESS = (
    catalog.OperationCompleted,
    catalog.OperationFailed,
    catalog.IterationCompleted,
    catalog.IterationFailed,
    catalog.StepCompleted,
    catalog.InterruptRaised,
)
"""Events that are recorded once each, so that one of them proves progress after a resumption."""


def next_attempt(store: EventStore, execution_id: str, now: int) -> int:
    """Return the number of the automatic attempt that may be made now, counted since the last progress.

    Raises
    ------
    ExecutionError
        The pause before the next attempt is not over.
    NeedsPersonError
        All attempts have been made.
    """
    last = store.record(execution_id).last_sequence
    latest = _latest_attempt(store.read(execution_id, max(0, last - TAIL)))
    if latest is None:
        return 1
    made, since = latest
    if made >= len(PAUSES):
        raise NeedsPersonError(
            f"execution {execution_id} needs a person: it was resumed {made} times automatically and interrupted each "
            "time before it made progress. Look at what it does next, then resume it"
        )
    left = PAUSES[made] - (now - since) / MICROSECONDS
    if left > 0:
        raise ExecutionError(
            f"execution {execution_id} was resumed {made} times automatically and made no progress; it is tried again "
            f"in {in_parts(math.ceil(left))}, or as soon as a person resumes it"
        )
    return made + 1


def attempts_made(store: EventStore, execution_id: str) -> int:
    """Return the number of automatic resumptions since the execution last made progress."""
    last = store.record(execution_id).last_sequence
    made, _ = _latest_attempt(store.read(execution_id, max(0, last - TAIL))) or (0, 0)
    return made


def _latest_attempt(events: list[Event]) -> tuple[int, int] | None:
    """Return number and time of the latest attempt, or None if there was progress or a person resumed the execution
    since.
    """
    for event in reversed(events):
        if isinstance(event.data, _PROGRESS):
            return None
        if isinstance(event.data, catalog.ExecutionResumed):
            return None if event.data.recovery is None else (event.data.recovery, event.recorded_at)
    return None


class QueueControl(ABC):
    """Queue operations of `divebook.runtime.manager.Control`."""

    store: EventStore
    clock: Clock
    chance: Chance
    _register: ExecutionRegistry

    @abstractmethod
    def _require_means(self, driver: Driver) -> None: ...

    @abstractmethod
    def ends_with_parent(self, driver: Driver) -> bool:  # noqa: D102 - as documented where it is defined
        ...

    @abstractmethod
    def _drive(
        self, driver: Driver, lease: Lease, resumed: catalog.ExecutionResumed | None = None, *, anew: bool = False
    ) -> None: ...

    def enqueue(self, driver: Driver, place: catalog.ExecutionEnqueued) -> Driver:
        """Put a pending execution into a queue. Return it as stored, so that workers find it.

        Raises
        ------
        StartKeyTakenError
            Another execution has its start key.
        """
        opening = driver.opening
        if opening is None or driver.was_driven:
            raise ExecutionError(f"execution {driver.id} is {driver.status}; only a pending one can be enqueued")
        ENGINE.refuse_waiting(self.store)
        records = self._records(driver.id, 0, opening, place)
        # A worker of this process may claim the execution as soon as it is stored. It must not find the pending
        # driver, which this method replaces (test_a_run_that_a_worker_claims_at_once_has_one_driver).
        self._register.withdraw(driver)
        try:
            self._append(Batch(driver.id, 0, records, wake_at=place.due, durability=driver.durability))
        except BaseException:
            self._register.enter(driver)
            raise
        return self._register.look_up(driver.id)

    def _let_come_from(self, driver: Driver, other: str) -> None:
        """Make a pending execution inherit the queue and the worker of another one, which is driven here."""
        if (known := self._register.present(other)) is not None:
            driver.come_from(known)

    def _is_for_workers(self, driver: Driver, parent: str | None) -> bool:
        """Return whether the workers of its queue must continue the execution, instead of this process.

        The child of a parent that a person resumed is driven with the parent, without counting attempts.
        """
        if driver.state.queue is None:
            return False
        if driver.was_driven:
            is_drained = driver.worker is not None and not driver.worker.is_running
            # Messages do not resume a paused execution: workers leave it alone.
            return is_drained or driver.state.is_shown_paused or driver.state.lifecycle == catalog.ENQUEUED
        above = None if parent is None else self._register.present(parent)
        return above is None or above.worker is not None

    def hold(self, driver: Driver, paused: catalog.ExecutionPaused) -> None:
        """Pause an execution in a queue that is not driven. Workers ignore it until it is resumed.

        Raises
        ------
        LeaseHeldError
            A worker drives it.
        """
        with DRIVEN_LEASES.about_to_drive(self.store, driver.id):
            lease = DRIVEN_LEASES.take(self.store, driver.id)
            try:
                before = driver.under(lease)
                if before.is_over:
                    raise ExecutionError(f"execution {driver.id} has meanwhile ended as {before.status}")
                (record,) = self._records(driver.id, before.last_sequence, paused)
                after = fold_records(driver.id, [record], before)
                batch = Batch(driver.id, before.last_sequence, [record], lease.token, taken=after.taken)
                status = after.status if after.lifecycle == RUNNING else None
                self._append(replace(batch, status=status, wake_at=after.wake_at, durability=driver.durability))
            finally:
                self.store.release(lease)
        driver.refresh()

    def _records(self, execution_id: str, last: int, *payloads: catalog.Payload) -> list[Record]:
        now = self.clock.now()
        ids = Ids(self.clock, self.chance)
        facts = enumerate(payloads, last + 1)
        return records_of(Event(ids.event(now), execution_id, sequence, now, data) for sequence, data in facts)

    def _append(self, batch: Batch) -> None:
        (refusal,) = self.store.append_all([batch])
        if refusal is not None:
            raise refusal

    def claim(
        self, queues: Collection[str], workflows: Mapping[str, str], limit: int, *, without: Collection[str] = ()
    ) -> list[Lease]:
        """Claim the leases of executions that have something to do.

        This thread must drive them. See the method of the store.
        """
        claim = functools.partial(self.store.claim, queues, workflows, Owner.current(), limit, without=without)
        return DRIVEN_LEASES.claim(self.store, claim)

    def take_up(self, lease: Lease, worker: WorkerRef) -> Driver:
        """Drive an execution whose lease was claimed. If that is impossible, release the lease.

        If the previous driver died, the limit on automatic resumption applies.

        Raises
        ------
        DivebookError
            It cannot be driven here: a definition is missing, or it was resumed too often.
        """
        try:
            with DRIVEN_LEASES.about_to_drive(self.store, lease.execution_id):
                driver = self._register.find(lease.execution_id)
                if self.ends_with_parent(driver):  # the cancellation takes its lease
                    return driver
                state = driver.under(lease)
                self._require_means(driver)
                driver.worker, died = worker, self._has_died(state, lease)
                try:
                    self._drive(driver, lease, self._resumption(state, died=died), anew=died)
                except CancelledMeanwhileError:  # the cancellation has taken its lease
                    return driver
        except BaseException:
            with suppress(DivebookError):  # the lease expires
                self.store.release(lease)
            raise
        return driver

    def _has_died(self, state: ExecutionState, lease: Lease) -> bool:
        """Return whether the execution may have killed its previous driver.

        One that only waited for children did no work. Its first work may not be in the log
        (test_what_ends_its_worker_before_anything_is_written_is_counted).
        """
        return state.status == RUNNING or (lease.was_left and not running_children(state))

    def _resumption(self, state: ExecutionState, *, died: bool) -> catalog.ExecutionResumed:
        if state.is_over:
            raise ExecutionError(f"execution {state.execution_id} has meanwhile ended as {state.status}")
        attempt = next_attempt(self.store, state.execution_id, self.clock.now()) if died else None
        return catalog.ExecutionResumed(state.status, recovery=attempt)

    def give_back(self, drivers: Iterable[Driver], reason: str) -> None:
        """Start nothing more in executions that this process drives, and return them to their
        queues for other workers.
        """

        def pause() -> None:  # all in one turn, so that none starts anything meanwhile
            for driver in drivers:
                driver.pause(reason, gives_back=True)

        ENGINE.call(pause)

    def live(self) -> list[Driver]:
        """Return the executions that this process drives now."""
        return self._register.live()

    def leave(self, driver: Driver) -> None:
        """Stop driving an execution at once, so that other workers can claim it."""
        ENGINE.call(driver.leave)


# --- moving an execution to another store ----------------------------------------------------------------------------
#
# The execution is written to a file and continues where the file is imported. At any time it can continue in at most
# one place. The order of writes ensures that: first the log on disk without its end line, then the move event in the
# store, then the end line, without which the file cannot be imported. If a process dies in between, the execution has
# either not moved, or has moved and can be written again with the same command (tests/execution/test_moving.py dies at
# each point).


def move_out(
    store: EventStore, execution_id: str, file: str | Path, clock: Clock, ids: Ids, *, overwrite: bool = False
) -> int:
    """Write an execution to a file and end it here as moved. Return the number of events in the file.

    An execution that has already moved is written again. Import only one of the files.

    Raises
    ------
    ExecutionError
        It has ended in another way, or cannot move: it has an unread message or a running child.
    LeaseHeldError
        It is being driven.
    """
    with writing(file, overwrite=overwrite) as lines:
        if store.record(execution_id).status == MOVED:
            lines.events(store.read(execution_id))
        else:
            with DRIVEN_LEASES.taking(store, execution_id) as lease:
                events = store.read(execution_id)
                _check_movable(store, fold(execution_id, events))
                now = clock.now()
                last = len(events)
                moved = Event(ids.event(now), execution_id, last + 1, now, ExecutionMoved(str(file)))
                lines.events([*events, moved])
                flush(lines.stream)
                batch = Batch(execution_id, last, [Record.of(moved)], lease.token, durability=FULL)
                (refusal,) = store.append_all([batch])
                if refusal is not None:
                    raise refusal
        lines.end(MOVED, moved=True)
    return lines.count


def _check_movable(store: EventStore, state: ExecutionState) -> None:
    name = f"execution {state.execution_id}"
    if state.is_over:
        raise ExecutionError(f"{name} is {state.status}; export it without --move")
    if facts_of(state, store.inbox(state.execution_id, state.taken)):
        raise ExecutionError(
            f"{name} has an answer or a signal that its log has not taken in; resume it, and move it when it rests"
        )
    for child in running_children(state):
        raise ExecutionError(f"{name} waits for {child}, which it started; move it when that has ended")


# --- parents and children at the end of an execution -----------------------------------------------------------------


MOST_ATTEMPTS = 5
"""Maximum number of attempts to cancel a child that another process cancels as well."""
_log = logger(__name__)


class Relatives:
    """Parent and child executions of one store. All methods run on the engine's event loop.

    Parameters
    ----------
    find, present
        Return an execution, or None if `present` does not find it among the registered ones.
    cancel
        Cancel an execution with a reason.
    send_word
        Notify a parent that a child has ended.
    """

    def __init__(
        self,
        store: EventStore,
        find: Callable[[str], Driver],
        present: Callable[[str], Driver | None],
        cancel: Callable[[str, str], Driver],
        send_word: Callable[[str, Driver], None],
    ) -> None:
        self._store = store
        self._find = find
        self._present = present
        self._cancel = cancel
        self._send_word = send_word

    async def ended(self, driver: Driver) -> None:
        """Cancel the children of an ended execution, wait for their end, and notify its parent."""
        parent = driver.state.parent
        await self._cancel_children(driver, driver.status, STOP_SECONDS)
        if parent is not None:
            try:
                await ENGINE.desk(self._store).calls.work(lambda: self._send_word(parent, driver))
            except DivebookError as error:  # another process resumes the parent
                _log.warning(
                    "execution %s waits for %s, which has ended, and cannot go on: %s", parent, driver.id, error
                )

    async def undo_children(self, driver: Driver) -> None:
        """Cancel all children and wait for their rollback, before the execution is rolled back itself."""
        ending = driver.state.rolling_back
        await self._cancel_children(driver, CANCELLED if ending and ending.is_cancelled else FAILED, None)

    async def _cancel_children(self, parent: Driver, status: str, seconds: float | None) -> None:
        """Cancel the children of an execution that ends as `status`. Return when they have ended or are parked.

        Each child first does the same with its own children, so that nothing below `parent` runs afterwards
        (tests/execution/test_cancelled_trees.py). A child that is rolled back may be parked with a question. A function
        that blocks its thread cannot be interrupted, so its execution is awaited for at most `seconds`.
        """
        if not parent.may_have_children:
            return
        work = ENGINE.desk(self._store).calls.work
        attempts: Counter[str] = Counter()
        ended: set[str] = set()
        # The log names children that are about to start. The store also has children whose call was abandoned, for
        # example by `ctx.gather` after another call failed. Another process that cancels the same tree can take a child
        # from this one, and may not know all children of that child yet. A child that ends at this moment is not
        # cancelled, but it still cancels its own children. The loop therefore checks again until nothing is left.
        left = [Abandoned(name, parent.id, status) for name in running_children(parent.state)]
        while True:
            left += await work(lambda: children_to_end(self._store, parent.id, status, self._is_ending))
            left = [one for one in dict.fromkeys(left) if one.id not in ended and attempts[one.id] < MOST_ATTEMPTS]
            if not left:
                return
            ends: dict[asyncio.Future[None], str] = {}
            for one in left:
                attempts[one.id] += 1
                try:
                    child = await work(functools.partial(self._cancel_child, one, parent))
                except DivebookError as error:  # it is ending, or never started
                    _log.debug("execution %s is not cancelled with %s: %s", one.id, parent.id, error)
                else:
                    ended.add(one.id)
                    if child is not None and child.is_live:
                        ends[asyncio.wrap_future(child.driving())] = one.id
            done, _ = await asyncio.wait(ends, timeout=seconds) if ends else ((), ())
            ended -= {ends[end] for end in done if end.cancelled() or end.exception() is not None}
            left = []

    def _is_ending(self, execution_id: str) -> bool:
        """Return whether an execution has ended and still cancels its own children in this process."""
        driver = self._present(execution_id)
        return driver is not None and driver.is_live and driver.state.is_over

    def _cancel_child(self, one: Abandoned, parent: Driver) -> Driver | None:
        """Cancel a child, unless it has ended and still cancels its own children. Return it.

        Return None if `parent` only shares the child's start event with its real parent.
        """
        child = self._find(one.id)
        if child.started_by != one.parent:
            return None
        child.serve_with(parent)
        if self._is_ending(one.id):
            return child
        return self._cancel(one.id, one.reason)
