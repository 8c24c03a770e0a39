"""What lists show beside the rows of executions: summaries, each with a checksum of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from divebook.events.codec import encode
from divebook.store.checksums import of_row
from divebook.store.summaries import StoredSummary

_PUT = """
INSERT INTO summaries (key, sequence, checksum, data) SELECT key, ?, ?, ? FROM executions WHERE id = ?
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, checksum = excluded.checksum, data = excluded.data
"""
_GET = """
SELECT executions.id, sequence, summaries.checksum, data FROM summaries JOIN executions USING (key)
WHERE executions.id IN (SELECT value FROM json_each(?))
"""
_ALL = "SELECT executions.id, sequence, summaries.checksum, data FROM summaries JOIN executions USING (key)"


def put(cursor: sqlite3.Cursor, summaries: Mapping[str, StoredSummary]) -> None:
    """Write summaries in place of older ones."""
    rows = [(kept.sequence, _checksum(name, *kept), kept.data, name) for name, kept in summaries.items()]
    cursor.executemany(_PUT, rows)


def load(connection: sqlite3.Connection, execution_ids: Sequence[str]) -> dict[str, StoredSummary]:
    """Return the summaries of some executions, as far as they are as they were written."""
    rows = connection.execute(_GET, (encode(list(execution_ids)).decode(),)).fetchall()
    return {row[0]: StoredSummary(row[1], row[3]) for row in rows if _is_sound(row)}


def find_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which summaries are damaged."""
    return [
        f"the summary of execution {row[0]} is damaged. It is not used, and nothing is lost: it is made again when the "
        "execution is listed"
        for row in connection.execute(_ALL)
        if not _is_sound(row)
    ]


def _is_sound(row: tuple[Any, ...]) -> bool:
    execution_id, sequence, checksum, data = row
    return isinstance(data, bytes) and _checksum(execution_id, sequence, data) == checksum


def _checksum(execution_id: str, sequence: int, data: bytes) -> int:
    return crc32(data, of_row((execution_id, sequence)))
