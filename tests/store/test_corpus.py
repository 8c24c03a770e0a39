"""What the store of before wrote, an event a row, is read, gives equal frames and goes on in place."""

import json
import sqlite3
from contextlib import closing

import pytest

from divebook.stores import SqliteStore
from divebook.stores.codec import FernetCodec
from divebook.stores.maintenance import check
from tests.store.corpus import KEY, Acts, frames_of, world
from tests.store.test_schema import RECORDED

FRAMES = json.loads((RECORDED / "corpus.json").read_text())


@pytest.fixture
def store(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / "corpus.sql").read_text())
    with SqliteStore(path) as store:
        store.sealing.codec = FernetCodec(KEY)
        yield store


def named(store):
    return {record.workflow_name: record.execution_id for record in store.records()}


def widths(path, key):
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT name FROM events JOIN event_types ON number = type WHERE place >> 32 = ? ORDER BY place"
        return [name.count("+") + 1 for (name,) in connection.execute(query, (key,)).fetchall()]


def test_the_corpus_is_sound(store):
    assert check(store).ok
    assert {name: store.record(execution_id).status for name, execution_id in named(store).items()} == {
        "asking": "waiting",
        "items": "failed",
        "paths": "completed",
        "failing": "failed",
    }


@pytest.mark.parametrize("name", ["asking", "items", "paths", "failing"])
def test_the_frames_are_equal(store, name):
    execution_id = named(store)[name]
    assert frames_of(store, execution_id) == FRAMES[execution_id]


def test_a_question_from_before_is_answered(store, path):
    acts, execution_id = Acts(mended=True), named(store)["asking"]
    before = store.read(execution_id)
    environment = world(store, acts)
    question = store.asking()[0][1]
    execution = environment.answer(question, "yes", execution_id).wait(20)
    assert execution.status == "completed"
    assert acts.called == ["label"]
    assert store.read(execution_id)[: len(before)] == before
    rows = widths(path, 1)
    assert set(rows[: len(before)]) == {1}
    assert max(rows[len(before) :]) > 1
    assert check(store).ok


@pytest.mark.parametrize("name", ["items", "failing"])
def test_what_failed_before_is_resumed(store, name):
    acts, execution_id = Acts(mended=True), named(store)[name]
    before = store.read(execution_id)
    called, done = [entry.event_type for entry in before].count, {"items": 4, "failing": 2}[name]
    execution = world(store, acts).run_of(execution_id).resume().wait(20)
    assert execution.status == "completed"
    assert len(acts.called) == done - called("operation_completed")
    assert store.read(execution_id)[: len(before)] == before
    assert check(store).ok
