"""Tags, notes and labels are events of the log, whoever drives the execution, and nothing wakes for them."""

import sqlite3
import threading
from contextlib import closing

import pytest

import divebook
from divebook import Environment, Step, Workflow
from divebook.engine.checkpoint import dump_state, load_state
from divebook.engine.evolve import fold
from divebook.engine.inbox import ANNOTATION
from divebook.errors import DivebookError, ExecutionNotFoundError, LeaseHeldError, SetupError, UnstorableValueError
from divebook.events.catalog import ExecutionAnnotated
from divebook.steps import Action
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.leases import Owner
from divebook.stores.maintenance import check
from divebook.stores.sqlite.log_reader import RECORD, load_line
from tests.runtime.worlds import becomes

ADDS = Workflow("adds", [Step("s", script="1", store="x")])
ASKS = Workflow("asks", [Step("s", ask="Sure?")])


@pytest.fixture(params=["memory", "file"])
def world(request, tmp_path):
    with MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "x.db") as store:
        yield Environment(store=store)


def said(execution):
    return [event.data for event in execution.store.read(execution.id) if isinstance(event.data, ExecutionAnnotated)]


def test_what_is_said_after_the_end_is_in_the_log_and_leaves_the_rest_as_it_was(world):
    execution = world.start(ADDS, tags=["first"], note="at the start").wait(20)
    before, log = execution.state, list(execution.history())
    assert world.run_of(execution.id).tag("late", " spaced ").tags == ("first", "late", "spaced")
    assert world.run_of(execution.id).untag("first").tags == ("late", "spaced")
    world.run_of(execution.id).note("read twice")
    world.run_of(execution.id).label(quality="good", score=3)
    world.run_of(execution.id).label(score=None)
    state = execution.refresh().state
    assert (state.status, state.variables, state.ended_us) == ("completed", before.variables, before.ended_us)
    assert dict(state.labels) == {"quality": "good"}
    assert execution.history()[: len(log)] == log
    assert len(said(execution)) == 5
    assert "@" in said(execution)[0].by
    assert world.queues.recoverable() == []
    assert world.store.leases() == []
    assert check(world.store).ok
    row = divebook.frames(world).executions.iloc[0]
    assert (row.tags, row.note, row.labels) == (["late", "spaced"], "read twice", {"quality": "good"})


def test_one_that_waits_is_not_woken_and_goes_on_as_before(world):
    execution = world.start(ASKS).wait(20)
    world.run_of(execution.id).annotate(tags=["asked"], note="for Ann", by="bob")
    assert execution.refresh().status == "waiting"
    assert said(execution) == [ExecutionAnnotated(["asked"], None, "for Ann", None, "bob")]
    assert world.store.inbox(execution.id, 0) == []
    execution.answer(execution.open_questions[0].id, "yes").wait(20, check=True)
    assert world.store.record(execution.id).tags == ("asked",)
    assert check(world.store).ok


def test_one_that_is_driven_here_takes_it_into_its_log(world):
    def mark():
        (record,) = environment.store.records()
        environment.run_of(record.execution_id).tag("under way")

    environment = Environment(store=world.store, actions=[Action("mark", mark)])
    execution = environment.start(Workflow("w", [Step("s", action="mark")])).wait(20, check=True)
    assert [fact.tags for fact in said(execution)] == [["under way"]]
    assert world.store.record(execution.id).tags == ("under way",)
    assert check(world.store).ok


def test_what_another_process_drives_is_sent_to_it(world):
    execution = world.start(ASKS).wait(20)
    lease = world.store.acquire(execution.id, Owner("elsewhere", 1, 1, "x"))
    world.run_of(execution.id).note("for whoever drives it")
    (message,) = world.store.inbox(execution.id, 0)
    assert (message.kind, said(execution)) == (ANNOTATION, [])
    world.store.release(lease)
    execution.answer(execution.open_questions[0].id, "yes").wait(20, check=True)
    assert [fact.note for fact in said(execution)] == ["for whoever drives it"]
    assert said(execution)[0].message == message.number


def test_a_failed_one_is_resumed_with_its_labels(world):
    execution = world.start(Workflow("w", [Step("s", script="1 / 0")])).wait(20)
    world.run_of(execution.id).label(cause="division")
    assert world.run_of(execution.id).resume().wait(20).status == "failed"
    assert dict(world.run_of(execution.id).state.labels) == {"cause": "division"}
    assert check(world.store).ok


def test_a_state_with_large_outputs_is_kept_and_read_after_something_was_said(world):
    flow = Workflow("w", [Step("s", script="['x' * 900] * 900", store="x")], outputs=["x"])
    execution = world.start(flow).wait(20, check=True)
    world.run_of(execution.id).label(quality="good")
    state = fold(execution.id, world.store.read(execution.id))
    found = load_state(dump_state(state), lambda sequences: world.store.facts(execution.id, sequences))
    assert (found.outputs, found.labels, found.annotated_at) == (state.outputs, state.labels, state.last_sequence)


def test_what_cannot_be_said_is_refused_before_anything_is_written(world):
    execution = world.start(ADDS).wait(20)
    for wrong, error in (
        ({"tags": [""]}, SetupError),
        ({"tags": [7]}, SetupError),
        ({"note": 7}, SetupError),
        ({"labels": {"": 1}}, SetupError),
        ({}, SetupError),
        ({"labels": {"x": object()}}, UnstorableValueError),
        ({"note": "half \ud83d"}, UnstorableValueError),
    ):
        with pytest.raises(error):
            world.run_of(execution.id).annotate(**wrong)
    with pytest.raises(ExecutionNotFoundError):
        world.run_of("exec_none").tag("x")
    assert said(execution) == []


