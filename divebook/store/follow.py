"""History, then live: every event of an execution in order, without a gap and without polling inside one process.

What is appended comes through a subscription. Should something be missing there (another process appended, or the
reader was so slow that its inbox ran over), the sequence numbers show it, and the store is read again
(test_nothing_is_lost_or_doubled_under_appends_of_another_thread in `tests/store/test_follow.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.events.event import Event
from divebook.store.base import EventStore

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
) -> AsyncIterator[Event]:
    """Yield the events with sequences above `after`, then those that are yet to come.

    Parameters
    ----------
    until_end
        Stop after the event that ends the execution, unless it was resumed since. Otherwise go on for ever.
    poll_interval
        Seconds after which to look for events that another process appended to the same file.

    Raises
    ------
    ExecutionNotFoundError
        There is no such execution, or it was deleted meanwhile.
    """
    inbox = _Inbox(asyncio.get_running_loop(), execution_id)
    # Before the first read: what comes in between is then seen twice, and left out once, instead of never.
    unsubscribe = store.subscribe(inbox.receive)
    try:
        last, ended, behind = after, False, True
        while True:
            while behind and (page := store.read(execution_id, last, PAGE)):
                for event in page:
                    last, ended = event.sequence, _ends(event, ended)
                    yield event
                await asyncio.sleep(0)
            if until_end and (ended or (behind and _has_ended(store, execution_id, last))):
                return
            woken = await inbox.wait(poll_interval)
            news, complete = inbox.take(last)
            for event in news:
                last, ended = event.sequence, _ends(event, ended)
                yield event
            behind = not (woken and complete)
    finally:
        unsubscribe()


def _ends(event: Event, ended: bool) -> bool:  # noqa: FBT001 - the state that the event changes, or not
    status = STATUS_AFTER.get(type(event.data))
    return ended if status is None else status in TERMINAL


def _has_ended(store: EventStore, execution_id: str, last: int) -> bool:
    record = store.record(execution_id)
    return record.status in TERMINAL and last >= record.last_sequence


class _Inbox:
    """Live events on their way from the appending thread to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, execution_id: str) -> None:
        self._loop = loop
        self._execution_id = execution_id
        self._events: deque[Event] = deque(maxlen=INBOX)
        self._deleted = False
        self._news = asyncio.Event()
        self._announced = False

    def receive(self, execution_id: str, events: Sequence[Event]) -> None:
        """Take events over, in the appending thread."""
        if execution_id != self._execution_id:
            return
        self._events.extend(events)
        self._deleted = not events
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
        while self._events:
            event = self._events.popleft()
            if event.sequence == last + 1:
                events.append(event)
                last = event.sequence
            elif event.sequence > last:
                return events, False
        return events, not self._deleted
