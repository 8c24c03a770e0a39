"""`Control`: all executions of one store, with the operations start, find, resume, answer, signal, cancel and pause.

Also here: limits on the number of child executions, the end of parents and children, and waiting for executions that
other processes drive.

Code that changes an execution acquires its lease first and reads its state after that, because another process may have
changed it before (test_what_has_ended_meanwhile_stays_as_it_is).
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace

from divebook.definitions.definition import Workflow
from divebook.engine.bounds import REASONS
from divebook.engine.decide import steps_ahead, steps_to_undo
from divebook.engine.evolve import fold
from divebook.engine.forks import forked_from
from divebook.engine.inbox import Message, facts_of
from divebook.engine.lifecycle import FINAL, TERMINAL, WAY_ON, shown_status
from divebook.engine.state import ExecutionState
from divebook.errors import (
    BoundExceededError,
    ConnectionLostError,
    CorruptStoreError,
    DecryptionError,
    DefinitionError,
    DivebookError,
    ExecutionError,
    ExecutionNotFoundError,
    FencedError,
    LeaseHeldError,
    NotFoundError,
    SetupError,
)
from divebook.events import catalog
from divebook.events.catalog import CANCELLED, FAILED, WAITING
from divebook.events.codec import checked
from divebook.events.event import MICROSECONDS, Event
from divebook.interrupts import interruptible_result, interruptible_wait
from divebook.questions.bounds import DEFAULT_MAX_DEPTH, DEFAULT_MAX_DESCENDANTS, Bounds
from divebook.runtime.children import (
    Abandoned,
    Child,
    Opening,
    abandoned,
    all_abandoned,
    ancestors,
    children_to_end,
    has_ended,
    running_children,
    workflows_to_begin,
)
from divebook.runtime.clock import Chance, Clock, Ids
from divebook.runtime.commit import STORE_PAUSES, Outage
from divebook.runtime.driver import (
    EXIT_NOTICE,
    CancelledMeanwhileError,
    Driver,
    DriverDependencies,
    ExecutionRegistry,
    LoadedLog,
    first_commits_of,
)
from divebook.runtime.forks import first_batch, folded
from divebook.runtime.leases import DRIVEN_LEASES, give_up
from divebook.runtime.loop import ENGINE, STOP_SECONDS, LeftError, StoreSession, awaitable_of, must_return_at_once
from divebook.runtime.messages import Annotating, Answering, this_person
from divebook.runtime.queueing import QueuedExecutions, belongs_to_workers, recovery_number
from divebook.runtime.step import Services
from divebook.runtime.streaming import TextStreams
from divebook.runtime.waiting import engine_code
from divebook.stores.append import FIRST_TOKEN, Batch, Durability, ExecutionRecord
from divebook.stores.base import EventStore
from divebook.stores.follow import on_change
from divebook.stores.leases import LEASE_SECONDS, Lease, Owner
from divebook.text.redaction import logger

SEED_BITS = 64
_log = logger(__name__)

TAKING_ATTEMPTS = 50
"""Maximum number of attempts to cancel or resume an execution that other threads of this process are about to drive.
The last attempt to cancel it takes its lease all the same."""
TAKING_PAUSE = 0.02
"""Seconds between two of these attempts."""
RELEASE_SECONDS = LEASE_SECONDS + 5
"""Seconds for which a process that could not continue an execution waits for the release of its lease."""


class Control:
    """All executions of one store, as this process handles them: starts, finds, resumes, cancels and pauses them. The
    environment calls it.

    Parameters
    ----------
    services
        Return the services that the runners need.
    check
        Raise unless everything that the given steps of a workflow reference is defined, and the given workflows are.
    code_of
        Return the current digests of the functions that a workflow may call.
    """

    def __init__(
        self,
        store: EventStore,
        services: Callable[[Control], Services],
        check: Callable[[Workflow, Container[str], Iterable[str]], None],
        code_of: Callable[[Workflow], dict[str, str]],
        *,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self.store = store
        self.clock = clock
        self.chance = chance
        self.check = check
        self._registry = ExecutionRegistry(store, clock)
        self.answering = Answering(self._registry, self, clock, chance)
        """Delivery of answers and signals."""
        self.family_bounds = FamilyBounds(store, self._registry.find)
        """Limits on the number of child executions."""
        # Threads that resume or fork take turns, and so do threads that cancel: the second one finds what the first one
        # has done. The engine's own thread never waits for these locks.
        self._resuming = threading.Lock()
        self._cancelling = threading.RLock()
        # By execution id: timers of executions that wait in this process without being driven.
        self._timers: dict[str, asyncio.Future[None]] = {}
        # By execution id: tasks that wait until another process releases the lease of an execution.
        self._release_watches: dict[str, asyncio.Task[None]] = {}
        self._is_closing = False
        """True from the moment at which `close` leaves all executions. On the engine's loop."""
        self._latest_session: StoreSession | None = None
        """Kept alive, so that consecutive executions share one session."""
        self.texts = TextStreams()
        """Streams of the text that models write in these executions."""
        self.queues = QueuedExecutions(
            self._registry,
            clock,
            chance,
            require_definitions=self._require_definitions,
            cancel_with_parent=self.cancel_with_parent,
            drive=self._drive,
        )
        """Executions in queues."""
        self._family = FamilyTree(
            store, self._registry.find, self._registry.present, self.request_cancel, self._continue_parent
        )
        self.dependencies = DriverDependencies(
            services(self), clock, chance, code_of, self._family.cancel_before_rollback, self._on_stopped
        )

    # --- starting and finding ----------------------------------------------------------------------------------------

    def create(
        self,
        workflow: Workflow,
        opening: catalog.ExecutionStarted,
        durability: Durability | None = None,
        execution_id: str | None = None,
    ) -> Driver:
        """Create a pending execution and return its driver. Nothing is written to the store before it is started."""
        execution_id = execution_id or Ids(self.clock, self.chance).execution()
        log = LoadedLog(workflow, ExecutionState(execution_id))
        driver = Driver(execution_id, opening.inputs, self.store, log, self.clock)
        driver.opening = replace(opening, seed=opening.seed or f"{self.chance.bits(SEED_BITS):0{SEED_BITS // 4}x}")
        driver.durability = durability
        self._registry.enter(driver)
        return driver

    def begin(self, driver: Driver) -> None:
        """Start a pending execution. Return once its first events are in the store, so that other processes can find
        the execution.

        Return before that if a wait would block the event loop of the caller, unless the execution has a start key:
        only the store knows whether another execution has that.
        """
        driver.require_pending()
        assert driver.opening is not None, "require_pending checks it"  # noqa: S101
        if driver.opening.key is None and must_return_at_once():
            self.run(driver)
            return
        self._registry.enter(driver)
        ENGINE.refuse_waiting(self.store)
        first_commit = Future[None]()

        def begin() -> None:
            driver.begin(self.dependencies, first_commit)
            driver.first_commit = driver.first_commit or first_commit  # for a coroutine that ensures that it is stored

        if not ENGINE.is_current():
            try:
                ENGINE.outcome(begin, first_commit)
            finally:
                # The caller gets the error, if there is one. Whoever looks at the run later must not get it as well.
                driver.first_commit = None
            return
        # This is code on the engine's loop, such as a tool that starts a run. It cannot wait for the commit, so it
        # makes the commit itself.
        driver.begin(self.dependencies, first_commit, at_once=True)
        if (commit := ENGINE.session(self.store).commit).held_up is None:
            commit.commit_now()  # waiting is impossible on the engine's own thread
            driver.require_log()
        else:
            driver.first_commit = driver.first_commit or first_commit  # for `ensure_stored`

    def run(self, driver: Driver) -> Future[None]:
        """Start an execution if it is pending. Return a future that is done when the execution has ended, is parked, or
        can only continue with an answer.
        """
        # In a forked process, `standstill` raises the error that names the process which drives the execution.
        if driver.opening is None or driver.was_driven or driver.was_forked:
            return driver.standstill()
        # Entered before it starts: a lookup by id from its first call must find this driver, and not create a second
        # one.
        self._registry.enter(driver)

        def begin() -> None:
            if driver.is_about_to_begin:  # otherwise it was cancelled or left meanwhile
                driver.begin(self.dependencies)

        if (driving := driver.expect_begin()) is not None:  # otherwise another thread has started it
            ENGINE.begin(begin, driving)
            # Here and not only when the engine begins it: the process may end before that, and must wait for it
            # (test_a_process_that_ends_before_the_engine_begins_a_run_has_stored_it). After `ENGINE.begin`, because
            # `atexit` calls the latest function first, and the notice must come before the engine stops.
            EXIT_NOTICE.add(driver)
        return driver.standstill()

    async def remaining_bounds_for(self, child: Child) -> Child:
        """Reduce `max_depth` and `max_descendants` in the request for a successor to the part that its predecessor has
        left, and return the request. Call on the engine's loop.
        """
        remaining = await self._session.calls.work(lambda: self.family_bounds.remaining_bounds_for(child.parent))
        bounds = replace(child.bounds, max_depth=remaining.max_depth, max_descendants=remaining.max_descendants)
        return child._replace(bounds=bounds)

    async def begin_successor(self, driver: Driver, predecessor_id: str) -> None:
        """Start a pending execution as the successor of another execution. Return once its first events are in the
        store.

        Call on the engine's loop.
        """
        first_commit = Future[None]()
        self._inherit_queue(driver, predecessor_id)
        driver.begin(self.dependencies, first_commit)
        await awaitable_of(first_commit)

    async def continue_successor(self, execution_id: str) -> None:
        """Resume a successor that was started before, if it has not ended and no process drives it. Call on the
        engine's loop.
        """
        try:
            await self._session.calls.work(lambda: self.continue_parked(self._registry.find(execution_id)))
        except (DefinitionError, NotFoundError, SetupError) as error:  # another process may continue it
            _log.warning("execution %s is parked until another process resumes it: %s", execution_id, error)

    def _inherit_queue(self, driver: Driver, source: str) -> None:
        """Give a pending execution the queue and the worker of its parent or predecessor `source`. Do nothing if
        `source` has no driver in this process.
        """
        source_driver = self._registry.present(source)
        if source_driver is not None:
            driver.inherit_queue(source_driver)

    def start_fork(
        self,
        forked: catalog.ExecutionForked,
        durability: Durability | None = None,
        child_id: str = "",
        *,
        source_state: ExecutionState | None = None,
    ) -> Driver:
        """Create an execution that shares the first events of another one, and drive it. Return its driver.

        Parameters
        ----------
        forked
            First own event of the execution. It names the source, and the last shared event.
        source_state
            State of the source after the last shared event, with which the log is not read again; None to read it.
        """
        ids = Ids(self.clock, self.chance)
        owner = Owner.current()
        now = self.clock.now()
        execution_id = child_id or ids.execution()
        # The fork has no records for the shared events. Its own log begins with this event, whose number follows them.
        event = Event(ids.event(now), execution_id, forked.at + 1, now, forked)
        # The second fork with a key finds the first.
        one_at_a_time = nullcontext() if ENGINE.is_current() else self._resuming
        with one_at_a_time, DRIVEN_LEASES.about_to_drive(self.store, execution_id):
            # The lease comes with the first batch. `about_to_drive` marks it before, since another thread could
            # otherwise take the lease for one that nothing uses.
            batch = first_batch(self.store, forked.source, event, owner, durability)
            state = source_state and fold(execution_id, [event], forked_from(source_state, execution_id))
            driver = self._begin_fork(batch, state)
            self._drive(driver, Lease(execution_id, FIRST_TOKEN, owner, expires_at=0))
        return driver

    def _begin_fork(self, batch: Batch, state: ExecutionState | None) -> Driver:
        """Append the first records of a fork, and return its driver with its state, which is read if `state` is None.
        While the store is out of reach, repeat that.

        An error would leave it open whether the fork exists. A caller that tries again would then create a second one,
        or find the id of the first one taken
        (test_a_fork_is_created_once_wherever_the_connection_is_lost).
        """
        outage = Outage(
            f"The fork {batch.execution_id} waits for the store and then continues automatically", time.monotonic()
        )
        while True:
            try:
                (refusal,) = self.store.append_all([batch])
                if refusal is not None:
                    raise refusal
                batch = replace(batch, again=True)  # the following reads may lose the connection too
                driver = self._registry.look_up(batch.execution_id, state)
                _ = driver.state  # read now, so that `_drive` needs no connection
            except ConnectionLostError as error:
                batch = replace(batch, again=True)
                time.sleep(outage.pause_after(error))
            else:
                return driver

    def _drive(
        self,
        driver: Driver,
        lease: Lease,
        resumption: catalog.ExecutionResumed | None = None,
        *,
        must_replay: bool = False,
        resumed_at: int | None = None,
    ) -> None:
        """Drive an execution after its lease was acquired. With `must_replay`, its code is replayed, even if its
        waiting code is still in memory (parked). Questions that had expired at the time `resumed_at` are asked again.
        """
        state = driver.state
        event = resumption or catalog.ExecutionResumed(state.status)
        if event.bounds is not None and self.answering.answer_by_bounds(state, Bounds.from_dict(event.bounds)):
            lease = replace(lease, unread=None)  # the driver reads the new messages from the inbox
        self._registry.enter(driver)

        def continue_driving() -> None:
            # Work that continues after `close`, such as the cancellation of children, would otherwise drive an
            # execution again that `close` has left (test_nothing_is_driven_again_after_an_environment_was_closed).
            if self._is_closing:
                raise LeftError(f"execution {driver.id} is not continued, because its environment is closed")
            driver.continue_from(self.dependencies, event, lease, state, must_replay=must_replay, resumed_at=resumed_at)

        if ENGINE.is_current():
            continue_driving()
            return
        driving_started = Future[None]()

        def begin() -> None:
            continue_driving()
            ENGINE.complete_later(driving_started)

        with driver.handover():
            ENGINE.outcome(begin, driving_started)

    def find(self, execution_id: str) -> Driver:
        """Return the driver of an execution, with its newest state. A unique prefix of the execution id is enough."""
        return self._registry.find(execution_id)

    def look_up(self, execution_id: str) -> Driver:
        """Return the driver of an execution like `find`, but read the log only when it is first used."""
        return self._registry.look_up(execution_id)

    # --- resuming ----------------------------------------------------------------------------------------------------

    def continue_run(self, execution_id: str, bounds: Bounds | None = None, *, is_recovery: bool = False) -> Driver:
        """Resume an execution at the end of its log; see `Run.resume`, and `Queues.recover` for a recovery
        after the death of its process.
        """
        with nullcontext() if ENGINE.is_current() else self._resuming:  # a second call at the same time finds it live
            driver = self._registry.find(execution_id)
            for _ in range(TAKING_ATTEMPTS):
                try:
                    return self._resume(driver, bounds, is_recovery=is_recovery)
                except LeaseHeldError:
                    # The engine, or another thread for it, may begin to drive it at this moment: for example as a child
                    # of an execution that was resumed just before, or to cancel it with its parent.
                    if not ENGINE.call(lambda: driver.is_driving):
                        if ENGINE.is_current() or self._is_driven_by_others(driver):
                            raise
                        time.sleep(TAKING_PAUSE)
            return self._resume(driver, bounds, is_recovery=is_recovery)

    def _is_driven_by_others(self, driver: Driver) -> bool:
        """Return whether another process, or another environment of this process, drives an execution. It is False
        while a thread of this process is only about to drive it.
        """
        if lease_elsewhere(driver) is not None:
            return True

        def is_driven_here() -> bool:
            # Both in one turn of the loop, in which a drive begins. The registry is that of all environments.
            return DRIVEN_LEASES.drives(self.store, driver.id) and not driver.is_driving

        return not DRIVEN_LEASES.is_being_taken(self.store, driver.id) and ENGINE.call(is_driven_here)

    def _resume(self, driver: Driver, bounds: Bounds | None, *, is_recovery: bool) -> Driver:
        # A child of a parent that has ended must not run again, whoever asks for it.
        if self.cancel_with_parent(driver):
            return driver
        # A driver that has just ended still holds its lease for a moment.
        if driver.is_live and driver.state.is_over and not ENGINE.is_current():
            wait((driver.driving(),))  # its last events are being written
        if driver.is_live and bounds is None and not driver.state.is_over:
            return driver  # something else resumed it, for example an answer
        if driver.is_live:
            raise ExecutionError(f"execution {driver.id} is already running in this process; wait for it or cancel it")
        # A recovery continues an execution, and never one that has just been cancelled.
        if (is_recovery and driver.state.is_over) or (driver.status == catalog.COMPLETED and bounds is None):
            return driver
        refuse_final(driver)
        self._require_definitions(driver)
        # The checks above used a state without a lease. They are repeated under the lease, where no one else can write.
        # The definitions are checked before, since an error about them should not touch the lease.
        with DRIVEN_LEASES.taking(self.store, driver.id) as lease:
            driver.end_overtaken_drive(lease)
            state = driver.state_under(lease)
            is_completed = driver.status == catalog.COMPLETED and bounds is None  # another process has resumed it
            if is_completed or (is_recovery and driver.state.is_over):
                # Nothing is left to do. Without the release, other processes would wait until the lease expires.
                self.store.release(lease)
                return driver
            refuse_final(driver, "already ")
            now = self.clock.now()
            bounds_data = None if bounds is None else bounds.to_dict()
            recovery = recovery_number(self.store, state, lease, now) if is_recovery else None
            resumption = catalog.ExecutionResumed(driver.status, bounds_data, recovery)
            # A person who resumes it is asked again, as if a process had let the question expire in time.
            self._drive(driver, lease, resumption, must_replay=True, resumed_at=None if is_recovery else now)
        return driver

    def _require_definitions(self, driver: Driver) -> None:
        """Raise an error unless all functions, agents and workflows that an execution needs to continue are defined in
        this process.
        """
        steps = steps_ahead(driver.workflow, driver.state)
        self.check(driver.workflow, steps, workflows_to_begin(driver.state, self.store))

    def continues_here(self, driver: Driver) -> bool:
        """Return whether this process would drive an execution, which it does not drive now, after a message to it. If
        a parent of the execution has ended, cancel the execution, and return False.
        """
        if driver.is_driving or ENGINE.drives(self.store, driver.id) or driver.state.is_over:
            return False
        with suppress(DefinitionError, NotFoundError, SetupError):  # another process can continue it
            return self._may_take(driver, None)
        return False

    def _may_take(self, driver: Driver, child: Child | None) -> bool:
        """Return whether this process may drive an execution that it does not drive now. It may not if workers drive
        the execution, or if the execution ends with its parent, with which it is cancelled.

        Raises
        ------
        DefinitionError, NotFoundError, SetupError
            A definition that the execution needs is missing in this process.
        """
        if self.queues.is_for_workers(driver, None if child is None else child.parent):
            return False
        if self.cancel_with_parent(driver):
            return False
        # Before the lease is taken: if a definition is missing here, another process can continue it at once.
        self._require_definitions(driver)
        return True

    def continue_parked(
        self, driver: Driver, child: Child | None = None, *, again: bool = False, lease: Lease | None = None
    ) -> Driver:
        """Resume a waiting execution that no process drives, if it has work to do: an unread message, a deadline that
        has passed, or a child to wait for. Otherwise change nothing. Return its driver.

        With `again`, resume an execution that failed or was cancelled as well. A `child` is resumed with the bounds
        that its parent requests now. If another process holds the lease, try again once it is released.

        The caller may have acquired the `lease` with a message to the execution, after it has called `continues_here`.
        """
        if lease is None and (self.deliver(driver) or not self._may_take(driver, child)):
            return driver
        try:
            with DRIVEN_LEASES.taking(self.store, driver.id, lease=lease) as new_lease:
                driver.end_overtaken_drive(new_lease)
                state = driver.state_under(new_lease)
                # A driver that died has left its lease, perhaps before it did what it had recorded (`give_up`).
                was_left = new_lease.was_left and not state.is_over and state.paused is None
                unread = self.store.inbox(driver.id, state.taken) if new_lease.unread is None else new_lease.unread
                # A person who resumes the parent is asked again as well.
                parent = None if child is None else self._registry.present(child.parent)
                resumed_at = None if parent is None else parent.resumed_at
                is_resumed = resumed_at is not None
                if was_left or self._can_continue(state, unread, child, again=again, is_resumed=is_resumed):
                    resumption = None if child is None else child.resumed(driver.workflow, state)
                    self._drive(driver, replace(new_lease, unread=unread), resumption, resumed_at=resumed_at)
                else:
                    # Another process has read the message meanwhile.
                    give_up(self.store, new_lease)
        except LeaseHeldError:
            # A holder that drives the execution reads the inbox before it parks it. One that annotates it, or has
            # died on another machine, does not
            # (test_an_answer_that_comes_while_somebody_says_something_continues_the_execution).
            ENGINE.call(lambda: self._watch_release(driver.id))
        return driver

    def _watch_release(self, execution_id: str) -> None:
        """Resume an execution as soon as its lease is free. Do nothing if the execution has no work to do then. Call on
        the engine's loop.
        """
        if execution_id not in self._release_watches:
            watch = self._release_watches[execution_id] = ENGINE.keep(self._continue_after_release(execution_id))
            watch.add_done_callback(lambda _: self._release_watches.pop(execution_id, None))

    async def _continue_after_release(self, execution_id: str) -> None:
        until = time.monotonic() + RELEASE_SECONDS
        rounds = 0
        # Usually the loop ends in its first round: the holder has read the message, or has released the lease.
        while time.monotonic() < until:
            rounds += 1
            await asyncio.sleep(STORE_PAUSES.delay(rounds))
            try:
                if self.store.closed or not await self._session.calls.work(lambda: self._must_wait(execution_id)):
                    return
            except DivebookError as error:  # for example, a definition is missing here
                _log.debug("execution %s is not continued: %s", execution_id, error)
                return

    def _must_wait(self, execution_id: str) -> bool:
        """Resume a waiting execution if its lease, which was held before, is free now. Return True if the caller must
        check again later. Return False if the execution is driven here or has nothing to do.
        """
        driver = self._registry.find(execution_id)
        if driver.is_driving:
            return not driver.can_record
        state = driver.state
        is_due = state.wake_at is not None and state.wake_at <= self.clock.now()
        if state.is_over or not (is_due or self.store.has_untaken(execution_id)):
            return False
        # The lease may be held again at this moment, so the next round checks whether this had an effect.
        if lease_elsewhere(driver) is None and not DRIVEN_LEASES.is_being_taken(self.store, execution_id):
            self.continue_parked(driver)
        return True

    def deliver(self, driver: Driver) -> bool:
        """Make this process record the unread messages of an execution. This works if the process drives the execution
        or is about to check its inbox; otherwise return False.

        A process that drives the execution but has lost its lease cannot record them. Return True then as well, because
        the holder of the lease reads them.
        """
        if ENGINE.is_current():
            # On the engine's own thread the delivery can only be started. The flag set by `request_check` covers a
            # runner that ends first.
            ENGINE.keep(self._session.inbox.deliver(driver.id))
            return driver.request_check()
        if not driver.is_driving and not ENGINE.drives(self.store, driver.id):
            return False  # the next driver checks the inbox first

        async def hand_over() -> bool:
            delivered = await self._session.inbox.deliver(driver.id) or driver.request_check()
            try:
                await driver.durable()
            # Another process has taken the lease, and reads the message, which is in the store. If it releases the
            # lease without reading the message, this process continues the execution.
            except FencedError:
                self._watch_release(driver.id)
                return True
            return delivered

        return interruptible_result(ENGINE.call(lambda: ENGINE.promise(hand_over())))

    @property
    def _session(self) -> StoreSession:
        return ENGINE.session(self.store)

    def _can_continue(
        self, state: ExecutionState, unread: Sequence[Message], child: Child | None, *, again: bool, is_resumed: bool
    ) -> bool:
        if state.is_over:
            # If another process has ended the parent, the parent must resume nothing, even if this process has not
            # noticed yet. Nor does a parent that is rolled back.
            return again and not state.is_final and not (child is not None and self._is_ended(child.parent))
        # An undriven execution that does not wait was left in the middle of its work, for example by a dead process.
        if state.status != WAITING or facts_of(state, unread):
            return True
        # A person has resumed its parent. It does the same for the executions below it, whose time may have come.
        if is_resumed and state.paused is None and running_children(state):
            return True
        due = state.wake_at
        return due is not None and due <= self.clock.now()

    def _is_ended(self, parent_id: str) -> bool:
        """Return whether the parent of a child execution has ended, or is rolled back by this process."""
        parent = self._registry.present(parent_id)
        is_rolled_back = parent is not None and parent.state.rolling_back is not None
        return is_rolled_back or has_ended(self.store, parent_id)

    async def inbox(self, execution_id: str, after: int) -> Sequence[Message]:
        """Return the messages of an execution with numbers above `after`, oldest first. Call on the engine's loop."""
        return await self._session.inbox.read(execution_id, after)

    async def claim_expired(self, execution_id: str, interrupt_id: str) -> None:
        """Mark a question as expired in the store, so that it can no longer be answered. Call on the engine's loop."""
        await self._session.calls.patiently(lambda: self.answering.claim_expired(execution_id, interrupt_id))

    def annotate(self, execution_id: str, event: catalog.ExecutionAnnotated) -> None:
        """Change tags, note and labels of an execution; see `Run.annotate`."""
        if (driver := self._registry.present(execution_id)) is not None:
            driver.wait_until_stored()
        # The delivery wakes the driver of this process. A driver elsewhere finds the message in the inbox.
        ids = Ids(self.clock, self.chance)
        annotating = Annotating(self.store, self.clock, ids, lambda name: self.deliver(self.find(name)))
        annotating.annotate(execution_id, event)

    # --- end and parking ---------------------------------------------------------------------------------------------

    async def _on_stopped(self, driver: Driver) -> None:
        """Handle that this process no longer drives an execution. If it has ended, cancel its children and let its
        parent continue. If it only waits, set the timer that resumes it. On the engine's loop.
        """
        self._latest_session = self._session
        if driver.has_missed_lease:
            self._watch_release(driver.id)
        state = driver.state
        if state.is_over:
            await self._family.on_end(driver, state)
            if driver.may_have_children:  # its count would stay in memory (tests/runtime/test_ended.py)
                await self._session.calls.work(lambda: self.family_bounds.forget(driver.id))
            return
        # Its parent may have ended between the check before its resumption and the commit of this resumption.
        may_be_abandoned = driver.started_by is not None and not self.store.closed
        if may_be_abandoned and await self._session.calls.work(lambda: self.cancel_with_parent(driver)):
            return
        # Not `wake_at`, which is the present for a sleeping execution: a drive does not end while its code sleeps, so
        # that a sleep which is open now was abandoned, and could not be recorded as such, for example during a
        # rollback. The execution would be resumed again and again.
        if (due := driver.state.deadline_after(driver.began_at)) is not None:
            self._set_timer(driver.id, due)

    def _set_timer(self, execution_id: str, due: int) -> None:
        """Resume a parked execution at the time `due`. The timer replaces an earlier one of this execution."""
        if (earlier := self._timers.get(execution_id)) is not None:
            earlier.cancel()
        alarm = self._timers[execution_id] = ENGINE.keep(self._resume_at(execution_id, due))

        def forget(done: asyncio.Future[None]) -> None:
            # The timer may have been replaced meanwhile. `close` must find the new one.
            if self._timers.get(execution_id) is done:
                del self._timers[execution_id]

        alarm.add_done_callback(forget)

    async def _resume_at(self, execution_id: str, due: int) -> None:
        """Wait until the time `due`, in microseconds since 1970, and then resume a parked execution, which no process
        drives until then.
        """
        while (remaining := due - self.clock.now()) > 0:
            with engine_code():  # a clock may be user code
                await self.clock.sleep(remaining / MICROSECONDS)
        if not self.store.closed:
            await self._session.calls.work(lambda: self._continue_if_due(execution_id, due))

    def _continue_if_due(self, execution_id: str, due: int) -> None:
        driver = self._registry.find(execution_id)
        # The execution may have been resumed, and may wait for another time by now.
        if not driver.is_driving and driver.state.deadline_after(driver.began_at) == due:
            self.continue_parked(driver)

    def _continue_parent(self, parent_id: str) -> None:
        parent = self._registry.find(parent_id)
        if not parent.state.is_over:
            self.continue_parked(parent)

    def next_continuation(self, driver: Driver, by: float | None = None) -> Future[None] | None:
        """Return a future that is done when this process may have continued a waiting execution without a person or a
        signal. Return None if nothing here continues it.

        A timer of the execution counts if it ends at most at the time `by`, in microseconds since 1970; by default now.
        So does the release of a lease for which this process waits, and the work and the timers of the children for
        which the execution waits (`tests/runtime/test_meaning_of_wait.py`).
        """
        # The dictionaries belong to the engine's loop, and are only tested here: most executions that have stopped have
        # neither timers nor children, and need no call on the loop.
        if not (driver.may_have_children or self._timers or self._release_watches):
            return None
        moment = self.clock.now() if by is None else by
        return ENGINE.call(lambda: self._next_continuation(driver, moment))

    def _next_continuation(self, driver: Driver, by: float) -> Future[None] | None:
        futures = [future for future in self._continuations(driver, by) if not future.done()]
        if not futures:
            return None

        async def first_end() -> None:
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)

        return ENGINE.promise(first_end())

    def _continuations(self, driver: Driver, by: float) -> Iterator[asyncio.Future[None]]:
        state = driver.state
        if state.status != WAITING or state.paused is not None:
            return
        due = state.deadline_after(driver.began_at)
        if (timer := self._timers.get(driver.id)) is not None and due is not None and due <= by:
            yield timer
        if (watch := self._release_watches.get(driver.id)) is not None:
            yield watch
        for name in running_children(state):
            child = self._registry.present(name)
            if child is None or not child.was_driven:
                continue
            # The drive of a child that has ended is done after it has continued its parent.
            if not (standstill := child.standstill()).done():
                end = awaitable_of(standstill)
                end.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark it as retrieved
                yield end
            else:
                yield from self._continuations(child, by)

    # --- child executions --------------------------------------------------------------------------------------------

    async def drive_child(self, child: Child, opening: Opening, *, again: bool) -> ExecutionState:
        """Start or resume a child execution. Return the state of the child once the child has ended, or waits without
        being driven (is parked).

        With `again`, resume a child that failed or was cancelled as well. A child that cannot continue in this process
        stays parked, and so does the code that waits for it. Call on the engine's loop.
        """
        work = self._session.calls.work
        # Set before the child is written: if the parent ends in between, it must look for children to cancel.
        if (parent := self._registry.present(child.parent)) is not None:
            parent.may_have_children = True
        while True:
            # The child id is recorded before the child starts, so after a restart the child may or may not exist.
            driver = await work(lambda: self._find_child(child.id))
            if driver is None:
                driver = await self._begin_child(child, opening)
                is_driven = driver.was_driven  # perhaps it has ended already, with an error
            else:
                await self._continue_child(driver, child, parent, again=again)
                is_driven = driver.is_live
            if not is_driven:
                return (await work(driver.refresh)).state
            try:
                await awaitable_of(driver.standstill())
            except (FencedError, LeftError):
                # Another process may have taken over the child, or a caller may have left it. The parent then waits for
                # the message about the end of the child, as for a child that another process drives. If the child was
                # left before its first event was written, it does not exist, and no message would come.
                if await work(lambda: self._find_child(child.id)) is None:
                    continue
            return (await work(driver.refresh)).state

    def _find_child(self, execution_id: str) -> Driver | None:
        """Return the driver of a child execution. Return None if the child is not driven here, and not in the store:
        perhaps its drive was left before the first event was written.
        """
        try:
            driver = self._registry.find(execution_id)
            if not driver.is_live:
                self.store.record(execution_id)
        except ExecutionNotFoundError:
            return None
        return driver

    async def _continue_child(self, driver: Driver, child: Child, parent: Driver | None, *, again: bool) -> None:
        """Resume a child execution that exists, unless it is driven already."""
        if parent is not None:
            driver.adopt_worker(parent)
        if driver.is_live:
            return
        try:
            await self._session.calls.work(lambda: self._resume_child(driver, child, again=again))
        except (DefinitionError, NotFoundError, SetupError) as error:
            if driver.state.is_over:
                raise
            # A definition is missing here. The parent waits for the child as for any other; another process may
            # continue it.
            _log.warning("execution %s is parked until another process resumes it: %s", child.id, error)

    def _resume_child(self, driver: Driver, child: Child, *, again: bool) -> None:
        """Resume a child execution as `continue_parked` does. If its parent has ended meanwhile, cancel the child.

        All of this runs in one thread: the code of the parent that waits for it may be cancelled at any moment, and
        would then leave out the second part.
        """
        self.continue_parked(driver, child, again=again)
        # Who ended the parent has perhaps seen the child as it was before, cancelled with an earlier end.
        if driver.is_live and has_ended(self.store, child.parent):
            self.cancel_with_parent(driver)

    async def _begin_child(self, child: Child, opening: Opening) -> Driver:
        """Start a child execution and return its driver. If its parent has ended meanwhile, cancel the child at once.

        Raises
        ------
        BoundExceededError
            A limit of an ancestor execution is reached.
        """
        work = self._session.calls.work
        # Counted before anything is written: two children that start at once must not both take the last place.
        await work(lambda: self.family_bounds.admit(child.id, child.parent))
        workflow, first_event, durability = await work(opening)
        if isinstance(first_event, catalog.ExecutionForked):
            beginning = work(functools.partial(self.start_fork, first_event, durability, child.id))
        else:
            driver = self.create(workflow, first_event, durability, child.id)
            first_commit = Future[None]()
            self._inherit_queue(driver, child.parent)
            driver.begin(self.dependencies, first_commit)
            beginning = _after_first_commit(driver, first_commit)

        async def follow() -> Driver:
            child_driver = await beginning
            # Another process may have ended the parent while the child was written, without seeing the child
            # (tests/runtime/cancelled_trees.py).
            if await work(lambda: has_ended(self.store, child.parent)):
                await work(lambda: self.cancel_with_parent(child_driver))
            return child_driver

        # A task of its own: the code of the parent, which waits for it, may be cancelled at any moment, for example
        # because it has lost its lease (test_a_child_that_begins_while_its_parent_is_cancelled_elsewhere_ends_with_it).
        following = ENGINE.keep(follow())
        try:
            return await asyncio.shield(following)
        except asyncio.CancelledError:
            following.add_done_callback(functools.partial(_log_error, child.id))  # nobody else gets it any more
            raise

    # --- cancelling, pausing, leaving --------------------------------------------------------------------------------

    def request_cancel(self, execution_id: str, reason: str = "") -> Driver:
        """Cancel an execution; see `Run.cancel`. Without a reason, the recorded reason names the person who
        cancels.
        """
        reason = reason or f"cancelled by {this_person()}"
        checked(catalog.ExecutionCancelled(reason))
        with nullcontext() if ENGINE.is_current() else self._cancelling:  # a second call finds it cancelled
            return self._cancel(self._registry.find(execution_id), reason)

    def _cancel(self, driver: Driver, reason: str) -> Driver:
        """Cancel an execution, and return its driver.

        If it is pending, or if this process drives it, its driver cancels it. If it is being rolled back, the rollback
        continues here if possible. Otherwise its lease is taken, by force if necessary, and the cancellation is
        recorded.
        """
        # Raises the error that names the process which drives the execution.
        if driver.was_forked:
            driver.driving()
        # Other threads wait for one that is about to drive it. The engine's loop cannot wait, because that thread waits
        # for the loop; it takes the lease at once, and the other drive fails.
        attempts = 1 if ENGINE.is_current() else TAKING_ATTEMPTS
        for attempt in range(1, attempts + 1):
            try:
                if self._cancel_here(driver, reason, ignores_marks=attempt == attempts):
                    return driver
                break
            # It began to be driven at this moment, perhaps by the cancellation of its parent. Or code on the engine's
            # loop cancelled it.
            except (LeaseHeldError, CancelledMeanwhileError):
                if attempt == attempts:
                    raise
                time.sleep(TAKING_PAUSE)
        return self.continue_parked(driver) if can_roll_back(driver, self.check) else driver

    def _cancel_here(self, driver: Driver, reason: str, *, ignores_marks: bool) -> bool:
        """Cancel an execution through its driver, or acquire its lease and record the cancellation. Return False if it
        is being rolled back: the caller must then continue the rollback.

        Raises
        ------
        LeaseHeldError
            The engine has just begun to drive the execution, or another thread of this process is about to do so. With
            `ignores_marks`, such a thread does not prevent the cancellation.
        CancelledMeanwhileError
            Code on the engine's loop has cancelled it at this moment.
        """

        def may_force() -> bool:
            # The engine takes a lease and begins to drive in one turn of its loop. After that turn the driver is asked,
            # and the lease that was read before can no longer be the one of a drive that is about to begin
            # (tests/runtime/test_cancelled_trees.py).
            is_driving = ENGINE.call(lambda: driver.is_driving)
            return not is_driving and (ignores_marks or not DRIVEN_LEASES.is_being_taken(self.store, driver.id))

        with driver.handover():  # no other thread may begin to drive it between the first and the last line
            # One call on the loop: between the two questions no drive can begin or end.
            if ENGINE.call(lambda: driver.cancel_pending(self.dependencies, reason) or driver.request_cancel(reason)):
                return True
            refuse_over(driver.refresh())
            if driver.state.rolling_back is not None and driver.state.paused is None:
                return False
            with DRIVEN_LEASES.taking(self.store, driver.id, may_force=may_force) as lease:
                driver.end_overtaken_drive(lease)
                state = driver.state_under(lease)
                refuse_over(driver, "already ")
                # Another environment or process has cancelled it since. Its rollback must not be cancelled as well
                # (test_two_processes_that_cancel_at_once_roll_back).
                if state.rolling_back is not None and state.paused is None:
                    give_up(self.store, lease)
                    return False
                undoes = can_roll_back(driver, self.check)
                ENGINE.call(lambda: driver.begin_cancellation(self.dependencies, reason, lease, state, undoes=undoes))
            return True

    def cancel_with_parent(self, driver: Driver) -> bool:
        """Cancel an execution if one of its ancestors has ended, and return whether one has. An execution that has
        ended, or is being rolled back, is not cancelled.

        Its ancestors below the ended one are cancelled as well; see `divebook.runtime.children`. An execution that is
        being rolled back continues, so that its effects are undone.
        """
        state = driver.state
        if state.parent is None or state.is_over or state.rolling_back is not None:
            return False
        abandoned_executions = abandoned(self.store, driver.id)
        for execution in abandoned_executions:  # itself first, so that it does not run while its ancestors are checked
            with suppress(ExecutionError):  # another process or its parent cancels it now
                self.request_cancel(execution.id, execution.reason)
        return bool(abandoned_executions)

    def request_pause(self, driver: Driver, reason: str = "") -> None:
        """Pause an execution, so that it starts no more operations. This process must drive the execution, or it must
        wait in a queue.

        See `Run.pause`.
        """
        paused = catalog.ExecutionPaused(reason or f"paused by {this_person()}")
        checked(paused)
        if ENGINE.call(lambda: driver.request_pause(paused.reason)):
            return
        driver.refresh()
        # Not driven here. Only an execution in a queue can be paused in that state, because only workers would resume
        # it unasked.
        if driver.opening is not None or driver.state.queue is None or driver.state.is_over:
            raise nothing_to_pause(driver)
        self.queues.hold(driver, paused)

    def leave(self, driver: Driver) -> None:
        """Stop driving an execution, as if this process had ended, and wait until it has stopped. Do nothing if this
        process does not drive it. See `Run.leave`.
        """
        driver.leave_and_wait()

    def recoverable(self) -> list[ExecutionRecord]:
        """Return the executions that should be resumed because they have work to do but no living driver, newest first.

        Executions whose parent has ended are included, whether driven or not: recovering them cancels them.
        """
        # Three sources: executions without a living driver, children whose parent has ended, and executions whose
        # lease this process holds without driving them.
        records = {record.execution_id: record for record in [*self.store.orphans(), *self.abandoned()]}
        undriven_records = [self.store.record(name) for name in DRIVEN_LEASES.unused(self.store) if name not in records]
        unended_records = [
            r
            for r in undriven_records
            if r.status not in TERMINAL and r.origin not in catalog.NOT_RESUMED_AUTOMATICALLY
        ]
        return sorted([*records.values(), *unended_records], key=lambda record: record.created_at, reverse=True)

    def abandoned(self) -> list[ExecutionRecord]:
        """Return the child executions that must be cancelled because an execution above them has ended, newest first.

        Excluded are those that this process drives, since it is writing their end, and those that are being rolled
        back, since their cancellation has begun. If the driver of such a rollback has died, `orphans` has it. If the
        rollback waits for a person, nothing can be done without an answer.
        """
        return [
            record
            for record in all_abandoned(self.store)
            if not DRIVEN_LEASES.drives(self.store, record.execution_id) and not self._is_rolling_back(record)
        ]

    def _is_rolling_back(self, record: ExecutionRecord) -> bool:
        # An unreadable log must not hide the other executions. Whoever recovers this one gets the error.
        with suppress(CorruptStoreError, DecryptionError):
            return self.find(record.execution_id).state.rolling_back is not None
        return False

    def live(self) -> list[Driver]:
        """Return the drivers of the executions that this process drives now."""
        return self._registry.live()

    def close(self) -> None:
        """Stop driving all executions, as if this process had ended, and cancel the timers of parked executions."""
        self._registry.read_all()
        wait(first_commits_of(self.live()), STOP_SECONDS)  # `start` may have returned before the store has them

        def leave() -> list[Future[None]]:
            # From here on `_drive` refuses to drive. All that were driven until now must leave, so they are listed in
            # the same turn of the loop: one that began to be driven just before would otherwise go on, and would fail
            # when it needs a child (test_what_begins_to_be_driven_while_an_environment_is_closed_is_left_too).
            self._is_closing = True
            live = self.live()
            for driver in live:
                driver.leave()
            for task in [*self._timers.values(), *self._release_watches.values()]:
                task.cancel()
            parked = [driver.parked_run.unwind() for driver in self._registry.registered()]
            ends = [ENGINE.promise(task.wait_end()) for task in parked if task is not None]
            return [*ends, *(driver.driving() for driver in live)]

        wait(ENGINE.call(leave), STOP_SECONDS)


