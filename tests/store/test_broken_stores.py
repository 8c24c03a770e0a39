"""The suite must notice stores that break their word; each of these breaks one promise."""

import inspect
from dataclasses import replace

import pytest

from divebook.engine.lifecycle import TERMINAL
from divebook.errors import ConcurrentAppendError, InvalidEventError
from divebook.events.event import to_microseconds
from divebook.stores import MemoryStore
from divebook.stores.append import KnownIds
from tests.store import breaking_messages
from tests.store.conformance import StorePromises


def changed(batch, change):
    return replace(batch, records=tuple(change(record) for record in batch.records))


def shortened(batch):
    parts = {name: getattr(batch, name)[:-1] for name in ("records", "types", "payloads", "heads")}
    return replace(batch, **parts, last_sequence=batch.last_sequence - 1) if parts["records"] else batch


class DropsTheLastEventOfABatch(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(shortened(batch))


class IgnoresTheExpectedSequence(MemoryStore):
    def _write_one(self, batch):
        log = self._logs.get(batch.execution_id)
        return super()._write_one(replace(batch, expected_sequence=log.last_sequence if log else 0))


class WritesTheSoundHalfOfABadBatch(MemoryStore):
    def append(self, execution_id, events, expected_sequence):
        try:
            super().append(execution_id, events, expected_sequence)
        except InvalidEventError:
            super().append(execution_id, events[: len(events) // 2], expected_sequence)
            raise


class NotifiesBeforeTheCommit(MemoryStore):
    def _write_and_notify(self, batches):
        for batch in batches:
            self._subscribers.notify(batch.execution_id, batch.records)
        return self._write(batches)


class NotifiesOfRefusedBatches(MemoryStore):
    def _write_and_notify(self, batches):
        answers = self._write(batches)
        for batch in batches:
            self._subscribers.notify(batch.execution_id, batch.records)
        return answers


class ReadsBackwards(MemoryStore):
    def _read(self, execution_id, after, limit):
        return super()._read(execution_id, after, limit)[::-1]


class GoesOnAfterAnEnd(MemoryStore):
    def _write_one(self, batch):
        log = self._logs.get(batch.execution_id)
        if log and log.status_columns.status == "completed":
            log.status_columns = replace(log.status_columns, status="running")
        return super()._write_one(batch)


class StartsTwiceWithOneKey(MemoryStore):
    def _begin(self, batch):
        self._start_keys.clear()
        return super()._begin(batch)


class ForgetsTheTags(MemoryStore):
    def _begin(self, batch):
        log = super()._begin(batch)
        log.beginning = log.beginning._replace(tags=())
        return log


class KeepsTheKeyOfTheDead(MemoryStore):
    def _drop(self, execution_id):
        keys = dict(self._start_keys)
        super()._drop(execution_id)
        self._start_keys = keys


class KeepsQuestionsOpen(MemoryStore):
    def _extend(self, log, batch):
        batch.questions = dict.fromkeys(batch.questions, True)
        super()._extend(log, batch)


class LosesThePath(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(changed(batch, lambda record: replace(record, path="")))


class RoundsTimesToMilliseconds(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(changed(batch, lambda e: replace(e, recorded_at=e.recorded_at // 1000 * 1000)))


class LowersIds(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(changed(batch, lambda record: replace(record, id=record.id.lower())))


class ForgetsEventIds(MemoryStore):
    def _extend(self, log, batch):
        super()._extend(log, batch)
        log.ids = KnownIds()


class HandsOutItsOwnPayloads(MemoryStore):
    def _read(self, execution_id, after, limit):
        self._find(execution_id)
        return self._logs[execution_id].payloads[after : None if limit is None else after + limit]


class RefusesEverythingWithOneConflict(MemoryStore):
    def _write(self, batches):
        before = dict(self._logs)
        answers = super()._write(batches)
        conflict = next((answer for answer in answers if isinstance(answer, ConcurrentAppendError)), None)
        if conflict is None:
            return answers
        self._logs.clear()
        self._logs.update(before)
        return [conflict] * len(answers)


class KeepsTheErrorOfAResumedExecution(MemoryStore):
    def _write_one(self, batch):
        log = self._logs.get(batch.execution_id)
        if log and log.status_columns.error and batch.status_change:
            batch = replace(batch, status_change=replace(batch.status_change, error=log.status_columns.error))
        return super()._write_one(batch)


class CleansUpWhatStillRuns(MemoryStore):
    def cleanup(self, before, now=None):
        gone = [name for name, log in self._logs.items() if log.created_at < to_microseconds(before)]
        return len(self._discard_and_notify(dict.fromkeys(gone), None))


class CleansUpWhatIsAboutToBeResumed(MemoryStore):
    def _discard(self, last_sequences, moment):
        return super()._discard(last_sequences, moment and replace(moment, wall=2**60, uptime=None))


class ListsOldestFirst(MemoryStore):
    def records(self, *filters, **options):
        return super().records(*filters, **options)[::-1]


class ReadsFromTheGivenSequence(MemoryStore):
    def _read(self, execution_id, after, limit):
        return super()._read(execution_id, max(after - 1, 0), limit)


class TellsOneListenerOnly(MemoryStore):
    def subscribe(self, listener):
        self._subscribers.listeners.clear()
        return super().subscribe(listener)


class LetsListenersFail(MemoryStore):
    def _write_and_notify(self, batches):
        answers = self._write(batches)
        for batch, answer in zip(batches, answers, strict=True):
            for (listener,) in self._subscribers.listeners.entries if answer is None else ():
                listener(batch.execution_id, tuple(event for record in batch.records for event in record.events()))
        return answers


# --- leases


class GivesOutATokenTwice(MemoryStore):
    def _acquire(self, execution_id, *given):
        lease = super()._acquire(execution_id, *given)
        log = self._logs[execution_id]
        log.token = 1
        log.lease = replace(lease, token=1)
        return log.lease


class AcceptsLateAppends(MemoryStore):
    def _write_one(self, batch):
        log = self._logs.get(batch.execution_id)
        return super()._write_one(replace(batch, token=log.token if log and batch.token else batch.token))


class LetsWritersWithoutATokenIn(MemoryStore):
    def _write_one(self, batch):
        log = self._logs.get(batch.execution_id)
        return super()._write_one(replace(batch, token=log.token if log and not batch.token else batch.token))


class ForgetsTheFenceOnRelease(MemoryStore):
    def _release(self, lease):
        super()._release(lease)
        self._logs[lease.execution_id].token = 0


class KeepsExpiredLeasesForEver(MemoryStore):
    def _acquire(self, execution_id, owner, moment, *given):
        return super()._acquire(execution_id, owner, replace(moment, wall=0, uptime=None), *given)


class GivesALeaseToEverybody(MemoryStore):
    def _acquire(self, execution_id, *given):
        self._find(execution_id).lease = None
        return super()._acquire(execution_id, *given)


class WritesAgainWhatIsThere(MemoryStore):
    def _without_written(self, batch):
        return batch


class TakesWhatIsThereForItsOwn(MemoryStore):
    def _without_written(self, batch):
        return batch.without(len(batch.records) if batch.execution_id in self._logs else 0)


class TakesNoLeaseAway(MemoryStore):
    def _acquire(self, *given):
        return super()._acquire(*given[:-1], None)


class TakesAnyLeaseAway(MemoryStore):
    def _acquire(self, execution_id, *given):
        return super()._acquire(execution_id, *given[:-1], given[-1] and self._find(execution_id).lease)


class RenewsLostLeases(MemoryStore):
    def _renew_one(self, lease, until):
        lost = self._logs[lease.execution_id].lease is None or self._logs[lease.execution_id].token != lease.token
        self._logs[lease.execution_id].lease = lease
        return lost or super()._renew_one(lease, until)


class ReleasesForSomebodyElse(MemoryStore):
    def _release(self, lease):
        self._logs[lease.execution_id].lease = None


class BeginsWithoutTheLease(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(replace(batch, lease=None))


class KeepsTheLeaseOfWhatHasEnded(MemoryStore):
    def _extend(self, log, batch):
        lease = log.lease
        super()._extend(log, batch)
        log.lease = log.lease or lease


# --- large values, checkpoints, order


class StoresLargeValuesPerExecution(MemoryStore):
    def blobs(self, without=()):
        found = super().blobs(without)
        return [blob for blob in found for log in self._logs.values() if blob.digest in log.blobs]


class DropsLargeValuesInUse(MemoryStore):
    def drop_blobs(self):
        dropped = len(self._large_values.contents)
        self._large_values.contents.clear()
        return dropped


class KeepsLargeValuesForEver(MemoryStore):
    def drop_blobs(self):
        return 0


class CountsLargeValuesEveryTime(MemoryStore):
    def _extend(self, log, batch):
        log.blobs -= batch.blobs.keys()
        super()._extend(log, batch)


class KeepsTheOldestCheckpoint(MemoryStore):
    def put_checkpoint(self, execution_id, sequence, data):
        if self._find(execution_id).checkpoint is None:
            super().put_checkpoint(execution_id, sequence, data)


class KeepsTheOldestSummary(MemoryStore):
    def put_summaries(self, summaries):
        super().put_summaries({name: new for name, new in summaries.items() if name not in self.summaries([name])})


class TagsOnlyWhatRuns(MemoryStore):
    def _extend(self, log, batch):
        if log.status_columns.status in TERMINAL:
            batch.annotations = ()
        super()._extend(log, batch)


class DropsEventsWithTheCheckpoints(MemoryStore):
    def drop_checkpoints(self, execution_ids=None):
        execution_ids = self.checkpoints() if execution_ids is None else execution_ids
        for execution_id in execution_ids:
            self._logs.pop(execution_id, None)
        return len(execution_ids)


class ChecksumsEachEventAlone(MemoryStore):
    def _extend(self, log, batch):
        super()._extend(log, batch)
        log.checksums = [sum(payload) for payload in log.payloads]


class TearsTheLastWrite(MemoryStore):
    def _extend(self, log, batch):
        super()._extend(log, batch)
        log.payloads[-1] = log.payloads[-1][:-1]


class DiscardsWhatStillRuns(MemoryStore):
    def _discard(self, execution_ids, now):
        gone = [name for name in execution_ids if name in self._logs]
        for name in gone:
            del self._logs[name]
        return gone


BROKEN = [kind for kind in MemoryStore.__subclasses__() if kind.__module__ in (__name__, breaking_messages.__name__)]


def promises():
    return inspect.getmembers(StorePromises, lambda member: getattr(member, "__name__", "").startswith("test_"))


def kept(promise, store):
    try:
        promise(StorePromises(), store)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - whatever a broken store does
        return False
    return True


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_the_suite_catches(kind):
    assert any(not kept(promise, kind()) for name, promise in promises())


def test_the_suite_passes_a_sound_store():
    assert [name for name, promise in promises() if not kept(promise, MemoryStore())] == []


def test_every_promise_is_run():
    assert len(promises()) > 195
    assert len(BROKEN) >= 51
