"""Operations on executions in queues: enqueue, claim for a worker, return to the queue, and count automatic
resumptions. Also moves an execution to another store.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Protocol

from divebook.definitions.step import Retry
from divebook.engine.evolve import fold, fold_records
from divebook.engine.inbox import Message, facts_of
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.operations import ENCLOSING, SIGNAL_WAIT
from divebook.engine.state import SLEEPS, ExecutionState, OperationRecord, PathState
from divebook.errors import DivebookError, ExecutionError, NeedsPersonError, UnreadMessageError
from divebook.events import catalog
from divebook.events.catalog import ENQUEUED, MOVED, RUNNING, WAITING, ExecutionMoved
from divebook.events.event import MICROSECONDS, Event, Record
from divebook.runtime.children import ancestors, children_to_continue, running_children
from divebook.runtime.clock import Chance, Clock, Ids
from divebook.runtime.driver import CancelledMeanwhileError, Driver, ExecutionRegistry, WorkerRef
from divebook.runtime.leases import DRIVEN_LEASES, give_up
from divebook.runtime.loop import ENGINE
from divebook.stores import Lease
from divebook.stores.append import FULL, Batch, records_of
from divebook.stores.base import EventStore
from divebook.stores.leases import Owner
from divebook.stores.transfer import flush, writing
from divebook.text.format import in_parts

# --- limit on automatic resumption -----------------------------------------------------------------------------------
#
# The code of an execution may kill each process that runs it, so the number of automatic attempts is limited. Example:
#
#     event                             attempts
#     execution_resumed                        0   a worker starts it, and dies in a step
#     execution_resumed(recovery=1)            1   recorded before any code runs; the second worker dies as well
#     execution_resumed(recovery=2)            2
#     operation_completed                      0   progress
#
# An attempt is counted only if the dead process may have been working on the execution (`may_have_worked`). A process
# that dies while the execution waits is not caused by it: a timer of two months survives any number of reboots. Such a
# resumption repeats the number of the attempts before it, so it neither counts nor starts the count again.
#
# The decision needs the state, so the log is read before the attempt is recorded. A log that kills the process while
# it is read is therefore not counted.


RESUMPTIONS = Retry(attempts=3, seconds=60.0, factor=10.0, max_seconds=600.0, jitter=0.0)
"""Retry policy of automatic resumptions: their number since the execution last made progress, and the pauses between
them. The first one begins at once. After the last one, a person must resume the execution.

This limits attempts of all processes, because it is computed from the log of the execution. `RETRY_SECONDS` in
`divebook/queues.py` is different: the pause of one worker after its own attempt to drive an execution raised an error.
"""
CODE_SECONDS = 3600
"""Seconds after the last event during which code beside a wait may still be running; see `_may_run_code`.

