"""The past of one execution, read when it is looked at: a list of events that costs nothing until then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, overload

from divebook.events.event import Event
from divebook.events.recorded import collector_resting

if TYPE_CHECKING:
    from divebook.store.pages import EventPage

PAGE = 1000
"""Events read at once."""
COLUMNS = 8192
"""Events that are read at once as columns."""
KEPT = 32
"""Pages that are kept, so that whoever goes through a log of usual length twice reads it once."""


class Reads(Protocol):
    """What a history asks of a store."""

    def read(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events with sequences above `after`, at most `limit`."""

    def page(self, execution_id: str, after: int, limit: int) -> EventPage:
        """Return them as columns."""


class History(Sequence[Event]):
    """Events of one log, as many as there were when it was made; they are read from the store a page at a time.

    It stands for a list: it can be indexed, sliced, gone through and compared. Its length is known without reading.
    A copy that outlives the store, or the execution, is ``list(history)``.

    Parameters
    ----------
    after
        Sequence number of the event before the first one.
    last
        Sequence number of the last one.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> history = environment.start(Workflow("sum", [Step("add", script="1 + 1")])).wait().history()
    >>> len(history), history[-1].event_type, [event.sequence for event in history[2:4]]
    (8, 'execution_completed', [3, 4])
    """

    def __init__(self, store: Reads, execution_id: str, after: int, last: int) -> None:
        self.store = store
        self.execution_id = execution_id
        self.after = after
        self._length = max(last - after, 0)
        self._pages: dict[int, list[Event]] = {}

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Event]:
        for number in range(-(-self._length // PAGE)):
            yield from self._page(number)

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> list[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | list[Event]:
        if isinstance(place, slice):
            return [self._at(index) for index in range(*place.indices(self._length))]
        index = place + self._length if place < 0 else place
        if not 0 <= index < self._length:
            raise IndexError(f"there are {self._length} events, and none at {place}")
        return self._at(index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return f"<History of {self._length} events of {self.execution_id}>"

    def pages(self) -> Iterator[EventPage]:
        """Give the events as columns."""
        for begins in range(0, self._length, COLUMNS):
            yield self.store.page(self.execution_id, self.after + begins, min(COLUMNS, self._length - begins))

    def at_once(self) -> list[Event]:
        """Return all events, without their ids: for readers of a whole log, in a third of the time."""
        with collector_resting():
            return [event for page in self.pages() for event in page.events(self.execution_id)]

    def _at(self, index: int) -> Event:
        return self._page(index // PAGE)[index % PAGE]

    def _page(self, number: int) -> list[Event]:
        known = self._pages.get(number)
        if known is None:
            begins = number * PAGE
            known = self.store.read(self.execution_id, self.after + begins, min(PAGE, self._length - begins))
            if len(self._pages) >= KEPT:
                self._pages.pop(next(iter(self._pages)), None)
            self._pages[number] = known
        return known
