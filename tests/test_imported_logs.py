"""Histories of messages and traces of others become executions: shown, framed, compared, exported like any other."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from divebook import Agent, Environment
from divebook.errors import InvalidEventError, StoreError
from divebook.events.catalog import OperationCompleted, StepCompleted
from divebook.projections.model_requests import requests_of
from divebook.stores import MemoryStore

PROMPT = "Which birds are there, and what is ${this}?"
VISIBLE = {"part_kind", "content", "tool_name", "tool_call_id", "args"}


@pytest.fixture
def environment():
    with Environment(store=MemoryStore()) as made:
        yield made


def history_of(model, prompts=(PROMPT,)):
    """Return the messages of runs of a real agent of pydantic-ai, as it writes them."""
    from pydantic_ai import Agent, ModelRetry

    agent = Agent(model, instructions="Be brief.")

    @agent.tool_plain
    def look(kind: str) -> dict[str, int]:
        """Look for birds."""
        if kind == "dodos":
            raise ModelRetry("there are none")
        return {kind: 2}

    messages = []
    for prompt in prompts:
        result = asyncio.run(agent.run(prompt, message_history=messages or None))
        messages = result.all_messages()
    return json.loads(result.all_messages_json())


def asking(*rounds):
    """Return a model that calls `look` in each round, and then answers."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def respond(messages, _info):
        done = sum(message.kind == "response" for message in messages) % (len(rounds) + 1)
        if done == len(rounds):
            return ModelResponse([TextPart(f"There are {len(messages)} birds.")])
        return ModelResponse([ToolCallPart("look", {"kind": kind}, f"call {done} {kind}") for kind in rounds[done]])

    return FunctionModel(respond)


def write(folder, data, name="birds.json"):
    file = folder / name
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return file


def seen(message):
    """Return what a model sees of a message: not when it was made, or in which run."""
    parts = [{name: part[name] for name in sorted(VISIBLE & part.keys())} for part in message["parts"]]
    return {"kind": message["kind"], "parts": parts}


def test_a_history_of_pydantic_ai_is_an_execution_of_turns(environment, tmp_path):
    messages = history_of(asking(["owls", "larks"], ["dodos"]))
    run = environment.open(write(tmp_path, messages), keep=True)
    assert (run.status, run.workflow.name, run.outputs) == ("completed", "birds", {"result": "There are 5 birds."})
    assert run.workflow.steps[0].agent == "agent"
    requests = requests_of(run.history())
    plain = [
        {k: v for k, v in message.items() if v is not None or message["kind"] == "request"} for message in messages
    ]
    sent = [[seen(message) for message in request.messages] for request in requests]
    assert sent == [[seen(message) for message in plain[:count]] for count in (1, 3, 5)]
    assert [request.response["parts"] for request in requests] == [message["parts"] for message in plain[1::2]]
    assert {request.instructions for request in requests} == {"Be brief."}
    assert [request.usage["input_tokens"] for request in requests] == [m["usage"]["input_tokens"] for m in plain[1::2]]
    calls = run.tool_calls
    assert list(calls["tool"]) == ["look"] * 3
    assert list(calls["outcome"]) == ["returned", "returned", "retry"]
    assert run.usage.input_tokens == sum(message["usage"]["input_tokens"] for message in plain[1::2])
    assert list(run.messages["role"])[:2] == ["system", "user"]
    assert str(run.started_at.date()) == messages[0]["parts"][0]["timestamp"][:10]


