"""Leases: which process may drive which execution. They expire, and their fencing tokens only grow.

An execution's token grows by one with every acquisition. The store refuses events that come with another token than the
present one, so that a process which lost its lease, and does not know it yet, cannot write.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from divebook.errors import LeaseHeldError
from divebook.events.event import to_datetime
from divebook.store.messages import Arrivals

# The owner of a lease: one process of one machine, distinguished from a later process with the same number.
#
# A process number is used again, so its start time belongs to it; both mean something only inside one start of one
# machine and one container, which is what `Owner.boot` names.


_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that drives executions.

    Examples
    --------
    >>> Owner.current().has_died()
    False
    """

    host: str
    pid: int
    started: int
    """When the process began, in the kernel's clock ticks since the machine's start; 0 if that is not known."""
    name: str
    """For people: the program."""
    boot: str = ""
    """The start of the machine, and the container, that `pid` and `started` belong to; empty if unknown."""

    @classmethod
    def current(cls, name: str | None = None) -> Self:
        """Return this process, under the name of its program unless another is given."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _own_start(pid), name or _program(sys.argv[0]), this_boot())

    def is_same_process(self, other: Owner) -> bool:
        """Return whether two owners are one process, whatever they are called."""
        return (self.host, self.pid, self.started, self.boot) == (other.host, other.pid, other.started, other.boot)

    def has_died(self) -> bool:
        """Return whether the process is certainly gone; False for one that cannot be seen from here."""
        here = this_boot()
        if self.host != socket.gethostname():
            return False
        if self.boot == here:
            return not _runs(self.pid, self.started)
        return self.boot.split()[:1] != here.split()[:1] and bool(self.boot and here)  # the machine was started anew


class _ThisProcess:
    """The number of this process: to ask for it takes a call of the system, and stores ask with every call."""

    def __init__(self) -> None:
        self._look()
        if hasattr(os, "register_at_fork"):  # where there is fork
            os.register_at_fork(after_in_child=self._look)

    def _look(self) -> None:
        self.number = os.getpid()


THIS_PROCESS = _ThisProcess()


@lru_cache(maxsize=1)
def this_boot() -> str:
    """Return what tells this start of this machine, and this container, from any other."""
    try:
        machine = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{machine} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _program(command: str) -> str:
    return Path(command).name or "python"


@lru_cache(maxsize=1)
def _own_start(pid: int) -> int:  # the parameter makes a forked process look again
    found = _state_and_start(pid)
    return found[1] if found else 0


def _runs(pid: int, started: int) -> bool:
    found = _state_and_start(pid)
    if found is None:
        return _answers(pid)
    state, start = found
    return state not in "ZX" and started in (0, start)  # Z, X: dead, but its parent has not asked yet


def _state_and_start(pid: int) -> tuple[str, int] | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the program's name, in brackets, may hold anything
    return fields[0], int(fields[19])


def _answers(pid: int) -> bool:
    # Processes of other users may be hidden in /proc, but still answer. On Windows, the question would end them.
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


LEASE_SECONDS = 30.0
"""How long a lease lasts unless it is renewed."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to append to one execution, as it stood when it was acquired or listed."""

    execution_id: str
    token: int
    owner: Owner
    expires_at: int
    """Microseconds since 1970."""
    expires_uptime: int | None = None
    """The same by the monotonic clock of the owner's machine; None if the time was given from outside."""
    was_left: bool = field(default=False, compare=False)
    """Of one that was claimed: whether who had the execution before never gave it back."""

    def keeps_out(self, moment: Moment, instead_of: Lease | None = None) -> bool:
        """Return whether the lease is live at a moment: it has not expired, and its owner is not known to be dead.

        It does not keep those out who come to take this very lease away.
        """
        if instead_of is not None and instead_of.token == self.token:
            return False
        # A dead owner need not be waited for; one that only sleeps is fenced by its token when it writes again
        # (test_a_late_append_with_an_old_token_is_refused).
        return not moment.is_past(self) and not self.owner.has_died()

    def held_error(self) -> LeaseHeldError:
        """Return the error for somebody who wants the execution as well."""
        owner = self.owner
        until = to_datetime(self.expires_at)
        return LeaseHeldError(self.execution_id, host=owner.host, pid=owner.pid, name=owner.name, until=until)


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment by two clocks, in microseconds: the wall's, and the machine's monotonic one.

    Between processes of one machine the monotonic clock decides: it cannot be set, and it stands still while the
    machine sleeps, so that a lease is neither lost nor prolonged by either.
    """

    wall: int
    uptime: int | None

    @classmethod
    def at(cls, now: int | None) -> Self:
        """Return the present, or the moment `now`, which only the wall clock knows."""
        if now is not None:
            return cls(now, None)
        return cls(time.time_ns() // 1000, time.monotonic_ns() // 1000)

    def is_past(self, lease: Lease) -> bool:
        """Return whether the lease has expired."""
        if self.uptime is None or lease.expires_uptime is None or lease.owner.boot != this_boot():
            return lease.expires_at <= self.wall
        return lease.expires_uptime <= self.uptime

    def plus(self, seconds: float) -> Moment:
        """Return a later moment."""
        microseconds = round(seconds * 1_000_000)
        return Moment(self.wall + microseconds, None if self.uptime is None else self.uptime + microseconds)

    def lease(self, execution_id: str, token: int, owner: Owner) -> Lease:
        """Return a lease that ends at this moment."""
        return Lease(execution_id, token, owner, self.wall, self.uptime)


class LeaseBook(ABC):
    """The leases of a store."""

    _lock: threading.RLock

    def acquire(
        self,
        execution_id: str,
        owner: Owner,
        ttl_seconds: float = LEASE_SECONDS,
        now: int | None = None,
        instead_of: Lease | None = None,
    ) -> Lease:
        """Take the right to drive an execution, also from an owner that is dead or did not renew in time.

        Parameters
        ----------
        now
            Microseconds since 1970, for tests; by default the store's own clock.
        instead_of
            A lease that is to be taken from its holder though it is live; its token is refused from then on.

        Raises
        ------
        LeaseHeldError
            Somebody drives it, perhaps this very process; says who and until when.
        ExecutionNotFoundError
            There is no such log.
        """
        self._check_open()
        moment = self._moment(now)
        with self._lock:
            return self._acquire(execution_id, owner, moment, moment.plus(ttl_seconds), instead_of)

    def renew(self, leases: Sequence[Lease], ttl_seconds: float = LEASE_SECONDS, now: int | None = None) -> list[bool]:
        """Prolong leases, in one transaction; say for each whether it is still held.

        A lease that expired is held as long as no other process acquired the execution.
        """
        self._check_open()
        until = self._moment(now).plus(ttl_seconds)
        with self._lock:
            return self._renew(leases, until) if leases else []

    def release(self, lease: Lease) -> None:
        """Let others have the execution; does nothing if the lease is not the present one."""
        self._check_open()
        with self._lock:
            self._release(lease)

    def leases(self) -> list[Lease]:
        """Return the leases that were neither released nor taken over, expired ones included, by execution id."""
        self._check_open()
        return sorted(self._leases(), key=lambda lease: lease.execution_id)

    def lease_of(self, execution_id: str) -> Lease | None:
        """Return that of the `leases` which is an execution's, or None; ExecutionNotFoundError if it does not exist."""
        self._check_open()
        return self._lease_of(execution_id)

    def live_lease_of(self, execution_id: str, now: int | None = None) -> Lease | None:
        """Return an execution's lease if it keeps others out, or None; ExecutionNotFoundError if it does not exist."""
        held = self.lease_of(execution_id)
        return held if held is not None and held.keeps_out(self._moment(now)) else None

    def live_leases(self, now: int | None = None) -> list[Lease]:
        """Return the leases that keep others out, by execution id: the store's clock decides, not the caller's."""
        moment = self._moment(now)
        return [lease for lease in self.leases() if lease.keeps_out(moment)]

    def _moment(self, now: int | None) -> Moment:
        """Return the present by the store's clock, or the moment `now`; a server's store asks its server.

        Machines disagree about the time, and of two that do one would take the leases of the other.
        """
        return Moment.at(now)

    @abstractmethod
    def _check_open(self) -> None: ...

    # --- what an implementation does; the first three are called with the lock held ----------------------------------

    @abstractmethod
    def _acquire(
        self, execution_id: str, owner: Owner, moment: Moment, until: Moment, instead_of: Lease | None
    ) -> Lease: ...

    @abstractmethod
    def _renew(self, leases: Sequence[Lease], until: Moment) -> list[bool]: ...

    @abstractmethod
    def _release(self, lease: Lease) -> None: ...

    @abstractmethod
    def _leases(self) -> list[Lease]: ...

    @abstractmethod
    def _lease_of(self, execution_id: str) -> Lease | None: ...


# Executions that wait for a worker, and the workers that say they are there.
#
# An execution is in a queue from its event ``execution_enqueued`` on: workers begin it when it is due, take it up again
# when its driver has died, and go on with it when something has come that it waited for. A claim is the acquisition of
# its lease; from then on it is driven like any other. Of two workers that claim at once each gets others. What an
# execution of a queue starts, or goes on as, is in that queue as well (`divebook.runtime.driver`).


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
