"""An exported log is whole or refused: what is cut, changed, reordered or merged is named with its place."""

import io
import json
import os
import stat
from dataclasses import replace

import pytest

from benchmarks.exports import REFUSED, try_many
from divebook._version import __version__
from divebook.errors import InvalidEventError, NewerStoreError, SetupError, StoreError
from divebook.events import catalog
from divebook.events.codec import by_hash, encode_line
from divebook.events.values import normalize
from divebook.stores import MemoryStore
from divebook.stores.transfer import caveats, export, import_, read, read_sound
from tests.store.logs import ONE, TWO, completed, event, log

VALUES = normalize(
    {"ä": [1.5, -0.0, 10**20, None, b"\x00", float("inf"), {"$divebook": "a key"}], "b": "\x9b\u202e", "a": {}}
)


@pytest.fixture
def store():
    with MemoryStore() as opened:
        opened.append(ONE, [*log(4), event(5, catalog.StateMutated((catalog.Mutation("set", "v", VALUES),)))], 0)
        opened.append(ONE, [completed(6)], 5)
        begun = [event(2, catalog.PathStarted("a"), TWO), event(3, catalog.StepStarted("script"), TWO, step="a")]
        opened.append(TWO, [*log(1, TWO), *begun], 0)
        yield opened


def exported(store, execution_id=ONE):
    stream = io.BytesIO()
    export(store, execution_id, stream)
    return stream.getvalue().splitlines()


def read_lines(lines):
    return read(io.BytesIO(b"\n".join(lines)))


def test_what_is_kept_by_its_hash_stands_whole_in_an_export_and_once_where_it_is_imported():
    schema = {"b": 1, "a": ["x" * 50]}
    events = [*log(1), event(2, catalog.OperationCompleted("op", "x", 1, by_hash(schema))), completed(3)]
    with MemoryStore() as here, MemoryStore() as there:
        here.append(ONE, events, 0)
        lines = exported(here)
        assert json.loads(lines[2])["data"]["result"] == {"$type": "by_hash", "value": schema}
        import_(io.BytesIO(b"\n".join(lines)), there)
        assert there.read(ONE) == events
        assert [blob.digest for blob in there.blobs()] == [blob.digest for blob in here.blobs()]


def test_an_export_has_a_header_an_event_a_line_and_an_end(store):
    header, *events, end = (json.loads(line) for line in exported(store))
    assert {**header, "hash": ""} == {
        "divebook": "log",
        "form": 1,
        "execution_id": ONE,
        "workflow": "greet",
        "written_by": __version__,
        "hash": "",
    }
    assert [record["sequence"] for record in events] == [1, 2, 3, 4, 5, 6]
    keys = ["id", "execution_id", "sequence", "timestamp", "event_type", "path", "step", "data", "hash"]
    assert list(events[1]) == keys
    assert {**end, "hash": ""} == {"divebook": "end", "events": 6, "status": "completed", "hash": ""}


def test_what_had_ended_is_verified_and_comes_in_unchanged(store):
    found = read_lines(exported(store))
    target = MemoryStore()
    assert import_(found, target) == ONE
    assert (found.is_verified, found.status, caveats(found)) == (True, "completed", [])
    assert target.read(ONE) == store.read(ONE)


LAID_OUT_ANEW = {
    "an array": json.dumps,
    "an indented array": lambda records: "\n\n" + json.dumps(records, indent=2),
    "sorted keys": lambda records: "\n".join(json.dumps(record, sort_keys=True) for record in records),
    "without escapes": lambda records: "\r\n".join(json.dumps(record, ensure_ascii=False) for record in records),
}


@pytest.mark.parametrize("form", LAID_OUT_ANEW)
def test_a_file_that_was_only_laid_out_anew_is_whole(store, form):
    text = LAID_OUT_ANEW[form]([json.loads(line) for line in exported(store)])
    found = read(io.BytesIO(text.encode()))
    assert (found.is_verified, found.events) == (True, store.read(ONE))


