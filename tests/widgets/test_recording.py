"""Recordings: every saved state is the engine's, what is too large shrinks, what strangers made is refused."""

import base64
import copy
import cProfile
import json
import zlib

import pytest

from divebook.errors import SavedRunError
from divebook.text import redaction
from divebook.widgets import saved
from divebook.widgets.positions import Positions
from divebook.widgets.recording import NOT_SAVED, CleanRun, RecordedPositions
from divebook.widgets.saved import MAX_BYTES, pack, read_saved, saved_run
from divebook.workflow.definition import Each, Workflow
from divebook.workflow.step import Step
from tests.execution.worlds import run

SECRET = "hunter2hunter2"
MOST_CALLS_PER_ITEM = 1600


@pytest.fixture(scope="module")
def execution():
    steps = [
        Step("each", each=Each(items=[1, 2, 3], as_="item", parallel=2), script="item * 2", store="doubled"),
        Step("tell", script="'key ' + inputs.api_key", store="told"),
    ]
    return run(Workflow("w", steps, inputs=["api_key"]), {"api_key": SECRET})


@pytest.fixture
def packed(execution):
    return json.loads(json.dumps(saved_run(execution, execution.history())))


def without_secret(value):
    return json.loads(json.dumps(value).replace(SECRET, "[redacted]"))


def test_every_state_is_that_of_the_engine(execution, packed):
    recorded = RecordedPositions(read_saved(packed)[1])
    positions = Positions(execution.id, execution.history())
    assert recorded.total == positions.total
    for sequence in range(positions.total + 1):
        assert recorded.state_at(sequence) == without_secret(positions.state_at(sequence))


def test_the_events_come_with_what_they_hold(execution, packed):
    recorded = RecordedPositions(read_saved(packed)[1])
    positions = Positions(execution.id, execution.history())
    for sequence in range(1, positions.total + 1):
        assert recorded.event_at(sequence) == without_secret(positions.event_at(sequence))
    assert recorded.block()["type"] == positions.block()["type"]


def test_no_secret_is_in_it(packed):
    recording = read_saved(packed)[1]
    assert SECRET not in json.dumps(recording)
    assert recording["base"]["inputs"] == {}
    assert recording["data"][0]["inputs"] == {"api_key": "[redacted]"}


def test_what_is_too_large_loses_texts_first():
    execution = run(Workflow("w", [Step("a", script="'abc' * 5000", store="x")]))
    small = saved_run(execution, execution.history(), max_bytes=3500)
    assert (small["texts"], small["first"]) == (2000, 1) or (small["texts"], small["first"]) == (20_000, 1)


def test_what_is_still_too_large_loses_its_oldest_events_and_says_so():
    steps = [Step("a", script="[str(i * 7919 % 1009) for i in range(300)]", store="x")]
    steps.append(Step("b", each=Each(items=list(range(120)), as_="item"), script="str(item * 104729 % 10007)"))
    execution = run(Workflow("w", steps))
    whole, part = saved_run(execution, execution.history()), saved_run(execution, execution.history(), max_bytes=6000)
    assert whole["first"] == 1
    assert part["first"] > 1
    assert len(json.dumps(part)) <= 6000
    recorded = RecordedPositions(read_saved(part)[1], "/the/store.db")
    full = RecordedPositions(read_saved(whole)[1])
    assert recorded.total == full.total
    assert recorded.state_at(full.total)["status"] == "completed"
    block = recorded.block(part["first"] - 2, part["first"])
    assert block["names"][block["type"][0]] == NOT_SAVED
    assert len(block["type"]) == 2
    with pytest.raises(IndexError, match=r"its log was in /the/store\.db"):
        recorded.state_at(1)


def test_what_never_fits_leaves_the_ids_and_the_store(execution):
    bare = saved_run(execution, execution.history(), max_bytes=100)
    assert (bare["recording"], bare["execution_id"], bare["store"]) == ("", execution.id, "memory:")
    with pytest.raises(SavedRunError, match="too large to be saved; its log is in memory:"):
        read_saved(bare)


