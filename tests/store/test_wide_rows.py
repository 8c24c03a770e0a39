"""Rows of an SQLite file that stand for several events: what people see in SQL, and what damage costs."""

import sqlite3
from contextlib import closing

import pytest

from divebook.errors import CorruptStoreError, NewerStoreError
from divebook.stores import Batch, SqliteStore
from divebook.stores.maintenance import check
from tests.store.connections import reader_of
from tests.store.logs import ONE, TWO
from tests.store.tampering import put_right, tamper
from tests.store.wide_promises import LONG, begun, done, events_of, record, records

PLACE = "place = (1 << 32) + "
OTHER = "SELECT id, data, checksum FROM events WHERE place = (1 << 32) + 9"


def log(execution):
    """Return a log of 13 events in the records 1, 2-3, 4-6, 7-8, 9-11, 12-13."""
    later = [begun(7, execution=execution), done(9, execution=execution), begun(12, execution=execution)]
    return [*records(execution), *later]


@pytest.fixture
def written(path):
    with SqliteStore(path, durability="relaxed") as store:
        store.append_all([Batch(name, 0, log(name)) for name in (ONE, TWO)])
    return path


def found(path):
    """Return what is found at each event of the first log, and how many of its events can be read."""
    with SqliteStore(path, durability="relaxed") as store:
        report = check(store)
        first = next(entry for entry in report.executions if entry.execution_id == ONE)
        assert [damage for damage in report.all_damages() if damage.execution_id != ONE] == []
        assert store.read(TWO) == events_of(log(TWO))
        sound, _ = store.read_sound(ONE)
        assert sound == events_of(log(ONE))[: len(sound)]
    return [(damage.sequence, damage.text) for damage in first.damages], len(sound)


CHANGED = "the record of events 4 to 6 does not match its checksum"


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (f"DELETE FROM events WHERE {PLACE} 4", [(4, "events 4 to 6 are missing")]),
        (f"DELETE FROM events WHERE {PLACE} 12", [(12, "events 12 to 13 are missing")]),
        (f"UPDATE events SET data = replace(data, 'longer', 'shorter') WHERE {PLACE} 4", [(4, CHANGED)]),
        (f"UPDATE events SET step = 'b' WHERE {PLACE} 4", [(4, CHANGED)]),
        # torn: without its last fact
        (
            f"UPDATE events SET data = substr(data, 1, instr(data, char(10)) - 2) || ']' WHERE {PLACE} 4",
            [(4, CHANGED)],
        ),
        # of another type: narrower, and none that is known
        (
            f"UPDATE events SET type = (SELECT number FROM event_types WHERE name = 'step_started') WHERE {PLACE} 4",
            [(4, "event 4 does not match its checksum")],
        ),
        (
            f"UPDATE events SET type = 999 WHERE {PLACE} 4",
            [(4, "event 4 does not match its checksum")],
        ),
        # foreign: another record of the log; what its own checksum was, the next one tells no more
        (
            f"UPDATE events SET (id, data, checksum) = ({OTHER}) WHERE {PLACE} 4",
            [(4, CHANGED), (7, CHANGED.replace("4 to 6", "7 to 8"))],
        ),
    ],
)
def test_damage_of_a_record_is_found_once_and_costs_that_record_only(written, damage, expected):
    tamper(written, damage)
    assert found(written) == (expected, expected[0][0] - 1)


def test_records_that_changed_places_are_found(written):
    tamper(written, *(f"UPDATE events SET place = {new} WHERE place = {old}" for old, new in swapped(4, 9)))
    damages, sound = found(written)
    assert {sequence for sequence, _ in damages} >= {4, 9}
    assert sound == 3


def swapped(first, second):
    first, second = (1 << 32) + first, (1 << 32) + second
    return (first, 0), (second, first), (0, second)


def test_a_record_inside_another_is_found(written):
    tamper(
        written,
        "INSERT INTO events SELECT place + 1, recorded_at, type, id, path, step, data, checksum"
        f" FROM events WHERE {PLACE} 4",
    )
    damages, sound = found(written)
    assert damages == [(5, "event 5 occurs twice")]
    assert sound == 4


@pytest.mark.parametrize(("old", "new", "event"), [(7, 6, 6), (12, 13, 13)])
def test_a_record_that_moved_a_little_is_read_nowhere(written, old, new, event):
    tamper(written, f"UPDATE events SET place = (1 << 32) + {new} WHERE {PLACE} {old}")
    with SqliteStore(written) as store:
        for read in (lambda: store.read(ONE, event - 1, 1), lambda: store.facts(ONE, [event])):
            with pytest.raises(CorruptStoreError, match=rf"claims to begin with event {event} .* ends with event"):
                read()
        with pytest.raises(CorruptStoreError):
            store.page(ONE, event - 1, 1)
    assert found(written)[0]


