"""Reading of logs from a store file: location of the rows of a log, verified records, and events as columns.

A log is a range of the table of events. The place of a record is the key of its execution times 2**32, plus the
sequence number of its first event. A fork has no rows for the events that it shares: its log consists of several parts,
for example events 1 to 7 in the rows of execution A and events from 8 on in its own rows.

Large values (blobs) are in a table of their own, with a row for each content.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from divebook.errors import CorruptStoreError, DecryptionError
from divebook.events.catalog import PAYLOADS, Payload
from divebook.events.codec import encode
from divebook.events.event import Record
from divebook.report.hints import advised
from divebook.stores.append import ExecutionRecord, Line, record_of
from divebook.stores.backend import WRONG_CHECKSUM, StoredBlob, StoredRecord, damage_error, missing_event_error
from divebook.stores.codec import Sealing
from divebook.stores.encoding import Blobs, Fetch, Packed, head, pack_blob, split, unpack_blob, unpack_id, width_of
from divebook.stores.sql import LOAD_BLOB, Types, typed
from divebook.stores.sqlite.connections import DIALECT, SqliteSession
from divebook.stores.sqlite.schema import EventTypes, place_of

if TYPE_CHECKING:
    from divebook.stores.pages import EventPage, Rows, SplitRecord


# By the row itself: what an index says of a row may be damaged, and would lead to another execution.
_FIND = """
SELECT id, key, last_sequence, checksum, token, source_key, forked_at FROM executions NOT INDEXED
WHERE key = (SELECT key FROM executions WHERE id = ?)
"""
# The executions whose events a fork shares, the nearest first.
_SOURCES = """
WITH RECURSIVE sources (key, upto) AS (
  VALUES (:source, :upto)
  UNION ALL
  SELECT above.source_key, above.forked_at FROM sources JOIN executions AS above ON above.key = sources.key
  WHERE above.source_key IS NOT NULL AND above.forked_at < upto
)
SELECT key, upto FROM sources
"""
_LOG_TYPES = (str, int, int, int, int, (int, NoneType), (int, NoneType))
MOST = 0xFFFF_FFFF
"""Highest possible sequence number of an event."""
# In the order of their places, as SQLite visits them; rows in another order have another checksum.
_JOINED_COLUMNS = """
SELECT CAST(group_concat(recorded_at) AS BLOB), CAST(group_concat(type) AS BLOB), CAST(group_concat(id, '') AS BLOB),
  CAST(group_concat(path, char(10)) AS BLOB), CAST(group_concat(step, char(10)) AS BLOB),
  CAST(group_concat(data, '') AS BLOB), CAST(group_concat(length(CAST(data AS BLOB))) AS BLOB),
  count(*), count(checksum), min(place & 4294967295), max(place & 4294967295)
FROM """
_ROWS_OF_LOG = "events WHERE place >= ? AND place <= ?"
# For a fork: the parts of its log one after the other, each in the order of its places.
_ROWS_OF_PART = "SELECT * FROM (SELECT * FROM events WHERE place >= ? AND place <= ? ORDER BY place)"
_CHECKSUM_AT = "SELECT checksum FROM events WHERE place <= ? ORDER BY place DESC LIMIT 1"
# The last column is 1 if the log of an execution that has not ended is longer than its row states (`LogEnd`).
COLUMNS = """
id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell, opened, seal,
  ended_at IS NULL AND EXISTS (
    SELECT 1 FROM events
    WHERE place BETWEEN executions.key << 32 | last_sequence + 1 AND executions.key << 32 | 4294967295
  )
"""
RECORD = f"SELECT {COLUMNS} FROM executions"  # noqa: S608 - our own text
# As BLOB, so that a damaged text reaches the decoder, which can name the event.
_RECORDS = """
SELECT place, recorded_at, type, id, path, step, CAST(data AS BLOB), checksum FROM events
WHERE place >= ? AND place <= ? ORDER BY place
"""
_FACTS = """
SELECT events.place, events.recorded_at, events.type, events.id, events.path, events.step, CAST(events.data AS BLOB),
  events.checksum, before.place, before.type, before.checksum
