"""Writing of batches into a store file: rows of records, and the row of their execution.

`LogWriter` compares the end of a log with the batch inside the transaction that inserts the records. Of two threads or
processes that append to one log, one is therefore refused. The writer caches the ends of the logs that this process
writes. The cache is valid as long as no other connection has written to the file (``PRAGMA data_version``); after that,
each log is read again when it is next written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import (
    ConcurrentAppendError,
    ExecutionNotFoundError,
    InvalidEventError,
    StartKeyTakenError,
    StoreError,
)
from divebook.events.codec import decode
from divebook.events.event import successor
from divebook.stores.append import (
    Beginning,
    Durability,
    Ids,
    KnownIds,
    Line,
    PreparedBatch,
    Refusal,
    first_line,
    fork_point_error,
    line_after,
)
from divebook.stores.encoding import PACKED, pack_id, unpack_id, width_of
from divebook.stores.leases import Lease
from divebook.stores.sqlite import log_reader, tables
from divebook.stores.sqlite.log_reader import MOST, RECORD, Log, LogEnd, find, load_line, load_records, log_end_of
from divebook.stores.sqlite.schema import EventTypes, place_of

RECORDS_PER_ROW_UPDATE = 32
"""Maximum number of records appended between two updates of the execution's row, so that `log_end_of` stays fast."""
MAX_CACHED_LOGS = 1000
"""Maximum number of cached logs. Logs beyond that, mostly of waiting executions, are read again when needed."""
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
_UPDATE_ROW = """
UPDATE executions SET status = ?, ended_at = ?, last_sequence = ?, error = ?, size = ?, wake_at = ?, taken = ?,
  checksum = ?, seal = ? WHERE key = ?
"""
_ANNOTATE = "UPDATE executions SET tags = ?, note = ? WHERE key = ?"
# Only the columns that change with every record: SQLite updates the indexes of each column in SET, changed or not.
_GROW = "UPDATE executions SET last_sequence = ?, size = ?, checksum = ?, seal = ? WHERE key = ?"
# Packed ids sort as their texts do. SQLite takes the bare column `type` from the row with the highest id.
_HIGHEST = """
SELECT max(id), type, sum(typeof(id) <> 'blob' OR length(id) <> 16) FROM events WHERE place BETWEEN ? AND ?
"""
_IDS = "SELECT id, type FROM events WHERE place BETWEEN ? AND ?"
_RELEASE = "DELETE FROM leases WHERE key = ?"


