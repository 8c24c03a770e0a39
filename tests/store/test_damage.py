"""Bytes changed and files cut at random; `python -m benchmarks.damage` tries many more."""

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest

from benchmarks.damage import EARLIER, EQUAL, REFUSED, Damage, read_all, try_many
from benchmarks.harm import make_store
from divebook import Environment, Step, Workflow
from divebook.engine.inbox import Message
from divebook.errors import AnswerKeptError, CorruptStoreError
from divebook.queues import Worker
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.backend import StoredSummary
from divebook.stores.leases import Owner
from divebook.stores.maintenance import check
from tests.store.logs import ONE, START, THREE, TWO, log
from tests.store.tampering import tamper


def test_a_damaged_file_gives_what_was_written_or_an_error_of_ours():
    counts, bad = try_many(seed=2, flips=300, cuts=60, changes=150, wals=20)
    assert not bad
    for way, equal in (("bytes changed", 20), ("values changed", 5)):
        assert counts[way][EQUAL] > equal
        assert counts[way][REFUSED] > 20
    assert counts["files cut"][REFUSED] > 20
    assert counts["bytes of the write-ahead log changed"][EARLIER] > 10


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :]


def test_a_damaged_index_of_ids_leads_to_no_other_execution(tmp_path):
    damage = Damage(tmp_path)
    with closing(sqlite3.connect(tmp_path / "whole.db")) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name LIKE '%autoindex_executions%'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    places = [place for place in range((page - 1) * size, page * size) if damage.whole[place]]
    outcomes = Counter(damage.outcome(flipped(damage.whole, place))[0] for place in places)
    assert outcomes.keys() <= {EQUAL, REFUSED}
    assert outcomes[REFUSED] > len(places) // 2


@pytest.mark.parametrize("sequence", range(1, 5))
def test_an_event_that_lost_its_checksum_is_damaged(tmp_path, sequence):
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.append(ONE, log(4), 0)
    tamper(path, f"UPDATE events SET checksum = NULL WHERE place & 255 = {sequence}")
    with SqliteStore(path) as store:
        for after in range(sequence):
            with pytest.raises(CorruptStoreError, match=rf"event {sequence}\b.*damaged"):
                store.read(ONE, after, sequence - after)


