"""Events in one SQLite file; the one door to sqlite3."""

from divebook.store.sqlite.store import SqliteStore, back_up

__all__ = ["SqliteStore", "back_up"]
