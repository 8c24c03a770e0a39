"""Leases: which process may drive which execution. They expire, and their fencing tokens only grow.

An execution's token grows by one with every acquisition. The store refuses events that come with another token than the
present one, so that a process which lost its lease, and does not know it yet, cannot write.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from divebook.errors import LeaseHeldError
from divebook.events.event import to_datetime
from divebook.store.owner import Owner, this_boot

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
