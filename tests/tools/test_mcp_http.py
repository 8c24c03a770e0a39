"""MCP servers over HTTP, on loopback: headers and tokens, what refuses, and what goes away."""

import gzip
import json
import re
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from divebook.definitions.servers import MCPServerDefinition
from divebook.documents import Policy
from divebook.errors import OutcomeUnknownError, ServerError
from divebook.text.redaction import shared
from divebook.tools.mcp import connection
from divebook.tools.mcp.servers import Server
from tests.tools.conftest import SERVERS, on_loop
from tests.websites import serving


class Plain(BaseHTTPRequestHandler):
    """Speaks MCP of 2025 in single answers, as its server's `way` says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.heard.append(dict(self.headers))
        self.server.asked.append(message["method"])
        way = self.server.way
        if message["method"] == "tools/call" and way == "forgets":
            self.server.way = "good"
            return self.answer(404, b"")
        if way.isdigit():
            return self.answer(int(way), b"")
        if "id" not in message:
            return self.answer(202, b"")
        if message["method"] == "tools/call" and way == "cut":
            self.close_connection = True
            return None
        if message["method"] == "tools/call" and way == "endless":
            return self.endless()
        if message["method"] == "tools/call" and way == "floods":
            return self.floods()
        if message["method"] == "tools/call" and way == "compressed":
            return self.answer(200, gzip.compress(json.dumps(self.result(message)).encode()), "gzip")
        if message["method"] == "tools/call" and way == "broken":
            return self.answer(502, b"")
        return self.answer(200, json.dumps(self.result(message)).encode())

    def result(self, message):
        match message["method"]:
            case "initialize":
                found = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "plain", "version": "1"},
                }
            case "tools/list":
                found = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                found = {"content": [{"type": "text", "text": self.server.way}]}
            case _:
                error = {"code": -32601, "message": "Method not found"}
                return {"jsonrpc": "2.0", "id": message["id"], "error": error}
        return {"jsonrpc": "2.0", "id": message["id"], "result": found}

    def answer(self, status, body, encoding=None):
        self.send_response(status)
        if encoding:
            self.send_header("content-encoding", encoding)
        self.send_header("content-type", "application/json")
        self.send_header("mcp-session-id", "s-1")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def endless(self):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(10**9))
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 65536)
        except OSError:
            self.close_connection = True

    def floods(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
        try:
            while True:
                self.wfile.write(f"data: {json.dumps(told)}\n\n".encode())
        except OSError:
            self.close_connection = True

    def do_GET(self):
        self.answer(405 if self.path == "/mcp" else 404, b"")

    def do_DELETE(self):
        if self.server.way == "floods":
            self.server.has_gone.wait()  # it does not let go
        self.do_GET()


@pytest.fixture
def plain():
    """Serve in a thread; what it returns has a `way` and what it `heard`."""
    with serving(Plain) as server:
        server.way, server.heard, server.asked, server.has_gone = "good", [], [], threading.Event()
        yield server
        server.has_gone.set()


@pytest.fixture
def client(run, plain):
    made = []

    def client(policy=("addresses",), **more):
        url = f"http://127.0.0.1:{plain.server_port}/mcp"
        made.append(Server(MCPServerDefinition("far", "http", url=url, **more), Policy(*policy), on_loop))
        return made[-1]

    yield client
    for server in made:
        run(server.close())


def test_headers_and_tokens_reach_the_server_and_show_nowhere(run, plain, client, monkeypatch):
    monkeypatch.setenv("FAR_TOKEN", "t-0123456789")
    monkeypatch.setenv("TEAM", "blue")
    named = {"authorization_token": "env://FAR_TOKEN", "headers": {"X-Team": "$TEAM", "X-Key": "env://FAR_TOKEN"}}
    server = client(("addresses", "environment"), **named)
    assert [tool.name for tool in run(server.discover()).tools] == ["go"]
    for heard in plain.heard:
        given = {name.lower(): value for name, value in heard.items()}
        assert (given["authorization"], given["x-team"], given["x-key"]) == (
            "Bearer t-0123456789",
            "blue",
            "t-0123456789",
        )
    assert "t-0123456789" not in repr(server.definition)


class ThisMachine(Policy):
    """Allows one loopback address as if it were public."""

    def address(self, address, name):
        if address != "127.0.0.1":
            super().address(address, name)


@pytest.fixture
def named(run, plain, monkeypatch):
    """Return what makes a server of a definition that may name public hosts only, and a list of their addresses."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    answers, look_up, made = [], socket.getaddrinfo, []

    def found(host, port, *given, **more):
        name = host.decode() if isinstance(host, bytes) else host
        place = answers.pop(0) if name == "there.example" and len(answers) > 1 else answers[0]
        return look_up(place if name == "there.example" else host, port, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)

    def make(policy, *addresses):
        answers[:] = addresses
        url = f"http://there.example:{plain.server_port}/mcp"
        made.append(Server(MCPServerDefinition("far", "http", url=url), policy, on_loop))
        return made[-1]

    yield make
    for server in made:
        run(server.close())


def test_a_name_that_leads_to_this_machine_the_second_time_is_not_connected_to(run, plain, named):
    with pytest.raises(ServerError, match=r"'there\.example' is an address of this machine"):
        run(named(Policy(), "93.184.216.34", "127.0.0.1").discover())
    assert plain.heard == []


def test_a_server_is_called_by_its_name_at_the_address_that_was_checked(run, plain, named):
    assert [tool.name for tool in run(named(ThisMachine(), "127.0.0.1").discover()).tools] == ["go"]
    assert {heard["Host"].partition(":")[0] for heard in plain.heard} == {"there.example"}


