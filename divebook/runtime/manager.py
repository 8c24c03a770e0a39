"""All executions of one store: start, find, resume, answer, signal, cancel, pause.

Code that changes an execution acquires its lease first and reads its state after that, because another process may have
changed it before (test_what_has_ended_meanwhile_stays_as_it_is).
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace

from divebook.engine.bounds import REASONS
from divebook.engine.decide import steps_ahead, steps_to_undo
from divebook.engine.inbox import Message, facts_of
from divebook.engine.lifecycle import FINAL, TERMINAL, WAY_ON
from divebook.engine.state import ExecutionState
from divebook.errors import (
    BoundExceededError,
    DefinitionError,
    ExecutionError,
    ExecutionNotFoundError,
    LeaseHeldError,
    NotFoundError,
    SetupError,
)
from divebook.events import catalog
from divebook.events.catalog import WAITING
from divebook.events.codec import checked
from divebook.events.event import Event
from divebook.interrupts import interruptible_result, interruptible_wait
from divebook.questions.bounds import DEFAULT_MAX_DEPTH, DEFAULT_MAX_DESCENDANTS, Bounds
from divebook.runtime.children import (
    Child,
    Opening,
    abandoned,
    all_abandoned,
    ancestors,
    has_ended,
    running_children,
    workflows_to_begin,
)
from divebook.runtime.clock import MICROSECONDS, Chance, Clock, Ids
from divebook.runtime.driver import Driver, DriverDependencies, ExecutionRegistry, LoadedLog, folded
from divebook.runtime.forks import first_batch
from divebook.runtime.leases import DRIVEN_LEASES
from divebook.runtime.loop import ENGINE, STOP_SECONDS, StoreSession, passed_on
from divebook.runtime.messages import Answering, this_person
from divebook.runtime.queueing import QueueControl, Relatives
from divebook.runtime.step import Services
from divebook.runtime.streaming import TextStreams
from divebook.runtime.waiting import engine_code
from divebook.store.append import FIRST_TOKEN, Durability, ExecutionRecord
from divebook.store.base import EventStore
from divebook.store.leases import Lease, Owner
from divebook.text.redaction import logger, shared
from divebook.workflow.definition import Workflow

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


RECOUNT_AFTER = 100
"""Executions that a process starts in one tree before it counts them in the store again."""

MOST_COUNTS = 1000
"""Trees whose counts a process remembers. Others are counted again when they start an execution."""


@dataclass(slots=True)
class _Count:
    """The number of executions below one, as far as this process knows it."""

    stored: int
    """Number in the store at the last count."""
    started: set[str] = field(default_factory=set)
    """Ids of the executions that this process has started since then, or is about to start."""

    @property
    def total(self) -> int:
        return self.stored + len(self.started)


class FamilyBounds:
    """Checks of `max_depth` and `max_descendants` before a child starts. Callable from any thread.

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
        """Count a child that is about to start.

        Raises
        ------
        BoundExceededError
            The child would exceed `max_depth` or `max_descendants` of an execution above it.
        """
        line = list(ancestors(self._store, parent))
        counts: list[_Count] = []
        with self._lock:
            for depth, record in enumerate(line, 1):
                driver = self._find(record.execution_id)
                most_depth, most = limits_of(driver.state.bounds, is_root=depth == len(line))
                if most_depth is not None and depth > most_depth:
                    raise _exceeded("max_depth", record, most_depth, f"a child of {parent} would be on level {depth}")
                if most is not None:
                    counts.append(count := self._count(driver, record, child, most))
                    if count.total >= most and child not in count.started:
                        raise _exceeded("max_descendants", record, most, f"has {count.total}")
            for count in counts:
                count.started.add(child)

    def forget(self, execution_id: str) -> None:
        """Forget the count of an execution that has ended. If it is resumed, its descendants are counted again."""
        with self._lock:
            self._counts.pop(execution_id, None)

    def left_for_successor(self, execution_id: str) -> Bounds:
        """Return the remaining limits of an execution for its successor."""
        driver = self._find(execution_id)
        bounds = driver.state.bounds
        most = bounds.max_descendants
        if most is not None:
            with self._lock:
                (record,) = list(ancestors(self._store, execution_id))[:1]
                most = max(0, most - self._recount(driver, record, ()).total)
        return Bounds(max_depth=bounds.max_depth, max_descendants=most)

    def _count(self, driver: Driver, record: ExecutionRecord, child: str, most: int) -> _Count:
        """Return the count of descendants. Count again from time to time, and before an execution is refused."""
        count = self._counts.pop(driver.id, None)
        if count is None or len(count.started) >= RECOUNT_AFTER or (count.total >= most and child not in count.started):
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
        """Return the executions that are not in the store yet."""
        return {name for name in names if not any(ancestors(self._store, name))}

    def _inherited(self, driver: Driver, record: ExecutionRecord) -> int:
        """Return the number of executions below a fork that it shares with its source through their common events."""
        total = 0
        for name in driver.state.ledger.children if record.opened > 1 else ():
            try:
                if self._store.record(name).parent != record.execution_id:
                    total += 1 + self._store.descendants(name)
            except ExecutionNotFoundError:  # it was deleted
                total += 1
        return total


