"""The widget that steps through a log, live or saved: it answers what the browser asks, one position at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from divebook.widgets.checking import refusal, refused
from divebook.widgets.follower import answer_while_busy
from divebook.widgets.following import HOSTED_VIEW, CleanWidget, built
from divebook.widgets.pictured import Pictured
from divebook.widgets.positions import Steppable, reply_of
from divebook.widgets.protocol.messages import ReplayToKernel

LONG = 5_000
"""Events from which on a page gets its log before the cell goes on (``python -m benchmarks.replaying``)."""
GREETING, PATIENCE = 1.0, 10.0
"""Seconds in which a page that is there asks for the first events, and has got the last ones."""


class ReplayView(CleanWidget):
    """Steps through one log.

    Parameters
    ----------
    log
        What is asked, on the thread that a question arrives on; it may grow.
    name
        Of what it steps through.
    saved
        Returns what is shown of the log where the view has no kernel any more, by type.
    beside
        Answers what the timeline and the graph beside it ask; without it there are none.
    moves
        Whether there is a page that shows widgets; elsewhere a live view would only leave a message that it is missing.
    """

    def __init__(
        self,
        log: Steppable,
        name: str,
        saved: Callable[[], dict[str, Any]],
        *,
        beside: Pictured | None = None,
        moves: bool = True,
    ) -> None:
        self._log, self._name, self._saved, self._beside, self._moves = log, name, saved, beside, moves
        self._lock = threading.Lock()
        self._asked, self._filled = threading.Event(), threading.Event()
        super().__init__()
        answer_while_busy(self.comm)
        self.on_msg(self._receive)

    @property
    def _esm(self) -> str:
        return built("replay.js")

    @property
    def _css(self) -> str:
        return built("replay.css")

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if not self._moves:
            return {"text/plain": repr(self)}, {}
        shown: Any = super()._repr_mimebundle_(**options)
        data, metadata = shown if isinstance(shown, tuple) else (shown, {})
        return {**self.lasting_bundle(), **data, HOSTED_VIEW: {"model_id": self.model_id}}, metadata

    def lasting_bundle(self) -> dict[str, Any]:
        """Return what is shown where the view has no kernel any more, by type."""
        return {**self._saved(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        found = f"Replay of {self._name}: {self._log.total} events"
        return found if self._moves else f"{found}; run this cell in JupyterLab to replay them"

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        wrong = refusal(message, ReplayToKernel)
        if wrong is not None:
            self.send(refused(message, wrong))
            return
        self._asked.set()
        with self._lock:  # a cell and its page ask at the same time
            reply = reply_of(self._log, message) or (self._beside and self._beside.reply(message))
        if reply is not None:
            self.send(reply)
        if message["type"] == "at":
            self._stand(min(max(0, message["sequence"]), self._log.total))
        if message["type"] == "events" and message["stop"] >= self._log.total:
            self._filled.set()
            self._arrive()

    def _arrive(self) -> None:
        """Be told that a page has all events."""

    def _stand(self, sequence: int) -> None:
        """Be told that somebody has moved it in a page."""

    def _let_page_first(self) -> None:
        """Give a page that asks for a long log its events before the processor is taken for what is saved of it."""
        if self._log.total > LONG and self._asked.wait(GREETING):
            self._filled.wait(PATIENCE)