def test_a_long_run_stays_within_the_size():
    execution = run(Workflow("w", [Step("a", each=Each(items=list(range(2000)), as_="item"), script="item")]))
    packed = saved_run(execution, execution.history())
    assert len(json.dumps(packed)) <= MAX_BYTES
    assert read_saved(packed)[1]["total"] > 2000


def test_a_long_run_is_cleaned_of_secrets_once_however_many_sizes_are_tried(monkeypatch):
    execution = run(Workflow("w", [Step("a", each=Each(items=list(range(100)), as_="item"), script="item")]))
    made, cut = [], []
    monkeypatch.setattr(saved, "CleanRun", lambda *parts: made.append(CleanRun(*parts)) or made[0])
    monkeypatch.setattr(saved, "pack", lambda recording: cut.append(recording) or pack(recording))
    part = saved_run(execution, execution.history(), max_bytes=6000)
    assert part["first"] > 1
    assert len(made) == 1 < len(cut)


def test_saving_a_long_run_makes_few_calls_for_each_item_and_looks_at_few_texts():
    """Counts, since a clock would tell of the machine: 5,000 calls an item took half a second for 500 items."""
    execution = run(Workflow("w", [Step("a", each=Each(items=list(range(500)), as_="item"), script="item")]))
    profile, looked_at = cProfile.Profile(), redaction._remembered.cache_info().misses
    profile.runcall(saved_run, execution, execution.history())
    assert sum(entry.callcount for entry in profile.getstats()) < 500 * MOST_CALLS_PER_ITEM
    assert redaction._remembered.cache_info().misses - looked_at < 500


# --- what strangers made -------------------------------------------------------------------------------------------


def repacked(packed, change):
    """Return a saved run whose recording was changed by hand."""
    recording = copy.deepcopy(read_saved(packed)[1])
    change(recording)
    return {**packed, "recording": saved.pack(recording)}


HOSTILE = {
    "an id beyond the total": lambda r: r["spans"]["id"].__setitem__(0, 10**9),
    "a number too large to be real": lambda r: r["header"].update(now_us=10**300),
    "columns of different lengths": lambda r: r["spans"]["start"].append(1),
    "a name that is not there": lambda r: r["events"]["type"].__setitem__(0, 10_000),
    "a negative place": lambda r: r["events"]["type"].__setitem__(0, -1),
    "a first event out of this world": lambda r: r["events"].update(first=10**12),
    "a change that is none": lambda r: r["changes"][0].append([1, 2]),
    "a list for an event": lambda r: r["data"].__setitem__(0, []),
    "a missing part": lambda r: r.pop("graph"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_recording_that_was_tampered_with_is_refused(packed, name):
    with pytest.raises(SavedRunError):
        read_saved(repacked(packed, HOSTILE[name]))


@pytest.mark.parametrize("data", [None, [], "x", {}, {"format": 1}, {"format": "1"}, {"recording": 3}])
def test_what_is_no_saved_run_is_refused(data):
    with pytest.raises(SavedRunError):
        read_saved(data)


@pytest.mark.parametrize("recording", ["%%%", "QUJD", base64.b64encode(zlib.compress(b"[" * 100_000)).decode()])
def test_broken_packing_is_refused(packed, recording):
    with pytest.raises(SavedRunError, match="cannot be unpacked"):
        read_saved({**packed, "recording": recording})


def test_a_cut_off_recording_is_refused(packed):
    with pytest.raises(SavedRunError, match="cut off"):
        read_saved({**packed, "recording": packed["recording"][: len(packed["recording"]) // 8 * 4]})


def test_a_bomb_is_not_unpacked(packed, monkeypatch):
    monkeypatch.setattr(saved, "MAX_UNPACKED", 1000)
    with pytest.raises(SavedRunError, match="when unpacked"):
        read_saved({**packed, "recording": base64.b64encode(zlib.compress(b" " * 100_000)).decode()})


def test_a_newer_format_asks_for_an_upgrade(packed):
    with pytest.raises(SavedRunError, match="upgrade divebook"):
        read_saved({**packed, "format": 2})
