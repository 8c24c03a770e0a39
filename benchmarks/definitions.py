"""What a definition of many steps costs a processor: to make it, to start it, and to start it again."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.figure import Figure
from benchmarks.worlds import ACTIONS, Kind, chain, opened
from divebook import Environment, Step, Workflow

STEPS, ROUNDS = 1_000, 20
TARGET = 8
"""Microseconds a step."""


def definitions() -> Iterator[Figure]:
    """Make a definition of 1,000 steps, start it, and start it again."""
    made = min(microseconds(partial(chain, STEPS)) for _ in range(ROUNDS))
    yield Figure("making a definition of 1,000 steps, a step", "", made, "us", TARGET)
    for kind in ("memory", "relaxed"):
        first, again = started(kind)
        details = {"the same definition again, us": f"{again:.2g}"}
        yield Figure("starting it, a step", kind, first, "us", TARGET, details=details)


def started(kind: Kind) -> tuple[float, float]:
    """Return the least that a start takes of a definition that waits at once: a new one, and the same again."""
    with opened(kind) as store:
        environment = Environment(store=store, actions=ACTIONS)
        rounds = []
        for _ in range(ROUNDS):
            start = partial(begin, environment, waiting(STEPS))
            rounds.append((microseconds(start), microseconds(start)))
    first, again = map(min, zip(*rounds, strict=True))
    return first, again


def waiting(steps: int) -> Workflow:
    """Make a workflow that waits before its first step."""
    return Workflow("waiting", [Step("wait", signal="go"), *chain(steps).steps])


def begin(environment: Environment, definition: Workflow) -> None:
    """Start it, and wait until it waits."""
    environment.start(definition).wait()


def microseconds(job: Callable[[], object]) -> float:
    """Return the processor time of a job for each step."""
    gc.collect()
    began = time.process_time()
    job()
    return (time.process_time() - began) / STEPS * 1e6
