"""An agent at work in the process that is killed: twenty calls of tools, four at a time.

Two of them wait for a person, two are made by an MCP server (`tests.kill.server`), eight are those of a subordinate,
and some may be repeated.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from divebook import Agent, Run, ScriptedModel, Step, Workflow
from divebook.definitions.servers import MCPServerDefinition, ToolConfigurationDefinition
from divebook.definitions.tools import ToolFunction, tool

BOSS, CLERK, FILING = "boss", "clerk", "filing"
WORKFLOW = Workflow("agent", [Step("turn", prompt="Pay all bills", agent=BOSS, store="said")], outputs=["said"])
SERVED = {"file-1", "find-1"}
"""Labels of calls that the server counts."""
REPEATABLE = {f"look-{number}" for number in range(1, 7)} | {"find-1"}
"""Labels of calls that are simply made again where their outcome is not known."""


def calls(*labels: str) -> list[dict[str, Any]]:
    """Return calls side by side; what is in front of a label's number is the tool."""
    return [{"call": {label.partition("-")[0]: {"label": label}}} for label in labels]


WORK = {"agent": CLERK, "name": "count", "description": "Count the bills", "expected_output": "how many"}
BOSS_SCRIPT: list[Any] = [
    calls("pay-1", "note-1", "pay-2", "look-1"),
    calls("note-2", "file-1", "look-2", "find-1"),
    {"call": {"assign_work": WORK}},
    calls("note-3", "note-4", "look-3"),
    "all is paid",
]
CLERK_SCRIPT: list[Any] = [
    calls("note-5", "look-4", "note-6", "look-5"),
    calls("note-7", "note-8", "look-6", "note-9"),
    "eight",
]


def agents(count: Callable[[str], int]) -> list[Agent]:
    """Return the agents, whose tools count their calls."""
    tools = tools_of(count)
    boss = Agent(BOSS, model=ScriptedModel(BOSS_SCRIPT), tools=tools, subordinates=[CLERK], servers=[FILING])
    return [boss, Agent(CLERK, model=ScriptedModel(CLERK_SCRIPT), tools=tools[1:])]


def server(calls: Path) -> MCPServerDefinition:
    """Return the server, which counts its calls in a file."""
    unasked = ToolConfigurationDefinition(approval_mode="never")
    args = ("-m", "tests.kill.server", str(calls))
    return MCPServerDefinition(
        FILING, "stdio", command=sys.executable, args=args, trusted=True, tool_configuration=unasked
    )


def tools_of(count: Callable[[str], int]) -> list[ToolFunction]:
    """Return tools that count their calls."""

    @tool(approval=True)
    async def pay(label: str) -> str:
        """Pay a bill."""
        count(label)
        return f"{label} is paid"

    @tool
    async def note(label: str) -> str:
        """Note something."""
        count(label)
        await asyncio.sleep(0.001)
        return f"{label} is noted"

    @tool(idempotent=True)
    async def look(label: str) -> str:
        """Look something up."""
        count(label)
        await asyncio.sleep(0.001)
        return f"{label} is there"

    return [pay, note, look]


def heard(execution: Run) -> Any:
    """Return what each request was made with, results of calls included, and by whom."""
    requests = execution.requests
    return [[request.agent, request.n, [*map(_without_time, request.messages)]] for request in requests]


def _without_time(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "timestamp"}
