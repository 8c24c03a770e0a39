"""Agents that call tools of MCP servers: what the log has of it, what a resume starts, and who is asked what."""

import asyncio
import threading
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.agents import server_tools
from divebook.config import answers
from divebook.definitions.reader import read_definitions
from divebook.definitions.resources import ApprovalRule
from divebook.definitions.servers import MCPServerDefinition, ToolConfigurationDefinition
from divebook.documents import Policy
from divebook.engine.operations import Place
from divebook.errors import AlreadyRegisteredError, NotFoundError, ServerError
from divebook.events import catalog
from divebook.projections.model_requests import elicitation_keys
from divebook.runtime.clock import SystemClock
from divebook.tools.mcp import servers as mcp_servers
from tests.agents.test_turns import began
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment
from tests.tools.conftest import defined

ASK = Workflow("ask", [Step("ask", prompt="Go", agent="a", store="said")])
GO = [{"call": {"go": {}}}, "done"]


def world(script, *servers, tools=(), store=None, named=None, **given):
    """Return an environment with servers, and an agent that may call all of them, or those that are named."""
    given |= {} if store is None else {"store": store}
    names = [server.name for server in servers] if named is None else named
    agent = Agent("a", model=ScriptedModel(script), tools=tools, servers=names)
    return environment(ASK, agents=[agent], servers=servers, approvals=[ApprovalRule()], **given)


@pytest.fixture(scope="module")
def good():
    """An environment over one server that is made with the SDK, which takes a second to start."""
    server = defined("good.py", name="good")

    def calls(tool):
        return Agent(tool, model=ScriptedModel([{"call": {tool: {}}}, "done"]), servers=[server])

    flows = [Workflow(tool, [Step("ask", prompt="Go", agent=tool, store="said")]) for tool in ("paint", "fails")]
    inquirer = Agent("inquire", model=FunctionModel(inquires), servers=[server])
    with environment(*flows, agents=[calls("paint"), calls("fails"), inquirer], approvals=[ApprovalRule()]) as here:
        yield here


COUNTS = [2, 3, 1]
"""Number of questions of each round of a call."""


def inquires(messages, _):
    """Call `inquire` with each id in the prompt, then finish."""
    if len(messages) > 1:
        return ModelResponse(parts=[TextPart("done")])
    ids = messages[0].parts[-1].content.split("|")
    calls = [ToolCallPart("inquire", {"name": f"n{i}", "counts": COUNTS}, id_) for i, id_ in enumerate(ids)]
    return ModelResponse(parts=calls)


def started(execution):
    return [event.data for event in execution.history() if isinstance(event.data, catalog.OperationStarted)]


def results(execution):
    """Return what calls of tools came to, by key."""
    keys = {operation.operation_id: operation.key for operation in started(execution)}
    ended = (event.data for event in execution.history() if isinstance(event.data, catalog.OperationCompleted))
    return {keys[end.operation_id]: end.result for end in ended if "tool-" in str(keys[end.operation_id])}


def test_the_list_of_a_server_and_each_call_are_operations_of_the_turn():
    with world(GO, defined("rough.py", trusted=True)) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "done"}
        turn, discovery, _, call, _ = started(execution)
        assert (discovery.key, discovery.operation_type, discovery.name) == ("tools-s", "tool_discovery", "s")
        assert call.parameters == {"agent": "a", "tool": "go", "arguments": {}, "server": "s"}
        assert {operation.within for operation in (discovery, call)} == {began(execution, turn)}
        assert results(execution)["tool-1-call-1-1"]["result"].startswith("good ")


def test_a_resume_starts_a_server_only_for_a_call_that_the_log_does_not_have(monkeypatch):
    starts, opened = [], mcp_servers.Server._open_connection

    def noted(server, operation):
        starts.append(operation)
        return opened(server, operation)

    monkeypatch.setattr(mcp_servers.Server, "_open_connection", noted)
    server = defined("rough.py", trusted=True)
    with world(GO, server) as here:
        execution = here.start("ask").wait(60)
    ends = [event for event in execution.history() if event.event_type == "operation_completed"]
    for end, wanted in zip(ends, [["call_tool"], ["call_tool"], [], []], strict=False):
        starts.clear()
        with world(GO, server, store=cut(execution.store, execution, end.sequence)) as other:
            assert other.run_of(execution.id).resume().wait(60).variables == {"said": "done"}
        assert starts == wanted


