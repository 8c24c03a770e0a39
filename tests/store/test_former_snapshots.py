"""Stores and notebooks of the version in which a read-only snapshot had the status ``picture`` are read."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from divebook import Environment
from divebook.errors import CorruptStoreError
from divebook.notebook.saved_notebook import SavedRun
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.maintenance import check
from divebook.stores.transfer import import_, read
from divebook.widgets.recording import read_saved
from tests.store.former_snapshots import PLAIN, SNAPSHOTS, check_checkpoints, check_snapshots

RECORDED = Path(__file__).parent / "recorded"
SAVED = Path(__file__).parents[2] / "widgets" / "test" / "lab" / "former_snapshot.json"


@pytest.fixture
def former(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / "snapshots_12.sql").read_text())
    return path


def rows(path, query):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_a_store_of_that_version_has_its_snapshots_under_the_present_name(former):
    with SqliteStore(former) as store:
        check_checkpoints(store)
        check_snapshots(store)


def test_no_recorded_event_is_written_again(former):
    everything = "SELECT * FROM events ORDER BY place"
    before = rows(former, everything)
    SqliteStore(former).close()
    assert rows(former, everything) == before
    assert rows(former, "SELECT count(*) FROM log WHERE event_type = 'execution_pictured'") == [(2,)]


def test_a_damaged_row_stays_damaged(former):
    with closing(sqlite3.connect(former)) as connection, connection:
        connection.execute("UPDATE executions SET note = 'forged' WHERE id = ?", (PLAIN,))
    with SqliteStore(former) as store:
        with pytest.raises(CorruptStoreError, match="does not match its checksum"):
            store.record(PLAIN)
        assert not check(store).ok
        assert {record.execution_id for record in store.records("snapshot")} == SNAPSHOTS - {PLAIN}


def test_a_store_of_that_version_that_is_written_to_without_columns_reads_the_same(former, monkeypatch):
    with SqliteStore(former) as store:
        monkeypatch.setattr("divebook.stores.sqlite.store.read_columns", lambda *_, **__: None)
        types = store.page(PLAIN, 0, 1000).types
        assert "execution_snapshotted" in types.to_pylist()


def test_an_embedded_log_of_that_version_comes_in():
    page = RECORDED / "former_snapshot.ipynb"
    log = read(page)
    assert (log.status, log.is_verified) == ("snapshot", True)
    store = MemoryStore()
    assert import_(page, store) == PLAIN
    assert Environment(store=store).run_of(PLAIN).status == "snapshot"


def test_a_notebook_that_was_saved_by_that_version_shows_the_present_words():
    saved = json.loads(SAVED.read_text())
    assert saved["status"] == "picture"
    run = SavedRun(*read_saved(saved))
    assert (run.status, run.state_at(31).get("status")) == ("snapshot", "snapshot")
    assert "execution_snapshotted" in {*run.events["type"]}
    recording = read_saved(saved)[1]
    events = recording["events"]
    assert {events["names"][place] for place in events["type"]} & {"execution_snapshotted", "execution_pictured"} == {
        "execution_snapshotted"
    }
    assert "snapshot" in str(run)
    assert "picture" not in str(run)
