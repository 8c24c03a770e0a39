"""A frame of events made event by event from `divebook.projections.spans`, to compare columns with."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import pandas as pd

from divebook.analysis.columns import CONSUMED
from divebook.analysis.log import EVENT_COLUMNS
from divebook.events import Event, catalog
from divebook.projections.spans import Span, Spans


class Told(NamedTuple):
    """An event and what was known as it came; spans change with later ones."""

    event: Event
    data: dict[str, Any]
    span: Span | None
    """What it is about."""
    call: Span | None
    """The same, where that is an operation."""
    usage: Mapping[str, int] | None
    """What that consumed, where this is its end."""
    duration: timedelta | None

    @property
    def name(self) -> str | None:
        return self.data.get("name") or getattr(self.span, "called", None)

    @property
    def iteration(self) -> int | None:
        return self.data.get("iteration_index") if self.span is None else self.span.iteration


CELLS = {
    "sequence": attrgetter("event.sequence"),
    "timestamp": attrgetter("event.timestamp"),
    "type": attrgetter("event.event_type"),
    "name": attrgetter("name"),
    "path": lambda told: told.event.path or None,
    "step": lambda told: told.event.step or None,
    "iteration": attrgetter("iteration"),
    "item": lambda told: getattr(told.span, "item", None),
    "operation_id": lambda told: told.data.get("operation_id"),
    "operation_type": lambda told: told.data.get("operation_type"),
    "agent": lambda told: getattr(told.call, "agent", None),
    "model": lambda told: getattr(told.call, "model", None),
    "attempts": lambda told: getattr(told.span, "attempts", None),
    "duration": attrgetter("duration"),
    **{name: column.value for name, column in CONSUMED.items()},
    "error_type": lambda told: next(iter(told.data.get("error_names") or ()), None),
    "error": lambda told: told.data.get("error"),
    "traceback": lambda told: told.data.get("trace"),
    "data": attrgetter("data"),
}


def told_frame(events: Iterable[Event]) -> pd.DataFrame:
    """Return the frame of a log, made event by event."""
    rows = [[cell(each) for cell in CELLS.values()] for each in told(events)]  # in turn: spans change with later ones
    columns = {name: [row[place] for row in rows] for place, name in enumerate(CELLS)}
    return pd.DataFrame({name: pd.Series(cells, dtype=EVENT_COLUMNS[name].dtype) for name, cells in columns.items()})


def told(events: Iterable[Event]) -> Iterator[Told]:
    """Take events one by one, and give what is known of each then."""
    spans, began = Spans(), dict[str, int]()
    for event in events:
        spans.take(event)
        span = spans.subject(event)
        call = span if span is not None and span.kind == "operation" else None
        is_end = isinstance(event.data, catalog.OperationCompleted | catalog.OperationFailed)
        usage = call.usage if is_end and call is not None else None
        yield Told(event, event.data.to_data(), span, call, usage, duration_of(event, span, began))


def duration_of(event: Event, span: Span | None, began: dict[str, int]) -> timedelta | None:
    """Return the time between an event and the start of what it ends; None if it ends nothing."""
    if isinstance(event.data, catalog.OperationCompleted | catalog.OperationFailed):
        return timedelta(microseconds=event.data.duration / 1000)
    subject, _, change = event.event_type.rpartition("_")
    if change not in ("started", "completed", "failed", "cancelled"):
        return None
    if subject not in ("execution", "path"):
        took = None if span is None or change == "started" else span.duration_us
        return None if took is None else timedelta(microseconds=took)
    start = began.setdefault(event.path, event.recorded_at)
    return None if change == "started" else timedelta(microseconds=event.recorded_at - start)
