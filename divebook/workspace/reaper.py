"""Helper process between a workspace and its commands: whatever a command starts is a descendant of it.

    python -I -S reaper.py SOCKET

It waits for commands, forks a reaper for each, and ends with its socket, or with the process that started it. A reaper
tells how its command ended as soon as that has. The end of what a reaper can read from its control socket, which the
workspace closed or lost with its process, means: end everything, wherever it fled to. So does its end after the command
has ended, unless the workspace has said that it knows: a command that floods its output ends of itself when nobody
reads on (test_nothing_survives_a_reader_that_goes).

What an ended command leaves in the background may live on as long as the workspace: its reaper ends, and the helper
adopts it. When the helper ends, it ends all of that first (test_nothing_in_the_background_survives_its_workspace).

It is tidiness and no fence: a command may kill its reaper and the helper. It is run by path, and so imports nothing of
ours.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

GRACE = 0.5
"""Seconds between being asked to end and being killed."""
PATIENCE = 10.0
"""Seconds after which processes that cannot be killed are left."""
KNOWN = b"k"
"""What a workspace says that has heard of the end of its command, and lets live on what that has left."""
READY = b"ready"
"""What it says first: it has been found, and can be run here."""
_SET_CHILD_SUBREAPER = 36
_MOST_FDS = 5
_GONE = (ProcessLookupError, PermissionError)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def _below(pid: int) -> set[int]:
    found: set[int] = set()
    left = _children(pid)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += _children(one)
    return found


def _has_children() -> bool:
    """Take note of children that have ended; return whether any is left."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                return True
        except ChildProcessError:
            return False


def _end_all(group: int | None) -> None:
    """End a group of processes, if it still is one, and then all others that came from it."""
    if group is not None:
        for number, wait in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 0.0)):
            with suppress(OSError):
                os.killpg(group, number)
            limit = time.monotonic() + wait
            while time.monotonic() < limit and _has_children():
                time.sleep(0.005)
    limit = time.monotonic() + PATIENCE
    while _has_children() and time.monotonic() < limit:
        stopped: set[int] = set()
        while fresh := _below(os.getpid()) - stopped:  # nothing forks between being seen and being ended
            for pid in fresh:
                with suppress(*_GONE):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= fresh
        for pid in stopped:
            with suppress(*_GONE):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _ended(command: int) -> int | None:
    """Take note of children that have ended, orphans that came here too; return the status of the command if it has."""
    status = None
    while True:
        try:
            found, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if found == 0:
            return status
        if found == command:
            status = code


def _adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _watch(control: socket.socket, argv: list[bytes], environ: dict[bytes, bytes]) -> None:
    _adopt_orphans()
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    usual = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
    try:
        command = os.posix_spawnp(argv[0], argv, environ, setsid=True, setsigdef=usual)
    except OSError as error:
        control.send(f"error {error.errno}\n".encode())
        return
    control.send(f"pid {command}\n".encode())
    for standard in (0, 1, 2):  # the end of a stream is the command's business
        os.close(standard)
    status = None
    while status is None:
        ready, _, _ = select.select([control.fileno(), wake_read], [], [])
        if control.fileno() in ready:
            _end_all(command)
            break
        os.read(wake_read, 512)
        status = _ended(command)
    with suppress(OSError):
        control.send(f"status {status}\n".encode() if status is not None else b"ended\n")
    if status is not None and not _is_known(control):
        _end_all(None)


def _is_known(control: socket.socket) -> bool:
    """Return whether the workspace says that it knows of the end of a command."""
    try:
        return control.recv(1) == KNOWN
    except OSError:
        return False


def _carry_out(fds: list[int]) -> None:
    """Run one command; its descriptors come without close-on-exec, and it could say its own status."""
    for end in fds:
        os.set_inheritable(end, False)  # noqa: FBT003 - as it is called
    request, given, out, err, control = fds
    with open(request, "rb") as file:
        asked = json.load(file)
    for end, standard in ((given, 0), (out, 1), (err, 2)):
        os.dup2(end, standard)
        os.close(end)
    with socket.socket(fileno=control) as told:
        try:
            os.chdir(asked["cwd"])
        except OSError as error:
            told.send(f"cwd {error.errno}\n".encode())
            return
        environ = {os.fsencode(name): os.fsencode(value) for name, value in asked["environ"].items()}
        _watch(told, [os.fsencode(part) for part in asked["argv"]], environ)


def _parent_descriptor() -> list[int]:
    """Return a descriptor that is readable once the parent has ended; none where the system has no such thing.

    The end of the socket alone does not tell: a process that the parent has forked holds its end open.
    """
    try:
        return [os.pidfd_open(os.getppid())]
    except (AttributeError, OSError):  # in a fence the parent may be outside of the namespace
        return []


def serve(commands: socket.socket) -> None:
    """Fork a reaper for each command that comes, until the socket or the parent ends; then end what is left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _adopt_orphans()
    sources = [commands.fileno(), *_parent_descriptor()]
    commands.send(READY)
    while True:
        ready, _, _ = select.select(sources, [], [])
        if commands.fileno() not in ready:
            _end_all(None)
            return
        said, fds, _, _ = socket.recv_fds(commands, 16, _MOST_FDS)
        if not said:
            _end_all(None)
            return
        if os.fork() == 0:
            try:
                commands.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                _carry_out(fds)
            finally:
                os._exit(0)
        for end in fds:
            os.close(end)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