def test_a_run_says_it_in_one_line(world):
    run = world.start(ADDS).wait(20)
    assert run.tag("a").untag("a").note("n").label(quality="good") is run
    assert (run.tags, world.store.record(run.id).note) == ((), "n")


def test_an_exported_log_takes_along_what_was_said(world, tmp_path):
    execution = world.start(ADDS).wait(20)
    world.run_of(execution.id).annotate(tags=["kept"], note="n", labels={"quality": "good"})
    world.run_of(execution.id).export(tmp_path / "log.jsonl")
    with MemoryStore() as other:
        copy = Environment(store=other).open(tmp_path / "log.jsonl", keep=True)
        record = other.record(copy.id)
        assert (record.tags, record.note, dict(copy.state.labels)) == (("kept",), "n", {"quality": "good"})


def test_one_that_moved_goes_on_elsewhere_without_what_was_said_here_later(world, tmp_path):
    execution = world.start(ASKS).wait(20)
    world.run_of(execution.id).tag("before")
    world.run_of(execution.id).export(tmp_path / "log.jsonl", move=True)
    assert world.run_of(execution.id).tag("after").tags == ("before", "after")
    world.run_of(execution.id).export(tmp_path / "again.jsonl", move=True)
    with MemoryStore() as other:
        environment = Environment(store=other)
        copy = environment.open(tmp_path / "again.jsonl", keep=True)
        assert (copy.status, other.record(copy.id).tags) == ("waiting", ("before",))
        copy.answer(copy.open_questions[0].id, "yes").wait(20, check=True)
        assert check(other).ok


def test_old_stores_keep_their_tags(tmp_path):
    path = tmp_path / "x.db"
    with SqliteStore(path) as store:
        execution = Environment(store=store).start(ADDS, tags=["first"]).wait(20)
    with closing(sqlite3.connect(path)) as connection, connection:  # as they were given once, without an event
        row = connection.execute(f"{RECORD} WHERE id = ?", (execution.id,)).fetchone()
        line = load_line(row)._replace(tags='["first","by hand"]')
        connection.execute("UPDATE executions SET tags = ?, seal = ?", (line.tags, line.seal()))
        connection.execute("INSERT INTO tags SELECT 'by hand', created_at, key FROM executions")
    with SqliteStore(path) as store:
        assert Environment(store=store).run_of(execution.id).tag("late").tags == ("first", "by hand", "late")
        assert check(store).ok
        assert [record.execution_id for record in store.records(tag="by hand")] == [execution.id]


def test_what_is_said_of_an_ended_execution_waits_for_who_holds_it_and_is_not_lost(world, monkeypatch):
    execution = world.start(ADDS).wait(20)
    lease = world.store.acquire(execution.id, Owner("elsewhere", 1, 1, "x"))
    looks = []

    def look(_):
        looks.append(said(execution))
        world.store.release(lease)

    monkeypatch.setattr("divebook.runtime.messages.time.sleep", look)
    world.run_of(execution.id).note("kept")
    assert looks == [[]]
    assert [one.note for one in said(execution)] == ["kept"]
    assert world.store.record(execution.id).note == "kept"


def test_who_goes_on_holding_an_ended_execution_is_named(world, monkeypatch):
    execution = world.start(ADDS).wait(20)
    lease = world.store.acquire(execution.id, Owner("elsewhere", 1, 1, "x"))
    monkeypatch.setattr("divebook.runtime.messages.PATIENCE", -1)
    with pytest.raises(LeaseHeldError, match="elsewhere"):
        world.run_of(execution.id).note("kept")
    world.store.release(lease)
    assert said(execution) == []
    assert world.store.inbox(execution.id, 0) == []


def test_what_is_kept_for_a_driver_comes_before_what_is_said_later(world):
    execution = world.start(ASKS).wait(20)
    lease = world.store.acquire(execution.id, Owner("elsewhere", 1, 1, "x"))
    world.run_of(execution.id).note("first")
    world.run_of(execution.id).tag("old")
    world.store.release(lease)  # it was driven elsewhere, and its driver has taken nothing in
    world.run_of(execution.id).untag("old")
    world.run_of(execution.id).note("second")
    assert [one.note for one in said(execution) if one.note] == ["first", "second"]
    (question,) = execution.refresh().open_questions
    world.answer(question.id, "yes", execution.id).wait(20)
    assert [one.note for one in said(execution) if one.note] == ["first", "second"]
    record = world.store.record(execution.id)
    assert (record.note, record.tags, world.store.inbox(execution.id, record.taken)) == ("second", (), [])


def test_threads_that_say_something_at_once_are_all_heard(world):
    execution = world.start(ADDS).wait(20)
    met = []

    def tag(number):
        try:
            for place in range(8):
                world.run_of(execution.id).tag(f"{number}-{place}")
        except DivebookError as error:
            met.append(error)

    threads = [threading.Thread(target=tag, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == []
    assert len(world.store.record(execution.id).tags) == 32


def test_an_answer_that_comes_while_somebody_says_something_continues_the_execution(world, monkeypatch):
    execution = world.start(ASKS).wait(20)
    append_all = world.store.append_all

    def answered(batches):
        if isinstance(batches[0].records[0].facts[0], ExecutionAnnotated):  # the annotation holds the lease
            monkeypatch.undo()
            answering = threading.Thread(target=lambda: execution.answer(execution.open_questions[0].id, "yes"))
            answering.start()
            answering.join(20)
        return append_all(batches)

    monkeypatch.setattr(world.store, "append_all", answered)
    world.run_of(execution.id).note("found")
    assert becomes(lambda: world.run_of(execution.id).status == "completed")
