"""The process that forks a reaper for each command: started with the first one, and again if somebody ended it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

Streams: TypeAlias = tuple[int, int, int, int]
"""Descriptors: input, output and errors of a command, and the socket on which its reaper tells how it ended."""
_REAPER = str(Path(__file__).with_name("reaper.py"))


class Reapers:
    """One helper process of a workspace.

    Parameters
    ----------
    prefix
        A program and its arguments that the helper runs in, and with it all commands: a fence.
    python
        The Python that runs it.
    program
        Where the helper finds its program, if that has another path inside the fence.
    """

    def __init__(self, prefix: Sequence[str] = (), python: str = sys.executable, program: str = _REAPER) -> None:
        self._prefix, self._python, self._program = tuple(prefix), python, program
        self._lock = threading.Lock()
        self._end: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, argv: Sequence[str], cwd: str, environ: Mapping[str, str], streams: Streams) -> None:
        """Have a command run.

        Raises
        ------
        OSError
            The helper cannot be started.
        """
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
        with theirs:
            argv = [*self._prefix, self._python, "-I", "-S", self._program, str(theirs.fileno())]
            self._process = subprocess.Popen(
                argv,
                pass_fds=(theirs.fileno(),),
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._end = ours
        return ours

    def _stop(self) -> None:
        if self._end is not None:
            self._end.close()
            self._end = None
        if self._process is not None:
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the helper, once its commands have ended; twice is once."""
        with self._lock:
            self._stop()
