"""Processes of this machine for calls that keep a processor busy: as many as there are processors, made when needed.

Each process has a wire of its own, so that whatever happens to one concerns the call that it makes and no other: one
that dies leaves the outcome of its call unknown, and one whose call is given up (a time limit, a cancelled execution)
is killed, with what it has started. The next call gets a new one. They are started afresh, never forked from a process
that has threads, and replaced where a module that they have imported has changed.
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from divebook.errors import ExecutionError, OutcomeUnknownError
from divebook.runtime.compute.around import ProcessEnvironment, ship, unship
from divebook.runtime.compute.threads import LimitedSlot, Places, Task, carried_out, in_thread
from divebook.runtime.compute.worker import AROUND, CALL, ENDED, LOGGED, PRINTED, STALE, START, Wire
from divebook.text.redaction import hand_on, logger

if TYPE_CHECKING:
    from typing_extensions import Buffer

LOOK_SECONDS = 0.2
"""How often a process is looked at that tells nothing, where the system does not say when it ends."""
LEAVING_SECONDS = 0.5
"""How long a process whose wire is cut has to end by itself."""
_log = logger(__name__)


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

    def slot(self, *, repeatable: bool, limited: bool) -> LimitedSlot:  # noqa: ARG002 - the same for all
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
        errand = _Job(task)
        return await carried_out(
            task, asyncio.ensure_future(in_thread(functools.partial(self._make, errand))), errand.cut
        )

    def _make(self, errand: _Job) -> Any:
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

    def _ask(self, errand: _Job, shipped: bytes) -> bytes:
        while True:
            worker = self._take()
            outcome = self._asked(worker, errand, shipped)
            if outcome is not None:
                return outcome

    def _asked(self, worker: _Worker, errand: _Job, shipped: bytes) -> bytes | None:
        """Return the outcome of a call, or None if the process has old code, and so has not made it, and is ended."""
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
        if outcome is None:
            self._all.discard(worker)
            worker.kill()
            worker.end()
        else:
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


class _Job:
    """A call, and the process that makes it once there is one."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.is_cut = False
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def carry_out(self, worker: _Worker, call: bytes) -> bytes | None:
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
    """A process, which leads a session of its own, and the wire to it."""

    def __init__(self) -> None:
        around = ProcessEnvironment.of_now()
        command = [sys.executable, "-c", START, str(logging.root.level), json.dumps(around.imports)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdin is not None  # noqa: S101 - asked for
        assert self._process.stdout is not None  # noqa: S101 - same
        self._ends = (self._process.stdout, self._process.stdin)
        self._look = _Look(self._process)
        reads = _UntilItEnds(self._process.stdout.fileno(), self._look) if hasattr(select, "poll") else None
        self._wire = Wire(self._process.stdout if reads is None else io.BufferedReader(reads), self._process.stdin)
        self._around: ProcessEnvironment | None = None
        """Where it was told to make calls."""
        self._asking = threading.Lock()
        self._is_over = False

    def lives(self) -> bool:
        """Whether it can be asked."""
        if not self._look.has_ended():
            return True
        self.end()
        return False

    def ask(self, call: bytes) -> bytes | None:
        """Return the outcome of a call, or None if the process has old code and did not make it.

        Raises EOFError or OSError if the process ends before.
        """
        with self._asking:
            return self._asked(call)

    def _asked(self, call: bytes) -> bytes | None:
        around = ProcessEnvironment.of_now()
        if around != self._around:
            self._wire.send(AROUND, pickle.dumps(tuple(around)))
            self._around = around
        self._wire.send(CALL, call)
        while True:
            kind, payload = self._wire.receive()
            if kind in (ENDED, STALE):
                return payload if kind == ENDED else None
            _hand_on(kind, payload)

    def kill(self) -> None:
        """Stop it whatever it does, with all that it has started."""
        if self._is_over:  # another process may have its number by now
            return
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):  # nothing of it is left
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def end(self) -> str:
        """End it, if it has not ended; return what is to be said of its end."""
        has_ended = self._look.has_ended(LEAVING_SECONDS)  # its wire is cut, and it is about to
        self.kill()  # what it has started may be there still
        code = self._process.wait()
        self._is_over = True
        if self._asking.acquire(timeout=LEAVING_SECONDS):  # else who asks prints for it, and will read no more
            self._look.close()
            for end in self._ends:
                with suppress(OSError):
                    end.close()
            self._asking.release()
        return f"({self._process.pid}) {_told(code if has_ended else None)}"


class _Look:
    """Looks whether a process has ended, and leaves it to be waited for: until then its group has its number."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.descriptor: int | None = None
        """What is ready to be read once it has ended, where the system has that."""
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):  # an old kernel
                self.descriptor = os.pidfd_open(process.pid)

    def has_ended(self, within: float = 0.0) -> bool:
        """Whether it has, or does so in a while."""
        if self.descriptor is not None:
            return bool(_ready(self.descriptor, seconds=within))
        until = time.monotonic() + within
        while self._process.poll() is None:
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True

    def close(self) -> None:
        """Need it no more."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class _UntilItEnds(io.RawIOBase):
    """What a process writes, until it has ended: what it has started may hold the other end for longer."""

    def __init__(self, descriptor: int, look: _Look) -> None:
        self._descriptor, self._look = descriptor, look

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        ends = self._look.descriptor
        if ends is not None:
            is_there = self._descriptor in _ready(self._descriptor, ends)
        else:
            while not (is_there := bool(_ready(self._descriptor, seconds=LOOK_SECONDS))):
                if self._look.has_ended():
                    break
        return os.readv(self._descriptor, [buffer]) if is_there else 0


def _ready(*descriptors: int, seconds: float | None = None) -> list[int]:
    """Return which can be read, waiting until one can, or so long."""
    asked = select.poll()
    for descriptor in descriptors:
        asked.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in asked.poll(None if seconds is None else seconds * 1000)]


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
    """Print or log here what was printed or logged in a worker; where that fails, it is no matter of the call."""
    told = pickle.loads(payload)  # noqa: S301 - from a process of ours
    try:
        if kind == PRINTED:
            stream = getattr(sys, told[0])
            if stream is not None:  # as of a program without a terminal
                stream.write(told[1])
        elif kind == LOGGED:
            hand_on(logging.makeLogRecord(told))
    except Exception as error:  # noqa: BLE001 - a stream or a handler of a person's, which may be closed or broken
        _log.debug("what a process printed or logged is lost: %s: %s", type(error).__name__, error)
