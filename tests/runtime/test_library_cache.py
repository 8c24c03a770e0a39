"""Tools and agents of pydantic-ai that an environment keeps between the turns of an agent."""

import gc
import weakref

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.definitions.functions import workflow
from divebook.definitions.reader import definitions_from
from divebook.definitions.resources import AgentDefinition, ApprovalRule, WorkspaceDefinition
from tests.runtime.worlds import becomes, environment
from tests.tools.conftest import defined

BOUNDS = {"max_llm_calls": 9}
ASK = Workflow("ask", [Step("ask", prompt="Which birds?", agent="a", store="birds")])


class Birds:
    """A tool, and the model that calls it once a turn."""

    def __init__(self):
        self.requests = []

    def look(self, name: str) -> str:
        """Look a bird up."""
        return f"{name}: seen"

    def answer(self, messages, info):
        self.requests.append(info)
        is_first = len(messages) == 1
        return ModelResponse([ToolCallPart("look", {"name": "owl"}) if is_first else TextPart("an owl")])

    def agent(self, **options):
        return Agent("a", **{"model": FunctionModel(self.answer), "tools": [self.look], **options})


class Built(list):
    """Names of the agents of pydantic-ai that were built."""

    def __init__(self):
        self.references = []

    @property
    def alive(self):
        return [agent for reference in self.references if (agent := reference()) is not None]


@pytest.fixture
def built(monkeypatch):
    names = Built()
    create = pydantic_ai.Agent.__init__

    def created(self, *arguments, **options):
        names.append(options["name"])
        names.references.append(weakref.ref(self))
        create(self, *arguments, **options)

    monkeypatch.setattr(pydantic_ai.Agent, "__init__", created)
    return names


def ask(world):
    execution = world.start("ask").wait(20)
    assert execution.error is None, execution.error
    return execution


def test_later_turns_have_the_agent_of_the_first_one(built):
    world = environment(ASK, agents=[Birds().agent()])
    first, second, third = (ask(world) for _ in range(3))
    assert built == ["a"]
    assert first.variables == second.variables == third.variables == {"birds": "an owl"}


def test_turns_at_the_same_time_share_an_agent(built):
    birds = Birds()
    world = environment(ASK, agents=[birds.agent()])
    ask(world)
    runs = [world.start("ask") for _ in range(10)]
    assert [run.wait(20).variables for run in runs] == [{"birds": "an owl"}] * 10
    assert built == ["a"]
    assert len(birds.requests) == 22


@pytest.mark.parametrize(
    "change",
    [{"instructions": "Be brief."}, {"corrections": 3}, {"model": ScriptedModel(["an owl"])}, {"bounds": BOUNDS}],
    ids=lambda change: next(iter(change)),
)
def test_an_agent_that_was_defined_again_is_built_again(built, change):
    world = environment(ASK, agents=[Birds().agent()])
    ask(world)
    world.add_agent(Birds().agent(**change), replace=True)
    ask(world)
    ask(world)
    assert built == ["a", "a"]


def test_a_limit_that_was_changed_holds_in_the_next_turn():
    birds = Birds()
    world = environment(ASK, agents=[birds.agent()])
    ask(world)
    definition = AgentDefinition("a", tool_iteration_limit=0)
    world.add_agent(Agent(definition, model=FunctionModel(birds.answer), tools=[birds.look]), replace=True)
    assert "after 0 rounds of calls" in world.start("ask").wait(20).error


def test_a_tool_whose_annotation_means_another_class_by_now_is_described_anew(built):
    names = {}
    code = "def look(place: 'Place') -> str:\n    return 'seen'\n"
    exec(compile(code, "cell", "exec"), names)
    requests = []

    def answer(messages, info):
        requests.append(info.function_tools[0].parameters_json_schema["properties"])
        return ModelResponse([TextPart("many")])

    def define(**fields):
        names["Place"] = type("Place", (BaseModel,), {"__annotations__": fields})

    define(city=str)
    world = environment(ASK, agents=[Agent("a", model=FunctionModel(answer), tools=[names["look"]])])
    ask(world)
    ask(world)
    define(town=str)
    ask(world)
    assert [list(properties) for properties in requests] == [["city"], ["city"], ["town"]]
    assert built == ["a", "a"]


def test_tools_that_each_turn_makes_anew_keep_their_agent(built, tmp_path):
    """Built-in tools, tools with limits, in a workspace or of a server: those of two turns are equal."""
    calls = {"ls": {}, "list_documents": {}, "look": {"name": "owl"}, "go": {}}

    def answer(messages, info):
        is_first = len(messages) == 1
        return ModelResponse([ToolCallPart(*call) for call in calls.items()] if is_first else [TextPart("an owl")])

    definitions = [
        {"Name": "look", "Limit": 3},
        {"Name": "list_documents", "Parameters": {"max_entries": 5}, "Limit": 2},
    ]
    agent = {"Name": "a", "Tools": ["list_documents", "ls", "look"], "Workspace": "nest", "Servers": ["good"]}
    world = environment(
        ASK,
        tools=[Birds().look],
        servers=[defined("rough.py", name="good", trusted=True)],
        workspaces=[WorkspaceDefinition("nest", folder=str(tmp_path))],
        approvals=[ApprovalRule()],
    )
    world.define(definitions_from({"Tools": definitions, "Agents": [agent]}))
    world.add_agent(Agent(world.definitions.agents["a"].definition, model=FunctionModel(answer)), replace=True)
    first, second = ask(world), ask(world)
    assert first.variables == second.variables == {"birds": "an owl"}
    assert [*first.tool_calls["tool"]] == [*calls]
    assert built == ["a"]


def test_an_agent_with_capabilities_is_built_for_each_turn(built):
    world = environment(ASK, agents=[Birds().agent(capabilities=[AbstractCapability()])])
    ask(world)
    ask(world)
    assert built == ["a", "a"]


def test_an_agent_that_delegates_is_built_for_each_turn(built):
    """The tool with which it delegates belongs to its turn."""
    birds = Birds()
    other = Agent("b", model=ScriptedModel(["an owl"]))
    world = environment(ASK, agents=[birds.agent(subordinates=["b"]), other])
    ask(world)
    ask(world)
    assert built == ["a", "a"]
    assert {tool.name for tool in birds.requests[0].function_tools} == {"look", "assign_work"}


class Garden:
    """Dependencies of one run."""


@pytest.mark.parametrize("capabilities", [[], [AbstractCapability()]], ids=["kept", "built for each turn"])
def test_the_dependencies_of_a_run_are_gone_after_it(capabilities):
    """Neither an agent that is kept refers to them, nor the timers of requests, which the event loop keeps."""
    gardens = []

    @workflow
    async def visit(ctx):
        garden = Garden()
        gardens.append(weakref.ref(garden))
        return await ctx.agent("a").run("Which birds?", deps=garden)

    world = environment(visit, agents=[Birds().agent(capabilities=capabilities)])
    for _ in range(2):
        assert world.start(visit).wait(20).result() == "an owl"
    assert becomes(lambda: gc.collect() >= 0 and [garden() for garden in gardens] == [None, None])


def test_a_closed_environment_keeps_no_agent(built):
    """Its model has the key of its provider. The agent of divebook lives on: other environments may have it too."""
    agent = Birds().agent()
    world = environment(ASK, agents=[agent])
    ask(world)
    assert [library.name for library in built.alive] == ["a"]
    world.close()
    assert becomes(lambda: gc.collect() >= 0 and not built.alive)
    assert agent.name == "a"
