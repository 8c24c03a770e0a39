"""HTTP proxy for a container that has no network. It runs outside the container and connects to allowed hosts only, and
never to private addresses.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from divebook.documents.addresses import ip_addresses, is_public
from divebook.errors import WorkspaceError


@dataclass(frozen=True)
class EgressAnswer:
    """Reply of the proxy to a request for one host. `refused` is the reason for a refusal; None if the connection was
    made.
    """

    host: str
    port: int
    refused: str | None = None


Resolve = Callable[[str], Awaitable[list[str]]]
_HEAD = 8192
"""Maximum size in bytes of the head of a request."""
_PATIENCE = 15.0
"""Seconds within which the proxy must reply to a request."""


async def resolve(host: str) -> list[str]:
    """Resolve a host name to its IP addresses, with the resolver of this machine."""
    return await asyncio.to_thread(ip_addresses, host)


class Egress:
    """HTTP proxy for one workspace. It connects only to hosts on a list, and only for clients that know its token.

    Parameters
    ----------
    allow
        Names of hosts, or ``*.name`` for all subdomains of one; each optionally with ``:port``, by default 443.
    on_answer
        Called with each `EgressAnswer` before it is sent.
    resolve, public
        Functions that return the addresses of a host name, and whether an address is public; replaced in tests.

    Raises
    ------
    WorkspaceError
        An entry of the list is not the name of a host.
    """

    def __init__(
        self,
        allow: Iterable[str],
        *,
        on_answer: Callable[[EgressAnswer], None] = lambda _: None,
        resolve: Resolve = resolve,
        public: Callable[[str], bool] = is_public,
    ) -> None:
        self._allow = [_entry(text) for text in allow]
        self._on_answer = on_answer
        self._resolve = resolve
        self._public = public
        self.token = secrets.token_urlsafe(16)
        """Password of the user ``divebook``, which each request to the proxy must contain."""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def listen(self, path: str) -> None:
        """Start the proxy on a Unix socket at `path`, in a folder that the container mounts.

        Only the current user can open the socket.
        """
        # The mode is set before the first connection can be accepted.
        self._server = await asyncio.start_unix_server(self._serve, path, limit=_HEAD, start_serving=False)
        os.chmod(path, 0o600)
        await self._server.start_serving()

    async def close(self) -> None:
        """Stop the proxy and close its connections. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def refusal(self, host: str, port: int) -> str | None:
        """Return the reason why the list of allowed hosts does not allow a host and port; None if it allows them. The
        addresses of the host are checked later.
        """
        if _is_address(host):
            return "IP addresses are not allowed, use a host name"
        name = host.lower().rstrip(".")
        for allowed, at in self._allow:
            # "*.pypi.org" allows "files.pypi.org", but neither "pypi.org" nor "notpypi.org".
            if port == at and (name == allowed or (allowed.startswith("*.") and name.endswith(allowed[1:]))):
                return None
        return "not on the list"

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._handle(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            status, answer, upstream = await self._connect(reader)
            if upstream is not None:
                ends.append(upstream[1])
            self._on_answer(answer)
            if upstream is None:
                writer.write(
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
                )
                await writer.drain()
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))
        except OSError:
            pass  # one side has closed: the other one sees the end of its connection
        finally:
            for end in ends:
                end.close()

    async def _connect(self, reader: asyncio.StreamReader) -> tuple[int, EgressAnswer, _Streams | None]:
        """Read a request of a client and check it. Connect to the requested host if the request is allowed.

        Return the HTTP status, the reply, and the connection to the host; None in place of the connection if the
        request is refused. The checks, in order: token, method CONNECT, name on the list, all addresses public.
        """
        host = ""
        port = 0
        try:
            async with asyncio.timeout(_PATIENCE):
                first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                fields = {
                    key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in rest)
                }
                expected = "Basic " + base64.b64encode(f"divebook:{self.token}".encode()).decode()
                # Compared in constant time: commands inside could otherwise measure how many characters are right.
                if not hmac.compare_digest(fields.get("proxy-authorization", "").encode(), expected.encode()):
                    return 407, EgressAnswer(host, port, "no token"), None
                words = first.split(" ")
                if len(words) != 3 or words[0] != "CONNECT":
                    return 403, EgressAnswer(host, port, "not a CONNECT request"), None
                host, _, number = words[1].rpartition(":")
                port = int(number)
                refused = self.refusal(host, port)
                if refused:
                    return 403, EgressAnswer(host, port, refused), None
                # A public name may lead to a private address, which would open the network of this machine.
                addresses = await self._resolve(host)
                if not addresses or not all(self._public(address) for address in addresses):
                    return 403, EgressAnswer(host, port, "resolves to an address that is not public"), None
                # To the checked address: a second look-up could return another one (test_a_name_is_looked_up_once).
                return 200, EgressAnswer(host, port), await asyncio.open_connection(addresses[0], port)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            return 502, EgressAnswer(host, port, f"failed: {type(error).__name__}: {error}"), None


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_REASONS = {403: "Forbidden", 407: "Proxy Authentication Required", 502: "Bad Gateway"}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _entry(text: str) -> tuple[str, int]:
    host, _, number = text.partition(":")
    name = host.lower().rstrip(".")
    port = number or "443"
    if not name or "*" in name.removeprefix("*.") or _is_address(name) or not (port.isascii() and port.isdigit()):
        raise WorkspaceError(
            f"invalid entry '{text}' in the list of allowed hosts; write a host name such as 'pypi.org', '*.pypi.org' "
            "or 'pypi.org:80'"
        )
    return name, int(port)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    # Only this direction has ended. The other side may still send.
    if writer.can_write_eof():
        writer.write_eof()
