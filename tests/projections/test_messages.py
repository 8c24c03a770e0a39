"""What is read of a model call is what was sent, and what came back."""

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Environment, Step, Workflow
from divebook.analysis.agents import messages_frame
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import ContentEntry
from divebook.events import catalog
from divebook.projections.model_requests import messages_of
from divebook.projections.spans import spans_of
from tests.engine.history import begun, events


@pytest.mark.parametrize("instructions", ["", "Be brief."])
@pytest.mark.parametrize("context", [(), (ContentEntry(text="background"),)])
@pytest.mark.parametrize("content", [(), (ContentEntry(text="one"), ContentEntry(text="two"))])
def test_messages_that_are_read_are_those_that_were_sent(instructions, context, content):
    seen = []

    def answer(messages, _info):
        for message in messages:
            seen.extend([("system", message.instructions)] if message.instructions else [])
            for part in message.parts:
                told = [part.content] if isinstance(part.content, str) else part.content
                seen.append(("user", "\n".join(told)))
        return ModelResponse(parts=[TextPart("yes")])

    agent = Agent(AgentDefinition("a", instructions=instructions, context=context), model=FunctionModel(answer))
    step = Step("s", prompt="go", content=content, agent="a")
    execution = Environment(store="memory:", agents=[agent]).start(Workflow("w", [step])).wait(check=True)
    (call,) = [span for span in spans_of(execution.history()) if span.kind == "operation"]
    read = [(message.role, message.text) for message in messages_of(call)]
    asked = [entry for entry in read if entry[0] != "assistant"]
    assert sorted(asked) == sorted(seen)  # pydantic-ai keeps instructions with the last message
    assert [text for role, text in asked if role == "user"] == [text for role, text in seen if role == "user"]
    assert read[-1] == ("assistant", "yes")
    frame = messages_frame(execution.history())
    assert list(zip(frame.role, frame.text, strict=True)) == read
    assert set(frame.agent) == {"a"}


@pytest.mark.parametrize(
    ("parameters", "result"),
    [
        (None, None),
        ({}, {"parts": "cut"}),
        ({"content": "cut", "context": {"a": 1}}, {"parts": ["…", {"part_kind": "text"}, {"part_kind": "thinking"}]}),
    ],
)
def test_what_is_left_out_of_a_call_is_no_message(parameters, result):
    log = events(
        *begun(),
        (catalog.StepStarted("prompt"), "main", "a"),
        (catalog.OperationStarted("op_1", "agent_response", parameters), "main", "a"),
        (catalog.OperationCompleted("op_1", "agent_response", 1, result), "main", "a"),
    )
    assert [message.role for span in spans_of(log) for message in messages_of(span)] in ([], ["user"])
