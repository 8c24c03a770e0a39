"""Writing batches: rows of records, and the rows of the executions they belong to.

Where a log stands is compared inside the transaction that inserts the records, so of two writers, threads or processes,
one is refused. What this process knows of the logs that it writes holds as long as no other connection has written to
the file (``PRAGMA data_version``); else each is looked up again.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from divebook.errors import (
    ConcurrentAppendError,
    CorruptStoreError,
    DecryptionError,
    ExecutionNotFoundError,
    InvalidEventError,
    StartKeyTakenError,
    StoreError,
)
from divebook.events.catalog import PAYLOADS
from divebook.events.codec import decode
from divebook.events.event import successor
from divebook.store.append import (
    Beginning,
    Durability,
    ExecutionRecord,
    Ids,
    KnownIds,
    Line,
    PreparedBatch,
    Refusal,
    first_line,
    line_after,
    no_place_to_fork,
    record_of,
)
from divebook.store.codec import Sealing
from divebook.store.encoding import PACKED, pack_id, split, unpack_id, width_of
from divebook.store.sqlite import connections, tables
from divebook.store.sqlite.connections import fetcher
from divebook.store.sqlite.rows import MOST, RECORD, Log, find, load_line, load_records, start
from divebook.store.sqlite.schema import EventTypes, place_of

if TYPE_CHECKING:
    from divebook.store.pages import EventPage, Facts, Rows


# How far a log goes beyond what its execution's row says.
#
# The row is written when something changes that lists or recovery ask for, and else every `NOTED_EVERY` records: to
# write it with each commit would cost as much as the records do. What it says of the log (the last event, the size, the
# checksum) is so of the moment it was written, and the few records after it are looked at where that matters.


NOTED_EVERY = 32
"""Records after which the row is written in any case, so that to look for its log's end never costs much."""


class Reach(NamedTuple):
    """Where a log ends."""

    last_sequence: int
    checksum: int
    """That of its last record."""
    added: int = 0
    """Bytes of data since the row was written."""
    records: int = 0
    """Records since then."""


def reach_of(connection: sqlite3.Connection | sqlite3.Cursor, types: EventTypes, log: Log) -> Reach:
    """Return where a log ends; CorruptStoreError if that is damaged."""
    reach = Reach(log.last_sequence, log.checksum)
    for record in load_records(connection, types, log, after=log.last_sequence, last=sys.maxsize):
        if record.sequence > log.last_sequence:
            added = reach.added + len(record.payload)
            count = reach.records + 1
            reach = Reach(record.last_sequence, record.checksum or 0, added, count)
    return reach


def load_record(connection: sqlite3.Connection, types: EventTypes, row: tuple[Any, ...]) -> ExecutionRecord:
    """Return the line of an execution from a row of `RECORD`; CorruptStoreError if it is not what was written."""
    line = load_line(row)
    goes_on = row[-1]
    if goes_on and (log := find(connection, line.id)) is not None:
        reach = reach_of(connection, types, log)
        line = line._replace(last_sequence=reach.last_sequence, size=line.size + reach.added)
    return record_of(line)


# A log that this process appends to: where it stands, and the step from one batch to the next.


_NOTE = """
UPDATE executions SET status = ?, ended_at = ?, last_sequence = ?, error = ?, size = ?, wake_at = ?, taken = ?,
  checksum = ?, seal = ? WHERE key = ?
"""
_ANNOTATE = "UPDATE executions SET tags = ?, note = ? WHERE key = ?"
# What changes with every record. To name a column is to write its indexes anew, whether it changes or not.
_GROW = "UPDATE executions SET last_sequence = ?, size = ?, checksum = ?, seal = ? WHERE key = ?"
# As bytes they sort as the texts do; the type is that of the row with the highest one.
_HIGHEST = """
SELECT max(id), type, sum(typeof(id) <> 'blob' OR length(id) <> 16) FROM events WHERE place BETWEEN ? AND ?
"""
_IDS = "SELECT id, type FROM events WHERE place BETWEEN ? AND ?"


