"""Executions that other executions started: begun once, resumed with their parent, which gets their result.

A child is an execution with a log of its own, and its id derives from its place in the parent: whichever process takes
the parent up, and wherever it died, finds the child that was begun and begins no second one
(test_wherever_the_parent_died_the_child_is_started_once in `tests/execution/test_children.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

from divebook.engine.bounds import given_again, given_with, left_of, reserved_for, share_of
from divebook.engine.changes import held_by
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.operations import CHILD_WORKFLOW, CONTINUE_AS_NEW, Place, Reserved, operation_name
from divebook.engine.retries import names_of
from divebook.engine.state import EMPTY, JOINING, NO_USAGE, ExecutionState, OperationRecord, Usage
from divebook.errors import (
    BoundExceededError,
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
    PICTURE,
    RUNNING,
    ExecutionForked,
    ExecutionResumed,
    ExecutionStarted,
)
from divebook.events.event import to_microseconds
from divebook.questions.bounds import Bounds
from divebook.runtime.clock import Chance, Ids
from divebook.runtime.concurrency import GoesOnElsewhere, Suspended, Waits
from divebook.runtime.errors import clean_text
from divebook.runtime.operations import OperationLog, OperationRequest, WhatIfSource
from divebook.store.append import Durability, ExecutionRecord
from divebook.store.base import EventStore
from divebook.workflow.definition import Workflow

# Parents and children among the executions of a store, as their rows have them.
#
# A child ends with its parent. Who cancels an execution, or has it fail, cancels its children next, one level after the
# other. A process that dies in between leaves children whose parent has ended, which wait or can be resumed: they are
# *abandoned*. Whoever takes one up cancels it, and makes no call of it
# (`tests/execution/test_cancelled_trees.py`).


ENDS = TERMINAL - {MOVED, PICTURE}
"""The statuses of a parent that nothing waits in: one that has moved, or is a snapshot, continues in another store."""


class Abandoned(NamedTuple):
    """An execution that has not ended, although its parent has."""

    id: str
    parent: str
    status: str
    """That of its parent, or the one that its parent is about to have."""

    @property
    def reason(self) -> str:
        """Why it is cancelled."""
        return orphaned(self.parent, self.status)


def orphaned(parent: str, status: str) -> str:
    """Return why an execution is cancelled whose parent has ended."""
    return f"its parent {parent} is {status}"


def children_to_end(store: EventStore, execution_id: str, status: str) -> list[Abandoned]:
    """Return what is to be cancelled below an execution that ends as `status`: its children that have not ended.

    Of a child that was cancelled already, or has failed, its own children: another process that does the same may not
    have come to them yet, or may have died.
    """
    below: list[Abandoned] = []
    for record in store.records(parent=execution_id, origin=CHILD):
        if record.status not in TERMINAL:
            below.append(Abandoned(record.execution_id, execution_id, status))
        elif record.status in (CANCELLED, FAILED):
            below += children_to_end(store, record.execution_id, record.status)
    return below


def has_ended(store: EventStore, execution_id: str) -> bool:
    """Return whether an execution has ended, so that nothing that it started continues."""
    return any(record.status in ENDS for record in islice(ancestors(store, execution_id), 1))


def ancestors(store: EventStore, execution_id: str) -> Iterator[ExecutionRecord]:
    """Give the row of an execution, then that of its parent, and so on; one that the store lacks ends the line."""
    name: str | None = execution_id
    while name is not None:
        try:
            record = store.record(name)
        except ExecutionNotFoundError:
            return
        yield record
        name = record.parent if record.origin == CHILD else None


def abandoned(store: EventStore, execution_id: str) -> list[Abandoned]:
    """Return what is to be cancelled instead of resuming an execution; nothing if that may continue.

    The execution comes first, then its parent, as far up as one of them has a parent that has ended.
    """
    line: list[ExecutionRecord] = []
    for record in ancestors(store, execution_id):
        if line and record.status in ENDS and not _was_resumed_apart(store, line[-1], record):
            # The parent of all but the last one is about to be cancelled.
            below = [Abandoned(child.execution_id, child.parent or "", CANCELLED) for child in line[:-1]]
            return [*below, Abandoned(line[-1].execution_id, record.execution_id, record.status)]
        if record.status in TERMINAL:
            return []
        line.append(record)
    return []


def all_abandoned(store: EventStore) -> list[ExecutionRecord]:
    """Return the executions that have not ended although an execution above them has, newest first."""
    unended = store.unended()
    ids = {record.execution_id for record in unended}
    children = [record for record in unended if record.origin == CHILD]
    names = {
        record.execution_id for record in children if record.parent not in ids and abandoned(store, record.execution_id)
    }
    for record in reversed(children):  # a parent is older than its children
        if record.parent in names:
            names.add(record.execution_id)
    return [record for record in children if record.execution_id in names]


def _was_resumed_apart(store: EventStore, child: ExecutionRecord, parent: ExecutionRecord) -> bool:
    """Return whether a person has resumed a child by itself, after it had ended with its parent."""
    if parent.ended_at is None:
        return False
    resumed = [
        event.recorded_at
        for event in store.read(child.execution_id)
        if isinstance(event.data, ExecutionResumed) and event.data.previous_status in TERMINAL
    ]
    return bool(resumed) and resumed[-1] >= to_microseconds(parent.ended_at)


Opened: TypeAlias = tuple[Workflow, ExecutionStarted | ExecutionForked, Durability | None]
"""What an execution begins with."""
Opening: TypeAlias = Callable[[], Opened]


class Child(NamedTuple):
    """What a step asks for when it runs another workflow."""

    id: str
    parent: str
    """Id of the execution that asks."""
    workflow: str
    inputs: Mapping[str, Any]
    bounds: Bounds
    """What is left of the parent's."""
    counted: Usage = NO_USAGE
    """What it has consumed before, where it is resumed: that is spent of the parent's already."""
    model: str | None = None
    """The model of all agents, in place of theirs, as the parent has it."""
    variables: Mapping[str, Any] = EMPTY
    """What one begins with that goes on where its parent leaves."""
    like: WhatIfSource | None = None
    """The execution that it is a what-if of."""

    def resumed(self, workflow: Workflow, state: ExecutionState) -> ExecutionResumed:
        """Return what to record when it is resumed: one that has ended may spend what its parent has left now."""
        if not state.is_over:
            return ExecutionResumed(state.status)
        own = Bounds.from_dict(workflow.bounds or {})
        bounds = given_again(state, own, self.bounds, self.counted)
        return ExecutionResumed(state.status, None if bounds == state.bounds else bounds.to_dict())