FROM events LEFT JOIN events AS before ON before.place = (
  SELECT max(place) FROM events AS earlier WHERE earlier.place > :first AND earlier.place < events.place
)
WHERE events.place IN (
  SELECT (SELECT max(place) FROM events AS holder WHERE holder.place > :first AND holder.place <= value)
  FROM json_each(:places)
)
"""
# The record that holds an event, or the last one before it, and the one before that.
_AROUND = "SELECT place, type, checksum FROM events WHERE place > ? AND place <= ? ORDER BY place DESC LIMIT 2"
_FIRST_CHECKED = """
SELECT recorded_at, name, events.id, path, step, CAST(data AS BLOB), checksum
FROM events JOIN event_types ON number = type
WHERE place > ? AND place <= ? AND checksum IS NOT NULL ORDER BY place LIMIT 1
"""
_TEXT = (str, NoneType)
LINE_TYPES: Types = (
    *(str, str, int, (int, NoneType), int, _TEXT, int, (int, NoneType), int, str),
    *(str, _TEXT, _TEXT, str, _TEXT, str, _TEXT, _TEXT, _TEXT, int),
)
"""Types of the columns of a `Line`."""


# --- position of a log in the file ---


class Log(NamedTuple):
    """Location of an execution's log in the table of events, and the end of the log according to the execution's row.
    The log may already have further events (`log_end_of`).
    """

    execution_id: str
    key: int
    last_sequence: int
    checksum: int
    token: int
    parts: tuple[LogPart, ...]
    """Ranges of rows that form the log, the oldest first; only a fork has several."""

    @property
    def shared(self) -> int:
        """Number of events that a fork shares with its source; 0 for other logs."""
        return self.parts[-1].after

    def ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return ranges of primary keys in the table of events. They contain all records of this log whose first event
        has a number from `first` to `last`; only a fork has several ranges.
        """
        if len(self.parts) == 1:
            return [(place_of(self.key, first), place_of(self.key, min(last, MOST)))]
        ranges: list[tuple[int, int]] = []
        for part in self.parts:
            begin = max(first, part.after + 1)
            end = min(last, part.upto)
            if begin <= end:
                ranges.append((place_of(part.key, begin), place_of(part.key, end)))
        return ranges


class LogPart(NamedTuple):
    """Part of a log: consecutive rows in the table of events. They belong to the execution itself, or to a source
    execution with which a fork shares them.
    """

    key: int
    """Key of the execution in whose rows the events are."""
    after: int
    """Sequence number of the last event before the part."""
    upto: int


def find(connection: sqlite3.Connection | sqlite3.Cursor, execution_id: str) -> Log | None:
    """Return the location of an execution's log in the table of events; None for an unknown execution. Raise
    CorruptStoreError if the index of the file leads to another execution.
    """
    row = connection.execute(_FIND, (execution_id,)).fetchone()
    if row is None:
        return None
    name, key, last, checksum, token, source, upto = typed("row of an execution", row, _LOG_TYPES)
    parts = (LogPart(key, 0, MOST),) if source is None else _parts(connection, key, source, upto)
    log = Log(name, key, last, checksum, token, parts)
    if log.execution_id != execution_id:
        raise CorruptStoreError(
            f"execution {execution_id} cannot be found: its place in the file contains execution {log.execution_id}. "
            f"Run `{advised('check')}`, and restore a backup"
        )
    return log


def _parts(connection: sqlite3.Connection | sqlite3.Cursor, key: int, source: int, upto: int) -> tuple[LogPart, ...]:
    """Return the parts of a fork's log: first those that it shares with its source executions, then its own."""
    shared = connection.execute(_SOURCES, {"source": source, "upto": upto}).fetchall()
    parts = []
    after = 0
    # The nearest source comes first: [(B, 7), (A, 4)] -> events 1 to 4 of A, 5 to 7 of B, and own events from 8 on.
    for owner, end in reversed(shared):
        parts.append(LogPart(owner, after, end))
        after = end
    return (*parts, LogPart(key, after, MOST))


