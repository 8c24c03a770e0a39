"""A unit test of a workflow function, without a store."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from divebook import Context, step, testing, workflow
from divebook.definitions import WorkflowFunction


@step
def price(item: str) -> float:
    return 1.5


@workflow
async def order(ctx: Context, item: str) -> str:
    if not await ctx.confirm(f"Order {item}?"):
        return "refused"
    began = await ctx.now()
    await ctx.sleep(60)
    assert await ctx.now() - began == timedelta(seconds=60)
    return f"{item} for {await price(item)}"


def child_of(total: WorkflowFunction[[str], str]) -> str:
    return total.name


if __name__ == "__main__":
    function: Callable[[Context, str], Coroutine[Any, Any, str]] = order.fn
    assert child_of(order) == "order"
    ctx = testing.Context(answers=["yes"])
    result: str = asyncio.run(order.fn(ctx, item="pen"))
    assert result == "pen for 1.5"
    calls: list[testing.StepCall] = ctx.calls
    assert calls[0].arguments == {"item": "pen"}
