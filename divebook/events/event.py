"""Events, their identifiers, and records: groups of events that are written together."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from divebook.errors import InvalidEventError
from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.payload import fast_init, wrong_field

MICROSECONDS = 1_000_000
"""Microseconds in a second. Times in logs are microseconds since 1970."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
"""Latest time that a datetime can represent, in microseconds since 1970."""


def to_datetime(microseconds: int) -> datetime:
    """Return the aware datetime (UTC) for a number of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """Return the number of microseconds since 1970 for an aware datetime."""
    return (moment - EPOCH) // timedelta(microseconds=1)


class Timed:
    """Base class of objects with a start and an end in microseconds; it adds both times as aware datetimes in UTC."""

    __slots__ = ()
    started_us: int | None
    ended_us: int | None

    @property
    def started_at(self) -> datetime | None:
        """Time of the start as an aware datetime in UTC, or None."""
        return None if self.started_us is None else to_datetime(self.started_us)

    @property
    def ended_at(self) -> datetime | None:
        """Time of the end as an aware datetime in UTC, or None."""
        return None if self.ended_us is None else to_datetime(self.ended_us)


@fast_init
@dataclass(frozen=True, slots=True)
class Event:
    """Recorded fact in the log of one execution: payload, time, sequence number, and path and step if any.

    Attributes
    ----------
    id
        ``event_`` and 26 characters, unique everywhere.
    execution_id
        The execution it belongs to.
    sequence
        1, 2, 3 ... without gaps within the execution.
    recorded_at
        Time of the event in microseconds since 1970, UTC. `timestamp` is the same time as a datetime.
    data
        Payload of the event. The class of the payload determines `event_type`.
    path, step
        Place in the workflow; empty for facts about the execution or about a whole path.
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
        """Name of the event's type, for example ``step_started``."""
        return self.data.event_type

    @property
    def timestamp(self) -> datetime:
        """Time at which the event was recorded, as an aware datetime in UTC."""
        return to_datetime(self.recorded_at)


def validate(event: Event) -> None:
    """Check all fields of an event except those of its payload, which `divebook.events.codec.valid_data` checks. Raise
    InvalidEventError unless they are complete and valid.
    """
    check_place(event)
    check_payload(event.data)


def check_place(entry: Any) -> None:  # an event, or a record
    """Raise InvalidEventError unless the id, execution, path, step, sequence number and time of an event or record are
    valid.
    """
    is_text = type(entry.id) is type(entry.execution_id) is type(entry.path) is type(entry.step) is str
    # Exact classes are compared first, which is fast. Only a wrong event pays for the check that describes its fault.
    if not is_text or type(entry.sequence) is not int or type(entry.recorded_at) is not int:
        # A subclass of str or int passes this check, as it fits the declared type. Stores and JSON need the class
        # itself.
        wrong = wrong_field(Event, {name: getattr(entry, name) for name in Event.__slots__ if name != "data"})
        raise InvalidEventError(
            wrong or "its strings and numbers must have exactly the types str and int, not a subclass"
        )
    if not entry.id:
        raise InvalidEventError("event id is required")
    if not entry.execution_id:
        raise InvalidEventError("execution id is required")
    if entry.sequence < 1:
        raise InvalidEventError(f"sequence must be positive, got {entry.sequence}")
    if not 0 < entry.recorded_at <= LATEST:
        early = ", before 1970: set the clock of this machine" if entry.recorded_at < 0 else ""
        raise InvalidEventError(
            f"timestamp is required and must be in a year up to 9999, got {entry.recorded_at} microseconds{early}"
        )


def check_payload(data: object) -> None:
    """Raise InvalidEventError if an object is not an instance of `Payload`."""
    if not isinstance(data, Payload):
        raise InvalidEventError(f"data is required and must be a payload, got {type(data).__name__}")


