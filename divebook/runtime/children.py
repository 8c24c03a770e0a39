"""Child executions: executions that a step starts and waits for, and that are resumed with their parent.

A child is an execution with a log of its own. The parent records the id of a child before the child starts. Whichever
process resumes the parent, and wherever the parent died, it finds that id and starts no second child
(test_wherever_the_parent_died_the_child_is_started_once in `tests/runtime/test_children.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

from divebook.definitions.definition import Workflow
from divebook.engine.bounds import (
    bounds_for_resumption,
    bounds_with_reservation,
    remaining_bounds,
    reserved_for,
    share_of,
)
from divebook.engine.changes import reservations_to_restore
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.operations import CHILD_WORKFLOW, CONTINUE_AS_NEW, Place, Reserved, operation_name
from divebook.engine.retries import names_of
from divebook.engine.state import EMPTY, JOINING, NO_USAGE, ExecutionState, OperationRecord, PathState, Usage
from divebook.errors import (
    BoundExceededError,
    CorruptStoreError,
    DecryptionError,
    DefinitionError,
    ExecutionError,
    ExecutionNotFoundError,
    InputError,
    NotFoundError,
    SetupError,
    StepError,
)
from divebook.events.catalog import (
    CANCELLED,
    CHILD,
    COMPLETED,
    FAILED,
    MOVED,
    PENDING,
    RUNNING,
    SNAPSHOT,
    ExecutionForked,
    ExecutionResumed,
    ExecutionStarted,
)
from divebook.events.event import to_microseconds
from divebook.questions.bounds import Bounds
from divebook.runtime.clock import Chance, Ids
from divebook.runtime.concurrency import ContinuedAsNew, Suspended, Waits
from divebook.runtime.errors import clean_text
from divebook.runtime.operations import OperationLog, OperationRequest, WhatIfSource
from divebook.stores.append import Durability, ExecutionRecord
from divebook.stores.base import EventStore


class Children:
    """Child executions of one parent execution. Each is started, driven, and recorded with its result as an operation
    of the parent.

    The id of a child is random and recorded before the child starts. The child is therefore started once, even if the
    process dies or the parent gets another id.
    """

    def __init__(self, operations: OperationLog, waits: Waits, chance: Chance) -> None:
        self._operations = operations
        self._waits = waits
        self._ids = Ids(operations.journal.clock, chance)

    async def run(self, place: Place, workflow: str, inputs: Mapping[str, Any], drive: DriveChild) -> Any:
        """Run another workflow as a child execution, and return the result of the child. The child is started only
        once.

        Raises
        ------
        OperationError
            The child did not complete.
        Suspended
            The child waits for something from outside, and nothing else can happen here.
        """
        request = self._request(place, workflow, inputs)
        child_id = request.parameters["signal"]

        async def carry_out(record: OperationRecord | None) -> Any:
            journal = self._operations.journal
            # The share is computed once and recorded with the start. A resumption uses the recorded share, although
            # the remaining budget differs by then.
            if record is None:
                share = reserved_for(share_of(remaining_bounds(journal.state), self._spending_tasks()))
                reserved: Reserved | None = share.plus(self._restored_reservation(place, child_id))
                started_record = self._operations.begin(request, reserved)
            else:
                started_record = record
                reserved = record.reserved
            bounds = bounds_with_reservation(journal.state, reserved)
            child = Child(
                child_id,
                journal.execution_id,
                workflow,
                inputs,
                bounds,
                self._counted_usage(child_id),
                journal.state.model,
            )
            if self._operations.miss_policy is not None:
                child = child._replace(like=self._operations.miss_policy.child_like(request))
            # Durable before the child starts. Otherwise a parent that dies now would start a second child under
            # another id.
            await journal.durable()
            try:
                child_state = await self._run_to_end(place.path, child, drive, is_new=record is None)
            except (DefinitionError, InputError, NotFoundError, SetupError) as error:
                # The child did not start. Without a recorded end its operation would seem to be running, also to a
                # verification (test_a_function_that_fails_is_equal_wherever_it_stands).
                raise self._operations.fail(
                    place, started_record, clean_text(error), names_of(error), raised=error
                ) from error
            except BoundExceededError as error:  # recorded, so that a replay takes the same branch
                raise self._operations.fail(place, started_record, str(error), names_of(error), raised=error) from error
            return self._record_end(place, started_record, child_state)

        return await self._operations.run(request, carry_out)

    def _restored_reservation(self, place: Place, child: str) -> Reserved | None:
        """Return the part of the parent's budget that was reserved for a child when its operation last ended; None if
        nothing was reserved. The same part is reserved again when the parent resumes the child.
        """
        earlier = self._operations.record_of(place, place.operation_id)
        return earlier.reserved if earlier is not None and earlier.signal == child else None

    def _spending_tasks(self) -> int:
        """Return the number of concurrent tasks among which the remaining budget of the parent is shared, at least 1.
        Tasks that wait for a child are not counted, because they spend nothing.

        Dividing by it keeps the sum of the shares of concurrent children within the remaining budget
        (test_children_side_by_side_never_overshoot).
        """
        state = self._operations.journal.state
        strands = sum(self._waits.count(path.id) for path in state.active_paths() if path.phase != JOINING)
        return max(1, strands - len(running_children(state)))

    def _request(self, place: Place, workflow: str, inputs: Mapping[str, Any]) -> OperationRequest:
        """Return the operation request for running a child execution. It contains the id of the child: the recorded id
        if the log has a child at this place, even a failed one; otherwise a new id.
        """
        record = self._operations.known_at(place)
        recorded_id = None if record is None else record.signal
        parameters = {"workflow": workflow, "inputs": inputs, "signal": recorded_id or self._ids.execution()}
        request = OperationRequest.of(place, CHILD_WORKFLOW, parameters)
        # A failed child is resumed under its old id. With other inputs it cannot be resumed, so the request gets a
        # new id.
        if record is None or record.status != PENDING or record.parameters_hash == request.digest:
            return request
        return OperationRequest.of(place, CHILD_WORKFLOW, {**request.parameters, "signal": self._ids.execution()})

    async def _run_to_end(self, path: str, child: Child, drive: DriveChild, *, is_new: bool) -> ExecutionState:
        """Drive a child execution until it has ended, and return its last state. While the child waits, the waiting
        code of the parent may be taken off the engine and kept in memory (parked).

        The process that drives the child to its end sends a signal to the parent.
        """

        # A signal from the child has the id of the child as its name. It only means "look again", and may come more
        # than once.
        def count_signals() -> int:
            return len(self._operations.journal.state.signals.get(child.id, ()))

        signal_count = count_signals()
        state = await drive(child, again=is_new or not signal_count)
        while not state.is_over or _ended_with(child.parent, state):
            # The default argument binds the number of this round; the variable changes in later rounds.
            def is_ready(before: int = signal_count) -> bool:
                return count_signals() > before

            if not state.is_over:
                await self._waits.until(path, is_ready)
            signal_count = count_signals()
            # A child that is over here was cancelled with an earlier end of this execution. The execution was resumed
            # since, and so is the child.
            was_over = state.is_over
            state = await drive(child, again=was_over)
            if was_over and _ended_with(child.parent, state):
                raise Suspended  # another process ended this execution; its next write fails
        return state

    def _record_end(self, place: Place, record: OperationRecord, child: ExecutionState) -> Any:
        """Record the result or error of an ended child, and then return the result or raise the error. The part of the
        child's consumption that the parent has not counted yet is recorded with it.
        """
        usage = self._uncounted_usage(child)
        reservation = reservations_to_restore(child).to_dict() or None
        if child.lifecycle == COMPLETED:
            result = {"execution_id": child.execution_id, "status": child.lifecycle, "outputs": child.outputs}
            self._operations.complete(place, record, result, usage, held=reservation)
            return result
        which = f"child execution {child.execution_id} of {child.workflow_name!r}"
        message = f"{child.error}, in {which}"
        error = ExecutionError(message if child.lifecycle == FAILED else f"{which} is {child.lifecycle}: {child.error}")
        raise self._operations.fail(
            place, record, str(error), names_of(error), usage, held=reservation, final=child.is_final or None
        )

    def _uncounted_usage(self, child: ExecutionState) -> dict[str, int] | None:
        # Example: a child has used 100 tokens, failed, and was resumed up to 160 tokens. The parent has counted 100,
        # so it counts 60 more.
        counted_usage = self._counted_usage(child.execution_id)
        usage = child.usage._replace(requests=child.ledger.llm_calls)
        return (
            Usage(*(max(0, now - before) for now, before in zip(usage, counted_usage, strict=True))).to_dict() or None
        )

    def _counted_usage(self, child: str) -> Usage:
        return self._operations.journal.state.ledger.children.get(child, NO_USAGE)


# --- parents and children in the store -------------------------------------------------------------------------------
#
# A child ends with its parent. When an execution is cancelled or fails, its children are cancelled next, level by
# level. If a process dies in between, it leaves *abandoned* children: they wait or can be resumed, but their parent has
# ended. A process that finds one cancels it instead of driving it (`tests/runtime/test_cancelled_trees.py`).


ENDS = TERMINAL - {MOVED, SNAPSHOT}
"""Final statuses of a parent that end its children. A moved execution or a snapshot continues in another store."""


class Abandoned(NamedTuple):
    """Reference to an execution that has not ended although its parent has. It must be cancelled."""

    id: str
    parent: str
    status: str
    """Status of the parent, or the status it is about to get."""

    @property
    def reason(self) -> str:
        """Text of the reason with which the abandoned execution is cancelled."""
        return orphaned(self.parent, self.status)


def orphaned(parent: str, status: str) -> str:
    """Return the reason with which a child execution is cancelled because its parent has ended. `status` is the status
    with which the parent ended.
    """
    return f"its parent {parent} is {status}"


def children_to_end(
    store: EventStore, execution_id: str, status: str, is_ending: Callable[[str], bool], *, all_levels: bool = False
) -> list[Abandoned]:
    """Return the child executions, and children of these, that must be cancelled or awaited because an execution ends.
    `status` is the status with which it ends.

    These are its children that have not ended, which must be cancelled, and children that have ended but still cancel
    their own children in this process (`is_ending`). For a child that is cancelled or failed already, its own children
    are checked: another process that cancels the same tree may not have reached them yet, or may have died. With
    `all_levels`, those of a completed child are checked as well: its process may have died before it cancelled the
    children that its code had abandoned.
    """
    below: list[Abandoned] = []
    for record in store.records(parent=execution_id, origin=CHILD):
        if record.status not in TERMINAL or is_ending(record.execution_id):
            below.append(Abandoned(record.execution_id, execution_id, status))
        elif record.status in (CANCELLED, FAILED) or (all_levels and record.status in ENDS):
            below += children_to_end(store, record.execution_id, record.status, is_ending, all_levels=all_levels)
    return below


def has_ended(store: EventStore, execution_id: str) -> bool:
    """Return whether an execution has one of the final statuses in `ENDS`, so that its children must not continue. It
    is False if the execution is not in the store.
    """
    return any(record.status in ENDS for record in islice(ancestors(store, execution_id), 1))


def ancestors(store: EventStore, execution_id: str) -> Iterator[ExecutionRecord]:
    """Yield the record of an execution, then of its parent, and so on. Stop at an execution that is not in the
    store.
    """
    name: str | None = execution_id
    while name is not None:
        try:
            record = store.record(name)
        except ExecutionNotFoundError:
            return
        yield record
        # Forks and successors have a parent as well, but do not end with it.
        name = record.parent if record.origin == CHILD else None


def abandoned(store: EventStore, execution_id: str) -> list[Abandoned]:
    """Return the execution and its ancestors that must be cancelled, because an ancestor above them has ended. Return
    an empty list if there is none, so that the execution may be resumed.

    The list starts with the execution and its parent, and ends with the execution whose own parent has ended.
    """
    line: list[ExecutionRecord] = []
    for record in ancestors(store, execution_id):
        if line and record.status in ENDS and not _was_resumed_alone(store, line[-1], record):
            # The others are cancelled because the one above each is cancelled.
            below = [Abandoned(child.execution_id, child.parent or "", CANCELLED) for child in line[:-1]]
            return [*below, Abandoned(line[-1].execution_id, record.execution_id, record.status)]
        # The execution itself has ended, or its ended ancestor does not end it: the ancestor has moved, or a person
        # has resumed the child by itself.
        if record.status in TERMINAL:
            return []
        line.append(record)
    return []


def all_abandoned(store: EventStore) -> list[ExecutionRecord]:
    """Return all child executions of a store that have not ended although their parent, or an execution above the
    parent, has. The newest comes first.
    """
    records = store.unended()
    ids = {record.execution_id for record in records}
    children = [record for record in records if record.origin == CHILD]
    names = {
        record.execution_id for record in children if record.parent not in ids and abandoned(store, record.execution_id)
    }
    for record in reversed(children):  # parents are older than their children
        if record.parent in names:
            names.add(record.execution_id)
    return [record for record in children if record.execution_id in names]


def _was_resumed_alone(store: EventStore, child: ExecutionRecord, parent: ExecutionRecord) -> bool:
    """Return whether a child execution may continue although its parent has ended, because a person has resumed the
    child by itself after both had ended.
    """
    if parent.ended_at is None:
        return False
    try:
        resumption_times = [
            event.recorded_at
            for event in store.read(child.execution_id)
            if isinstance(event.data, ExecutionResumed) and event.data.previous_status in TERMINAL
        ]
    except (CorruptStoreError, DecryptionError):
        return False  # one unreadable log must not hide the other executions; whoever recovers it gets the error
    return bool(resumption_times) and resumption_times[-1] >= to_microseconds(parent.ended_at)


Opened: TypeAlias = tuple[Workflow, ExecutionStarted | ExecutionForked, Durability | None]
"""Workflow, first event and durability of a new execution."""
Opening: TypeAlias = Callable[[], Opened]


class Child(NamedTuple):
    """Request to start or resume another workflow as a child execution, or to start it as the successor of an
    execution.
    """

    id: str
    parent: str
    """Id of the parent."""
    workflow: str
    inputs: Mapping[str, Any]
    bounds: Bounds
    """The share of the parent's bounds."""
    counted: Usage = NO_USAGE
    """Consumption that the parent has counted already, for a child that is resumed."""
    model: str | None = None
    """Model that replaces the models of all agents, taken from the parent."""
    variables: Mapping[str, Any] = EMPTY
    """Initial variables of a successor."""
    like: WhatIfSource | None = None
    """Source execution, if the child is a what-if."""

    def resumed(self, workflow: Workflow, state: ExecutionState) -> ExecutionResumed:
        """Return the event that resumes this child execution. If the child had ended, the event gives it new bounds
        from the budget that its parent has left now.
        """
        if not state.is_over:
            return ExecutionResumed(state.status)
        bounds_of_child = Bounds.from_dict(workflow.bounds or {})
        bounds = bounds_for_resumption(state, bounds_of_child, self.bounds, self.counted)
        return ExecutionResumed(state.status, None if bounds == state.bounds else bounds.to_dict())


