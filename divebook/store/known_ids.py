"""The ids of one log, by which an id that is given twice is found.

Ids that are made in one millisecond differ in their last two letters only (`divebook.execution.clock.Ids`), and so do
those of a record. So they are kept by what they have in common, with a bit for each.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

from divebook.errors import InvalidEventError
from divebook.events.ids import place_of
from divebook.events.record import Record

Span: TypeAlias = tuple[Hashable, int, int]
"""The ids of a record: what they have in common, the place of the first among all that have that, and how many."""


def span_of(record: Record) -> Span:
    """Return the ids of a record."""
    return *place_of(record.id), len(record.facts)


class KnownIds:
    """A set of ids."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: dict[Hashable, int] = {}

    def add(self, spans: Sequence[Span]) -> None:
        """Add the ids of records."""
        taken = self._taken
        for common, first, width in spans:
            taken[common] = taken.get(common, 0) | ((1 << width) - 1) << first

    def refuse(self, record: Record, span: Span, index: int) -> None:
        """Raise `InvalidEventError` if an id of a record, whose first event has that index, is among these."""
        common, first, width = span
        double = self._taken.get(common, 0) >> first & ((1 << width) - 1)
        if double:
            place = (double & -double).bit_length() - 1
            raise InvalidEventError(
                f"invalid event at index {index + place}: event id {record.events()[place].id} is already in the log"
            )

    def refuse_all(self, records: Sequence[Record], spans: Sequence[Span]) -> None:
        """Raise `InvalidEventError` for the first id of some records that is among these."""
        index = 0
        for record, span in zip(records, spans, strict=True):
            self.refuse(record, span, index)
            index += span[2]


def refuse_twice(records: Sequence[Record]) -> None:
    """Raise `InvalidEventError` for the first id that some records have twice."""
    known, index = KnownIds(), 0
    for record in records:
        span = span_of(record)
        known.refuse(record, span, index)
        known.add([span])
        index += span[2]