def limits_of(bounds: Bounds, *, is_root: bool) -> tuple[int | None, int | None]:
    """Return the maximum depth and number of descendants of an execution; None means unlimited."""
    default = (DEFAULT_MAX_DEPTH, DEFAULT_MAX_DESCENDANTS) if is_root else (None, None)
    depth = default[0] if bounds.max_depth is None else bounds.max_depth
    return depth, default[1] if bounds.max_descendants is None else bounds.max_descendants


def _exceeded(name: str, record: ExecutionRecord, limit: int, found: str) -> BoundExceededError:
    below = "levels of executions" if name == "max_depth" else "executions"
    return BoundExceededError(
        f"{name} is reached: execution {record.execution_id} of {record.workflow_name!r} may have at most {limit} "
        f"{below} below it, and {found}. Look for a workflow that starts itself; if so many are meant, raise the bound "
        f"and resume that execution: bounds={{'{name}': {max(2 * limit, 1)}}}",
        name,
        REASONS[name],
    )


# --- waiting for executions that other processes or environments drive -----------------------------------------------


LONGEST = 1.0
"""Seconds between two checks if the store reports no news."""


def is_elsewhere(driver: Driver) -> bool:
    """Return whether others must drive an execution: the workers of its queue, or its present driver."""
    if driver.opening is not None or driver.is_live or driver.was_forked:
        return False
    state = driver.refresh().state
    return not state.is_over and (state.queue is not None or _is_driven(driver))


def _is_driven(driver: Driver) -> bool:
    """Return whether another process, or another environment of this process, drives an execution."""
    held = driver.store.live_lease_of(driver.id)
    return held is not None and not DRIVEN_LEASES.is_left(driver.store, held)


def lease_elsewhere(driver: Driver) -> Lease | None:
    """Return the lease under which another process drives an execution, or None."""
    held = driver.store.live_lease_of(driver.id)
    return None if held is None or held.owner.is_same_process(Owner.current()) else held


def wait_elsewhere(driver: Driver, timeout: float | None = None) -> None:
    """Block until an execution driven elsewhere has ended or can only continue with input from outside.

    `timeout` is in seconds. Raises TimeoutError after it.

    Raises
    ------
    ExecutionError
        The execution is in no queue, and its driver is gone.
    """
    news = threading.Event()
    until = None if timeout is None else time.monotonic() + timeout
    ends = [
        driver.store.on_news(news.set, driver.id),
        driver.store.subscribe(lambda name, _: news.set() if name == driver.id else None),
    ]
    try:
        while not driver.refresh().state.is_over and not _rests(driver) and not _is_left(driver):
            left = LONGEST if until is None else min(LONGEST, until - time.monotonic())
            if left <= 0:
                raise TimeoutError
            interruptible_wait(news, left)
            news.clear()
    finally:
        for end in ends:
            end()


def _rests(driver: Driver) -> bool:
    return not driver.is_live and stands_still(driver.state, driver.store)


def stands_still(state: ExecutionState, store: EventStore) -> bool:
    """Return whether an execution does nothing until it gets an answer or a signal, or is resumed.

    An execution that waits for children stands still if they do. One that sleeps, or pauses before a retry, does not:
    it continues by itself.
    """
    if state.is_shown_paused:
        return True
    if state.status != WAITING or state.is_asleep or has_news(state, store):
        return False
    return all(_child_stands_still(name, store) for name in running_children(state))


