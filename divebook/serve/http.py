"""The server over HTTP: on this machine for whoever is on it, elsewhere for those who have its token."""

from __future__ import annotations

import asyncio
import errno
import hmac
import sys
from contextlib import redirect_stdout
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from divebook.environment import Environment
from divebook.errors import SetupError
from divebook.serve.server import WAIT, WorkflowServer
from divebook.text.redaction import shared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from starlette.applications import Starlette

_HERE: Final = ("127.0.0.1", "localhost", "[::1]")
_LEAST_TOKEN: Final = 16
"""Characters that cannot be guessed in a lifetime of tries."""


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of a text such as ``127.0.0.1:8000`` or ``[::1]:8000``; raises `SetupError`."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdigit() and int(port) < 2**16):
        raise SetupError(f"{text!r} is no address: write HOST:PORT, such as 127.0.0.1:8000")
    return host.strip("[]"), int(port)


def require_token(host: str, token: str | None) -> None:
    """Raise `SetupError` where anybody could run workflows, or a token could be guessed."""
    if token is not None and len(token) < _LEAST_TOKEN:
        raise SetupError(f"the token has {len(token)} characters: give one of at least {_LEAST_TOKEN}")
    if token is None and not _is_here(host):
        raise SetupError(
            f"{host} can be reached from other machines, where anybody could run these workflows: give a --token, "
            "such as env://DIVEBOOK_MCP_TOKEN, or serve 127.0.0.1"
        )


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def serve_http(environment: Environment, address: str, *, token: str | None = None, wait: float = WAIT) -> None:
    """Serve clients at ``http://ADDRESS/mcp`` until the process is asked to end.

    Parameters
    ----------
    token
        What clients have to send as their bearer token; needed where other machines can connect.

    Raises
    ------
    SetupError
        The address is none, lacks a token, or cannot be served.
    """
    import uvicorn

    host, port = address_of(address)
    require_token(host, token)
    await _require_free(host, port)
    served: Any = app_of(WorkflowServer(environment, wait=wait), host)
    if token is not None:
        shared().know(token)
        served = _Guarded(served, token)
    config = uvicorn.Config(served, host, port, ws="none", access_log=False, timeout_graceful_shutdown=1)
    with redirect_stdout(sys.stderr):
        await uvicorn.Server(config).serve()


async def _require_free(host: str, port: int) -> None:
    """Raise `SetupError` where an address cannot be listened on, of which uvicorn would end the process."""
    try:
        found = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        cause = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror
        raise SetupError(
            f"{host}:{port} cannot be served: {cause}: give --http an address of this machine with "
            "a free port, such as 127.0.0.1:0 for any"
        ) from error
    found.close()


def app_of(server: WorkflowServer, host: str) -> Starlette:
    """Return what is served; on this machine a page of a browser gets nothing, whatever name leads it here."""
    from mcp.server.transport_security import TransportSecuritySettings

    names = [*_HERE, f"[{host}]" if ":" in host else host]
    checked = TransportSecuritySettings(
        enable_dns_rebinding_protection=_is_here(host),
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )
    return server.protocol.streamable_http_app(transport_security=checked)


class _Guarded:
    """Lets requests through that carry a token."""

    def __init__(self, served: Any, token: str) -> None:
        self._served, self._wanted = served, f"Bearer {token}".encode()

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] != "lifespan" and not hmac.compare_digest(given, self._wanted):
            await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._served(scope, receive, send)
