"""What is wrong with agents is said before anything is recorded, with the name of the agent."""

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow, tool
from divebook.definitions import definitions_from
from divebook.definitions.functions import workflow
from divebook.errors import DefinitionError, NotFoundError, SetupError
from tests.runtime.worlds import environment

ASK = Workflow("ask", [Step("ask", prompt="Go", agent="boss", store="r")])
SCRIPT = ["done"]


def send(to: str) -> str:
    """Send a letter."""
    return to


def maker():
    def send(to: str) -> str:
        """Send a parcel."""
        return to

    return send


def far(x: "Nowhere") -> str:  # noqa: F821 - the name is not there
    """Look far."""
    return str(x)


class Odd:
    """Nothing that JSON can hold."""


def odd(x: Odd) -> str:
    """Look at something odd."""
    return str(x)


def boss(**more):
    return Agent("boss", **{"model": ScriptedModel(SCRIPT), **more})


@pytest.mark.parametrize(
    ("agents", "error", "said"),
    [
        ([boss(subordinates=["workr"]), Agent("worker")], NotFoundError, "workr, which agent boss names .*'worker'"),
        ([boss(tools=["serve"])], NotFoundError, "agent boss names an unknown tool: serve"),
        ([boss(servers=["git"])], NotFoundError, "mcp server not found: git, which agent boss names"),
        ([boss(tools=[send, maker()])], SetupError, r"boss has two tools called send: .*\.send and .*maker\.<locals>"),
        ([boss(tools=[far])], DefinitionError, '(?s)agent boss.*tool "far" cannot be described to a model'),
        ([boss(tools=[odd])], DefinitionError, '(?s)agent boss.*tool "odd" cannot be described to a model'),
        (
            [boss(model="opena:gpt-6")],
            SetupError,
            "agent boss: there is no model provider .*'opena'.*did you mean openai:gpt-6",
        ),
        ([boss(model="acme:m")], SetupError, "agent boss: there is no model provider .*'acme'.*such as openai:m"),
        ([boss(model="recorded:exec_none")], SetupError, "agent boss: recorded:exec_none names a run that does not"),
        (
            [boss(subordinates=["worker"]), Agent("worker", tools=["serve"])],
            NotFoundError,
            "agent worker names an unknown tool: serve",
        ),
        (
            [boss(subordinates=["worker"]), Agent("worker", model="opena:gpt-6")],
            SetupError,
            "agent worker: there is no model provider",
        ),
    ],
)
def test_what_an_agent_names_in_error_is_said_before_anything_is_recorded(agents, error, said):
    world = environment(ASK, agents=agents)
    with pytest.raises(error, match=said):
        world.start("ask")
    assert world.store.records() == []


def test_agents_that_name_each_other_are_looked_at_once():
    world = environment(ASK, agents=[boss(subordinates=["worker"]), Agent("worker", subordinates=["boss"])])
    assert world.start("ask").wait(20).variables == {"r": "done"}


def test_a_tool_of_an_agent_does_not_stand_in_for_another_one_of_its_environment():
    asking = tool("send", approval=True)(maker())
    world = environment(ASK, agents=[boss(tools=[send])], tools=[asking])
    with pytest.raises(SetupError, match="boss has a tool called send of its own"):
        world.start("ask")
    world.add_agent(boss(tools=["send"]), replace=True)
    assert world.start("ask").wait(20).variables == {"r": "done"}


def test_one_function_may_be_a_tool_of_an_environment_and_of_its_agent():
    world = environment(ASK, agents=[boss(tools=[send])], tools=[send])
    assert world.start("ask").wait(20).variables == {"r": "done"}


def test_agents_of_functions_are_looked_at_when_they_are_asked():
    @workflow
    async def asks_boss(ctx):
        return await ctx.agent("boss").run("Go")

    world = environment(agents=[boss(tools=[send])], tools=[maker()])
    execution = world.start(asks_boss).wait(20)
    assert "boss has a tool called send of its own" in execution.error
    assert "model-1" not in [getattr(event.data, "key", None) for event in execution.history()]
    world.add_agent(boss(tools=["send"]), replace=True)
    assert world.run_of(execution.id).resume().wait(20).status == "completed"


def test_what_is_said_of_a_tool_that_there_is_not_is_refused():
    definition = {"Tools": [{"Name": "sent", "Approval": True}], "Agents": [{"Name": "boss", "Tools": ["send"]}]}
    world = environment(ASK, tools=[send])
    world.define(definitions_from(definition))
    with pytest.raises(NotFoundError, match=r"Tools .*unknown tool: sent \(did you mean 'send'\?\)"):
        world.start("ask")


def test_a_model_of_the_run_stands_in_for_one_that_there_is_not():
    world = environment(ASK, agents=[boss(model="opena:gpt-6")])
    assert world.start("ask", model="scripted").wait(20).status == "completed"
