"""The newest checkpoint of each execution, with a checksum: a damaged one counts as none."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from zlib import crc32

from divebook.store.checksums import of_row
from divebook.store.sqlite.rows import Log

_PUT = """
INSERT INTO checkpoints (key, sequence, checksum, data) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
WHERE excluded.sequence >= sequence
"""
_GET = "SELECT sequence, checksum, data FROM checkpoints WHERE key = ? AND sequence <= ?"
_LIST = "SELECT id FROM checkpoints JOIN executions USING (key)"
_DROP = "DELETE FROM checkpoints WHERE key = (SELECT key FROM executions WHERE id = ?)"


def _checksum(log: Log, sequence: int, data: bytes) -> int:
    return crc32(data, of_row((log.execution_id, sequence)))


def put(cursor: sqlite3.Cursor, log: Log, sequence: int, data: bytes) -> None:
    """Write a checkpoint in place of an older one."""
    cursor.execute(_PUT, (log.key, sequence, _checksum(log, sequence, data), data))


def get(connection: sqlite3.Connection, log: Log) -> tuple[int, bytes] | None:
    """Return sequence and data of an execution's checkpoint, unless it is damaged."""
    row = connection.execute(_GET, (log.key, log.last_sequence)).fetchone()
    if row is None or not isinstance(row[2], bytes):
        return None
    sequence, checksum, data = row
    return (sequence, data) if _checksum(log, sequence, data) == checksum else None


def list_ids(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of the executions that have a checkpoint."""
    return [execution_id for (execution_id,) in connection.execute(_LIST).fetchall()]


def drop(cursor: sqlite3.Cursor, execution_ids: Sequence[str]) -> int:
    """Delete checkpoints; return how many."""
    return sum(cursor.execute(_DROP, (execution_id,)).rowcount for execution_id in execution_ids)
