"""What every store promises about queues: who gets what, in which order, and when."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from divebook.events.catalog import ExecutionEnqueued, ExecutionPaused
from divebook.stores import Message, Owner
from divebook.stores.leases import QueuedExecution, WorkerRecord
from divebook.stores.maintenance import check
from tests.store.lease_promises import HERE, NOW, THERE
from tests.store.logs import ONE, SECOND, THREE, TWO, batch, completed, event, execution_id, resumed, started, step

PRINT = "f" * 64
GREET = {"greet": PRINT}


def enqueued(execution, queue="q", priority=0, due=None, sequence=2):
    return event(sequence, ExecutionEnqueued(queue, priority, due), execution, path="")


def put(store, execution=ONE, queue="q", priority=0, due=None, **how):
    begun = [started(execution, **how), enqueued(execution, queue, priority, due)]
    assert store.append_all([batch(execution, 0, begun, wake_at=due)]) == [None]


def names(leases):
    return [lease.execution_id for lease in leases]


def claimed(store, limit=9, queues=("q",), workflows=GREET, now=NOW, owner=HERE):
    return names(store.claim(queues, workflows, owner, limit, now=now))


class QueuePromises:
    """Part of the suite."""

    def test_what_is_enqueued_waits_for_a_worker(self, store):
        put(store)
        assert store.record(ONE).status == "enqueued"
        assert [record.execution_id for record in store.records(status="enqueued")] == [ONE]
        assert store.queued() == [QueuedExecution(ONE, "q", 0, "greet", PRINT)]
        assert store.orphans(NOW) == []

    def test_a_claim_is_a_lease_and_nobody_else_gets_it(self, store):
        put(store)
        (lease,) = store.claim(["q"], GREET, HERE, 5, now=NOW)
        assert (lease.execution_id, lease.token, lease.owner, lease.expires_at) == (ONE, 1, HERE, NOW + 30 * SECOND)
        assert store.lease_of(ONE) == lease
        assert claimed(store, owner=THERE) == []
        store.append(ONE, [resumed(3)], 2, lease.token)
        assert store.record(ONE).status == "running"

    def test_higher_priorities_come_first_and_then_the_older(self, store):
        put(store, ONE)
        put(store, TWO, priority=5)
        put(store, THREE)
        assert [claimed(store, 2), claimed(store, 2)] == [[TWO, ONE], [THREE]]

    def test_queues_are_served_in_the_order_in_which_they_are_named(self, store):
        put(store, ONE, "slow", priority=9)
        put(store, TWO, "fast")
        put(store, THREE, "other")
        assert claimed(store, queues=["fast", "slow"]) == [TWO, ONE]

    def test_what_a_worker_cannot_run_is_left_to_others(self, store):
        put(store, ONE, workflow="other")
        put(store, TWO, fingerprint="e" * 64)
        assert claimed(store) == []
        other = {"other": PRINT}
        assert names(store.claim(["q"], other, HERE, 1, without=[ONE], now=NOW)) == []
        assert claimed(store, workflows={"greet": "e" * 64, "other": PRINT}) == [ONE, TWO]

    def test_nothing_is_claimed_before_it_is_due(self, store):
        put(store, due=NOW + SECOND)
        assert [claimed(store), claimed(store, now=NOW + SECOND)] == [[], [ONE]]

    def test_what_comes_for_it_does_not_hasten_what_is_not_due(self, store):
        put(store, due=NOW + SECOND)
        store.post(Message(ONE, "signal", "event_1", {"name": "go"}, "me", NOW))
        store.acquire(ONE, Owner(HERE.host, 2**22 + 1, 1, "asked", HERE.boot), now=NOW - 60 * SECOND)
        assert [claimed(store), claimed(store, now=NOW + SECOND)] == [[], [ONE]]

    def test_a_claim_tells_whether_who_had_it_before_never_gave_it_back(self, store):
        put(store)
        (lease,) = store.claim(["q"], GREET, HERE, 1, now=NOW)
        assert not lease.was_left
        (taken,) = store.claim(["q"], GREET, THERE, 1, now=NOW + 30 * SECOND)
        assert taken.was_left
        store.release(taken)
        (again,) = store.claim(["q"], GREET, THERE, 1, now=NOW + 31 * SECOND)
        assert not again.was_left

    def test_what_a_worker_left_is_taken_up_once_its_lease_has_expired(self, store):
        put(store)
        (lease,) = store.claim(["q"], GREET, HERE, 1, now=NOW)
        store.append(ONE, [resumed(3), step(4)], 2, lease.token)
        assert claimed(store, now=NOW + 29 * SECOND, owner=THERE) == []
        assert claimed(store, now=NOW + 30 * SECOND, owner=THERE) == [ONE]

    def test_what_a_dead_worker_of_this_machine_left_is_taken_up_at_once(self, store):
        put(store)
        present = Owner.current()
        dead = Owner(present.host, 2**22 + 1, 1, "worker", present.boot)
        assert [claimed(store, owner=dead), claimed(store, owner=present)] == [[ONE], [ONE]]

    def test_what_waits_is_taken_up_when_something_has_come(self, store):
        put(store)
        (lease,) = store.claim(["q"], GREET, HERE, 1, now=NOW)
        store.append_all([batch(ONE, 2, [resumed(3)], lease.token, status="waiting", wake_at=NOW + 50 * SECOND)])
        store.release(lease)
        assert [claimed(store), claimed(store, now=NOW + 50 * SECOND)] == [[], [ONE]]
        store.release(store.lease_of(ONE))
        assert claimed(store) == []
        store.post(Message(ONE, "signal", "event_1", {"name": "go"}, "me", NOW))
        assert claimed(store) == [ONE]

    def test_workers_leave_alone_what_a_person_has_paused_until_it_is_resumed(self, store):
        put(store)
        (lease,) = store.claim(["q"], GREET, HERE, 1, now=NOW)
        store.append(ONE, [resumed(3), event(4, ExecutionPaused("lunch"), ONE, path="")], 2, lease.token)
        store.release(lease)
        assert (claimed(store), store.queued()) == ([], [])
        assert store.queued(withheld=True) == [QueuedExecution(ONE, "q", 0, "greet", PRINT)]
        lease = store.acquire(ONE, HERE, now=NOW)
        store.append(ONE, [resumed(5)], 4, lease.token)
        store.release(lease)
        assert claimed(store) == [ONE]

    def test_what_is_given_back_waits_for_a_worker_again(self, store):
        put(store)
        (lease,) = store.claim(["q"], GREET, HERE, 1, now=NOW)
        given_back = [event(4, ExecutionPaused("drains"), ONE, path=""), enqueued(ONE, sequence=5)]
        store.append(ONE, [resumed(3), *given_back], 2, lease.token)
        store.release(lease)
        assert (store.record(ONE).status, claimed(store)) == ("enqueued", [ONE])

    def test_what_has_ended_or_is_withheld_or_deleted_is_in_no_queue(self, store):
        for execution in (ONE, TWO, THREE):
            put(store, execution)
        first, *_ = store.claim(["q"], GREET, HERE, 1, now=NOW)
        store.append(ONE, [resumed(3), completed(4)], 2, first.token)
        store.withhold(TWO)
        store.withhold(execution_id(9))
        store.delete(THREE)
        assert (store.queued(), claimed(store)) == ([], [])
        assert [known.execution_id for known in store.queued(withheld=True)] == [TWO]
        assert not check(store).all_damages()

    def test_of_workers_that_claim_at_once_each_gets_others(self, store):
        ids = [execution_id(number) for number in range(20)]
        for name in ids:
            put(store, name)
        with ThreadPoolExecutor(4) as pool:
            rounds = pool.map(lambda number: claimed(store, 2, owner=Owner("h", number, 1, "w")), range(10))
            taken = [name for claims in rounds for name in claims]
        taken += claimed(store, 99)
        assert sorted(taken) == ids

    def test_up_to_when_the_due_times_of_a_schedule_are_seen_to_is_kept(self, store):
        assert [store.seen_to("nightly", NOW), store.seen_to("nightly", NOW + SECOND)] == [NOW, NOW]
        store.see_to("nightly", NOW + 2 * SECOND)
        store.see_to("nightly", NOW + SECOND)
        assert [store.seen_to("nightly", 0), store.seen_to("hourly", 0)] == [NOW + 2 * SECOND, 0]

    def test_workers_say_that_they_are_there(self, store):
        worker = WorkerRecord("w1", HERE, ("q", "r"), 8, GREET, driving=3)
        store.announce(worker, NOW)
        store.announce(WorkerRecord("w2", THERE, ("q",), 1, {}), NOW - 20 * SECOND)
        store.announce(WorkerRecord("old", THERE, ("q",), 1, {}), NOW - 7200 * SECOND)
        first, second = store.workers(NOW)
        assert (first.id, first.owner, first.queues, first.driving) == ("w1", HERE, ("q", "r"), 3)
        assert first.can_run(QueuedExecution(ONE, "r", 0, "greet", PRINT))
        assert not first.can_run(QueuedExecution(ONE, "r", 0, "greet", "e"))
        assert not second.can_run(QueuedExecution(ONE, "r", 0, "greet", PRINT))
        refuses = replace(first, refused={ONE: "its action is not here"})
        store.announce(refuses, NOW)
        assert store.workers(NOW)[0].why_not(QueuedExecution(ONE, "r", 0, "greet", PRINT)) == "its action is not here"
        assert store.workers(NOW)[0].can_run(QueuedExecution(TWO, "r", 0, "greet", PRINT))
        assert [known.id for known in store.workers(NOW + 15 * SECOND)] == ["w1"]
        store.retire("w1")
        assert [known.id for known in store.workers(NOW)] == ["w2"]