class LogWriter:
    """Writer of batches to logs in a store file, with a cache of the logs that this process writes."""

    def __init__(
        self, types: EventTypes, durability: Durability, unknown: Callable[[str], ExecutionNotFoundError]
    ) -> None:
        self._types = types
        self._durability = durability
        """Durability recorded for executions whose first batch does not specify one."""
        self._unknown = unknown
        self._logs: dict[str, CachedLog] = {}
        """Cached logs by execution id, the least recently written log first."""
        self._file_version = -1
        """``PRAGMA data_version`` at the last write, which changes when another connection writes to the file. A log
        that was cached at another version may be outdated."""

    def write(
        self, cursor: sqlite3.Cursor, batches: Sequence[PreparedBatch], file_version: int
    ) -> list[Refusal | None]:
        """Write batches in the caller's transaction. Return for each batch the error with which it was refused, or None
        if it was written.

        `file_version` is the ``PRAGMA data_version`` of the file in this transaction.
        """
        self._types.refresh(cursor)
        self._file_version = file_version
        answers = list(map(self._write_batch, repeat(cursor), batches))
        while len(self._logs) > MAX_CACHED_LOGS:
            del self._logs[next(iter(self._logs))]
        return answers

    def note_lease(self, lease: Lease) -> None:
        """Note the new token of an execution. A log that this process knows stays cached if no other lease was acquired
        since: `write` finds out whether anything else in the file has changed.
        """
        log = self._logs.get(lease.execution_id)
        if log is not None and lease.token == log.token + 1:
            log.token = lease.token
        else:
            self.forget((lease.execution_id,))

    def forget(self, execution_ids: Iterable[str]) -> None:
        """Remove the logs of executions from the cache, so that the next write reads their state from the file."""
        for execution_id in execution_ids:
            self._logs.pop(execution_id, None)

    def _write_batch(self, cursor: sqlite3.Cursor, batch: PreparedBatch) -> Refusal | None:
        """Write one batch. Return the error if it is refused, or None if it was written.

        First the rows that belong to the execution (its own row, lease, questions, queue), then its records.
        """
        ids = [pack_id(record.id) for record in batch.records]
        try:
            log, before = self._open_log(cursor, batch)
        except (StoreError, InvalidEventError) as refusal:
            return refusal
        checksums = batch.checksums(before)
        grown = log_reader.insert_blobs(cursor, log.key, batch.blobs, batch.packed) if batch.blobs else 0
        # The row of a new log has just been inserted, without the large values, which need its key.
        if batch.beginning is None:
            log.advance(cursor, batch, checksums[-1], grown)
        elif grown:
            log.write_row(cursor, batch, grown)
        if batch.status_change is not None and batch.ends:
            _end(cursor, log, batch)
        if batch.questions:
            tables.write_questions(cursor, log.key, batch.questions)
        # Questions and messages repeat whether their execution has ended. A log that begins has no messages, and often
        # no questions.
        if batch.status_change is not None and (batch.questions or batch.beginning is None):
            _set_over(cursor, log, is_over=batch.ends)
        if batch.enqueued is not None:
            tables.put_in_queue(cursor, log.key, batch.enqueued, withheld=bool(batch.withheld))
        # A new execution has no entry in a queue without `ExecutionEnqueued`.
        elif batch.withheld is not None and batch.beginning is None:
            tables.set_withheld(cursor, log.key, withheld=batch.withheld)
        log.ids.add(batch.records, batch.ids)
        numbers = self._types.numbers
        base = place_of(log.key, 0)
        rows: list[tuple[Any, ...]] = []
        entries = zip(batch.records, batch.types, ids, batch.payloads, checksums, strict=True)
        for record, name, first_id, payload, checksum in entries:
            number = numbers.get(name) or self._types.add(cursor, name)
            place = base + record.sequence
            # Data that are not compressed are stored as text, for people with an SQL shell.
            data = payload if payload[:1] == PACKED else payload.decode()
            rows.append((place, record.recorded_at, number, first_id, record.path, record.step, data, checksum))
        cursor.executemany(_INSERT_RECORD, rows)
        return None

    def _open_log(self, cursor: sqlite3.Cursor, batch: PreparedBatch) -> tuple[CachedLog, int]:
        """Check that a batch may be written. Return the log that it extends or begins, and the checksum of the last
        record before it.

        Raises
        ------
        StoreError, InvalidEventError
            The batch is refused. Nothing was written.
        """
        if batch.beginning is not None:
            log, before = self._begin(cursor, batch, batch.beginning)
        else:
            log = self._current(cursor, batch.execution_id)
            if log.token != batch.token:
                raise batch.fenced_error(log.token)
            if log.end.last_sequence != batch.expected_sequence:
                raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, log.end.last_sequence)
            # Inside the transaction, since callers can only check before it. If two of them saw the execution running,
            # the second is refused (test_nothing_follows_an_end_but_what_the_table_allows,
            # tests/runtime/test_meanwhile.py).
            if log.line.status in TERMINAL:
                batch.check_may_follow(log.line.status)
            if batch.last_message is not None:
                batch.check_has_read(tables.newest_message_number(cursor, log.key))
            log.ids.refuse(batch.records, batch.ids, lambda: self._ids_of(cursor, batch.execution_id))
            before = log.end.checksum
        self._logs.pop(batch.execution_id, None)  # the log that was written last is the last key
        self._logs[batch.execution_id] = log
        return log, before

    def _ids_of(self, cursor: sqlite3.Cursor, execution_id: str) -> list[Ids]:
        log = find(cursor, execution_id)
        return [] if log is None else load_ids(cursor, self._types, log)

    def _begin(self, cursor: sqlite3.Cursor, batch: PreparedBatch, beginning: Beginning) -> tuple[CachedLog, int]:
        if find(cursor, batch.execution_id) is not None:
            existing = self._current(cursor, batch.execution_id)
            raise ConcurrentAppendError(batch.execution_id, 0, existing.end.last_sequence)
        # A new execution never had a lease, so no token fits.
        if batch.token:
            raise batch.fenced_error(0)
        if beginning.key is not None:
            _refuse_used_start_key(cursor, beginning.key)
        line = line_after(first_line(batch, beginning, batch.durability or self._durability), batch, batch.size)
        fork_point = None if batch.source is None else self._fork_point(cursor, batch, batch.source)
        checksum_before, source_key = (0, None) if fork_point is None else fork_point
        checksum = batch.checksums(checksum_before)[-1]
        token = batch.lease.token if batch.lease else 0
        forked_at = batch.expected_sequence if source_key else None
        cursor.execute(_INSERT_EXECUTION, (*line, line.seal(), checksum, token, source_key, forked_at))
        key = cursor.lastrowid or 0
        if beginning.tags:
            tables.insert_tags(cursor, key, line.created_at, beginning.tags)
        if batch.lease is not None:
            tables.insert_lease(cursor, key, batch.lease)
        log = CachedLog(key, token, line, LogEnd(batch.last_sequence, checksum), self._file_version)
        if source_key is not None:
            log.ids = KnownIds(None)  # the ids that it shares are unknown, and read only if necessary
        return log, checksum_before

    def _fork_point(self, cursor: sqlite3.Cursor, batch: PreparedBatch, source: str) -> tuple[int, int]:
        """Return the checksum of the last event that a new fork shares with its source execution. Also return the key
        of the execution to which the database row of this event belongs, since the source may be a fork itself.
        """
        source_log = find(cursor, source)
        sequence = batch.expected_sequence
        if source_log is None:
            raise self._unknown(source)
        last = None
        # Exhaust the iterator: `load_records` raises for a missing event at its end. It yields at most one record.
        for record in load_records(cursor, self._types, source_log, after=sequence - 1, last=sequence):
            last = record
        if last is None or last.last_sequence != sequence:
            raise fork_point_error(batch)
        owner_key = next(part.key for part in source_log.parts if part.after < sequence <= part.upto)
        return last.checksum or 0, owner_key

    def _current(self, cursor: sqlite3.Cursor, execution_id: str) -> CachedLog:
        """Return the present state of a log: the cached state if no other process has written to the store file since
        it was cached, otherwise the state in the file.
        """
        cached = self._logs.get(execution_id)
        if cached is not None and cached.file_version == self._file_version:
            return cached
        position = find(cursor, execution_id)
        if position is None:
            raise self._unknown(execution_id)
        line = load_line(cursor.execute(f"{RECORD} WHERE key = ?", (position.key,)).fetchone())
        log_end = log_end_of(cursor, self._types, position)
        log = CachedLog(position.key, position.token, line, log_end, self._file_version)
        # Another connection has written to the file, but not to this log, so the cached ids are complete.
        if cached is not None and cached.same_as(log):
            log.ids = cached.ids
        else:
            log.ids = known_ids(cursor, self._types, position)
        return log


