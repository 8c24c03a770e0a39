"""What steps cost: in sequence, late in a long execution, and side by side."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarks.floor import FloorJournal, run_sequence, run_together
from divebook import Each, Environment, Execution, Step, Workflow
from divebook.steps.actions import Action
from divebook.store import EventStore, MemoryStore, SqliteStore

Result = dict[str, Any]

Kind = Literal["memory", "relaxed", "full"]
STORES: tuple[Kind, ...] = ("memory", "relaxed", "full")
"""In memory, SQLite that survives the process, SQLite that survives the machine."""

SEQUENCE = 1_000
EARLY, LATE, WINDOW = 100, 10_000, 50
ROUNDS = 5
PARALLEL, PAUSE = 1_000, 0.05


async def one() -> int:
    """Do nothing: the cheapest action."""
    return 1


async def pause(item: int = 0) -> int:
    """Take as long as a quick call to the outside."""
    await asyncio.sleep(PAUSE)
    return item


ACTIONS = (Action("one", one), Action("pause", pause))


@contextmanager
def opened(kind: Kind) -> Iterator[EventStore]:
    """Open an empty store."""
    with tempfile.TemporaryDirectory() as folder, make_store(kind, Path(folder) / "log.db") as store:
        yield store


def make_store(kind: Kind, path: Path) -> EventStore:
    """Make a store of that kind."""
    return MemoryStore() if kind == "memory" else SqliteStore(path, durability=kind)


def chain(steps: int) -> Workflow:
    """Make a workflow of trivial steps, each with a variable of its own, so that the state grows."""
    return Workflow("chain", [Step(f"s{number}", action="one", store=f"v{number}") for number in range(steps)])


def run(store: EventStore, workflow: Workflow) -> tuple[Execution, float]:
    """Run a workflow to its end; return it and the seconds it took."""
    environment = Environment(store=store, actions=ACTIONS)
    started = time.perf_counter()
    execution = environment.start(workflow).wait(check=True)
    return execution, time.perf_counter() - started


def sequential() -> Iterator[Result]:
    """Trivial durable steps per second, one after the other."""
    for kind in STORES:
        with opened(kind) as store:
            run(store, chain(10))
            execution, seconds = run(store, chain(SEQUENCE))
        assert len(execution.variables) == SEQUENCE
        result: Result = {
            "name": "sequential",
            "store": kind,
            "steps": SEQUENCE,
            "steps_per_s": round(SEQUENCE / seconds),
        }
        if kind != "memory":
            floor = floor_seconds(kind)
            result |= {"floor_steps_per_s": round(SEQUENCE / floor), "times_floor": round(seconds / floor, 2)}
        yield result


def floor_seconds(durability: str) -> float:
    """Return what the same number of steps takes on the floor journal."""
    with tempfile.TemporaryDirectory() as folder:
        journal = FloorJournal(Path(folder) / "floor.db", durability)
        started = time.perf_counter()
        asyncio.run(run_sequence(journal, SEQUENCE, one))
        seconds = time.perf_counter() - started
        assert journal.count() == 2 * SEQUENCE
        journal.close()
    return seconds


def flat() -> Iterator[Result]:
    """Cost of a step around number 10,000 over that of one around number 100, in the same execution."""
    for kind in STORES[:2]:
        costs = [early_and_late(kind) for _ in range(ROUNDS)]
        ratios = [round(late / early, 2) for early, late in costs]
        early, late = (round(median(column)) for column in zip(*costs, strict=True))
        result: Result = {"name": "flat", "store": kind, f"us_at_{EARLY}": early, f"us_at_{LATE}": late}
        yield result | {"ratio": median(ratios), "ratios": ratios, "limit": 1.2}


def early_and_late(kind: Kind) -> tuple[float, float]:
    """Return the median microseconds of a step around both numbers, in one execution."""
    with opened(kind) as store:
        run(store, chain(EARLY))
        costs = step_costs(run(store, chain(LATE + WINDOW))[0])
    return median(costs[EARLY - WINDOW : EARLY + WINDOW]), median(costs[LATE - WINDOW : LATE + WINDOW])


def step_costs(execution: Execution) -> list[int]:
    """Return microseconds from the start of each step to that of the next."""
    starts = [event.recorded_at for event in execution.history() if event.event_type == "step_started"]
    return [after - before for before, after in pairwise(starts)]


def parallel() -> Iterator[Result]:
    """1,000 steps of 50 ms side by side over 50 ms."""
    items = Workflow(
        "items",
        [
            Step(
                "all",
                action="pause",
                each=Each(list(range(PARALLEL)), parallel=PARALLEL),
            )
        ],
    )
    branches = [Step(f"s{number}", action="pause", end=True) for number in range(PARALLEL)]
    paths = Workflow("paths", [Step("start", action="one", next=[step.name for step in branches]), *branches])
    for shape, workflow in (("items", items), ("paths", paths)):
        for kind in STORES:
            with opened(kind) as store:
                _, seconds = run(store, workflow)
            yield over_ideal({"name": "parallel", "shape": shape, "store": kind}, seconds)
    for kind in STORES[1:]:
        with tempfile.TemporaryDirectory() as folder:
            journal = FloorJournal(Path(folder) / "floor.db", kind)
            started = time.perf_counter()
            asyncio.run(run_together(journal, PARALLEL, pause))
            yield over_ideal({"name": "parallel", "shape": "floor", "store": kind}, time.perf_counter() - started)
            journal.close()


def over_ideal(result: Mapping[str, Any], seconds: float) -> Result:
    """Add the time and its ratio to that of one step."""
    return {**result, "steps": PARALLEL, "ms": round(seconds * 1000), "over_ideal": round(seconds / PAUSE, 2)}
