"""Damage of every kind is found, said where it is, and nothing is changed."""

import hashlib
import sqlite3
from contextlib import closing

import pytest

from divebook.errors import DivergenceError
from divebook.events.catalog import StepCompleted
from divebook.store import Batch, MemoryStore, Owner, SqliteStore
from divebook.store.check import check
from tests.store.keeping_promises import text
from tests.store.logs import ONE, TWO, completed, event, failed, log, started, step
from tests.store.test_schema import restore

LARGE = text(200_000)
FIRST = "place = (1 << 32) + "  # of the log that is written first


@pytest.fixture
def path(tmp_path):
    return tmp_path / "executions.db"


@pytest.fixture
def written(path):
    """Return a file with two executions: the first has ended."""
    with SqliteStore(path, durability="relaxed") as store:
        one = [*log(4, ONE), event(5, StepCompleted(output=LARGE), ONE), completed(6, ONE)]
        store.append_all([Batch(ONE, 0, one, acquire=Owner.current()), Batch(TWO, 0, log(4, TWO))])
        store.put_checkpoint(ONE, 3, b"fold")
    return path


def tamper(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def found(path, **options):
    """Return the report on a file, after making sure that checking it has changed nothing."""
    before = hashlib.sha256(path.read_bytes()).digest()
    with SqliteStore(path, durability="relaxed") as store:
        report = check(store, **options)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    return report


def only_damage(path):
    (damage,) = found(path).all_damages()
    return damage.execution_id, damage.sequence, damage.text


def readable(report):
    return {entry.execution_id: entry.readable for entry in report.executions}


def test_a_sound_file_has_no_damage(written):
    report = found(written)
    assert report.ok
    assert report.orphan_blobs == 0
    assert readable(report) == {ONE: 6, TWO: 4}


def test_a_missing_event_is_found(written):
    tamper(written, f"DELETE FROM events WHERE {FIRST} 3")
    assert only_damage(written) == (ONE, 3, "event 3 is missing")
    assert readable(found(written)) == {ONE: 2, TWO: 4}


def test_several_missing_events_are_one_damage(written):
    tamper(written, f"DELETE FROM events WHERE {FIRST} 2 OR {FIRST} 3")
    assert only_damage(written) == (ONE, 2, "events 2 to 3 are missing")


def test_a_missing_end_is_found(written):
    tamper(written, "DELETE FROM events WHERE place = (2 << 32) + 4")
    assert only_damage(written) == (TWO, 4, "event 4 is missing")


def test_events_beyond_the_record_are_found(written):
    tamper(written, f"UPDATE executions SET last_sequence = 2 WHERE id = '{TWO}'")
    assert (TWO, 3, "the record says that event 2 is the last, but events 3 to 4 are there") in [
        (damage.execution_id, damage.sequence, damage.text) for damage in found(written).all_damages()
    ]


@pytest.mark.parametrize(
    "change",
    [
        """data = '{"step_type":"scribe"}'""",
        "recorded_at = recorded_at + 1",
        "path = 'main-1'",
        "step = 'other'",
        "path = CAST(X'FF' AS TEXT)",
        "id = X'00112233445566778899AABBCCDDEEFF'",
        "checksum = 7",
    ],
)
def test_a_changed_event_does_not_have_its_checksum(written, change):
    tamper(written, f"UPDATE events SET {change} WHERE {FIRST} 2")
    damages = found(written).all_damages()
    assert (damages[0].execution_id, damages[0].sequence) == (ONE, 2)
    assert damages[0].text == "event 2 does not have the checksum it was written with"


def test_events_that_changed_places_are_found(written):
    tamper(written, *(f"UPDATE events SET place = {new} WHERE place = {old}" for old, new in swapped(2, 4)))
    assert {damage.sequence for damage in found(written).all_damages()} >= {2, 4}


def swapped(first, second):
    first, second = (1 << 32) + first, (1 << 32) + second
    return (first, 0), (second, first), (0, second)


def test_a_record_with_another_checksum_is_found(written):
    tamper(written, f"UPDATE executions SET checksum = 7 WHERE id = '{TWO}'")
    assert only_damage(written)[2] == "event 4 does not have the checksum that the record says is the last"


def test_an_undecodable_payload_is_found(written):
    tamper(written, f"UPDATE events SET data = '{{oops' WHERE {FIRST} 3")
    texts = [damage.text for damage in found(written).all_damages()]
    assert any(text.startswith("event 3 cannot be read: a step_completed event cannot be read") for text in texts)
    assert readable(found(written)) == {ONE: 2, TWO: 4}


def test_an_event_type_without_a_name_is_found(written):
    tamper(written, f"UPDATE events SET type = 999 WHERE {FIRST} 3")
    assert any("event type 'type 999' is not known" in damage.text for damage in found(written).all_damages())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("status = 'running'", "the record says status 'running', the events say 'completed'"),
        ("ended_at = 7", "the record says ended_at 7, the events say 1750000006000000"),
        ("error = 'ouch'", "the record says error 'ouch', the events say None"),
        ("size = 7", "the record says 7 bytes, the events have "),
    ],
)
def test_a_record_that_disagrees_with_its_events_is_found(written, change, expected):
    tamper(written, f"UPDATE executions SET {change} WHERE id = '{ONE}'")
    assert only_damage(written)[2].startswith(expected)


