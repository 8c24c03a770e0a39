"""The server over HTTP: who may connect, and that a token is asked for where others can."""

import asyncio
import os
import re
import socket
import subprocess
import sys

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from typer.testing import CliRunner

from divebook.cli.main import app
from divebook.errors import SetupError
from divebook.serve import WorkflowServer
from divebook.serve.server import address_of, app_of, require_token
from tests.runtime.worlds import environment

TOKEN = "t-0123456789-0123456789"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_needs_no_token(host):
    require_token(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_other_machines_need_one(host):
    with pytest.raises(SetupError, match="anyone could run these workflows; pass a token"):
        require_token(host, None)
    with pytest.raises(SetupError, match="has only 5 characters"):
        require_token(host, "short")
    require_token(host, TOKEN)


def test_an_address_has_a_host_and_a_port():
    assert address_of("[::1]:80") == ("::1", 80)
    for wrong in ("8000", ":80", "host:", "host:99999", "host:http"):
        with pytest.raises(SetupError, match="is not an address; write HOST:PORT"):
            address_of(wrong)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "0:0:0:0:0:0:0:1"])
def test_a_page_of_a_browser_on_this_machine_gets_nothing_whatever_name_leads_it_here(host):
    async def statuses():
        served = app_of(WorkflowServer(here), host)
        own = f"[{host}]:80" if ":" in host else f"{host}:80"
        given = [{"host": own}, {"host": "evil.example:80"}, {"host": own, "origin": "http://evil.example"}]
        transport = httpx2.ASGITransport(served)
        async with served.router.lifespan_context(served), httpx2.AsyncClient(transport=transport) as client:
            return [(await client.post("http://x/mcp", json={}, headers=headers)).status_code for headers in given]

    with environment() as here:
        assert asyncio.run(statuses()) == [400, 421, 403]


def test_clients_with_the_token_call_workflows_and_others_are_refused(tmp_path):
    definitions = tmp_path / "flows.py"
    definitions.write_text(
        "from divebook.definitions import workflow\n"
        "@workflow\nasync def greet(ctx, who: str):\n    return f'{who}, {await ctx.ask(\"How are you?\")}'\n"
    )
    command = [sys.executable, "-m", "divebook", "mcp", str(definitions), "--store", str(tmp_path / "e.db")]
    command += ["--http", "127.0.0.1:0", "--token", "env://MCP_TOKEN"]
    environ = {**os.environ, "MCP_TOKEN": TOKEN}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as program:
        address = next(found[0] for line in program.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))

        async def connected(token):
            headers = {"authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(headers=headers) as http:
                transport = streamable_http_client(f"{address}/mcp", http_client=http)
                async with Client(transport) as client:
                    return await client.call_tool("greet", {"who": "Ann"})

        assert asyncio.run(connected(TOKEN)).structured_content["status"] == "waiting"
        assert httpx2.post(f"{address}/mcp", json={}).status_code == 401
        assert httpx2.post(f"{address}/mcp", json={}, headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
        program.terminate()
        program.stderr.read()


def test_an_address_that_cannot_be_served_is_refused_in_words(tmp_path):
    definitions = tmp_path / "flows.py"
    definitions.write_text("from divebook.definitions import workflow\n@workflow\nasync def one(ctx): ...\n")
    told = ["mcp", str(definitions), "--store", str(tmp_path / "e.db"), "--token", TOKEN, "--http"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = CliRunner().invoke(app, [*told, address])
    elsewhere = CliRunner().invoke(app, [*told, "192.0.2.1:8000"])
    assert [result.exit_code for result in (refused, elsewhere)] == [2, 2]
    assert (
        f"the server cannot listen on {address}: another program uses this address; pass an address" in refused.stderr
    )
    assert "the server cannot listen on 192.0.2.1:8000: " in elsewhere.stderr


def test_a_token_that_no_client_would_be_asked_for_is_refused():
    refused = CliRunner().invoke(app, ["mcp", "flows.py", "--token", TOKEN])
    assert (refused.exit_code, "--token applies only to HTTP clients; add --http HOST:PORT" in refused.output) == (
        2,
        True,
    )
