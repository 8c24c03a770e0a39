"""The run browser over a store of 10,000 runs: ``python -m benchmarks.listing [RUNS]`` prints what it measured."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from divebook import Environment, Step, Workflow
from divebook.stores import SqliteStore
from divebook.widgets.runs_and_questions import EVERYTHING, RunsFeed

RUNS = 10_000
TARGET_MS = 200
FLOWS = [
    Workflow("good", [Step("a", script="1 + 1"), Step("b", script="2")]),
    Workflow("bad", [Step("a", script="1 / 0")]),
]


def main(runs: int) -> None:
    """Fill a store, and measure what a person waits for."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        with SqliteStore(path, durability="relaxed") as store:
            environment = Environment(store=store, workflows=FLOWS)
            for number in range(runs):
                environment.start(FLOWS[number % 4 == 0].name, tags=[f"t{number % 5}"]).wait()
        with SqliteStore(path) as store:
            measure(RunsFeed(Environment(store=store)))


def measure(feed: RunsFeed) -> None:
    """Print the milliseconds until the first page, until all is counted, and for a filter after that."""
    report(f"first page, at most {TARGET_MS}", feed.frame)
    report("until all runs are counted", lambda: counted(feed))
    feed.ask({**EVERYTHING, "status": "failed", "text": "zerodivision"})
    report("a filter by text and status", feed.frame)


def counted(feed: RunsFeed) -> None:
    """Make frames until the whole store was looked through."""
    while not feed.welcome("", 0)["is_whole"]:
        feed.frame()


def report(what: str, do: Callable[[], object]) -> None:
    """Print how many milliseconds something takes."""
    began, used = time.perf_counter(), time.process_time()
    do()
    took, busy = time.perf_counter() - began, time.process_time() - used
    sys.stdout.write(f"{what}: {took * 1000:.0f} ms, {busy * 1000:.0f} ms of a processor\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
