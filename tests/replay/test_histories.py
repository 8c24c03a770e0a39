"""Old logs load for ever: recorded histories of every event and form are driven again, folded, framed and shown."""

import gzip
import json
from pathlib import Path

import pytest

from divebook import Environment
from divebook.analysis.run_report import report_of
from divebook.events.catalog import PAYLOADS
from divebook.events.upcast import _DIVE_DIALECT, _FORMER_TYPES, CHANGES, FORM, RENAMED_TYPES, present_status
from divebook.projections.summary import ReadLog
from divebook.replay.replayer import Positions
from divebook.stores import MemoryStore
from divebook.stores.transfer import import_
from tests.replay.histories import STORIES, defined, envelopes, histories, log_of, record, recorded_envelopes
from tests.replay.history_world import world

TESTS = Path(__file__).parents[1]
HISTORIES = [*histories()]
OLDER = [
    *sorted((TESTS / "store" / "recorded").glob("form_*.jsonl")),
    *sorted((TESTS / "events" / "recorded").glob("*.jsonl")),
    TESTS / "store" / "recorded" / "former_snapshot.jsonl",
]
UNCHECKED = dict.fromkeys(("asking-still.jsonl.gz", "snapshotted.jsonl.gz"), "snapshot")
"""What cannot be equal, and why."""


def lines_of(file):
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).splitlines()


def test_every_event_and_every_version_of_its_form_is_recorded():
    found, translated = set(), set()
    for file in (*HISTORIES, *OLDER):
        for told in map(json.loads, lines_of(file)):
            name, data = told.get("event_type"), told.get("data")
            if name is not None:
                found.add((name, data.get(FORM, 0)))
            if name in _DIVE_DIALECT and _DIVE_DIALECT[name](data) != data:
                translated.add(name)
    wanted = {(name, version) for name in PAYLOADS for version in range(len(CHANGES.get(name, ())) + 1)}
    wanted |= {(name, 0) for name in (*_FORMER_TYPES, *RENAMED_TYPES)}
    assert wanted <= found, "tell a story of what is new in tests/replay/histories.py, and record it"
    assert translated == set(_DIVE_DIALECT)
    assert len(HISTORIES) >= 40
    assert {file.name.partition(".")[0] for file in HISTORIES} == set(STORIES)


@pytest.fixture
def every():
    """Return an environment that holds all histories, their ids by file, and what they may call."""
    with world(MemoryStore()) as made:
        for flow in defined().values():
            made.add_workflow(flow)
        yield made, {file.name: import_(log_of(file), made.store) for file in HISTORIES}


def test_each_history_is_equal_byte_for_byte_without_a_call(every, blocked):
    made, ids = every
    blocked()
    for name, execution_id in ids.items():
        found = made.run_of(execution_id).verify(any_code=True)  # digests of functions are those of one Python
        assert (found.divergence, found.calls) == (None, 0), f"{name}: {found}"
        assert UNCHECKED.get(name, "") in "".join(found.unchecked)
        assert found.equal is (name not in UNCHECKED), f"{name}: {found}"


def test_each_history_has_the_envelope_that_it_had_when_it_was_recorded(blocked):
    blocked()
    present = json.loads(json.dumps(envelopes()))
    recorded = recorded_envelopes()
    assert present.keys() == recorded.keys() == STORIES.keys()
    for name, state in recorded.items():
        reason = state["termination_reason"]  # of a snapshot its status, which had another name when it was recorded
        assert present[name] == {**state, "termination_reason": reason and present_status(reason)}, name


@pytest.mark.parametrize("status", ["completed", "waiting"])
@pytest.mark.parametrize("form", [0, 1])
def test_the_oldest_exports_are_equal_though_errors_of_scripts_had_other_words(form, status, blocked):
    with Environment(store=MemoryStore()) as made:
        execution_id = import_(TESTS / f"store/recorded/form_{form}_{status}.jsonl", made.store)
        blocked()
        found = made.run_of(execution_id).verify()
        assert found.divergence is None, str(found)
        assert found.equal is (status == "completed"), "a snapshot is not checked to its end"


@pytest.mark.parametrize("file", OLDER, ids=lambda file: file.name)
def test_older_logs_are_folded_framed_and_shown(file):
    with Environment(store=MemoryStore()) as made:
        shown(made, import_(file, made.store))


def test_each_history_is_folded_framed_and_shown(every):
    made, ids = every
    for execution_id in ids.values():
        shown(made, execution_id)


def shown(made, execution_id):
    """Fold a log up to each event, make frames of it, and show it."""
    execution = made.run_of(execution_id)
    events = [*execution.history()]
    positions = Positions.of(events)
    assert positions.state_at(len(events)) == execution.state
    assert positions.state_at(1).last_sequence == 1
    assert len(execution.events) == len(events)
    assert set(execution.steps["step"]) == {event.step for event in events if event.event_type == "step_started"}
    report = report_of(execution, ReadLog.of(events))
    assert execution.id in str(report)
    assert execution.id in report._repr_html_()


@pytest.mark.parametrize("name", ["everything", "tools-at-once", "snapshotted", "stages-side-by-side"])
def test_recording_anew_gives_the_same_bytes(name):
    assert record(name) == record(name)
