"""MCP servers on pipes: what they offer, what they answer, and what becomes of those that do wrong."""

import asyncio
import json
from pathlib import Path

import pytest

from divebook.definitions.reader import definitions_from
from divebook.definitions.servers import MCPServerDefinition, ToolConfigurationDefinition
from divebook.documents import Policy
from divebook.errors import AlreadyRegisteredError, NotFoundError, OutcomeUnknownError, ServerError
from divebook.tools.mcp.servers import Server, Servers
from tests.tools.conftest import defined, on_loop


@pytest.fixture(scope="module")
def good(run):
    definition = defined("good.py", name="good", env={"PLACE": "$HOME", "KEY": "env://GOOD_KEY"})
    server = Server(definition, Policy("programs", "environment"), on_loop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOD_KEY", "k-123456789")
        yield server
        run(server.close())


def said(run, server, tool, **arguments):
    return run(server.call(tool, arguments)).content


# --- what it offers and answers ------------------------------------------------------------------------------------


def test_tools_come_with_their_schemas_and_the_servers_instructions(run, good):
    found = run(good.discover())
    add = found.tools[0]
    assert (add.name, add.description, found.instructions) == ("add", "Add two numbers.", "Add with add.")
    assert add.input_schema["required"] == ["a", "b"]


@pytest.mark.parametrize(("trusted", "hints"), [(False, {}), (True, {"read_only": True, "idempotent": True})])
def test_hints_that_relax_count_only_where_a_server_is_trusted(run, serve, trusted, hints):
    (tool,) = run(serve("rough.py", trusted=trusted).discover()).tools
    assert tool.hints == hints


def test_a_hint_that_warns_always_counts(run, serve):
    (tool,) = run(serve("rough.py", "lies").discover()).tools
    assert tool.hints == {"destructive": True}


@pytest.mark.parametrize("levels", [60, 400])
def test_a_schema_that_is_nested_too_deeply_is_left_out_and_the_other_tools_stay(run, serve, levels, caplog):
    tools = run(serve("rough.py", "deep", str(levels)).discover()).tools
    assert [tool.name for tool in tools] == ["fine"]
    assert "'deep'" in caplog.text


def test_a_message_that_nobody_can_read_ends_the_connection(run, serve):
    with pytest.raises(ServerError, match="one of its messages is nested too deeply to be read"):
        run(serve("rough.py", "deep", "50000").discover())


@pytest.mark.parametrize("reference", ["http://127.0.0.1:1/x", "file:/passwd", "other#/a", "#/nowhere"])
def test_a_tool_whose_schema_refers_elsewhere_is_left_out(run, serve, reference, caplog):
    tools = run(serve("rough.py", "refers", reference).discover()).tools
    assert [tool.name for tool in tools] == ["fine"]
    assert caplog.text.count(reference) == 2


def test_answers_are_plain_data(run, good):
    assert said(run, good, "add", a=1, b=2) == 3
    assert said(run, good, "echo", text="hi") == "hi"
    assert said(run, good, "picture") == ["see", {"media_type": "image/png", "base64": "bm90IHJlYWxseQ=="}]
    assert len(said(run, good, "big", size=10_000_000)) == 10_000_000


def test_what_a_server_says_against_a_call_is_an_answer(run, good):
    for tool, arguments, text in [
        ("fails", {}, "Error executing tool fails"),
        ("nowhere", {}, "Unknown tool: nowhere"),
        ("add", {"a": "x"}, "valid integer"),
    ]:
        outcome = run(good.call(tool, arguments))
        assert outcome.is_error
        assert text in outcome.content


def test_variables_and_references_reach_the_server_and_no_text_shows_them(run, good):
    assert said(run, good, "variable", name="PLACE") == str(Path.home())
    assert said(run, good, "variable", name="KEY") == "k-123456789"
    assert said(run, good, "variable", name="GOOD_KEY") == ""  # nothing else of our environ does
    assert "k-123456789" not in repr(good.definition)


def test_a_question_is_answered_in_a_second_round(run, good):
    first = run(good.call("paint", {}))
    assert first.requests["colour"]["message"] == "Which colour?"
    assert first.requests["colour"]["schema"]["required"] == ["colour"]
    for answer, text in [
        ({"action": "accept", "content": {"colour": "red"}}, "easel: red"),
        ({"action": "decline"}, "easel: decline"),
    ]:
        assert run(good.call("paint", {}, answers={"colour": answer}, state=first.state)).content == text


def test_what_a_server_prints_and_sampling_do_no_harm(run, serve):
    assert run(serve("rough.py", "prints").call("go", {})).content.startswith("prints")
    assert run(serve("rough.py", "samples").call("go", {})).content == "Sampling not supported"


# --- which tools ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"enabled": False}, []),
        ({"enabled": True}, ["go"]),
        ({"allowed_tools": ("other",)}, []),
        ({"allowed_tools": ("go", "other")}, ["go"]),
    ],
)
def test_only_allowed_tools_are_offered_and_called(run, serve, given, names):
    server = serve("rough.py", tool_configuration=ToolConfigurationDefinition(**given))
    assert [tool.name for tool in run(server.discover()).tools] == names
    if not names:
        with pytest.raises(ServerError, match="tool go is not allowed by the ToolConfiguration of the server"):
            run(server.call("go", {}))
        assert server.is_running is given.get("enabled", True)  # one that is switched off is not even started


