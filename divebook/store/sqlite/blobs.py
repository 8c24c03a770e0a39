"""Large values (blobs) in a store file: one row for each content, and one for each execution that uses it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping

from divebook.store.base import StoredBlob
from divebook.store.codec import Sealing
from divebook.store.encoding import Blobs, Fetch, Packed, pack_blob, unpack_blob
from divebook.store.sqlite.connections import typed

_FIND = "SELECT number FROM blobs WHERE digest = ?"
_INSERT = "INSERT INTO blobs (digest, compressed, data) VALUES (?, ?, ?) RETURNING number"
_USE = "INSERT OR IGNORE INTO blob_uses (key, blob) VALUES (?, ?)"
_INHERITED = """
SELECT number, digest FROM blob_uses JOIN blobs ON number = blob
WHERE key = ? AND blob NOT IN (SELECT blob FROM blob_uses WHERE key = ?)
"""
_LIST = """
SELECT digest, length(data), number IN (
  SELECT blob FROM blob_uses WHERE key NOT IN (SELECT key FROM executions WHERE id IN (SELECT value FROM json_each(?)))
) FROM blobs
"""
_DROP = "DELETE FROM blobs WHERE number NOT IN (SELECT blob FROM blob_uses)"


def insert_blobs(cursor: sqlite3.Cursor, key: int, blobs: Blobs, packed: Mapping[bytes, Packed]) -> int:
    """Write the large values (blobs) of a batch that the file does not have, and record that an execution uses all of
    them. Return the number of bytes by which the log of the execution grows.

    `packed` has contents that were compressed before the transaction. A content that the execution already refers to
    does not count.
    """
    grown = 0
    for digest, content in blobs.items():
        row = cursor.execute(_FIND, (digest,)).fetchone()
        (number,) = row or _insert_blob(cursor, digest, packed.get(digest) or pack_blob(content))
        # The statement inserts no row if the execution has used the value before.
        if cursor.execute(_USE, (key, number)).rowcount:
            grown += len(content)
    return grown


def inherit_blobs(cursor: sqlite3.Cursor, source: int, heir: int, used: Collection[bytes] | None) -> int:
    """Record that a fork (`heir`) uses the large values in the events that it takes over from its deleted source
    execution. Return the number of bytes by which the log of the fork grows.

    `used` selects the values by digest; None means all.
    """
    grown = 0
    # The statement leaves out values that the heir uses already.
    for number, digest in cursor.execute(_INHERITED, (source, heir)).fetchall():
        if used is None or digest in used:
            grown += len(load_blob(cursor, digest) or b"")
            cursor.execute(_USE, (heir, number))
    return grown


def load_blob(connection: sqlite3.Connection | sqlite3.Cursor, digest: bytes) -> bytes | None:
    """Return the content of a large value, still encrypted; None if missing. Raise CorruptStoreError if damaged."""
    row = connection.execute("SELECT compressed, data FROM blobs WHERE digest = ?", (digest,)).fetchone()
    return None if row is None else unpack_blob(Packed(bool(row[0]), row[1]))


def fetcher(connection: sqlite3.Connection | sqlite3.Cursor, sealing: Sealing) -> Fetch:
    """Return a function that returns a large value by its hash: it loads, decrypts and verifies the value, and caches
    it.
    """
    loaded: dict[bytes, bytes | None] = {}

    def fetch(digest: bytes) -> bytes | None:
        if digest not in loaded:
            loaded[digest] = sealing.open_content(digest, load_blob(connection, digest))
        return loaded[digest]

    return fetch


def list_blobs(connection: sqlite3.Connection, without: Collection[str]) -> list[StoredBlob]:
    """Return each large value with its size, and whether an execution uses it. Executions whose ids are in `without` do
    not count as users.
    """
    rows = connection.execute(_LIST, (json.dumps(list(without)),)).fetchall()
    typed_rows = (typed("large value", row, (bytes, int, int)) for row in rows)
    return [StoredBlob(digest, stored, bool(used)) for digest, stored, used in typed_rows]


def drop_unused_blobs(cursor: sqlite3.Cursor) -> int:
    """Delete the large values that no execution uses; return the number of deleted values."""
    return cursor.execute(_DROP).rowcount


def _insert_blob(cursor: sqlite3.Cursor, digest: bytes, packed: Packed) -> tuple[int]:
    row: tuple[int] = cursor.execute(_INSERT, (digest, packed.compressed, packed.data)).fetchone()
    return row
