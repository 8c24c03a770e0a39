"""Reading a file for `check`: rows as they are, and what is wrong with the file as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from types import NoneType
from typing import Any

from divebook.errors import CorruptStoreError
from divebook.store.execution_row import Line, record_of
from divebook.store.packed_ids import unpack_id
from divebook.store.sqlite import checkpoints, lists, messages, questions, queues, summaries
from divebook.store.sqlite.compact import EventTypes
from divebook.store.sqlite.deletion import TABLES
from divebook.store.sqlite.faults import typed
from divebook.store.sqlite.rows import LINE_TYPES, RECORD
from divebook.store.sqlite.whereabouts import MOST, find
from divebook.store.upkeep import StoredLog, StoredRecord

_EVENTS = """
SELECT place & 4294967295, recorded_at, type, id, CAST(path AS BLOB), CAST(step AS BLOB),
  CAST(data AS BLOB), checksum FROM events
WHERE place BETWEEN ? AND ? ORDER BY place
"""
_TYPES = (int, int, int, (bytes, str), bytes, bytes, bytes, (int, NoneType))
_USED = "SELECT digest FROM blob_uses JOIN blobs ON number = blob WHERE key = ?"
_STRAY_EVENTS = "SELECT count(*) FROM events WHERE place >> 32 NOT IN (SELECT key FROM executions)"
_STRAY = "SELECT count(*) FROM {} WHERE key NOT IN (SELECT key FROM executions)"


def load_stored(connection: sqlite3.Connection, types: EventTypes, execution_id: str) -> StoredLog | None:
    """Return a log as it is, None if there is none; `connection` reads at one moment."""
    row = connection.execute(f"{RECORD} WHERE id = ?", (execution_id,)).fetchone()
    found = find(connection, execution_id)
    if row is None or found is None:
        return None
    rows, broken = _as_far_as_possible(connection, found.ranges(1, MOST))
    blobs = _used(connection, found.key)
    shared_blobs = frozenset[bytes]().union(*(_used(connection, part.key) for part in found.parts[:-1]))
    asked = questions.open_of(connection, found.key)
    fits = checkpoints.fits(connection, found)
    records = [_record(row, types, connection) for row in rows]
    line = Line(*typed("row of an execution", row[:-2], LINE_TYPES))
    noted = blobs, asked, found.shared, shared_blobs
    return StoredLog(record_of(line), found.checksum, records, *noted, broken, row[-2] != line.seal(), fits)


def _used(connection: sqlite3.Connection, key: int) -> frozenset[bytes]:
    return frozenset(digest for (digest,) in connection.execute(_USED, (key,)).fetchall())


def _as_far_as_possible(
    connection: sqlite3.Connection, ranges: Sequence[tuple[int, int]]
) -> tuple[list[tuple[Any, ...]], str | None]:
    rows: list[tuple[Any, ...]] = []
    try:
        for places in ranges:
            rows.extend(typed("event", row, _TYPES) for row in connection.execute(_EVENTS, places))  # up to an error
    except (sqlite3.DatabaseError, CorruptStoreError) as error:
        return rows, str(error)
    return rows, None


def _record(row: tuple[Any, ...], types: EventTypes, connection: sqlite3.Connection) -> StoredRecord:
    sequence, recorded_at, number, event_id, path, step, payload, checksum = row
    try:
        name = types.name(number, connection)
    except CorruptStoreError:
        name = f"type {number}"
    return StoredRecord(sequence, recorded_at, name, unpack_id(event_id), _text(path), _text(step), payload, checksum)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")  # what is damaged shows in the checksum


def find_faults(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds wrong with its pages, and rows that belong to nothing."""
    faults = [f"the file's structure is damaged: {text}" for text in _damaged_pages(connection)]
    if faults:
        return faults
    (events,) = connection.execute(_STRAY_EVENTS).fetchone()
    if events:
        faults.append(f"{events} events belong to no execution")
    for table in TABLES:
        (count,) = connection.execute(_STRAY.format(table)).fetchone()
        if count:
            faults.append(f"{count} rows of table {table} belong to no execution")
    for part in (queues, messages, questions, lists, summaries):
        faults += part.find_faults(connection)
    return faults


def _damaged_pages(connection: sqlite3.Connection) -> list[str]:
    try:
        return [text for (text,) in connection.execute("PRAGMA integrity_check(20)").fetchall() if text != "ok"]
    except sqlite3.DatabaseError as error:  # some damage even ends the search for damage
        return [str(error)]
