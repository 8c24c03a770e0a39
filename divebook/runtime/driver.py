"""Driver of one execution: its definition, its state, and the code that drives it on the engine's event loop.

`divebook.runtime.manager` finds and creates drivers and decides which operations are allowed; a driver carries it out.
Each change that starts or stops an execution happens in one step on the engine's thread. A Ctrl-C, which Python raises
in the main thread, therefore comes before or after it (test_interrupts_at_any_moment_leave_nothing_stuck).
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from divebook.engine.bounds import Fact
from divebook.engine.checkpoint import load_state
from divebook.engine.decide import decide_cancellation, decide_leaving, decide_opening
from divebook.engine.evolve import fold, fold_records
from divebook.engine.inbox import facts_of, questions_of
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.state import ExecutionState
from divebook.errors import (
    CorruptStoreError,
    DivebookError,
    ExecutionError,
    LeaseHeldError,
    NewerStoreError,
    StoreError,
)
from divebook.events import Event, catalog
from divebook.questions import Question
from divebook.runtime.clock import Chance, Clock, Ids
from divebook.runtime.commit import StoreCalls
from divebook.runtime.context import STRAND
from divebook.runtime.forks import entered_workflow, opening_in, recorded_opening, recorded_workflow, workflow_in
from divebook.runtime.journal import Journal
from divebook.runtime.leases import DRIVEN_LEASES
from divebook.runtime.loop import ENGINE, StoreSession, failed_with, passed_on
from divebook.runtime.operations import MissPolicy
from divebook.runtime.runner import ParkedRun, Runner
from divebook.runtime.step import Services
from divebook.runtime.waiting import engine_code
from divebook.store.append import FIRST_TOKEN, Durability
from divebook.store.base import EventStore
from divebook.store.leases import Lease, Owner
from divebook.text.arguments import id_of
from divebook.text.format import in_shell
from divebook.text.redaction import logger, shared
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import CURRENT

# --- exit notice -----------------------------------------------------------------------------------------------------
#
# At exit, the process prints the executions that are still running and how to resume them.


MOMENT_SECONDS = 5.0
MOST_LINES = 20


class Driven(Protocol):
    """The attributes of an execution that the exit notice uses."""

    @property
    def id(self) -> str:
        """Execution id: ``exec_...``."""

    @property
    def status(self) -> str:
        """Status: running, waiting ..."""

    @property
    def started_by(self) -> str | None:
        """Id of the execution that waits for its end, if any."""

    @property
    def is_live(self) -> bool:
        """True if this process drives it."""

    def driving(self) -> Future[None]:
        """Return a future that is done when the execution has ended or is parked in this process."""

    store: EventStore


class ExitNotice:
    """Notice printed at exit about executions that this process still drives."""

    def __init__(self) -> None:
        self._minded: weakref.WeakSet[Driven] = weakref.WeakSet()
        self._pid = 0

    def mind(self, execution: Driven) -> None:
        """Include an execution in the notice if it still runs when the process ends."""
        if self._pid != os.getpid():  # a forked child process drives no execution of its parent
            self._minded, self._pid = weakref.WeakSet(), os.getpid()
            atexit.register(self.say)
        self._minded.add(execution)

    def say(self) -> None:
        """Print a line on stderr for each running execution that was not started by another running one.

        Children are counted in the line of their topmost running ancestor. At most `MOST_LINES` lines are printed.
        """
        if self._pid != os.getpid():
            return
        left = [execution for execution in sorted(self._minded, key=lambda one: one.id) if _goes_on(execution)]
        parents = {execution.id: execution.started_by for execution in left}
        below = Counter(_top(execution.id, parents) for execution in left)
        tops = [execution for execution in left if execution.id in below]
        for execution in tops[:MOST_LINES]:
            sys.stderr.write(f"{_line(execution, below[execution.id] - 1)}\n")
        if len(tops) > MOST_LINES:
            sys.stderr.write(
                f"divebook: {len(tops) - MOST_LINES} more executions have not ended; `divebook runs` lists them\n"
            )


def _top(execution_id: str, parents: Mapping[str, str | None]) -> str:
    """Return the topmost execution in `parents` above one."""
    parent = parents[execution_id]
    while parent is not None and parent in parents:
        execution_id = parent
        parent = parents[parent]
    return execution_id


def _goes_on(execution: Driven) -> bool:
    """Return whether an execution is still running. One that has just ended gets a moment to write its end."""
    if execution.is_live and execution.status in TERMINAL:
        with suppress(DivebookError, TimeoutError):  # the line shows the status in any case
            execution.driving().result(MOMENT_SECONDS)
    return execution.is_live


def _line(execution: Driven, below: int) -> str:
    others = "" if not below else f" (and {below} executions that it has started)"
    left = f"divebook: the process ends while execution {execution.id} is {execution.status}{others}"
    if not execution.store.keeps:
        return f"{left}; its log was in memory and is lost. wait() for it, or give it a store on disk"
    way_on = in_shell("resume", [execution.id], ["--store", execution.store.location])
    return f"{left}. To go on: {way_on}; wait() for it to let it end"


EXIT_NOTICE = ExitNotice()
"""The exit notice of this process."""


# --- membership in queues and workers --------------------------------------------------------------------------------
#
# Children and successors inherit the queue and worker of their parent. The workers of that queue therefore find them
# wherever the first worker ends, and continue them when an answer arrives. Interruptions are counted for each execution
# (`tests/queues/test_families.py`).


class WorkerRef(Protocol):
    """The part of a worker that its executions use."""

    @property
    def is_running(self) -> bool:
        """True if the worker takes executions."""


class Belonging(ABC):
    """Part of a driver that holds its queue and worker membership."""

    def __init__(self) -> None:
        self.worker: WorkerRef | None = None
        """Worker of this process that drives the execution, or drove it last."""
        self.comes_from: ExecutionState | None = None
        """State of the parent or predecessor while the execution is pending."""
        self._paused: tuple[str, bool] | None = None  # reason, and whether to return it to its queue

    @property
    @abstractmethod
    def state(self) -> ExecutionState:
        """The fold of the log so far."""

    def serve_with(self, other: Belonging) -> None:
        """Take over the worker of another execution, if it has one."""
        self.worker = other.worker or self.worker

    def come_from(self, other: Belonging) -> None:
        """Inherit queue and worker of the parent or predecessor; for a pending execution.

        If that one is being returned to its queue, this execution starts nothing.
        """
        self.serve_with(other)
        self.comes_from = other.state
        if other._paused is not None and other._paused[1]:
            self._paused = self._paused or other._paused


# --- log and state of one execution, loaded when first used ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """Definition and state read from the log of an execution."""

    workflow: Workflow
    state: ExecutionState
    damage: StoreError | None = None
    """Error in the first event after the readable ones, or None if the whole log can be read."""


class KnownExecution(Belonging):
    """Lazily loaded definition and state of one execution. The log is read once (tests/execution/test_looked_up.py).

    Parameters
    ----------
    past
        The loaded log, or a function that loads it.
    """

    def __init__(self, execution_id: str, past: LoadedLog | Callable[[], LoadedLog]) -> None:
        super().__init__()
        self.id = execution_id
        self._past = past
        self._latest: ExecutionState | None = None
        """The newest state, or None while it equals the state of the loaded log."""

    @property
    def is_read(self) -> bool:
        """True if the log has been read."""
        return isinstance(self._past, LoadedLog)

    def read(self) -> LoadedLog:
        """Return the log as it was when it was first read."""
        past = self._past
        if not isinstance(past, LoadedLog):
            self._past = past = past()
        return past

    @property
    def workflow(self) -> Workflow:
        """The definition with which the execution was started."""
        return self.read().workflow

    @property
    def damage(self) -> StoreError | None:
        """Error in the first event after the readable ones, or None if the whole log can be read."""
        return self.read().damage

    @property
    def _state(self) -> ExecutionState:
        return self.read().state if self._latest is None else self._latest

    @_state.setter
    def _state(self, state: ExecutionState) -> None:
        self._latest = state


# --- dependencies ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriverDependencies:
    """Dependencies that the environment passes to every driver."""

    services: Services
    clock: Clock
    chance: Chance
    code_of: Callable[[Workflow], dict[str, str]]
    """Return the current digests of the functions that a workflow may call."""
    stop_children: Callable[[Any], Awaitable[None]]
    """Awaited with a driver before its execution is rolled back: the executions it started end first."""
    came_to_rest: Callable[[Any], Awaitable[None]]
    """Awaited with a driver when its execution has ended or is parked, and this process no longer drives it."""


class _Standstill:
    """Future of one drive of an execution, for callers that wait until nothing more happens."""

    def __init__(self) -> None:
        self.future: Future[None] = Future()
        """Done when the execution has ended or is parked, and while it is blocked. Replaced when it
        becomes unblocked."""


class CancelledMeanwhileError(ExecutionError):
    """Another thread of this process cancelled the execution between the acquisition of its lease and its start."""


class Driver(KnownExecution):
    """Driver of one execution, which may be pending, running, parked or ended."""

    def __init__(
        self, execution_id: str, inputs: Mapping[str, Any], store: EventStore, past: LoadedLog | Callable[[], LoadedLog]
    ) -> None:
        super().__init__(execution_id, past)
        self.store = store
        shared().learn(inputs)  # before any input is shown, printed or raised in this process
        self.opening: catalog.ExecutionStarted | None = None  # the first event of its log, while it is pending
        self.durability: Durability | None = None  # None: the default of the store
        self._is_stored = True
        self._written = 0
        self._journal: Journal | None = None
        self._runner: Runner | None = None
        self.standing = ParkedRun(self)
        self._desk: StoreSession | None = None
        self._future: Future[None] | None = None
        self._standstill = _Standstill()
        self._task: asyncio.Task[None] | None = None
        self._token: int | None = None  # of the last lease under which this process drove it
        self._handover = threading.Lock()
        self._is_driving = False
        self._is_asked = False
        """True if it must check its inbox before it is parked."""
        self._process = os.getpid()
        self._cancel_reason: str | None = None
        self.may_have_children = False
        """True if it may have started other executions. False only for one that started here and has no children."""

    # --- properties --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ExecutionState:
        """The fold of the log so far, as an immutable snapshot."""
        journal = self._journal
        return journal.state if journal is not None else self._state

    @property
    def status(self) -> str:
        """Status: pending, running, waiting ..."""
        return self.state.status

    @property
    def started_by(self) -> str | None:
        """Id of the execution that started it and waits for its end."""
        opening = self.opening
        if opening is None:
            return self.state.parent
        return opening.parent if opening.came_from == catalog.CHILD else None

    @property
    def is_live(self) -> bool:
        """True if this process drives the execution now."""
        return self._future is not None and not self.was_forked and not self._future.done()

    @property
    def is_driving(self) -> bool:
        """True if this process still drives it, or checks whether it must continue."""
        return self._is_driving

    @property
    def was_driven(self) -> bool:
        """True if this process drives the execution or has driven it."""
        return self._future is not None and not self.was_forked

    @property
    def was_forked(self) -> bool:
        """True if this is a copy in a forked process, where the execution cannot continue."""
        return self._process != os.getpid()

    @property
    def held_up(self) -> str | None:
        """Why the store cannot be written to at present, or None if it can."""
        return None if (standstill := getattr(self._journal, "held_up", None)) is None else str(standstill)

    @property
    def written(self) -> int:
        """Sequence number of the last event that is known to be in the store."""
        journal = self._journal
        if journal is not None:
            return journal.written
        return self._state.last_sequence if self._is_stored else self._written

    @property
    def interrupts(self) -> list[Question]:
        """Open questions, oldest first. A question with an unread answer in the inbox is not open."""
        return [asked for asked in self.questions.values() if asked.is_open]

    @property
    def questions(self) -> dict[str, Question]:
        """All questions by id, oldest first. Answers in the inbox count even before the log has them."""
        state = self.state
        is_open = any(asked.is_open for asked in state.interrupts.values()) and not self.store.closed
        return questions_of(state, self.store.inbox(self.id, state.taken) if is_open else ())

    def driving(self) -> Future[None]:
        """Return a future that is done when the execution has ended or is parked in this process.

        Raises
        ------
        ExecutionError
            This process does not drive it, and it has not ended.
        """
        if self._future is None or self.was_forked:
            if not self.state.is_over:
                advice = "start it first" if self.opening is not None else "resume it, or answer its question, first"
                if self._future is not None:
                    advice = f"wait for it in process {self._process}, from which this one was forked"
                raise ExecutionError(f"execution {self.id} is not running in this process; {advice}")
            self._future, self._process = Future(), os.getpid()
            self._future.set_result(None)
        return self._future

    def standstill(self) -> Future[None]:
        """Return a future that is done when the execution has ended, is parked, or is blocked while it is driven.

        See `divebook.runtime.runner.Runner.is_blocked`.
        """
        driving = self.driving()
        return driving if driving.done() else self._standstill.future

    @property
    def is_blocked(self) -> bool:
        """True if this process drives it, and only the answer to the question of an open call lets it continue."""
        return self.is_live and self._standstill.future.done()

    def refresh(self) -> Driver:
        """Read new events if another process has written to the log."""
        if self.is_read and not self.is_live:
            self._state = self.newest()
            self._is_stored = True
        return self

    def newest(self) -> ExecutionState:
        """Return the state up to the last event in the store."""
        known = self._state if self._is_stored else ExecutionState(self.id)
        if self._is_stored and not known.last_sequence:
            return known
        later = self.store.read_records(self.id, known.last_sequence)
        return fold_records(self.id, later, known) if later else known

    def under(self, lease: Lease) -> ExecutionState:
        """Return the state under a new lease, with which no other process can write.

        If the lease directly follows the last one of this process, no one else has driven the execution and nothing is
        read.
        """
        if not self._is_stored or self._token is None or lease.token != self._token + 1:
            self._state = self.newest()
            self._is_stored = True
        return self._state

    def require_log(self) -> None:
        """Raise the error that permanently prevents writing events, if there is one."""
        if self._journal is not None and self._journal.error is not None:
            raise self._journal.error

    async def durable(self) -> None:
        """Wait until everything recorded so far is durable."""
        if self._journal is not None:
            await self._journal.durable()

    @contextmanager
    def handover(self) -> Iterator[None]:
        """Lock out other threads that begin to drive this execution or take its lease by force.

        Without the lock, a worker could begin to drive the execution after `cancel` has found that this process does
        not drive it, and before `cancel` takes the lease (tests/execution/cancelled_trees.py, seed 422). Code on the
        engine's event loop does not need the lock, and must not wait for a thread that waits for the loop.
        """
        if ENGINE.is_current():
            yield
        else:
            with self._handover:
                yield

    # --- driving; called on the engine's event loop ------------------------------------------------------------------

    def begin(self, given: DriverDependencies, begun: Future[None] | None = None, *, at_once: bool = False) -> None:
        """Start to drive a pending execution. `begun` is done once the store has its first events.

        The first events are written together with its first call, or `at_once`
        (test_what_an_execution_begins_with_is_written_with_its_first_call_and_its_end_with_its_last).
        """
        opening = self.opening
        if opening is None or self.was_driven:
            raise ExecutionError(f"execution {self.id} is {self.status}; only a pending one can be started")
        held = Lease(self.id, FIRST_TOKEN, Owner.current(), expires_at=0)
        journal = self._open_journal(given, None)
        journal.first_written = begun
        first = decide_opening(opening, self.comes_from)
        if at_once or opening.key is not None:  # with a key, nothing runs before the store has it
            journal.record_all(first)
        driving = self._set_going(self._run(given, journal, held, () if journal.recorded else first), held)
        if begun is not None:
            driving.add_done_callback(functools.partial(failed_with, begun))

    def go_on(
        self,
        given: DriverDependencies,
        resumed: catalog.ExecutionResumed,
        lease: Lease,
        state: ExecutionState,
        *,
        anew: bool,
    ) -> None:
        """Continue to drive the execution from the state that was read under the lease. `anew`: replay all its code.

        Raises
        ------
        CancelledMeanwhileError
            The execution was cancelled in this process after the lease was acquired.
        """
        if self._token is not None and lease.token < self._token:
            raise CancelledMeanwhileError(f"execution {self.id} was cancelled while it was about to continue")
        self._state = state
        self._is_stored = True
        self.may_have_children = True
        if anew:
            self.standing.let_go()
        journal, first = self._take_up(given, lease, resumed)
        if is_counted := resumed.recovery is not None:  # before any code runs: it may kill this process again
            journal.record_all(first)
        self._set_going(self._run(given, journal, lease, () if is_counted else first), lease)

    def _take_up(
        self, given: DriverDependencies, lease: Lease, told: catalog.ExecutionResumed
    ) -> tuple[Journal, Sequence[Fact]]:
        """Return the journal and the first facts to record.

        Reuse the parked code if it can continue, else open a log to replay.
        """
        code = given.code_of(self.workflow)
        first = (Fact(told if code == dict(self._state.code) else replace(told, code=code)),)
        self._runner = self.standing.take(self._state, code, given)
        if self._runner is None:
            return self._open_journal(given, lease), first
        self._journal = self._runner.journal
        self._journal.go_on(self._present_desk().commit, lease.token)
        return self._journal, first

    def begin_cancellation(
        self, given: DriverDependencies, why: str, lease: Lease, state: ExecutionState, *, undoes: bool
    ) -> None:
        """Record the cancellation of an execution that this process does not drive; `state` as for `go_on`.

        With `undoes`, its rollback runs here, if it has any; otherwise the process that resumes it runs it.
        """
        self._state = state
        self._is_stored = True
        self.may_have_children = True
        self.standing.let_go()
        work = self._record_cancel(given, self._open_journal(given, lease), why, lease, undoes=undoes)
        self._set_going(work, lease)

    def cancel_pending(self, given: DriverDependencies, why: str) -> bool:
        """Record the cancellation of a pending execution, of which no step runs.

        Return False if it has started meanwhile. Its start key stays free for another execution.
        """
        if self.opening is None or self.was_driven:
            return False
        held = Lease(self.id, FIRST_TOKEN, Owner.current(), expires_at=0)
        journal = self._open_journal(given, None)
        journal.record_all(decide_opening(replace(self.opening, key=None)))
        self._set_going(self._record_cancel(given, journal, why, held, undoes=False), held)
        return True

    def _set_going(self, work: Coroutine[Any, Any, None], held: Lease) -> Future[None]:
        DRIVEN_LEASES.drive(self.store, held)  # no await from here on: code that finds the lease must find it driven
        self._token, self._task = held.token, ENGINE.keep(work)
        standstill = self._standstill = _Standstill()
        self._future, self._process, self._is_driving = ENGINE.promise_of(self._task), os.getpid(), True
        self._future.add_done_callback(lambda done: passed_on(standstill.future, done))
        EXIT_NOTICE.mind(self)
        return self._future

    def cancel(self, reason: str) -> bool:
        """Cancel the execution, unless it is being rolled back. Return False if this process no longer drives it."""
        if self._is_driving and not self.was_forked and self.state.rolling_back is None:
            self._cancel_reason = self._cancel_reason or reason
            self._is_asked = True
            self._pass_on()
        return self._is_driving

    def pause(self, reason: str, *, gives_back: bool = False) -> bool:
        """Start no further operations. Return False if this process no longer drives the execution."""
        if self._is_driving:
            self._paused = self._paused or (reason, gives_back)
            self._pass_on()
        return self._is_driving

    def leave(self) -> None:
        """Stop at once, as if the process had ended. The execution can be resumed immediately."""
        if self._is_driving and self._task is not None:
            if self._runner is not None:
                self._runner.break_off()
            self._task.cancel()

    def look_again(self) -> bool:
        """Request another check of the inbox.

        Return False if this process has stopped checking it. Call on the engine's loop.
        """
        self._is_asked = True
        return self._is_driving

    def _note_blocked(self) -> None:
        """Complete or renew the standstill future when the execution becomes blocked or unblocked.

        Call on the engine's loop.
        """
        runner = self._runner
        if runner is not None and runner.is_blocked:
            if not self._standstill.future.done():
                ENGINE.keep(self._stand_still(runner))
        elif self._standstill.future.done() and self.is_live:
            self._standstill.future = Future()

    async def _stand_still(self, runner: Runner) -> None:
        """Announce that the execution is blocked, once its question is in the store, where other processes find it."""
        with suppress(StoreError):  # an error of the journal ends the execution elsewhere
            await self.durable()
            if runner is self._runner and runner.is_blocked and not self._standstill.future.done():
                self._standstill.future.set_result(None)

    def _pass_on(self) -> None:
        """Pass a requested cancellation or pause to the runner. Between two runners it waits for the next one."""
        if self._runner is not None:
            self._runner.blocked = self._note_blocked
        if self._runner is not None and self._cancel_reason is not None:
            self._runner.cancel(self._cancel_reason)
        elif self._runner is not None and self._paused is not None:
            self._runner.pause(self._paused[0], gives_back=self._paused[1])

    async def _run(self, given: DriverDependencies, journal: Journal, held: Lease, first: Sequence[Fact] = ()) -> None:
        """Drive the execution until it has ended or is parked.

        Continue if a message arrives while it is being parked.
        """
        STRAND.set("")  # another execution may have started this one inside one of its calls
        CURRENT.set(None)
        with engine_code():
            try:
                await self._drive_once(given, journal, held, first)
                while (again := await self._taken_up_again()) is not None:
                    journal, first = self._take_up(given, again, catalog.ExecutionResumed(self._state.status))
                    await self._drive_once(given, journal, again, first)
            finally:
                self._rest()
            await given.came_to_rest(self)

    def _rest(self) -> None:
        self._is_driving = False
        self._cancel_reason = None
        self._paused = None
        self._desk = None

    async def _drive_once(
        self, given: DriverDependencies, journal: Journal, held: Lease, first: Sequence[Fact]
    ) -> None:
        desk = self._present_desk()
        desk.keeper.keep(held)
        try:
            beyond = None if journal.state.tools is None else await given.services.beyond(journal.state, desk.calls)
            runner = self._runner = self._runner or self.standing.begin(self.workflow, journal, given, beyond)
            self._pass_on()
            await self.standing.gone()
            if not first:
                await journal.durable()  # test_nothing_runs_of_an_execution_whose_key_another_one_has
            if journal.state.rolling_back is not None:
                await given.stop_children(self)
            desk.mailroom.admit(self.id, runner)
            await runner.run(functools.partial(journal.record_all, first))
            while journal.state.rolling_back is not None and journal.state.status == catalog.RUNNING:
                await runner.leave_workspaces()
                runner = await self._roll_back(given, journal, desk, beyond)
                await runner.run()
        finally:
            desk.mailroom.dismiss(self.id)
            try:
                with suppress(StoreError):  # an error of the journal ends the execution here
                    await journal.durable()
                if self._runner is not None:
                    await self._runner.leave_workspaces()
            finally:
                self._settle(journal)
                await self._give_back(desk, held)

    async def _roll_back(
        self, given: DriverDependencies, journal: Journal, desk: StoreSession, beyond: MissPolicy | None
    ) -> Runner:
        """Return a new runner for the rollback, after the child executions have been stopped."""
        await given.stop_children(self)
        self._cancel_reason = None
        journal.is_left = False
        runner = self._runner = self.standing.begin(self.workflow, journal, given, beyond)
        self._pass_on()
        desk.mailroom.admit(self.id, runner)
        return runner

    def _settle(self, journal: Journal) -> None:
        """Keep the last state after the last write. If the log could not be written, it may differ from the store."""
        self._state = journal.state
        self._is_stored = journal.error is None
        self._written = journal.written
        self._journal = None
        runner = self._runner
        self._runner = None
        if runner is not None:
            self.standing.keep(runner, is_stored=self._is_stored)

    async def _give_back(self, desk: StoreSession, held: Lease) -> None:
        await desk.keeper.give_back(held, is_gone=self._is_stored and self._state.is_over)

    async def _taken_up_again(self) -> Lease | None:
        """Take the lease again if a message arrived after the last check.

        Nothing is awaited between the last check and the end. A sender that finds the execution driven can therefore
        rely on one more check (test_nothing_that_comes_at_the_end_is_forgotten).
        """
        lease: Lease | None = None
        self._is_asked = True
        while self._is_asked and lease is None:
            self._is_asked = False
            lease = await self._lease_for_news()
        return lease

    async def _lease_for_news(self) -> Lease | None:
        desk = self._present_desk()
        if not await self._has_come(desk.calls):
            return None
        try:
            lease = await desk.calls.patiently(lambda: DRIVEN_LEASES.take(self.store, self.id))
        except LeaseHeldError:  # the sender drives it
            return None
        DRIVEN_LEASES.drive(self.store, lease)
        desk.keeper.keep(lease)
        is_wanted = False
        try:
            await desk.calls.patiently(lambda: self.under(lease))
            self._token = lease.token
            is_wanted = await self._has_come(desk.calls)
        finally:
            if not is_wanted:
                await desk.keeper.give_back(lease)
                self._is_asked = True  # other senders found the lease held
        return lease if is_wanted else None

    async def _has_come(self, calls: StoreCalls) -> bool:
        state = self._state
        if state.is_over or not self._is_stored:
            return False
        if self._cancel_reason is not None or state.paused:
            return self._cancel_reason is not None
        return bool(facts_of(state, await calls.patiently(lambda: self.store.inbox(self.id, state.taken))))

    async def _record_cancel(
        self, given: DriverDependencies, journal: Journal, why: str, held: Lease, *, undoes: bool
    ) -> None:
        goes_on = False
        self._present_desk().keeper.keep(held)
        try:
            await self.standing.gone()
            journal.record_all(decide_leaving(journal.state, why).facts)
            journal.record_all(decide_cancellation(journal.state, why, is_here=undoes).facts)
            await journal.durable()
            goes_on = undoes and not journal.state.is_over
        finally:
            if not goes_on:
                self._settle(journal)
                await self._give_back(self._present_desk(), held)
                self._rest()
        await (self._run(given, journal, held) if goes_on else given.came_to_rest(self))

    def _open_journal(self, given: DriverDependencies, lease: Lease | None) -> Journal:
        token = None if lease is None else lease.token
        commit = self._present_desk().commit
        ids = Ids(given.clock, given.chance)
        self._journal = Journal(self._state, commit, given.clock, ids, token=token, durability=self.durability)
        return self._journal

    def _present_desk(self) -> StoreSession:
        self._desk = self._desk or ENGINE.desk(self.store)
        return self._desk


# --- registry of executions ------------------------------------------------------------------------------------------


_log = logger(__name__)


class ExecutionRegistry:
    """Registry of the executions of one store. Each execution is one object as long as it is referenced."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self._known: weakref.WeakValueDictionary[str, Driver] = weakref.WeakValueDictionary()
        """Driven executions, which the engine keeps alive, and executions that other code still references."""
        self._entering = threading.Lock()
        """Lock around each lookup that enters a driver: `WeakValueDictionary.setdefault` is not atomic."""

    def enter(self, driver: Driver) -> None:
        """Register a driver, so that later lookups return this object."""
        with self._entering:
            self._known[driver.id] = driver

    def _entered(self, driver: Driver) -> Driver:
        """Return the registered driver of an execution. Register this one if there is none.

        Two threads that load the same execution at the same time get the same object. With two objects, one would drive
        the execution while the other reported that nothing drives it
        (test_a_run_that_a_worker_claims_at_once_has_one_driver).
        """
        with self._entering:
            known = self._known.get(driver.id)
            if known is not None:
                return known
            self._known[driver.id] = driver
            return driver

    def withdraw(self, driver: Driver) -> None:
        """Forget a pending driver that is about to be stored, so that later lookups load the execution."""
        with self._entering:
            if self._known.get(driver.id) is driver:
                del self._known[driver.id]

    def find(self, execution_id: str) -> Driver:
        """Return an execution in its present state. A unique prefix of its id is enough."""
        driver = self.look_up(execution_id)
        driver.read()
        return driver

    def present(self, execution_id: str) -> Driver | None:
        """Return a registered execution by its full id, or None."""
        return self._known.get(execution_id)

    def look_up(self, execution_id: str) -> Driver:
        """Return an execution like `find`, but read only its first event if it is not registered yet."""
        ENGINE.refuse_waiting(self.store)
        execution_id = id_of(execution_id)
        known = self._known.get(execution_id)
        if known is None:
            execution_id = self.store.resolve(execution_id)
            known = self._known.get(execution_id)
        if known is None:
            return self._entered(self.load(execution_id))
        try:
            return known.refresh()
        except (CorruptStoreError, NewerStoreError) as damage:
            past = self._sound_part(execution_id, damage)
            return Driver(execution_id, past.state.inputs, self.store, past)

    def load(self, execution_id: str) -> Driver:
        """Return a stored execution, whose log is read when first used."""
        opening = recorded_opening(execution_id, self.store)
        driver = Driver(execution_id, opening.inputs, self.store, lambda: self._past(execution_id, opening))
        driver.durability = self.store.record(execution_id).durability
        return driver

    def _past(self, execution_id: str, opening: catalog.ExecutionStarted) -> LoadedLog:
        ENGINE.refuse_waiting(self.store)
        try:
            workflow = recorded_workflow(execution_id, self.store, opening)
            return LoadedLog(workflow, folded(self.store, execution_id))
        except (CorruptStoreError, NewerStoreError) as damage:
            return self._sound_part(execution_id, damage)

    def _sound_part(self, execution_id: str, damage: StoreError) -> LoadedLog:
        """Return the definition and state in the readable beginning of a damaged log."""
        events, found = self.store.read_sound(execution_id)
        damage = found or damage
        state = ExecutionState(execution_id)
        for number, event in enumerate(events):
            try:
                state = fold(execution_id, (event,), state)
            except CorruptStoreError as error:
                damage = error
                events = events[:number]
                break
        if not events:
            raise damage
        return LoadedLog(_readable_workflow(execution_id, events), state, damage)

    def read_all(self) -> None:
        """Read executions that were looked up but not read, before the store is closed.

        Unreadable ones raise when used.
        """
        for driver in list(self._known.values()):
            with suppress(StoreError):
                driver.read()

    def known(self) -> list[Driver]:
        """Return the registered executions."""
        return list(self._known.values())

    def live(self) -> list[Driver]:
        """Return the executions that this process drives now."""
        return [driver for driver in self.known() if driver.is_live]

    def open_questions(self, execution_ids: Iterable[str]) -> Iterable[tuple[str, Question]]:
        """Yield the open questions of executions, without their definitions. Log and skip damaged executions."""
        ENGINE.refuse_waiting(self.store)
        for execution_id in execution_ids:
            try:
                asked = self._asked_by(execution_id)
            except StoreError as error:
                _log.warning("execution %s is left out: %s", execution_id, error)
            else:
                yield from ((execution_id, question) for question in asked if question.is_open)

    def sound_states(self, execution_ids: Iterable[str]) -> Iterable[ExecutionState]:
        """Yield the states of executions. Log and skip damaged executions."""
        for execution_id in execution_ids:
            try:
                yield self.find(execution_id).state
            except StoreError as error:
                _log.warning("execution %s is left out: %s", execution_id, error)

    def _asked_by(self, execution_id: str) -> Iterable[Question]:
        known = self._known.get(execution_id)
        if known is not None and known.damage is None:
            return known.refresh().questions.values()
        state = folded(self.store, execution_id)
        shared().learn(state.inputs)  # before any input is shown
        return questions_of(state, self.store.inbox(execution_id, state.taken)).values()


def folded(store: EventStore, execution_id: str) -> ExecutionState:
    """Return the state of an execution, folded from its newest checkpoint."""
    state = _kept(store, execution_id)
    later = store.read_records(execution_id, after=0 if state is None else state.last_sequence)
    return fold_records(execution_id, later, state)


def _kept(store: EventStore, execution_id: str) -> ExecutionState | None:
    """Return the state of the newest checkpoint, or None if none matches the log."""
    checkpoint = store.checkpoint(execution_id)
    if checkpoint is None:
        return None
    sequence, raw = checkpoint
    state = load_state(raw, functools.partial(store.facts, execution_id))
    return (
        state if state is not None and (state.execution_id, state.last_sequence) == (execution_id, sequence) else None
    )


def _readable_workflow(execution_id: str, events: Sequence[Event]) -> Workflow:
    """Return the workflow of a damaged log. If the definition itself is damaged, use the steps that were entered."""
    opening = opening_in(execution_id, events)
    try:
        return workflow_in(execution_id, opening, events)
    except CorruptStoreError:
        return entered_workflow(opening.workflow_name, events)
