"""Executions over a store on a server: nothing waits on the engine's loop, nothing is lost with a connection.

Many other tests of executions run over such a store as well: those that ``conftest.py`` names.
"""

import asyncio
import threading
from contextlib import ExitStack

import pytest

from divebook import Each, Environment, Retry, Step, Workflow
from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import ConnectionLostError, FencedError
from divebook.events import catalog
from divebook.runtime import commit, leases
from divebook.runtime.commit import GroupCommit, StoreCalls
from divebook.steps.actions import Action
from divebook.stores import Owner
from tests.runtime.test_journal import begun, signal
from tests.runtime.worlds import Calls, Gate, becomes, environment
from tests.store import remote
from tests.store.remote import AFTER, BEFORE, RemoteStore


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(commit, "STORE_PAUSES", Retry(seconds=0.001, factor=1))
    made = RemoteStore()
    yield made
    assert made.on_the_loop == []


def sequences(store, execution):
    return [event.sequence for event in store.read(execution.id)]


EACH = Each([1, 2, 3, 4], as_="n", parallel=4)
FANNED = Workflow("w", [Step("a", action="note", parameters={"value": "$(state.n)"}, each=EACH)])


def test_others_go_on_while_a_commit_is_under_way(store):
    work = Workflow("w", [Step("a", script="1")])
    held = environment(store=store).create(work)
    with store.gates["_write"].closed() as gate:
        beginning = threading.Thread(target=held.start)
        beginning.start()
        assert gate.reached.wait(20)
        assert environment().start(work).wait(20).status == "completed"
        assert held.is_live
    beginning.join(20)
    assert held.wait(20).status == "completed"


def test_a_path_without_company_commits_in_a_moment_or_else_the_loop_goes_on(store):
    chain = Workflow("chain", [Step(f"s{n}", action="note", parameters={"value": n}) for n in range(40)])
    calls, work = Calls(), Workflow("w", [Step("a", script="1")])

    def hold_up(value):
        if value == 30:  # by now commits have taken a moment each, and the loop waits for them
            held.enter_context(store.gates["_write"].closed())
        calls.append(value)

    with ExitStack() as held:
        execution = environment(chain, store=store, actions=[Action("note", hold_up)]).start("chain")
        assert store.gates["_write"].reached.wait(20)
        assert environment().start(work).wait(20).status == "completed"
        assert calls == [*range(31)]
    assert execution.wait(20).status == "completed"
    assert (calls, sequences(store, execution)) == ([*range(40)], [*range(1, execution.state.last_sequence + 1)])


def test_what_is_recorded_during_a_commit_joins_the_next_one():
    async def main():
        store = RemoteStore()
        journal = begun(GroupCommit(StoreCalls(store)))
        with store.gates["_write"].closed() as gate:
            first = asyncio.create_task(journal.durable())
            await asyncio.to_thread(gate.reached.wait, 20)
            signal(journal)
            second = asyncio.create_task(journal.durable())
            await asyncio.sleep(0)
            assert (journal.written, journal.state.last_sequence) == (0, 2)
            assert (await journal.event(1)).sequence == 1
            assert (await journal.event(2)).sequence == 2
        await first
        assert len(store.read("exec_1")) in (1, 2)
        await second
        assert (journal.written, len(store.read("exec_1"))) == (2, 2)

    asyncio.run(main())


@pytest.mark.parametrize("losses", [[loss] * count for loss in (BEFORE, AFTER) for count in (1, 3)])
def test_a_connection_lost_in_any_commit_loses_and_doubles_nothing(store, losses):
    for at in range(8):
        calls = Calls()
        world = environment(FANNED, store=store, actions=[calls.action()])
        store.losses["_write"].extend([None] * at + losses)
        execution = world.start("w").wait(20)
        store.losses["_write"].clear()
        assert (execution.status, sorted(calls)) == ("completed", [1, 2, 3, 4])
        assert sequences(store, execution) == list(range(1, execution.state.last_sequence + 1))
        assert execution.internals.held_up is None


