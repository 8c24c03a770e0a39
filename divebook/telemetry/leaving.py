"""What is done for telemetry beside the run: in threads that keep no process, and waited for a few seconds at the end.

A collector that does not answer, or an exporter of a person's that fails, is no matter of what is told of.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from divebook.text.logs import logger

TELLING_SECONDS, SENDING_SECONDS = 2.0, 3.0
"""How long is waited at the end until all is told, and then until it is sent."""
_log = logger(__name__)


class TellingThread:
    """Does one thing after the other in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._left: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._has_begun = self._is_given_up = False

    def do(self, thing: Callable[[], object]) -> None:
        """Have something done, which raises nothing."""
        self._left.put(thing)
        with self._lock:
            if not self._has_begun:
                self._has_begun = True
                self._thread.start()

    def close(self) -> None:
        """Return when all is done, or when it takes too long: what is left then is not done any more."""
        self._left.put(None)
        with self._lock:
            if not self._has_begun:
                return
        self._thread.join(TELLING_SECONDS)
        if self._thread.is_alive():
            self._is_given_up = True
            _log.warning(
                "telemetry lacks what %d events came to: it was not told within %g seconds, as what takes the spans "
                "is slow. A BatchSpanProcessor keeps nobody waiting",
                self._left.qsize(),
                TELLING_SECONDS,
            )

    def _work(self) -> None:
        while (thing := self._left.get()) is not None and not self._is_given_up:
            thing()


def done_in_time(what: str, things: Sequence[Callable[[], object]]) -> None:
    """Do things beside each other, and wait for all of them a few seconds; one that fails, or stays, is logged."""
    until = time.monotonic() + SENDING_SECONDS
    threads = [threading.Thread(target=_done, args=(what, thing), daemon=True) for thing in things]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        _log.warning("telemetry may lack the end: %s took longer than %g seconds", what, SENDING_SECONDS)


def _done(what: str, thing: Callable[[], object]) -> None:
    try:
        thing()
    except Exception as error:  # noqa: BLE001 - an exporter's, which may be a person's own
        _log.warning("telemetry may lack the end: %s failed: %s: %s", what, type(error).__name__, error)
