"""Process pool for CPU-bound calls of user code on this machine: as many worker processes as processors, started when
needed.

Each process has its own pipes, so a failure concerns only the call that it makes. If a process dies, the outcome of its
call is unknown. If a call is given up (time limit, cancelled execution), its process is killed with all its children,
and the next call gets a new one. Processes are started fresh, never forked from a process with threads, and replaced if
a module that they have imported has changed.
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
from divebook.runtime.compute.process_calls import ProcessEnvironment, pickle_call, unpickle_result
from divebook.runtime.compute.threads import LimitedSlot, SlotPool, Task, await_task, in_thread
from divebook.runtime.compute.worker import CALL, ENDED, ENVIRONMENT, LOGGED, PRINTED, STALE, START, Wire
from divebook.text.redaction import hand_on, logger

if TYPE_CHECKING:
    from typing_extensions import Buffer

END_CHECK_SECONDS = 0.2
"""Seconds between two checks of a silent process, if the system does not signal its end."""
LEAVING_SECONDS = 0.5
"""Seconds that a process has to exit by itself after its pipes are closed."""
_log = logger(__name__)


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Processes:
    """Process pool with one worker process for each processor: the executor named ``"process"``."""

    shares_memory = False

    def __init__(self, size: int | None = None) -> None:
        self.size = size or processors()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._slots = SlotPool(self.size)
        self.close = weakref.finalize(self, _end, self._idle, self._all, self._lock)
        """Ends its processes. Also called when the pool is garbage collected."""
        self.close.atexit = False  # they end with this process, which waits for its last calls

    def slot(self, *, repeatable: bool, limited: bool) -> LimitedSlot:  # noqa: ARG002 - the same for all calls
        """Return the slot that a call must hold while it runs. There are as many slots as worker processes."""
        return self._slots.slot()

    async def run(self, task: Task) -> Any:
        """Run a task in a worker process and return its result.

        If cancelled, it kills the process of a call that has a time limit, is repeatable, or belongs to a cancelled
        execution. It waits for any other call, so that its outcome is known.

        Raises
        ------
        OutcomeUnknownError
            The process died. A repeatable call is repeated once before.
        UnpicklableError
            The function or an argument cannot be pickled. Nothing was called.
        """
        job = _Job(task)
        return await await_task(task, asyncio.ensure_future(in_thread(functools.partial(self._make, job))), job.give_up)

    def _make(self, job: _Job) -> Any:
        """Make a call in a worker process, and wait for it in this thread.

        If the process dies, a repeatable call is made once more in another process. Any other call, or one that was
        given up, raises OutcomeUnknownError.
        """
        task = job.task
        call = pickle_call(task.label, task.function, task.args, task.kwargs)
        try:
            return unpickle_result(self._ask(job, call))
        except _DiedError as died:
            # A call that was given up had its process killed on purpose, so it is not repeated.
            if not task.repeatable or job.is_given_up:
                raise OutcomeUnknownError(str(died)) from died
        try:
            return unpickle_result(self._ask(job, call))
        except _DiedError as died:
            raise OutcomeUnknownError(f"{died}; the call was attempted twice") from died

    def _ask(self, job: _Job, call: bytes) -> bytes:
        while True:
            # Until a worker accepts the call. One that has imported old code refuses it, and is replaced.
            worker = self._take()
            outcome = self._try_call(worker, job, call)
            if outcome is not None:
                return outcome

    def _try_call(self, worker: _Worker, job: _Job, call: bytes) -> bytes | None:
        """Make a call in a worker process and return its pickled outcome. Return None if the worker refused the call
        because it has imported old code. That worker is then ended.
        """
        try:
            outcome = job.carry_out(worker, call)
        except (EOFError, OSError) as error:
            # The pipe has ended in the middle of the call, so the process is gone or was killed.
            self._all.discard(worker)
            message = f"{job.task.label} may or may not have taken effect: its process {worker.end()}"
            raise _DiedError(message) from error
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
        """Return an idle worker process that is alive, or start a new one."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                # An idle process may have been killed, for example when memory ran out.
                if worker.lives():
                    return worker
                self._all.discard(worker)
            if not self.close.alive:
                raise ExecutionError("its process pool was closed with its environment; resume in an open environment")
            worker = _Worker()
            self._all.add(worker)
            return worker


class _DiedError(Exception):
    """Error: a worker process ended during a call, so that the outcome of the call is unknown."""


def _end(idle: list[_Worker], workers: set[_Worker], lock: threading.Lock) -> None:
    with lock:
        idle.clear()
        ended_workers = list(workers)
        workers.clear()
    # All are killed before any is awaited.
    for worker in ended_workers:
        worker.kill()
    for worker in ended_workers:
        worker.end()


