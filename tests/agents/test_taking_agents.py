"""Agents of pydantic-ai, taken as they are."""

from dataclasses import dataclass

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.toolsets import FunctionToolset

from divebook import Agent, ScriptedModel, Step, Workflow, allow
from divebook.agents.durability import DivebookDurability
from divebook.agents.scripted_model import ScriptedFunction
from divebook.definitions import workflow
from divebook.errors import SetupError
from tests.agents.test_turns import KEYS, SCRIPT, Book, started
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

ASK = Workflow("ask", [Step("ask", prompt="Which birds?", agent="critic", store="said")])


class Verdict(BaseModel):
    """What a critic says."""

    score: int
    why: str = ""


@dataclass
class Sighting:
    """What was seen."""

    bird: str


VERDICT = [{"output": {"score": 3, "why": "too long"}}]


def library_agent(script=SCRIPT, **options):
    return pydantic_ai.Agent(ScriptedFunction(ScriptedModel(script)), name="critic", **options)


def test_an_agent_of_the_library_is_one_of_ours_as_it_is():
    book = Book()
    agent = library_agent(instructions="Be strict.", tools=[book.look])
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    assert execution.variables == {"said": "an owl, a lark and a wren"}
    assert [operation.key for operation in started(execution)] == KEYS
    (first, *_), agent_tools = execution.requests, [tool.name for tool in agent.toolsets[0].tools.values()]
    assert (first.instructions, agent_tools) == ("Be strict.", ["look"])
    assert agent.run_sync is not None


def test_its_hooks_run_and_its_dependencies_arrive():
    heard = []

    class Listens(AbstractCapability):
        async def before_tool_execute(self, ctx, *, call, tool_def, args):
            heard.append((call.tool_name, ctx.deps))
            return args

    agent = library_agent(deps_type=str, capabilities=[Listens()], tools=[Book().look])
    environment(ASK, agents=[Agent.of(agent, deps="a garden")]).start("ask").wait(20)
    assert heard == [("look", "a garden")] * 3


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (pydantic_ai.Agent("test"), "an agent needs a name"),
        (pydantic_ai.Agent(name="critic"), "needs to have a `model`"),
        (library_agent(toolsets=[FunctionToolset([Book().look])]), "need to have a unique `id`"),
        (library_agent(toolsets=[FunctionToolset(id="t"), FunctionToolset(id="t")]), "have the same `id` 't'"),
        (library_agent(capabilities=[DivebookDurability()]), "remove it"),
        ("critic", "a pydantic_ai.Agent, not 'critic'"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_anything_is(agent, said):
    with pytest.raises(SetupError, match=said):
        environment(ASK, agents=[agent])


@pytest.mark.parametrize(
    ("output", "script", "expected"),
    [
        (Verdict, VERDICT, Verdict(score=3, why="too long")),
        (Sighting, [{"output": {"bird": "owl"}}], Sighting("owl")),
        ({"type": "object", "properties": {"score": {"type": "integer"}}}, [{"output": {"score": 3}}], {"score": 3}),
    ],
)
def test_a_function_gets_the_typed_answer_live_and_replayed(output, script, expected):
    allow(Verdict, Sighting)
    seen = []

    @workflow
    async def judge(ctx):
        seen.append(await ctx.agent("critic").run("Is it good?", output=output))
        return len(seen)

    agents = [Agent("critic", model=ScriptedModel([*script]))]
    execution = environment(agents=agents).start("judge").wait(20)
    assert execution.error is None
    at = next(e.sequence for e in execution.history() if e.event_type == "step_completed") - 1
    environment(agents=agents, store=cut(execution.store, execution, at)).run_of(execution.id).resume().wait(20)
    assert seen == [expected, expected]


def test_a_prompt_step_keeps_the_data_of_an_agent_with_an_output():
    agent = Agent("critic", model=ScriptedModel(VERDICT), output=Verdict)
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    assert execution.variables == {"said": Verdict(score=3, why="too long")}


def test_another_model_of_the_execution_holds_for_a_library_agent_too():
    agent = library_agent(script=["never asked"])
    execution = environment(ASK, agents=[agent]).start("ask", model="scripted").wait(20)
    assert execution.variables["said"].startswith("[scripted model:")


def test_rules_hold_for_the_calls_of_one_agent():
    book = Book()
    rules = [{"tool": "look", "outcome": "deny", "reason": "the book is closed"}]
    agents = [
        Agent.of(library_agent(tools=[book.look]), approvals=rules),
        Agent("own", model=ScriptedModel(SCRIPT), tools=[book.look], approvals=rules),
    ]
    world = environment(agents=agents)
    for name in ("critic", "own"):
        execution = world.start(Workflow(name, [Step("ask", prompt="?", agent=name)])).wait(20)
        assert (execution.error, book.looked) == (None, [])
