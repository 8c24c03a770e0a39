"""How paths begin, split up, meet and end."""

from __future__ import annotations

from immutables import Map

from divebook.engine.changes import Draft, is_sleeping
from divebook.engine.ledger import Ledger
from divebook.engine.operations import CHILD_WORKFLOW, Reserved
from divebook.engine.places import moved
from divebook.engine.records import EMPTY, NO_PLACES, OpenStep, OperationRecord
from divebook.engine.state import (
    BRANCHED,
    CANCELLED,
    COMPLETED,
    ENDED,
    FAILED,
    JOINED,
    JOINING,
    RUNNING,
    ExecutionState,
    PathState,
)
from divebook.events import catalog
from divebook.events.catalog import Payload


def path_started(draft: Draft, data: catalog.PathStarted) -> None:
    """Begin a path: the first one, one that another has branched into, or one that undoes what others have done."""
    if draft.path_id not in draft.paths:
        undoes = data.rollback
        number = 0 if undoes is None else draft.branches + len(draft.rollbacks) - undoes + 1
        draft.add(PathState(draft.path_id, number=number, current_step=data.current_step, undoes=undoes))
        draft.active += 1
        draft.undone_from = draft.undone_from if undoes is None else undoes
    path = draft.path(data)
    path.status, path.started_us = RUNNING, draft.moment


def path_branched(draft: Draft, data: catalog.PathBranched) -> None:
    """Split a path up; its children know what it has been through."""
    parent = draft.path(data)
    entered = Map({step: parent.entries(step) for step in {*parent.visits, *parent.before}})
    for number, new_path in enumerate(data.new_paths, draft.branches + 1):
        child = PathState(
            new_path["id"],
            number=number,
            current_step=new_path["current_step"],
            parent=parent.id,
            came_from=parent.current_step,
            before=entered,
            repeats=parent.repeats,
        )
        draft.add(child)
    count = len(data.new_paths)
    parent.phase, parent.children = BRANCHED, parent.children + count
    draft.branches, draft.active = draft.branches + count, draft.active + count


def path_waiting(draft: Draft, data: catalog.PathWaiting) -> None:
    """Let a path wait at a join."""
    path = draft.path(data)
    path.phase, path.current_step, path.routing = JOINING, data.join_step, ()
    draft.joining += 1


def path_joined(draft: Draft, data: catalog.PathJoined) -> None:
    """Let a path go on with what those that it waited for put out."""
    path = draft.path(data)
    outputs, places = path.step_outputs, path.outputs_at
    for other in map(draft.paths.__getitem__, data.joined):
        outputs = outputs.update(other.step_outputs)
        places = moved(places, other.outputs_at, other.step_outputs)
    path.phase, path.step_outputs, path.outputs_at = JOINED, outputs, places
    path.variables, path.variables_at = draft.variables, draft.variables_at
    draft.joining -= 1


def _end(draft: Draft, data: Payload, status: str, error: str | None = None) -> PathState:
    """End a path, and return it."""
    path = draft.path(data)
    draft.ledger = _without(draft, path, error or status)
    draft.active -= 1
    draft.joining -= path.phase == JOINING
    draft.sleeping -= is_sleeping(path)
    draft.asking -= path.asking > 0
    path.left, path.phase = path.phase, ENDED
    path.status, path.error, path.ended_us, path.hop = status, error, draft.moment, None
    path.open = _letting_go(path.open)
    return path


def _without(draft: Draft, path: PathState, why: str) -> Ledger:
    """Return the ledger once a path has ended: it holds nothing back any more, and is in no agent step."""
    ledger = draft.ledger
    if path.hop is not None:
        ledger = ledger.with_hop(path.hop, status="error", error=why, ended_us=draft.moment)
    for record in path.open.operations.values() if path.open is not None else ():
        ledger = ledger.holding(record.reserved, -1)
    return ledger


def let_calls_go(draft: Draft, path: PathState) -> None:
    """Release what the model calls of an open step have reserved, since none of them is under way.

    The process that made them has ended, or their step has, whose code had cancelled them: they have no end in the log
    (test_a_call_that_was_cut_off_gives_its_reservation_back).
    """
    ledger = draft.ledger
    if path.open is None or not (ledger.reserved_tokens or ledger.reserved_cost):
        return
    for record in filter(_lets_go, path.open.operations.values()):
        ledger = ledger.holding(record.reserved, -1)
    draft.ledger, path.open = ledger, _letting_go(path.open)


def held_by_children(state: ExecutionState) -> Reserved:
    """Return what the executions hold that an execution has started: all that is held while it calls no model."""
    opened = [path.open for path in state.paths.values() if path.open is not None and path.phase != ENDED]
    held = Reserved()
    for record in (record for step in opened for record in step.operations.values()):
        held = held.plus(_handed_on(record))
    return held


def _letting_go(opened: OpenStep | None) -> OpenStep | None:
    """Return a step whose calls hold nothing of the bounds any more, but for children, which may go on with it."""
    if opened is None or not any(map(_lets_go, opened.operations.values())):
        return opened
    records = {key: record._replace(reserved=None) for key, record in opened.operations.items() if _lets_go(record)}
    return opened._replace(operations=opened.operations.update(records))


def _lets_go(record: OperationRecord) -> bool:
    return record.reserved is not None and not _handed_on(record)


def _handed_on(record: OperationRecord) -> Reserved | None:
    """Return what an execution holds that this one started, or one that was under way as that one ended."""
    return record.reserved if record.operation_type == CHILD_WORKFLOW else None


def with_handed_on(path: PathState, ledger: Ledger) -> Ledger:
    """Return the ledger of a path that had ended with what its children hold: what they spent is not counted yet."""
    records = path.open.operations.values() if path.phase == ENDED and path.open is not None else ()
    for record in records:
        ledger = ledger.holding(_handed_on(record))
    return ledger


def held_by(state: ExecutionState) -> Reserved:
    """Return what an execution that has ended holds if it is resumed."""
    ledger = state.ledger
    for path in state.paths.values():
        ledger = with_handed_on(path, ledger)
    return Reserved(ledger.reserved_tokens, ledger.reserved_cost, calls=ledger.reserved_calls)


def path_completed(draft: Draft, data: catalog.PathCompleted) -> None:
    """End a path in good order."""
    path = _end(draft, data, COMPLETED)
    path.current_step, path.open, path.variables, path.variables_at = data.final_step, None, EMPTY, NO_PLACES


def path_failed(draft: Draft, data: catalog.PathFailed) -> None:
    """End a path that has failed; the first one is remembered."""
    path = _end(draft, data, FAILED, data.error)
    path.reason = data.reason
    if path.undoes is None:
        draft.failed_path = draft.failed_path or path.id


def path_cancelled(draft: Draft, data: catalog.PathCancelled) -> None:
    """End a path that was stopped."""
    _end(draft, data, CANCELLED, data.reason or None)