BeginSuccessor: TypeAlias = Callable[[Child], Awaitable[str]]
"""Starts the execution as which another one goes on, once; returns its id."""


def successor_of(state: ExecutionState, workflow: str, inputs: Mapping[str, Any]) -> Child:
    """Return the execution as which another one is to go on; raises StepError if an execution waits for that one."""
    if state.parent is not None:
        raise StepError(
            f"execution {state.execution_id} cannot go on as a new one, since {state.parent} waits for its end; "
            "let the workflow that is started from outside do so"
        )
    left, variables = left_of(state), dict(state.variables)
    return Child("", state.execution_id, workflow, inputs, left, model=state.model, variables=variables)


async def succeeded_by(
    operation: Callable[..., Awaitable[Any]],
    successor: Child,
    reason: str,
    begin: BeginSuccessor,
    others: Callable[[], int],
) -> NoReturn:
    """Start the execution as which another one goes on, recorded in that one, which is left.

    It fails, recorded as well, while `others`, the number of other paths that are on their way, is not 0.
    """

    async def start() -> str:
        if others():
            raise StepError(
                "the execution cannot go on as a new one while other paths are on their way; join them before this step"
            )
        return await begin(successor)

    asked = {"inputs": successor.inputs, "reason": reason}
    started = await operation(CONTINUE_AS_NEW, asked, start, key="continue-as-new", repeatable=True)
    raise GoesOnElsewhere(started, reason, successor.inputs)


def _ended_with(parent: str, child: ExecutionState) -> bool:
    """Return whether a child was cancelled since its parent had ended: one that goes on again resumes it.

    Word of that end may come late, over a slow store or from another process.
    """
    return child.lifecycle == CANCELLED and child.error in {orphaned(parent, status) for status in (FAILED, CANCELLED)}


class DriveChild(Protocol):
    """Begins a child, or resumes it; returns its state once it has ended, or rests."""

    async def __call__(self, child: Child, *, again: bool) -> ExecutionState:
        """Do so; `again`: also where it has failed or was cancelled."""


def running_children(state: ExecutionState) -> dict[str, OperationRecord]:
    """Return the executions whose end an execution waits for, or waited for when it ended, by id."""
    opened = [path.open for path in state.paths.values() if path.open is not None]
    records = [record for found in opened for record in found.operations.values()]
    return {
        record.signal: record
        for record in records
        if record.operation_type == CHILD_WORKFLOW and record.status == RUNNING and record.signal is not None
    }


def workflows_to_begin(state: ExecutionState, store: EventStore) -> Iterator[str]:
    """Give the names of the workflows that an execution has asked for and whose executions have not begun."""
    for child, record in running_children(state).items():
        try:
            store.record(child)
        except ExecutionNotFoundError:
            (event,) = store.read(state.execution_id, record.started_sequence - 1, 1)
            name = operation_name(CHILD_WORKFLOW, getattr(event.data, "parameters", None))
            if name is not None:
                yield name


