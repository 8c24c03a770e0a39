"""Ctrl-C, and the button that interrupts a kernel: kept back where they would do harm, until they can be heeded.

Python raises KeyboardInterrupt in the main thread between any two instructions. Raised in the code of a lock it leaves
that taken for ever; raised in a finalizer it is swallowed; raised when a run has just begun it leaves nobody who
knows that; and it is not raised at all while the thread waits for a lock that it came just before. So the main thread
keeps them back while it begins something, shows it or waits for it, and says where one may come
(`tests/notebook/test_stopping.py` sends them to a kernel at any moment).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
GRACE = 1.0
"""Seconds after which the next one is not kept back as well, since the first one is not heeded."""
LOOK = 0.1
"""Seconds between two looks whether one has come, of a thread that waits."""


class KeyboardInterrupts:
    """Those of this process. Only its main thread hears of them; to other threads this does nothing.

    What is not to hear of them, or has a handler of its own, is left as it is: that handler is called somewhat later.
    """

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._depth, self._came_at = 0, 0.0
        self._waits = self._was_heeded = False

    @contextmanager
    def kept_back(self) -> Iterator[bool]:
        """Let none come in the block but where it says so, or at its end; tell whether they are kept back.

        Once the block has heeded one, those that come until its end are the same person's second thoughts, and are
        dropped.
        """
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            yield False
        elif self._depth:
            self._depth += 1
            try:
                yield True
            finally:
                self._depth -= 1
        else:
            yield from self._kept_back_from(handler)

    def _kept_back_from(self, handler: Callable[[int, FrameType | None], Any]) -> Iterator[bool]:
        self._handler, self._depth = handler, 1
        self._waits = self._was_heeded = False
        signal.signal(signal.SIGINT, self._hear)
        try:
            yield True
        finally:
            self._depth = 0
            signal.signal(signal.SIGINT, handler)
            if self._waits and not self._was_heeded:
                handler(signal.SIGINT, None)

    def _hear(self, _: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._waits:
            self._waits, self._came_at = True, now
        elif now - self._came_at > GRACE:
            self._pass_on(frame)

    def _pass_on(self, frame: FrameType | None) -> None:
        self._waits, self._was_heeded = False, True
        if self._handler is not None:
            self._handler(signal.SIGINT, frame)

    def heed(self) -> None:
        """Let the one come that is kept back, if there is one: KeyboardInterrupt, where nothing else handles them."""
        if self._waits and self._depth and threading.current_thread() is threading.main_thread():
            self._pass_on(None)

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Let them come at any moment in the block, which asks a person something."""
        self.heed()
        if not self._depth or threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGINT, self._handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, self._hear)


KEYBOARD = KeyboardInterrupts()


def interruptible_result(future: Future[T], timeout: float | None = None, *, patience: float = 0.0) -> T:
    """Return what a future comes to, as its own ``result`` does, and heed keyboard interrupts meanwhile.

    Parameters
    ----------
    timeout
        Seconds, after which TimeoutError is raised.
    patience
        Seconds that what takes a moment gets, before one is heeded that comes in the middle of it.
    """
    began = time.monotonic()
    with KEYBOARD.kept_back() as is_kept_back:
        while is_kept_back:
            waited = time.monotonic() - began
            if waited >= patience:
                KEYBOARD.heed()
            left = LOOK if timeout is None else min(LOOK, timeout - waited)
            try:
                return future.result(max(0.0, left))
            except TimeoutError:
                if future.done() or left < LOOK:
                    raise
        return future.result(timeout)


def interruptible_wait(event: threading.Event, timeout: float) -> bool:
    """Wait until an event is set, or so many seconds, as its own ``wait`` does; heed keyboard interrupts meanwhile."""
    until = time.monotonic() + timeout
    with KEYBOARD.kept_back() as is_kept_back:
        while is_kept_back and not event.is_set():
            KEYBOARD.heed()
            left = until - time.monotonic()
            if left <= 0:
                return False
            event.wait(min(LOOK, left))
        return event.wait(max(0.0, until - time.monotonic()))
