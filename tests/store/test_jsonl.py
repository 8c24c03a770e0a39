import io
import json
import re
from dataclasses import replace

import pytest

from divebook.errors import CorruptStoreError, ExecutionNotFoundError, InvalidEventError, NewerStoreError, StoreError
from divebook.events.catalog import ExecutionSnapshotted
from divebook.events.codec import encode_line
from divebook.stores import MemoryStore, Owner, SqliteStore
from divebook.stores.transfer import export, export_sound, import_
from tests.store.logs import ONE, TWO, completed, log
from tests.store.queue_promises import put
from tests.store.test_damaged_files import tamper


@pytest.fixture
def store():
    with MemoryStore() as opened:
        opened.append(ONE, [*log(4), completed(5)], 0)
        yield opened


@pytest.fixture
def lines(store):
    """Events alone, as older versions and other systems write them: they are checked one by one."""
    return [encode_line(event) for event in store.read(ONE)]


def imported(lines, store=None, **options):
    target = MemoryStore() if store is None else store
    return target, import_(io.BytesIO(b"\n".join(lines)), target, **options)


def edited(line, **changes):
    return json.dumps(json.loads(line) | changes).encode()


def test_an_export_says_how_many(store, tmp_path):
    assert export(store, ONE, tmp_path / "one.jsonl") == 5


def test_what_was_exported_imports_unchanged(store, tmp_path):
    export(store, ONE, tmp_path / "one.jsonl")
    with SqliteStore(tmp_path / "s.db") as target:
        assert import_(tmp_path / "one.jsonl", target) == ONE
        assert target.read(ONE) == store.read(ONE)
        assert target.record(ONE) == store.record(ONE)


