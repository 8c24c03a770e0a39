"""A process that makes calls for another one, one after the other; `divebook.runtime.compute.processes` starts it.

What it is sent and what it answers are frames on its stdin and stdout: a letter, a length, and so many bytes. It
imports nothing of the program that started it, so that a script needs no ``if __name__ == "__main__"``, and it goes the
moment that process does, however that ends, with whatever its calls have started. What forks from it has no wire.
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

from divebook.runtime.compute.around import KnownModules, PrintedThere, ProcessEnvironment, make_shipped, stream_of

AROUND, CALL, STALE, ENDED, PRINTED, LOGGED = b"a", b"c", b"s", b"e", b"p", b"l"
"""Kinds of frames: where calls are to be made, a call, that this process has old code and makes none of it any more,
what a call came to, and on the way what it printed and logged."""
_HEAD = struct.Struct("!cQ")
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from divebook.runtime.compute.worker import serve; serve(int(sys.argv.pop()))"
)
"""The program of a worker; its arguments are the level of what is logged, and the path for imports as JSON."""


class Wire:
    """The two ends of what connects a worker and its owner."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes]) -> None:
        self._reads, self._writes = reads, writes
        self._lock = threading.Lock()
        self.is_let_go = False
        """Whether this is a process that has forked from the one whose wire it is."""

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send a frame; raises OSError where the other side is gone."""
        if self.is_let_go:
            return
        with self._lock:
            self._writes.write(_HEAD.pack(kind, len(payload)))
            self._writes.write(payload)
            self._writes.flush()

    def receive(self) -> tuple[bytes, bytes]:
        """Return the next frame; raises EOFError where the other side is gone."""
        kind, length = _HEAD.unpack(self._read(_HEAD.size))
        return kind, self._read(length)

    def _read(self, size: int) -> bytes:
        found = self._reads.read(size)
        if len(found) < size:
            raise EOFError
        return found

    def let_go(self) -> None:
        """Leave the wire to the process that this one has forked from: its end is to be seen at the other side.

        The descriptors stay taken, since the files that are open here still name them.
        """
        self.is_let_go = True
        with Path(os.devnull).open("r+b") as nothing:
            for end in (self._reads, self._writes):
                with suppress(OSError, ValueError):  # a call has closed it
                    os.dup2(nothing.fileno(), end.fileno(), inheritable=False)


def serve(level: int) -> None:
    """Make calls until the owner has no more, or is gone."""
    wire = Wire(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # what libraries and programs write there is no frame
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner: it decides what goes on
    faulthandler.enable()
    sys.stdout, sys.stderr = own = _printed(wire, "stdout", 1), _printed(wire, "stderr", 2)
    logging.basicConfig(level=level, handlers=[_Logged(wire)])
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _begin_as_child(wire))
    calls: SimpleQueue[tuple[bytes, bytes]] = SimpleQueue()
    threading.Thread(target=_receive, args=(wire, calls), daemon=True).start()
    _make(wire, calls, own)


def _printed(wire: Wire, name: str, number: int) -> TextIO:
    return stream_of(PrintedThere(name, number, lambda told: wire.send(PRINTED, pickle.dumps(told))))


def _make(wire: Wire, calls: SimpleQueue[tuple[bytes, bytes]], own: tuple[TextIO, ...]) -> None:
    """Make calls, each where the owner is when it begins, and none with other code than files hold then."""
    around, modules = ProcessEnvironment.of_now(), KnownModules()
    while True:
        kind, payload = calls.get()
        if kind == AROUND:
            around = ProcessEnvironment(*pickle.loads(payload))  # noqa: S301 - from the process that started this one
            continue
        around.enter()
        if modules.have_changed():
            wire.send(STALE, b"")
            continue
        outcome = make_shipped(payload)
        if wire.is_let_go:  # what has forked from the call has come to its end
            os._exit(0)
        for stream in own:
            with suppress(OSError, ValueError):  # the call has closed it
                stream.flush()
        wire.send(ENDED, outcome)
        modules.look()


def _receive(wire: Wire, calls: SimpleQueue[tuple[bytes, bytes]]) -> None:
    """Take calls; end the process, also in the middle of one, when nobody is there any more who waits for it."""
    try:
        while True:
            calls.put(wire.receive())
    except EOFError:
        if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)  # and so this one
        os._exit(0)
    except OSError:  # a call has closed the wire, and its owner sees to the rest
        os._exit(0)


_BEFORE_FORKING: list[TextIO] = []
"""Streams of the process that this one has forked from: to close them could wait for ever for one of its threads."""


def _begin_as_child(wire: Wire) -> None:
    """Let what has forked from a worker print and log as a process of its own."""
    wire.let_go()
    _BEFORE_FORKING.extend(stream for stream in (sys.stdout, sys.stderr) if stream is not None)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False) for number in (1, 2)
    )


class _Logged(logging.Handler):
    """Has the owner log what is logged here."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        if self._wire.is_let_go:
            print(self.format(record), file=sys.stderr)  # noqa: T201 - all that such a process has
            return
        trace = self.formatter or logging.Formatter()
        told = {
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
        self._wire.send(LOGGED, pickle.dumps(told))
