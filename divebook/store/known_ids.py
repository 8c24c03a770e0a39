"""Whether a log holds an id already, without keeping every id.

The ids of a record differ in their last two letters only, so one stem stands for all of them. Two records with one stem
are all but impossible, unless a test makes ids by counting; only then the ids themselves are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from divebook.errors import InvalidEventError
from divebook.events.ids import successor
from divebook.events.record import Record


class Span(NamedTuple):
    """The ids of one record."""

    first: str
    width: int

    def ids(self) -> list[str]:
        """Return all of them."""
        return [self.first, *(successor(self.first, place) for place in range(1, self.width))]


def stem_of(event_id: str) -> str:
    """Return what all ids of a record have in common."""
    return event_id[:-2]


def refuse_twice(records: Sequence[Record], known: Iterable[Span] = ()) -> None:
    """Raise `InvalidEventError` for the first id of a batch that is in the log or in the batch already."""
    ids = {event_id for span in known for event_id in span.ids()}
    index = 0
    for record in records:
        for event_id in Span(record.id, len(record.facts)).ids():
            if event_id in ids:
                raise InvalidEventError(f"invalid event at index {index}: event id {event_id} is already in the log")
            ids.add(event_id)
            index += 1
