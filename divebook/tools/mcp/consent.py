"""A person's leave for a server that asks for OAuth: a page in the browser, which comes back to this machine.

What the page comes back with is taken from one address, on this machine only, and only if it carries the state that
went out; the SDK's `OAuthClientProvider` makes a token of it, with PKCE.
"""

from __future__ import annotations

import asyncio
import webbrowser
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
from mcp.client.auth import AuthorizationCodeResult, OAuthFlowError

from divebook.text.logs import logger
from divebook.text.redaction import shared

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
        page, back = urlsplit(address), self._redirect
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