This exceeds the pauses between attempts. Otherwise the pause before an attempt would prevent that it is counted."""
TAIL = 200
"""Number of last events in which the latest attempt is searched. More events than that count as progress."""
_PROGRESS = (
    catalog.OperationCompleted,
    catalog.OperationFailed,
    catalog.IterationCompleted,
    catalog.IterationFailed,
    catalog.StepCompleted,
    catalog.InterruptRaised,
)
"""Events that are recorded once each, so that one of them proves progress after a resumption."""


def recovery_number(store: EventStore, state: ExecutionState, lease: Lease, now: int) -> int | None:
    """Return the number that the event of an automatic resumption records: the number of counted attempts since the
    execution last made progress, including this one if it counts. Return None if none counts. Errors are those of
    `next_attempt`.

    `state` is the state under the newly acquired lease. `now` is in microseconds since 1970.
    """
    # Only a waiting execution whose lease was left needs the reads of the store. The inbox is read only then.
    is_left_waiting = lease.was_left and state.status == WAITING
    messages = store.inbox(state.execution_id, state.taken) if is_left_waiting else ()
    children = children_to_continue(store, state) if is_left_waiting else ()
    if may_have_worked(state, messages, children, now, was_left=lease.was_left):
        return next_attempt(store, state.execution_id, now)
    return attempts_made(store, state.execution_id) or None


def may_have_worked(
    state: ExecutionState, messages: Iterable[Message], children: Collection[str], now: int, *, was_left: bool
) -> bool:
    """Return whether the process that drove an execution last may have died while it worked on the execution, so that
    the execution may have caused the death. Return False if the execution only waited.

    Parameters
    ----------
    state
        Newest state of the execution, which no process drives.
    messages
        Messages of its inbox.
    children
        Ids of children for which it waits, and which it must start or which have ended.
    now
        Microseconds since 1970.
    was_left
        True if the process did not release its lease.
    """
    # Without a wait on each path, code was running. A process that stops in an orderly way parks or ends the code
    # first, and lets the execution wait.
    if state.status == RUNNING:
        return True
    if not was_left or state.is_over:
        return False
    # It was not driven at the last event, so the process had taken the lease to run its code
    # (test_what_ends_its_worker_before_anything_is_written_is_counted).
    if state.lifecycle == ENQUEUED or state.paused is not None:
        return True
    is_called = any(_is_running_call(state, record) for _, record in _open_operations(state))
    is_due = any(deadline <= now for _, deadline in state.deadlines())
    is_recent = now - state.last_us < CODE_SECONDS * MICROSECONDS
    may_run_code = is_recent and any(map(_may_run_code, state.active_paths()))
    return is_called or is_due or may_run_code or bool(children) or _has_work(state, messages)


def _open_operations(state: ExecutionState) -> Iterator[tuple[PathState, OperationRecord]]:
    for path in state.active_paths():
        for record in path.open.operations.values() if path.open is not None else ():
            yield path, record


def _is_running_call(state: ExecutionState, record: OperationRecord) -> bool:
    """Return whether an operation is a call that was running when the process died, and not a wait.

    An agent's turn encloses its calls and its waits, so it is neither. A call about whose outcome a person is asked was
    interrupted by an earlier death.
    """
    if record.status != RUNNING or record.operation_type in SLEEPS | ENCLOSING:
        return False
    question = state.interrupts.get(state.question_id(record.operation_id, record.started_sequence))
    return question is None or not question.is_open


def _may_run_code(path: PathState) -> bool:
    """Return whether the code of a waiting path may run beside its wait: an operation has ended after the latest wait
    began.

    Example: ``ctx.gather(ctx.sleep(60), label())``, where the timer is event 5 and `label` returned with event 8. The
    log does not show whether the code after `label` runs or has ended. Code without concurrent calls is never in this
    state, because it waits for the operation that began last.
    """
    records = () if path.open is None else path.open.operations.values()
    waits = [record for record in records if record.operation_type in SLEEPS and record.status == RUNNING]
    latest_wait = max((record.started_sequence for record in waits), default=0)
    return any(record.ended_sequence > latest_wait for record in records)


def _has_work(state: ExecutionState, messages: Iterable[Message]) -> bool:
    """Return whether a message lets a waiting path continue: an answer or an expiry, or a signal for which the path
    waits. Messages that only the log takes in, such as annotations, are no work.
    """
    waits = [record for _, record in _open_operations(state) if record.status == RUNNING and record.signal is not None]
    # The signal may be in the log already, while the wait that consumes it has not ended. For children, a signal in the
    # log may be left from an earlier end, so `children_to_continue` reads their present status.
    if any(record.operation_type == SIGNAL_WAIT and record.signal in state.signals for record in waits):
        return True
    awaited = {record.signal for record in waits}
    for fact in facts_of(state, messages):
        if isinstance(fact.data, (catalog.InterruptResolved, catalog.InterruptExpired)):
            return True
        if isinstance(fact.data, catalog.SignalReceived) and fact.data.signal_type in awaited:
            return True
    return False


def next_attempt(store: EventStore, execution_id: str, now: int) -> int:
    """Return the number of the next automatic resumption that counts, from 1, if it may take place now. Resumptions are
    counted since the execution last made progress.

    Raises
    ------
    ExecutionError
        The pause before the next attempt is not over.
    NeedsPersonError
        All attempts have been made.
    """
    attempts, since = _latest_attempt(store, execution_id)
    # Example: attempt 1 starts at once, attempt 2 at least 60 s after it, attempt 3 at least 600 s after that.
    # Without progress, the fourth is refused.
    if attempts >= RESUMPTIONS.attempts:
        raise NeedsPersonError(
            f"execution {execution_id} needs a person: it was resumed {attempts} times automatically and interrupted "
            "each time before it made progress. Check what it does next, then resume it"
        )
    seconds = RESUMPTIONS.delay(attempts) - (now - since) / MICROSECONDS
    if attempts and seconds > 0:
        raise ExecutionError(
            f"execution {execution_id} was resumed {attempts} times automatically and made no progress. The next "
            f"attempt is in {in_parts(math.ceil(seconds))}, or as soon as a person resumes it"
        )
    return attempts + 1


def attempts_made(store: EventStore, execution_id: str) -> int:
    """Return the number of automatic resumptions since the execution last made progress, as far as they count."""
    return _latest_attempt(store, execution_id)[0]


def _latest_attempt(store: EventStore, execution_id: str) -> tuple[int, int]:
    """Return the number of the latest counted attempt in the last events of a log, and its time in microseconds since
    1970. Return zeros if the execution has made progress since, or if a person has resumed it.
    """
    last = store.record(execution_id).last_sequence
    attempts = since = 0
    # The newest event decides: progress after the last resumption resets the count.
    for event in reversed(store.read(execution_id, max(0, last - TAIL))):
        if isinstance(event.data, _PROGRESS):
            break
        if isinstance(event.data, catalog.ExecutionResumed):
            number = event.data.recovery
            # A resumption that does not count repeats the number of the attempt before it, whose time counts.
            if number is None or (attempts and number != attempts):
                break
            attempts, since = number, event.recorded_at
    return attempts, since


def belongs_to_workers(store: EventStore, state: ExecutionState) -> bool:
    """Return whether workers drive an execution: it is in a queue, and is not a fork that was imported.

    The log of an imported fork names the queue of its source, but workers never claim a fork.
    """
    return state.queue is not None and store.record(state.execution_id).origin != catalog.FORK


class Drive(Protocol):
    """Protocol of the function that makes the engine drive an execution under a lease."""

    def __call__(
        self,
        driver: Driver,
        lease: Lease,
        resumption: catalog.ExecutionResumed | None = None,
        *,
        must_replay: bool = False,
    ) -> None:
        """Drive the execution. With `must_replay`, its code is replayed from the log, even if its waiting code is still
        in memory (parked).
        """


class QueuedExecutions:
    """Operations on executions in the queues of one store: put into a queue, claim for a worker, drive, and return to
    the queue.

    Parameters
    ----------
    require_definitions
        Raise unless everything is defined that an execution needs to continue.
    cancel_with_parent
        Cancel an execution whose ancestor has ended. Return whether that was the case.
    drive
        Drive an execution under a lease.
    """

    def __init__(
        self,
        registry: ExecutionRegistry,
        clock: Clock,
        chance: Chance,
        *,
        require_definitions: Callable[[Driver], None],
        cancel_with_parent: Callable[[Driver], bool],
        drive: Drive,
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._clock = clock
        self._chance = chance
        self._require_definitions = require_definitions
        self._cancel_with_parent = cancel_with_parent
        self._drive = drive

    def enqueue(self, driver: Driver, place: catalog.ExecutionEnqueued) -> Driver:
        """Put a pending execution into a queue. Return the driver of the stored execution, which workers can claim.

        Raises
        ------
        StartKeyTakenError
            Another execution has its start key.
        """
        driver.require_pending("enqueued")
        opening = driver.opening
        assert opening is not None, "require_pending checks it"  # noqa: S101
        ENGINE.refuse_waiting(self._store)
        records = self._records(driver.id, 0, opening, place)
        # A worker of this process may claim the execution as soon as it is stored. It must not find the pending
        # driver, which this method replaces (test_a_run_that_a_worker_claims_at_once_has_one_driver).
        self._registry.withdraw(driver)
        try:
            self._append(Batch(driver.id, 0, records, wake_at=place.due, durability=driver.durability))
        except BaseException:
            self._registry.enter(driver)
            raise
        return self._registry.look_up(driver.id)

    def is_for_workers(self, driver: Driver, parent: str | None) -> bool:
        """Return whether an execution must be continued by the workers of its queue, and not by this process. It is
        False without a queue.

        The child of a parent that a person resumed is driven with the parent, without counting attempts.
        """
        if not belongs_to_workers(self._store, driver.state):
            return False
        # This process drives it or drove it: it continues here, unless its worker is stopping or the execution has
        # returned to its queue.
        if driver.was_driven:
            is_drained = driver.worker is not None and not driver.worker.is_running
            # Messages do not resume a paused execution: workers leave it alone.
            return is_drained or driver.state.is_shown_paused or driver.state.lifecycle == catalog.ENQUEUED
        parent_driver = None if parent is None else self._registry.present(parent)
        return parent_driver is None or parent_driver.worker is not None

    def hold(self, driver: Driver, paused: catalog.ExecutionPaused) -> None:
        """Record the pause of an execution that is in a queue and that no process drives. Workers ignore it until it is
        resumed.

        Raises
        ------
        LeaseHeldError
            A worker drives it.
        """
        with DRIVEN_LEASES.about_to_drive(self._store, driver.id):
            lease = DRIVEN_LEASES.take(self._store, driver.id)
            try:
                before = driver.state_under(lease)
                if before.is_over:
                    raise ExecutionError(f"execution {driver.id} has already ended as {before.status}")
                (record,) = self._records(driver.id, before.last_sequence, paused)
                # The columns of the batch come from the state after the pause, since no journal computes them here.
                after = fold_records(driver.id, [record], before)
                batch = Batch(driver.id, before.last_sequence, [record], lease.token, taken=after.taken)
                status = after.status if after.lifecycle == RUNNING else None
                self._append(replace(batch, status=status, wake_at=after.wake_at, durability=driver.durability))
            finally:
                self._store.release(lease)
        driver.refresh()

    def _records(self, execution_id: str, last: int, *payloads: catalog.Payload) -> list[Record]:
        now = self._clock.now()
        ids = Ids(self._clock, self._chance)
        facts = enumerate(payloads, last + 1)
        return records_of(Event(ids.event(now), execution_id, sequence, now, data) for sequence, data in facts)

    def _append(self, batch: Batch) -> None:
        (refusal,) = self._store.append_all([batch])
        if refusal is not None:
            raise refusal

    def claim(
        self, queues: Collection[str], workflows: Mapping[str, str], limit: int, *, without: Collection[str] = ()
    ) -> list[Lease]:
        """Claim the leases of at most `limit` executions in these queues that have work to do. The calling thread must
        then drive them.

        Parameters are those of `EventStore.claim`.
        """
        claim = functools.partial(self._store.claim, queues, workflows, Owner.current(), limit, without=without)
        return DRIVEN_LEASES.claim(self._store, claim)

    def take_up(self, lease: Lease, worker: WorkerRef) -> Driver:
        """Drive an execution whose lease this worker has claimed, and return its driver. If it cannot be driven here,
        release the lease.

        If the previous driver died, the limit on automatic resumption applies.

        Raises
        ------
        NeedsPersonError
            It was resumed too often without progress. Workers skip it until a person resumes it.
        DivebookError
            It cannot be driven here, for example because a definition is missing.
        """
        try:
            with DRIVEN_LEASES.about_to_drive(self._store, lease.execution_id):
                driver = self._registry.find(lease.execution_id)
                # A child whose parent has ended must not run, so this comes before the definitions are checked.
                if self._cancel_with_parent(driver):  # the cancellation takes its lease
                    return driver
                driver.end_overtaken_drive(lease)
                state = driver.state_under(lease)
                self._require_definitions(driver)
                driver.worker = worker
                has_died = lease.was_left or state.status == RUNNING
                try:
                    # After a death the parked code of this process is older than the log, so it is replayed.
                    self._drive(driver, lease, self._resumption(state, lease), must_replay=has_died)
                except CancelledMeanwhileError:  # the cancellation has taken its lease
                    return driver
        except BaseException as error:
            with suppress(DivebookError):  # the lease expires
                # Marked while the lease is held. Later, the mark could undo the resumption of a person who was faster
                # (test_a_person_who_resumes_at_once_is_not_overridden_by_the_worker_that_gave_up).
                if isinstance(error, NeedsPersonError):
                    self._store.withhold(lease.execution_id)
                give_up(self._store, lease)
            raise
        return driver

    def _resumption(self, state: ExecutionState, lease: Lease) -> catalog.ExecutionResumed:
        if state.is_over:
            raise ExecutionError(f"execution {state.execution_id} has already ended as {state.status}")
        recovery = recovery_number(self._store, state, lease, self._clock.now())
        return catalog.ExecutionResumed(state.status, recovery=recovery)

    def give_back(self, drivers: Iterable[Driver], reason: str) -> None:
        """Pause executions that this process drives, and return them to their queues, so that other workers continue
        them.
        """

        def pause_all() -> None:  # all in one turn, so that none starts anything meanwhile
            for driver in drivers:
                driver.request_pause(reason, gives_back=True)

        ENGINE.call(pause_all)


# --- moving an execution to another store ----------------------------------------------------------------------------
#
# The execution is written to a file and continues where the file is imported. At any time it can continue in at most
# one place. The order of writes ensures that: first the log on disk without its end line, then the move event in the
# store, then the end line, without which the file cannot be imported. If a process dies in between, the execution has
# either not moved, or has moved and can be written again with the same command (tests/runtime/test_moving.py dies at
# each point).


def move_out(
    store: EventStore, execution_id: str, file: str | Path, clock: Clock, ids: Ids, *, overwrite: bool = False
) -> int:
    """Write an execution to a file, and end the execution in this store with status "moved". Return the number of
    events in the file.

    An execution that has already moved is written again. Import only one of the files.

    Raises
    ------
    ExecutionError
        It has ended in another way, or cannot move: it has an unread message or a running child, or its parent waits
        for it.
    LeaseHeldError
        It is being driven.
    """
    with writing(file, overwrite=overwrite) as lines:
        # An earlier attempt has recorded the move and may have died before it wrote the end line.
        if store.record(execution_id).status == MOVED:
            lines.events(store.read(execution_id))
        else:
            with DRIVEN_LEASES.taking(store, execution_id) as lease:
                # Read under the lease, so that no event can follow those in the file.
                events = store.read(execution_id)
                state = fold(execution_id, events)
                last_message = _check_movable(store, state)
                now = clock.now()
                last = len(events)
                moved = Event(ids.event(now), execution_id, last + 1, now, ExecutionMoved(str(file)))
                lines.events([*events, moved])
                # The file is on disk before the store gives the execution up.
                flush(lines.stream)
                batch = Batch(execution_id, last, [Record.of(moved)], lease.token, durability=FULL)
                # Senders need no lease, so a message may arrive at any moment. The store refuses the move then. The
                # check is made again, and raises unless the message adds nothing to the log, such as an answer to a
                # settled question.
                (refusal,) = store.append_all([replace(batch, last_message=last_message)])
                while isinstance(refusal, UnreadMessageError):
                    last_message = _check_movable(store, state)
                    (refusal,) = store.append_all([replace(batch, last_message=last_message)])
                if refusal is not None:
                    raise refusal
        lines.end(MOVED, moved=True)
    return lines.count


def _check_movable(store: EventStore, state: ExecutionState) -> int:
    """Raise `ExecutionError` if an execution cannot move. Return the number of the newest message that was read for the
    check; 0 if it has received none.
    """
    name = f"execution {state.execution_id}"
    if state.is_over:
        raise ExecutionError(f"{name} is {state.status}; export it without --move")
    messages = store.inbox(state.execution_id, state.taken)
    if facts_of(state, messages):
        raise ExecutionError(
            f"{name} has received an answer or a signal that is not in its log yet; resume it, and export it with "
            "--move when it waits again"
        )
    for child in running_children(state):
        raise ExecutionError(
            f"{name} waits for its child execution {child}; export it with --move after the child has ended"
        )
    # Its end in the other store would send no message to the parent in this one, which would wait for ever.
    for parent in islice(ancestors(store, state.execution_id), 1, 2):
        if parent.status not in TERMINAL:
            raise ExecutionError(
                f"{name} is a child of execution {parent.execution_id}, which waits for it; export it with --move "
                "after the parent has ended"
            )
    return messages[-1].number if messages else state.taken
