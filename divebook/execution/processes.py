"""Processes of this machine for calls that keep a processor busy: as many as there are processors, made when needed.

Each process has a wire of its own, so that whatever happens to one concerns the call that it makes and no other: one
that dies leaves the outcome of its call unknown, and one whose call is given up (a time limit, a cancelled execution)
is killed. The next call gets a new one. They are started afresh, never forked from a process that has threads.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any

from divebook.errors import ExecutionError, OutcomeUnknownError
from divebook.execution.compute import LimitedSlot, Places, Task, carried_out
from divebook.execution.shipping import ship, unship
from divebook.execution.threads import in_thread
from divebook.execution.worker import CALL, ENDED, LOGGED, PRINTED, START, Wire
from divebook.text.logs import hand_on


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Processes:
    """A pool of processes: what ``executor="process"`` names."""

    shares_memory = False

    def __init__(self, size: int | None = None) -> None:
        self.size = size or processors()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._places = Places(self.size)
        self.close = weakref.finalize(self, _end, self._idle, self._all, self._lock)
        """Ends its processes; also when the pool is forgotten."""
        self.close.atexit = False  # they end with this process, whose last calls are waited for then

    def slot(self, *, repeatable: bool) -> LimitedSlot:  # noqa: ARG002 - the same for all
        """Return what a call must hold while it is under way: only as many begin as have a process."""
        return self._places.slot()

    async def run(self, task: Task) -> Any:
        """Return the result.

        Cancelled, it kills the process if the call has a time limit, or may be made twice, or its execution was
        cancelled; any other call is waited for, so that what became of it is known.

        Raises
        ------
        OutcomeUnknownError
            The process died. A call that may be made twice is made once more first.
        UnpicklableError
            Its code or an argument cannot leave this process; nothing was called.
        """
        errand = _Errand(task)
        return await carried_out(
            task, asyncio.ensure_future(in_thread(functools.partial(self._make, errand))), errand.cut
        )

    def _make(self, errand: _Errand) -> Any:
        """Make a call, in a thread that waits for it."""
        task = errand.task
        shipped = ship(task.label, task.function, task.args, task.kwargs)
        try:
            return unship(self._ask(errand, shipped))
        except _DiedError as died:
            if not task.repeatable or errand.is_cut:
                raise OutcomeUnknownError(str(died)) from died
        try:
            return unship(self._ask(errand, shipped))
        except _DiedError as died:
            raise OutcomeUnknownError(f"{died}; it was made twice") from died

    def _ask(self, errand: _Errand, shipped: bytes) -> bytes:
        worker = self._take()
        try:
            outcome = errand.carry_out(worker, shipped)
        except (EOFError, OSError) as error:
            self._all.discard(worker)
            told = f"{errand.task.label} may or may not have taken effect: its process {worker.end()}"
            raise _DiedError(told) from error
        except BaseException:
            self._all.discard(worker)
            worker.end()
            raise
        self._idle.append(worker)
        return outcome

    def _take(self) -> _Worker:
        """Return a process that lives and has nothing to do."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.lives():
                    return worker
                self._all.discard(worker)
            if not self.close.alive:
                raise ExecutionError("its pool of processes is closed, with its environment; resume it in an open one")
            worker = _Worker()
            self._all.add(worker)
            return worker


class _DiedError(Exception):
    """A process ended while it made a call."""


def _end(idle: list[_Worker], workers: set[_Worker], lock: threading.Lock) -> None:
    with lock:
        idle.clear()
        left = list(workers)
        workers.clear()
    for worker in left:
        worker.kill()
    for worker in left:
        worker.end()


class _Errand:
    """A call, and the process that makes it once there is one."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.is_cut = False
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def carry_out(self, worker: _Worker, call: bytes) -> bytes:
        """Have a process make it; raises EOFError or OSError if that ends before, or it was given up."""
        with self._lock:
            if self.is_cut:
                raise EOFError("it was given up before it began")
            self._worker = worker
        try:
            return worker.ask(call)
        finally:
            with self._lock:  # from now on the process may make another call
                self._worker = None

    def cut(self) -> None:
        """Give it up: its process ends in the middle of it."""
        with self._lock:
            self.is_cut = True
            if self._worker is not None:
                self._worker.kill()


class _Worker:
    """A process and the wire to it."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", START, str(logging.root.level), json.dumps(sys.path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None  # noqa: S101 - asked for
        assert self._process.stdout is not None  # noqa: S101 - same
        self._ends = (self._process.stdout, self._process.stdin)
        self._wire = Wire(*self._ends)

    def lives(self) -> bool:
        """Whether it can be asked."""
        if self._process.poll() is None:
            return True
        self.end()
        return False

    def ask(self, call: bytes) -> bytes:
        """Return the outcome of a call; raises EOFError or OSError if the process ends before."""
        self._wire.send(CALL, call)
        while True:
            kind, payload = self._wire.receive()
            if kind == ENDED:
                return payload
            _hand_on(kind, payload)

    def kill(self) -> None:
        """Stop it whatever it does."""
        self._process.kill()

    def end(self) -> str:
        """End it, if it has not ended; return what is to be said of its end."""
        code = self._process.poll()
        if code is None:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(0.5)  # its wire is cut, and it is about to
        self._process.kill()
        self._process.wait()
        for end in self._ends:
            with suppress(OSError):
                end.close()
        return f"({self._process.pid}) {_told(code)}"


def _told(code: int | None) -> str:
    if code is None:
        return "was killed"
    if code >= 0:
        return f"ended by itself, with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = ", as when memory runs out" if name == "SIGKILL" else ""
    return f"was ended by {name}{why}"


def _hand_on(kind: bytes, payload: bytes) -> None:
    """Print or log here what was printed or logged in a worker."""
    told = pickle.loads(payload)  # noqa: S301 - from a process of ours
    if kind == PRINTED:
        getattr(sys, told[0]).write(told[1])
    elif kind == LOGGED:
        hand_on(logging.makeLogRecord(told))
