"""What all that follow a publisher have in common: who looks, what is sent, what a person wants.

All thinking is done elsewhere: frames come from `publisher`, what a person wants goes to `intents`. How messages travel
is a class beside it among the bases: a widget's model, or a line of its own (`divebook.widgets.line`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from divebook.widgets.audience import Audience
from divebook.widgets.checking import refusal, refused
from divebook.widgets.intents import Handlers, Intent, Intents
from divebook.widgets.protocol.messages import (
    InboxToBrowser,
    OfferToBrowser,
    ReplayToBrowser,
    RunsToBrowser,
    ToBrowser,
    ToKernel,
)
from divebook.widgets.publisher import Publisher

Told: TypeAlias = ToBrowser | ReplayToBrowser | InboxToBrowser | OfferToBrowser | RunsToBrowser


def answer_while_busy(comm: object) -> None:
    """Have messages delivered while a cell blocks the main thread, where ipykernel 7.4 would hold them back.

    It routes them to the shell that sent last, the busy one; without that memory they go to the front end's subshell.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = None  # noqa: SLF001 - there is no public way; kernels without it need none


class Follower:
    """Sends on what a publisher sends; handlers are called when somebody answers or presses a button."""

    if TYPE_CHECKING:  # what the class beside it brings
        comm: Any

        def send(self, content: Any, buffers: Any = None) -> None: ...  # noqa: D102
        def on_msg(self, callback: Callable[[object, Any, object], None]) -> None: ...  # noqa: D102

    def __init__(
        self, publisher: Publisher[Any], handlers: Handlers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._publisher = publisher
        self._detach: Callable[[], None] = lambda: None
        self._intents = Intents(handlers, lambda ack: self._reply(lambda: ack, urgent=True))
        self._audience = Audience(clock)
        self._is_retired = False
        self.greeted = threading.Event()
        """Set once a browser shows the view and its messages arrive."""
        self.is_hosted = False
        """Whether a page shows what is saved of the view once its model is gone."""
        self._told_hosted: Callable[[], None] = lambda: None
        super().__init__()
        answer_while_busy(self.comm)
        self.on_msg(self._receive)
        self._attach()

    def when_hosted(self, told: Callable[[], None]) -> None:
        """Call `told` once a page hosts the view, at once if one does already; on the publisher's thread."""
        self._told_hosted = told
        if self.is_hosted:
            self._publisher.post(told, urgent=True)

    def retire(self) -> None:
        """Close as soon as no page shows it: pages that were loaded later do not hear that their output is replaced."""
        self._is_retired = True
        if not self._audience:
            self.close()

    def close(self) -> None:
        """Stop following, and take the view off the page."""
        self._detach()
        super().close()  # type: ignore[misc]  # of the class beside it

    def _attach(self) -> None:
        self._detach = self._publisher.add(self._tell, self._look_round, self.close)

    def follow(self, publisher: Publisher[Any]) -> None:
        """Show what another publisher sends from now on; whoever looks begins anew."""
        self._detach()
        self._publisher = publisher
        self._attach()
        for view in self._audience.views:
            self._greet(view, 0)

    # --- to the browser, on the publisher's thread -------------------------------------------------------------------

    def _tell(self, frame: Any) -> int:
        """Send a frame if anybody looks; return how many messages that took."""
        if not self._audience:
            return 0
        self.send(frame)
        return 1

    def _look_round(self) -> None:
        """Forget views that went without a word; now and then."""
        self._audience.expire()
        if self._is_retired:
            self.retire()

    def _reply(self, make: Callable[[], Told], *, urgent: bool) -> None:
        self._publisher.post(lambda: self.send(make()), urgent=urgent)

    # --- from the browser, on whatever thread the kernel likes -------------------------------------------------------

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        wrong = refusal(message, ToKernel)
        if wrong is not None:
            self._refuse(message, wrong)
            return
        match message:
            case {"type": "hello", "view": view, "since": since}:
                self._greet(view, since)
            case {"type": "alive", "view": view, "since": since}:
                if self._audience.hear(view):
                    self._greet(view, since)
            case {"type": "hosted"}:
                self.is_hosted, was_hosted = True, self.is_hosted
                if not was_hosted:
                    self._publisher.post(self._told_hosted, urgent=True)
            case {"type": "bye", "view": view}:
                self._audience.leave(view)
                if self._is_retired:
                    self.retire()
            case {"type": "answer" | "control" | "wish" | "take_over"} as intent:
                self._intents.take(cast("Intent", intent))
            case request:
                self._look_up(request)

    def _refuse(self, message: Any, why: str) -> None:
        self._reply(lambda: refused(message, why), urgent=False)  # a flood of them must not hold up what people do

    def _greet(self, view: str, since: int) -> None:
        self._audience.hear(view)
        self.greeted.set()
        self._reply(lambda: self._publisher.feed.welcome(view, since), urgent=True)

    def _look_up(self, request: Mapping[str, Any]) -> None:
        """Answer a question of one view; there are none that all widgets understand."""
        self._refuse(request, f"this view takes no messages of the type {request['type']!r}")
