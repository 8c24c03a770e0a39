"""A frame of events made of columns is the one that is made event by event."""

import pickle
import random
import sqlite3
from contextlib import closing

import pandas as pd
import pytest

from divebook import Environment, Step, Workflow
from divebook.analysis import log as event_table
from divebook.analysis import log as fields
from divebook.analysis import log as payloads
from divebook.analysis import store as whole_store
from divebook.analysis.lists import frame_of
from divebook.analysis.log import events_frame
from divebook.errors import CorruptStoreError
from divebook.events import Event, catalog
from divebook.events.codec import decode_line
from divebook.stores import SqliteStore, history
from divebook.stores.history import History
from divebook.stores.pages import EventPage
from tests.analysis.told import told_frame
from tests.engine.history import begun, events
from tests.store.logs import ONE, log
from tests.store.test_schema import RECORDED, VERSIONS

OBJECTS = ("item", "data")
USAGES = (None, None, {}, {"input_tokens": 7}, {"input_tokens": 1, "output_tokens": 2, "cost": 5})
RESULTS = (1, None, {"cost_nanodollars": 3}, {"cost_nanodollars": None}, "text")
PARAMETERS = (None, {}, {"agent": "ann", "model": "m"}, {"agent": None, "x": "é\u2028"})
ODD = {"agent": 3, "model": {"a": [1]}}
"""Parameters of a person's own, which are texts to a frame."""
NAMES = (None, "", "look")


def same(frame, expected):
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {
        name: str(dtype) for name, dtype in expected.dtypes.items()
    }
    pd.testing.assert_frame_equal(frame.drop(columns=[*OBJECTS]), expected.drop(columns=[*OBJECTS]))
    for name in OBJECTS:
        assert list(frame[name]) == list(expected[name])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "executions.db"


def random_fact(chance, parameters):
    """Return any fact, of few paths, steps, items and operations, in any order."""
    index, operation = chance.choice((None, 0, 1)), f"op_{chance.randrange(4)}"
    given = catalog.OperationStarted(operation, chance.choice(("agent_response", "timer")), chance.choice(parameters))
    key = chance.choice((None, 1, "call", "call@2"))
    choices = (
        catalog.StepStarted("script", None, chance.randrange(1, 3)),
        catalog.StepStarted("action"),
        catalog.StepCompleted("out"),
        catalog.StepFailed("bad", None, index, chance.choice((None, "line 1"))),
        catalog.StepRetried(chance.randrange(1, 4), "again", 0.5, index, chance.choice((None, "call"))),
        catalog.StepCaught("b", "bad"),
        catalog.IterationStarted(
            chance.randrange(2), chance.choice(("item", {"a": 1}, None)), chance.choice((None, "k"))
        ),
        catalog.IterationCompleted(chance.randrange(2), "done"),
        catalog.IterationFailed(chance.randrange(2), "bad", chance.choice((None, [], ["KeyError", "LookupError"]))),
        catalog.OperationStarted(
            operation, given.operation_type, given.parameters, "hash", index, key, None, chance.choice(NAMES)
        ),
        catalog.OperationCompleted(
            operation, "timer", chance.randrange(9**9), chance.choice(RESULTS), chance.choice(USAGES)
        ),
        catalog.OperationFailed(operation, "timer", chance.randrange(9**9), "bad", ["OSError"], chance.choice(USAGES)),
        catalog.InterruptRaised("ask_1", "confirmation", operation_id=chance.choice((None, operation))),
        catalog.EventEmitted("mine", {"name": "hidden", "error": 1}, chance.choice((None, operation))),
        catalog.PathFailed("bad"),
        catalog.PathCancelled("enough"),
        catalog.PathStarted("a"),
        catalog.PathCompleted("a"),
        catalog.ExecutionFailed("bad"),
        catalog.ExecutionCancelled("enough"),
        catalog.ExecutionResumed("failed"),
        catalog.StateMutated((catalog.Mutation("set", "name", {"iteration_index": "x", "usage": 3}),)),
    )
    place = () if chance.random() < 0.1 else (chance.choice(("main", "main-1")), chance.choice(("", "a", "a", "b")))
    return (chance.choice(choices), *place)


@pytest.mark.parametrize("seed", range(60))
def test_columns_of_any_events_say_what_each_event_by_itself_says(seed):
    chance = random.Random(seed)
    parameters = (*PARAMETERS, ODD) if seed % 3 == 0 else PARAMETERS
    log = events(*begun(), *(random_fact(chance, parameters) for _ in range(chance.randrange(1, 120))))
    same(events_frame(log), told_frame(log))


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_of_recorded_files_say_what_their_events_say(path, version):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / f"version_{version}.sql").read_text())
    with SqliteStore(path) as store:
        for record in store.records():
            history = store.history(record.execution_id)
            same(events_frame(history), told_frame(history))


@pytest.mark.parametrize("name", ["form_0_completed", "form_0_waiting", "form_1_completed", "form_1_waiting"])
def test_columns_of_recorded_exports_say_what_their_events_say(name):
    lines = (RECORDED / f"{name}.jsonl").read_bytes().splitlines()
    found = [decode_line(line) for line in lines if b'"sequence"' in line and b'"event_type"' in line]
    assert found
    same(events_frame(found), told_frame(found))


class Reader:
    """Store of one log, whose pages are made of events."""

    def __init__(self, log):
        self.log = log

    def page(self, _execution_id, after, limit):
        return EventPage.of(self.log[after : after + limit])


FRAMES = ("operations", "steps", "items", "model_calls", "messages", "tool_calls", "costs by agent", "costs by tool")


