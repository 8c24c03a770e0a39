"""Identity of processes: whether a process that was seen earlier still runs, and whether this one is a kernel.

The system reuses process numbers, so the start time belongs to the identity of a process. It is counted in ticks since
the start of the machine, because a clock that is set back or forth would change a time of day. Both numbers are unique
only within one start of one machine and one container, which `this_boot` identifies.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path

_PROC = Path("/proc")


def is_kernel() -> bool:
    """Return whether this process is the kernel of a notebook. A process that has only imported a kernel's library,
    such as one that starts kernels, is none.
    """
    # Scripts do not import IPython, and this function must not do it for them.
    ipython = sys.modules.get("IPython.core.getipython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


@lru_cache(maxsize=1)
def this_boot() -> str:
    """Return an identifier of the machine's current boot and of the container of this process; empty if the operating
    system provides none.
    """
    try:
        machine = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{machine} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def start_of(pid: int) -> int:
    """Return the start time of a process, in the kernel's clock ticks since the start of the machine; 0 if it has ended
    or the operating system provides none.
    """
    status = _state_and_start(pid)
    return status[1] if status else 0


def is_running(pid: int, started: int) -> bool:
    """Return True if the process with this number and start time still runs. If `started` is 0 (unknown), the number
    alone counts.
    """
    status = _state_and_start(pid)
    # The process does not exist, /proc hides it, or the system has none.
    if status is None:
        return _accepts_signals(pid)
    state, start = status
    return state not in "ZX" and started in (0, start)  # Z, X: dead, but its parent has not waited for it yet


def _state_and_start(pid: int) -> tuple[str, int] | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The state is field 3 of the file, with which `fields` begins, and the start time is field 22.
    fields = stat.rpartition(")")[2].split()  # the program's name, in brackets, may contain anything
    return fields[0], int(fields[19])


def _accepts_signals(pid: int) -> bool:
    # Processes of other users may be hidden in /proc, but still accept signal 0. On Windows, that would end them.
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