# --- rows of executions ---


def load_line(row: tuple[Any, ...]) -> Line:
    """Convert a row that the statement `RECORD` returned to a `Line` (row of an execution), after a check of its
    checksum.

    Raises
    ------
    CorruptStoreError
        The row was changed.
    """
    *columns, seal, _ = row
    line = Line(*columns)
    if line.seal() != seal:
        raise CorruptStoreError(
            f"the row of execution {line.id} does not match its checksum, so lists may show wrong values for it; "
            f"`{advised('check')}` reports which data is still readable"
        )
    return line


def load_record(connection: sqlite3.Connection, types: EventTypes, row: tuple[Any, ...]) -> ExecutionRecord:
    """Convert a row that the statement `RECORD` returned to an `ExecutionRecord`. Raise CorruptStoreError if its
    checksum does not match.
    """
    line = load_line(row)
    # Most rows state the end of their log, and cost no further query. The last column of `COLUMNS` reveals the others.
    may_be_longer = row[-1]
    log = find(connection, line.id) if may_be_longer else None
    if log is not None:
        log_end = log_end_of(connection, types, log)
        line = line._replace(last_sequence=log_end.last_sequence, size=line.size + log_end.added)
    return record_of(line)


class LogEnd(NamedTuple):
    """Actual end of a log. The execution's row may state an earlier end, because it is not written with each batch.

    Writing the row with each commit would cost as much as the records do. It is therefore written when a column changes
    that lists or recovery need, and otherwise every `RECORDS_PER_ROW_UPDATE` records (`log_writer`). Its
    last sequence, size and checksum are as of that moment; readers that need the present ones read the few records
    after it. For example, the row states 40 events, and two more records of one event each follow: the log ends with
    event 42, with 2 records.
    """

    last_sequence: int
    checksum: int
    """Checksum of the last record."""
    added: int = 0
    """Bytes of payload that were appended since the row was written."""
    records: int = 0
    """Number of records that were appended since the row was written."""


def log_end_of(connection: sqlite3.Connection | sqlite3.Cursor, types: EventTypes, log: Log) -> LogEnd:
    """Return the actual end of a log; the execution's row may state an earlier one. Raise CorruptStoreError if the log
    is damaged.
    """
    log_end = LogEnd(log.last_sequence, log.checksum)
    for record in load_records(connection, types, log, after=log.last_sequence, last=sys.maxsize):
        # The first record may be the one before.
        if record.sequence > log.last_sequence:
            added = log_end.added + len(record.payload)
            count = log_end.records + 1
            log_end = LogEnd(record.last_sequence, record.checksum or 0, added, count)
    return log_end


# --- records ---


def load_decoded_records(
    connection: sqlite3.Connection, types: EventTypes, sealing: Sealing, log: Log, *, after: int, last: int
) -> list[Record]:
    """Return the records of a log that contain the events above `after` up to `last`, verified and decoded.

    Raises the errors of `load_records`.
    """
    fetch = fetcher(connection, sealing)
    records = load_records(connection, types, log, after=after, last=last)
    return [record.decoded(log.execution_id, sealing, fetch) for record in records]


