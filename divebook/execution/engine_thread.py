"""The thread and event loop that executions run on: never the kernel's, never the caller's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from divebook.errors import ExecutionError
from divebook.execution.journal import GroupCommit
from divebook.execution.leases import LeaseKeeper
from divebook.execution.mailroom import Mailroom
from divebook.store.base import EventStore

T = TypeVar("T")


class EngineThread:
    """A daemon thread with one asyncio loop, started when first needed, and anew where it has died."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)  # only the thread that forks lives on in the child

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._promised: set[Future[Any]] = set()
        self._commits: dict[int, GroupCommit] = {}
        self._keepers: dict[int, LeaseKeeper] = {}
        self._mailrooms: dict[int, Mailroom] = {}
        self._background: set[asyncio.Task[None]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, running."""
        with self._lock:
            return self._running_loop()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._commits, self._keepers, self._mailrooms, self._background = {}, {}, {}, set()
            threading.Thread(target=self._serve, args=(self._loop,), name="divebook-engine", daemon=True).start()
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop for ever, whatever code on it does.

        Tasks that code starts by itself can raise SystemExit or stop the loop: neither is meant for the engine, and
        the loop goes on where it was. Anything else that comes out of it is a fault of the loop itself.
        """
        try:
            while not loop.is_closed():
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    loop.run_forever()
        except Exception as error:  # noqa: BLE001 - told to the log, and to everyone who waits
            loop.call_exception_handler({"message": "the engine's event loop has died", "exception": error})
            loop.close()
            self._bury(loop, f"{type(error).__name__}: {error}")
        else:
            self._bury(loop, "it was closed")

    def _bury(self, loop: asyncio.AbstractEventLoop, cause: str) -> None:
        """Tell whoever waits that nothing more will come of it; the next one gets a new loop."""
        with self._lock:
            if self._loop is loop:
                self._loop = None
            abandoned = list(self._promised)
        died = f"the engine's event loop has died ({cause}), and every execution with it; resume what the store holds"
        for promised in abandoned:
            with contextlib.suppress(InvalidStateError):  # done in this very moment
                promised.set_exception(ExecutionError(died))

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop, from any thread."""
        with self._lock:
            promised = asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
            self._promised.add(promised)
        promised.add_done_callback(self._promised.discard)
        return promised

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


ENGINE = EngineThread()
"""The engine of this process."""
