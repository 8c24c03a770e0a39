"""Names of tools that providers refuse, tools that break the protocol, and tools of several servers with one name."""

import itertools
import json
import random
import re

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.agents.signatures import LONGEST, safe_names
from divebook.definitions.resources import ApprovalRule, Approvals
from divebook.definitions.servers import MCPServerDefinition
from divebook.definitions.tools import ToolHints
from divebook.engine.approvals import ToolCall, verdict_of
from divebook.errors import ServerError
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment
from tests.tools.conftest import defined

ASK = Workflow("ask", [Step("ask", prompt="Go", agent="a", store="said")])
TAKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What OpenAI, Anthropic and Google all take as the name of a tool."""
ODD = [
    "files.read",
    "2fa_code",
    "a b",
    "größe",
    "工具",
    "工 具",
    "x" * 65,
    "x" * 66,
    "a/b",
    "-dash",
    "files_read",
    "Files.read",
    "a:b",
    "*",
    "🙂",
    "a" * 64,
    "_",
]
OBJECT = {"type": "object"}


def tool(name, **more):
    return {"name": name, "description": f"Do {name}.", "inputSchema": OBJECT, **more}


def odd(*tools, name="s"):
    return defined("odd.py", json.dumps(list(tools)), name=name, trusted=True)


class Provider:
    """A model that refuses requests as providers do, and calls each tool once, all at a time, before it answers."""

    def __init__(self):
        self.requests = []

    def model(self):
        return FunctionModel(self.answer)

    async def answer(self, messages, info):
        names = [tool.name for tool in info.function_tools]
        self.requests.append((names, messages))
        said = [part.tool_name for message in messages for part in message.parts if hasattr(part, "tool_name")]
        assert not [name for name in (*names, *said) if not TAKEN.fullmatch(name)]
        assert len(set(names)) == len(names)
        done = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if not done:
            return ModelResponse([ToolCallPart(name, {}, tool_call_id=f"call_{n}") for n, name in enumerate(names)])
        return ModelResponse([TextPart("; ".join(str(part.content) for part in done))])


ALL = (ApprovalRule(),)


def world(provider, *servers, tools=(), approvals=ALL, store=None, **more):
    given = {} if store is None else {"store": store}
    agent = Agent(
        "a", model=provider.model() if isinstance(provider, Provider) else provider, servers=servers, tools=tools
    )
    return environment(ASK, agents=[agent], approvals=list(approvals), **given, **more)


# --- the mapping ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_names_are_mapped_to_what_every_provider_takes_one_to_one_whatever_their_order(seed):
    chance = random.Random(seed)
    alphabet = "ab._-/ 2é工"
    names = {"".join(chance.choices(alphabet, k=chance.choice([1, 2, 3, 64, 65, 90]))) for _ in range(60)}
    names |= set(chance.sample(ODD, 8))
    names |= set(itertools.islice(safe_names(names).values(), 5))  # names that others would be mapped to
    safe = safe_names(names)
    every = [safe.get(name, name) for name in names]
    assert all(TAKEN.fullmatch(name) and len(name) <= LONGEST for name in every)
    assert len(set(every)) == len(names)
    assert all(not TAKEN.fullmatch(name) for name in safe)  # those that providers take stay as they are
    shuffled = chance.sample(sorted(names), len(names))
    assert safe_names(shuffled) == safe


def test_a_model_gets_names_that_it_takes_and_everything_else_has_the_real_ones():
    provider = Provider()
    with world(provider, odd(*map(tool, ODD))) as here:
        execution = here.start("ask").wait(60)
        assert execution.status == "completed", execution.error
        assert execution.variables["said"] == "; ".join(f"called {name}" for name in ODD)
        calls = execution.tool_calls
        assert [*calls["tool"]] == ODD
        assert {*calls["server"]} == {"s"}
        recorded = {
            event.data.parameters["tool"]
            for event in execution.history()
            if event.event_type == "operation_started" and event.data.operation_type == "tool_call"
        }
        assert recorded == set(ODD)
        assert [tool["name"] for tool in execution.requests[0].tools] == ODD


def test_a_resume_asks_for_what_the_log_lacks_and_no_more():
    tools = [tool(name, annotations={"readOnlyHint": True, "idempotentHint": True}) for name in ("a.b", "2fa_code")]
    with world(Provider(), odd(*tools)) as here:
        execution = here.start("ask").wait(60)
    ends = [event.sequence for event in execution.history() if event.event_type == "operation_completed"]
    for end in ends:
        with world(Provider(), odd(*tools), store=cut(execution.store, execution, end)) as other:
            assert other.run_of(execution.id).resume().wait(60).variables == execution.variables


def test_a_card_and_a_rule_have_the_real_name():
    with world(Provider(), odd(tool("files.read")), approvals=[ApprovalRule("files.read", outcome="ask")]) as here:
        execution = here.start("ask").wait(60)
        (question,) = execution.open_questions
        assert (question.question, question.data["tool"]) == ("Run files.read?", "files.read")
        assert execution.answer(question.id, True).wait(60).variables == {"said": "called files.read"}


def test_a_model_that_answers_with_the_real_name_means_the_same_tool():
    with world(ScriptedModel([{"call": {"files.read": {}}}, "done"]), odd(tool("files.read"))) as here:
        execution = here.start("ask").wait(60)
        assert (execution.variables, [*execution.tool_calls["outcome"]]) == ({"said": "done"}, ["returned"])


def test_what_is_written_while_somebody_listens_has_the_real_name():
    parts = []
    with world(ScriptedModel([{"call": {"files.read": {"a": 1}}}, "done"]), odd(tool("files.read"))) as here:
        execution = here.create("ask")
        execution.subscribe_text(lambda delta: parts.append(delta.part), parts=True)
        execution.start().wait(60)
    assert {part for part in parts if part.startswith("arguments")} == {"arguments:files.read:call-1-1"}


# --- odd tools -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"inputSchema": OBJECT}, "number 2"),
        ({"name": None, "inputSchema": OBJECT}, "number 2"),
        ({"name": 5, "inputSchema": OBJECT}, "number 2"),
        ({"name": "", "inputSchema": OBJECT}, "''"),
        ({"name": "a\x1b[31mb", "inputSchema": OBJECT}, "its name must have"),
        ({"name": "y" * 5000, "inputSchema": OBJECT}, "its name must have"),
        ({"name": "odd", "description": 5, "inputSchema": OBJECT}, "'odd'"),
        ({"name": "odd", "inputSchema": None}, "'odd'"),
        ({"name": "odd", "inputSchema": []}, "'odd'"),
        ({"name": "odd"}, "'odd'"),
        ({"name": "odd", "inputSchema": {"type": "string"}}, "'odd'"),
        ({"name": "odd", "inputSchema": {"type": "object", "properties": 5}}, "'odd'"),
        ({"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"type": "objekt"}}}}, "'odd'"),
        ({"name": "odd", "inputSchema": {"type": "object", "required": "a"}}, "'odd'"),
        ({"name": "odd", "inputSchema": OBJECT, "annotations": {"readOnlyHint": "perhaps"}}, "'odd'"),
        ({"name": "odd", "inputSchema": OBJECT, "annotations": 5}, "'odd'"),
        ({"name": "odd", "inputSchema": "DEEP:400"}, "'odd'"),
        ({"name": "odd", "description": "x" * 110_000, "inputSchema": OBJECT}, "'odd'"),
        (5, "number 2"),
        (None, "number 2"),
        ("odd", "number 2"),
        ([], "number 2"),
    ],
)
def test_one_odd_tool_is_left_out_by_name_and_the_others_stay(given, why, logs):
    with world(Provider(), odd(tool("first"), given, tool("last"))) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "called first; called last"}, execution.error
    (said, *others) = [text for text in logs() if "is skipped" in text or "is left out" in text]
    assert why in said
    assert "MCP server s" in said
    assert set(others) <= {said}


@pytest.mark.parametrize(
    "given",
    [
        {"name": "plain", "inputSchema": {}},
        {"name": "plain", "inputSchema": {"properties": {"a": {"type": "string"}}}},
        {"name": "plain", "title": None, "description": None, "annotations": None, "inputSchema": {"type": None}},
        {"name": "plain", "inputSchema": OBJECT, "unknown": {"more": [1]}},
    ],
)
def test_what_can_be_understood_is_offered(given):
    with world(Provider(), odd(given)) as here:
        assert here.start("ask").wait(60).variables == {"said": "called plain"}


# --- failures ------------------------------------------------------------------------------------------------------


def test_a_result_that_is_an_error_is_a_failure_in_every_frame_and_its_model_sees_the_text():
    provider = Provider()
    with world(provider, odd(tool("fails"), tool("works"))) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "called fails; called works"}
        calls, operations = execution.tool_calls, execution.operations
        assert [*calls["outcome"]] == ["failed", "returned"]
        assert [*calls["status"]] == ["failed", "completed"]
        assert calls["error"][0] == "called fails"
        operations = operations[operations["type"] == "tool_call"]
        assert [*operations["status"]] == ["failed", "completed"]
        assert next(iter(operations["error"])) == "called fails"
        assert execution.verify().divergence is None


# --- tools of one name ---------------------------------------------------------------------------------------------


def go() -> str:
    """Go."""
    return "gone"


def test_two_servers_and_a_function_may_have_a_tool_of_the_same_name():
    provider = Provider()
    with world(provider, odd(tool("go"), name="s1"), odd(tool("go"), name="s2"), tools=[go]) as here:
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "gone; called go; called go"}, execution.error
        assert provider.requests[0][0] == ["go", "s1_go", "s2_go"]
        calls = execution.tool_calls
        assert [*zip(calls["tool"], calls["server"].fillna(""), strict=True)] == [
            ("go", ""),
            ("go", "s1"),
            ("go", "s2"),
        ]


def test_the_dialect_dive_refuses_two_tools_of_the_same_name():
    flow = Workflow("old", [Step("ask", prompt="Go", agent="a", store="said")], dialect="dive")
    with world(Provider(), odd(tool("go"), name="s1"), odd(tool("go"), name="s2")) as here:
        assert 'mcp server s2 has duplicate tool name "go"' in here.start(flow).wait(60).error
    with world(Provider(), odd(tool("go")), tools=[go]) as here:
        assert 'mcp server s has duplicate tool name "go"' in here.start(flow).wait(60).error


def test_a_rule_about_one_of_two_tools_of_the_same_name_holds_for_that_one():
    rules = [ApprovalRule("go", server="s2", outcome="deny"), ApprovalRule()]
    with world(Provider(), odd(tool("go"), name="s1"), odd(tool("go"), name="s2"), approvals=rules) as here:
        execution = here.start("ask").wait(60)
        assert [*execution.tool_calls["outcome"]] == ["returned", "denied"]


@pytest.mark.parametrize(
    ("rule", "server", "tool", "outcome"),
    [
        ("files/read", "files", "read", "allow"),
        ("files/read", "evil", "files/read", "ask"),
        ("files/*", "evil", "files/read", "ask"),
        ("**", "evil", "files/read", "allow"),
        ("*", "evil", "files/read", "allow"),
        ("evil/files/read", "evil", "files/read", "allow"),
        ("read", "evil", "read", "allow"),
        ("files.read", "evil", "files.read", "allow"),
    ],
)
def test_a_rule_that_allows_a_tool_of_a_server_means_no_tool_that_another_server_calls_so(rule, server, tool, outcome):
    call = ToolCall(tool, {}, server=server, hints=ToolHints(destructive=True), mode="always")
    assert verdict_of(Approvals((ApprovalRule(rule),)), (), call, 0).outcome == outcome
    assert verdict_of(Approvals((ApprovalRule(rule, outcome="deny"),)), (), call, 0).outcome == "deny"


# --- tools by name -------------------------------------------------------------------------------------------------


def test_tools_of_servers_are_looked_up_by_server_and_name_and_given_to_agents():
    servers = [odd(tool("files.read"), name="s1"), odd(tool("go"), tool("a/b"), name="s2")]
    with Environment(store="memory:", servers=servers, workflows=[ASK], approvals=[ApprovalRule()]) as here:
        tools = here.definitions.mcp_tools()
        assert [*tools] == ["s1/files.read", "s2/go", "s2/a/b"]
        assert (tools["s2/go"].server, tools["s2/go"].description) == ("s2", "Do go.")
        here.add_agent(Agent("a", model=Provider().model(), tools=[tools["s1/files.read"], tools["s2/go"]]))
        execution = here.start("ask").wait(60)
        assert execution.variables == {"said": "called files.read; called go"}, execution.error
        assert [*execution.tool_calls["server"]] == ["s1", "s2"]


def test_a_server_that_cannot_be_asked_is_named():
    server = MCPServerDefinition("gone", "stdio", command="no-such-program")
    with Environment(store="memory:", servers=[server]) as here, pytest.raises(ServerError, match="for server gone"):
        here.definitions.mcp_tools()
