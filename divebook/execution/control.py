"""The executions over one store: started, found, resumed, answered, signalled, cancelled.

Code that changes one acquires its lease first and looks at it then: what it looked like before may be long past
(test_what_has_ended_meanwhile_stays_as_it_is).
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import nullcontext, suppress
from dataclasses import replace

from divebook.bounds import Bounds
from divebook.engine.ahead import steps_ahead
from divebook.engine.inbox import Message, facts_of
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.state import WAITING, ExecutionState
from divebook.errors import (
    DefinitionError,
    ExecutionError,
    ExecutionNotFoundError,
    LeaseHeldError,
    NotFoundError,
    SetupError,
)
from divebook.events import catalog
from divebook.events.codec import checked
from divebook.events.event import Event
from divebook.execution.answering import Answering, this_person
from divebook.execution.children import Child, Opening, workflows_to_begin
from divebook.execution.clock import MICROSECONDS, Chance, Clock, Ids
from divebook.execution.driver import Driver
from divebook.execution.engine_thread import ENGINE, STOP_SECONDS, Desk, passed_on
from divebook.execution.families import abandoned, all_abandoned, has_ended
from divebook.execution.family_bounds import FamilyBounds
from divebook.execution.forks import first_batch
from divebook.execution.known import Past
from divebook.execution.leases import HANDS
from divebook.execution.means import Means
from divebook.execution.queueing import QueueControl
from divebook.execution.refusals import can_undo, nothing_to_pause, refuse_final, refuse_over
from divebook.execution.register import Register
from divebook.execution.relatives import Relatives
from divebook.execution.step_run import Services
from divebook.execution.streaming import TextStreams
from divebook.execution.unrecorded_waits import engine_code
from divebook.keyboard import interruptible_result
from divebook.store import EventStore, ExecutionRecord, Lease
from divebook.store.batches import FIRST_TOKEN
from divebook.store.durability import Durability
from divebook.store.owner import Owner
from divebook.text.logs import logger
from divebook.text.redaction import shared
from divebook.workflow.definition import Workflow

SEED_BITS = 64
_log = logger(__name__)


class Control(QueueControl):
    """What can be done with the executions over one store.

    Parameters
    ----------
    services
        What their runners need.
    check
        Raises unless all that these steps of a workflow name is there, and other workflows that are still to begin.
    code_of
        Returns the digests of the functions that a workflow may call now.
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
        self.store, self.clock, self.chance = store, clock, chance
        self.check = check
        self._register = Register(store)
        self.answering = Answering(self._register, self.go_on, clock, chance)
        """Takes answers and signals."""
        self.family_bounds = FamilyBounds(store, self._register.find)
        """Limits how many executions those over this store start."""
        self._resuming, self._cancelling = threading.Lock(), threading.RLock()
        self._alarms: dict[str, asyncio.Future[None]] = {}
        self._latest_desk: Desk | None = None
        """Held on to, so that executions one after the other need not make one each."""
        self.texts = TextStreams()
        """What models write in these executions."""
        self._relatives = Relatives(store, self._register.find, self.cancel, self._send_word)
        self.means = Means(services(self), clock, chance, code_of, self._relatives.undo_children, self._came_to_rest)

    # --- starting and finding --------------------------------------------------------------------------------------

    def create(
        self,
        workflow: Workflow,
        opening: catalog.ExecutionStarted,
        durability: Durability | None = None,
        execution_id: str | None = None,
    ) -> Driver:
        """Return a pending execution, of which nothing is recorded before it is started."""
        shared().learn(opening.inputs)  # before anything is printed
        execution_id = execution_id or Ids(self.clock, self.chance).execution()
        driver = Driver(execution_id, {}, self.store, Past(workflow, ExecutionState(execution_id)))
        driver.opening = replace(opening, seed=opening.seed or f"{self.chance.bits(SEED_BITS):0{SEED_BITS // 4}x}")
        driver.durability = durability
        self._register.enter(driver)
        return driver

    def start(self, driver: Driver) -> None:
        """Begin a pending execution; return once its beginning is in the store, where everybody finds it."""
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
            commit.commit_now()  # on the engine's own thread nothing can be waited for
            driver.require_log()

    def run(self, driver: Driver) -> Future[None]:
        """Return what is done when an execution has ended, rests, or is blocked; a pending one begins."""
        if driver.opening is None or driver.was_driven:
            return driver.standstill()
        ended = Future[None]()
        self._register.enter(driver)

        def begin() -> None:
            if not driver.was_driven:  # somebody else has begun it meanwhile
                driver.begin(self.means)
            driver.standstill().add_done_callback(functools.partial(passed_on, ended))

        return ENGINE.begin(begin, ended)

    async def left_for_successor(self, child: Child) -> Child:
        """Return what one continues as with what is left of its bounds on executions below it; on the loop."""
        left = await self._desk.calls.work(lambda: self.family_bounds.left_for_successor(child.parent))
        bounds = replace(child.bounds, max_depth=left.max_depth, max_descendants=left.max_descendants)
        return child._replace(bounds=bounds)

    async def begin_successor(self, driver: Driver, before: str) -> None:
        """Begin a pending execution as which another one goes on; return once its beginning is in the store.

        Call it on the engine's loop.
        """
        begun = Future[None]()
        self._let_come_from(driver, before)
        driver.begin(self.means, begun)
        await asyncio.wrap_future(begun)

    def fork(
        self, source: str, at: int, forked: catalog.ExecutionForked, kept: Durability | None = None, name: str = ""
    ) -> Driver:
        """Begin an execution that shares the first events of another one, and drive it on."""
        ids, owner, now = Ids(self.clock, self.chance), Owner.current(), self.clock.now()
        execution_id = name or ids.execution()
        event = Event(ids.event(now), execution_id, at + 1, now, forked)
        alone = nullcontext() if ENGINE.is_current() else self._resuming  # of two with one key the second finds it live
        with alone, HANDS.about_to_drive(execution_id):
            (refusal,) = self.store.append_all([first_batch(self.store, source, event, owner, kept)])
            if refusal is not None:
                raise refusal
            driver = self._register.load(execution_id)
            self._drive(driver, Lease(execution_id, FIRST_TOKEN, owner, expires_at=0))
        return driver

    def _drive(
        self, driver: Driver, lease: Lease, resumed: catalog.ExecutionResumed | None = None, *, anew: bool = False
    ) -> None:
        """Drive an execution on under a lease; with `anew` its code is replayed, though it stands still in memory."""
        state = driver.state
        told = resumed or catalog.ExecutionResumed(state.status)
        self._register.enter(driver)
        if ENGINE.is_current():
            driver.go_on(self.means, told, lease, state, anew=anew)
            return
        under_way = Future[None]()

        def go_on() -> None:
            driver.go_on(self.means, told, lease, state, anew=anew)
            # Two turns later, after what it does first: a thread that wakes before would only take its processor.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, under_way.set_result, None)

        ENGINE.outcome(go_on, under_way)

    def find(self, execution_id: str) -> Driver:
        """Return an execution, live or past; the beginning of an id is enough where it is unique."""
        return self._register.find(execution_id)

    def look_up(self, execution_id: str) -> Driver:
        """Return an execution as `find` does; its log is read when somebody asks what it says."""
        return self._register.look_up(execution_id)

    # --- resuming --------------------------------------------------------------------------------------------------

    def resume(self, execution_id: str, bounds: Bounds | None = None, recovery: int | None = None) -> Driver:
        """Take an execution up again where its log ends; see `Environment.resume`."""
        with nullcontext() if ENGINE.is_current() else self._resuming:  # of two at once the second finds it live
            return self._resume(execution_id, bounds, recovery)

    def _resume(self, execution_id: str, bounds: Bounds | None, recovery: int | None) -> Driver:
        driver = self._register.find(execution_id)
        if self.ends_with_parent(driver):
            return driver
        if driver.is_live and driver.state.is_over and not ENGINE.is_current():
            wait((driver.driving(),))  # its end is being written
        if driver.is_live and bounds is None and not driver.state.is_over:
            return driver  # something else has resumed it: an answer, for instance
        if driver.is_live:
            raise ExecutionError(f"execution {driver.id} is running in this process already; wait for it or cancel it")
        if driver.status == catalog.COMPLETED and bounds is None:
            return driver
        refuse_final(driver)
        self._require_means(driver)
        with HANDS.taking(self.store, driver.id) as lease:
            driver.under(lease)
            if driver.status == catalog.COMPLETED and bounds is None:  # another process has resumed it
                self.store.release(lease)
                return driver
            refuse_final(driver, "meanwhile ")
            told = None if bounds is None else bounds.to_dict()
            self._drive(driver, lease, catalog.ExecutionResumed(driver.status, told, recovery), anew=True)
        return driver

    def _require_means(self, driver: Driver) -> None:
        """Raise unless all that an execution needs to go on is there."""
        ahead = steps_ahead(driver.workflow, driver.state)
        self.check(driver.workflow, ahead, workflows_to_begin(driver.state, self.store))

    def go_on(self, driver: Driver, child: Child | None = None, *, again: bool = False) -> Driver:
        """Let an execution that rests do what there is to do; its driver may now be another process.

        With `again` one that failed or was cancelled is resumed as well, as a `child` as what its parent asks for now.
        """
        if self.delivered(driver) or self._is_for_workers(driver, None if child is None else child.parent):
            return driver
        if self.ends_with_parent(driver):
            return driver
        with suppress(LeaseHeldError):
            self._require_means(driver)
            with HANDS.taking(self.store, driver.id) as lease:
                if self._can_go_on(state := driver.under(lease), child, again=again):
                    self._drive(driver, lease, None if child is None else child.resumed(driver.workflow, state))
                else:
                    self.store.release(lease)
        return driver

    def delivered(self, driver: Driver) -> bool:
        """Hand over what lies in the inbox, if this process drives the execution, or is about to look there itself."""
        if ENGINE.is_current():
            ENGINE.keep(self._desk.mailroom.deliver(driver.id))
            return driver.look_again()
        if not driver.is_driving and not ENGINE.drives(self.store, driver.id):
            return False  # who drives it from now on looks into the inbox first

        async def hand_over() -> bool:
            delivered = await self._desk.mailroom.deliver(driver.id) or driver.look_again()
            await driver.durable()
            return delivered

        return interruptible_result(ENGINE.call(lambda: ENGINE.promise(hand_over())))

    @property
    def _desk(self) -> Desk:
        return ENGINE.desk(self.store)

    def _can_go_on(self, state: ExecutionState, child: Child | None, *, again: bool) -> bool:
        if state.is_over:
            # A parent that another process has ended meanwhile resumes nothing, though it does not know that yet.
            return again and not state.is_final and not (child is not None and has_ended(self.store, child.parent))
        if state.status != WAITING or facts_of(state, self.store.inbox(state.execution_id, state.taken)):
            return True
        due = state.wake_at
        return due is not None and due <= self.clock.now()

    async def inbox(self, execution_id: str, after: int) -> Sequence[Message]:
        """Return the messages of an execution with numbers above one; on the loop."""
        return await self._desk.calls.patiently(lambda: self.store.inbox(execution_id, after))

    async def claim_expired(self, execution_id: str, interrupt_id: str) -> None:
        """Claim an expired question, so that no answer can; on the loop."""
        await self._desk.calls.patiently(lambda: self.answering.claim_expired(execution_id, interrupt_id))

    # --- coming to rest ----------------------------------------------------------------------------------------------

    async def _came_to_rest(self, driver: Driver) -> None:
        """See to what follows from the end of an execution, or to what wakes one that rests; on the loop."""
        self._latest_desk = self._desk
        if driver.state.is_over:
            await self._relatives.ended(driver)
            if driver.may_have_children:  # the count would stay in memory (tests/execution/test_ended.py)
                await self._desk.calls.work(lambda: self.family_bounds.forget(driver.id))
        elif (due := driver.state.wake_at) is not None:
            alarm = self._alarms[driver.id] = ENGINE.keep(self._wake(driver.id, due))
            alarm.add_done_callback(lambda done: self._alarms.pop(driver.id, done))

    async def _wake(self, execution_id: str, due: int) -> None:
        """Let an execution go on when its time has come; no process drives it until then."""
        while (left := due - self.clock.now()) > 0:
            with engine_code():  # the clock may be a person's
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

    # --- executions that others start --------------------------------------------------------------------------------

    async def drive_child(self, child: Child, opening: Opening, *, again: bool) -> ExecutionState:
        """Begin an execution that another one asks for, or resume it; return its state once it has ended, or rests.

        With `again` one that failed or was cancelled is resumed as well. One that cannot go on in this process rests,
        and with it the code that waits for its end. Call it on the engine's loop.
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
            ended.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, if nobody waits any more
            await asyncio.shield(ended)
        return (await work(driver.refresh)).state

    async def _begin_child(self, child: Child, opening: Opening) -> Driver:
        """Begin an execution that another one asks for; it ends at once if that has ended meanwhile.

        Raises
        ------
        BoundExceededError
            An execution above it may start no more.
        """
        work = self._desk.calls.work
        await work(lambda: self.family_bounds.admit(child.id, child.parent))
        workflow, opened, durability = await work(opening)
        if isinstance(opened, catalog.ExecutionForked):
            driver = await work(lambda: self.fork(opened.source, opened.at, opened, durability, child.id))
        else:
            driver, begun = self.create(workflow, opened, durability, child.id), Future[None]()
            self._let_come_from(driver, child.parent)
            driver.begin(self.means, begun)
            ends = [asyncio.wrap_future(begun), asyncio.wrap_future(driver.driving())]
            for end in ends:  # who waits for the end of the child hears of an error
                end.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        # Another process may have ended the parent while the child was written, and not have seen the child
        # (tests/execution/cancelled_trees.py).
        if await work(lambda: has_ended(self.store, child.parent)):
            await work(lambda: self.ends_with_parent(driver))
        return driver

    # --- ending ----------------------------------------------------------------------------------------------------

    def cancel(self, execution_id: str, reason: str = "") -> Driver:
        """Cancel an execution; see `Environment.cancel`. Without a reason the log says who did it."""
        reason = reason or f"cancelled by {this_person()}"
        checked(catalog.ExecutionCancelled(reason))
        with nullcontext() if ENGINE.is_current() else self._cancelling:  # of two at once the second finds it cancelled
            return self._cancel(self._register.find(execution_id), reason)

    def _cancel(self, driver: Driver, reason: str) -> Driver:
        if driver.was_forked:
            driver.driving()
        if ENGINE.call(lambda: driver.cancel_pending(self.means, reason) or driver.cancel(reason)):
            return driver
        refuse_over(driver.refresh())
        if driver.state.rolling_back is not None and driver.state.paused is None:
            return self.go_on(driver) if can_undo(driver, self.check) else driver
        with HANDS.taking(self.store, driver.id, by_force=True) as lease:
            state = driver.under(lease)
            refuse_over(driver, "meanwhile ")
            undoes = can_undo(driver, self.check)
            ENGINE.call(lambda: driver.begin_cancellation(self.means, reason, lease, state, undoes=undoes))
        return driver

    def ends_with_parent(self, driver: Driver) -> bool:
        """Cancel an execution that is abandoned, with those above it that are; return whether that is so.

        See `divebook.execution.families`. What it did is undone all the same: one that is being rolled back continues.
        """
        state = driver.state
        if state.parent is None or state.is_over or state.rolling_back is not None:
            return False
        line = abandoned(self.store, driver.id)
        for one in line:  # itself first, so that nothing of it runs while those above it are looked at
            with suppress(ExecutionError):  # another process, or the end of its parent, cancels it at this moment
                self.cancel(one.id, one.reason)
        return bool(line)

    def pause(self, driver: Driver, reason: str = "") -> None:
        """Let nothing more begin in an execution that this process drives, or a queue has; see `Execution.pause`."""
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
        """Return the executions that have something to do and that no living process drives, newest first.

        Those whose parent has ended are among them, whoever drives them: to recover one cancels it.
        """
        found = {record.execution_id: record for record in self.store.orphans()}
        for record in all_abandoned(self.store):
            if not HANDS.drives(record.execution_id):  # here its end is being written
                found[record.execution_id] = record
        left = [self.store.record(name) for name in HANDS.left(self.store) if name not in found]
        unended = [r for r in left if r.status not in TERMINAL and r.origin not in catalog.LEFT_ALONE]
        return sorted([*found.values(), *unended], key=lambda record: record.created_at, reverse=True)

    def close(self) -> None:
        """Leave the executions that are driven here as they are, and wake none that rests any more."""
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
