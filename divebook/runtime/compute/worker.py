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

import codecs
import faulthandler
import io
import logging
import os
import pickle
import signal
import struct
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, TextIO

from divebook.runtime.compute.process_calls import ProcessEnvironment, make_pickled_call

if TYPE_CHECKING:
    from typing_extensions import Buffer

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
        outcome = make_pickled_call(payload)
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


# --- imported modules ------------------------------------------------------------------------------------------------
#
# A process that has imported a file which has changed since makes no more calls.


_INSTALLED = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
"""Folders of installed code, which users do not edit."""
_NEVER = (0, -1)
"""Time and size that no file has."""


class KnownModules:
    """Files from which this process has imported modules, with their times and sizes, so that later changes are
    noticed. Installed packages are left out.
    """

    def __init__(self) -> None:
        self._stamps: dict[str, tuple[int, int]] = {}
        """Time in nanoseconds and size in bytes of each file, by path."""
        self._module_names: set[str] = set()
        self._began = time.time_ns()
        self.look()

    def have_changed(self) -> bool:
        """Return whether the file of a module has changed since this process imported the module. Called before each
        call, which must not run old code.
        """
        self._began = time.time_ns()
        return any(_stamp(file, stamp) != stamp for file, stamp in self._stamps.items())

    def look(self) -> None:
        """Register the files of all modules that this process has imported since the last call of this method, so that
        later changes to the files are noticed.
        """
        for name in [name for name in list(sys.modules) if name not in self._module_names]:
            self._module_names.add(name)
            file = getattr(sys.modules.get(name), "__file__", None)
            if not isinstance(file, str) or name.partition(".")[0] == "divebook" or _is_installed(file):
                continue
            stamp = _stamp(file, _NEVER)
            if stamp != _NEVER:
                is_late = self._began <= stamp[0] <= time.time_ns()  # it may have changed after its import
                # `_NEVER` equals no stamp, so a file that changed during the last call counts as changed.
                self._stamps[file] = _NEVER if is_late else stamp


def _is_installed(file: str) -> bool:
    real = os.path.realpath(file)
    return real.startswith(_INSTALLED) or f"{os.sep}site-packages{os.sep}" in real  # installed in another environment


def _stamp(file: str, otherwise: tuple[int, int]) -> tuple[int, int]:
    """Return the modification time and the size of a file. If the file does not exist, return `otherwise`. That is the
    case for a module in an archive, for example.
    """
    try:
        status = os.stat(file)  # noqa: PTH116 - runs many times per call
    except OSError:
        return otherwise
    return status.st_mtime_ns, status.st_size


# --- printed output --------------------------------------------------------------------------------------------------
#
# Streams in a worker process that pass printed text to its owner.


class ForwardedOutput(io.RawIOBase):
    """Raw output stream in a worker process. It sends the text that a call writes to the process that started the
    worker.

    Parameters
    ----------
    name, number
        Name of the stream in the module ``sys``, and file descriptor reported to programs.
    hand_on
        Receives the name and a text.
    """

    def __init__(self, name: str, number: int, hand_on: Callable[[tuple[str, str]], object]) -> None:
        self._name = name
        self._number = number
        self._hand_on = hand_on
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # bytes may end inside a character

    def writable(self) -> bool:
        """Return True, because text can be written to the stream."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor of the stream, for programs that write to it directly."""
        return self._number

    def write(self, data: Buffer, /) -> int:
        """Send the complete characters in some bytes to the process that started the worker. Bytes of an incomplete
        character are kept for the next call.
        """
        raw = bytes(data)
        if text := self._decoder.decode(raw):
            self._hand_on((self._name, text))
        return len(raw)


def stream_of(printed: ForwardedOutput) -> io.TextIOWrapper:
    """Return a line-buffered text stream, like ``sys.stdout``, over a raw stream. Characters that cannot be encoded
    (lone surrogates) are escaped.
    """
    buffer = io.BufferedWriter(printed)
    return io.TextIOWrapper(buffer, "utf-8", "backslashreplace", newline="\n", line_buffering=True)