def has_news(state: ExecutionState, store: EventStore) -> bool:
    """Return whether the store has unread messages for the execution, or events that the state lacks.

    The order of the two checks matters: a message that is read between them appears in the new events. Without the
    second check, an execution that was just answered still seemed to wait (tests/execution/test_elsewhere).
    """
    name = state.execution_id
    return store.has_untaken(name) or store.record(name).last_sequence > state.last_sequence


def _child_stands_still(name: str, store: EventStore) -> bool:
    try:
        return stands_still(folded(store, name), store)
    except ExecutionNotFoundError:  # it is about to start
        return False


def _is_left(driver: Driver) -> bool:
    """Return whether the execution is in no queue and is not driven any more.

    Raises
    ------
    ExecutionError
        It was running when its driver disappeared.
    """
    if driver.state.queue is not None or driver.is_live or _is_driven(driver):
        return False
    state = driver.refresh().state  # the state that its driver wrote before it released the lease
    if not state.is_over and state.status != WAITING:
        raise ExecutionError(f"execution {driver.id} is {state.status}, and who has driven it is gone; resume it")
    return True


# --- guards for executions that have ended ---------------------------------------------------------------------------
#
# They raise an error that names the possible next steps.


def refuse_final(driver: Driver, when: str = "") -> None:
    """Raise ExecutionError for an execution that cannot continue."""
    if driver.status == catalog.COMPLETED:
        raise ExecutionError(f"execution {driver.id} has {when}completed; start a new one to run the workflow again")
    if driver.state.is_over and driver.state.is_rolled_back:
        raise ExecutionError(
            f"execution {driver.id} has {when}{_end_of(driver)}, and what it had done is rolled back; start a new one"
        )
    if driver.status in FINAL:
        way_on = f"it goes on as {driver.state.continued_as}" if driver.state.continued_as else WAY_ON[driver.status]
        raise ExecutionError(f"execution {driver.id} is {when}{_end_of(driver)}, and cannot go on; {way_on}")


def _end_of(driver: Driver) -> str:
    """Return a phrase for how an execution ended, to be used within a sentence."""
    return "only a picture of one that had not ended" if driver.status == catalog.PICTURE else driver.status


def refuse_over(driver: Driver, when: str = "already ") -> None:
    """Raise ExecutionError for an execution that has ended, so that there is nothing to cancel."""
    if driver.state.is_over:
        way_on = f"; {WAY_ON[driver.status]}" if driver.status == catalog.PICTURE else ""
        raise ExecutionError(f"execution {driver.id} is {when}{_end_of(driver)}; there is nothing to cancel{way_on}")


def nothing_to_pause(driver: Driver) -> ExecutionError:
    """Return the error for pausing an execution that this process does not drive, with an alternative."""
    held = None if driver.opening is not None else lease_elsewhere(driver)
    if held is not None and not driver.state.is_over:
        owner = held.owner
        return ExecutionError(
            f"execution {driver.id} is driven by {owner.name or 'a process'} (process {owner.pid} on {owner.host}), "
            "and not by this one; pause it there, or cancel it from here and resume it later"
        )
    way_on = "" if driver.state.is_over else "; nothing of it begins before it is started, resumed or answered"
    return ExecutionError(f"execution {driver.id} is {driver.status}, and this process does not drive it{way_on}")


def can_undo(driver: Driver, check: Callable[[Workflow, Container[str], Iterable[str]], None]) -> bool:
    """Return whether this process can and should run the rollback of an execution.

    Otherwise the process that resumes it does.
    """
    if driver.state.queue is not None and driver.state.parent is None:  # a child must be rolled back before its parent
        return False
    try:
        check(driver.workflow, steps_to_undo(driver.state), ())
    except (DefinitionError, NotFoundError, SetupError):
        return False
    return True


SEED_BITS = 64
_log = logger(__name__)


