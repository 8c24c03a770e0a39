"""What every store promises about checkpoints, verification, throwing things away, and commits nobody knows of."""

from dataclasses import replace

import pytest

from divebook.errors import ConcurrentAppendError, ExecutionNotFoundError, StoreError
from divebook.events.catalog import StepCompleted
from divebook.stores import Owner
from divebook.stores.maintenance import check
from tests.store.large_promises import done, text
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

HERE = Owner("here", 11, 1, "kernel")


class KeepingPromises:
    """Part of the suite."""

    # --- checkpoints

    def test_a_new_execution_has_no_checkpoint(self, store):
        store.append(ONE, log(3), 0)
        assert store.checkpoint(ONE) is None
        assert store.checkpoint(TWO) is None

    def test_the_newest_checkpoint_is_kept(self, store):
        store.append(ONE, log(9), 0)
        for sequence in (3, 7, 5):
            store.put_checkpoint(ONE, sequence, b"fold %d" % sequence)
        assert store.checkpoint(ONE) == (7, b"fold 7")
        assert store.checkpoints() == [ONE]

    def test_a_log_keeps_few_checkpoints_and_one_in_each_part(self, store):
        """Each part is as long as all before it, so that the nearest checkpoint lies behind less than half of a log."""
        store.append(ONE, log(40), 0)
        for sequence in (*range(1, 38, 2), 20, 6):
            store.put_checkpoint(ONE, sequence, b"fold %d" % sequence)
        nearest = [store.checkpoint(ONE, at) for at in (1, 2, 3, 6, 7, 14, 15, 30, 31, 36, 37, 40)]
        assert [found and found[0] for found in nearest] == [1, 1, 3, 3, 7, 7, 15, 15, 31, 31, 37, 37]
        assert store.checkpoint(ONE, 30) == (15, b"fold 15")
        assert store.checkpoint(ONE, 0) is None
        assert store.checkpoints() == [ONE]
        assert store.drop_checkpoints() == 6
        assert store.checkpoint(ONE, 40) is None

    def test_a_checkpoint_may_hold_any_bytes(self, store):
        store.append(ONE, log(3), 0)
        for data in (b"", bytes(range(256)), b"\0" * 200_000):
            store.put_checkpoint(ONE, 3, data)
            assert store.checkpoint(ONE) == (3, data)

    def test_a_checkpoint_of_events_that_are_not_there_is_refused(self, store):
        store.append(ONE, log(3), 0)
        for sequence in (0, 4):
            with pytest.raises(
                StoreError, match=f"has events 1 to 3, so it cannot have a checkpoint at event {sequence}"
            ):
                store.put_checkpoint(ONE, sequence, b"")
        with pytest.raises(ExecutionNotFoundError):
            store.put_checkpoint(TWO, 1, b"")

    def test_deleting_all_checkpoints_changes_nothing_else(self, store):
        for name in (ONE, TWO):
            store.append(name, log(3, name), 0)
            store.put_checkpoint(name, 2, b"fold")
        before = (store.read(ONE), store.records())
        assert store.drop_checkpoints() == 2
        assert store.checkpoints() == []
        assert store.checkpoint(ONE) is None
        assert (store.read(ONE), store.records()) == before

    def test_some_checkpoints_can_be_deleted(self, store):
        for name in (ONE, TWO):
            store.append(name, log(3, name), 0)
            store.put_checkpoint(name, 2, b"fold")
        assert store.drop_checkpoints([ONE, THREE]) == 1
        assert store.checkpoints() == [TWO]

    def test_a_checkpoint_goes_with_its_execution(self, store):
        store.append(ONE, log(3), 0)
        store.put_checkpoint(ONE, 3, b"old")
        store.delete(ONE)
        store.append(ONE, log(3), 0)
        assert store.checkpoint(ONE) is None

    # --- verification

    def test_a_store_that_was_used_checks_clean(self, store):
        large = text(200_000)
        store.append_all([batch(ONE, 0, [*log(4), done(5, large)], acquire=HERE), batch(TWO, 0, log(3, TWO))])
        store.append(ONE, [completed(6)], 5, 1)
        store.append(TWO, [done(4, large, TWO), failed(5, TWO)], 3)
        store.put_checkpoint(ONE, 3, b"fold")
        store.append(THREE, log(2, THREE), 0)
        store.delete(THREE)
        report = check(store)
        assert report.all_damages() == []
        assert report.ok
        assert {(entry.events, entry.readable, entry.unverified) for entry in report.executions} == {
            (6, 6, 0),
            (5, 5, 0),
        }

    def test_an_empty_store_checks_clean(self, store):
        assert check(store).ok

    def test_a_stored_log_has_what_was_appended(self, store):
        store.append(ONE, log(3), 0)
        stored = store.stored_log(ONE)
        assert stored.record == store.record(ONE)
        assert [(entry.sequence, entry.id) for entry in stored.records] == [
            (entry.sequence, entry.id) for entry in log(3)
        ]
        assert len({entry.checksum for entry in stored.records}) == 3
        assert stored.records[-1].checksum == stored.checksum

    def test_the_checksum_of_an_event_covers_those_before(self, store):
        store.append(ONE, [*log(1), done(2, "a"), done(3, "same")], 0)
        first = store.stored_log(ONE).checksum
        store.delete(ONE)
        store.append(ONE, [*log(1), done(2, "b"), done(3, "same")], 0)
        assert store.stored_log(ONE).checksum != first

    # --- throwing away

    def test_only_what_has_ended_is_discarded(self, store):
        store.append(ONE, [*log(2, ONE), completed(3, ONE)], 0)
        store.append(TWO, log(2, TWO), 0)
        assert store.discard([ONE, TWO, THREE], now=START) == [ONE]
        assert [record.execution_id for record in store.records()] == [TWO]

    def test_what_somebody_is_about_to_resume_is_not_discarded(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        store.acquire(ONE, HERE, 30, now=START)
        assert store.discard([ONE], now=START + SECOND) == []
        assert store.discard([ONE], now=START + 30 * SECOND) == [ONE]

    def test_what_was_resumed_and_has_ended_again_is_not_discarded(self, store):
        for name in (ONE, TWO):
            store.append(name, [*log(2, name), failed(3, name)], 0)
        ends = {name: store.record(name).last_sequence for name in (ONE, TWO)}
        store.append(ONE, [resumed(4, ONE), completed(5, ONE)], 3)
        assert store.discard(ends) == [TWO]
        assert store.record(ONE).last_sequence == 5
        assert store.discard({ONE: 5}) == [ONE]

    def test_listeners_hear_what_is_discarded(self, store):
        store.append(ONE, [*log(2), failed(3)], 0)
        heard = []
        store.subscribe(lambda *news: heard.append(news))
        store.discard([ONE, TWO])
        assert heard == [(ONE, ())]

    def test_an_id_that_is_not_unicode_is_refused(self, store):
        store.append(ONE, log(1), 0)
        (answer,) = store.append_all([batch(ONE, 1, [event(2, step(2).data, path="\ud800")])])
        assert "invalid event at index 0" in str(answer)

    # --- a commit of which nobody knows whether it was made

    def test_what_is_written_again_is_there_once(self, store):
        for written in range(4):
            name, owner = execution_id(written), Owner("here", 11, 1, "kernel")
            if written:
                store.append_all([batch(name, 0, log(written, name), acquire=owner)])
            assert store.append_all([batch(name, 0, log(3, name), acquire=owner, again=True)]) == [None]
            assert store.read(name) == log(3, name)
            assert [lease.token for lease in store.leases() if lease.execution_id == name] == [1]
            store.append(name, [step(4, name)], 3, 1)

    def test_what_another_wrote_is_not_taken_for_ones_own(self, store):
        store.append(ONE, log(2), 0)
        other = event(2, StepCompleted(output="mine"))
        (refusal,) = store.append_all([batch(ONE, 1, [replace(other, id="event_other")], again=True)])
        assert isinstance(refusal, ConcurrentAppendError)
