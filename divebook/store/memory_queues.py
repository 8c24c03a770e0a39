"""The queues of a store in memory."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from divebook.engine.lifecycle import TERMINAL
from divebook.events.catalog import ENQUEUED, FORK, RUNNING
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
        self._schedules: dict[str, int] = {}

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
        is_due = log.wake_at is not None and log.wake_at <= moment.wall
        if log.turn.status == ENQUEUED:
            return log.wake_at is None or is_due
        return log.turn.status == RUNNING or log.lease is not None or is_due or self._has_untaken(execution_id)

    def _waiting(self, *, withheld: bool = False) -> Iterator[QueuedExecution]:
        """Yield what the queues have, in its order; or what workers leave alone of it."""
        with self._lock:
            kept = [
                (-log.enqueued.priority, log.number, name, log.enqueued.queue, log.beginning)
                for name, log in self._logs.items()
                if log.enqueued is not None and log.withheld is withheld and log.turn.status not in TERMINAL
                if log.beginning.origin != FORK
            ]
        for less, _, name, queue, beginning in sorted(kept, key=lambda entry: (entry[3], *entry[:2])):
            yield QueuedExecution(name, queue, -less, beginning.workflow_name, beginning.fingerprint)

    def _queued(self, *, withheld: bool) -> list[QueuedExecution]:
        return list(self._waiting(withheld=withheld))

    def _seen_to(self, schedule: str, moment: int) -> int:
        return self._schedules.setdefault(schedule, moment)

    def _see_to(self, schedule: str, moment: int) -> None:
        self._schedules[schedule] = max(moment, self._schedules.get(schedule, moment))

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
