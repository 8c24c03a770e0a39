"""The ids of one log, by which an id that is given twice is found.

An id begins with its time, so those of a log ascend, and the highest one tells that others are new. Where they do not
ascend (a clock was set back, somebody else's ids), all are looked at. Ids that are made in one millisecond differ in
their last two letters only (`divebook.execution.clock.Ids`), and so do those of a record: all are kept by what they
have in common, with a bit for each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias

from divebook.errors import InvalidEventError
from divebook.events.ids import place_of, successor
from divebook.events.record import Record

Ids: TypeAlias = tuple[str, int]
"""The ids of a record: the first of them, and how many there are."""


Bounds: TypeAlias = tuple[str, str]
"""The lowest and the highest id of some records, in the order of texts."""


class KnownIds:
    """The ids of a log.

    Parameters
    ----------
    highest
        The highest of those that are in it already; None if that is not known.
    """

    __slots__ = ("_all", "_highest")

    def __init__(self, highest: str | None = "") -> None:
        self._highest = highest
        self._all: _Taken | None = None
        """Each of them, once that had to be asked."""

    def refuse(self, records: Sequence[Record], bounds: Bounds, load: Callable[[], Iterable[Ids]]) -> None:
        """Raise `InvalidEventError` for the first id of some records that is among these; `load` gives these."""
        if self.are_below(bounds):
            return
        if self._all is None:
            self._all = _Taken()
            for first_id, width in load():
                self._all.add(first_id, width)
        index = 0
        for record in records:
            self._all.refuse(record, index)
            index += len(record.facts)

    def are_below(self, bounds: Bounds) -> bool:
        """Return whether all of these are known to be lower, so that no other is among them."""
        return self._highest is not None and bounds[0] > self._highest

    def add(self, records: Sequence[Record], bounds: Bounds) -> None:
        """Take in the ids of some records."""
        if self._highest is not None and bounds[1] > self._highest:
            self._highest = bounds[1]
        if self._all is not None:
            for record in records:
                self._all.add(record.id, len(record.facts))


def bounds_of(records: Sequence[Record]) -> Bounds:
    """Return between which ids those of some records lie, in whatever order.

    Raises
    ------
    InvalidEventError
        One of them is there twice.
    """
    known, index = _Taken(), 0
    for record in records:
        known.refuse(record, index)
        known.add(record.id, len(record.facts))
        index += len(record.facts)
    return min(record.id for record in records), max(map(last_id, records))


def last_id(record: Record) -> str:
    """Return the id of a record's last event."""
    width = len(record.facts)
    return record.id if width == 1 else successor(record.id, width - 1)


class _Taken:
    """A set of ids, by what they have in common."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}

    def add(self, first_id: str, width: int) -> None:
        common, first = place_of(first_id)
        self._places[common] = self._places.get(common, 0) | ((1 << width) - 1) << first

    def refuse(self, record: Record, index: int) -> None:
        """Raise `InvalidEventError` if an id of a record, whose first event has that index, is in the set."""
        common, first = place_of(record.id)
        double = self._places.get(common, 0) >> first & ((1 << len(record.facts)) - 1)
        if double:
            place = (double & -double).bit_length() - 1
            raise InvalidEventError(
                f"invalid event at index {index + place}: event id {record.events()[place].id} is already in the log"
            )
