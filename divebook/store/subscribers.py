"""Listeners to appended events: called after the commit, in the thread that appended, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from divebook.events.event import Event
from divebook.events.record import Record
from divebook.text.logs import logger

Listener: TypeAlias = Callable[[str, Sequence[Event]], None]

_log = logger(__name__)


class Subscribers:
    """The listeners of one store. The caller of `tell` holds the store's lock, which keeps the order."""

    def __init__(self) -> None:
        self.listeners: tuple[tuple[Listener], ...] = ()
        self._lock = threading.Lock()
        """Its own: a commit to a server may hold that of the store for long."""
        self._news: deque[tuple[str, Sequence[Event]]] = deque()
        self._telling = False

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; call what is returned to remove it."""
        entry = (listener,)  # a tuple of its own, so that one listener added twice is two things to remove
        with self._lock:
            self.listeners = (*self.listeners, entry)

        def unsubscribe() -> None:
            with self._lock:
                self.listeners = tuple(known for known in self.listeners if known is not entry)

        return unsubscribe

    def tell(self, execution_id: str, records: Sequence[Record]) -> None:
        """Tell every listener what events there are; what one of them appends meanwhile, all hear of afterwards."""
        if not self.listeners:
            return
        self._news.append((execution_id, tuple(event for record in records for event in record.events())))
        if self._telling:
            return
        self._telling = True
        try:
            while self._news:
                self._tell_one(*self._news.popleft())
        finally:
            self._telling = False

    def _tell_one(self, execution_id: str, events: Sequence[Event]) -> None:
        for (listener,) in self.listeners:
            try:
                listener(execution_id, events)
            except Exception:  # noqa: BLE001 - the events are committed: the appender must not take this for a failure
                _log.exception("a listener of the event store failed at execution %s", execution_id)