@pytest.mark.parametrize(("answer", "said"), [({"colour": "red"}, "easel: red"), ("decline", "easel: decline")])
def test_a_question_of_a_server_stands_in_the_log_and_its_answer_goes_back(good, answer, said):
    execution = good.start("paint").wait(60)
    (question,) = execution.open_questions
    assert question.question == "Which colour?"
    assert question.data == {"server": "good", "tool": "paint"}
    execution.answer(question.id, answer).wait(60)
    found = results(execution)
    assert found["tool-1-call-1-1"]["kind"] == "input_required"
    assert found["tool-1-call-1-1#2"]["result"] == said
    assert said in str(execution.requests[-1].messages)  # what the model got is what the last round came to


ENDINGS = ["-2", "-1", "-2-1", "-2-2", "-in-1", "-in", "-1-in-1", "-retry-1", ":2", "#2", ":2-1", "/1", "", " "]
"""Endings that make an id look like the key of a question of the call whose id comes before them."""


@pytest.mark.parametrize("ending", ENDINGS)
def test_each_answer_reaches_its_own_call_whatever_ids_the_model_gives_to_calls(good, ending):
    flow = Workflow("ask", [Step("ask", prompt=f"c1|c1{ending}", agent="inquire", store="said")])
    execution = good.start(flow).wait(60)
    asked = []
    while execution.open_questions:
        for question in execution.open_questions:
            asked.append(question.question)
            execution.answer(question.id, {"colour": f"red-{question.question}"})
        execution.wait(60)
    assert (execution.status, execution.error) == ("completed", None)
    keys = [f"n{call}/{number}/{index}" for call in (0, 1) for number in range(3) for index in range(COUNTS[number])]
    assert sorted(asked) == sorted(keys)
    texts = [result["result"] for result in results(execution).values() if "result" in result]
    assert sorted(texts) == [" ".join(f"{k}=red-{k}" for k in keys if k.startswith(n)) for n in ("n0", "n1")]


def test_questions_under_their_former_keys_are_found_again(good, monkeypatch):
    def former(call, number):
        return (elicitation_keys(call, number)[1],) * 2

    def answer_all():
        for question in execution.open_questions:
            execution.answer(question.id, {"colour": "red"})
        execution.wait(60)

    flow = Workflow("ask", [Step("ask", prompt="c1", agent="inquire", store="said")])
    with monkeypatch.context() as patched:
        patched.setattr(server_tools, "elicitation_keys", former)
        execution = good.start(flow).wait(60)
        answer_all()
    while execution.open_questions:
        answer_all()
    place = Place("main", "ask", 1, None, "")
    expected = ["-1", "-1-1", ":2", ":2-1", ":2-2", ":3"]
    asked = {place._replace(key=f"elicit-1-c1{ending}").operation_id: ending for ending in expected}
    raised = [event.data for event in execution.history() if isinstance(event.data, catalog.InterruptRaised)]
    ids = {execution.state.question_id("question", id_): ending for id_, ending in asked.items()}
    assert [ids.get(data.interrupt_id) for data in raised] == expected
    assert (execution.status, execution.verify().equal) == ("completed", True)


@pytest.mark.parametrize(("answer", "said"), [({"colour": "red"}, '"red"'), ("decline", '"decline"')])
def test_a_server_of_2025_asks_during_its_call(answer, said):
    raised = threading.Event()
    with world(GO, defined("rough.py", "asks")) as here:
        execution = here.create("ask")
        execution.subscribe(lambda events: any(e.event_type == "interrupt_raised" for e in events) and raised.set())
        execution.start()
        assert raised.wait(60)
        (question,) = execution.open_questions
        assert (question.question, question.expires_at is None) == ("Which colour?", False)
        assert (execution.status, here.store.record(execution.id).status) == ("waiting", "waiting")
        assert [asked.id for _, asked in here.inbox()] == [question.id]
        assert execution.is_live  # it cannot rest while the call waits
        execution.answer(question.id, answer).wait(60)
        assert execution.variables == {"said": "done"}
        assert said in results(execution)["tool-1-call-1-1"]["result"]


def test_an_answer_up_front_reaches_a_server_that_asks_during_its_call(monkeypatch):
    monkeypatch.setattr(answers, "POLL_INTERVAL", 0.01)
    with world(GO, defined("rough.py", "asks")) as here:
        given = answers.answers_from(mapping={"ask": {"colour": "red"}})
        execution = given.settle(here.start("ask"))
        assert (execution.variables, given.unused) == ({"said": "done"}, ())
        assert '"red"' in results(execution)["tool-1-call-1-1"]["result"]


