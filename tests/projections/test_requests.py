"""Requests of turns, put together from a log that says only what is new in each."""

from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Environment, Step, Workflow
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import ContentEntry
from divebook.events import catalog
from divebook.events.codec import decode_line
from divebook.projections.model_requests import call_name, conversation_in, requests_of
from tests.engine.history import begun, events

LOG = [decode_line(line) for line in (Path(__file__).parent / "turn.jsonl").read_bytes().splitlines()]
TEXT = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "go"}]}


def request(number, new, kept=0, **setting):
    parameters = {"agent": "a", "request": number, "kept": kept, "new": new}
    return catalog.OperationStarted(
        f"op_{number}", "agent_response", parameters, key=f"model-{number}", setting={"model": "m", **setting}
    )


def answer(number, *parts):
    return catalog.OperationCompleted(f"op_{number}", "agent_response", 1, {"kind": "response", "parts": list(parts)})


def log_of(*facts):
    return events(*begun(), (catalog.StepStarted("prompt"), "main", "s"), *((fact, "main", "s") for fact in facts))


def test_what_was_sent_is_rebuilt_from_what_was_new():
    first, second, nested, third = requests_of(LOG)
    assert [(view.agent, view.n, view.model) for view in (first, second, nested, third)] == [
        ("critic", 1, "openai:gpt-6"),
        ("critic", 2, "openai:gpt-6"),
        ("counter", 1, "scripted"),
        ("critic", 3, "openai:gpt-6-mini"),
    ]
    prompt, answered, returned = second.messages
    assert prompt["parts"][0]["content"] == "Is the paper sound?"
    assert answered == first.response
    assert [part["content"] for part in returned["parts"]] == [
        ["The method is sound.", "n = 12"],
        "User denied tool call: keep the draft",
    ]
    # a compaction has left the prompt, and a summary in place of the rest
    texts = [part.get("content") or part.get("args") for message in third.messages for part in message["parts"]]
    assert texts[:2] == ["Is the paper sound?", "So far: the method is sound."]
    assert texts[-1] == {"count": 12}
    ModelMessagesTypeAdapter.validate_python(list(third.messages))


def test_the_setting_of_a_request_is_what_was_said_so_far():
    first, second, nested, third = requests_of(LOG)
    assert [tool["name"] for tool in second.tools] == ["search", "delete", "assign_work"]
    assert (first.settings, second.settings, third.settings) == ({"temperature": 0.2}, {"temperature": 0.2}, {})
    assert (second.instructions, third.instructions) == ("You are critic.", "You are critic. Answer now.")
    assert (list(third.tools), nested.output["output_mode"], first.output) == ([], "tool", {})


def test_usage_cost_and_cache_of_a_request():
    first, _, nested, _ = requests_of(LOG)
    assert (first.usage["input_tokens"], first.cost, first.cached) == (210, 0.0009, False)
    assert (nested.usage, nested.cost, nested.cached) == ({}, None, True)
    assert (first.status, first.error) == ("completed", None)


def test_requests_of_a_subordinate_are_a_turn_of_its_own():
    first, second, nested, third = requests_of(LOG)
    assert first.turn == second.turn == third.turn != nested.turn


def test_a_request_as_people_see_it():
    said = requests_of(LOG)[1].said
    assert [message.role for message in said] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    thought, asked, _ = said[2].content
    assert (thought["type"], asked["tool"], asked["arguments"]) == ("thinking", "search", {"query": "method"})
    assert [message.text for message in said[3:5]] == [
        '["The method is sound.","n = 12"]',
        "User denied tool call: keep the draft",
    ]
    assert said[5].content[0]["arguments"] == {"agent": "counter", "description": "Count the samples"}


def test_a_conversation_says_everything_once():
    roles = [message.role for message in conversation_in(requests_of(LOG))]
    critic = ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert roles == [*critic, "system", "user", "assistant", "system", "user", "tool", "assistant"]


