"""The process that forks a reaper for each command: started with the first one, and again if somebody ended it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from divebook.workspace.commands.reaper import READY

Streams: TypeAlias = tuple[int, int, int, int]
"""Descriptors: input, output and errors of a command, and the socket on which its reaper tells how it ended."""
_REAPER = str(Path(__file__).with_name("reaper.py"))
NEEDED = (_REAPER, sys.executable, sys.prefix, sys.base_prefix)
"""What must be there to be read wherever the helper runs: its program, and the Python that runs it."""
_PATIENCE, _MOST_TOLD = 60.0, 2_000
"""Seconds for the helper to start, and bytes of what is said where it does not."""


class Reapers:
    """One helper process of a workspace.

    Parameters
    ----------
    prefix
        Returns a program and its arguments that the helper runs in, and with it all commands: a fence. `NEEDED` must be
        there to be read. It is called when the helper starts.
    check
        Raises unless a command may run now; it is called before each one.
    """

    def __init__(self, prefix: Callable[[], Sequence[str]] = tuple, check: Callable[[], None] | None = None) -> None:
        self._prefix, self._check = prefix, check
        self._lock = threading.Lock()
        self._end: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], streams: Streams) -> None:
        """Have a command run.

        Raises
        ------
        OSError
            The helper cannot be started; in the words of what should have done that.
        """
        if self._check is not None:
            self._check()
        request = os.memfd_create("command", os.MFD_CLOEXEC)
        try:
            with open(request, "wb", closefd=False) as file:
                file.write(json.dumps({"argv": list(argv), "cwd": cwd, "environ": dict(environ)}).encode())
            os.lseek(request, 0, os.SEEK_SET)
            with self._lock:
                self._send([request, *streams])
        finally:
            os.close(request)

    def _send(self, fds: list[int]) -> None:
        for is_last in (False, True):
            end = self._end or self._start()
            try:
                socket.send_fds(end, [b"run"], fds)
            except OSError:  # somebody has ended the helper
                self._stop()
                if is_last:
                    raise
            else:
                return

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as told:
            with theirs:
                argv = [*self._prefix(), sys.executable, "-I", "-S", _REAPER, str(theirs.fileno())]
                self._process = subprocess.Popen(
                    argv,
                    pass_fds=(theirs.fileno(),),
                    env={},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=told,
                    start_new_session=True,
                )
            self._end = ours
            if not _is_ready(ours):
                self._stop()
                told.seek(0)
                said = told.read(_MOST_TOLD).decode(errors="replace").strip() or "it ended at once, and said nothing"
                raise OSError(f"{Path(argv[0]).name} cannot run commands here: {said}")
        return ours

    def _stop(self) -> None:
        if self._end is not None:
            self._end.close()
            self._end = None
        if self._process is not None:
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the helper, and with it all that commands have left in the background; twice is once."""
        with self._lock:
            self._stop()


def _is_ready(end: socket.socket) -> bool:
    end.settimeout(_PATIENCE)
    try:
        return end.recv(len(READY)) == READY
    except OSError:  # TimeoutError too
        return False
    finally:
        end.settimeout(None)
