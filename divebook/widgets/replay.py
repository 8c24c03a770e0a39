"""The widget that steps through a log, live or saved: it answers what the browser asks, one position at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import anywidget

from divebook.widgets.following import answer_while_busy, built
from divebook.widgets.positions import Steppable, reply_of


class ReplayView(anywidget.AnyWidget):
    """Steps through one log.

    Parameters
    ----------
    read
        Returns the log as far as it is known by now; called for every question, on the thread it arrives on.
    """

    def __init__(self, read: Callable[[], Steppable]) -> None:
        self._read, self._lock = read, threading.Lock()
        super().__init__()
        answer_while_busy(self.comm)
        self.on_msg(self._receive)

    @property
    def _esm(self) -> str:
        return built("replay.js")

    @property
    def _css(self) -> str:
        return built("replay.css")

    def _receive(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        with self._lock:
            reply = reply_of(self._read(), message)
        if reply is not None:
            self.send(reply)