def test_an_array_without_hashes_is_read_as_lines_are(store):
    bare = [json.loads(line) for line in exported(store)][1:-1]
    content = json.dumps([{**record, "hash": None} for record in bare]).encode()
    with pytest.raises(
        InvalidEventError, match="entry 1: this line belongs to an export, but the header of the export is missing"
    ):
        read(io.BytesIO(content))
    for record in bare:
        del record["hash"]
    found = read(io.BytesIO(json.dumps(bare).encode()))
    assert (found.is_verified, found.events) == (False, store.read(ONE))
    bare[2]["sequence"] = 9
    with pytest.raises(InvalidEventError, match="entry 3: sequence 9 leaves a gap; expected 3"):
        read(io.BytesIO(json.dumps(bare).encode()))
    with pytest.raises(InvalidEventError, match="not a JSON array"):
        read(io.BytesIO(json.dumps(bare).encode()[:-9]))


def changed(line, **changes):
    return json.dumps(json.loads(line) | changes).encode()


def refusals(lines, other):
    end = len(lines)
    return {
        f"line {end - 1}: the file ends here; expected event 7 or the end line": lines[:-1],
        "line 4: the file ends here; expected event 4": lines[:4],
        "line 1: the file ends here; expected event 1": lines[:1],
        f"line {end}: not a line of JSON": [*lines[:-1], lines[-1][:-5]],
        "line 1: this line belongs to an export, but the header of the export is missing": lines[1:],
        "line 4: expected event 3, got 4: a line is missing, repeated": [*lines[:3], *lines[4:]],
        "line 5: expected event 4, got 3": [*lines[:4], lines[3], *lines[4:]],
        "line 3: expected event 2, got 3": [*lines[:2], lines[3], lines[2], *lines[4:]],
        "line 3: this line was changed or moved: its": [*lines[:2], changed(lines[2], step="other"), *lines[3:]],
        "line 2: this line was changed or moved": [lines[0], changed(lines[1], hash="0" * 32), *lines[2:]],
        "line 1: this line was changed or moved": [changed(lines[0], workflow="other"), *lines[1:]],
        f"line {end}: this line was changed or moved": [*lines[:-1], changed(lines[-1], status="failed")],
        f"line {end + 1}: unexpected line after the end line": [*lines, *other],
        "line 5: a second header, where event 4 was expected": [*lines[:4], *other],
        "line 4: this line was changed or moved": [*lines[:3], changed(other[3], sequence=3)],
        "line 3: an event must be a JSON object": [*lines[:2], b"[1]"],
        f"line {end - 1}: this line was changed or moved": [*lines[:-2], lines[-1]],
    }


@pytest.mark.parametrize("message", refusals([b'{"a": 1}'] * 8, [b'{"a": 1}'] * 5))
def test_what_was_cut_changed_reordered_or_merged_is_refused_with_its_place(store, message):
    found = refusals(exported(store), exported(store, TWO))[message]
    with pytest.raises(InvalidEventError, match=message):
        read_lines(found)


def test_an_export_of_a_newer_form_asks_for_an_upgrade(store):
    lines = exported(store)
    with pytest.raises(NewerStoreError, match=r"line 1: the export has format version 2, but this version .* upgrade"):
        read_lines([changed(lines[0], form=2), *lines[1:]])


def test_the_sound_beginning_of_a_damaged_file_can_be_read(store):
    lines = exported(store)
    found, damage = read_sound(io.BytesIO(b"\n".join([*lines[:4], b"{oops", *lines[5:]])))
    assert found.events == store.read(ONE)[:3]
    assert "line 5: not a line of JSON" in str(damage)
    assert read_sound(io.BytesIO(b"\n".join(lines)))[1] is None


# --- snapshots, forks


def test_what_had_not_ended_comes_in_as_a_snapshot_that_nothing_follows(store):
    found = read_lines(exported(store, TWO))
    target = MemoryStore()
    import_(found, target)
    first, *rest, end = target.read(TWO)
    assert rest == store.read(TWO)[1:]
    assert first.data == replace(store.read(TWO)[0].data, origin="import")
    assert (end.sequence, end.data) == (4, catalog.ExecutionSnapshotted("running"))
    assert (target.record(TWO).status, target.unended(), target.orphans()) == ("snapshot", [], [])
    assert "the execution had not ended (running)" in caveats(found)[0]
    with pytest.raises(StoreError, match=r"has the status 'snapshot', so no execution_resumed event.*--as-fork"):
        target.append(TWO, [event(5, catalog.ExecutionResumed(), TWO, path="")], 4)


