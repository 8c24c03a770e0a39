"""Damage of every kind is found, said where it is, and nothing is changed."""

import hashlib
from zlib import crc32

import pytest

from divebook.errors import CorruptStoreError, DivergenceError
from divebook.events import catalog
from divebook.events.catalog import StepCompleted
from divebook.stores import MemoryStore, Message, Owner, SqliteStore
from divebook.stores.encoding import of_row
from divebook.stores.maintenance import check
from tests.store.large_promises import text
from tests.store.logs import ONE, START, THREE, TWO, batch, completed, event, execution_id, failed, log, started, step
from tests.store.tampering import put_right, tamper
from tests.store.test_schema import VERSIONS, restore

LARGE = text(200_000)
FIRST = "place = (1 << 32) + "  # of the log that is written first


@pytest.fixture
def written(path):
    """Return a file with two executions: the first has ended."""
    with SqliteStore(path, durability="relaxed") as store:
        one = [*log(4, ONE), event(5, StepCompleted(output=LARGE), ONE), completed(6, ONE)]
        store.append_all([batch(ONE, 0, one, acquire=Owner.current()), batch(TWO, 0, log(4, TWO))])
        store.put_checkpoint(ONE, 3, b"fold")
    return path


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
    assert only_damage(written) == (
        TWO,
        2,
        "event 2 does not match the last checksum in the record of the execution",
    )


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
    assert only_damage(written) == (ONE, 2, "event 2 does not match its checksum")


def test_events_that_changed_places_are_found(written):
    tamper(written, *(f"UPDATE events SET place = {new} WHERE place = {old}" for old, new in swapped(2, 4)))
    assert {damage.sequence for damage in found(written).all_damages()} >= {2, 4}


def swapped(first, second):
    first, second = (1 << 32) + first, (1 << 32) + second
    return (first, 0), (second, first), (0, second)


def test_a_record_with_another_checksum_is_found(written):
    tamper(written, f"UPDATE executions SET checksum = 7 WHERE id = '{TWO}'")
    assert only_damage(written)[2] == "event 4 does not match the last checksum in the record of the execution"


def test_an_undecodable_payload_is_found(written):
    tamper(written, f"UPDATE events SET data = '{{oops' WHERE {FIRST} 3")
    assert only_damage(written) == (ONE, 3, "event 3 does not match its checksum")
    put_right(written)
    assert only_damage(written)[2].startswith("event 3 cannot be read: a step_completed event cannot be read")
    assert readable(found(written)) == {ONE: 2, TWO: 4}


def test_an_event_type_without_a_name_is_found(written):
    tamper(written, f"UPDATE events SET type = 999 WHERE {FIRST} 3")
    assert only_damage(written)[:2] == (ONE, 3)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("status = 'running'", "the record says status 'running', the events say 'completed'"),
        ("ended_at = 7", "the record says ended_at 7, the events say 1750000006000000"),
        ("error = 'ouch'", "the record says error 'ouch', the events say None"),
        ("size = 7", "the record says 7 bytes, but the events have "),
    ],
)
def test_a_record_that_disagrees_with_its_events_is_found(written, change, expected):
    tamper(written, f"UPDATE executions SET {change} WHERE id = '{ONE}'")
    assert only_damage(written)[2].startswith(expected)


def test_a_missing_large_value_is_found(written):
    tamper(written, "DELETE FROM blobs")
    report = found(written)
    (damage,) = report.all_damages()
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
    assert only_damage(written)[2].endswith("is in use, but not listed as used, so gc would delete it")


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
        store.append_all([batch(ONE, 0, log(2000, ONE)), batch(TWO, 0, log(3, TWO))])
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


EVERY_KIND = execution_id(2)
"""Holds an event of every kind, one after the other: no execution's log is so."""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_file_is_sound(path, version):
    restore(path, version)
    with SqliteStore(path) as store:
        damages = check(store).all_damages()
    assert [damage for damage in damages if damage.execution_id != EVERY_KIND] == []
    assert all(damage.text.startswith(f"event {damage.sequence} (") for damage in damages)