OTHER_TYPES = [
    ("events", "checksum", "'x'"),
    ("events", "recorded_at", "'x'"),
    ("events", "type", "'x'"),
    ("events", "id", "7.5"),
    ("events", "path", "x'ff'"),
    ("events", "data", "CAST('x' AS REAL)"),
    ("executions", "last_sequence", "'x'"),
    ("executions", "checksum", "'x'"),
    ("executions", "token", "'x'"),
    ("executions", "seal", "NULL"),
    ("executions", "created_at", "'x'"),
    ("executions", "tags", "7"),
    ("leases", "expires_at", "'x'"),
    ("leases", "pid", "'x'"),
    ("blobs", "digest", "'x'"),
    ("blobs", "data", "'x'"),
    ("checkpoints", "sequence", "'x'"),
    ("checkpoints", "data", "'x'"),
    ("summaries", "sequence", "'x'"),
    ("summaries", "data", "'x'"),
    ("messages", "payload", "7"),
    ("messages", "checksum", "NULL"),
    ("questions", "id", "x'ff'"),
]


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Give a store in which there is something in every table."""
    path = make_store(tmp_path_factory.mktemp("held"))
    with SqliteStore(path) as store:
        store.acquire(store.ids()[0], Owner.current())
        store.put_checkpoint(store.ids()[0], 1, b"x")
        store.put_summaries({store.ids()[0]: StoredSummary(1, b"x")})
    return path


@pytest.mark.parametrize(("table", "column", "value"), OTHER_TYPES)
def test_a_value_of_another_type_is_damage_and_no_raw_error(held, tmp_path, table, column, value):
    path = tmp_path / "copy.db"
    with SqliteStore(held) as store:
        ids, sound = store.ids(), dict(read_all(store, store.ids()))
    path.write_bytes(held.read_bytes())
    tamper(path, f"UPDATE {table} SET {column} = {value}")
    with SqliteStore(path) as store:
        found, report = dict(read_all(store, ids)), check(store)
    assert found.items() <= sound.items()
    assert found.keys() < sound.keys() or not report.ok


LEASE_COLUMNS = ["expires_at", "expires_uptime", "pid", "host"]


@pytest.mark.parametrize("column", LEASE_COLUMNS)
def test_a_damaged_lease_hides_no_other_execution_that_nobody_drives(column, tmp_path):
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        for name in (ONE, TWO, THREE):
            store.append(name, log(1, name), 0)
        store.acquire(ONE, Owner.current())
    tamper(path, f"UPDATE leases SET {column} = x'ff'")
    with SqliteStore(path) as store:
        lease = store.acquire(THREE, Owner.current())
        assert [record.execution_id for record in store.orphans()] == [TWO]
        assert (store.leases(), store.live_leases()) == ([lease], [lease])
        assert {record.execution_id for record in Environment(store=store).queues.recoverable()} == {TWO, THREE}


@pytest.mark.parametrize("column", LEASE_COLUMNS)
def test_a_damaged_lease_keeps_no_other_execution_from_workers(column, tmp_path):
    path = tmp_path / "store.db"
    flow = Workflow("w", [Step("s", script="1", store="n")])
    with Environment(store=SqliteStore(path), workflows=[flow]) as world:
        damaged, other = (world.enqueue("w").id for _ in range(2))
        world.store.acquire(damaged, Owner.current(), ttl_seconds=0)
    tamper(path, f"UPDATE leases SET {column} = x'ff'")
    with Environment(store=SqliteStore(path), workflows=[flow]) as world, Worker(world):
        assert world.run_of(other).wait(20).status == "completed"
        assert world.store.record(damaged).status == "enqueued"


@pytest.mark.parametrize(
    ("table", "column"),
    [*(("leases", column) for column in LEASE_COLUMNS), ("messages", "payload"), ("messages", "checksum")],
)
def test_a_damaged_row_of_an_execution_loses_no_message_to_it(table, column, tmp_path):
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.append(ONE, log(1), 0)
        store.post(Message(ONE, "signal", "go", 1, "ann@work:1", START))
        store.acquire(ONE, Owner.current(), ttl_seconds=0)
    tamper(path, f"UPDATE {table} SET {column} = x'ff'")
    answer = Message(ONE, "answer", "ask_1", True, "ann@work:2", START)
    with SqliteStore(path) as store:
        posted, lease = store.post_and_acquire(answer, Owner.current())
        assert posted == replace(answer, number=2)
        assert (lease is None) == (table == "leases")
        assert store.post(answer) == posted


def test_an_answer_that_was_stored_beside_a_damaged_lease_is_kept(tmp_path):
    path = tmp_path / "store.db"
    asks = Workflow("w", [Step("ask", ask="Who?", store="who")])
    with Environment(store=SqliteStore(path), workflows=[asks]) as world:
        run = world.start("w").wait(20)
        world.store.acquire(run.id, Owner.current(), ttl_seconds=0)
    tamper(path, "UPDATE leases SET pid = x'ff'")
    with Environment(store=SqliteStore(path), workflows=[asks]) as world:
        ((_, question),) = world.store.asking()
        with pytest.raises(AnswerKeptError):
            world.answer(question, "ann", run.id)
        assert [message.key for message in world.store.inbox(run.id)] == [question]


def test_the_lease_that_was_taken_with_a_message_is_returned_though_the_inbox_is_damaged():
    class Damaged(MemoryStore):
        def inbox(self, execution_id, after=0):
            raise CorruptStoreError("damaged")

    store = Damaged()
    store.append(ONE, log(1), 0)
    _, lease = store.post_and_acquire(Message(ONE, "answer", "ask_1", True, "ann@work:2", START), Owner.current())
    assert lease == store.lease_of(ONE)  # otherwise nobody would release it
    assert lease.unread is None
