"""Functions that apply events to the mutable copy (draft) of an execution's state. The events are about paths, amounts
reserved from the budget, workspaces, and operations that enclose others.

`engine.evolve` calls them while it folds a log. Each function reads everything that it needs before its first change,
so that an error leaves the draft unchanged.
"""

from __future__ import annotations

from divebook.engine.maps import Map
from divebook.engine.operations import CHILD_WORKFLOW, ENCLOSING, Reserved
from divebook.engine.state import (
    BRANCHED,
    EMPTY,
    ENDED,
    JOINED,
    JOINING,
    NO_PLACES,
    Draft,
    ExecutionState,
    HeldWorkspace,
    Ledger,
    OpenStep,
    OperationRecord,
    PathState,
    is_sleeping,
    with_places,
)
from divebook.events import catalog
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, RUNNING, Payload

# --- paths -----------------------------------------------------------------------------------------------------------


def path_started(draft: Draft, data: catalog.PathStarted) -> None:
    """Apply `path_started`: start the root path, a branch, or a path that runs a rollback."""
    # A branch exists already: `path_branched` has created it. Paths of rollbacks get numbers behind all others, in the
    # order in which they run. With 2 branches and 3 rollbacks: rollback 3 is number 3, rollback 1 is number 5.
    if draft.path_id not in draft.paths:
        undoes = data.rollback
        number = 0 if undoes is None else draft.branches + len(draft.rollbacks) - undoes + 1
        draft.add(PathState(draft.path_id, number=number, current_step=data.current_step, undoes=undoes))
        draft.active += 1
        draft.undone_from = draft.undone_from if undoes is None else undoes
    path = draft.path(data)
    path.status = RUNNING
    path.started_us = draft.moment


def path_branched(draft: Draft, data: catalog.PathBranched) -> None:
    """Apply `path_branched`: create the paths into which a path branches. They inherit its counts of visited steps."""
    parent = draft.path(data)
    # Loops and their bounds count across branches: a branch that enters a step again continues the count.
    visit_counts = Map({step: parent.entries(step) for step in {*parent.visits, *parent.before}})
    for number, new_path in enumerate(data.new_paths, draft.branches + 1):
        child = PathState(
            new_path["id"],
            number=number,
            current_step=new_path["current_step"],
            parent=parent.id,
            came_from=parent.current_step,
            before=visit_counts,
            repeats=parent.repeats,
        )
        draft.add(child)
    count = len(data.new_paths)
    parent.phase = BRANCHED
    parent.children = parent.children + count
    draft.branches = draft.branches + count
    draft.active = draft.active + count


def path_waiting(draft: Draft, data: catalog.PathWaiting) -> None:
    """Apply `path_waiting`: mark a path as waiting at a join."""
    path = draft.path(data)
    path.phase = JOINING
    path.current_step = data.join_step
    path.routing = ()
    draft.joining += 1


def path_joined(draft: Draft, data: catalog.PathJoined) -> None:
    """Apply `path_joined`: release a path from a join. It gets the step outputs of the paths that end at the join."""
    path = draft.path(data)
    outputs = path.step_outputs
    places = path.outputs_at
    for joined_path in map(draft.paths.__getitem__, data.joined):
        outputs = outputs.update(joined_path.step_outputs)
        places = with_places(places, joined_path.outputs_at, joined_path.step_outputs)
    path.phase = JOINED
    path.step_outputs = outputs
    path.outputs_at = places
    # The step with the join reads the variables that all its paths have written.
    path.variables = draft.variables
    path.variables_at = draft.variables_at
    draft.joining -= 1


def _end(draft: Draft, data: Payload, status: str, error: str | None = None) -> PathState:
    """End the path of the current event with a status. The amounts that its calls have reserved from the budget are
    released, and the counts of active and waiting paths are updated. Return the state of the path.
    """
    path = draft.path(data)
    # The counters depend on the phase and the open step, so they are updated before these change.
    draft.ledger = _without(draft, path, error or status)
    draft.active -= 1
    draft.joining -= path.phase == JOINING
    draft.sleeping -= is_sleeping(path)
    draft.asking -= path.asking > 0
    path.left = path.phase
    path.phase = ENDED
    path.status = status
    path.error = error
    path.ended_us = draft.moment
    path.hop = None
    path.open = _without_reservations(path.open)
    return path