@pytest.mark.parametrize("kind", ["history", "trace"])
def test_what_others_recorded_is_forked_at_every_model_call(tmp_path, kind):
    """What the file has is not asked or called again; an agent that is another one by now asks how to go on."""
    called = []

    def look(kind: str) -> dict[str, int]:
        """Look for birds."""
        called.append(kind)
        return {kind: 9}

    data, name = (history_of(asking(["owls"])), "agent") if kind == "history" else (otlp(spans()), "scout")
    with Environment(store=MemoryStore(), agents=[Agent(name, model=asking(["owls"]), tools=[look])]) as environment:
        run = environment.open(write(tmp_path, data), keep=True)
        before = list(run.history())
        for at in range(1, len(before) + 1):
            called.clear()
            fork = environment.run_of(run.id).fork(at).wait(20)
            for question in fork.open_questions:
                assert question.kind == "agent_changed"
                fork = environment.answer(question.id, "finish", fork.id).wait(20)
            assert fork.status == "completed", (at, fork.error)
            shared = [event.data for event in before[: environment.store.record(fork.id).opened - 1]]
            done = [data.operation_type for data in shared if isinstance(data, OperationCompleted)]
            assert len(called) == ("tool_call" not in done), at
            answer = "birds." if done.count("agent_response") < 2 else run.outputs["result"]
            assert next(data.output for data in reversed(payloads(fork, StepCompleted))).endswith(answer), at
        (call,) = (data for data in payloads(run, OperationCompleted) if data.operation_type == "tool_call")
        changed = environment.run_of(run.id).fork(change={"results": {call.operation_id: "3 larks"}}).wait(20)
        (question,) = changed.open_questions
        changed = environment.answer(question.id, "finish", changed.id).wait(20)
        (returned,) = (part for part in requests_of(changed.history())[-1].messages[-1]["parts"])
        assert (changed.status, returned["content"]) == ("completed", "3 larks")
        assert list(run.refresh().history()) == before


def payloads(run, kind):
    return [event.data for event in run.history() if isinstance(event.data, kind)]


def test_messages_that_cannot_be_read_are_shown_as_they_are(environment, tmp_path):
    messages = history_of(asking(["owls"]))
    messages[0]["parts"].append({"part_kind": "hologram", "content": "owls"})
    run = environment.open(write(tmp_path, messages), keep=True)
    first, second = requests_of(run.history())
    assert [part["part_kind"] for part in first.messages[0]["parts"]] == ["user-prompt", "hologram"]
    assert (len(second.messages), run.outputs) == (3, {"result": "There are 3 birds."})


def test_each_prompt_of_a_history_is_a_turn(environment, tmp_path):
    messages = history_of(asking(["owls"]), ["Which?", "And now?"])
    run = environment.open(write(tmp_path, messages), keep=True)
    assert [step.name for step in run.workflow.steps] == ["turn 1", "turn 2"]
    assert run.status == "completed"
    assert [len(request.messages) for request in requests_of(run.history())] == [1, 3, 5, 7]


def test_a_history_that_breaks_off_is_a_snapshot(environment, tmp_path):
    messages = history_of(asking(["owls"]))
    run = environment.open(write(tmp_path, messages[:2]), keep=True)
    assert run.status == "snapshot"
    assert list(run.tool_calls["status"]) == ["running"]


def test_the_same_file_is_the_same_execution(environment, tmp_path):
    file = write(tmp_path, history_of(asking()))
    first = environment.open(file, keep=True)
    with pytest.raises(StoreError, match="already holds execution"):
        environment.open(file, keep=True)
    again = environment.open(file, rename=True, keep=True)
    assert again.id != first.id
    assert first.compare(again).first is None
    exported = tmp_path / "log.jsonl"
    environment.run_of(first.id).export(exported)
    with Environment(store=MemoryStore()) as other:
        assert list(other.open(exported, keep=True).history()) == list(first.history())


# --- traces ----------------------------------------------------------------------------------------------------------


def attribute(key, value):
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    if isinstance(value, list):
        return {"key": key, "value": {"arrayValue": {"values": [attribute("", one)["value"] for one in value]}}}
    return {"key": key, "value": {kinds[type(value)]: str(value) if type(value) is int else value}}


def span(identity, parent, does, began, ended, error=None, **said):
    told = {"gen_ai.operation.name": does, **{f"gen_ai.{key.replace('__', '.')}": value for key, value in said.items()}}
    return {
        "traceId": "t",
        "spanId": identity,
        "parentSpanId": parent,
        "name": does,
        "startTimeUnixNano": str(began * 10**9),
        "endTimeUnixNano": str(ended * 10**9),
        "attributes": [attribute(key, value) for key, value in told.items()],
        "status": {"code": 2, "message": error} if error else {},
    }


def said(role, *parts):
    return {"role": role, "parts": list(parts)}


ASKED = said("user", {"type": "text", "content": "Which birds?"})
CALLED = said("assistant", {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"kind": "owls"}})
GIVEN = said("tool", {"type": "tool_call_response", "id": "c1", "response": "2 owls"})
TOLD = said("assistant", {"type": "text", "content": "Two owls."})
CHAT = {"request__model": "gpt-x", "response__model": "gpt-x-1", "usage__output_tokens": 5, "request__temperature": 0.5}


