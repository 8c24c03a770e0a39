"""Tools of an agent of pydantic-ai: what they change besides their result is told of, and they may block."""

import threading
from dataclasses import dataclass, field

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai import RunContext

from divebook import Agent, ScriptedModel
from divebook.agents.running_turn import MOST_VALUES, seen_in
from divebook.agents.scripted_model import ScriptedFunction
from tests.agents.test_taking_agents import ASK
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

TWICE = [{"call": {"note": {"word": "owl"}}}, {"call": {"note": {"word": "lark"}}}, "done"]
MANY = 60
"""More than the threads of anyio, which pydantic-ai has ordinary functions run in."""


@dataclass
class Notes:
    words: list = field(default_factory=list)


def note(ctx: RunContext[Notes], word: str) -> str:
    """Keep a word."""
    ctx.deps.words.append(word)
    return " ".join(ctx.deps.words)


def world(deps, tool=note, script=TWICE, **given):
    agent = pydantic_ai.Agent(ScriptedFunction(ScriptedModel(script)), name="critic", tools=[tool])
    return environment(ASK, agents=[Agent.of(agent, deps=deps)], **given)


def results(execution):
    return execution.tool_calls.result.tolist()


def test_a_tool_that_changes_its_dependencies_is_told_of_once_a_turn_and_does_not_change_them_again(logs):
    execution = world(Notes()).start("ask").wait(20)
    assert results(execution) == ["owl", "owl lark"]
    (warned,) = [line for line in logs() if "ctx.deps" in line]
    assert warned.startswith("tool note of agent critic changed ctx.deps. That change is not recorded")
    at = [e.sequence for e in execution.history() if e.event_type == "operation_completed"][1]
    resumed = world(Notes(), store=cut(execution.store, execution, at)).run_of(execution.id).resume().wait(20)
    assert results(resumed) == ["owl", "lark"]
    said = " ".join(Agent.of.__doc__.split())
    assert (
        "Changes that the tool made to ``ctx.deps`` or to variables of its module are therefore missing after a replay"
        in said
    )


@pytest.mark.parametrize(
    ("wanted", "deps", "count"), [(Notes, None, 1), (Notes | None, None, 0), (object, None, 0), (Notes, Notes(), 0)]
)
def test_an_agent_that_gets_no_dependencies_and_is_made_for_some_is_told_of(logs, wanted, deps, count):
    agent = pydantic_ai.Agent(ScriptedFunction(ScriptedModel(["done"])), name="critic", deps_type=wanted)
    assert environment(ASK, agents=[Agent.of(agent, deps=deps)]).start("ask").wait(20).variables == {"said": "done"}
    told = "agent critic needs ctx.deps of type Notes, but no dependencies were passed. Pass them with Agent.of("
    assert sum(told in line for line in logs()) == count


class Client:
    """Has a state of its own."""

    def __init__(self):
        self.calls = 0

    def get(self):
        self.calls += 1


@dataclass
class Means:
    client: Client
    words: list


def test_a_tool_that_uses_what_it_is_given_is_not_told_of(logs):
    def use(ctx: RunContext[Means], word: str) -> str:
        ctx.deps.client.get()
        return ctx.deps.words[0] + word

    means = Means(Client(), ["an "])
    execution = world(means, use, [{"call": {"use": {"word": "owl"}}}, "done"]).start("ask").wait(20)
    assert (results(execution), means.client.calls) == (["an owl"], 1)
    assert not any("ctx.deps" in line for line in logs())


class Plan(BaseModel):
    """Data of pydantic."""

    steps: dict[str, list[int]]


@pytest.mark.parametrize(
    ("deps", "change"),
    [
        ({"a": {1}}, lambda deps: deps["a"].add(2)),
        (Plan(steps={"a": [1]}), lambda deps: deps.steps["a"].append(2)),
        (Means(Client(), [Plan(steps={"a": [1]})]), lambda deps: deps.words[0].steps.clear()),
        (Client(), lambda deps: deps.get()),
        ([True], lambda deps: deps.__setitem__(0, 1)),
    ],
)
def test_changes_of_plain_data_are_seen(deps, change):
    before = seen_in(deps)
    assert seen_in(deps) == before
    change(deps)
    assert seen_in(deps) != before


class Closed(dict):
    """Cannot be looked at."""

    def items(self):
        raise OSError("not connected")


def test_what_cannot_change_or_be_looked_at_or_is_too_much_is_left_alone():
    endless = []
    endless.append(endless)
    for deps in (None, "a garden", endless, [0] * MOST_VALUES, Closed()):
        assert seen_in(deps) is None


def test_functions_of_an_agent_of_the_library_may_block_as_many_as_there_are():
    together = threading.Barrier(MANY)

    def meet(number: int) -> int:
        """Wait for all others."""
        together.wait(30)
        return number

    script = [[{"call": {"meet": {"number": number}}} for number in range(MANY)], "done"]
    execution = world(None, meet, script).start("ask").wait(60)
    assert results(execution) == list(range(MANY))