def test_a_snapshot_that_is_exported_again_stays_one(store):
    second, third = MemoryStore(), MemoryStore()
    import_(read_lines(exported(store, TWO)), second)
    import_(read_lines(exported(second, TWO)), third)
    assert third.read(TWO) == second.read(TWO)


def test_a_fork_goes_on_as_an_execution_of_its_own(store):
    copy = import_(read_lines(exported(store, TWO)), store, as_fork=True)
    record = store.record(copy)
    assert (record.status, record.origin, record.parent, record.last_sequence) == ("running", "fork", TWO, 3)
    assert store.read(copy)[0].data.seed == TWO
    snapshot = MemoryStore()
    import_(read_lines(exported(store, TWO)), snapshot)
    again = import_(read_lines(exported(snapshot, TWO)), store, as_fork=True)
    assert (store.record(again).status, store.record(again).last_sequence) == ("running", 3)


def test_logs_without_hashes_come_in_as_what_they_are_and_say_so(store):
    for name, status in ((ONE, "completed"), (TWO, "snapshot")):
        bare = [encode_line(entry) for entry in store.read(name)]
        found, target = read_lines(bare), MemoryStore()
        import_(found, target)
        assert target.record(name).status == status
        assert "no hashes" in caveats(found)[0]


def test_a_start_key_stays_with_the_original(store):
    data = catalog.ExecutionStarted("w", {}, key="nightly")
    keyed = "exec_keyed"
    store.append(keyed, [event(1, data, keyed, path="")], 0)
    lines = exported(store, keyed)
    assert store.record(import_(read_lines(lines), store, as_fork=True)).key is None
    target = MemoryStore()
    import_(read_lines(lines), target)
    assert target.record(keyed).key is None


def test_numbers_of_messages_stay_in_the_store_they_belong_to(store):
    """An answer that is given in this store has a lower number than those of the other one."""
    signal = event(4, catalog.SignalReceived("go", 1, "ann", 77), TWO)
    store.append(TWO, [signal], 3)
    fork = import_(read_lines(exported(store, TWO)), store, as_fork=True)
    assert store.read(fork)[3].data == catalog.SignalReceived("go", 1, "ann")


def test_what_moves_here_is_not_renamed(store):
    found = replace(read_lines(exported(store, TWO)), is_moved=True)
    with pytest.raises(SetupError, match="was exported with --move"):
        import_(found, store, rename=True)


def test_events_that_make_no_sense_together_become_no_fork(store):
    odd = [*log(2, TWO), event(3, catalog.PathCompleted("step"), TWO, path="nowhere")]
    found = replace(read_lines(exported(store, TWO)), events=odd)
    with pytest.raises(InvalidEventError, match=r"its state cannot be rebuilt: .* as a read-only snapshot"):
        import_(found, store, as_fork=True)


# --- files


@pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
def test_an_export_belongs_to_its_owner_only(store, tmp_path):
    export(store, ONE, tmp_path / "one.jsonl")
    assert stat.S_IMODE((tmp_path / "one.jsonl").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["one.jsonl"]


@pytest.mark.parametrize("use", [lambda store: export(store, ONE, "a\0b"), lambda store: import_("a\0b", store)])
def test_a_path_with_nul_is_refused(store, use):
    with pytest.raises(StoreError, match="cannot be the path of a file"):
        use(store)


# --- random damage; `python -m benchmarks.exports` tries many more


@pytest.mark.parametrize("seed", [1, 2])
def test_random_damage_is_refused_or_changes_nothing(seed):
    counts, bad = try_many(seed, flips=150, cuts=100, orders=50)
    assert not bad
    assert counts[REFUSED] > 250