def test_a_damaged_message_is_found_and_not_used(written):
    with SqliteStore(written) as store:
        store.post(Message(TWO, "signal", "1", {"amount": 5}, "ann", 1))
        store.post(Message(TWO, "signal", "2", {"amount": 7}, "ann", 1))
    tamper(written, """UPDATE messages SET payload = '{"amount":9}' WHERE number = 1""")
    assert only_damage(written)[2] == f"message 1 to execution {TWO} does not match its checksum"
    with SqliteStore(written) as store:
        assert [message.number for message in store.new_messages(0)] == [2]
        with pytest.raises(CorruptStoreError, match=f"message 1 to execution {TWO} does not match its checksum"):
            store.inbox(TWO)


@pytest.mark.parametrize("change", ["data = X'00'", "sequence = 2", "key = 2"])
def test_a_damaged_or_foreign_checkpoint_is_found_and_counts_as_none(written, change):
    tamper(written, f"UPDATE checkpoints SET {change}")
    assert only_damage(written)[2].startswith(
        "a checkpoint of the execution is damaged or belongs to another log. The checkpoint is not used"
    )
    with SqliteStore(written) as store:
        assert [store.checkpoint(name) for name in (ONE, TWO)] == [None, None]


def test_a_checkpoint_of_what_the_log_was_before_counts_as_none(written, tmp_path):
    with SqliteStore(tmp_path / "other.db") as other:
        other.append(ONE, [*log(2), event(3, catalog.SignalReceived("another", {}))], 0)
        other.put_checkpoint(ONE, 3, b"another fold")
    copied = "INSERT OR REPLACE INTO checkpoints SELECT * FROM other.checkpoints"
    tamper(written, f"ATTACH '{tmp_path / 'other.db'}' AS other", copied)
    assert "belongs to another log" in only_damage(written)[2]
    with SqliteStore(written) as store:
        assert store.checkpoint(ONE) is None


def test_a_checkpoint_from_before_it_covered_its_log_is_no_damage_and_is_not_used(written):
    checksum = crc32(b"fold", of_row((ONE, 3)))
    tamper(written, f"UPDATE checkpoints SET checksum = {checksum}")
    with SqliteStore(written) as store:
        assert check(store).ok
        assert store.checkpoint(ONE) is None


def test_a_question_that_is_not_noted_is_found(written):
    with SqliteStore(written) as store:
        store.append(TWO, [event(5, catalog.InterruptRaised("q", "confirm", "Go?"), TWO)], 4)
    tamper(written, "DELETE FROM questions")
    assert only_damage(written)[2] == "question q is listed as settled, but is open according to the events"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("UPDATE questions SET is_over = 1", f"question q of execution {TWO} is not listed with"),
        ("UPDATE messages SET untaken = 0", "message 1 is not listed with its current state"),
        ("INSERT INTO tags (tag, began, key) VALUES ('other', 1, 2)", f"execution {TWO} is not listed under the tags"),
    ],
)
def test_what_lists_lead_astray_is_found(written, change, expected):
    with SqliteStore(written) as store:
        store.append(TWO, [event(5, catalog.InterruptRaised("q", "confirm", "Go?"), TWO)], 4)
        store.post(Message(TWO, "answer", "q", True, "ann", 1))
    tamper(written, change)
    assert only_damage(written)[2].startswith(expected)


@pytest.mark.parametrize("opened", [0, -1, 2])
def test_another_number_of_the_opening_event_is_damage(written, opened):
    """Rows of executions that are no forks leave the number 1 out of their checksum."""
    tamper(written, f"UPDATE executions SET opened = {opened} WHERE id = '{ONE}'")
    with SqliteStore(written) as store:
        with pytest.raises(CorruptStoreError):
            store.record(ONE)
        assert not check(store).ok


def test_a_damaged_record_hides_no_other(written, caplog):
    tamper(written, f"UPDATE executions SET note = 'x' WHERE id = '{ONE}'")
    assert only_damage(written) == (ONE, None, "the record does not match its checksum")
    with SqliteStore(written) as store:
        with pytest.raises(CorruptStoreError, match=f"the row of execution {ONE} does not match its checksum"):
            store.record(ONE)
        assert [record.execution_id for record in store.records()] == [TWO]
    assert f"the row of execution {ONE} does not match its checksum" in caplog.text


# --- the grammar of a log

