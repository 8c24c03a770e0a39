"""How soon a log is read: 10,000 steps, and a log of 1,000,000 events: opened, as a frame, and the memory that takes.

``python -m benchmarks.readers FILE [WAY]`` opens a store and makes a frame in a process of its own, and prints what it
took: of its one log, or of all its logs in a `WAY` of `WAYS`.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from benchmarks.figure import Figure
from benchmarks.floor import FloorJournal, run_sequence
from benchmarks.worlds import chain, make_store, one, run
from divebook import Environment
from divebook.analysis.store import Frames
from divebook.definitions.functions import step, workflow
from divebook.engine.checkpoint import dump_state
from divebook.engine.evolve import fold, fold_records
from divebook.events import Event, catalog
from divebook.events.event import Record, type_id
from divebook.projections.spans import spans_of
from divebook.stores import Batch, EventStore, SqliteStore

STEPS = 10_000
LOGS = 1_000
KINDS = ("events", "steps", "operations", "items", "messages")
CALLS = 500_000
ROUNDS = 5
AT_ONCE = 2_000
MB = 1e6


@step
async def answer(number: int) -> int:
    """Return what it was given."""
    return number


@workflow
async def calls(_ctx: object, steps: int) -> int:
    """Call a step function so many times."""
    return sum([await answer(number) for number in range(steps)])


def reading() -> Iterator[Figure]:
    """Read both logs."""
    yield from short()
    yield from long()
    yield from whole()


def short() -> Iterator[Figure]:
    """10,000 steps from the store to a frame, and folded for readers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        with make_store("relaxed", path) as store:
            execution, _ = run(store, chain(STEPS))
        with SqliteStore(path) as store:
            history = store.history(execution.id)
            frames = {kind: best_framed(store, execution.id, kind) for kind in KINDS}
            events = [*history]
            folding = min(timed(lambda: spans_of(events)) for _ in range(ROUNDS))
        floor = floor_seconds(Path(folder) / "floor.db")
    details = {"floor's to a list, s": round(floor, 3)}
    for kind, seconds in frames.items():
        target, of = (0.1, "") if kind == "events" else (0.2, f" of {kind}")
        yield Figure(f"10,000 steps to a frame{of}", "relaxed", seconds, "s", target, details=details)
    yield Figure("fold of a step for readers", "", folding / STEPS * 1e6, "us", 8)


def timed(job: Callable[[], object]) -> float:
    """Return the seconds of something."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def best_framed(store: EventStore, execution_id: str, kind: str) -> float:
    """Return the seconds that a frame of an execution takes, which is opened first."""

    def framed() -> Any:
        return getattr(Environment(store=store).run_of(execution_id), kind)

    framed()  # the libraries are loaded
    return min(timed(framed) for _ in range(ROUNDS))


def floor_seconds(path: Path) -> float:
    """Return what reading the same number of steps back from the floor journal takes."""
    journal = FloorJournal(path, "relaxed")
    asyncio.run(run_sequence(journal, STEPS, one))
    journal.close()

    def read() -> None:
        connection = sqlite3.connect(path)
        rows = connection.execute("SELECT sequence, recorded_at, type, data FROM events ORDER BY sequence").fetchall()
        assert len([orjson.loads(data) for *_, data in rows]) == 2 * STEPS
        connection.close()

    return min(timed(read) for _ in range(ROUNDS))


def long() -> Iterator[Figure]:
    """Open the log of 500,000 calls of functions, make its frame, and look at the memory of the process that did."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        written(path)
        command = [sys.executable, "-m", "benchmarks.readers", str(path)]
        took = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    yield Figure("1,000,000 events, opened", "relaxed", took["opened"], "s", 1, details={"its state, s": took["state"]})
    yield Figure(
        "1,000,000 events, a frame", "relaxed", took["frame"], "s", 2, details={"processor, s": took["worked"]}
    )
    details = {"libraries, MB": took["before"]}
    yield Figure("1,000,000 events, peak memory besides", "relaxed", took["peak"], "MB", 500, details=details)