def load_facts(
    connection: sqlite3.Connection, types: EventTypes, sealing: Sealing, log: Log, sequences: Sequence[int]
) -> dict[int, Payload]:
    """Return the payloads of the events with the given sequence numbers, by number. A log has one part, or several if
    it is that of a fork; each part is read with one query.

    Raises
    ------
    CorruptStoreError
        An event is missing, or its record was changed.
    """
    fetch = fetcher(connection, sealing)
    sequence_set = set(sequences)
    facts = dict[int, Payload]()
    for *row, earlier, number, preceding_checksum in _around_facts(connection, log, sequences):
        record = _stored(types, log, row, connection)
        checksum_before = preceding_checksum
        if earlier is None and record.sequence > 1:  # the record before it is in another part of the log
            _, checksum_before = record_start(connection, types, log, record.sequence - 1)
        # If neither record has a checksum, an old version wrote both.
        has_checksum = record.checksum is not None or checksum_before is not None
        if has_checksum and record.checksum != record.checksum_after(checksum_before or 0):
            raise record.damage_error(log.execution_id, WRONG_CHECKSUM)
        if earlier is not None:
            _check_place(connection, types, log, row[0], (earlier, number))
        for sequence, fact in enumerate(record.decoded(log.execution_id, sealing, fetch).facts, record.sequence):
            if sequence in sequence_set:
                facts[sequence] = fact
    missing = sequence_set - facts.keys()
    if missing:
        raise missing_event_error(log.execution_id, min(missing))
    return facts


def load_records(
    connection: sqlite3.Connection | sqlite3.Cursor, types: EventTypes, log: Log, *, after: int, last: int
) -> Iterator[StoredRecord]:
    """Yield the records of a log that contain the events above `after` up to `last`, verified by their checksums.

    The checksums cost about 1 microsecond a record; tests/store/test_damage.py shows the damage that they detect.
    Records from before the introduction of checksums have none. They are accepted only at the beginning of a log.

    Raises
    ------
    CorruptStoreError
        A record is missing, or was changed.
    """
    expected, checksum = record_start(connection, types, log, after)
    is_unchecked = False  # True if this record may have no checksum
    ranges = log.ranges(expected, last)
    # On a new cursor: another query on the caller's cursor, such as that for a type's name, would end these rows
    # (test_a_log_that_another_process_went_on_with_in_new_types_is_followed_to_its_end).
    base_connection = connection.connection if isinstance(connection, sqlite3.Cursor) else connection
    for row in chain.from_iterable(base_connection.execute(_RECORDS, places) for places in ranges):
        place = row[0]
        stored_checksum = row[-1]
        sequence = place & MOST
        # A gap ends the log here; the check after the loop reports it.
        if sequence > expected:
            break
        record = _stored(types, log, row, connection)
        if sequence < expected:
            raise record.damage_error(log.execution_id, "it overlaps the previous record")
        if stored_checksum is None and checksum is None:
            is_unchecked = is_unchecked or _is_older(connection, log, sequence)
        expected = record.last_sequence + 1
        if not is_unchecked or checksum is not None or stored_checksum is not None:
            checksum = record.checksum_after(checksum or 0)
            # The execution's row repeats the checksum of the record that was the last one when the row was written.
            if checksum != stored_checksum or (expected == log.last_sequence + 1 and checksum != log.checksum):
                raise record.damage_error(log.execution_id, WRONG_CHECKSUM)
        yield record
    # Only events that the execution's row counts can be missing.
    if expected <= min(last, log.last_sequence):
        raise missing_event_error(log.execution_id, expected)


def record_start(
    connection: sqlite3.Connection | sqlite3.Cursor, types: EventTypes, log: Log, after: int
) -> tuple[int, int | None]:
    """Find the record that contains event ``after + 1``. Return the number of its first event, and the checksum of the
    record before it.

    Raises
    ------
    CorruptStoreError
        The record is at a place where none can begin.
    """
    if not after:
        return 1, None
    # The list gets the last record up to the event, and the one before it. In a fork they may be in two parts, the
    # newest of which is searched first.
    around: list[Any] = []
    for first, last in reversed(log.ranges(1, after + 1)):
        around += connection.execute(_AROUND, (first - 1, last)).fetchall()
        if len(around) > 1:
            break
    # The log has at most one record up to the event, and so no checksum before it.
    if len(around) < 2:
        return around[0][0] & MOST if around else 1, None
    (place, *_), (earlier, number, checksum), *_ = around
    _check_place(connection, types, log, place, (earlier, number))
    return place & MOST, checksum