@dataclass(slots=True)
class CachedLog:
    """State of a log that this process writes, kept so that it need not be read again: the execution's row, the end of
    the log, and its event ids.

    The ids replace a unique index, which would cost 160 bytes a step and a quarter of the speed. Ids are UUIDv7, and a
    batch that is sent twice is refused by its expected sequence. The only other duplicates are ids that one execution
    uses twice, and the cached ids detect these. They are read from the file when this process begins to write a log.
    """

    key: int
    token: int
    """Token of the execution's latest lease."""
    line: Line
    """Row of the execution as it is in the file."""
    end: LogEnd
    """Present end of the log."""
    file_version: int
    """``PRAGMA data_version`` of the file when the log was read or written."""
    ids: KnownIds = field(default_factory=KnownIds)

    def same_as(self, other: CachedLog) -> bool:
        """Return True if this cached log and another one have the same lease token, execution row and end, so that the
        log has not changed.
        """
        return (self.token, self.line, self.end) == (other.token, other.line, other.end)

    def advance(self, cursor: sqlite3.Cursor, batch: PreparedBatch, checksum: int, grown: int) -> None:
        """Set the end of this cached log to the end of a batch that was just written. Write the execution's row if the
        batch changes more than its end, or if its end has not been updated for many records.

        `grown` is the number of bytes of new large values.
        """
        added = self.end.added + batch.size
        records = self.end.records + len(batch.records)
        self.end = LogEnd(batch.last_sequence, checksum, added, records)
        line = self.line
        is_changed = batch.status_change is not None or batch.wake_at != line.wake_at or batch.taken > line.taken
        if is_changed or batch.annotations or batch.status not in (None, line.status):
            self.write_row(cursor, batch, grown)
        elif grown or records >= RECORDS_PER_ROW_UPDATE:
            self._update_growth(cursor, grown)

    def _update_growth(self, cursor: sqlite3.Cursor, grown: int) -> None:
        """Update only the end and the size of the log in the execution's row."""
        last, checksum, added, _ = self.end
        line = self.line._replace(last_sequence=last, size=self.line.size + added + grown)
        self.line = line
        self.end = LogEnd(last, checksum)
        cursor.execute(_GROW, (last, line.size, checksum, line.seal(), self.key))

    def write_row(self, cursor: sqlite3.Cursor, batch: PreparedBatch, grown: int) -> None:
        """Update all columns of the execution's row that a batch may change: status, times, end, size, messages and
        annotations.
        """
        last, checksum, added, _ = self.end
        line = line_after(self.line, batch, self.line.size + added + grown)
        status = (line.status, line.ended_at, line.last_sequence, line.error, line.size, line.wake_at, line.taken)
        # `Line.seal` covers the new values, so all of them are written together with it.
        cursor.execute(_UPDATE_ROW, (*status, checksum, line.seal(), self.key))
        # Lists find executions by the rows of the table of tags.
        if batch.annotations:
            cursor.execute(_ANNOTATE, (line.tags, line.note, self.key))
            tables.delete_tags(cursor, self.key)
            tables.insert_tags(cursor, self.key, line.created_at, decode(line.tags))
        if line.taken > self.line.taken:
            tables.mark_messages_taken(cursor, self.key, line.taken)
        self.line = line
        self.end = LogEnd(last, checksum)


