"""The rows that progress shows: what runs are doing, step by step."""

from __future__ import annotations

from collections import deque

from divebook.history.spans import Span

KEPT = 200
"""Finished steps that are remembered; of older ones only the number."""


class Board:
    """The steps of all executions that it is given."""

    def __init__(self) -> None:
        self.finished: deque[Span] = deque(maxlen=KEPT)
        self.count = 0
        """Steps finished so far."""
        self.running: dict[int, Span] = {}
        """By identity, oldest first."""

    def take(self, span: Span) -> None:
        """Take in a step that has just begun or ended."""
        if span.ended_us is None:
            self.running[id(span)] = span
            return
        self.running.pop(id(span), None)
        self.finished.append(span)
        self.count += 1

    def latest(self, limit: int) -> list[Span]:
        """Return at most `limit` rows: running ones before finished ones, shown in the order in which they began."""
        running = list(self.running.values())[:limit]
        room = limit - len(running)
        done = list(self.finished)[-room:] if room else []
        return sorted((*done, *running), key=lambda span: span.started_us)