@pytest.mark.parametrize(
    ("way", "cause"),
    [
        ("401", "HTTP 401: check its AuthorizationToken, Headers or OAuth"),
        ("403", "HTTP 403: check what its AuthorizationToken or OAuth Scopes allow"),
        ("404", "HTTP 404: check its URL"),
        ("500", "HTTP 500"),
    ],
)
def test_a_server_that_refuses_says_with_what(run, plain, client, way, cause):
    plain.way = way
    with pytest.raises(ServerError) as failed:
        run(client().discover())
    assert str(failed.value).startswith("MCP list_tools failed for server far: not connected: initialization failed")
    assert f"({cause})" in str(failed.value)


def test_a_token_that_has_expired_fails_the_call_and_holds_once_it_is_renewed(run, plain, client):
    server = client()
    assert run(server.call("go", {})).content == "good"
    plain.way = "401"
    with pytest.raises(ServerError, match="MCP call_tool failed for server far: HTTP 401"):
        run(server.call("go", {}))
    plain.way = "good"
    assert run(server.call("go", {})).content == "good"


@pytest.mark.parametrize("way", ["cut", "broken"])
def test_a_connection_that_breaks_in_a_call_leaves_its_outcome_unknown(run, plain, client, way):
    plain.way = way
    server = client()
    with pytest.raises(OutcomeUnknownError, match="MCP call_tool failed for server far"):
        run(server.call("go", {}))
    plain.way = "good"
    assert run(server.call("go", {})).content == "good"  # on a new connection


def test_a_server_that_has_forgotten_the_session_gets_the_call_in_a_new_one(run, plain, client):
    server = client()
    assert run(server.call("go", {})).content == "good"
    plain.way, plain.asked[:] = "forgets", []
    assert run(server.call("go", {})).content == "good"
    assert [method for method in plain.asked if method in ("initialize", "tools/call")] == [
        "tools/call",
        "initialize",
        "tools/call",
    ]


def test_a_header_may_stand_in_a_file_which_is_read_when_it_is_sent(run, plain, client, tmp_path):
    (tmp_path / "token").write_text("f-0123456789\n")
    given = f"file://{tmp_path / 'token'}"
    server = client(("addresses", "files"), authorization_token=given, headers={"X-Key": given})
    assert run(server.call("go", {})).content == "good"
    sent = {name.lower(): value for name, value in plain.heard[-1].items()}
    assert (sent["authorization"], sent["x-key"]) == ("Bearer f-0123456789", "f-0123456789")
    assert "f-0123456789" not in shared().text("it said f-0123456789")
    refused = client(headers={"X-Key": given})
    with pytest.raises(ServerError, match=r"MCP call_tool failed for server far: not connected: .*files"):
        run(refused.call("go", {}))


def test_an_answer_without_end_is_refused(run, plain, client):
    plain.way = "endless"
    server = client()
    outcome = run(server.call("go", {}))
    assert outcome.is_error
    assert "the server sent an answer of more than 16777216 bytes" in outcome.content


def test_an_answer_that_is_compressed_is_refused(run, plain, client):
    plain.way = "compressed"
    outcome = run(client().call("go", {}))
    assert outcome.is_error
    assert "the server sent a compressed answer, which was not requested" in outcome.content
    sent = {name.lower(): value for name, value in plain.heard[-1].items()}
    assert sent["accept-encoding"] == "identity"


def test_a_server_that_floods_is_left_even_if_it_does_not_let_go(run, plain, client, monkeypatch):
    monkeypatch.setattr(connection, "CLOSE_TIMEOUT", 0.1)
    monkeypatch.setattr(connection, "MOST_NOTIFICATIONS", 50)
    plain.way = "floods"
    server = client()
    with pytest.raises(OutcomeUnknownError, match="it sent more than 50 notifications between two answers"):
        run(server.call("go", {}))
    plain.has_gone.set()
    plain.way = "good"
    assert run(server.call("go", {})).content == "good"  # on a new connection


def test_nobody_there_and_addresses_that_may_not_be_reached(run, client):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        definition = MCPServerDefinition("far", "http", url=f"http://127.0.0.1:{taken.getsockname()[1]}/mcp")
        with pytest.raises(ServerError, match=r"not connected: initialization failed: .*connect"):
            run(Server(definition, Policy("addresses"), on_loop).discover())
    with pytest.raises(ServerError, match="an address of this machine or of a private network"):
        run(client(policy=()).discover())


@pytest.mark.parametrize("kind", ["http", "pipe"])
def test_what_a_definition_lacks_is_said(run, kind):
    with pytest.raises(ServerError) as failed:
        run(Server(MCPServerDefinition("x", kind), Policy(), on_loop).discover())
    wanted = {"http": "url is required for http mcp server", "pipe": "unsupported mcp server type: pipe"}
    assert wanted[kind] in str(failed.value)


def test_a_server_made_with_the_sdk_answers_over_http(run):
    command = [sys.executable, str(SERVERS / "good.py"), "http", "0"]  # a port that is free, which it names
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        address = next(found[0] for line in program.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        server = Server(MCPServerDefinition("far", "http", url=f"{address}/mcp"), Policy("addresses"), on_loop)
        assert run(server.call("add", {"a": 1, "b": 2})).content == 3
        first = run(server.call("paint", {}))
        answers = {"colour": {"action": "accept", "content": {"colour": "red"}}}
        assert run(server.call("paint", {}, answers=answers, state=first.state)).content == "easel: red"
        run(server.close())
        program.kill()
