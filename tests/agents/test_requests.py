"""What the log keeps of the requests of a turn: only what is new, and all of it."""

import asyncio
import copy
import random
from dataclasses import replace

import pytest
from pydantic_ai import Agent as LibraryAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import UsageLimits

from divebook.agents import request_record
from divebook.agents.request_record import RequestRecord, concise, plain_response, response_of, whole
from divebook.events import catalog
from divebook.events.codec import decode_line, encode_line
from divebook.events.recorded import opened
from divebook.events.values import normalize
from divebook.projections.model_requests import call_name, requests_of
from tests.engine.history import begun, events


class Noted:
    """A turn as the log has it: what is described, answered and called becomes events."""

    def __init__(self):
        self.record, self.facts, self.sent = RequestRecord("a"), [], []

    def request(self, messages, settings=None, parameters=None, model="m"):
        told = self.record.describe(messages, settings, parameters or ModelRequestParameters(), model)
        started = catalog.OperationStarted(
            f"op_{told.number}",
            "agent_response",
            normalize(told.parameters),
            key=told.key,
            setting=None if told.setting is None else normalize(told.setting.told),
            setting_hash=None if told.setting is None else told.setting.digest,
        )
        self.facts.append(started)
        self.sent.append(list(map(whole, messages)))
        return told

    def answer(self, number, response):
        """Return the response as the log gives it back."""
        result = normalize(concise(plain_response(response)))
        self.facts.append(catalog.OperationCompleted(f"op_{number}", "agent_response", 1, result))
        back = response_of(opened(result))
        self.record.answered(number, back)
        return back

    def call(self, number, call, result):
        payload = {"result": result}
        key = f"tool-{number}-{call_name(call.tool_call_id)}"
        parameters = {"agent": "a", "tool": call.tool_name, "arguments": call.args_as_dict()}
        operation_id = f"op_{key}_{len(self.facts)}"
        self.facts += [
            catalog.OperationStarted(operation_id, "tool_call", parameters, key=key),
            catalog.OperationCompleted(operation_id, "tool_call", 1, payload),
        ]
        self.record.called(call.tool_call_id, call.tool_name, payload)

    @property
    def log(self):
        step = catalog.StepStarted("prompt")
        log = events(*begun(), (step, "main", "s"), *((fact, "main", "s") for fact in self.facts))
        return [decode_line(encode_line(event)) for event in log]

    def check(self):
        read = [ModelMessagesTypeAdapter.validate_python(list(view.messages)) for view in requests_of(self.log)]
        assert [list(map(whole, messages)) for messages in read] == self.sent


class NotedModel(WrapperModel):
    def __init__(self, wrapped, noted):
        super().__init__(wrapped)
        self.noted = noted

    async def request(self, messages, model_settings, model_request_parameters):
        told = self.noted.request(messages, model_settings, model_request_parameters)
        response = await super().request(messages, model_settings, model_request_parameters)
        return self.noted.answer(told.number, response)


class NotedTools(AbstractCapability):
    def __init__(self, noted):
        self.noted = noted

    async def wrap_tool_execute(self, _ctx, *, call, tool_def, args, handler):
        del tool_def
        result = await handler(args)
        self.noted.call(self.noted.record.requests, call, result)
        return result


def turn(calls, *, tools=1, text="x", **options):
    """Run an agent that calls a tool so often; return what was noted."""
    noted = Noted()

    def reply(messages, _info):
        number = sum(isinstance(message, ModelResponse) for message in messages)
        if number >= calls:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("tool_0", {"text": text}, tool_call_id=f"call_{number:024}")])

    agent = LibraryAgent(NotedModel(FunctionModel(reply), noted), name="a", instructions="Be good.", **options)
    for number in range(tools):

        def tool(text: str, limit: int = 5) -> str:
            """Find passages in all the papers that a person has read lately.

            Args:
                text: What to look for, in words.
                limit: How many passages at most.
            """
            return f"{text} {limit}"

        agent.tool_plain(tool, name=f"tool_{number}")
    asyncio.run(agent.run("go", capabilities=[NotedTools(noted)], usage_limits=UsageLimits(request_limit=None)))
    return noted


def test_a_turn_is_rebuilt_and_says_nothing_twice():
    noted = turn(3)
    noted.check()
    first, second, *_ = (fact.parameters for fact in noted.facts if fact.event_type == "operation_started")
    assert (first["kept"], second["agent"]) == (0, "a")
    third = next(fact for fact in noted.facts if getattr(fact, "key", None) == "model-3")
    assert third.parameters == {"agent": "a", "request": 3}  # the answer before, and what its calls returned
    assert third.setting is None


def test_the_setting_is_said_where_it_changes():
    noted = Noted()
    tools = [
        ToolDefinition(name="search", metadata={"divebook": object()}),
        ToolDefinition(name="rm", description="Remove."),
    ]
    message = ModelRequest([UserPromptPart("go")], instructions="Be good.")
    settings = {"temperature": 0.5, "extra_headers": {"Authorization": "Bearer secret-value"}}
    first = noted.request([message], settings, ModelRequestParameters(function_tools=tools))
    tools = [
        ToolDefinition(name="search", metadata={"divebook": object()}),
        ToolDefinition(name="rm", description="Remove."),
    ]
    same = noted.request([message], dict(settings), ModelRequestParameters(function_tools=tools))
    assert first.setting.told.keys() == {"model", "settings", "instructions", "tools"}
    assert same.setting is None
    tools[1].parameters_json_schema["properties"]["path"] = {"type": "string"}
    edited = noted.request([message], settings, ModelRequestParameters(function_tools=tools))
    assert edited.setting.told.keys() == {"tools"}
    last = noted.request([message], None, ModelRequestParameters(output_mode="tool"), "other")
    assert last.setting.told.keys() == {"model", "settings", "tools", "output"}
    views = requests_of(noted.log)
    assert [tool["name"] for tool in views[1].tools] == ["search", "rm"]
    assert views[1].settings == {"temperature": 0.5, "extra_headers": {"Authorization": "[redacted]"}}
    assert (views[3].settings, list(views[3].tools), views[3].model) == ({}, [], "other")
    assert [view.instructions for view in views] == ["Be good."] * 4
    assert b"secret-value" not in b"".join(map(encode_line, noted.log))


