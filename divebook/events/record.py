"""What is written at once: one record stands for one event, or for several that happened together.

A log is a list of records. Whoever reads sees events: a record of width `n` is the `n` events that it stands for, with
successive sequence numbers and ids, at one moment and on one path. Only the engine's journal and fold and the stores
know records.
"""

from __future__ import annotations

from dataclasses import dataclass

from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.event import Event
from divebook.events.frozen import quickly_made
from divebook.events.ids import successor

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
        That of its first event; those of the others follow it (`divebook.events.ids.successor`).
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
        event_id, step = successor(self.id, place) if place else self.id, self.step_of(data)
        return Event(event_id, self.execution_id, self.sequence + place, self.recorded_at, data, self.path, step)
