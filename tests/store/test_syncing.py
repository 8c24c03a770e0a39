"""The wait for the disk, where it comes apart from the commit."""

import errno
import os

import pytest

from divebook.errors import StoreError
from divebook.store import MemoryStore, SqliteStore
from divebook.store.sqlite import store as sqlite_store
from tests.store.connections import writer_of
from tests.store.logs import ONE, TWO, batch, log, step

FULL, NORMAL = 2, 1


@pytest.fixture
def store(tmp_path):
    with SqliteStore(tmp_path / "executions.db") as opened:
        yield opened


def present(store):
    """Return how the writing connection is set."""
    return writer_of(store).execute("PRAGMA synchronous").fetchone()[0]


def test_what_is_appended_unsynced_is_there_for_every_reader_and_waits_for_no_disk(store, tmp_path):
    assert store.syncs_apart
    assert store.append_unsynced([batch(ONE, 0, log(2)), batch(ONE, 5, log(2))])[0] is None
    assert present(store) == NORMAL
    with SqliteStore(tmp_path / "executions.db") as other:
        assert len(other.read(ONE)) == 2
    assert store.append_all([batch(ONE, 2, [step(3)])]) == [None]
    assert present(store) == FULL


def test_a_sync_brings_the_write_ahead_log_to_the_disk(store, monkeypatch):
    brought = []
    monkeypatch.setattr(sqlite_store, "_sync_file", lambda file: brought.append(os.fstat(file).st_ino))
    store.append_unsynced([batch(ONE, 0, log(2))])
    assert brought == []
    store.sync()
    store.append_unsynced([batch(TWO, 0, log(2, TWO))])
    store.sync()
    wal = store.path.with_name("executions.db-wal")
    assert brought == [wal.stat().st_ino] * 2


def test_a_disk_that_refuses_is_an_error_that_says_so(store, monkeypatch):
    def fail(_file):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(sqlite_store, "_sync_file", fail)
    store.append_unsynced([batch(ONE, 0, log(2))])
    with pytest.raises(StoreError, match=r"executions\.db-wal could not be brought to the disk: Input/output error"):
        store.sync()


def test_a_closed_store_has_nothing_left_to_sync(store):
    store.append_unsynced([batch(ONE, 0, log(2))])
    store.close()
    store.sync()
    assert not store.path.with_name("executions.db-wal").exists()


def test_where_there_is_no_write_ahead_log_nothing_comes_apart(tmp_path):
    with pytest.warns(RuntimeWarning, match="network file system"):
        store = SqliteStore(tmp_path / "x.db", network=lambda _: "nfs")
    with store:
        assert not store.syncs_apart
        assert store.append_unsynced([batch(ONE, 0, log(2))]) == [None]
        assert present(store) == FULL


def test_a_store_without_a_disk_has_nothing_to_wait_for():
    with MemoryStore() as store:
        assert not store.syncs_apart
        assert store.append_unsynced([batch(ONE, 0, log(2))]) == [None]
        store.sync()
        assert len(store.read(ONE)) == 2
