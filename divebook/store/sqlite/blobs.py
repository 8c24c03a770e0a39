"""Large values as rows: each content once, and beside it which executions refer to it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping

from divebook.store.blobs import Blobs, Fetch, Packed, pack, unpack
from divebook.store.codec import Sealing
from divebook.store.large_values import StoredBlob
from divebook.store.sqlite.faults import typed

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


def insert(cursor: sqlite3.Cursor, key: int, blobs: Blobs, packed: Mapping[bytes, Packed]) -> int:
    """Write what is not there yet, note that an execution refers to it, and return by how much that one has grown."""
    grown = 0
    for digest, content in blobs.items():
        found = cursor.execute(_FIND, (digest,)).fetchone()
        (number,) = found or _insert(cursor, digest, packed.get(digest) or pack(content))
        if cursor.execute(_USE, (key, number)).rowcount:
            grown += len(content)
    return grown


def inherit(cursor: sqlite3.Cursor, source: int, heir: int, used: Collection[bytes] | None) -> int:
    """Note that an execution refers to what another one does, of that only what is `used`, None for all.

    Return by how much it has grown.
    """
    grown = 0
    for number, digest in cursor.execute(_INHERITED, (source, heir)).fetchall():
        if used is None or digest in used:
            grown += len(load_blob(cursor, digest) or b"")
            cursor.execute(_USE, (heir, number))
    return grown


def _insert(cursor: sqlite3.Cursor, digest: bytes, packed: Packed) -> tuple[int]:
    row: tuple[int] = cursor.execute(_INSERT, (digest, packed.compressed, packed.data)).fetchone()
    return row


def load_blob(connection: sqlite3.Connection | sqlite3.Cursor, digest: bytes) -> bytes | None:
    """Return a content as it was written; None if it is missing, CorruptStoreError if it cannot be decompressed."""
    row = connection.execute("SELECT compressed, data FROM blobs WHERE digest = ?", (digest,)).fetchone()
    return None if row is None else unpack(Packed(bool(row[0]), row[1]))


def fetcher(connection: sqlite3.Connection | sqlite3.Cursor, sealing: Sealing) -> Fetch:
    """Return a function that loads and verifies each content once."""
    loaded: dict[bytes, bytes | None] = {}

    def fetch(digest: bytes) -> bytes | None:
        if digest not in loaded:
            loaded[digest] = sealing.open_content(digest, load_blob(connection, digest))
        return loaded[digest]

    return fetch


def list_blobs(connection: sqlite3.Connection, without: Collection[str]) -> list[StoredBlob]:
    """Return the large values, and whether executions other than `without` refer to them."""
    rows = connection.execute(_LIST, (json.dumps(list(without)),)).fetchall()
    checked = (typed("large value", row, (bytes, int, int)) for row in rows)
    return [StoredBlob(digest, stored, bool(used)) for digest, stored, used in checked]


def drop_unused(cursor: sqlite3.Cursor) -> int:
    """Delete what no execution refers to; return how many."""
    return cursor.execute(_DROP).rowcount
