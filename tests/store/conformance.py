"""What every event store promises, one small test each.

A store's test module subclasses `StorePromises` and says in `make_store` how to open an empty one. Each promise takes
just the store, so that ``test_broken_stores.py`` can run them against stores that break their word.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal

import pytest

from divebook.errors import (
    ConcurrentAppendError,
    CorruptStoreError,
    ExecutionNotFoundError,
    InvalidEventError,
    StoreError,
)
from divebook.events.catalog import (
    ExecutionCompleted,
    Mutation,
    OperationCompleted,
    PathBranched,
    StateMutated,
    StepCompleted,
)
from divebook.events.values import normalize
from tests.store.fork_promises import ForkPromises
from tests.store.keeping_promises import KeepingPromises
from tests.store.large_promises import LargePromises
from tests.store.lease_promises import LeasePromises
from tests.store.life_promises import LifePromises
from tests.store.listening_promises import ListeningPromises
from tests.store.listing_promises import ListingPromises
from tests.store.logs import (
    ONE,
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
    started,
    step,
    steps,
)
from tests.store.message_promises import MessagePromises
from tests.store.queue_promises import QueuePromises
from tests.store.record_promises import RecordPromises, ids
from tests.store.wide_promises import WidePromises


def sequences(events):
    return [entry.sequence for entry in events]


class StorePromises(
    RecordPromises,
    LifePromises,
    ListeningPromises,
    ListingPromises,
    LeasePromises,
    MessagePromises,
    QueuePromises,
    LargePromises,
    KeepingPromises,
    WidePromises,
    ForkPromises,
):
    """The suite; subclasses provide `make_store`."""

    def make_store(self, folder):
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path):
        with self.make_store(tmp_path) as store:
            yield store

    # --- appending and reading

    def test_what_is_appended_is_read_back(self, store):
        store.append(ONE, log(3), 0)
        assert store.read(ONE) == log(3)

    def test_every_field_of_an_event_survives(self, store):
        store.append(ONE, log(1), 0)
        original = event(2, StepCompleted(output="ü"), at=START + 7, path="main-1-2", step="Schritt ä")
        store.append(ONE, [original], 1)
        assert store.read(ONE, after=1) == [original]

    def test_the_class_of_a_payload_survives(self, store):
        store.append(ONE, [*log(2), completed(3)], 0)
        assert isinstance(store.read(ONE)[2].data, ExecutionCompleted)

    def test_an_id_that_is_not_a_type_id_survives(self, store):
        odd = ["x", "event_", "event_" + "Z" * 26, "event_" + "u" * 26, "event_" + "z" * 26, "event_" + "é" * 26]
        store.append(ONE, log(1), 0)
        store.append(ONE, [event(n, StepCompleted(), event_id=name) for n, name in enumerate(odd, 2)], 1)
        assert [entry.id for entry in store.read(ONE, after=1)] == odd

    def test_values_that_json_lacks_survive(self, store):
        values = {
            "day": date(2025, 6, 1),
            "price": Decimal("1.10"),
            "raw": b"\0\xff",
            "big": 2**80,
            "inf": float("inf"),
        }
        store.append(ONE, log(1), 0)
        store.append(ONE, [event(2, OperationCompleted("op_1", "x", 1, normalize(values)))], 1)
        assert store.read(ONE)[1].data.result == values

    def test_nested_payloads_survive(self, store):
        branch = PathBranched(new_paths=[{"id": "main-1", "current_step": "a"}, {"id": "main-2", "current_step": "b"}])
        change = StateMutated((Mutation("set", "x", [1, {"y": None}]), Mutation("delete", "z")))
        events = [*log(1), event(2, branch), event(3, change)]
        store.append(ONE, events, 0)
        assert store.read(ONE) == events

    def test_events_come_in_ascending_order(self, store):
        store.append(ONE, log(2), 0)
        store.append(ONE, steps(3, 12), 2)
        assert sequences(store.read(ONE)) == list(range(1, 13))

    def test_times_may_run_backwards(self, store):
        store.append(ONE, [started(), event(2, StepCompleted(), at=START - 5)], 0)
        assert sequences(store.read(ONE)) == [1, 2]

    def test_reading_after_a_sequence_leaves_out_what_came_before(self, store):
        store.append(ONE, log(3), 0)
        assert sequences(store.read(ONE, after=1)) == [2, 3]

    def test_reading_after_the_last_gives_nothing(self, store):
        store.append(ONE, log(3), 0)
        assert store.read(ONE, after=3) == store.read(ONE, after=99) == []

    def test_a_limit_ends_the_reading(self, store):
        store.append(ONE, log(9), 0)
        assert sequences(store.read(ONE, after=2, limit=3)) == [3, 4, 5]

    def test_a_limit_of_zero_events_is_no_event(self, store):
        store.append(ONE, log(3), 0)
        assert store.read(ONE, limit=0) == []

    def test_a_negative_limit_is_an_error(self, store):
        store.append(ONE, log(3), 0)
        with pytest.raises(ValueError, match="limit must not be negative, got -1"):
            store.read(ONE, limit=-1)

    def test_reading_an_unknown_execution_is_an_error(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(ExecutionNotFoundError, match="execution not found: exec_nobody"):
            store.read("exec_nobody")

    def test_a_sound_log_is_read_whole_and_without_complaint(self, store):
        store.append(ONE, log(450), 0)
        assert store.read_sound(ONE) == (log(450), None)
        with pytest.raises(ExecutionNotFoundError):
            store.read_sound("exec_nobody")

    def test_facts_are_the_payloads_of_single_events(self, store):
        store.append(ONE, log(5), 0)
        assert store.facts(ONE, [4, 2]) == {number: log(5)[number - 1].data for number in (2, 4)}
        with pytest.raises(CorruptStoreError, match=f"event 9 of execution {ONE} is missing"):
            store.facts(ONE, [2, 9])
        with pytest.raises(ExecutionNotFoundError):
            store.facts("exec_nobody", [1])

    def test_ten_thousand_events_fit_in_one_batch(self, store):
        store.append(ONE, log(10_000), 0)
        assert len(store.read(ONE)) == 10_000

    def test_a_large_payload_survives(self, store):
        text = "0123456789" * 100_000
        store.append(ONE, [started(), event(2, StepCompleted(output=text))], 0)
        assert store.read(ONE)[1].data.output == text

    def test_executions_do_not_mix(self, store):
        store.append(ONE, log(3, ONE), 0)
        store.append(TWO, log(2, TWO), 0)
        store.append(ONE, steps(4, 5, ONE), 3)
        assert store.read(ONE) == log(5, ONE)
        assert store.read(TWO) == log(2, TWO)

    def test_a_read_payload_may_be_changed_without_changing_the_log(self, store):
        store.append(ONE, log(1), 0)
        store.read(ONE)[0].data.inputs["name"] = "Eve"
        assert store.read(ONE)[0].data.inputs == {"name": "Ada"}

    def test_a_payload_changed_after_the_append_does_not_change_the_log(self, store):
        first = started()
        store.append(ONE, [first], 0)
        first.data.inputs["name"] = "Eve"
        assert store.read(ONE)[0].data.inputs == {"name": "Ada"}

    def test_an_empty_batch_changes_nothing(self, store):
        store.append(ONE, [], 0)
        assert store.records() == []

    # --- what is refused

    def test_a_wrong_expected_sequence_is_refused(self, store):
        store.append(ONE, log(3), 0)
        with pytest.raises(ConcurrentAppendError) as caught:
            store.append(ONE, steps(3, 4), 2)
        assert (caught.value.expected, caught.value.actual) == (2, 3)

    def test_an_expected_sequence_ahead_of_the_log_is_refused(self, store):
        store.append(ONE, log(3), 0)
        with pytest.raises(ConcurrentAppendError):
            store.append(ONE, steps(5, 6), 4)

    def test_a_refused_batch_leaves_nothing_behind(self, store):
        store.append(ONE, log(3), 0)
        before = store.record(ONE)
        with pytest.raises(ConcurrentAppendError):
            store.append(ONE, [*steps(3, 4), failed(5)], 2)
        assert (store.read(ONE), store.record(ONE)) == (log(3), before)

    def test_the_same_batch_sent_twice_is_refused(self, store):
        store.append(ONE, log(2), 0)
        store.append(ONE, steps(3, 4), 2)
        with pytest.raises(ConcurrentAppendError):
            store.append(ONE, steps(3, 4), 2)

    def test_an_execution_begins_once(self, store):
        store.append(ONE, log(2), 0)
        with pytest.raises(ConcurrentAppendError):
            store.append(ONE, log(1), 0)

    def test_appending_goes_on_after_a_refusal(self, store):
        store.append(ONE, log(2), 0)
        with pytest.raises(ConcurrentAppendError):
            store.append(ONE, steps(2, 3), 1)
        store.append(ONE, steps(3, 4), 2)
        assert sequences(store.read(ONE)) == [1, 2, 3, 4]

    def test_an_unknown_execution_cannot_be_carried_on(self, store):
        with pytest.raises(ExecutionNotFoundError):
            store.append(ONE, steps(4, 5), 3)

    def test_a_log_begins_with_execution_started(self, store):
        with pytest.raises(
            InvalidEventError, match=r"invalid event at index 0: a log must begin with an execution_started event"
        ):
            store.append(ONE, [event(1, StepCompleted())], 0)
        assert store.records() == []

    def test_execution_started_comes_once(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(InvalidEventError, match="invalid event at index 0"):
            store.append(ONE, [event(2, started().data)], 1)

    def test_one_invalid_event_refuses_the_whole_batch(self, store):
        store.append(ONE, log(1), 0)
        bad = event(3, StepCompleted(), at=0)
        with pytest.raises(InvalidEventError, match="invalid event at index 1: timestamp is required"):
            store.append(ONE, [step(2), bad, step(4)], 1)
        assert sequences(store.read(ONE)) == [1]

    def test_something_else_than_an_event_is_refused(self, store):
        with pytest.raises(InvalidEventError, match="invalid event at index 0: expected an Event, got dict"):
            store.append(ONE, [{"id": "invalid-event"}], 0)

    def test_a_gap_in_the_sequence_is_refused(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(InvalidEventError, match="index 1: the sequence of the record must be 3, got 4"):
            store.append(ONE, [step(2), step(4)], 1)

    def test_a_sequence_twice_is_refused(self, store):
        with pytest.raises(InvalidEventError, match="index 1: the sequence of the record must be 2, got 1"):
            store.append(ONE, [started(), event(1, StepCompleted())], 0)

    def test_an_event_of_another_execution_is_refused(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(InvalidEventError, match=f"index 0: the record belongs to execution {TWO}"):
            store.append(ONE, [step(2, TWO)], 1)

    def test_an_event_id_twice_in_a_batch_is_refused(self, store):
        twin = event(3, StepCompleted(), event_id=step(2).id)
        with pytest.raises(InvalidEventError, match=r"index 2: event id .* is already in the log"):
            store.append(ONE, [started(), step(2), twin], 0)

    def test_an_event_id_that_the_log_holds_is_refused(self, store):
        store.append(ONE, log(5), 0)
        twin = event(7, StepCompleted(), event_id=step(2).id)
        with pytest.raises(InvalidEventError, match=r"index 1: event id .* is already in the log"):
            store.append(ONE, [step(6), twin], 5)
        assert sequences(store.read(ONE)) == [1, 2, 3, 4, 5]

    def test_an_event_id_is_remembered_after_the_end(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        with pytest.raises(InvalidEventError):
            store.append(ONE, [event(4, resumed(4).data, event_id=step(2).id)], 3)

    def test_text_that_is_not_unicode_is_refused_with_its_place(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(InvalidEventError, match=r"index 0: cannot store data\.output"):
            store.append(ONE, [event(2, StepCompleted(output="\ud800"))], 1)
        assert sequences(store.read(ONE)) == [1]

    # --- many batches at once

    def test_batches_of_several_executions_are_written_together(self, store):
        batches = [batch(ONE, 0, log(2, ONE)), batch(TWO, 0, log(3, TWO))]
        assert store.append_all(batches) == [None, None]
        assert (store.read(ONE), store.read(TWO)) == (log(2, ONE), log(3, TWO))

    def test_a_conflicting_batch_is_refused_alone(self, store):
        store.append(TWO, log(2, TWO), 0)
        batches = [batch(ONE, 0, log(2, ONE)), batch(TWO, 1, steps(2, 3, TWO)), batch(THREE, 0, log(1, THREE))]
        answers = store.append_all(batches)
        assert [type(answer) for answer in answers] == [type(None), ConcurrentAppendError, type(None)]
        assert [len(store.read(one)) for one in (ONE, TWO, THREE)] == [2, 2, 1]

    def test_an_invalid_batch_is_refused_alone(self, store):
        answers = store.append_all([batch(ONE, 0, [step(1)]), batch(TWO, 0, log(2, TWO))])
        assert isinstance(answers[0], InvalidEventError)
        assert answers[1] is None
        assert ids(store.records()) == [TWO]

    def test_a_batch_with_a_known_event_id_is_refused_alone(self, store):
        store.append(ONE, log(3, ONE), 0)
        twin = event(4, StepCompleted(), event_id=step(2).id)
        answers = store.append_all([batch(ONE, 3, [twin]), batch(TWO, 0, log(2, TWO))])
        assert isinstance(answers[0], InvalidEventError)
        assert (store.record(ONE).last_sequence, store.record(TWO).last_sequence) == (3, 2)

    def test_two_batches_of_one_execution_follow_each_other(self, store):
        assert store.append_all([batch(ONE, 0, log(2)), batch(ONE, 2, steps(3, 4))]) == [None, None]
        assert sequences(store.read(ONE)) == [1, 2, 3, 4]

    def test_two_batches_for_one_place_are_won_by_the_first(self, store):
        answers = store.append_all([batch(ONE, 0, log(2)), batch(ONE, 0, log(3))])
        assert answers[0] is None
        assert isinstance(answers[1], ConcurrentAppendError)
        assert store.read(ONE) == log(2)

    def test_no_batches_are_no_answers(self, store):
        assert store.append_all([]) == []

    # --- threads and the end

    def test_of_many_threads_at_one_place_one_wins(self, store):
        store.append(ONE, log(1), 0)
        barrier = threading.Barrier(8)

        def race(number):
            barrier.wait(10)
            mine = event(2, StepCompleted(output=str(number)), event_id=f"event-{number}")
            return store.append_all([batch(ONE, 1, [mine])])[0]

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(race, range(8)))
        assert answers.count(None) == 1
        assert store.read(ONE)[1].data.output == str(answers.index(None))

    def test_threads_write_and_read_different_executions_at_once(self, store):
        def write(number):
            name = execution_id(number)
            store.append(name, log(1, name), 0)
            for last in range(1, 40, 2):
                store.append(name, steps(last + 1, last + 2, name), last)
                assert sequences(store.read(name)) == list(range(1, last + 3))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        assert {record.last_sequence for record in store.records()} == {41}

    def test_listeners_hear_each_execution_in_order_from_many_threads(self, store):
        heard = []
        store.subscribe(lambda execution, events: heard.extend((execution, entry.sequence) for entry in events))

        def write(number):
            name = execution_id(number)
            store.append(name, log(1, name), 0)
            for last in range(1, 40, 2):
                store.append(name, steps(last + 1, last + 2, name), last)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        for number in range(4):
            assert [sequence for name, sequence in heard if name == execution_id(number)] == list(range(1, 42))

    def test_a_closed_store_says_so(self, store):
        store.append(ONE, log(1), 0)
        store.close()
        store.close()
        assert store.closed
        for use in (lambda: store.read(ONE), lambda: store.append(ONE, steps(2, 3), 1), store.records):
            with pytest.raises(StoreError, match="is closed"):
                use()

    def test_a_store_says_where_it_is(self, store):
        assert store.location
        assert store.location in repr(store)
