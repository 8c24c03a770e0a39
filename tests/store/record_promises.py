"""What every store promises about the lines of executions: what they say, how they are listed, found and deleted."""

from datetime import UTC, datetime, timedelta
from itertools import combinations, product

import pytest

from divebook.errors import ExecutionNotFoundError, NotFoundError, StoreError
from divebook.events.catalog import ExecutionStarted, StepCompleted
from divebook.stores import Owner
from tests.store.logs import (
    ONE,
    SECOND,
    START,
    THREE,
    TWO,
    batch,
    cancelled,
    completed,
    event,
    execution_id,
    failed,
    log,
    moment,
    resumed,
    started,
    step,
    steps,
)

CHOICES = {
    "status": ("running", "waiting"),
    "workflow": ("a", "b"),
    "tag": ("t", "u"),
    "origin": ("run", "fork"),
    "parent": (None, "exec_parent"),
    "notebook": (None, "n.ipynb"),
    "cell": (None, "c"),
}


def ids(records):
    return [record.execution_id for record in records]


class RecordPromises:
    """Part of the suite."""

    # --- records

    def test_a_started_execution_is_running(self, store):
        store.append(ONE, log(3), 0)
        record = store.record(ONE)
        assert (record.execution_id, record.workflow_name, record.fingerprint) == (ONE, "greet", "f" * 64)
        assert (record.status, record.last_sequence, record.error) == ("running", 3, None)
        assert (record.created_at, record.started_at, record.ended_at) == (moment(1), moment(1), None)

    def test_a_completed_execution_says_when(self, store):
        store.append(ONE, log(3), 0)
        store.append(ONE, [completed(4)], 3)
        record = store.record(ONE)
        assert (record.status, record.ended_at, record.last_sequence) == ("completed", moment(4), 4)

    def test_a_failed_execution_says_why(self, store):
        store.append(ONE, [*log(3), failed(4, error="no such file")], 0)
        record = store.record(ONE)
        assert (record.status, record.ended_at, record.error) == ("failed", moment(4), "no such file")

    def test_a_cancelled_execution_has_ended(self, store):
        store.append(ONE, [*log(3), cancelled(4)], 0)
        assert (store.record(ONE).status, store.record(ONE).ended_at) == ("cancelled", moment(4))

    def test_a_resumed_execution_runs_again(self, store):
        store.append(ONE, [*log(3), failed(4)], 0)
        store.append(ONE, [resumed(5)], 4)
        record = store.record(ONE)
        assert (record.status, record.ended_at, record.error, record.started_at) == ("running", None, None, moment(1))

    def test_the_last_change_of_status_in_a_batch_counts(self, store):
        store.append(ONE, [*log(2), failed(3), resumed(4), completed(5)], 0)
        assert (store.record(ONE).status, store.record(ONE).error) == ("completed", None)

    def test_the_size_is_that_of_the_payloads(self, store):
        store.append(ONE, log(1), 0)
        before = store.record(ONE).size
        store.append(ONE, [event(2, StepCompleted(output="x" * 900))], 1)  # longer ones are packed
        assert store.record(ONE).size - before == len('{"output":""}') + 900

    def test_the_record_of_an_unknown_execution_is_an_error(self, store):
        with pytest.raises(ExecutionNotFoundError, match="not found"):
            store.record("exec_nobody")

    def test_an_unknown_id_is_answered_with_the_newest_ones(self, store):
        for name in ("exec_a", "exec_b", "exec_c", "exec_d"):
            store.append(name, log(1, name), 0)
        with pytest.raises(
            ExecutionNotFoundError, match=r"not found: other \(the newest executions: exec_d, exec_c, exec_b\)"
        ):
            store.resolve("other")

    def test_an_empty_store_has_no_records(self, store):
        assert store.records() == []

    def test_records_come_newest_first(self, store):
        for number in (2, 3, 1):
            store.append(execution_id(number), log(1, execution_id(number), at=START + number), 0)
        assert ids(store.records()) == [THREE, TWO, ONE]

    def test_of_two_created_at_once_the_later_comes_first(self, store):
        store.append(TWO, log(1, TWO), 0)
        store.append(ONE, log(1, ONE), 0)
        assert ids(store.records()) == [ONE, TWO]

    def test_records_can_be_filtered_by_status(self, store):
        store.append(ONE, [*log(2), completed(3)], 0)
        store.append(TWO, [*log(2, TWO), failed(3, TWO)], 0)
        assert ids(store.records(status="completed")) == [ONE]

    def test_records_can_be_filtered_by_workflow(self, store):
        store.append(ONE, log(1, ONE, workflow="a"), 0)
        store.append(TWO, log(1, TWO, workflow="b"), 0)
        assert ids(store.records(workflow="a")) == [ONE]

    def test_both_filters_apply(self, store):
        store.append(ONE, log(1, ONE, workflow="a"), 0)
        store.append(TWO, [*log(1, TWO, workflow="a"), failed(2, TWO)], 0)
        assert ids(store.records(status="failed", workflow="a")) == [TWO]

    def test_every_choice_of_filters_lists_what_fits_all_of_them(self, store):
        kinds = [dict(zip(CHOICES, values, strict=True)) for values in product((0, 1), repeat=len(CHOICES))]
        for number, kind in enumerate(kinds):
            name = execution_id(number)
            chosen = {field: CHOICES[field][which] for field, which in kind.items()}
            tags, status, workflow = [chosen.pop("tag"), "all"], chosen.pop("status"), chosen.pop("workflow")
            first = event(1, ExecutionStarted(workflow, tags=tags, **chosen), name, at=START + number % 5)
            store.append_all([batch(name, 0, [first], status=status)])
        newest = [found.execution_id for found in store.records()]
        assert len(newest) == len(kinds)
        for size in range(3):
            for fields in combinations(CHOICES, size):
                wanted = {field: CHOICES[field][1] for field in fields}
                fitting = {execution_id(n) for n, kind in enumerate(kinds) if all(kind[field] for field in fields)}
                expected = [name for name in newest if name in fitting]
                assert ids(store.records(**wanted)) == expected
                assert ids(store.records(**wanted, limit=3, offset=2)) == expected[2:5]
        assert ids(store.records(tag="all", limit=4)) == newest[:4]

    def test_records_can_be_read_page_by_page(self, store):
        for number in range(5):
            store.append(execution_id(number), log(1, execution_id(number), at=START + number), 0)
        assert ids(store.records(limit=2, offset=1)) == [execution_id(3), execution_id(2)]
        assert ids(store.records(offset=4)) == [execution_id(0)]

    def test_a_negative_page_is_an_error(self, store):
        with pytest.raises(ValueError, match="limit must not be negative, got -1"):
            store.records(limit=-1)
        with pytest.raises(ValueError, match="offset must not be negative, got -2"):
            store.records(offset=-2)

    def test_a_status_that_does_not_exist_is_an_error(self, store):
        with pytest.raises(NotFoundError, match="did you mean 'completed'"):
            store.records(status="complete")

    # --- ids that people type

    def test_a_unique_prefix_finds_the_execution(self, store):
        store.append(ONE, log(1), 0)
        assert store.resolve(ONE[:9]) == ONE

    def test_the_word_exec_may_be_left_out(self, store):
        store.append(ONE, log(1), 0)
        assert store.resolve(ONE[5:12]) == ONE

    def test_a_whole_id_wins_over_longer_ones(self, store):
        for name in ("exec_a", "exec_ab"):
            store.append(name, [started(name)], 0)
        assert store.resolve("exec_a") == "exec_a"

    def test_an_ambiguous_prefix_names_the_candidates(self, store):
        for name in ("exec_ab", "exec_ac"):
            store.append(name, [started(name)], 0)
        with pytest.raises(StoreError, match=r"'exec_a' is ambiguous: exec_ab, exec_ac\. Type more"):
            store.resolve("exec_a")

    def test_an_unknown_prefix_names_what_exists(self, store):
        store.append("exec_ab", [started("exec_ab")], 0)
        with pytest.raises(ExecutionNotFoundError, match="exec_ab"):
            store.resolve("exec_zzz")

    def test_a_wildcard_is_only_a_character(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(ExecutionNotFoundError):
            store.resolve("exec_%")

    # --- waiting

    def test_an_execution_whose_writer_says_so_waits(self, store):
        store.append_all([batch(ONE, 0, log(3), status="waiting", wake_at=START + 9 * SECOND, taken=4)])
        record = store.record(ONE)
        assert (record.status, record.wake_at, record.taken, record.ended_at) == ("waiting", moment(9), 4, None)

    def test_an_execution_waits_and_runs_again(self, store):
        store.append(ONE, log(2), 0)
        store.append_all([batch(ONE, 2, [step(3)], status="waiting", wake_at=START)])
        assert (store.record(ONE).status, store.record(ONE).wake_at) == ("waiting", moment(0))
        store.append_all([batch(ONE, 3, [step(4)], status="running")])
        assert (store.record(ONE).status, store.record(ONE).wake_at) == ("running", None)

    def test_what_waits_is_listed_as_waiting_and_as_nothing_else(self, store):
        store.append_all([batch(ONE, 0, log(2, ONE), status="waiting"), batch(TWO, 0, log(2, TWO), status="running")])
        assert ids(store.records(status="waiting")) == [ONE]
        assert ids(store.records(status="running")) == [TWO]

    def test_a_writer_that_says_nothing_leaves_the_status(self, store):
        store.append_all([batch(ONE, 0, log(2), status="waiting")])
        store.append(ONE, [step(3)], 2)
        assert store.record(ONE).status == "waiting"

    def test_an_end_counts_whatever_the_writer_says(self, store):
        store.append_all([batch(ONE, 0, [*log(2), completed(3)], status="waiting", wake_at=START)])
        record = store.record(ONE)
        assert (record.status, record.ended_at, record.wake_at) == ("completed", moment(3), None)

    def test_what_has_ended_does_not_wait(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        store.append_all([batch(ONE, 3, [step(4)], status="waiting")])
        assert (store.record(ONE).status, store.record(ONE).error) == ("failed", "no such file")

    def test_an_end_needs_its_event(self, store):
        store.append_all([batch(ONE, 0, log(2), status="completed")])
        assert (store.record(ONE).status, store.record(ONE).ended_at) == ("running", None)

    def test_what_was_resumed_may_wait_at_once(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        store.append_all([batch(ONE, 3, [resumed(4)], status="waiting")])
        assert (store.record(ONE).status, store.record(ONE).error, store.record(ONE).ended_at) == (
            "waiting",
            None,
            None,
        )

    def test_a_refused_batch_changes_no_status(self, store):
        store.append_all([batch(ONE, 0, log(3), status="running")])
        store.append_all([batch(ONE, 1, steps(2, 3), status="waiting", wake_at=START, taken=9)])
        record = store.record(ONE)
        assert (record.status, record.wake_at, record.taken) == ("running", None, 0)

    def test_the_last_message_that_was_taken_in_is_never_forgotten(self, store):
        store.append_all([batch(ONE, 0, log(2), taken=7)])
        store.append_all([batch(ONE, 2, [step(3)]), batch(ONE, 3, [step(4)], taken=5)])
        assert store.record(ONE).taken == 7

    def test_a_status_that_does_not_exist_cannot_be_written(self, store):
        with pytest.raises(NotFoundError, match="did you mean 'waiting'"):
            store.append_all([batch(ONE, 0, log(2), status="waitin")])
        assert store.records() == []

    def test_what_has_not_ended_is_listed_newest_first(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE, at=START + 2), status="waiting")])
        store.append(TWO, [*log(2, TWO, at=START), failed(3, TWO)], 0)
        store.append(THREE, log(1, THREE, at=START + 3), 0)
        store.append(execution_id(4), log(1, execution_id(4), at=START + 1), 0)
        assert ids(store.unended()) == [THREE, ONE, execution_id(4)]

    # --- deleting

    def test_a_deleted_execution_is_gone(self, store):
        store.append(ONE, log(3, ONE), 0)
        store.append(TWO, log(2, TWO), 0)
        store.delete(ONE)
        with pytest.raises(ExecutionNotFoundError):
            store.read(ONE)
        with pytest.raises(ExecutionNotFoundError):
            store.record(ONE)
        assert store.read(TWO) == log(2, TWO)

    def test_deleting_an_unknown_execution_is_an_error(self, store):
        with pytest.raises(ExecutionNotFoundError):
            store.delete(ONE)

    def test_a_deleted_execution_may_begin_anew(self, store):
        store.append(ONE, log(5), 0)
        store.delete(ONE)
        store.append(ONE, log(2), 0)
        assert store.read(ONE) == log(2)

    def test_a_deleted_execution_cannot_be_carried_on(self, store):
        store.append(ONE, log(5), 0)
        store.delete(ONE)
        with pytest.raises(ExecutionNotFoundError):
            store.append(ONE, steps(6, 7), 5)

    def test_cleaning_up_deletes_what_ended_before(self, store):
        store.append(ONE, [*log(2, ONE), completed(3, ONE, at=START + 10)], 0)
        store.append(TWO, [*log(2, TWO), cancelled(3, TWO, at=START + 20)], 0)
        store.append(THREE, [*log(2, THREE), failed(3, THREE, at=START + 30)], 0)
        assert store.cleanup(moment(0) + timedelta(microseconds=30)) == 2
        assert ids(store.records()) == [THREE]

    def test_cleaning_up_spares_what_still_runs(self, store):
        store.append(ONE, log(2), 0)
        store.append(TWO, [*log(2, TWO), failed(3, TWO), resumed(4, TWO)], 0)
        assert store.cleanup(datetime(2099, 1, 1, tzinfo=UTC)) == 0

    def test_cleaning_up_spares_what_somebody_is_about_to_resume(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        store.append(TWO, [*log(2, TWO), failed(3, TWO)], 0)
        store.acquire(ONE, Owner("here", 11, 1, "kernel"), 30, now=START)
        assert store.cleanup(moment(4), now=START + SECOND) == 1
        assert ids(store.records()) == [ONE]
        assert store.cleanup(moment(4), now=START + 30 * SECOND) == 1

    def test_cleaning_up_needs_a_time_zone(self, store):
        with pytest.raises(ValueError, match="before needs a time zone"):
            store.cleanup(datetime(2099, 1, 1))  # noqa: DTZ001 - the point
