"""The newest checkpoint of each execution, with a checksum over it and over the log up to it.

One that is damaged, belongs to another log, or to what its log was before, counts as none; `check` says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from zlib import crc32

from divebook.store.checksums import of_row
from divebook.store.sqlite.whereabouts import Log

_PUT = """
INSERT INTO checkpoints (key, sequence, checksum, data) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
WHERE excluded.sequence >= sequence
"""
_GET = "SELECT sequence, checksum, data FROM checkpoints WHERE key = ?"
_CHAIN = "SELECT checksum FROM events WHERE place > ? AND place <= ? ORDER BY place DESC LIMIT 1"
_LIST = "SELECT id FROM checkpoints JOIN executions USING (key)"
_DROP = "DELETE FROM checkpoints WHERE key = (SELECT key FROM executions WHERE id = ?)"


def _checksum(connection: sqlite3.Connection | sqlite3.Cursor, log: Log, sequence: int, data: bytes) -> int:
    # That of the last record in the fold covers all before it: what was folded is what is there.
    first, last = log.ranges(1, sequence)[-1]
    chain = connection.execute(_CHAIN, (first - 1, last)).fetchone()
    return crc32(data, of_row((log.execution_id, sequence, chain)))


def put(cursor: sqlite3.Cursor, log: Log, sequence: int, data: bytes) -> None:
    """Write a checkpoint in place of an older one."""
    cursor.execute(_PUT, (log.key, sequence, _checksum(cursor, log, sequence, data), data))


def get(connection: sqlite3.Connection, log: Log) -> tuple[int, bytes] | None:
    """Return sequence and data of an execution's checkpoint, unless it is damaged or does not belong to the log."""
    row = connection.execute(_GET, (log.key,)).fetchone()
    if row is None or not (isinstance(row[0], int) and isinstance(row[2], bytes)):
        return None
    sequence, checksum, data = row
    return (sequence, data) if _checksum(connection, log, sequence, data) == checksum else None


def fits(connection: sqlite3.Connection, log: Log) -> bool:
    """Return whether the checkpoint of a log, if it has one, is as it was written, and of that log."""
    row = connection.execute(_GET, (log.key,)).fetchone()
    if row is None or get(connection, log) is not None:
        return True
    sequence, checksum, data = row
    if not (isinstance(sequence, int) and isinstance(data, bytes)):
        return False
    # What the checksum was made of before it covered the log: such a one is sound, though it is not used.
    return checksum in (crc32(data, of_row((log.execution_id, sequence))), crc32(data, sequence))


def list_ids(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of the executions that have a checkpoint."""
    return [execution_id for (execution_id,) in connection.execute(_LIST).fetchall()]


def drop(cursor: sqlite3.Cursor, execution_ids: Sequence[str]) -> int:
    """Delete checkpoints; return how many."""
    return sum(cursor.execute(_DROP, (execution_id,)).rowcount for execution_id in execution_ids)
