"""`run.requests[n].messages` is what the model got: of real turns, live, and of those that another process finished."""

import copy
from dataclasses import replace

import pytest
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Step, Workflow, tool
from divebook.agents.request_record import whole
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import ContentEntry
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

RESULTS = [None, "plain", {"a": [1, None]}, ["x", 2.5], {"kind": "image-url", "url": "https://example.org/a.png"}]
SEEN: list = []


def answer(messages, info):
    SEEN.append((copy.deepcopy(messages), info.instructions, [tool.name for tool in info.function_tools]))
    number = sum(isinstance(message, ModelResponse) for message in messages)
    if "So far" in str(messages):
        return ModelResponse([TextPart("done")])
    if number == 0:
        calls = [ToolCallPart("give", {"number": place}, tool_call_id=f"call {place}") for place in range(len(RESULTS))]
        return ModelResponse([ThinkingPart("hm", signature="s"), *calls])
    if number == 1:
        wrong = ToolCallPart("give", '{"number": "seven"}', tool_call_id="same")
        return ModelResponse([TextPart("And:"), ToolCallPart("long", {}, tool_call_id="l"), wrong])
    if number == 2:
        return ModelResponse([ToolCallPart("fail", {}, tool_call_id="same")])
    if number == 3:
        return ModelResponse([TextPart("")] if len(messages) % 2 else [ToolCallPart("give", {"number": 1})])
    return ModelResponse([TextPart("done")])


@tool(idempotent=True)
async def give(number: int) -> object:
    """Give something of some kind."""
    return RESULTS[number]


@tool(idempotent=True, most=100)
async def long() -> str:
    """Give a long text."""
    return "x" * 5000


@tool(idempotent=True)
async def fail() -> str:
    """Fail, as the model may hear."""
    from pydantic_ai.exceptions import ModelRetry

    raise ModelRetry("not now")


class Forgetting(AbstractCapability):
    """Edits the prompt in place, and then leaves out what lies behind."""

    async def before_model_request(self, ctx, request_context):
        if ctx.run_step == 2:
            request_context.messages[0].parts[-1].content[0] = "edited"
        if ctx.run_step < 4:
            return request_context
        first, *rest = request_context.messages
        kept = [first, ModelRequest([UserPromptPart("So far: nothing.")]), *rest[-2:]]
        return replace(request_context, messages=kept)


def world(*capabilities, **options):
    definition = AgentDefinition("a", instructions="Be brief.", context=(ContentEntry(text="background"),))
    agent = Agent(definition, model=FunctionModel(answer), tools=[give, long, fail], capabilities=capabilities)
    workflow = Workflow(
        "ask", [Step("ask", prompt="go", content=[ContentEntry(text="a page")], agent="a", store="said")]
    )
    return environment(workflow, agents=[agent], **options)


def check(execution, seen):
    views = execution.requests
    read = [ModelMessagesTypeAdapter.validate_python(list(view.messages)) for view in views]
    assert [list(map(whole, messages)) for messages in read] == [list(map(whole, messages)) for messages, _, _ in seen]
    assert [(view.instructions, [tool["name"] for tool in view.tools]) for view in views] == [told[1:] for told in seen]


@pytest.mark.parametrize("capabilities", [(), (Forgetting(),)])
def test_what_was_sent_is_what_the_log_gives_back(capabilities):
    SEEN.clear()
    execution = world(*capabilities).start("ask").wait(20)
    assert execution.status == "completed", execution.error
    seen = list(SEEN)
    assert len(seen) >= 4
    check(execution, seen)
    ends = [event.sequence for event in execution.history() if event.event_type == "operation_completed"]
    for end in ends[::3]:
        SEEN.clear()
        again = world(*capabilities, store=cut(execution.store, execution, end)).run_of(execution.id).resume().wait(20)
        assert again.status == "completed", (end, again.error)
        check(again, [*seen[: len(seen) - len(SEEN)], *SEEN])
