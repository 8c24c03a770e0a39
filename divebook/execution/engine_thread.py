"""The thread and event loop that executions run on: never the kernel's, never the caller's."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from divebook.execution.journal import GroupCommit
from divebook.execution.leases import LeaseKeeper
from divebook.execution.mailroom import Mailroom
from divebook.store.base import EventStore

T = TypeVar("T")


class EngineThread:
    """A daemon thread with one asyncio loop, started when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._commits: dict[int, GroupCommit] = {}
        self._keepers: dict[int, LeaseKeeper] = {}
        self._mailrooms: dict[int, Mailroom] = {}
        self._background: set[asyncio.Task[None]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, running; a forked child gets its own."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = self._start(), os.getpid()
                self._commits, self._keepers, self._mailrooms, self._background = {}, {}, {}, set()
            return self._loop

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop, from any thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def is_current(self) -> bool:
        """Whether the caller is on the engine's own thread, where waiting would wait for itself."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def group_commit(self, store: EventStore) -> GroupCommit:
        """Return the one writer of a store; call it on the loop."""
        commit = self._commits.get(id(store))
        if commit is None:
            commit = self._commits[id(store)] = GroupCommit(store)
        return commit

    def lease_keeper(self, store: EventStore) -> LeaseKeeper:
        """Return the keeper of this process's leases on a store; call it on the loop."""
        keeper = self._keepers.get(id(store))
        if keeper is None:
            keeper = self._keepers[id(store)] = LeaseKeeper(store)
        return keeper

    def mailroom(self, store: EventStore) -> Mailroom:
        """Return what brings a store's messages to the executions of this process; call it on the loop."""
        room = self._mailrooms.get(id(store))
        if room is None:
            room = self._mailrooms[id(store)] = Mailroom(store)
        return room

    def keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that nobody waits for; call it on the loop."""
        task = self.loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    @staticmethod
    def _start() -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="divebook-engine", daemon=True).start()
        return loop


ENGINE = EngineThread()
"""The engine of this process."""
