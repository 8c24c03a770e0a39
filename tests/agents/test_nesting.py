"""Agents inside tools: part of a recorded call, or with places of their own where the tool is no operation."""

import threading

import pydantic_ai
import pytest
from pydantic_ai.toolsets import FunctionToolset

from divebook import Agent, ScriptedModel
from divebook.agents.durability import DivebookDurability
from divebook.agents.scripted_model import ScriptedFunction
from tests.agents.test_taking_agents import ASK
from tests.agents.test_turns import started
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

INNER = ["seen twice"]
OUTER = [{"call": {"look": {"name": "owl"}}}, "an owl"]


def inner(model, **options):
    return pydantic_ai.Agent(ScriptedFunction(model), name="finder", capabilities=[DivebookDurability()], **options)


def outer(look, model=None, **options):
    script = ScriptedFunction(ScriptedModel(OUTER) if model is None else model)
    return pydantic_ai.Agent(script, name="critic", tools=[pydantic_ai.Tool(look, **options)])


def test_an_agent_inside_a_recorded_call_is_part_of_it_and_is_warned_of(logs):
    finder = inner(ScriptedModel(INNER))

    async def look(name: str) -> str:
        """Look a bird up."""
        return (await finder.run(name)).output

    execution = environment(ASK, agents=[outer(look)]).start("ask").wait(20)
    assert [o.key for o in started(execution)] == ["turn", "model-1", "tool-1-call-1-1", "model-2"]
    assert any("agent finder runs inside the call of tool look" in line for line in logs())


def test_an_agent_inside_a_tool_that_is_no_operation_has_places_below_its_call():
    def world(model, seen, **given):
        finder = inner(seen)

        async def look(name: str) -> str:
            """Look a bird up."""
            return (await finder.run(name)).output

        agent = outer(look, model, metadata={"divebook": False})
        return environment(ASK, agents=[agent], **given)

    execution = world(ScriptedModel(OUTER), ScriptedModel(INNER)).start("ask").wait(20)
    assert [o.key for o in started(execution)] == ["turn", "model-1", "tool-1-call-1-1/model-1", "model-2"]
    at = [e.sequence for e in execution.history() if e.event_type == "operation_completed"][1]
    model, seen = ScriptedModel(OUTER), ScriptedModel(INNER)
    resumed = world(model, seen, store=cut(execution.store, execution, at)).run_of(execution.id).resume().wait(20)
    assert (resumed.variables, model.calls, seen.calls) == ({"said": "an owl"}, 1, 0)


def test_each_agent_that_one_tool_runs_has_places_of_its_own():
    def world(seen, **given):
        finder = inner(seen)

        async def look(name: str) -> str:
            """Look a bird up twice."""
            return f"{(await finder.run(name)).output}, {(await finder.run(name)).output}"

        agent = outer(look, ScriptedModel(OUTER), metadata={"divebook": False})
        return environment(ASK, agents=[agent], **given)

    def results(execution):
        return [result["content"] for result in execution.requests[-1].messages[-1]["parts"]]

    execution = world(ScriptedModel(turns=[["one"], ["two"]])).start("ask").wait(20)
    keys = ["turn", "model-1", "tool-1-call-1-1/model-1", "tool-1-call-1-1/run-2/model-1", "model-2"]
    assert [o.key for o in started(execution)] == keys
    assert results(execution) == ["one, two"]
    assert execution.verify().equal
    at = [e.sequence for e in execution.history() if e.event_type == "operation_completed"][1]
    resumed = (
        world(ScriptedModel(["two"]), store=cut(execution.store, execution, at)).run_of(execution.id).resume().wait(20)
    )
    assert results(resumed) == ["one, two"]


def test_an_agent_inside_a_tool_counts_for_the_bounds_of_its_turn():
    def world(**given):
        finder = inner(ScriptedModel(INNER))

        async def look(name: str) -> str:
            """Look a bird up."""
            return (await finder.run(name)).output

        agent = Agent.of(outer(look, metadata={"divebook": False}), bounds={"max_llm_calls": 2})
        return environment(ASK, agents=[agent], **given)

    execution = world().start("ask").wait(20)
    (question,) = execution.open_questions
    assert "Agent 'critic': Budget reached: 2 of 2 model calls made" in question.question
    resumed = (
        world(store=cut(execution.store, execution, len(execution.history()))).run_of(execution.id).resume().wait(20)
    )
    assert [asked.question for asked in resumed.open_questions] == [question.question]
    assert resumed.answer(question.id, 3).wait(20).variables == {"said": "an owl"}


@pytest.mark.parametrize("metadata", [None, {"divebook": False}])
def test_a_sync_tool_that_runs_an_agent_runs_it_on_its_own_loop(metadata):
    finder, loops = inner(ScriptedModel(INNER)), []

    def look(name: str) -> str:
        """Look a bird up."""
        import asyncio

        loops.append(threading.current_thread())
        return asyncio.run(finder.run(name)).output

    execution = environment(ASK, agents=[outer(look, metadata=metadata)]).start("ask").wait(20)
    assert execution.variables == {"said": "an owl"}
    assert not any("finder" in str(o.parameters) for o in started(execution))


def test_one_agent_works_on_a_persons_loop_and_on_the_engines():
    import asyncio

    async def look(name: str) -> str:
        """Look a bird up."""
        return name

    agent = outer(look, ScriptedModel(turns=[OUTER, OUTER]))
    world = environment(ASK, agents=[Agent.of(agent)])

    async def both():
        execution = world.start("ask")
        result = await agent.run("Which birds?")
        await execution
        return result.output, execution.variables["said"]

    assert asyncio.run(both()) == ("an owl", "an owl")


def test_toolsets_that_come_with_a_run_would_not_be_recorded_and_are_refused():
    finder = inner(ScriptedModel(INNER))

    async def look(name: str) -> str:
        """Look a bird up."""
        return (await finder.run(name, toolsets=[FunctionToolset([len], id="more")])).output

    execution = environment(ASK, agents=[outer(look, metadata={"divebook": False})]).start("ask").wait(20)
    assert "toolsets" in execution.error
    assert [o.key for o in started(execution)] == ["turn", "model-1"]
