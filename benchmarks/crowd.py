"""A store of 100,000 executions, and a process that has run many: what is asked of them takes and holds as little."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.soak import World, look
from benchmarks.worlds import ACTIONS, chain
from divebook import Environment
from divebook.stores import SqliteStore
from divebook.stores.encoding import of_row

FEW, MANY = 1_000, 100_000
ASKING = 20
NOBODY = "kept by nobody"
WARM, MEASURED = 1_000, 4_000
_COPY = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?),
copies AS (
  SELECT 'exec_copy_' || n AS id, status, created_at - n AS created_at, ended_at, last_sequence, error, size, wake_at,
    taken, durability, workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell
  FROM numbers CROSS JOIN executions WHERE executions.id = ?
)
INSERT INTO executions (id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell, seal, checksum, token)
SELECT *, of_row(id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell), 0, 1 FROM copies
"""
"""Rows of executions, as copies of one that has ended: lists look at nothing else of those."""
ASKED: dict[str, Callable[[Environment], object]] = {
    "list 20": lambda environment: environment.store.records(limit=20),
    "list 20 of a status": lambda environment: environment.store.records("failed", limit=20),
    f"inbox, {ASKING} questions": lambda environment: environment.inbox(),
    "recoverable": lambda environment: environment.queues.recoverable(),
}


def crowd() -> Iterator[Figure]:
    """Measure what is asked of a store of 100,000 executions, and what 100,000 executions leave in a process."""
    with crowded(FEW) as few, crowded(MANY) as many:
        for name, ask in ASKED.items():
            before, milliseconds = best(few, ask), best(many, ask)
            details = {f"at {FEW:,}, ms": f"{before:.2g}"}
            yield Figure(f"{name}, of {MANY:,} executions", "full", milliseconds, "ms", 2, details=details)
    for how in (NOBODY, "each kept by who began it"):
        measured = json.loads(subprocess.check_output([sys.executable, "-m", __name__, how], text=True))
        details = {"extrapolated from": f"{MEASURED:,}", "bytes an execution": measured["each"]}
        name, target = f"{MANY:,} executions in one process, {how}", 40 if how == NOBODY else None
        yield Figure(name, "relaxed", measured["each"] * MANY / 1e6, "MB", target, details=details)


@contextmanager
def crowded(executions: int) -> Iterator[Environment]:
    """Give an environment over a store of so many executions: of these some ask, some have failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        with SqliteStore(path) as store:
            world = World(store).environment
            for _ in range(ASKING):
                world.start("asks").wait()
                world.start("fails").wait()
            ended = world.start("plain").wait(check=True).id
        with closing(sqlite3.connect(path)) as file, file:
            file.create_function("of_row", -1, lambda *columns: of_row(columns))
            file.execute(_COPY, (executions - 2 * ASKING - 1, ended))
        with SqliteStore(path) as store:
            assert len(store.ids()) == executions
            assert len(store.asking()) == ASKING
            yield World(store).environment


def best(environment: Environment, ask: Callable[[Environment], object]) -> float:
    """Return the milliseconds that an answer takes, best of many."""
    times = []
    for _ in range(30):
        began = time.perf_counter()
        ask(environment)
        times.append(time.perf_counter() - began)
    return 1000 * min(times)


def growth(*, kept: bool) -> float:
    """Return the bytes that this process grows by for each execution."""
    definition = chain(3)
    held: list[object] = []

    def work(count: int) -> int:
        for _ in range(count):
            execution = environment.start(definition).wait(check=True)
            if kept:
                held.append(execution)
        return look(count).memory

    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "log.db", durability="relaxed") as store:
        environment = Environment(store=store, actions=ACTIONS)
        before = work(WARM)
        return max(0, work(MEASURED) - before) / MEASURED


if __name__ == "__main__":
    print(json.dumps({"each": round(growth(kept=sys.argv[1] != NOBODY))}))
