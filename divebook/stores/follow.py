"""Changes of logs: `on_change` reports them to a listener, and `follow` is an async stream of the recorded events of an
execution and then of its new events, without a gap.

Events that this process appends arrive through a subscription, without polling. If the reader is so slow that its inbox
overflows, some events are missing. Then there is a gap in the sequence numbers, and `follow` reads the missing events
from the store. It also reads the store after appends of other processes
(test_nothing_is_lost_or_doubled_under_appends_of_another_thread in `tests/store/test_follow.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.errors import ExecutionNotFoundError
from divebook.events.catalog import RUN
from divebook.events.event import Event
from divebook.stores.base import EventStore

T = TypeVar("T")
PAGE = 200
"""Number of recorded events that one read returns. Short reads keep a long log from blocking the event loop."""
INBOX = 1000
"""Maximum number of live events in the inbox of a slow reader, which reads older events from the store."""


def on_change(
    store: EventStore,
    listener: Callable[[Sequence[Event]], object],
    execution_id: str | None = None,
    *,
    elsewhere: bool = True,
) -> Callable[[], None]:
    """Call `listener` each time that a log may have changed. Return a function that ends the calls.

    The listener gets the new events if this process has appended them; the thread that appends them makes the call. In
    other cases the listener gets an empty sequence, and must read the store: if the log was deleted, once soon after
    the start, and whenever a message for any execution has arrived or another process may have appended events to any
    log (`EventStore.on_news`).

    Parameters
    ----------
    execution_id
        The execution whose events are passed on; None for all executions. With None, a store on a server does not
        report appends by other processes, so the caller must also read the store from time to time.
    elsewhere
        False to ignore changes by other processes.
    """

    def on_events(changed: str, events: Sequence[Event]) -> None:
        if execution_id is None or changed == execution_id:
            listener(events)

    with ExitStack() as ends:
        ends.callback(store.subscribe(on_events))
        if elsewhere:
            ends.callback(store.on_news(lambda: listener(()), execution_id))
        return ends.pop_all().close


async def follow(
    store: EventStore,
    execution_id: str,
    after: int = 0,
    *,
    until_end: bool = True,
    poll_interval: float | None = None,
) -> AsyncGenerator[Event, None]:
    """Yield the events of an execution with sequence numbers above `after`, then new events as they are appended.

    Parameters
    ----------
    until_end
        Stop after the event that ends the execution, unless it was resumed later. If False, never stop.
    poll_interval
        Seconds between two reads for events of other processes. None waits for news of the store instead.

    Raises
    ------
    ExecutionNotFoundError
        The execution does not exist, or it was deleted while it was followed.
    """
    inbox = _Inbox(asyncio.get_running_loop())
    # A store that no other process can open has no news of others, and a poll replaces the news.
    waits_for_news = store.shared and poll_interval is None
    # Before the first read. Events that are appended in between arrive twice, and one copy is dropped; if the order
    # were reversed, they would not arrive.
    unsubscribe = on_change(store, inbox.on_events, execution_id, elsewhere=waits_for_news)
    try:
        last = after
        has_ended = False
        must_read = True
        while True:
            # Read the recorded events page by page, up to the end of the log.
            while must_read:
                page = await _call(store, partial(store.read, execution_id, last, PAGE))
                if not page:
                    break
                for event in page:
                    last = event.sequence
                    has_ended = _has_ended_after(event, has_ended)
                    yield event
                # Other tasks of the loop run between two pages.
                await asyncio.sleep(0)
            # If reading began after the last event, only the execution's row shows the end
            # (test_following_from_the_end_of_a_finished_execution_ends).
            if until_end and (has_ended or (must_read and await _has_ended(store, execution_id, last))):
                return
            # Wait for events of this process, for news of other processes, or for the next poll.
            is_woken = await inbox.wait(poll_interval)
            events, is_complete = inbox.pop_events(last)
            for event in events:
                last = event.sequence
                has_ended = _has_ended_after(event, has_ended)
                yield event
            # After a timeout, a gap, or news of other processes, the store has events that the inbox lacks.
            must_read = not (is_woken and is_complete)
    finally:
        unsubscribe()


def _has_ended_after(event: Event, has_ended: bool) -> bool:  # noqa: FBT001 - the state that the event changes, or not
    status = STATUS_AFTER.get(type(event.data))
    return has_ended if status is None else status in TERMINAL


async def _call(store: EventStore, call: Callable[[], T]) -> T:
    """Return the result of `call`, a function that uses the store. If the store is on a server, `call` runs in a
    thread, so that the event loop is not blocked.
    """
    return call() if store.local else await asyncio.to_thread(call)


async def _has_ended(store: EventStore, execution_id: str, last: int) -> bool:
    record = await _call(store, partial(store.record, execution_id))
    return record.status in TERMINAL and last >= record.last_sequence


class _Inbox:
    """Queue that passes new events of one execution from the thread that appends them to the event loop of `follow`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # A full deque drops its oldest events. `pop_events` notices the gap in their numbers.
        self._events: deque[Event] = deque(maxlen=INBOX)
        self._has_news = False
        """True if the log was deleted, or another process may have appended events, since the last `pop_events`."""
        self._wake_up = asyncio.Event()
        self._is_scheduled = False
        """True if a wake-up of the reader is already scheduled, so that many events cause only one."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Add events that were just appended to the followed execution. Without events, `follow` reads the store; if
        the log was deleted, this raises ExecutionNotFoundError.
        """
        self._events.extend(events)
        if not events:
            self._has_news = True
        if not self._is_scheduled:
            self._is_scheduled = True
            with suppress(RuntimeError):  # the reader's loop is closed: there is nothing to wake
                self._loop.call_soon_threadsafe(self._wake_up.set)

    async def wait(self, seconds: float | None) -> bool:
        """Wait until this process or another one appends events. Return False if none did so within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()
        except TimeoutError:
            return False
        self._wake_up.clear()
        self._is_scheduled = False  # before the inbox is emptied, so that later events wake the reader again
        return True

    def pop_events(self, last: int) -> tuple[list[Event], bool]:
        """Remove all events from the queue. Return those that follow event `last` without a gap. Also return True if
        these are all new events, or False if the caller has to read further events from the store.
        """
        events: list[Event] = []
        has_news = self._has_news
        self._has_news = False
        while self._events:
            event = self._events.popleft()
            # Events up to `last` were read from the store already. After a gap, the remaining events stay here, and
            # count as already read after the next read of the store.
            if event.sequence == last + 1:
                events.append(event)
                last = event.sequence
            elif event.sequence > last:
                return events, False
        return events, not has_news


# --- chains of successors ---


def chain_of(store: EventStore, execution_id: str) -> list[str]:
    """Return the ids of the executions that continue each other: predecessors, the execution itself, successors.

    The oldest execution comes first.

    An execution that continues as new ends, and its successor continues with an empty log. If an execution in the chain
    was deleted, the chain ends there. An execution without predecessor and successor is a chain of one.

    Raises
    ------
    ExecutionNotFoundError
        The execution does not exist.
    """
    chain = [execution_id]
    while (predecessor := _predecessor(store, chain[0])) is not None:
        chain.insert(0, predecessor)
    # Children and forks have a parent as well, but another origin.
    while successors := store.records(parent=chain[-1], origin=RUN):
        chain.append(successors[0].execution_id)
    return chain


def _predecessor(store: EventStore, execution_id: str) -> str | None:
    record = store.record(execution_id)
    if record.origin != RUN or record.parent is None:
        return None
    try:
        return store.record(record.parent).execution_id
    except ExecutionNotFoundError:
        return None
