"""The widget that steps through a log, live or saved: it answers what the browser asks, one position at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from divebook.widgets.checking import refusal, refused
from divebook.widgets.following import CleanWidget, answer_while_busy, built
from divebook.widgets.positions import Steppable, reply_of
from divebook.widgets.protocol import ReplayToKernel


class ReplayView(CleanWidget):
    """Steps through one log.

    Parameters
    ----------
    read
        Returns the log as far as it is known by now; called for every question, on the thread it arrives on.
    name
        Of what it steps through.
    moves
        Whether there is a page that shows widgets; elsewhere a live view would only leave a message that it is missing.
    """

    def __init__(self, read: Callable[[], Steppable], name: str, *, moves: bool = True) -> None:
        self._read, self._name, self._moves = read, name, moves
        self._lock = threading.Lock()
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
        return super()._repr_mimebundle_(**options) if self._moves else ({"text/plain": repr(self)}, {})

    def __repr__(self) -> str:
        found = f"Replay of {self._name}: {self._read().total} events"
        return found if self._moves else f"{found}; run this cell in JupyterLab to step through them"

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        wrong = refusal(message, ReplayToKernel)
        if wrong is not None:
            self.send(refused(message, wrong))
            return
        with self._lock:
            reply = reply_of(self._read(), message)
        if reply is not None:
            self.send(reply)
