"""What goes wrong in a turn is said clearly, and after the mending it goes on without repeating what was done."""

import threading

import anyio.to_thread
import pydantic_ai
import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, ScriptedModel, Step, Workflow, tool
from divebook.agents.scripted_model import ScriptedFunction
from divebook.definitions.functions import workflow
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import Catch, Retry
from divebook.errors import ToolError
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

ASK = Workflow("w", [Step("ask", prompt="Ask", agent="a", store="r")])
PATIENCE = 20


@pytest.fixture
def noted():
    """Return what the tool was called with."""
    return []


@pytest.fixture
def note(noted):
    @tool(idempotent=False)
    async def note(text: str) -> str:
        """Note a text."""
        noted.append(text)
        return "noted"

    return note


def failed(world, asked=ASK):
    execution = world.start(asked).wait(PATIENCE)
    assert execution.status == "failed"
    return execution


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("acme:model", "model 'acme:model' cannot be used: Unknown provider: acme"),
        ("opena:gpt-6", "model 'opena:gpt-6' cannot be used: Unknown provider: opena; did you mean openai?"),
        ("recorded:exec_none", "exec_none"),
    ],
)
def test_a_model_that_there_is_not_is_said_and_another_one_goes_on(note, noted, model, said):
    @workflow  # which agents it asks is known when it asks them
    async def asking(ctx):
        return await ctx.agent("a").run("Ask")

    world = environment(agents=[Agent("a", model=model, tools=[note])])
    execution = failed(world, asking)
    assert said in execution.error
    world.add_agent(
        Agent("a", model=ScriptedModel([{"call": {"note": {"text": "x"}}}, "done"]), tools=[note]), replace=True
    )
    assert world.run_of(execution.id).resume().wait(PATIENCE).outputs == {"result": "done"}
    assert noted == ["x"]


def test_a_request_that_hangs_is_given_up_and_only_that_one_is_made_again(note, noted):
    hangs, held = [True], threading.Event()

    async def answer(messages, _):
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("note", {"text": "x"}, tool_call_id="1")])
        if hangs.pop() if hangs else False:
            await anyio.to_thread.run_sync(held.wait, PATIENCE, abandon_on_cancel=True)
        return ModelResponse(parts=[TextPart("done")])

    definition = AgentDefinition("a", response_timeout=0.05)
    world = environment(agents=[Agent(definition, model=FunctionModel(answer), tools=[note])])
    execution = failed(world)
    held.set()
    assert "not complete after 0.05 seconds; to allow more, raise ResponseTimeout" in execution.error
    assert world.run_of(execution.id).resume().wait(PATIENCE).variables == {"r": "done"}
    assert noted == ["x"]


@pytest.mark.parametrize(
    "written",
    ["not json", '{"text": ', "[1, 2]", '{"text": NaN}', '{"txt": "x"}', '{"text": "\\ud800"}', {"text": 5}, {}],
)
def test_arguments_that_make_no_sense_are_told_to_the_model_which_may_try_others(note, noted, written):
    script = ScriptedModel([{"call": {"note": written}}, {"call": {"note": {"text": "x"}}}, "done"])
    execution = environment(agents=[Agent("a", model=script, tools=[note])]).start(ASK).wait(PATIENCE)
    assert (execution.error, execution.variables) == (None, {"r": "done"})
    assert noted[-1] == "x"


def test_a_tool_that_there_is_not_is_told_to_the_model(note, noted):
    script = ScriptedModel([{"call": {"note_down": {"text": "x"}}}, {"call": {"note": {"text": "y"}}}, "done"])
    execution = environment(agents=[Agent("a", model=script, tools=[note])]).start(ASK).wait(PATIENCE)
    assert (execution.error, execution.variables, noted) == (None, {"r": "done"}, ["y"])


def test_a_tool_that_raises_fails_the_run_which_goes_on_where_it_was(note, noted):
    broken = [True]

    @tool(idempotent=True)
    async def look_up(word: str) -> str:
        """Look a word up."""
        if broken:
            raise ValueError(f"no dictionary for {word}")
        return word.upper()

    both = [{"call": {"note": {"text": "x"}}}, {"call": {"look_up": {"word": "owl"}}}]
    world = environment(agents=[Agent("a", model=ScriptedModel([both, "done"]), tools=[note, look_up])])
    execution = failed(world)
    assert "no dictionary for owl" in execution.error
    broken.clear()
    assert world.run_of(execution.id).resume().wait(PATIENCE).variables == {"r": "done"}
    assert noted == ["x"]


