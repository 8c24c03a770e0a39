"""Program of a worker process. It makes the calls that its owner (the process that started it) sends, one after
another.

`divebook.runtime.compute.processes` starts it. The two are separate modules, because a worker must start fast: it
imports neither asyncio nor the rest of the engine.

Requests and replies are frames on its stdin and stdout: one letter, a length, and that many bytes. The worker imports
nothing of the owner's program, so a script needs no ``if __name__ == "__main__"``. When the owner ends for any reason,
the worker exits at once with everything that its calls have started. A process forked from the worker does not use the
pipes.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import pickle
import signal
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TextIO

from divebook.runtime.compute.around import ForwardedOutput, KnownModules, ProcessEnvironment, make_shipped, stream_of

# --- kinds of frames ---

ENVIRONMENT = b"a"
"""Environment of the next calls."""
CALL = b"c"
STALE = b"s"
"""Refusal of a call, because this process has old code."""
ENDED = b"e"
"""Outcome of a call."""
PRINTED = b"p"
"""Output printed during a call."""
LOGGED = b"l"
"""Log record of a call."""
_HEAD = struct.Struct("!cQ")
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from divebook.runtime.compute.worker import serve; serve(int(sys.argv.pop()))"
)
"""Program of a worker. Its arguments are the log level, and the import path as JSON."""


class Wire:
    """One end of the two pipes between a worker process and its owner (the process that started it). Messages through
    it consist of a kind and a payload.
    """

    def __init__(self, reads: IO[bytes], writes: IO[bytes]) -> None:
        self._reads = reads
        self._writes = writes
        self._lock = threading.Lock()
        self.is_detached = False
        """True in a process that was forked from the one that uses the pipes."""

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send a message to the other end: its kind and its payload. Raises OSError if the process at the other end is
        gone.
        """
        if self.is_detached:
            return
        # Calls may print from several threads. A frame must not be split by another one.
        with self._lock:
            self._writes.write(_HEAD.pack(kind, len(payload)))
            self._writes.write(payload)
            self._writes.flush()

    def receive(self) -> tuple[bytes, bytes]:
        """Wait for the next message from the other end, and return its kind and its payload. Raises EOFError if the
        process there is gone.
        """
        kind, length = _HEAD.unpack(self._read(_HEAD.size))
        return kind, self._read(length)

    def _read(self, size: int) -> bytes:
        data = self._reads.read(size)
        # A short read means the end of the pipe.
        if len(data) < size:
            raise EOFError
        return data

    def detach(self) -> None:
        """Replace the pipes of a worker by the null device in a process that was forked from it. Otherwise the owner
        would not notice the end of the worker while the forked process runs.

        The descriptors stay open on the null device, because open file objects still use their numbers.
        """
        self.is_detached = True
        with Path(os.devnull).open("r+b") as nothing:
            for end in (self._reads, self._writes):
                with suppress(OSError, ValueError):  # a call has closed it
                    os.dup2(nothing.fileno(), end.fileno(), inheritable=False)


def serve(level: int) -> None:
    """Run a worker process: make calls until the owner closes the pipes or ends."""
    # The pipes get other numbers, and 0 and 1 are replaced: a call that reads stdin or prints must not touch the
    # frames.
    wire = Wire(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # output of libraries and programs is not a frame
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner handles Ctrl-C
    faulthandler.enable()
    sys.stdout = _printed(wire, "stdout", 1)
    sys.stderr = _printed(wire, "stderr", 2)
    streams = (sys.stdout, sys.stderr)
    logging.basicConfig(level=level, handlers=[_Logged(wire)])
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _begin_as_child(wire))
    calls: SimpleQueue[tuple[bytes, bytes]] = SimpleQueue()
    # Received in another thread, so that the end of the owner is noticed during a call.
    threading.Thread(target=_receive, args=(wire, calls), daemon=True).start()
    _make(wire, calls, streams)


def _printed(wire: Wire, name: str, number: int) -> TextIO:
    return stream_of(ForwardedOutput(name, number, lambda text: wire.send(PRINTED, pickle.dumps(text))))


def _make(wire: Wire, calls: SimpleQueue[tuple[bytes, bytes]], streams: tuple[TextIO, ...]) -> None:
    """Make the calls that the owner sends. For each call, this process gets the present environment of the owner:
    folder, variables and import path. Refuse calls once an imported file has changed.
    """
    environment = ProcessEnvironment.of_now()
    modules = KnownModules()
    while True:
        kind, payload = calls.get()
        if kind == ENVIRONMENT:
            environment = ProcessEnvironment(*pickle.loads(payload))  # noqa: S301 - sent by the owner
            continue
        environment.enter()
        if modules.have_changed():
            wire.send(STALE, b"")
            continue
        outcome = make_shipped(payload)
        if wire.is_detached:  # this is a fork made by the call, which has returned
            os._exit(0)
        for stream in streams:
            with suppress(OSError, ValueError):  # the call has closed it
                # Text without a line end would otherwise arrive after the outcome.
                stream.flush()
        wire.send(ENDED, outcome)
        # After the reply, so that the owner does not wait for it.
        modules.look()


def _receive(wire: Wire, calls: SimpleQueue[tuple[bytes, bytes]]) -> None:
    """Receive messages from the owner in a thread, and queue them. When the owner is gone, end this process, even
    during a call.
    """
    try:
        while True:
            calls.put(wire.receive())
    except EOFError:
        # The group is killed only by its leader. A process that was moved to another group must not end that group.
        if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)  # includes this process
        os._exit(0)
    except OSError:  # a call has closed the pipe; the owner handles the rest
        os._exit(0)


_BEFORE_FORKING: list[TextIO] = []
"""Streams of the process from which this one was forked. Closing them could wait for ever for one of its threads."""


def _begin_as_child(wire: Wire) -> None:
    """Prepare a process that a worker has forked: its output and log records go directly to stdout and stderr, and no
    longer through the worker's pipes.
    """
    wire.detach()
    _BEFORE_FORKING.extend(stream for stream in (sys.stdout, sys.stderr) if stream is not None)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False) for number in (1, 2)
    )


class _Logged(logging.Handler):
    """Logging handler of a worker that sends log records to the owner process."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        if self._wire.is_detached:
            print(self.format(record), file=sys.stderr)  # noqa: T201 - such a process has no other output
            return
        # Only plain fields are sent: arguments and exceptions of a log record may not be picklable.
        trace = self.formatter or logging.Formatter()
        fields = {
            "name": record.name,
            "levelno": record.levelno,
            "levelname": record.levelname,
            "msg": record.getMessage(),
            "pathname": record.pathname,
            "filename": record.filename,
            "lineno": record.lineno,
            "funcName": record.funcName,
            "exc_text": trace.formatException(record.exc_info) if record.exc_info else None,
        }
        self._wire.send(LOGGED, pickle.dumps(fields))
