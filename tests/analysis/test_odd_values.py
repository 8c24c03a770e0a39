"""Values that are no usual JSON come through frames and their Arrow tables (trap 24: payloads as columns)."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pandas as pd
import pytest

import divebook
from divebook import Each, Environment, Step, Workflow
from divebook.events.codec import decode_payload
from divebook.steps import Action
from divebook.stores import MemoryStore, SqliteStore
from tests.store.logs import ONE, log
from tests.store.test_schema import RECORDED, VERSIONS

LINE, PARAGRAPH = "\u2028", "\u2029"


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    with MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "x.db") as found:
        yield found


def payloads_of(store):
    """Return what the events of all logs say, read in the two ways: from the table, and from the events."""
    table = divebook.frames(store).arrow("events")
    rows = table.select(["execution_id", "sequence", "data"]).to_pylist()
    return [(store.read(row["execution_id"], row["sequence"] - 1, 1)[0], row["data"]) for row in rows]


def acted(store, value):
    """Run an action that returns a value, and return the table's JSON of its result."""
    environment = Environment(store=store, actions=[Action("give", lambda: value)])
    execution = environment.start(Workflow("w", [Step("s", action="give", store="x")])).wait(20)
    table = divebook.frames(store).arrow("operations")
    assert len(table) == 1
    for event, text in payloads_of(store):
        json.loads(text)
        assert event.execution_id == execution.id
    return execution, table["result"].to_pylist()[0]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02"),
        (b"\x00\xff", "2 bytes"),
        (Decimal("1.50"), "1.50"),
        (float("inf"), "inf"),
        (timedelta(seconds=5), "0:00:05"),
        (pd.DataFrame({"a": [1, 2]}), "2"),
        (2**63, str(2**63)),
        (-(2**70), str(-(2**70))),
        (2**63 - 1, str(2**63 - 1)),
        (-(2**63), str(-(2**63))),
        (f"a{LINE}b{PARAGRAPH}c", "a"),
        ({}, "{}"),
        ([], "[]"),
        ("", '""'),
        ("\x00\x1f\x7f", "\\u0000"),
        ("\U0001f600", "\U0001f600"),
        ("x" * 500_000, "xxx"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_values_that_are_no_usual_json_come_through(store, value, said):
    execution, text = acted(store, value)
    assert execution.status == "completed"
    assert said in text
    if isinstance(value, str | int | dict | list):
        assert json.loads(text) == value


def test_large_values_stand_whole_in_the_table(tmp_path):
    large = [f"row {number}" for number in range(50_000)]
    with SqliteStore(tmp_path / "x.db") as store:
        execution, text = acted(store, large)
        assert store.blobs()
        assert json.loads(text) == large
        ended = [text for event, text in payloads_of(store) if event.event_type == "operation_completed"]
        assert [json.loads(each)["result"] for each in ended] == [large]
        assert divebook.frames(execution).variables.x.tolist() == [large]


def test_half_characters_of_a_persons_error_are_told_in_every_frame(store):
    def fail():
        raise ValueError("half \ud83d of a smile")

    environment = Environment(store=store, actions=[Action("fail", fail)])
    assert environment.start(Workflow("w", [Step("s", action="fail")])).wait(20).status == "failed"
    for kind, table in divebook.frames(store).to_arrow().items():
        table.validate(full=True)
        if kind in ("executions", "operations", "steps", "paths"):
            assert "of a smile" in table["error"].to_pylist()[0]


def test_payloads_without_fields_and_keys_of_several_types_stand_beside_each_other(store):
    values = [{"k": 1}, {"k": "text"}, {"k": None}, {"k": [1]}, {"k": {"z": 1}}, {}]
    each = Each(values, as_="v")
    environment = Environment(store=store)
    environment.start(Workflow("w", [Step("s", script="v", each=each, store="all")])).wait(20, check=True)
    frames = divebook.frames(store)
    results = [json.loads(text)["value"] for text in frames.arrow("items")["result"].to_pylist()]
    assert results == values
    assert frames.items["item"].tolist() == values
    for event, text in payloads_of(store):
        assert decode_payload(event.event_type, text) == event.data


@pytest.mark.parametrize("version", VERSIONS)
def test_old_forms_of_events_are_read_as_they_are_now(tmp_path, version):
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / f"version_{version}.sql").read_text())
    with SqliteStore(path) as store:
        frames = divebook.frames(store)
        tables = frames.to_arrow()
        assert len(tables["events"]) == sum(record.last_sequence for record in store.records())
        for kind, table in tables.items():
            table.validate(full=True)
            assert len(table) == len(getattr(frames, kind))
        for event, text in payloads_of(store):
            assert json.loads(text).keys() == event.data.to_data().keys()


def test_events_that_were_written_by_hand_are_read_from_the_memory_store():
    with MemoryStore() as store:
        store.append(ONE, log(), 0)
        assert divebook.frames(store).arrow("events")["sequence"].to_pylist() == [event.sequence for event in log()]
