"""Steps one after the other: how fast, whether they stay so, what they take on disk, how fast they are read back."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure
from benchmarks.floor import FloorJournal, run_sequence
from benchmarks.worlds import STORES, Kind, chain, costs_of, growing_list, make_store, one, opened, run
from divebook import Environment, Run
from divebook.definitions.functions import step, workflow
from divebook.engine.evolve import fold_records
from divebook.events.event import Record
from divebook.steps.actions import Action
from divebook.stores import EventStore

STEPS = 1_000
ROUNDS = 7
EARLY, LATE, WINDOW = 100, 10_000, 50
FLAT_ROUNDS = 3
BYTES_STEPS = 1_000
SHARE_OF_FLOOR: dict[Kind, float] = {"relaxed": 0.45, "full": 0.7}


@step
async def answer(number: int) -> int:
    """Return what it was given."""
    return number


@workflow
async def calling(_ctx: object, steps: int) -> int:
    """Call a step function so many times."""
    return sum([await answer(number) for number in range(steps)])


def sequential() -> Iterator[Figure]:
    """Trivial durable steps per second over the floor's, and calls of functions over steps, best of rounds in turn."""
    for kind, share in SHARE_OF_FLOOR.items():
        rounds = [(engine_seconds(kind), floor_seconds(kind), calls_seconds(kind)) for _ in range(ROUNDS)]
        ours, floor, calls = (min(column) for column in zip(*rounds, strict=True))
        details = {"steps/s": round(STEPS / ours), "floor's": round(STEPS / floor)}
        yield Figure(
            "sequential steps/s over the floor's", kind, floor / ours, "", share, at_least=True, details=details
        )
        yield Figure("calls of functions/s over steps/s", kind, ours / calls, "", 1.0, at_least=True)
    ours = min(engine_seconds("memory") for _ in range(ROUNDS))
    yield Figure("sequential steps/s", "memory", STEPS / ours, "/s")


def engine_seconds(kind: Kind) -> float:
    """Return what the steps take on the engine."""
    with opened(kind) as store:
        run(store, chain(10))
        execution, seconds = run(store, chain(STEPS))
    assert len(execution.variables) == STEPS
    return seconds


def calls_seconds(kind: Kind) -> float:
    """Return what as many calls of a function take on the engine."""
    with opened(kind) as store:
        run(store, chain(10))
        return run(store, calling, steps=STEPS)[1]


def floor_seconds(durability: str) -> float:
    """Return what the same number of steps takes on the floor journal."""
    with tempfile.TemporaryDirectory() as folder:
        journal = FloorJournal(Path(folder) / "floor.db", durability)
        started = time.perf_counter()
        asyncio.run(run_sequence(journal, STEPS, one))
        seconds = time.perf_counter() - started
        assert journal.count() == 2 * STEPS
        journal.close()
    return seconds


def flat() -> Iterator[Figure]:
    """Cost of a step around number 10,000 over that of one around number 100, in the same execution."""
    last = LATE + WINDOW + 1
    shapes: dict[str, tuple[str, Callable[[EventStore], Run]]] = {
        "a step at 10,000 over 100": ("step_started", lambda store: run(store, chain(last))[0]),
        "the same, 1 KB more variables a step": ("step_started", lambda store: run(store, chain(last, "kilobyte"))[0]),
        "the same, a list 1 KB longer a step": (
            "operation_started",
            lambda store: run(store, growing_list, steps=last)[0],
        ),
    }
    for name, (event_type, begin) in shapes.items():
        for kind in STORES[:2]:
            costs = [early_and_late(kind, event_type, begin) for _ in range(FLAT_ROUNDS)]
            ratios = sorted(late / early for early, late in costs)
            early, late = (round(min(column)) for column in zip(*costs, strict=True))
            details = {"us at 100": early, "at 10,000": late, "all": " ".join(f"{ratio:.2f}" for ratio in ratios)}
            yield Figure(name, kind, median(ratios), "", 1.1, details=details)


def early_and_late(kind: Kind, event_type: str, begin: Callable[[EventStore], Run]) -> tuple[float, float]:
    """Return the median microseconds of a step around both numbers, in one execution."""
    with opened(kind) as store:
        run(store, chain(EARLY))
        costs = costs_of(begin(store), event_type)
    return median(costs[EARLY - WINDOW : EARLY + WINDOW]), median(costs[LATE - WINDOW : LATE + WINDOW])


def size() -> Iterator[Figure]:
    """Bytes of the closed file per step, its share of the definition and of the checkpoints included."""
    for length in (1, 1_000, 10_000, 100_000):
        grown = file_size(BYTES_STEPS, length) - file_size(1, length)
        yield Figure(
            f"bytes a step that returns {length:,}", "relaxed", grown / (BYTES_STEPS - 1), "B", 600 + 1.1 * length
        )


def file_size(steps: int, length: int) -> int:
    """Return the size of a file with one execution whose steps return random texts."""
    chance = random.Random(1)  # noqa: S311 - sample values

    async def text() -> str:
        return f"{chance.getrandbits(4 * length):0{length}x}"

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        with make_store("relaxed", path) as store:
            Environment(store=store, actions=[Action("text", text)]).start(chain(steps, "text")).wait(check=True)
        return path.stat().st_size


def replay() -> Iterator[Figure]:
    """Folding the records of a log of 10,000 steps, as who opens an execution does, and reading them first."""
    with opened("relaxed") as store:
        execution, _ = run(store, chain(LATE))
        started = time.perf_counter()
        records = [*store.read_records(execution.id)]
        reading = time.perf_counter() - started
        seconds = min(fold_seconds(execution, records) for _ in range(5))
    details = {"reading it, ms": round(reading * 1000)}
    yield Figure("replay of a step", "", seconds / LATE * 1e6, "us", 8, details=details)


def fold_seconds(execution: Run, records: Sequence[Record]) -> float:
    """Return what folding a log takes."""
    started = time.perf_counter()
    state = fold_records(execution.id, records)
    seconds = time.perf_counter() - started
    assert state == execution.state
    return seconds
