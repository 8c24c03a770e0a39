"""Large values on their way through steps: ``python -m benchmarks.large records|text|beside`` prints what it measured.

Each is measured in a process of its own, since memory that was in use once is not always given back. The text is made
of hexadecimal digits, which shrink to little more than half; its own memory is not counted.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figure import Figure
from benchmarks.worlds import opened
from divebook import Environment, Run, Step, Workflow
from divebook.steps.actions import Action
from divebook.stores import EventStore

STEPS = 5
BESIDE = 300
RECORDS = 100_000
LENGTH = 50_000_000
ROUNDS = 5
NOTED: list[float] = []
"""Seconds, by the clock of the engine's thread."""


def large() -> Iterator[Figure]:
    """Measure records, a text of 50 MB, and steps beside that text."""
    told = measured("records")
    used = {"processes of the sandbox": told["sandboxes"]}
    yield Figure("100,000 records to an action as $(state.x)", "relaxed", told["ms"], "ms", 150, details=used)
    told = measured("text")
    first = {"a new text a step, ms": round(told["new"])}
    yield Figure("a text of 50 MB through a step", "relaxed", told["ms"], "ms", 400, details=first)
    yield Figure("the same, memory besides the text, over its size", "relaxed", told["memory"], "", 4)
    told = measured("beside")
    steps = {"us without": round(told["without"]), "with it": round(told["with"])}
    ratio = told["with"] / told["without"]
    yield Figure("a step beside a text of 50 MB over one without", "relaxed", ratio, "", 1.1, details=steps)


def measured(name: str) -> dict[str, Any]:
    """Return what one measurement says, made in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.large", name], check=True, capture_output=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


async def rows() -> list[dict[str, Any]]:
    """Return records as a table gives them."""
    return [{"id": n, "name": f"n{n}", "score": n * 0.5, "tags": ["a", "b"]} for n in range(RECORDS)]


async def count(x: Any) -> int:
    """Return how many there are."""
    return len(x)


async def keep(x: str) -> str:
    """Return the same."""
    return x


async def turned(x: str) -> str:
    """Return another text of the same length."""
    return x[1:] + x[:1]


async def note() -> int:
    """Note what the engine's thread has taken of a processor."""
    NOTED.append(time.thread_time())
    return 1


def run(store: EventStore, steps: list[Step], **inputs: Any) -> Run:
    """Run these steps to their end."""
    functions = [Action(function.__name__, function) for function in (rows, count, keep, turned, note)]
    environment = Environment(store=store, actions=functions)
    return environment.start(Workflow("large", steps, inputs=list(inputs)), inputs).wait(check=True)


def chain(action: str) -> list[Step]:
    """Return steps that hand a text on, each as a variable of its own."""
    taken = ["$(inputs.x)", *(f"$(state.v{number})" for number in range(STEPS))]
    return [Step(f"s{n}", action=action, parameters={"x": taken[n]}, store=f"v{n}") for n in range(STEPS)]


def records() -> dict[str, float]:
    """Milliseconds of the quickest step that is given the records, from its beginning to the next one's."""
    steps = [Step("make", action="rows", store="x")]
    steps += [Step(f"s{n}", action="count", parameters={"x": "$(state.x)"}, store=f"v{n}") for n in range(ROUNDS + 1)]
    with opened("relaxed") as store:
        began = [event.recorded_at for event in run(store, steps).history() if event.event_type == "step_started"]
    took = [after - before for before, after in list(pairwise(began))[1:]]
    return {"ms": min(took) / 1000, "sandboxes": int("pydantic_monty" in sys.modules)}


def text() -> dict[str, float]:
    """Milliseconds a step of a whole run that hands a text on, and of one that makes a new one; the most memory."""
    made = np.random.default_rng(1).bytes(LENGTH // 2).hex()
    timed(lambda store: run(store, chain("keep"), x=""))  # what is loaded when first used
    before = in_memory()
    passed = [timed(lambda store: run(store, chain("keep"), x=made))]
    memory = (peak() - before) / LENGTH
    passed += [timed(lambda store: run(store, chain("keep"), x=made)) for _ in range(ROUNDS)]
    fresh = timed(lambda store: run(store, chain("turned"), x=made))
    return {"ms": min(passed) / STEPS, "memory": memory, "new": fresh / STEPS}


def timed(call: Callable[[EventStore], Any]) -> float:
    """Return the milliseconds of a call with an empty store."""
    with opened("relaxed") as store:
        started = time.perf_counter()
        call(store)
        return (time.perf_counter() - started) * 1000


def beside() -> dict[str, float]:
    """Microseconds of a processor that a trivial step takes, with a variable and without; the rounds alternate."""
    steps = [Step("first", action="keep", parameters={"x": "$(inputs.x)"}, store="x")]
    steps += [Step(f"s{number}", action="note", store=f"v{number}") for number in range(BESIDE)]
    texts = {"with": "x" * LENGTH, "without": "x"}
    took: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(ROUNDS):
        for name, given in texts.items():
            NOTED.clear()
            with opened("relaxed") as store:
                run(store, steps, x=given)
            took[name].append((NOTED[-1] - NOTED[0]) / (BESIDE - 1))
    return {name: min(each) * 1e6 for name, each in took.items()}


def in_memory() -> int:
    """Return the bytes that this process has in memory."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def peak() -> int:
    """Return the most bytes that this process had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    print(json.dumps({"records": records, "text": text, "beside": beside}[sys.argv[1]]()))
