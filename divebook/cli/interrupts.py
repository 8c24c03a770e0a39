"""Ctrl-C while an execution runs: the first cancels it durably, the second leaves at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from divebook.errors import ExecutionError

if TYPE_CHECKING:
    from divebook.execution.execution import Execution

INTERRUPTED = 130


class Interrupts:
    """Takes over Ctrl-C inside a ``with`` block.

    A thread hears of it through a socket that the signal writes to. The main thread would not do: it waits for a lock,
    and a signal that comes just before that is only noticed afterwards; KeyboardInterrupt can moreover be raised when
    an execution has begun and its id is not known yet (`tests/cli/test_process.py` interrupts real processes).
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.count = 0
        self._say = say
        self._lock = threading.Lock()
        self._execution: Execution | None = None
        self._restore: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._take_over()
        return self

    def _take_over(self) -> None:
        ours, signals = socket.socketpair()
        signals.settimeout(0)  # what set_wakeup_fd demands: a full buffer must not block
        listener = threading.Thread(target=self._listen, args=(ours,), name="divebook-interrupts", daemon=True)
        handler = signal.signal(signal.SIGINT, lambda *_: None)
        wakeup = signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)
        self._restore = [
            lambda: signal.set_wakeup_fd(wakeup),
            lambda: signal.signal(signal.SIGINT, handler),
            signals.close,
            listener.join,
            ours.close,
        ]
        listener.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for undo in self._restore:
            undo()

    def guard(self, execution: Execution) -> None:
        """Name the execution to cancel; do so now if Ctrl-C was quicker."""
        with self._lock:
            self._execution = execution
            if self.count:
                self._cancel(execution)

    def _listen(self, signals: socket.socket) -> None:
        while number := signals.recv(1):
            if number[0] == signal.SIGINT:
                self._interrupted()

    def _interrupted(self) -> None:
        with self._lock:
            self.count += 1
            if self.count > 1:
                self._leave()
            elif self._execution is not None:
                self._cancel(self._execution)

    def _cancel(self, execution: Execution) -> None:
        self._say("cancelling; press Ctrl-C again to leave at once")
        with suppress(ExecutionError):  # it has just ended by itself
            execution.cancel()

    def _leave(self) -> None:
        again = f": divebook resume {self._execution.id}" if self._execution else ""
        self._say(f"left at once; it can be resumed{again}")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # a blocking action would hold up the usual way out
