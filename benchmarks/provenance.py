"""How soon it is said where a value came from, in a log of 100,000 events: indexed once, asked often."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from benchmarks.browser import p95
from benchmarks.figure import Figure
from divebook import Step, Workflow
from divebook.events import Event, catalog
from divebook.replay.provenance import why
from divebook.stores import MemoryStore

EVENTS, ASKED, STEPS = 100_000, 200, 40
TARGET = 100
"""Milliseconds."""


def provenance() -> Iterator[Figure]:
    """Index a long loop of steps that read each other's variables, and ask for any of them at any event."""
    store, log = MemoryStore(), list(_loop())
    store.append(log[0].execution_id, log, 0)
    began = time.perf_counter()
    why(store.history("exec_1"), "v0", 10)
    indexed = time.perf_counter() - began
    chance = random.Random(1)  # noqa: S311 - the same questions each time
    times, told, values = [], [], []
    for _ in range(ASKED):
        name, at = f"v{chance.randrange(STEPS - 1)}", chance.randrange(1_000, EVENTS)
        began = time.perf_counter()
        found = why(store.history("exec_1"), name, at)
        asked = time.perf_counter()
        text = str(found)
        assert text.startswith(f"{name} = ")
        times.append((asked - began) * 1000)
        told.append((time.perf_counter() - began) * 1000)
        values.append(len(found.depths))
    yield Figure("why, a log of 100,000 events indexed", "memory", round(indexed, 2), "s")
    most = {"most": f"{max(times):.0f}", "values and choices": f"{sum(values) // len(values):,} on average"}
    yield Figure("why, one question, p95", "memory", round(p95(times), 1), "ms", TARGET, details=most)
    yield Figure("the same with its text, p95", "memory", round(p95(told), 1), "ms", TARGET)


def _loop() -> Iterator[Event]:
    """Yield the log of steps in a circle; each reads what three others have set, and one is chosen by a condition."""
    steps = [Step(f"s{number}", script=_script(number), store=f"v{number}") for number in range(STEPS - 1)]
    ways = [("s0", "$(state.v1 < 10 ** 9)"), ("end", "$(not state.v1 < 10 ** 9)")]
    workflow = Workflow(
        "loop", [*steps, Step(f"s{STEPS - 1}", script="1", next=ways), Step("end", script="0")], inputs=["n"]
    )
    facts = _facts(workflow)
    for number, (data, step) in zip(range(1, EVENTS + 1), facts, strict=False):
        path = "" if number == 1 else "main"
        yield Event(f"event_{number:026}", "exec_1", number, number, data, path, step)


def _script(number: int) -> str:
    read = [f"state.get('v{(number * 7 + offset) % STEPS}', 0)" for offset in (1, 5, 11)]
    return " + ".join([*read, "inputs.n"])


def _facts(workflow: Workflow) -> Iterator[tuple[catalog.Payload, str]]:
    yield catalog.ExecutionStarted("loop", {"n": 1}, workflow.stored), ""
    yield catalog.PathStarted("s0"), ""
    visit = 0
    while True:
        visit += 1
        for number, step in enumerate(workflow.steps[:STEPS]):
            call = f"op_{visit}_{number}"
            yield catalog.StepStarted("script", None, visit), step.name
            yield catalog.OperationStarted(call, "script_execution", {"script": step.script}), step.name
            yield catalog.OperationCompleted(call, "script_execution", 1, visit), step.name
            if step.store:
                yield catalog.StateMutated((catalog.Mutation("set", step.store, visit),)), step.name
            yield catalog.StepCompleted(str(visit), step.store), step.name
        for edge in workflow.steps[STEPS - 1].edges:
            yield catalog.ConditionEvaluated(edge.condition or "", edge.step, edge.step == "s0"), f"s{STEPS - 1}"