class Children:
    """Runs other workflows for one execution.

    The id of a child is new, and recorded before the child begins: so it is started once, whatever becomes of the
    process and of the id of its parent.
    """

    def __init__(self, once: OperationLog, waits: Waits, chance: Chance) -> None:
        self._once, self._waits = once, waits
        self._ids = Ids(once.journal.clock, chance)

    async def run(self, place: Place, workflow: str, inputs: Mapping[str, Any], drive: DriveChild) -> Any:
        """Return what another workflow came to, run as an execution of its own that is started once.

        Raises
        ------
        OperationError
            It did not complete.
        Suspended
            It waits for something from outside, and nothing else can happen here.
        """
        wanted = self._wanted(place, workflow, inputs)
        child_id = wanted.parameters["signal"]

        async def carry_out(record: OperationRecord | None) -> Any:
            journal = self._once.journal
            if record is None:
                share = reserved_for(share_of(left_of(journal.state), self._side_by_side()))
                reserved: Reserved | None = share.plus(self._handed_on(place, child_id))
                begun = self._once.begin(wanted, reserved)
            else:
                begun, reserved = record, record.reserved
            bounds = given_with(journal.state, reserved)
            asked = Child(
                child_id, journal.execution_id, workflow, inputs, bounds, self._counted(child_id), journal.state.model
            )
            if self._once.beyond is not None:
                asked = asked._replace(like=self._once.beyond.child_like(wanted))
            await journal.durable()
            try:
                ended = await self._ended(place.path, asked, drive, is_new=record is None)
            except (DefinitionError, InputError, NotFoundError, SetupError) as error:
                # It did not begin. Without a recorded end the operation would seem to be running still, to a
                # verification as well (test_a_function_that_fails_is_equal_wherever_it_stands).
                raise self._once.fail(place, begun, clean_text(error), names_of(error), raised=error) from error
            except BoundExceededError as error:  # as a recorded failure, so that a replay goes the same way
                raise self._once.fail(place, begun, str(error), names_of(error), raised=error) from error
            return self._taken(place, begun, ended)

        return await self._once.run(wanted, carry_out)

    def _handed_on(self, place: Place, child: str) -> Reserved | None:
        """Return what a child that is resumed had handed on when it ended: that comes back with it."""
        earlier = self._once.record_of(place, place.operation_id)
        return earlier.reserved if earlier is not None and earlier.signal == child else None

    def _side_by_side(self) -> int:
        """Return how many strands may spend of what is left, the present one among them: those without a child.

        So the sum of what children may spend that run at a time is never more than what was left
        (test_children_side_by_side_never_overshoot).
        """
        state = self._once.journal.state
        strands = sum(self._waits.count(path.id) for path in state.active_paths() if path.phase != JOINING)
        return max(1, strands - len(running_children(state)))

    def _wanted(self, place: Place, workflow: str, inputs: Mapping[str, Any]) -> OperationRequest:
        """Return the operation with the id of its child: the recorded one, also of a child that failed."""
        record = self._once.known_at(place)
        known = None if record is None else record.signal
        asked = {"workflow": workflow, "inputs": inputs, "signal": known or self._ids.execution()}
        wanted = OperationRequest.of(place, CHILD_WORKFLOW, asked)
        if record is None or record.status != PENDING or record.parameters_hash == wanted.digest:
            return wanted
        return OperationRequest.of(place, CHILD_WORKFLOW, {**wanted.parameters, "signal": self._ids.execution()})

    async def _ended(self, path: str, asked: Child, drive: DriveChild, *, is_new: bool) -> ExecutionState:
        """Return the last state of a child; the process that drives it to its end sends a signal."""

        def heard() -> int:
            return len(self._once.journal.state.signals.get(asked.id, ()))

        seen = heard()
        child = await drive(asked, again=is_new or not seen)
        while not child.is_over or _ended_with(asked.parent, child):

            def is_ready(before: int = seen) -> bool:
                return heard() > before

            if not child.is_over:
                await self._waits.until(path, is_ready)
            seen = heard()
            was_over = child.is_over
            child = await drive(asked, again=was_over)
            if was_over and _ended_with(asked.parent, child):
                raise Suspended  # another process has ended this execution, which the next event that it writes says
        return child

    def _taken(self, place: Place, record: OperationRecord, child: ExecutionState) -> Any:
        """Record how a child ended, and count what it has consumed since that was last counted."""
        used, held = self._not_counted(child), held_by(child).to_dict() or None
        if child.lifecycle == COMPLETED:
            result = {"execution_id": child.execution_id, "status": child.lifecycle, "outputs": child.outputs}
            self._once.complete(place, record, result, used, held=held)
            return result
        which = f"child execution {child.execution_id} of {child.workflow_name!r}"
        failed = f"{child.error}, in {which}"
        error = ExecutionError(failed if child.lifecycle == FAILED else f"{which} is {child.lifecycle}: {child.error}")
        raise self._once.fail(place, record, str(error), names_of(error), used, held=held, final=child.is_final or None)

    def _not_counted(self, child: ExecutionState) -> dict[str, int] | None:
        counted = self._counted(child.execution_id)
        used = child.usage._replace(requests=child.ledger.llm_calls)
        return Usage(*(max(0, now - before) for now, before in zip(used, counted, strict=True))).to_dict() or None

    def _counted(self, child: str) -> Usage:
        return self._once.journal.state.ledger.children.get(child, NO_USAGE)
