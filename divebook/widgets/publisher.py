"""Publisher of live views: one thread for each feed, which sends at most 30 messages a second to each view.

Jupyter servers cut off a kernel that sends more than 1,000 messages a second, and then lose even the end of the cell.
Changes are therefore combined: a new event only sets a flag, and the next frame contains all changes since the last
frame. Example with 1,000 events in one second: event 1 wakes the thread, which sends a frame with one changed span. The
next frame is due 33 ms later and contains the changes of the 33 events in between. After one second 30 messages were
sent. A span that changed ten times between two frames is sent once, in its latest state.

Replies to single views share this limit. Urgent replies (a `Welcome`, an `Ack`) are sent before frames; other replies
alternate with frames.

`Publisher.turn` sends at most one message and returns the time until the next message. Tests call it without a thread
(test_a_thousand_events_a_second_become_at_most_thirty_messages in `tests/widgets/test_publisher.py`).
"""

from __future__ import annotations

import contextvars
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from divebook.errors import StoreClosedError, StoreError
from divebook.runtime.loop import STOP_SECONDS
from divebook.runtime.run import Run
from divebook.stores.listeners import Listeners
from divebook.text.redaction import logger
from divebook.widgets.feed import Feed
from divebook.widgets.protocol import Header, Way
from divebook.widgets.source import source_of

INTERVAL = 1 / 30
"""Seconds between two messages."""
HEARTBEAT = 1.0
"""Seconds between two checks for changes without an event: changes by other processes, or a driver that has ended."""

_log = logger(__name__)

Listener: TypeAlias = Callable[[Any], int]
"""Function that sends a frame (a message with changes) to views and returns the number of messages."""
Beat: TypeAlias = Callable[[], None]
"""Function that is called at each heartbeat."""
Reply: TypeAlias = Callable[[], None]


Ending: TypeAlias = Callable[[], None]
Ways: TypeAlias = Callable[[Header, str], list[Way]]
"""Function that returns the recovery options after a failure. The arguments are the header and the text about reused
results.
"""


def _nothing() -> None:
    return


class PublisherListener(NamedTuple):
    """The functions of one listener of a publisher: see `Publisher.add`."""

    listener: Listener
    beat: Beat
    end: Ending


