"""The store on an SQLite file: one writing connection behind a lock, one reading connection per thread.

The execution's row is changed by ``UPDATE ... WHERE last_sequence = expected`` inside the transaction that inserts the
events, so of two writers, threads or processes, one is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from divebook.errors import ConcurrentAppendError, InvalidEventError, ReadOnlyStoreError, StoreError
from divebook.events.catalog import RUNNING, TERMINAL, ExecutionStarted
from divebook.events.event import Event
from divebook.store.base import MAX_CANDIDATES, EventStore, ExecutionRecord, Refusal
from divebook.store.batches import PreparedBatch, duplicate_id
from divebook.store.sqlite.compact import EventTypes, pack_id
from divebook.store.sqlite.connections import Durability, Readers, open_reader, open_writer, why_read_only
from divebook.store.sqlite.faults import translate, translated
from divebook.store.sqlite.rows import RECORD, RECORDS, load_events, load_record
from divebook.store.sqlite.schema import check_current, migrate, place_of, places_of

_INSERT_EXECUTION = """
INSERT INTO executions
  (id, workflow_name, fingerprint, status, created_at, started_at, last_sequence, size)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADVANCE = "UPDATE executions SET last_sequence = ?, size = size + ? WHERE key = ? AND id = ? AND last_sequence = ?"
_TURN = "UPDATE executions SET status = ?, ended_at = ?, error = ? WHERE key = ?"
_INSERT_EVENT = "INSERT INTO events (place, recorded_at, type, id, path, step, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
_FIND = "SELECT key, last_sequence FROM executions WHERE id = ?"
_ENDED = "SELECT id FROM executions WHERE ended_at < ?"  # resuming clears it
_CANDIDATES = "SELECT id FROM executions WHERE id >= ? AND id < ? || char(1114111) ORDER BY id LIMIT ?"


@dataclass(slots=True)
class _OpenLog:
    """A log this process appends to.

    A unique index on event ids would cost 160 bytes a step and a quarter of the speed. The ids are UUIDv7, and a batch
    sent twice is refused by its expected sequence, so what is left is a double id made inside one execution: the ids of
    the logs being written are kept here, and read once when this process takes a log over.
    """

    key: int
    sequence: int
    ids: set[bytes | str] = field(default_factory=set)