def test_behind_a_damaged_record_the_log_can_be_read(written):
    tamper(written, f"UPDATE events SET data = '[]' WHERE {PLACE} 4")
    with SqliteStore(written) as store:
        assert store.read(ONE, after=6) == events_of(log(ONE))[6:]
        with pytest.raises(CorruptStoreError, match="the record of events 4 to 6 of execution"):
            store.read(ONE, after=3, limit=1)


def test_single_events_are_read_with_one_query_and_checked(written):
    with SqliteStore(written) as store:
        queries = []
        reader_of(store).set_trace_callback(queries.append)
        expected = {event.sequence: event.data for event in events_of(log(ONE)) if event.sequence % 2}
        assert store.facts(ONE, list(expected)) == expected
        assert sum("FROM events" in query for query in queries) == 1
        with pytest.raises(CorruptStoreError, match=r"event 14 of execution .* is missing"):
            store.facts(ONE, [2, 14])
    tamper(written, f"UPDATE events SET data = replace(data, 'action', 'axtion') WHERE {PLACE} 7")
    with SqliteStore(written) as store:
        assert list(store.facts(ONE, [2, 10])) == [2, 10]
        with pytest.raises(CorruptStoreError, match=r"the record of events 7 to 8 .* does not match"):
            store.facts(ONE, [2, 8])


def test_a_record_that_cannot_be_read_says_why(written):
    tamper(written, f"""UPDATE events SET data = '[{{"step_type":"x"}}]' WHERE {PLACE} 7""")
    put_right(written)
    assert found(written)[0] == [
        (7, "event 7 cannot be read: a step_started+operation_started record cannot be read: it has 1 of 2 events")
    ]


def test_a_record_of_a_newer_version_is_refused(written):
    tamper(written, "UPDATE event_types SET name = 'step_started+step_dreamt' WHERE name LIKE 'step_started+%'")
    put_right(written)
    with SqliteStore(written) as store, pytest.raises(NewerStoreError, match="step_dreamt"):
        store.read(ONE)


def test_the_view_for_people_has_an_event_a_row(written):
    with closing(sqlite3.connect(written)) as connection:
        rows = connection.execute(
            "SELECT sequence, event_type, path, step, json_extract(data, '$.result') FROM log WHERE execution_id = ?",
            (ONE,),
        ).fetchall()
    events = events_of(log(ONE))
    assert [row[:4] for row in rows] == [(e.sequence, e.event_type, e.path, e.step) for e in events]
    assert rows[3][4] == LONG


def test_a_type_that_is_new_to_the_file_is_known_after_the_transaction(path):
    with SqliteStore(path) as here, SqliteStore(path) as there:
        here.append_all([Batch(ONE, 0, records(ONE))])
        there.append_all([Batch(TWO, 0, records(TWO)), Batch(TWO, 6, [begun(7, execution=TWO)])])
        here.append_all([Batch(ONE, 6, [begun(7), done(9)])])
        assert here.read(TWO) == there.read(TWO)
        assert len(there.read(ONE)) == 11


def test_a_log_that_another_process_went_on_with_in_new_types_is_followed_to_its_end(path):
    with SqliteStore(path) as here, SqliteStore(path) as there:
        here.append_all([Batch(ONE, 0, records(ONE)[:1])])
        for last, new in ((1, records(ONE)[1]), (3, records(ONE)[2]), (6, begun(7))):
            assert there.append_all([Batch(ONE, last, [new])]) == [None]
        assert here.append_all([Batch(ONE, 8, [done(9)])]) == [None]
        assert there.record(ONE).last_sequence == here.record(ONE).last_sequence == 11


def test_a_checkpoint_follows_records_of_new_types(path):
    with SqliteStore(path) as store:
        store.append_all([Batch(ONE, 0, records(ONE)[:1])])
        store.append_all([Batch(ONE, 1, [*records(ONE)[1:], begun(7)])])
        store.put_checkpoint(ONE, 8, b"fold")
        assert store.checkpoint(ONE) == (8, b"fold")


def test_a_batch_that_is_undone_leaves_no_type(path):
    broken = record(7, *begun(7).facts, path="x")
    with SqliteStore(path) as store:
        store.append_all([Batch(ONE, 0, records(ONE))])
        with pytest.raises(ZeroDivisionError):
            _undone(store, broken)
        assert store.append_all([Batch(ONE, 6, [broken])]) == [None]
        assert len(store.read(ONE)) == 8


def _undone(store, entry):
    """Append a record in a transaction that ends with an error."""
    enter = store._logs.write

    def write(*arguments):
        enter(*arguments)
        raise ZeroDivisionError

    store._logs.write = write
    try:
        store.append_all([Batch(ONE, 6, [entry])])
    finally:
        store._logs.write = enter
