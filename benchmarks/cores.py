"""Functions that are not coroutines: what the hop to a thread costs, and work on all processors."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.figure import Figure
from benchmarks.quick import answer
from benchmarks.worlds import STORES, opened, run
from divebook import Environment, Workflow
from divebook.definitions.functions import step, workflow
from divebook.runtime.compute.processes import processors
from divebook.steps.function import Context
from divebook.stores import EventStore

CALLS, ROUNDS = 300, 12
WORK, SHARE = 3_000_000, 8
WORK_ROUNDS = 5


@step
def plain(number: int) -> int:
    """Return what it was given, from a thread."""
    return number


@step(executor="process")
def busy(number: int) -> int:
    """Keep a processor busy for some tenths of a second."""
    return sum(digit * digit for digit in range(WORK)) + number


@workflow
async def on_the_loop(_ctx: object, steps: int) -> int:
    """Call a coroutine function so many times."""
    return sum([await answer(number) for number in range(steps)])


@workflow
async def in_threads(_ctx: object, steps: int) -> int:
    """Call an ordinary function so many times."""
    return sum([await plain(number) for number in range(steps)])


@workflow
async def side_by_side(ctx: Context, calls: int) -> int:
    """Keep processors busy so many times at once."""
    return sum(await ctx.gather(*[busy(number) for number in range(calls)]))


def cores() -> Iterator[Figure]:
    """Measure the hop to a thread, in processor time, and eight steps that keep a processor busy, at once."""
    for kind in STORES[:2]:
        with opened(kind) as store:
            rounds = [(cost_of(store, in_threads), cost_of(store, on_the_loop)) for _ in range(ROUNDS)]
        ours, others = (min(column) for column in zip(*rounds, strict=True))
        details = {"sync, us": round(ours * 1e6), "async, us": round(others * 1e6)}
        yield Figure("sync @step, hop to a thread", kind, (ours - others) * 1e6, "us", 60, details=details)
    yield speed_up()


def cost_of(store: EventStore, definition: Workflow) -> float:
    """Return how many seconds of a processor a call takes."""
    began = time.process_time()
    run(store, definition, steps=CALLS)
    return (time.process_time() - began) / CALLS


def speed_up() -> Figure:
    """Return how much faster eight calls are in processes than one after the other here, best of rounds in turn."""
    alone, together = [], []
    with Environment(store="memory:") as environment:
        environment.start("side_by_side", {"calls": processors()}).wait(check=True)  # starts them
        for _ in range(WORK_ROUNDS):
            began = time.perf_counter()
            expected = sum(busy.fn(number) for number in range(SHARE))
            middle = time.perf_counter()
            execution = environment.start("side_by_side", {"calls": SHARE}).wait(check=True)
            together.append(time.perf_counter() - middle)
            alone.append(middle - began)
            assert execution.outputs == {"result": expected}
    one_by_one, at_once = min(alone), min(together)
    details = {"one by one, ms": round(one_by_one * 1e3), "at once, ms": round(at_once * 1e3)}
    name = f"eight CPU-bound steps on {processors()} cores, speed-up"
    return Figure(name, "memory", one_by_one / at_once, "", 1.7, at_least=True, details=details)
