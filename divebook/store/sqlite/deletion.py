"""Deleting executions, with everything that belongs to them."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import CorruptStoreError, SealedError
from divebook.store.blobs import reached
from divebook.store.codec import Sealing
from divebook.store.leases import Moment
from divebook.store.sqlite import blobs
from divebook.store.sqlite.leases import load_lease
from divebook.store.sqlite.rows import RECORD, load_line
from divebook.store.sqlite.schema import place_of, places_of
from divebook.store.sqlite.whereabouts import Log, find

TABLES = ("leases", "blob_uses", "checkpoints", "summaries", "messages", "questions", "tags", "queued")
"""What belongs to executions, beside their events."""

_ENDED = "SELECT id FROM executions WHERE ended_at < ?"  # resuming clears it


_HEIRS = "SELECT key, forked_at FROM executions WHERE source_key = ? ORDER BY forked_at DESC, key"
_MOVE = "UPDATE events SET place = place + ? WHERE place BETWEEN ? AND ?"
_LONG = "SELECT ifnull(sum(length(CAST(data AS BLOB))), 0) FROM events WHERE place BETWEEN ? AND ?"
_PAYLOADS = "SELECT CAST(data AS BLOB) FROM events WHERE place BETWEEN ? AND ?"
_INHERIT = "UPDATE executions SET source_key = ?, forked_at = ? WHERE key = ?"
_FOLLOW = "UPDATE executions SET source_key = ? WHERE source_key = ?"
_GROW = "UPDATE executions SET size = ?, seal = ? WHERE key = ?"


def delete(cursor: sqlite3.Cursor, execution_id: str, sealing: Sealing) -> list[str]:
    """Delete an execution; return which rows of others are other ones then, with its own id: none if there is none.

    What forks share of it goes to the one that shares most, its heir, and the other forks refer to that one then.
    """
    log = find(cursor, execution_id)
    changed: list[str] = []
    if log is not None:
        changed = [execution_id, *_hand_over(cursor, log, sealing)]
        cursor.execute("DELETE FROM events WHERE place BETWEEN ? AND ?", places_of(log.key))
        for table in ("executions", *TABLES):
            cursor.execute(f"DELETE FROM {table} WHERE key = ?", (log.key,))  # noqa: S608 - one of our own tables
    return changed


def _hand_over(cursor: sqlite3.Cursor, log: Log, sealing: Sealing) -> list[str]:
    """Give what forks share of a log to its heir; return the id of that one."""
    forks = cursor.execute(_HEIRS, (log.key,)).fetchall()
    if not forks:
        return []
    (heir, upto), after = forks[0], log.shared
    above = log.parts[-2].key if after else None
    first, last = place_of(log.key, after + 1), place_of(log.key, upto)
    (grown,) = cursor.execute(_LONG, (first, last)).fetchone()
    cursor.execute(_MOVE, (place_of(heir - log.key, 0), first, last))
    cursor.execute(_INHERIT, (above, after or None, heir))
    cursor.execute(_FOLLOW, (heir, log.key))
    grown += blobs.inherit(cursor, log.key, heir, _used(cursor, heir, upto, sealing))
    row = cursor.execute(f"{RECORD} WHERE key = ?", (heir,)).fetchone()
    with suppress(CorruptStoreError):  # a row that is damaged stays so, and `check` says it
        line = load_line(row)
        line = line._replace(size=line.size + grown)
        cursor.execute(_GROW, (line.size, line.seal(), heir))
    return [row[0]]


def _used(cursor: sqlite3.Cursor, heir: int, upto: int, sealing: Sealing) -> frozenset[bytes] | None:
    """Return the large values of what an heir was handed; None for all, where that cannot be read."""
    fetch = blobs.fetcher(cursor, sealing)
    rows = cursor.execute(_PAYLOADS, (place_of(heir, 1), place_of(heir, upto))).fetchall()
    try:
        return frozenset(digest for (data,) in rows for digest in reached(sealing.open_packed(data), fetch))
    except (CorruptStoreError, SealedError):
        return None


def ended_before(cursor: sqlite3.Cursor, before: int) -> list[str]:
    """Return the executions that ended before a moment, in microseconds."""
    return [execution_id for (execution_id,) in cursor.execute(_ENDED, (before,)).fetchall()]


def is_over(cursor: sqlite3.Cursor, execution_id: str, moment: Moment) -> bool:
    """Return whether an execution has ended and no process has begun to resume it."""
    row = cursor.execute(f"{RECORD} WHERE id = ?", (execution_id,)).fetchone()
    log = find(cursor, execution_id)
    if row is None or log is None or load_line(row).status not in TERMINAL:
        return False
    lease = load_lease(cursor, log.key)
    return lease is None or not lease.keeps_out(moment)
