"""One driver for each execution, and folds that are kept so that long logs open fast."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from divebook import Environment, Step, Workflow
from divebook.engine.checkpoint import dump_state
from divebook.engine.evolve import fold
from divebook.errors import LeaseHeldError
from divebook.runtime import forks
from divebook.runtime.forks import folded
from divebook.runtime.journal import CHECKPOINT_EVENTS
from divebook.runtime.leases import DrivenLeases
from divebook.stores import MemoryStore, Owner
from divebook.stores.append import Batch, records_of
from tests.runtime.test_resuming import WHOLE, cut
from tests.runtime.worlds import Calls, Gate, environment

STRANGER = Owner(host="elsewhere", pid=1, started=0, name="another kernel", boot="another boot")


def test_a_running_execution_is_leased_and_given_back_at_its_end():
    gate = Gate()
    world = environment(actions=[gate.action()])
    execution = world.start(Workflow("w", [Step("a", action="gate")]))
    assert gate.reached.wait(20)
    (lease,) = world.store.live_leases()
    assert (lease.execution_id, lease.owner) == (execution.id, Owner.current())
    gate.opened.set()
    execution.wait(20)
    assert world.store.leases() == []


def test_what_another_process_drives_is_not_driven_here():
    store = cut(WHOLE.store, WHOLE, 6)
    lease = store.acquire(WHOLE.id, STRANGER)
    world = Environment(store=store, actions=[Calls().action()])
    with pytest.raises(LeaseHeldError, match="elsewhere"):
        world.run_of(WHOLE.id).resume()
    store.release(lease)
    assert world.run_of(WHOLE.id).resume().wait(20).status == "completed"


def test_a_copy_of_a_store_does_not_free_the_leases_of_its_source():
    flow, gates = Workflow("w", [Step("a", action="gate")]), (Gate(), Gate())
    source, copy = (environment(actions=[gate.action()]) for gate in gates)
    execution = source.start(flow)
    assert gates[0].reached.wait(20)
    copy.store.append_all([Batch(execution.id, 0, records_of(source.store.read(execution.id)[:1]))])
    copied = copy.run_of(execution.id).resume()
    assert gates[1].reached.wait(20)
    (first,), (second,) = source.store.live_leases(), copy.store.live_leases()
    assert first.token == second.token
    gates[0].opened.set()
    execution.wait(20)
    with pytest.raises(LeaseHeldError):
        Environment(store=copy.store, actions=[gates[1].action()]).run_of(execution.id).resume()
    gates[1].opened.set()
    assert copied.wait(20).status == "completed"


def test_a_thread_that_fails_to_take_a_lease_frees_no_other():
    """Two threads are about to drive an execution. The first one fails, while the second one holds the lease."""
    leases, store = DrivenLeases(), MemoryStore()
    world = environment(store=store)
    execution = world.enqueue(Workflow("w", [Step("a", script="1")]))
    first_is_about, second_has_it = threading.Event(), threading.Event()

    def fail_to_take():
        with leases.about_to_drive(store, execution.id):
            first_is_about.set()
            assert second_has_it.wait(20)

    first = threading.Thread(target=fail_to_take)
    first.start()
    assert first_is_about.wait(20)
    with leases.taking(store, execution.id) as lease:
        second_has_it.set()
        first.join(20)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(leases.is_unused, store, lease).result() is False


def test_who_lost_its_lease_cannot_write_any_more():
    gate = Gate()
    world = environment(actions=[gate.action()])
    execution = world.start(Workflow("w", [Step("a", action="gate"), Step("b", script="1")]))
    assert gate.reached.wait(20)
    other = Environment(store=world.store)
    assert other.run_of(execution.id).cancel().wait(20).status == "cancelled"
    gate.opened.set()
    assert execution.wait(20).status == "cancelled"
    assert asyncio.run(awaited(execution)).status == "cancelled"
    assert fold(execution.id, world.store.read(execution.id)).status == "cancelled"
    assert "step_completed" not in [event.event_type for event in world.store.read(execution.id)]


async def awaited(execution):
    return await execution


def test_who_lost_its_lease_waits_for_who_has_it():
    gate, there = Gate(), Gate()
    here_action, there_action = (replace(each.action(), idempotent=True) for each in (gate, there))
    world = environment(actions=[here_action])
    execution = world.start(Workflow("w", [Step("a", action="gate", store="a")]))
    assert gate.reached.wait(20)
    other = Environment(store=world.store, actions=[there_action])
    world.store.release(*world.store.leases())
    other.run_of(execution.id).resume()
    assert there.reached.wait(20)
    gate.opened.set()
    with pytest.raises(TimeoutError, match="is running after"):
        execution.wait(0.2)
    there.opened.set()
    assert execution.wait(20).status == "completed"


def test_executions_that_nobody_drives_are_found():
    store = cut(WHOLE.store, WHOLE, 6)
    world = Environment(store=store)
    assert [record.execution_id for record in world.queues.recoverable()] == [WHOLE.id]
    store.acquire(WHOLE.id, STRANGER)
    assert world.queues.recoverable() == []


def long_execution():
    async def nop():
        return 1

    from divebook.steps.actions import Action

    count = CHECKPOINT_EVENTS // 4
    steps = [
        Step("a", action="nop", store="n"),
        Step("b", script="state.get('i', 0) + 1", store="i", next=[("a", f"$(state.i < {count})")]),
    ]
    world = environment(actions=[Action("nop", nop)])
    return world, world.start(Workflow("long", steps)).wait(60)


def test_a_long_log_is_read_from_its_checkpoint_and_deleting_it_changes_nothing():
    world, execution = long_execution()
    sequence, _ = world.store.checkpoint(execution.id)
    assert CHECKPOINT_EVENTS <= sequence <= execution.state.last_sequence
    other = Environment(store=world.store)
    assert other.run_of(execution.id).state == execution.state
    world.store.drop_checkpoints()
    assert Environment(store=world.store).run_of(execution.id).state == execution.state


@pytest.mark.parametrize("seed", range(5))
def test_the_state_after_any_event_is_the_fold_of_the_events_until_then(seed):
    """Whichever checkpoints there are, and also inside of a record."""
    world, execution = long_execution()
    chance = random.Random(seed)
    log = [*execution.history()]
    numbers = range(1, len(log) + 1)
    for sequence in chance.sample(numbers, 4):
        world.store.put_checkpoint(execution.id, sequence, dump_state(fold(execution.id, log[:sequence])))
    earlier_state = fold(execution.id, log[: chance.choice(numbers)])
    for at in chance.sample(numbers, 25):
        expected = fold(execution.id, log[:at])
        assert folded(world.store, execution.id, at) == expected, at
        if at >= earlier_state.last_sequence:
            assert folded(world.store, execution.id, at, earlier_state) == expected, at


@pytest.mark.parametrize("seed", range(3))
def test_the_state_of_a_fork_is_the_fold_of_its_log_wherever_it_begins(seed):
    world, execution = long_execution()
    chance = random.Random(seed)
    last = len(execution.history())
    for at in (chance.randrange(1, last), chance.randrange(last // 2, last), last):
        fork = world.run_of(execution.id).fork(at).wait(60)
        log = [*fork.history()]
        assert fork.state == fold(fork.id, log), at
        assert fork.status == "completed"


def test_a_fork_reads_only_what_follows_a_checkpoint(monkeypatch):
    """Nothing is read twice, neither for the fork point nor to drive the fork."""
    world, execution = long_execution()
    last = len(execution.history())
    state = fold(execution.id, [*execution.history()][: last - 40])
    world.store.put_checkpoint(execution.id, last - 40, dump_state(state))
    counts = []
    read = MemoryStore._read_records

    def counted(store, execution_id, after, until):
        records = read(store, execution_id, after, until)
        counts.append(sum(len(record.facts) for record in records))
        return records

    monkeypatch.setattr(MemoryStore, "_read_records", counted)
    fork = world.run_of(execution.id).fork(last - 2)
    read_for_the_fork = sum(counts)
    assert fork.wait(20).status == "completed"
    assert 0 < read_for_the_fork < last // 2  # a page of events beside the fork point, and those after the checkpoint


@pytest.mark.parametrize("source_is", ["there", "deleted", "another one"])
def test_a_fork_without_checkpoints_is_read_from_those_of_its_source(source_is, monkeypatch):
    """As in another process, which has never driven the fork."""
    monkeypatch.setattr(forks, "SHORT_LOG", 100)
    world, execution = long_execution()
    last = len(execution.history())
    fork = world.run_of(execution.id).fork(last - 2).wait(60)
    fork = world.run_of(fork.id).fork(last - 1).wait(60)  # a fork of a fork
    store, log = world.store, [*fork.history()]
    if source_is == "deleted":
        store.discard([execution.id])
    elif source_is == "another one":
        events = [replace(event, id=f"event_{event.sequence}") for event in store.read(execution.id)[:-50]]
        store.discard([execution.id])
        store.append(execution.id, events, 0)
    else:
        store.put_checkpoint(execution.id, last - 40, dump_state(fold(execution.id, log[: last - 40])))
    store.drop_checkpoints([record.execution_id for record in store.records() if record.execution_id != execution.id])
    counts = []
    read = MemoryStore._read_records

    def counted(store, execution_id, after, until):
        records = read(store, execution_id, after, until)
        counts.append(sum(len(record.facts) for record in records))
        return records

    monkeypatch.setattr(MemoryStore, "_read_records", counted)
    assert folded(store, fork.id) == fold(fork.id, log)
    assert (sum(counts) < last // 2) == (source_is == "there")
    for at in random.Random(7).sample(range(1, len(log) + 1), 12):
        assert folded(store, fork.id, at) == fold(fork.id, log[:at]), at


def test_a_checkpoint_that_cannot_be_read_is_left_aside():
    world, execution = long_execution()
    world.store.put_checkpoint(execution.id, execution.state.last_sequence, b'{"version": 99}')
    assert Environment(store=world.store).run_of(execution.id).state == execution.state


def test_a_resumption_of_what_another_environment_drives_is_refused_at_once():
    class Counting(MemoryStore):
        attempts = 0

        def _acquire(self, *given):
            self.attempts += 1
            return super()._acquire(*given)

    gate, store = Gate(), Counting()
    with (
        environment(actions=[gate.action()], store=store) as made,
        environment(actions=[gate.action()], store=store) as other,
    ):
        execution = made.start(Workflow("w", [Step("a", action="gate")]))
        assert gate.reached.wait(20)
        store.attempts = 0
        with pytest.raises(LeaseHeldError):
            other.run_of(execution.id).resume()
        assert store.attempts == 1
        gate.opened.set()
        assert execution.wait(20).status == "completed"
