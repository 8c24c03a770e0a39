"""The tool ``fetch``: a page of the web as text, from where the policy allows it, without key and without cookies."""

from __future__ import annotations

import time
from dataclasses import replace

from divebook.documents import fetching
from divebook.documents.fetching import Page, PageLimits
from divebook.errors import SetupError
from divebook.tools.page_text import readable
from divebook.tools.reach import READS, ToolReach, coming, failed
from divebook.workflow.tools import ToolFunction

_PAUSE = 0.5
"""Seconds before a page is asked for again; twice as many each further time."""


def fetcher(reach: ToolReach, *, max_size: int = 512_000, max_retries: int = 0, timeout: float = 15.0) -> ToolFunction:
    """Return the tool that fetches pages: at most `max_size` bytes, within `timeout` seconds each time."""
    limits = PageLimits(bytes=max_size, silence=timeout, seconds=timeout)

    def fetch(url: str) -> str:
        """Fetch a page of the web and return its text, with the addresses of its links.

        Parameters
        ----------
        url
            Its address, beginning with http:// or https://.
        """
        try:
            page = _fetched(url, reach, limits, max_retries)
            text = page.text(url, max_size)
        except SetupError as error:
            raise failed(str(error)) from error
        return readable(text, page.address) if page.media_type in ("text/html", "application/xhtml+xml") else text

    return coming(fetch, replace(READS, open_world=True))


def _fetched(url: str, reach: ToolReach, limits: PageLimits, retries: int) -> Page:
    for attempt in range(retries):
        try:
            return fetching.fetch(url, reach.policy, limits)
        except SetupError as error:
            if not isinstance(error.__cause__, OSError):  # it may not be fetched, or is no page
                raise
            time.sleep(_PAUSE * 2**attempt)
    return fetching.fetch(url, reach.policy, limits)