# --- limits on the number of child executions ------------------------------------------------------------------------
#
# `max_depth` and `max_descendants` limit how many executions one execution may start, directly and through its
# children.
#
# Every execution that is not a child has both limits by default. A workflow that starts itself by mistake therefore
# ends with an error instead of starting executions as long as the process lives. If a child sets a limit of its own,
# the limit also applies to the executions below it.
#
# Depth and number are read from the store, so a limit holds in whichever process the tree continues. Each process
# counts its own starts exactly, and reads the starts of other processes every `RECOUNT_AFTER` starts. If several
# processes drive one tree, each may exceed the limit by that number.


# Example: the root may have 1000 descendants and the store has 940. A process counts 940 once, and then adds its own
# starts: 941, 942 ... After 100 starts, or before it refuses one, it reads the store again.
RECOUNT_AFTER = 100
"""Executions that a process starts in one tree before it counts them in the store again."""

MOST_COUNTS = 1000
"""Trees whose counts a process remembers. Others are counted again when they start an execution."""


@dataclass(slots=True)
class _Count:
    """Number of descendants of one execution. It is the number in the store at the last count, plus those that this
    process has started since.
    """

    stored: int
    """Number in the store at the last count."""
    started: set[str] = field(default_factory=set)
    """Ids of the executions that this process has started since then, or is about to start."""

    @property
    def total(self) -> int:
        return self.stored + len(self.started)


