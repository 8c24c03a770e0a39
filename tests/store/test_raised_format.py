"""A newer divebook raises the format of a store that is open here: nothing more is written, and nothing is lost."""

import subprocess
import sys

import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import NewerStoreError
from divebook.stores import Message, SqliteStore
from divebook.stores.leases import Owner
from divebook.stores.sqlite.schema import MIGRATIONS
from tests.runtime.worlds import Calls, Gate
from tests.store.logs import ONE, batch

RAISE = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute(f'PRAGMA user_version = {sys.argv[2]}')"
WRITES = {
    "append": lambda store: store.append_all([batch()]),
    "post": lambda store: store.post(Message(ONE, "signal", "k", {}, "ann", 1)),
    "lease": lambda store: store.acquire(ONE, Owner.current()),
    "checkpoint": lambda store: store.put_checkpoint(ONE, 1, b"{}"),
    "delete": lambda store: store.delete(ONE),
}


def raised(path, by=1):
    """Raise the format in another process, as a newer version does."""
    subprocess.run([sys.executable, "-c", RAISE, str(path), str(len(MIGRATIONS) + by)], check=True)


@pytest.mark.parametrize("name", WRITES)
def test_whatever_writes_is_refused_and_what_is_there_can_be_read(name, tmp_path):
    store = SqliteStore(tmp_path / "s.db")
    world = Environment(store=store, workflows=[Workflow("w", [Step("a", script="1")])])
    done = world.start("w").wait(20)
    raised(tmp_path / "s.db")
    write = WRITES[name] if name != "append" else lambda _: world.start("w").wait(20)
    with pytest.raises(NewerStoreError, match=r"has upgraded .* to format .* while this process had it open"):
        write(store)
    assert (len(store.records()), len(store.read(done.id))) == (1, done.state.last_sequence)
    raised(tmp_path / "s.db", by=0)  # as if this were the newer version
    assert world.start("w").wait(20).status == "completed"


def test_an_execution_that_runs_meanwhile_says_so_and_goes_on_from_its_log(tmp_path):
    gate, calls = Gate(), Calls()
    steps = [Step("a", action="note", parameters={"value": 1}), Step("b", action="gate"), Step("c", action="note")]
    world = Environment(
        store=SqliteStore(tmp_path / "s.db"),
        workflows=[Workflow("w", steps)],
        actions=[gate.action(), calls.action()],
    )
    running = world.start("w")
    assert gate.reached.wait(20)
    raised(tmp_path / "s.db")
    gate.opened.set()
    with pytest.raises(NewerStoreError, match="End this process, upgrade divebook"):
        running.wait(20)
    assert calls == [1]
    raised(tmp_path / "s.db", by=0)
    assert [event.event_type for event in world.store.read(running.id)].count("operation_completed") == 1
