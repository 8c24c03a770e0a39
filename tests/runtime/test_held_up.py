"""A store that cannot be written to for a while: executions stand still, say so, and go on by themselves."""

import asyncio
import contextlib
import random
import re
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from divebook import Environment, Retry, Step, Workflow
from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import CorruptStoreError, FencedError, ReadOnlyStoreError, StoreError
from divebook.runtime import commit
from divebook.runtime.commit import StoreUnavailable
from divebook.steps.actions import Action
from divebook.stores import MemoryStore, SqliteStore
from tests.runtime.worlds import Busy, Calls, Gate, becomes, environment

PAYING = Workflow("w", [Step("pay", action="gate", store="paid"), Step("after", script="1", store="n")])


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(commit, "STORE_PAUSES", Retry(seconds=0.001, factor=1))


@pytest.mark.parametrize("refusals", [1, 2, 7, 40])
def test_a_busy_store_ends_no_run_and_nothing_is_done_twice(refusals):
    gate, calls = Gate(), Calls()
    world = environment(store=Busy(), actions=[gate.action(), calls.action()])
    paying = Workflow("w", [Step("pay", action="gate"), Step("note", action="note", parameters={"value": 1})])
    executions = [world.start(paying) for _ in range(3)]
    assert gate.reached.wait(20)
    world.store.refusals = refusals
    gate.opened.set()
    assert [execution.wait(20).status for execution in executions] == ["completed"] * 3
    assert calls == [1, 1, 1]
    kinds = [event.event_type for event in executions[0].history()]
    assert kinds.count("operation_started") == kinds.count("operation_completed") == 2
    assert world.store.leases() == []


def test_an_execution_says_what_holds_it_up(monkeypatch, logs):
    monkeypatch.setattr(commit, "PATIENCE_SECONDS", 0.0)
    gate = Gate()
    world = environment(store=Busy(), actions=[gate.action()])
    execution = world.start(PAYING)
    assert gate.reached.wait(20)
    assert execution.internals.held_up is None
    world.store.refusals = 10**9
    gate.opened.set()
    assert world.store.refused.wait(20)
    assert becomes(lambda: execution.internals.held_up is not None)
    assert re.fullmatch(
        r"waiting for the disk since \d s: the disk is full\. Free some space", execution.internals.held_up
    )
    assert repr(execution).endswith(f": running, {execution.internals.held_up}>")
    world.store.refusals = 0
    execution.wait(20)
    assert (execution.status, execution.internals.held_up) == ("completed", None)
    said = logs()
    assert said[0].startswith(
        "the disk is full. Free some space. Executions wait for the store and then continue automatically"
    )
    assert said[1] == "memory: can be written again; executions continue"
    assert len(said) == 2


def test_what_is_waited_for_beside_commits_is_said_once(monkeypatch, logs):
    monkeypatch.setattr("divebook.runtime.commit.CALL_PATIENCE_SECONDS", 0.0)
    world = environment(store=Busy())
    execution = world.create(Workflow("w", [Step("a", "wait", signal="go")]))

    def hold_up(_, events):
        if any(event.event_type == "operation_started" for event in events):
            world.store.refusals = 3

    world.store.subscribe(hold_up)
    assert execution.start().wait(20).status == "waiting"
    assert logs() == [
        "the disk is full. Free some space. An execution waits for the store and then continues automatically"
    ]


def test_a_standstill_tells_how_long_it_lasts():
    since = time.monotonic() - 12
    assert str(StoreUnavailable("the disk is full", since)) == "waiting for the disk since 12 s: the disk is full"


def test_an_execution_begins_as_soon_as_there_is_room():
    store = Busy()
    store.refusals = 5
    assert environment(store=store).start(Workflow("w", [Step("a", script="1")])).wait(20).status == "completed"


@pytest.mark.parametrize("refusals", [1, 5])
def test_what_comes_while_the_lease_cannot_be_given_back_is_not_forgotten(refusals):
    world = environment(store=Busy())
    execution = world.create(Workflow("w", [Step("a", "wait", signal="go")]))

    def hold_up(_, events):
        if any(event.event_type == "operation_started" for event in events):
            world.store.refusals = refusals

    world.store.subscribe(hold_up)
    execution.start()
    assert world.store.refused.wait(20)
    execution.signal("go", 1)
    assert execution.wait(20).status in ("completed", "waiting")
    if execution.status == "waiting":
        assert world.run_of(execution.id).wait(20).status == "completed"


def test_who_lost_its_lease_while_the_store_was_busy_does_not_go_on():
    gate = Gate()
    world = environment(store=Busy(), actions=[gate.action()])
    execution = world.start(PAYING)
    assert gate.reached.wait(20)
    (lease,) = world.store.leases()
    with world.store._lock:  # nobody writes before the refusals are over and somebody else has the lease
        gate.opened.set()
        world.store.acquire(execution.id, lease.owner, instead_of=lease)
        world.store.refusals = 3
    with pytest.raises(FencedError):
        execution.wait(20)


