"""Driver of one execution: the object that has its definition and state, and drives its code on the engine's event
loop.

`divebook.runtime.manager` finds and creates drivers, and decides which operations are allowed; a driver carries out the
operation. Each change that starts or stops an execution happens in one step on the engine's thread. A Ctrl-C, which
Python raises in the main thread, therefore comes before or after it
(test_interrupts_at_any_moment_leave_nothing_stuck).

A drive has these steps. A process that dies between two of them leaves a state from which another one continues:

1. The caller acquires the lease in the store. After the death of the process the lease expires.
2. `Driver.state_under` reads the events that the lease holder does not know. Nothing is written yet.
3. `Driver.begin` or `Driver.continue_from` opens the journal, and the runner runs the paths
   (`divebook.runtime.runner`). After a death the log has everything up to the last commit. `continue_from` replays it:
   calls with a recorded result are not made again (`divebook.runtime.operations`).
4. When no path can continue, the journal writes the last events, and the driver releases the lease. If the process dies
   before the release, the log is complete and only the lease must expire.
5. The driver checks the inbox once more. If a message arrived in the meantime, it takes the lease again (step 2).
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from divebook.definitions.definition import Workflow
from divebook.definitions.functions import CURRENT
from divebook.engine.decide import decide_cancellation, decide_leaving, decide_opening, decide_resumption
from divebook.engine.evolve import fold, fold_records
from divebook.engine.inbox import facts_of, questions_of
from divebook.engine.instructions import Fact
from divebook.engine.lifecycle import INTERRUPTED, TERMINAL, shown_status
from divebook.engine.state import ExecutionState
from divebook.errors import (
    UNREADABLE,
    CorruptStoreError,
    DecryptionError,
    DivebookError,
    ExecutionError,
    LeaseHeldError,
    NewerStoreError,
    StoreError,
)
from divebook.events import Event, catalog
from divebook.interrupts import interruptible_result
from divebook.questions import Question
from divebook.report.hints import advised
from divebook.runtime.clock import Chance, Clock, Ids
from divebook.runtime.commit import StoreCalls
from divebook.runtime.concurrency import STRAND
from divebook.runtime.forks import (
    entered_workflow,
    folded,
    opening_in,
    recorded_opening,
    recorded_workflow,
    workflow_in,
)
from divebook.runtime.journal import Journal
from divebook.runtime.leases import DRIVEN_LEASES
from divebook.runtime.loop import ENGINE, STOP_SECONDS, LeftError, StoreSession, copy_error, copy_outcome
from divebook.runtime.operations import MissPolicy
from divebook.runtime.runner import ParkedRun, Runner
from divebook.runtime.step import Services
from divebook.runtime.waiting import engine_code
from divebook.stores.append import FIRST_TOKEN, Durability
from divebook.stores.base import EventStore
from divebook.stores.leases import Lease, Owner
from divebook.text.arguments import id_of
from divebook.text.format import in_shell
from divebook.text.redaction import logger, shared

# --- membership in queues and workers --------------------------------------------------------------------------------
#
# Children and successors inherit the queue and worker of their parent. The workers of that queue therefore find them
# wherever the first worker ends, and continue them when an answer arrives. Interruptions are counted for each execution
# (`tests/queues/test_families.py`).


class WorkerRef(Protocol):
    """Protocol of a worker (a process that takes executions from queues), as seen by the executions that it drives."""

    @property
    def is_running(self) -> bool:
        """True if the worker takes further executions from its queues."""


# --- log and state of one execution -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """Workflow definition and state of an execution, read from its log."""

    workflow: Workflow
    state: ExecutionState
    damage: StoreError | None = None
    """Error in the first unreadable event, or None if the whole log can be read."""


# --- dependencies ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriverDependencies:
    """Objects and functions that the environment provides to every driver."""

    services: Services
    clock: Clock
    chance: Chance
    code_of: Callable[[Workflow], dict[str, str]]
    """Return the current digests of the functions that a workflow may call."""
    cancel_children: Callable[[Any], Awaitable[None]]
    """Awaited with a driver before its execution is rolled back, so that its child executions end first."""
    on_stopped: Callable[[Any], Awaitable[None]]
    """Awaited with a driver when its execution has ended or is parked, and this process no longer drives it."""


class _Standstill:
    """State of one drive for callers that wait until the execution ends, is parked, or is blocked by a question."""

    future: Future[None] | None = None
    """Future that `Driver.standstill` has returned; None if no caller has waited, or the execution has continued."""
    is_blocked = False
    """True if only the answer to a question, which is in the store, lets the execution continue."""


class CancelledMeanwhileError(ExecutionError):
    """Error: another thread of this process cancelled the execution after its lease was acquired and before it was
    driven.
    """


class Driver:
    """Object that holds the state of one execution in this process, and that starts, resumes, cancels and pauses the
    execution.

    The execution may be pending, running, parked or ended. The definition and the state are loaded when they are first
    used, once (tests/runtime/test_looked_up.py).

    Parameters
    ----------
    inputs
        Inputs of the execution, which may contain secrets that must not be shown.
    log
        The loaded log, or a function that loads it.
    clock
        Clock of the environment, by which questions expire.
    """

    def __init__(
        self,
        execution_id: str,
        inputs: Mapping[str, Any],
        store: EventStore,
        log: LoadedLog | Callable[[], LoadedLog],
        clock: Clock,
    ) -> None:
        self.id = execution_id
        self.store = store
        self._clock = clock
        # May be a function: a list of many runs creates many drivers, and most of their logs are never read.
        self._log = log
        self._latest: ExecutionState | None = None
        """The newest state, or None while it equals the state of the loaded log."""
        # Held only to compare and set the state, never while the store is called.
        self._state_lock = threading.Lock()
        self.worker: WorkerRef | None = None
        """Worker of this process that drives the execution, or drove it last."""
        self.predecessor: ExecutionState | None = None
        """State of the parent or predecessor while the execution is pending."""
        self._paused: tuple[str, bool] | None = None
        """Reason of a requested pause, and whether it returns the execution to its queue."""
        self._late_pause: tuple[str, bool] | None = None
        """The pause for which the driver has begun another round, since the last runner had stopped."""
        shared().learn(inputs)  # before any input is shown, printed or raised in this process
        self.opening: catalog.ExecutionStarted | None = None  # the first event of its log, while it is pending
        self.durability: Durability | None = None  # None: the default of the store
        self._is_stored = True
        self._written = 0
        # Journal, runner and session exist only while this process drives the execution.
        self._journal: Journal | None = None
        self._runner: Runner | None = None
        self.parked_run = ParkedRun(self)
        self._session: StoreSession | None = None
        self._future: Future[None] | None = None
        self.first_commit: Future[None] | None = None
        """Done when the first events are in the store, with an error if they could not be stored. None if `Run.start`
        has waited for that, or later calls have."""
        self.drives = 0
        """Number of drives that this process has begun. A caller that waits for a drive notices a later one by it."""
        self.began_at = 0
        """Time in microseconds since 1970 at which the last drive of this process began."""
        self._standstill = _Standstill()
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False
        """True once the task of the present drive has run its first step."""
        self._leaves_when_it_begins = False
        """True if the drive was left before its first step, which then ends it."""
        # Time in microseconds since 1970 at which a person resumed the execution or its parent, if that began the
        # present drive. If the execution then fails because of a question that had expired by that time, the drive
        # resumes it once more, so that the question is asked again.
        self.resumed_at: int | None = None
        self._overdue_ids: frozenset[str] = frozenset()
        self._token: int | None = None  # of the last lease under which this process drove it
        # Held by a thread that decides whether this process drives the execution; see `handover`.
        self._handover = threading.Lock()
        # Stays True between two drives of one task, while `_future` shows whether the task has ended.
        self._is_driving = False
        self.has_missed_lease = False
        """True if a message arrived while the execution was parked, and another process held the lease then."""
        self._must_check_inbox = False
        """True if the driver must check the inbox of its execution before the execution is parked."""
        # Compared with the present process id, because a fork copies this object but not the engine's thread.
        self._process = os.getpid()
        self._cancel_reason: str | None = None
        self.may_have_children = False
        """True if the execution may have started other executions. False only if it started in this process and has no
        children.
        """

    # --- log and state -----------------------------------------------------------------------------------------------

    @property
    def is_read(self) -> bool:
        """True if the log of the execution has been read."""
        return isinstance(self._log, LoadedLog)

    def read(self) -> LoadedLog:
        """Return the workflow definition and the state of the execution as they were when its log was first read. Read
        the log if that has not happened yet.
        """
        log = self._log
        if not isinstance(log, LoadedLog):
            log = log()
            self._log = log
        return log

    @property
    def workflow(self) -> Workflow:
        """The workflow definition with which the execution was started."""
        return self.read().workflow

    @property
    def damage(self) -> StoreError | None:
        """Error in the first unreadable event of the log, or None if the whole log can be read."""
        return self.read().damage

    @property
    def _state(self) -> ExecutionState:
        return self.read().state if self._latest is None else self._latest

    @_state.setter
    def _state(self, state: ExecutionState) -> None:
        with self._state_lock:
            self._latest = state

    # --- queue and worker --------------------------------------------------------------------------------------------

    def adopt_worker(self, other: Driver) -> None:
        """Assign this execution to the worker that drives another execution. Do nothing if the other execution has no
        worker.
        """
        self.worker = other.worker or self.worker

    def inherit_queue(self, source: Driver) -> None:
        """Give this pending execution the queue and the worker of its parent or predecessor `source`.

        If the source is being returned to its queue, this execution starts nothing.
        """
        self.adopt_worker(source)
        self.predecessor = source.state
        # The worker that drives the source is stopping. It must not drive a new execution either.
        if source._paused is not None and source._paused[1]:
            self._paused = self._paused or source._paused

    # --- properties --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ExecutionState:
        """State of the execution: the fold of its log so far, as an immutable snapshot."""
        if self.first_commit is not None:  # its starter must not see it as pending
            self.wait_until_stored()
        journal = self._journal
        return journal.state if journal is not None else self._state

    @property
    def status(self) -> str:
        """Status of the execution: pending, running, waiting, completed ..."""
        return self.state.status

    @property
    def started_by(self) -> str | None:
        """Id of the parent execution that started this execution and waits for its end, or None."""
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
        """True if this process drives the execution, or still checks whether a message lets it continue."""
        return self._is_driving

    @property
    def can_record(self) -> bool:
        """False if an error keeps the present drive from writing to the log, for example the loss of its lease. The
        drive then reads no more messages, and ends soon.
        """
        # A drive that stops releases its journal first, and notes in `_is_stored` whether it could write the log.
        return self._is_stored if self._journal is None else self._journal.error is None

    @property
    def was_driven(self) -> bool:
        """True if this process drives the execution or has driven it."""
        return self._future is not None and not self.was_forked

    @property
    def is_about_to_begin(self) -> bool:
        """True after `expect_begin`, until the engine begins or cancels the execution."""
        # The future is done if the engine could not begin it, or `leave` has refused that.
        first_commit = self.first_commit  # read once: the starting thread removes it at any moment
        return first_commit is not None and self._task is None and not first_commit.done()

    @property
    def was_parked(self) -> bool:
        """True if this process has driven the execution, and its last drive has ended without an error."""
        future = self._future
        return self.was_driven and future is not None and future.done() and future.exception() is None

    @property
    def has_ended_here(self) -> bool:
        """True if the execution was started and has ended in this process, so that there is nothing to wait for."""
        return self.opening is not None and self.was_parked and self.state.is_over

    @property
    def was_forked(self) -> bool:
        """True if this object is a copy in a process that was forked (`os.fork`) from the one that created it. The
        execution cannot continue there.
        """
        return self._process != os.getpid()

    @property
    def held_up(self) -> str | None:
        """Reason why the store cannot be written to at present, as text; None if it can."""
        return None if (outage := getattr(self._journal, "held_up", None)) is None else str(outage)

    @property
    def written(self) -> int:
        """Sequence number of the last event that is certainly in the store."""
        journal = self._journal
        if journal is not None:
            return journal.written
        return self._state.last_sequence if self._is_stored else self._written

    @property
    def interrupts(self) -> list[Question]:
        """Open questions of the execution, oldest first. A question with an unread answer in the inbox is not open."""
        return [question for question in self.questions.values() if question.is_open]

    @property
    def questions(self) -> dict[str, Question]:
        """All questions of the execution by id, oldest first. An answer that is stored in the inbox counts even before
        the log has it.
        """
        state = self.state
        # The inbox is read only if an answer can matter: lists of runs use this property for every line.
        is_open = any(question.is_open for question in state.interrupts.values()) and not self.store.closed
        return questions_of(state, self.store.inbox(self.id, state.taken) if is_open else (), self._clock.now())

    def driving(self) -> Future[None]:
        """Return a future that is done when the execution has ended or is parked in this process.

        Raises
        ------
        ExecutionError
            This process does not drive it, and it has not ended.
        """
        if self._future is None or self.was_forked:
            if not self.state.is_over:
                raise ExecutionError(f"execution {self.id} is {self._standing_without_drive()}")
            # It has ended elsewhere, or before this process looked. Callers get a future that is done already.
            self._future = Future()
            self._process = os.getpid()
            self._future.set_result(None)
        return self._future

    def _standing_without_drive(self) -> str:
        """Return the status of an execution that this process does not drive, and the next step, for an error."""
        if self._future is not None:
            return (
                f"not running in this process; wait for it in process {self._process}, which this process was forked "
                "from"
            )
        if self.opening is not None:
            return "not running in this process; start it first"
        # Whoever waits for it has looked for another process that drives it before.
        status = shown_status(self.state.shown_status, is_driven=False)
        if status == INTERRUPTED:
            way_on = self.resume_advice()
            return f"interrupted: its process has ended, and no process continues it; to continue: {way_on}"
        way_on = self.resume_advice(" or answer its question" if self.interrupts else "")
        return f"{status}, and no process continues it; to continue: {way_on}"

    def resume_advice(self, more: str = "") -> str:
        """Return the command that resumes this stored execution, as the reader types it, followed by the text `more`.
        For an execution with a start key it also names the start that finds and resumes it in a program that runs
        again.
        """
        in_python = "run.resume()"
        command = advised(f"resume {self.id}", in_python)
        record = self.store.record(self.id)
        if record.key is None or command != in_python:
            return f"{command}{more}"
        start = f"environment.start({record.workflow_name!r}, ..., key={record.key!r}).resume().wait()"
        return f"{command}{more}. In a script that you run again, write {start}"

    def standstill(self) -> Future[None]:
        """Return a future that is done when the execution has ended or waits without being driven (is parked). It is
        also done while a driven execution can only continue with an answer.

        Blocked means that only the answer to a question of a running call lets the execution continue; see
        `divebook.runtime.runner.Runner.is_blocked`.
        """
        if (driving := self.driving()).done():
            return driving
        # Created for the first caller: the usual execution has ended before its starter waits for it.
        with self._state_lock:
            standstill = self._standstill
            if standstill.future is not None:
                return standstill.future
            future = standstill.future = Future()
            driving = self._future or driving  # another drive may have begun meanwhile
            if standstill.is_blocked:
                future.set_result(None)
        # Without the lock, because this calls the function at once if the drive has ended meanwhile.
        driving.add_done_callback(lambda done: copy_outcome(future, done))
        return future

    @property
    def is_blocked(self) -> bool:
        """True if this process drives the execution, and nothing can happen before a person answers a question that a
        running call has asked.
        """
        return self.is_live and self._standstill.is_blocked

    def wait_until_stored(self) -> None:
        """Wait until the first events of an execution that this process has started are in the store, where other
        calls find them. Return at once on the engine's own thread.
        """
        first_commit = self.first_commit
        if first_commit is None or self.was_forked or (ENGINE.is_current() and not first_commit.done()):
            return
        try:
            interruptible_result(first_commit)
        except DivebookError:
            # Kept, so that `ensure_stored` and the wait for the run raise the error afterwards, too
            # (test_a_store_that_refuses_the_start_raises_where_it_is_awaited).
            return
        self.first_commit = None

    def refresh(self) -> Driver:
        """Read the events that another process has appended to the log. Return this driver."""
        if self.is_read and not self.is_live:
            state = self.newest()
            with self._state_lock:
                # Another thread may have read or written later events during the call of the store
                # (test_a_slow_refresh_does_not_replace_a_newer_state). A state that is ahead of the store is replaced.
                if not self._is_stored or state.last_sequence >= self._state.last_sequence:
                    self._latest = state
                    self._is_stored = True
        return self

    def newest(self) -> ExecutionState:
        """Return the state of the execution up to the last event in the store."""
        # A state that is ahead of the store may contain events that were never written, so the log is folded from its
        # start.
        state = self._state if self._is_stored else ExecutionState(self.id)
        # A pending execution has no events to read.
        if self._is_stored and not state.last_sequence:
            return state
        later = self.store.read_records(self.id, state.last_sequence)
        return fold_records(self.id, later, state) if later else state

    def state_under(self, lease: Lease) -> ExecutionState:
        """Return the state of the execution after its lease was acquired. Under the lease no other process can write
        events, so the state stays the newest.

        If the lease directly follows the last one of this process, no one else has driven the execution and nothing is
        read.
        """
        # Tokens grow by one with each lease, so the next number proves that no other process had one in between.
        if not self._is_stored or self._token is None or lease.token != self._token + 1:
            self._state = self.newest()
            self._is_stored = True
            self.may_have_children = True  # another process may have started some
        return self._state

    def end_overtaken_drive(self, lease: Lease) -> None:
        """End the drive of this process under an earlier lease than `lease`, if there is one, and wait until it has
        ended. Call before `state_under`.

        Another process or environment took the earlier lease by force. The drive under it learns that with its next
        write only, and its code may wait for a long time before that. Until then its state is not that of the store.
        """
        # The journal is open until the drive has given its lease back.
        is_overtaken = self.is_live and self._journal is not None and self._token is not None
        # The engine's own thread cannot wait for its loop.
        if is_overtaken and self._token != lease.token and not ENGINE.is_current():
            self.leave_and_wait()

    def leave_and_wait(self) -> None:
        """Stop driving the execution as if this process had ended, and wait until it has stopped. Do nothing if this
        process does not drive it. Not for the engine's own thread.
        """
        if self.is_live:
            ENGINE.call(self.leave)
            wait((self.driving(),), STOP_SECONDS)

    def require_log(self) -> None:
        """Raise the error because of which no more events can be written to the log. Otherwise do nothing."""
        if self._journal is not None and self._journal.error is not None:
            raise self._journal.error

    async def durable(self) -> None:
        """Wait until all recorded events are durable in the store."""
        if self._journal is not None:
            await self._journal.durable()

    @contextmanager
    def handover(self) -> Iterator[None]:
        """Hold the lock of this driver inside the `with` block, after waiting for it. Meanwhile no other thread can
        begin to drive this execution, or take its lease by force.

        Without the lock, a worker could begin to drive the execution after `cancel` has found that this process does
        not drive it, and before `cancel` takes the lease (tests/runtime/cancelled_trees.py, seed 422). Code on the
        engine's event loop does not need the lock, and must not wait for a thread that waits for the loop.
        """
        if ENGINE.is_current():
            yield
        else:
            with self._handover:
                yield

    def require_pending(self, action: str = "started") -> None:
        """Raise ExecutionError unless the execution can be started or enqueued. Callable from any thread. `action` is
        the participle for the text of the error.

        An execution whose drive has ended before its first event was stored can be started again, for example after its
        environment was closed, or after the store has refused its start.
        """
        with self._state_lock:
            if self._future is not None and not self.was_forked and self._future.done() and self._is_unstored:
                self._future = self._task = self.first_commit = None
                self._is_stored = True  # nothing is stored, and nothing is ahead of that
        if self.opening is None or self.was_driven:
            raise self._not_pending_error(action)

    def _not_pending_error(self, action: str) -> ExecutionError:
        # The status stays "pending" until the first event is recorded.
        status = self.status
        standing = "was started already" if status == catalog.PENDING else f"is {status}"
        return ExecutionError(f"execution {self.id} {standing}; only a pending execution can be {action}")

    @property
    def _is_unstored(self) -> bool:
        return self.opening is not None and self._journal is None and not self._state.last_sequence

    def expect_begin(self) -> Future[None] | None:
        """Note that the engine is about to begin a pending execution, which counts as live from now on. Return the
        future of its drive, or None if it was started before. Callable from any thread.
        """
        with self._state_lock:
            if self.was_driven:
                return None
            self._process = os.getpid()
            first_commit = self.first_commit = Future()
            future = self._watch_drive(Future())
            # If the execution fails before its first commit, calls that wait for that commit get the error.
            future.add_done_callback(lambda end: copy_outcome(first_commit, end))
            return future

    # --- driving; called on the engine's event loop ------------------------------------------------------------------

    def begin(
        self, dependencies: DriverDependencies, first_commit: Future[None] | None = None, *, at_once: bool = False
    ) -> None:
        """Start to drive a pending execution. The future `first_commit` gets its result soon after the first events are
        in the store.

        The first events are written together with its first call, or `at_once`
        (test_what_an_execution_begins_with_is_written_with_its_first_call_and_its_end_with_its_last).
        """
        opening = self.opening
        if opening is None or (self.was_driven and not self.is_about_to_begin):
            raise self._not_pending_error("started")
        # This lease exists only in memory. The first batch writes it to the store, with the real time of its expiry.
        lease = Lease(self.id, FIRST_TOKEN, Owner.current(), expires_at=0)
        journal = self._open_journal(dependencies, None)
        stored = first_commit or self.first_commit
        if stored is not None:
            journal.on_first_commit = functools.partial(ENGINE.complete_later, stored)
        first = decide_opening(opening, self.predecessor)
        if at_once or opening.key is not None:  # with a key, nothing runs before the store has it
            journal.record_all(first)
        driving = self._start_task(self._run(dependencies, journal, lease, () if journal.recorded else first), lease)
        if first_commit is not None:
            # A coroutine may have started it at the same time (`expect_begin`). Calls that look at the state wait for
            # the future of that start, which must not stay open until the drive ends
            # (test_a_run_that_a_thread_and_a_coroutine_start_at_once_is_stored_for_both).
            if (expected := self.first_commit) is not None:
                first_commit.add_done_callback(lambda done: copy_outcome(expected, done))
            # An execution that fails before its first commit must not leave the caller of `start` waiting. After it,
            # `start` has succeeded, even if its caller has not been woken yet.
            driving.add_done_callback(
                lambda done: None if journal.on_first_commit is None else copy_error(first_commit, done)
            )

    def continue_from(
        self,
        dependencies: DriverDependencies,
        resumption: catalog.ExecutionResumed,
        lease: Lease,
        state: ExecutionState,
        *,
        must_replay: bool,
        resumed_at: int | None = None,
    ) -> None:
        """Resume the execution from `state`, which was read under the lease. With `must_replay`, its code is replayed
        from the log, even if its waiting code is still in memory (parked).

        `resumed_at` is the time at which a person resumed it or its parent. If it fails because a question had
        expired by then, it is resumed once more, so that the question is asked again.

        Raises
        ------
        CancelledMeanwhileError
            The execution was cancelled in this process after the lease was acquired.
        """
        self._require_newest(lease, "continue")
        self._state = state
        self._is_stored = True
        # Children that another process has started are in the store, but not in the memory of this one. Between two
        # leases in a row, no other process had one.
        if self._token is None or lease.token != self._token + 1:
            self.may_have_children = True
        if must_replay:
            self.parked_run.unwind()
        journal, first = self._reopen_log(dependencies, lease, resumption)
        # Other resumptions are recorded by the runner, together with the first work, and cost no commit of their own.
        if is_counted := resumption.recovery is not None:  # before any code runs: it may kill this process again
            journal.record_all(first)
        self._start_task(self._run(dependencies, journal, lease, () if is_counted else first), lease)
        self.resumed_at = resumed_at
        self._overdue_ids = frozenset()
        if resumed_at is not None and state.status == catalog.WAITING:
            self._overdue_ids = state.overdue_ids(resumed_at)

    def _reopen_log(
        self, dependencies: DriverDependencies, lease: Lease, resumption: catalog.ExecutionResumed
    ) -> tuple[Journal, Sequence[Fact]]:
        """Prepare the journal (the writer of the log) for driving the execution once more. Return it with the first
        events to record.

        Reuse the code parked in memory if it can continue, else open a new journal and replay.
        """
        # The digests are recorded only if they differ from those in the log, since most resumptions use the same
        # code.
        code = dependencies.code_of(self.workflow)
        if code != dict(self._state.code):
            resumption = replace(resumption, code=code)
        first = (decide_resumption(self._state, resumption),)
        self._runner = self.parked_run.take(self._state, code, dependencies.services)
        if self._runner is None:
            return self._open_journal(dependencies, lease), first
        # Parked code holds references to its own journal, so this journal is reused instead of a new one.
        self._journal = self._runner.journal
        self._journal.reopen(self._present_session().commit, lease.token)
        return self._journal, first

    def begin_cancellation(
        self, dependencies: DriverDependencies, why: str, lease: Lease, state: ExecutionState, *, undoes: bool
    ) -> None:
        """Record the cancellation of an execution that this process does not drive, starting from the state `state`,
        which was read under the lease.

        With `undoes`, its rollback runs here, if it has any; otherwise the process that resumes it runs it.

        Raises
        ------
        CancelledMeanwhileError
            Code on the engine's loop cancelled the execution after the lease was acquired.
        """
        self._require_newest(lease, "be cancelled")
        self._state = state
        self._is_stored = True
        self.may_have_children = True
        self.parked_run.unwind()
        work = self._record_cancel(dependencies, self._open_journal(dependencies, lease), why, lease, undoes=undoes)
        self._start_task(work, lease)

    def _require_newest(self, lease: Lease, about_to: str) -> None:
        """Raise CancelledMeanwhileError if `lease` is not the latest lease that this process has acquired, because the
        execution was cancelled under a later one.

        A drive under the earlier lease could write nothing, and would end the code of the later drive, which uses the
        same attributes (test_a_cancellation_with_an_older_lease_leaves_the_other_one_alone).
        """
        # Tokens grow with each lease. A larger token means that `cancel` took the lease by force after the caller
        # acquired its own.
        if self._token is not None and lease.token < self._token:
            raise CancelledMeanwhileError(f"execution {self.id} was cancelled before it could {about_to}")

    def cancel_pending(self, dependencies: DriverDependencies, why: str) -> bool:
        """Record the start and the cancellation of a pending execution, whose steps never run. Return False if the
        execution is not pending any more.

        Its start key stays free for another execution.
        """
        if self.opening is None or (self.was_driven and not self.is_about_to_begin):
            return False
        lease = Lease(self.id, FIRST_TOKEN, Owner.current(), expires_at=0)
        journal = self._open_journal(dependencies, None)
        # The start event is recorded as well, because a log must begin with it.
        journal.record_all(decide_opening(replace(self.opening, key=None)))
        self._start_task(self._record_cancel(dependencies, journal, why, lease, undoes=False), lease)
        return True

    def _start_task(self, work: Coroutine[Any, Any, None], lease: Lease) -> Future[None]:
        DRIVEN_LEASES.drive(self.store, lease)  # no await from here on: code that finds the lease must find it driven
        self._token = lease.token
        task = ENGINE.keep(work)
        # Another thread may be in `expect_begin`: either that has the future of this drive, or it finds it begun.
        with self._state_lock:
            is_expected = self.is_about_to_begin
            self._task = task
            if is_expected:
                future = ENGINE.promise_of(task, self._future)
            else:
                future = self._watch_drive(ENGINE.promise_of(task))
        self._process = os.getpid()
        self._is_driving = True
        self._has_begun = self._leaves_when_it_begins = False
        self.has_missed_lease = False
        EXIT_NOTICE.add(self)
        return future

    def _watch_drive(self, future: Future[None]) -> Future[None]:
        """Make `future` that of a new drive, for which callers wait, and return it. The caller holds the lock of the
        state.
        """
        self.drives += 1
        self._standstill = _Standstill()
        self._future = future
        return future

    def request_cancel(self, reason: str) -> bool:
        """Request the cancellation of the execution. The request is ignored while the execution is rolled back. Return
        False if this process no longer drives the execution.
        """
        if self._is_driving and not self.was_forked and self.state.rolling_back is None:
            self._cancel_reason = self._cancel_reason or reason
            # Also noted for the check at the end: the runner may have stopped already, and then ignores the request.
            self._must_check_inbox = True
            self._forward_requests()
        return self._is_driving

    def request_pause(self, reason: str, *, gives_back: bool = False) -> bool:
        """Request that the execution starts no further operations. Return False if this process no longer drives the
        execution.
        """
        if self._is_driving:
            self._paused = self._paused or (reason, gives_back)
            # Also noted for the check at the end: the last runner may have stopped already.
            self._must_check_inbox = True
            self._forward_requests()
        return self._is_driving

    def leave(self) -> None:
        """Stop driving the execution at once, as if this process had ended. The execution can be resumed
        immediately. One that the engine is about to begin stays pending, and is not begun.
        """
        if self.is_about_to_begin and self._future is not None:
            # There is no task to cancel yet. The error completes the future of the first commit as well, by which the
            # engine finds that it must not begin it
            # (test_a_run_that_the_engine_has_not_begun_when_its_environment_is_closed_is_refused).
            self._future.set_exception(
                LeftError(f"execution {self.id} was not started, because its environment was closed")
            )
            return
        if not self._is_driving or self._task is None:
            return
        if not self._has_begun:
            # A task that is cancelled before its first step runs none of its code, so nothing would release the lease
            # (test_a_drive_that_is_left_before_it_begins_releases_its_lease).
            self._leaves_when_it_begins = True
        else:
            # Otherwise a call with a rollback would delay the cancellation below until its end
            # (`divebook.runtime.recorder.run_to_end`).
            if self._runner is not None:
                self._runner.abandon_calls()
            # Cancellation unwinds the code through its `finally` blocks, which release the lease and the workspaces.
            self._task.cancel()

    def request_check(self) -> bool:
        """Make the driver check the inbox of the execution once more before it stops. Return False if it has stopped
        already. Call on the engine's loop.
        """
        self._must_check_inbox = True
        return self._is_driving

    def _note_blocked(self) -> None:
        """Update the future that `standstill` returns, for which `wait` waits. When a question blocks the execution,
        complete the future, so that `wait` returns. When the execution continues, later callers get a new one.

        Call on the engine's loop.
        """
        runner = self._runner
        if runner is not None and runner.is_blocked:
            # In a task of its own: this method is called from synchronous code of the runner.
            if not self._standstill.is_blocked:
                ENGINE.keep(self._stand_still(runner))
        elif self._standstill.is_blocked and self.is_live:
            with self._state_lock:
                self._standstill = _Standstill()

    async def _stand_still(self, runner: Runner) -> None:
        """Set the result of the future of `standstill` for an execution that is blocked by a question. First wait until
        the question is in the store, where other processes find it.
        """
        with suppress(StoreError):  # an error of the journal ends the execution elsewhere
            await self.durable()
            # The write took time: the runner may have been replaced, or an answer may have arrived.
            if runner is self._runner and runner.is_blocked and not self._standstill.is_blocked:
                with self._state_lock:
                    self._standstill.is_blocked = True
                    future = self._standstill.future
                if future is not None:
                    future.set_result(None)

    def _forward_requests(self) -> None:
        """Pass a request to cancel or pause the execution to its runner. If the present runner has ended and the next
        one has not started, the next one gets the request.
        """
        if self._runner is not None:
            # Set here, because each new runner is created before its requests are forwarded.
            self._runner.blocked = self._note_blocked
        if self._runner is not None and self._cancel_reason is not None:
            self._runner.end_as_cancelled(self._cancel_reason)
        elif self._runner is not None and self._paused is not None:
            self._runner.pause_when_idle(self._paused[0], gives_back=self._paused[1])

    async def _run(
        self, dependencies: DriverDependencies, journal: Journal, lease: Lease, first: Sequence[Fact] = ()
    ) -> None:
        """Drive the execution until it has ended, or waits and need not be driven (is parked). If a message arrives at
        that moment, drive it again.
        """
        self._has_begun = True
        STRAND.set("")  # another execution may have started this one inside one of its calls
        CURRENT.set(None)
        with engine_code():
            try:
                # One round per lease. A message that arrives while the execution is parked starts another round in the
                # same task, so that callers who wait for the task see one drive.
                self.began_at = dependencies.clock.now()
                await self._drive_once(dependencies, journal, lease, first)
                while (next_lease := await self._lease_for_more()) is not None:
                    self._overdue_ids = frozenset()
                    journal, first = self._reopen_log(
                        dependencies, next_lease, catalog.ExecutionResumed(self._state.status)
                    )
                    await self._drive_once(dependencies, journal, next_lease, first)
            finally:
                self._mark_stopped()
            # After `_mark_stopped`, so that listeners find an execution that is not driven and may resume it.
            await dependencies.on_stopped(self)

    def _mark_stopped(self) -> None:
        self._is_driving = False
        self.resumed_at = None
        self._overdue_ids = frozenset()
        self._cancel_reason = None
        self._paused = self._late_pause = None
        self._session = None

    async def _drive_once(
        self, dependencies: DriverDependencies, journal: Journal, lease: Lease, first: Sequence[Fact]
    ) -> None:
        session = self._present_session()
        is_left = False
        # Renewals begin before anything else: finding the policy of a what-if may read another log.
        session.lease_keeper.keep(lease)
        try:
            if self._leaves_when_it_begins:
                self.leave()
                await asyncio.sleep(0)  # raises the cancellation
            miss_policy = (
                None
                if journal.present.tools is None
                else await dependencies.services.find_miss_policy(journal.state, session.calls)
            )
            # `_reopen_log` has set the runner if parked code continues.
            runner = self._runner = self._runner or self.parked_run.begin(
                self.workflow, journal, dependencies.services, dependencies.chance, miss_policy
            )
            # A cancellation or pause may have been requested before this runner existed.
            self._forward_requests()
            # Unwound code runs its `finally` blocks concurrently. It must end before the same code is replayed.
            await self.parked_run.wait_end()
            if not first:
                await journal.durable()  # test_nothing_runs_of_an_execution_whose_key_another_one_has
            if journal.present.rolling_back is not None:
                await dependencies.cancel_children(self)
            # Messages are delivered to the runner from here on. Those that arrived earlier are read by the runner
            # itself.
            session.inbox.add(self.id, runner, lease.unread)
            await runner.run(functools.partial(journal.record_all, first))
            # The rollback runs in a new runner. If it waits for an answer, its status is not RUNNING, and it is parked
            # like any other code.
            while journal.present.rolling_back is not None and journal.present.status == catalog.RUNNING:
                await runner.leave_workspaces()
                runner = await self._roll_back(dependencies, journal, session, miss_policy)
                recorded = journal.recorded
                await runner.run()
                if journal.recorded == recorded:  # the next round would record nothing either
                    await runner.fail_unsettled()
        except asyncio.CancelledError:  # `leave`
            is_left = True
            raise
        finally:
            session.inbox.remove(self.id)
            try:
                with suppress(StoreError):  # an error of the journal ends the execution here
                    await journal.durable()
                # Workspaces are left while the lease is held: another process may enter them as soon as it is released.
                if self._runner is not None:
                    await self._runner.leave_workspaces()
            finally:
                self._keep_last_state(journal)
                await self._give_back(session, lease, is_left=is_left)

    async def _roll_back(
        self, dependencies: DriverDependencies, journal: Journal, session: StoreSession, miss_policy: MissPolicy | None
    ) -> Runner:
        """Prepare a rollback: cancel the child executions and wait for their end. Return a new runner, which the caller
        uses to run the rollback.
        """
        await dependencies.cancel_children(self)
        # The request that started the rollback must not cancel the rollback as well.
        self._cancel_reason = None
        journal.is_stopping = False
        runner = self._runner = self.parked_run.begin(
            self.workflow, journal, dependencies.services, dependencies.chance, miss_policy
        )
        self._forward_requests()
        session.inbox.add(self.id, runner)
        return runner

    def _keep_last_state(self, journal: Journal) -> None:
        """Take over the last state from the journal, and release the journal. The waiting code of the runner stays in
        memory (parked), or is unwound. If the log could not be written, the state may be ahead of the store.
        """
        # An execution without a stored event does not exist for others, so it is still pending here.
        self._state = journal.state if journal.error is None or journal.written else ExecutionState(self.id)
        # After an error of the journal the state in memory is ahead of the log, and `newest` folds the log from its
        # start.
        self._is_stored = journal.error is None
        self._written = journal.written
        self._journal = None
        runner = self._runner
        self._runner = None
        if runner is not None:
            self.parked_run.keep(runner, is_stored=self._is_stored)

    async def _give_back(self, session: StoreSession, lease: Lease, *, is_left: bool = False) -> None:
        state = self._state
        # An execution that is left in the middle of its work may have the status "waiting": it has recorded a child
        # that has not started, or a message that its code has not read, or one of its calls was running beside a
        # question. Nothing else shows that it has work to do, so its lease stays as a trace, as after the death of a
        # process (`divebook.runtime.leases.give_up`).
        leaves_trace = is_left and self._is_stored and state.status == catalog.WAITING and state.paused is None
        # The store deletes the lease in the transaction that ends the execution.
        is_gone = self._is_stored and state.is_over
        await session.lease_keeper.give_back(lease, is_gone=is_gone, leaves_trace=leaves_trace)

    async def _lease_for_more(self) -> Lease | None:
        """Check the inbox a last time before this process stops driving the execution. If a message has arrived,
        acquire the lease again and return it. Otherwise return None.

        Nothing is awaited between the last check and the end. A sender that finds the execution driven can therefore
        rely on one more check (test_nothing_that_comes_at_the_end_is_forgotten).
        """
        lease: Lease | None = None
        # Senders set the flag through `request_check`. The loop repeats until a check during which no sender set it.
        self._must_check_inbox = not self._state.is_over or bool(self._overdue_ids)
        while self._must_check_inbox and lease is None:
            self._must_check_inbox = False
            lease = await self._lease_for_news()
        return lease

    async def _lease_for_news(self) -> Lease | None:
        session = self._present_session()
        if not await self._has_news(session.calls):
            return None
        try:
            lease = await session.calls.patiently(lambda: DRIVEN_LEASES.take(self.store, self.id))
        except LeaseHeldError:  # the sender drives it, or another process annotates it
            self.has_missed_lease = True
            return None
        # Another process may have driven it since the check, so state and inbox are read again under the lease.
        DRIVEN_LEASES.drive(self.store, lease)
        session.lease_keeper.keep(lease)
        must_drive = False
        try:
            await session.calls.patiently(lambda: self.state_under(lease))
            self._token = lease.token
            must_drive = await self._has_news(session.calls)
            # The next round gets the pause. There is one round for a late pause: if a rollback begins, it may stay
            # unrecorded.
            if must_drive:
                self._late_pause = self._paused
        finally:
            if not must_drive:
                await session.lease_keeper.give_back(lease)
                self._must_check_inbox = True  # other senders found the lease held
        return lease if must_drive else None

    async def _has_news(self, calls: StoreCalls) -> bool:
        state = self._state
        # After an error of the journal, the execution can only be resumed from the store.
        if not self._is_stored:
            return False
        if state.is_over:
            # A question that expired during this drive, after a person had resumed it, is not asked again
            # (test_a_question_that_expires_after_a_resumption_is_not_asked_again).
            return not self._overdue_ids.isdisjoint(state.failed_by_expiry)
        # A paused execution ignores messages until it is resumed; only a cancellation ends the pause.
        if self._cancel_reason is not None or state.paused:
            return self._cancel_reason is not None
        if self._has_late_pause(state):
            return True
        return bool(facts_of(state, await calls.patiently(lambda: self.store.inbox(self.id, state.taken))))

    def _has_late_pause(self, state: ExecutionState) -> bool:
        """Return True if a pause came too late for the last runner, so that another one must record it
        (test_a_pause_that_comes_at_the_end_is_recorded).
        """
        if self._paused is None or self._paused == self._late_pause:
            return False
        # An execution that a worker gives back runs nothing any more, so there is nothing to give back.
        _, gives_back = self._paused
        return not gives_back and state.status != catalog.ENQUEUED

    async def _record_cancel(
        self, dependencies: DriverDependencies, journal: Journal, why: str, lease: Lease, *, undoes: bool
    ) -> None:
        self._has_begun = True
        # The lease passes to `_run` if the rollback runs here; in every other case it is released before others are
        # notified.
        continues = False
        self._present_session().lease_keeper.keep(lease)
        try:
            await self.parked_run.wait_end()
            # Paths first: the rules that end the execution look at the paths which are still active.
            journal.record_all(decide_leaving(journal.state, why).facts)
            journal.record_all(decide_cancellation(journal.state, why, is_here=undoes).facts)
            # A second request that came before this one was recorded must not cancel the rollback
            # (test_a_second_cancellation_before_the_rollback_does_not_end_it).
            self._cancel_reason = None
            await journal.durable()
            # Not over means that the cancellation has started a rollback.
            continues = undoes and not journal.state.is_over
        finally:
            if not continues:
                self._keep_last_state(journal)
                await self._give_back(self._present_session(), lease)
                self._mark_stopped()
        if continues:
            await self._run(dependencies, journal, lease)
        else:
            await dependencies.on_stopped(self)

    def _open_journal(self, dependencies: DriverDependencies, lease: Lease | None) -> Journal:
        token = None if lease is None else lease.token
        commit = self._present_session().commit
        ids = Ids(dependencies.clock, dependencies.chance)
        self._journal = Journal(self._state, commit, dependencies.clock, ids, token=token, durability=self.durability)
        return self._journal

    def _present_session(self) -> StoreSession:
        self._session = self._session or ENGINE.session(self.store)
        return self._session


# --- registry of executions ------------------------------------------------------------------------------------------


_log = logger(__name__)


class ExecutionRegistry:
    """Registry of the drivers of one store. Each execution has one driver object as long as that object is
    referenced.
    """

    def __init__(self, store: EventStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._drivers: weakref.WeakValueDictionary[str, Driver] = weakref.WeakValueDictionary()
        """Driven executions, which the engine keeps alive, and executions that other code still references."""
        self._entering = threading.Lock()
        """Lock around each lookup that enters a driver: `WeakValueDictionary.setdefault` is not atomic."""

    def enter(self, driver: Driver) -> None:
        """Register a driver, so that later lookups of its execution return this object. It replaces an earlier driver
        of the same execution.
        """
        with self._entering:
            self._drivers[driver.id] = driver

    def _register(self, driver: Driver) -> Driver:
        """Register a new driver, unless its execution has a registered driver already. Return the registered driver.

        Two threads that load the same execution at the same time get the same object. With two objects, one would drive
        the execution while the other reported that nothing drives it
        (test_a_run_that_a_worker_claims_at_once_has_one_driver).
        """
        with self._entering:
            registered = self._drivers.get(driver.id)
            if registered is not None:
                return registered
            self._drivers[driver.id] = driver
            return driver

    def withdraw(self, driver: Driver) -> None:
        """Unregister the driver of a pending execution that is about to be stored. Later lookups then load the
        execution from the store.
        """
        with self._entering:
            if self._drivers.get(driver.id) is driver:
                del self._drivers[driver.id]

    def find(self, execution_id: str) -> Driver:
        """Return the driver of an execution, with its log read. A unique prefix of the execution id is enough."""
        driver = self.look_up(execution_id)
        driver.read()
        return driver

    def present(self, execution_id: str) -> Driver | None:
        """Return the registered driver of the execution with this full id. Return None if no driver is registered."""
        return self._drivers.get(execution_id)

    def look_up(self, execution_id: str, state: ExecutionState | None = None) -> Driver:
        """Return the driver of an execution like `find`, but read only the first event of an execution that is not
        registered yet. With `state`, its newest state, its log is not read later either.
        """
        ENGINE.refuse_waiting(self.store)
        execution_id = id_of(execution_id)
        driver = self._drivers.get(execution_id)
        # The id may be a prefix, which only the store can resolve.
        if driver is None:
            execution_id = self.store.resolve(execution_id)
            driver = self._drivers.get(execution_id)
        if driver is None:
            return self._register(self.load(execution_id, state))
        driver.wait_until_stored()
        try:
            return driver.refresh()
        except DecryptionError:
            return self.load(execution_id)  # later events have another key; the error comes with the first value
        except (CorruptStoreError, NewerStoreError) as damage:
            # This driver is not registered: the registered one may still be used by code that has read a sound state.
            log = self._readable_log(execution_id, damage)
            return Driver(execution_id, log.state.inputs, self.store, log, self._clock)

    def load(self, execution_id: str, state: ExecutionState | None = None) -> Driver:
        """Return a new driver of a stored execution. It reads the log when it is first used, unless `state` is given,
        the newest state of the execution.

        An execution whose first event cannot be read has a driver too, so that lists of executions include it. Its log
        then raises when it is used.
        """
        opening: catalog.ExecutionStarted | None = None
        # Without its key, an encrypted run must not hide the other runs
        # (test_runs_lists_runs_that_cannot_be_decrypted).
        with suppress(*UNREADABLE):
            opening = recorded_opening(execution_id, self.store)

        def read_log() -> LoadedLog:
            if opening is not None:
                return self._load_log(execution_id, opening, state)
            later_opening = recorded_opening(execution_id, self.store)
            shared().learn(later_opening.inputs)  # the driver was created without them
            return self._load_log(execution_id, later_opening, state)

        driver = Driver(execution_id, {} if opening is None else opening.inputs, self.store, read_log, self._clock)
        driver.durability = self.store.record(execution_id).durability
        return driver

    def _load_log(
        self, execution_id: str, opening: catalog.ExecutionStarted, state: ExecutionState | None
    ) -> LoadedLog:
        ENGINE.refuse_waiting(self.store)
        try:
            workflow = recorded_workflow(execution_id, self.store, opening)
            return LoadedLog(workflow, folded(self.store, execution_id) if state is None else state)
        except (CorruptStoreError, NewerStoreError) as damage:
            return self._readable_log(execution_id, damage)

    def _readable_log(self, execution_id: str, damage: StoreError) -> LoadedLog:
        """Return the definition and state of an execution from the readable beginning of a damaged log."""
        events, damage_in_log = self.store.read_sound(execution_id)
        # A damaged event can be unreadable, or readable but impossible after the events before it. Both end the
        # readable part.
        damage = damage_in_log or damage
        state = ExecutionState(execution_id)
        # One event at a time, so that the state up to the faulty event is kept.
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
        """Read the logs of registered executions that were not read yet, because the store is about to be closed.

        Unreadable logs raise when they are used.
        """
        for driver in list(self._drivers.values()):
            with suppress(StoreError):
                driver.read()

    def registered(self) -> list[Driver]:
        """Return the registered drivers that are still in use."""
        return list(self._drivers.values())

    def live(self) -> list[Driver]:
        """Return the drivers of the executions that this process drives now."""
        return [driver for driver in self.registered() if driver.is_live]

    def open_questions(self, execution_ids: Iterable[str]) -> Iterable[tuple[str, Question]]:
        """Yield the open questions of some executions, as pairs of execution id and question, without reading their
        definitions. Log and skip damaged executions.
        """
        ENGINE.refuse_waiting(self.store)
        for execution_id in execution_ids:
            try:
                questions = self._questions_of(execution_id)
            except StoreError as error:
                _log.warning("execution %s is skipped: %s", execution_id, error)
            else:
                yield from ((execution_id, question) for question in questions if question.is_open)

    def sound_states(self, execution_ids: Iterable[str]) -> Iterable[ExecutionState]:
        """Yield the states of some executions. Log and skip executions whose log is damaged."""
        for execution_id in execution_ids:
            try:
                yield self.find(execution_id).state
            except StoreError as error:
                _log.warning("execution %s is skipped: %s", execution_id, error)

    def _questions_of(self, execution_id: str) -> Iterable[Question]:
        driver = self._drivers.get(execution_id)
        if driver is not None and driver.damage is None:
            return driver.refresh().questions.values()
        state = folded(self.store, execution_id)
        shared().learn(state.inputs)  # before any input is shown
        return questions_of(state, self.store.inbox(execution_id, state.taken), self._clock.now()).values()


def _readable_workflow(execution_id: str, events: Sequence[Event]) -> Workflow:
    """Return the workflow definition from the readable events of a damaged log. If the definition is itself unreadable,
    return a sketch of it: its name, and the names and types of the entered steps.
    """
    opening = opening_in(execution_id, events)
    try:
        return workflow_in(execution_id, opening, events)
    except CorruptStoreError:
        return entered_workflow(opening.workflow_name, events)


# --- exit notice -----------------------------------------------------------------------------------------------------
#
# At exit, the process prints the executions that are still running and how to resume them.


# Seconds that the exit notice waits for the last events of an execution that has just ended, and its maximum number
# of lines.
MOMENT_SECONDS = 5.0
MOST_LINES = 20


class ExitNotice:
    """Notice printed when the process ends, about executions that it still drives and how to resume them."""

    def __init__(self) -> None:
        self._executions: weakref.WeakSet[Driver] = weakref.WeakSet()
        self._pid = 0
        self._renew_lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        # A new lock after a fork: a thread that the child process does not have may have held the old one.
        self._lock = threading.Lock()

    def add(self, execution: Driver) -> None:
        """Register the driver of an execution. The notice lists the execution if it still runs when the process
        ends. Callable from any thread.
        """
        with self._lock:
            if self._pid != os.getpid():  # a forked child process drives no execution of its parent
                self._executions = weakref.WeakSet()
                self._pid = os.getpid()
                atexit.register(self.print_running)
            self._executions.add(execution)

    def print_running(self) -> None:
        """Print a line on stderr for each execution that still runs. Children have no line of their own.

        They are counted in the line of their topmost running ancestor. At most `MOST_LINES` lines are printed.
        """
        if self._pid != os.getpid():
            return
        wait(first_commits_of(self._executions), MOMENT_SECONDS)  # what has begun must not be lost with the process
        running = [
            execution for execution in sorted(self._executions, key=lambda one: one.id) if _is_running(execution)
        ]
        # Example: a parent with two children, all running. `below` is `{parent: 3}`, and its line mentions 2
        # children.
        parents = {execution.id: execution.started_by for execution in running}
        below = Counter(_top(execution.id, parents) for execution in running)
        tops = [execution for execution in running if execution.id in below]
        for execution in tops[:MOST_LINES]:
            sys.stderr.write(f"{_line(execution, below[execution.id] - 1)}\n")
        if len(tops) > MOST_LINES:
            sys.stderr.write(
                f"divebook: {len(tops) - MOST_LINES} more executions have not ended; `{advised('runs')}` lists them\n"
            )


def first_commits_of(executions: Iterable[Driver]) -> list[Future[None]]:
    """Return the futures of those first commits for which `Run.start` has not waited, of executions that are live."""
    commits = [(execution, execution.first_commit) for execution in executions]
    return [first_commit for execution, first_commit in commits if first_commit is not None and execution.is_live]


def _top(execution_id: str, parents: Mapping[str, str | None]) -> str:
    """Return the id of the running execution at the top of a family: the highest running ancestor of an execution, or
    the execution itself. `parents` has the parent of each running execution.
    """
    parent = parents[execution_id]
    while parent is not None and parent in parents:
        execution_id = parent
        parent = parents[parent]
    return execution_id


def _is_running(execution: Driver) -> bool:
    """Return whether an execution still runs. An execution that has just ended gets `MOMENT_SECONDS` to write its last
    events.
    """
    if execution.is_live and not _waits_for_store(execution) and execution.status in TERMINAL:
        with suppress(DivebookError, TimeoutError):  # the line shows the status in any case
            execution.driving().result(MOMENT_SECONDS)
    return execution.is_live


def _waits_for_store(execution: Driver) -> bool:
    """Return whether the store has still not confirmed the first events of an execution. A look at its status would
    then wait for the store, perhaps for ever, and keep the process from ending.
    """
    first_commit = execution.first_commit
    return first_commit is not None and not first_commit.done()


def _line(execution: Driver, below: int) -> str:
    if _waits_for_store(execution):
        return (
            f"divebook: the process ends before the start of execution {execution.id} is stored, so the run may be "
            "lost. Await run.ensure_stored() before the process ends"
        )
    children = "" if not below else f" (and {below} executions that it started)"
    message = f"divebook: the process ends while execution {execution.id} is {execution.status}{children}"
    if not execution.store.keeps:
        return (
            f"{message}. Its log was in memory and is lost. Call wait() before the process ends, or use a store on disk"
        )
    way_on = in_shell("resume", [execution.id], ["--store", execution.store.location])
    return f"{message}. To continue: {way_on}. Call wait() to let a run end before the process does"


EXIT_NOTICE = ExitNotice()
"""The exit notice of this process."""
