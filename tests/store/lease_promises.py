"""What every store promises about leases, and about who may append to a leased execution."""

import pytest

from divebook.errors import ConcurrentAppendError, ExecutionNotFoundError, FencedError, LeaseHeldError
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
    failed,
    log,
    resumed,
    step,
    steps,
)

HERE = Owner("here", 11, 1, "kernel")
THERE = Owner("there", 22, 1, "worker")
NOW = START + 100 * SECOND


class LeasePromises:
    """Part of the suite."""

    def test_the_first_lease_has_token_one(self, store):
        store.append(ONE, log(1), 0)
        lease = store.acquire(ONE, HERE, 30, now=NOW)
        assert (lease.execution_id, lease.token, lease.owner, lease.expires_at) == (ONE, 1, HERE, NOW + 30 * SECOND)

    def test_the_lease_of_one_execution_is_found_by_its_id(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        held = store.acquire(ONE, HERE, 30, now=NOW)
        assert (store.lease_of(ONE), store.lease_of(TWO)) == (held, None)
        with pytest.raises(ExecutionNotFoundError):
            store.lease_of(THREE)

    def test_a_held_lease_is_refused_to_others(self, store):
        store.append(ONE, log(1), 0)
        store.acquire(ONE, HERE, 30, now=NOW)
        with pytest.raises(LeaseHeldError) as caught:
            store.acquire(ONE, THERE, 30, now=NOW + 29 * SECOND)
        assert (caught.value.name, caught.value.host, caught.value.pid) == ("kernel", "here", 11)
        until = f"{caught.value.until.astimezone():%Y-%m-%d %H:%M:%S %Z}"
        assert "driven by kernel (process 11 on here). Wait until that process has finished" in str(caught.value)
        assert f"resume the execution after {until}" in str(caught.value)

    def test_a_held_lease_is_refused_to_its_own_owner(self, store):
        store.append(ONE, log(1), 0)
        store.acquire(ONE, HERE, 30, now=NOW)
        with pytest.raises(LeaseHeldError):
            store.acquire(ONE, HERE, 30, now=NOW)

    def test_a_live_lease_is_taken_by_who_names_it(self, store):
        store.append(ONE, log(1), 0)
        held = store.acquire(ONE, HERE, 30, now=NOW)
        taken = store.acquire(ONE, THERE, 30, now=NOW, instead_of=held)
        assert (taken.token, taken.owner) == (2, THERE)
        with pytest.raises(FencedError):
            store.append(ONE, [step(2)], 1, held.token)

    def test_to_name_an_older_lease_takes_nothing(self, store):
        store.append(ONE, log(1), 0)
        old = store.acquire(ONE, HERE, 30, now=NOW)
        store.acquire(ONE, HERE, 30, now=NOW, instead_of=old)
        with pytest.raises(LeaseHeldError):
            store.acquire(ONE, THERE, 30, now=NOW, instead_of=old)

    def test_an_expired_lease_is_taken_over_with_the_next_token(self, store):
        store.append(ONE, log(1), 0)
        store.acquire(ONE, HERE, 30, now=NOW)
        assert store.acquire(ONE, THERE, 30, now=NOW + 30 * SECOND).token == 2

    def test_a_released_lease_is_taken_over_with_the_next_token(self, store):
        store.append(ONE, log(1), 0)
        store.release(store.acquire(ONE, HERE, 30, now=NOW))
        assert store.acquire(ONE, THERE, 30, now=NOW).token == 2

    def test_releasing_an_old_lease_does_not_release_the_present_one(self, store):
        store.append(ONE, log(1), 0)
        old = store.acquire(ONE, HERE, 1, now=NOW)
        store.acquire(ONE, THERE, 30, now=NOW + SECOND)
        store.release(old)
        assert [lease.token for lease in store.leases()] == [2]

    def test_releasing_twice_is_no_error(self, store):
        store.append(ONE, log(1), 0)
        lease = store.acquire(ONE, HERE, 30, now=NOW)
        store.release(lease)
        store.release(lease)
        assert store.leases() == []

    def test_tokens_go_up_one_by_one(self, store):
        store.append(ONE, log(1), 0)
        tokens = [store.acquire(ONE, HERE, 1, now=NOW + number * SECOND).token for number in range(5)]
        assert tokens == [1, 2, 3, 4, 5]

    def test_the_leases_of_executions_are_independent(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        store.acquire(ONE, HERE, 30, now=NOW)
        assert store.acquire(TWO, THERE, 30, now=NOW).token == 1

    def test_an_unknown_execution_cannot_be_leased(self, store):
        with pytest.raises(ExecutionNotFoundError):
            store.acquire(ONE, HERE, 30, now=NOW)

    def test_an_ended_execution_can_be_leased(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        assert store.acquire(ONE, HERE, 30, now=NOW).token == 1

    def test_a_renewed_lease_lasts_longer(self, store):
        store.append(ONE, log(1), 0)
        lease = store.acquire(ONE, HERE, 30, now=NOW)
        assert store.renew([lease], 30, now=NOW + 20 * SECOND) == [True]
        with pytest.raises(LeaseHeldError):
            store.acquire(ONE, THERE, 30, now=NOW + 49 * SECOND)
        assert store.acquire(ONE, THERE, 30, now=NOW + 50 * SECOND).token == 2

    def test_an_expired_lease_that_nobody_took_can_be_renewed(self, store):
        store.append(ONE, log(1), 0)
        lease = store.acquire(ONE, HERE, 30, now=NOW)
        assert store.renew([lease], 30, now=NOW + 99 * SECOND) == [True]

    def test_renewing_says_which_leases_are_lost(self, store):
        store.append_all([batch(name, 0, log(1, name)) for name in (ONE, TWO, THREE)])
        held = [store.acquire(name, HERE, 30, now=NOW) for name in (ONE, TWO, THREE)]
        store.release(held[0])
        store.acquire(TWO, THERE, 30, now=NOW + 31 * SECOND)
        assert store.renew(held, 30, now=NOW + 32 * SECOND) == [False, False, True]

    def test_renewing_nothing_is_no_error(self, store):
        assert store.renew([], 30, now=NOW) == []

    def test_a_lost_lease_is_not_won_back_by_renewing(self, store):
        store.append(ONE, log(1), 0)
        lost = store.acquire(ONE, HERE, 30, now=NOW)
        taken = store.acquire(ONE, THERE, 30, now=NOW + 31 * SECOND)
        store.renew([lost], 30, now=NOW + 32 * SECOND)
        assert store.leases() == [taken]

    def test_a_clock_set_back_an_hour_neither_loses_nor_doubles_a_lease(self, store):
        store.append(ONE, log(1), 0)
        lease = store.acquire(ONE, HERE, 30, now=NOW)
        earlier = NOW - 3600 * SECOND
        with pytest.raises(LeaseHeldError):
            store.acquire(ONE, THERE, 30, now=earlier)
        assert store.renew([lease], 30, now=earlier) == [True]
        with pytest.raises(LeaseHeldError):
            store.acquire(ONE, THERE, 30, now=earlier + 29 * SECOND)
        assert store.acquire(ONE, THERE, 30, now=earlier + 30 * SECOND).token == 2

    def test_leases_are_listed_by_execution(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        leases = [store.acquire(name, HERE, 30, now=NOW) for name in (TWO, ONE)]
        assert store.leases() == leases[::-1]

    # --- appending under a lease

    def test_the_holder_may_append(self, store):
        store.append(ONE, log(1), 0)
        lease = store.acquire(ONE, HERE, 30, now=NOW)
        store.append(ONE, steps(2, 3), 1, lease.token)
        store.append(ONE, steps(4, 5), 3, lease.token)
        assert store.read(ONE) == log(5)

    def test_a_late_append_with_an_old_token_is_refused(self, store):
        store.append(ONE, log(1), 0)
        old = store.acquire(ONE, HERE, 30, now=NOW)
        store.append(ONE, [step(2)], 1, old.token)
        store.acquire(ONE, THERE, 30, now=NOW + 31 * SECOND)
        with pytest.raises(FencedError, match="its current lease has number 2, but this process has lease 1") as caught:
            store.append(ONE, [step(3)], 2, old.token)
        assert (caught.value.token, caught.value.current) == (1, 2)
        assert store.read(ONE) == log(2)

    def test_a_token_that_was_never_given_out_is_refused(self, store):
        store.append(ONE, log(1), 0)
        store.acquire(ONE, HERE, 30, now=NOW)
        with pytest.raises(FencedError):
            store.append(ONE, [step(2)], 1, 2)

    def test_without_a_token_a_leased_execution_is_closed(self, store):
        store.append(ONE, log(1), 0)
        store.acquire(ONE, HERE, 30, now=NOW)
        with pytest.raises(FencedError, match="this process has no lease"):
            store.append(ONE, [step(2)], 1)

    def test_without_a_token_an_execution_stays_closed_after_the_lease(self, store):
        store.append(ONE, log(1), 0)
        store.release(store.acquire(ONE, HERE, 30, now=NOW))
        with pytest.raises(FencedError):
            store.append(ONE, [step(2)], 1)

    def test_a_token_for_an_execution_without_leases_is_refused(self, store):
        store.append(ONE, log(1), 0)
        for wrong in (batch(ONE, 1, [step(2)], token=1), batch(TWO, 0, log(1, TWO), token=1)):
            assert isinstance(store.append_all([wrong])[0], FencedError)

    def test_a_holder_that_missed_an_event_is_refused_as_any_writer(self, store):
        store.append(ONE, log(3), 0)
        lease = store.acquire(ONE, HERE, 30, now=NOW)
        with pytest.raises(ConcurrentAppendError):
            store.append(ONE, [step(3)], 2, lease.token)

    def test_a_fenced_batch_is_refused_alone(self, store):
        store.append_all([batch(ONE, 0, log(1, ONE)), batch(TWO, 0, log(1, TWO))])
        store.acquire(ONE, HERE, 30, now=NOW)
        answers = store.append_all([batch(ONE, 1, [step(2, ONE)]), batch(TWO, 1, [step(2, TWO)])])
        assert [type(answer) for answer in answers] == [FencedError, type(None)]

    def test_a_new_execution_may_begin_with_its_lease(self, store):
        assert store.append_all([batch(ONE, 0, log(2), acquire=HERE)]) == [None]
        (lease,) = store.leases()
        assert (lease.execution_id, lease.token, lease.owner) == (ONE, 1, HERE)
        assert lease.expires_at == START + 32 * SECOND
        store.append(ONE, [step(3)], 2, 1)
        assert store.read(ONE) == log(3)

    def test_an_execution_that_exists_is_not_leased_by_beginning_it_again(self, store):
        store.append(ONE, log(1), 0)
        (answer,) = store.append_all([batch(ONE, 0, log(2), acquire=HERE)])
        assert isinstance(answer, ConcurrentAppendError)
        assert store.leases() == []

    def test_only_a_first_batch_may_acquire(self, store):
        store.append(ONE, log(1), 0)
        with pytest.raises(ValueError, match="acquire is possible only with the first batch of a new execution"):
            store.append_all([batch(ONE, 1, [step(2)], acquire=HERE)])

    def test_the_end_of_an_execution_releases_its_lease(self, store):
        store.append_all([batch(ONE, 0, log(2), acquire=HERE)])
        store.append(ONE, [completed(3)], 2, 1)
        assert store.leases() == []
        assert store.acquire(ONE, THERE, 30, now=NOW).token == 2

    def test_what_begins_and_ends_in_one_batch_leaves_no_lease(self, store):
        assert store.append_all([batch(ONE, 0, [*log(2), completed(3)], acquire=HERE)]) == [None]
        assert store.leases() == []
        assert store.acquire(ONE, THERE, 30, now=NOW).token == 2

    def test_deleting_an_execution_deletes_its_lease(self, store):
        store.append_all([batch(ONE, 0, log(2), acquire=HERE)])
        store.delete(ONE)
        assert store.leases() == []
        store.append(ONE, log(1), 0)
        assert store.acquire(ONE, THERE, 30, now=NOW).token == 1

    def test_the_store_tells_which_leases_keep_others_out(self, store):
        for name in (TWO, ONE):
            store.append(name, log(1, name), 0)
        two, one = store.acquire(TWO, HERE, 30, now=NOW), store.acquire(ONE, HERE, 60, now=NOW)
        assert store.live_leases(now=NOW) == [one, two]
        assert store.live_leases(now=NOW + 31 * SECOND) == [one]
        assert store.live_leases(now=NOW + 61 * SECOND) == []

    # --- orphans

    def test_an_execution_that_nobody_drives_is_an_orphan(self, store):
        store.append_all([batch(ONE, 0, log(2), acquire=HERE)])
        assert store.orphans(now=START + 31 * SECOND) == []
        assert store.orphans(now=START + 32 * SECOND) == [store.record(ONE)]

    def test_an_execution_that_never_had_a_lease_is_an_orphan(self, store):
        store.append(ONE, log(2), 0)
        assert [record.execution_id for record in store.orphans(now=NOW)] == [ONE]

    def test_what_has_ended_is_no_orphan(self, store):
        store.append(ONE, [*log(2, ONE), completed(3, ONE)], 0)
        store.append(TWO, [*log(2, TWO), cancelled(3, TWO)], 0)
        assert store.orphans(now=NOW) == []

    def test_orphans_come_newest_first(self, store):
        for number, name in enumerate((TWO, ONE, THREE)):
            store.append(name, log(1, name, at=START + number), 0)
        store.append(TWO, [failed(2, TWO), resumed(3, TWO)], 1)
        assert [record.execution_id for record in store.orphans(now=NOW)] == [THREE, ONE, TWO]
