"""Those who follow the questions of a store; the line by which a page of JupyterLab hears of them in no cell at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from divebook.widgets.follower import Follower
from divebook.widgets.inbox import InboxFeed
from divebook.widgets.intents import Handlers
from divebook.widgets.line import KernelLine
from divebook.widgets.protocol.questions import InboxDelta
from divebook.widgets.publisher import Publisher


class InboxFollower(Follower):
    """Tells what waits for an answer, and takes answers; while no page shows it, nothing is looked up.

    `told` is called when something has changed, on the publisher's thread.
    """

    def __init__(
        self,
        publisher: Publisher[InboxFeed],
        handlers: Handlers,
        told: Callable[[InboxFeed], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._feed, self._told = publisher.feed, told
        self._attaching, self._is_attached = threading.Lock(), False
        super().__init__(publisher, handlers, clock)

    def _tell(self, frame: InboxDelta) -> int:
        sent = super()._tell(frame)
        self._told(self._feed)
        return sent

    def _attach(self) -> None:
        super()._attach()
        self._is_attached = True

    def _greet(self, view: str, since: int) -> None:
        with self._attaching:
            self._audience.hear(view)
            if not self._is_attached:
                self._attach()
        super()._greet(view, since)

    def _look_round(self) -> None:
        super()._look_round()
        with self._attaching:
            if not self._audience and self._is_attached:
                self._is_attached = False
                self._detach()


class InboxLine(InboxFollower, KernelLine):
    """What JupyterLab is told for its notifications, its status bar and the tabs of notebooks."""

    target = "divebook.inbox"
