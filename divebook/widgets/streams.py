"""Texts that models are writing now: pieces come from the engine's thread, frames take them on to the browser."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from divebook.execution.streaming import TextDelta
from divebook.history.spans import Spans
from divebook.widgets.protocol import Streamed
from divebook.widgets.source import encodable

KEPT = 16_000
"""Characters of a text's end that a view which comes later still gets."""
PER_FRAME = 32_000
WAITING_PIECES = 10_000
"""Pieces of calls that the log does not know yet."""


@dataclass(slots=True)
class _Text:
    length: int = 0
    tail: str = ""
    sent: int = 0

    def add(self, at: int, piece: str) -> None:
        kept = self.tail if at == self.length else ""
        self.length = at + len(piece)
        self.tail = (kept + piece)[-KEPT:]

    def since(self, place: int, limit: int) -> tuple[int, str]:
        """Return the text after `place`, and where it begins."""
        wanted = min(self.length - place, len(self.tail), limit)
        return self.length - wanted, self.tail[len(self.tail) - wanted :]


class Streams:
    """The texts of calls that run, by span."""

    def __init__(self, builder: Spans) -> None:
        self._builder = builder
        self._inbox: deque[TextDelta] = deque(maxlen=WAITING_PIECES)
        self._texts: dict[str, _Text] = {}

    def put(self, delta: TextDelta) -> None:
        """Add a piece to the text of a call; any thread."""
        self._inbox.append(delta)

    @property
    def has_news(self) -> bool:
        """Whether pieces wait."""
        return bool(self._inbox)

    def pieces(self) -> list[Streamed]:
        """Return what came since the last call; the texts of calls that have ended are forgotten."""
        for _ in range(len(self._inbox)):
            delta = self._inbox.popleft()
            if delta.at == 0 or delta.operation_id not in self._texts:
                self._texts[delta.operation_id] = _Text()
            self._texts[delta.operation_id].add(delta.at, encodable(delta.text))
        told, left = [], PER_FRAME
        for operation_id, text in list(self._texts.items()):
            span = self._builder.running_operation(operation_id)
            if span is None:
                self._forget_if_over(operation_id)
            elif text.length > text.sent and left:
                at, piece = text.since(text.sent, left)
                text.sent, left = text.length, left - len(piece)
                told.append(Streamed(id=span.index, at=at, text=piece))
        return told

    def so_far(self) -> list[Streamed]:
        """Return the ends of all texts as far as frames have told them."""
        told = []
        for operation_id, text in self._texts.items():
            span = self._builder.running_operation(operation_id)
            if span is not None and text.sent == text.length:
                at, tail = text.since(0, KEPT)
                told.append(Streamed(id=span.index, at=at, text=tail))
        return told

    def _forget_if_over(self, operation_id: str) -> None:
        if self._builder.knows_operation(operation_id):
            del self._texts[operation_id]
