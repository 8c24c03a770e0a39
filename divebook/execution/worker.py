"""A process that makes calls for another one, one after the other; `divebook.execution.processes` starts it.

What it is sent and what it answers are frames on its stdin and stdout: a letter, a length, and so many bytes. It
imports nothing of the program that started it, so that a script needs no ``if __name__ == "__main__"``, and it goes the
moment that process does, however that ends.
"""

from __future__ import annotations

import faulthandler
import io
import logging
import os
import pickle
import signal
import struct
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from divebook.execution.shipping import make_shipped

CALL, ENDED, PRINTED, LOGGED = b"c", b"e", b"p", b"l"
"""Kinds of frames: a call, what it came to, and on the way what it printed and logged."""
_HEAD = struct.Struct("!cQ")
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from divebook.execution.worker import serve; serve(int(sys.argv.pop()))"
)
"""The program of a worker; its arguments are the level of what is logged, and the path for imports as JSON."""


class Wire:
    """The two ends of what connects a worker and its owner."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes]) -> None:
        self._reads, self._writes = reads, writes
        self._lock = threading.Lock()

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send a frame; raises OSError where the other side is gone."""
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


def serve(level: int) -> None:
    """Make calls until the owner has no more, or is gone."""
    wire = Wire(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # what libraries and programs write there is no frame
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner: it decides what goes on
    faulthandler.enable()
    sys.stdout, sys.stderr = _Printed(wire, "stdout"), _Printed(wire, "stderr")
    logging.basicConfig(level=level, handlers=[_Logged(wire)])
    calls: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(wire, calls), daemon=True).start()
    while True:
        outcome = make_shipped(calls.get())
        sys.stdout.flush()
        sys.stderr.flush()
        wire.send(ENDED, outcome)


def _receive(wire: Wire, calls: SimpleQueue[bytes]) -> None:
    """Take calls; end the process, also in the middle of one, when nobody is there any more who waits for it."""
    try:
        while True:
            calls.put(wire.receive()[1])
    except (EOFError, OSError):
        os._exit(0)


class _Printed(io.TextIOBase):
    """A text stream whose lines the owner prints."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire, self._name, self._line = wire, name, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._line += text
        if "\n" in text:
            self.flush()
        return len(text)

    def flush(self) -> None:
        line, self._line = self._line, ""
        if line:
            self._wire.send(PRINTED, pickle.dumps((self._name, line)))


class _Logged(logging.Handler):
    """Has the owner log what is logged here."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
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
