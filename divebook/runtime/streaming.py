"""Streams of the texts that models and commands in workspaces produce: listeners get each piece as it arrives. The
pieces are not recorded.

The log gets a text when it is complete. Its pieces are for display only, and nothing may depend on them: a listener
that raises is removed, and a repeated call starts its text again.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from divebook.engine.operations import TEXT, StreamedCall
from divebook.stores.listeners import Listeners
from divebook.text.redaction import logger

_log = logger(__name__)


class TextDelta(NamedTuple):
    """Piece of a text that a model, or a command in a workspace, is writing."""

    operation_id: str
    """Id of the operation that writes the text."""
    at: int
    """Number of characters of the part before this piece. 0 starts the part, possibly again after
    an earlier attempt."""
    text: str
    part: str = TEXT
    """Part of the text: ``text``, ``thinking``, ``arguments:<tool>:<id of the call>`` (incomplete JSON), or ``output``
    of commands."""


TextListener: TypeAlias = Callable[[TextDelta], object]


@dataclass(slots=True)
class _Subscription:
    """One subscription to the texts of an execution: the listener, and the kinds of texts that it gets."""

    listener: TextListener
    to_parts: bool
    """True if the listener also gets thoughts, arguments of tool calls and output of commands."""
    end: Callable[[], None] = lambda: None


MOST_HELD = 1 << 20
"""Maximum number of characters at the end of a text that a late listener still gets."""


# Example with a limit of 5: the pieces "ab", "cd", "ef" were added. `length` is 6, "ab" was dropped, and
# `kept_length` is 4. A late listener gets "cdef" with `at` 2.
@dataclass(slots=True)
class _Text:
    length: int = 0
    """Total number of characters so far."""
    kept_length: int = 0
    pieces: deque[str] = field(default_factory=deque)
    """The last pieces."""

    def add(self, piece: str) -> None:
        self.length += len(piece)
        self.kept_length += len(piece)
        self.pieces.append(piece)
        # Whole pieces are dropped, so slightly fewer characters than `MOST_HELD` remain.
        while self.kept_length > MOST_HELD:
            self.kept_length -= len(self.pieces.popleft())


class TextStreams:
    """Texts that are being written in the executions of one environment, and the listeners that receive the pieces."""

    def __init__(self) -> None:
        self.always = False
        """True if models stream without listeners, so that a listener added soon after gets a text from its start."""
        self._listeners: dict[str, Listeners[_Subscription]] = {}
        self._texts: dict[str, dict[str, dict[str, _Text]]] = {}
        """By execution, operation and part."""
        # Reentrant: a listener is called under the lock, and may end its own subscription or raise, which removes it.
        self._lock = threading.RLock()

    def subscribe(self, execution_id: str, listener: TextListener, *, parts: bool = False) -> Callable[[], None]:
        """Send the texts of an execution to a listener. Returns a function that ends the subscription.

        Parameters
        ----------
        parts
            True for all parts, False for the text of models only.
        """
        subscription = _Subscription(listener, parts)
        with self._lock:
            remove = self._listeners.setdefault(execution_id, Listeners()).add(subscription)
            subscription.end = functools.partial(self._end, execution_id, remove)
            # The listener first gets the texts that are being written. The lock keeps new pieces waiting meanwhile.
            for operation_id, texts_by_part in self._texts.get(execution_id, {}).items():
                for part, text in texts_by_part.items():
                    so_far = TextDelta(operation_id, text.length - text.kept_length, "".join(text.pieces), part)
                    self._tell(execution_id, subscription, so_far)
        return subscription.end

    def is_heard(self, execution_id: str) -> bool:
        """Return whether the calls of an execution must stream their text, because the execution has listeners or
        `always` is set.
        """
        return self.always or execution_id in self._listeners

    async def hand_on(self, execution_id: str, operation_id: str, call: StreamedCall) -> Any:
        """Run a call that streams text, and return its result. Meanwhile each piece of the text is sent to the
        listeners of the execution.
        """
        texts_by_part: dict[str, _Text] = {}
        with self._lock:
            # A repeated call replaces its earlier text, which starts again at 0.
            self._texts.setdefault(execution_id, {})[operation_id] = texts_by_part

        def write(text: str, part: str = TEXT) -> None:
            with self._lock:
                # Under the lock, so that a listener that subscribes now gets all pieces once and in order.
                so_far = texts_by_part.setdefault(part, _Text())
                delta = TextDelta(operation_id, so_far.length, text, part)
                so_far.add(text)
                if execution_id in self._listeners:
                    for (subscription,) in self._listeners[execution_id].entries:
                        self._tell(execution_id, subscription, delta)

        try:
            return await call(write)
        finally:
            self._forget(execution_id, operation_id)

    def _tell(self, execution_id: str, subscription: _Subscription, delta: TextDelta) -> None:
        if not delta.text or (delta.part != TEXT and not subscription.to_parts):
            return
        try:
            subscription.listener(delta)
        except Exception:  # noqa: BLE001 - the run must not depend on its listeners
            _log.exception("a listener to the streamed text of %s failed and is removed", execution_id)
            subscription.end()

    def _end(self, execution_id: str, remove: Callable[[], None]) -> None:
        with self._lock:
            remove()
            if execution_id in self._listeners and not self._listeners[execution_id].entries:
                del self._listeners[execution_id]

    def _forget(self, execution_id: str, operation_id: str) -> None:
        with self._lock:
            texts = self._texts[execution_id]
            del texts[operation_id]
            if not texts:
                del self._texts[execution_id]
