"""The timeline and the graph beside a replay: what a live view of the same log would be sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

from divebook.widgets.feed import Feed
from divebook.widgets.following import bundle_of
from divebook.widgets.protocol.messages import PictureToBrowser
from divebook.widgets.protocol.run import Welcome
from divebook.widgets.source import Source

AT_ONCE = 100_000
"""Events of a log that is read while the page waits, which takes about a second; a longer one is read aside."""
MOST_PICTURED = 1_000_000
"""Events of a log that is pictured at all: reading them takes about 15 s of the processor."""
MOST_SPANS = 100_000
"""Calls and steps that a page is sent; of more, some that are spread over the run."""
THREAD = "divebook-picture"


class Pictured:
    """Answers what the timeline and the graph beside a replay ask.

    Parameters
    ----------
    welcome
        Returns what they show, for a view; called when one asks. None while it is being made: a page asks again.
    """

    def __init__(self, welcome: Callable[[str], Welcome | None]) -> None:
        self._welcome = welcome

    @classmethod
    def of(cls, source: Callable[[], Source]) -> Pictured:
        """Return what answers of a log as far as it goes when somebody looks, unless it is too long."""
        aside = _Aside(source)

        def welcome(view: str) -> Welcome | None:
            total = source().total()
            at_once = total <= AT_ONCE or total > MOST_PICTURED
            found = _read(source()) if at_once else aside.read(view, total)
            return None if found is None else {**found, "view": view}

        return cls(welcome)

    def reply(self, message: Mapping[str, Any]) -> PictureToBrowser | None:
        """Return the answer to a message; None if it is about something else, or if there is none yet."""
        match message:
            case {"type": "picture", "view": str(view)}:
                return self._welcome(view)
            case {"type": "bundle", "view": str(view), "name": name}:
                return bundle_of(view, name)
        return None


class _Aside:
    """Reads a long log while the positions of its replay are answered: once for all pages, unless it has grown."""

    def __init__(self, source: Callable[[], Source]) -> None:
        self._source = source
        self._thread: threading.Thread | None = None
        self._view = ""
        self._made: Welcome | None = None

    def read(self, view: str, total: int) -> Welcome | None:
        """Return what was read for a view, or of all events that there are; None while it is being read."""
        if self._made is not None and (self._view == view or self._made["last"] == total):
            return self._made
        if self._thread is not None and self._thread.is_alive():
            return None
        self._view, self._made = view, None
        self._thread = threading.Thread(target=copy_context().run, args=(self._make,), name=THREAD, daemon=True)
        self._thread.start()
        return None

    def _make(self) -> None:
        self._made = _read(self._source())


def _read(source: Source) -> Welcome:
    """Return what is shown of a log: of one that is too long not a call, and the page leaves both pictures out."""
    feed = Feed(source)
    is_short = source.total() <= MOST_PICTURED
    while is_short and feed.has_news:
        feed.frame()
    return feed.welcome("", 0, MOST_SPANS, evenly=True)