class FamilyBounds:
    """Check, made before a child execution starts, that no ancestor exceeds its limits `max_depth` and
    `max_descendants`. Callable from any thread.

    Parameters
    ----------
    find
        Return the driver of an execution, with its newest state.
    """

    def __init__(self, store: EventStore, find: Callable[[str], Driver]) -> None:
        self._store = store
        self._find = find
        self._counts: OrderedDict[str, _Count] = OrderedDict()
        """By execution id, in the order of the last count."""
        self._lock = threading.Lock()

    def admit(self, child: str, parent: str) -> None:
        """Check that a child that is about to start is within the limits of all its ancestors, and count the child.

        Raises
        ------
        BoundExceededError
            The child would exceed `max_depth` or `max_descendants` of an ancestor execution.
        """
        ancestors_of_child = list(ancestors(self._store, parent))
        counts: list[_Count] = []
        with self._lock:
            # From the parent upwards. Example: root -> A -> new child. A is at depth 1 and the root at depth 2 above
            # the child.
            for depth, record in enumerate(ancestors_of_child, 1):
                driver = self._find(record.execution_id)
                most_depth, most = limits_of(driver.state.bounds, is_root=depth == len(ancestors_of_child))
                if most_depth is not None and depth > most_depth:
                    raise _exceeded("max_depth", record, most_depth, f"a child of {parent} would be on level {depth}")
                if most is not None:
                    count = self._count(driver, record, child, most)
                    counts.append(count)
                    if count.total >= most and child not in count.started:
                        raise _exceeded("max_descendants", record, most, f"has {count.total}")
            # Counted only after all ancestors have admitted the child.
            for count in counts:
                count.started.add(child)

    def forget(self, execution_id: str) -> None:
        """Forget the number of descendants of an execution that has ended. If the execution is resumed, they are
        counted in the store again.
        """
        with self._lock:
            self._counts.pop(execution_id, None)

    def remaining_bounds_for(self, execution_id: str) -> Bounds:
        """Return the rest of `max_depth` and `max_descendants` that an execution has not used yet. Its successor gets
        these limits.
        """
        driver = self._find(execution_id)
        bounds = driver.state.bounds
        most = bounds.max_descendants
        if most is not None:
            with self._lock:
                (record,) = list(ancestors(self._store, execution_id))[:1]
                most = max(0, most - self._recount(driver, record, ()).total)
        return Bounds(max_depth=bounds.max_depth, max_descendants=most)

    def _count(self, driver: Driver, record: ExecutionRecord, child: str, limit: int) -> _Count:
        """Return the number of descendants of an execution. It is read from the store every `RECOUNT_AFTER` starts, and
        before a child is refused.
        """
        # Popped and entered again below, so that the least recently used count is the first one.
        count = self._counts.pop(driver.id, None)
        if (
            count is None
            or len(count.started) >= RECOUNT_AFTER
            or (count.total >= limit and child not in count.started)
        ):
            count = self._recount(driver, record, () if count is None else count.started)
        self._counts[driver.id] = count
        while len(self._counts) > MOST_COUNTS:
            self._counts.popitem(last=False)
        return count

    def _recount(self, driver: Driver, record: ExecutionRecord, started: Collection[str]) -> _Count:
        missing = self._missing(started)
        while True:
            stored = self._store.descendants(record.execution_id) + self._inherited(driver, record)
            still_missing = self._missing(missing)
            if still_missing == missing:
                return _Count(stored, still_missing)
            missing = still_missing  # an execution was written during the count, and may or may not be included

    def _missing(self, names: Collection[str]) -> set[str]:
        """Return those of the given execution ids that are not in the store yet."""
        return {name for name in names if not any(ancestors(self._store, name))}

    def _inherited(self, driver: Driver, record: ExecutionRecord) -> int:
        """Return the number of executions that a fork shares with its source: child executions that the source has
        started in the shared events, and their descendants. It is 0 for an execution that is not a fork.
        """
        total = 0
        # The log of a fork begins after the shared events, so its first own event has a number above 1. Children of
        # these events have the source as their parent.
        for name in driver.state.ledger.children if record.opened > 1 else ():
            try:
                if self._store.record(name).parent != record.execution_id:
                    total += 1 + self._store.descendants(name)
            except ExecutionNotFoundError:  # it was deleted
                total += 1
        return total


