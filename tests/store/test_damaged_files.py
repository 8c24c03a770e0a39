"""Store files that are damaged, of another program, or of a newer version."""

import sqlite3
from contextlib import closing

import pytest

from divebook.errors import CorruptStoreError, NewerStoreError
from divebook.events.catalog import StepCompleted
from divebook.stores import SqliteStore
from tests.store.logs import ONE, TWO, completed, event, log, write
from tests.store.tampering import put_right


def tamper(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()


def test_a_file_that_is_no_database_is_named(path):
    path.write_text("This is my diary. " * 100)
    with pytest.raises(CorruptStoreError, match=r"executions\.db is not a divebook store: .*choose another path"):
        SqliteStore(path)
    assert path.read_text().startswith("This is my diary.")


def test_a_database_of_another_program_is_left_alone(path):
    tamper(path, "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(CorruptStoreError, match=r"a database of another program \(tables: recipes\)"):
        SqliteStore(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_a_damaged_page_is_an_error_that_says_what_to_do(path):
    write(path, log(400))
    raw = bytearray(path.read_bytes())
    raw[4096 * 5 : 4096 * 20] = b"\xaa" * (4096 * 15)
    path.write_bytes(raw)
    with pytest.raises(CorruptStoreError, match=r"executions\.db is damaged: .*recover"), SqliteStore(path) as store:
        store.read(ONE)


@pytest.mark.parametrize(
    "data",
    ["{oops", '{"step_type": 1, ', "[1]", '{"$type": "zodiac", "value": 1}', "CAST(X'FFFE' AS TEXT)", "''"],
)
def test_a_damaged_payload_is_named_and_the_rest_is_readable(path, data):
    write(path, log(3, TWO), log(3, ONE))
    value = data if data.startswith(("CAST", "''")) else f"'{data}'"
    tamper(path, f"UPDATE events SET data = {value} WHERE place = (2 << 32) + 2")
    with SqliteStore(path) as store:
        with pytest.raises(CorruptStoreError, match=f"event 2 of execution {ONE} is damaged: .*other executions"):
            store.read(ONE)
        assert len(store.read(ONE, limit=1)) == 1
        assert len(store.read(ONE, after=2)) == 1
        assert store.read(TWO) == log(3, TWO)


def test_a_payload_of_the_wrong_shape_is_damage(path):
    write(path, log(3))
    tamper(path, "UPDATE events SET type = (SELECT number FROM event_types WHERE name = 'state_mutated')")
    tamper(path, """UPDATE events SET data = '{"mutations": [7]}'""")
    with SqliteStore(path) as store, pytest.raises(CorruptStoreError, match=f"event 1 of execution {ONE} is damaged"):
        store.read(ONE)


def test_a_missing_event_is_named(path):
    write(path, log(5))
    tamper(path, "DELETE FROM events WHERE place & 255 = 3")
    with SqliteStore(path) as store, pytest.raises(CorruptStoreError, match=f"event 3 of execution {ONE} is missing"):
        store.read(ONE)


def test_a_log_longer_than_its_record_cannot_be_written_over(path):
    write(path, log(5))
    tamper(path, "UPDATE executions SET last_sequence = 3")
    with SqliteStore(path) as store:
        with pytest.raises(CorruptStoreError):
            store.append(ONE, [event(4, StepCompleted(), event_id="event-other")], 3)
        assert len(store.stored_log(ONE).records) == 5
        with pytest.raises(CorruptStoreError, match=r"event 3 .* does not match its checksum"):
            store.read(ONE)
        assert store.read_sound(ONE)[0] == log(2)


# --- newer versions


def test_a_store_of_a_newer_version_is_refused(path):
    write(path, log(2))
    tamper(path, "PRAGMA user_version = 99")
    with pytest.raises(
        NewerStoreError, match=r"it has format 99, but this version supports formats up to \d+. Upgrade divebook"
    ):
        SqliteStore(path)


def test_an_event_type_of_a_newer_version_blocks_its_execution_only(path):
    write(path, log(3, ONE), log(3, TWO))
    tamper(path, "INSERT INTO event_types VALUES (999, 'step_dreamt')")
    tamper(path, "UPDATE events SET type = 999 WHERE place = (1 << 32) + 2")
    put_right(path)
    with SqliteStore(path) as store:
        with pytest.raises(NewerStoreError, match=f"event 2 of execution {ONE}: event type 'step_dreamt' is not known"):
            store.read(ONE)
        assert store.read(TWO) == log(3, TWO)
        assert store.record(ONE).last_sequence == 3


def test_an_event_type_added_while_the_file_is_open_is_found(store, path):
    store.append(ONE, log(2), 0)
    store.read(ONE)
    tamper(path, "INSERT INTO event_types VALUES (999, 'step_dreamt')")
    tamper(path, "UPDATE events SET type = 999 WHERE place = (1 << 32) + 2")
    put_right(path)
    with pytest.raises(NewerStoreError, match="step_dreamt"):
        store.read(ONE)


def test_a_type_number_without_a_name_is_damage(path):
    write(path, log(2))
    tamper(path, "UPDATE events SET type = 999")
    with SqliteStore(path) as store, pytest.raises(CorruptStoreError, match="unknown type number 999"):
        store.read(ONE)


def test_an_event_type_without_a_number_gets_one(path):
    write(path, log(2))
    tamper(path, "DELETE FROM event_types WHERE name = 'execution_completed'")
    with SqliteStore(path) as store:
        store.append(ONE, [completed(3)], 2)
        assert store.read(ONE)[2] == completed(3)
