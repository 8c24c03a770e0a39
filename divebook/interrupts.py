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

# The functions of the module `signal` wrap these. They convert each number and handler to an enum and back, which takes
# ten times as long, and every wait of a caller replaces the handler twice.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Handler: TypeAlias = Callable[[int, FrameType | None], Any]
SECOND_INTERRUPT_AFTER = 1.0
"""Seconds after which a second interrupt is raised at once, because the first one had no effect."""
POLL_INTERVAL = 0.1
"""Seconds between two checks for a pending interrupt while a thread waits."""
CLOCK_TOLERANCE = 0.001
"""Tolerance in seconds by which a wait may appear to end early."""


class DeferredInterrupts:
    """Handler for SIGINT, which can defer keyboard interrupts (Ctrl-C) of this process. It has an effect in the main
    thread only.

    A SIGINT setting that is not callable (ignored, default) stays unchanged. A handler installed by the user is kept
    and called later. The installed signal handler is the only state that determines whether interrupts are deferred.
    An exception that leaves a block therefore cannot leave the process in a wrong mode.
    """

    def __init__(self) -> None:
        self._previous_handler: Handler = signal.default_int_handler
        """Handler that was installed before, which is called when an interrupt is raised."""
        self._pending = False
        self._pending_since = 0.0
        self._raised_in_block = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._restore_in_child)

    @contextmanager
    def deferred(self) -> Iterator[bool]:
        """Hold back (defer) keyboard interrupts (Ctrl-C) inside a ``with`` block. Yield False if that is impossible: in
        other threads than the main thread, or without a SIGINT handler.

        A pending interrupt is raised by `raise_pending` or when the block ends. If one was raised inside the
        block, later ones are dropped until its end, because the same person pressed the key again.
        """
        previous = getsignal(signal.SIGINT)
        if not _is_main_thread() or not callable(previous):
            yield False
            return
        # `==`, not `is`: each access to a method creates another bound method.
        if previous == self._on_signal:  # nested block: the outer one restores the handler
            yield True
            return
        self._previous_handler = previous
        self._pending = False
        self._raised_in_block = False
        set_handler(signal.SIGINT, self._on_signal)
        try:
            yield True
        finally:
            # The handler of the user is installed again before the pending interrupt is raised, since the exception
            # leaves this block and nothing would restore it later.
            self._replace_handler(previous, current=self._on_signal)
            must_raise = self._pending and not self._raised_in_block
            self._pending = False
            if must_raise:
                previous(signal.SIGINT, None)

    def _replace_handler(self, new: Handler, *, current: Handler) -> None:
        """Install a SIGINT handler, but only if the handler `current` is still installed, so that a handler set by the
        user stays.
        """
        if getsignal(signal.SIGINT) == current:
            set_handler(signal.SIGINT, new)

    def _on_signal(self, _: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._pending:
            self._pending = True
            self._pending_since = now
        # The block has not reached a safe point for a second, and may never do so. The exception is raised here, in the
        # code that runs, although it may do harm there.
        elif now - self._pending_since > SECOND_INTERRUPT_AFTER:
            self._deliver(frame)

    def _deliver(self, frame: FrameType | None) -> None:
        self._pending = False
        # Set before the call, because a handler that raises does not return.
        self._raised_in_block = True
        self._previous_handler(signal.SIGINT, frame)
        self._raised_in_block = False  # the handler did not raise: a later interrupt is a new one

    def raise_pending(self) -> None:
        """Raise a deferred keyboard interrupt now, by calling the SIGINT handler that was installed before. Do nothing
        if none was deferred.
        """
        if self._pending and _is_main_thread():
            self._deliver(None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Allow keyboard interrupts (Ctrl-C) at any moment inside a ``with`` block, for example while its code asks a
        person a question.
        """
        if not _is_main_thread() or getsignal(signal.SIGINT) != self._on_signal:
            yield
            return
        # A pending interrupt was meant for the code before this block.
        self.raise_pending()
        previous = self._previous_handler
        self._replace_handler(previous, current=self._on_signal)
        try:
            yield
        finally:
            self._replace_handler(self._on_signal, current=previous)

    def _restore_in_child(self) -> None:
        """Restore the earlier SIGINT handler in a process that was forked from this one.

        If another thread forked the process, no block ends in the child (`tests/test_interrupts.py`).
        """
        self._replace_handler(self._previous_handler, current=self._on_signal)
        self._pending = False


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


INTERRUPTS = DeferredInterrupts()


def interruptible_result(future: Future[T], timeout: float | None = None, *, patience: float = 0.0) -> T:
    """Return the result of a future, like ``Future.result``, but let keyboard interrupts (Ctrl-C) end the waiting.

    Parameters
    ----------
    timeout
        Seconds, after which TimeoutError is raised.
    patience
        Seconds from the start during which interrupts stay deferred, so that a short operation can finish.
    """
    if future.done():  # nothing to wait for
        return future.result()
    started_at = time.monotonic()
    with INTERRUPTS.deferred() as is_deferred:
        while is_deferred:
            now = time.monotonic()
            if now >= started_at + patience:
                INTERRUPTS.raise_pending()
            # Polling is necessary: a signal that arrives just before a wait for a lock does not end that wait. While
            # interrupts stay deferred anyway (`patience`), the wait is not divided.
            interval = max(POLL_INTERVAL, started_at + patience - now)
            seconds = interval
            if timeout is not None:
                seconds = max(0.0, min(interval, started_at + timeout - now))
            try:
                return future.result(seconds)
            except TimeoutError:
                if future.done():  # its own error is TimeoutError, or it completed as the poll ended
                    return future.result(0)
                is_last = seconds < interval
                was_cut_short = time.monotonic() < now + seconds - CLOCK_TOLERANCE  # a signal handler raised the error
                if is_last or was_cut_short:
                    raise
        # Interrupts cannot be deferred in other threads, or without a handler. A plain wait is enough there.
        return future.result(timeout)


def interruptible_wait(event: threading.Event, timeout: float) -> bool:
    """Wait for an event, like ``Event.wait`` (timeout in seconds), but let keyboard interrupts (Ctrl-C) end the
    waiting.
    """
    deadline = time.monotonic() + timeout
    with INTERRUPTS.deferred() as is_deferred:
        while is_deferred and not event.is_set():
            INTERRUPTS.raise_pending()
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                return False
            event.wait(min(POLL_INTERVAL, seconds))
        # In the main thread the event is set here, and this returns at once. In other threads it is the wait itself.
        return event.wait(max(0.0, deadline - time.monotonic()))
