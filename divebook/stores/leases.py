"""Data classes for leases, their owners, queue entries and worker records.

A lease is the right to drive one execution. It expires unless its owner renews it. Each acquisition increases the
execution's fencing token by one, and the store refuses events that come with an older token. A process that has lost
its lease without noticing can therefore not write.

An execution is in a queue from its event ``execution_enqueued`` on. A worker claims it, which acquires its lease, when
it is due, when its driver has died, or when something has arrived that it waited for. From then on it is driven like
any other execution. Its children and successors belong to the same queue (`divebook.runtime.driver`).
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

from divebook.engine.inbox import Message
from divebook.errors import CorruptStoreError, LeaseHeldError
from divebook.events.codec import decode, encode
from divebook.events.event import to_datetime
from divebook.processes import is_running, start_of, this_boot

LEASE_SECONDS = 30.0
"""Seconds after which a lease expires unless its owner renews it."""
WORKER_SECONDS = LEASE_SECONDS
"""Seconds for which the record of a worker is valid."""


# --- leases ---
# A token is needed beside the expiry, since a process cannot know how long it was stopped:
#
#     A acquires the lease, token 1            A sleeps, and does not renew the lease
#     the lease expires
#     B acquires the lease, token 2, and appends events with it
#     A wakes up and appends with token 1      FencedError: the latest token is 2


@dataclass(frozen=True, slots=True)
class Lease:
    """Exclusive right of a process to append to the log of one execution. The data are from the time at which the lease
    was acquired or listed.
    """

    execution_id: str
    token: int
    owner: Owner
    expires_at: int
    """Expiry by the wall clock, in microseconds since 1970."""
    expires_uptime: int | None = None
    """Expiry by the monotonic clock of the owner's machine, in microseconds.

    None if a test passed `now` to the store, or if the store is on a server.
    """
    was_left: bool = field(default=False, compare=False)
    """True if the previous owner had not released its lease. This is set only in leases that were just acquired."""
    unread: Sequence[Message] | None = field(default=None, compare=False, repr=False)
    """Messages that the execution had received when the lease was acquired, and that are not in its log. None if they
    were not read.
    """

    def keeps_out(self, moment: Moment, instead_of: Lease | None = None) -> bool:
        """Return True if the lease is live at a moment, so that other processes may not acquire the execution: it has
        not expired, and its owner is not known to be dead.

        False for `instead_of`, the lease that the caller wants to replace although it is live.
        """
        # Each acquisition gives another token, so the token identifies the lease.
        if instead_of is not None and instead_of.token == self.token:
            return False
        # Do not wait for a dead owner. One that only sleeps is fenced by its token when it writes again
        # (test_a_late_append_with_an_old_token_is_refused).
        return not moment.is_past(self) and not self.owner.has_died()

    def held_error(self) -> LeaseHeldError:
        """Return the error for a process that wants to acquire the execution while another process has this lease."""
        owner = self.owner
        until = to_datetime(self.expires_at)
        return LeaseHeldError(self.execution_id, host=owner.host, pid=owner.pid, name=owner.name, until=until)


@dataclass(frozen=True, slots=True)
class Moment:
    """Point in time in microseconds, measured by two clocks: the wall clock and the monotonic clock of the machine.

    Between processes of one machine the monotonic clock decides. It cannot be set, and it stops while the machine
    sleeps, so that neither ends a lease early nor extends it.
    """

    wall: int
    uptime: int | None

    @classmethod
    def at(cls, now: int | None) -> Self:
        """Return the present time by both clocks. If `now` is given, it is used as the time of the wall clock, and the
        time of the monotonic clock is None.
        """
        if now is not None:
            return cls(now, None)
        return cls(time.time_ns() // 1000, time.monotonic_ns() // 1000)

    def is_past(self, lease: Lease) -> bool:
        """Return True if this point in time is at or after the expiry of the lease."""
        # The monotonic clocks of two boots, and of two machines, have nothing in common; only the wall clock remains.
        if self.uptime is None or lease.expires_uptime is None or lease.owner.boot != this_boot():
            return lease.expires_at <= self.wall
        return lease.expires_uptime <= self.uptime

    def plus(self, seconds: float) -> Moment:
        """Return the moment that is `seconds` later than this one, or earlier if `seconds` is negative."""
        microseconds = round(seconds * 1_000_000)
        return Moment(self.wall + microseconds, None if self.uptime is None else self.uptime + microseconds)

    def lease(self, execution_id: str, token: int, owner: Owner) -> Lease:
        """Return a new lease of an execution for an owner, which expires at this moment."""
        return Lease(execution_id, token, owner, self.wall, self.uptime)


# --- owners: processes ---


@dataclass(frozen=True, slots=True)
class Owner:
    """Identity of a process that drives executions.

    The operating system reuses process ids, so the start time is part of the identity. The two values are unique only
    within one boot of one machine and within one container, which `boot` identifies.

    Examples
    --------
    >>> Owner.current().has_died()
    False
    """

    host: str
    pid: int
    started: int
    """Start time of the process, in the kernel's clock ticks since the start of the machine; 0 if unknown."""
    name: str
    """Name of the process's program, shown to people."""
    boot: str = ""
    """Identifier of the machine's boot and of the container in which the process runs; empty if unknown."""

    @classmethod
    def current(cls, name: str | None = None) -> Self:
        """Return the identity of the current process; `name` replaces the name of its program."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _start_of_this_process(pid), name or _program(sys.argv[0]), this_boot())

    def is_same_process(self, other: Owner) -> bool:
        """Return True if two owners denote the same process; their names may differ."""
        return (self.host, self.pid, self.started, self.boot) == (other.host, other.pid, other.started, other.boot)

    def has_died(self) -> bool:
        """Return True if the owner's process has certainly ended. Return False if it runs or cannot be observed from
        here, as on another machine.
        """
        boot = this_boot()
        # A process of another machine cannot be observed from here.
        if self.host != socket.gethostname():
            return False
        if self.boot == boot:
            return not is_running(self.pid, self.started)
        # Another start of this machine. A container of the same start has the same first word, and is invisible here.
        return self.boot.split()[:1] != boot.split()[:1] and bool(self.boot and boot)


class _ThisProcess:
    """Cached id of the current process. Stores need it at each call, and `os.getpid` is a slower system call."""

    def __init__(self) -> None:
        self._update()
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=self._update)

    def _update(self) -> None:
        self.number = os.getpid()


THIS_PROCESS = _ThisProcess()


@lru_cache(maxsize=1)
def _program(command: str) -> str:
    return Path(command).name or "python"


@lru_cache(maxsize=1)
def _start_of_this_process(pid: int) -> int:  # with the number as parameter, a forked process reads it again
    return start_of(pid)


# --- queues and workers ---


@dataclass(frozen=True, slots=True)
class QueuedExecution:
    """Queue entry of an execution that has not ended."""

    execution_id: str
    queue: str
    priority: int
    workflow: str
    fingerprint: str | None


class Claim(NamedTuple):
    """Request of a worker for queued executions that the worker is able to run."""

    queues: tuple[str, ...]
    """Names of queues, in the order in which they are searched."""
    workflows: Mapping[str, str]
    """Fingerprint of each workflow that the worker can run, by name."""
    limit: int
    without: frozenset[str]
    """Ids of executions to skip."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """State of a worker process as the worker last reported it, valid until `expires_at`."""

    id: str
    owner: Owner
    queues: tuple[str, ...]
    parallel: int
    """Maximum number of executions that the worker drives at the same time."""
    workflows: Mapping[str, str]
    """Fingerprint of each workflow that the worker can run, by name."""
    driving: int = 0
    """Number of executions that the worker drove at its last report."""
    expires_at: int = 0
    """End of the record's validity by the store's clock, in microseconds since 1970."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reason for each execution id that the worker could not start or resume."""

    def can_run(self, queued: QueuedExecution) -> bool:
        """Return True if the worker can claim a queued execution: the worker takes from its queue, has the same
        definition of its workflow, and has not refused it before.
        """
        return self.why_not(queued) is None

    def why_not(self, queued: QueuedExecution) -> str | None:
        """Return the reason why the worker does not claim a queued execution; None if the worker can claim it."""
        if queued.queue not in self.queues:
            queues = "queue" if len(self.queues) == 1 else "queues"
            return f"accepts only runs of the {queues} {', '.join(self.queues)}"
        if queued.workflow not in self.workflows:
            return f"has no workflow {queued.workflow!r}"
        if self.workflows[queued.workflow] != queued.fingerprint:
            return f"has a different definition of {queued.workflow!r}"
        return self.refused.get(queued.execution_id)


def stored_worker(worker: WorkerRecord) -> str:
    """Return the stored form of a worker's record, without its id and its expiry."""
    data = asdict(worker)
    del data["id"], data["expires_at"]
    mappings = {"workflows": dict(worker.workflows), "refused": dict(worker.refused)}
    return encode({**data, "queues": list(worker.queues), **mappings}).decode()


def worker_from(worker_id: str, stored: str, expires_at: int) -> WorkerRecord:
    """Read the record of a worker from its stored form. Raise CorruptStoreError if it is not that of a worker."""
    try:
        data = decode(stored)
        fields = {**data, "owner": Owner(**data["owner"]), "queues": tuple(data["queues"])}
        return WorkerRecord(id=worker_id, expires_at=expires_at, **fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptStoreError(f"the record of worker {worker_id} is damaged: {error}") from error
