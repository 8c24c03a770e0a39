"""``python -m tests.kill.server CALLS``: the MCP server of the agent that is killed; it counts in the file CALLS.

It does all that it can to stay: it ignores the end of its input and SIGTERM, and has started what has left its group.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from tests.kill.counting import write_down

server = MCPServer("filing")


@server.tool()
async def file(label: str) -> str:
    """File something."""
    return await _counted(label, "filed")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
async def find(label: str) -> str:
    """Find something."""
    return await _counted(label, "found")


async def _counted(label: str, outcome: str) -> str:
    write_down(Path(sys.argv[1]), label)
    await asyncio.sleep(0.005)  # which is long enough to be killed in
    return f"{label} is {outcome}"


def stay() -> None:
    """Do nothing, whatever comes."""
    while True:
        signal.pause()


def main() -> None:
    """Serve, and stay."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay()
        os._exit(0)
    server.run("stdio")
    stay()


if __name__ == "__main__":
    main()
