"""What is measured: stores, actions and workflows."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Literal

from divebook import Each, Environment, Run, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.steps.actions import Action
from divebook.stores import EventStore, MemoryStore, SqliteStore

Kind = Literal["memory", "relaxed", "full"]
STORES: tuple[Kind, ...] = ("memory", "relaxed", "full")
"""In memory, SQLite that survives the process, SQLite that survives the machine."""
PAUSE = 0.05
KILOBYTE = "0123456789abcdef" * 64


async def one() -> int:
    """Do nothing: the cheapest action."""
    return 1


async def kilobyte() -> str:
    """Return a text of 1 KB."""
    return KILOBYTE


async def pause(item: int = 0) -> int:
    """Take as long as a quick call to the outside."""
    await asyncio.sleep(PAUSE)
    return item


ACTIONS = (Action("one", one), Action("kilobyte", kilobyte), Action("pause", pause))


@step
async def produce(_number: int) -> str:
    """Return a text of 1 KB."""
    return KILOBYTE


@workflow
async def growing_list(_ctx: object, steps: int) -> int:
    """Append 1 KB to a list with every step."""
    items = [await produce(number) for number in range(steps)]
    return len(items)


@contextmanager
def opened(kind: Kind) -> Iterator[EventStore]:
    """Open an empty store."""
    with tempfile.TemporaryDirectory() as folder, make_store(kind, Path(folder) / "log.db") as store:
        yield store


def make_store(kind: Kind, path: Path) -> EventStore:
    """Make a store of that kind."""
    return MemoryStore() if kind == "memory" else SqliteStore(path, durability=kind)


def chain(steps: int, action: str = "one") -> Workflow:
    """Make a workflow of trivial steps, each with a variable of its own, so that the state grows."""
    return Workflow("chain", [Step(f"s{number}", action=action, store=f"v{number}") for number in range(steps)])


def items(count: int, action: str) -> Workflow:
    """Make a workflow that does something side by side, as items of one step."""
    return Workflow("items", [Step("all", action=action, each=Each(list(range(count)), parallel=count))])


def paths(count: int, action: str) -> Workflow:
    """Make a workflow that does something side by side, on paths of their own."""
    branches = [Step(f"s{number}", action=action, end=True) for number in range(count)]
    return Workflow("paths", [Step("start", action="one", next=[branch.name for branch in branches]), *branches])


def run(store: EventStore, definition: Workflow, **inputs: int) -> tuple[Run, float]:
    """Run a workflow to its end; return it and the seconds it took."""
    environment = Environment(store=store, actions=ACTIONS)
    started = time.perf_counter()
    execution = environment.start(definition, inputs).wait(check=True)
    return execution, time.perf_counter() - started


def costs_of(execution: Run, event_type: str = "step_started") -> list[int]:
    """Return microseconds from each event of a type to the next."""
    starts = [event.recorded_at for event in execution.history() if event.event_type == event_type]
    return [after - before for before, after in pairwise(starts)]
