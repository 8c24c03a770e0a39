"""The lease of a dead driver can be the only trace of work, so a process that does not do the work keeps the trace."""

import asyncio
import threading
from contextlib import suppress

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.events import catalog
from divebook.queues import Worker
from divebook.runtime.driver import Driver
from divebook.runtime.loop import ENGINE, LeftError
from divebook.stores import MemoryStore, Owner
from divebook.stores.append import Batch, records_of
from tests.runtime.worlds import becomes, environment

GONE = Owner(Owner.current().host, 2**22 + 1, 1, "worker", Owner.current().boot)
LEAF = Workflow("leaf", [Step("add", script="1 + 1", store="n")], outputs=["n"])
MIDDLE = Workflow("middle", [Step("call", workflow="leaf", store="r")], outputs=["r"])
TOP = Workflow("top", [Step("call", workflow="middle", store="r")], outputs=["r"])
PATIENCE = 20


def before_their_children(*names, queue=False):
    """Return a store with executions of these workflows whose process died before the child of the last one existed."""
    with environment(TOP, MIDDLE, LEAF) as whole:
        if queue:
            with Worker(whole):
                whole.enqueue(TOP).wait(PATIENCE)
        else:
            whole.start(TOP).wait(PATIENCE)
        store = MemoryStore()
        for record in reversed(whole.store.records()):
            if record.workflow_name in names:
                events = whole.store.read(record.execution_id)
                start = next(e.sequence for e in events if isinstance(e.data, catalog.OperationStarted))
                store.append_all([Batch(record.execution_id, 0, records_of(events[:start]), None, GONE, "waiting")])
    return store, [record.execution_id for record in reversed(store.records())]


def test_a_parent_that_is_resumed_has_its_child_start_what_it_had_recorded():
    store, (top, _) = before_their_children("top", "middle")
    with environment(TOP, MIDDLE, LEAF, store=store) as after:
        assert after.run_of(top).resume().wait(PATIENCE).status == "completed"


def test_an_execution_that_is_annotated_is_still_to_be_recovered():
    store, (top,) = before_their_children("top")
    with environment(TOP, MIDDLE, LEAF, store=store) as after:
        after.run_of(top).tag("found")
        assert [record.execution_id for record in after.queues.recoverable()] == [top]
        assert after.queues.recover(top).wait(PATIENCE).status == "completed"


def test_what_one_worker_cannot_run_another_one_can(caplog):
    store, (top,) = before_their_children("top", queue=True)
    with Environment(store=store, workflows=[TOP]) as unable, Worker(unable):
        assert becomes(lambda: "could not be resumed" in caplog.text)
    with environment(TOP, MIDDLE, LEAF, store=store) as able, Worker(able):
        assert able.run_of(top).wait(PATIENCE).status == "completed"


def test_a_plan_leaves_no_lease():
    def asking(question):
        return Workflow("asking", [Step("ask", ask=question, store="answer")], outputs=["answer"])

    with environment(asking("Who?")) as made:
        execution = made.start("asking").wait(PATIENCE)
        made.run_of(execution.id).resume(definition=asking("Which?"), plan=True)
        assert made.store.leases() == []
        # Another process can continue it at once.
        with Environment(store=made.store, workflows=[asking("Who?")]) as other:
            ((_, question),) = other.inbox()
            assert other.answer(question.id, "ann").wait(PATIENCE).outputs == {"answer": "ann"}


# --- executions that are left -----------------------------------------------------------------------------------------


@workflow
async def two_children(ctx):
    made = await ctx.gather(ctx.run("top"), ctx.run("leaf"))
    return [made, await ctx.run("leaf")]


def left_at(commit, definition):
    """Return a store in which all executions were left at one commit, and the number of commits until then."""
    world, commits = environment(TOP, MIDDLE, LEAF), 0

    def leave(*_):
        nonlocal commits
        commits += 1
        # On the loop of the engine, as closing an environment and draining a worker do.
        for driver in world._control.live() if commits == commit else ():
            driver.leave()

    world.store.subscribe(leave)
    execution = world.start(definition)
    with suppress(LeftError):
        execution.wait(PATIENCE)
    world.close()
    return world.store, commits