@dataclass(slots=True)
class OpenLog:
    """A log that this process writes, as it knows it.

    A unique index on event ids would cost 160 bytes a step and a quarter of the speed. The ids are UUIDv7, and a batch
    sent twice is refused by its expected sequence, so what is left is a double id made inside one execution: what is
    known of the ids of the logs being written is kept here, and read when this process takes a log over.
    """

    key: int
    token: int
    """That of the execution's latest lease."""
    line: Line
    """The execution's row as it stands in the file."""
    reach: Reach
    """Where the log ends."""
    generation: int
    """What was known of the writers of the file when this was true (`OpenLogs`)."""
    ids: KnownIds = field(default_factory=KnownIds)

    def is_as(self, other: OpenLog) -> bool:
        """Return whether it says the same of the file."""
        return (self.token, self.line, self.reach) == (other.token, other.line, other.reach)

    def advance(self, cursor: sqlite3.Cursor, batch: PreparedBatch, checksum: int, grown: int) -> None:
        """Go on to the end of a batch, by which the large values have `grown`."""
        added = self.reach.added + batch.size
        records = self.reach.records + len(batch.records)
        self.reach = Reach(batch.last_sequence, checksum, added, records)
        line = self.line
        is_changed = batch.turn is not None or batch.wake_at != line.wake_at or batch.taken > line.taken
        if is_changed or batch.annotations or batch.status not in (None, line.status):
            self.write_row(cursor, batch, grown)
        elif grown or records >= NOTED_EVERY:
            self._note_growth(cursor, grown)

    def _note_growth(self, cursor: sqlite3.Cursor, grown: int) -> None:
        """Write how far the log goes in the execution's row."""
        last, checksum, added, _ = self.reach
        self.line = line = self.line._replace(last_sequence=last, size=self.line.size + added + grown)
        self.reach = Reach(last, checksum)
        cursor.execute(_GROW, (last, line.size, checksum, line.seal(), self.key))

    def write_row(self, cursor: sqlite3.Cursor, batch: PreparedBatch, grown: int) -> None:
        """Write the execution's row as it is after a batch."""
        last, checksum, added, _ = self.reach
        line = line_after(self.line, batch, self.line.size + added + grown)
        status = (line.status, line.ended_at, line.last_sequence, line.error, line.size, line.wake_at, line.taken)
        cursor.execute(_NOTE, (*status, checksum, line.seal(), self.key))
        if batch.annotations:
            cursor.execute(_ANNOTATE, (line.tags, line.note, self.key))
            tables.forget_tags(cursor, self.key)
            tables.note_tags(cursor, self.key, line.created_at, decode(line.tags))
        if line.taken > self.line.taken:
            tables.take(cursor, self.key, line.taken)
        self.line, self.reach = line, Reach(last, checksum)


def known_ids(cursor: sqlite3.Cursor, types: EventTypes, log: Log) -> KnownIds:
    """Return the ids of a log, of which the highest is enough if all are of our form."""
    found = [cursor.execute(_HIGHEST, places).fetchone() for places in log.ranges(1, MOST)]
    others = any(odd for *_, odd in found)
    packed, number = (None, 0) if others else max([row[:2] for row in found if row[0] is not None], default=(None, 0))
    if packed is None:
        return KnownIds(None if others else "")
    try:
        return KnownIds(successor(unpack_id(packed), width_of(types.name(number, cursor)) - 1))
    except ValueError:  # nobody wrote it so
        return KnownIds(None)


def load_ids(cursor: sqlite3.Cursor, types: EventTypes, log: Log) -> list[Ids]:
    """Return the ids of the records of a log."""
    # Fetched first: what is asked meanwhile on the same cursor, the name of a type, would end them.
    rows = [row for places in log.ranges(1, MOST) for row in cursor.execute(_IDS, places).fetchall()]
    return [(unpack_id(packed), width_of(types.name(number, cursor))) for packed, number in rows]


