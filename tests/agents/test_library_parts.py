"""What else an agent of pydantic-ai does is recorded too: checks of arguments, dynamic toolsets, capabilities."""

import pydantic_ai
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, durable_operation
from pydantic_ai.toolsets import DynamicToolset, FunctionToolset

from divebook import ScriptedModel
from divebook.agents.scripted_model import ScriptedFunction
from tests.agents.test_taking_agents import ASK
from tests.agents.test_turns import started
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

SCRIPT = [{"call": {"look": {"name": "owl"}}}, "an owl"]


class Bird:
    """Parts of an agent, and what they were asked."""

    def __init__(self):
        self.seen = []

    def look(self, name: str) -> str:
        """Look a bird up."""
        self.seen.append(name)
        return f"{name}: seen"

    def check(self, ctx, name: str) -> None:
        self.seen.append(f"check {name}")

    def toolset(self, ctx):
        self.seen.append("toolset")
        return FunctionToolset([self.look], id="birds")


class Weather(AbstractCapability):
    """Looks at the sky before a run."""

    id = "weather"

    def __init__(self, seen):
        self._seen = seen

    @durable_operation(name="sky")
    async def sky(self, ctx: RunContext[None], place: str) -> str:
        self._seen.append(f"sky over {place}")
        return "grey"

    async def before_run(self, ctx):
        self._seen.append(await self.sky(ctx, "the garden"))


def agent_of(bird, **options):
    return pydantic_ai.Agent(ScriptedFunction(ScriptedModel(SCRIPT)), name="critic", **options)


def run_and_replay(make):
    """Run an agent, cut its log before the last request, and go on; return the keys and what each process did."""
    first, second = Bird(), Bird()
    execution = environment(ASK, agents=[make(first)]).start("ask").wait(20)
    assert execution.variables == {"said": "an owl"}, execution.error
    at = [e.sequence for e in execution.history() if e.event_type == "operation_started"][-1] - 1
    again = environment(ASK, agents=[make(second)], store=cut(execution.store, execution, at))
    assert again.run_of(execution.id).resume().wait(20).variables == {"said": "an owl"}
    return [(o.key, o.operation_type) for o in started(execution)][1:], first.seen, second.seen


def test_a_check_of_arguments_is_an_operation():
    def make(bird):
        return agent_of(bird, tools=[pydantic_ai.Tool(bird.look, args_validator=bird.check)])

    keys, first, second = run_and_replay(make)
    assert keys == [
        ("model-1", "agent_response"),
        ("check-call-1-1", "agent_step"),
        ("tool-1-call-1-1", "tool_call"),
        ("model-2", "agent_response"),
    ]
    assert (first, second) == (["check owl", "owl"], [])


def test_a_toolset_that_is_made_on_the_way_is_an_operation_and_so_are_its_calls():
    def make(bird):
        return agent_of(bird, toolsets=[DynamicToolset(bird.toolset, id="made")])

    keys, first, second = run_and_replay(make)
    assert ("tools-made", "tool_discovery") in keys
    assert ("tool-1-call-1-1", "tool_call") in keys
    assert "owl" in first
    assert "owl" not in second


def test_what_a_capability_does_durably_is_an_operation():
    def make(bird):
        return agent_of(bird, tools=[bird.look], capabilities=[Weather(bird.seen)])

    keys, first, second = run_and_replay(make)
    assert keys[0] == ("weather.sky", "agent_step")
    assert first == ["sky over the garden", "grey", "owl"]
    assert second == ["grey"]


def test_an_agent_that_never_answers_ends_where_the_library_says():
    bird = Bird()
    agent = pydantic_ai.Agent(ScriptedFunction(ScriptedModel(SCRIPT[:1])), name="critic", tools=[bird.look])
    execution = environment(ASK, agents=[agent]).start("ask").wait(60)
    assert "agent critic gave no answer after 50 requests" in execution.error
    assert len(bird.seen) == 50
