"""Leases (rights to drive an execution) that this process holds: acquired before it drives an execution, renewed in
time, and released at the end.

A lease is the right to drive an execution and to append to its log. It is stored in the event store and expires.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from divebook.errors import DivebookError, LeaseHeldError, StoreError
from divebook.runtime.commit import StoreCalls
from divebook.runtime.concurrency import call_later_if_alive
from divebook.stores.base import EventStore
from divebook.stores.leases import LEASE_SECONDS, Lease, Owner
from divebook.text.redaction import logger

# Two renewals in a row may fail before a lease expires.
HEARTBEAT_SECONDS = LEASE_SECONDS / 3
StoreKey: TypeAlias = str | int
"""Key of a store in this process; see `key_of`."""
_log = logger(__name__)


def key_of(store: EventStore) -> StoreKey:
    """Return a key that is equal for all store objects in this process which have the same content.

    That is the location of a file or server, and the object's identity for a store in memory.
    """
    # Two connections to one file are two objects with the same leases.
    return store.location if store.shared else id(store)


# Example of a fencing token: process A drives an execution under token 4, and its machine sleeps for a minute. The
# lease expires, and process B acquires the lease with token 5. A wakes up and appends an event with token 4. The
# store refuses it (`FencedError`), because the current token is 5. B has not seen a write of A since it read the log.
#
# The token protects the log from other processes. Inside one process, all threads are the same owner, so this registry
# has to keep them apart.
class DrivenLeases:
    """Registry of the leases of executions that the engine of this process drives now. It also knows the threads that
    have acquired a lease and are about to pass its execution to the engine.

    A lease in the store names the process that holds it and its start time, but not the thread. Only this registry
    knows which executions the engine drives and which thread is about to hand one to the engine. A thread that has
    ended no longer counts.

    A lease of this process that is not in use was left by a Ctrl-C or by an event loop that died. `take` acquires it at
    once; other processes wait until it expires (test_a_lease_that_this_process_left_undriven_is_taken_at_once).
    """

    def __init__(self) -> None:
        self._driver_counts: Counter[tuple[StoreKey, str, int]] = Counter()
        """Number of drivers by store, execution id and token. A store and a copy of it have equal ids and tokens
        (test_a_copy_of_a_store_does_not_free_the_leases_of_its_source)."""
        self._taking: dict[tuple[StoreKey, str], set[int]] = {}
        """Idents of the threads that are about to drive an execution, by store and execution id. There can be several:
        one acquires the lease, and the others then fail (test_a_thread_that_fails_to_take_a_lease_frees_no_other)."""
        self._marking = threading.Lock()
        """Held for changes of `_taking`, never while the store is called."""
        self._claims = threading.Lock()

    @property
    def is_any_driven(self) -> bool:
        """True if this process drives at least one execution."""
        return bool(self._driver_counts)

    def drives(self, store: EventStore, execution_id: str) -> bool:
        """Return whether the engine of this process drives an execution of a store. Callable from any thread."""
        place = (key_of(store), execution_id)
        # The token is ignored: a driven execution counts whatever its lease. The list is a copy, because the engine's
        # thread changes the counter meanwhile.
        return any((key, driven_id) == place for key, driven_id, _ in list(self._driver_counts))

    def drive(self, store: EventStore, lease: Lease) -> None:
        """Note that the engine drives an execution under this lease from now on."""
        # Counted before the mark is removed, so that the lease counts as in use at every moment.
        key = key_of(store)
        self._driver_counts[key, lease.execution_id, lease.token] += 1
        with self._marking:
            self._taking.pop((key, lease.execution_id), None)

    def rest(self, store: EventStore, lease: Lease) -> None:
        """Note that one drive under this lease has ended. A lease under which nothing is driven counts as unused
        (`is_unused`), so that this process may take it.
        """
        key = (key_of(store), lease.execution_id, lease.token)
        self._driver_counts[key] -= 1
        if self._driver_counts[key] <= 0:
            del self._driver_counts[key]

    def clear(self) -> None:
        """Forget all registered leases, because the event loop that drove their executions is gone."""
        self._driver_counts.clear()
        self._taking.clear()
        self._claims = threading.Lock()  # this process may be a fork of one that held the locks
        self._marking = threading.Lock()

    def claim(self, store: EventStore, claim: Callable[[], list[Lease]]) -> list[Lease]:
        """Acquire several leases of a store by calling the function `claim`. Their executions are marked as about to be
        driven by this thread, so that the leases do not count as unused. Return the leases.

        The lock keeps other threads from mistaking them for left leases in between
        (test_what_is_claimed_at_this_moment_is_taken_for_left_by_nobody).
        """
        with self._claims:
            leases = claim()
            for lease in leases:
                self._mark(key_of(store), lease.execution_id)
        return leases

    def take(self, store: EventStore, execution_id: str, *, may_force: Callable[[], bool] | None = None) -> Lease:
        """Acquire the lease of an execution, and mark the execution as about to be driven by this thread. Return the
        lease.

        Parameters
        ----------
        may_force
            Called if the execution is being driven, after its present lease has been read. Return True to take the
            lease even so. Without this function, the lease of a driven execution is never taken.

        Raises
        ------
        LeaseHeldError
            The execution is being driven, perhaps by this process, or another thread or process has acquired the lease
            at this moment.
        """
        owner = Owner.current()
        try:
            lease = store.acquire(execution_id, owner)
        except LeaseHeldError:
            # A thread in `claim` has leases that are not marked yet. The lock waits until they are.
            with self._claims:
                present_lease = store.lease_of(execution_id)
                is_free = present_lease is None or self.is_unused(store, present_lease)
            if not is_free and not (may_force is not None and may_force()):
                raise
            # `instead_of` makes this fail if anyone else has acquired the lease since it was read.
            lease = store.acquire(execution_id, owner, instead_of=present_lease)
        self._mark(key_of(store), execution_id)
        return lease

    @contextmanager
    def taking(
        self,
        store: EventStore,
        execution_id: str,
        *,
        lease: Lease | None = None,
        may_force: Callable[[], bool] | None = None,
    ) -> Iterator[Lease]:
        """Acquire the lease of an execution for a `with` block that starts to drive the execution, unless this thread
        has acquired `lease` before. If the block raises an error, release the lease.
        """
        # Marked before the lease is acquired: between the two, another thread would take it for an unused lease.
        with self.about_to_drive(store, execution_id):
            try:
                lease = lease or self.take(store, execution_id, may_force=may_force)
                yield lease
            except BaseException:
                # After the engine has begun to drive, the drive releases the lease.
                if lease is not None and not self._drives(store, lease):
                    with suppress(DivebookError):  # otherwise it expires, or this process takes it as left
                        give_up(store, lease)
                raise

    @contextmanager
    def about_to_drive(self, store: EventStore, execution_id: str) -> Iterator[None]:
        """Mark an execution, inside the `with` block, as about to be driven by this thread, so that its lease does not
        count as unused.
        """
        key = key_of(store)
        self._mark(key, execution_id)
        try:
            yield
        finally:
            self._unmark(key, execution_id)

    def _mark(self, key: StoreKey, execution_id: str) -> None:
        with self._marking:
            self._taking.setdefault((key, execution_id), set()).add(threading.get_ident())

    def _unmark(self, key: StoreKey, execution_id: str) -> None:
        with self._marking:
            threads = self._taking.get((key, execution_id), set())
            threads.discard(threading.get_ident())
            if not threads:
                self._taking.pop((key, execution_id), None)

    def _drives(self, store: EventStore, lease: Lease) -> bool:
        return (key_of(store), lease.execution_id, lease.token) in self._driver_counts

    def is_unused(self, store: EventStore, lease: Lease) -> bool:
        """Return whether a lease belongs to this process, but the engine does not drive its execution and no other
        thread is about to.
        """
        # The process id alone does not suffice: the owner also has the start time of the process, because ids are
        # used again.
        if self._drives(store, lease) or not lease.owner.is_same_process(Owner.current()):
            return False
        return not self.is_being_taken(store, lease.execution_id)

    def is_being_taken(self, store: EventStore, execution_id: str) -> bool:
        """Return whether another thread of this process is about to drive an execution.

        The calling thread does not count, since it asks before it takes the lease. Marks of dead threads do not count
        either.
        """
        with self._marking:
            threads = self._taking.get((key_of(store), execution_id), set()) - {threading.get_ident()}
        return any(map(_is_alive, threads))

    def unused(self, store: EventStore) -> list[str]:
        """Return the ids of executions whose lease this process holds without driving them."""
        return [lease.execution_id for lease in store.live_leases() if self.is_unused(store, lease)]


def give_up(store: EventStore, lease: Lease) -> None:
    """Release a lease under which this process has driven nothing.

    If the owner before it had not released its lease, this lease stays in the store as an expired one.
    """
    # The lease of a dead process may be the only trace of work that a waiting execution has to do. Example: a parent
    # has recorded that it starts a child, its process dies, and the child does not exist. The parent waits without a
    # message and without a timer, so without the trace neither a worker nor `recover` would find it
    # (tests/runtime/test_left_leases.py).
    release(store, lease, leaves_trace=lease.was_left)


def release(store: EventStore, lease: Lease, *, leaves_trace: bool) -> None:
    """Release a lease. With `leaves_trace`, the lease stays in the store as an expired one, so that `recover` and the
    workers find its execution.
    """
    if leaves_trace:
        store.renew([lease], ttl_seconds=0)
    else:
        store.release(lease)


def _is_alive(ident: int) -> bool:
    return any(thread.ident == ident for thread in threading.enumerate())


DRIVEN_LEASES = DrivenLeases()
"""The registry of leases of this process."""


class LeaseKeeper:
    """Renewal of the leases that this process holds on one store, at regular intervals. Lives on the engine's event
    loop.

    A lease can be lost all the same, for example while the machine sleeps. This class need not handle that: the store
    refuses the next events, and the execution ends with that error in this process.
    """

    def __init__(self, calls: StoreCalls) -> None:
        self._calls = calls
        self._store = calls.store
        self._leases: dict[str, Lease] = {}
        self._heartbeat: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None

    def keep(self, lease: Lease) -> None:
        """Renew a lease regularly from now on, until it is released or forgotten."""
        self._leases[lease.execution_id] = lease
        if self._heartbeat is None:
            self._wait_for_beat()

    async def release(self, lease: Lease, *, leaves_trace: bool = False) -> None:
        """Release a lease in the store, so that others need not wait until it expires. The lease is renewed until the
        release succeeds. `leaves_trace` is as for the function `release`.
        """

        def give_back() -> None:
            # The call may be repeated: the lease may have been lost, or the store closed, since the last attempt.
            if lease.execution_id in self._leases and not self._store.closed:
                release(self._store, lease, leaves_trace=leaves_trace)

        await self._calls.patiently(give_back)
        self.forget(lease)

    async def give_back(self, lease: Lease, *, is_gone: bool = False, leaves_trace: bool = False) -> None:
        """Note that the engine no longer drives an execution, and release its lease. With `is_gone`, do not release it,
        because the last event has done so. `leaves_trace` is as for `release`.

        If the lease cannot be released, it expires, and this process can take it again at once. The error is only
        logged, because raising it would hide why the execution ended here
        (test_what_ends_a_run_is_not_hidden_by_a_lease_that_stays).
        """
        try:
            if not is_gone:
                await self.release(lease, leaves_trace=leaves_trace)
        except StoreError as error:
            _log.warning("the lease of %s cannot be released; it will expire: %s", lease.execution_id, error)
        finally:
            # Last, so that the lease counts as in use until it is released.
            self.forget(lease)
            DRIVEN_LEASES.rest(self._store, lease)

    def forget(self, lease: Lease) -> None:
        """Stop renewing a lease. In the store it stays until it expires."""
        # The heartbeat continues: executions mostly follow each other, and cancelling the timer and setting another
        # one for each of them would cost more than one beat without leases.
        self._leases.pop(lease.execution_id, None)

    def _wait_for_beat(self) -> None:
        self._heartbeat = call_later_if_alive(HEARTBEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        self._heartbeat = None
        if self._leases and not self._store.closed:
            self._wait_for_beat()
            # A renewal that waits for a slow store covers this beat as well.
            if self._renewal is None:
                renewing = self._renew(list(self._leases.values()))
                self._renewal = asyncio.get_running_loop().create_task(renewing, name="divebook-leases")

    async def _renew(self, leases: list[Lease]) -> None:
        try:
            results = await self._calls.once(lambda: self._store.renew(leases))
        except StoreError as error:
            # The next heartbeat tries again. Until then the leases may expire, and another process may take them: the
            # store may be out of reach for this process only. The log stays sound all the same. No call starts before
            # its record is committed, unless it is declared idempotent, and the store refuses a commit under a lease
            # that another process has taken
            # (test_a_process_whose_lease_is_taken_during_an_outage_starts_no_further_call,
            # tests/simulation, seeds 12 and 32).
            _log.info("leases could not be renewed: %s", error)
            return
        finally:
            self._renewal = None
        for lease, is_held in zip(leases, results, strict=True):
            # The same execution may have a newer lease by now, which must stay.
            if not is_held and self._leases.get(lease.execution_id) is lease:
                del self._leases[lease.execution_id]
