"""Program that runs one background job of an environment. It reads the description of the job as JSON from stdin and
forwards the output of the job's command.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

from divebook.devenv.jobs import ENDED, STARTED, process_fields
from divebook.devenv.manager import DevEnvManager
from divebook.devenv.templates import write_json
from divebook.errors import DivebookError


async def run(manager: DevEnvManager, request: dict[str, Any]) -> dict[str, Any]:
    """Run the command of a background job. Return the fields to write into the job's record: the exit code (None if the
    command did not exit), and an error.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is one
    # `Jobs.kill` sends SIGTERM. `execute` ends the command with all its processes when it is cancelled.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        result = await manager.execute(
            request["name"],
            request["command"],
            timeout=math.inf if request["timeout"] is None else request["timeout"],
            environ=request["environ"],
            cwd=request["cwd"],
            listen=forward_output,
            user=request["user"],
            undecodable="surrogateescape",
        )
    except asyncio.CancelledError:
        return {"exit_code": None, "error": "the job was killed"}
    except DivebookError as error:
        os.write(2, f"dev_env: {error}\n".encode(errors="replace"))
        return {"exit_code": None, "error": str(error)}
    return {"exit_code": result.exit_code, "error": None}


def forward_output(stream: str, text: str) -> None:
    """Write a piece of the output of the job's command to stdout or stderr, byte for byte."""
    data = text.encode(errors="surrogateescape")
    while data:
        data = data[os.write(2 if stream == "stderr" else 1, data) :]


def main() -> None:
    """Read the description of a job and run the job in a forked child process. This process returns at once, so that
    the caller need not wait.
    """
    request = json.load(sys.stdin)
    os.close(0)
    folder = Path(request["folder"])
    # The parent records the process id of the child and returns; the child runs the command.
    child = os.fork()
    if child:
        write_json(folder / STARTED, {**request["job"], **process_fields(child)})
        return
    manager = DevEnvManager(
        Path(request["root"]), request["tenant"], request["owner"], log_format=request["log_format"]
    )
    result = asyncio.run(run(manager, request))
    if folder.is_dir():  # otherwise the environment was destroyed meanwhile
        write_json(folder / ENDED, {**result, "ended_at": manager.now()})


if __name__ == "__main__":
    main()
