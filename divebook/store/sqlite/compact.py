"""The types of records as numbers."""

from __future__ import annotations

import sqlite3
import threading

from divebook.errors import CorruptStoreError
from divebook.events.catalog import PAYLOADS
from divebook.store.sqlite.faults import typed


class EventTypes:
    """The numbers a file gives to types of records; a newer version, or another process, may have added some."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._lock = threading.Lock()
        self.names: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        self._is_stale = False

    def load(self, connection: sqlite3.Connection | sqlite3.Cursor) -> None:
        """Read the table."""
        rows = connection.execute("SELECT number, name FROM event_types").fetchall()
        with self._lock:
            self.names = dict(typed("event type", row, (int, str)) for row in rows)
            self.numbers = {name: number for number, name in rows}

    def register(self, connection: sqlite3.Connection) -> None:
        """Give a number to every event type of this version that has none yet."""
        self.load(connection)
        missing = [(name,) for name in PAYLOADS if name not in self.numbers]
        if missing:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR IGNORE INTO event_types (name) VALUES (?)", missing)
            connection.execute("COMMIT")
            self.load(connection)

    def add(self, cursor: sqlite3.Cursor, name: str) -> int:
        """Return the number of a type that is new here; part of the caller's transaction, which may be undone."""
        self._is_stale = True
        cursor.execute("INSERT OR IGNORE INTO event_types (name) VALUES (?)", (name,))
        number: int = cursor.execute("SELECT number FROM event_types WHERE name = ?", (name,)).fetchone()[0]
        return number

    def refresh(self, connection: sqlite3.Cursor) -> None:
        """Read the table if numbers were added; call it as a transaction begins."""
        if self._is_stale:
            self._is_stale = False
            self.load(connection)

    def name(self, number: int, connection: sqlite3.Connection | sqlite3.Cursor) -> str:
        """Return the name that a number stands for, looking again if it is new."""
        found = self.names.get(number)
        if found is None:
            self.load(connection)
            found = self.names.get(number)
        if found is None:
            raise CorruptStoreError(f"{self._location} holds a record of type number {number}, which has no name")
        return found
