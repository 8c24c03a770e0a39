"""``python -m benchmarks --quick``: in under a minute, what a step costs a processor, over what the floor costs.

Processor time, the least of many short rounds in which engine and floor alternate: it can be compared on a busy
machine as well. With ``--against CHECKOUT`` every round is made there too, in a process of its own.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from benchmarks.floor import FloorJournal, run_sequence, run_together
from benchmarks.worlds import ACTIONS, chain, items, make_store, one, paths, run
from divebook import Environment
from divebook.definitions.functions import step, workflow
from divebook.stores import EventStore

STEPS = 150
LEAST_ROUNDS, SECONDS_A_ROW = 5, 3.5
FLOORS = {"floor": run_sequence, "floor, side by side": run_together}


@step
async def answer(number: int) -> int:
    """Return what it was given."""
    return number


@workflow
async def calls(_ctx: object, steps: int) -> int:
    """Call a step function so many times."""
    return sum([await answer(number) for number in range(steps)])


def executions(store: EventStore) -> object:
    """Run executions of three steps, one after the other."""
    environment, definition = Environment(store=store, actions=ACTIONS), chain(3)
    return [environment.start(definition).wait(check=True) for _ in range(STEPS // 3)]


SHAPES: dict[str, tuple[Callable[[EventStore], object], str]] = {
    "steps, one after the other": (lambda store: run(store, chain(STEPS)), "floor"),
    "calls of functions": (lambda store: run(store, calls, steps=STEPS), "floor"),
    "items": (lambda store: run(store, items(STEPS, "one")), "floor, side by side"),
    "paths": (lambda store: run(store, paths(STEPS, "one")), "floor, side by side"),
    "executions of three steps": (executions, "floor"),
}
"""What is measured, and the floor it stands on."""
ROWS = [(shape, kind) for shape in SHAPES for kind in ("memory", "relaxed")]


def processor_time(shape: str, kind: str) -> float:
    """Return how many seconds of a processor one round takes."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "log.db"
        if shape in FLOORS:
            journal = FloorJournal(path, "relaxed")
            stack.callback(journal.close)
            made = FLOORS[shape](journal, STEPS, one)
            return _timed(lambda: asyncio.run(made))
        store = stack.enter_context(make_store("memory" if kind == "memory" else "relaxed", path))
        run(store, chain(10))
        return _timed(lambda: SHAPES[shape][0](store))


def _timed(job: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    job()
    return time.process_time() - began


def serve() -> None:
    """Measure what each line asks for, until there are no more."""
    for line in sys.stdin:
        shape, kind = line.rstrip("\n").split("\t")
        print(processor_time(shape, kind), flush=True)


class Worker:
    """A process that measures in one checkout."""

    def __init__(self, process: subprocess.Popen[str], reads: IO[str], writes: IO[str]) -> None:
        self.process, self._reads, self._writes = process, reads, writes

    def ask(self, shape: str, kind: str) -> float:
        """Return the processor time of one round."""
        self._writes.write(f"{shape}\t{kind}\n")
        self._writes.flush()
        return float(self._reads.readline())


@contextmanager
def worker(checkout: Path) -> Iterator[Worker]:
    """Start a worker that runs this file on the code of a checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
    environ = {**os.environ, "PYTHONPATH": str(checkout)}
    with subprocess.Popen(
        command, cwd=checkout, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Worker(process, process.stdout, process.stdin)
        finally:
            process.kill()


def quick(against: Path | None) -> None:
    """Print the figures."""
    with ExitStack() as stack:
        here = stack.enter_context(worker(Path(__file__).parents[1]))
        there = None if against is None else stack.enter_context(worker(against.resolve()))
        print("what | store | us a step | over the floor's" + (" | over the other checkout's" if there else ""))
        for shape, kind in ROWS:
            print(" | ".join(row(shape, kind, here, there)), flush=True)


def row(shape: str, kind: str, here: Worker, there: Worker | None) -> list[str]:
    """Return one line of the table, the least of as many rounds as there is time for."""
    end = time.monotonic() + SECONDS_A_ROW
    floors: list[float] = []
    ours: list[float] = []
    others: list[float] = []
    while len(ours) < LEAST_ROUNDS or time.monotonic() < end:
        floors.append(here.ask(SHAPES[shape][1], kind))
        ours.append(here.ask(shape, kind))
        if there is not None:
            others.append(there.ask(shape, kind))
    least = min(ours)
    told = [shape, kind, f"{least / STEPS * 1e6:.0f}", f"{least / min(floors):.2f}"]
    return [*told, f"{least / min(others):.2f}"] if others else told


if __name__ == "__main__":
    serve()