def limits_of(bounds: Bounds, *, is_root: bool) -> tuple[int | None, int | None]:
    """Return two limits for the executions below an execution: the number of levels and the number of descendants. None
    means unlimited. Only an execution without a parent gets default limits.
    """
    default = (DEFAULT_MAX_DEPTH, DEFAULT_MAX_DESCENDANTS) if is_root else (None, None)
    depth = default[0] if bounds.max_depth is None else bounds.max_depth
    return depth, default[1] if bounds.max_descendants is None else bounds.max_descendants


def _exceeded(name: str, record: ExecutionRecord, limit: int, reason: str) -> BoundExceededError:
    below = "levels of executions" if name == "max_depth" else "executions"
    return BoundExceededError(
        f"{name} is reached: execution {record.execution_id} of {record.workflow_name!r} may have at most {limit} "
        f"{below} below it, and {reason}. Look for a workflow that starts itself. If you need that many, raise the "
        f"bound and resume that execution: bounds={{'{name}': {max(2 * limit, 1)}}}",
        name,
        REASONS[name],
    )


async def _after_first_commit(driver: Driver, first_commit: Future[None]) -> Driver:
    """Return the driver of an execution once its first events are in the store, or its drive has ended without them,
    for example because the store refuses them.
    """
    outcomes = [awaitable_of(first_commit), awaitable_of(driver.driving())]
    for end in outcomes:  # the error reaches the code that waits for the end
        end.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)
    return driver


