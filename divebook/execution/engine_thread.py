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

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, running; a forked child gets its own."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = self._start(), os.getpid()
                self._commits, self._keepers = {}, {}
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

    @staticmethod
    def _start() -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="divebook-engine", daemon=True).start()
        return loop


ENGINE = EngineThread()
"""The engine of this process."""
