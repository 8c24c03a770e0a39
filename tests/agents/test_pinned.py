"""Names that the log has for ever: a change of one of them is a turn that cannot go on."""

import pytest
from pydantic_ai.durable_exec import JournalOperationNamer, ModelRequestId, ToolsetCallToolId, ToolsetGetToolsId
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Retry, ScriptedModel, tool
from divebook.agents.running_turn import AgentTurn
from divebook.engine.operations import NAMED_BY, pause_keys
from divebook.projections.model_requests import call_name, elicitation_keys
from divebook.runtime import context
from tests.agents.test_approved_calls import Post
from tests.agents.test_turns import ASK, KEYS, Book, started, world
from tests.runtime.test_resuming import StoppedClock, cut
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
    assert {question.id for question in execution.open_questions} == {
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
        # The second id is the name of the first one.
        (["a b", "c8687a08aa5d"], ["tool-1-c8687a08aa5d", "tool-1-c8687a08aa5d-2"]),
        # A call without an id is named by its tool.
        (["", "look"], ["tool-1-look", "tool-1-look-2"]),
    ],
)
def test_ids_that_lie_have_places_all_the_same(ids, keys):
    def answers(messages, _info):
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("look", {"name": id_}, tool_call_id=id_) for id_ in ids])

    book = Book()
    agent = Agent("a", model=FunctionModel(answers), tools=[book.look])
    execution = environment(ASK, agents=[agent]).start("ask").wait(20)
    assert (execution.error, sorted(book.looked)) == (None, sorted(ids))
    assert [o.key for o in started(execution) if o.operation_type == "tool_call"] == keys


def keys_of(call_id):
    """Return all keys that a call with this id can have in its turn, and those of what it starts."""
    name = f"1-{call_name(call_id)}"
    rounds = ["1", "2", "10", "1-1", "1-2", "2-1", "in-1", "in-2"]
    questions = [elicitation_keys(name, number)[0] for number in rounds]
    calls = [f"tool-{name}", f"tool-{name}#2", f"tool-{name}#3"]
    pauses = [pause_keys(call, failures)[0] for call in calls for failures in (1, 2, 10)]
    return [f"approve-{name}", f"ask-{name}", *calls, *pauses, *questions]


def test_no_two_calls_share_a_key_whatever_their_ids():
    parts = ["", "-", "1", "2", "-1", "-2", "-1-1", "-in-1", "in-", "-retry-1", ":retry-1", ":1", "#2", "@1", "/"]
    ids = {f"c1{first}{second}" for first in parts for second in parts} | {"", "1", "in", "2-1"}
    keys = [key for id_ in ids for key in keys_of(id_)]
    assert len(set(keys)) == len(keys) > 3000


def test_a_pause_before_another_attempt_is_no_call_whatever_its_id():
    def answers(messages, _info):
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("try", {"name": id_}, tool_call_id=id_) for id_ in ids])

    @tool(name="try", retry=Retry(2, seconds=1))
    async def attempted(name: str) -> str:
        made.append(name)
        if made.count(name) == 1:
            raise RuntimeError("not yet")
        return name

    ids, made = ["c1", "c1-retry-1", "c1:retry-1"], []
    here = environment(ASK, agents=[Agent("a", model=FunctionModel(answers), tools=[attempted])], clock=StoppedClock())
    execution = here.start("ask").wait(20)
    assert (execution.error, sorted(made)) == (None, sorted(ids * 2))
    timers = [o.key for o in started(execution) if o.operation_type == "timer"]
    assert sorted(timers) == sorted(f"tool-1-{call_name(id_)}:retry-1" for id_ in ids)
    assert execution.verify().equal


def test_a_pause_under_its_former_key_is_found_again(monkeypatch):
    @tool(retry=Retry(3, seconds=1))
    async def look(name: str) -> str:
        made.append(name)
        if len(made) < 3:
            raise RuntimeError("not yet")
        return name

    def former(key, failures):
        return (pause_keys(key, failures)[1],) * 2

    made, script = [], [{"call": {"look": {"name": "owl"}}}, "done"]
    settings = {"agents": [Agent("a", model=ScriptedModel(script), tools=[look])], "clock": StoppedClock()}
    with monkeypatch.context() as patched:
        patched.setattr(context, "pause_keys", former)
        execution = environment(ASK, **settings).start("ask").wait(20)
    assert execution.status == "completed"
    pauses = [o.key for o in started(execution) if o.operation_type == "timer"]
    assert pauses == ["tool-1-call-1-1-retry-1", "tool-1-call-1-1-retry-2"]
    assert execution.verify().equal
    # Left in the first pause, and continued: the second pause has the new key.
    begun = next(e.sequence for e in execution.history() if getattr(e.data, "operation_type", "") == "timer")
    del made[1:]
    resumed = (
        environment(ASK, store=cut(execution.store, execution, begun), **settings)
        .run_of(execution.id)
        .resume()
        .wait(20)
    )
    pauses = [o.key for o in started(resumed) if o.operation_type == "timer"]
    assert (resumed.status, pauses) == ("completed", ["tool-1-call-1-1-retry-1", "tool-1-call-1-1:retry-2"])
    assert resumed.verify().equal


def test_keys_of_a_turn_are_unique_whatever_the_names_are():
    turn = AgentTurn(None, None, "m", None, 1.0, loop=None)
    names = ["check-c1", "check-c1#2", "check-c1", "check-c1#2", "check-c1#2#2", "check-c1#3", "check-c1"]
    keys = [turn.key(name) for name in names]
    assert len(set(keys)) == len(keys)
    assert keys[:2] == names[:2]


def test_calls_to_which_a_model_gives_one_id_have_places_of_their_own():
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
