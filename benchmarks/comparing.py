"""How long it takes to lay two runs of 10,000 operations side by side, from the store to the first difference."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from divebook import Each, Environment, Step, Workflow
from divebook.definitions import step, workflow
from divebook.steps import Action

CALLS, TARGET, ROUNDS = 10_000, 1.0, 5


def label(n: int) -> dict[str, Any]:
    """Return a little text."""
    return {"label": f"label {n % 7}", "text": "some words about it " * 3}


@step
async def labelled(n: int) -> dict[str, Any]:
    """Do the same as a step."""
    return label(n)


@workflow
async def all_labelled(_ctx: object) -> int:
    """Make one call after the other."""
    for n in range(CALLS):
        await labelled(n)
    return CALLS


ITEMS = Workflow(
    "items",
    [
        Step(
            "s", action="label", parameters={"n": "$(state.n)"}, each=Each(range(CALLS), as_="n", parallel=8), store="v"
        )
    ],
)


def compared() -> Iterator[Figure]:
    """Measure calls of a function (20,000 events), and calls in items (40,000 events)."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Environment(store=str(Path(folder, "runs.db")), actions=[Action("label", label)])
        for name, flow in (("calls", all_labelled), ("calls in items", ITEMS)):
            ids = [environment.start(flow).wait(check=True).id for _ in range(2)]
            took = min(_measured(environment, ids) for _ in range(ROUNDS))
            yield Figure(f"compare of two runs of {CALLS:,} {name}", "relaxed", round(took, 3), "s", TARGET)
        environment.close()


def _measured(environment: Environment, ids: list[str]) -> float:
    began = time.perf_counter()
    comparison = environment.run_of(ids[0]).compare(*ids[1:])
    assert comparison.is_same, comparison.summary
    return time.perf_counter() - began
