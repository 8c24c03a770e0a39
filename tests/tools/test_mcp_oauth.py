"""OAuth of MCP servers: tokens come from a file or by a person's leave in the browser, and show nowhere."""

import asyncio
import json
import socket
import stat
import webbrowser
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import anyio
import pytest
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from divebook.config import load
from divebook.definitions.servers import MCPServerDefinition, OAuthDefinition, TokenStoreDefinition
from divebook.documents import Policy
from divebook.errors import DefinitionError, ServerError, SetupError
from divebook.runtime.loop import ENGINE
from divebook.stores.codec import FernetCodec, Sealing
from divebook.text.redaction import shared
from divebook.tools.mcp.oauth import Consent, FileTokens
from tests.runtime.worlds import environment
from tests.tools.authority import Authority
from tests.tools.test_mcp_http import client, plain  # noqa: F401 - fixtures
from tests.websites import serving

ALLOWED = Policy("addresses", "files")
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
    back = "http://localhost:8085/oauth/callback"
    asked = OAuthClientInformationFull(client_id="c-1", client_secret="cs-0123456789", redirect_uris=[back])

    async def use():
        tokens = FileTokens(path, Sealing())
        assert await tokens.get_tokens() is None
        assert await tokens.get_client_info() is None
        await tokens.set_tokens(OAuthToken(**TOKEN))
        await tokens.set_client_info(asked)
        again = FileTokens(path, Sealing())
        assert (await again.get_tokens()).access_token == TOKEN["access_token"]
        assert (await again.get_client_info()).client_id == "c-1"

    asyncio.run(use())
    assert "cs-0123456789" not in shared().text("it said cs-0123456789")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["tokens.json"]


def test_a_token_file_is_sealed_as_the_store_is_and_a_plain_one_can_be_read(run, tmp_path):
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"tokens": TOKEN}))
    sealed = FileTokens(path, Sealing(FernetCodec(FernetCodec.new_key())))
    assert run(sealed.get_tokens()).access_token == TOKEN["access_token"]
    run(sealed.set_tokens(OAuthToken(**TOKEN)))
    assert b"0123456789" not in path.read_bytes()
    assert run(sealed.get_tokens()).access_token == TOKEN["access_token"]
    with pytest.raises(SetupError, match="encrypted, but no key is set"):
        run(FileTokens(path, Sealing()).get_tokens())


# --- a person's leave ----------------------------------------------------------------------------------------------


@pytest.fixture
def authority():
    with serving(Authority) as server:
        server.way, server.heard, server.asked, server.consents = "good", [], [], []
        server.refuses = server.authority = ""
        yield server


def browse(address):
    """Do what a browser does whose person says yes: go where it is sent."""
    with urlopen(address) as page:
        return "You can close this page" in page.read().decode()


@pytest.fixture
def redirect(monkeypatch):
    """An address on a free port, with a browser that goes there."""
    monkeypatch.setattr(webbrowser, "open", browse)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/back"


def guarded(authority, environment, redirect, path=None, policy=ALLOWED):
    """Add the server that the authority guards to an environment, and return it."""
    store = None if path is None else TokenStoreDefinition("file", str(path))
    oauth = OAuthDefinition(redirect_uri=redirect, token_store=store)
    url = f"http://127.0.0.1:{authority.server_port}/mcp"
    environment.internals.registry.servers.add(MCPServerDefinition("far", "http", url=url, oauth=oauth), policy)
    return environment.internals.registry.servers["far"]


def called(server):
    """Return what a call of a server comes to, on the loop of the environment's engine."""
    return ENGINE.call(lambda: ENGINE.promise(server.call("go", {}))).result()


def test_a_person_gives_leave_once_and_the_token_is_kept_sealed(authority, redirect, tmp_path, logs):
    codec, path = FernetCodec(FernetCodec.new_key()), tmp_path / "tokens.json"
    for _ in range(2):  # the second environment has the token
        with environment(store=str(tmp_path / "e.db"), codec=codec) as here:
            server = guarded(authority, here, redirect, path)
            assert called(server).content == "good"
    (asked,) = authority.consents
    assert (asked["redirect_uri"], asked["code_challenge_method"], asked["client_id"]) == (redirect, "S256", "c-1")
    assert b"9876543210" not in path.read_bytes()
    assert [text.partition(";")[0] for text in logs()] == ["MCP server far asks for your permission"]
    for secret in ("at-9876543210", "rt-9876543210", "code-0123456789"):
        assert secret not in shared().text(f"it said {secret}")


