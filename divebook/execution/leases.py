"""Keeps the leases of the executions that this process drives: renewed in time, given back at the end."""

from __future__ import annotations

import asyncio

from divebook.store.base import EventStore
from divebook.store.leases import LEASE_SECONDS, Lease

HEARTBEAT_SECONDS = LEASE_SECONDS / 3


class LeaseKeeper:
    """The leases that this process holds on one store; lives on the engine's loop.

    A lease that was lost all the same (the machine slept, say) needs no attention here: the store refuses the next
    events, and the execution ends with that error in this process.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._held: dict[str, Lease] = {}
        self._heartbeat: asyncio.Task[None] | None = None

    def keep(self, lease: Lease) -> None:
        """Renew a lease from now on."""
        self._held[lease.execution_id] = lease
        if self._heartbeat is None or self._heartbeat.done():
            self._heartbeat = asyncio.get_running_loop().create_task(self._beat())

    def release(self, lease: Lease) -> None:
        """Give a lease back, so that others need not wait until it expires."""
        if self._held.pop(lease.execution_id, None) is not None and not self._store.closed:
            self._store.release(lease)

    async def _beat(self) -> None:
        while self._held:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self._store.closed:
                return
            held = list(self._held.values())
            for lease, is_held in zip(held, self._store.renew(held), strict=True):
                if not is_held:
                    self._held.pop(lease.execution_id, None)
