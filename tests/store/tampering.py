"""Changing a store file from outside, and putting its checksums right again, as if another version had written it."""

import sqlite3
from contextlib import closing
from zlib import crc32

from divebook.stores.append import Line
from divebook.stores.encoding import head, pack_id, unpack_id
from divebook.stores.sqlite.log_reader import RECORD
from divebook.stores.sqlite.schema import place_of, places_of

_EVENTS = """
SELECT place, recorded_at, name, id, path, step, CAST(data AS BLOB) FROM events JOIN event_types ON number = type
WHERE place >> 32 = ? AND checksum IS NOT NULL ORDER BY place
"""
NO_TYPE = 999
"""A number that no type has."""


def tamper(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def rechain(connection, key):
    """Give the events of one execution the checksums that belong to them."""
    checksum = 0
    for place, recorded_at, name, event_id, at_path, step, raw in connection.execute(_EVENTS, (key,)).fetchall():
        checksum = crc32(raw, crc32(head(recorded_at, name, unpack_id(event_id), at_path, step), checksum))
        connection.execute("UPDATE events SET checksum = ? WHERE place = ?", (checksum, place))
    connection.execute("UPDATE executions SET checksum = ? WHERE key = ?", (checksum, key))


def put_right(path):
    """Make all checksums fit what the file holds now."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for (key,) in connection.execute("SELECT key FROM executions").fetchall():
            rechain(connection, key)
            row = connection.execute(f"{RECORD} WHERE key = ?", (key,)).fetchone()
            connection.execute("UPDATE executions SET seal = ? WHERE key = ?", (Line(*row[:-2]).seal(), key))


def put_rows(connection, execution_id, rows):
    """Have a log consist of these `StoredRecord`s, whatever they say."""
    (key,) = connection.execute("SELECT key FROM executions WHERE id = ?", (execution_id,)).fetchone()
    numbers = {name: number for number, name in connection.execute("SELECT number, name FROM event_types").fetchall()}
    connection.execute("DELETE FROM events WHERE place BETWEEN ? AND ?", places_of(key))
    connection.executemany(
        "INSERT INTO events (place, recorded_at, type, id, path, step, data, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?)",
        [_columns(row, place_of(key, row.sequence), numbers.get(row.type, NO_TYPE)) for row in rows],
    )


def _columns(row, place, number):
    return place, row.recorded_at, number, pack_id(row.id), row.path, row.step, row.payload, row.checksum
