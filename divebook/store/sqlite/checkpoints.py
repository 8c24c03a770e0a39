"""The newest checkpoint of each execution, with a checksum: a damaged one counts as none."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from zlib import crc32

_PUT = """
INSERT INTO checkpoints (key, sequence, checksum, data) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
WHERE excluded.sequence >= sequence
"""
_GET = """
SELECT sequence, checkpoints.checksum, data FROM checkpoints JOIN executions USING (key)
WHERE id = ? AND sequence <= last_sequence
"""
_LIST = "SELECT id FROM checkpoints JOIN executions USING (key)"
_DROP = "DELETE FROM checkpoints WHERE key = (SELECT key FROM executions WHERE id = ?)"


def put(cursor: sqlite3.Cursor, key: int, sequence: int, data: bytes) -> None:
    """Write a checkpoint in place of an older one."""
    cursor.execute(_PUT, (key, sequence, crc32(data, sequence), data))


def get(connection: sqlite3.Connection, execution_id: str) -> tuple[int, bytes] | None:
    """Return sequence and data of an execution's checkpoint, unless it is damaged."""
    row = connection.execute(_GET, (execution_id,)).fetchone()
    return (row[0], row[2]) if row and isinstance(row[2], bytes) and crc32(row[2], row[0]) == row[1] else None


def list_ids(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of the executions that have a checkpoint."""
    return [execution_id for (execution_id,) in connection.execute(_LIST).fetchall()]


def drop(cursor: sqlite3.Cursor, execution_ids: Sequence[str]) -> int:
    """Delete checkpoints; return how many."""
    return sum(cursor.execute(_DROP, (execution_id,)).rowcount for execution_id in execution_ids)
