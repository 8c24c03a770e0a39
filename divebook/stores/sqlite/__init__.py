"""Event store in one SQLite file. Only this package imports sqlite3."""

from divebook.stores.sqlite.store import SqliteStore, back_up

__all__ = ["SqliteStore", "back_up"]
