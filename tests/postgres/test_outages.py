"""What a server refuses for a while, and what holds executions up: they wait, say why, and go on by themselves."""

import asyncio
import os
import resource
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from divebook import Environment, Retry, Step, Workflow
from divebook.engine.evolve import fold
from divebook.engine.state import ExecutionState
from divebook.errors import CorruptStoreError, ReadOnlyStoreError, StoreBusyError, StoreError
from divebook.events import catalog
from divebook.runtime import commit as group_commit
from divebook.runtime.clock import Ids, SystemChance, SystemClock
from divebook.runtime.commit import GroupCommit, StoreCalls
from divebook.runtime.journal import Journal
from divebook.stores import Owner
from divebook.stores.postgres import PostgresStore, connections
from divebook.stores.postgres import store as listening
from divebook.stores.postgres.connections import DatabaseAddress, translate
from tests.runtime.worlds import Gate, becomes
from tests.store.fork_promises import fork
from tests.store.logs import ONE, THREE, TWO, log, step

ROOT = Path(__file__).parent.parent.parent
PAYING = Workflow("w", [Step("pay", action="gate", store="paid"), Step("after", script="1", store="n")])


@pytest.fixture
def administrator(address):
    with psycopg.connect(DatabaseAddress.of(address).conninfo, autocommit=True) as link:
        yield link


@contextmanager
def read_only(link):
    """Have the server refuse all that is written, in all sessions, as a standby does."""
    link.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    link.execute("SELECT pg_reload_conf()")
    with psycopg.connect(link.info.dsn, autocommit=True) as other:
        assert becomes(lambda: other.execute("SHOW default_transaction_read_only").fetchone() == ("on",))
    try:
        yield
    finally:
        link.execute("SET default_transaction_read_only = off")
        link.execute("ALTER SYSTEM RESET default_transaction_read_only")
        link.execute("SELECT pg_reload_conf()")


def test_a_server_that_is_read_only_for_a_while_is_waited_for(store, administrator):
    gate = Gate()
    environment = Environment(store=store, actions=[gate.action()])
    begun = [environment.start(PAYING) for _ in range(3)]
    assert gate.reached.wait(20)
    with read_only(administrator):
        gate.opened.set()
        for execution in begun:
            assert becomes(lambda execution=execution: "nothing can be written" in (execution.internals.held_up or ""))
            assert "waiting for the server since" in execution.internals.held_up
        with pytest.raises(StoreBusyError, match="or a server that replaces it, is writable again"):
            store.acquire(begun[0].id, Owner("there", 1, 1, "x"), instead_of=store.lease_of(begun[0].id))
    assert [execution.wait(20).status for execution in begun] == ["completed"] * 3
    assert store.leases() == []


def test_what_waits_for_an_answer_is_given_back_after_a_while_of_reading_only(store, administrator):
    gate = Gate()
    environment = Environment(store=store, actions=[gate.action()])
    execution = environment.start(Workflow("w", [Step("pay", action="gate"), Step("ask", ask="Which?", store="said")]))
    assert gate.reached.wait(20)
    with read_only(administrator):
        gate.opened.set()
        assert becomes(lambda: execution.internals.held_up is not None)
    (question,) = execution.wait(20).open_questions
    execution.answer(question.id, "this")
    assert execution.wait(20).status == "completed"


def test_a_server_that_can_only_be_read_from_the_beginning_says_so(address, administrator):
    with PostgresStore(address) as store:
        store.append(ONE, log(1), 0)
    with read_only(administrator), PostgresStore(address) as store:
        assert store.read(ONE) == log(1)
        for name, events, last in ((TWO, log(1, TWO), 0), (ONE, [step(2)], 1)):
            with pytest.raises(ReadOnlyStoreError, match="Use the address of a server that accepts writes"):
                store.append(name, events, last)


@pytest.fixture
def reader(administrator, address):
    """Return the URL of a user who may only read."""
    PostgresStore(address).close()
    administrator.execute("DROP OWNED BY eve; DROP ROLE eve" if _is_there(administrator) else "")
    administrator.execute("CREATE ROLE eve LOGIN; GRANT USAGE ON SCHEMA divebook TO eve")
    administrator.execute("GRANT SELECT ON ALL TABLES IN SCHEMA divebook TO eve")
    yield address.replace("postgres@", "eve@")
    administrator.execute("DROP OWNED BY eve; DROP ROLE eve")


def _is_there(link):
    return link.execute("SELECT FROM pg_roles WHERE rolname = 'eve'").fetchall()


def test_who_may_only_read_is_told_what_is_refused_first(reader):
    environment = Environment(store=reader)
    with pytest.raises(ReadOnlyStoreError, match=r"permission denied for table (event_types|executions)"):
        environment.start(Workflow("w", [Step("a", script="1")]))
    environment.store.close()


