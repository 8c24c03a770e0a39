"""What an execution holds that was under way as the one that had started it ended: it may go on, so nobody has that."""

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.definitions.functions import workflow
from divebook.errors import OperationError
from divebook.steps.actions import Action
from tests.runtime.worlds import Gate, environment

SLOW = Workflow("slow", [Step("talk", prompt="hello"), Step("gate", action="gate")])
FAILS = Workflow("fails", [Step("fail", action="fail")])
TALKS = Workflow("talks", [Step("talk", prompt="hello")])


@pytest.fixture
def gate():
    opened = Gate()
    yield opened
    opened.opened.set()


@pytest.fixture
def world(gate):
    def fail():
        assert gate.reached.wait(20)
        raise ValueError("not today")

    @workflow("middle")
    async def middle(ctx, again: bool):
        await ctx.gather(*(ctx.run(name) for name in (["talks"] if again else ["slow", "fails"])))

    agents = [Agent("ann", model=ScriptedModel(["hi"]))]
    return environment(SLOW, FAILS, TALKS, agents=agents, actions=[gate.action(), Action("fail", fail)])


def calls_given(world, name):
    found = [world.run_of(record.execution_id).state for record in world.store.records()]
    return [state.bounds.max_llm_calls for state in found[::-1] if state.workflow_name == name]


def test_it_stays_held_where_the_failure_is_caught(world):
    @workflow("upper")
    async def upper(ctx):
        with pytest.raises(OperationError, match="not today"):
            await ctx.run("middle", {"again": False})
        await ctx.run("talks")

    done = world.start(upper, bounds={"max_llm_calls": 5, "on_exhausted": "fail"}).wait(20)
    assert (done.status, calls_given(world, "slow"), calls_given(world, "talks")) == ("completed", [3], [2])


def test_it_stays_held_where_another_execution_takes_the_place(world):
    has_failed = []

    @workflow("upper")
    async def upper(ctx):
        await ctx.run("middle", {"again": bool(has_failed)})
        await ctx.run("talks")

    failed = world.start(upper, bounds={"max_llm_calls": 5, "on_exhausted": "fail"}).wait(20)
    has_failed.append(failed.status)
    done = world.run_of(failed.id).resume().wait(20)
    assert (has_failed, done.status) == (["failed"], "completed")
    assert (calls_given(world, "middle"), calls_given(world, "talks")) == ([5, 2], [2, 1])
