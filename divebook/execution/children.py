"""Executions that other executions started: begun once, resumed with their parent, which gets their result.

A child is an execution with a log of its own, and its id derives from its place in the parent: whichever process takes
the parent up, and wherever it died, finds the child that was begun and begins no second one
(test_wherever_the_parent_died_the_child_is_started_once in `tests/execution/test_children.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

from divebook.bounds import Bounds
from divebook.engine.bounds import given_again, given_with, left_of, reserved_for, share_of
from divebook.engine.operations import CHILD_WORKFLOW, CONTINUE_AS_NEW, Place, Reserved, operation_name
from divebook.engine.paths import held_by
from divebook.engine.records import EMPTY, NO_USAGE, OperationRecord, Usage
from divebook.engine.retries import names_of
from divebook.engine.state import CANCELLED, COMPLETED, FAILED, JOINING, PENDING, RUNNING, ExecutionState
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
from divebook.events.catalog import ExecutionForked, ExecutionResumed, ExecutionStarted
from divebook.execution.beyond import Likeness
from divebook.execution.clock import Chance, Ids
from divebook.execution.error_texts import clean_text
from divebook.execution.families import orphaned
from divebook.execution.once import Once
from divebook.execution.strands import GoesOnElsewhere, Suspended
from divebook.execution.waits import Waits
from divebook.execution.wanted import Wanted
from divebook.store.base import EventStore
from divebook.store.durability import Durability
from divebook.workflow.definition import Workflow

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
    like: Likeness | None = None
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

    def __init__(self, once: Once, waits: Waits, chance: Chance) -> None:
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

    def _wanted(self, place: Place, workflow: str, inputs: Mapping[str, Any]) -> Wanted:
        """Return the operation with the id of its child: the recorded one, also of a child that failed."""
        record = self._once.known_at(place)
        known = None if record is None else record.signal
        asked = {"workflow": workflow, "inputs": inputs, "signal": known or self._ids.execution()}
        wanted = Wanted.of(place, CHILD_WORKFLOW, asked)
        if record is None or record.status != PENDING or record.parameters_hash == wanted.digest:
            return wanted
        return Wanted.of(place, CHILD_WORKFLOW, {**wanted.parameters, "signal": self._ids.execution()})

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
