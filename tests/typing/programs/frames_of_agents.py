"""Frames of a run, of several runs and of a store, and what the columns are."""

from typing import assert_type

import pandas as pd

import divebook
from divebook import Agent, Context, Environment, ScriptedModel, step, workflow


@step
def half(n: int) -> float:
    return n / 2


@workflow
async def work(ctx: Context, n: int) -> float:
    await ctx.agent("poet").run("Write.")
    return await half(n)


if __name__ == "__main__":
    poet = Agent("poet", model=ScriptedModel(["a", "b", "c"]))
    with Environment(store="memory:", agents=[poet]) as environment:
        runs = [environment.start(work, {"n": n}, tags=["t"]).wait() for n in (1, 2)]
        run = runs[0]
        for frame in (run.events, run.operations, run.steps, run.items, run.failed_items, run.model_calls):
            assert_type(frame, pd.DataFrame)
        assert_type(run.costs("model"), pd.DataFrame)
        assert_type(run.questions, pd.DataFrame)
        tokens: int = run.usage.input_tokens + run.usage.output_tokens
        cost: float = run.usage.cost
        assert tokens >= 0 and cost >= 0
        both = divebook.frames(runs, {"status": ["completed"]}, columns={"r": "outputs.result"}, limit=5)
        assert_type(both.executions, pd.DataFrame)
        assert_type(both.model_calls, pd.DataFrame)
        assert sorted(both.executions["r"]) == [0.5, 1.0]
        assert len(divebook.frames(run).events) == len(run.events)
        assert len(environment.frames(tag="t").steps) == 2
        request = run.requests[0]
        assert request.agent == "poet"
        words = [message.text for message in run.conversation]
        assert words
        assert_type(environment.runs(status="completed", limit=1), list[divebook.Run])
        assert len(environment.runs(workflow="work")) == 2
