"""The timeline and the graph beside a replay: what a live view of the same log would be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from divebook.widgets.feed import Feed
from divebook.widgets.following import bundle_of
from divebook.widgets.protocol.messages import PictureToBrowser
from divebook.widgets.protocol.run import Welcome
from divebook.widgets.source import Source

MOST_PICTURED = 100_000
"""Events of a log that is pictured beside its replay: to read them takes about a second."""


class Pictured:
    """Answers what the timeline and the graph beside a replay ask.

    Parameters
    ----------
    welcome
        Returns what they show, for a view; called when one asks.
    """

    def __init__(self, welcome: Callable[[str], Welcome]) -> None:
        self._welcome = welcome

    @classmethod
    def of(cls, source: Callable[[], Source]) -> Pictured:
        """Return what answers of a log as far as it goes when somebody looks, unless it is too long."""

        def welcome(view: str) -> Welcome:
            found = source()
            feed = Feed(found)
            is_short = found.total() <= MOST_PICTURED
            while is_short and feed.has_news:
                feed.frame()
            return feed.welcome(view, 0, MOST_PICTURED)

        return cls(welcome)

    def reply(self, message: Mapping[str, Any]) -> PictureToBrowser | None:
        """Return the answer to a message; None if it is about something else."""
        match message:
            case {"type": "picture", "view": str(view)}:
                return self._welcome(view)
            case {"type": "bundle", "view": str(view), "name": name}:
                return bundle_of(view, name)
        return None
