import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from divebook.errors import ConcurrentAppendError, ExecutionNotFoundError, StoreError
from divebook.events.catalog import StepCompleted
from divebook.stores import SqliteStore
from divebook.stores.sqlite import back_up
from divebook.stores.transfer import export
from tests.store.conformance import StorePromises
from tests.store.connections import count_of_readers, writer_of
from tests.store.large_promises import text
from tests.store.logs import ONE, TWO, batch, completed, event, log, step, steps, write

ROOT = Path(__file__).parent.parent.parent
NOBODY = 65534


class TestSqliteStore(StorePromises):
    def make_store(self, folder):
        return SqliteStore(folder / "executions.db")


class TestRelaxedSqliteStore(StorePromises):
    def make_store(self, folder):
        return SqliteStore(folder / "executions.db", durability="relaxed")


def pragma(store, name):
    return writer_of(store).execute(f"PRAGMA {name}").fetchone()[0]


# --- the file


def test_what_was_written_is_there_after_reopening(path):
    write(path, [*log(3), completed(4)])
    with SqliteStore(path) as store:
        assert store.read(ONE) == [*log(3), completed(4)]
        assert store.record(ONE).status == "completed"


def test_a_path_may_hold_any_character(tmp_path):
    write(tmp_path / "a b%20?mode=ro#ü.db", log(2))
    with SqliteStore(tmp_path / "a b%20?mode=ro#ü.db") as store:
        assert len(store.read(ONE)) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["a b%20?mode=ro#ü.db"]


def test_full_durability_is_the_default(path):
    with SqliteStore(path) as store:
        assert (pragma(store, "journal_mode"), pragma(store, "synchronous")) == ("wal", 2)


def test_relaxed_durability_leaves_syncing_to_the_checkpoints(store):
    assert (pragma(store, "journal_mode"), pragma(store, "synchronous")) == ("wal", 1)


def test_closing_leaves_one_file(path):
    write(path, log(3))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_folder_for_divebook_is_made(tmp_path):
    with SqliteStore(tmp_path / ".divebook" / "x.db"):
        assert (tmp_path / ".divebook" / "x.db").exists()


