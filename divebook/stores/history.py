"""`History`: the events of one execution as a sequence that reads events from the store when they are accessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, overload

from divebook.events.event import Event
from divebook.events.recorded import garbage_collection_paused

if TYPE_CHECKING:
    from divebook.stores.pages import EventPage

PAGE = 1000
"""Number of events that one read of the store returns."""
COLUMN_PAGE = 8192
"""Number of events that one read of the store returns as columns."""
MAX_PAGES = 32
"""Maximum number of cached pages. A second iteration over a log of usual length reads nothing."""


class EventReader(Protocol):
    """Interface of the store methods with which `History` reads events."""

    def read(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events of a log with sequence numbers above `after`, at most `limit` events."""

    def page(self, execution_id: str, after: int, limit: int) -> EventPage:
        """Return the events of a log with sequence numbers above `after`, at most `limit` events, as columns."""


class History(Sequence[Event]):
    """Events of one log as a read-only sequence. Accessing the sequence reads events from the store, one page at a
    time.

    It behaves like a list: it can be indexed, sliced, iterated and compared. Its length is known without reading.
    ``list(history)`` is a copy that remains valid after the store is closed or the execution is deleted.

    Parameters
    ----------
    after
        Sequence number of the event before the first one.
    last
        Sequence number of the last event.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> history = environment.start(Workflow("sum", [Step("add", script="1 + 1")])).wait().history()
    >>> len(history), history[-1].event_type, [event.sequence for event in history[2:4]]
    (8, 'execution_completed', [3, 4])
    """

    def __init__(self, store: EventReader, execution_id: str, after: int, last: int) -> None:
        self.store = store
        self.execution_id = execution_id
        self.after = after
        self._length = max(last - after, 0)
        self._pages: dict[int, list[Event]] = {}

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Event]:
        # The division rounds up: -(-2001 // 1000) == 3.
        for number in range(-(-self._length // PAGE)):
            yield from self._page(number)

    @overload
    def __getitem__(self, key: int) -> Event: ...
    @overload
    def __getitem__(self, key: slice) -> list[Event]: ...
    def __getitem__(self, key: int | slice) -> Event | list[Event]:
        if isinstance(key, slice):
            return [self._at(index) for index in range(*key.indices(self._length))]
        index = key + self._length if key < 0 else key
        if not 0 <= index < self._length:
            raise IndexError(f"there are {self._length} events, so there is no event at index {key}")
        return self._at(index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        # Lengths are known without reading.
        if len(self) != len(other):
            return False
        return all(event == other_event for event, other_event in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return f"<History of {self._length} events of {self.execution_id}>"

    def pages(self) -> Iterator[EventPage]:
        """Yield all events as columns, in pages of up to `COLUMN_PAGE` events."""
        for start in range(0, self._length, COLUMN_PAGE):
            yield self.store.page(self.execution_id, self.after + start, min(COLUMN_PAGE, self._length - start))

    def at_once(self) -> list[Event]:
        """Return all events as a list, three times as fast as by iteration. The ids of these events are empty."""
        with garbage_collection_paused():
            return [event for page in self.pages() for event in page.events(self.execution_id)]

    def _at(self, index: int) -> Event:
        return self._page(index // PAGE)[index % PAGE]

    def _page(self, number: int) -> list[Event]:
        page = self._pages.get(number)
        if page is None:
            start = number * PAGE
            page = self.store.read(self.execution_id, self.after + start, min(PAGE, self._length - start))
            if len(self._pages) >= MAX_PAGES:
                self._pages.pop(next(iter(self._pages)), None)  # the oldest one
            self._pages[number] = page
        return page
