"""Helper program of a shell: starts each command and can end all processes that the command has started.

    python -I -S reaper.py SOCKET

The processes::

    workspace (this Python)
      helper                one for each workspace; waits for commands on its socket
        reaper              one for each command; forked by the helper
          command
            whatever the command starts, also in a new session

Reaper and helper are "child subreapers": Linux gives them every descendant whose own parent has ended. A process that
leaves its session or loses its parent therefore still is a descendant, and can be found below ``/proc`` and ended.

A reaper reports the end of its command at once. It ends everything when its control socket is closed: the workspace
closed it, or the process of the workspace has ended. That also holds after the end of the command, unless the workspace
has answered that it has received the report: a command that floods its output ends by itself when its output is not
read any more (test_nothing_survives_a_reader_that_goes).

Processes that an ended command leaves in the background may live as long as the workspace: their reaper ends, and the
helper adopts them. The helper ends with its socket or with the process that started it, and first ends all adopted
processes (test_nothing_in_the_background_survives_its_workspace).

This is not a security boundary: a command may kill its reaper and the helper. The file is run by its path and so
imports nothing of divebook.
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
"""Seconds between SIGTERM and SIGKILL."""
PATIENCE = 10.0
"""Seconds after which processes that cannot be killed are given up."""
END_CONFIRMED = b"k"
"""Reply of the workspace to the report that a command has ended. Background processes may then continue."""
READY = b"ready"
"""First message of the helper to the workspace: it can run commands."""
# PR_SET_CHILD_SUBREAPER of ``<sys/prctl.h>``.
_SET_CHILD_SUBREAPER = 36
_MOST_FDS = 5
# The process has ended, or runs as another user.
_KILL_ERRORS = (ProcessLookupError, PermissionError)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):
        # Linux lists children by the thread that has started them.
        for task in os.listdir(f"/proc/{pid}/task"):
            children += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return children


def _below(pid: int) -> set[int]:
    descendants: set[int] = set()
    queue = _children(pid)
    while queue:
        process = queue.pop()
        if process not in descendants:
            descendants.add(process)
            queue += _children(process)
    return descendants


def _has_children() -> bool:
    """Remove ended child processes of this process from the system (reap them). Return True if any child is still
    running.
    """
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                return True
        except ChildProcessError:
            return False


def _end_all(group: int | None) -> None:
    """End the process group of a command, and then all other descendants of this process. If `group` is None, end only
    the descendants.

    The group gets SIGTERM and, after `GRACE` seconds, SIGKILL. Other descendants are stopped before they are killed,
    until a round finds no new one: a running process could start another between the look into ``/proc`` and its end.
    """
    # The process group of the command gets a chance to end by itself.
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
        while new_processes := _below(os.getpid()) - stopped:
            # Stopped processes cannot start others. When no round finds a new one, all can be killed.
            for pid in new_processes:
                with suppress(*_KILL_ERRORS):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= new_processes
        for pid in stopped:
            with suppress(*_KILL_ERRORS):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _reap(command: int) -> int | None:
    """Remove ended child processes of this process from the system, including adopted orphans. Return the wait status
    of the process `command` if it was one of them.

    Return None while the command runs.
    """
    status = None
    while True:
        try:
            process, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if process == 0:
            return status
        if process == command:
            status = code


def _adopt_orphans() -> None:
    """Make this process the parent of each of its descendants whose own parent ends, so that no descendant is lost."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _watch(control: socket.socket, argv: list[bytes], environ: dict[bytes, bytes]) -> None:
    """Start a command, and report its end to the workspace. Then end its processes, except background processes that
    may continue.

    Blocks until the command ends or the control socket is closed. In the latter case all processes are ended.
    """
    _adopt_orphans()
    # SIGCHLD writes into this pipe, so that one select waits for the command and for the control socket.
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Python and the helper ignore these signals. A command would inherit that.
    defaults = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
    try:
        command = os.posix_spawnp(argv[0], argv, environ, setsid=True, setsigdef=defaults)
    except OSError as error:
        control.send(f"error {error.errno}\n".encode())
        return
    control.send(f"pid {command}\n".encode())
    for standard in (0, 1, 2):  # otherwise the streams would stay open after the command has closed them
        os.close(standard)
    status = None
    while status is None:
        ready, _, _ = select.select([control.fileno(), wake_read], [], [])
        if control.fileno() in ready:
            # The other side was closed: end the command with everything that it has started.
            _end_all(command)
            break
        # The bytes only wake the select. One read may stand for several children.
        os.read(wake_read, 512)
        status = _reap(command)
    with suppress(OSError):
        control.send(f"status {status}\n".encode() if status is not None else b"ended\n")
    if status is not None and not _is_confirmed(control):
        _end_all(None)


def _is_confirmed(control: socket.socket) -> bool:
    """Return True if the workspace answers that it has received the report about the command's end. Return False if the
    workspace is gone.
    """
    try:
        return control.recv(1) == END_CONFIRMED
    except OSError:
        return False


def _run_command(fds: list[int]) -> None:
    """Run one command. `fds` are five file descriptors: a file with the command's arguments, its stdin, stdout and
    stderr, and the control socket to the workspace.

    Its descriptors arrive without close-on-exec, and the command must not inherit the control socket.
    """
    for end in fds:
        os.set_inheritable(end, False)  # noqa: FBT003 - as it is called
    request, stdin, out, err, control = fds
    with open(request, "rb") as file:
        message = json.load(file)
    for end, standard in ((stdin, 0), (out, 1), (err, 2)):
        os.dup2(end, standard)
        os.close(end)
    with socket.socket(fileno=control) as reports:
        try:
            os.chdir(message["cwd"])
        except OSError as error:
            reports.send(f"cwd {error.errno}\n".encode())
            return
        environ = {os.fsencode(name): os.fsencode(value) for name, value in message["environ"].items()}
        _watch(reports, [os.fsencode(part) for part in message["argv"]], environ)


def _parent_descriptor() -> list[int]:
    """Return a list with a descriptor that becomes readable when the parent process ends. Return an empty list if the
    system has no such descriptors.

    The end of the socket is not enough: a process that the parent has forked holds its end open.
    """
    try:
        return [os.pidfd_open(os.getppid())]
    except (AttributeError, OSError):  # in a fence the parent may be outside of the namespace
        return []


def serve(commands: socket.socket) -> None:
    """Run the helper process: for each command that arrives on the socket `commands`, fork a reaper that runs it.
    Return when the socket is closed or the parent process ends.

    All remaining processes are ended at the end.
    """
    # Ctrl-C is for the workspace, which then closes the socket. Ignored SIGCHLD lets the kernel remove ended children.
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
        message, fds, _, _ = socket.recv_fds(commands, 16, _MOST_FDS)
        if not message:
            _end_all(None)
            return
        # The child becomes the reaper of this command. It must not keep the command socket open.
        if os.fork() == 0:
            try:
                commands.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                _run_command(fds)
            finally:
                os._exit(0)
        # The child has its own copies. A copy that stays open here would hide the end of the output.
        for end in fds:
            os.close(end)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
