"""The end of an execution, as far as it concerns the executions that it started and the one that started it."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Callable

from divebook.engine.state import CANCELLED, FAILED
from divebook.errors import DivebookError
from divebook.execution.children import running_children
from divebook.execution.driver import Driver
from divebook.execution.engine_thread import ENGINE, STOP_SECONDS
from divebook.execution.families import Abandoned, children_to_end
from divebook.store.base import EventStore
from divebook.text.logs import logger

MOST_ATTEMPTS = 5
"""How often one child is cancelled where another process cancels it as well."""
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
        """Cancel the executions that one started, wait for their end, and send word to the one that started it."""
        parent = driver.state.parent
        await self._cancel_children(driver, driver.status, STOP_SECONDS)
        if parent is not None:
            try:
                await ENGINE.desk(self._store).calls.work(lambda: self._send_word(parent, driver))
            except DivebookError as error:  # without what it needs in this process it is resumed in another one
                _log.warning(
                    "execution %s waits for %s, which has ended, and cannot go on: %s", parent, driver.id, error
                )

    async def undo_children(self, driver: Driver) -> None:
        """Cancel the executions that one started, which undoes what they did, before it is rolled back itself."""
        ending = driver.state.rolling_back
        await self._cancel_children(driver, CANCELLED if ending and ending.is_cancelled else FAILED, None)

    async def _cancel_children(self, parent: Driver, status: str, seconds: float | None) -> None:
        """Cancel the children of an execution that ends with such a status; return when they have ended, or rest.

        Each of them does the same with its own children before it is done, so that nothing below `parent` runs
        afterwards (tests/execution/test_cancelled_trees.py). One that is rolled back may rest with a question. A
        function that blocks its thread cannot be interrupted: its execution is waited for no longer than `seconds`.
        """
        if not parent.may_have_children:
            return
        work = ENGINE.desk(self._store).calls.work
        attempts: Counter[str] = Counter()
        ended: set[str] = set()
        # The log names those that are about to begin, and the store those whose call was left early, for instance by
        # `ctx.gather` as another call failed. Another process that does the same may take a child out of the hands of
        # this one, and may be behind this one with what that child has started: so this looks again until all is done.
        left = [Abandoned(name, parent.id, status) for name in running_children(parent.state)]
        while True:
            left += await work(lambda: children_to_end(self._store, parent.id, status))
            left = [one for one in dict.fromkeys(left) if one.id not in ended and attempts[one.id] < MOST_ATTEMPTS]
            if not left:
                return
            ends: dict[asyncio.Future[None], str] = {}
            for one in left:
                attempts[one.id] += 1
                try:
                    child = await work(functools.partial(self._cancel_child, one, parent))
                except DivebookError as error:  # it ends at this moment, or never began
                    _log.debug("execution %s is not cancelled with %s: %s", one.id, parent.id, error)
                else:
                    ended.add(one.id)
                    if child is not None and child.is_live:
                        ends[asyncio.wrap_future(child.driving())] = one.id
            done, _ = await asyncio.wait(ends, timeout=seconds) if ends else ((), ())
            ended -= {ends[end] for end in done if end.cancelled() or end.exception() is not None}
            left = []

    def _cancel_child(self, one: Abandoned, parent: Driver) -> Driver | None:
        """Cancel an execution and return it; None for a child of which `parent` is only a copy of who started it."""
        child = self._find(one.id)
        if child.started_by != one.parent:
            return None
        child.serve_with(parent)
        return self._cancel(one.id, one.reason)
