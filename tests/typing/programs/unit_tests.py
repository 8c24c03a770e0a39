"""Unit tests of workflow functions: agents, signals, children, errors, workspaces."""

import asyncio
from datetime import UTC, datetime
from typing import Any, assert_type

from divebook import Agent, Context, step, testing, workflow
from divebook.errors import OperationError
from divebook.testing import ContinuedAsNew, EmittedEvent, StepCall


@step
def fails(n: int) -> int:
    raise ValueError(n)


@workflow
async def child(ctx: Context, n: int) -> int:
    return n


writer = Agent("writer")


@workflow
async def everything(ctx: Context, n: int) -> list[Any]:
    try:
        await fails(n)
    except OperationError as error:
        ctx.emit("failed", str(error))
    reply = await ctx.agent(writer).run("Write")
    payload = await ctx.wait_signal("go")
    outputs = await ctx.run("other", {"n": 1})
    number = await child(n)
    return [reply, payload, outputs["x"], number]


@workflow
async def forever(ctx: Context, n: int) -> int:
    await ctx.continue_as_new({"n": n + 1}, reason="again")


def reply(prompt: str) -> str:
    return prompt.upper()


async def main() -> None:
    ctx = testing.Context(
        agents={"writer": reply},
        signals={"go": [{"a": 1}]},
        workflows={"other": {"x": 5}},
        versions={"v": 1},
        now=datetime(2026, 1, 1, tzinfo=UTC),
        seed=3,
    )
    assert await everything.fn(ctx, 2) == ["WRITE", {"a": 1}, 5, 2]
    assert_type(ctx.calls, list[StepCall])
    assert_type(ctx.events, list[EmittedEvent])
    try:
        await forever.fn(testing.Context(), 1)
    except ContinuedAsNew as again:
        assert again.inputs == {"n": 2} and again.reason == "again"


def test_everything() -> None:
    asyncio.run(main())


if __name__ == "__main__":
    test_everything()