def test_an_unknown_execution_leaves_no_file(store, tmp_path):
    with pytest.raises(ExecutionNotFoundError):
        export(store, TWO, tmp_path / "two.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_export_leaves_the_old_file(store, tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text("precious")
    with pytest.raises(ExecutionNotFoundError):
        export(store, TWO, path, overwrite=True)
    assert path.read_text() == "precious"


def test_an_export_into_a_missing_folder_is_an_error(store, tmp_path):
    with pytest.raises(StoreError, match=r"one\.jsonl cannot be written: No such file or directory"):
        export(store, ONE, tmp_path / "missing" / "one.jsonl")


def test_importing_a_missing_file_is_an_error(store, tmp_path):
    with pytest.raises(StoreError, match=r"one\.jsonl cannot be read: No such file"):
        import_(tmp_path / "one.jsonl", store)


def test_blank_lines_are_skipped(lines):
    target, _ = imported([b"", *lines, b"  "])
    assert len(target.read(ONE)) == 5


def test_an_existing_execution_is_refused(store, lines):
    with pytest.raises(StoreError, match=f"already holds execution {ONE}; import it with --rename"):
        imported(lines, store)


def test_a_renamed_copy_stands_beside_the_original(store, lines):
    _, copy = imported(lines, store, rename=True)
    assert copy.startswith("exec_")
    assert copy != ONE
    originals, copies = store.read(ONE), store.read(copy)
    assert copies[0].data == replace(originals[0].data, seed=ONE)  # of which the ids of its questions are made
    assert [entry.data for entry in copies[1:]] == [entry.data for entry in originals[1:]]
    assert [entry.recorded_at for entry in copies] == [entry.recorded_at for entry in originals]
    assert not {entry.id for entry in copies} & {entry.id for entry in originals}


def test_the_older_keys_are_understood(lines):
    old = []
    for line in lines:
        record = json.loads(line)
        record["path_id"], record["step_name"] = record.pop("path", ""), record.pop("step", "")
        old.append(json.dumps(record).encode())
    target, _ = imported(old)
    assert target.read(ONE)[1].step == "step-1"


def bad_files(lines):
    return {
        "line 3: not a line of JSON": [*lines[:2], b"{oops", *lines[3:]],
        "line 2: an event must be a JSON object": [lines[0], b"[1]"],
        "line 3: sequence 4 leaves a gap; expected 3": [*lines[:2], *lines[3:]],
        "line 4: sequence 3 occurs twice; expected 4": [*lines[:3], lines[2], *lines[3:]],
        "line 1: sequence 2 leaves a gap; expected 1": lines[1:],
        "line 1: a log must begin with execution_started": [edited(lines[1], sequence=1)],
        "line 2: the event belongs to execution exec_x": [lines[0], edited(lines[1], execution_id="exec_x")],
        "line 3: event id .* already occurs in line 2": [*lines[:2], edited(lines[2], id=json.loads(lines[1])["id"])],
        "line 2: data is required": [lines[0], edited(lines[1], data=None)],
        "line 2: timestamp is required": [lines[0], edited(lines[1], timestamp="")],
        "line 2: not an event: Invalid isoformat": [lines[0], edited(lines[1], timestamp="yesterday")],
        "line 2: .*offset-naive": [lines[0], edited(lines[1], timestamp="2025-06-01T10:00:00")],
        "line 2: sequence must be an integer of 64 bits, got text": [lines[0], edited(lines[1], sequence="2")],
        "line 2: id must be text, got an integer": [lines[0], edited(lines[1], id=7)],
        "line 2: sequence must be an integer of 64 bits, got a number": [lines[0], edited(lines[1], sequence=2.0)],
        "line 1: execution_started: data validation failed": [edited(lines[0], data={"workflow_name": ""})],
        "contains no events": [b"", b" "],
    }


@pytest.mark.parametrize("message", bad_files([b'{"id": ""}'] * 5))
def test_a_bad_file_is_refused_with_its_line(lines, message):
    target = MemoryStore()
    with pytest.raises(InvalidEventError, match=message):
        imported(bad_files(lines)[message], target)
    assert target.records() == []


def test_an_event_of_a_newer_version_is_named_with_its_line(lines):
    with pytest.raises(NewerStoreError, match="line 2: event type 'step_dreamt' is not known"):
        imported([lines[0], edited(lines[1], event_type="step_dreamt")])


WRONG = [
    (1, {"inputs": ["Ada"]}, "line 1: execution_started: inputs must be a mapping, got a list"),
    (1, {"workflow_name": 7}, "line 1: execution_started: workflow_name must be text, got an integer"),
    (1, {"fingerprint": True}, "line 1: execution_started: fingerprint must be text or null, got true or false"),
    (1, {"definition": {"name": "w", "steps": 5}}, "line 1: execution_started: definition is not a workflow: "),
    (2, {"step_type": {"a": 1}}, "line 2: step_started: step_type must be text, got a mapping"),
    (3, {"output": None}, "line 3: step_completed: output must be text, got null"),
    (5, {"usage": {"requests": "1"}}, "usage.requests must be an integer of 64 bits, got text"),
]


@pytest.mark.parametrize(("number", "data", "message"), WRONG)
def test_a_field_of_the_wrong_shape_is_refused_with_its_line(lines, number, data, message):
    record = json.loads(lines[number - 1])
    lines[number - 1] = json.dumps(record | {"data": record["data"] | data}).encode()
    store = MemoryStore()
    with pytest.raises(InvalidEventError, match=re.escape(message)):
        imported(lines, store)
    assert store.records() == []


def test_a_damaged_file_opens_no_store(lines):
    with pytest.raises(InvalidEventError):
        import_(io.BytesIO(b"\n".join([*lines[:2], b"{oops"])), lambda: pytest.fail("it was opened"))


def test_a_store_may_be_opened_once_the_file_is_sound(lines):
    store = MemoryStore()
    assert import_(io.BytesIO(b"\n".join(lines)), lambda: store) == ONE
    assert len(store.read(ONE)) == 5


def test_a_file_that_is_there_is_not_overwritten_unasked(store, tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text("mine")
    for write in (export, export_sound):
        with pytest.raises(StoreError, match=r"one\.jsonl exists already; name another file"):
            write(store, ONE, path)
    assert path.read_text() == "mine"
    assert export(store, ONE, path, overwrite=True) == 5


def test_the_sound_beginning_of_a_damaged_log_is_exported(tmp_path):
    with SqliteStore(tmp_path / "s.db", durability="relaxed") as store:
        store.append(ONE, log(500), 0)
        assert export_sound(store, ONE, io.BytesIO()) == (500, None)
        store.close()
    tamper(tmp_path / "s.db", "UPDATE events SET data = '{oops' WHERE place & 4294967295 = 347")
    with SqliteStore(tmp_path / "s.db") as store:
        stream = io.BytesIO()
        count, damage = export_sound(store, ONE, stream)
        with pytest.raises(CorruptStoreError):
            export(store, ONE, io.BytesIO())
    assert count == 346
    assert f"event 347 of execution {ONE} is damaged" in str(damage)
    target, _ = imported(stream.getvalue().splitlines())
    *events, end = target.read(ONE)
    assert events[1:] == log(500)[1:346]
    assert end.data == ExecutionSnapshotted("damaged")


def test_a_log_of_which_nothing_can_be_read_is_not_exported(tmp_path):
    with SqliteStore(tmp_path / "s.db", durability="relaxed") as store:
        store.append(ONE, log(3), 0)
    tamper(tmp_path / "s.db", "UPDATE events SET data = '{oops'")
    with SqliteStore(tmp_path / "s.db") as store, pytest.raises(CorruptStoreError, match="event 1 "):
        export_sound(store, ONE, tmp_path / "one.jsonl")
    assert not (tmp_path / "one.jsonl").exists()


def test_what_waited_in_a_queue_is_no_workers_where_it_is_imported_as_a_fork(tmp_path):
    """The one that it was exported from waits there still, and would be done twice."""
    with MemoryStore() as source, MemoryStore() as target:
        put(source, ONE)
        export(source, ONE, tmp_path / "one.jsonl")
        forked = import_(tmp_path / "one.jsonl", target, as_fork=True)
        import_(tmp_path / "one.jsonl", target)
        assert (target.record(forked).status, target.queued()) == ("enqueued", [])
        assert target.claim(["q"], {"greet": "f" * 64}, Owner.current(), 9) == []