def test_who_lost_its_lease_while_the_connection_was_lost_does_not_go_on(store):
    gate = Gate()
    world = environment(store=store, actions=[gate.action()])
    execution = world.start(Workflow("w", [Step("pay", action="gate", store="paid")]))
    assert gate.reached.wait(20)
    (lease,) = store.leases()
    store.losses["_write"].append(BEFORE)
    store.acquire(execution.id, lease.owner, instead_of=lease)
    gate.opened.set()
    with pytest.raises(FencedError):
        execution.wait(20)


def test_a_process_whose_lease_is_taken_during_an_outage_starts_no_further_call(store, monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)
    gate, calls = Gate(), Calls()
    world = environment(store=store, actions=[gate.action(), calls.action()])
    execution = world.start(Workflow("w", [Step("pay", action="gate"), Step("after", action="note")]))
    assert gate.reached.wait(20)
    (lease,) = store.leases()
    store.losses["_renew"].extend([BEFORE, AFTER])
    assert becomes(lambda: not store.losses["_renew"])
    taken = store.acquire(execution.id, Owner("elsewhere", 1, 1, "other"), instead_of=lease)
    gate.opened.set()
    assert becomes(lambda: not execution.is_live)
    assert calls == []
    assert store.lease_of(execution.id) == taken


def test_the_engines_own_thread_waits_for_no_server(store):
    world = environment(Workflow("inner", [Step("a", script="1")]), store=store)

    async def start():
        return world.start("inner").id

    outer = environment(actions=[Action("start", start)]).start(Workflow("w", [Step("a", action="start", store="id")]))
    assert (
        "which would block all executions on the engine's own thread; call it in another thread" in outer.wait(20).error
    )


def test_the_engines_own_thread_reads_no_log_of_a_server_that_was_only_looked_up(store):
    done = environment(Workflow("inner", [Step("a", script="1")]), store=store).start("inner").wait(20)
    looked_up = Environment(store=store).run_of(done.id)

    async def look():
        return looked_up.status

    outer = environment(actions=[Action("look", look)]).start(Workflow("w", [Step("a", action="look", store="status")]))
    assert (
        "which would block all executions on the engine's own thread; call it in another thread" in outer.wait(20).error
    )
    assert looked_up.status == "completed"


def test_a_slow_refresh_does_not_replace_a_newer_state(store):
    world = environment(Workflow("w", [Step("a", "wait", signal="go")]), store=store)
    execution = world.start("w").wait(20)
    seen = Environment(store=store).run_of(execution.id)
    assert seen.status == "waiting"
    with store.answers["_read_records"].closed() as answer:
        slow = threading.Thread(target=seen.refresh)
        slow.start()
        assert answer.reached.wait(20)
        store.answers["_read_records"] = remote.Gate()  # answers to other callers arrive
        world.run_of(execution.id).signal("go").wait(20)
        assert seen.refresh().status == "completed"
    slow.join(20)
    assert seen.status == "completed"


def test_awaiting_does_not_block_the_event_loop(store):
    done = environment(Workflow("inner", [Step("a", script="1")]), store=store).start("inner").wait(20)
    looked_up = Environment(store=store).run_of(done.id)

    async def awaited():
        return (await looked_up).status

    async def main():
        with store.gates["_read_records"].closed() as gate:
            task = asyncio.create_task(awaited())
            assert await asyncio.to_thread(gate.reached.wait, 20)
        return await task

    assert asyncio.run(main()) == "completed"


def test_a_state_is_kept_while_more_is_recorded(store, monkeypatch):
    monkeypatch.setattr("divebook.runtime.journal.CHECKPOINT_EVENTS", 5)
    execution = environment(FANNED, store=store, actions=[Calls().action()]).start("w").wait(20)
    assert store.checkpoint(execution.id)[0] <= execution.state.last_sequence
    assert Environment(store=store).run_of(execution.id).status == "completed"