def test_who_may_only_read_asks_for_news(reader, store, monkeypatch):
    opened, heard = [], threading.Event()
    with PostgresStore(reader) as reading:
        open_link = reading._connections.connect
        monkeypatch.setattr(reading._connections, "connect", lambda: opened.append(None) or open_link())
        store.append(ONE, log(1), 0)
        end = reading.on_news(heard.set, ONE)
        for last in range(1, 6):
            heard.clear()
            store.append(ONE, [step(last + 1)], last)
            assert heard.wait(20)
        time.sleep(3 * listening.RECONNECT_PAUSE)
        assert len(opened) <= 3  # it does not connect anew, again and again
        end()


# --- what others have locked


def test_who_locks_a_row_holds_executions_up_and_these_say_so(store, administrator):
    gate = Gate()
    environment = Environment(store=store, actions=[gate.action()])
    execution = environment.start(PAYING)
    assert gate.reached.wait(20)
    with psycopg.connect(administrator.info.dsn) as other:
        other.execute("SELECT FROM divebook.executions WHERE id = %s FOR UPDATE", (execution.id,))
        gate.opened.set()
        assert becomes(lambda: "is locked by another session" in (execution.internals.held_up or ""))
        for call in (
            lambda: store.acquire(execution.id, Owner("there", 1, 1, "x")),
            lambda: execution.signal("go", 1),
            lambda: store.delete(execution.id),
        ):
            with pytest.raises(StoreBusyError, match="is locked by another session"):
                call()
        other.rollback()
    assert execution.wait(20).status == "completed"


# The server has no room for the row of one execution. The trigger runs only for an update that finds the row.
NO_ROOM = """
CREATE FUNCTION divebook.no_room() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER no_room BEFORE UPDATE ON divebook.executions FOR EACH ROW WHEN (OLD.id = {id})
  EXECUTE FUNCTION divebook.no_room()
"""


def test_a_batch_that_is_refused_after_others_of_its_commit_is_written_later(
    store, address, administrator, monkeypatch
):
    monkeypatch.setattr(group_commit, "STORE_PAUSES", Retry(seconds=0.01))
    store.append(TWO, log(1, TWO), 0)
    fork(store, TWO, 1, THREE, length=1)

    async def main():
        commit = GroupCommit(StoreCalls(store))
        ids = Ids(SystemClock(), SystemChance())
        own = Journal(ExecutionState(ONE), commit, SystemClock(), ids)
        forked = Journal(
            fold(THREE, store.read(THREE)),
            commit,
            SystemClock(),
            ids,
            token=store.acquire(THREE, Owner.current()).token,
        )
        own.record(catalog.ExecutionStarted("w", {}))
        forked.record(catalog.SignalReceived("tick"))
        await asyncio.gather(own.durable(), forked.durable())
        # The deletion of the source changes the row of the fork, so the server accepts the batch of the fork only in a
        # second round, and for that it has no room.
        with PostgresStore(address) as other:
            other.delete(TWO)
        administrator.execute(NO_ROOM.format(id=f"'{THREE}'"))
        own.record(catalog.SignalReceived("tick"))
        forked.record(catalog.SignalReceived("tick"))
        writing = asyncio.ensure_future(forked.durable())
        await asyncio.wait_for(own.durable(), 20)
        assert (own.written, writing.done(), "no room" in str(commit.held_up)) == (2, False, True)
        administrator.execute("DROP FUNCTION divebook.no_room() CASCADE")
        await asyncio.wait_for(writing, 20)
        assert commit.held_up is None

    asyncio.run(main())
    assert [len(store.read(name)) for name in (ONE, THREE)] == [2, 4]


# --- connections


def test_connections_that_read_are_closed_after_a_while(store, monkeypatch):
    links = []
    with store._connections._reader() as one, store._connections._reader() as other:
        links += [one, other]
    assert [link.closed for link in links] == [False, False]
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.0)
    store.records()
    assert [link.closed for link in links] == [True, True]
    assert store.records() == []


FILES = """
import os, sys
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
from divebook import Environment, Step, Workflow
environment = Environment(store=sys.argv[1])
execution = environment.start(Workflow("w", [Step("ask", ask="Which?", store="said")])).wait(20)
execution.answer(execution.open_questions[0].id, "this").wait(20)
print(execution.status)
"""


def test_a_process_may_have_more_files_open_than_select_can_tell_apart(address):
    done = subprocess.run(
        [sys.executable, "-c", FILES, address],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (0, "completed\n"), done.stderr


# --- errors of the server


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("XX000", StoreBusyError, "had an internal error"),
        ("XX001", CorruptStoreError, "is damaged: .* Restore a backup"),
        ("XX002", CorruptStoreError, "damaged index"),
        ("42P01", StoreError, "here: "),
    ],
)
def test_only_what_is_damaged_is_told_to_be(code, kind, said):
    error = type("Error", (psycopg.Error,), {"sqlstate": code})("no")
    with pytest.raises(kind, match=said):
        raise translate(error, "here")
