"""What it costs to record values and to make them again: plain data, and a frame of 10 MB."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.figure import Figure
from benchmarks.large import large
from benchmarks.worlds import opened
from divebook import Environment, Step, Workflow
from divebook.events import recorded
from divebook.events.codec import storable
from divebook.steps.actions import Action

ROUNDS = 20
ROWS = 2_000
FRAME_SHAPE = (131_072, 10)
RECORDS = [{"id": n, "name": f"n{n}", "score": n * 0.5, "tags": ["a", "b"]} for n in range(ROWS)]


def values() -> Iterator[Figure]:
    """Plain data and a frame: recorded, opened, and on its way through two steps of a store."""
    yield from recorded_and_opened(f"{ROWS:,} records", RECORDS)
    frame = pd.DataFrame(np.random.default_rng(0).random(FRAME_SHAPE))
    yield from recorded_and_opened("a frame of 10 MB", frame)
    yield through_steps(frame)
    yield from large()


def recorded_and_opened(name: str, value: Any) -> Iterator[Figure]:
    """Measure how long a value takes into the log's form and back."""
    stored = storable(value, "value")
    yield Figure(f"{name}, recorded", "", best(lambda: storable(value, "value")), "ms")
    yield Figure(f"{name}, opened", "", best(lambda: reopened(stored)), "ms")


def reopened(value: Any) -> Any:
    """Make a recorded value again."""
    return recorded.opened(value)


def best(call: Callable[[], Any]) -> float:
    """Return the milliseconds of the quickest of several calls."""
    took = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        call()
        took.append(time.perf_counter() - started)
    return round(min(took) * 1e3, 2)


def through_steps(frame: pd.DataFrame) -> Figure:
    """Give a frame to two actions that return it; say how long that takes and how much is written."""
    steps = [Step(name, action="keep", parameters={"frame": "$(inputs.frame)"}, store=name) for name in "ab"]
    made = Workflow("frames", steps, inputs=["frame"], outputs=["a", "b"])
    with opened("full") as store:
        environment = Environment(store=store, workflows=[made], actions=[Action("keep", lambda frame: frame)])
        started = time.perf_counter()
        environment.start("frames", {"frame": frame}).wait(check=True)
        took = time.perf_counter() - started
        blobs = store.blobs()
    assert len(blobs) == 1
    size = int(frame.to_numpy().nbytes)
    written = {"bytes written per byte": round(blobs[0].stored / size, 3)}
    return Figure("a frame of 10 MB through two actions", "full", round(took, 2), "s", details=written)
