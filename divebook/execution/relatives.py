"""What the end of an execution means for those that it has started, and for the one that has started it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import suppress

from divebook.engine.state import CANCELLED, FAILED
from divebook.errors import DivebookError
from divebook.execution.children import orphaned, running_children
from divebook.execution.driver import Driver
from divebook.execution.engine_thread import ENGINE
from divebook.store.base import EventStore
from divebook.text.logs import logger

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
        """Send word to the execution that started one, and cancel those that it started itself."""
        parent = driver.state.parent
        await self._stop_children(driver, driver.status)
        if parent is not None:
            try:
                await ENGINE.desk(self._store).calls.work(lambda: self._send_word(parent, driver))
            except DivebookError as error:  # without what it needs in this process it is resumed in another one
                _log.warning(
                    "execution %s waits for %s, which has ended, and cannot go on: %s", parent, driver.id, error
                )

    async def undo_children(self, driver: Driver) -> None:
        """Let what an execution has started be cancelled, and so undone, before it is rolled back itself."""
        ending = driver.state.rolling_back
        stopped = await self._stop_children(driver, CANCELLED if ending and ending.is_cancelled else FAILED)
        ends = [asyncio.wrap_future(child.driving()) for child in stopped if child.is_live]
        await asyncio.gather(*ends, return_exceptions=True)

    async def _stop_children(self, parent: Driver, status: str) -> list[Driver]:
        """Cancel the executions that one has started; return those."""
        stopped: list[Driver] = []

        def cancel(name: str) -> None:
            child = self._find(name)
            if child.state.parent == parent.id:  # a copy of its parent only waits for it
                child.serve_with(parent)
                stopped.append(self._cancel(name, orphaned(parent.id, status)))

        for name in running_children(parent.state):
            with suppress(DivebookError):  # it ends at this moment, or never began
                await ENGINE.desk(self._store).calls.work(functools.partial(cancel, name))
        return stopped
