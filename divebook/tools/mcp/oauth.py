"""A person's leave for a server that asks for OAuth: a page in the browser, which comes back to this machine.

What the page comes back with is taken from one address, on this machine only, and only if it carries the state that
went out; the SDK's `OAuthClientProvider` makes a token of it, with PKCE.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import webbrowser
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from divebook.documents.policy import Policy, resolved
from divebook.errors import SetupError, StoreError
from divebook.store.codec import Sealing
from divebook.text.redaction import logger, shared
from divebook.workflow.servers import FILE, MCPServerDefinition, OAuthDefinition, TokenStoreDefinition

PATIENCE: Final = 180.0
"""Seconds that a person has for the page."""
_HEADERS = 10.0
"""Seconds that a browser has for its request."""
_SHOWN = 200
"""Characters of what others have written that an error shows."""
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_SAID = {
    True: ("200 OK", "divebook has heard it. You may close this page."),
    False: ("404 Not Found", "Nobody has asked for this page."),
}
NOT_HERE: Final = (
    "a new token needs a browser, which comes back to {}: write a RedirectURI of this machine with a port, such as "
    "http://localhost:8085/oauth/callback, put a token into the file of its TokenStore, or write AuthorizationToken"
)
_log = logger(__name__)


class Consent:
    """Asks a person in the browser; its methods are the two handlers that the SDK takes.

    Parameters
    ----------
    server
        Who asks.
    redirect
        The address that the browser comes back to.
    """

    def __init__(self, server: str, redirect: str) -> None:
        self._server, self._redirect = server, urlsplit(redirect)
        self._given: dict[str, str] = {}

    async def ask(self, address: str) -> None:
        """Open the page on which a person is asked, and wait until the browser comes back.

        Raises
        ------
        OAuthFlowError
            It cannot come back to here, or does not in time.
        """
        page = urlsplit(address)
        back = self._redirect
        if page.scheme != "https" and not (page.scheme == "http" and page.hostname in _HERE):
            raise OAuthFlowError(f"the page on which it asks for leave is not https: {address[:_SHOWN]}")
        if back.scheme != "http" or back.hostname not in _HERE or back.port is None:
            raise OAuthFlowError(NOT_HERE.format(back.geturl()))
        came: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        heard = partial(self._heard, parse_qs(page.query)["state"][-1], came)
        try:
            listening = await asyncio.start_server(heard, back.hostname, back.port)
        except OSError as error:
            raise OAuthFlowError(
                f"port {back.port} cannot be listened on ({error}): write a RedirectURI with a free port, which the "
                "server knows"
            ) from error
        async with listening:
            _log.warning("MCP server %s asks for your leave; if no browser opens, open %s", self._server, address)
            await anyio.to_thread.run_sync(webbrowser.open, address, abandon_on_cancel=True)
            self._given = await _in_time(came)

    async def answer(self) -> AuthorizationCodeResult:
        """Return what the browser came back with; raises `OAuthFlowError` if that is a refusal."""
        given = self._given
        if "code" not in given:
            raise OAuthFlowError(f"no leave was given in the browser: {given.get('error', 'it says nothing')[:_SHOWN]}")
        shared().know(given["code"])
        return AuthorizationCodeResult(code=given["code"], state=given["state"], iss=given.get("iss"))

    async def _heard(
        self,
        state: str,
        came: asyncio.Future[dict[str, str]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answer one request; anybody on this machine may send some."""
        try:
            async with asyncio.timeout(_HEADERS):
                given = self._taken((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"), state)
                if given is not None and not came.done():
                    came.set_result(given)
                status, text = _SAID[given is not None]
                writer.write(
                    f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n"
                    f"connection: close\r\n\r\n{text}".encode()
                )
                await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _log.debug("what came was no request of a browser: %s", error)
        finally:
            writer.close()

    def _taken(self, head: str, state: str) -> dict[str, str] | None:
        """Return what a request brings, if it is the one that is waited for."""
        method, _, rest = head.partition(" ")
        asked = urlsplit(rest.partition(" ")[0])
        given = {name: values[0] for name, values in parse_qs(asked.query).items()}
        fits = method == "GET" and asked.path == self._redirect.path and given.get("state") == state
        return given if fits else None


async def _in_time(came: asyncio.Future[dict[str, str]]) -> dict[str, str]:
    try:
        async with asyncio.timeout(PATIENCE):
            return await came
    except TimeoutError as error:
        raise OAuthFlowError(f"nobody gave leave in the browser within {PATIENCE:g} seconds") from error


# OAuth of MCP servers: tokens in memory or in a file of their owner, through the SDK's own storage interface.
#
# Tokens are used and renewed here; for a first one a person is asked in the browser (`divebook.tools.mcp.oauth`).


REDIRECT = "http://localhost:8085/oauth/callback"
_TOKENS = "tokens"
_CLIENT = "client"


class Tokens:
    """Tokens and the client they were given to, as long as the environment is open."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client
        self._kept: dict[str, Any] = {}

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, if there are any."""
        found = self._read().get(_TOKENS)
        if found is None:
            return None
        shared().know_all(found)
        return OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens."""
        found = tokens.model_dump(mode="json", exclude_none=True)
        shared().know_all(found)
        self._write({**self._read(), _TOKENS: found})

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client that the definition names, else that which the server has registered."""
        found = self._read().get(_CLIENT)
        shared().know_all(found)
        return self._client or (None if found is None else OAuthClientInformationFull.model_validate(found))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep what the server has registered."""
        found = client_info.model_dump(mode="json", exclude_none=True)
        shared().know_all(found)
        self._write({**self._read(), _CLIENT: found})

    def _read(self) -> dict[str, Any]:
        return self._kept

    def _write(self, kept: dict[str, Any]) -> None:
        self._kept = kept


class FileTokens(Tokens):
    """Tokens in a file that only its owner can read; it is replaced in one step.

    Parameters
    ----------
    sealing
        That of the store: where this encrypts, so is the file. One that was not encrypted before can be read.
    """

    def __init__(self, path: Path, sealing: Sealing, client: OAuthClientInformationFull | None = None) -> None:
        super().__init__(client)
        self._path = path
        self._sealing = sealing

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._sealing.open(self._path.read_bytes()))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, StoreError) as error:
            raise SetupError(
                f"the tokens in {self._path} cannot be read ({error}): repair or remove that file"
            ) from error
        return found if isinstance(found, dict) else {}

    def _write(self, kept: dict[str, Any]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")  # 0600
        with os.fdopen(handle, "wb") as file:
            file.write(self._sealing.seal(json.dumps(kept).encode()))
        Path(draft).replace(self._path)


def provider_of(definition: MCPServerDefinition, policy: Policy, sealing: Sealing) -> OAuthClientProvider | None:
    """Return what adds a server's tokens to requests, and renews them; None if its definition asks for none."""
    asked = definition.oauth
    if asked is None or definition.url is None:
        return None
    redirect = AnyUrl(asked.redirect_uri or REDIRECT)
    metadata = OAuthClientMetadata(
        client_name="divebook", redirect_uris=[redirect], scope=" ".join(asked.scopes) or None
    )

    where = asked.token_store or TokenStoreDefinition()
    client = _client(asked, redirect, policy)
    storage = Tokens(client)
    if where.type == FILE and where.path is not None:
        storage = FileTokens(policy.file(Path(where.path).expanduser(), Path()), sealing, client)
    consent = Consent(definition.name, str(redirect))
    return OAuthClientProvider(definition.url, metadata, storage, consent.ask, consent.answer)


def _client(asked: OAuthDefinition, redirect: AnyUrl, policy: Policy) -> OAuthClientInformationFull | None:
    if not asked.client_id:
        return None
    secret = resolved(asked.client_secret, policy)
    if secret:
        shared().know(secret)
    return OAuthClientInformationFull(
        client_id=resolved(asked.client_id, policy), client_secret=secret, redirect_uris=[redirect]
    )