def test_leave_that_is_not_given_fails_the_call(authority, redirect):
    authority.refuses = "access_denied"
    with (
        environment() as here,
        pytest.raises(ServerError, match=("permission was not given in the browser: access_denied")),
    ):
        called(guarded(authority, here, redirect))


def test_only_what_was_asked_for_is_taken_from_a_browser(authority, redirect, monkeypatch, caplog):
    refused, back = [], urlsplit(redirect)

    def forge(address):
        with socket.create_connection((back.hostname, back.port)) as stranger:
            stranger.sendall(b"GET http://[ HTTP/1.1\r\n\r\n")
            assert stranger.recv(100) == b""
        for forged in (f"{redirect}?code=theirs&state=theirs", f"{redirect}/other?code=theirs", redirect):
            with pytest.raises(HTTPError) as error:
                browse(forged)
            refused.append(error.value.code)
            error.value.close()
        return browse(address)

    monkeypatch.setattr(webbrowser, "open", forge)
    with environment() as here:
        assert called(guarded(authority, here, redirect)).content == "good"
    assert refused == [404, 404, 404]
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize("elsewhere", ["https://example.org/back", "http://localhost/back", "http://10.0.0.1:80/back"])
def test_a_browser_comes_back_to_this_machine_only(authority, redirect, elsewhere):
    with (
        environment() as here,
        pytest.raises(ServerError, match="to get a new token, the browser must return to this process"),
    ):
        called(guarded(authority, here, elsewhere))
    assert authority.consents == []


def test_a_page_that_is_not_safe_is_not_opened(redirect):
    async def ask():
        await Consent("far", redirect).ask("file:///etc/passwd?state=1")

    with pytest.raises(OAuthFlowError, match="does not use https"):
        asyncio.run(ask())


def test_a_server_sends_nobody_to_hosts_that_may_not_be_reached(authority, redirect):
    class OneHost(Policy):
        def host(self, name):
            if name != "127.0.0.1":
                raise SetupError(f"{name} may not be reached")

    authority.authority = f"http://localhost:{authority.server_port}"
    with environment() as here, pytest.raises(ServerError, match="localhost may not be reached"):
        called(guarded(authority, here, redirect, policy=OneHost("addresses")))
    assert authority.consents == []


def test_a_port_that_is_taken_is_named(authority, redirect):
    taken = f"http://127.0.0.1:{authority.server_port}/back"
    with (
        environment() as here,
        pytest.raises(ServerError, match=f"port {authority.server_port} of the RedirectURI cannot be used"),
    ):
        called(guarded(authority, here, taken))


def test_a_token_file_that_is_none_is_named(run, client, tmp_path):  # noqa: F811
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(ServerError, match=r"the tokens in .*tokens.json cannot be read"):
        run(client(("addresses", "files"), oauth=stored(tmp_path / "tokens.json")).discover())
    with pytest.raises(ServerError, match="outside the definition's folder"):
        run(client(("addresses",), oauth=stored(tmp_path / "tokens.json")).discover())


def test_what_would_weaken_it_is_refused():
    for wrong, message in [
        (lambda: OAuthDefinition(pkce_enabled=False), "PKCEEnabled: false is refused"),
        (lambda: TokenStoreDefinition("keychain"), "tokens cannot be stored in a keychain"),
        (lambda: TokenStoreDefinition("file"), "needs the key Path"),
    ]:
        with pytest.raises(DefinitionError, match=message):
            wrong()


def test_relative_paths_of_a_server_start_in_the_folder_of_its_definition(tmp_path, monkeypatch):
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (folder / "secret.txt").write_text("cs-0123456789")
    (folder / "flows.yaml").write_text(
        "MCPServers: [{Name: far, Type: http, URL: 'https://example.org/mcp', OAuth: {ClientID: c, "
        "ClientSecret: 'file://secret.txt', TokenStore: {Type: file, Path: tokens.json}}}]"
    )
    (folder / "tokens.json").write_text(json.dumps({"tokens": TOKEN}))
    with environment() as here:
        here.define(load(folder / "flows.yaml"))
        server = here.internals.registry.servers["far"]
        storage = server._credentials.context.storage
        assert anyio.run(storage.get_tokens).access_token == TOKEN["access_token"]
        assert anyio.run(storage.get_client_info).client_secret == "cs-0123456789"
    (text,) = [server.to_dict() for server in load(folder / "flows.yaml").mcp_servers]
    assert "folder" not in text
