"""Signals with a payload, durations of all forms, time limits, and errors."""

import asyncio
from datetime import datetime, timedelta
from typing import NewType, assert_type

from divebook import Context, Environment, Run, step, workflow
from divebook.errors import (
    ExecutionCancelledError,
    ExecutionFailedError,
    ExecutionWaitingError,
    InterruptExpiredError,
    OperationError,
)

OrderId = NewType("OrderId", int)


@step(timeout=timedelta(seconds=5), retry=2, idempotent=True)
async def load(order: OrderId) -> dict[str, float]:
    await asyncio.sleep(0)
    return {"price": float(order)}


@step("renamed", approval=False, executor="thread")
def note(text: str, *rest: str, loud: bool = False) -> str | None:
    return text.upper() if loud else (rest[0] if rest else None)


@workflow
async def order(ctx: Context, number: OrderId, patience: timedelta = timedelta(seconds=0.01)) -> float:
    started: datetime = await ctx.now()
    details = await load(number)
    assert_type(details, dict[str, float])
    text = await note("a", "b", loud=True)
    assert_type(text, str | None)
    try:
        await ctx.wait_signal("paid", within=patience)
    except OperationError as error:
        ctx.emit("late", str(error))
    try:
        await ctx.ask("Why?", int, expires_in="10 ms")
    except InterruptExpiredError:
        await ctx.sleep(timedelta(milliseconds=1))
    await ctx.sleep("1 ms")
    await ctx.sleep(0.001)
    chance: float = await ctx.random()
    assert 0 <= chance < 1
    assert (await ctx.now()) >= started
    return details["price"]


@workflow
async def waits(ctx: Context) -> str:
    payload = await ctx.wait_signal("go")
    return str(payload)


@workflow
async def fails(ctx: Context) -> None:
    raise ValueError("no")


async def main(environment: Environment) -> float:
    runs = [environment.start(order, {"number": n}) for n in (1, 2)]
    done = await asyncio.gather(*runs)
    assert_type(done, list[Run[float]])
    return sum(run.result() for run in done)


def handled(run: Run[str]) -> str:
    try:
        return run.result(timeout=timedelta(seconds=20))
    except ExecutionWaitingError as error:
        return error.run_id
    except (ExecutionCancelledError, ExecutionFailedError) as error:
        return error.run_id


if __name__ == "__main__":
    with Environment(store="memory:") as environment:
        assert asyncio.run(main(environment)) == 3.0
        waiting = environment.start(waits).wait("20 s")
        assert handled(waiting) == waiting.id
        waiting.signal("go", {"a": [1, None]}, by="ann")
        assert handled(waiting) == "{'a': [1, None]}"
        assert environment.start(fails).wait().status == "failed"
        stopped = environment.start(waits).wait().cancel("enough").wait()
        assert handled(stopped) == stopped.id
