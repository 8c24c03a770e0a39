"""OAuth of MCP servers: tokens come from a store, are used, and show nowhere; a browser is never opened."""

import asyncio
import json
import stat

import pytest
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from divebook.errors import DefinitionError, ServerError
from divebook.text.redaction import shared
from divebook.tools.mcp.credentials import FileTokens
from divebook.workflow.servers import OAuthDefinition, TokenStoreDefinition
from tests.tools.test_mcp_http import client, plain  # noqa: F401 - fixtures

TOKEN = {"access_token": "at-0123456789", "token_type": "Bearer", "refresh_token": "rt-0123456789"}


def stored(path):
    return OAuthDefinition(client_id="c", token_store=TokenStoreDefinition("file", str(path)))


def test_a_token_of_a_file_is_sent_and_shows_nowhere(run, plain, client, tmp_path):  # noqa: F811
    (tmp_path / "tokens.json").write_text(json.dumps({"tokens": TOKEN}))
    server = client(("addresses", "files"), oauth=stored(tmp_path / "tokens.json"))
    assert run(server.call("go", {})).content == "good"
    sent = {name.lower(): value for name, value in plain.heard[-1].items()}
    assert sent["authorization"] == "Bearer at-0123456789"
    assert "at-0123456789" not in shared().text("it said at-0123456789")
    assert "rt-0123456789" not in shared().text("and rt-0123456789")


def test_a_token_file_is_its_owners_and_comes_back(tmp_path):
    path = tmp_path / "deep" / "tokens.json"
    asked = OAuthClientInformationFull(client_id="c-1", redirect_uris=["http://localhost:8085/oauth/callback"])

    async def use():
        tokens = FileTokens(path)
        assert await tokens.get_tokens() is None
        assert await tokens.get_client_info() is None
        await tokens.set_tokens(OAuthToken(**TOKEN))
        await tokens.set_client_info(asked)
        again = FileTokens(path)
        assert (await again.get_tokens()).access_token == TOKEN["access_token"]
        assert (await again.get_client_info()).client_id == "c-1"

    asyncio.run(use())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["tokens.json"]


def test_without_a_token_it_is_said_what_to_do(run, plain, client):  # noqa: F811
    plain.way = "401"
    with pytest.raises(ServerError, match="a new one needs a browser, which is not opened here"):
        run(client(oauth=OAuthDefinition(client_id="c")).discover())


def test_a_token_file_that_is_none_is_named(run, client, tmp_path):  # noqa: F811
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(ServerError, match=r"the tokens in .*tokens.json cannot be read"):
        run(client(("addresses", "files"), oauth=stored(tmp_path / "tokens.json")).discover())
    with pytest.raises(ServerError, match="outside the definition's folder"):
        run(client(("addresses",), oauth=stored(tmp_path / "tokens.json")).discover())


def test_what_would_weaken_it_is_refused():
    for wrong, message in [
        (lambda: OAuthDefinition(pkce_enabled=False), "PKCEEnabled: false is refused"),
        (lambda: TokenStoreDefinition("keychain"), "tokens cannot be kept in a keychain"),
        (lambda: TokenStoreDefinition("file"), "needs a Path"),
    ]:
        with pytest.raises(DefinitionError, match=message):
            wrong()
