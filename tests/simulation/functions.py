"""Random workflow functions: calls one by one and side by side, time, chance, and a failure that is handled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from divebook.definitions.functions import step
from divebook.definitions.step import Retry
from divebook.engine.operations import AGENT_TURN, TOOL_CALL
from divebook.errors import OperationError
from divebook.runtime.concurrency import CallCounter, Suspended
from divebook.runtime.context import StepContext
from divebook.steps.function import Context

TURN = 3
"""Calls side by side that are those of an agent's turn."""
Invoke = Callable[[int], Awaitable[int]]
"""Makes the call of that number in the simulated world."""


@dataclass(frozen=True)
class CallPlan:
    """How one call of a function behaves."""

    repeatable: bool
    retry: Retry | None
    failures: tuple[str, ...]
    permanent: bool = False
    """It always fails, and the function handles that."""
    guarded: bool = False


@dataclass(frozen=True)
class FunctionPlan:
    """What a function does, line by line: ``(what, numbers of calls or seconds)``."""

    lines: tuple[tuple[str, tuple[int, ...]], ...]
    calls: tuple[CallPlan, ...]


def random_function(random: Random, *, guarded: bool) -> FunctionPlan:
    """Return a plan of two to five lines."""
    lines: list[tuple[str, tuple[int, ...]]] = []
    calls: list[CallPlan] = []
    for _ in range(random.randint(2, 5)):
        what = random.choice(["call", "call", "gather", "sleep", "now", "random", "handled"])
        count = {"call": 1, "handled": 1, "gather": random.randint(2, 4)}.get(what, 0)
        numbers = tuple(range(len(calls), len(calls) + count))
        calls += [_random_call(random, permanent=what == "handled", guarded=guarded) for _ in numbers]
        what = "turn" if count == TURN else what
        lines.append((what, (random.choice([0, 5, 600]),) if what == "sleep" else numbers))
    return FunctionPlan(tuple(lines), tuple(calls))


def _random_call(random: Random, *, permanent: bool, guarded: bool) -> CallPlan:
    attempts = random.choice([1, 1, 3])
    retry = Retry(attempts, seconds=2, jitter=0.5) if attempts > 1 else None
    most = attempts - 1 if guarded else attempts
    failures = () if random.random() < 0.6 else ("error",) * random.randint(0, most)
    return CallPlan(random.random() < 0.4, retry, failures, permanent, guarded)


def made_function(plan: FunctionPlan, invoke: Invoke) -> Callable[..., Awaitable[Any]]:
    """Return the function that a plan describes."""
    steps = [_made_step(number, call, invoke) for number, call in enumerate(plan.calls)]

    async def handled(number: int) -> str:
        try:
            await steps[number](number)
        except OperationError as error:
            return str(error)
        return "no failure"

    async def function(context: Context) -> list[Any]:
        results: list[Any] = []
        for what, numbers in plan.lines:
            if what == "call":
                results.append(await steps[numbers[0]](numbers[0]))
            elif what == "gather":
                results += await context.gather(*[steps[number](number) for number in numbers])
            elif what == "turn":
                results += await turn(context, [(number, plan.calls[number]) for number in numbers], invoke)
            elif what == "handled":
                results.append(await handled(numbers[0]))
            elif what == "sleep":
                await context.sleep(numbers[0])
            else:
                await (context.now() if what == "now" else context.random())
        return results

    return function


async def turn(context: Context, calls: Sequence[tuple[int, CallPlan]], invoke: Invoke) -> list[Any]:
    """Make calls side by side within one operation, as an agent does; what one of them raised waits for the others."""
    around = context._context
    under_way = CallCounter(around.strands())

    async def body(holder: str) -> list[Any]:
        made = [_called(around, under_way, holder, invoke, call) for call in calls]
        results = await asyncio.gather(*made, return_exceptions=True)
        for kind in (Suspended, BaseException):
            for result in results:
                if isinstance(result, kind):
                    raise result
        return results

    key = context._next_key("agent")
    with context._tasks:
        found: list[Any] = await around.enclosing(AGENT_TURN, {"agent": "simulated"}, body, key=f"{key}/turn")
    return found


async def _called(
    around: StepContext, under_way: CallCounter, holder: str, invoke: Invoke, call: tuple[int, CallPlan]
) -> Any:
    number, plan = call
    key, parameters = f"{holder}/tool-{number}", {"tool": "call", "arguments": {"number": number}}

    async def make() -> int:
        return await invoke(number)

    async def attempt(failures: int) -> Any:
        told: dict[str, Any] = {"key": key, "attempt": failures, "repeatable": plan.repeatable, "within": holder}
        return await around.operation(TOOL_CALL, parameters, make, **told)

    with under_way:
        return await around.retried(key, plan.retry, attempt)


def _made_step(number: int, call: CallPlan, invoke: Invoke) -> Callable[..., Awaitable[Any]]:
    async def made(number: int) -> int:
        return await invoke(number)

    return step(f"call{number}", retry=call.retry, idempotent=call.repeatable)(made)
