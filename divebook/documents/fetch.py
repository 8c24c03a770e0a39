"""Download of web pages for content entries and the tool ``fetch``, with address checks and limits.

A name is resolved once. All its addresses are checked, and the connection goes to one of them, so that a later answer
of the name server has no effect. Each redirection is checked like the first address.

Written with `urllib`, although MCP servers are called with httpx2. A version with httpx2, run on the tests of this
module, has no limit for the total time: a server that sends one byte of a header now and then is never left
(test_a_server_that_never_comes_to_its_end_is_left). It accepts a header line of 70 kB and 200 header lines, and does
not count the missing bytes of a body that ends too early (test_a_server_that_lies_is_refused_in_words). With a
transport that connects to checked addresses, it does not use the proxies of the environment. Its import takes 0.24 s
instead of 0.07 s.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any, NamedTuple, Self
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from divebook.documents.policy import Policy, addresses_of
from divebook.errors import SetupError

MAX_BYTES = 500 * 1024
TEXTUAL = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")


class PageLimits(NamedTuple):
    """Limits of time and size for the download of one web page."""

    bytes: int = 10_000_000
    silence: float = 15.0
    """Maximum number of seconds without any data."""
    seconds: float = 60.0
    """Maximum number of seconds in total."""
    redirections: int = 5


LIMITS = PageLimits()


@dataclass(frozen=True, slots=True)
class Page:
    """Downloaded web page, with its media type and address."""

    media_type: str
    body: bytes
    charset: str = "utf-8"
    address: str = ""
    """Final address of the page, after redirections."""

    def text(self, url: str, most: int = MAX_BYTES) -> str:
        """Decode the content of the page as text; raises `SetupError` if it is not text, or has more than `most`
        bytes.
        """
        if not self.media_type.startswith(TEXTUAL) and not self.media_type.endswith(("+json", "+xml")):
            raise SetupError(
                f"content of {url} has the unsupported type {self.media_type}: use a text file, an image, a PDF, or a "
                "local file"
            )
        if len(self.body) > most:
            raise SetupError(f"content of {url} has more than {most} bytes: save the part that you need to a file")
        try:
            return self.body.decode(self.charset)
        except (UnicodeError, LookupError) as error:
            raise SetupError(f"content of {url} is not {self.charset} text: {error}") from error


def fetch(url: str, policy: Policy, limits: PageLimits = LIMITS) -> Page:
    """Fetch the page at `url`; raises `SetupError` if that fails or the policy does not allow it. Blocks the thread."""
    try:
        # The address is checked before any connection. `_Redirects` checks each redirection, `_connect` each IP
        # address.
        check_address(url, policy)
        request = Request(url, headers={"User-Agent": "divebook"})  # noqa: S310 - check_address lets only http through
        with (
            # The deadline is entered first and left last. If it closed the connections, the error that this caused is
            # replaced by its own error.
            _Deadline(url, limits.seconds) as deadline,
            _opener(policy, limits, deadline).open(request, timeout=limits.silence) as response,
        ):
            headers = response.headers
            body = _body(url, response, limits.bytes)
            return Page(headers.get_content_type(), body, headers.get_content_charset() or "utf-8", response.geturl())
    # `SetupError` is none of these, and passes unchanged. ValueError: an invalid port or header.
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise SetupError(f"failed to fetch {url}: {error}") from error


def check_address(url: str, policy: Policy) -> None:
    """Raise `SetupError` unless `url` is an http(s) address whose host the policy allows."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise SetupError(f"{url} is not a valid address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SetupError(f"content address must start with http:// or https:// and name a host: {url}")
    policy.host(parts.hostname)


def _body(url: str, response: Any, most: int) -> bytes:
    """Read the body of an HTTP response; raises `SetupError` if it has more than `most` bytes or ends too early."""
    parts = []
    count = 0
    # `read1` returns whatever has arrived, so that the limit of size is checked while a slow server is sending.
    while part := response.read1(65536):
        parts.append(part)
        count += len(part)
        if count > most:
            raise SetupError(f"content of {url} has more than {most} bytes: save the part that you need to a file")
    # `length` counts the announced bytes that are missing; None for a body in chunks.
    if response.length:  # the server has announced more
        raise SetupError(f"content of {url} ended {response.length} bytes too early: fetch it again")
    return b"".join(parts)


