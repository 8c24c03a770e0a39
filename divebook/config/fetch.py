"""Pages for content entries: fetched once, while definitions are made ready, from where the policy allows it.

A name is looked up once, every address found for it is checked, and one of these is connected to: what a name server
says the next time does not matter. Each redirection is checked like the first address.
"""

from __future__ import annotations

import functools
import socket
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any
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

from divebook.documents.policy import Policy
from divebook.errors import SetupError

MAX_BYTES = 500 * 1024
MAX_BINARY = 10_000_000
TIMEOUT, LONGEST = 15.0, 60.0
"""Seconds without any answer, and in all."""
TEXTUAL = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it was fetched from its address."""

    media_type: str
    body: bytes
    charset: str = "utf-8"

    def text(self, url: str) -> str:
        """Return it as text; raises `SetupError` if it is none, or too long."""
        if not self.media_type.startswith(TEXTUAL) and not self.media_type.endswith(("+json", "+xml")):
            raise SetupError(f"content of {url} is {self.media_type}: use a text, image or pdf, or a local file")
        if len(self.body) > MAX_BYTES:
            raise SetupError(f"content of {url} has more than {MAX_BYTES} bytes: save the part that matters to a file")
        try:
            return self.body.decode(self.charset)
        except (UnicodeDecodeError, LookupError) as error:
            raise SetupError(f"content of {url} is not {self.charset} text: {error}") from error


def fetch(url: str, policy: Policy) -> Page:
    """Return the page at `url`; raises `SetupError` if it cannot or may not be fetched."""
    try:
        check_address(url, policy)
        request = Request(url, headers={"User-Agent": "divebook"})  # noqa: S310 - check_address lets only http through
        with _opener(policy).open(request, timeout=TIMEOUT) as response:
            return Page(
                response.headers.get_content_type(),
                _body(url, response),
                response.headers.get_content_charset() or "utf-8",
            )
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise SetupError(f"failed to fetch {url}: {error}") from error


def check_address(url: str, policy: Policy) -> None:
    """Raise `SetupError` unless `url` is of the web, and of a host that may be reached."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise SetupError(f"{url} is not an address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SetupError(f"content address must start with http:// or https:// and name a host: {url}")
    policy.host(parts.hostname)


def _body(url: str, response: Any) -> bytes:
    """Return what a server sends, within a time in all and a size."""
    until, parts, count = time.monotonic() + LONGEST, [], 0
    while part := response.read1(65536):
        parts.append(part)
        count += len(part)
        if count > MAX_BINARY:
            raise SetupError(f"content of {url} has more than {MAX_BINARY} bytes: save the part that matters to a file")
        if time.monotonic() > until:
            raise SetupError(f"failed to fetch {url}: it took more than {LONGEST:.0f} s; save it to a file")
    return b"".join(parts)


# --- connecting ------------------------------------------------------------------------------------------------------


def _opener(policy: Policy) -> OpenerDirector:
    return build_opener(ProxyHandler(), _Web(policy), _Redirects(policy))


class _Redirects(HTTPRedirectHandler):
    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def redirect_request(  # noqa: PLR0917 - urllib calls it so
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        check_address(newurl, self._policy)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Web(HTTPSHandler, HTTPHandler):
    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_connecting(HTTPConnection, req, self._policy), req)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_connecting(HTTPSConnection, req, self._policy), req)


def _connecting(kind: type[HTTPConnection], request: Request, policy: Policy) -> Any:
    """Return what makes a connection to checked addresses only; a proxy, which the person chose, is trusted."""

    def make(host: str, **options: Any) -> HTTPConnection:
        connection = kind(host, **options)
        if not request.has_proxy() and getattr(request, "_tunnel_host", None) is None:
            connection._create_connection = functools.partial(_connect, policy)  # type: ignore[attr-defined]  # noqa: SLF001 - http.client's only seam for it
        return connection

    return make


def _connect(
    policy: Policy,
    address: tuple[str, int],
    timeout: float | None = None,
    source_address: tuple[str, int] | None = None,
) -> socket.socket:
    """Connect to a host: looked up once, all that is found checked, the first that answers taken."""
    host, port = address
    # The addresses that were checked are those that are connected to: a second look-up could be answered otherwise
    # (test_a_name_that_leads_to_this_machine_is_not_connected_to).
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for _, _, _, _, place in found:
        policy.address(str(place[0]), host)
    failed: OSError | None = None
    for _, _, _, _, place in found:
        try:
            return socket.create_connection((str(place[0]), port), timeout, source_address)
        except OSError as error:
            failed = error
    raise failed or OSError(f"no address was found for {host}")