BeginSuccessor: TypeAlias = Callable[[Child], Awaitable[str]]
"""Start the successor of an execution once, and return its id."""


def successor_of(state: ExecutionState, workflow: str, inputs: Mapping[str, Any]) -> Child:
    """Return the request for the successor of an execution. The successor gets the variables and the remaining budget
    of the execution.

    Raises StepError if a parent waits for the execution.
    """
    if state.parent is not None:
        raise StepError(
            f"execution {state.execution_id} cannot continue as a new one, because its parent {state.parent} waits for "
            "its end; do that in a workflow that is not a child"
        )
    remaining = remaining_bounds(state)
    variables = dict(state.variables)
    return Child("", state.execution_id, workflow, inputs, remaining, model=state.model, variables=variables)


async def continue_as_successor(
    operation: Callable[..., Awaitable[Any]],
    successor: Child,
    reason: str,
    begin: BeginSuccessor,
    other_paths: Callable[[], int],
) -> NoReturn:
    """Start the successor of an execution as a recorded operation, then raise `ContinuedAsNew`, with which the
    execution ends.

    The operation fails, also recorded, while `other_paths`, the number of other active paths, is not 0.
    """

    async def start_child() -> str:
        # Checked when the operation runs, because other paths may end before it.
        if other_paths():
            raise StepError(
                "the execution cannot continue as a new one while other paths are running; join them before this step"
            )
        return await begin(successor)

    parameters = {"inputs": successor.inputs, "reason": reason}
    successor_id = await operation(CONTINUE_AS_NEW, parameters, start_child, key="continue-as-new", repeatable=True)
    raise ContinuedAsNew(successor_id, reason, successor.inputs)


