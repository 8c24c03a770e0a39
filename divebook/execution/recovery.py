"""How often an execution is resumed automatically: not for ever, as its log may kill each process that resumes it."""

from __future__ import annotations

import math

from divebook.errors import ExecutionError, NeedsPersonError
from divebook.events import Event, catalog
from divebook.execution.clock import MICROSECONDS
from divebook.store.base import EventStore
from divebook.text.durations import in_parts

PAUSES = (0, 60, 600)
"""Seconds since the attempt before, for each attempt in a row that is made without a person."""
TAIL = 200
"""Events at the end of a log among which the latest attempt is looked for; more of them are progress."""
_PROGRESS = (
    catalog.OperationCompleted,
    catalog.OperationFailed,
    catalog.IterationCompleted,
    catalog.IterationFailed,
    catalog.StepCompleted,
    catalog.InterruptRaised,
)
"""Events that are recorded once each: one of them shows that a resumed execution has made progress."""


def next_attempt(store: EventStore, execution_id: str, now: int) -> int:
    """Return the number of the attempt that may be made now, counted since the execution last made progress.

    Raises
    ------
    ExecutionError
        None may be made yet.
    NeedsPersonError
        None may be made any more.
    """
    last = store.record(execution_id).last_sequence
    latest = _latest_attempt(store.read(execution_id, max(0, last - TAIL)))
    if latest is None:
        return 1
    made, since = latest
    if made >= len(PAUSES):
        raise NeedsPersonError(
            f"execution {execution_id} needs a person: it was resumed {made} times automatically and interrupted each "
            "time before it made progress. Look at what it does next, then resume it"
        )
    left = PAUSES[made] - (now - since) / MICROSECONDS
    if left > 0:
        raise ExecutionError(
            f"execution {execution_id} was resumed {made} times automatically and made no progress; it is tried again "
            f"in {in_parts(math.ceil(left))}, or as soon as a person resumes it"
        )
    return made + 1


def attempts_made(store: EventStore, execution_id: str) -> int:
    """Return how often an execution was resumed automatically since it last made progress."""
    last = store.record(execution_id).last_sequence
    made, _ = _latest_attempt(store.read(execution_id, max(0, last - TAIL))) or (0, 0)
    return made


def _latest_attempt(events: list[Event]) -> tuple[int, int] | None:
    """Return number and time of the latest attempt, unless the execution has made progress or a person resumed it."""
    for event in reversed(events):
        if isinstance(event.data, _PROGRESS):
            return None
        if isinstance(event.data, catalog.ExecutionResumed):
            return None if event.data.recovery is None else (event.data.recovery, event.recorded_at)
    return None
