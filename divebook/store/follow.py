"""History, then live: every event of an execution in order, without a gap and without polling inside one process.

What is appended comes through a subscription. Should something be missing there (the reader was so slow that its inbox
ran over), the sequence numbers show it, and the store is read again, as it is when another process has appended
(test_nothing_is_lost_or_doubled_under_appends_of_another_thread in `tests/store/test_follow.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.errors import ExecutionNotFoundError
from divebook.events.catalog import RUN
from divebook.events.event import Event
from divebook.store.base import EventStore

T = TypeVar("T")
PAGE = 200
"""Events read at once, so that a long history does not hold up the event loop."""
INBOX = 1000
"""Live events kept for a slow reader; older ones it gets from the store."""


async def follow(
    store: EventStore,
    execution_id: str,
    after: int = 0,
    *,
    until_end: bool = True,
    poll_interval: float | None = None,
) -> AsyncGenerator[Event, None]:
    """Yield the events with sequences above `after`, then those that are yet to come.

    Parameters
    ----------
    until_end
        Stop after the event that ends the execution, unless it was resumed since. Otherwise go on for ever.
    poll_interval
        Seconds after which to look for events of other processes, in place of waiting for news of the store.

    Raises
    ------
    ExecutionNotFoundError
        There is no such execution, or it was deleted meanwhile.
    """
    inbox = _Inbox(asyncio.get_running_loop(), execution_id)
    # Before the first read: what comes in between is then seen twice, and left out once, instead of never.
    unsubscribe = store.subscribe(inbox.receive)
    listens = store.shared and poll_interval is None
    ignore = store.on_news(inbox.suspect, execution_id) if listens else lambda: None
    try:
        last = after
        ended = False
        behind = True
        while True:
            while behind and (page := await _called(store, partial(store.read, execution_id, last, PAGE))):
                for event in page:
                    last = event.sequence
                    ended = _ends(event, ended)
                    yield event
                await asyncio.sleep(0)
            if until_end and (ended or (behind and await _has_ended(store, execution_id, last))):
                return
            woken = await inbox.wait(poll_interval)
            news, complete = inbox.take(last)
            for event in news:
                last = event.sequence
                ended = _ends(event, ended)
                yield event
            behind = not (woken and complete)
    finally:
        unsubscribe()
        ignore()


def _ends(event: Event, ended: bool) -> bool:  # noqa: FBT001 - the state that the event changes, or not
    status = STATUS_AFTER.get(type(event.data))
    return ended if status is None else status in TERMINAL


async def _called(store: EventStore, call: Callable[[], T]) -> T:
    """Return what a call of the store returns; one over a network does not hold up the reader's loop."""
    return call() if store.local else await asyncio.to_thread(call)


async def _has_ended(store: EventStore, execution_id: str, last: int) -> bool:
    record = await _called(store, partial(store.record, execution_id))
    return record.status in TERMINAL and last >= record.last_sequence


class _Inbox:
    """Live events on their way from the appending thread to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, execution_id: str) -> None:
        self._loop = loop
        self._execution_id = execution_id
        self._events: deque[Event] = deque(maxlen=INBOX)
        self._deleted = self._is_suspected = False
        self._news = asyncio.Event()
        self._announced = False

    def receive(self, execution_id: str, events: Sequence[Event]) -> None:
        """Take events over, in the appending thread."""
        if execution_id != self._execution_id:
            return
        self._events.extend(events)
        self._deleted = not events
        self._announce()

    def suspect(self) -> None:
        """Hear that another process may have appended."""
        self._is_suspected = True
        self._announce()

    def _announce(self) -> None:
        if not self._announced:  # one wake-up, however much arrives before the reader's turn
            self._announced = True
            with suppress(RuntimeError):  # the reader's loop is closed: there is nothing to wake
                self._loop.call_soon_threadsafe(self._news.set)

    async def wait(self, seconds: float | None) -> bool:
        """Wait for news; False if none came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        self._announced = False  # before the inbox is emptied, so that what comes from now on wakes again
        return True

    def take(self, last: int) -> tuple[list[Event], bool]:
        """Return the events that continue after `last`, and whether nothing is missing."""
        events: list[Event] = []
        is_sure = not self._is_suspected
        self._is_suspected = False
        while self._events:
            event = self._events.popleft()
            if event.sequence == last + 1:
                events.append(event)
                last = event.sequence
            elif event.sequence > last:
                return events, False
        return events, is_sure and not self._deleted


# Chains: executions each of which goes on where the one before has ended, to keep its log short.


def chain_of(store: EventStore, execution_id: str) -> list[str]:
    """Return the ids of the executions of which one went on as the next, the first one first.

    One that has been deleted ends the chain on its side; most executions are a chain of their own.

    Raises
    ------
    ExecutionNotFoundError
        There is no such execution.
    """
    chain = [execution_id]
    while (before := _before(store, chain[0])) is not None:
        chain.insert(0, before)
    while after := store.records(parent=chain[-1], origin=RUN):
        chain.append(after[0].execution_id)
    return chain


def _before(store: EventStore, execution_id: str) -> str | None:
    record = store.record(execution_id)
    if record.origin != RUN or record.parent is None:
        return None
    try:
        return store.record(record.parent).execution_id
    except ExecutionNotFoundError:
        return None
