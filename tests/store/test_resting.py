"""What version 0.1 left at rest is sound, gives equal frames and goes on to the end that it would have had."""

import json
import sqlite3
from contextlib import closing

import pytest

from divebook.stores import SqliteStore
from divebook.stores.maintenance import check
from tests.store.corpus import frames_of
from tests.store.resting import Notes, world
from tests.store.test_schema import RECORDED

RECORD = json.loads((RECORDED / "resting.json").read_text())
IDS, FRAMES = RECORD["ids"], RECORD["frames"]
STATUSES = dict.fromkeys(IDS, "waiting") | {"retried": "failed", "cancelled": "cancelled"}


@pytest.fixture
def store(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RECORDED / "resting.sql").read_text())
    with SqliteStore(path) as store:
        yield store


@pytest.fixture
def notes():
    notes = Notes(mended=True)
    notes.released.set()
    return notes


def test_it_is_sound_and_rests_as_it_did(store):
    assert check(store).ok
    assert {name: store.record(execution_id).status for name, execution_id in IDS.items()} == STATUSES


@pytest.mark.parametrize("name", IDS)
def test_the_frames_are_equal(store, name):
    assert frames_of(store, IDS[name]) == FRAMES[name]


def answered(environment, execution, *answers):
    for interrupt, said in zip(list(execution.open_questions), answers, strict=True):
        execution.answer(interrupt.id, said).wait(20)
    return environment.run_of(execution.id).wait(20)


GOES_ON = {
    "side by side": (lambda run, environment: answered(environment, run, "r"), ["l r"], {"both": "l r"}),
    "items": (
        lambda run, environment: answered(environment, run, "1", "3"),
        ["['1', '2', '3']"],
        {"counts": ["1", "2", "3"]},
    ),
    "signalled": (lambda run, _: run.signal("go", 7).wait(20), ["x"], {"sent": 7}),
    "child": (lambda run, environment: answered(environment, run, "yes"), [], {"said": "yes"}),
    "parent": (
        lambda run, environment: answered(environment, environment.run_of(IDS["child"]), "yes") and run.wait(20),
        [],
        {"end": "over"},
    ),
    "paused": (lambda run, environment: environment.run_of(run.id).resume().wait(20), ["p"], {"p": "p"}),
    "retried": (lambda run, environment: environment.run_of(run.id).resume().wait(20), ["broken"], {"x": "mended"}),
    "cancelled": (
        lambda run, environment: answered(environment, environment.run_of(run.id).resume().wait(20), "on"),
        [],
        {"go": "on"},
    ),
    "large": (lambda run, environment: answered(environment, run, "yes"), [], {"n": 6000}),
    "counting": (lambda run, environment: answered(environment, run, "on"), ["twice 4"], {}),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_it_goes_on_in_place_and_makes_no_call_again(store, notes, name):
    go_on, called, variables = GOES_ON[name]
    environment = world(store, notes)
    execution, before = environment.run_of(IDS[name]), store.read(IDS[name])
    done = go_on(execution, environment)
    assert (done.status, notes.called) == ("completed", called)
    assert {key: done.variables[key] for key in variables} == variables
    if name == "counting":
        assert done.outputs["result"] == [2, 4, 6, "on", 8]
    assert store.read(IDS[name])[: len(before)] == before
    assert check(store).ok


def test_every_execution_of_the_corpus_goes_on():
    assert GOES_ON.keys() == IDS.keys()
