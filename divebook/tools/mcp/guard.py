"""Guard program of an MCP server process: ends the server and all its descendants when the guard's input is closed.

Usage: ``python -I -S guard.py MOST COMMAND [ARGUMENT...]``. The guard runs the command in its own session.

A server that exits at the end of its input needs no guard. The guard handles all other servers, and the death of
divebook by SIGKILL, after which no other process could end the server (``tests/tools/test_guard.py``). The server reads
the guard's input directly. Its output passes through the guard, which ends a server that sends a message of more than
MOST bytes, before the message fills divebook's memory. The guard keeps the last error output of the server and writes
it at the end. On Linux it also finds descendants that left the process group.

The file is run by its path in a process of its own, and has few imports: a start takes some 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable

GRACE = 0.7
"""Seconds of each of three waits: for the last output after the end of input, before SIGTERM, and before SIGKILL.

The sum is less than the SDK waits (2 + 2) before it would end the guard.
"""
_LAST_BYTES = 1000
_CHUNK = 1 << 16
_IN = 0
_OUT = 1
_ERR = 2
# of prctl
_SUBREAPER = 36
_DIE_WITH_PARENT = 1
_IS_LINUX = sys.platform == "linux"


class _Server:
    """The process of the MCP server, with the pipes for its output and error output. It remembers the end of the error
    output.
    """

    def __init__(self, command: list[str]) -> None:
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        self.last_words = b""
        self.code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            self._execute(command, out, err)
        os.close(out)
        os.close(err)

    @staticmethod
    def _execute(command: list[str], out: int, err: int) -> None:
        # If the guard dies, no process is left that could end the server.
        if _IS_LINUX:
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the server would inherit that
        os.dup2(out, _OUT)
        os.dup2(err, _ERR)
        # `execvp` returns only with an error. 127 is the exit code of shells for a command that cannot be run.
        try:
            os.execvp(command[0], command)  # noqa: S606 - it is what we were asked to run
        except OSError as error:
            os.write(_ERR, f"cannot start {command[0]!r}: {error.strerror}\n".encode())
        os._exit(127)

    def all_ended(self) -> bool:
        """Remove ended child processes from the system (reap them). Return True if no descendant is left that this
        process can see.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            if pid == self.pid:
                self.code = os.waitstatus_to_exitcode(status)

    def read_error_output(self) -> bytes:
        """Read new error output of the server and return it. Also remember the last part of it, which explains a
        failure of the server.
        """
        data = os.read(self.err, _CHUNK)
        self.last_words = _last_words(self.last_words + data)
        return data


def _last_words(output: bytes) -> bytes:
    """Return the end of an output, cut at the beginning of a line or word.

    The output may contain secrets, which are redacted later. A secret that was cut would not be recognized.
    """
    end = output[-_LAST_BYTES:]
    if len(output) <= _LAST_BYTES:
        return end
    return end.partition(b"\n")[2] or end.partition(b" ")[2]


def _watch(server: _Server, most: int, child_ended: int) -> str:
    """Forward the output of the server until the server or the guard's input ends.

    Return the reason if the guard must stop the server, an empty string otherwise.
    """
    watched = select.poll()
    watched.register(_IN, 0)  # detects the end only; the data belong to the server
    for source in (server.out, server.err, child_ended):
        watched.register(source, select.POLLIN)
    # Bytes of the message that is not complete yet.
    line = 0
    until = float("inf")
    # Output has priority over the end of the server, so that its last messages are not lost.
    while (remaining := until - time.monotonic()) > 0:
        ready = dict(watched.poll(None if remaining == float("inf") else remaining * 1000))
        if ready.get(server.err) and not server.read_error_output():
            watched.unregister(server.err)
        if ready.get(server.out):
            data = os.read(server.out, _CHUNK)
            if not data:
                return ""
            # Messages are lines. Only the length since the last line feed counts.
            line = line + len(data) if b"\n" not in data else len(data) - data.rindex(b"\n") - 1
            if line > most:
                return f"it sent a message of more than {most} bytes"
            _write(data)
        elif ready.get(child_ended):
            os.read(child_ended, _CHUNK)
            # Also reaps descendants that were re-parented to the guard. Only the end of the server itself counts.
            server.all_ended()
            if server.code is not None:
                return ""
        elif ready.get(_IN):
            watched.unregister(_IN)
            until = time.monotonic() + GRACE  # still read its last output
    return ""


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(_OUT, data) :]


def _wait_until(condition: Callable[[], bool]) -> bool:
    """Call a condition again and again, for up to `GRACE` seconds, until it returns True. Return False if it never
    does.
    """
    until = time.monotonic() + GRACE
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _end(server: _Server) -> None:
    """End the server process and its descendants. They get time to end by themselves, then SIGTERM, and at last
    SIGKILL.
    """
    # Most servers end by themselves as soon as their input ends.
    if _wait_until(server.all_ended):
        return
    # The group includes the guard. Descendants that left the group are found below on Linux.
    os.killpg(0, signal.SIGTERM)  # the guard itself ignores it
    if _wait_until(server.all_ended):
        return
    while _IS_LINUX and not server.all_ended():  # orphans of any group are re-parented to this process
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123 - starts faster
        return [int(pid) for pid in file.read().split()]


def main(most: str, *command: str) -> None:
    """Run the command of an MCP server until it ends or the guard's input is closed. Then end all processes that it has
    started.

    `most` is the maximum size of one message in bytes, as text.
    """
    # A group of its own: signals to the group reach the server, but not divebook.
    if os.getpgrp() != os.getpid():
        os.setsid()
    # Orphaned descendants become children of the guard instead of process 1, so that it can find them.
    if _IS_LINUX:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    # SIGCHLD writes into this pipe, so that one poll waits for output, input and the end of the server.
    child_ended, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    server = _Server(list(command))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # set after the fork, so the server keeps the defaults
    reason = ""
    try:
        reason = _watch(server, int(most), child_ended)
    except BrokenPipeError:  # divebook was killed, or has closed the connection
        pass
    finally:
        _end(server)
        # Not blocking: a descendant may keep the pipe open without ever writing to it.
        os.set_blocking(server.err, False)
        try:
            while server.read_error_output():
                pass
        except BlockingIOError:  # an invisible process still holds the pipe
            pass
        reason = reason or (f"it ended with code {server.code}" if server.code else "")
        os.write(_ERR, b"; ".join(filter(None, [reason.encode(), server.last_words])))
        if not _IS_LINUX:
            os.killpg(0, signal.SIGKILL)  # remaining processes of the group, including the guard


if __name__ == "__main__":
    main(*sys.argv[1:])
