"""Recordings: every saved state is the engine's, what is too large shrinks, what strangers made is refused."""

import base64
import copy
import cProfile
import json
import zlib

import pytest

from divebook import Agent, Environment, ScriptedModel
from divebook.definitions.definition import Workflow
from divebook.definitions.step import Each, Step
from divebook.errors import SavedRunError
from divebook.replay.replayer import Positions
from divebook.runtime.compute.dask import DASHBOARDS
from divebook.text import redaction
from divebook.widgets import recording as saved
from divebook.widgets.recording import MAX_BYTES, CleanRun, RecordedPositions, pack, read_saved, saved_run
from divebook.widgets.stepping import SteppedLog
from tests.runtime.worlds import run

SECRET = "hunter2hunter2"
MOST_CALLS_PER_ITEM = 1700


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


def a_turn():
    """Return an execution whose agent calls a tool, and answers."""

    def weather(city: str) -> str:
        """Tell the weather."""
        return f"rain in {city}"

    model = ScriptedModel([{"call": {"weather": {"city": "Rome"}}}, "It rains."])
    environment = Environment(store="memory:", agents=[Agent("guide", model=model, tools=[weather])])
    return environment.start(Workflow("w", [Step("ask", prompt="How is Rome?", agent="guide")])).wait(30, check=True)


def without_secret(value):
    return json.loads(json.dumps(value).replace(SECRET, "[redacted]"))


def test_every_state_is_that_of_the_engine(execution, packed):
    recorded = RecordedPositions(read_saved(packed)[1])
    positions = SteppedLog(Positions.of(execution.history()))
    assert recorded.total == positions.total
    for sequence in range(positions.total + 1):
        assert recorded.state_at(sequence) == without_secret(positions.state_at(sequence))


def test_what_the_model_saw_at_each_position_is_what_the_log_says():
    turned = a_turn()
    recorded = RecordedPositions(read_saved(json.loads(json.dumps(saved_run(turned))))[1])
    positions = SteppedLog(Positions.of(turned.history()))
    told = [positions.said_at(sequence) for sequence in range(positions.total + 1)]
    assert [recorded.said_at(sequence) for sequence in range(positions.total + 1)] == told
    assert sorted({tuple(part["kind"] for part in parts) for _, parts in told}) == [
        (),
        ("system", "user"),
        ("system", "user", "call"),
        ("system", "user", "call", "result"),
        ("system", "user", "call", "result", "assistant"),
    ]


def test_the_events_come_with_what_they_hold(execution, packed):
    recorded = RecordedPositions(read_saved(packed)[1])
    positions = SteppedLog(Positions.of(execution.history()))
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


def test_what_is_still_too_large_is_sampled_and_says_so():
    steps = [Step("a", script="[str(i * 7919 % 1009) for i in range(300)]", store="x")]
    steps.append(Step("b", each=Each(items=list(range(120)), as_="item"), script="str(item * 104729 % 10007)"))
    execution = run(Workflow("w", steps))
    whole, part = saved_run(execution, execution.history()), saved_run(execution, execution.history(), max_bytes=6000)
    assert (whole["format"], part["format"]) == (1, 2)
    assert len(json.dumps(part)) <= 6000
    recording = read_saved(part)[1]
    recorded, kept = RecordedPositions(recording, "/the/store.db"), recording["events"]["sequence"]
    full = RecordedPositions(read_saved(whole)[1])
    assert recorded.total == full.total
    assert recording["sample"] == f"Sample of {len(kept):,} of {full.total:,} events, with all failures and questions"
    for sequence in (0, *kept):
        assert recorded.state_at(sequence) == full.state_at(sequence) if sequence else True
    for after, stop in ((0, full.total), (kept[1], kept[3])):
        assert recorded.block(after, stop)["sequence"] == [one for one in kept if after < one <= stop]
    missing = next(one for one in range(1, full.total) if one not in kept)
    with pytest.raises(
        IndexError,
        match=(rf"event {missing:,} is not in the notebook, which contains .*; its log was in /the/store\.db"),
    ):
        recorded.state_at(missing)


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
    assert part["format"] == 2
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
    "an event out of this world": lambda r: r["events"]["sequence"].__setitem__(-1, 10**12),
    "events out of order": lambda r: r["events"]["sequence"].reverse(),
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
    with pytest.raises(SavedRunError, match="is incomplete"):
        read_saved({**packed, "recording": packed["recording"][: len(packed["recording"]) // 8 * 4]})


def test_a_bomb_is_not_unpacked(packed, monkeypatch):
    monkeypatch.setattr(saved, "MAX_UNPACKED", 1000)
    with pytest.raises(SavedRunError, match="when unpacked"):
        read_saved({**packed, "recording": base64.b64encode(zlib.compress(b" " * 100_000)).decode()})


def test_a_recording_of_the_newest_events_by_an_older_version_is_opened(execution, packed):
    whole = RecordedPositions(read_saved(packed)[1])

    def make_older(recording):
        changes, events = recording["changes"], recording["events"]
        recording.pop("sample")
        events.pop("sequence")
        events["first"] = 11
        for name in ("kind", "item"):
            events.pop(name)
        for name in ("time", "type", "path", "step", "text"):
            events[name] = events[name][10:]
        recording["base"] = whole.state_at(10)
        for name in ("given", "came"):
            recording["spans"].pop(name)
        recording["changes"], recording["data"] = changes[10:], recording["data"][10:]

    recording = read_saved(repacked(packed, make_older))[1]
    older = RecordedPositions(recording)
    assert recording["sample"] == f"The last {whole.total - 10} of {whole.total} events"
    for sequence in range(10, whole.total + 1):
        assert older.state_at(sequence) == whole.state_at(sequence)
    with pytest.raises(IndexError, match="event 9 is not in the notebook"):
        older.state_at(9)


def test_a_newer_format_asks_for_an_upgrade(packed):
    with pytest.raises(SavedRunError, match="upgrade divebook"):
        read_saved({**packed, "format": 3})


def test_what_rows_gave_is_saved_without_secrets_and_without_links():
    """A column with the name of a secret is left out, and what looks like one is hidden."""
    script = "{'label': inputs.api_key, 'password': 'plain words', 'ok': item > 1}"
    flow = Workflow("w", [Step("s", script=script, each=Each([1, 2, 3], "item"))], inputs=["api_key"])
    execution = run(flow, {"api_key": SECRET})
    DASHBOARDS.add_address(execution.id, "http://127.0.0.1:8787/status")
    packed = saved_run(execution, execution.history())
    header = read_saved(packed)[1]["header"]
    words = [spread["words"] for step in header["progress"] for spread in step["spread"]]
    assert words == ["label: [redacted] 3", "ok: True 2, False 1"]
    assert header["dashboards"] == []


def test_an_older_recording_says_nothing_of_what_rows_gave(packed):
    def forget(recording):
        del recording["header"]["dashboards"]
        for step in recording["header"]["progress"]:
            del step["spread"]

    header = read_saved(repacked(packed, forget))[1]["header"]
    assert [step["spread"] for step in header["progress"]] == [[]]
    assert header["dashboards"] == []
