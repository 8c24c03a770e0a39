"""The open views of a widget: from the hello of each until its bye, or a long silence.

Tabs close, and machines sleep, without a word; what is kept for such views would be kept for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SILENCE = 200.0
"""Seconds after which a view is forgotten. Views speak every 10 s, in hidden tabs once a minute."""


class Audience:
    """The views of one widget; any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Tell whether anybody looks."""
        return bool(self._heard)

    @property
    def views(self) -> list[str]:
        """Those that are there."""
        return list(self._heard)

    def hear(self, view: str) -> bool:
        """Note that a view is there; return whether that is news."""
        is_new = view not in self._heard
        self._heard[view] = self._clock()
        return is_new

    def leave(self, view: str) -> None:
        """Forget a view."""
        self._heard.pop(view, None)

    def expire(self) -> None:
        """Forget the views that have been silent for long."""
        silent = self._clock() - SILENCE
        for view in [view for view, heard in list(self._heard.items()) if heard < silent]:
            self.leave(view)
