"""Deleting executions, with everything that belongs to them."""

from __future__ import annotations

import sqlite3

from divebook.engine.lifecycle import TERMINAL
from divebook.store.leases import Moment
from divebook.store.sqlite.leases import load_leases
from divebook.store.sqlite.schema import places_of

TABLES = ("leases", "blob_uses", "checkpoints", "messages", "questions")
"""What belongs to executions, beside their events."""

_ENDED = "SELECT id FROM executions WHERE ended_at < ?"  # resuming clears it


def delete(cursor: sqlite3.Cursor, execution_id: str) -> bool:
    """Delete an execution; False if there is none."""
    found = cursor.execute("SELECT key FROM executions WHERE id = ?", (execution_id,)).fetchone()
    if found:
        cursor.execute("DELETE FROM events WHERE place BETWEEN ? AND ?", places_of(found[0]))
        for table in ("executions", *TABLES):
            cursor.execute(f"DELETE FROM {table} WHERE key = ?", found)  # noqa: S608 - one of our own tables
    return found is not None


def ended_before(cursor: sqlite3.Cursor, before: int) -> list[str]:
    """Return the executions that ended before a moment, in microseconds."""
    return [execution_id for (execution_id,) in cursor.execute(_ENDED, (before,)).fetchall()]


def is_over(cursor: sqlite3.Cursor, execution_id: str, moment: Moment) -> bool:
    """Return whether an execution has ended and nobody has begun to resume it."""
    found = cursor.execute("SELECT status FROM executions WHERE id = ?", (execution_id,)).fetchone()
    if found is None or found[0] not in TERMINAL:
        return False
    return not any(lease.keeps_out(moment) for lease in load_leases(cursor, execution_id))
