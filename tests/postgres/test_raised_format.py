"""A newer divebook raises the format of a store on a server that is open here: nothing more is written."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import NewerStoreError
from divebook.stores import Message
from divebook.stores.backend import StoredSummary
from divebook.stores.leases import Owner, WorkerRecord
from divebook.stores.postgres.schema import MIGRATIONS
from tests.runtime.worlds import Calls, Gate

ONE_STEP = Workflow("w", [Step("a", script="1")])


def raise_format(store, by=1):
    connections = store._connections
    with connections.opened() as other:
        other.execute(connections.statement("UPDATE divebook.format SET number = %s"), (len(MIGRATIONS) + by,))


WORKER = WorkerRecord("worker_1", Owner.current(), ("q",), 1, {})
WRITES = {
    "start": lambda world, _: world.start("w").wait(20),
    "post": lambda world, lease: world.store.post(Message(lease.execution_id, "signal", "k", {}, "ann", 1)),
    "acquire": lambda world, lease: world.store.acquire(lease.execution_id, Owner.current(), instead_of=lease),
    "renew": lambda world, lease: world.store.renew([lease]),
    "release": lambda world, lease: world.store.release(lease),
    "delete": lambda world, lease: world.store.delete(lease.execution_id),
    "withhold": lambda world, lease: world.store.withhold(lease.execution_id),
    "a new schedule": lambda world, _: world.store.seen_to("new", 1),
    "a schedule": lambda world, _: world.store.see_to("daily", 2),
    "announce": lambda world, _: world.store.announce(WORKER),
    "retire": lambda world, _: world.store.retire(WORKER.id),
    "a checkpoint": lambda world, lease: world.store.put_checkpoint(lease.execution_id, 1, b"x"),
    "fewer checkpoints": lambda world, lease: world.store.drop_checkpoints([lease.execution_id]),
    "summaries": lambda world, lease: world.store.put_summaries({lease.execution_id: StoredSummary(1, b"x")}),
}


@pytest.mark.parametrize("name", WRITES)
def test_whatever_writes_is_refused_and_what_is_there_can_be_read(name, store):
    world = Environment(store=store, workflows=[ONE_STEP])
    done = world.start("w").wait(20)
    store.put_checkpoint(done.id, 2, b"x")
    store.seen_to("daily", 1)
    store.announce(WORKER)
    lease = store.acquire(done.id, Owner.current())
    raise_format(store)
    with pytest.raises(NewerStoreError, match=r"has upgraded .* to format .* while this process had it open"):
        WRITES[name](world, lease)
    assert (len(store.records()), len(store.read(done.id))) == (1, done.state.last_sequence)
    assert (store.lease_of(done.id), store.checkpoints(), store.summaries([done.id])) == (lease, [done.id], {})
    assert ([worker.id for worker in store.workers()], store.seen_to("daily", 5)) == ([WORKER.id], 1)
    raise_format(store, by=0)
    assert world.start("w").wait(20).status == "completed"


def test_an_execution_that_runs_meanwhile_says_so(store):
    """What only carries on its log is sent by another statement."""
    gate, calls = Gate(), Calls()
    steps = [Step("a", action="note", parameters={"value": 1}), Step("b", action="gate"), Step("c", action="note")]
    world = Environment(store=store, workflows=[Workflow("w", steps)], actions=[gate.action(), calls.action()])
    running = world.start("w")
    assert gate.reached.wait(20)
    raise_format(store)
    gate.opened.set()
    with pytest.raises(NewerStoreError, match="End this process, upgrade divebook"):
        running.wait(20)
    raise_format(store, by=0)
    assert calls == [1]
    assert [event.event_type for event in store.read(running.id)].count("operation_completed") == 1


def test_descendants_are_counted_by_the_server(store):
    below = Workflow("below", [Step("a", workflow="w")])
    world = Environment(store=store, workflows=[ONE_STEP, below, Workflow("top", [Step("a", workflow="below")])])
    top = world.start("top").wait(20)
    assert (store.descendants(top.id), store.descendants("exec_none")) == (2, 0)
