"""The suite must notice stores that break their word; each of these breaks one promise."""

import inspect
from dataclasses import replace

import pytest

from divebook.errors import ConcurrentAppendError, InvalidEventError
from divebook.store import MemoryStore
from tests.store.conformance import StorePromises


def changed(batch, change):
    return replace(batch, events=tuple(change(event) for event in batch.events))


class DropsTheLastEventOfABatch(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(replace(batch, events=batch.events[:-1] or batch.events))


class IgnoresTheExpectedSequence(MemoryStore):
    def _write_one(self, batch):
        log = self._logs.get(batch.execution_id)
        return super()._write_one(replace(batch, expected_sequence=len(log.events) if log else 0))


class WritesTheSoundHalfOfABadBatch(MemoryStore):
    def append(self, execution_id, events, expected_sequence):
        try:
            super().append(execution_id, events, expected_sequence)
        except InvalidEventError:
            super().append(execution_id, events[: len(events) // 2], expected_sequence)
            raise


class NotifiesBeforeTheCommit(MemoryStore):
    def _write_and_tell(self, batches):
        for batch in batches:
            self._subscribers.tell(batch.execution_id, batch.events)
        return self._write(batches)


class NotifiesOfRefusedBatches(MemoryStore):
    def _write_and_tell(self, batches):
        answers = self._write(batches)
        for batch in batches:
            self._subscribers.tell(batch.execution_id, batch.events)
        return answers


class ReadsBackwards(MemoryStore):
    def _read(self, execution_id, after, limit):
        return super()._read(execution_id, after, limit)[::-1]


class LosesThePath(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(changed(batch, lambda event: replace(event, path="")))


class RoundsTimesToMilliseconds(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(changed(batch, lambda e: replace(e, recorded_at=e.recorded_at // 1000 * 1000)))


class LowersIds(MemoryStore):
    def _write_one(self, batch):
        return super()._write_one(changed(batch, lambda event: replace(event, id=event.id.lower())))


class ForgetsEventIds(MemoryStore):
    def _extend(self, log, batch):
        super()._extend(log, batch)
        log.ids.clear()


class HandsOutItsOwnPayloads(MemoryStore):
    def _read(self, execution_id, after, limit):
        self._find(execution_id)
        return self._logs[execution_id].events[after : None if limit is None else after + limit]


class RefusesEverythingWithOneConflict(MemoryStore):
    def _write(self, batches):
        kept = dict(self._logs)
        answers = super()._write(batches)
        conflict = next((answer for answer in answers if isinstance(answer, ConcurrentAppendError)), None)
        if conflict is None:
            return answers
        self._logs = kept
        return [conflict] * len(answers)


class KeepsTheErrorOfAResumedExecution(MemoryStore):
    def _write_one(self, batch):
        log = self._logs.get(batch.execution_id)
        if log and log.turn.error and batch.turn:
            batch = replace(batch, turn=replace(batch.turn, error=log.turn.error))
        return super()._write_one(batch)


class CleansUpWhatStillRuns(MemoryStore):
    def _cleanup(self, before):
        gone = [name for name, log in self._logs.items() if log.created_at < before]
        for name in gone:
            del self._logs[name]
        return gone


class ListsOldestFirst(MemoryStore):
    def _records(self, *filters):
        return super()._records(*filters)[::-1]


class ReadsFromTheGivenSequence(MemoryStore):
    def _read(self, execution_id, after, limit):
        return super()._read(execution_id, max(after - 1, 0), limit)


class TellsOneListenerOnly(MemoryStore):
    def subscribe(self, listener):
        self._subscribers._listeners = ()
        return super().subscribe(listener)


class LetsListenersFail(MemoryStore):
    def _write_and_tell(self, batches):
        answers = self._write(batches)
        for batch, answer in zip(batches, answers, strict=True):
            for (listener,) in self._subscribers._listeners if answer is None else ():
                listener(batch.execution_id, batch.events)
        return answers


BROKEN = [kind for kind in MemoryStore.__subclasses__() if kind.__module__ == __name__]


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
    broken = [name for name, promise in promises() if not kept(promise, kind())]
    assert broken


def test_the_suite_passes_a_sound_store():
    assert [name for name, promise in promises() if not kept(promise, MemoryStore())] == []


def test_every_promise_is_run():
    assert len(promises()) > 80
    assert len(BROKEN) >= 10
