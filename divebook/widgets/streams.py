"""What is being written now: pieces come from the engine's thread, frames take them on to the browser, part by part.

A secret may come in two pieces: the end of a text is held back while it may be the beginning of one. Where more comes
than frames take, a part of the middle is left out, as far as the end of a line: half a secret may stand before that.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from divebook.execution.streaming import TextDelta
from divebook.history.spans import Spans
from divebook.text.redaction import Redactor, shared
from divebook.widgets.protocol.run import Streamed
from divebook.widgets.source import encodable

KEPT = 16_000
"""Characters of a text's end that a view which comes later still gets."""
PER_FRAME = 32_000
MOST_WAITING = 1 << 18
"""Characters that wait for the next frame."""


@dataclass(slots=True)
class _Text:
    """The end of a text; places count characters of what is shown of it, without secrets."""

    length: int = 0
    """Of all that came, secrets and all."""
    raw: str = ""
    base: int = 0
    """Where `clean` begins."""
    clean: str = ""
    sent: int = 0
    is_told: bool = True
    is_cut: bool = False
    """Whether pieces were dropped, and what comes may be the rest of what they began."""

    @property
    def end(self) -> int:
        return self.base + len(self.clean)

    def add(self, at: int, piece: str) -> None:
        end = at + len(piece)
        if at != self.length:
            self.base = self.sent = max(at, self.end)
            self.raw = self.clean = ""
        self.length = end
        if self.is_cut:
            _, line_end, piece = piece.partition("\n")
            self.is_cut = not line_end
        self.raw += piece

    def settle(self, redactor: Redactor) -> None:
        """Take over what may be shown by now; what was shown and turns out to be part of a secret is taken back."""
        clean = redactor.text(self.raw[: redactor.settled(self.raw)])
        if not clean.startswith(self.clean):
            self.base = self.sent = 0  # at 0 a page begins anew
        self.is_told &= clean == self.clean
        self.clean = clean
        if len(self.raw) > 2 * KEPT:
            self._forget_beginning(redactor)

    def _forget_beginning(self, redactor: Redactor) -> None:
        """Forget all but the end, at a line, or else anywhere, where no secret is cut in two."""
        whole, most = redactor.text(self.raw), len(self.raw) - KEPT
        for place in (self.raw.rfind("\n", 0, most) + 1, most):
            beginning, rest = redactor.text(self.raw[:place]), redactor.text(self.raw[place:])
            if place and beginning + rest == whole:
                self.raw, self.clean = self.raw[place:], self.clean[len(beginning) :]
                self.base += len(beginning)
                return

    def since(self, place: int, limit: int) -> tuple[int, str]:
        """Return the text after `place`, and where it begins."""
        wanted = min(self.end - place, len(self.clean), limit)
        return self.end - wanted, self.clean[len(self.clean) - wanted :]


class Streams:
    """The texts of calls that run, by span."""

    def __init__(self, builder: Spans) -> None:
        self._builder = builder
        self._inbox: deque[TextDelta] = deque()
        self._waiting = 0
        """Characters in it."""
        self._dropped: set[tuple[str, str]] = set()
        """Of which texts pieces are not in it."""
        self._lock = threading.Lock()
        self._texts: dict[tuple[str, str], _Text] = {}
        """By operation and part."""

    def put(self, delta: TextDelta) -> None:
        """Add a piece to the text of a call; any thread."""
        with self._lock:
            self._inbox.append(delta)
            self._waiting += len(delta.text)
            while self._waiting > MOST_WAITING and len(self._inbox) > 1:
                dropped = self._inbox.popleft()
                self._waiting -= len(dropped.text)
                self._dropped.add((dropped.operation_id, encodable(dropped.part)))

    @property
    def has_news(self) -> bool:
        """Whether pieces wait."""
        return bool(self._inbox)

    def pieces(self) -> list[Streamed]:
        """Return what came since the last call; the texts of calls that have ended are forgotten."""
        with self._lock:
            inbox, self._inbox, self._waiting = self._inbox, deque(), 0
            dropped, self._dropped = self._dropped, set()
        for name in dropped:
            self._texts.setdefault(name, _Text()).is_cut = True
        grown: set[tuple[str, str]] = set()
        for delta in inbox:
            name = delta.operation_id, encodable(delta.part)
            if delta.at == 0 or name not in self._texts:
                self._texts[name] = _Text()
            self._texts[name].add(delta.at, encodable(delta.text))
            grown.add(name)
        for name in grown:
            self._texts[name].settle(shared())
        told, left = [], PER_FRAME
        for (operation_id, part), text in list(self._texts.items()):
            span = self._builder.running_operation(operation_id)
            if span is None:
                self._forget_if_over(operation_id, part)
            elif not text.is_told and left:
                at, piece = text.since(text.sent, left)
                text.sent, text.is_told, left = text.end, True, left - len(piece)
                told.append(Streamed(id=span.index, part=part, at=at, text=piece))
        return told

    def so_far(self) -> list[Streamed]:
        """Return the ends of all texts as far as frames have sent them."""
        told = []
        for (operation_id, part), text in self._texts.items():
            span = self._builder.running_operation(operation_id)
            if span is not None and text.is_told:
                at, tail = text.since(0, KEPT)
                told.append(Streamed(id=span.index, part=part, at=at, text=tail))
        return told

    def _forget_if_over(self, operation_id: str, part: str) -> None:
        if self._builder.knows_operation(operation_id):
            del self._texts[operation_id, part]
