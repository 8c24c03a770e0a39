"""What only a store on a server has to show: round trips, lost connections, other clocks, other processes."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest

from divebook import Environment, Step, Workflow
from divebook.engine.inbox import SIGNAL, Message, signal_payload
from divebook.errors import (
    ConcurrentAppendError,
    ConnectionLostError,
    CorruptStoreError,
    ExecutionEndedError,
    LeaseHeldError,
    NewerStoreError,
    StoreBusyError,
    StoreError,
    UnreadMessageError,
)
from divebook.events.catalog import StepCompleted
from divebook.stores import Owner
from divebook.stores.leases import Moment
from divebook.stores.maintenance import check
from divebook.stores.postgres import PostgresStore, schema, tables
from divebook.stores.postgres.connections import DatabaseAddress, escaped, unescaped
from divebook.stores.postgres.logs import arguments_of_post
from tests.postgres.proxy import AFTER, BEFORE, LATE, proxy
from tests.postgres.racing import race
from tests.runtime.ending_children import check_recovery, check_worker
from tests.runtime.racing_moves import race as race_moves
from tests.runtime.worlds import becomes
from tests.store.large_promises import text
from tests.store.logs import ONE, TWO, batch, completed, event, execution_id, failed, log, resumed, step, steps

HOUR = 3600


@pytest.fixture
def between(server, tmp_path_factory, address):
    with proxy(tmp_path_factory.mktemp("p"), server) as made:
        yield made


# --- round trips


def test_a_commit_of_many_executions_is_one_round_trip(between):
    names = [execution_id(number) for number in range(20)]
    with PostgresStore(between.url()) as store:
        store.append_all([batch(name, 0, log(1, name), acquire=Owner.current()) for name in names])
        large = event(2, StepCompleted(output=text(80_000)), names[0])
        between.trips = 0
        first = [batch(names[0], 1, [large], 1), *(batch(name, 1, steps(2, 4, name), 1) for name in names[1:])]
        assert store.append_all(first) == [None] * 20
        assert between.trips == 1
        assert store.append_all([batch(name, 4, [completed(5, name)], 1) for name in names[1:]]) == [None] * 19
        assert between.trips == 2


def test_beginning_posting_and_reading_are_one_round_trip_each(between):
    with PostgresStore(between.url()) as store:
        store.append(TWO, log(1, TWO), 0)  # the types of records have their numbers
        store.read(TWO)
        for call, most in (
            (lambda: store.append(ONE, log(3), 0), 1),
            (lambda: store.read(ONE), 1),
            (store.records, 1),
            (lambda: store.post(Message(ONE, SIGNAL, "go", signal_payload("go", 1), "test", 1)), 2),
        ):
            between.trips = 0
            call()
            assert between.trips <= most


# --- lost connections


@pytest.mark.parametrize("loss", [BEFORE, AFTER])
def test_a_commit_whose_connection_was_lost_is_settled_by_the_end_of_the_log(between, loss):
    with PostgresStore(between.url()) as store:
        store.append(ONE, log(1), 0)
        for last in range(1, 21, 2):
            between.losses.append(loss)
            with pytest.raises(ConnectionLostError, match="cannot be reached"):
                store.append(ONE, steps(last + 1, last + 2), last)
            assert store.append_all([batch(ONE, last, steps(last + 1, last + 2), again=True)]) == [None]
        assert store.read(ONE) == log(21)
        assert check(store).ok


def test_a_commit_that_the_server_makes_after_all_is_not_made_twice(between, monkeypatch):
    with PostgresStore(between.url()) as store:
        store.append(ONE, log(1), 0)
        between.losses.append(LATE)
        with pytest.raises(ConnectionLostError):
            store.append(ONE, steps(2, 3), 1)
        write = store._write

        def after_the_other(batches):
            between.release()  # this process has looked, and has not found it
            return write(batches)

        monkeypatch.setattr(store, "_write", after_the_other)
        assert store.append_all([batch(ONE, 1, steps(2, 3), again=True)]) == [None]
        assert store.read(ONE) == log(3)


def test_a_second_look_for_a_commit_in_doubt_that_fails_refuses_no_other_batch(between, monkeypatch):
    def refuse(*_):
        raise StoreBusyError("the server has no room")

    with PostgresStore(between.url()) as store:
        store.append(ONE, log(1), 0)
        between.losses.append(LATE)
        with pytest.raises(ConnectionLostError):
            store.append(ONE, steps(2, 3), 1)
        write = store._write

        def after_the_other(batches):
            between.release()
            monkeypatch.setattr(store, "_read", refuse)
            return write(batches)

        monkeypatch.setattr(store, "_write", after_the_other)
        in_doubt = batch(ONE, 1, steps(2, 3), again=True)
        first, second = store.append_all([in_doubt, batch(TWO, 0, log(1, TWO))])
        monkeypatch.undo()
        assert (type(first), second) == (StoreBusyError, None)
        assert store.append_all([in_doubt]) == [None]
        assert (store.read(ONE), store.read(TWO)) == (log(3), log(1, TWO))


@pytest.mark.parametrize("loss", [BEFORE, AFTER])
def test_a_lease_whose_connection_was_lost_is_held_or_not_taken(between, loss):
    with PostgresStore(between.url()) as store:
        store.append(ONE, log(1), 0)
        between.watched = b"COMMIT"
        between.losses.append(loss)
        if loss == BEFORE:
            with pytest.raises(ConnectionLostError):
                store.acquire(ONE, Owner.current())
        lease = store.acquire(ONE, Owner.current())
        assert store.leases() == [lease]
        store.append(ONE, [step(2)], 1, lease.token)


def test_a_store_that_nobody_holds_any_more_has_no_connections(server, address):
    store = PostgresStore(address)
    store.append(ONE, log(1), 0)
    store.read(ONE)
    links = [store._connections._writer, *store._connections._idle_readers]
    del store
    assert [link.closed for link in links] == [True] * 2


def test_another_writers_events_are_not_taken_for_a_commit_in_doubt(between, address):
    with PostgresStore(between.url()) as store, PostgresStore(address) as other:
        store.append(ONE, log(1), 0)
        between.losses.append(BEFORE)
        with pytest.raises(ConnectionLostError):
            store.append(ONE, [step(2)], 1)
        mine = event(2, StepCompleted(output="other"), event_id="event-other")
        other.append(ONE, [mine], 1)
        assert isinstance(store.append_all([batch(ONE, 1, [step(2)], again=True)])[0], ConcurrentAppendError)
        assert store.read(ONE)[1:] == [mine]


NOTED = Workflow("noted", [Step(f"step {n}", script=f"{n} + 1", store=f"n{n}") for n in range(8)])


def test_executions_go_on_when_connections_are_lost(between):
    environment = Environment(store=between.url())
    between.losses.extend([None, BEFORE, AFTER, None, LATE, AFTER])
    done = environment.start(NOTED).wait(60)
    assert (done.status, done.state.variables["n7"]) == ("completed", 8)
    between.release()
    assert not between.losses
    assert check(environment.store).ok
    environment.store.close()


def test_executions_go_on_when_the_server_was_stopped(server, address):
    environment = Environment(store=address)
    begun = environment.start(Workflow("asks", [Step("ask", ask="Go on?", store="said"), *NOTED.steps])).wait(20)
    ((_, question),) = environment.inbox()
    server.stop()
    server.start()
    environment.answer(question.id, "yes")
    assert environment.run_of(begun.id).wait(60).status == "completed"
    environment.store.close()


def test_what_reads_gets_a_new_connection_by_itself(server, store):
    store.append(ONE, log(3), 0)
    server.stop()
    with pytest.raises(ConnectionLostError):
        store.read(ONE)
    server.start()
    assert store.read(ONE) == log(3)
    store.append(ONE, [step(4)], 3)


# --- clocks


def test_of_two_clocks_an_hour_apart_the_servers_decides(store, address, monkeypatch):
    """One whose clock is fast would take leases that are held; what one whose clock is slow has would never lapse."""
    for name, hours, number in (("fast", 1, 1), ("slow", -1, 2)):
        execution, now = execution_id(number), time.time_ns()
        with monkeypatch.context() as patch:
            wrong = now + hours * HOUR * 10**9
            patch.setattr(time, "time_ns", lambda wrong=wrong: wrong)
            begun = [event(1, log(1)[0].data, execution, at=wrong // 1000, path="")]
            store.append_all([batch(execution, 0, begun, acquire=Owner("there", 1, 1, name))])
            (lease,) = [lease for lease in store.live_leases() if lease.execution_id == execution]
            due = now // 1000 + 30_000_000
            assert abs(lease.expires_at - due) < 5_000_000
            assert store.renew([lease], 30) == [True]
            assert abs(store.lease_of(execution).expires_at - due) < 5_000_000
            with PostgresStore(address) as other, pytest.raises(LeaseHeldError):
                other.acquire(execution, Owner("here", 2, 1, "kernel"))
            assert store.orphans() == []


# --- several processes


def test_two_stores_see_each_other(store, address):
    with PostgresStore(address) as there:
        store.append(ONE, log(2), 0)
        there.append(ONE, steps(3, 4), 2)
        assert store.read(ONE) == log(4)
        store.append(ONE, steps(5, 6), 4)
        twin = event(7, StepCompleted(), event_id=step(3).id)
        assert "already in the log" in str(there.append_all([batch(ONE, 6, [twin])])[0])
        there.delete(ONE)
        assert type(store.append_all([batch(ONE, 6, steps(7, 8))])[0]).__name__ == "ExecutionNotFoundError"
        there.append(ONE, log(2), 0)
        store.append(ONE, steps(3, 4), 2)
        assert there.read(ONE) == log(4)


def test_processes_that_race_for_one_execution_leave_one_sound_log(server):
    url = server.url("race")  # they make its tables at once as well
    race(url, 20)


def test_a_message_and_what_is_appended_to_a_followed_log_are_heard_by_others(store, address):
    heard, marks = threading.Event(), []

    def hear():
        heard.set()

    def wait_for(ready):
        until = time.monotonic() + 20
        while not ready():
            assert heard.wait(max(0.0, until - time.monotonic()))
            heard.clear()
        marks.append(time.monotonic())

    with PostgresStore(address) as there:
        there.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        end = store.on_news(hear, ONE)
        wait_for(lambda: _followers(address) == 1)
        there.append(TWO, [step(2, TWO)], 1)  # nobody follows it: nothing is told
        there.append(ONE, [step(2)], 1)
        wait_for(lambda: len(store.read(ONE)) == 2)
        there.post(Message(TWO, SIGNAL, "go", signal_payload("go", 1), "test", 1))
        wait_for(lambda: store.new_messages(0) != [])
        end()


def _followers(address):
    with psycopg.connect(DatabaseAddress.of(address).conninfo) as link:
        return link.execute("SELECT count(*) FROM divebook.followers").fetchone()[0]


def test_the_messages_of_many_senders_are_seen_in_the_order_of_their_numbers(store, address):
    store.append(ONE, log(1), 0)
    seen, done = [], threading.Event()

    def look():
        while not done.is_set():
            seen.extend(message.number for message in store.new_messages(seen[-1] if seen else 0))

    with ThreadPoolExecutor(5) as pool, PostgresStore(address) as second, PostgresStore(address) as third:
        looking = pool.submit(look)
        senders = [
            pool.submit(sender.post, Message(ONE, SIGNAL, f"{which}-{number}", signal_payload("go", 1), "test", 1))
            for number in range(25)
            for which, sender in enumerate((second, third, second, third))
        ]
        for sent in senders:
            sent.result(20)
        done.set()
        looking.result(20)
        seen.extend(message.number for message in store.new_messages(seen[-1]))
    assert seen == list(range(1, 101))


def test_large_values_are_not_deleted_under_who_refers_to_them(store, address):
    """The one who deletes what nobody uses, and those that begin to use it, take turns."""
    output = text(80_000)
    with PostgresStore(address) as other, ThreadPoolExecutor(2) as pool:

        def drop():
            for _ in range(30):
                other.drop_blobs()

        dropping = pool.submit(drop)
        for number in range(30):
            name = execution_id(number)
            store.append(name, [*log(1, name), event(2, StepCompleted(output=output), name)], 0)
            assert store.read(name)[1].data.output == output
            store.delete(name)
        dropping.result(20)


def test_no_message_is_brought_below_one_that_another_process_has_just_posted(store, address):
    store.append(ONE, log(1), 0)
    brought = Message(ONE, SIGNAL, "go", signal_payload("go", 1), "test", 1, 5)
    with psycopg.connect(DatabaseAddress.of(address).conninfo) as other, ThreadPoolExecutor(1) as pool:
        other.execute("UPDATE divebook.last_message SET number = 9")
        bringing = pool.submit(store.bring, [brought])
        assert becomes(lambda: other.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall())
        other.commit()
        with pytest.raises(
            StoreError,
            match="message 5 cannot be copied to this store, which already has messages with numbers up to 9",
        ):
            bringing.result(20)
    assert (store.last_message(), store.new_messages(0)) == (9, [])


RESUMPTIONS = {
    "resumed": lambda store: store.append(TWO, [resumed(4, TWO)], 3),
    "about to be resumed": lambda store: store.acquire(TWO, Owner("there", 1, 1, "kernel")),
}


@pytest.mark.parametrize("resume", RESUMPTIONS.values(), ids=RESUMPTIONS.keys())
def test_what_is_resumed_while_a_cleanup_waits_is_not_deleted(store, address, resume):
    store.append_all([batch(name, 0, [*log(2, name), failed(3, name)]) for name in (ONE, TWO)])
    with (
        PostgresStore(address) as other,
        psycopg.connect(DatabaseAddress.of(address).conninfo) as person,
        ThreadPoolExecutor(1) as pool,
    ):
        other.read(TWO)
        person.execute("SELECT FROM divebook.executions WHERE id = %s FOR UPDATE", (ONE,))
        cleaning = pool.submit(store.cleanup, datetime(2099, 1, 1, tzinfo=UTC))
        assert becomes(lambda: person.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall())
        resume(other)
        person.rollback()
        assert cleaning.result(20) == 1
        assert other.ids() == [TWO]


# --- the schema


def test_a_schema_of_another_program_is_left_alone(server):
    with psycopg.connect(DatabaseAddress.of(server.url()).conninfo, autocommit=True) as link:
        link.execute("CREATE SCHEMA IF NOT EXISTS foreigner; CREATE TABLE IF NOT EXISTS foreigner.t (x integer)")
    with pytest.raises(CorruptStoreError, match=r"belongs to another program \(tables: t\)"):
        PostgresStore(server.url("foreigner"))


def test_a_store_of_a_newer_version_is_refused(server):
    url = server.url("newer")
    PostgresStore(url).close()
    with psycopg.connect(DatabaseAddress.of(url).conninfo, autocommit=True) as link:
        link.execute("UPDATE newer.format SET number = 99")
    with pytest.raises(
        NewerStoreError, match=r"it has format 99, but this version supports formats up to 7\. Upgrade divebook"
    ):
        PostgresStore(url)


def test_a_migration_that_fails_leaves_what_was_there(server, monkeypatch):
    url = server.url("halfway")
    with monkeypatch.context() as patch:
        patch.setattr(
            schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE divebook.more (x integer)", "nonsense"))
        )
        with pytest.raises(StoreError, match="nonsense"):
            PostgresStore(url)
    with PostgresStore(url) as store:
        store.append(ONE, log(1), 0)
        store.delete(ONE)


def test_people_can_read_the_log_with_sql(store, address):
    store.append(ONE, log(3), 0)
    with psycopg.connect(DatabaseAddress.of(address).conninfo) as link:
        select = "SELECT sequence, event_types, path, step FROM divebook.log WHERE execution_id = %s ORDER BY sequence"
        rows = link.execute(select, (ONE,)).fetchall()
    assert rows[:2] == [(1, "execution_started", "", ""), (2, "step_started", "main", "step-1")]


@pytest.mark.parametrize("plain", ["", "a\0b", "\\", "\\0", "\\\\0\0", "ü"])
def test_texts_come_back(plain):
    assert "\0" not in escaped(plain)
    assert unescaped(escaped(plain)) == plain


@pytest.mark.parametrize("check", [check_recovery, check_worker])
def test_a_parent_continues_if_the_process_dies_right_after_the_end_of_its_child(check, address):
    check(address)


# --- messages and moves of other processes


def waits_for_a_lock(store):
    """Return whether some session of the server waits for a lock within 20 s. It reads with `store`."""
    return becomes(
        lambda: bool(store._connections.read("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
    )


OTHER_OWNER = Owner("there", 1, 1, "kernel")


CALLS_WITH_A_LEASE = {
    "release": lambda store, lease: store.release(lease),
    "renew": lambda store, lease: store.renew([lease]),
}


@pytest.mark.parametrize("call", CALLS_WITH_A_LEASE.values(), ids=CALLS_WITH_A_LEASE.keys())
def test_what_waits_for_a_take_over_does_not_act_on_the_new_lease(store, address, call):
    """The server then sees the new row of the lease beside the old row of the execution, in which the token fits."""
    store.append(ONE, log(1), 0)
    lease = store.acquire(ONE, Owner.current())
    with PostgresStore(address) as other, ThreadPoolExecutor(1) as threads:
        with other._connections.transaction() as execute:
            tables.lock_execution(execute, ONE)
            taken = tables.write_next_lease(execute, ONE, OTHER_OWNER, Moment(lease.expires_at + 1, None))
            waiting = threads.submit(call, store, lease)
            assert waits_for_a_lock(other)
        assert waiting.result(20) in (None, [False])
        assert other.lease_of(ONE) == taken


def test_a_move_waits_for_a_message_that_is_being_posted_and_is_refused(store, address):
    store.append(ONE, log(2), 0)
    message = Message(ONE, SIGNAL, "go", signal_payload("go", 1), "test", 1)
    with PostgresStore(address) as other, ThreadPoolExecutor(1) as threads:
        with other._connections.transaction() as execute:
            execute("SELECT divebook.post_message(%s, %s, %s, %s, %s, %s, %s, %s)", arguments_of_post(message, b"{}"))
            moving = threads.submit(store.append_all, [batch(ONE, 2, [completed(3)], last_message=0)])
            assert waits_for_a_lock(other)
        (refused,) = moving.result(20)
    assert isinstance(refused, UnreadMessageError)
    assert (refused.last_message, refused.newest) == (0, store.last_message())
    assert store.read(ONE) == log(2)


def test_a_message_waits_for_a_move_that_is_being_committed_and_is_refused(store, address):
    store.append(ONE, log(2), 0)
    message = Message(ONE, SIGNAL, "go", signal_payload("go", 1), "test", 1)
    with PostgresStore(address) as other, ThreadPoolExecutor(1) as threads:
        with store._connections.transaction() as execute:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store._connections, "write", execute)
                assert store.append_all([batch(ONE, 2, [completed(3)], last_message=0)]) == [None]
            posting = threads.submit(other.post, message)
            assert waits_for_a_lock(other)
        with pytest.raises(
            ExecutionEndedError, match="has the status 'completed', so no signal event can be added to its log"
        ):
            posting.result(20)
    assert store.inbox(ONE) == []


def test_no_answer_of_another_process_is_lost_when_executions_move(address):
    assert race_moves(address, 9).total() == 9
