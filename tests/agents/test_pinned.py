"""Names that the log has for ever: a change of one of them is a turn that cannot go on."""

import pytest
from pydantic_ai.durable_exec import JournalOperationNamer, ModelRequestId, ToolsetCallToolId, ToolsetGetToolsId

from divebook import Agent, ScriptedModel
from divebook.engine.operations import NAMED_BY
from tests.agents.test_approved_calls import Post
from tests.agents.test_turns import ASK, KEYS, Book, started, world
from tests.runtime.worlds import environment


def test_keys_and_types_of_a_turn_are_pinned():
    execution = world(Book().look)[0].start("ask").wait(20)
    assert [o.key for o in started(execution)] == KEYS
    assert [o.operation_type for o in started(execution)] == [
        "agent_turn",
        "agent_response",
        "tool_call",
        "tool_call",
        "agent_response",
        "tool_call",
        "agent_response",
    ]
    assert {kind: NAMED_BY[kind] for kind in ("agent_turn", "tool_call", "tool_discovery", "agent_step")} == {
        "agent_turn": "agent",
        "tool_call": "tool",
        "tool_discovery": "server",
        "agent_step": "agent",
    }


def test_parameters_and_results_of_calls_are_pinned():
    execution = world(Book().look)[0].start("ask").wait(20)
    turn, _, call, *_ = started(execution)
    assert turn.parameters == {"agent": "a", "prompt": "Which birds?"}
    assert turn.setting["model"] == "scripted"
    assert call.parameters == {"agent": "a", "tool": "look", "arguments": {"name": "owl"}}
    ended = {e.data.operation_id: e.data.result for e in execution.history() if e.event_type == "operation_completed"}
    assert ended[call.operation_id] == {"result": "owl: seen"}
    assert ended[turn.operation_id] == {"output": "an owl, a lark and a wren", "requests": 3, "finish_reason": None}


def test_places_of_questions_are_pinned():
    execution = Post().world().start("ask").wait(20)
    assert {question.id for question in execution.interrupts} == {
        execution.state.question_id("question", place.operation_id) for place in _places(execution)
    }


def _places(execution):
    from divebook.engine.operations import Place

    return [Place("main", "ask", 1, None, f"approve-1-call-1-{number}") for number in (1, 3)]


def test_the_names_of_the_library_that_ours_stand_for_are_those_we_know():
    namer = JournalOperationNamer("a")
    known = {
        ModelRequestId(None, streaming=False, model_name="m"): "a__model.request",
        ToolsetCallToolId("function", toolset_id="t"): "a__function_toolset__t.call_tool",
        ToolsetGetToolsId("mcp", toolset_id="t"): "a__mcp_server__t.get_tools",
    }
    assert {operation: namer.operation_name(operation) for operation in known} == known


@pytest.mark.parametrize(
    ("ids", "keys"),
    [
        (["a b", "../x"], ["tool-1-c8687a08aa5d", "tool-1-d6b96a97d147"]),
        (["x" * 65, "y"], ["tool-1-9537c5fdf120", "tool-1-y"]),
    ],
)
def test_ids_that_lie_have_places_all_the_same(ids, keys):
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def answers(messages, _info):
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("look", {"name": id_}, tool_call_id=id_) for id_ in ids])

    book = Book()
    agent = Agent("a", model=FunctionModel(answers), tools=[book.look])
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    assert (execution.error, sorted(book.looked)) == (None, sorted(ids))
    assert [o.key for o in started(execution) if o.operation_type == "tool_call"] == keys


def test_calls_to_which_a_model_gives_one_id_have_places_of_their_own():
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    ids = {"owl": "same", "lark": "same", "wren": "same-2", "tit": "same"}
    calls = [ToolCallPart("look", {"name": name}, tool_call_id=ids[name]) for name in ids]
    book = Book()
    model = FunctionModel(lambda messages, _: ModelResponse(parts=[TextPart("so")] if messages[1:] else calls))
    execution = environment(ASK, agents=[Agent("a", model=model, tools=[book.look])]).start("ask").wait(20)
    assert (execution.error, sorted(book.looked)) == (None, sorted(ids))
    keys = [o.key for o in started(execution) if o.operation_type == "tool_call"]
    assert sorted(keys) == ["tool-1-same", "tool-1-same-2", "tool-1-same-2-2", "tool-1-same-3"]


def test_arguments_that_no_log_can_hold_are_told_to_the_model():
    model = ScriptedModel([{"call": {"look": '{"name": "\\ud800"}'}}, "so be it"])
    book = Book()
    execution = environment(ASK, agents=[Agent("a", model=model, tools=[book.look])]).start("ask").wait(20)
    assert (execution.error, book.looked) == (None, [])
    assert execution.variables == {"birds": "so be it"}
