"""The owner of a lease: one process of one machine, distinguished from a later process with the same number.

A process number is used again, so its start time belongs to it; both mean something only inside one start of one
machine and one container, which is what `Owner.boot` names.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that drives executions.

    Examples
    --------
    >>> Owner.current().has_died()
    False
    """

    host: str
    pid: int
    started: int
    """When the process began, in the kernel's clock ticks since the machine's start; 0 if that is not known."""
    name: str
    """For people: the program."""
    boot: str = ""
    """The start of the machine, and the container, that `pid` and `started` belong to; empty if unknown."""

    @classmethod
    def current(cls, name: str | None = None) -> Self:
        """Return this process, under the name of its program unless another is given."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _own_start(pid), name or _program(sys.argv[0]), this_boot())

    def is_same_process(self, other: Owner) -> bool:
        """Return whether two owners are one process, whatever they are called."""
        return (self.host, self.pid, self.started, self.boot) == (other.host, other.pid, other.started, other.boot)

    def has_died(self) -> bool:
        """Return whether the process is certainly gone; False for one that cannot be seen from here."""
        here = this_boot()
        if self.host != socket.gethostname():
            return False
        if self.boot == here:
            return not _runs(self.pid, self.started)
        return self.boot.split()[:1] != here.split()[:1] and bool(self.boot and here)  # the machine was started anew


class _ThisProcess:
    """The number of this process: to ask for it takes a call of the system, and stores ask with every call."""

    def __init__(self) -> None:
        self._look()
        if hasattr(os, "register_at_fork"):  # where there is fork
            os.register_at_fork(after_in_child=self._look)

    def _look(self) -> None:
        self.number = os.getpid()


THIS_PROCESS = _ThisProcess()


@lru_cache(maxsize=1)
def this_boot() -> str:
    """Return what tells this start of this machine, and this container, from any other."""
    try:
        machine = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{machine} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _program(command: str) -> str:
    return Path(command).name or "python"


@lru_cache(maxsize=1)
def _own_start(pid: int) -> int:  # the parameter makes a forked process look again
    found = _state_and_start(pid)
    return found[1] if found else 0


def _runs(pid: int, started: int) -> bool:
    found = _state_and_start(pid)
    if found is None:
        return _answers(pid)
    state, start = found
    return state not in "ZX" and started in (0, start)  # Z, X: dead, but its parent has not asked yet


def _state_and_start(pid: int) -> tuple[str, int] | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the program's name, in brackets, may hold anything
    return fields[0], int(fields[19])


def _answers(pid: int) -> bool:
    # Processes of other users may be hidden in /proc, but still answer. On Windows, the question would end them.
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
