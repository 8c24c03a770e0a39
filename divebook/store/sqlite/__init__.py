"""Events in one SQLite file; the one door to sqlite3."""

from divebook.store.sqlite.backup import back_up
from divebook.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "back_up"]