def _without(draft: Draft, path: PathState, why: str) -> Ledger:
    """Return the counters of an execution (`Ledger`) after a path has ended. The amounts reserved by calls of its open
    step are removed. If the path was in an agent step, this visit of the step is marked as failed for the reason `why`.
    """
    ledger = draft.ledger
    if path.hop is not None:
        ledger = ledger.with_hop(path.hop, status="error", error=why, ended_us=draft.moment)
    for record in path.open.operations.values() if path.open is not None else ():
        ledger = ledger.holding(record.reserved, -1)
    return ledger


def release_calls(draft: Draft, path: PathState) -> None:
    """Release the parts of the budget that are reserved for model calls in the open step of a path that were cut off.

    These calls have a start and no end in the log: their process died, or the code of their step cancelled them
    (test_a_call_that_was_cut_off_gives_its_reservation_back).
    """
    ledger = draft.ledger
    # Nothing is reserved in the usual case, and the records need not be searched.
    if path.open is None or not (ledger.reserved_tokens or ledger.reserved_cost):
        return
    for record in filter(_is_released, path.open.operations.values()):
        ledger = ledger.holding(record.reserved, -1)
    draft.ledger, path.open = ledger, _without_reservations(path.open)


def held_by_children(state: ExecutionState) -> Reserved:
    """Return the sum of the amounts that an execution has reserved from its budget for its child executions. Amounts
    reserved for running model calls are not included.
    """
    open_steps = [path.open for path in state.paths.values() if path.open is not None and path.phase != ENDED]
    total = Reserved()
    for record in (record for step in open_steps for record in step.operations.values()):
        total = total.plus(_reserved_for_child(record))
    return total


def _without_reservations(open_step: OpenStep | None) -> OpenStep | None:
    """Return an open step in which no budget is reserved for model calls any more. Amounts reserved for child
    executions stay, because a child may continue.
    """
    if open_step is None or not any(map(_is_released, open_step.operations.values())):
        return open_step
    records = {
        key: record._replace(reserved=None) for key, record in open_step.operations.items() if _is_released(record)
    }
    return open_step._replace(operations=open_step.operations.update(records))


def _is_released(record: OperationRecord) -> bool:
    return record.reserved is not None and not _reserved_for_child(record)


def _reserved_for_child(record: OperationRecord) -> Reserved | None:
    return record.reserved if record.operation_type == CHILD_WORKFLOW else None


def with_child_reservations(path: PathState, ledger: Ledger) -> Ledger:
    """Return the counters of an execution (`Ledger`) plus the amounts that an ended path had reserved for child
    executions. The usage of these children is not counted yet, so the amounts are needed again when the path is
    resumed. An active path adds nothing.
    """
    # `_without` has subtracted them when the path ended. The records still have them.
    records = path.open.operations.values() if path.phase == ENDED and path.open is not None else ()
    for record in records:
        ledger = ledger.holding(_reserved_for_child(record))
    return ledger


def reservations_to_restore(state: ExecutionState) -> Reserved:
    """Return the parts of the budget (tokens, cost, model calls) that will be reserved after an execution is resumed.
    These are the amounts reserved now, and those that ended paths had reserved for child executions.
    """
    ledger = state.ledger
    for path in state.paths.values():
        ledger = with_child_reservations(path, ledger)
    return Reserved(ledger.reserved_tokens, ledger.reserved_cost, calls=ledger.reserved_calls)


def path_completed(draft: Draft, data: catalog.PathCompleted) -> None:
    """Apply `path_completed`: end a path successfully."""
    path = _end(draft, data, COMPLETED)
    path.current_step = data.final_step
    path.open = None
    path.variables = EMPTY
    path.variables_at = NO_PLACES


def path_failed(draft: Draft, data: catalog.PathFailed) -> None:
    """Apply `path_failed`: end a path with an error. The state keeps the id of the first path that failed."""
    path = _end(draft, data, FAILED, data.error)
    path.reason = data.reason
    # A failed rollback is not the reason for the failure of the execution.
    if path.undoes is None:
        draft.failed_path = draft.failed_path or path.id


def path_cancelled(draft: Draft, data: catalog.PathCancelled) -> None:
    """Apply `path_cancelled`: end a path that was cancelled."""
    _end(draft, data, CANCELLED, data.reason or None)


