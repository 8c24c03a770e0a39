"""Toolsets that hold something open: it answers on the loop that it was opened on, which is that of the executions."""

import asyncio

import pydantic_ai
import pytest
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, FunctionToolset

from divebook import Agent, ScriptedModel
from divebook.agents.scripted_model import ScriptedFunction
from divebook.errors import SetupError
from divebook.stores import MemoryStore
from tests.agents.test_taking_agents import ASK
from tests.agents.test_turns import started
from tests.runtime.worlds import environment

SCRIPT = [{"call": {"look": {"name": "owl"}}}, "an owl"]


class Served(FunctionToolset):
    """Asks a task of the loop on which it was opened, as the client of a server does, and is opened once for all."""

    def __init__(self):
        super().__init__([self.look], id="served")
        self._holders, self._asked, self.opened = 0, asyncio.Queue(), []

    async def __aenter__(self):
        self._holders += 1
        if self._holders == 1:
            self.opened.append(asyncio.get_running_loop())
            self._asked = asyncio.Queue()
            self._answers = asyncio.create_task(self._answer())
        return self

    async def __aexit__(self, *_):
        self._holders -= 1
        if not self._holders:
            self._answers.cancel()

    async def _answer(self):
        while True:
            name, answer = await self._asked.get()
            answer.set_result(f"{name}: seen")

    async def look(self, name: str) -> str:
        """Look a bird up."""
        answer = asyncio.get_running_loop().create_future()
        await self._asked.put((name, answer))
        return await answer


def agent_of(toolset):
    return pydantic_ai.Agent(ScriptedFunction(ScriptedModel(SCRIPT)), name="critic", toolsets=[toolset])


def test_an_agent_that_is_held_open_on_a_loop_of_its_own_is_refused_and_the_run_goes_on_once_it_is_not():
    toolset, store = Served(), MemoryStore()
    agent = agent_of(toolset)
    world = environment(ASK, agents=[agent], store=store)

    async def cell():
        async with agent:
            return await asyncio.to_thread(lambda: world.start("ask").wait(20))

    refused = asyncio.run(cell())
    assert "agent critic is open in `async with agent:`" in refused.error
    assert "Leave the block and resume the run" in refused.error
    resumed = world.run_of(refused.id).resume().wait(20)
    assert resumed.variables == {"said": "an owl"}, resumed.error
    assert len(set(toolset.opened)) == 2
    assert (
        "already open on another event loop, for example by ``async with agent:`` in a cell, a turn raises an error"
        in " ".join(Agent.of.__doc__.split())
    )


def test_an_agent_may_be_used_on_a_loop_of_its_own_before_between_and_after_runs():
    toolset = Served()
    agent = agent_of(toolset)
    world = environment(ASK, agents=[agent])

    async def cell():
        async with agent:
            return (await agent.run("Which birds?")).output

    for _ in range(2):
        assert asyncio.run(cell()) == "an owl"
        execution = world.start("ask").wait(20)
        assert execution.variables == {"said": "an owl"}, execution.error
        assert [o.key for o in started(execution)] == ["turn", "model-1", "tool-1-call-1-1", "model-2"]


def test_runs_side_by_side_hold_one_toolset_open():
    toolset = Served()
    world = environment(ASK, agents=[agent_of(toolset)])
    runs = [world.start("ask") for _ in range(5)]
    assert [run.wait(20).variables for run in runs] == [{"said": "an owl"}] * 5
    assert len(set(toolset.opened)) == 1


class OfItsOwnKind(AbstractToolset):
    """Lists and calls tools by itself."""

    id = "strange"

    async def get_tools(self, ctx):
        return {}

    async def call_tool(self, name, tool_args, ctx, tool):
        raise AssertionError(name)


def test_a_toolset_whose_calls_would_not_be_recorded_is_refused():
    with pytest.raises(SetupError, match="calls of toolset 'strange' would not be recorded, because OfItsOwnKind"):
        environment(ASK, agents=[agent_of(OfItsOwnKind())])
    with pytest.raises(SetupError, match="would not be recorded"):
        environment(ASK, agents=[agent_of(OfItsOwnKind().prefixed("my"))])
    environment(ASK, agents=[agent_of(ExternalToolset([], id="people"))])