def test_a_list_is_as_it_is_when_it_is_asked_for(run, serve):
    server = serve("rough.py", "changes")
    assert [run(server.discover()).tools[0].name for _ in range(2)] == ["tool1", "tool2"]


def test_tools_that_no_model_can_be_shown_are_left_out_in_words(run, serve, logs):
    assert [tool.name for tool in run(serve("rough.py", "names").discover()).tools] == ["a b", "x" * 65, "fine"]
    assert [tool.name for tool in run(serve("rough.py", "long").discover()).tools] == ["fine"]
    why = [text.partition("is skipped: ")[2].partition(":")[0] for text in logs()]
    assert why == ["its description and schemas have more than 100000 characters"]


# --- those that do wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "cause"),
    [
        ("endless", "its list of tools has more than 100 pages"),
        ("many", "it lists more than 2000 tools"),
        ("no-list", "its answer violates the MCP protocol"),
        ("refuses", "not connected: initialization failed (it ended with code 1; no licence)"),
    ],
)
def test_a_list_that_cannot_be_had_is_an_error_in_words(run, serve, way, cause):
    with pytest.raises(ServerError) as failed:
        run(serve("rough.py", way).discover())
    assert f"MCP list_tools failed for server s: {cause}" in str(failed.value)


@pytest.mark.parametrize(
    ("way", "text"),
    [
        ("lies", "Invalid structured content returned by tool go: n: 'many' is not of type 'integer'"),
        ("backtracks", "Invalid structured content returned by tool go: '^(a|aa)+$' took longer than 1 seconds"),
        ("malformed", "MCP call_tool failed for server s: its answer violates the MCP protocol"),
    ],
)
def test_an_answer_that_is_none_is_an_error_for_the_model(run, serve, way, text):
    server = serve("rough.py", way)
    outcome = run(server.call("go", {}))
    assert outcome.is_error
    assert text in outcome.content
    assert server.is_running


@pytest.mark.parametrize(
    ("way", "cause"),
    [
        ("floods", "it sent more than 1000 notifications between two answers"),
        ("garbage", "more than 100 of its messages were not JSON-RPC; the server must print only JSON-RPC messages"),
        ("dies", "the connection ended (it ended with code 3)"),
    ],
)
def test_a_connection_that_ends_in_a_call_leaves_its_outcome_unknown(run, serve, way, cause, monkeypatch):
    monkeypatch.setattr("divebook.tools.mcp.connection.MOST_NOTIFICATIONS", 1000)
    server = serve("rough.py", way)
    with pytest.raises(OutcomeUnknownError) as unknown:
        run(server.call("go", {}))
    assert str(unknown.value) == f"MCP call_tool failed for server s: {cause}"
    with pytest.raises(ServerError) as failed:
        run(server.call("go", {}, repeatable=True))
    assert str(failed.value) == str(unknown.value)


def test_a_repeatable_call_is_made_again_on_a_new_connection(run, serve, tmp_path):
    server = serve("rough.py", "dies-once", str(tmp_path / "died"))
    assert run(server.call("go", {}, repeatable=True)).content.startswith("dies-once")


