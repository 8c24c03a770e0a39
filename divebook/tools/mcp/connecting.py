"""How a server is reached as its definition says: a program on pipes behind a guard, or an address over HTTP.

What stands in a definition for something else is looked up here, each time a connection is opened: ``$VAR`` in
arguments, variables and headers, as in the old system, and references (`divebook.documents.references`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import anyio.to_thread
import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from divebook.documents.policy import Policy
from divebook.documents.references import expanded, resolved
from divebook.errors import SetupError
from divebook.text.redaction import shared
from divebook.tools.mcp import guard
from divebook.tools.mcp.connection import HANDSHAKE, Opened, Told
from divebook.tools.mcp.reaching import addresses_of, checked_transport
from divebook.tools.mcp.variables import require_variables
from divebook.workflow.servers import MCPServerDefinition

T = TypeVar("T")

LARGEST = 16 * 1024 * 1024
"""Bytes of one message of a server."""


def opener(definition: MCPServerDefinition, policy: Policy, auth: httpx2.Auth | None) -> Opened:
    """Return what opens a transport to a server; raises `SetupError` if its definition does not say how, or may not."""
    require_variables(definition, policy)  # also of a server that is read as a document, which no start has checked

    def looked_up(text: str) -> Any:
        return resolved(expanded(text, policy), policy)

    if definition.type == "stdio":
        command = _required(definition.command, "command", definition)
        policy.program(command, "Command")
        return lambda told: _over_pipes(
            [command, *map(looked_up, definition.args)],
            _environ(definition, looked_up),
            told,
        )
    if definition.type == "http":
        url = _required(definition.url, "url", definition)
        addresses_of(policy, httpx2.URL(url).host)
        return lambda told: _over_http(
            url,
            told,
            headers=_headers(definition, looked_up),
            auth=auth,
            policy=policy,
            limit=definition.timeout,
        )
    raise SetupError(f"unsupported mcp server type: {definition.type}; write Type: stdio or Type: http")


def _required(value: str | None, key: str, definition: MCPServerDefinition) -> str:
    if not value:
        raise SetupError(f"{key} is required for {definition.type} mcp server: add it to {definition.name}")
    return value


def _environ(definition: MCPServerDefinition, looked_up: Callable[[str], str]) -> dict[str, str]:
    environ = {name: looked_up(value) for name, value in definition.env.items()}
    shared().know_all(environ)
    return environ


def _headers(definition: MCPServerDefinition, looked_up: Callable[[str], str]) -> dict[str, str]:
    headers = {name: looked_up(value) for name, value in definition.headers.items()}
    if definition.authorization_token:
        token = looked_up(definition.authorization_token)
        shared().know(token)
        headers["Authorization"] = f"Bearer {token.removeprefix('Bearer ')}"
    shared().know_all(headers)
    return headers


@asynccontextmanager
async def _over_pipes(command: list[str], environ: Mapping[str, str], told: Told) -> AsyncIterator[tuple[Any, Any]]:
    if sys.platform != "win32":  # there the SDK keeps a server and its children in a job object
        command = [sys.executable, "-I", "-S", guard.__file__, str(LARGEST), *command]
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(environ))
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        try:
            async with stdio_client(parameters, errlog=errors) as streams:
                yield streams
        finally:
            errors.seek(0)
            told.text = shared().text(" ".join(errors.read().split()))


@asynccontextmanager
async def _over_http(
    url: str,
    told: Told,
    *,
    headers: Mapping[str, str],
    auth: httpx2.Auth | None,
    policy: Policy,
    limit: float,
) -> AsyncIterator[tuple[Any, Any]]:
    own = httpx2.URL(url).host

    async def admit(request: httpx2.Request) -> None:  # OAuth goes on at addresses that the server names
        if request.url.host != own:
            await anyio.to_thread.run_sync(addresses_of, policy, request.url.host)

    async def note(response: httpx2.Response) -> None:
        if response.request.method == "POST" and response.status_code != HTTPStatus.ACCEPTED:  # else of no call
            told.status = response.status_code if response.is_error else 0
            told.text = f"HTTP {told.status}{_ADVICE.get(told.status, '')}" if told.status else ""
        if "content-encoding" in response.headers:  # a small answer would become one that fills our memory
            response.stream = _Counted(response.stream, 0, "a compressed answer, which it was not asked for")
        elif not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _Counted(response.stream, LARGEST, f"an answer of more than {LARGEST} bytes")

    async with (
        httpx2.AsyncClient(
            headers={**headers, "Accept-Encoding": "identity"},
            auth=auth,
            timeout=httpx2.Timeout(HANDSHAKE, read=limit + HANDSHAKE),
            transport=checked_transport(policy),
            event_hooks={"request": [admit], "response": [note]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST) as streams,
    ):
        yield streams


_ADVICE = {
    401: ": check its AuthorizationToken, Headers or OAuth",
    403: ": check what its AuthorizationToken or OAuth Scopes allow",
    404: ": check its URL",
}


class _Counted(httpx2.AsyncByteStream):
    """An answer in one piece, of a bounded size; those in events the SDK bounds."""

    def __init__(self, stream: Any, most: int, more: str) -> None:
        self._stream, self._most, self._more = stream, most, more

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        async for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise httpx2.StreamError(f"the server sent {self._more}")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
