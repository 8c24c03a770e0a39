"""Waits for the disk for many executions together, while the engine's loop goes on.

A single execution waits where it stands: a thread would cost it more than it gains. As soon as a second one is under
way, what the loop commits is brought to the disk by a thread, one time after the other; all that is committed during
one shares the next (tests/execution/test_syncs.py).
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from divebook.errors import StoreError
from divebook.events.catalog import RUNNING
from divebook.execution.threads import aside
from divebook.store.base import EventStore
from divebook.store.batches import Batch
from divebook.store.durability import FULL

_STOPPED = StoreError("the engine was stopped during a commit; what the store holds can be resumed")


class Durable(Protocol):
    """A journal, as far as its durability is concerned."""

    def synced(self, sequence: int, error: Exception | None) -> None:
        """Hear that its events up to one are durable, or why they are not."""


J = TypeVar("J", bound=Durable)


class _Round(Generic[J]):
    """What is brought to the disk at once, and those who wait for that."""

    def __init__(self) -> None:
        self.reached: dict[J, int] = {}
        self.waiting: list[asyncio.Future[None]] = []


class Syncs(Generic[J]):
    """The waits for the disk of one store; on the engine's loop."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._running: weakref.WeakSet[J] = weakref.WeakSet()
        """The journals of executions that go on and wait for the disk, of a store that can be waited for apart."""
        self._present: _Round[J] | None = None
        self._next: _Round[J] = _Round()

    @property
    def are_shared(self) -> bool:
        """Whether several executions would wait for the disk."""
        return len(self._running) > 1

    def come_apart(self, batches: Mapping[J, Batch]) -> bool:
        """Return whether these batches are to be written first, and waited for later."""
        if not self._store.syncs_apart:
            return False
        are_full, usual = False, self._store.durability
        for journal, batch in batches.items():
            if (batch.durability or usual) == FULL:
                are_full = True
                (self._running.add if batch.status == RUNNING else self._running.discard)(journal)
        return are_full and (self.are_shared or self._present is not None)

    def wait_for(self, written: Mapping[J, int], waiting: Iterable[asyncio.Future[None]]) -> None:
        """Have what is written of executions brought to the disk, and then those woken who wait for it."""
        self._next.reached |= written
        self._next.waiting += waiting
        if self._present is None:
            self._begin()

    def until_durable(self, journal: J, done: asyncio.Future[None]) -> None:
        """Have somebody woken once what is written of an execution is durable."""
        present = self._next if self._present is None or journal in self._next.reached else self._present
        present.waiting.append(done)

    def _begin(self) -> None:
        self._present, self._next = self._next, _Round()
        task = asyncio.get_running_loop().create_task(aside(self._store.sync), name="divebook-sync")
        task.add_done_callback(functools.partial(self._end, self._present))

    def _end(self, ended: _Round[J], task: asyncio.Task[None]) -> None:
        self._present = None
        if self._next.reached:
            self._begin()
        error = _STOPPED if task.cancelled() else task.exception()
        failure = error if error is None or isinstance(error, Exception) else StoreError(repr(error))
        for journal, sequence in ended.reached.items():
            journal.synced(sequence, failure)
        wake(ended.waiting)


def wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    """Let those look again who wait for a write; some may wait for the next one."""
    for done in waiting:
        if not done.done():  # a cancelled path waits no longer
            done.set_result(None)
