"""The live view's widget: one model for an execution, however many views a page shows of it.

It carries the bundle, a small snapshot for views that come up while the kernel is busy, and messages in both
directions (`divebook.widgets.protocol`). All thinking is done elsewhere: frames come from `publisher`, what a person
wants goes to `intents`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import anywidget
import traitlets

from divebook.errors import SetupError
from divebook.widgets.intents import Handlers, Intents
from divebook.widgets.protocol import Answer, Control, Delta, Header, Question, ToBrowser
from divebook.widgets.publisher import Publisher

STATIC = Path(__file__).parent / "static"
MAX_PENDING = 20
"""Questions that the snapshot holds."""


def built(name: str) -> str:
    """Return a file of the browser half."""
    path = STATIC / name
    if not path.exists():
        raise SetupError(f"{path} is missing: build the front end with `python widgets/frontend.py build`")
    return path.read_text(encoding="utf-8")


def answer_while_busy(comm: object) -> None:
    """Have messages delivered while a cell blocks the main thread, where ipykernel 7.4 would hold them back.

    It routes them to the shell that sent last, the busy one; without that memory they go to the front end's subshell.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = None  # noqa: SLF001 - there is no public way; kernels without it need none


class LiveView(anywidget.AnyWidget):
    """Shows one execution while it runs, and takes what a person wants of it.

    Parameters
    ----------
    publisher
        Of the execution that is shown: `divebook.widgets.publisher.publisher_of`.
    handlers
        What is called when somebody answers, or presses a button.
    """

    snapshot = traitlets.Dict().tag(sync=True)
    """Status and pending questions: what a view shows until it is welcomed."""

    def __init__(self, publisher: Publisher, handlers: Handlers) -> None:
        self._publisher = publisher
        self._detach: Callable[[], None] = lambda: None
        self._intents = Intents(handlers, lambda ack: self._reply(lambda: ack, urgent=True))
        self._asked: dict[str, Question] = {}
        self._views: set[str] = set()
        self._is_retired = False
        self.greeted = threading.Event()
        """Set once a browser shows the view and its messages arrive."""
        super().__init__()
        answer_while_busy(self.comm)
        self.on_msg(self._receive)
        self._detach = self._publisher.add(self._tell)

    @property
    def _esm(self) -> str:
        return built("live.js")

    @property
    def _css(self) -> str:
        return built("live.css")

    def retire(self) -> None:
        """Close as soon as no page shows it: pages that were loaded later do not hear that their output is replaced."""
        self._is_retired = True
        if not self._views:
            self.close()

    def close(self) -> None:
        """Stop following, and take the view off the page."""
        self._detach()
        super().close()

    # --- to the browser, on the publisher's thread -------------------------------------------------------------------

    def _tell(self, delta: Delta) -> int:
        self.send(delta)
        self._asked.update((asked["interrupt_id"], asked) for asked in delta["questions"])
        return 1 + self._take_snapshot(delta["header"])

    def _take_snapshot(self, header: Header) -> int:
        pending = [asked for asked in self._asked.values() if asked["status"] == "pending"][:MAX_PENDING]
        snapshot = {"status": header["status"], "workflow": header["workflow"], "pending": pending}
        if snapshot == self.snapshot:
            return 0
        self.snapshot = snapshot
        return 1

    def _reply(self, make: Callable[[], ToBrowser], *, urgent: bool) -> None:
        self._publisher.post(lambda: self.send(make()), urgent=urgent)

    # --- from the browser, on whatever thread the kernel likes -------------------------------------------------------

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        feed = self._publisher.feed
        match dict(message):
            case {"type": "hello", "view": view, "since": since}:
                self._views.add(view)
                self.greeted.set()
                self._reply(lambda: feed.welcome(view, since), urgent=True)
            case {"type": "bye", "view": view}:
                self._views.discard(view)
                if self._is_retired:
                    self.retire()
            case {"type": "range", "view": view, "first": first, "stop": stop}:
                self._reply(lambda: feed.history(view, first, stop), urgent=False)
            case {"type": "detail", "view": view, "id": index}:
                self._reply(lambda: feed.detail(view, index), urgent=True)
            case {"type": "answer" | "control"} as intent:
                self._intents.take(cast("Answer | Control", intent))