class _Deadline:
    """Time limit of one download. When the time is over, the connections of the download are closed, even if the server
    is sending a header slowly.

    Shown by test_a_server_that_never_comes_to_its_end_is_left.
    """

    def __init__(self, url: str, seconds: float) -> None:
        self._url = url
        self._seconds = seconds
        self._is_over = False
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(max(0.0, seconds), self._end)
        self._timer.daemon = True

    def watch(self, connection: socket.socket) -> None:
        """Register a network connection of this download, so that it is closed when the time limit is over."""
        with self._lock:
            self._connections.append(connection.dup())  # TLS detaches the original connection
        # The time may be over since `_connect` began. The timer has ended then, and would not close this connection.
        if self._is_over:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            for connection in self._connections:
                with contextlib.suppress(OSError):  # it is closed already
                    # `close` would not wake the thread that reads from the socket. `shutdown` does.
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
        # The broken connection has raised an error already. This one names the reason.
        if self._is_over:
            raise SetupError(f"failed to fetch {self._url}: it took more than {self._seconds:g} s; save it to a file")


# --- connections -----------------------------------------------------------------------------------------------------


def _opener(policy: Policy, limits: PageLimits, deadline: _Deadline) -> OpenerDirector:
    # `ProxyHandler` reads the proxies of the environment.
    return build_opener(ProxyHandler(), _Web(policy, deadline), _Redirects(policy, limits.redirections))


class _Redirects(HTTPRedirectHandler):
    """urllib handler that checks whether the policy allows the address of each redirect."""

    def __init__(self, policy: Policy, most: int) -> None:
        self._policy = policy
        vars(self)["max_redirections"] = most  # its type allows to set it on the class only

    def redirect_request(  # noqa: PLR0917 - urllib calls it so
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        check_address(newurl, self._policy)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Web(HTTPSHandler, HTTPHandler):
    """urllib handler that connects only to addresses that the policy allows."""

    def __init__(self, policy: Policy, deadline: _Deadline) -> None:
        super().__init__()
        self._policy = policy
        self._deadline = deadline

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connecting(HTTPConnection, req), req)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connecting(HTTPSConnection, req), req)

    def _connecting(self, kind: type[HTTPConnection], request: Request) -> Any:
        """Return a function that creates HTTP connections. Such a connection checks the IP address of its host before
        it connects.

        A proxy is trusted, since the user has configured it.
        """
        # `_tunnel_host` is set if the proxy is used for https.
        is_by_proxy = request.has_proxy() or getattr(request, "_tunnel_host", None) is not None
        connect = socket.create_connection if is_by_proxy else functools.partial(_connect, self._policy)

        def watched(*arguments: Any) -> socket.socket:
            connection = connect(*arguments)
            self._deadline.watch(connection)
            return connection

        def make(host: str, **options: Any) -> HTTPConnection:
            connection = kind(host, **options)
            connection._create_connection = watched  # type: ignore[attr-defined]  # noqa: SLF001 - http.client's only seam for it
            return connection

        return make


def _connect(
    policy: Policy,
    address: tuple[str, int],
    timeout: float | None = None,
    source_address: tuple[str, int] | None = None,
) -> socket.socket:
    """Connect to a host after a check of all its IP addresses. The name is resolved once, and the first address that
    answers is used (test_a_name_that_leads_to_this_machine_is_not_connected_to).
    """
    host, port = address
    # The error of the last address is raised if none answers.
    last_error: OSError | None = None
    for ip_address in addresses_of(policy, host):
        try:
            return socket.create_connection((ip_address, port), timeout, source_address)
        except OSError as error:
            last_error = error
    raise last_error or OSError(f"no address was found for {host}")