@pytest.mark.parametrize("seed", range(60))
def test_frames_of_spans_are_the_same_of_a_store_as_of_events(seed, monkeypatch):
    chance = random.Random(seed)
    log = events(*begun(), *(random_fact(chance, PARAMETERS) for _ in range(chance.randrange(1, 120))))
    monkeypatch.setattr(history, "COLUMN_PAGE", chance.randrange(1, 9))
    stored = History(Reader(log), log[0].execution_id, 0, len(log))
    for kind in FRAMES:
        pd.testing.assert_frame_equal(frame_of(kind, stored), frame_of(kind, log))


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_of_spans_of_recorded_files_are_those_of_their_events(path, version):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / f"version_{version}.sql").read_text())
    with SqliteStore(path) as store:
        for record in store.records():
            stored = store.history(record.execution_id)
            for kind in FRAMES:
                pd.testing.assert_frame_equal(frame_of(kind, stored), frame_of(kind, [*stored]))


def test_a_payload_of_another_type_than_declared_is_damage_to_a_page_too():
    log = events(*begun(), (catalog.OperationCompleted("op_1", "timer", 1, None, "much"), "main", "a"))
    with pytest.raises(CorruptStoreError, match="usage"):
        EventPage.of(log).events("exec_1")


def test_an_empty_log_has_the_same_columns():
    same(events_frame([]), told_frame([]))


# --- the column of payloads ------------------------------------------------------------------------------------------


@pytest.fixture
def packed(monkeypatch):
    """Frames as those of long logs are."""
    monkeypatch.setattr(event_table, "PACKED_EVENTS", 0)


def test_payloads_of_a_short_log_are_an_ordinary_column(monkeypatch):
    log_of_three = events(*begun(), (catalog.StepStarted("script"), "main", "a"))
    plain = events_frame(log_of_three)
    assert plain["data"].dtype == object
    assert plain["data"].str.get("step_type").tolist()[2] == "script"
    monkeypatch.setattr(event_table, "PACKED_EVENTS", 0)
    long = events_frame(log_of_three)
    assert long["data"].dtype == "payload"
    pd.testing.assert_frame_equal(long.astype({"data": object}), plain)


@pytest.fixture
def column(packed):
    return events_frame(events(*begun(), (catalog.StepStarted("script"), "main", "a")))["data"]


def test_payloads_are_taken_out_of_a_column_as_dicts(column):
    assert column[0]["workflow_name"] == "w"
    assert column.iloc[-1] == {"step_type": "script", "visit": 1}
    assert [*column[1:]] == [{"current_step": "a"}, column[2]]
    assert column.astype(object).tolist() == [*column]
    assert column.map(len).tolist() == [2, 1, 2]
    assert column.isna().sum() == 0


def test_payloads_survive_what_pandas_does_with_columns(column):
    frame = column.to_frame()
    assert [*frame[::-1]["data"]] == [*column][::-1]
    assert [*frame.reindex([2, 9])["data"]] == [column[2], None]
    assert [*pd.concat([frame, frame[1:]], ignore_index=True)["data"]] == [*column, *column[1:]]
    assert [*pickle.loads(pickle.dumps(frame))["data"]] == [*column]
    assert (column == column.copy()).all()
    assert (column == {"current_step": "a"}).tolist() == [False, True, False]
    assert "current_step" in frame.to_string()
    assert "current_step" in frame.to_json()
    assert frame.to_dict("records")[1] == {"data": {"current_step": "a"}}


def test_payloads_can_be_replaced(column):
    changed = column.copy()
    changed.array[1] = {"mine": 1}
    changed.array[[0, 2]] = [{"a": 1}, None]
    assert [*changed] == [{"a": 1}, {"mine": 1}, None]
    assert column[1] == {"current_step": "a"}


def test_payloads_are_decoded_when_they_are_looked_at(packed):
    asked = catalog.InterruptRaised("ask_1", "confirmation", optional="perhaps")
    frame = events_frame([*events(*begun()), Event("event_3", "exec_1", 3, 3_000_000, asked, "main", "a")])
    assert frame.type.tolist() == ["execution_started", "path_started", "interrupt_raised"]
    with pytest.raises(CorruptStoreError, match="optional must be"):
        frame["data"][2]


def test_no_payload_is_decoded_for_a_frame_of_plain_steps(packed, monkeypatch):
    done = (
        Environment(store="memory:").start(Workflow("w", [Step("a", script="1 + 1"), Step("b", script="2")])).wait(20)
    )
    monkeypatch.setattr(fields, "decode_payload", None)
    monkeypatch.setattr(payloads, "decode_payload", None)
    assert len(done.events) == done.state.last_sequence


def test_a_payload_whose_shown_fields_are_wrong_gives_no_frame():
    forged = Event("event_3", "exec_1", 3, 3_000_000, catalog.StepStarted("script", visit="twice"), "main", "a")
    with pytest.raises(CorruptStoreError, match="visit must be"):
        events_frame([*events(*begun()), forged])


def test_frames_of_executions_keep_their_payloads_when_they_are_put_together(path):
    with SqliteStore(path) as store:
        store.append(ONE, log(5), 0)
        every = whole_store.Frames(store, store.records()).events
        assert [*every["data"]] == [event.data.to_data() for event in store.read(ONE)]
        store.delete(ONE)
    assert every["data"][0]["workflow_name"] == "greet"


def test_a_damaged_log_gives_no_frame(path):
    with SqliteStore(path) as store:
        store.append(ONE, log(5), 0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET step = 'other' WHERE place & 4294967295 = 3")
    with SqliteStore(path) as store, pytest.raises(CorruptStoreError, match="event 3"):
        events_frame(store.history(ONE))
