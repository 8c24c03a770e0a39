"""A newer divebook raises the format of a store on a server that is open here: nothing more is written."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import NewerStoreError
from divebook.store import Message
from divebook.store.leases import Owner
from divebook.store.postgres.schema import MIGRATIONS
from tests.runtime.worlds import Calls, Gate

ONE_STEP = Workflow("w", [Step("a", script="1")])


def raise_format(store, by=1):
    connections = store._connections
    with connections.opened() as other:
        other.execute(connections.statement("UPDATE divebook.format SET number = %s"), (len(MIGRATIONS) + by,))


@pytest.mark.parametrize("name", ["start", "post", "lease", "delete"])
def test_whatever_writes_is_refused_and_what_is_there_can_be_read(name, store):
    world = Environment(store=store, workflows=[ONE_STEP])
    done = world.start("w").wait(20)
    writes = {
        "start": lambda: world.start("w").wait(20),
        "post": lambda: store.post(Message(done.id, "signal", "k", {}, "ann", 1)),
        "lease": lambda: store.acquire(done.id, Owner.current()),
        "delete": lambda: store.delete(done.id),
    }
    raise_format(store)
    with pytest.raises(NewerStoreError, match=r"has raised .* to format .* while it was open here"):
        writes[name]()
    assert (len(store.records()), len(store.read(done.id))) == (1, done.state.last_sequence)
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
