"""What if about agents: requests are answered from the turn that they go on with, and asked anew once it is another."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.agents import Agent, ScriptedModel
from divebook.definitions.tools import tool
from divebook.errors import SetupError
from divebook.stores import MemoryStore

CALLS = []


@tool
async def weigh(what: str) -> str:
    """Weigh something."""
    CALLS.append(what)
    return f"{what} weighs {len(CALLS)}"


@tool(read_only=True)
async def look(what: str) -> str:
    """Look at something."""
    CALLS.append(what)
    return f"{what} is red"


@pytest.fixture(autouse=True)
def _fresh():
    CALLS.clear()


def call(name, what):
    return {"call": {name: {"what": what}}}


def environment(*script, store=None):
    agent = Agent("judge", model=ScriptedModel([*script]), tools=[weigh, look])
    asked = Step("ask", agent="judge", prompt="Judge ${inputs.what}", store="said")
    flow = Workflow("judging", [asked], inputs=["what"], outputs=["said"])
    return Environment(store=store or MemoryStore(), agents=[agent], workflows=[flow])


def judged(world):
    """Run it; return the execution, with no call counted."""
    source = world.start("judging", {"what": "a"}).wait(20)
    assert source.status == "completed", source.error
    CALLS.clear()
    return source


def told(execution):
    """Return what its tools returned to the model, as the log has it."""
    ends = (event.data for event in execution.history() if event.event_type == "operation_completed")
    return [data.result["result"] for data in ends if data.operation_type == "tool_call"]


@pytest.mark.parametrize("result", ["a weighs 7", {"result": "a weighs 7"}], ids=["plain", "as-recorded"])
def test_another_result_of_a_tool_is_what_it_would_have_returned(result):
    with environment(call("weigh", "a"), "heavy") as world:
        source = judged(world)
        operations = source.operations.set_index("type").operation_id
        found = world.run_of(source.id).what_if({"results": {operations["tool_call"]: result}})
        assert (found.run.status, told(found.run), CALLS) == ("completed", [], [])
        assert found.run.history()[found.at].data.change["results"] == {
            operations["tool_call"]: {"result": "a weighs 7"}
        }


def test_another_answer_of_a_model_is_a_text_or_a_whole_response():
    with environment(call("weigh", "a"), "heavy") as world:
        source = judged(world)
        request = source.operations.query("type == 'agent_response'").operation_id.iloc[-1]
        assert world.run_of(source.id).what_if({"results": {request: "light"}}).outputs == {"said": "light"}
        with pytest.raises(SetupError, match="is a model call: its result must be a string"):
            world.run_of(source.id).what_if({"results": {request: 5}})


def test_a_turn_without_a_change_is_the_same_without_a_call():
    with environment(call("weigh", "a"), "heavy") as world:
        source = judged(world)
        found = world.run_of(source.id).what_if()
        assert (found.outputs, found.diff, found.live, CALLS) == (source.outputs, None, 0, [])
        assert found.run.state.ledger.llm_calls == 0, "no model was called"


def test_with_another_prompt_models_are_asked_and_tools_still_answer_from_the_log():  # trap 19
    with environment(call("weigh", "a"), "heavy") as world:
        source = judged(world)
        found = world.run_of(source.id).what_if({"prompts": {"ask": "Judge it again: ${inputs.what}"}})
        assert (found.run.status, found.live, found.served, found.blocked) == ("completed", 2, 1, 0)
        assert (told(found.run), CALLS) == (["a weighs 1"], [])
        assert found.run.state.ledger.llm_calls == 2


def test_a_model_hears_that_a_tool_was_not_executed_and_goes_on():
    with environment(call("weigh", "a"), "heavy") as world:
        source = judged(world)
        with environment(call("weigh", "b"), "light", store=world.store) as other:
            found = other.run_of(source.id).what_if({"inputs": {"what": "b"}})
        assert (found.run.status, found.blocked, found.comparable) == ("completed", 1, "partly")
        assert told(found.run) == ["not executed in a what-if: no recorded result for these arguments"]
        assert (found.outputs, CALLS) == ({"said": "light"}, [])


@pytest.mark.parametrize(
    ("tools", "called", "blocked"),
    [("recorded", [], 2), ("read-only", ["c"], 1), ("live", ["b", "c"], 0)],
)
def test_what_may_be_executed_is_executed(tools, called, blocked):
    with environment(call("weigh", "a"), "heavy") as world:
        source = judged(world)
        with environment(call("weigh", "b"), call("look", "c"), "light", store=world.store) as other:
            found = other.run_of(source.id).what_if({"inputs": {"what": "b"}}, tools=tools)
        assert (CALLS, found.blocked) == (called, blocked)


def test_a_fork_within_a_turn_goes_on_with_that_turn_of_the_source():  # trap 12
    with environment(call("weigh", "a"), call("weigh", "a"), "heavy") as world:
        source = judged(world)
        for event in source.history()[1:-3]:
            found = world.run_of(source.id).what_if(at=event.sequence)
            assert (found.outputs, found.live, found.blocked, CALLS) == (source.outputs, 0, 0, [])


def test_a_changed_result_of_a_tool_has_the_model_asked_again():
    with environment(call("weigh", "a"), "heavy") as world:
        source = judged(world)
        begun = [e.data for e in source.history() if e.event_type == "operation_started"]
        (place,) = [data.operation_id for data in begun if data.operation_type == "tool_call"]
        found = world.run_of(source.id).what_if({"results": {place: {"result": "a weighs a ton"}}})
        assert (found.run.status, found.live, CALLS) == ("completed", 1, [])


def test_its_bounds_are_its_own_and_what_its_source_spent_is_not_counted():  # trap 15
    with environment(call("weigh", "a"), call("look", "a"), "heavy") as world:
        source = judged(world)
        spent = source.state.ledger.llm_calls
        assert spent == 3
        for limit, status in ((1, "waiting"), (3, "completed")):
            found = world.run_of(source.id).what_if(
                {"prompts": {"ask": "Anew: ${inputs.what}"}}, bounds={"max_llm_calls": limit}
            )
            assert (found.run.status, found.live) == (status, limit)
        again = {"results": {tool_calls(source)[-1]: {"result": "it is blue"}}}
        found = world.run_of(source.id).what_if(again, bounds={"max_llm_calls": 1})
        assert (found.run.status, found.live) == ("completed", 1)
        assert found.at > 5, "two requests of the source come before that"


def tool_calls(execution):
    begun = [e.data for e in execution.history() if e.event_type == "operation_started"]
    return [data.operation_id for data in begun if data.operation_type == "tool_call"]