class Control(QueueControl):
    """Operations on the executions of one store.

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
        self._register = ExecutionRegistry(store)
        self.answering = Answering(self._register, self.go_on, clock, chance)
        """Delivery of answers and signals."""
        self.family_bounds = FamilyBounds(store, self._register.find)
        """Limits on the number of child executions."""
        self._resuming = threading.Lock()
        self._cancelling = threading.RLock()
        self._alarms: dict[str, asyncio.Future[None]] = {}
        self._latest_desk: StoreSession | None = None
        """Kept alive, so that consecutive executions share one session."""
        self.texts = TextStreams()
        """Streams of the text that models write in these executions."""
        self._relatives = Relatives(store, self._register.find, self._register.present, self.cancel, self._send_word)
        self.means = DriverDependencies(
            services(self), clock, chance, code_of, self._relatives.undo_children, self._came_to_rest
        )

    # --- starting and finding ----------------------------------------------------------------------------------------

    def create(
        self,
        workflow: Workflow,
        opening: catalog.ExecutionStarted,
        durability: Durability | None = None,
        execution_id: str | None = None,
    ) -> Driver:
        """Return a new pending execution. Nothing of it is recorded before it is started."""
        shared().learn(opening.inputs)  # before anything is printed
        execution_id = execution_id or Ids(self.clock, self.chance).execution()
        driver = Driver(execution_id, {}, self.store, LoadedLog(workflow, ExecutionState(execution_id)))
        driver.opening = replace(opening, seed=opening.seed or f"{self.chance.bits(SEED_BITS):0{SEED_BITS // 4}x}")
        driver.durability = durability
        self._register.enter(driver)
        return driver

    def start(self, driver: Driver) -> None:
        """Start a pending execution. Return once its first events are in the store, where others can find it."""
        if driver.opening is None or driver.was_driven:
            raise ExecutionError(f"execution {driver.id} is {driver.status}; only a pending one can be started")
        self._register.enter(driver)
        ENGINE.refuse_waiting(self.store)
        begun = Future[None]()
        if not ENGINE.is_current():
            ENGINE.outcome(lambda: driver.begin(self.means, begun), begun)
            return
        driver.begin(self.means, begun, at_once=True)
        if (commit := ENGINE.desk(self.store).commit).held_up is None:
            commit.commit_now()  # waiting is impossible on the engine's own thread
            driver.require_log()

    def run(self, driver: Driver) -> Future[None]:
        """Start an execution if it is pending.

        Return a future that is done when it has ended, is parked or is blocked.
        """
        if driver.opening is None or driver.was_driven:
            return driver.standstill()
        ended = Future[None]()
        self._register.enter(driver)

        def begin() -> None:
            if not driver.was_driven:  # other code has started it meanwhile
                driver.begin(self.means)
            driver.standstill().add_done_callback(functools.partial(passed_on, ended))

        return ENGINE.begin(begin, ended)

    async def left_for_successor(self, child: Child) -> Child:
        """Return the successor with the remaining limits on child executions. Call on the engine's loop."""
        left = await self._desk.calls.work(lambda: self.family_bounds.left_for_successor(child.parent))
        bounds = replace(child.bounds, max_depth=left.max_depth, max_descendants=left.max_descendants)
        return child._replace(bounds=bounds)

    async def begin_successor(self, driver: Driver, before: str) -> None:
        """Start a pending execution as the successor of another one. Return once its first events are in the store.

        Call on the engine's loop.
        """
        begun = Future[None]()
        self._let_come_from(driver, before)
        driver.begin(self.means, begun)
        await asyncio.wrap_future(begun)

    def fork(
        self, source: str, at: int, forked: catalog.ExecutionForked, kept: Durability | None = None, name: str = ""
    ) -> Driver:
        """Create an execution that shares the first `at` events of another one, and drive it."""
        ids = Ids(self.clock, self.chance)
        owner = Owner.current()
        now = self.clock.now()
        execution_id = name or ids.execution()
        event = Event(ids.event(now), execution_id, at + 1, now, forked)
        alone = nullcontext() if ENGINE.is_current() else self._resuming  # the second fork with a key finds the first
        with alone, DRIVEN_LEASES.about_to_drive(self.store, execution_id):
            (refusal,) = self.store.append_all([first_batch(self.store, source, event, owner, kept)])
            if refusal is not None:
                raise refusal
            driver = self._register.look_up(execution_id)
            self._drive(driver, Lease(execution_id, FIRST_TOKEN, owner, expires_at=0))
        return driver

    def _drive(
        self, driver: Driver, lease: Lease, resumed: catalog.ExecutionResumed | None = None, *, anew: bool = False
    ) -> None:
        """Drive an execution under a lease. With `anew`, replay its code even if it is parked in memory."""
        state = driver.state
        told = resumed or catalog.ExecutionResumed(state.status)
        self._register.enter(driver)
        if ENGINE.is_current():
            driver.go_on(self.means, told, lease, state, anew=anew)
            return
        under_way = Future[None]()

        def go_on() -> None:
            driver.go_on(self.means, told, lease, state, anew=anew)
            # Wake the caller two turns later, after the first work of the execution: a thread that wakes earlier would
            # only compete with it for the processor.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, under_way.set_result, None)

        with driver.handover():
            ENGINE.outcome(go_on, under_way)

    def find(self, execution_id: str) -> Driver:
        """Return an execution in its present state. A unique prefix of its id is enough."""
        return self._register.find(execution_id)

    def look_up(self, execution_id: str) -> Driver:
        """Return an execution like `find`, but read its log only when first used."""
        return self._register.look_up(execution_id)

    # --- resuming ----------------------------------------------------------------------------------------------------

    def resume(self, execution_id: str, bounds: Bounds | None = None, recovery: int | None = None) -> Driver:
        """Resume an execution at the end of its log; see `Environment.resume`."""
        with nullcontext() if ENGINE.is_current() else self._resuming:  # a second call at the same time finds it live
            return self._resume(execution_id, bounds, recovery)

    def _resume(self, execution_id: str, bounds: Bounds | None, recovery: int | None) -> Driver:
        driver = self._register.find(execution_id)
        if self.ends_with_parent(driver):
            return driver
        if driver.is_live and driver.state.is_over and not ENGINE.is_current():
            wait((driver.driving(),))  # its last events are being written
        if driver.is_live and bounds is None and not driver.state.is_over:
            return driver  # something else resumed it, for example an answer
        if driver.is_live:
            raise ExecutionError(f"execution {driver.id} is running in this process already; wait for it or cancel it")
        if driver.status == catalog.COMPLETED and bounds is None:
            return driver
        refuse_final(driver)
        self._require_means(driver)
        with DRIVEN_LEASES.taking(self.store, driver.id) as lease:
            driver.under(lease)
            if driver.status == catalog.COMPLETED and bounds is None:  # another process has resumed it
                self.store.release(lease)
                return driver
            refuse_final(driver, "meanwhile ")
            told = None if bounds is None else bounds.to_dict()
            self._drive(driver, lease, catalog.ExecutionResumed(driver.status, told, recovery), anew=True)
        return driver

    def _require_means(self, driver: Driver) -> None:
        """Raise unless everything is defined that the execution needs to continue."""
        ahead = steps_ahead(driver.workflow, driver.state)
        self.check(driver.workflow, ahead, workflows_to_begin(driver.state, self.store))

    def go_on(self, driver: Driver, child: Child | None = None, *, again: bool = False) -> Driver:
        """Continue a parked execution if it has something to do. If another process drives it now, do nothing.

        With `again`, resume an execution that failed or was cancelled as well. A `child` is resumed with the bounds
        that its parent requests now.
        """
        if self.delivered(driver) or self._is_for_workers(driver, None if child is None else child.parent):
            return driver
        if self.ends_with_parent(driver):
            return driver
        with suppress(LeaseHeldError):
            self._require_means(driver)
            with DRIVEN_LEASES.taking(self.store, driver.id) as lease:
                if self._can_go_on(state := driver.under(lease), child, again=again):
                    self._drive(driver, lease, None if child is None else child.resumed(driver.workflow, state))
                else:
                    self.store.release(lease)
        return driver

    def delivered(self, driver: Driver) -> bool:
        """Deliver unread messages if this process drives the execution, or is about to check the inbox.

        Return whether it does.
        """
        if ENGINE.is_current():
            ENGINE.keep(self._desk.mailroom.deliver(driver.id))
            return driver.look_again()
        if not driver.is_driving and not ENGINE.drives(self.store, driver.id):
            return False  # the next driver checks the inbox first

        async def hand_over() -> bool:
            delivered = await self._desk.mailroom.deliver(driver.id) or driver.look_again()
            await driver.durable()
            return delivered

        return interruptible_result(ENGINE.call(lambda: ENGINE.promise(hand_over())))

    @property
    def _desk(self) -> StoreSession:
        return ENGINE.desk(self.store)

    def _can_go_on(self, state: ExecutionState, child: Child | None, *, again: bool) -> bool:
        if state.is_over:
            # If another process has ended the parent, the parent must resume nothing, even if this process has not
            # noticed yet.
            return again and not state.is_final and not (child is not None and has_ended(self.store, child.parent))
        if state.status != WAITING or facts_of(state, self.store.inbox(state.execution_id, state.taken)):
            return True
        due = state.wake_at
        return due is not None and due <= self.clock.now()

    async def inbox(self, execution_id: str, after: int) -> Sequence[Message]:
        """Return the messages of an execution with numbers above `after`. Call on the engine's loop."""
        return await self._desk.calls.patiently(lambda: self.store.inbox(execution_id, after))

    async def claim_expired(self, execution_id: str, interrupt_id: str) -> None:
        """Mark an expired question, so that it can no longer be answered. Call on the engine's loop."""
        await self._desk.calls.patiently(lambda: self.answering.claim_expired(execution_id, interrupt_id))

    # --- end and parking ---------------------------------------------------------------------------------------------

    async def _came_to_rest(self, driver: Driver) -> None:
        """Notify the family of an execution that has ended, or set the timer that wakes a parked one.

        On the engine's loop.
        """
        self._latest_desk = self._desk
        if driver.state.is_over:
            await self._relatives.ended(driver)
            if driver.may_have_children:  # its count would stay in memory (tests/execution/test_ended.py)
                await self._desk.calls.work(lambda: self.family_bounds.forget(driver.id))
        elif (due := driver.state.wake_at) is not None:
            alarm = self._alarms[driver.id] = ENGINE.keep(self._wake(driver.id, due))
            alarm.add_done_callback(lambda done: self._alarms.pop(driver.id, done))

    async def _wake(self, execution_id: str, due: int) -> None:
        """Continue a parked execution when its time has come. No process drives it until then."""
        while (left := due - self.clock.now()) > 0:
            with engine_code():  # a clock may be user code
                await self.clock.sleep(left / MICROSECONDS)
        if not self.store.closed:
            await self._desk.calls.work(lambda: self._go_on_if_due(execution_id, due))

    def _go_on_if_due(self, execution_id: str, due: int) -> None:
        driver = self._register.find(execution_id)
        if not driver.is_driving and driver.state.wake_at == due:
            self.go_on(driver)

    def _send_word(self, parent_id: str, child: Driver) -> None:
        parent = self._register.find(parent_id)
        if not parent.state.is_over:
            self.answering.send_word(parent_id, child)
            self.go_on(parent)

    # --- child executions --------------------------------------------------------------------------------------------

    async def drive_child(self, child: Child, opening: Opening, *, again: bool) -> ExecutionState:
        """Start or resume a child execution. Return its state once it has ended or is parked.

        With `again`, resume a child that failed or was cancelled as well. A child that cannot continue in this process
        stays parked, and so does the code that waits for it. Call on the engine's loop.
        """
        work = self._desk.calls.work
        if (parent := self._register.present(child.parent)) is not None:
            parent.may_have_children = True
        try:
            driver = await work(lambda: self._register.find(child.id))
        except ExecutionNotFoundError:
            driver = await self._begin_child(child, opening)
        else:
            if parent is not None:
                driver.serve_with(parent)
            if not driver.is_live:
                try:
                    await work(lambda: self.go_on(driver, child, again=again))
                except (DefinitionError, NotFoundError, SetupError) as error:
                    if driver.state.is_over:
                        raise
                    _log.warning("execution %s rests until another process resumes it: %s", child.id, error)
        if driver.is_live:
            ended = asyncio.wrap_future(driver.standstill())
            ended.add_done_callback(lambda done: done.cancelled() or done.exception())  # mark the error as retrieved
            await asyncio.shield(ended)
        return (await work(driver.refresh)).state

    async def _begin_child(self, child: Child, opening: Opening) -> Driver:
        """Start a child execution. Cancel it at once if its parent has ended meanwhile.

        Raises
        ------
        BoundExceededError
            A limit of an execution above it is reached.
        """
        work = self._desk.calls.work
        await work(lambda: self.family_bounds.admit(child.id, child.parent))
        workflow, opened, durability = await work(opening)
        if isinstance(opened, catalog.ExecutionForked):
            driver = await work(lambda: self.fork(opened.source, opened.at, opened, durability, child.id))
        else:
            driver = self.create(workflow, opened, durability, child.id)
            begun = Future[None]()
            self._let_come_from(driver, child.parent)
            driver.begin(self.means, begun)
            ends = [asyncio.wrap_future(begun), asyncio.wrap_future(driver.driving())]
            for end in ends:  # the error reaches the code that waits for the end
                end.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        # Another process may have ended the parent while the child was written, without seeing the child
        # (tests/execution/cancelled_trees.py).
        if await work(lambda: has_ended(self.store, child.parent)):
            await work(lambda: self.ends_with_parent(driver))
        return driver

    # --- cancelling, pausing, leaving --------------------------------------------------------------------------------

    def cancel(self, execution_id: str, reason: str = "") -> Driver:
        """Cancel an execution; see `Environment.cancel`. The default reason names the person."""
        reason = reason or f"cancelled by {this_person()}"
        checked(catalog.ExecutionCancelled(reason))
        with nullcontext() if ENGINE.is_current() else self._cancelling:  # a second call finds it cancelled
            return self._cancel(self._register.find(execution_id), reason)

    def _cancel(self, driver: Driver, reason: str) -> Driver:
        """Cancel an execution in one of three ways.

        If it is pending, or if this process drives it, its driver cancels it. If it is being rolled back, the rollback
        continues here if possible. Otherwise its lease is taken, by force if necessary, and the cancellation is
        recorded.
        """
        if driver.was_forked:
            driver.driving()
        with driver.handover():  # no other thread may begin to drive it between the first and the last line
            if ENGINE.call(lambda: driver.cancel_pending(self.means, reason) or driver.cancel(reason)):
                return driver
            refuse_over(driver.refresh())
            if driver.state.rolling_back is None or driver.state.paused is not None:
                with DRIVEN_LEASES.taking(self.store, driver.id, by_force=True) as lease:
                    state = driver.under(lease)
                    refuse_over(driver, "meanwhile ")
                    undoes = can_undo(driver, self.check)
                    ENGINE.call(lambda: driver.begin_cancellation(self.means, reason, lease, state, undoes=undoes))
                return driver
        return self.go_on(driver) if can_undo(driver, self.check) else driver

    def ends_with_parent(self, driver: Driver) -> bool:
        """Cancel an execution whose ancestor has ended, together with such ancestors. Return whether there were any.

        See `divebook.runtime.children`. An execution that is being rolled back continues, so that its effects are
        undone.
        """
        state = driver.state
        if state.parent is None or state.is_over or state.rolling_back is not None:
            return False
        line = abandoned(self.store, driver.id)
        for one in line:  # itself first, so that it does not run while its ancestors are checked
            with suppress(ExecutionError):  # another process or its parent cancels it now
                self.cancel(one.id, one.reason)
        return bool(line)

    def pause(self, driver: Driver, reason: str = "") -> None:
        """Start no more operations of an execution that this process drives or a queue holds; see `Execution.pause`."""
        paused = catalog.ExecutionPaused(reason or f"paused by {this_person()}")
        checked(paused)
        if ENGINE.call(lambda: driver.pause(paused.reason)):
            return
        driver.refresh()
        if driver.opening is not None or driver.state.queue is None or driver.state.is_over:
            raise nothing_to_pause(driver)
        self.hold(driver, paused)

    def leave(self, driver: Driver) -> None:
        """Stop driving an execution, as if this process had ended; see `Execution.leave`."""
        if driver.is_live:
            ENGINE.call(driver.leave)
            wait((driver.driving(),), STOP_SECONDS)

    def recoverable(self) -> list[ExecutionRecord]:
        """Return executions that have something to do but no living driver, newest first.

        Executions whose parent has ended are included, whether driven or not: recovering them cancels them.
        """
        found = {record.execution_id: record for record in self.store.orphans()}
        for record in all_abandoned(self.store):
            if not DRIVEN_LEASES.drives(self.store, record.execution_id):  # this process is writing its end
                found[record.execution_id] = record
        left = [self.store.record(name) for name in DRIVEN_LEASES.left(self.store) if name not in found]
        unended = [r for r in left if r.status not in TERMINAL and r.origin not in catalog.LEFT_ALONE]
        return sorted([*found.values(), *unended], key=lambda record: record.created_at, reverse=True)

    def close(self) -> None:
        """Leave all executions that this process drives, and cancel the timers of parked ones."""
        self._register.read_all()
        live = self.live()

        def leave() -> list[Future[None]]:
            for driver in live:
                driver.leave()
            for alarm in list(self._alarms.values()):
                alarm.cancel()
            resting = [driver.standing.let_go() for driver in self._register.known()]
            return [ENGINE.promise(left.gone()) for left in resting if left is not None]

        wait([*ENGINE.call(leave), *(driver.driving() for driver in live)], STOP_SECONDS)
