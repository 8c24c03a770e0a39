"""How paths begin, split up, meet and end."""

from __future__ import annotations

from typing import Any

from immutables import Map

from divebook.engine.changes import Changes, Draft, Happening, is_sleeping, path_of, put
from divebook.engine.ledger import Ledger
from divebook.engine.places import moved
from divebook.engine.state import (
    BRANCHED,
    CANCELLED,
    COMPLETED,
    EMPTY,
    ENDED,
    FAILED,
    JOINED,
    JOINING,
    NO_PLACES,
    RUNNING,
    OpenStep,
    PathState,
)
from divebook.events import catalog


def path_started(state: Draft, event: Happening, data: catalog.PathStarted) -> Changes:
    """Begin a path."""
    path = state.paths.get(event.path) or PathState(event.path, number=0, current_step=data.current_step)
    changes = put(state, path, status=RUNNING, started_us=event.recorded_at)
    return changes if event.path in state.paths else {**changes, "active": state.active + 1}


def path_branched(state: Draft, event: Happening, data: catalog.PathBranched) -> Changes:
    """Split a path up; its children know what it has been through."""
    parent = path_of(state, event)
    paths, branches = state.paths, state.branches
    entered = Map({step: parent.entries(step) for step in {*parent.visits, *parent.before}})
    for new_path in data.new_paths:
        branches += 1
        child = PathState(
            new_path["id"],
            number=branches,
            current_step=new_path["current_step"],
            parent=parent.id,
            came_from=parent.current_step,
            before=entered,
            repeats=parent.repeats,
        )
        paths = paths.set(child.id, child)
    count = len(data.new_paths)
    split = parent.changed({"phase": BRANCHED, "children": parent.children + count})
    return {"paths": paths.set(parent.id, split), "branches": branches, "active": state.active + count}


def path_waiting(state: Draft, event: Happening, data: catalog.PathWaiting) -> Changes:
    """Let a path wait at a join."""
    path = path_of(state, event)
    changes = put(state, path, phase=JOINING, current_step=data.join_step, routing=())
    return {**changes, "joining": state.joining + 1}


def path_joined(state: Draft, event: Happening, data: catalog.PathJoined) -> Changes:
    """Let a path go on with what those that it waited for put out."""
    path = path_of(state, event)
    outputs, places = path.step_outputs, path.outputs_at
    for other in map(state.paths.__getitem__, data.joined):
        outputs = outputs.update(other.step_outputs)
        places = moved(places, other.outputs_at, other.step_outputs)
    read = {"variables": state.variables, "variables_at": state.variables_at}
    changes = put(state, path, phase=JOINED, step_outputs=outputs, outputs_at=places, **read)
    return {**changes, "joining": state.joining - 1}


def _path_ended(state: Draft, event: Happening, status: str, error: str | None = None, **at_last: Any) -> Changes:
    path = path_of(state, event)
    at_last.setdefault("open", _letting_go(path.open))
    changes: Changes = {
        "ledger": _without(state, path, error or status, event.recorded_at),
        "active": state.active - 1,
        "joining": state.joining - (path.phase == JOINING),
        "sleeping": state.sleeping - is_sleeping(path),
        "asking": state.asking - (path.asking > 0),
    }
    return changes | put(
        state,
        path,
        status=status,
        phase=ENDED,
        left=path.phase,
        error=error,
        ended_us=event.recorded_at,
        hop=None,
        **at_last,
    )


def _without(state: Draft, path: PathState, why: str, at: int) -> Ledger:
    """Return the ledger once a path has ended: it holds nothing back any more, and is in no agent step."""
    ledger = state.ledger
    if path.hop is not None:
        ledger = ledger.with_hop(path.hop, status="error", error=why, ended_us=at)
    for record in path.open.operations.values() if path.open is not None else ():
        ledger = ledger.holding(record.reserved, -1)
    return ledger


def _letting_go(opened: OpenStep | None) -> OpenStep | None:
    """Return a step whose calls hold nothing of the bounds any more."""
    if opened is None or all(record.reserved is None for record in opened.operations.values()):
        return opened
    records = {key: record._replace(reserved=None) for key, record in opened.operations.items()}
    return opened._replace(operations=Map(records))


def path_completed(state: Draft, event: Happening, data: catalog.PathCompleted) -> Changes:
    """End a path in good order."""
    nothing: Changes = {"open": None, "variables": EMPTY, "variables_at": NO_PLACES}
    return _path_ended(state, event, COMPLETED, current_step=data.final_step, **nothing)


def path_failed(state: Draft, event: Happening, data: catalog.PathFailed) -> Changes:
    """End a path that has failed; the first one is remembered."""
    ended = _path_ended(state, event, FAILED, data.error, reason=data.reason)
    return {**ended, "failed_path": state.failed_path or event.path}


def path_cancelled(state: Draft, event: Happening, data: catalog.PathCancelled) -> Changes:
    """End a path that was stopped."""
    return _path_ended(state, event, CANCELLED, data.reason or None)
