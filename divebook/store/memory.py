"""Events in this process's memory: for tests, and for runs that nobody needs to keep.

Payloads are kept encoded, as on disk, so that what is read is always a copy and fails where a file would fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from divebook.errors import ConcurrentAppendError, InvalidEventError, StoreError
from divebook.events.catalog import RUNNING, TERMINAL
from divebook.events.codec import decode_payload
from divebook.events.event import Event, to_datetime
from divebook.store.base import EventStore, ExecutionRecord, Refusal, first_sorted
from divebook.store.batches import PreparedBatch, Turn, duplicate_id


@dataclass(slots=True)
class _Log:
    workflow_name: str
    fingerprint: str | None
    created_at: int
    turn: Turn = field(default_factory=lambda: Turn(RUNNING, None, None))
    events: list[Event] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    size: int = 0


class MemoryStore(EventStore):
    """A store that is gone with the process."""

    location = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self._logs: dict[str, _Log] = {}

    def _write(self, batches: Sequence[PreparedBatch]) -> list[Refusal | None]:
        return [self._write_one(batch) for batch in batches]

    def _write_one(self, batch: PreparedBatch) -> Refusal | None:
        try:
            log = self._log_for(batch)
        except (StoreError, InvalidEventError) as refusal:
            return refusal
        self._extend(log, batch)
        return None

    def _log_for(self, batch: PreparedBatch) -> _Log:
        log = self._logs.get(batch.execution_id)
        if log is None:
            if batch.started is None:
                raise self._unknown(batch.execution_id)
            return _Log(batch.started.workflow_name, batch.started.fingerprint, batch.events[0].recorded_at)
        if len(log.events) != batch.expected_sequence:
            raise ConcurrentAppendError(batch.execution_id, batch.expected_sequence, len(log.events))
        for index, event in enumerate(batch.events):
            if event.id in log.ids:
                raise duplicate_id(index, event.id)
        return log

    def _extend(self, log: _Log, batch: PreparedBatch) -> None:
        log.events.extend(batch.events)
        log.payloads.extend(batch.payloads)
        log.ids.update(event.id for event in batch.events)
        log.size += batch.size
        log.turn = batch.turn or log.turn
        self._logs[batch.execution_id] = log

    def _read(self, execution_id: str, after: int, limit: int | None) -> list[Event]:
        with self._lock:
            log = self._find(execution_id)
            wanted = slice(after, None if limit is None else after + limit)
            events, payloads = log.events[wanted], log.payloads[wanted]
        return list(map(_copy, events, payloads))

    def _record(self, execution_id: str) -> ExecutionRecord:
        with self._lock:
            return _record(execution_id, self._find(execution_id))

    def _records(self, status: str | None, workflow: str | None, limit: int, offset: int) -> list[ExecutionRecord]:
        with self._lock:
            records = [_record(key, log) for key, log in self._logs.items() if _matches(log, status, workflow)]
        records.reverse()  # the sort is stable: of two created in the same microsecond the later one comes first
        records.sort(key=lambda record: record.created_at, reverse=True)
        return records[offset : offset + limit if limit else None]

    def _candidates(self, prefix: str) -> list[str]:
        with self._lock:
            return first_sorted(execution_id for execution_id in self._logs if execution_id.startswith(prefix))

    def _delete(self, execution_id: str) -> None:
        self._find(execution_id)
        del self._logs[execution_id]

    def _cleanup(self, before: int) -> list[str]:
        gone = [execution_id for execution_id, log in self._logs.items() if _ended_before(log.turn, before)]
        for execution_id in gone:
            del self._logs[execution_id]
        return gone

    def _close(self) -> None:
        self._logs.clear()

    def _find(self, execution_id: str) -> _Log:
        log = self._logs.get(execution_id)
        if log is None:
            raise self._unknown(execution_id)
        return log


def _copy(event: Event, payload: bytes) -> Event:
    data = decode_payload(event.event_type, payload)
    return Event(event.id, event.execution_id, event.sequence, event.recorded_at, data, event.path, event.step)


def _matches(log: _Log, status: str | None, workflow: str | None) -> bool:
    return status in (None, log.turn.status) and workflow in (None, log.workflow_name)


def _ended_before(turn: Turn, before: int) -> bool:
    return turn.status in TERMINAL and turn.ended_at is not None and turn.ended_at < before


def _record(execution_id: str, log: _Log) -> ExecutionRecord:
    created = to_datetime(log.created_at)
    return ExecutionRecord(
        execution_id=execution_id,
        workflow_name=log.workflow_name,
        fingerprint=log.fingerprint,
        status=log.turn.status,
        created_at=created,
        started_at=created,
        ended_at=None if log.turn.ended_at is None else to_datetime(log.turn.ended_at),
        last_sequence=len(log.events),
        error=log.turn.error,
        size=log.size,
    )