def known_ids(cursor: sqlite3.Cursor, types: EventTypes, log: Log) -> KnownIds:
    """Return the event ids of a log for the detection of duplicates. If all ids have divebook's own format, only the
    highest id is read.
    """
    highest_of_parts: list[tuple[bytes, int]] = []
    for places in log.ranges(1, MOST):
        highest, number, other_count = cursor.execute(_HIGHEST, places).fetchone()
        # Other ids do not sort as their texts do, so the highest one proves nothing.
        if other_count:
            return KnownIds(None)
        if highest is not None:
            highest_of_parts.append((highest, number))
    if not highest_of_parts:
        return KnownIds("")
    highest, number = max(highest_of_parts)
    try:
        return KnownIds(successor(unpack_id(highest), width_of(types.name(number, cursor)) - 1))
    except ValueError:  # divebook does not write such an id
        return KnownIds(None)


def load_ids(cursor: sqlite3.Cursor, types: EventTypes, log: Log) -> list[Ids]:
    """Return the event ids of each record of a log, as pairs of the first id and the number of events."""
    # Fetched first: a query for the name of a type on the same cursor would end these rows.
    rows = [row for places in log.ranges(1, MOST) for row in cursor.execute(_IDS, places).fetchall()]
    return [(unpack_id(event_id), width_of(types.name(number, cursor))) for event_id, number in rows]


def _end(cursor: sqlite3.Cursor, log: CachedLog, batch: PreparedBatch) -> None:
    """Release the lease of an execution that ends, and notify its parent."""
    cursor.execute(_RELEASE, (log.key,))
    if batch.to_parent is not None:
        tables.post_to_unended(cursor, *batch.to_parent)


def _set_over(cursor: sqlite3.Cursor, log: CachedLog, *, is_over: bool) -> None:
    tables.set_questions_over(cursor, log.key, is_over=is_over)
    tables.set_messages_over(cursor, log.key, log.line.taken, is_over=is_over)


def _refuse_used_start_key(cursor: sqlite3.Cursor, key: str) -> None:
    row = cursor.execute(f"{RECORD} WHERE start_key = ?", (key,)).fetchone()
    if row is not None:
        raise StartKeyTakenError(key, load_line(row).id)
