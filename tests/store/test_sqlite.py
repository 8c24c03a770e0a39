from divebook.store import SqliteStore
from tests.store.conformance import StorePromises


class TestSqliteStore(StorePromises):
    def make_store(self, folder):
        return SqliteStore(folder / "executions.db")


class TestRelaxedSqliteStore(StorePromises):
    def make_store(self, folder):
        return SqliteStore(folder / "executions.db", durability="relaxed")


class TestSqliteStoreInDeepFolder(StorePromises):
    """Every promise with a reader and a writer that share nothing but the file."""

    def make_store(self, folder):
        return SqliteStore(folder / "a b%20?#.db", durability="relaxed")
