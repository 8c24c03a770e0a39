"""What a run is doing, step by step, as far as its events tell: the rows that progress shows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from divebook.engine.operations import TIMER
from divebook.events import Event, catalog

KEPT = 200
"""Finished steps that are remembered; of older ones only the number."""


@dataclass(slots=True)
class Row:
    """One visit of a step."""

    path: str
    step: str
    started: int
    """Microseconds since 1970."""
    status: str = catalog.RUNNING
    ended: int | None = None
    items: int = 0
    """Finished items of `Each`."""
    error: str = ""

    def elapsed(self, now: int) -> float:
        """Return seconds since it began, or how long it took."""
        return ((self.ended or now) - self.started) / 1_000_000


class Board:
    """The rows of one execution; fed with its events in order."""

    def __init__(self) -> None:
        self.open: dict[str, Row] = {}
        """By path, oldest first."""
        self.finished: deque[Row] = deque(maxlen=KEPT)
        self.count = 0
        """Steps finished so far."""

    def see(self, event: Event) -> Row | None:
        """Take in an event; return the row of a step that has just begun or ended."""
        match event.data:
            case catalog.StepStarted():
                row = self.open[event.path] = Row(event.path, event.step, event.recorded_at)
                return row
            case catalog.StepCompleted():
                return self._end(event, catalog.COMPLETED)
            case catalog.StepFailed(error=error):
                return self._end(event, catalog.FAILED, error)
            case catalog.PathCancelled(reason=reason):
                return self._end(event, catalog.CANCELLED, reason)
        self._update(event)
        return None

    def _update(self, event: Event) -> None:
        row = self.open.get(event.path)
        if row is None:
            return
        match event.data:
            case catalog.IterationCompleted():
                row.items += 1
            case catalog.OperationStarted(operation_type=kind) if kind == TIMER:
                row.status = catalog.WAITING
            case catalog.OperationCompleted(operation_type=kind) if kind == TIMER:
                row.status = catalog.RUNNING

    def _end(self, event: Event, status: str, error: str = "") -> Row | None:
        row = self.open.pop(event.path, None)
        if row is None:
            return None
        row.status, row.ended, row.error = status, event.recorded_at, error
        self.finished.append(row)
        self.count += 1
        return row

    def latest(self, limit: int) -> list[Row]:
        """Return at most `limit` rows: running ones before finished ones, shown in the order in which they began."""
        running = list(self.open.values())[:limit]
        room = limit - len(running)
        done = list(self.finished)[-room:] if room else []
        return sorted((*done, *running), key=lambda row: row.started)