def without_a_call(ledger: Ledger, path: PathState) -> Ledger:
    """Return the counters of an execution (`Ledger`) with one model call fewer. The call is not counted, because its
    result came from another log and no model was called.
    """
    ledger = ledger._replace(llm_calls=ledger.llm_calls - 1)
    if path.hop is None:
        return ledger
    return ledger.with_hop(path.hop, llm_calls=ledger.history[path.hop].llm_calls - 1)


# --- workspaces ------------------------------------------------------------------------------------------------------


def workspace_opened(draft: Draft, data: catalog.WorkspaceOpened) -> None:
    """Apply `workspace_opened`: add a workspace with its folder and the digest of its files to the state.

    A fork that creates a folder continues with the files of its source. Its changes still count from the first files of
    the source.
    """
    previous = draft.workspaces.get(data.workspace)
    # `first` is the state that changes are compared with, also after a fork has created another folder.
    first = data.tree if previous is None else previous.first
    at = draft.last_sequence if data.files is not None or previous is None else previous.at
    workspace = HeldWorkspace(data.kind, data.reference, data.source, first, data.tree, at, is_own=bool(data.reference))
    draft.workspaces = draft.workspaces.set(data.workspace, workspace)


def files_changed(draft: Draft, data: catalog.FilesChanged) -> None:
    """Apply `files_changed`: set the digest of the files that a workspace has now. An unknown workspace is ignored."""
    workspace = draft.workspaces.get(data.workspace)
    if workspace is not None:
        draft.workspaces = draft.workspaces.set(
            data.workspace, workspace._replace(tree=data.after, at=draft.last_sequence)
        )


def workspaces_of_source(workspaces: Map[str, HeldWorkspace]) -> Map[str, HeldWorkspace]:
    """Return the workspaces with which a fork starts. They have the same files as the workspaces of its source, but no
    folder yet.
    """
    for name, workspace in workspaces.items():
        workspaces = workspaces.set(name, workspace._replace(is_own=False))
    return workspaces


# --- enclosing operations --------------------------------------------------------------------------------------------
#
# A turn of an agent encloses its requests and tool calls. When it completes, their records are dropped: replay uses the
# result of the turn and requests nothing inside it. If the records stayed, the log would seem to be ahead of the code
# for ever.


def with_enclosing(
    open_step: OpenStep, record: OperationRecord, data: catalog.OperationStarted
) -> tuple[OperationRecord, OpenStep]:
    """Register an operation that starts as part of the operation around it: an agent's turn, for example, encloses its
    tool calls. Return the record of the new operation and the open step, both with this relation.
    """
    earlier = open_step.operations.get(record.operation_id)
    if record.operation_type in ENCLOSING:
        open_step = _with_enclosing_registered(open_step, record, earlier)
    # `data.within` is the number of the start event of the enclosing operation. `holders` leads from it to the id.
    outer = open_step.operations.get(open_step.holders.get(data.within, "")) if data.within is not None else None
    record = record._replace(
        setting_hash=data.setting_hash,
        within=None if outer is None else outer.operation_id,
        # A turn that is entered again keeps the calls that it made before.
        holds=() if earlier is None else earlier.holds,
    )
    if outer is not None and earlier is None:
        open_step = open_step.with_operation(outer._replace(holds=(*outer.holds, record.operation_id)))
    return record, open_step


def _with_enclosing_registered(
    open_step: OpenStep, record: OperationRecord, earlier: OperationRecord | None
) -> OpenStep:
    """Register an operation that encloses others in its open step, under the number of its start event, and return the
    step. If the operation starts a second time, the entry of its first start is replaced.
    """
    holders = open_step.holders if earlier is None else open_step.holders.delete(earlier.started_sequence)
    return open_step._replace(holders=holders.set(record.started_sequence, record.operation_id))


def without_enclosed(open_step: OpenStep, outer: OperationRecord) -> OpenStep:
    """Return an open step after an operation that encloses others has completed. The records of the ended operations
    inside it are removed, and running ones stay.
    """
    operations = open_step.operations
    holders = open_step.holders.delete(outer.started_sequence)
    # Example: a turn holds request 1 and tool call 2, and tool call 2 holds the turn of another agent with request 3.
    # All ended ones go. A running one stays with everything inside it.
    remaining = list(outer.holds)
    while remaining:
        record = operations.get(remaining.pop())
        if record is not None and record.status != RUNNING:
            remaining += record.holds
            operations = operations.delete(record.operation_id)
            if record.started_sequence in holders:
                holders = holders.delete(record.started_sequence)
    return open_step._replace(operations=operations, holders=holders)
