"""A store behind PgBouncer, where a session lasts for a transaction: all but being told of news."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from divebook import Environment, Step, Workflow
from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import ConnectionLostError, StoreError
from divebook.stores import Owner
from divebook.stores.maintenance import check
from divebook.stores.postgres import PostgresStore
from divebook.stores.postgres import store as listening
from tests.postgres.emptying import emptied
from tests.postgres.pool import pooled, pooler
from tests.store.logs import ONE, batch, execution_id, log, steps


@pytest.fixture(scope="module")
def pool(server, require):
    require("pgbouncer", pooler() is not None)
    with pooled(server) as url:
        yield url


@pytest.fixture
def address(pool):
    return emptied(pool())


def test_many_threads_write_and_read_over_few_sessions(store):
    def write(number):
        name = execution_id(number)
        store.append_all([batch(name, 0, log(1, name), acquire=Owner.current())])
        for last in range(1, 20, 2):
            assert store.append_all([batch(name, last, steps(last + 1, last + 2, name), token=1)]) == [None]
        return store.read(name)

    with ThreadPoolExecutor(4) as threads:
        logs = list(threads.map(write, range(4)))
    assert [len(events) for events in logs] == [21] * 4
    assert check(store).ok


def test_news_are_asked_for_where_they_are_not_told(store, address, monkeypatch):
    monkeypatch.setattr(listening, "PROBE_SECONDS", 0.1)
    store.append(ONE, log(1), 0)
    heard = threading.Event()
    end = store.on_news(heard.set, ONE)
    with PostgresStore(address) as other:
        for last in range(1, 7, 2):  # the first may be heard of because the listening begins
            heard.clear()
            other.append(ONE, steps(last + 1, last + 2), last)
            assert heard.wait(20)
        heard.clear()
        other.post(Message(ONE, SIGNAL, "go", signal_payload("go", 1), "test", 1))
        assert heard.wait(20)
    end()


def test_executions_run(address):
    run_in(address)


def test_executions_run_where_each_connection_has_a_session(server, pool):
    with pooled(server, "session", sessions=6) as url:
        run_in(emptied(url()))


def test_a_pool_that_gives_each_statement_a_session_is_refused(server, pool):
    with (
        pooled(server, "statement") as url,
        pytest.raises(StoreError, match=r"Set pool_mode = transaction") as caught,
    ):
        PostgresStore(url("statements"))
    assert not isinstance(caught.value, ConnectionLostError)


def run_in(address):
    environment = Environment(store=address)
    work = Workflow("w", [Step("ask", ask="Which?", store="said"), Step("b", script="state.said + '!'", store="b")])
    begun = environment.start(work).wait(20)
    ((_, question),) = environment.inbox()
    environment.answer(question.id, "this")
    assert environment.run_of(begun.id).wait(20).state.variables["b"] == "this!"
    environment.store.close()