@pytest.mark.parametrize("loss", [None, BEFORE, AFTER])
def test_nothing_that_comes_at_the_end_is_forgotten(store, loss):
    world = environment(Workflow("w", [Step("a", "wait", signal="go")]), store=store)
    execution = world.create("w")
    looking = store.answers["_stored_messages"]
    with ExitStack() as look:
        with store.gates["_release"].closed() as resting:
            beginning = threading.Thread(target=execution.start)
            beginning.start()
            assert resting.reached.wait(20)
            look.enter_context(looking.closed())
        assert looking.reached.wait(20)  # it has looked for the last time, and has found nothing
        sent = Message(execution.id, SIGNAL, "sig_1", signal_payload("go", None), "ada", 0)
        store.post(sent)
        store.losses["_acquire"].append(loss)
        assert world._control.continue_parked(execution._driver).is_live
    beginning.join(20)
    assert execution.wait(20).status == "completed"


@pytest.mark.parametrize("loss", [BEFORE, AFTER])
@pytest.mark.parametrize("name", ["_stored_messages", "_release"])
def test_a_connection_lost_in_another_call_is_waited_for(store, name, loss):
    world = environment(Workflow("w", [Step("a", "wait", signal="go"), Step("b", script="1")]), store=store)
    execution = world.create("w")
    store.losses[name].extend([loss, loss])
    execution.start().wait(20)
    assert (execution.status, list(store.losses[name])) == ("waiting", [])
    assert world.run_of(execution.id).signal("go").wait(20).status == "completed"


@pytest.mark.parametrize("loss", [BEFORE, AFTER])
def test_a_connection_lost_in_the_first_look_for_messages_is_waited_for(store, loss):
    held = Gate()
    steps = [
        Step("s", script="1", next=["held", "listens"]),
        Step("held", action="gate", end=True),
        Step("listens", "wait", signal="go"),
    ]
    execution = environment(Workflow("w", steps), actions=[held.action()], store=store).create("w")
    store.losses["_last_message"].extend([loss, loss])
    execution.start()
    assert held.reached.wait(20)
    store.post(Message(execution.id, SIGNAL, "sig_1", signal_payload("go", None), "ada", 0))
    assert becomes(lambda: len(execution.state.active_paths()) == 1)
    held.opened.set()
    assert (execution.wait(20).status, list(store.losses["_last_message"])) == ("completed", [])


def test_cancelling_at_the_end_is_not_forgotten(store):
    world = environment(Workflow("w", [Step("a", "wait", signal="go")]), store=store)
    execution = world.create("w")
    with store.gates["_release"].closed() as gate:
        beginning = threading.Thread(target=execution.start)
        beginning.start()
        assert gate.reached.wait(20)
        execution.cancel()
    beginning.join(20)
    assert execution.wait(20).status == "cancelled"


@pytest.mark.parametrize("name", ["_write", "_read_records", "_lists.record", "_caches.checkpoint", "_stored_messages"])
@pytest.mark.parametrize("loss", [BEFORE, AFTER])
def test_a_fork_is_created_once_wherever_the_connection_is_lost(store, name, loss):
    world = environment(store=store)
    source = world.start(Workflow("w", [Step("a", script="1")])).wait(20)
    for number in range(8):
        before = len(store.server.ids())
        store.losses[name].clear()
        store.losses[name].extend([None] * number + [loss, loss])
        try:
            fork = world.run_of(source.id).fork(2)
        except ConnectionLostError:
            # Nothing was written before, so that the caller may try again.
            assert len(store.server.ids()) == before
            store.losses[name].clear()
            fork = world.run_of(source.id).fork(2)
        store.losses[name].clear()
        assert fork.wait(20).status == "completed"
        assert len(store.server.ids()) == before + 1
        assert sequences(store, fork) == list(range(1, fork.state.last_sequence + 1))


@pytest.mark.parametrize("loss", [BEFORE, AFTER])
def test_a_fork_with_the_id_of_a_child_is_created_once(store, loss):
    world = environment(store=store)
    source = world.start(Workflow("w", [Step("a", script="1")])).wait(20)
    fork = world.run_of(source.id).fork(2).wait(20)
    forked = next(event.data for event in fork.history() if isinstance(event.data, catalog.ExecutionForked))
    store.losses["_write"].append(loss)
    driver = fork._control.start_fork(forked, child_id="exec_child")
    driver.driving().result(20)
    assert store.server.ids().count("exec_child") == 1
    assert sequences(store, driver) == list(range(1, driver.state.last_sequence + 1))
