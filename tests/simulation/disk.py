"""A store whose commits go wrong by plan, and whose deliveries to listeners are repeated, dropped and late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

from divebook.errors import StoreBusyError, StoreError
from divebook.events.event import Event, Record
from divebook.stores.append import Batch, Refusal
from divebook.stores.base import EventStore
from divebook.stores.leases import Lease, Moment, Owner
from divebook.stores.listeners import Listener
from divebook.stores.memory import MemoryStore
from tests.simulation.machine import Machine

DIE_BEFORE, DIE_AFTER, TEAR, BUSY = "die before", "die after", "tear", "busy"
UNKNOWN_WRITTEN, UNKNOWN_LOST = "unknown, written", "unknown, lost"
FAULTS = (DIE_BEFORE, DIE_AFTER, DIE_AFTER, TEAR, UNKNOWN_WRITTEN, UNKNOWN_LOST, BUSY, BUSY)
BUSY_SECONDS = (0.1, 3.0, 70.0)
"""How long a lock is held by others, or a disk is full."""


@dataclass(frozen=True)
class CommitFault:
    """What happens at which commit of a process's life."""

    kind: str
    at: int


class FaultyStore(EventStore):
    """A store that outlives processes, and goes wrong: mixed into one that does not.

    Attributes
    ----------
    fault
        What is still to go wrong.
    power
        Called when a fault ends the process; nothing is written until `plug_in`.
    watch
        Called after each commit with the batches that were written.
    """

    local = True  # virtual time knows no threads

    def begin(self, machine: Machine, random: Random, *, calm: bool) -> None:
        """Begin a simulation; whatever is done with the store comes after it."""
        self._machine, self._random, self.calm = machine, random, calm
        self.fault: CommitFault | None = None
        self.commits = self.total = 0
        self.power: Callable[[], None] = lambda: None
        self.watch: Callable[[Sequence[Batch]], None] = lambda _: None
        self._dead = False
        self._busy_until = 0.0

    def plug_in(self, fault: CommitFault | None) -> None:
        """Begin a process's life."""
        self.fault, self.commits, self._dead, self._busy_until = fault, 0, False, 0.0

    def unplug(self) -> None:
        """Write nothing more."""
        self._dead = True

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Write, or go wrong if it is time."""
        self._check_free()
        self.commits += 1
        self.total += 1
        if not self.calm:
            self._machine.uptime += self._random.choice((0.0, 0.0, 0.0, 0.01, 3.0))
        fault = self.fault
        if fault is None or self.commits < fault.at:
            return self._written(batches)
        self.fault = None
        return self._faulty(fault.kind, batches)

    def _written(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        answers = super().append_all(batches)
        self.watch([batch for batch, answer in zip(batches, answers, strict=True) if answer is None and batch.records])
        return answers

    def _faulty(self, kind: str, batches: Sequence[Batch]) -> list[Refusal | None]:
        if kind == BUSY:
            self._busy_until = self._machine.uptime + self._random.choice(BUSY_SECONDS)
            self._check_free()
        if kind == TEAR:
            self._written([self._torn(batch) for batch in batches])
        elif kind in (DIE_AFTER, UNKNOWN_WRITTEN):
            self._written(batches)
        if kind in (UNKNOWN_WRITTEN, UNKNOWN_LOST):
            raise StoreError("simulated: the disk does not say whether it wrote")
        self.unplug()
        self.power()
        self._check_power()
        return []

    def _torn(self, batch: Batch) -> Batch:
        """Return the beginning of a batch, perhaps with that of its last record: an event a row, as of before."""
        whole = self._random.randint(0, len(batch.records))
        records = list(batch.records[:whole])
        if whole < len(batch.records):
            events = batch.records[whole].events()
            records += map(Record.of, events[: self._random.randrange(len(events))])
        return replace(batch, records=records, status=None)

    def _check_power(self) -> None:
        if self._dead:
            raise StoreError("simulated: the process is dead")

    def _check_free(self) -> None:
        self._check_power()
        if self._machine.uptime < self._busy_until:
            raise StoreBusyError("simulated: others hold the lock, or there is no room")

    # --- leases ----------------------------------------------------------------------------------------------------

    def _moment(self, now: int | None) -> Moment:
        return Moment.at(self._machine.now() if now is None else now)

    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease:
        self._check_free()
        return super()._acquire(execution_id, owner, moment, until, instead_of)

    def _renew(self, leases: Sequence[Lease], until: Moment) -> list[bool]:
        self._check_free()
        return super()._renew(leases, until)

    def _release(self, lease: Lease) -> None:
        self._check_free()
        super()._release(lease)

    # --- deliveries ------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell a listener of commits, badly."""

        def tell_badly(execution_id: str, events: Sequence[Event]) -> None:
            for delay in self._deliveries():
                if delay:
                    asyncio.get_running_loop().call_later(delay, listener, execution_id, events)
                else:
                    listener(execution_id, events)

        return super().subscribe(listener if self.calm else tell_badly)

    def _deliveries(self) -> tuple[float, ...]:
        """Return when, from now, an event is delivered: usually once, at once."""
        return self._random.choice(((0.0,), (0.0,), (0.0,), (0.0, 0.0), (), (2.0,), (0.0, 30.0)))


class SimulatedDisk(FaultyStore, MemoryStore):
    """One in memory."""

    location = "simulated:"
    keeps = True


Disks: TypeAlias = Callable[[], FaultyStore]
"""Gives an empty store for each simulated computer."""