def test_an_edit_in_place_is_not_missed():
    noted = Noted()
    messages = [ModelRequest([UserPromptPart(["go", ImageUrl("https://example.org/a.png")])])]
    noted.request(messages)
    messages.append(noted.answer(1, ModelResponse([ToolCallPart("t", {"a": [1]}, tool_call_id="c")])))
    noted.call(1, messages[-1].parts[0], {"found": [1]})
    messages.append(ModelRequest([ToolReturnPart("t", {"found": [1]}, tool_call_id="c")]))
    noted.request(messages)
    messages[0].parts[0].content[1].url = "https://example.org/b.png"
    noted.request(messages)
    messages[1].parts[0].args["a"].append(2)
    noted.request(messages)
    messages[2].parts[0].content["found"][0] = 3
    noted.request(messages)
    noted.check()
    kept = [fact.parameters.get("kept") for fact in noted.facts if getattr(fact, "key", "").startswith("model")]
    assert kept == [0, None, 0, 1, 2]


def test_what_a_model_does_not_see_is_not_compared():
    noted = Noted()
    first = noted.request([ModelRequest([UserPromptPart("go")], run_id="one", metadata={"a": 1})])
    again = Noted().request([ModelRequest([UserPromptPart("go")], run_id="two")])
    assert first.parameters == again.parameters


def test_one_id_for_several_calls_and_a_result_that_is_not_what_was_recorded():
    noted = Noted()
    messages = [ModelRequest([UserPromptPart("go")])]
    noted.request(messages)
    calls = [ToolCallPart("t", {"a": n}, tool_call_id="same") for n in (1, 2)]
    messages.append(noted.answer(1, ModelResponse([*calls, ToolCallPart("t", {}, tool_call_id="cut")])))
    for call in (*calls, ToolCallPart("t", {}, tool_call_id="cut")):
        noted.call(1, call, f"result of {call.args}")
    returned = [ToolReturnPart("t", f"result of {call.args}", tool_call_id="same") for call in calls]
    messages.append(ModelRequest([*returned, ToolReturnPart("t", "resul...", tool_call_id="cut")]))
    noted.request(messages)
    noted.check()


def test_a_result_of_nothing_comes_back_as_that():
    noted = Noted()
    messages = [ModelRequest([UserPromptPart("go")])]
    noted.request(messages)
    messages.append(noted.answer(1, ModelResponse([ToolCallPart("t", {}, tool_call_id="c")])))
    messages.append(ModelRequest([ToolReturnPart("t", None, tool_call_id="c")]))
    noted.request(messages)
    noted.check()


PARTS = (
    lambda chance: UserPromptPart(f"more {chance.random()}"),
    lambda chance: UserPromptPart(["see", BinaryContent(chance.randbytes(5), media_type="image/png")]),
    lambda _: SystemPromptPart("You are a poet."),
    lambda _: ToolReturnPart("t", "Fix it.", tool_call_id="c0", outcome="retried"),
)


def step(noted, messages, chance):
    """Let a turn go on by one request, as pydantic-ai, a history processor or a hook might have it."""
    number = noted.record.requests
    parts = [ToolCallPart("t", {"n": number}, tool_call_id=f"c{number}"), TextPart(f"text {number}")]
    response = ModelResponse([*chance.sample(parts, 2), ThinkingPart("hm", signature="s")])
    messages.append(noted.answer(number, response))
    result = chance.choice([None, "x" * 50, {"a": [number, None]}, 1.5])
    noted.call(number, parts[0], result)
    shown = result if chance.random() < 0.7 else "cut"
    returned = ToolReturnPart("t", shown, tool_call_id=f"c{number}")
    messages.append(ModelRequest([returned, *(chance.choice(PARTS)(chance) for _ in range(chance.randrange(2)))]))
    match chance.randrange(8):
        case 0:  # a compaction
            del messages[1 : chance.randrange(1, len(messages))]
            messages.insert(1, ModelRequest([UserPromptPart("So far: nothing.")]))
        case 1:  # a processor that copies, as careful ones do
            messages[:] = copy.deepcopy(messages)
        case 2:  # an edit in place
            part = chance.choice([part for message in messages for part in message.parts])
            if isinstance(getattr(part, "content", None), str):
                part.content += "!"
            elif isinstance(getattr(part, "args", None), dict):
                part.args["n"] = -1
        case 3:
            index = chance.randrange(len(messages))
            messages[index] = replace(messages[index], parts=list(messages[index].parts)[:1])


@pytest.mark.parametrize("seed", range(40))
def test_rebuilt_equals_sent(seed):
    chance, noted = random.Random(seed), Noted()
    messages = [ModelRequest([UserPromptPart("go")], instructions="Be good.")]
    noted.request(messages)
    for _ in range(chance.randrange(1, 12)):
        step(noted, messages, chance)
        noted.request(messages)
    noted.check()


@pytest.mark.parametrize("calls", [20, 60])
def test_a_request_dumps_only_what_is_new(calls, monkeypatch):
    dumps = 0
    dump = request_record.whole

    def counted(message):
        nonlocal dumps
        dumps += 1
        return dump(message)

    monkeypatch.setattr(request_record, "whole", counted)
    turn(calls)
    assert dumps <= calls + 1