class Tomorrow(SystemClock):
    def now(self):
        return super().now() + 86_400_000_000


def test_a_server_that_is_called_again_the_next_day_asks_again():
    """The process has died while a person was asked, whose answer would have come too late."""

    def asking(execution):
        raised = threading.Event()
        execution.subscribe(lambda events: any(e.event_type == "interrupt_raised" for e in events) and raised.set())
        return raised

    with world(GO, defined("rough.py", "asks")) as here:
        execution = here.create("ask")
        raised = asking(execution)
        execution.start()
        assert raised.wait(60)
        store = cut(execution.store, execution, execution.state.last_sequence)
        execution.answer(execution.open_questions[0].id, "decline").wait(60)
    with world(GO, defined("rough.py", "asks"), store=store, clock=Tomorrow()) as here:
        execution = here.run_of(execution.id).resume().wait(60)
        (unknown,) = execution.open_questions
        raised = asking(execution)
        execution.answer(unknown.id, "retry")
        assert raised.wait(60)
        (question,) = execution.open_questions
        assert question.question == "Which colour?"
        execution.answer(question.id, {"colour": "red"}).wait(60)
        assert '"red"' in results(execution)["tool-1-call-1-1"]["result"]


@pytest.mark.parametrize("within", [True, False])
def test_a_server_made_with_the_sdk_asks_during_its_call_if_its_definition_says_so(within, logs):
    raised = threading.Event()
    script = [{"call": {"paint_as_before": {}}}, "done"]
    with world(script, defined("good.py", name="good", asks_within_calls=within)) as here:
        execution = here.create("ask")
        execution.subscribe(lambda events: any(e.event_type == "interrupt_raised" for e in events) and raised.set())
        execution.start()
        if within:
            assert raised.wait(60)
            execution.answer(execution.open_questions[0].id, {"colour": "red"})
        assert execution.wait(60).variables == {"said": "done"}
        found = results(execution)["tool-1-call-1-1"]
        assert ("red" in str(found), "asks_within_calls=True" in str(found)) == (within, not within)
        assert [text.partition(":")[0] for text in logs()] == [
            "server good asks while a call is under way" for _ in range(not within)
        ]


def test_a_server_that_always_wants_to_be_called_again_is_not(monkeypatch):
    monkeypatch.setattr(server_tools, "MOST_ASKED", 3)
    with world([{"call": {"stalls": {}}}, "done"], defined("good.py", name="good")) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "done"}
        assert "the server good asks more than 3 questions in one call" in str(execution.requests[-1].messages)
        assert list(results(execution)) == ["tool-1-call-1-1", *(f"tool-1-call-1-1#{n}" for n in (2, 3, 4))]


def test_servers_are_asked_side_by_side_and_what_one_offers_is_kept_where_another_fails(monkeypatch):
    met, discover = asyncio.Barrier(2), mcp_servers.Server.discover

    async def together(server):
        async with asyncio.timeout(20):
            await met.wait()
        if server.name == "s1":
            raise ServerError("list_tools", "s1", "out of paper")
        return await discover(server)

    monkeypatch.setattr(mcp_servers.Server, "discover", together)
    with world(GO, *(defined("rough.py", name=name) for name in ("s1", "s2"))) as here:
        execution = here.start("ask").wait(60)
        assert "MCP list_tools failed for server s1: out of paper" in execution.error
        ended = {
            type(event.data).__name__: event.data.operation_id
            for event in execution.history(1)
            if event.event_type in ("operation_completed", "operation_failed")
        }
        keys = {operation.operation_id: operation.key for operation in started(execution)}
        assert keys[ended["OperationCompleted"]] == "tools-s2"


def test_a_server_that_is_down_fails_the_run_which_goes_on_once_it_is_there(tmp_path):
    program = tmp_path / "later.py"
    server = MCPServerDefinition("s", "stdio", command="python3", args=(str(program),), trusted=True)
    script = [{"call": {"mark": {}}}, {"call": {"go": {}}}, "done"]
    marked = []

    def mark() -> str:
        """Make a mark."""
        marked.append(1)
        return "marked"

    with world(script, server, tools=[mark]) as here:
        execution = here.start("ask").wait(60)
        assert execution.status == "failed"
        assert "MCP list_tools failed for server s: not connected: initialization failed" in execution.error
        program.write_text((Path(__file__).parent / "servers" / "rough.py").read_text())
        assert here.run_of(execution.id).resume().wait(60).variables == {"said": "done"}
        assert marked == [1]


