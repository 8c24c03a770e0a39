"""Executions that wait for a worker, and the workers that say they are there.

An execution is in a queue from its event ``execution_enqueued`` on: workers begin it when it is due, take it up again
when its driver has died, and go on with it when something has come that it waited for. A claim is the acquisition of
its lease; from then on it is driven like any other. Of two workers that claim at once each gets others. What an
execution of a queue starts, or goes on as, is in that queue as well (`divebook.execution.belonging`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from divebook.store.leases import LEASE_SECONDS, Lease, Moment
from divebook.store.messages import Arrivals
from divebook.store.owner import Owner

WORKER_SECONDS = LEASE_SECONDS
"""How long a worker is taken to be there after it has said so."""


@dataclass(frozen=True, slots=True)
class QueuedExecution:
    """An execution that a queue has, and that has not ended."""

    execution_id: str
    queue: str
    priority: int
    workflow: str
    fingerprint: str | None


class Claim(NamedTuple):
    """What a worker asks for."""

    queues: tuple[str, ...]
    """In the order in which they are served."""
    workflows: Mapping[str, str]
    """Names of workflows and the fingerprints that are wanted of them."""
    limit: int
    without: frozenset[str]
    """Executions that are not wanted."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """What a worker says of itself, and until when that holds."""

    id: str
    owner: Owner
    queues: tuple[str, ...]
    parallel: int
    """How many executions it drives at once at most."""
    workflows: Mapping[str, str]
    """What it can run: names of workflows with their fingerprints."""
    driving: int = 0
    """How many it drives, as it said last."""
    expires_at: int = 0
    """Microseconds since 1970, by the store's clock."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Executions that it could not take up, and why."""

    def can_run(self, queued: QueuedExecution) -> bool:
        """Return whether it takes such executions, and has not refused this one."""
        return self.why_not(queued) is None

    def why_not(self, queued: QueuedExecution) -> str | None:
        """Return why it does not take an execution; None if it does."""
        if queued.queue not in self.queues:
            return f"takes from {', '.join(self.queues)}"
        if queued.workflow not in self.workflows:
            return f"has no workflow {queued.workflow!r}"
        if self.workflows[queued.workflow] != queued.fingerprint:
            return f"has another definition of {queued.workflow!r}"
        return self.refused.get(queued.execution_id)


def worker_to_data(worker: WorkerRecord) -> dict[str, Any]:
    """Return what a worker says of itself as plain data; its id and its time are apart."""
    data = asdict(worker)
    del data["id"], data["expires_at"]
    mappings = {"workflows": dict(worker.workflows), "refused": dict(worker.refused)}
    return {**data, "queues": list(worker.queues), **mappings}


def worker_from(worker_id: str, data: Mapping[str, Any], expires_at: int) -> WorkerRecord:
    """Return what `worker_to_data` wrote; ValueError, TypeError or KeyError where it did not."""
    said = {**data, "owner": Owner(**data["owner"]), "queues": tuple(data["queues"])}
    return WorkerRecord(id=worker_id, expires_at=expires_at, **said)


class Queues(ABC):
    """The queues of a store."""

    _lock: threading.RLock
    _arrivals: Arrivals

    def claim(
        self,
        queues: Collection[str],
        workflows: Mapping[str, str],
        owner: Owner,
        limit: int,
        *,
        without: Collection[str] = (),
        ttl_seconds: float = LEASE_SECONDS,
        now: int | None = None,
    ) -> list[Lease]:
        """Take the leases of up to `limit` executions of some queues that have something to do, and nobody drives.

        Higher priorities come first, then what was created first.

        Parameters
        ----------
        workflows
            Those of which executions are wanted: names, and the fingerprints with which they must have begun.
        without
            Executions that are not wanted.
        now
            As for `LeaseBook.acquire`.
        """
        self._check_open()
        if limit < 1 or not queues or not workflows:
            return []
        moment = self._moment(now)
        with self._lock:
            wanted = Claim(tuple(queues), dict(workflows), limit, frozenset(without))
            return self._claim(wanted, owner, moment, moment.plus(ttl_seconds))

    def queued(self, *, withheld: bool = False) -> list[QueuedExecution]:
        """Return what the queues have, in the order in which it is taken; or what workers are to leave alone of it."""
        self._check_open()
        return self._queued(withheld=withheld)

    def seen_to(self, schedule: str, moment: int) -> int:
        """Return up to when the due times of a schedule are seen to: up to `moment` if it is a new one.

        Both are microseconds since 1970. Of two who ask at once about a new one, both get what the first one said.
        """
        self._check_open()
        with self._lock:
            return self._seen_to(schedule, moment)

    def see_to(self, schedule: str, moment: int) -> None:
        """Note that all due times of a schedule up to a moment are seen to; it never goes back."""
        self._check_open()
        with self._lock:
            self._see_to(schedule, moment)

    def withhold(self, execution_id: str) -> None:
        """Let workers leave an execution alone until somebody resumes it; does nothing if it is in no queue."""
        self._check_open()
        with self._lock:
            self._withhold(execution_id)

    def announce(self, worker: WorkerRecord, now: int | None = None) -> None:
        """Say that a worker is there, for `WORKER_SECONDS`; those whose time is over for an hour are forgotten."""
        self._check_open()
        moment = self._moment(now)
        with self._lock:
            self._announce(worker, moment.plus(WORKER_SECONDS).wall, moment.plus(-3600).wall)

    def retire(self, worker_id: str) -> None:
        """Say that a worker is no more."""
        self._check_open()
        with self._lock:
            self._retire(worker_id)

    def workers(self, now: int | None = None) -> list[WorkerRecord]:
        """Return the workers that are there, by id: those that have said so in time, and are not known to be dead."""
        self._check_open()
        moment = self._moment(now)
        return [
            worker
            for worker in sorted(self._workers(), key=lambda worker: worker.id)
            if worker.expires_at > moment.wall and not worker.owner.has_died()
        ]

    # --- what an implementation does; those that write are called with the lock held ---------------------------------

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _moment(self, now: int | None) -> Moment: ...

    @abstractmethod
    def _claim(self, wanted: Claim, owner: Owner, moment: Moment, until: Moment) -> list[Lease]: ...

    @abstractmethod
    def _queued(self, *, withheld: bool) -> list[QueuedExecution]: ...

    @abstractmethod
    def _seen_to(self, schedule: str, moment: int) -> int: ...

    @abstractmethod
    def _see_to(self, schedule: str, moment: int) -> None: ...

    @abstractmethod
    def _withhold(self, execution_id: str) -> None: ...

    @abstractmethod
    def _announce(self, worker: WorkerRecord, until: int, forgotten: int) -> None: ...

    @abstractmethod
    def _retire(self, worker_id: str) -> None: ...

    @abstractmethod
    def _workers(self) -> list[WorkerRecord]: ...
