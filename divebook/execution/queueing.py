"""Executions in queues: put there, taken by the worker that drives them, and given back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from divebook.engine.evolve import fold_records
from divebook.engine.state import RUNNING, ExecutionState
from divebook.errors import DivebookError, ExecutionError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.events.record import Record
from divebook.execution.belonging import Employer
from divebook.execution.children import running_children
from divebook.execution.clock import Chance, Clock, Ids
from divebook.execution.driver import Driver
from divebook.execution.engine_thread import ENGINE
from divebook.execution.leases import HANDS
from divebook.execution.recovery import next_attempt
from divebook.execution.register import Register
from divebook.store import EventStore, Lease
from divebook.store.batches import Batch, records_of
from divebook.store.owner import Owner


class QueueControl(ABC):
    """The part of `divebook.execution.control.Control` that is about queues."""

    store: EventStore
    clock: Clock
    chance: Chance
    _register: Register

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
        with HANDS.about_to_drive(driver.id):
            lease = HANDS.take(self.store, driver.id)
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
        return HANDS.claim(lambda: self.store.claim(queues, workflows, Owner.current(), limit, without=without))

    def take_up(self, lease: Lease, worker: Employer) -> Driver:
        """Drive an execution whose lease was claimed; where that cannot be, the lease is given back.

        One whose driver has died is resumed as often as `divebook.execution.recovery` allows.

        Raises
        ------
        DivebookError
            It cannot be driven here: something that it needs is not there, or it was resumed too often.
        """
        try:
            with HANDS.about_to_drive(lease.execution_id):
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
