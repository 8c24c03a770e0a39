"""The process that runs one job: it is told on its input what to do, and its output is that of the command."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

from divebook.devenv.jobs import BEGUN, ENDED, began_at
from divebook.devenv.manager import DevEnvManager
from divebook.devenv.templates import write_json
from divebook.errors import DivebookError


async def run(manager: DevEnvManager, asked: dict[str, Any]) -> dict[str, Any]:
    """Run the command; return its exit code, None where it has none, and what went wrong."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is one
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        ended = await manager.execute(
            asked["name"],
            asked["command"],
            timeout=asked["timeout"] or math.inf,
            environ=asked["environ"],
            cwd=asked["cwd"],
            listen=hand_on,
            user=asked["user"],
            undecodable="surrogateescape",
        )
    except asyncio.CancelledError:
        return {"exit_code": None, "error": "it was killed"}
    except DivebookError as error:
        os.write(2, f"dev_env: {error}\n".encode(errors="replace"))
        return {"exit_code": None, "error": str(error)}
    return {"exit_code": ended.exit_code, "error": None}


def hand_on(stream: str, text: str) -> None:
    """Write what a command prints, byte by byte as it came."""
    data = text.encode(errors="surrogateescape")
    while data:
        data = data[os.write(2 if stream == "stderr" else 1, data) :]


def main() -> None:
    """Do what comes as JSON, in a process that this one does not wait for."""
    asked = json.load(sys.stdin)
    os.close(0)
    folder = Path(asked["folder"])
    child = os.fork()
    if child:
        write_json(folder / BEGUN, {**asked["job"], "pid": child, "began": began_at(child)})
        return
    manager = DevEnvManager(Path(asked["root"]), asked["tenant"], asked["owner"], log_format=asked["log_format"])
    ended = asyncio.run(run(manager, asked))
    if folder.is_dir():  # else the environment was destroyed, and the job with it
        write_json(folder / ENDED, {**ended, "ended_at": manager.now()})


if __name__ == "__main__":
    main()