class Refusing(MemoryStore):
    """Refuses what it is told to, and says what that was."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.refused = kind, ()

    def _refuse(self, what):
        if what in self.refused:
            raise self.kind(f"no {what}")

    def _write(self, batches):
        self._refuse("writing")
        return super()._write(batches)

    def _release(self, lease):
        self._refuse("release")
        return super()._release(lease)

    def inbox(self, execution_id, after=0):
        self._refuse("look")
        return super().inbox(execution_id, after)


@pytest.mark.parametrize("kind", [ReadOnlyStoreError, CorruptStoreError, StoreError])
@pytest.mark.parametrize("refused", [("writing",), ("writing", "release"), ("writing", "release", "look")])
def test_what_ends_a_run_is_not_hidden_by_a_lease_that_stays(kind, refused):
    gate = Gate()
    world = environment(PAYING, store=Refusing(kind), actions=[gate.action()])
    execution = world.start("w")
    assert gate.reached.wait(20)
    world.store.refused = refused
    gate.opened.set()
    with pytest.raises(kind, match="no writing"):
        execution.wait(20)
    world.store.refused = ()
    assert world.run_of(execution.id).resume().wait(20).is_live is False
    assert execution.store.leases() == []


@pytest.mark.parametrize("refused", [("release",), ("look",)])
def test_a_run_that_rests_while_its_store_refuses_can_be_taken_up_again(refused):
    gate = Gate()
    work = Workflow("w", [Step("pay", action="gate"), Step("wait", signal="go")])
    world = environment(work, store=Refusing(StoreError), actions=[gate.action()])
    execution = world.start("w")
    assert gate.reached.wait(20)
    world.store.refused = refused
    gate.opened.set()
    if "look" in refused:
        with pytest.raises(StoreError, match="no look"):
            execution.wait(20)
    else:
        execution.wait(20)
    world.store.refused = ()
    assert world.run_of(execution.id).signal("go", 1).wait(20).status == "completed"


def test_a_lease_that_was_taken_for_news_is_given_back_where_these_cannot_be_read():
    looks = []

    class Failing(MemoryStore):
        def inbox(self, execution_id, after=0):
            looks.append(execution_id)
            if len(looks) == fails_at:
                raise StoreError("no look")
            return super().inbox(execution_id, after)

    work, ended = Workflow("w", [Step("wait", signal="go")]), []
    for nth in range(1, 12):
        fails_at = nth
        looks.clear()
        world = environment(work, store=Failing())
        execution = world.create(work)

        def send(_, events, world=world, execution=execution):
            if any(event.event_type == "operation_started" for event in events):
                world.store.post(Message(execution.id, SIGNAL, "go", signal_payload("go", 1), "test", 1))

        world.store.subscribe(send)
        with contextlib.suppress(StoreError):
            execution.start().wait(20)
        fails_at = 0
        if execution.status != "completed":
            world.run_of(execution.id).resume().wait(20)
        ended.append(execution.status)
    assert ended == ["completed"] * 11


def locked(path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return closing(other)


def test_a_locked_file_is_waited_for(tmp_path):
    gate = Gate()
    with SqliteStore(tmp_path / "s.db") as store:
        world = Environment(store=store, actions=[gate.action()], workflows=[PAYING])
        execution = world.start("w")
        assert gate.reached.wait(20)
        with locked(tmp_path / "s.db"):
            gate.opened.set()
            assert becomes(lambda: "is locked" in (execution.internals.held_up or ""))
        assert execution.wait(20).status == "completed"


def test_a_full_disk_is_waited_for(tmp_path):
    gate = Gate()
    grow = Action("grow", lambda: random.Random(1).randbytes(100_000).hex())
    growing = Workflow("w", [Step("pay", action="gate"), Step("grow", action="grow", store="n")])
    with SqliteStore(tmp_path / "s.db") as store:
        world = Environment(store=store, actions=[gate.action(), grow], workflows=[growing])
        execution = world.start("w")
        assert gate.reached.wait(20)
        pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
        store._writer.execute(f"PRAGMA max_page_count = {pages + 4}")
        gate.opened.set()
        assert becomes(lambda: "full" in (execution.internals.held_up or ""))
        store._writer.execute("PRAGMA max_page_count = 1000000")
        assert execution.wait(20).status == "completed"


def test_a_thread_that_waits_for_the_file_does_not_hold_up_the_loop(tmp_path):
    ticks = []

    async def tick():
        for _ in range(20):
            await asyncio.sleep(0.01)
            ticks.append(None)

    with SqliteStore(tmp_path / "s.db") as store:
        world = Environment(store=store, actions=[Action("tick", tick)])
        asked = world.start(Workflow("ask", [Step("a", ask="Go?")])).wait(20)
        gate = Gate()
        other = Environment(store="memory:", actions=[Action("tick", tick), gate.action()])
        ticking = other.start(Workflow("w", [Step("g", action="gate"), Step("a", action="tick")]))
        assert gate.reached.wait(20)
        with locked(tmp_path / "s.db"):
            answering = threading.Thread(target=asked.answer, args=(asked.open_questions[0].id, "yes"))
            answering.start()
            gate.opened.set()
            assert ticking.wait(20).status == "completed"
            assert answering.is_alive()
        answering.join(20)
        asked = world.run_of(asked.id)
        assert (asked.wait(20) if asked.is_live else asked).status == "completed"
