"""What it costs to record values and to make them again: plain data, and a frame of 10 MB."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.steps import Result, opened
from divebook import Environment, Step, Workflow
from divebook.events import recorded
from divebook.events.codec import storable
from divebook.steps.actions import Action

ROUNDS = 20
ROWS = 2_000
FRAME_SHAPE = (131_072, 10)
RECORDS = [{"id": n, "name": f"n{n}", "score": n * 0.5, "tags": ["a", "b"]} for n in range(ROWS)]


def values() -> Iterator[Result]:
    """Plain data and a frame: recorded, opened, and on its way through two steps of a store."""
    plain = storable(RECORDS, "value")
    record = best(lambda: storable(RECORDS, "value"))
    yield {"name": "values", "value": f"{ROWS} records", "record_ms": record, "open_ms": best(lambda: reopened(plain))}
    frame = pd.DataFrame(np.random.default_rng(0).random(FRAME_SHAPE))
    stored = storable(frame, "value")
    record = best(lambda: storable(frame, "value"))
    yield {"name": "values", "value": "10 MB frame", "record_ms": record, "open_ms": best(lambda: reopened(stored))}
    yield through_steps(frame)


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


def through_steps(frame: pd.DataFrame) -> Result:
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
    return {
        "name": "values",
        "value": "10 MB frame through 2 steps",
        "seconds": round(took, 2),
        "stored_bytes_per_byte": round(blobs[0].stored / size, 3),
    }
