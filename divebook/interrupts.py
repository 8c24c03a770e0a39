"""Deferred keyboard interrupts (Ctrl-C and the kernel's stop button).

Python raises KeyboardInterrupt in the main thread between any two bytecode instructions. That is
harmful at these moments:

- inside a lock's own code: the lock stays acquired for ever;
- inside a finalizer: the exception is swallowed;
- right after a run has started: no caller holds a reference to it yet.

It is also not raised at all while the thread waits for a lock, if the signal arrived just before the wait. The main
thread therefore defers interrupts while it starts, shows or awaits something, and raises them at safe points.
`tests/notebook/test_stopping.py` sends interrupts to a kernel at random moments.
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
"""Seconds after which a second interrupt is raised at once, because the first one had no effect."""
LOOK = 0.1
"""Seconds between two checks for a pending interrupt while a thread waits."""


CLOCKS_DIFFER = 0.001
"""Tolerance in seconds by which a wait may appear to end early."""


class KeyboardInterrupts:
    """SIGINT handling of this process. Has an effect in the main thread only.

    A SIGINT setting that is not callable (ignored, default) stays unchanged. A handler installed by the user is kept
    and called later. The installed signal handler is the only state that determines whether interrupts are deferred.
    An exception that leaves a block therefore cannot leave the process in a wrong mode.
    """

    def __init__(self) -> None:
        self._handler: Handler = signal.default_int_handler
        """Previous handler, called when an interrupt is raised."""
        self._came_at = 0.0
        self._waits = self._was_heeded = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._let_the_child_hear)

    @contextmanager
    def kept_back(self) -> Iterator[bool]:
        """Defer interrupts inside the block; yield whether they are deferred.

        A pending interrupt is raised by `heed` or when the block ends. If one that was raised has left the block,
        later ones are dropped until its end: the same person pressed the key again.
        """
        handler = signal.getsignal(signal.SIGINT)
        if not _is_main_thread() or not callable(handler):
            yield False
        elif handler == self._hear:  # nested block: the outer one restores the handler
            yield True
        else:
            self._handler = handler
            self._waits = False
            self._was_heeded = False
            signal.signal(signal.SIGINT, self._hear)
            try:
                yield True
            finally:
                self._install(handler, in_place_of=self._hear)
                waits = self._waits and not self._was_heeded
                self._waits = False
                if waits:
                    handler(signal.SIGINT, None)

    def _install(self, handler: Handler, *, in_place_of: Handler) -> None:
        """Install a handler, unless other code has replaced `in_place_of` meanwhile."""
        if signal.getsignal(signal.SIGINT) == in_place_of:
            signal.signal(signal.SIGINT, handler)

    def _hear(self, _: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._waits:
            self._waits = True
            self._came_at = now
        elif now - self._came_at > GRACE:
            self._pass_on(frame)

    def _pass_on(self, frame: FrameType | None) -> None:
        self._waits = False
        self._was_heeded = True
        self._handler(signal.SIGINT, frame)
        self._was_heeded = False  # the handler did not raise: a later interrupt is a new one

    def heed(self) -> None:
        """Call the previous handler if an interrupt is pending. Python's default handler raises KeyboardInterrupt."""
        if self._waits and _is_main_thread():
            self._pass_on(None)

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Allow interrupts at any moment inside the block, for example while it asks a person a question."""
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
        """Restore the previous handler in a forked child.

        If another thread forked the process, no block ends in the child (`tests/test_keyboard.py`).
        """
        self._install(self._handler, in_place_of=self._hear)
        self._waits = False


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


INTERRUPTS = KeyboardInterrupts()


def interruptible_result(future: Future[T], timeout: float | None = None, *, patience: float = 0.0) -> T:
    """Return the result of a future like its own ``result``, and raise pending keyboard interrupts meanwhile.

    Parameters
    ----------
    timeout
        Seconds, after which TimeoutError is raised.
    patience
        Seconds from the start during which interrupts stay deferred, so that a short operation can finish.
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
                if future.done():  # its own error is TimeoutError, or it completed as the poll ended
                    return future.result(0)
                if left < look or time.monotonic() < now + left - CLOCKS_DIFFER:  # timeout, or a signal handler
                    raise
        return future.result(timeout)


def interruptible_wait(event: threading.Event, timeout: float) -> bool:
    """Wait for an event like its own ``wait`` (timeout in seconds), and raise pending interrupts meanwhile."""
    until = time.monotonic() + timeout
    with INTERRUPTS.kept_back() as is_kept_back:
        while is_kept_back and not event.is_set():
            INTERRUPTS.heed()
            left = until - time.monotonic()
            if left <= 0:
                return False
            event.wait(min(LOOK, left))
        return event.wait(max(0.0, until - time.monotonic()))