OURS = catalog.ExecutionStarted("w", definition={"name": "w"})
MAIN = (catalog.PathStarted("a"), "main", "")
CALL = (catalog.OperationStarted("op", "script_execution"), "main", "a")
RETURN = (catalog.OperationCompleted("op", "script_execution"), "main", "a")
ASK = (catalog.InterruptRaised("q", "confirm", "Go?"), "main", "a")
ANSWER = (catalog.InterruptResolved("q", response=True), "main", "a")
BRANCH = (catalog.PathBranched([{"id": "main-1", "current_step": "b"}]), "main", "a")
UNGRAMMATICAL = {
    "event 2 (step_started): path main has not started": [(catalog.StepStarted("script"), "main", "a")],
    "event 3 (operation_completed): call op ends without having started": [MAIN, RETURN],
    "event 5 (operation_completed): call op ends without having started": [MAIN, CALL, RETURN, RETURN],
    "event 3 (interrupt_resolved): question q was never asked": [MAIN, ANSWER],
    "event 5 (interrupt_resolved): question q is already closed": [MAIN, ASK, ANSWER, ANSWER],
    "event 4 (interrupt_raised): question q is already open": [MAIN, ASK, ASK],
    "event 4 (path_branched): path main-1 starts a second time": [MAIN, BRANCH, BRANCH],
    "event 4 (step_started): path main has ended": [
        MAIN,
        (catalog.PathCompleted("a"), "main", ""),
        (catalog.StepStarted("script"), "main", "a"),
    ],
}


@pytest.mark.parametrize("text", UNGRAMMATICAL)
def test_a_log_against_the_grammar_is_damage(text):
    happened = enumerate(UNGRAMMATICAL[text], 2)
    events = [event(1, OURS, path=""), *(event(n, data, path=path, step=step) for n, (data, path, step) in happened)]
    with MemoryStore() as store:
        store.append(ONE, events, 0)
        (damage,) = check(store).all_damages()
    assert damage.text == text


def test_a_first_event_of_another_log_is_found(written):
    columns = "recorded_at, id, data, checksum"
    first = f"SELECT {columns} FROM events WHERE place = (2 << 32) + 1"
    with SqliteStore(written) as store:
        store.append(THREE, log(1, THREE, at=START), 0)
    tamper(written, f"UPDATE events SET ({columns}) = ({first}) WHERE place = (3 << 32) + 1")
    execution, sequence, said = only_damage(written)
    assert (execution, sequence) == (THREE, 1)
    assert said.startswith("event 1 was not recorded when the execution started")


def test_the_only_event_without_its_checksum_is_found(written):
    with SqliteStore(written) as store:
        store.append(THREE, log(1, THREE), 0)
    tamper(written, "UPDATE events SET checksum = NULL WHERE place = (3 << 32) + 1")
    assert only_damage(written) == (THREE, 1, "event 1 does not match the last checksum in the record of the execution")


def test_events_from_before_there_were_checksums_are_counted(path):
    restore(path, 1)
    with SqliteStore(path) as store:
        store.append(ONE, log(2), 0)
        unended = [record for record in store.unended() if record.execution_id != ONE]
        before = max(unended, key=lambda record: record.last_sequence)
        old = store.read(before.execution_id)[-1]
        store.append(before.execution_id, [event(old.sequence + 1, step(3).data, before.execution_id)], old.sequence)
        report = check(store)
    assert {d.execution_id for d in report.all_damages()} <= {EVERY_KIND}
    counted = {entry.execution_id: (entry.unverified, entry.events) for entry in report.executions}
    assert counted[ONE] == (0, 2)
    assert counted[before.execution_id] == (old.sequence, old.sequence + 1)


def test_a_fold_that_fails_is_found():
    def fold(events):
        if events[0].execution_id == TWO:
            raise DivergenceError("step a", "1", "2")

    with MemoryStore() as store:
        store.append_all([batch(ONE, 0, log(3, ONE)), batch(TWO, 0, log(3, TWO))])
        (damage,) = check(store, fold=fold).all_damages()
    assert damage.execution_id == TWO
    assert damage.text.startswith("its state cannot be rebuilt: the code no longer matches the log")


def test_a_fold_is_not_asked_about_a_damaged_log():
    asked = []
    with MemoryStore() as store:
        store.append_all([batch(ONE, 0, log(3, ONE)), batch(TWO, 0, [started(TWO), failed(2, TWO)])])
        store._logs[ONE].payloads[1] = b"{}"
        assert not check(store, fold=asked.append).ok
    assert [events[0].execution_id for events in asked] == [TWO]
