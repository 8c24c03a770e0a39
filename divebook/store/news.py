"""Hearing that something has come to a store from outside: one thread per store asks it, while anybody listens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from divebook.errors import StoreClosedError, StoreError
from divebook.text.logs import logger

NewsListener: TypeAlias = Callable[[], object]
Wait: TypeAlias = Callable[[int, float], int]

LINGER = 1.0
"""Seconds that the thread goes on after the last listener has left, as the next one often comes soon."""

_log = logger(__name__)


class News:
    """The listeners to one store's news, and the thread that waits for it.

    However many executions wait, and however many people follow them, the store is asked by one thread
    (test_news_are_waited_for_by_one_thread_however_many_listen).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[tuple[NewsListener], ...] = ()
        self._thread: threading.Thread | None = None

    def add(self, listener: NewsListener, wait: Wait) -> Callable[[], None]:
        """Add a listener, which is called once soon, and at all news; call what is returned to remove it.

        `wait` is the store's `wait_for_news`.
        """
        entry = (listener,)  # a tuple of its own, so that one listener added twice is two things to remove

        def remove() -> None:
            with self._lock:
                self._listeners = tuple(known for known in self._listeners if known is not entry)

        with self._lock:
            self._listeners = (*self._listeners, entry)
            if self._thread is None or not self._thread.is_alive():  # none is alive in a forked process
                self._thread = threading.Thread(target=self._watch, args=(wait,), name="divebook-news", daemon=True)
                self._thread.start()
                return remove
        listener()
        return remove

    def join(self) -> None:
        """Wait for the thread to end, once the store is closed (test_unloading_leaves_no_thread_file_or_socket)."""
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(LINGER)

    def _watch(self, wait: Wait) -> None:
        seen = -1
        while self._has_listeners():
            try:
                found = wait(seen, LINGER)
            except StoreClosedError:
                self._end()
                return
            except StoreError as error:  # the code that writes to it says what is wrong
                _log.debug("no news of the store: %s", error)
                threading.Event().wait(LINGER)
                continue
            if found != seen:
                seen = found
                self._tell()

    def _tell(self) -> None:
        for (listener,) in self._listeners:
            try:
                listener()
            except Exception:  # noqa: BLE001 - the others are to hear as well
                _log.exception("a listener to the store's news failed")

    def _has_listeners(self) -> bool:
        with self._lock:
            if not self._listeners:
                self._thread = None
            return bool(self._listeners)

    def _end(self) -> None:
        with self._lock:
            self._thread = None