def test_a_missing_large_value_is_found(written):
    tamper(written, "DELETE FROM blobs")
    report = found(written)
    assert [damage.text for damage in report.damages] == ["1 references lead to large values that are missing"]
    (damage,) = report.executions[1].damages or report.executions[0].damages
    assert (damage.execution_id, damage.sequence) == (ONE, 5)
    assert "event 5 cannot be read: the large value" in damage.text
    assert readable(report) == {ONE: 4, TWO: 4}


@pytest.mark.parametrize("change", ["data = X'00'", "data = X'31', compressed = 0"])
def test_a_damaged_large_value_is_found(written, change):
    tamper(written, f"UPDATE blobs SET {change}")
    (damage,) = found(written).all_damages()
    assert damage.sequence == 5


def test_a_large_value_in_use_but_not_noted_as_such_is_found(written):
    tamper(written, "DELETE FROM blob_uses")
    assert only_damage(written)[2].endswith("is in use, but not noted as such: gc would delete it")


def test_orphan_blobs_are_counted_and_are_no_damage(written):
    with SqliteStore(written) as store:
        store.delete(ONE)
    report = found(written)
    assert report.ok
    assert report.orphan_blobs == 1


def test_rows_that_belong_to_nothing_are_found(written):
    tamper(written, f"DELETE FROM executions WHERE id = '{ONE}'")
    assert [damage.text for damage in found(written).damages] == [
        "6 events belong to no execution",
        "1 rows of table blob_uses belong to no execution",
        "1 rows of table checkpoints belong to no execution",
    ]


def test_a_damaged_page_leaves_the_events_before_it_readable(path):
    with SqliteStore(path, durability="relaxed") as store:
        store.append_all([Batch(ONE, 0, log(2000, ONE)), Batch(TWO, 0, log(3, TWO))])
    raw = bytearray(path.read_bytes())
    middle = raw.index(b"step-500") // 4096 * 4096
    raw[middle : middle + 4096] = b"\xaa" * 4096
    path.write_bytes(raw)
    report = found(path)
    assert report.damages[0].text.startswith("the file's structure is damaged: ")
    sound = readable(report)
    assert sound[TWO] == 3
    assert 900 < sound[ONE] < 1000
    damages = next(entry.damages for entry in report.executions if entry.execution_id == ONE)
    assert f"events {sound[ONE] + 1} to 2000 are unreadable: database disk image is malformed" in damages[0].text


def test_events_from_before_there_were_checksums_are_counted(path):
    restore(path, 1)
    with SqliteStore(path) as store:
        store.append(ONE, log(2), 0)
        unended = [record for record in store.unended() if record.execution_id != ONE]
        before = max(unended, key=lambda record: record.last_sequence)
        old = store.read(before.execution_id)[-1]
        store.append(before.execution_id, [event(old.sequence + 1, step(3).data, before.execution_id)], old.sequence)
        report = check(store)
    assert report.ok
    counted = {entry.execution_id: (entry.unverified, entry.events) for entry in report.executions}
    assert counted[ONE] == (0, 2)
    assert counted[before.execution_id] == (old.sequence, old.sequence + 1)


def test_a_fold_that_fails_is_found():
    def fold(events):
        if events[0].execution_id == TWO:
            raise DivergenceError("step a", "1", "2")

    with MemoryStore() as store:
        store.append_all([Batch(ONE, 0, log(3, ONE)), Batch(TWO, 0, log(3, TWO))])
        (damage,) = check(store, fold=fold).all_damages()
    assert damage.execution_id == TWO
    assert damage.text.startswith("its state cannot be rebuilt: history and definition disagree")


def test_a_fold_is_not_asked_about_a_damaged_log():
    asked = []
    with MemoryStore() as store:
        store.append_all([Batch(ONE, 0, log(3, ONE)), Batch(TWO, 0, [started(TWO), failed(2, TWO)])])
        store._logs[ONE].payloads[1] = b"{}"
        assert not check(store, fold=asked.append).ok
    assert [events[0].execution_id for events in asked] == [TWO]