def spans(*, contents=True, error=None):
    """Return the spans of one agent: a request, a call of a tool, and another request."""

    def held(sent, answer):
        told = {"input__messages": json.dumps(sent), "output__messages": json.dumps(answer)}
        return told if contents else {}

    tool = {"tool__name": "look", "tool__call__id": "c1", "tool__call__result": "2 owls"}
    return [
        span("a", "", "invoke_agent", 100, 110, error, agent__name="scout"),
        span("b", "a", "chat", 101, 103, usage__input_tokens=10, **CHAT, **held([ASKED], [CALLED])),
        span("c", "a", "execute_tool", 103, 105, **tool),
        span("d", "a", "chat", 106, 109, error, usage__input_tokens=20, **CHAT, **held([ASKED, CALLED, GIVEN], [TOLD])),
    ]


def otlp(found):
    return {"resourceSpans": [{"scopeSpans": [{"spans": found}]}]}


def printed_time(nanoseconds):
    return datetime.fromtimestamp(int(nanoseconds) / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def sdk(found):
    """Return a span as the SDK of Python prints it."""
    values = {one["key"]: next(iter(one["value"].values())) for one in found["attributes"]}
    values = {key: int(value) if "usage" in key else value for key, value in values.items()}
    return {
        "name": found["name"],
        "context": {"trace_id": "0xt", "span_id": found["spanId"]},
        "parent_id": found["parentSpanId"] or None,
        "start_time": printed_time(found["startTimeUnixNano"]),
        "end_time": printed_time(found["endTimeUnixNano"]),
        "attributes": values,
        "status": {"status_code": "UNSET"},
    }


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(otlp(spans())),
        "\n".join(json.dumps(otlp([one])) for one in spans()),
        json.dumps([sdk(one) for one in spans()]),
        "\n".join(json.dumps(sdk(one), indent=4) for one in reversed(spans())),
    ],
    ids=["otlp", "otlp a line", "array", "printed"],
)
def test_a_trace_of_the_conventions_is_an_execution_of_turns(environment, tmp_path, text):
    run = environment.open(write(tmp_path, text), keep=True)
    assert (run.status, run.outputs) == ("completed", {"result": "Two owls."})
    first, second = requests_of(run.history())
    assert (first.agent, first.model, first.settings) == ("scout", "gpt-x", {"temperature": 0.5})
    assert first.response["parts"][0]["tool_call_id"] == "c1"
    assert [part["content"] for message in second.messages for part in message["parts"] if "content" in part] == [
        "Which birds?",
        "2 owls",
    ]
    assert (run.usage.input_tokens, run.usage.output_tokens) == (30, 10)
    (call,) = run.tool_calls.to_dict("records")
    assert (call["tool"], call["arguments"], call["result"]) == ("look", {"kind": "owls"}, "2 owls")


def test_times_of_a_trace_are_those_of_its_spans(environment, tmp_path):
    run = environment.open(write(tmp_path, otlp(spans())), keep=True)
    assert run.started_at.timestamp() == 101
    spans_of_requests = [request.span for request in requests_of(run.history())]
    assert [span.ended_us - span.started_us for span in spans_of_requests] == [2_000_000, 3_000_000]


def test_a_trace_without_contents_has_times_models_tokens_and_tools(environment, tmp_path):
    run = environment.open(write(tmp_path, otlp(spans(contents=False))), keep=True)
    assert run.status == "completed"
    assert list(run.tool_calls["tool"]) == ["look"]
    assert run.usage.input_tokens == 30


def test_what_failed_in_a_trace_failed(environment, tmp_path):
    run = environment.open(write(tmp_path, otlp(spans(error="overloaded"))), keep=True)
    assert run.status == "failed"
    assert "overloaded" in run.error


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[{"kind": "response", "parts": []}]', "message 1: a response must follow a request"),
        (json.dumps(otlp([span("a", "", "embeddings", 1, 2)])), "has 1 spans, but no span of a model call"),
        ('{"a": 1}', "line 1"),
        ("not JSON", "line 1"),
        ("", "empty|no events"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_nothing_is_stored(environment, tmp_path, text, told):
    with pytest.raises(InvalidEventError, match=told):
        environment.open(write(tmp_path, text), keep=True)
    assert environment.store.records() == []