# --- identifiers ---
#
# In TypeID form: a prefix, an underscore, and a UUIDv7 as 26 characters of Crockford base32. The caller passes the time
# and the random bits, so this module stays pure.


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base32 alphabet; each letter represents five bits."""
PAIRS = tuple(high + low for high in ALPHABET for low in ALPHABET)
"""All pairs of letters in order: `PAIRS[n]` represents the ten-bit number n."""
_NUMBERS = {pair: number for number, pair in enumerate(PAIRS)}


def hashed_id(prefix: str, *about: object) -> str:
    """Return an identifier such as ``ask_b3c9a205d3bafd18``, computed from values that identify its object. It is
    therefore the same in a replay and in all copies of a log.

    Logs contain these ids, so the hashed text must never change.
    """
    return f"{prefix}_{hashlib.sha256('/'.join(map(str, about)).encode()).hexdigest()[:16]}"


def type_id(prefix: str, milliseconds: int, chance: int) -> str:
    """Return an identifier such as ``event_01k0...`` that sorts by time.

    Parameters
    ----------
    prefix
        ``exec``, ``event``, ...
    milliseconds
        Milliseconds since 1970; the lowest 48 bits are used.
    chance
        74 random bits.
    """
    # 48 bits of time fill the first ten letters. The other 80 bits are, from the top: version 7 (4 bits), chance (12),
    # variant 2 (2 bits), chance (62). The shifts take ten bits, which are one pair of letters, at a time.
    low = 0x7 << 76 | (chance >> 62 & 0xFFF) << 64 | 0x2 << 62 | chance & 0x3FFF_FFFF_FFFF_FFFF
    letters = "".join([PAIRS[low >> shift & 0x3FF] for shift in (70, 60, 50, 40, 30, 20, 10, 0)])
    return f"{prefix}_{_time_letters(milliseconds & 0xFFFF_FFFF_FFFF)}{letters}"


def successor(identifier: str, places: int) -> str:
    """Return the identifier that is `places` positions after `identifier` in order. Only the last two letters change;
    raise ValueError if they cannot be increased so far.

    Raises
    ------
    ValueError
        The identifier does not end with two letters of the alphabet, or the last two letters would overflow.

    Examples
    --------
    >>> successor("event_01k0000000e0000000000000zz"[:-2] + "0z", 1)[-2:]
    '10'
    """
    # The last two letters are a number below 1024. "...zz" has no successor, so the journal starts another record
    # there.
    number = _NUMBERS.get(identifier[-2:], len(PAIRS)) + places
    if number >= len(PAIRS):
        raise ValueError(f"there is no identifier {places} places after {identifier!r}")
    return identifier[:-2] + PAIRS[number]


def place_of(identifier: str) -> tuple[str | tuple[str], int]:
    """Split an identifier into a prefix and a number, so that consecutive identifiers have the same prefix, and numbers
    that increase by one from 0.

    An identifier without successors is returned in a tuple, at place 0, so that it cannot equal such a prefix.

    Examples
    --------
    >>> place_of("event_01k0000000e00000000000000z")
    ('event_01k0000000e0000000000000', 31)
    """
    place = _NUMBERS.get(identifier[-2:])
    return ((identifier,), 0) if place is None else (identifier[:-2], place)


@functools.lru_cache(maxsize=4)
def _time_letters(milliseconds: int) -> str:
    """Return the first ten letters of an identifier, which encode the time. All identifiers of one millisecond share
    them.
    """
    return "".join([PAIRS[milliseconds >> shift & 0x3FF] for shift in (40, 30, 20, 10, 0)])


# --- records ---
#
# A log is a list of records. A record of width `n` stands for `n` events that happened together, with consecutive
# sequence numbers and ids, the same time and the same path. For example the record with sequence 7 and the facts
# (StepCompleted, PathCompleted) stands for the events 7 and 8. Only the journal and fold of the engine and the stores
# use records. All other code gets events.


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
"""Payload classes of events about a whole path, which have no step in a record with several facts."""


@fast_init
@dataclass(frozen=True, slots=True)
class Record:
    """One or several consecutive events that are written together as one unit.

    Attributes
    ----------
    id
        Id of the first event; the ids of the other events are the successors of this id
        (`divebook.events.event.successor`).
    execution_id
        The execution it belongs to.
    sequence
        Sequence number of the first event.
    recorded_at
        Time of all events in the record, in microseconds since 1970, UTC.
    facts
        Payloads of the events, at least one.
    path, step
        Place of the events. Facts about a whole path have no step, unless they are alone in the record.
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
        """Return a record that contains only one given event."""
        return cls(
            event.id, event.execution_id, event.sequence, event.recorded_at, (event.data,), event.path, event.step
        )

    @property
    def last_sequence(self) -> int:
        """Sequence number of the record's last event."""
        return self.sequence + len(self.facts) - 1

    def events(self) -> list[Event]:
        """Return all events of the record."""
        return [self._event(place, data) for place, data in enumerate(self.facts)]

    def step_of(self, data: Payload) -> str:
        """Return the step of the event in this record that has the payload `data`. Return an empty string if this event
        is about a whole path, not a step.
        """
        return "" if len(self.facts) > 1 and type(data) in ON_NO_STEP else self.step

    def events_above(self, after: int, last: int) -> list[Event]:
        """Return the events of the record with sequence numbers above `after`, up to `last`."""
        # Record with the events 7, 8 and 9, `after` 7, `last` 20: the places 1 and 2, which are the events 8 and 9.
        places = range(max(0, after + 1 - self.sequence), min(len(self.facts), last + 1 - self.sequence))
        return [self._event(place, self.facts[place]) for place in places]

    def until(self, last: int) -> Record:
        """Return the record without its events after event number `last`; the record itself if there are none."""
        if self.last_sequence <= last:
            return self
        facts = self.facts[: last + 1 - self.sequence]
        # A fact about a whole path, such as `path_started`, has no step, although its record may have one.
        step = self.step_of(facts[0]) if len(facts) == 1 else self.step
        return replace(self, facts=facts, step=step)

    def _event(self, place: int, data: Payload) -> Event:
        # Ids are not stored: each is computed from the id of the record and the place of the event in it.
        event_id = successor(self.id, place) if place else self.id
        step = self.step_of(data)
        return Event(event_id, self.execution_id, self.sequence + place, self.recorded_at, data, self.path, step)