class _Job:
    """One call of user code, and the worker process that makes it at present, if there is one."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.is_given_up = False
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def carry_out(self, worker: _Worker, call: bytes) -> bytes | None:
        """Make the call in this worker process, and return its pickled outcome, or None if the process refused the
        call. Raises EOFError or OSError if the process has ended too early or the call was given up.
        """
        with self._lock:
            # Checked under the lock: `give_up` either finds the worker and kills it, or is found here.
            if self.is_given_up:
                raise EOFError("it was cancelled before it started")
            self._worker = worker
        try:
            return worker.ask(call)
        finally:
            with self._lock:  # the process may make another call from now on
                self._worker = None

    def give_up(self) -> None:
        """Give up the call: kill the worker process that makes it, or prevent the call if it has not started."""
        with self._lock:
            self.is_given_up = True
            if self._worker is not None:
                self._worker.kill()


class _Worker:
    """Handle of one worker process, with the pipes through which calls and outcomes are sent. The process has a session
    of its own.
    """

    def __init__(self) -> None:
        environment = ProcessEnvironment.of_now()
        command = [sys.executable, "-c", START, str(logging.root.level), json.dumps(environment.imports)]
        # A session of its own makes the process the leader of a group. `kill` then reaches everything that its calls
        # have started, and Ctrl-C in a terminal does not.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdin is not None  # noqa: S101 - requested above
        assert self._process.stdout is not None  # noqa: S101 - same
        self._ends = (self._process.stdout, self._process.stdin)
        self._end_check = _EndCheck(self._process)
        # Windows lacks `poll`. There, a child that keeps the pipe open delays the notice of the end.
        reads = _OutputUntilEnd(self._process.stdout.fileno(), self._end_check) if hasattr(select, "poll") else None
        self._wire = Wire(self._process.stdout if reads is None else io.BufferedReader(reads), self._process.stdin)
        self._environment: ProcessEnvironment | None = None
        """The environment last sent to it."""
        self._asking = threading.Lock()
        self._is_over = False

    def lives(self) -> bool:
        """Return whether the worker process is alive. Free its resources if it is not."""
        if not self._end_check.has_ended():
            return True
        self.end()
        return False

    def ask(self, call: bytes) -> bytes | None:
        """Send a call to the worker process and return its pickled outcome. Return None if the process refused the call
        because it has imported old code.

        Raises EOFError or OSError if the process ends before.
        """
        with self._asking:
            return self._send_call(call)

    def _send_call(self, call: bytes) -> bytes | None:
        environment = ProcessEnvironment.of_now()
        # Sent only if it has changed, because most calls find the same environment.
        if environment != self._environment:
            self._wire.send(ENVIRONMENT, pickle.dumps(tuple(environment)))
            self._environment = environment
        self._wire.send(CALL, call)
        while True:
            kind, payload = self._wire.receive()
            # Before the outcome, the process sends what the call prints and logs.
            if kind in (ENDED, STALE):
                return payload if kind == ENDED else None
            _hand_on(kind, payload)

    def kill(self) -> None:
        """Send SIGKILL to the worker process and to all processes that it has started."""
        if self._is_over:  # another process may have its pid by now
            return
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):  # all its processes are gone
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def end(self) -> str:
        """End the worker process if it is alive, and return a phrase about how it ended, for errors."""
        has_ended = self._end_check.has_ended(LEAVING_SECONDS)  # its pipes are closed, so it may be exiting
        self.kill()  # its children may still be alive
        code = self._process.wait()
        self._is_over = True
        if self._asking.acquire(timeout=LEAVING_SECONDS):  # otherwise the caller is printing and reads no more
            self._end_check.close()
            for end in self._ends:
                with suppress(OSError):
                    end.close()
            self._asking.release()
        return f"({self._process.pid}) {_exit_text(code if has_ended else None)}"


class _EndCheck:
    """Check whether a worker process has ended. Where the system allows it, the check does not reap the process,
    because its process group id stays reserved until it is reaped.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.descriptor: int | None = None
        """File descriptor that becomes readable at its end, if the system supports it."""
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):  # old kernels do not support it
                self.descriptor = os.pidfd_open(process.pid)

    def has_ended(self, within: float = 0.0) -> bool:
        """Return whether the process has ended. Wait for its end for at most `within` seconds."""
        if self.descriptor is not None:
            return bool(_ready(self.descriptor, seconds=within))
        until = time.monotonic() + within
        while self._process.poll() is None:
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        return True

    def close(self) -> None:
        """Close the file descriptor with which the end of the process is noticed, if there is one."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class _OutputUntilEnd(io.RawIOBase):
    """Raw input stream of the output of a worker process. It ends when the process ends, even if children of the
    process keep the pipe open.
    """

    def __init__(self, descriptor: int, look: _EndCheck) -> None:
        self._descriptor = descriptor
        self._end_check = look

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        ends = self._end_check.descriptor
        # Output that is still in the pipe is read first: only a silent pipe of an ended process ends the stream.
        if ends is not None:
            is_there = self._descriptor in _ready(self._descriptor, ends)
        else:
            while not (is_there := bool(_ready(self._descriptor, seconds=END_CHECK_SECONDS))):
                if self._end_check.has_ended():
                    break
        return os.readv(self._descriptor, [buffer]) if is_there else 0


def _ready(*descriptors: int, seconds: float | None = None) -> list[int]:
    """Wait until at least one of these file descriptors is readable, for at most `seconds` (None means no limit).
    Return the readable ones.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if seconds is None else seconds * 1000)]


def _exit_text(code: int | None) -> str:
    if code is None:
        return "was killed"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = ", for example because memory ran out" if name == "SIGKILL" else ""
    return f"was ended by {name}{why}"


def _hand_on(kind: bytes, payload: bytes) -> None:
    """Print the output, or log the log record, that a worker process has sent to this process. Errors are ignored, so
    that they do not affect the call.
    """
    message = pickle.loads(payload)  # noqa: S301 - sent by our own process
    try:
        if kind == PRINTED:
            stream = getattr(sys, message[0])
            if stream is not None:  # None in a program without a terminal
                stream.write(message[1])
        elif kind == LOGGED:
            hand_on(logging.makeLogRecord(message))
    except Exception as error:  # noqa: BLE001 - a user's stream or handler may be closed or broken
        _log.debug("output or log records of a process are lost: %s: %s", type(error).__name__, error)