def test_what_a_server_says_against_a_call_is_for_the_model(good):
    execution = good.start("fails").wait(60)
    assert execution.variables == {"said": "done"}
    recorded = results(execution)["tool-1-call-1-1"]
    assert (recorded["kind"], "Error executing tool fails" in str(recorded)) == ("tool_failed", True)


def test_a_connection_that_ends_in_a_call_asks_a_person_what_it_came_to():
    with world(GO, defined("rough.py", "dies")) as here:
        execution = here.start("ask").wait(60)
        (question,) = execution.open_questions
        assert question.kind == "outcome_unknown"
        execution.answer(question.id, {"choice": "done", "result": "gone"}).wait(60)
        assert execution.variables == {"said": "done"}


@pytest.mark.parametrize(
    ("more", "asks"),
    [
        ({}, True),  # what it says of itself is not believed
        ({"trusted": True}, False),
        ({"trusted": True, "tool_configuration": {"approval_mode": "always"}}, True),
        ({"trusted": True, "tool_configuration": {"approval_filter": {"always": ["go"]}}}, True),
        ({"tool_configuration": {"approval_filter": {"never": ["go"]}}}, False),
    ],
)
def test_calls_of_servers_are_approved_as_their_definition_says(more, asks):
    given = more.get("tool_configuration")
    configuration = {} if given is None else {"tool_configuration": ToolConfigurationDefinition.from_dict(given)}
    server = defined("rough.py", **{**more, **configuration})
    agent = Agent("a", model=ScriptedModel(GO), servers=[server])
    with environment(ASK, agents=[agent]) as here:
        execution = here.start("ask").wait(60)
        assert [question.kind for question in execution.open_questions] == ["confirmation"] * asks
        if asks:
            assert execution.open_questions[0].data["server"] == "s"
            execution.answer(execution.open_questions[0].id, "yes").wait(60)
        assert execution.variables == {"said": "done"}, execution.error


# --- which tools ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [["go"], ["s/go"]])
def test_an_agent_may_name_single_tools_of_servers(tools):
    with world(GO, defined("rough.py"), tools=tools, named=()) as here:
        assert here.start("ask").wait(60).variables == {"said": "done"}


def test_one_of_two_tools_of_one_name_can_be_named():
    """All of them at once: test_two_servers_and_a_function_may_have_a_tool_of_the_same_name."""
    both = defined("rough.py", name="s1"), defined("rough.py", name="s2")
    with world(GO, *both, named=(), tools=["s2/go"]) as here:
        execution = here.start("ask").wait(60)
        assert (execution.variables, [*execution.tool_calls["server"]]) == ({"said": "done"}, ["s2"])


def test_names_that_nobody_has_are_refused():
    with world(GO, defined("rough.py"), tools=["gone"]) as here:
        assert "unknown tool: gone" in here.start("ask").wait(60).error
    with world(GO, named=["nowhere"]) as here, pytest.raises(NotFoundError, match="nowhere"):
        here.start("ask")


def test_servers_are_held_by_the_environment(tmp_path):
    server = defined("rough.py")
    here = world(GO, server)
    with here:
        assert list(here.internals.registry.servers) == ["s"]
        here.add_server(server)
        with pytest.raises(AlreadyRegisteredError):
            here.add_server(defined("good.py"))
        here.start("ask").wait(60)
        assert here.internals.registry.servers["s"].is_running
    assert not here.internals.registry.servers["s"].is_running


def test_a_definition_brings_its_servers_and_needs_leave_to_start_programs():
    text = f"""
Agents: [{{Name: a, Model: scripted, Servers: [s]}}]
MCPServers: [{{Name: s, Type: stdio, Command: {defined("rough.py").command}, Args: ['{defined("rough.py").args[0]}']}}]
Workflows: [{{Name: w, Steps: [{{Name: one, Prompt: Go}}]}}]
"""
    with environment(policy=Policy()) as here:
        here.define(read_definitions(text))
        assert "programs are not allowed; to allow it: DIVEBOOK_ALLOW=programs" in here.start("w").wait(60).error
    with environment(policy=Policy("programs")) as here:
        here.define(read_definitions(text))
        assert here.start("w").wait(60).status == "completed"
