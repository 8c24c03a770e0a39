"""The spans of one log as traces have them: each with the one that holds it, told once, when it ends.

Ids are made of the execution's id and of places in its log, so that whichever process goes on with an execution, days
later perhaps, adds to the same trace; and a process that reads what was recorded before it knows them as well.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from divebook.events import Event, catalog
from divebook.history.span import Span
from divebook.history.spans import Spans

ROOT = -1
"""Number of the whole execution among its spans."""
_ENDS = (catalog.ExecutionCompleted, catalog.ExecutionFailed, catalog.ExecutionCancelled)


class EndedSpan(NamedTuple):
    """A span that has ended; of what was begun again after its end there is another one."""

    place: str
    """Where in the log it began, which its id is made of."""
    began_us: int
    ended_us: int
    """Both in microseconds since 1970."""
    parent: str | None
    """The place of what holds it."""
    span: Span | None
    """None for the execution."""
    end: catalog.Payload | None = None
    """How the execution ended."""
    served: bool = False
    """Whether the call was answered from another log, in a what-if, and not made."""


class TracedLog:
    """One execution, as far as its log was heard."""

    def __init__(self) -> None:
        self.workflow = ""
        self.came_from: str | None = None
        """The execution that it is a child or a fork of."""
        self.last = 0
        """Number of the last event that was heard."""
        self._spans = Spans()
        self._began: dict[int, int] = {}
        self._began_at: dict[int, int] = {}
        """The event with which a call began, the last time."""
        self._again: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        self._over: set[int] = set()
        self._places: dict[tuple[str, int | None], int] = {}
        """The step that a path is in, and its items, by their numbers."""

    def take(self, event: Event) -> list[EndedSpan]:
        """Return what has ended with an event, the innermost first."""
        data, self.last = event.data, event.sequence
        if isinstance(data, catalog.ExecutionStarted):
            self.workflow, self.came_from = data.workflow_name, data.parent
        elif isinstance(data, catalog.ExecutionForked):
            self.workflow, self.came_from = data.workflow_name or self.workflow, data.source
        if ROOT not in self._began or (ROOT in self._over and isinstance(data, catalog.ExecutionResumed)):
            self._begin(ROOT, event.recorded_at)
        if isinstance(data, catalog.ExecutionForked):  # what it has of its source is told of that, and took its time
            self._over.discard(ROOT)
            self._began |= {number: event.recorded_at for number in self._began if number not in self._over}
        self._spans.take(event)
        served = isinstance(data, catalog.OperationCompleted | catalog.OperationFailed) and data.served is not None
        changed = sorted(self._spans.changed.values(), key=lambda span: span.index)
        self._spans.changed.clear()
        for span in changed:
            if isinstance(data, catalog.OperationStarted) and span.operation_id == data.operation_id:
                self._began_at[span.index] = event.sequence
            if span.index not in self._began:
                self._enter(span)
                self._begin(span.index, span.started_us)
            elif span.ended_us is None and span.index in self._over:
                self._begin(span.index, event.recorded_at)
        ended = [self._end(span)._replace(served=served) for span in reversed(changed) if self._is_newly_over(span)]
        if isinstance(data, _ENDS):
            self._over.add(ROOT)
            ended.append(EndedSpan(self._place(ROOT), self._began[ROOT], event.recorded_at, None, None, data))
        return ended

    def _enter(self, span: Span) -> None:
        step = self._places.get((span.path, None), ROOT)
        if span.kind == "step":
            parent, self._places[span.path, None] = ROOT, span.index
        elif span.kind == "item":
            parent, self._places[span.path, span.iteration] = step, span.index
        else:
            item = step if span.iteration is None else self._places.get((span.path, span.iteration), step)
            parent = item if span.holder < 0 else span.holder
        self._parents[span.index] = parent

    def _begin(self, number: int, at: int) -> None:
        self._began[number] = at
        self._again[number] = self._again.get(number, -1) + 1
        self._over.discard(number)

    def _is_newly_over(self, span: Span) -> bool:
        return span.ended_us is not None and span.index not in self._over

    def _end(self, span: Span) -> EndedSpan:
        assert span.ended_us is not None  # noqa: S101 - whoever calls has looked
        self._over.add(span.index)
        parent = self._parents[span.index]
        began = min(self._began[span.index], span.ended_us)
        return EndedSpan(self._place(span.index), began, span.ended_us, self._place(parent), span)

    def _place(self, number: int) -> str:
        began_at = self._began_at.get(number)
        return place_of(number, self._again[number]) if began_at is None else place_of_call(began_at)


def place_of(number: int, again: int = 0) -> str:
    """Return the place of a span by its number, and how often it had ended before; the execution is `ROOT`."""
    return f"{number}/{again}"


def place_of_call(sequence: int) -> str:
    """Return the place of a call by the number of the event with which it began."""
    return f"event {sequence}"


def trace_id(execution_id: str) -> int:
    """Return the number of an execution's trace, 128 bits."""
    return int.from_bytes(_digest(execution_id)[:16])


def span_id(execution_id: str, place: str) -> int:
    """Return the number of a span, 64 bits."""
    return int.from_bytes(_digest(f"{execution_id}/{place}")[:8])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
