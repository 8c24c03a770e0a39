"""Running: ``shell``, with output that an agent can take in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from divebook.errors import ShellExecutionError, ShellTimeoutError, WorkspaceError
from divebook.workspace.files import FileOperator
from divebook.workspace.shell import Shell

MOST_CHARACTERS = 20_000
TIMEOUT = 180.0


async def shell(  # noqa: PLR0917 - a model gives them by name
    runs: Shell,
    files: FileOperator | None,
    command: str,
    timeout_seconds: float = TIMEOUT,
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> dict[str, Any]:
    """Run a command; what it printed and how it ended is told, and where the whole is of what is too long."""
    if not command.strip():
        return _failed("the command is empty")
    try:
        found = await runs.execute(command, timeout=timeout_seconds, env=environment, cwd=cwd)
    except ShellTimeoutError as error:
        said = {"stdout": error.stdout, "stderr": error.stderr}
        return _failed(str(error)) | await _cut(files, said)
    except (ShellExecutionError, WorkspaceError, ValueError) as error:
        return _failed(str(error))
    said = {"stdout": found.stdout, "stderr": found.stderr}
    wholes = {"stdout": found.stdout_file, "stderr": found.stderr_file}
    told = await _cut(files, said, wholes)
    return {**told, "return_code": found.exit_code}


def _failed(why: str) -> dict[str, Any]:
    return {"stdout": "", "stderr": "", "return_code": 1, "error": why}


async def _cut(
    files: FileOperator | None, said: Mapping[str, str], wholes: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """Return what was said, cut where it is long, with the paths of files that have it whole."""
    told: dict[str, Any] = {}
    for name, text in said.items():
        path = (wholes or {}).get(name)
        is_long = len(text) > MOST_CHARACTERS
        if is_long and path is None and files is not None and files.tmp_dir is not None:  # no shell has kept it
            path = await files.write_tmp_file(f"{name}-{uuid.uuid4().hex[:8]}.log", text)
        told[name] = text if not is_long else f"{text[:MOST_CHARACTERS]}\n... (truncated)"
        if path is not None:
            told[f"{name}_file_path"] = path
    return told