class Words:
    """A tool that raises what it is told to, until that is mended."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def look_up(self, word: str) -> str:
        """Look a word up."""
        self.calls += 1
        if self.error is not None:
            raise self.error
        return word.upper()


WORDS = [{"call": {"look_up": {"word": "owl"}}}, "done"]


@pytest.mark.parametrize("way", ["alone", "taken", "handed on"])
@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError("no such thing"), "ValueError: no such thing"),
        (KeyError("x"), "KeyError: 'x'"),
        (AttributeError("'NoneType' object has no attribute 'name'"), "AttributeError: 'NoneType' object has no"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_what_a_tool_raises_is_said_with_its_class_once_its_tool_and_its_agent(error, cause, way):
    words = Words(error)
    agent = Agent("a", model=ScriptedModel(WORDS), tools=[words.look_up])
    agents = [agent]
    if way == "taken":
        agents = [pydantic_ai.Agent(ScriptedFunction(ScriptedModel(WORDS)), name="a", tools=[words.look_up])]
    elif way == "handed on":
        given = {"call": {"assign_work": {"agent": "b", "name": "n", "description": "d", "expected_output": "e"}}}
        inner = Agent("b", model=ScriptedModel(WORDS), tools=[words.look_up])
        agents = [Agent("a", model=ScriptedModel([given, "done"]), subordinates=["b"]), inner]
    world = environment(agents=agents)
    execution = failed(world)
    named = "b" if way == "handed on" else "a"
    assert execution.error.startswith(cause)
    assert f"(step ask, tool look_up of agent {named}, tests/agents/test_clear_errors.py:" in execution.error
    assert execution.error.count(type(error).__name__) == 1
    assert "pydantic_ai.ModelRetry" in execution.error
    words.error = None
    assert world.run_of(execution.id).resume().wait(PATIENCE).variables == {"r": "done"}
    assert words.calls == 2


def test_a_workflow_catches_what_a_tool_raised_live_and_from_the_log_as_one_error():
    words, seen = Words(KeyError("x")), []

    @workflow
    async def asking(ctx):
        try:
            await ctx.agent("a").run("go")
        except ToolError as error:
            seen.append((error.agent, error.tool, error.cause, str(error)))
        await ctx.wait_signal("on")

    world = environment(asking, agents=[Agent("a", model=ScriptedModel(WORDS), tools=[words.look_up])])
    execution = world.start("asking").wait(PATIENCE)
    again = environment(asking, agents=[Agent("a", model=ScriptedModel(WORDS), tools=[words.look_up])],
                        store=cut(execution.store, execution, execution.state.last_sequence))  # fmt: skip
    again.run_of(execution.id).signal("on").wait(PATIENCE)
    assert seen[0][:3] == ("a", "look_up", "KeyError: 'x'")
    assert seen == seen[:1] * 2
    assert words.calls == 1


def test_a_step_catches_what_a_tool_raised_by_its_own_class():
    words = Words(KeyError("x"))
    steps = [
        Step("ask", prompt="Ask", agent="a", catch=[Catch("rest", errors=("KeyError",), store="why")]),
        Step("rest", script="1"),
    ]
    world = environment(agents=[Agent("a", model=ScriptedModel(WORDS), tools=[words.look_up])])
    caught = world.start(Workflow("w", steps)).wait(PATIENCE).variables["why"]
    assert caught["type"] == "KeyError"
    assert caught["message"].startswith("tool look_up of agent a failed: KeyError: 'x' (")


def test_a_key_error_of_a_model_is_said_with_its_class_once():
    def answer(_, __):
        raise KeyError("x")

    definition = AgentDefinition("a", retry=Retry(attempts=1))
    agent = Agent(definition, model=FunctionModel(answer), tools=[Words(None).look_up])
    execution = failed(environment(agents=[agent]))
    assert execution.error == "KeyError: 'x' (step ask)"


def test_a_result_of_ten_megabytes_is_kept_whole_and_sent_in_part():
    sent = []

    @tool
    async def read() -> str:
        """Read it all."""
        return "begin " + "x" * 10_000_000 + " end"

    async def answer(messages, _):
        sent.append(sum(len(str(part)) for message in messages for part in message.parts))
        done = ModelResponse(parts=[TextPart("done")])
        return done if len(messages) > 1 else ModelResponse(parts=[ToolCallPart("read", {}, tool_call_id="1")])

    execution = environment(agents=[Agent("a", model=FunctionModel(answer), tools=[read])]).start(ASK).wait(PATIENCE)
    assert execution.variables == {"r": "done"}
    assert sent[1] < 100_000
    (result,) = [
        event.data.result
        for event in execution.history()
        if event.event_type == "operation_completed" and event.data.operation_type == "tool_call"
    ]
    assert str(result["result"]).endswith(" end")


def test_a_model_that_says_nothing_is_said(note):
    async def answer(_, __):
        return ModelResponse(parts=[])

    execution = failed(environment(agents=[Agent("a", model=FunctionModel(answer), tools=[note])]))
    assert "agent a gave no answer after 2 requests" in execution.error
