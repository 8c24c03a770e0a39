"""What an environment uses of this machine: its processes, which bear its mark, and its folders."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from divebook.text.shown import size

MARK = "DEV_ENV_ID"
"""The variable of all commands of an environment; its value is the environment's id."""
_SAMPLE = 0.1
_LONGEST = 5.0


class ResourceUsage(NamedTuple):
    """What an environment uses now."""

    cpu_percent: float
    """100 is one core."""
    memory_bytes: int
    disk_bytes: int

    def shown(self) -> dict[str, str]:
        """Return it as people read it; 1 MB is 10^6 bytes."""
        return {
            "cpu": f"{self.cpu_percent:.1f}%",
            "memory": size(self.memory_bytes),
            "disk": size(self.disk_bytes),
        }

    def told(self) -> dict[str, Any]:
        """Return it as people and programs read it."""
        return {
            **self.shown(),
            "cpu_percent": round(self.cpu_percent, 1),
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
        }


def marked_processes(environment_id: str) -> list[Any]:
    """Return the live processes of an environment's commands."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == environment_id and process.pid != os.getpid():
                found.append(process)
        except (psutil.Error, OSError):  # it is gone, or somebody else's
            continue
    return found


def use_of_processes(environment_id: str) -> tuple[float, int]:
    """Return percents of a core, measured for a moment, and bytes of memory."""
    import psutil

    processes = marked_processes(environment_id)
    began, before = time.monotonic(), _times(processes)
    if processes:
        time.sleep(_SAMPLE)
    spent, memory = _times(processes) - before, 0
    for process in processes:
        try:
            memory += process.memory_info().rss
        except psutil.Error:
            continue
    return (100 * max(0.0, spent) / (time.monotonic() - began) if processes else 0.0), memory


def _times(processes: Iterable[Any]) -> float:
    import psutil

    total = 0.0
    for process in processes:
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.Error:
            continue
    return total


def end_processes(environment_id: str) -> None:
    """End all commands of an environment, and wait until they are gone."""
    import psutil

    while found := marked_processes(environment_id):
        for process in found:
            try:
                process.kill()
            except psutil.Error:
                continue
        _, alive = psutil.wait_procs(found, timeout=1)
        if {process.pid for process in alive} == {process.pid for process in found}:
            return  # they are stuck in the kernel, which nobody can end


def size_of(folder: Path) -> int:
    """Return the bytes of the files below a folder; what is counted within five seconds, of a huge one."""
    total, limit = 0, time.monotonic() + _LONGEST
    folders = [str(folder)]
    while folders and time.monotonic() < limit:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # it went meanwhile, or may not be read
            continue
    return total
