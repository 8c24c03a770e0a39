"""What is being written now, by models and by commands in workspaces: handed to listeners as it comes, never recorded.

The log learns a text when it is complete. Until then its pieces are only for showing, and nothing may depend on them:
a listener that fails is dropped, and a call that is made again begins its text anew.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from divebook.engine.operations import TEXT, StreamedCall
from divebook.text.redaction import logger

_log = logger(__name__)


class TextDelta(NamedTuple):
    """A piece of a text that is being written."""

    operation_id: str
    """The call that writes it, as the log names it."""
    at: int
    """How many characters of the part come before; at 0 it begins, also where an earlier attempt had begun it."""
    text: str
    part: str = TEXT
    """``text``, ``thinking``, or ``arguments:<tool>:<id of the call>``, which is JSON in the making; ``output`` is what
    commands print."""


TextListener: TypeAlias = Callable[[TextDelta], object]


class _Entry(NamedTuple):
    """Who listens, and to what."""

    listener: TextListener
    to_parts: bool
    """Whether it hears thoughts and arguments of calls too."""


MOST_HELD = 1 << 20
"""Characters of the end of each text that a listener still gets which comes later."""


@dataclass(slots=True)
class _Text:
    length: int = 0
    """Of all that came."""
    held: int = 0
    pieces: deque[str] = field(default_factory=deque)
    """The end of it."""

    def add(self, piece: str) -> None:
        self.length += len(piece)
        self.held += len(piece)
        self.pieces.append(piece)
        while self.held > MOST_HELD:
            self.held -= len(self.pieces.popleft())


class TextStreams:
    """The texts that are being written in the executions of one environment, and who hears them."""

    def __init__(self) -> None:
        self.always = False
        """Whether models stream before anyone listens: a listener that comes soon after gets a text from its start."""
        self._listeners: dict[str, tuple[_Entry, ...]] = {}
        self._texts: dict[str, dict[str, dict[str, _Text]]] = {}
        """By execution, operation and part."""
        self._lock = threading.RLock()

    def subscribe(self, execution_id: str, listener: TextListener, *, parts: bool = False) -> Callable[[], None]:
        """Tell a listener what is written in an execution; call what is returned to stop it.

        Parameters
        ----------
        parts
            Whether it hears all parts, and not only the text of models.
        """
        entry = _Entry(listener, parts)  # of its own, so that one listener added twice is two things to remove
        with self._lock:
            self._listeners[execution_id] = (*self._listeners.get(execution_id, ()), entry)
            for operation_id, written in self._texts.get(execution_id, {}).items():
                for part, text in written.items():
                    so_far = TextDelta(operation_id, text.length - text.held, "".join(text.pieces), part)
                    self._tell(execution_id, entry, so_far)
        return lambda: self._remove(execution_id, entry)

    def is_heard(self, execution_id: str) -> bool:
        """Whether it is worth while to stream in an execution."""
        return self.always or execution_id in self._listeners

    async def hand_on(self, execution_id: str, operation_id: str, call: StreamedCall) -> Any:
        """Make a call, hand what it writes meanwhile to the listeners, and return its result."""
        written: dict[str, _Text] = {}
        with self._lock:
            self._texts.setdefault(execution_id, {})[operation_id] = written

        def write(text: str, part: str = TEXT) -> None:
            with self._lock:
                so_far = written.setdefault(part, _Text())
                delta = TextDelta(operation_id, so_far.length, text, part)
                so_far.add(text)
                for entry in self._listeners.get(execution_id, ()):
                    self._tell(execution_id, entry, delta)

        try:
            return await call(write)
        finally:
            self._forget(execution_id, operation_id)

    def _tell(self, execution_id: str, entry: _Entry, delta: TextDelta) -> None:
        if not delta.text or (delta.part != TEXT and not entry.to_parts):
            return
        try:
            entry.listener(delta)
        except Exception:  # noqa: BLE001 - the run must not depend on who looks at it
            _log.exception("a listener to the text of %s failed, and gets no more of it", execution_id)
            self._remove(execution_id, entry)

    def _remove(self, execution_id: str, entry: _Entry) -> None:
        with self._lock:
            left = tuple(known for known in self._listeners.pop(execution_id, ()) if known is not entry)
            if left:
                self._listeners[execution_id] = left

    def _forget(self, execution_id: str, operation_id: str) -> None:
        with self._lock:
            texts = self._texts[execution_id]
            del texts[operation_id]
            if not texts:
                del self._texts[execution_id]