def _log_error(execution_id: str, start: asyncio.Task[Driver]) -> None:
    """Log the error with which the start of a child execution has ended, if its parent does not wait for it."""
    if not start.cancelled() and (error := start.exception()) is not None:
        _log.warning(
            "execution %s could not be started, or could not be cancelled with its parent: %s", execution_id, error
        )


# --- parents and children at the end of an execution -----------------------------------------------------------------


MOST_ATTEMPTS = 5
"""Maximum number of attempts to cancel a child that another process cancels as well."""


class FamilyTree:
    """Relations between parents and children among the executions of one store. When a parent ends, its children are
    cancelled. When a child ends, its parent continues.

    All methods run on the engine's event loop.

    Parameters
    ----------
    find, present
        Return an execution, or None if `present` does not find it among the registered ones.
    cancel
        Cancel an execution with a reason.
    continue_parent
        Let a parent read the message that a child has ended, and resume it if no process drives it.
    """

    def __init__(
        self,
        store: EventStore,
        find: Callable[[str], Driver],
        present: Callable[[str], Driver | None],
        cancel: Callable[[str, str], Driver],
        continue_parent: Callable[[str], None],
    ) -> None:
        self._store = store
        self._find = find
        self._present = present
        self._cancel = cancel
        self._continue_parent = continue_parent

    async def on_end(self, driver: Driver, state: ExecutionState) -> None:
        """Handle the end of an execution. First cancel its children and wait for their end, in rounds of at most 5
        seconds each. Then let its parent continue.

        The store has posted the message to the parent together with the end (`Batch.parent`).
        """
        parent = state.parent
        await self._cancel_children(driver, state.status, STOP_SECONDS)
        if parent is not None:
            try:
                await ENGINE.session(self._store).calls.work(lambda: self._continue_parent(parent))
            except DivebookError as error:  # another process resumes the parent
                _log.warning(
                    "execution %s waits for %s, which has ended, but cannot continue: %s", parent, driver.id, error
                )

    async def cancel_before_rollback(self, driver: Driver) -> None:
        """Cancel all descendants of an execution that is about to be rolled back. Wait for them without a time limit:
        until they have ended (with their own rollbacks), or wait for a person and are not driven (parked).
        """
        ending = driver.state.rolling_back
        await self._cancel_children(driver, CANCELLED if ending and ending.is_cancelled else FAILED, None)

    async def _cancel_children(self, parent: Driver, status: str, seconds: float | None) -> None:
        """Cancel the children of an execution that ends with the status `status`. Return when all have ended or are no
        longer driven, or when the time limit is over.

        Before a rollback of `parent`, this happens before the end of `parent` and without a time limit (`seconds` is
        None). Without a rollback, it happens after the end of `parent`. The children are then cancelled in rounds, and
        each round waits for at most `seconds` (5), because a function that blocks its thread cannot be interrupted.

        Each child first does the same with its own children, so that nothing below `parent` runs afterwards, unless a
        time limit was over (tests/runtime/test_cancelled_trees.py). A child that is rolled back may be parked with a
        question.
        """
        if not parent.may_have_children:
            return
        work = ENGINE.session(self._store).calls.work
        attempts: Counter[str] = Counter()
        cancelled: set[str] = set()
        # The log names children that are about to start. The store also has children whose call was abandoned, for
        # example by `ctx.gather` after another call failed. Another process that cancels the same tree can take a child
        # from this one, and may not know all children of that child yet. A child that ends at this moment is not
        # cancelled, but it still cancels its own children. The loop therefore checks again until nothing is left.
        to_cancel = [Abandoned(name, parent.id, status) for name in running_children(parent.state)]
        # One query for each completed child: too many for an execution that completes after a thousand children.
        has_completed = status == catalog.COMPLETED
        while True:
            to_cancel += await work(
                lambda: children_to_end(self._store, parent.id, status, self._is_ending, all_levels=not has_completed)
            )
            to_cancel = [
                child_ref
                for child_ref in dict.fromkeys(to_cancel)
                if child_ref.id not in cancelled and attempts[child_ref.id] < MOST_ATTEMPTS
            ]
            if not to_cancel:
                return
            future_ids: dict[asyncio.Future[None], str] = {}
            for child_ref in to_cancel:
                attempts[child_ref.id] += 1
                try:
                    child = await work(functools.partial(self._cancel_child, child_ref, parent))
                except DivebookError as error:  # it is ending, or never started
                    _log.debug("execution %s is not cancelled with %s: %s", child_ref.id, parent.id, error)
                else:
                    cancelled.add(child_ref.id)
                    if child is not None and child.is_live:
                        future_ids[awaitable_of(child.driving())] = child_ref.id
            # A child whose drive failed before it recorded the cancellation is tried again in the next round.
            done, _ = await asyncio.wait(future_ids, timeout=seconds) if future_ids else ((), ())
            cancelled -= {future_ids[end] for end in done if end.cancelled() or end.exception() is not None}
            to_cancel = []

    def _is_ending(self, execution_id: str) -> bool:
        """Return whether an execution has ended but still cancels its own children in this process."""
        driver = self._present(execution_id)
        return driver is not None and driver.is_live and driver.state.is_over

    def _cancel_child(self, child_ref: Abandoned, parent: Driver) -> Driver | None:
        """Cancel a child execution and return its driver. A child that has ended but still cancels its own children is
        not cancelled again, but its driver is returned as well.

        Return None if `parent` only shares the child's start event with its real parent.
        """
        child = self._find(child_ref.id)
        if child.started_by != child_ref.parent:
            return None
        child.adopt_worker(parent)
        if self._is_ending(child_ref.id):
            return child
        return self._cancel(child_ref.id, child_ref.reason)


