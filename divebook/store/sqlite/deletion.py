"""Deleting executions, with everything that belongs to them."""

from __future__ import annotations

import sqlite3

from divebook.engine.lifecycle import TERMINAL
from divebook.store.leases import Moment
from divebook.store.sqlite.leases import load_lease
from divebook.store.sqlite.rows import RECORD, find, load_line
from divebook.store.sqlite.schema import places_of

TABLES = ("leases", "blob_uses", "checkpoints", "summaries", "messages", "questions", "tags")
"""What belongs to executions, beside their events."""

_ENDED = "SELECT id FROM executions WHERE ended_at < ?"  # resuming clears it


def delete(cursor: sqlite3.Cursor, execution_id: str) -> bool:
    """Delete an execution; False if there is none."""
    log = find(cursor, execution_id)
    if log is not None:
        cursor.execute("DELETE FROM events WHERE place BETWEEN ? AND ?", places_of(log.key))
        for table in ("executions", *TABLES):
            cursor.execute(f"DELETE FROM {table} WHERE key = ?", (log.key,))  # noqa: S608 - one of our own tables
    return log is not None


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
