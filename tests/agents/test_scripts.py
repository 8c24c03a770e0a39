"""What a script says a model does: calls, data, thoughts and failures, each at its place in the turn."""

import asyncio
import re
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as ModelAgent
from pydantic_ai.exceptions import ModelRateLimitError
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.agents.scripted import ScriptedReply
from divebook.agents.scripted_model import ScriptedFunction
from divebook.definitions.resources import AgentDefinition
from divebook.errors import SetupError
from tests.runtime.worlds import environment, run

ASK = Workflow("w", [Step("ask", prompt="Ask", store="r")])
OWLS_AND_LARKS = [{"call": {"search": {"query": "owls"}}}, {"call": {"search": {"query": "larks"}}}]


class Birds(BaseModel):
    """What is found."""

    birds: int


def search(query: str = "") -> str:
    return query.upper()


def turn(script, output: Any = str, tools=(search,), **options):
    """Run a turn of an agent of the library; return its output and what the model said."""
    agent = ModelAgent(ScriptedFunction(script), tools=tools, output_type=output)
    result = asyncio.run(agent.run("go", **options))
    return result.output, [m.parts for m in result.all_messages() if isinstance(m, ModelResponse)]


def test_calls_side_by_side_thoughts_and_data_come_in_their_order():
    script = ScriptedModel(
        [OWLS_AND_LARKS, {"think": "Hm.", "say": "Once more.", "call": "search"}, {"output": {"birds": 2}}]
    )
    output, said = turn(script, Birds)
    assert output == Birds(birds=2)
    assert [[type(part) for part in parts] for parts in said] == [
        [ToolCallPart, ToolCallPart],
        [ThinkingPart, TextPart, ToolCallPart],
        [ToolCallPart],
    ]
    assert [(part.tool_name, part.args, part.tool_call_id) for part in said[0]] == [
        ("search", {"query": "owls"}, "call-1-1"),
        ("search", {"query": "larks"}, "call-1-2"),
    ]


def test_every_turn_begins_at_the_first_reply_and_ids_stay_apart_in_a_conversation():
    script = ScriptedModel([{"call": "search"}, "done"])
    agent = ModelAgent(ScriptedFunction(script), tools=[search])
    first = asyncio.run(agent.run("go"))
    second = asyncio.run(agent.run("go on", message_history=first.all_messages()))
    assert (first.output, second.output) == ("done", "done")
    calls = [part for m in second.all_messages() for part in m.parts if isinstance(part, ToolCallPart)]
    assert [call.tool_call_id for call in calls] == ["call-1-1", "call-3-1"]


def test_turns_have_replies_of_their_own_and_the_last_repeats():
    script = ScriptedModel(turns=[[{"call": "search"}, "one"], ["two"]])
    assert [turn(script)[0] for _ in range(3)] == ["one", "two", "two"]


def test_a_turn_keeps_its_number_in_another_process():
    assert turn(ScriptedModel(turns=[["one"], ["two"]]), run_id="a")[0] == "one"
    again = ScriptedModel(turns=[["one"], ["two"]])
    assert again.turn("b", 1) == 1
    assert turn(again, run_id="b")[0] == "two"


def test_data_of_any_form_is_what_the_agent_asks_for():
    assert turn(ScriptedModel([{"output": [1, 2]}]), list[int])[0] == [1, 2]
    assert turn(ScriptedModel([{"output": {"a": 1}}]), str)[0] == '{"a": 1}'


def test_a_failure_comes_once_and_the_request_is_made_again():
    script = ScriptedModel([{"error": "busy", "status": 503}, {"error": "slow down", "status": 429}, "well"])
    execution = run(ASK, agents=[Agent("a", model=script)])
    assert execution.variables == {"r": "well"}
    retried = [event.data.error for event in execution.history() if event.event_type == "step_retried"]
    assert ["503" in retried[0], "429" in retried[1]] == [True, True]


def test_a_failure_says_what_a_provider_says():
    agent = ModelAgent(ScriptedFunction(ScriptedModel([{"error": "slow", "status": 429, "retry_after": 7}])))
    with pytest.raises(ModelRateLimitError) as caught:
        asyncio.run(agent.run("go"))
    assert (caught.value.retry_after, caught.value.body) == (7, {"message": "slow"})


def test_a_script_that_ends_with_a_failure_fails_again_and_again():
    script = ScriptedModel(["fine", {"error": "gone"}])
    world = environment(agents=[Agent("a", model=script)])
    ends = [world.start(ASK).wait(20).error for _ in range(3)]
    assert ends == [None, *["RuntimeError: gone (step ask)"] * 2]


def test_an_agent_without_tools_takes_one_reply_after_the_other():
    script = ScriptedModel(["first", {"think": "Hm.", "say": "second"}, "third"])
    world = environment(agents=[Agent("a", model=script)])
    assert [world.start(ASK).wait(20).variables["r"] for _ in range(4)] == ["first", "second", "third", "third"]
    assert script.calls == 4


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        (5, "invalid reply in a script: 5; write a string, {call:"),
        ({}, "invalid reply in a script: {}"),
        ([], "parallel calls"),
        ({"cal": "search"}, "unknown key 'cal' in a reply of a script; did you mean 'call'"),
        ({"call": 5}, "invalid `call` in a script: 5"),
        ({"call": [{"search": {}}, {"search": {}}]}, "write parallel calls as a list: [{call: {tool: ...}}, "),
        ({"say": 5}, "`say` of a script must be a string, not 5"),
        ({"error": "x", "say": "y"}, "write two replies"),
        ({"error": "x", "retry_after": 2}, "add a `status` such as 429"),
        ({"say": "x", "status": 429}, "'status' is allowed only in a reply with `error`"),
        ([{"call": "a"}, {"output": 1}], "parallel calls"),
    ],
)
def test_a_reply_of_another_form_is_refused_with_what_to_write(written, advice):
    with pytest.raises(SetupError) as caught:
        ScriptedReply.read(written)
    assert advice in str(caught.value)


