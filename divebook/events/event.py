"""One recorded fact: who, where, when, and a typed payload."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from divebook.errors import InvalidEventError
from divebook.events.catalog import Payload
from divebook.events.frozen import quickly_made
from divebook.events.shapes import wrong_field

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
"""Microseconds since 1970 that a datetime holds at most."""


def to_datetime(microseconds: int) -> datetime:
    """Turn microseconds since 1970 (UTC) into an aware datetime."""
    return EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """Turn an aware datetime into microseconds since 1970 (UTC)."""
    return (moment - EPOCH) // timedelta(microseconds=1)


class Timed:
    """Base of what begins and ends: its times as datetimes, UTC."""

    __slots__ = ()
    started_us: int | None
    ended_us: int | None

    @property
    def started_at(self) -> datetime | None:
        """When it began."""
        return None if self.started_us is None else to_datetime(self.started_us)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended."""
        return None if self.ended_us is None else to_datetime(self.ended_us)


@quickly_made
@dataclass(frozen=True, slots=True)
class Event:
    """A fact in the log of one execution.

    Attributes
    ----------
    id
        ``event_`` and 26 characters, unique everywhere.
    execution_id
        The execution it belongs to.
    sequence
        1, 2, 3 ... without gaps within the execution.
    recorded_at
        Microseconds since 1970, UTC; `timestamp` is the same as a datetime.
    data
        The typed payload; its class decides `event_type`.
    path, step
        Where in the workflow; empty for facts about the execution or about a path as a whole.
    """

    id: str
    execution_id: str
    sequence: int
    recorded_at: int
    data: Payload
    path: str = ""
    step: str = ""

    @property
    def event_type(self) -> str:
        """Name of the payload's type, for example ``step_started``."""
        return self.data.event_type

    @property
    def timestamp(self) -> datetime:
        """When it was recorded, aware, UTC."""
        return to_datetime(self.recorded_at)


def validate(event: Event) -> None:
    """Raise InvalidEventError unless the event's own fields are complete, and hold what they should."""
    check_placed(event)
    check_payload(event.data)


def check_placed(entry: Any) -> None:  # an event, or a record
    """Raise InvalidEventError unless it is said who, where and when."""
    is_text = type(entry.id) is type(entry.execution_id) is type(entry.path) is type(entry.step) is str
    if not is_text or type(entry.sequence) is not int or type(entry.recorded_at) is not int:
        wrong = wrong_field(Event, {name: getattr(entry, name) for name in Event.__slots__ if name != "data"})
        raise InvalidEventError(wrong or "its texts and numbers must be of the very types str and int")
    if not entry.id:
        raise InvalidEventError("event id is required")
    if not entry.execution_id:
        raise InvalidEventError("execution id is required")
    if entry.sequence < 1:
        raise InvalidEventError(f"sequence must be positive, got {entry.sequence}")
    if not 0 < entry.recorded_at <= LATEST:
        early = ", before 1970: set the clock of this machine" if entry.recorded_at < 0 else ""
        raise InvalidEventError(
            f"timestamp is required, of a year up to 9999, got {entry.recorded_at} microseconds{early}"
        )


def check_payload(data: object) -> None:
    """Raise InvalidEventError unless it is one."""
    if not isinstance(data, Payload):
        raise InvalidEventError(f"data is required and must be a payload, got {type(data).__name__}")