def whole() -> Iterator[Figure]:
    """1,000,000 events in 1,000 logs: as one DataFrame, as one table, and in batches."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logs.db"
        for number in range(LOGS):
            written(path, CALLS // LOGS, f"exec_{number:026d}")
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.readers", str(path), way]
            took = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            details = {"peak besides, MB": round(took["peak"])}
            yield Figure(f"1,000 logs of 1,000 events, {way}", "relaxed", took["frame"], "s", None, details=details)


WAYS: dict[str, Callable[[Any], Any]] = {
    "a DataFrame": lambda frames: len(frames.events),
    "an Arrow table": lambda frames: frames.arrow("events").num_rows,
    "in batches": lambda frames: sum(batch.num_rows for batch in frames.reader("events")),
}


def written(path: Path, count: int = CALLS, name: str | None = None) -> None:
    """Write the log of a function's calls, as an engine would have written that of one which called so often."""
    with make_store("memory", path) as source:
        execution, _ = run(source, calls, steps=1)
        model = [replace(event, execution_id=name or execution.id) for event in execution.history()]
    name = model[0].execution_id
    begun = next(place for place, event in enumerate(model) if isinstance(event.data, catalog.OperationStarted))
    head, (start, end), tail = model[:begun], model[begun : begun + 2], model[begun + 2 :]
    last = len(head)
    with SqliteStore(path, durability="relaxed") as store:
        store.append(name, head, 0)
        state = fold(name, head)
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            records = [record for number in numbers for record in called(start, end, number, last)]
            state = fold_records(name, records, state)
            store.append_all([Batch(name, last + 2 * first, records)])
        last += 2 * count
        moved = [replace(event, sequence=last + place, id=new_id(last + place)) for place, event in enumerate(tail, 1)]
        store.append(name, moved, last)
        store.put_checkpoint(name, last + len(tail), dump_state(fold(name, moved, state)))


def called(start: Event, end: Event, number: int, after: int) -> list[Record]:
    """Return what is recorded of one call."""
    assert isinstance(start.data, catalog.OperationStarted)
    assert isinstance(end.data, catalog.OperationCompleted)
    first, operation = after + 2 * number + 1, f"op_{number:032x}"
    begun = replace(start.data, operation_id=operation, key=number + 1)
    done = replace(end.data, operation_id=operation, result=number)
    return [
        Record(new_id(sequence), event.execution_id, sequence, event.recorded_at, (fact,), event.path, event.step)
        for sequence, event, fact in ((first, start, begun), (first + 1, end, done))
    ]


def new_id(sequence: int) -> str:
    """Return the id of an event."""
    return type_id("event", 1_750_000_000_000 + sequence, sequence << 12)


def main(path: str, way: str | None = None) -> None:
    """Open a file, make the frame of its one execution, or of all in some way, and print what that took."""
    import pandas  # noqa: F401, ICN001 - loaded before the clock runs
    import pyarrow.json  # noqa: F401

    before = peak_memory()
    if way is not None:
        with SqliteStore(path) as store:
            made = Frames(store, store.records())
            frame = timed(lambda: WAYS[way](made))
            sys.stdout.write(json.dumps({"frame": frame, "peak": peak_memory() - before}))
        return
    with SqliteStore(path) as store:
        (record,) = store.records()
        opened = timed(lambda: Environment(store=store).run_of(record.execution_id))
        execution = Environment(store=store).run_of(record.execution_id)
        worked = time.process_time()
        frame = timed(lambda: len(execution.events))
        worked = time.process_time() - worked
        peak = peak_memory() - before
        state = timed(lambda: execution.status)
    took = {"opened": opened, "state": round(state, 3), "frame": frame, "worked": round(worked, 2), "peak": peak}
    sys.stdout.write(json.dumps({**took, "before": round(before)}))


def peak_memory() -> float:
    """Return the most that this process has taken, in MB.

    What `resource` says begins with the memory of the process that started this one.
    """
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / MB


if __name__ == "__main__":
    main(*sys.argv[1:])
