"""What a process prints at its end about executions that still run in it: which, and how to go on."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Protocol

from divebook.store.base import EventStore


class Driven(Protocol):
    """What the farewell says of an execution."""

    @property
    def id(self) -> str:
        """``exec_...``."""

    @property
    def status(self) -> str:
        """Running, waiting ..."""

    @property
    def is_live(self) -> bool:
        """Whether this process drives it."""

    store: EventStore


class Farewell:
    """Minds the executions that this process drives."""

    def __init__(self) -> None:
        self._minded: weakref.WeakSet[Driven] = weakref.WeakSet()
        self._pid = 0

    def mind(self, execution: Driven) -> None:
        """Speak of an execution if it still runs when the process ends."""
        if self._pid != os.getpid():  # a forked child drives none of its parent's
            self._minded, self._pid = weakref.WeakSet(), os.getpid()
            atexit.register(self.say)
        self._minded.add(execution)

    def say(self) -> None:
        """Print a line on stderr for each execution that still runs."""
        if self._pid == os.getpid():
            for execution in sorted(self._minded, key=lambda found: found.id):
                if execution.is_live:
                    sys.stderr.write(f"{_line(execution)}\n")


def _line(execution: Driven) -> str:
    left = f"divebook: the process ends while execution {execution.id} is {execution.status}"
    if not execution.store.keeps:
        return f"{left}; its log was in memory and is lost. wait() for it, or give it a store on disk"
    return (
        f"{left}. To go on: divebook resume {execution.id} --store {execution.store.location}; "
        "wait() for it to let it end"
    )


FAREWELL = Farewell()
"""That of this process."""
