"""Events as columns: SQLite joins their rows, and what comes out is what their events say, or the same error."""

import sqlite3
from contextlib import closing

import pytest

from divebook.errors import CorruptStoreError, DecryptionError, NewerStoreError
from divebook.events import catalog
from divebook.events.event import Record
from divebook.stores import Batch, MemoryStore, SqliteStore
from divebook.stores.base import EventStore
from divebook.stores.pages import EventPage
from tests.store.fork_promises import fork
from tests.store.logs import ONE, TWO, event, execution_id, log, started

FACTS = (
    (catalog.PathStarted("a"), catalog.StepStarted("action"), catalog.OperationStarted("op_1", "action_execution")),
    (
        catalog.OperationCompleted("op_1", "action_execution", 5, "a long text " * 20),
        catalog.StateMutated((catalog.Mutation("set", "v", "a long text " * 20),)),
        catalog.StepCompleted("a long text " * 20, "v"),
    ),
    (catalog.StepStarted("é\u2028"),),
    (catalog.StepCompleted("x" * 100_000), catalog.PathCompleted("a")),
)
LENGTH = 1 + sum(map(len, FACTS))


def written(store, execution=ONE):
    """Write a log with records of several events, large values and repeated ones."""
    records, sequence = [Record.of(started(execution))], 2
    for facts in FACTS:
        first = event(sequence, facts[0], execution)
        records.append(Record(first.id, execution, sequence, first.recorded_at, facts, "main", "s"))
        sequence += len(facts)
    assert store.append_all([Batch(execution, 0, records)]) == [None]
    return store


def plain(page):
    return {name: column.tolist() for name, column in page._asdict().items()}


def assert_equal(page, events):
    assert plain(page) == plain(EventPage.of(events))


@pytest.fixture
def joined(monkeypatch):
    """Let no page be read row by row."""

    def refuse(*_given, **_named):
        raise AssertionError("it was read row by row")

    monkeypatch.setattr(EventStore, "_page", refuse)


def test_a_page_of_a_fork_is_joined_of_the_rows_of_its_source_and_its_own(path, joined):
    with written(SqliteStore(path)) as store:
        fork(store, ONE, 4, TWO)
        fork(store, TWO, 6, execution_id(3))
        for name in (TWO, execution_id(3)):
            events = store.read(name)
            for after in range(len(events)):
                assert_equal(store.page(name, after, 3), events[after : after + 3])


def test_a_page_holds_what_the_events_say(path, joined):
    with written(SqliteStore(path)) as store:
        assert_equal(store.page(ONE, 0, 100), store.read(ONE))


def test_a_page_may_begin_and_end_inside_a_record(path, joined):
    with written(SqliteStore(path)) as store:
        for after in range(LENGTH):
            for limit in range(1, LENGTH - after + 2):
                assert_equal(store.page(ONE, after, limit), store.read(ONE, after, limit))


def test_a_page_beyond_the_end_is_empty(path):
    with written(SqliteStore(path)) as store:
        assert len(store.page(ONE, LENGTH, 10).sequences) == 0


def test_pages_of_a_store_in_memory_are_the_same(path):
    with written(SqliteStore(path)) as one, written(MemoryStore()) as other:
        assert plain(one.page(ONE, 0, 100)) == plain(other.page(ONE, 0, 100))


class Backwards:
    """A codec whose effect can be seen."""

    def encrypt(self, data):
        return data[::-1]

    def decrypt(self, data):
        return data[::-1]


def test_sealed_events_are_opened_and_need_the_key(path):
    with SqliteStore(path) as store:
        store.sealing.codec = Backwards()
        written(store)
        assert_equal(store.page(ONE, 0, 100), store.read(ONE))
    with SqliteStore(path) as store, pytest.raises(DecryptionError, match="no key is set"):
        store.page(ONE, 0, 100)


def test_ids_of_other_systems_and_events_without_checksums_are_read(path):
    with SqliteStore(path) as store:
        store.append(ONE, [started(), event(2, catalog.StepStarted("a"), event_id="event_2", step="s")], 0)
        store.append(TWO, log(3, TWO), 0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET checksum = NULL WHERE place >> 32 = 2")
        connection.execute("UPDATE executions SET checksum = 0 WHERE key = 2")
    with SqliteStore(path) as store:
        for execution in (ONE, TWO):
            assert_equal(store.page(execution, 0, 9), store.read(execution))


DAMAGES = {
    "recorded_at": ("recorded_at + 1", "'soon'", "NULL"),
    "type": ("type + 1", "999"),
    "id": ("x'00'", "zeroblob(16)", "'event_1'"),
    "path": ("'other'", "path || char(10)", "NULL"),
    "step": ("'other'", "x'ff'"),
    "data": ("replace(data, '\"', '')", "x'ff'", "data || ' '", "''"),
    "checksum": ("checksum + 1", "NULL"),
    "place": ("place + 1000",),
}


@pytest.mark.parametrize(("column", "value"), [(name, value) for name, values in DAMAGES.items() for value in values])
def test_a_damaged_row_is_found_as_it_is_without_columns(path, column, value):
    written(SqliteStore(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        places = [place for (place,) in connection.execute("SELECT place FROM events ORDER BY place")]
    for place in places:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            try:
                connection.execute(f"UPDATE events SET {column} = {value} WHERE place = ?", (place,))
            except sqlite3.IntegrityError:  # the file itself allows no such thing
                continue
            connection.commit()
            with SqliteStore(path) as store:
                compare(store)
            connection.execute("DELETE FROM events")
            connection.execute("DELETE FROM executions")
            connection.commit()
        path.unlink()
        written(SqliteStore(path)).close()


def compare(store):
    """Make sure that columns say what events do: the same things, or the same error."""
    try:
        events = store.read(ONE)
    except (CorruptStoreError, NewerStoreError) as error:
        try:
            page = store.page(ONE, 0, 100)
        except type(error) as found:
            assert str(found) == str(error)  # noqa: PT017 - one of both is compared with the other
        else:  # only a checksum was damaged, and what it covers is as it was written
            with written(MemoryStore()) as whole:
                assert plain(page) == plain(whole.page(ONE, 0, 100))
    else:
        assert_equal(store.page(ONE, 0, 100), events)