def _around_facts(connection: sqlite3.Connection, log: Log, sequences: Sequence[int]) -> Iterator[Any]:
    for key, after, upto in log.parts:
        places = [place_of(key, sequence) for sequence in sequences if after < sequence <= upto]
        if places:
            yield from connection.execute(_FACTS, {"places": encode(places).decode(), "first": place_of(key, after)})


def _stored(
    types: EventTypes, log: Log, row: Sequence[Any], connection: sqlite3.Connection | sqlite3.Cursor
) -> StoredRecord:
    place, recorded_at, number, event_id, path, step, payload, checksum = row
    name = types.names.get(number) or _type_name(types, number, log, place & MOST, connection)
    return StoredRecord(place & MOST, recorded_at, name, unpack_id(event_id), path, step, payload, checksum)


def _check_place(
    connection: sqlite3.Connection | sqlite3.Cursor, types: EventTypes, log: Log, place: int, preceding: tuple[int, int]
) -> None:
    """Check the primary key, `place`, of a record, which contains the number of its first event. Raise
    CorruptStoreError if this is not the event after the preceding record.

    Checksums do not cover places: a record that moved into the preceding one, or away from it, still matches its
    checksum (tests/simulation/damaged.py). If the preceding record is damaged itself, its end is unknown, and the place
    is accepted.
    """
    earlier, number = preceding
    sequence = earlier & MOST
    # In the usual case the types of both records agree with their places.
    if sequence + width_of(types.names.get(number, "")) == place & MOST:
        return
    try:
        (record,) = load_records(connection, types, log, after=sequence - 1, last=sequence)
    except CorruptStoreError:
        return
    if record.last_sequence + 1 != place & MOST:
        description = f"a record that claims to begin with event {place & MOST}"
        raise damage_error(log.execution_id, description, f"the previous record ends with event {record.last_sequence}")


def _is_older(connection: sqlite3.Connection | sqlite3.Cursor, log: Log, sequence: int) -> bool:
    """Return True if an event has no checksum because an old version of divebook wrote it, before there were checksums.
    Return False if the event has lost its checksum.

    Then the first later event with a checksum begins the chain: its checksum continues from 0. An event that merely
    lost its checksum stands in a chain that began before it.
    """
    if not log.checksum:
        return True
    ranges = log.ranges(sequence + 1, log.last_sequence)
    rows = (connection.execute(_FIRST_CHECKED, (first - 1, last)).fetchone() for first, last in ranges)
    row = next(filter(None, rows), None)
    if row is None:
        return False
    recorded_at, name, event_id, path, step, payload, checksum = row
    return bool(crc32(payload, crc32(head(recorded_at, name, unpack_id(event_id), path, step))) == checksum)


def _type_name(
    types: EventTypes, number: int, log: Log, sequence: int, connection: sqlite3.Connection | sqlite3.Cursor
) -> str:
    try:
        return types.name(number, connection)
    except CorruptStoreError as error:
        raise damage_error(log.execution_id, f"event {sequence}", error) from error


# --- records as columns ---
# SQLite joins each column of a range of rows into one string, which is faster than fetching the rows one by one:
#
#     rows (1, "a"), (2, "b"), (3, "c")   ->   "1,2,3" and "abc"
#
# The chained checksum of the last row is that of all rows as one string, so that one comparison verifies a page. If
# anything does not fit, the caller reads row by row, which finds the damaged one (tests/store/test_pages.py).


def read_columns(
    connection: sqlite3.Connection, types: EventTypes, sealing: Sealing, log: Log, *, after: int, limit: int
) -> EventPage | None:
    """Return events of one log as columns, after a check of all checksums. Return None if a check fails; the caller
    then reads and checks the rows one by one.
    """
    from divebook.stores.pages import MismatchError

    last = after + limit
    try:
        first, rows = _joined_rows(connection, types, log, after, last)
        return _known_types(rows.page(first, _splitter(connection, sealing))).between(after, last)
    except MismatchError:
        return None


