"""The wait for the disk, where it comes apart from the commit."""

import errno
import os
import sqlite3
import threading
from contextlib import closing

import pytest

from divebook.errors import StoreError
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.sqlite import store as sqlite_store
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


def durabilities(store):
    """Return a dict to which each commit adds how the writing connection was set when it was made, by execution."""
    made = {}
    store.subscribe(lambda execution_id, _: made.setdefault(execution_id, present(store)))
    return made


def test_who_waits_for_another_process_unsynced_takes_nothing_from_the_commits_of_others(store):
    made, tries = durabilities(store), {name: threading.Event() for name in ("unsynced", "full")}

    def tried(statement):
        if statement == "BEGIN IMMEDIATE":
            tries[threading.current_thread().name].set()

    writer_of(store).set_trace_callback(tried)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        appends = {
            "unsynced": lambda: store.append_unsynced([batch(ONE, 0, log(2))]),
            "full": lambda: store.append_all([batch(TWO, 0, log(2, TWO))]),
        }
        threads = [threading.Thread(target=append, name=name) for name, append in appends.items()]
        for thread in threads:
            thread.start()
            assert tries[thread.name].wait(20)  # it waits for the file, and others may use the store meanwhile
        other.execute("ROLLBACK")
        for thread in threads:
            thread.join(20)
    assert made == {ONE: NORMAL, TWO: FULL}


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_what_a_listener_appends_after_an_unsynced_append_is_full(store, durability):
    def follow(execution_id, _):
        if execution_id == ONE:
            assert store.append_all([batch(TWO, 0, log(2, TWO))]) == [None]

    made = durabilities(store)
    store.subscribe(follow)
    assert store.append_unsynced([batch(ONE, 0, log(2), durability=durability)]) == [None]
    assert made == {ONE: NORMAL, TWO: FULL}


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
    with pytest.raises(StoreError, match=r"executions\.db-wal could not be flushed to the disk: Input/output error"):
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
