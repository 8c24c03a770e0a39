"""What an execution's row says of its log, and what two connections to one file know of each other's writing."""

import sqlite3
from contextlib import closing
from random import Random

import pytest

from divebook.errors import DivebookError, FencedError
from divebook.stores import Batch, MemoryStore, Owner, SqliteStore
from divebook.stores.maintenance import check
from divebook.stores.sqlite import log_writer as writing
from divebook.stores.sqlite.log_writer import RECORDS_PER_ROW_UPDATE
from tests.store.logs import ONE, START, THREE, TWO, batch, completed, failed, log, resumed, step, steps
from tests.store.tampering import tamper
from tests.store.wide_promises import begun, done, events_of, records

HERE = Owner("here", 11, 1, "kernel")


@pytest.fixture
def store(path):
    with SqliteStore(path, durability="relaxed") as store:
        yield store


def noted(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT last_sequence FROM executions").fetchone()[0]


def go_on(store, last, times, **said):
    """Append that many records of two events."""
    for number in range(times):
        after = last + 2 * number
        assert store.append_all([Batch(ONE, after, [begun(after + 1)], **said)]) == [None]
    return last + 2 * times


def test_the_row_is_written_when_something_changes_and_every_so_often(store, path):
    store.append_all([Batch(ONE, 0, records(), status="running")])
    last = go_on(store, 6, RECORDS_PER_ROW_UPDATE - 1, status="running")
    assert noted(path) == 6
    last = go_on(store, last, 1, status="running")
    assert noted(path) == last == 6 + 2 * RECORDS_PER_ROW_UPDATE
    last = go_on(store, last, 1, status="running")
    assert noted(path) == last - 2
    for said in ({"status": "waiting"}, {"status": "waiting", "wake_at": START}, {"wake_at": START, "taken": 3}):
        last = go_on(store, last, 1, **said)
        assert noted(path) == last
    large = done(last + 1, "z" * 100_000)
    store.append_all([Batch(ONE, last, [large], wake_at=START)])
    assert noted(path) == last + 3


def test_what_lists_say_of_a_log_is_exact_whatever_its_row_says(store, path):
    store.append_all([Batch(ONE, 0, records())])
    go_on(store, 6, 5)
    assert noted(path) == 6
    size = sum(len(entry.payload) for entry in store.stored_log(ONE).records)
    listed = [store.record(ONE), *store.records(), *store.unended(), *store.orphans(now=START)]
    assert [(record.last_sequence, record.size) for record in listed] == [(16, size)] * 4
    store.put_checkpoint(ONE, 16, b"fold")
    with SqliteStore(path) as other:
        other.append_all([Batch(ONE, 16, [begun(17)], status="waiting")])
        assert other.record(ONE).size > size
        assert check(other).ok


def test_a_damaged_record_after_the_row_was_written_is_not_counted(store, path, caplog):
    store.append_all([Batch(ONE, 0, records())])
    go_on(store, 6, 2)
    tamper(path, "UPDATE events SET recorded_at = 1 WHERE place & 4294967295 = 9")
    assert store.records() == []
    assert "the record of events 9 to 10 of execution" in caplog.text
    assert [damage.sequence for damage in check(store).all_damages()] == [9]


@pytest.mark.parametrize("end", [completed, failed])
def test_a_missing_end_is_found_once_an_execution_has_ended(store, path, end):
    store.append_all([Batch(ONE, 0, records())])
    last = go_on(store, 6, 3)
    store.append(ONE, [end(last + 1)], last)
    tamper(path, f"DELETE FROM events WHERE place & 4294967295 = {last + 1}")
    assert [damage.text for damage in check(store).all_damages()] == [f"event {last + 1} is missing"]


def test_a_lease_that_another_connection_gave_fences_at_once(store, path):
    store.append_all([Batch(ONE, 0, records(), acquire=HERE)])
    go_on(store, 6, 2, token=1)
    with SqliteStore(path) as other:
        lease = other.acquire(ONE, Owner("there", 12, 1, "kernel"), 30, now=START + 10**12)
        assert isinstance(store.append_all([Batch(ONE, 10, [begun(11)], token=1)])[0], FencedError)
        assert other.append_all([Batch(ONE, 10, [begun(11)], token=lease.token)]) == [None]
    assert isinstance(store.append_all([Batch(ONE, 12, [begun(13)], token=1)])[0], FencedError)


def test_a_lease_that_the_own_connection_gave_fences_at_once(store):
    store.append_all([Batch(ONE, 0, records(), acquire=HERE)])
    lease = store.acquire(ONE, HERE, 30, now=START + 10**12)
    assert isinstance(store.append_all([Batch(ONE, 6, [begun(7)], token=1)])[0], FencedError)
    assert store.append_all([Batch(ONE, 6, [begun(7)], token=lease.token)]) == [None]


class Game:
    """The same random calls for a store in memory, and for two connections to one file in turn."""

    def __init__(self, seed, model, stores):
        self.random, self.model, self.stores = Random(seed), model, stores

    def play(self, moves):
        for _ in range(moves):
            call = self.random.choice(
                [self.append, self.append, self.append, self.acquire, self.release, self.delete]
            )()
            chosen = self.random.choice(self.stores)
            assert outcome(call, chosen) == outcome(call, self.model)
            lines = [[seen(record) for record in entry.records()] for entry in (self.model, *self.stores)]
            assert lines[1:] == lines[:1] * 2

    def append(self):
        batches = [self.batch() for _ in range(self.random.randint(1, 3))]
        return lambda store: [type(answer) for answer in store.append_all(batches)]

    def batch(self):
        name = self.random.choice([ONE, TWO, THREE])
        known = self.model._logs.get(name)
        last = known.last_sequence if known else 0
        token = known.token if known else None
        if self.random.random() < 0.2:
            last, token = last + self.random.choice([-1, 0, 1]), self.random.choice([None, 1, 2, token])
        if last <= 0:
            return batch(name, 0, log(2, name), acquire=self.random.choice([None, HERE]), status="running")
        events = self.random.choice([[step(last + 1, name)], [step(last + 1, name), step(last + 2, name)]])
        if self.random.random() < 0.2:
            events = [self.random.choice([completed, failed, resumed])(last + 1, name)]
        return batch(name, last, events, token or None, status=self.random.choice([None, "running", "waiting"]))

    def acquire(self):
        name, now = self.random.choice([ONE, TWO, THREE]), START + self.random.randrange(10**9)
        return lambda store: store.acquire(name, HERE, 30, now=now).token

    def release(self):
        leases = self.model.leases()
        chosen = self.random.choice(leases) if leases else None
        return lambda store: chosen and store.release(chosen)

    def delete(self):
        name = self.random.choice([ONE, TWO, THREE])
        rarely = self.random.random() < 0.3
        return lambda store: store.delete(name) if rarely else None


def seen(record):
    return record.execution_id, record.status, record.last_sequence, record.size, record.ended_at, record.error


def outcome(call, store):
    try:
        return call(store)
    except DivebookError as error:
        return type(error)


@pytest.mark.parametrize("seed", range(12))
def test_two_connections_to_one_file_are_as_strict_as_one_store(path, seed):
    with MemoryStore() as model, SqliteStore(path, durability="relaxed") as one, SqliteStore(path) as two:
        Game(seed, model, (one, two)).play(60)
        assert check(one).ok
        for record in model.records():
            assert one.read(record.execution_id) == model.read(record.execution_id)


def test_a_log_is_read_to_its_end_wherever_its_row_stands(store):
    store.append_all([Batch(ONE, 0, records())])
    last = go_on(store, 6, 3)
    wanted = [*events_of(records()), *(event for number in (7, 9, 11) for event in begun(number).events())]
    assert store.read(ONE) == wanted
    assert store.read(ONE, after=last) == []


def test_logs_that_rest_are_looked_up_again(store, monkeypatch):
    monkeypatch.setattr(writing, "MAX_CACHED_LOGS", 2)
    names = [ONE, TWO, THREE]
    for last in (0, 2, 4):
        for name in names:
            new = [batch(name, 0, log(2, name))] if not last else [batch(name, last, steps(last + 1, last + 2, name))]
            assert store.append_all(new) == [None]
            assert len(store._logs._logs) <= 2
    store.append_all([batch(name, 6, steps(7, 8, name)) for name in names])
    assert [store.record(name).last_sequence for name in names] == [8, 8, 8]
    assert check(store).ok