def _joined_rows(
    connection: sqlite3.Connection, types: EventTypes, log: Log, after: int, last: int
) -> tuple[int, Rows]:
    """Read the rows with the events of a log above `after` up to `last`, column by column. Return the number of their
    first event and the rows.

    Raises
    ------
    MismatchError
        A row is missing, has no checksum, or was changed.
    """
    from divebook.stores.pages import JoinedColumns, MismatchError, Rows

    first, before = record_start(connection, types, log, after)
    ranges = log.ranges(first, last)
    source = _ROWS_OF_LOG if len(ranges) == 1 else f"({' UNION ALL '.join([_ROWS_OF_PART] * len(ranges))})"
    places = [place for pair in ranges for place in pair]
    *texts, count, checked, least, most = connection.execute(_JOINED_COLUMNS + source, places).fetchone()
    # Logs of old versions have records without checksums, which only `load_records` accepts.
    if not count or checked != count or (before is None and first > 1):
        raise MismatchError("rows are missing, or have no checksum")
    joined_columns = JoinedColumns(count, *texts)
    rows = Rows.of(joined_columns, lambda number: _type_name_or_mismatch(connection, types, number))
    widths = rows.widths
    end = first + int(widths.sum()) - 1
    # The first place, the last place and the sum of widths agree only if no row is missing.
    if (least, most) != (first, end - int(widths[-1]) + 1) or end < min(last, log.last_sequence):
        raise MismatchError("rows are missing")
    if rows.checksum(before or 0) != _checksum_at(connection, log, most):
        raise MismatchError("a row does not match its checksum")
    # The execution's row repeats the checksum of the record that was the last one when the row was written.
    if first <= log.last_sequence <= end and _checksum_at(connection, log, log.last_sequence) != log.checksum:
        raise MismatchError("the checksum of the last row differs from the checksum in the execution's row")
    return first, rows


def _type_name_or_mismatch(connection: sqlite3.Connection, types: EventTypes, number: int) -> str:
    """Return the name of the record type that has a number in the file. Raise MismatchError if the file has no such
    type.
    """
    from divebook.stores.pages import MismatchError

    try:
        return types.name(number, connection)
    except CorruptStoreError as error:
        raise MismatchError(str(error)) from error


def _splitter(connection: sqlite3.Connection, sealing: Sealing) -> SplitRecord:
    from divebook.stores.pages import MismatchError

    fetch = fetcher(connection, sealing)

    def split_record(record_type: str, raw: bytes) -> list[bytes]:
        try:
            return split(record_type, sealing.open_whole(raw, fetch))
        except (CorruptStoreError, DecryptionError) as error:
            raise MismatchError(str(error)) from error

    return split_record


def _known_types(page: EventPage) -> EventPage:
    from divebook.stores.pages import MismatchError

    if not PAYLOADS.keys() >= {*page.types.dictionary.to_pylist()}:
        raise MismatchError("an event type belongs to another version of divebook")
    return page


def _checksum_at(connection: sqlite3.Connection, log: Log, sequence: int) -> int | None:
    row = connection.execute(_CHECKSUM_AT, (log.ranges(1, sequence)[-1][1],)).fetchone()
    return None if row is None else row[0]


# --- large values (blobs) ---------------------------------------------------------------------------------------------

# Large values (blobs) in a store file: one row for each content, and one for each execution that uses it.


