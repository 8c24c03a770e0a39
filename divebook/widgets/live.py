"""The live view's widget: one model for an execution, however many views a page shows of it.

It carries the bundle, a small snapshot for views that come up while the kernel is busy, and messages in both
directions (`divebook.widgets.protocol`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import traitlets

from divebook.replay.positions import Positions
from divebook.text.redaction import shared
from divebook.widgets.feed import Feed
from divebook.widgets.following import FollowingView, bundle_of
from divebook.widgets.intents import Handlers
from divebook.widgets.positions import SteppedLog, reply_of
from divebook.widgets.protocol.messages import ReplayToBrowser
from divebook.widgets.protocol.questions import QuestionView
from divebook.widgets.protocol.run import Delta, Header
from divebook.widgets.publisher import Publisher

MAX_PENDING = 20
"""Questions that the snapshot holds."""


class LiveView(FollowingView):
    """Shows one execution while it runs, and takes what a person wants of it."""

    bundle = "live"
    snapshot = traitlets.Dict().tag(sync=True)
    """Status and pending questions: what a view shows until it is welcomed."""

    def __init__(
        self, publisher: Publisher[Feed], handlers: Handlers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._feed = publisher.feed
        self._asked: dict[str, QuestionView] = {}
        self._moved: Callable[[Publisher[Feed]], None] = lambda _: None
        self._stepped: SteppedLog | None = None
        super().__init__(publisher, handlers, clock)

    def follow(self, publisher: Publisher[Feed]) -> None:
        """Show another execution from now on."""
        self._feed, self._asked = publisher.feed, {}
        super().follow(publisher)
        self._moved(publisher)

    def when_moved(self, told: Callable[[Publisher[Feed]], None]) -> None:
        """Call `told` when it shows another execution."""
        self._moved = told

    def _tell(self, delta: Delta) -> int:
        sent = super()._tell(delta)
        self._asked.update((asked["interrupt_id"], asked) for asked in delta["questions"])
        return sent + self._take_snapshot(delta["header"])

    def _take_snapshot(self, header: Header) -> int:
        pending = [asked for asked in self._asked.values() if asked["status"] == "pending"][:MAX_PENDING]
        snapshot = shared().value({"status": header["status"], "workflow": header["workflow"], "pending": pending})
        if snapshot == self.snapshot:
            return 0
        self.snapshot = snapshot
        return 1

    def _look_up(self, request: Mapping[str, Any]) -> None:
        feed = self._feed
        match request:
            case {"type": "conversation", "view": view, "id": index, "since": since}:
                self._reply(lambda: feed.conversation(view, index, since), urgent=False)
            case {"type": "sent", "view": view, "id": index}:
                self._reply(lambda: feed.sent(view, index), urgent=False)
            case {"type": "variables", "view": view, "version": version}:
                self._reply(lambda: feed.variables(view, version), urgent=False)
            case {"type": "files", "view": view, "version": version, "at": at, "since": since}:
                self._reply(lambda: feed.files(view, version, at, since), urgent=False)
            case {"type": "bundle", "view": view, "name": name}:
                self._reply(lambda: bundle_of(view, name), urgent=True)
            case {"type": "range", "view": view, "first": first, "stop": stop}:
                self._reply(lambda: feed.history(view, first, stop), urgent=False)
            case {"type": "detail", "view": view, "id": index}:
                self._reply(lambda: feed.detail(view, index), urgent=True)
            case {"type": "state" | "event" | "events" | "said"}:
                self._reply(lambda: self._step(request), urgent=True)

    def _step(self, request: Mapping[str, Any]) -> ReplayToBrowser:
        """Answer a replay that stands in the view, about the run that it shows now."""
        source = self._feed.source
        name = source.header()["execution_id"]
        if self._stepped is None or self._stepped.positions.execution_id != name:
            self._stepped = SteppedLog(Positions(name, source.read, source.total))
        return cast("ReplayToBrowser", reply_of(self._stepped, request))