# --- waiting for executions that other processes or environments drive -----------------------------------------------


NEWS_INTERVAL = 1.0
"""Seconds between two checks if the store reports no news."""


def is_elsewhere(driver: Driver) -> bool:
    """Return whether an execution that has not ended continues outside this environment: it is in the queue of workers,
    or another process or environment drives it.
    """
    if driver.is_live or driver.was_forked:
        return False
    # Started here: the log is read again only if another process can have driven the execution since.
    if driver.opening is not None and (driver.state.is_over or not driver.was_parked):
        return False
    # Asked before the log is read: who drives it may end it between the two.
    has_driver = is_driven(driver)
    state = driver.refresh().state
    return not state.is_over and (has_driver or belongs_to_workers(driver.store, state))


def is_driven(driver: Driver) -> bool:
    """Return whether any process drives an execution now. If this process has its lease but does not drive it, the
    execution does not count as driven.
    """
    lease = driver.store.live_lease_of(driver.id)
    return lease is not None and not DRIVEN_LEASES.is_unused(driver.store, lease)


def lease_elsewhere(driver: Driver) -> Lease | None:
    """Return the lease under which another process drives an execution. Return None if no other process does."""
    lease = driver.store.live_lease_of(driver.id)
    return None if lease is None or lease.owner.is_same_process(Owner.current()) else lease