_LOAD_BLOB = DIALECT.text(LOAD_BLOB)
_FIND_BLOB = "SELECT number FROM blobs WHERE digest = ?"
_INSERT_BLOB = "INSERT INTO blobs (digest, compressed, data) VALUES (?, ?, ?) RETURNING number"
_USE_BLOB = "INSERT OR IGNORE INTO blob_uses (key, blob) VALUES (?, ?)"
_INHERITED_BLOBS = """
SELECT number, digest FROM blob_uses JOIN blobs ON number = blob
WHERE key = ? AND blob NOT IN (SELECT blob FROM blob_uses WHERE key = ?)
"""
_LIST_BLOBS = """
SELECT digest, length(data), number IN (
  SELECT blob FROM blob_uses WHERE key NOT IN (SELECT key FROM executions WHERE id IN (SELECT value FROM json_each(?)))
) FROM blobs
"""
_DROP_UNUSED_BLOBS = "DELETE FROM blobs WHERE number NOT IN (SELECT blob FROM blob_uses) RETURNING number"


class SqliteBlobs:
    """Large values in a store file; a `divebook.stores.backend.BlobBackend`."""

    def __init__(self, session: SqliteSession) -> None:
        self._session = session

    def blobs(self, without: Collection[str]) -> list[StoredBlob]:
        """Return each large value with its size, and whether an execution uses it."""
        return self._session.read(_LIST_BLOBS, (list(without),), _stored_blob)

    def blob(self, digest: bytes) -> bytes | None:
        """Return the content of a large value, still encrypted; None if it is missing."""
        with self._session.snapshot() as connection:
            return load_blob(connection, digest)

    def drop_unused(self) -> int:
        """Delete the large values that no execution uses; return the number of deleted values."""
        return len(self._session.write(_DROP_UNUSED_BLOBS, ()))


def _stored_blob(*row: Any) -> StoredBlob:
    digest, stored, is_used = typed("large value", row, (bytes, int, int))
    return StoredBlob(digest, stored, bool(is_used))


def insert_blobs(cursor: sqlite3.Cursor, key: int, blobs: Blobs, packed: Mapping[bytes, Packed]) -> int:
    """Write the large values (blobs) of a batch that the file does not have, and record that an execution uses all of
    them. Return the number of bytes by which the log of the execution grows.

    `packed` has contents that were compressed before the transaction. A content that the execution already refers to
    does not count.
    """
    grown = 0
    for digest, content in blobs.items():
        row = cursor.execute(_FIND_BLOB, (digest,)).fetchone()
        (number,) = row or _insert_blob(cursor, digest, packed.get(digest) or pack_blob(content))
        # The statement inserts no row if the execution has used the value before.
        if cursor.execute(_USE_BLOB, (key, number)).rowcount:
            grown += len(content)
    return grown


def inherit_blobs(cursor: sqlite3.Cursor, source: int, heir: int, used: Collection[bytes] | None) -> int:
    """Record that a fork (`heir`) uses the large values in the events that it takes over from its deleted source
    execution. Return the number of bytes by which the log of the fork grows.

    `used` selects the values by digest; None means all.
    """
    grown = 0
    # The statement leaves out values that the heir uses already.
    for number, digest in cursor.execute(_INHERITED_BLOBS, (source, heir)).fetchall():
        if used is None or digest in used:
            grown += len(load_blob(cursor, digest) or b"")
            cursor.execute(_USE_BLOB, (heir, number))
    return grown


def load_blob(connection: sqlite3.Connection | sqlite3.Cursor, digest: bytes) -> bytes | None:
    """Return the content of a large value, still encrypted; None if missing. Raise CorruptStoreError if damaged."""
    row = connection.execute(_LOAD_BLOB, (digest,)).fetchone()
    return None if row is None else unpack_blob(Packed(bool(row[0]), row[1]))


def fetcher(connection: sqlite3.Connection | sqlite3.Cursor, sealing: Sealing) -> Fetch:
    """Return a function that returns a large value by its hash; see `Sealing.fetcher`."""
    return sealing.fetcher(lambda digest: load_blob(connection, digest))


def _insert_blob(cursor: sqlite3.Cursor, digest: bytes, packed: Packed) -> tuple[int]:
    row: tuple[int] = cursor.execute(_INSERT_BLOB, (digest, packed.compressed, packed.data)).fetchone()
    return row
