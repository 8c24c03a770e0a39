"""Steps and executions side by side."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from benchmarks.floor import SYNCHRONOUS, FloorJournal, run_together
from benchmarks.worlds import ACTIONS, PAUSE, STORES, Kind, chain, items, one, opened, paths, pause, run
from divebook import Environment, Workflow

TRIVIAL, SLOW = 1_000, 200
ROUNDS = 5
EXECUTIONS, AT_ONCE = 192, 32
LEAST_PER_SECOND = {"one at a time": 750, "32 at once": 3_000}
"""With full durability."""
SHAPES: dict[str, Callable[[int, str], Workflow]] = {"items": items, "paths": paths}
FLOORS = {"items": 2.5, "paths": 4.0}
"""How many times the floor's cost 1,000 trivial ones may take."""


def parallel() -> Iterator[Figure]:
    """1,000 trivial steps at once, and 200 steps of 50 ms."""
    for name, shape in SHAPES.items():
        for kind in STORES:
            seconds, floor = best(kind, shape(TRIVIAL, "one")), floor_seconds(kind, TRIVIAL, one)
            told = f"{TRIVIAL:,} trivial steps at once, {name}"
            if floor:
                details = {"ms": round(seconds * 1000), "floor": f"{floor * 1000:.3g}"}
                yield Figure(f"{told}, over the floor", kind, seconds / floor, "", FLOORS[name], details=details)
            else:
                yield Figure(told, kind, seconds * 1000, "ms")
    for name, shape in SHAPES.items():
        for kind in STORES:
            ratio, floor = best(kind, shape(SLOW, "pause")) / PAUSE, floor_seconds(kind, SLOW, pause)
            yield Figure(f"{SLOW} x 50 ms over ideal, {name}", kind, ratio, "", 1.15, details=times(floor / PAUSE))


def times(floor: float) -> dict[str, Any]:
    """Return the floor's figure, where there is a floor."""
    return {"floor": f"{floor:.3g}"} if floor else {}


def best(kind: Kind, definition: Workflow) -> float:
    """Return the seconds that a workflow takes, best of several rounds, each in a new store."""
    seconds = []
    for _ in range(ROUNDS):
        with opened(kind) as store:
            run(store, chain(3))
            seconds.append(run(store, definition)[1])
    return min(seconds)


def floor_seconds(durability: str, steps: int, call: Callable[[], object]) -> float:
    """Return what as many calls take on the floor journal, best of several rounds; 0 where it has no such store."""
    if durability not in SYNCHRONOUS:
        return 0.0
    seconds = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            journal = FloorJournal(Path(folder) / "floor.db", durability)
            started = time.perf_counter()
            asyncio.run(run_together(journal, steps, call))  # type: ignore[arg-type]
            seconds.append(time.perf_counter() - started)
            journal.close()
    return min(seconds)


def many() -> Iterator[Figure]:
    """Measure executions of three trivial steps, one at a time and 32 at once."""
    for kind in STORES[1:]:
        rounds = [(executions_seconds(kind, 1), executions_seconds(kind, AT_ONCE)) for _ in range(ROUNDS)]
        alone, together = (EXECUTIONS / min(column) for column in zip(*rounds, strict=True))
        for name, per_second in (("one at a time", alone), ("32 at once", together)):
            least = LEAST_PER_SECOND[name] if kind == "full" else None
            yield Figure(f"3-step executions, {name}", kind, per_second, "/s", least, at_least=True)


def executions_seconds(kind: Kind, at_once: int) -> float:
    """Return what a number of executions take, so many at a time."""
    definition = chain(3)

    async def drive(environment: Environment, count: int) -> None:
        for _ in range(count):
            await environment.create(definition)

    async def drive_all(environment: Environment) -> None:
        await asyncio.gather(*(drive(environment, EXECUTIONS // at_once) for _ in range(at_once)))

    with opened(kind) as store:
        environment = Environment(store=store, actions=ACTIONS)
        environment.start(definition).wait(check=True)
        started = time.perf_counter()
        asyncio.run(drive_all(environment))
        seconds = time.perf_counter() - started
        assert len(store.records(status="completed")) == EXECUTIONS + 1
    return seconds