_INSERT_EXECUTION = """
INSERT INTO executions
  (id, status, created_at, ended_at, last_sequence, error, size, wake_at, taken, durability,
  workflow_name, fingerprint, start_key, origin, parent, tags, note, notebook, cell, opened, seal, checksum, token,
  source_key, forked_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_RECORD = """
INSERT INTO events (place, recorded_at, type, id, path, step, data, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
MOST_KNOWN = 1000
"""Logs of which this process remembers where they stand; others, mostly waiting, are looked up when they go on."""
_RELEASE = "DELETE FROM leases WHERE key = ?"


class OpenLogs:
    """The logs that this process writes, and how batches are added to them."""

    def __init__(
        self, types: EventTypes, durability: Durability, unknown: Callable[[str], ExecutionNotFoundError]
    ) -> None:
        self._types = types
        self._durability = durability
        """That of executions whose first batch does not say."""
        self._unknown = unknown
        self._logs: dict[str, OpenLog] = {}
        self._version, self._generation = -1, 0
        """What others have written, by SQLite's count, and how often they have."""

    def write(self, cursor: sqlite3.Cursor, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        """Write batches; return, for each, why it was refused, or None."""
        self._types.refresh(cursor)
        (version,) = cursor.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._generation = self._generation + 1
        answers = [self._enter(cursor, batch) for batch in batches]
        while len(self._logs) > MOST_KNOWN:
            del self._logs[next(iter(self._logs))]
        return answers

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Look again where these logs stand before something is added to them."""
        for execution_id in execution_ids:
            self._logs.pop(execution_id, None)

    def _enter(self, cursor: sqlite3.Cursor, batch: PreparedBatch) -> Refusal | None:
        ids = [pack_id(record.id) for record in batch.records]
        try:
            log, before = self._claim(cursor, batch)
        except (StoreError, InvalidEventError) as refusal:
            return refusal
        checksums = batch.checksums(before)
        grown = connections.insert(cursor, log.key, batch.blobs, batch.packed) if batch.blobs else 0
        if batch.beginning is None:
            log.advance(cursor, batch, checksums[-1], grown)
        elif grown:
            log.write_row(cursor, batch, grown)
        if batch.ends:
            cursor.execute(_RELEASE, (log.key,))
        if batch.questions:
            tables.note(cursor, log.key, batch.questions)
        if batch.turn is not None and (batch.questions or batch.beginning is None):
            _turn(cursor, log, is_over=batch.ends)
        if batch.enqueued is not None:
            tables.put(cursor, log.key, batch.enqueued, withheld=bool(batch.withheld))
        elif batch.withheld is not None and batch.beginning is None:
            tables.withhold(cursor, log.key, withheld=batch.withheld)
        log.ids.add(batch.records, batch.ids)
        numbers = self._types.numbers
        base = place_of(log.key, 0)
        rows: list[tuple[Any, ...]] = []
        entries = zip(batch.records, batch.types, ids, batch.payloads, checksums, strict=True)
        for record, name, first_id, payload, checksum in entries:
            number = numbers.get(name) or self._types.add(cursor, name)
            place = base + record.sequence
            data = payload if payload[:1] == PACKED else payload.decode()
            rows.append((place, record.recorded_at, number, first_id, record.path, record.step, data, checksum))
        cursor.executemany(_INSERT_RECORD, rows)
        return None

    def _claim(self, cursor: sqlite3.Cursor, batch: PreparedBatch) -> tuple[OpenLog, int]:
        """Return the log that a batch goes on with, and the checksum before the batch, or raise if it does not fit."""
        if batch.beginning is not None:
            log, before = self._begin(cursor, batch, batch.beginning)
        else:
            log = self._present(cursor, batch.execution_id)
            if log.token != batch.token:
                raise batch.fenced(log.token)
            if log.reach.last_sequence != batch.expected_sequence:
                raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, log.reach.last_sequence)
            # Inside the transaction, as callers can only look before it: of two who saw it running, the second is
            # refused (test_nothing_follows_an_end_but_what_the_table_allows, tests/execution/test_meanwhile.py).
            batch.check_may_follow(log.line.status)
            log.ids.refuse(batch.records, batch.ids, lambda: self._ids_of(cursor, batch.execution_id))
            before = log.reach.checksum
        self._logs.pop(batch.execution_id, None)  # so that the one which was written last comes last
        self._logs[batch.execution_id] = log
        return log, before

    def _ids_of(self, cursor: sqlite3.Cursor, execution_id: str) -> list[Ids]:
        found = find(cursor, execution_id)
        return [] if found is None else load_ids(cursor, self._types, found)

    def _begin(self, cursor: sqlite3.Cursor, batch: PreparedBatch, beginning: Beginning) -> tuple[OpenLog, int]:
        if find(cursor, batch.execution_id) is not None:
            found = self._present(cursor, batch.execution_id)
            raise ConcurrentAppendError(batch.execution_id, 0, found.reach.last_sequence)
        if batch.token:
            raise batch.fenced(0)
        if beginning.key is not None:
            _refuse_taken(cursor, beginning.key)
        line = line_after(first_line(batch, beginning, batch.durability or self._durability), batch, batch.size)
        fork = None if batch.source is None else self._fork_of(cursor, batch, batch.source)
        before, owner = (0, None) if fork is None else fork
        checksum = batch.checksums(before)[-1]
        token = batch.lease.token if batch.lease else 0
        at = batch.expected_sequence if owner else None
        cursor.execute(_INSERT_EXECUTION, (*line, line.seal(), checksum, token, owner, at))
        key = cursor.lastrowid or 0
        if beginning.tags:
            tables.note_tags(cursor, key, line.created_at, beginning.tags)
        if batch.lease is not None:
            tables.insert(cursor, key, batch.lease)
        log = OpenLog(key, token, line, Reach(batch.last_sequence, checksum), self._generation)
        if owner is not None:
            log.ids = KnownIds(None)  # those that it shares are looked at where one is not new
        return log, before

    def _fork_of(self, cursor: sqlite3.Cursor, batch: PreparedBatch, source: str) -> tuple[int, int]:
        """Return the checksum of the last event that a fork shares with its source, and whose row that event is."""
        found = find(cursor, source)
        at = batch.expected_sequence
        if found is None:
            raise self._unknown(source)
        last = None
        for last in load_records(cursor, self._types, found, after=at - 1, last=at):  # noqa: B007 - there is one
            pass
        if last is None or last.last_sequence != at:
            raise no_place_to_fork(batch)
        owner = next(part.key for part in found.parts if part.after < at <= part.upto)
        return last.checksum or 0, owner

    def _present(self, cursor: sqlite3.Cursor, execution_id: str) -> OpenLog:
        """Return a log as it is in the file."""
        known = self._logs.get(execution_id)
        if known is not None and known.generation == self._generation:
            return known
        found = find(cursor, execution_id)
        if found is None:
            raise self._unknown(execution_id)
        line = load_line(cursor.execute(f"{RECORD} WHERE key = ?", (found.key,)).fetchone())
        log = OpenLog(found.key, found.token, line, reach_of(cursor, self._types, found), self._generation)
        is_known = known is not None and known.is_as(log)
        log.ids = known.ids if known is not None and is_known else known_ids(cursor, self._types, found)
        return log


def _turn(cursor: sqlite3.Cursor, log: OpenLog, *, is_over: bool) -> None:
    tables.settle_questions(cursor, log.key, is_over=is_over)
    tables.turn(cursor, log.key, log.line.taken, is_over=is_over)


def _refuse_taken(cursor: sqlite3.Cursor, key: str) -> None:
    row = cursor.execute(f"{RECORD} WHERE start_key = ?", (key,)).fetchone()
    if row is not None:
        raise StartKeyTakenError(key, load_line(row).id)


# Events of one log as columns: SQLite joins each column into one text, sooner than it gives rows one by one.
#
# The checksum of a chain's last row is that of all of its rows in one piece, so that a page is compared at once. What
# does not fit is read row by row, which finds out what is wrong, and where (tests/store/test_pages.py).


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
        except (CorruptStoreError, DecryptionError) as why:
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
