"""What runs are doing, step by step: the rows that progress shows."""

from __future__ import annotations

from collections import deque

from divebook.engine.operations import TIMER
from divebook.events import Event
from divebook.history.spans import Span, Spans

KEPT = 200
"""Finished steps that are remembered; of older ones only the number."""


class Board:
    """The steps of all executions whose events it sees, each execution's events in order."""

    def __init__(self) -> None:
        self.finished: deque[Span] = deque(maxlen=KEPT)
        self.count = 0
        """Steps finished so far."""
        self.open: dict[tuple[str, str], Span] = {}
        """By execution and path, oldest first."""
        self._spans: dict[str, Spans] = {}

    def see(self, event: Event) -> Span | None:
        """Take in an event; return the step that has just begun or ended."""
        if getattr(event.data, "operation_type", TIMER) != TIMER:
            return None  # what rows do not show need not be remembered
        spans = self._spans.setdefault(event.execution_id, Spans())
        spans.take(event)
        changed, spans.changed = spans.changed.values(), {}
        return next((span for span in changed if span.kind == "step" and self._has_moved(event, span)), None)

    def _has_moved(self, event: Event, span: Span) -> bool:
        place = (event.execution_id, span.path)
        if span.ended_us is None:
            was_open, self.open[place] = place in self.open, span
            return not was_open
        if self.open.pop(place, None) is None:
            return False
        self.finished.append(span)
        self.count += 1
        return True

    def latest(self, limit: int) -> list[Span]:
        """Return at most `limit` rows: running ones before finished ones, shown in the order in which they began."""
        running = list(self.open.values())[:limit]
        room = limit - len(running)
        done = list(self.finished)[-room:] if room else []
        return sorted((*done, *running), key=lambda span: span.started_us)