class PublishedFeed(Protocol):
    """Interface of the data source of a publisher. The source collects changes, for example of an execution, and the
    publisher sends them to the views.
    """

    @property
    def has_news(self) -> bool:
        """True if the next frame (message with changes) is likely to contain changes."""

    def frame(self) -> Any:
        """Return a message with the changes since the last frame; None if nothing changed."""

    def request_refresh(self) -> None:
        """Request that the next frame reads the store, where another process may have written."""

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` for each change from now on; return a function that ends the subscription."""

    def welcome(self, view: str, since: int) -> Any:
        """Return the message with the data that a new view needs. If the view has already received the data up to
        number `since` (0: none), the message contains only the later data.
        """


FeedT = TypeVar("FeedT", bound=PublishedFeed)


class Publisher(Generic[FeedT]):
    """Sender of messages from one feed to its views: frames with changes for all views, and replies to one view. It
    sends at most one message every `INTERVAL` seconds.
    """

    def __init__(self, feed: FeedT, clock: Callable[[], float] = time.monotonic) -> None:
        self.feed = feed
        self._clock = clock
        self._listeners: Listeners[PublisherListener] = Listeners()
        # Listeners that get no more frames, because the store could not be read.
        self._former: list[Listeners[PublisherListener]] = []
        self._urgent: deque[Reply] = deque()
        self._patient: deque[Reply] = deque()
        # True if the last message was a patient reply, so that a frame has its turn now.
        self._patience_was_last = False
        # Monotonic times before which no message is sent, and no heartbeat is due.
        self._free_at = self._beat_at = 0.0
        self._news = threading.Event()
        self._lock = threading.Lock()
        # A publisher without listeners has no thread. The next `add` or `post` starts one.
        self._thread: threading.Thread | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    # --- who listens -----------------------------------------------------------------------------------------------

    def add(self, listener: Listener, beat: Beat = _nothing, end: Ending = _nothing) -> Callable[[], None]:
        """Add functions that are called from now on: `listener` for each frame (message with changes), `beat` for each
        heartbeat of the publisher. Return a function that removes them.

        `end` is called when the publisher is stopped.
        """
        # Under the lock, so that the thread either finds the listener or has ended.
        with self._lock:
            remove = self._listeners.add(PublisherListener(listener, beat, end))
            if self._thread is None:
                self._start()

        def remove_and_wake() -> None:
            remove()
            self._news.set()

        return remove_and_wake

    def _start(self) -> None:
        # Subscribed before the first read, so that no event falls between the two.
        self._unsubscribe = self.feed.subscribe(self.wake)
        self.feed.request_refresh()
        # in the context of the code that shows the view: kernels find the cell to send to there
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._publish,), name="divebook-publisher", daemon=True)
        self._thread.start()
        _RUNNING.add(self)

    def stop(self) -> None:
        """Remove all listeners of this publisher, and wait at most `STOP_SECONDS` for the end of its thread."""
        with self._lock:
            # `_publish` sets `_thread` to None under the same lock.
            thread = self._thread
        for listeners in (*self._former, self._listeners):
            for (entry,) in listeners.entries:
                entry.end()
            listeners.clear()
        self._patient.clear()  # replies to a flood of messages would take longer than the caller waits
        self._news.set()
        # A thread that is inside a slow frame ends after it. The caller does not wait longer than this.
        if thread is not None:
            thread.join(STOP_SECONDS)

    def wake(self) -> None:
        """Make the publisher's thread check now whether its feed has changes; can be called from any thread."""
        self._news.set()

    def post(self, reply: Reply, *, urgent: bool) -> None:
        """Queue a function that sends a reply to one view; can be called from any thread.

        An `urgent` reply is sent before the next frame. Other replies alternate with frames.
        """
        # Under the lock, so that the thread either finds the reply or has ended. A view that listens no more, because
        # its page was silent, still gets the replies to its messages.
        with self._lock:
            (self._urgent if urgent else self._patient).append(reply)
            if self._thread is None:
                self._start()
        self._news.set()

    # --- sending ---------------------------------------------------------------------------------------------------

    def turn(self) -> float:
        """Send at most one message: a reply to one view, or a frame with changes to all views. Return the seconds to
        wait before the next call. The publisher's thread calls this in a loop.
        """
        now = self._clock()
        if now < self._free_at:
            return self._free_at - now
        sent = self._send_one(now)
        # Nothing was sent, so the next message may be sent at once. The thread sleeps until news or the next heartbeat.
        if sent == 0:
            return max(self._beat_at - now, 0.0)
        # A frame that was sent to several views uses the time of as many messages, so the total rate stays the same.
        self._free_at = now + sent * INTERVAL
        return self._free_at - now

    def _send_one(self, now: float) -> int:
        if self._urgent:
            self._urgent.popleft()()
            return 1
        # Patient replies and frames take turns, so that neither a busy run nor a long list of requests stops the other.
        if self._patient and not self._patience_was_last:
            self._patience_was_last = True
            self._patient.popleft()()
            return 1
        self._patience_was_last = False
        sent = self._send_frame(now)
        # No frame was due, although it was a frame's turn. A patient reply does not have to wait for one.
        if sent == 0 and self._patient:
            self._patient.popleft()()
            return 1
        return sent

    def _send_frame(self, now: float) -> int:
        # A heartbeat reads the store and makes a frame even without news. Changes by other processes cause no event
        # here.
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT
            self.feed.request_refresh()
            for (entry,) in self._listeners.entries:
                entry.beat()
        elif not self.feed.has_news:
            return 0
        delta = self.feed.frame()
        if delta is None:
            return 0
        # Each listener returns the number of its messages. They belong to different widgets, so the largest number
        # determines the rate of one widget. A frame that no listener sends counts as one, since making it takes time as
        # well.
        return max([1, *(entry.listener(delta) for (entry,) in self._listeners.entries)])

    def _stop_sending(self) -> None:
        # `stop` still calls the ends of these listeners.
        with self._lock:
            self._former.append(self._listeners)
            self._listeners = Listeners()

    def _publish(self) -> None:
        while True:
            # Cleared before the turn: news that arrives during it starts another turn.
            self._news.clear()
            wait = 0.0
            try:
                wait = self.turn()
            except StoreClosedError:  # as the kernel ends
                self._stop_sending()
            except StoreError:  # damaged: the code that writes to it reports that where it is seen
                _log.exception("a live view stops, because the events of its run cannot be read")
                self._stop_sending()
            # Under the lock, so that a listener or reply that is added now either keeps this thread alive or starts
            # another one.
            with self._lock:
                # Without listeners, the feed needs no events from the engine.
                if not (self._listeners.entries or self._urgent or self._patient):
                    self._unsubscribe()
                    self._thread = None
                    return
            # Between two messages news cannot shorten the wait, because it would exceed the rate.
            if self._clock() < self._free_at:
                time.sleep(wait)
            else:
                self._news.wait(wait)


# Weak, so that a publisher whose views are all gone can be collected.
_RUNNING: weakref.WeakSet[Publisher[Any]] = weakref.WeakSet()
"""Publishers of this process that have started a thread."""


def stop_publishers() -> None:
    """Stop all publishers of this process and end their threads."""
    for publisher in list(_RUNNING):
        publisher.stop()
        _RUNNING.discard(publisher)


# The key contains the id of the store. A publisher refers to its execution and thereby to the store, so that no other
# store gets this id while the entry exists.
_publishers: weakref.WeakValueDictionary[tuple[int, str], Publisher[Feed]] = weakref.WeakValueDictionary()
_publishers_lock = threading.Lock()


def publisher_of(execution: Run, ways: Ways | None = None) -> Publisher[Feed]:
    """Return the publisher that sends the changes of an execution to its views. All views of the execution share it, so
    that each event is applied once.

    `ways` is a function that returns the recovery options after a failure. A resumed execution is a new object for the
    same log; the publisher then reads from the new object.
    """
    key = (id(execution.store), execution.id)
    # Two cells may show one execution at the same time. They must not create two publishers.
    with _publishers_lock:
        publisher = _publishers.get(key)
        source = source_of(execution)
        # A caller without recovery options must not remove those that an earlier one provided.
        if ways is None and publisher is not None:
            ways = publisher.feed.source.ways
        if ways is not None:
            source = replace(source, ways=ways)
        if publisher is None:
            publisher = _publishers[key] = Publisher(Feed(source))
        else:
            # The feed keeps its spans, because both objects belong to the same log.
            publisher.feed.source = source
        return publisher


# --- the open views of a widget --------------------------------------------------------------------------------------
#
# A view is open from its hello until its bye, or until it was silent for `SILENCE`. Tabs close and machines sleep
# without a bye, and the data of their views would be kept for ever.


SILENCE = 200.0
"""Seconds without a message after which a view is removed. Views send a message every 10 s, in hidden tabs once a
minute.
"""


class Audience:
    """Registry of the open views of one widget, each with the time of its last message. All methods can be called from
    any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Each operation on the dictionary is atomic. `list` copies it before an iteration, because other threads may
        # change it.
        self._heard: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Return whether at least one view is open."""
        return bool(self._heard)

    @property
    def views(self) -> list[str]:
        """Ids of the open views."""
        return list(self._heard)

    def record_view(self, view: str) -> bool:
        """Record that a view has sent a message and is therefore open. Return True if it is a new view, or one that was
        removed before.
        """
        is_new = view not in self._heard
        self._heard[view] = self._clock()
        return is_new

    def leave(self, view: str) -> None:
        """Remove a view that no page shows any more: the page has reported so, or has been silent for too long."""
        self._heard.pop(view, None)

    def expire(self) -> None:
        """Remove the views that have sent no message for `SILENCE` seconds."""
        silent = self._clock() - SILENCE
        for view in [view for view, heard in list(self._heard.items()) if heard < silent]:
            self.leave(view)
