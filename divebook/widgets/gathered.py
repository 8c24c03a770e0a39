"""The records of a store as a list keeps them: read page by page, and kept up to date without reading all again.

What changes is what begins, what goes on, and what has ended since: those are looked at again, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from divebook.errors import ExecutionNotFoundError
from divebook.events.catalog import BOOK
from divebook.store import EventStore, ExecutionRecord

PAGE = 50
"""Records that are read first, and of the newest again and again."""
MORE = 1_000
"""Records that are read at once after that."""
NO_FILTERS: Mapping[str, Any] = MappingProxyType({})


class Gathered:
    """The records of a store, as far as they were read.

    Parameters
    ----------
    kind
        Those of some ``origin``, ``parent``, ``notebook`` or ``cell`` only.
    """

    def __init__(self, store: EventStore, kind: Mapping[str, Any] = NO_FILTERS) -> None:
        self.store, self._kind = store, kind
        self.is_whole = False
        """Whether all were read."""
        self.version = 0
        """Another whenever a record is."""
        self._records: dict[str, ExecutionRecord] = {}
        self._stale: set[str] = set()
        """Those to be looked at again."""
        self._read = 0

    @property
    def records(self) -> list[ExecutionRecord]:
        """Those that were read, in no order."""
        return list(self._records.values())

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Look at these again, whatever is known of them; any thread."""
        self._stale |= {*execution_ids}

    def look(self) -> None:
        """Read what may have changed, and a page of what was not read yet."""
        going = {record.execution_id: record for record in self.store.unended() if self._fits(record)}
        stale, self._stale = self._stale - going.keys(), {*going}
        found = {name: self._record(name) for name in stale} | going
        if self._read or self.is_whole:  # it was empty: test_what_begins_and_ends_between_two_looks_is_found
            found |= self._newest()
        if not self.is_whole:
            found |= self._next_page()
        for name, record in found.items():
            self._take(name, record)

    def _newest(self) -> dict[str, ExecutionRecord]:
        """Read the newest; if all of a page are unknown there may be more behind it, and all is read again."""
        newest = self._page(PAGE, 0)
        if len(newest) == PAGE and newest.keys().isdisjoint(self._records):
            self._read, self.is_whole = PAGE, False
        return newest

    def _next_page(self) -> dict[str, ExecutionRecord]:
        limit = MORE if self._read else PAGE
        page = self._page(limit, self._read)
        self._read, self.is_whole = self._read + len(page), len(page) < limit
        return page

    def _page(self, limit: int, offset: int) -> dict[str, ExecutionRecord]:
        page = self.store.records(limit=limit, offset=offset, **self._kind)
        return {record.execution_id: record for record in page}

    def _record(self, execution_id: str) -> ExecutionRecord | None:
        try:
            record = self.store.record(execution_id)
        except ExecutionNotFoundError:  # it was deleted
            return None
        return record if self._fits(record) else None

    def _fits(self, record: ExecutionRecord) -> bool:
        return record.origin != BOOK and all(getattr(record, name) == value for name, value in self._kind.items())

    def _take(self, name: str, record: ExecutionRecord | None) -> None:
        if self._records.get(name) == record:
            return
        self.version += 1
        if record is None:
            del self._records[name]
        else:
            self._records[name] = record
