"""What it costs to record the turn of an agent: processor time of a request, and bytes of the log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pydantic_ai
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

from benchmarks.figure import Figure
from benchmarks.worlds import STORES, Kind, make_store, opened
from divebook import Agent, Environment, Step, Workflow
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.tools import ToolFunction
from divebook.stores import EventStore

CALLS = (20, 200)
TOOLS = 10
ROUNDS = 7
MOST_MS, MOST_KB = 1.0, 25.0
ASKED = {"text": "word"}
TEXT = "some words of a page that was found " * 10
ASK = Workflow("ask", [Step("ask", prompt="go", agent="a", store="said")])


def turns() -> Iterator[Figure]:
    """Processor time of a request and its call over the same agent without divebook; bytes of a turn beside texts."""
    for calls in CALLS:
        plain = least(partial(plainly, calls))
        for kind in STORES[:2]:
            recorded = least(partial(durably, calls, kind))
            value = 1000 * (recorded - plain) / (calls + 1)
            details = {
                "ms of it all": f"{1000 * recorded / (calls + 1):.2f}",
                "without": f"{1000 * plain / (calls + 1):.2f}",
            }
            yield Figure(f"recording a request, turn of {calls} calls", kind, value, "ms", MOST_MS, details=details)
    rows, file = kilobytes(20)
    details = {"kB of the file": f"{file:.1f}"}
    yield Figure("a turn of 20 calls in the log", "relaxed", rows, "kB", MOST_KB, details=details)


def least(measured: Callable[[], float]) -> float:
    """Return the least of several rounds."""
    return min(measured() for _ in range(ROUNDS))


def model(calls: int) -> FunctionModel:
    """Make a model that calls a tool so often, once a request."""

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        number = (len(messages) - 1) // 2
        if number >= calls:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("tool_0", dict(ASKED), tool_call_id=f"call_{number:019}")])

    return FunctionModel(answer)


async def found(text: str, limit: int = 5) -> str:
    """Find passages in the papers that a person has read.

    Args:
        text: What to look for.
        limit: How many passages at most.
    """
    return TEXT if text and limit else ""


def plainly(calls: int) -> float:
    """Return the processor time that the turn takes on pydantic-ai alone."""
    tools = [pydantic_ai.Tool(found, name=f"tool_{number}", takes_ctx=False) for number in range(TOOLS)]
    agent = pydantic_ai.Agent(model(calls), name="a", instructions="Be good.", tools=tools)
    began = time.process_time()
    result = asyncio.run(agent.run("go", usage_limits=UsageLimits(request_limit=None)))
    assert result.output == "done"
    return time.process_time() - began


def durably(calls: int, kind: Kind) -> float:
    """Return the processor time that the turn takes in a workflow."""
    with opened(kind) as store, environment(calls, store) as world:
        began = time.process_time()
        execution = world.start(ASK).wait(check=True)
        assert execution.variables == {"said": "done"}
        return time.process_time() - began


def environment(calls: int, store: EventStore) -> Environment:
    """Make an environment with an agent that makes so many calls."""
    definition = AgentDefinition("a", instructions="Be good.", tool_iteration_limit=calls + 1)
    tools = [ToolFunction(f"tool_{number}", found, found.__doc__ or "") for number in range(TOOLS)]
    return Environment(store=store, agents=[Agent(definition, model=model(calls), tools=tools)])


def kilobytes(calls: int) -> tuple[float, float]:
    """Return what the rows of a turn hold beside its texts, and how much larger the file becomes by its execution.

    It is not the first turn of the store: that has left there what is kept once. Texts are the prompt, the answer, and
    what each call was given and has returned: each once.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        sizes = [size_after(path, calls, runs) for runs in (10, 20)]
        rows = turn_rows(path)
    given = json.dumps({**ASKED, "limit": 5}, separators=(",", ":"))
    texts = len("go") + len("done") + calls * (len(TEXT) + len(given))
    return (sum(map(len_of_row, rows)) - texts) / 1000, ((sizes[1] - sizes[0]) / 10 - texts) / 1000


def turn_rows(path: Path) -> list[tuple[Any, ...]]:
    """Return the rows of the latest execution of a file that tell of its turn: from its beginning to its end."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        query = "SELECT * FROM events WHERE place >> 32 = (SELECT max(place) >> 32 FROM events) ORDER BY place"
        rows = database.execute(query).fetchall()
    (data,) = (number for number, value in enumerate(rows[-1]) if isinstance(value, str) and value.startswith("{"))
    told = [number for number, row in enumerate(rows) if "agent_turn" in row[data]]
    return rows[told[0] : told[-1] + 1]


def len_of_row(row: tuple[Any, ...]) -> int:
    """Return how many bytes the values of a row take."""
    return sum(map(len_of_value, row))


def len_of_value(value: Any) -> int:
    """Return how many bytes a value takes in the form in which SQLite writes it."""
    if isinstance(value, int):
        return (value.bit_length() + 8) // 8
    return len(value.encode() if isinstance(value, str) else value or b"")


def size_after(path: Path, calls: int, runs: int) -> int:
    """Return the size of a file of so many runs."""
    path.unlink(missing_ok=True)
    with make_store("relaxed", path) as store, environment(calls, store) as world:
        for _ in range(runs):
            world.start(ASK).wait(check=True)
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))
