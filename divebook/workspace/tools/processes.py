"""Processes that go on beside others: ``spawn_process``, ``read_process_output`` and what else is done with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from divebook.errors import ProcessIdError, WorkspaceError
from divebook.workspace.processes import BackgroundProcess, OutputLine, ProcessManager

MOST_LINES = 100
LONGEST_WAIT = 60.0
"""Seconds that one call may wait for output."""
_INTERRUPTED = "; processes end when the run rests or is interrupted: start it again if it is needed"


async def spawn(
    manager: ProcessManager,
    command: str,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
    *,
    takes_input: bool = False,
) -> dict[str, Any]:
    """Start a command that goes on; what it is called is told."""
    if not command.strip():
        return _failed("the command is empty")
    try:
        argv = ["-c", command]
        process = await manager.spawn("/bin/sh", argv, env=environment, cwd=cwd, takes_input=takes_input)
    except (WorkspaceError, ValueError) as error:
        return _failed(str(error))
    return _told(process)


async def read(
    manager: ProcessManager, process_id: str, wait_seconds: float = 0.0, max_lines: int = MOST_LINES
) -> dict[str, Any]:
    """Return what a process has printed since the last call; wait for it a while where there is nothing."""
    if not (math.isfinite(wait_seconds) and max_lines > 0):
        return _failed("wait_seconds must be a number of seconds, and max_lines 1 or more")
    try:
        process = manager.require(process_id)
    except ProcessIdError as error:
        return _failed(f"{error}{_INTERRUPTED}")
    lines = await process.next_output(min(wait_seconds, LONGEST_WAIT), max_lines)
    told = {**_told(process), "stdout": _text(lines, is_error=False), "stderr": _text(lines, is_error=True)}
    return {**told, "dropped_lines": process.dropped_lines} if process.dropped_lines else told


def write(manager: ProcessManager, process_id: str, text: str, *, is_last: bool = False) -> dict[str, Any]:
    """Give a process something to read."""
    try:
        process = manager.require(process_id)
        process.write_input(text, is_last=is_last)
    except ProcessIdError as error:
        return _failed(f"{error}{_INTERRUPTED}")
    except WorkspaceError as error:
        return _failed(str(error))
    return _told(process)


async def kill(manager: ProcessManager, process_id: str) -> dict[str, Any]:
    """End a process with all that it has started."""
    try:
        process = manager.require(process_id)
    except ProcessIdError as error:
        return _failed(f"{error}{_INTERRUPTED}")
    was_running = await process.kill()
    return {**_told(process), "was_running": was_running}


def listed(manager: ProcessManager) -> list[dict[str, Any]]:
    """Return all processes that are known, and how each is."""
    return [_told(process) for process in manager.list()]


def _told(process: BackgroundProcess) -> dict[str, Any]:
    command = process.command[-1] if process.command[:2] == ("/bin/sh", "-c") else " ".join(process.command)
    told: dict[str, Any] = {"process_id": process.process_id, "command": command, "status": process.status}
    return told | ({} if process.exit_code is None else {"return_code": process.exit_code})


def _text(lines: Sequence[OutputLine], *, is_error: bool) -> str:
    return "".join(f"{line.text}\n" for line in lines if line.is_error is is_error)


def _failed(why: str) -> dict[str, Any]:
    return {"error": why}
