"""Logs that were recorded before a change of form load for ever: files in `recorded` are never edited."""

import json
from pathlib import Path

import pytest

from divebook import Environment
from divebook.errors import ExecutionError, NewerStoreError
from divebook.events import catalog
from divebook.events.codec import payload_from
from divebook.events.upcast import FORM, upcast
from divebook.stores import MemoryStore
from divebook.stores.transfer import import_, read

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.jsonl"))
ENDS = {
    "dive-2025-06-13": ("completed", {"total": 2}, ["calculate"]),
    "dive-2025-06-20": ("failed", {"total": 2}, ["first", "left", "right"]),
    "seed-catalogue": ("continued_as_new", {}, ["each"]),
}


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def recorded(request):
    return request.param


@pytest.fixture
def run(recorded):
    environment = Environment(store=MemoryStore())
    return environment.run_of(import_(recorded, environment.store))


def test_a_foreign_log_is_shown_framed_and_stepped_through(recorded, run):
    status, variables, steps = ENDS[recorded.stem]
    assert (run.status, run.variables) == (status, variables)
    assert list(run.steps.step) == steps
    assert len(run.events) == run.state.last_sequence
    assert [step.name for step in run.workflow.steps] == steps
    assert str(run).startswith(run.workflow.name)
    assert "text/html" in run.internals.static_bundle()
    replay = run.replay()
    replay.seek(len(run.events))
    assert replay.state.status == status


def test_a_foreign_log_comes_in_as_one_json_array_as_well(recorded, tmp_path):
    array = tmp_path / "log.json"
    array.write_text(json.dumps([json.loads(line) for line in recorded.read_text().splitlines()], indent=1))
    assert read(array).events == read(recorded).events


def test_a_foreign_log_is_not_carried_on_and_says_why():
    environment = Environment(store=MemoryStore())
    failed = import_(Path(__file__).parent / "recorded" / "dive-2025-06-20.jsonl", environment.store)
    with pytest.raises(ExecutionError, match="its log has no definition"):
        environment.run_of(failed).resume()


def test_the_old_systems_choice_of_a_version_is_read_with_all_it_says():
    old = {"decision_type": "flow", "selected_version": "v2", "available_versions": ["v1", "v2"], "reason": "newest"}
    read = payload_from("version_decision", old)
    assert read == catalog.VersionDecision("flow", 2, 1, 2, "v2", ["v1", "v2"], "newest")
    assert payload_from("version_decision", read.to_data()) == read
    named = payload_from("version_decision", {**old, "selected_version": "blue", "available_versions": ["red", "blue"]})
    assert (named.version, named.min_version, named.max_version) == (2, 1, 2)


def test_what_was_a_picture_is_a_snapshot():
    assert payload_from("execution_pictured", {"status": "waiting"}) == catalog.ExecutionSnapshotted("waiting")
    log = read(Path(__file__).parents[1] / "store" / "recorded" / "former_snapshot.jsonl")
    assert log.is_verified  # the hashes cover what was written then
    assert (log.status, log.events[-1].event_type) == ("snapshot", "execution_snapshotted")


def test_an_event_walks_through_every_change_since_it_was_written():
    changes = {"made": (lambda data: {**data, "a": 1}, lambda data: {**data, "b": data["a"] + 1})}
    assert upcast("made", {"x": 0}, changes) == ("made", {"x": 0, "a": 1, "b": 2})
    assert upcast("made", {"a": 5, FORM: 1}, changes) == ("made", {"a": 5, "b": 6})
    assert upcast("made", {"a": 5, "b": 7, FORM: 2}, changes) == ("made", {"a": 5, "b": 7})
    with pytest.raises(
        NewerStoreError,
        match="a made event has format version 3, but this version of divebook reads format versions up to 2",
    ):
        upcast("made", {FORM: 3}, changes)


def test_what_is_written_carries_the_version_of_its_form(monkeypatch):
    assert FORM not in catalog.StepStarted("script").to_data()
    monkeypatch.setattr(catalog.StepStarted, "form", 1)
    assert catalog.StepStarted("script").to_data() == {FORM: 1, "step_type": "script", "visit": 1}
    with pytest.raises(NewerStoreError, match="a step_started event has format version 1"):
        payload_from("step_started", catalog.StepStarted("script").to_data())
