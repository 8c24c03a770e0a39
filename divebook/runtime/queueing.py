"""Executions in queues: put there, taken by the worker that drives them, and given back."""

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
from divebook.runtime.driver import Driver, ExecutionRegistry, WorkerRef
from divebook.runtime.leases import DRIVEN_LEASES
from divebook.runtime.loop import ENGINE, STOP_SECONDS
from divebook.store import Lease
from divebook.store.append import FULL, Batch, records_of
from divebook.store.base import EventStore
from divebook.store.leases import Owner
from divebook.store.transfer import flush, writing
from divebook.text.format import in_parts
from divebook.text.redaction import logger

# How often an execution is resumed automatically: not for ever, as its log may kill each process that resumes it.


PAUSES = (0, 60, 600)
"""Seconds since the attempt before, for each attempt in a row that is made without a person."""
TAIL = 200
"""Events at the end of a log among which the latest attempt is looked for; more of them are progress."""
_PROGRESS = (
    catalog.OperationCompleted,
    catalog.OperationFailed,
    catalog.IterationCompleted,
    catalog.IterationFailed,
    catalog.StepCompleted,
    catalog.InterruptRaised,
)
"""Events that are recorded once each: one of them shows that a resumed execution has made progress."""


def next_attempt(store: EventStore, execution_id: str, now: int) -> int:
    """Return the number of the attempt that may be made now, counted since the execution last made progress.

    Raises
    ------
    ExecutionError
        None may be made yet.
    NeedsPersonError
        None may be made any more.
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
    """Return how often an execution was resumed automatically since it last made progress."""
    last = store.record(execution_id).last_sequence
    made, _ = _latest_attempt(store.read(execution_id, max(0, last - TAIL))) or (0, 0)
    return made


def _latest_attempt(events: list[Event]) -> tuple[int, int] | None:
    """Return number and time of the latest attempt, unless the execution has made progress or a person resumed it."""
    for event in reversed(events):
        if isinstance(event.data, _PROGRESS):
            return None
        if isinstance(event.data, catalog.ExecutionResumed):
            return None if event.data.recovery is None else (event.data.recovery, event.recorded_at)
    return None


class QueueControl(ABC):
    """The part of `divebook.runtime.manager.Control` that is about queues."""

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
        """Put a pending execution into a queue; return it as the store has it then, where workers find it.

        Raises
        ------
        StartKeyTakenError
            Another one has its start key.
        """
        opening = driver.opening
        if opening is None or driver.was_driven:
            raise ExecutionError(f"execution {driver.id} is {driver.status}; only a pending one can be enqueued")
        ENGINE.refuse_waiting(self.store)
        records = self._records(driver.id, 0, opening, place)
        self._append(Batch(driver.id, 0, records, wake_at=place.due, durability=driver.durability))
        found = self._register.load(driver.id)
        self._register.enter(found)
        return found

    def _let_come_from(self, driver: Driver, other: str) -> None:
        """Have a pending execution belong to the queue and the worker of another one, which is driven here."""
        if (known := self._register.present(other)) is not None:
            driver.come_from(known)

    def _is_for_workers(self, driver: Driver, parent: str | None) -> bool:
        """Return whether the workers of its queue take up an execution that has something to do, and this process not.

        A child of one that a person has resumed is taken up with it, by whom no attempts are counted.
        """
        if driver.state.queue is None:
            return False
        if driver.was_driven:
            is_drained = driver.worker is not None and not driver.worker.is_running
            # What comes for one that is paused does not resume it: workers leave it alone.
            return is_drained or driver.state.is_shown_paused or driver.state.lifecycle == catalog.ENQUEUED
        above = None if parent is None else self._register.present(parent)
        return above is None or above.worker is not None

    def hold(self, driver: Driver, paused: catalog.ExecutionPaused) -> None:
        """Let the workers of its queue leave an execution alone that nobody drives, until somebody resumes it.

        Raises
        ------
        LeaseHeldError
            One of them drives it.
        """
        with DRIVEN_LEASES.about_to_drive(driver.id):
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
        now, ids = self.clock.now(), Ids(self.clock, self.chance)
        facts = enumerate(payloads, last + 1)
        return records_of(Event(ids.event(now), execution_id, sequence, now, data) for sequence, data in facts)

    def _append(self, batch: Batch) -> None:
        (refusal,) = self.store.append_all([batch])
        if refusal is not None:
            raise refusal

    def claim(
        self, queues: Collection[str], workflows: Mapping[str, str], limit: int, *, without: Collection[str] = ()
    ) -> list[Lease]:
        """Take the leases of executions that have something to do, for this thread to take up; as the store does."""
        return DRIVEN_LEASES.claim(lambda: self.store.claim(queues, workflows, Owner.current(), limit, without=without))

    def take_up(self, lease: Lease, worker: WorkerRef) -> Driver:
        """Drive an execution whose lease was claimed; where that cannot be, the lease is given back.

        One whose driver has died is resumed as often as `divebook.runtime.queueing` allows.

        Raises
        ------
        DivebookError
            It cannot be driven here: something that it needs is not there, or it was resumed too often.
        """
        try:
            with DRIVEN_LEASES.about_to_drive(lease.execution_id):
                driver = self._register.find(lease.execution_id)
                if self.ends_with_parent(driver):  # its lease is taken from this one
                    return driver
                state = driver.under(lease)
                self._require_means(driver)
                driver.worker, died = worker, self._has_died(state, lease)
                self._drive(driver, lease, self._resumption(state, died=died), anew=died)
        except BaseException:
            with suppress(DivebookError):  # it expires
                self.store.release(lease)
            raise
        return driver

    def _has_died(self, state: ExecutionState, lease: Lease) -> bool:
        """Return whether who drove it has died of it, perhaps: one that only waits for children has not been at work.

        What it began with may be in no log yet (test_what_ends_its_worker_before_anything_is_written_is_counted).
        """
        return state.status == RUNNING or (lease.was_left and not running_children(state))

    def _resumption(self, state: ExecutionState, *, died: bool) -> catalog.ExecutionResumed:
        if state.is_over:
            raise ExecutionError(f"execution {state.execution_id} has meanwhile ended as {state.status}")
        attempt = next_attempt(self.store, state.execution_id, self.clock.now()) if died else None
        return catalog.ExecutionResumed(state.status, recovery=attempt)

    def give_back(self, drivers: Iterable[Driver], reason: str) -> None:
        """Let nothing more begin in executions that this process drives, and let other workers have them then."""

        def pause() -> None:  # all in one turn, so that none begins anything meanwhile
            for driver in drivers:
                driver.pause(reason, gives_back=True)

        ENGINE.call(pause)

    def live(self) -> list[Driver]:
        """Return the executions that this process drives now."""
        return self._register.live()

    def leave(self, driver: Driver) -> None:
        """Break an execution off where it is; other workers may take it up at once."""
        ENGINE.call(driver.leave)


# An execution that leaves its store in a file, to go on where that is imported.
#
# Whatever happens in between, it can go on in one place at most: the log is on disk, without its end line, before the
# store is told that the execution has moved, and the end line, without which no import takes the file, is written after
# that. A process that dies in between leaves either an execution that has not moved, or one that has moved and whose
# file is written by moving it once more (tests/execution/test_moving.py dies at each point).


def move_out(
    store: EventStore, execution_id: str, file: str | Path, clock: Clock, ids: Ids, *, overwrite: bool = False
) -> int:
    """Write an execution to a file, and end it here as moved; return how many events the file has.

    One that has moved already is written once more: import one of the two files only.

    Raises
    ------
    ExecutionError
        It has ended otherwise, or holds what cannot move: a message that it has not taken in, a child under way.
    LeaseHeldError
        Somebody drives it.
    """
    with writing(file, overwrite=overwrite) as lines:
        if store.record(execution_id).status == MOVED:
            lines.events(store.read(execution_id))
        else:
            with DRIVEN_LEASES.taking(store, execution_id) as lease:
                events = store.read(execution_id)
                _check_movable(store, fold(execution_id, events))
                now, last = clock.now(), len(events)
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


# The end of an execution, as far as it concerns the executions that it started and the one that started it.


MOST_ATTEMPTS = 5
"""How often one child is cancelled where another process cancels it as well."""
_log = logger(__name__)


class Relatives:
    """The executions over one store, as they depend on each other; on the engine's loop.

    Parameters
    ----------
    find, cancel, send_word
        Find an execution; cancel one, for a reason; tell one that another, which it waits for, has ended.
    """

    def __init__(
        self,
        store: EventStore,
        find: Callable[[str], Driver],
        cancel: Callable[[str, str], Driver],
        send_word: Callable[[str, Driver], None],
    ) -> None:
        self._store, self._find, self._cancel, self._send_word = store, find, cancel, send_word

    async def ended(self, driver: Driver) -> None:
        """Cancel the executions that one started, wait for their end, and send word to the one that started it."""
        parent = driver.state.parent
        await self._cancel_children(driver, driver.status, STOP_SECONDS)
        if parent is not None:
            try:
                await ENGINE.desk(self._store).calls.work(lambda: self._send_word(parent, driver))
            except DivebookError as error:  # without what it needs in this process it is resumed in another one
                _log.warning(
                    "execution %s waits for %s, which has ended, and cannot go on: %s", parent, driver.id, error
                )

    async def undo_children(self, driver: Driver) -> None:
        """Cancel the executions that one started, which undoes what they did, before it is rolled back itself."""
        ending = driver.state.rolling_back
        await self._cancel_children(driver, CANCELLED if ending and ending.is_cancelled else FAILED, None)

    async def _cancel_children(self, parent: Driver, status: str, seconds: float | None) -> None:
        """Cancel the children of an execution that ends with such a status; return when they have ended, or rest.

        Each of them does the same with its own children before it is done, so that nothing below `parent` runs
        afterwards (tests/execution/test_cancelled_trees.py). One that is rolled back may rest with a question. A
        function that blocks its thread cannot be interrupted: its execution is waited for no longer than `seconds`.
        """
        if not parent.may_have_children:
            return
        work = ENGINE.desk(self._store).calls.work
        attempts: Counter[str] = Counter()
        ended: set[str] = set()
        # The log names those that are about to begin, and the store those whose call was left early, for instance by
        # `ctx.gather` as another call failed. Another process that does the same may take a child out of the hands of
        # this one, and may be behind this one with what that child has started: so this looks again until all is done.
        left = [Abandoned(name, parent.id, status) for name in running_children(parent.state)]
        while True:
            left += await work(lambda: children_to_end(self._store, parent.id, status))
            left = [one for one in dict.fromkeys(left) if one.id not in ended and attempts[one.id] < MOST_ATTEMPTS]
            if not left:
                return
            ends: dict[asyncio.Future[None], str] = {}
            for one in left:
                attempts[one.id] += 1
                try:
                    child = await work(functools.partial(self._cancel_child, one, parent))
                except DivebookError as error:  # it ends at this moment, or never began
                    _log.debug("execution %s is not cancelled with %s: %s", one.id, parent.id, error)
                else:
                    ended.add(one.id)
                    if child is not None and child.is_live:
                        ends[asyncio.wrap_future(child.driving())] = one.id
            done, _ = await asyncio.wait(ends, timeout=seconds) if ends else ((), ())
            ended -= {ends[end] for end in done if end.cancelled() or end.exception() is not None}
            left = []

    def _cancel_child(self, one: Abandoned, parent: Driver) -> Driver | None:
        """Cancel an execution and return it; None for a child of which `parent` is only a copy of who started it."""
        child = self._find(one.id)
        if child.started_by != one.parent:
            return None
        child.serve_with(parent)
        return self._cancel(one.id, one.reason)
