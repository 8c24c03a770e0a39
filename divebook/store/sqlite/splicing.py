"""Events of one log as columns: SQLite joins each column into one text, sooner than it gives rows one by one.

The checksum of a chain's last row is that of all of its rows in one piece, so that a page is compared at once. What
does not fit is read row by row, which finds out what is wrong, and where (tests/store/test_pages.py).
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from divebook.errors import CorruptStoreError, SealedError
from divebook.events.catalog import PAYLOADS
from divebook.store.codec import Sealing
from divebook.store.facts import split
from divebook.store.sqlite.blobs import fetcher
from divebook.store.sqlite.compact import EventTypes
from divebook.store.sqlite.rows import start
from divebook.store.sqlite.whereabouts import Log

if TYPE_CHECKING:
    from divebook.store.pages import EventPage, Facts, Rows

# In the order of their places, as SQLite goes through them; any other order has another checksum.
_SPLICED = """
SELECT CAST(group_concat(recorded_at) AS BLOB), CAST(group_concat(type) AS BLOB), CAST(group_concat(id, '') AS BLOB),
  CAST(group_concat(path, char(10)) AS BLOB), CAST(group_concat(step, char(10)) AS BLOB),
  CAST(group_concat(data, '') AS BLOB), CAST(group_concat(length(CAST(data AS BLOB))) AS BLOB),
  count(*), count(checksum), min(place & 4294967295), max(place & 4294967295)
FROM """
_OF_ONE = "events WHERE place >= ? AND place <= ?"
# Of a fork: the parts of its log one after the other, each in the order of its places.
_PART = "SELECT * FROM (SELECT * FROM events WHERE place >= ? AND place <= ? ORDER BY place)"
_CHECKSUM = "SELECT checksum FROM events WHERE place <= ? ORDER BY place DESC LIMIT 1"


def splice(
    connection: sqlite3.Connection, types: EventTypes, sealing: Sealing, log: Log, *, after: int, limit: int
) -> EventPage | None:
    """Return events of one log as columns, compared with their checksums; None if something in them does not fit."""
    from divebook.store.pages import MismatchError

    last = after + limit
    try:
        first, rows = _rows(connection, types, log, after, last)
        return _known(rows.page(first, _opener(connection, sealing))).between(after, last)
    except MismatchError:
        return None


def _rows(connection: sqlite3.Connection, types: EventTypes, log: Log, after: int, last: int) -> tuple[int, Rows]:
    """Return the rows that hold some events, and the sequence number of the first of all their events."""
    from divebook.store.pages import MismatchError, Rows, Spliced

    first, before = start(connection, types, log, after)
    ranges = log.ranges(first, last)
    rows_of = _OF_ONE if len(ranges) == 1 else f"({' UNION ALL '.join([_PART] * len(ranges))})"
    places = [place for pair in ranges for place in pair]
    *texts, count, checked, least, most = connection.execute(_SPLICED + rows_of, places).fetchone()
    if not count or checked != count or (before is None and first > 1):
        raise MismatchError("rows are missing, or have no checksum")
    spliced = Spliced(count, *texts)
    rows = Rows.of(spliced, lambda number: _name(connection, types, number))
    widths = rows.widths
    end = first + int(widths.sum()) - 1
    if (least, most) != (first, end - int(widths[-1]) + 1) or end < min(last, log.last_sequence):
        raise MismatchError("rows are missing")
    if rows.checksum(before or 0) != _checksum(connection, log, most):
        raise MismatchError("a row does not have the checksum it was written with")
    if first <= log.last_sequence <= end and _checksum(connection, log, log.last_sequence) != log.checksum:
        raise MismatchError("the last row has another checksum than the execution's row says")
    return first, rows


def _name(connection: sqlite3.Connection, types: EventTypes, number: int) -> str:
    """Return the name of a type; another process may have added it."""
    from divebook.store.pages import MismatchError

    try:
        return types.name(number, connection)
    except CorruptStoreError as why:
        raise MismatchError(str(why)) from why


def _opener(connection: sqlite3.Connection, sealing: Sealing) -> Facts:
    from divebook.store.pages import MismatchError

    fetch = fetcher(connection, sealing)

    def facts(record_type: str, raw: bytes) -> list[bytes]:
        try:
            return split(record_type, sealing.open_whole(raw, fetch))
        except (CorruptStoreError, SealedError) as why:
            raise MismatchError(str(why)) from why

    return facts


def _known(page: EventPage) -> EventPage:
    from divebook.store.pages import MismatchError

    if not PAYLOADS.keys() >= {*page.types.dictionary.to_pylist()}:
        raise MismatchError("a type is of another version")
    return page


def _checksum(connection: sqlite3.Connection, log: Log, sequence: int) -> int | None:
    found = connection.execute(_CHECKSUM, (log.ranges(1, sequence)[-1][1],)).fetchone()
    return None if found is None else found[0]
