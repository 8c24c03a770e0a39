"""Budgets and calls side by side: what calls under way have reserved is waited for before a person is asked."""

import asyncio
import random

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from divebook import Agent, Each, Environment, Step, Workflow
from divebook.definitions import workflow
from divebook.engine.operations import Reserved
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

RESERVED = 100
"""Tokens that each call may use at most."""


class Spender(FunctionModel):
    """A model that reserves more tokens than it uses, and lets others run while it answers."""

    def __init__(self, uses, turns=()):
        self.uses, self.turns, self.under_way, self.most_under_way = list(uses), list(turns), 0, 0

        async def answer(messages, info):
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            for _ in range(self.turns.pop() if self.turns else 3):
                await asyncio.sleep(0)
            self.under_way -= 1
            used = self.uses.pop() if self.uses else 1
            return ModelResponse(parts=[TextPart("done")], usage=RequestUsage(input_tokens=used))

        super().__init__(answer, model_name="spender")

    @property
    def reserved(self):
        return Reserved(RESERVED)


def each(count, parallel):
    step = Step("ask", agent="a", prompt="${i}", each=Each(list(range(count)), as_="i", parallel=parallel))
    return Workflow("each", [step])


def test_calls_wait_for_the_budget_that_others_under_way_hold():
    model = Spender([10] * 12)
    world = environment(each(12, 8), agents=[Agent("a", model=model)])
    done = world.start("each", bounds={"max_tokens": 350}).wait(20)
    assert (done.status, done.open_questions, done.usage.requests) == ("completed", [], 12)
    assert 1 < model.most_under_way <= 3


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("enough", [True, False])
def test_a_person_is_asked_only_where_the_money_is_spent_and_then_once(seed, enough):
    chance = random.Random(seed)
    count, parallel = chance.randint(2, 12), chance.randint(1, 8)
    uses = [chance.randint(1, RESERVED) for _ in range(count)]
    limit = sum(uses) + RESERVED if enough else chance.randint(1, sum(uses) - 1)
    world = environment(
        each(count, parallel), agents=[Agent("a", model=Spender(uses, [chance.randint(0, 9) for _ in uses]))]
    )
    run = world.start("each", bounds={"max_tokens": limit}).wait(20)
    spent = run.usage.input_tokens
    assert spent <= limit
    if enough:
        assert (run.status, len(run.open_questions)) == ("completed", 0)
        return
    (question,) = run.open_questions
    assert f"{spent} of {limit} tokens used, and the next call needs up to 100" in question.question
    assert run.answer(question.id, sum(uses) + RESERVED).wait(20).status == "completed"


@pytest.mark.parametrize("bounds", [{"max_tokens": 150}, {"max_tokens": 150, "on_exhausted": "fail"}])
def test_the_paths_of_a_function_wait_for_each_other(bounds):
    @workflow
    async def both(ctx):
        return await ctx.gather(*(ctx.agent("a").run(f"question {number}") for number in range(5)))

    world = environment(both, agents=[Agent("a", model=Spender([5] * 5))])
    assert world.start("both", bounds=bounds).wait(20).status == "completed"


def test_a_call_that_fails_gives_its_reservation_back():
    class Failing(Spender):
        async def request(self, *args):
            await super().request(*args)
            raise ValueError("broken")

    @workflow
    async def three(ctx):
        calls = [ctx.agent("a").run(str(number)) for number in range(3)]
        return [type(error).__name__ for error in await ctx.gather(*calls, return_exceptions=True)]

    world = environment(three, agents=[Agent("a", model=Failing([5] * 3))])
    run = world.start("three", bounds={"max_tokens": 150}).wait(20)
    assert (run.open_questions, run.outputs) == ([], {"result": ["StepError"] * 3})


def test_a_call_that_was_cut_off_gives_its_reservation_back():
    class Stuck(Spender):
        async def request(self, *args):
            if self.under_way or self.uses:
                return await super().request(*args)
            return await asyncio.Event().wait()

    @workflow
    async def cut_off(ctx):
        async def breaking():
            await ctx.sleep(0)
            raise KeyError("broken")

        try:
            await ctx.gather(ctx.agent("stuck").run("first"), breaking())
        except KeyError:
            return await ctx.agent("a").run("second")

    agents = [Agent("stuck", model=Stuck([])), Agent("a", model=Spender([5]))]
    run = (
        environment(cut_off, agents=agents)
        .start("cut_off", bounds={"max_tokens": 150, "on_exhausted": "fail"})
        .wait(20)
    )
    assert (run.status, run.usage.requests, run.state.ledger.reserved_tokens) == ("completed", 1, 0)


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("following", [False, True])
def test_calls_that_are_made_again_after_a_kill_need_no_more_than_before(parallel, following):
    steps = [Step("ask", agent="a", prompt="${i}", each=Each(list(range(3)), as_="i", parallel=parallel), next=[])]
    if following:
        steps = [Step("first", script="1", next=["ask", "beside"]), *steps, Step("beside", agent="a", prompt="b")]
    bounds = {"max_tokens": 150, "on_exhausted": "fail"}
    world = environment(Workflow("w", steps), agents=[Agent("a", model=Spender([5] * 4))])
    execution = world.start("w", bounds=bounds).wait(20)
    assert execution.status == "completed"
    for length in range(1, len(execution.history())):
        later = Environment(store=cut(execution.store, execution, length), agents=[Agent("a", model=Spender([5] * 4))])
        done = later.run_of(execution.id).resume().wait(20)
        assert (done.status, done.usage.requests) == ("completed", 3 + following), (length, done.error)
        assert done.state.ledger.reserved_tokens == 0


def test_a_fork_does_not_count_calls_that_were_under_way_in_its_source():
    items = Step("ask", agent="a", prompt="${i}", each=Each(list(range(4)), as_="i", parallel=4))
    workflow = Workflow("w", [Step("s", agent="a", prompt="s"), items, Step("e", agent="a", prompt="e")])
    world = environment(workflow, agents=[Agent("a", model=Spender([]))])
    done = world.start("w", bounds={"max_llm_calls": 6, "on_exhausted": "fail"}).wait(20)
    for at in range(1, len(done.history())):
        fork = world.run_of(done.id).fork(at).wait(20)
        assert (fork.status, fork.state.ledger.llm_calls) == ("completed", 6), (at, fork.error)
        assert sum(hop.llm_calls for hop in fork.state.ledger.history.values()) == 6
