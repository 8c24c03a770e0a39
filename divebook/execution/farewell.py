"""What a process prints at its end about executions that still run in it: which, and how to go on."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import DivebookError
from divebook.store.base import EventStore
from divebook.text.commands import in_shell

MOMENT_SECONDS = 5.0
MOST_LINES = 20


class Driven(Protocol):
    """What the farewell says of an execution."""

    @property
    def id(self) -> str:
        """``exec_...``."""

    @property
    def status(self) -> str:
        """Running, waiting ..."""

    @property
    def started_by(self) -> str | None:
        """The execution that waits for its end, if there is one."""

    @property
    def is_live(self) -> bool:
        """Whether this process drives it."""

    def driving(self) -> Future[None]:
        """Return what is done when this process has driven it to its end, or to rest."""

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
        """Print a line on stderr for each execution that still runs and that no other one of those has started."""
        if self._pid != os.getpid():
            return
        left = [execution for execution in sorted(self._minded, key=lambda one: one.id) if _goes_on(execution)]
        parents = {execution.id: execution.started_by for execution in left}
        below = Counter(_top(execution.id, parents) for execution in left)
        tops = [execution for execution in left if execution.id in below]
        for execution in tops[:MOST_LINES]:
            sys.stderr.write(f"{_line(execution, below[execution.id] - 1)}\n")
        if len(tops) > MOST_LINES:
            sys.stderr.write(
                f"divebook: {len(tops) - MOST_LINES} more executions have not ended; `divebook runs` lists them\n"
            )


def _top(execution_id: str, parents: Mapping[str, str | None]) -> str:
    """Return the execution above one that no other one of them has started."""
    parent = parents[execution_id]
    while parent is not None and parent in parents:
        execution_id, parent = parent, parents[parent]
    return execution_id


def _goes_on(execution: Driven) -> bool:
    """Whether an execution is left behind; one that has just ended gets the moment in which that is written down."""
    if execution.is_live and execution.status in TERMINAL:
        with suppress(DivebookError, TimeoutError):  # the line says how it stands, whatever became of it
            execution.driving().result(MOMENT_SECONDS)
    return execution.is_live


def _line(execution: Driven, below: int) -> str:
    others = "" if not below else f" (and {below} executions that it has started)"
    left = f"divebook: the process ends while execution {execution.id} is {execution.status}{others}"
    if not execution.store.keeps:
        return f"{left}; its log was in memory and is lost. wait() for it, or give it a store on disk"
    way_on = in_shell("resume", [execution.id], ["--store", execution.store.location])
    return f"{left}. To go on: {way_on}; wait() for it to let it end"


FAREWELL = Farewell()
"""That of this process."""