class SqliteStore(EventStore):
    """Logs in one file, shared by threads and processes.

    Parameters
    ----------
    path
        The file; it is created if need be, and so is its folder if that is called ``.divebook``.
    durability
        ``full``: what is appended survives a power failure. ``relaxed``: it survives the death of the process, and a
        power failure may take the latest events, but never leaves a log half written.

    Raises
    ------
    StoreError
        There can be no store at that path.
    CorruptStoreError
        The file is something else, or damaged.
    NewerStoreError
        A newer divebook wrote it.
    """

    def __init__(self, path: str | Path, *, durability: Durability = "full") -> None:
        super().__init__()
        self.path = Path(path).expanduser().absolute()
        self.location = str(self.path)
        self.durability = durability
        self.read_only = why_read_only(self.path)
        """Why nothing can be written, or None."""
        self._types = EventTypes(self.location)
        self._logs: dict[str, _OpenLog] = {}
        self._readers = Readers(self._open_reader)
        self._writer: sqlite3.Connection | None = None
        with translated(self.location):
            self._open()

    def _open(self) -> None:
        if self.read_only:
            self._types.load(self._readers.get())
            return
        writer = open_writer(self.path, self.durability)
        try:
            migrate(writer, self.location)
            self._types.register(writer)
        except BaseException:
            writer.close()
            raise
        self._writer = writer

    def _open_reader(self) -> sqlite3.Connection:
        self._check_open()
        connection = open_reader(self.path, read_only=bool(self.read_only))
        if self.read_only:
            check_current(connection, self.location)
        return connection

    # --- writing -----------------------------------------------------------------------------------------------------

    def _transaction(self) -> _Transaction:
        if self._writer is None:
            raise ReadOnlyStoreError(
                f"nothing can be written to {self.location}: {self.read_only}. Make it writable, or choose another"
            )
        return _Transaction(self._writer, self.location)

    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        rows: list[tuple[Any, ...]] = []
        try:
            with self._transaction() as cursor:
                answers = [self._enter(cursor, batch, rows) for batch in batches]
                cursor.executemany(_INSERT_EVENT, rows)
        except BaseException:
            self._forget(batch.execution_id for batch in batches)  # their logs did not advance after all
            raise
        self._forget(batch.execution_id for batch in batches if batch.turn and batch.turn.status in TERMINAL)
        return answers

    def _enter(self, cursor: sqlite3.Cursor, batch: PreparedBatch, rows: list[tuple[Any, ...]]) -> Refusal | None:
        ids = [pack_id(event.id) for event in batch.events]
        try:
            log = self._claim(cursor, batch, ids)
        except (StoreError, InvalidEventError) as refusal:
            return refusal
        if batch.turn is not None:
            cursor.execute(_TURN, (batch.turn.status, batch.turn.ended_at, batch.turn.error, log.key))
        log.sequence = batch.last_sequence
        log.ids.update(ids)
        numbers = self._types.numbers
        place = place_of(log.key, batch.expected_sequence)
        for event, event_id, payload in zip(batch.events, ids, batch.payloads, strict=True):
            place += 1
            name = event.data.event_type
            number = numbers.get(name) or self._types.add(cursor, name)
            rows.append((place, event.recorded_at, number, event_id, event.path, event.step, payload.decode()))
        return None

    def _claim(self, cursor: sqlite3.Cursor, batch: PreparedBatch, ids: Sequence[bytes | str]) -> _OpenLog:
        """Advance the execution's row; raise if the batch does not fit the log."""
        if batch.started is not None:
            return self._begin(cursor, batch, batch.started)
        log = self._logs.get(batch.execution_id)
        if log is not None and log.sequence == batch.expected_sequence:
            _refuse_known(batch, ids, log)
            if _advance(cursor, batch, log):
                return log
        # The first append of this process, or another process was here.
        log = self._logs[batch.execution_id] = self._take_over(cursor, batch)
        _refuse_known(batch, ids, log)
        _advance(cursor, batch, log)
        return log

    def _begin(self, cursor: sqlite3.Cursor, batch: PreparedBatch, started: ExecutionStarted) -> _OpenLog:
        found = cursor.execute(_FIND, (batch.execution_id,)).fetchone()
        if found:
            raise ConcurrentAppendError(batch.execution_id, 0, found[1])
        created = batch.events[0].recorded_at
        row = (batch.execution_id, started.workflow_name, started.fingerprint, RUNNING, created, created)
        cursor.execute(_INSERT_EXECUTION, (*row, batch.last_sequence, batch.size))
        (key, _) = cursor.execute(_FIND, (batch.execution_id,)).fetchone()
        log = self._logs[batch.execution_id] = _OpenLog(key, 0)
        return log

    def _take_over(self, cursor: sqlite3.Cursor, batch: PreparedBatch) -> _OpenLog:
        found = cursor.execute(_FIND, (batch.execution_id,)).fetchone()
        if found is None:
            raise self._unknown(batch.execution_id)
        key, sequence = found
        if sequence != batch.expected_sequence:
            raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, sequence)
        ids = cursor.execute("SELECT id FROM events WHERE place BETWEEN ? AND ?", places_of(key)).fetchall()
        log = self._logs[batch.execution_id] = _OpenLog(key, sequence, {event_id for (event_id,) in ids})
        return log

    def _forget(self, execution_ids: Iterable[str]) -> None:
        for execution_id in execution_ids:
            self._logs.pop(execution_id, None)

    def _delete(self, execution_id: str) -> None:
        with self._transaction() as cursor:
            deleted = _delete(cursor, execution_id)
        if not deleted:
            raise self._unknown(execution_id)
        self._forget((execution_id,))

    def _cleanup(self, before: int) -> list[str]:
        with self._transaction() as cursor:
            ended = [execution_id for (execution_id,) in cursor.execute(_ENDED, (before,)).fetchall()]
            for execution_id in ended:
                _delete(cursor, execution_id)
        self._forget(ended)
        return ended

    def _close(self) -> None:
        self._readers.close()
        if self._writer is not None:
            with translated(self.location):
                self._writer.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self, execution_id: str, after: int, limit: int | None) -> list[Event]:
        with translated(self.location):
            connection = self._readers.get()
            found = connection.execute(_FIND, (execution_id,)).fetchone()
            if found is None:
                raise self._unknown(execution_id)
            return load_events(connection, self._types, (execution_id, found[0]), after, limit)

    def _record(self, execution_id: str) -> ExecutionRecord:
        with translated(self.location):
            row = self._readers.get().execute(f"{RECORD} WHERE id = ?", (execution_id,)).fetchone()
        if row is None:
            raise self._unknown(execution_id)
        return load_record(row)

    def _records(self, status: str | None, workflow: str | None, limit: int, offset: int) -> list[ExecutionRecord]:
        wanted = {"status": status, "workflow": workflow, "limit": limit or -1, "offset": offset}
        with translated(self.location):
            rows = self._readers.get().execute(RECORDS, wanted).fetchall()
        return [load_record(row) for row in rows]

    def _candidates(self, prefix: str) -> list[str]:
        with translated(self.location):
            rows = self._readers.get().execute(_CANDIDATES, (prefix, prefix, MAX_CANDIDATES + 1)).fetchall()
        return [execution_id for (execution_id,) in rows]


class _Transaction:
    """``BEGIN IMMEDIATE`` ... ``COMMIT``, undone by any exception, KeyboardInterrupt included."""

    __slots__ = ("_connection", "_location")

    def __init__(self, connection: sqlite3.Connection, location: str) -> None:
        self._connection = connection
        self._location = location

    def __enter__(self) -> sqlite3.Cursor:
        try:
            if self._connection.in_transaction:  # a KeyboardInterrupt came between BEGIN and the block
                self._connection.execute("ROLLBACK")
            return self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise translate(error, self._location) from error

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        try:
            if error is None:
                self._connection.execute("COMMIT")
        except sqlite3.Error as failure:
            raise translate(failure, self._location) from failure
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise translate(error, self._location) from error


def _refuse_known(batch: PreparedBatch, ids: Sequence[bytes | str], log: _OpenLog) -> None:
    if not log.ids.isdisjoint(ids):
        index = next(index for index, event_id in enumerate(ids) if event_id in log.ids)
        raise duplicate_id(index, batch.events[index].id)


def _advance(cursor: sqlite3.Cursor, batch: PreparedBatch, log: _OpenLog) -> bool:
    expected, last = batch.expected_sequence, batch.last_sequence
    return cursor.execute(_ADVANCE, (last, batch.size, log.key, batch.execution_id, expected)).rowcount == 1


def _delete(cursor: sqlite3.Cursor, execution_id: str) -> bool:
    found = cursor.execute(_FIND, (execution_id,)).fetchone()
    if found:
        cursor.execute("DELETE FROM events WHERE place BETWEEN ? AND ?", places_of(found[0]))
        cursor.execute("DELETE FROM executions WHERE key = ?", found[:1])
    return found is not None
