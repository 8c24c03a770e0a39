"""One recorded fact: who, where, when, and a typed payload."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from divebook.errors import InvalidEventError
from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.payload import quickly_made, wrong_field

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


# Identifiers in TypeID form: a prefix, an underscore, and a UUIDv7 as 26 characters of Crockford base32.
#
# The clock and the chance they need come from outside, so that this module stays pure.


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's, of five bits a letter."""
PAIRS = tuple(high + low for high in ALPHABET for low in ALPHABET)
"""Every two letters, in order: what ten bits are written as."""
_NUMBERS = {pair: number for number, pair in enumerate(PAIRS)}


def type_id(prefix: str, milliseconds: int, chance: int) -> str:
    """Return an identifier that sorts by time.

    Parameters
    ----------
    prefix
        ``exec``, ``event``, ...
    milliseconds
        Since 1970; 48 bits of it are used.
    chance
        74 random bits.
    """
    low = 0x7 << 76 | (chance >> 62 & 0xFFF) << 64 | 0x2 << 62 | chance & 0x3FFF_FFFF_FFFF_FFFF
    letters = "".join([PAIRS[low >> shift & 0x3FF] for shift in (70, 60, 50, 40, 30, 20, 10, 0)])
    return f"{prefix}_{_time_letters(milliseconds & 0xFFFF_FFFF_FFFF)}{letters}"


def successor(identifier: str, places: int) -> str:
    """Return the identifier so many places after another; its last two letters count, and must not overflow.

    Raises
    ------
    ValueError
        The identifier does not end with two such letters, or there are not so many places after it.

    Examples
    --------
    >>> successor("event_01k0000000e0000000000000zz"[:-2] + "0z", 1)[-2:]
    '10'
    """
    number = _NUMBERS.get(identifier[-2:], len(PAIRS)) + places
    if number >= len(PAIRS):
        raise ValueError(f"there is no identifier {places} places after {identifier!r}")
    return identifier[:-2] + PAIRS[number]


def place_of(identifier: str) -> tuple[str | tuple[str], int]:
    """Return what an identifier has in common with its successors, and its place among them.

    One that has no successors is in a tuple, at place 0, so that it is not taken for the beginning of another.

    Examples
    --------
    >>> place_of("event_01k0000000e00000000000000z")
    ('event_01k0000000e0000000000000', 31)
    """
    place = _NUMBERS.get(identifier[-2:])
    return ((identifier,), 0) if place is None else (identifier[:-2], place)


@functools.lru_cache(maxsize=4)
def _time_letters(milliseconds: int) -> str:
    """Return the first ten letters, which all identifiers of one millisecond share."""
    return "".join([PAIRS[milliseconds >> shift & 0x3FF] for shift in (40, 30, 20, 10, 0)])


# What is written at once: one record stands for one event, or for several that happened together.
#
# A log is a list of records. Whoever reads sees events: a record of width `n` is the `n` events that it stands for,
# with successive sequence numbers and ids, at one moment and on one path. Only the engine's journal and fold and the
# stores know records.


ON_NO_STEP: frozenset[type[catalog.Payload]] = frozenset(
    {
        catalog.PathStarted,
        catalog.PathWaiting,
        catalog.PathJoined,
        catalog.PathCompleted,
        catalog.PathFailed,
        catalog.PathCancelled,
    }
)
"""What is said of a path as a whole; among others in one record it has no step."""


@quickly_made
@dataclass(frozen=True, slots=True)
class Record:
    """Facts that were recorded together.

    Attributes
    ----------
    id
        That of its first event; those of the others follow it (`divebook.events.event.successor`).
    execution_id
        The execution it belongs to.
    sequence
        Of its first event.
    recorded_at
        Microseconds since 1970, UTC, for all of its events.
    facts
        The payloads of its events, at least one.
    path, step
        Of its events; what is said of a path as a whole has no step, unless it is alone.
    """

    id: str
    execution_id: str
    sequence: int
    recorded_at: int
    facts: tuple[Payload, ...]
    path: str = ""
    step: str = ""

    @classmethod
    def of(cls, event: Event) -> Record:
        """Return the record that stands for one event."""
        return cls(
            event.id, event.execution_id, event.sequence, event.recorded_at, (event.data,), event.path, event.step
        )

    @property
    def last_sequence(self) -> int:
        """Of its last event."""
        return self.sequence + len(self.facts) - 1

    def events(self) -> list[Event]:
        """Return the events that it stands for."""
        return [self._event(place, data) for place, data in enumerate(self.facts)]

    def step_of(self, data: Payload) -> str:
        """Return the step that one of its facts is about; empty for what is said of the path."""
        return "" if len(self.facts) > 1 and type(data) in ON_NO_STEP else self.step

    def events_above(self, after: int, last: int) -> list[Event]:
        """Return those of its events whose sequence numbers are above `after`, up to `last`."""
        places = range(max(0, after + 1 - self.sequence), min(len(self.facts), last + 1 - self.sequence))
        return [self._event(place, self.facts[place]) for place in places]

    def _event(self, place: int, data: Payload) -> Event:
        event_id = successor(self.id, place) if place else self.id
        step = self.step_of(data)
        return Event(event_id, self.execution_id, self.sequence + place, self.recorded_at, data, self.path, step)
