"""Each execution is written as surely as it asks for, in a file that executions share."""

from typing import get_args

import pytest

from divebook.definitions.resources import DURABILITIES
from divebook.engine.inbox import Message
from divebook.errors import NotFoundError
from divebook.stores import Owner, SqliteStore
from divebook.stores.append import Durability
from tests.store.connections import writer_of
from tests.store.logs import ONE, TWO, batch, log, step

SYNCHRONOUS = {"full": 2, "relaxed": 1}


@pytest.fixture
def store(tmp_path):
    with SqliteStore(tmp_path / "executions.db") as opened:
        yield opened


def written_as(store, *batches):
    """Append batches; return how the writing connection was set meanwhile."""
    assert store.append_all(batches) == [None] * len(batches)
    return present(store)


def present(store):
    """Return how the writing connection is set."""
    return writer_of(store).execute("PRAGMA synchronous").fetchone()[0]


def test_a_batch_is_written_as_it_asks_for(store):
    assert written_as(store, batch(ONE, 0, log(2), durability="relaxed")) == SYNCHRONOUS["relaxed"]
    assert written_as(store, batch(TWO, 0, log(2, TWO))) == SYNCHRONOUS["full"]
    assert written_as(store, batch(ONE, 2, [step(3)], durability="relaxed")) == SYNCHRONOUS["relaxed"]


def test_one_full_batch_makes_its_transaction_full(store):
    relaxed, full = batch(ONE, 0, log(2, ONE), durability="relaxed"), batch(TWO, 0, log(2, TWO), durability="full")
    assert written_as(store, relaxed, full) == SYNCHRONOUS["full"]


def test_the_record_says_what_an_execution_was_begun_with(store):
    store.append_all([batch(ONE, 0, log(2, ONE), durability="relaxed"), batch(TWO, 0, log(2, TWO))])
    store.append(ONE, [step(3)], 2)
    assert (store.record(ONE).durability, store.record(TWO).durability) == ("relaxed", "full")


def test_a_relaxed_store_writes_full_on_request(tmp_path):
    with SqliteStore(tmp_path / "x.db", durability="relaxed") as store:
        assert written_as(store, batch(ONE, 0, log(2), durability="full")) == SYNCHRONOUS["full"]
        assert written_as(store, batch(TWO, 0, log(2, TWO))) == SYNCHRONOUS["relaxed"]
        assert (store.record(ONE).durability, store.record(TWO).durability) == ("full", "relaxed")


def test_what_is_sent_to_an_execution_is_written_as_the_store_does(store):
    store.append_all([batch(ONE, 0, log(2), durability="relaxed")])
    store.post(Message(ONE, "signal", "key", {"name": "go"}, "ada", 1))
    assert present(store) == SYNCHRONOUS["full"]


def test_leases_and_checkpoints_wait_for_no_disk(store):
    store.append_all([batch(ONE, 0, log(2))])
    lease = store.acquire(ONE, Owner.current())
    assert present(store) == SYNCHRONOUS["relaxed"]
    assert written_as(store, batch(ONE, 2, [step(3)], lease.token)) == SYNCHRONOUS["full"]
    store.put_checkpoint(ONE, 3, b"fold")
    assert present(store) == SYNCHRONOUS["relaxed"]


def test_on_a_network_everything_is_full(tmp_path):
    with pytest.warns(RuntimeWarning, match="network file system"):
        store = SqliteStore(tmp_path / "x.db", durability="relaxed", network=lambda _: "nfs")
    with store:
        assert written_as(store, batch(ONE, 0, log(2), durability="relaxed")) == SYNCHRONOUS["full"]
        store.acquire(ONE, Owner.current())
        assert present(store) == SYNCHRONOUS["full"]


def test_a_durability_that_does_not_exist_is_refused(store):
    with pytest.raises(NotFoundError, match="did you mean 'relaxed'"):
        store.append_all([batch(ONE, 0, log(2), durability="relax")])
    assert store.records() == []


def test_settings_name_the_same_durabilities():
    assert get_args(Durability) == DURABILITIES