def test_a_script_is_read_when_it_is_given():
    with pytest.raises(SetupError, match="unknown key 'cal'"):
        ScriptedModel(["fine", {"cal": "search"}])


def test_a_definition_has_a_script_for_when_its_model_is_scripted():
    written = [{"think": "Hm.", "say": "first"}, "second"]
    assert run(ASK, agents=[Agent(AgentDefinition("a", script=written))]).variables == {"r": "first"}
    named = Agent(AgentDefinition("a", script=written, model="openai:gpt-6"))
    assert (named.model_name, named.is_scripted) == ("openai:gpt-6", False)
    assert run(ASK, agents=[named.with_model("scripted")]).variables == {"r": "first"}


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("replies.yaml", "a list of replies or a mapping with `turns`, not 'replies.yaml'"),
        ({"turn": []}, "unknown key 'turn' in a script; valid keys: error, price, replies, turns, usage"),
    ],
)
def test_a_script_of_another_form_is_refused(written, advice):
    with pytest.raises(SetupError, match=re.escape(advice)):
        Agent(AgentDefinition("a", script=written))


@pytest.mark.parametrize("written", [{"replies": {"call": {"search": {}}}}, {"replies": "hello"}, {"turns": {"a": 1}}])
def test_replies_that_are_no_list_are_refused_when_they_are_given(written):
    with pytest.raises(SetupError, match="of a scripted model must be a list with one reply for each request"):
        ScriptedModel(**written)


# --- outputs and functions -----------------------------------------------------------------------------------------


class Count(BaseModel):
    words: int


OUTPUTS = [
    (dict[str, int], {"x": 1}),
    (dict[str, int], {"response": 1}),
    (dict, {"a": {"b": 1}}),
    (list[int], [1, 2]),
    (list, []),
    (str, "text"),
    (None, "text"),
    (int, 3),
    (bool, True),
    (float | None, None),
    (Count | str, "text"),
    ({"type": "object", "properties": {"data": {}}}, {"data": 1}),
    ({"type": "object"}, {"response": {"b": 1}}),
    ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
    ({"type": "string"}, "text"),
    ({"type": "integer"}, 3),
    ({"type": ["string", "null"]}, None),
]


@pytest.mark.parametrize(("output", "value"), OUTPUTS)
def test_a_script_gives_the_answer_itself_whatever_its_type(output, value):
    agent = Agent("a", model=ScriptedModel([{"output": value}]), output=output)
    execution = run(ASK, agents=[agent])
    assert (execution.error, execution.variables) == (None, {"r": value})


def test_a_model_is_given_as_a_mapping():
    agent = Agent("a", model=ScriptedModel([{"output": {"words": 2}}]), output=Count)
    assert run(ASK, agents=[agent]).variables["r"] == Count(words=2)


def test_an_output_that_fits_nothing_is_given_as_it_is_so_that_a_script_can_show_a_mistake():
    agent = Agent("a", model=ScriptedModel([{"output": {"words": "two"}}, {"output": {"words": 2}}]), output=Count)
    assert run(ASK, agents=[agent]).variables["r"] == Count(words=2)


async def shout(prompt):
    return prompt.upper()


@pytest.mark.parametrize(
    ("replies", "answer"),
    [
        (lambda prompt: f"{len(prompt.split())} words", "2 words"),
        (shout, "HELLO WORLD"),
        (lambda prompt, messages: f"{prompt} {len(messages)}", "hello world 1"),
        ([lambda prompt: prompt, "never"], "hello world"),
        (str.title, "Hello World"),
        (lambda _: {"think": "hm", "say": "said"}, "said"),
    ],
)
@pytest.mark.parametrize("tools", [False, True])
def test_a_reply_may_depend_on_the_prompt(replies, answer, tools):
    asked = Workflow("w", [Step("ask", prompt="hello world", agent="a", store="r")])
    tools = [search] if tools else []
    execution = run(asked, agents=[Agent("a", model=ScriptedModel(replies), tools=tools)])
    assert (execution.error, execution.variables) == (None, {"r": answer})


def test_a_function_is_not_called_again_for_a_request_that_the_log_has():
    prompts = []

    def reply(prompt):
        prompts.append(prompt)
        return f"answer {len(prompts)}"

    world = environment(ASK, agents=[Agent("a", model=ScriptedModel(reply))])
    execution = world.start("w").wait(20)
    assert world.run_of(execution.id).verify().equal
    assert (execution.variables, len(prompts)) == ({"r": "answer 1"}, 1)


@pytest.mark.parametrize(
    ("replies", "fault"),
    [
        (lambda _: 3, "invalid reply in a script: 3; write"),
        (lambda _: {"answer": 3}, "unknown key 'answer' in a reply of a script"),
        (lambda _: len, "of a script returned a function; return"),
        (lambda _: {"error": "overloaded", "status": 400}, "overloaded"),
        (lambda _: {}["missing"], "KeyError: 'missing'"),
    ],
)
def test_a_function_that_returns_no_reply_is_named(replies, fault):
    assert fault in run(ASK, agents=[Agent("a", model=ScriptedModel(replies))]).error
