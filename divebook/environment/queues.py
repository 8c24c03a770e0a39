"""Options of executions that wait in a queue for a worker (`divebook.Worker`)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from divebook.errors import InputError, SetupError, shown_number
from divebook.events import catalog
from divebook.events.event import to_microseconds

DEFAULT_QUEUE = "default"
MOST_PRIORITY = 1_000_000


def enqueued_event(queue: Any, priority: Any, at: Any) -> catalog.ExecutionEnqueued:
    """Return the event that puts an execution into a queue; raises `SetupError` if an option does not fit."""
    if not isinstance(queue, str) or not queue.strip():
        raise SetupError(f"a queue has a name, not {queue!r}; write queue='labels'")
    if type(priority) is not int or abs(priority) > MOST_PRIORITY:
        most = f"{MOST_PRIORITY:,}"
        raise SetupError(
            f"a priority is a whole number from -{most} to {most}, not {shown_number(priority)}; write priority=0"
        )
    if at is not None and not isinstance(at, datetime):
        raise SetupError(f"at is a datetime, not {at!r}; write at=datetime.now() + timedelta(hours=1)")
    return catalog.ExecutionEnqueued(queue, priority, None if at is None else _microseconds(at))


def time_named(text: str | None) -> datetime | None:
    """Parse a time that a person has written, such as ``2026-05-01T08:00``; raises `InputError`."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"--at {text!r} is no time; write --at 2026-05-01T08:00") from error


def _microseconds(at: datetime) -> int:
    try:
        return to_microseconds(at.astimezone())
    except (ValueError, OverflowError) as error:  # with its zone it lies before the year 1, or after 9999
        raise SetupError(f"at is a time that clocks can show, not {at.isoformat()}; write a nearer one") from error
