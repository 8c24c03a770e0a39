"""Commits that the engine sends where it stands: their answer comes in a moment, later, or not at all."""

import threading

import psycopg
import pytest

from divebook import Environment, Step, Workflow
from divebook.errors import ConcurrentAppendError, ConnectionLostError, StoreBusyError
from divebook.runtime import commit
from divebook.stores.maintenance import check
from divebook.stores.postgres import PostgresStore
from divebook.stores.postgres.logs import SentBatches
from tests.postgres.proxy import AFTER, BEFORE, LATE, proxy
from tests.store.logs import ONE, TWO, batch, completed, log, step, steps

PATIENCE = 20


@pytest.fixture
def store(address):
    """Return a store that knows two logs of its own."""
    with PostgresStore(address) as made:
        assert made.append_all([batch(ONE, 0, log(1)), batch(TWO, 0, log(1, TWO))]) == [None] * 2
        yield made


def two(first, last):
    return [batch(name, first - 1, steps(first, last, name)) for name in (ONE, TWO)]


def test_what_only_carries_logs_on_is_sent_and_answered(store):
    appending = store.append_in_a_moment(two(2, 3), PATIENCE)
    assert appending.answers == [None] * 2
    assert store.read(ONE) == log(3)
    assert not store._connections.unanswered


@pytest.mark.parametrize("what", ["an end", "a beginning", "two of one", "large", "unknown"])
def test_what_says_more_is_left_to_a_thread(store, address, what):
    batches = {
        "an end": [batch(ONE, 1, [completed(2)])],
        "a beginning": [batch("exec_new", 0, log(2, "exec_new"))],
        "two of one": [batch(ONE, 1, [step(2)]), batch(ONE, 2, [step(3)])],
        "large": [batch(ONE, 1, steps(2, 4000))],
        "unknown": [batch(ONE, 1, [step(2)])],
    }[what]
    if what == "unknown":
        store._logs.forget([ONE])
    appending = store.append_in_a_moment(batches, PATIENCE)
    assert (appending.answers, appending.is_begun) == (None, False)
    assert appending.finish() == [None] * len(batches)
    assert check(store).ok


def test_who_comes_next_takes_the_answer_in_and_who_sent_it_has_it_all_the_same(store):
    heard = []
    store.subscribe(lambda name, events: heard.append((name, len(events))))
    appending = store.append_in_a_moment(two(2, 3), 0)
    if appending.answers is None:  # a server that answers at once is as good
        assert appending.is_begun
    others = threading.Thread(target=store.append, args=(ONE, [step(4)], 3))
    others.start()
    others.join()
    assert appending.answers or appending.finish() == [None] * 2
    assert appending.finish() in ([], [None] * 2)  # asked for again it is the same
    assert heard == [(ONE, 2), (TWO, 2), (ONE, 1)]
    assert store.read(ONE) == log(4)


def test_what_another_process_was_before_is_refused_and_the_rest_is_written(store, address):
    with PostgresStore(address) as other:
        other.append(ONE, [step(2)], 1)
    first, second = store.append_in_a_moment(two(2, 3), PATIENCE).answers
    assert isinstance(first, ConcurrentAppendError)
    assert second is None
    assert (len(store.read(ONE)), store.read(TWO)) == (2, log(3, TWO))
    assert check(store).ok


@pytest.mark.parametrize("seconds", [PATIENCE, 0])
@pytest.mark.parametrize("loss", [BEFORE, AFTER, LATE])
def test_one_whose_connection_was_lost_is_settled_by_the_end_of_the_log(
    server, address, tmp_path_factory, loss, seconds
):
    with proxy(tmp_path_factory.mktemp("p"), server) as between, PostgresStore(between.url()) as store:
        store.append_all([batch(ONE, 0, log(1)), batch(TWO, 0, log(1, TWO))])
        for last in range(1, 11, 2):
            between.losses.append(loss)
            with pytest.raises(ConnectionLostError):
                store.append_in_a_moment(two(last + 1, last + 2), seconds).finish()
            again = [batch(name, last, steps(last + 1, last + 2, name), again=True) for name in (ONE, TWO)]
            appending = store.append_in_a_moment(again, seconds)
            assert not appending.is_begun
            assert appending.finish() == [None] * 2
            between.release()
        assert (store.read(ONE), store.read(TWO)) == (log(11), log(11, TWO))
        assert check(store).ok


def test_what_somebody_has_locked_is_told_to_who_asks_and_not_to_who_comes_next(store):
    with psycopg.connect(store._connections.address.conninfo) as person:
        person.execute("SELECT FROM divebook.executions WHERE id = %s FOR UPDATE", (ONE,))
        appending = store.append_in_a_moment(two(2, 3), 0)
        assert appending.is_begun
        store.append(TWO, [step(2, TWO)], 1)  # once the server has given up the other one
        with pytest.raises(StoreBusyError, match="locked by another session"):
            appending.finish()
    assert store.append_in_a_moment([batch(ONE, 1, steps(2, 3))], PATIENCE).finish() in ([None], [])
    assert store.read(ONE) == log(3)


def test_who_writes_while_another_one_does_has_a_thread_do_it(store):
    holds, lets_go = threading.Event(), threading.Event()

    def hold():
        with store._lock:
            holds.set()
            assert lets_go.wait(PATIENCE)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(PATIENCE)
    appending = store.append_in_a_moment(two(2, 3), PATIENCE)  # at once
    lets_go.set()
    assert (appending.answers, appending.is_begun) == (None, False)
    assert appending.finish() == [None] * 2
    holder.join()


def test_a_store_that_is_closed_has_taken_in_what_was_sent(store, address):
    appending = store.append_in_a_moment(two(2, 3), 0)
    store.close()
    assert appending.answers or appending.finish() == [None] * 2
    with PostgresStore(address) as again:
        assert again.read(TWO) == log(3, TWO)


NOTED = Workflow("noted", [Step(f"step {n}", script=f"{n} + 1", store=f"n{n}") for n in range(8)])


@pytest.mark.parametrize("is_late", [False, True])
def test_an_execution_without_company_is_written_so_and_goes_on_where_the_answer_is_late(address, monkeypatch, is_late):
    waited = []
    answered = SentBatches.is_answered

    def noted(self, seconds):
        waited.append(seconds)
        return not is_late and answered(self, 2 * PATIENCE)

    monkeypatch.setattr(SentBatches, "is_answered", noted)
    monkeypatch.setattr(commit, "MOMENT", PATIENCE)  # every commit counts as a quick one, however busy the machine is
    with PostgresStore(address) as store, Environment(store=store) as environment:
        for _ in range(3):
            done = environment.start(NOTED).wait(PATIENCE)
            assert (done.status, done.state.variables["n7"]) == ("completed", 8)
        assert len(waited) > 3
        assert check(store).ok