def wait_elsewhere(
    driver: Driver, by: Callable[[], float], timeout: float | None = None, stop: threading.Event | None = None
) -> Future[None] | None:
    """Wait until an execution that other processes drive has ended, or can only continue with an answer or a signal, or
    at a deadline after `by()`; see `is_idle`. Return None then. If this environment begins to drive the execution
    meanwhile, return its drive, whose end the caller must wait for: the state in memory is ahead of the store from then
    on.

    `timeout` is in seconds. Raises TimeoutError after it. If another thread sets `stop`, return None within
    `NEWS_INTERVAL`.

    Raises
    ------
    ExecutionError
        The execution is in no queue, and its driver is gone.
    """
    news_event = threading.Event()
    deadline = None if timeout is None else time.monotonic() + timeout
    unsubscribe = on_change(driver.store, lambda _: news_event.set(), driver.id)
    try:
        # Not every store reports changes of other processes at once, so each wait is limited by `NEWS_INTERVAL`.
        while True:
            if driver.is_live:
                return driver.standstill()
            # The drive may begin during the check, which then reads the state in memory.
            if (stop is not None and stop.is_set()) or (_is_settled_elsewhere(driver, by()) and not driver.is_live):
                return None
            seconds = NEWS_INTERVAL if deadline is None else min(NEWS_INTERVAL, deadline - time.monotonic())
            if seconds <= 0:
                raise TimeoutError
            interruptible_wait(news_event, seconds)
            # Cleared before the next refresh: news that arrives during the refresh ends the next wait at once.
            news_event.clear()
    finally:
        unsubscribe()


