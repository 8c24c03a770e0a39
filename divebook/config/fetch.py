"""Textual web pages for content entries: fetched once, while definitions are made ready."""

from __future__ import annotations

from http.client import HTTPException
from urllib.error import URLError
from urllib.request import Request, urlopen

from divebook.errors import SetupError

MAX_BYTES = 500 * 1024
TIMEOUT = 15.0
TEXTUAL = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")


def fetch_text(url: str) -> str:
    """Return the text at `url`; raises `SetupError` if it cannot be had, is no text, or is too long."""
    request = Request(url, headers={"User-Agent": "divebook"})  # noqa: S310 - _url_block lets only http through
    try:
        with urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310 - as above
            content_type = response.headers.get_content_type()
            charset = response.headers.get_content_charset() or "utf-8"
            body = response.read(MAX_BYTES + 1)
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise SetupError(f"failed to fetch {url}: {error}") from error
    return decoded(url, body, content_type, charset)


def decoded(url: str, body: bytes, content_type: str, charset: str = "utf-8") -> str:
    """Return a response's body as text, if it is one and not too long."""
    if not content_type.startswith(TEXTUAL) and not content_type.endswith(("+json", "+xml")):
        raise SetupError(f"content of {url} is {content_type}, not text: use an image or pdf address, or a local file")
    if len(body) > MAX_BYTES:
        raise SetupError(f"content of {url} has more than {MAX_BYTES} bytes: save the part that matters to a file")
    try:
        return body.decode(charset)
    except (UnicodeDecodeError, LookupError) as error:
        raise SetupError(f"content of {url} is not {charset} text: {error}") from error
