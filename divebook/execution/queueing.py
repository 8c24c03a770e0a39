"""Executions in queues: put there, taken by the worker that drives them, and given back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress

from divebook.engine.state import RUNNING, ExecutionState
from divebook.errors import DivebookError, ExecutionError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.execution.clock import Chance, Clock, Ids
from divebook.execution.driver import Driver
from divebook.execution.engine_thread import ENGINE
from divebook.execution.leases import HANDS
from divebook.execution.recovery import next_attempt
from divebook.execution.register import Register
from divebook.store import EventStore, Lease
from divebook.store.batches import Batch, records_of


class QueueControl(ABC):
    """The part of `divebook.execution.control.Control` that is about queues."""

    store: EventStore
    clock: Clock
    chance: Chance
    _register: Register

    @abstractmethod
    def _require_means(self, driver: Driver) -> None: ...

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
        now, ids = self.clock.now(), Ids(self.clock, self.chance)
        facts = enumerate((opening, place), 1)
        records = records_of(Event(ids.event(now), driver.id, sequence, now, data) for sequence, data in facts)
        batch = Batch(driver.id, 0, records, wake_at=place.due, durability=driver.durability)
        (refusal,) = self.store.append_all([batch])
        if refusal is not None:
            raise refusal
        found = self._register.load(driver.id)
        self._register.enter(found)
        return found

    def take_up(self, lease: Lease) -> Driver:
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
                state = driver.under(lease)
                self._require_means(driver)
                self._drive(driver, lease, self._resumption(state), anew=state.status == RUNNING)
        except BaseException:
            with suppress(DivebookError):  # it expires
                self.store.release(lease)
            raise
        return driver

    def _resumption(self, state: ExecutionState) -> catalog.ExecutionResumed:
        if state.is_over:
            raise ExecutionError(f"execution {state.execution_id} has meanwhile ended as {state.status}")
        died = state.status == RUNNING
        attempt = next_attempt(self.store, state.execution_id, self.clock.now()) if died else None
        return catalog.ExecutionResumed(state.status, recovery=attempt)

    def give_back(self, driver: Driver, reason: str) -> None:
        """Let nothing more begin in an execution that this process drives, and let other workers have it then."""
        ENGINE.call(lambda: driver.pause(reason, gives_back=True))

    def live(self) -> list[Driver]:
        """Return the executions that this process drives now."""
        return self._register.live()

    def leave(self, driver: Driver) -> None:
        """Break an execution off where it is; other workers may take it up at once."""
        ENGINE.call(driver.leave)