@pytest.mark.parametrize("definition", [TOP, two_children], ids=["steps", "function"])
def test_wherever_executions_are_left_they_are_recovered(definition):
    _, commits = left_at(None, definition)
    assert commits > 5
    for commit in range(1, commits + 1):
        store, _ = left_at(commit, definition)
        with environment(TOP, MIDDLE, LEAF, store=store) as after:
            while records := after.queues.recoverable():
                for record in records:
                    after.queues.recover(record.execution_id)
                assert becomes(lambda: not after._control.live())
            # An ended child continues its parent, which nothing drives for a moment.
            assert becomes(lambda: {record.status for record in after.store.records()} == {"completed"}), commit
            assert becomes(lambda: after.store.leases() == []), commit


def test_what_begins_to_be_driven_while_an_environment_is_closed_is_left_too(monkeypatch):
    reached = threading.Event()

    @step
    async def work():
        reached.set()
        await asyncio.Event().wait()

    @workflow
    async def asks_and_works(ctx):
        await ctx.ask("Who?")
        await work()

    store = MemoryStore()
    with environment(asks_and_works, store=store) as made:
        run = made.start(asks_and_works).wait(PATIENCE)
        (question,) = run.open_questions
        on_loop = ENGINE.call

        def call_after_an_answer(action):
            # Between the first statement of `close` and the loop.
            monkeypatch.undo()
            run.answer(question.id, "ann")
            assert reached.wait(PATIENCE)
            return on_loop(action)

        monkeypatch.setattr(ENGINE, "call", call_after_an_answer)
        made.close()
        assert made._control.live() == []
    assert [lease for lease in store.leases() if lease.expires_at] == []


def test_a_drive_that_is_left_before_it_begins_releases_its_lease(monkeypatch):
    @workflow
    async def asks(ctx):
        return await ctx.ask("Who?")

    store, continue_from = MemoryStore(), Driver.continue_from

    def continue_and_leave(driver, *args, **options):
        continue_from(driver, *args, **options)
        driver.leave()

    with environment(asks, store=store) as made:
        run = made.start(asks).wait(PATIENCE)
        (question,) = run.open_questions
        monkeypatch.setattr(Driver, "continue_from", continue_and_leave)
        run.answer(question.id, "ann")
        assert becomes(lambda: not made._control.live())
        monkeypatch.undo()
        with environment(asks, store=store) as other:
            assert other.queues.recover(run.id).wait(PATIENCE).outputs == {"result": "ann"}


def test_a_child_that_was_left_before_its_first_event_is_started_again(monkeypatch):
    left, begin = [], Driver.begin

    def begin_and_leave(driver, *args, **options):
        begin(driver, *args, **options)
        if driver.workflow.name == "leaf" and not left:
            left.append(driver.id)
            driver.leave()

    monkeypatch.setattr(Driver, "begin", begin_and_leave)
    with environment(TOP, MIDDLE, LEAF) as made:
        assert made.start("top").wait(PATIENCE).status == "completed"
        assert {record.status for record in made.store.records()} == {"completed"}
    assert len(left) == 1


def test_a_call_beside_a_question_is_made_again_before_the_answer():
    reached, is_cut_off = threading.Event(), [True]

    @step(idempotent=True)
    async def work():
        reached.set()
        await asyncio.sleep(60 if is_cut_off else 0)

    @workflow
    async def asks_beside(ctx):
        return await ctx.gather(ctx.ask("Who?"), work())

    with environment(asks_beside) as world:
        execution = world.start("asks_beside")
        assert reached.wait(PATIENCE)
        execution.internals.leave()
        assert (execution.status, [record.execution_id for record in world.queues.recoverable()]) == (
            "waiting",
            [execution.id],
        )
        is_cut_off.clear()
        recovered = world.queues.recover(execution.id).wait(PATIENCE)
        assert [event.event_type for event in recovered.history()].count("operation_completed") == 1
        assert (recovered.status, world.queues.recoverable(), world.store.leases()) == ("waiting", [], [])