def _ended_with(parent: str, child: ExecutionState) -> bool:
    """Return whether a child execution was cancelled only because its parent had ended. Such a child is resumed
    together with the parent.

    The notice of that end can be late, if the store is slow or another process sends it.
    """
    return child.lifecycle == CANCELLED and child.error in {orphaned(parent, status) for status in (FAILED, CANCELLED)}


class DriveChild(Protocol):
    """Protocol of the function that starts or resumes a child execution. It returns the state of the child once the
    child has ended, or waits without being driven (is parked).
    """

    async def __call__(self, child: Child, *, again: bool) -> ExecutionState:
        """Start or resume the child execution. With `again`, resume it even if it failed or was cancelled."""


def running_children(state: ExecutionState, paths: Iterable[PathState] | None = None) -> dict[str, OperationRecord]:
    """Return the running operations of an execution that wait for a child execution, by the id of the child. With
    `paths`, only those of these paths: a cancelled path waits for its children no more.
    """
    open_steps = [path.open for path in (state.paths.values() if paths is None else paths) if path.open is not None]
    records = [record for step in open_steps for record in step.operations.values()]
    return {
        record.signal: record
        for record in records
        if record.operation_type == CHILD_WORKFLOW and record.status == RUNNING and record.signal is not None
    }


def children_to_continue(store: EventStore, state: ExecutionState) -> list[str]:
    """Return the ids of the children for which an execution waits although they need its work: it must start them, or
    they have ended and it must record their end.

    The log of the parent has neither. A child that kills its process before its first events are written does not
    exist, and its parent starts it again each time (`its_child_dies_at_once` in tests/queues/deaths.py).
    """
    records = {child: next(ancestors(store, child), None) for child in running_children(state)}
    return [child for child, record in records.items() if record is None or record.status in ENDS]


def workflows_to_begin(state: ExecutionState, store: EventStore) -> Iterator[str]:
    """Yield the names of the workflows that an execution will start as child executions when it is resumed: it has
    requested them, but they have not started yet. A rollback starts none.
    """
    if state.rolling_back is not None:
        return
    for child, record in running_children(state).items():
        try:
            store.record(child)
        except ExecutionNotFoundError:
            # The state has only the hash of the parameters. The start event has the name of the workflow.
            (event,) = store.read(state.execution_id, record.started_sequence - 1, 1)
            name = operation_name(CHILD_WORKFLOW, getattr(event.data, "parameters", None))
            if name is not None:
                yield name