def test_a_request_that_was_made_again_is_one():
    failed = catalog.OperationFailed("op_1", "agent_response", 1, "429")
    again = catalog.OperationStarted(
        "op_1b", "agent_response", request(1, [TEXT]).parameters, key="model-1", setting={"model": "m"}
    )
    done = catalog.OperationCompleted("op_1b", "agent_response", 1, {"parts": []})
    (view,) = requests_of(log_of(request(1, [TEXT]), failed, again, done))
    assert (view.status, view.messages) == ("completed", [TEXT])


def test_another_attempt_at_a_step_has_requests_of_its_own():
    def attempt(letter, numbers):
        for number in numbers:
            started = request(number, [TEXT] if number == 1 else [{"response": 1}], number - 1)
            yield catalog.OperationStarted(
                f"op_{letter}{number}", "agent_response", started.parameters, key=f"model-{number}@{letter}"
            )
            parts = [{"part_kind": "text", "content": letter}]
            yield catalog.OperationCompleted(f"op_{letter}{number}", "agent_response", 1, {"parts": parts})

    views = requests_of(log_of(*attempt("a", [1, 2]), *attempt("b", [1, 2])))
    assert [view.messages[-1]["parts"][0]["content"] for view in views] == ["go", "a", "go", "b"]


@pytest.mark.parametrize(
    "facts",
    [
        [request(3, [{"response": 2}, {"kind": "request", "parts": [{"tool": "x"}, "cut"]}, "cut"], kept=5)],
        [request(1, "cut", kept="cut", tools="cut", settings=["cut"], instructions=7, output=None)],
        [request(1, [TEXT]), answer(1), request(2, [{"response": 1}, {"parts": None}], kept=-1)],
        [catalog.OperationStarted("op_1", "agent_turn", key="turn", setting={"thread": {"history": "cut"}})],
        [catalog.OperationStarted("op_1", "agent_response", None, key="model-1")],
    ],
)
def test_a_log_that_was_cut_or_that_nobody_wrote_so_can_be_read(facts):
    views = requests_of(log_of(*facts))
    assert len(views) == sum(fact.event_type == "operation_started" for fact in facts) - (views == [])
    assert all(isinstance(view.said, list) for view in views)


def test_a_thread_stands_in_front_of_the_first_request():
    history = [TEXT, {"kind": "response", "parts": [{"part_kind": "text", "content": "hello"}]}]
    turn = catalog.OperationStarted("op_t", "agent_turn", key="turn", setting={"thread": {"history": [history]}})
    first = catalog.OperationStarted(
        "op_1", "agent_response", request(1, [TEXT], 2).parameters, key="model-1", within=len(begun()) + 2
    )
    (view,) = requests_of(log_of(turn, first))
    assert view.messages == [*history, TEXT]


IMAGES = (
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
)


def contents(message):
    content = message.parts[0].content
    return content if isinstance(content, str) else [getattr(item, "data", item) for item in content]


@pytest.mark.parametrize("content", [(), (ContentEntry(text="one"), ContentEntry(path="x.png", blocks=IMAGES))])
@pytest.mark.parametrize("context", [(), (ContentEntry(text="background"),)])
def test_what_an_agent_without_tools_was_sent(context, content):
    seen = []

    def reply(messages, _info):
        seen.extend(messages)
        return ModelResponse(parts=[TextPart("yes")])

    agent = Agent(AgentDefinition("a", instructions="Be brief.", context=context), model=FunctionModel(reply))
    workflow = Workflow("w", [Step("s", prompt="go", content=content, agent="a")])
    execution = Environment(store="memory:", agents=[agent]).start(workflow).wait(check=True)
    (view,) = execution.requests
    read = ModelMessagesTypeAdapter.validate_python(list(view.messages))
    assert list(map(contents, read)) == list(map(contents, seen))
    assert view.instructions == seen[-1].instructions
    assert (view.n, view.agent, view.status) == (1, "a", "completed")
    assert [message.role for message in execution.conversation][-1] == "assistant"


def test_ids_that_cannot_stand_in_a_key_have_a_name_of_their_own():
    odd = ["", "a/b", "x" * 65, "a#2", "a~2", "\ud800", "é"]
    assert call_name("call_7-a.b") == "call_7-a.b"
    assert len({call_name(text) for text in odd}) == len(odd)
    assert all(len(call_name(text)) == 12 for text in odd)
