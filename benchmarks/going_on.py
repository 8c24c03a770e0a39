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
from divebook import Environment, Retry, Step, Workflow
from divebook.steps.actions import Action

STEPS, DIES_AT = 2_000, 1_000
ROUNDS = 5
ANSWERS = 30


def resumed() -> Iterator[Figure]:
    """From `resume` of an execution whose process died in step 1,001 of 2,000 to the call of that step."""
    for kind in STORES[1:]:
        rounds = [resume_once(kind) for _ in range(ROUNDS)]
        milliseconds, again = min(found for found, _ in rounds), max(count for _, count in rounds)
        details = {"completed steps run again": again}
        yield Figure("resume at 1,000 of 2,000 steps", kind, 1000 * milliseconds, "ms", 50, details=details)


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
            (record,) = environment.recoverable()
            started = time.perf_counter()
            environment.resume(record.execution_id).wait(check=True)
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
    """From the answer to a question to the call that waited for it, in one process."""
    for kind in STORES:
        with opened(kind) as store:
            seconds = sorted(answer_once(Environment(store=store, actions=[])) for _ in range(ANSWERS))
        details = {"median, ms": round(1000 * seconds[ANSWERS // 2], 2)}
        yield Figure("answer to next call", kind, 1000 * seconds[0], "ms", 1, details=details)


def answer_once(environment: Environment) -> float:
    """Return the seconds from an answer to the call."""
    calls: list[float] = []

    async def unsure() -> int:
        calls.append(time.perf_counter())
        if len(calls) == 1:
            raise TimeoutError
        return 1

    asking = Environment(store=environment.store, actions=[Action("unsure", unsure)])
    workflow = Workflow("asks", [Step("a", action="unsure", retry=Retry(2, seconds=0))])
    execution = asking.start(workflow).wait()
    (question,) = execution.interrupts
    started = time.perf_counter()
    asking.answer(question.interrupt_id, "retry", execution.id).wait(check=True)
    return calls[1] - started


if __name__ == "__main__":
    die(sys.argv[1], Path(sys.argv[2]))  # type: ignore[arg-type]
