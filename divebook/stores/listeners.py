"""Listeners of a store. They are called for events that this process appends, and for messages and writes of other
processes.

- `Listeners` is the list of listeners of everything that can be listened to, also outside the store.
- `Subscribers` calls listeners with the events of each commit, in the thread that appended them.
- `NewsCounter` counts news (new messages, and writes of other processes), so that threads can wait for the next one.
- `NewsListeners` calls listeners at each change of that count, from one thread per store.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from divebook.errors import StoreClosedError, StoreError
from divebook.events.event import Event, Record
from divebook.text.redaction import logger

Listener: TypeAlias = Callable[[str, Sequence[Event]], None]
NewsListener: TypeAlias = Callable[[], object]
Wait: TypeAlias = Callable[[int, float], int]

LINGER = 1.0
"""Seconds for which the thread of `NewsListeners` waits for another listener after the last listener was removed."""

_log = logger(__name__)

T = TypeVar("T")


class Listeners(Generic[T]):
    """List of listeners, in the order in which they were added. All methods may be called from any thread."""

    def __init__(self) -> None:
        self.entries: tuple[tuple[T], ...] = ()
        """Each listener in a tuple of its own, so that one listener added twice is two entries. The outer tuple is
        replaced and never changed, so that code can iterate over it without a lock.
        """
        self._lock = threading.Lock()

    def add(self, listener: T) -> Callable[[], None]:
        """Add a listener; return a function that removes it."""
        entry = (listener,)
        with self._lock:
            self.entries = (*self.entries, entry)

        def remove() -> None:
            with self._lock:
                self.entries = tuple(other for other in self.entries if other is not entry)

        return remove

    def clear(self) -> None:
        """Remove all listeners."""
        with self._lock:
            self.entries = ()


class Subscribers:
    """Listeners that a store calls with the events of each commit of this process.

    The caller of `notify` holds the store's lock, so that listeners get the events in the order of the commits.
    """

    def __init__(self) -> None:
        # The list has a lock of its own: a commit to a server may hold the store's lock for a long time.
        self.listeners: Listeners[Listener] = Listeners()
        self._queue: deque[tuple[str, Sequence[Event]]] = deque()
        self._is_notifying = False

    def notify(self, execution_id: str, records: Sequence[Record]) -> None:
        """Call every listener with the events of newly committed records.

        A listener may append events itself. All listeners get these after the present ones.
        """
        if not self.listeners.entries:
            return
        self._queue.append((execution_id, tuple(event for record in records for event in record.events())))
        # A listener has appended events. The outer call delivers them after the present ones, so that all listeners get
        # the same order.
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._queue:
                self._call_listeners(*self._queue.popleft())
        finally:
            self._is_notifying = False

    def _call_listeners(self, execution_id: str, events: Sequence[Event]) -> None:
        for (listener,) in self.listeners.entries:
            try:
                listener(execution_id, events)
            except Exception:  # noqa: BLE001 - the events are committed: the appender must not take this for a failure
                _log.exception("a listener of the event store failed at execution %s", execution_id)


class NewsCounter:
    """Counter of news: new messages, and writes of other processes to the store. Threads can wait for the next one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0

    def add(self) -> None:
        """Increase the count of news by one, and wake the threads in `wait`."""
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def wait(self, last_count: int, seconds: float) -> int:
        """Wait until the count of news differs from `last_count`, at most for `seconds`; return the present count."""
        with self._condition:
            self._condition.wait_for(lambda: self._count != last_count, seconds)
            return self._count


class NewsListeners:
    """Listeners that a thread of a store calls when there are new messages or another process has written to the store.

    One thread waits, however many executions and views listen
    (test_news_are_waited_for_by_one_thread_however_many_listen). It starts with the first listener, and ends when it
    finds no listener, or when the store is closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: Listeners[NewsListener] = Listeners()
        self._thread: threading.Thread | None = None

    def add(self, listener: NewsListener, wait: Wait) -> Callable[[], None]:
        """Add a listener for new messages and writes of other processes; return a function that removes the listener.

        The listener is called once soon, and then at all news.

        `wait` is the store's `wait_for_news`.
        """
        # Added before the check below: the thread ends only if it finds no listener while it holds the lock.
        remove = self._listeners.add(listener)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # none is alive in a forked process
                self._thread = threading.Thread(target=self._watch, args=(wait,), name="divebook-news", daemon=True)
                self._thread.start()
                return remove  # a new thread begins with a call of all listeners
        # The running thread calls all listeners only at the next news.
        listener()
        return remove

    def join(self) -> None:
        """Wait until the thread that calls the listeners has ended. Call this after the store was closed.

        (test_unloading_leaves_no_thread_file_or_socket)
        """
        with self._lock:
            thread = self._thread
        # A listener may close the store, and its thread cannot wait for itself.
        if thread is not None and thread is not threading.current_thread():
            thread.join(LINGER)

    def _watch(self, wait: Wait) -> None:
        # -1 differs from every count, so that the first wait returns at once.
        last_count = -1
        while self._has_listeners():
            try:
                count = wait(last_count, LINGER)
            except StoreClosedError:
                with self._lock:
                    self._thread = None
                return
            except StoreError as error:  # code that writes to the store reports the problem to the user
                _log.debug("no news of the store: %s", error)
                # An unreachable store is not asked again without a pause.
                threading.Event().wait(LINGER)
                continue
            if count != last_count:
                last_count = count
                self._call_listeners()

    def _call_listeners(self) -> None:
        for (listener,) in self._listeners.entries:
            try:
                listener()
            except Exception:  # noqa: BLE001 - the other listeners must be called as well
                _log.exception("a listener to the store's news failed")

    def _has_listeners(self) -> bool:
        """Return True if there are listeners. If there are none, also forget the calling thread, which then ends, so
        that the next `add` starts another thread.
        """
        with self._lock:
            if self._listeners.entries:
                return True
            self._thread = None
            return False
