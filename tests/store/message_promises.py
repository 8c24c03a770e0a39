"""What every store promises about messages: kept, numbered, first come first served, gone with their execution."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from divebook.engine.lifecycle import FINAL
from divebook.errors import (
    DecryptionError,
    ExecutionEndedError,
    ExecutionNotFoundError,
    FencedError,
    StoreClosedError,
    StoreError,
    UnreadMessageError,
    UnstorableValueError,
)
from divebook.events import catalog
from divebook.stores import MemoryStore, Message, Owner
from divebook.stores.codec import FernetCodec
from divebook.stores.maintenance import check
from divebook.stores.transfer import copy
from tests.store.logs import (
    ONE,
    SECOND,
    START,
    THREE,
    TWO,
    batch,
    completed,
    event,
    execution_id,
    failed,
    log,
    resumed,
    step,
)

NOW = START + 100 * SECOND
HOLDER = Owner("machine", 7, 1, "kernel")
FINAL_EVENTS = {
    "completed": catalog.ExecutionCompleted({}),
    "moved": catalog.ExecutionMoved("moved.jsonl"),
    "continued_as_new": catalog.ExecutionContinuedAsNew(TWO, "enough", {}),
    "snapshot": catalog.ExecutionSnapshotted("waiting"),
}
"""Events after which an execution can never continue, by the status to which they lead."""


def answer(key="ask_1", payload="yes", execution=ONE, source="ada@home:1"):
    return Message(execution, "answer", key, payload, source, START)


def signal(key="sig_1", payload=None, execution=ONE):
    return Message(execution, "signal", key, payload, "ada@home:1", START)


def keys(messages):
    return [message.key for message in messages]


def orphans(store, now=NOW):
    return [record.execution_id for record in store.orphans(now=now)]


class MessagePromises:
    """Part of the suite."""

    # --- posting

    def test_a_posted_message_is_in_the_inbox(self, store):
        store.append(ONE, log(1), 0)
        posted = store.post(answer())
        assert posted == replace(answer(), number=posted.number)
        assert store.inbox(ONE) == [posted]

    def test_every_field_of_a_message_survives(self, store):
        store.append(ONE, log(1), 0)
        payload = {"day": date(2025, 6, 1), "price": Decimal("1.10"), "list": [1, None, "ü"], "raw": b"\0\xff"}
        sent = Message(ONE, "signal", "ключ \0", payload, "ada@höme:7", START + 7)
        posted = store.post(sent)
        assert store.inbox(ONE) == store.new_messages(0) == [posted] == [replace(sent, number=posted.number)]

    def test_a_large_payload_of_a_message_survives(self, store):
        store.append(ONE, log(1), 0)
        text = "0123456789" * 100_000
        store.post(answer(payload=text))
        assert store.inbox(ONE)[0].payload == text

    def test_numbers_grow_from_message_to_message(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        posted = [store.post(answer("a")), store.post(answer("b", execution=TWO)), store.post(signal("a"))]
        numbers = [message.number for message in posted]
        assert 0 < numbers[0] < numbers[1] < numbers[2]

    def test_the_number_is_the_stores_to_give(self, store):
        store.append(ONE, log(1), 0)
        first = store.post(replace(answer("a"), number=99))
        second = store.post(replace(answer("b"), number=1))
        assert second.number > first.number

    def test_of_two_messages_with_one_key_the_first_stays(self, store):
        store.append(ONE, log(1), 0)
        first = store.post(answer(payload="yes"))
        assert store.post(answer(payload="no", source="bob@work:2")) == first
        assert store.inbox(ONE) == [first]

    def test_a_second_message_takes_no_number(self, store):
        store.append(ONE, log(1), 0)
        first = store.post(answer("a"))
        store.post(answer("a"))
        assert store.last_message() == first.number
        assert store.post(answer("b")).number > first.number

    def test_kinds_and_executions_have_keys_of_their_own(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        for message in (answer("x"), signal("x"), answer("x", execution=TWO)):
            store.post(message)
        assert [message.kind for message in store.inbox(ONE)] == ["answer", "signal"]
        assert keys(store.inbox(TWO)) == ["x"]

    def test_of_many_threads_with_one_key_one_wins(self, store):
        store.append(ONE, log(1), 0)
        barrier = threading.Barrier(8)

        def race(number):
            barrier.wait(10)
            return store.post(answer(payload=number))

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(race, range(8)))
        assert len({(message.number, message.payload) for message in answers}) == 1
        assert store.inbox(ONE) == answers[:1]

    def test_posting_to_an_unknown_execution_is_an_error(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(ExecutionNotFoundError, match="execution not found: exec_nobody"):
            store.post(answer(execution="exec_nobody"))
        assert store.new_messages(0) == []

    def test_what_has_ended_may_get_messages(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        store.post(signal())
        assert keys(store.inbox(ONE)) == ["sig_1"]

    def test_an_execution_that_can_never_continue_gets_no_messages(self, store):
        assert FINAL_EVENTS.keys() == FINAL
        for number, (end, data) in enumerate(FINAL_EVENTS.items(), 4):
            name = execution_id(number)
            store.append(name, log(2, name), 0)
            earlier = store.post(answer(execution=name))
            store.append(name, [event(3, data, name, path="")], 2)
            for sent in (answer("b"), signal(), replace(signal("c"), kind="annotation")):
                with pytest.raises(
                    ExecutionEndedError,
                    match=f"has the status '{end}', so no {sent.kind} event can be added to its log",
                ) as ended:
                    store.post(replace(sent, execution_id=name))
                assert (ended.value.run_id, ended.value.status, ended.value.event_type) == (name, end, sent.kind)
            assert store.post(answer(payload="no", execution=name)) == earlier
            assert store.inbox(name) == [earlier]
            assert store.last_message() == earlier.number

    # --- posting and taking the lease at once

    def test_a_message_is_posted_and_the_lease_taken_at_once(self, store):
        store.append(ONE, log(1), 0)
        first = store.post(signal("a"))
        second = store.post(signal("b"))
        posted, lease = store.post_and_acquire(answer(), HOLDER, after=first.number)
        assert posted == replace(answer(), number=second.number + 1)
        assert (lease.execution_id, lease.token, lease.owner, lease.was_left) == (ONE, 1, HOLDER, False)
        assert list(lease.unread) == [second, posted]
        assert (store.lease_of(ONE), store.inbox(ONE)) == (lease, [first, second, posted])
        with pytest.raises(FencedError):
            store.append(ONE, [step(2)], 1)

    def test_a_message_to_what_is_driven_is_kept_without_the_lease(self, store):
        store.append(ONE, log(1), 0)
        held = store.acquire(ONE, HOLDER)
        posted, lease = store.post_and_acquire(answer(), HOLDER)
        assert (lease, store.lease_of(ONE), store.inbox(ONE)) == (None, held, [posted])

    def test_a_lease_that_was_left_is_taken_with_a_message(self, store):
        store.append(ONE, log(1), 0)
        store.acquire(ONE, HOLDER, ttl_seconds=0)
        _, lease = store.post_and_acquire(answer(), HOLDER)
        assert (lease.token, lease.was_left) == (2, True)

    def test_a_later_message_with_the_same_key_takes_no_lease(self, store):
        store.append(ONE, log(1), 0)
        first = store.post(answer(payload="yes"))
        assert store.post_and_acquire(answer(payload="no", source="bob@work:2"), HOLDER) == (first, None)
        assert (store.lease_of(ONE), store.inbox(ONE)) == (None, [first])

    def test_what_can_get_no_message_gives_no_lease(self, store):
        store.append(ONE, [*log(2), completed(3)], 0)
        with pytest.raises(ExecutionEndedError):
            store.post_and_acquire(answer(), HOLDER)
        with pytest.raises(ExecutionNotFoundError):
            store.post_and_acquire(answer(execution="exec_nobody"), HOLDER)
        assert (store.leases(), store.inbox(ONE)) == ([], [])

    def test_messages_of_what_can_never_continue_are_brought_from_another_store(self, store):
        store.append(ONE, [*log(2), completed(3)], 0)
        brought = replace(answer(), number=4)
        store.bring([brought])
        assert store.inbox(ONE) == [brought]

    def test_what_cannot_be_stored_is_refused_with_its_place(self, store):
        store.append(ONE, log(1), 0)
        for payload, place in (({"a": [object()]}, r"payload\.a\[0\]"), ({"a": "\ud800"}, r"payload\.a")):
            with pytest.raises(UnstorableValueError, match=place):
                store.post(answer(payload=payload))
        with pytest.raises(UnstorableValueError, match="cannot store source"):
            store.post(answer(source="\ud800"))
        assert store.new_messages(0) == []

    def test_a_message_of_no_known_kind_is_an_error(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(ValueError, match="must be answer, signal, revocation or annotation, got 'shout'"):
            store.post(replace(answer(), kind="shout"))

    def test_a_message_without_a_key_is_an_error(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(ValueError, match="key of a message must not be empty"):
            store.post(answer(""))

    def test_a_payload_may_be_changed_without_changing_the_message(self, store):
        store.append(ONE, log(1), 0)
        payload = {"a": 1}
        posted = store.post(answer(payload=payload))
        for mine in (payload, posted.payload, store.inbox(ONE)[0].payload, store.post(answer()).payload):
            mine["a"] = 2
        assert store.inbox(ONE)[0].payload == {"a": 1}

    def test_a_message_is_no_event(self, store):
        store.append(ONE, log(3), 0)
        before = store.record(ONE)
        store.post(answer())
        assert (store.read(ONE), store.record(ONE)) == (log(3), before)

    # --- reading

    def test_the_inbox_leaves_out_what_came_before(self, store):
        store.append(ONE, log(1), 0)
        first, second, third = (store.post(answer(key)) for key in "cab")
        assert store.inbox(ONE, after=first.number) == [second, third]
        assert store.inbox(ONE, after=third.number) == []

    def test_an_execution_without_messages_has_an_empty_inbox(self, store):
        store.append(ONE, log(1), 0)
        assert store.inbox(ONE) == []

    def test_the_inbox_of_an_unknown_execution_is_an_error(self, store):
        with pytest.raises(ExecutionNotFoundError):
            store.inbox("exec_nobody")

    def test_new_messages_are_those_of_all_executions_in_order(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        sent = [store.post(answer(str(number), execution=(ONE, TWO)[number % 2])) for number in range(12)]
        assert store.new_messages(0) == sent
        assert store.new_messages(sent[4].number) == sent[5:]

    def test_messages_are_new_until_their_numbers_are_given(self, store):
        store.append(ONE, log(1), 0)
        assert store.new_messages(0) == []
        first = store.post(answer("a"))
        assert store.new_messages(0) == store.new_messages(0) == [first]
        assert store.new_messages(first.number) == []
        second = store.post(answer("b"))
        assert store.new_messages(first.number) == [second]

    def test_the_last_number_is_known(self, store):
        store.append(ONE, log(1), 0)
        assert store.last_message() == 0
        number = store.post(answer()).number
        assert store.last_message() == number

    # --- waiting for news

    def count_without_news(self, store):
        """Return the count of news of a store to which nothing is written."""
        return store.wait_for_news(-1, 20)

    def test_who_has_seen_nothing_is_told_at_once(self, store):
        seen = self.count_without_news(store)
        assert store.wait_for_news(seen, 0) == seen

    def test_a_message_is_news(self, store):
        store.append(ONE, log(1), 0)
        seen = store.wait_for_news(-1, 20)
        store.post(answer())
        assert store.wait_for_news(seen, 20) != seen

    def test_who_waits_is_woken_by_a_message(self, store):
        store.append(ONE, log(1), 0)
        seen = store.wait_for_news(-1, 20)
        with ThreadPoolExecutor(1) as pool:
            woken = pool.submit(store.wait_for_news, seen, 20)
            store.post(answer())
            assert woken.result(20) != seen

    def test_closing_the_store_ends_all_waiting_for_news(self, store):
        seen = store.wait_for_news(-1, 20)
        with ThreadPoolExecutor(1) as pool:
            woken = pool.submit(store.wait_for_news, seen, 60)
            store.close()
            with suppress(StoreClosedError):
                assert woken.result(20) != seen

    # --- deleting

    def test_messages_go_with_their_execution(self, store):
        ended = [*log(2, ONE), completed(3, ONE)]
        for delete in (
            lambda: store.delete(ONE),
            lambda: store.cleanup(datetime(2099, 1, 1, tzinfo=UTC)),
            lambda: store.discard([ONE]),
        ):
            store.append(ONE, log(2, ONE), 0)
            store.post(answer())
            store.append(ONE, [completed(3, ONE)], 2)
            delete()
            assert store.new_messages(0) == []
            store.append(ONE, ended, 0)
            assert store.inbox(ONE) == []
            store.delete(ONE)

    def test_the_messages_of_others_stay(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        store.post(answer())
        kept = store.post(answer(execution=TWO))
        store.delete(ONE)
        assert store.new_messages(0) == [kept]

    def test_a_number_is_not_given_again(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        gone = store.post(answer())
        store.delete(ONE)
        assert store.last_message() == gone.number
        later = store.post(answer(execution=TWO))
        assert store.new_messages(gone.number) == [later]

    # --- taking in

    def test_messages_are_untaken_until_the_log_says_otherwise(self, store):
        store.append_all([batch(ONE, 0, log(2, ONE)), batch(TWO, 0, log(2, TWO))])
        assert store.untaken() == set()
        number = store.post(answer()).number
        assert store.untaken() == {ONE}
        store.append_all([batch(ONE, 2, [step(3)], taken=number)])
        assert store.untaken() == set()
        store.post(answer("ask_2"))
        assert store.untaken() == {ONE}

    def test_what_has_ended_takes_nothing_until_it_is_resumed(self, store):
        store.append(ONE, log(2), 0)
        taken = store.post(answer()).number
        store.append_all([batch(ONE, 2, [step(3)], taken=taken)])
        store.post(answer("ask_2"))
        assert store.untaken() == {ONE}
        store.append(ONE, [failed(4)], 3)
        assert store.untaken() == set()
        store.post(answer("ask_3"))
        assert store.untaken() == set()
        assert not store.has_untaken(ONE)
        store.append(ONE, [resumed(5)], 4)
        assert store.untaken() == {ONE}
        assert store.has_untaken(ONE)
        last = store.post(answer("ask_4")).number
        store.append_all([batch(ONE, 5, [step(6)], taken=last)])
        assert store.untaken() == set()
        assert check(store).ok

    def test_only_what_exists_can_have_messages(self, store):
        with pytest.raises(ExecutionNotFoundError):
            store.has_untaken(ONE)

    def test_who_was_answered_last_is_known_whether_or_not_the_log_has_it(self, store):
        store.append_all([batch(ONE, 0, log(2, ONE)), batch(TWO, 0, log(2, TWO))])
        assert store.last_addressee("answer", "ask_1") is None
        store.post(answer(execution=TWO))
        number = store.post(answer()).number
        store.append_all([batch(ONE, 2, [step(3)], taken=number)])
        assert store.last_addressee("answer", "ask_1") == ONE
        store.delete(ONE)
        assert store.last_addressee("answer", "ask_1") == TWO
        assert store.last_addressee("signal", "ask_1") is store.last_addressee("answer", "ask_2") is None

    def test_a_refused_batch_takes_nothing_in(self, store):
        store.append(ONE, log(2), 0)
        number = store.post(answer()).number
        store.append_all([batch(ONE, 1, [step(2)], taken=number)])
        assert store.untaken() == {ONE}

    # --- read by the writer of a batch

    def test_a_batch_of_a_writer_that_has_read_all_messages_is_written(self, store):
        store.append_all([batch(ONE, 0, log(2)), batch(TWO, 0, log(2, TWO))])
        assert store.append_all([batch(ONE, 2, [step(3)], last_message=0)]) == [None]
        number = store.post(answer()).number
        store.post(answer(execution=TWO))
        assert store.append_all([batch(ONE, 3, [step(4)], last_message=number)]) == [None]
        assert store.append_all([batch(ONE, 4, [failed(5)], last_message=number + 7)]) == [None]
        assert store.record(ONE).status == "failed"

    def test_a_batch_of_a_writer_that_has_not_read_a_message_is_refused(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting")])
        before = store.record(ONE)
        first, second = (store.post(answer(key)).number for key in ("ask_1", "ask_2"))
        for number in (0, first):
            for events in ([step(3)], [completed(3)]):
                (refused,) = store.append_all([batch(ONE, 2, events, last_message=number)])
                assert isinstance(refused, UnreadMessageError)
                assert (refused.run_id, refused.last_message, refused.newest) == (ONE, number, second)
        assert (store.read(ONE), store.record(ONE)) == (log(2), before)
        assert store.append_all([batch(ONE, 2, [completed(3)], last_message=second)]) == [None]

    def test_a_refused_batch_of_a_writer_that_has_not_read_a_message_does_not_affect_the_others(self, store):
        store.append_all([batch(ONE, 0, log(2)), batch(TWO, 0, log(2, TWO))])
        store.post(answer())
        answers = store.append_all([batch(ONE, 2, [completed(3)], last_message=0), batch(TWO, 2, [step(3, TWO)])])
        assert [type(entry) for entry in answers] == [UnreadMessageError, type(None)]
        assert store.read(TWO) == [*log(2, TWO), step(3, TWO)]

    def test_a_message_that_is_in_the_log_also_counts_if_the_writer_has_not_read_it(self, store):
        store.append(ONE, log(2), 0)
        number = store.post(answer()).number
        store.append_all([batch(ONE, 2, [step(3)], taken=number)])
        (refused,) = store.append_all([batch(ONE, 3, [step(4)], last_message=0)])
        assert isinstance(refused, UnreadMessageError)

    def test_a_writer_that_has_lost_its_lease_learns_that_and_not_of_a_message(self, store):
        store.append(ONE, log(2), 0)
        store.acquire(ONE, Owner("elsewhere", 11, 1, "kernel"), 30, now=NOW)
        store.post(answer())
        (refused,) = store.append_all([batch(ONE, 2, [completed(3)], last_message=0)])
        assert isinstance(refused, FencedError)

    def test_of_messages_and_the_last_batch_of_one_execution_none_is_lost(self, store):
        """Either the batch is refused, or the message."""
        for number in range(4, 14):
            execution = execution_id(number)
            store.append(execution, log(2, execution), 0)
            barrier = threading.Barrier(2)

            def post(execution=execution, barrier=barrier):
                barrier.wait(10)
                try:
                    return store.post(answer(execution=execution))
                except ExecutionEndedError:
                    return None

            with ThreadPoolExecutor(1) as pool:
                posting = pool.submit(post)
                barrier.wait(10)
                (refused,) = store.append_all([batch(execution, 2, [completed(3, execution)], last_message=0)])
                assert (posting.result(20) is None) is (refused is None)

    # --- posted with the end of a child

    def test_the_end_of_a_child_posts_its_parent_a_message(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting"), batch(TWO, 0, log(2, TWO), parent=ONE)])
        assert store.inbox(ONE) == []
        store.append_all([batch(TWO, 2, [step(3, TWO)], parent=ONE)])
        assert orphans(store) == [TWO]
        store.append_all([batch(TWO, 3, [failed(4, TWO)], parent=ONE)])
        (message,) = store.inbox(ONE)
        payload = {"name": TWO, "payload": "failed"}
        assert message == Message(ONE, "signal", f"{TWO}/4", payload, TWO, START + 4 * SECOND, message.number)
        assert store.new_messages(0) == [message]
        assert orphans(store) == [ONE]
        assert store.untaken() == {ONE}
        assert check(store).ok

    def test_each_end_of_a_child_posts_a_message(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting")])
        store.append_all([batch(TWO, 0, [*log(2, TWO), failed(3, TWO)], parent=ONE)])
        store.append_all([batch(TWO, 3, [resumed(4, TWO), completed(5, TWO)], parent=ONE)])
        assert keys(store.inbox(ONE)) == [f"{TWO}/3", f"{TWO}/5"]

    def test_children_that_end_in_one_transaction_post_a_message_each(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting")])
        ends = [batch(name, 0, [*log(2, name), completed(3, name)], parent=ONE) for name in (TWO, THREE)]
        assert store.append_all(ends) == [None, None]
        assert keys(store.inbox(ONE)) == [f"{TWO}/3", f"{THREE}/3"]

    def test_a_refused_end_of_a_child_posts_nothing(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting"), batch(TWO, 0, log(2, TWO), parent=ONE)])
        refused, accepted = store.append_all(
            [batch(TWO, 1, [failed(2, TWO)], parent=ONE), batch(ONE, 2, [step(3)], status="waiting")]
        )
        assert isinstance(refused, StoreError)
        assert accepted is None
        assert store.inbox(ONE) == []
        assert orphans(store) == [TWO]

    def test_the_end_of_a_child_posts_nothing_to_a_parent_that_has_ended_or_is_unknown(self, store):
        store.append_all([batch(ONE, 0, [*log(2), failed(3)])])
        ends = [(TWO, ONE), (THREE, execution_id(4))]
        refusals = store.append_all(
            [batch(child, 0, [*log(2, child), failed(3, child)], parent=to) for child, to in ends]
        )
        assert refusals == [None, None]
        assert store.new_messages(0) == []

    def test_the_end_of_a_child_is_news(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting"), batch(TWO, 0, log(2, TWO), parent=ONE)])
        seen = store.wait_for_news(0, 0)
        store.append_all([batch(TWO, 2, [completed(3, TWO)], parent=ONE)])
        assert store.wait_for_news(seen, 20) > seen

    # --- what can be recovered

    def test_what_runs_and_nobody_drives_is_an_orphan(self, store):
        store.append_all([batch(ONE, 0, log(2, ONE), status="running"), batch(TWO, 0, log(2, TWO), status="pending")])
        assert sorted(orphans(store)) == [ONE, TWO]

    def test_what_waits_for_an_answer_is_no_orphan_before_there_is_one(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting")])
        assert orphans(store) == []
        number = store.post(answer()).number
        assert orphans(store) == [ONE]
        store.append_all([batch(ONE, 2, [step(3)], taken=number)])
        assert orphans(store) == []

    def test_what_waits_for_a_time_is_an_orphan_once_it_has_come(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting", wake_at=NOW)])
        assert orphans(store, NOW - 1) == []
        assert orphans(store, NOW) == [ONE]

    def test_what_waits_and_is_driven_is_no_orphan(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting", wake_at=START)])
        store.post(answer())
        store.acquire(ONE, Owner("elsewhere", 11, 1, "kernel"), 30, now=NOW)
        assert orphans(store, NOW + SECOND) == []
        assert orphans(store, NOW + 31 * SECOND) == [ONE]

    def test_what_has_ended_is_no_orphan_whatever_is_sent_to_it(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        store.post(signal())
        assert orphans(store) == []

    # --- brought from another store

    def test_messages_are_brought_with_their_numbers(self, store):
        store.append_all([batch(ONE, 0, log(2), taken=7), batch(TWO, 0, log(1, TWO))])
        brought = [replace(answer(f"ask_{n}", {"n": n}, to), number=n) for n, to in ((3, ONE), (7, ONE), (9, TWO))]
        store.bring(brought)
        assert store.new_messages(0) == brought
        assert store.last_message() == 9
        assert store.untaken() == {TWO}
        assert store.post(answer("ask_3", "again")) == brought[0]
        assert store.post(answer("later")).number == 10
        assert check(store).ok

    def test_of_messages_that_are_brought_all_or_none_are_kept(self, store):
        store.append(ONE, log(1), 0)
        store.post(answer())
        for wrong in (replace(answer("a"), number=1), replace(answer("b", execution=TWO), number=3)):
            with pytest.raises(StoreError):
                store.bring([replace(answer("c"), number=2), wrong])
        assert keys(store.inbox(ONE)) == ["ask_1"]
        assert store.last_message() == 1

    def test_a_message_that_cannot_be_decrypted_is_not_left_out_of_a_copy(self, store):
        store.append(ONE, log(1), 0)
        store.post(answer("readable"))
        store.sealing.codec = FernetCodec(FernetCodec.new_key())
        store.post(answer("encrypted"))
        store.sealing.codec = None
        assert keys(store.new_messages(0)) == ["readable"]
        with MemoryStore() as target:
            with pytest.raises(DecryptionError, match=f"messages to execution {ONE} in .*: .*no key is set"):
                copy(store, target)
            assert target.new_messages(0) == []

    def test_a_closed_store_takes_no_messages(self, store):
        store.append(ONE, log(1), 0)
        store.close()
        uses = (
            lambda: store.post(answer()),
            lambda: store.inbox(ONE),
            lambda: store.new_messages(0),
            lambda: store.wait_for_news(-1, 0),
            store.last_message,
            store.untaken,
            lambda: store.last_addressee("answer", "ask_1"),
        )
        for use in uses:
            with pytest.raises(StoreError, match="is closed"):
                use()
