"""An execution that is looked up is read when somebody asks what its log says, and not before."""

import sqlite3
import threading
from contextlib import closing

import pytest

from divebook import Environment, Step, Workflow
from divebook.analysis import lists
from divebook.analysis import store as stored_frames
from divebook.errors import CorruptStoreError, StoreClosedError
from divebook.queues import Worker
from divebook.runtime import driver
from divebook.steps import Action
from divebook.stores import SqliteStore
from tests.left_behind import leave

TWICE = Workflow("twice", [Step("a", script="1", store="n"), Step("b", script="2", store="m")])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.db"


@pytest.fixture
def done(path):
    """The id of an execution that has completed."""
    with Environment(store=str(path)) as world:
        return world.start(TWICE).wait(20).id


def refuse(*_given, **_named):
    raise AssertionError("the log was read")


def test_neither_the_look_up_nor_a_frame_folds_the_log_or_reads_its_definition(path, done, monkeypatch):
    with monkeypatch.context() as patched, SqliteStore(path) as store:
        # All modules that fold logs are imported above: one that was imported here would keep `refuse` for good.
        for module in (driver, lists, stored_frames):
            patched.setattr(module, "folded", refuse)
        patched.setattr(driver, "recorded_workflow", refuse)
        execution = Environment(store=store).run_of(done)
        assert (execution.id, execution.internals.durability, execution.is_live) == (done, "full", False)
        assert len(execution.events) == len(store.read(done))
        assert execution.steps["step"].tolist() == ["a", "b"]
        with pytest.raises(AssertionError):
            execution.state  # noqa: B018 - to look at it is what is tested
    with Environment(store=str(path)) as world:
        assert world.run_of(done).variables == {"m": 2, "n": 1}


def test_what_was_looked_up_can_be_read_after_its_environment_is_closed(path, done):
    with Environment(store=str(path)) as world:
        execution = world.run_of(done)
    assert (execution.status, execution.workflow.name) == ("completed", "twice")


def test_what_was_not_read_before_its_store_was_closed_says_so(path, done):
    with SqliteStore(path) as store:
        execution = Environment(store=store).run_of(done)
    with pytest.raises(StoreClosedError):
        execution.state  # noqa: B018 - as above


def test_a_log_that_goes_on_elsewhere_is_read_as_it_stands_when_it_is_looked_at(path):
    with SqliteStore(path) as store:
        left = leave(store)
        execution, other = Environment(store=store).run_of(left), Environment(store=store).run_of(left)
        assert other.cancel().wait(20).status == "cancelled"
        assert execution.status == "cancelled"


def test_frames_of_a_damaged_log_show_what_is_sound_before_anything_else_was_looked_at(path, done):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET data = '{oops' WHERE place = (SELECT max(place) FROM events)")
    with SqliteStore(path) as store:
        execution = Environment(store=store).run_of(done)
        shown = execution.events["sequence"].tolist()
        assert shown == [event.sequence for event in execution.history()]
        assert f"event {len(shown) + 1}" in str(execution.internals.damage) or "record of events" in str(
            execution.internals.damage
        )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET data = '{oops' WHERE place = (SELECT min(place) FROM events)")
    with SqliteStore(path) as store:
        (execution,) = Environment(store=store).runs()
        assert execution.status == "completed"
        with pytest.raises(CorruptStoreError, match="event"):
            execution.state  # noqa: B018 - as above


@pytest.mark.parametrize(
    "look",
    [
        lambda run: run.requests,
        lambda run: run.failures,
        lambda run: run.conversation,
        lambda run: run.inspect(),
        lambda run: run.compare(run),
    ],
)
def test_every_look_at_a_damaged_log_shows_what_is_sound_whatever_was_looked_at_before(path, done, look):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET data = '{oops' WHERE place = (SELECT max(place) FROM events)")
    with SqliteStore(path) as store:
        fresh, known = Environment(store=store).run_of(done), Environment(store=store).run_of(done)
        assert known.internals.damage is not None
        assert str(look(fresh)) == str(look(known))


def test_a_run_that_a_worker_claims_at_once_has_one_driver(path, monkeypatch):
    entered, leave_step = threading.Event(), threading.Event()

    def held():
        entered.set()
        assert leave_step.wait(20)

    workflow = Workflow("held", [Step("a", action="held")])
    with Environment(store=SqliteStore(path), workflows=[workflow], actions=[Action("held", held)]) as world:
        worker = Worker(world)

        append_all = world.store.append_all

        def append_and_let_worker_claim(batches):
            """Return to `enqueue` only when the worker runs the step of the stored execution."""
            results = append_all(batches)
            if not entered.is_set() and threading.current_thread() is threading.main_thread():
                worker.start_thread()
                assert entered.wait(20)
            return results

        monkeypatch.setattr(world.store, "append_all", append_and_let_worker_claim)
        execution = world.enqueue("held")
        assert execution.is_live
        leave_step.set()
        assert execution.wait(20).status == "completed"
        worker.drain()
