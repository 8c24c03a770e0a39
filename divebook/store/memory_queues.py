"""The queues of a store in memory."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from divebook.engine.lifecycle import TERMINAL
from divebook.events.catalog import ENQUEUED, RUNNING
from divebook.store.base import EventStore
from divebook.store.leases import Lease, Moment
from divebook.store.memory_log import MemoryLog
from divebook.store.owner import Owner
from divebook.store.queues import Claim, QueuedExecution, WorkerRecord


class MemoryQueues(EventStore):
    """The part of a store in memory that has queues and workers."""

    def __init__(self) -> None:
        super().__init__()
        self._logs: dict[str, MemoryLog] = {}
        self._announced: dict[str, WorkerRecord] = {}

    @abstractmethod
    def _has_untaken(self, execution_id: str) -> bool: ...

    def _claim(self, wanted: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]:
        ordered = (known for queue in wanted.queues for known in self._waiting() if known.queue == queue)
        fitting = (known.execution_id for known in ordered if wanted.workflows.get(known.workflow) == known.fingerprint)
        to_do = (name for name in fitting if name not in wanted.without and self._is_to_do(name, moment))
        return [self._acquire(name, owner, moment, until, None) for name in [*itertools.islice(to_do, wanted.limit)]]

    def _is_to_do(self, execution_id: str, moment: Moment) -> bool:
        log = self._logs[execution_id]
        if log.lease is not None and log.lease.keeps_out(moment):
            return False
        if log.turn.status == RUNNING or log.lease is not None or (log.wake_at or moment.wall + 1) <= moment.wall:
            return True
        return (log.turn.status == ENQUEUED and log.wake_at is None) or self._has_untaken(execution_id)

    def _waiting(self) -> Iterator[QueuedExecution]:
        """Yield what the queues have, in its order."""
        with self._lock:
            kept = [
                (-log.enqueued.priority, log.number, name, log.enqueued.queue, log.beginning)
                for name, log in self._logs.items()
                if log.enqueued is not None and not log.withheld and log.turn.status not in TERMINAL
            ]
        for less, _, name, queue, beginning in sorted(kept, key=lambda entry: (entry[3], *entry[:2])):
            yield QueuedExecution(name, queue, -less, beginning.workflow_name, beginning.fingerprint)

    def _queued(self) -> list[QueuedExecution]:
        return list(self._waiting())

    def _withhold(self, execution_id: str) -> None:
        if execution_id in self._logs:
            self._logs[execution_id].withheld = True

    def _announce(self, worker: WorkerRecord, until: int, forgotten: int) -> None:
        self._announced = {name: known for name, known in self._announced.items() if known.expires_at >= forgotten}
        self._announced[worker.id] = replace(worker, expires_at=until)

    def _retire(self, worker_id: str) -> None:
        self._announced.pop(worker_id, None)

    def _workers(self) -> list[WorkerRecord]:
        return list(self._announced.values())