def test_what_is_made_belongs_to_its_owner_only(tmp_path):
    before = os.umask(0o022)
    try:
        path = tmp_path / ".divebook" / "executions.db"
        with SqliteStore(path) as store:
            store.append(ONE, log(3), 0)
            beside = sorted(entry.name for entry in path.parent.iterdir())
            modes = {stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
            exported = tmp_path / "log.jsonl"
            export(store, ONE, exported)
        copy = back_up(path, tmp_path / "copy.db")
    finally:
        os.umask(before)
    assert beside == ["executions.db", "executions.db-shm", "executions.db-wal"]
    assert modes == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [stat.S_IMODE(entry.stat().st_mode) for entry in (exported, copy)] == [0o600, 0o600]


def test_no_other_folder_is_made(tmp_path):
    with pytest.raises(StoreError, match=r"the folder .*missing/\.divebook does not exist; create it"):
        SqliteStore(tmp_path / "missing" / ".divebook" / "x.db")


def test_a_step_of_five_events_takes_less_than_900_bytes(path):
    with SqliteStore(path, durability="relaxed") as store:
        store.append(ONE, log(1), 0)
        for last in range(1, 10001, 5):
            store.append(ONE, steps(last + 1, last + 5), last)
        payload = store.record(ONE).size
    assert (path.stat().st_size - payload) / 2000 < 900 - 459  # 459: the payloads of a usual step


def test_people_can_read_the_log_with_sql(path):
    write(path, log(2, TWO), log(3, ONE))
    query = "SELECT sequence, event_type, path, step FROM log WHERE execution_id = ?"
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(query, (ONE,)).fetchall()
    assert rows[:2] == [(1, "execution_started", "", ""), (2, "step_started", "main", "step-1")]
    assert len(rows) == 3


def test_the_connection_of_a_thread_is_closed_with_it(store):
    store.append(ONE, log(1), 0)
    reader = threading.Thread(target=store.read, args=(ONE,))
    reader.start()
    reader.join(10)
    store.read(ONE)
    assert count_of_readers(store) == 1


# --- several writers


def test_two_stores_on_one_file_see_each_other(path):
    with SqliteStore(path) as here, SqliteStore(path) as there:
        here.append(ONE, log(2), 0)
        there.append(ONE, steps(3, 4), 2)
        assert here.read(ONE) == log(4)
        here.append(ONE, steps(5, 6), 4)
        assert there.record(ONE).last_sequence == 6


def test_the_slower_of_two_stores_is_refused(path):
    with SqliteStore(path) as here, SqliteStore(path) as there:
        here.append(ONE, log(2), 0)
        there.append(ONE, [step(3)], 2)
        with pytest.raises(ConcurrentAppendError) as caught:
            here.append(ONE, [event(3, StepCompleted(), event_id="event-mine")], 2)
        assert (caught.value.expected, caught.value.actual) == (2, 3)
        assert here.read(ONE) == log(3)


def test_an_event_id_of_another_store_is_known(path):
    with SqliteStore(path) as here, SqliteStore(path) as there:
        here.append(ONE, log(2), 0)
        there.append(ONE, [step(3)], 2)
        twin = event(4, StepCompleted(), event_id=step(3).id)
        assert "already in the log" in str(here.append_all([batch(ONE, 3, [twin])])[0])


def test_an_execution_that_another_store_deleted_and_began_anew_is_carried_on(path):
    with SqliteStore(path) as here, SqliteStore(path) as there:
        here.append(ONE, log(2), 0)
        there.append(TWO, log(1, TWO), 0)
        there.delete(ONE)
        with pytest.raises(ExecutionNotFoundError):
            here.append(ONE, steps(3, 4), 2)
        there.append(ONE, log(2), 0)
        here.append(ONE, steps(3, 4), 2)
        assert there.read(ONE) == log(4)


RACER = """
import sys
from divebook.errors import ConcurrentAppendError
from divebook.events.catalog import StepCompleted
from divebook.stores import SqliteStore
from tests.store.logs import ONE, event, log
path, name = sys.argv[1:]
won = 0
with SqliteStore(path, durability="relaxed") as store:
    try:
        store.append(ONE, log(1), 0)
    except ConcurrentAppendError:
        pass
    while won < 40:
        last = store.record(ONE).last_sequence
        mine = [event(last + n, StepCompleted(output=name), event_id=f"{name}-{last + n}") for n in (1, 2)]
        try:
            store.append(ONE, mine, last)
            won += 1
        except ConcurrentAppendError:
            pass
"""


def test_processes_that_race_for_one_execution_leave_one_sound_log(path):
    racers = [subprocess.Popen([sys.executable, "-c", RACER, str(path), name], cwd=ROOT) for name in "abc"]
    assert [racer.wait(60) for racer in racers] == [0, 0, 0]
    with SqliteStore(path) as store:
        outputs = [entry.data.output for entry in store.read(ONE)[1:]]
    assert [outputs.count(name) for name in "abc"] == [80, 80, 80]
    assert outputs[::2] == outputs[1::2]


CREATOR = "import sys; from divebook.stores import SqliteStore; SqliteStore(sys.argv[1]).close()"


def test_processes_that_create_one_file_at_once_all_succeed(path):
    creators = [subprocess.Popen([sys.executable, "-c", CREATOR, str(path)], cwd=ROOT) for _ in range(6)]
    assert [creator.wait(60) for creator in creators] == [0] * 6


def test_a_writer_that_blocks_the_file_too_long_is_an_error(path, monkeypatch):
    monkeypatch.setattr("divebook.stores.sqlite.connections.BUSY_SECONDS", 0.01)
    with SqliteStore(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="is locked: another process has been writing to it for too long"):
            store.append(ONE, log(1), 0)
        other.execute("ROLLBACK")
        store.append(ONE, log(1), 0)


# --- transactions that fail


def test_a_full_disk_loses_nothing_that_was_written(store):
    store.append(ONE, log(2), 0)
    writer_of(store).execute(f"PRAGMA max_page_count = {pragma(store, 'page_count') + 2}")
    large = event(3, StepCompleted(output=text(60_000)))
    with pytest.raises(StoreError, match=r"cannot grow: .*full.*Nothing was written; free some space"):
        store.append(ONE, [large], 2)
    assert store.read(ONE) == log(2)
    assert store.record(ONE).last_sequence == 2


def test_appending_goes_on_once_there_is_space(store):
    store.append(ONE, log(2), 0)
    writer_of(store).execute(f"PRAGMA max_page_count = {pragma(store, 'page_count') + 2}")
    large = event(3, StepCompleted(output=text(60_000)))
    with pytest.raises(StoreError):
        store.append(ONE, [large], 2)
    writer_of(store).execute("PRAGMA max_page_count = 1000000")
    store.append(ONE, [large], 2)
    assert store.read(ONE) == [*log(2), large]


def test_a_full_disk_tells_no_listener(store):
    heard = []
    store.subscribe(lambda *news: heard.append(news))
    writer_of(store).execute(f"PRAGMA max_page_count = {pragma(store, 'page_count')}")
    with pytest.raises(StoreError):
        store.append(ONE, [*log(1), event(2, StepCompleted(output=text(60_000)))], 0)
    assert heard == []


def test_an_interrupted_append_writes_nothing(store, monkeypatch):
    store.append(ONE, log(2), 0)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("divebook.stores.sqlite.log_writer.place_of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.append(ONE, steps(3, 4), 2)
    assert store.record(ONE).last_sequence == 2
    store.append(ONE, steps(3, 4), 2)
    assert store.read(ONE) == log(4)


def test_a_transaction_that_was_left_open_is_undone(store):
    store.append(ONE, log(2), 0)
    writer_of(store).execute("BEGIN IMMEDIATE")
    writer_of(store).execute("DELETE FROM events")
    store.append(ONE, steps(3, 4), 2)
    assert store.read(ONE) == log(4)