def test_a_server_that_has_died_between_two_calls_is_started_again(run, serve):
    server = serve("good.py")
    first = said(run, server, "pid")
    run(server._connection.close())
    assert said(run, server, "pid") != first


def test_a_message_that_is_too_long_ends_the_connection(run, serve, monkeypatch):
    monkeypatch.setattr("divebook.tools.mcp.connection.LARGEST", 100_000)
    server = serve("good.py")
    with pytest.raises(OutcomeUnknownError, match="it sent a message of more than 100000 bytes"):
        run(server.call("big", {"size": 200_000}))
    assert said(run, server, "add", a=1, b=1) == 2  # on a new connection


def test_a_call_that_hangs_can_be_given_up_and_a_start_that_hangs_is(run, serve, monkeypatch):
    async def within(seconds, server):
        await server.discover()
        async with asyncio.timeout(seconds):
            await server.call("go", {})

    with pytest.raises(TimeoutError):
        run(within(0.05, serve("rough.py", "hangs")))
    monkeypatch.setattr("divebook.tools.mcp.connection.HANDSHAKE", 0.3)
    with pytest.raises(ServerError, match=r"not connected: initialization failed: no answer within 0.3 seconds"):
        run(serve("rough.py", "silent").discover())


def test_a_program_that_does_not_exist_or_may_not_be_started(run):
    missing = Server(MCPServerDefinition("s", "stdio", command="no-such-program"), Policy("programs"), on_loop)
    with pytest.raises(ServerError, match=r"not connected: .*cannot start 'no-such-program': No such file"):
        run(missing.discover())
    refused = Server(defined("rough.py"), Policy(), on_loop)
    with pytest.raises(ServerError, match="programs are not allowed; to allow it: DIVEBOOK_ALLOW=programs"):
        run(refused.discover())


# --- several, and their end ----------------------------------------------------------------------------------------


def test_the_same_server_twice_is_one_and_a_name_is_taken_once():
    servers = Servers(on_loop)
    servers.add(defined("rough.py"), Policy())
    servers.add(defined("rough.py"), Policy())
    assert list(servers) == ["s"]
    with pytest.raises(AlreadyRegisteredError, match="mcp server already registered: s"):
        servers.add(defined("good.py"), Policy())
    servers.add(defined("good.py"), Policy(), replace=True)
    assert servers["s"].definition.args[0].endswith("good.py")
    with pytest.raises(NotFoundError):
        servers["t"]


def test_many_calls_at_once_share_one_start(run, serve):
    server = serve("rough.py")

    async def calls():
        return await asyncio.gather(*(server.call("go", {}) for _ in range(8)))

    assert len({outcome.content for outcome in run(calls())}) == 1


def test_an_idle_server_is_stopped_and_started_again_when_it_is_needed(run, serve):
    server = serve("rough.py", idle=0.0)
    first = said(run, server, "go")
    run(asyncio.wait_for(server._connection._ending.wait(), 10))
    assert not server.is_running
    assert said(run, server, "go") != first


def test_a_closed_server_is_not_started_again(run, serve):
    server = serve("rough.py")
    run(server.close())
    with pytest.raises(ServerError, match="not connected: its environment is closed"):
        run(server.discover())


def test_what_the_log_holds_of_a_list_is_json(run, good):
    found = run(good.discover())
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


@pytest.mark.parametrize(
    ("dialect", "written", "allowed"),
    [
        ("divebook", {}, True),
        ("divebook", {"AllowedTools": []}, False),
        ("divebook", {"AllowedTools": ["go"]}, True),
        ("dive", {}, True),
        ("dive", {"AllowedTools": []}, True),
        ("dive", {"AllowedTools": ["go"]}, True),
    ],
)
def test_an_empty_list_of_allowed_tools_allows_none_outside_the_legacy_dialect(dialect, written, allowed):
    given = {"MCPServers": [{"Name": "s", "Type": "stdio", "Command": "x", "ToolConfiguration": written}]}
    (server,) = definitions_from(given, dialect=dialect).mcp_servers
    assert server.allows("go") is allowed
    assert not server.allows("other") or written.get("AllowedTools") != ["go"]
    # As it is stored and read again.
    assert type(server).from_dict(server.to_dict()) == server
