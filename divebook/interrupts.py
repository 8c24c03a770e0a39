"""Ctrl-C, and the button that interrupts a kernel: kept back where they would do harm, until they can be heeded.

Python raises KeyboardInterrupt in the main thread between any two instructions. Raised in the code of a lock it leaves
that taken for ever; raised in a finalizer it is swallowed; raised when a run has just begun it leaves nobody who
knows that; and it is not raised at all while the thread waits for a lock that it came just before. So the main thread
keeps them back while it begins something, shows it or waits for it, and says where one may come
(`tests/notebook/test_stopping.py` sends them to a kernel at any moment).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Handler: TypeAlias = Callable[[int, FrameType | None], Any]
GRACE = 1.0
"""Seconds after which the next one is not kept back as well, since the first one is not heeded."""
LOOK = 0.1
"""Seconds between two looks whether one has come, of a thread that waits."""


CLOCKS_DIFFER = 0.001
"""Seconds by which a wait may seem to end early."""


class KeyboardInterrupts:
    """Those of this process. Only its main thread hears of them; to other threads this does nothing.

    What is not to hear of them is left as it is, and so is a handler of somebody's own: it is called somewhat later.
    Whether they are kept back is said by the handler that is installed and by nothing else, so that nothing is left
    behind where a block is not left the usual way.
    """

    def __init__(self) -> None:
        self._handler: Handler = signal.default_int_handler
        """What is to be called for one."""
        self._came_at = 0.0
        self._waits = self._was_heeded = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._let_the_child_hear)

    @contextmanager
    def kept_back(self) -> Iterator[bool]:
        """Let none come in the block but where it says so, or at its end; tell whether they are kept back.

        Once the block has heeded one, those that come until its end are the same person's second thoughts, and are
        dropped.
        """
        handler = signal.getsignal(signal.SIGINT)
        if not _is_main_thread() or not callable(handler):
            yield False
        elif handler == self._hear:  # in another block
            yield True
        else:
            self._handler, self._waits, self._was_heeded = handler, False, False
            signal.signal(signal.SIGINT, self._hear)
            try:
                yield True
            finally:
                self._install(handler, in_place_of=self._hear)
                waits, self._waits = self._waits and not self._was_heeded, False
                if waits:
                    handler(signal.SIGINT, None)

    def _install(self, handler: Handler, *, in_place_of: Handler) -> None:
        """Have a handler hear of them from now on, unless somebody has installed another one meanwhile."""
        if signal.getsignal(signal.SIGINT) == in_place_of:
            signal.signal(signal.SIGINT, handler)

    def _hear(self, _: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._waits:
            self._waits, self._came_at = True, now
        elif now - self._came_at > GRACE:
            self._pass_on(frame)

    def _pass_on(self, frame: FrameType | None) -> None:
        self._waits, self._was_heeded = False, True
        self._handler(signal.SIGINT, frame)
        self._was_heeded = False  # nothing was broken off for it: the next one is another one

    def heed(self) -> None:
        """Let the one come that is kept back, if there is one: KeyboardInterrupt, where nothing else handles them."""
        if self._waits and _is_main_thread():
            self._pass_on(None)

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Let them come at any moment in the block, which asks a person something."""
        if not _is_main_thread() or signal.getsignal(signal.SIGINT) != self._hear:
            yield
            return
        self.heed()
        handler = self._handler
        self._install(handler, in_place_of=self._hear)
        try:
            yield
        finally:
            self._install(self._hear, in_place_of=handler)

    def _let_the_child_hear(self) -> None:
        """In a process that another thread has forked no block ends (`tests/test_keyboard.py`)."""
        self._install(self._handler, in_place_of=self._hear)
        self._waits = False


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


INTERRUPTS = KeyboardInterrupts()


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
    with INTERRUPTS.kept_back() as is_kept_back:
        while is_kept_back:
            now = time.monotonic()
            if now >= began + patience:
                INTERRUPTS.heed()
            look = max(LOOK, began + patience - now)
            left = look if timeout is None else max(0.0, min(look, began + timeout - now))
            try:
                return future.result(left)
            except TimeoutError:
                if future.done():  # with that error, or as the look ended
                    return future.result(0)
                if left < look or time.monotonic() < now + left - CLOCKS_DIFFER:  # a signal handler's
                    raise
        return future.result(timeout)


def interruptible_wait(event: threading.Event, timeout: float) -> bool:
    """Wait until an event is set, or so many seconds, as its own ``wait`` does; heed keyboard interrupts meanwhile."""
    until = time.monotonic() + timeout
    with INTERRUPTS.kept_back() as is_kept_back:
        while is_kept_back and not event.is_set():
            INTERRUPTS.heed()
            left = until - time.monotonic()
            if left <= 0:
                return False
            event.wait(min(LOOK, left))
        return event.wait(max(0.0, until - time.monotonic()))
