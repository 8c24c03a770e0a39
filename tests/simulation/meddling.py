"""What others do while a process drives executions: they set the clock, or cancel what it drives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random

from divebook.engine.evolve import fold
from divebook.errors import StoreError
from divebook.events import catalog
from divebook.runtime.clock import Ids
from divebook.runtime.commit import GroupCommit, StoreCalls
from divebook.runtime.journal import Journal
from divebook.stores.leases import Owner
from tests.simulation.disk import FaultyStore
from tests.simulation.machine import Machine

ELSEWHERE = Owner("another machine", 1, 1, "somebody else")


def disturb(disturbances: Iterable[tuple[float | None, Callable[[], object]]]) -> None:
    """Have each happen when its time has come, in virtual seconds from now; those without a time never do."""
    for seconds, action in disturbances:
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, action)


def set_clock(machine: Machine, random: Random) -> None:
    """Set the wall clock forward or back."""
    machine.wall += random.choice((-86_400, -3600, -1, 1, 3600, 86_400))


class _Aside(GroupCommit):
    """Leaves the writing to whoever takes the batch."""

    def schedule(self, journal: Journal) -> None:
        """Write nothing by itself."""


def cancel_elsewhere(execution_id: str, disk: FaultyStore, machine: Machine) -> None:
    """Take the lease of an execution from whoever drives it, as another process would, and cancel it."""
    with suppress(StoreError):  # it has not begun, has ended, or nothing can be written now
        held = [lease for lease in disk.leases() if lease.execution_id == execution_id]
        lease = disk.acquire(execution_id, ELSEWHERE, instead_of=held[0] if held else None)
        state = fold(execution_id, disk.read(execution_id))
        if state.is_over:
            disk.release(lease)
            return
        journal = Journal(state, _Aside(StoreCalls(disk)), machine, Ids(machine, machine), token=lease.token)
        for path in state.active_paths():
            journal.record(catalog.PathCancelled("elsewhere"), path.id)
        journal.record(catalog.ExecutionCancelled("elsewhere"))
        disk.append_all([journal.take_batch()])
