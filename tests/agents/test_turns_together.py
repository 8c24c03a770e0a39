"""Turns beside and inside each other: questions, failures and answers of one leave the others as they are."""

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.definitions import workflow
from divebook.definitions.step import Each, Retry
from divebook.definitions.tools import ToolFunction
from tests.agents.test_approved_calls import Post, goes_on, question_about
from tests.agents.test_turns import ASK, SCRIPT, Book, started
from tests.runtime.worlds import environment

__all__ = ["goes_on"]
LETTER = [{"call": {"send": {"to": "ann"}}}, "done"]


def sender(name, post, script=LETTER, **options):
    return Agent(name, model=ScriptedModel(script), tools=post.tools, **options)


@pytest.mark.usefixtures("goes_on")
def test_items_side_by_side_have_turns_of_their_own():
    post = Post()
    script = [[{"call": {"send": {"to": "ann"}}}, "done"]]
    agent = Agent("a", model=ScriptedModel(turns=script * 2), tools=post.tools)
    step = Step("ask", prompt="Write", agent="a", store="said", each=Each([1, 2], parallel=2))
    execution = environment(agents=[agent]).start(Workflow("w", [step])).wait(20)
    assert len(execution.open_questions) == 2
    for question in execution.open_questions:
        execution.answer(question.id, "yes").wait(20)
    assert (execution.status, len(post.sent)) == ("completed", 2)
    turns = [o for o in started(execution) if o.operation_type == "agent_turn"]
    assert sorted(turn.iteration_index for turn in turns) == [0, 1]


@pytest.mark.usefixtures("goes_on")
def test_agents_that_a_function_gathers_wait_without_holding_each_other_up():
    post, book = Post(), Book()

    @workflow
    async def both(ctx):
        return await ctx.gather(ctx.agent("a").run("Write"), ctx.agent("b").run("Which birds?"))

    agents = [sender("a", post), Agent("b", model=ScriptedModel(SCRIPT), tools=[book.look])]
    execution = environment(agents=agents).start("both").wait(20)
    assert (execution.status, sorted(book.looked)) == ("waiting", ["lark", "owl", "wren"])
    execution.answer(question_about(execution, "ann").id, "yes").wait(20)
    assert execution.outputs["result"] == ["done", "an owl, a lark and a wren"]
    assert (post.sent, sorted(book.looked)) == (["ann"], ["lark", "owl", "wren"])


def work(agent):
    given = {"agent": agent, "name": "letters", "description": "Write", "expected_output": "a letter"}
    return {"call": {"assign_work": given}}


@pytest.mark.usefixtures("goes_on")
def test_a_subordinate_asks_from_two_levels_down():
    post = Post()
    agents = [
        Agent("a", model=ScriptedModel([work("b"), "all done"]), subordinates=["b"]),
        Agent("b", model=ScriptedModel([work("c"), "passed on"]), subordinates=["c"]),
        sender("c", post),
    ]
    execution = environment(ASK, agents=agents).start("ask").wait(20)
    assert (execution.status, post.sent) == ("waiting", [])
    execution.answer(question_about(execution, "ann").id, "yes").wait(20)
    assert (execution.variables, post.sent) == ({"birds": "all done"}, ["ann"])
    assert [o.name for o in started(execution) if o.operation_type == "agent_turn"] == ["a", "b", "c"]
    assert all(agent.model.calls == 2 for agent in agents)


def test_only_the_request_that_failed_is_made_again():
    book = Book()
    script = [SCRIPT[0], {"error": "overloaded", "status": 503}, *SCRIPT[1:]]
    step = Step("ask", prompt="?", agent="a", store="said", retry=Retry(attempts=2, seconds=0))
    agent = Agent("a", model=ScriptedModel(script), tools=[book.look])
    execution = environment(agents=[agent]).start(Workflow("w", [step])).wait(20)
    assert execution.variables == {"said": "an owl, a lark and a wren"}
    assert sorted(book.looked) == ["lark", "owl", "wren"]
    requests = [o.key for o in started(execution) if o.operation_type == "agent_response"]
    assert requests == ["model-1", "model-2", "model-2", "model-3"]


def test_resuming_a_failed_turn_makes_its_failure_again_only():
    book = Book()
    script = [SCRIPT[0], {"error": "no such model", "status": 404}, *SCRIPT[1:]]
    model = ScriptedModel(script)
    world = environment(ASK, agents=[Agent("a", model=model, tools=[book.look])])
    execution = world.start("ask").wait(20)
    assert (execution.status, model.calls) == ("failed", 2)
    resumed = world.run_of(execution.id).resume().wait(20)
    assert resumed.variables == {"birds": "an owl, a lark and a wren"}
    assert (sorted(book.looked), model.calls) == (["lark", "owl", "wren"], 4)


def test_the_time_of_a_step_holds_for_the_calls_of_its_turn():
    import asyncio

    async def look(name: str) -> str:
        """Look a bird up for ever."""
        await asyncio.Event().wait()
        return name

    step = Step("ask", prompt="?", agent="a", timeout=0.05)
    tool = ToolFunction("look", look, idempotent=True)
    agent = Agent("a", model=ScriptedModel(SCRIPT), tools=[tool])
    execution = environment(agents=[agent]).start(Workflow("w", [step])).wait(20)
    assert "took longer than its Timeout of 0.05 seconds" in execution.error