def _is_settled_elsewhere(driver: Driver, by: float) -> bool:
    return driver.refresh().state.is_over or _is_parked_idle(driver, by) or _has_no_driver(driver)


def _is_parked_idle(driver: Driver, by: float) -> bool:
    return not driver.is_live and is_idle(driver.state, driver.store, by)


def is_idle(state: ExecutionState, store: EventStore, by: float = 0) -> bool:
    """Return whether an execution can only continue with an answer or a signal, or when a person resumes it.

    An execution that waits for children is idle if all these children are. An execution that sleeps, or pauses before a
    retry, is not: it continues by itself. So does one with a question that expires, or a signal wait that ends, at most
    at the time `by`, in microseconds since 1970.
    """
    if state.is_shown_paused:
        return True
    if state.status != WAITING or state.is_asleep or has_news(state, store):
        return False
    if (due := state.wake_at) is not None and due <= by:
        return False
    waiting_paths = [path for path in state.active_paths() if not state.settles_only(path)]
    return all(_is_child_idle(name, store, by) for name in running_children(state, waiting_paths))


def has_news(state: ExecutionState, store: EventStore) -> bool:
    """Return whether the store has messages for an execution that were not read, or events that are not in `state` yet.

    The order of the two checks matters: a message that is read between them appears in the new events. Without the
    second check, an execution that was just answered still seemed to wait (tests/runtime/test_elsewhere).
    """
    name = state.execution_id
    return store.has_untaken(name) or store.record(name).last_sequence > state.last_sequence


def _is_child_idle(name: str, store: EventStore, by: float) -> bool:
    try:
        return is_idle(folded(store, name), store, by)
    except ExecutionNotFoundError:  # it is about to start
        return False


def _has_no_driver(driver: Driver) -> bool:
    """Return whether an execution is in no queue and no process drives it any more, so that its state will not change
    while a caller waits.

    Raises
    ------
    ExecutionError
        It was running when its driver disappeared, or workers skip it until a person resumes it.
    """
    is_queued = belongs_to_workers(driver.store, driver.state)
    if (is_queued and not _is_withheld(driver)) or driver.is_live or is_driven(driver):
        return False
    state = driver.refresh().state  # the state that its driver wrote before it released the lease
    if not state.is_over and state.status != WAITING:
        reason = "workers stopped retrying it after several interruptions" if is_queued else "its process has ended"
        way_on = driver.resume_advice()
        status = shown_status(state.status, is_driven=False)
        raise ExecutionError(
            f"execution {driver.id} is {status}: {reason}, and no process continues it; to continue: {way_on}"
        )
    return True


def _is_withheld(driver: Driver) -> bool:
    """Return whether the workers of its queue skip an execution until a person resumes it."""
    return any(entry.execution_id == driver.id for entry in driver.store.queued(withheld=True))


# --- guards for executions that have ended ---------------------------------------------------------------------------
#
# They raise an error that names the possible next steps.


def refuse_final(driver: Driver, when: str = "") -> None:
    """Raise `ExecutionError` if an execution can never continue: it has completed, moved, continued as a successor, or
    was rolled back completely. Otherwise do nothing.
    """
    if driver.status == catalog.COMPLETED:
        raise ExecutionError(
            f"execution {driver.id} has {when}completed; start a new execution to run the workflow again"
        )
    if driver.state.is_over and driver.state.is_rolled_back:
        raise ExecutionError(
            f"execution {driver.id} has {when}{_end_of(driver)}, and its calls are rolled back; start a new execution"
        )
    if driver.status in FINAL:
        way_on = f"it continues as {driver.state.continued_as}" if driver.state.continued_as else WAY_ON[driver.status]
        raise ExecutionError(f"execution {driver.id} is {when}{_end_of(driver)}, and cannot continue; {way_on}")


def _end_of(driver: Driver) -> str:
    """Return a phrase about how an execution has ended, for use inside an error message."""
    return (
        "only a read-only snapshot of an unfinished execution" if driver.status == catalog.SNAPSHOT else driver.status
    )


def refuse_over(driver: Driver, when: str = "already ") -> None:
    """Raise `ExecutionError` if an execution has ended, so that it cannot be cancelled. Otherwise do nothing."""
    if driver.state.is_over:
        way_on = f"; {WAY_ON[driver.status]}" if driver.status == catalog.SNAPSHOT else ""
        raise ExecutionError(f"execution {driver.id} is {when}{_end_of(driver)}; there is nothing to cancel{way_on}")


def nothing_to_pause(driver: Driver) -> ExecutionError:
    """Return the error for an attempt to pause an execution that this process does not drive. If another process drives
    it, the error names that process.
    """
    lease = None if driver.opening is not None else lease_elsewhere(driver)
    if lease is not None and not driver.state.is_over:
        owner = lease.owner
        return ExecutionError(
            f"execution {driver.id} is driven by {owner.name or 'a process'} (process {owner.pid} on {owner.host}), "
            "not by this process; pause it there, or cancel it here and resume it later"
        )
    way_on = "" if driver.state.is_over else "; it does nothing until it is started, resumed or answered"
    return ExecutionError(f"execution {driver.id} is {driver.status}, and it is not running in this process{way_on}")


def can_roll_back(driver: Driver, check: Callable[[Workflow, Container[str], Iterable[str]], None]) -> bool:
    """Return whether this process should run the rollback of an execution. It should not if workers drive the
    execution, or if something that the rollback needs is not defined here.

    Otherwise the process that resumes it does.
    """
    # A child must be rolled back before its parent.
    if driver.state.parent is None and belongs_to_workers(driver.store, driver.state):
        return False
    try:
        check(driver.workflow, steps_to_undo(driver.state), ())
    except (DefinitionError, NotFoundError, SetupError):
        return False
    return True
