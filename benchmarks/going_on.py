"""How soon an execution goes on: after the death of its process, and after an answer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.worlds import STORES, Kind, chain, make_store, opened
from divebook import Environment
from divebook.definitions.functions import step, workflow
from divebook.steps.actions import Action
from divebook.steps.function import Context

STEPS, DIES_AT = 2_000, 1_000
ROUNDS = 5
ANSWERS, EARLIER = 30, 200
MOST_TO_NEXT_CALL: dict[Kind, float] = {"full": 1.2, "relaxed": 0.6, "memory": 0.3}
"""Milliseconds."""


def resumed() -> Iterator[Figure]:
    """From `resume` of an execution whose process died in step 1,001 of 2,000 to the call of that step."""
    for kind in STORES[1:]:
        rounds = [resume_once(kind) for _ in range(ROUNDS)]
        milliseconds, again = min(found for found, _ in rounds), max(count for _, count in rounds)
        details = {"completed steps run again": again}
        yield Figure("resume at 1,000 of 2,000 steps", kind, 1000 * milliseconds, "ms", 25, details=details)


def resume_once(kind: Kind) -> tuple[float, int]:
    """Return the seconds to the first call, and how many steps were run that had completed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        died = subprocess.run([sys.executable, "-m", "benchmarks.going_on", kind, str(path)], check=False)
        assert died.returncode == 1
        calls: list[float] = []

        async def one() -> int:
            calls.append(time.perf_counter())
            return 1

        with make_store(kind, path) as store:
            environment = Environment(store=store, actions=[Action("one", one, idempotent=True)])
            (record,) = environment.queues.recoverable()
            started = time.perf_counter()
            environment.run_of(record.execution_id).resume().wait(check=True)
        return calls[0] - started, len(calls) - (STEPS - DIES_AT)


def die(kind: Kind, path: Path) -> None:
    """Run the chain and end the process inside step 1,001."""
    calls = 0

    async def one() -> int:
        nonlocal calls
        calls += 1
        if calls > DIES_AT:
            os._exit(1)
        return 1

    store = make_store(kind, path)
    Environment(store=store, actions=[Action("one", one, idempotent=True)]).start(chain(STEPS)).wait()


def answered() -> Iterator[Figure]:
    """From the answer to a question to the call that waited for it, in one process, at once and after earlier steps."""
    for kind in STORES:
        with opened(kind) as store:
            environment = Environment(store=store)
            rounds = [(answer_once(environment, 0), answer_once(environment, EARLIER)) for _ in range(ANSWERS)]
        soon, later = (sorted(column) for column in zip(*rounds, strict=True))
        details = {"median, ms": round(1000 * soon[ANSWERS // 2], 2)}
        yield Figure("answer to next call", kind, 1000 * soon[0], "ms", MOST_TO_NEXT_CALL[kind], details=details)
        details = {"ms": round(1000 * later[0], 2), "median, ms": round(1000 * later[ANSWERS // 2], 2)}
        yield Figure(f"the same after {EARLIER} steps over it", kind, later[0] / soon[0], "", 2, details=details)


CALL_TIMES: list[float] = []
"""Times at which `note` was called, in seconds of `time.perf_counter`."""


@step
async def note(number: int) -> int:
    """Note when it was called."""
    CALL_TIMES.append(time.perf_counter())
    return number


@workflow
async def asks(ctx: Context, earlier: int) -> int:
    """Call a step so many times, ask, and call it once more."""
    for number in range(earlier):
        await note(number)
    await ctx.ask("Go on?")
    return await note(earlier)


def answer_once(environment: Environment, earlier: int) -> float:
    """Return the seconds from an answer to the call."""
    execution = environment.start(asks, {"earlier": earlier}).wait()
    (question,) = execution.open_questions
    started = time.perf_counter()
    environment.answer(question.id, "yes", execution.id).wait(check=True)
    return CALL_TIMES[-1] - started


if __name__ == "__main__":
    die(sys.argv[1], Path(sys.argv[2]))  # type: ignore[arg-type]
