"""What the functions that change the state share: finding what an event is about, and saying what differs."""

from __future__ import annotations

from typing import Any, TypeAlias

from divebook.engine.operations import CHILD_WORKFLOW, SIGNAL_WAIT, TIMER
from divebook.engine.state import RUNNING, ExecutionState, OpenStep, PathState
from divebook.errors import CorruptStoreError
from divebook.events.event import Event

Changes: TypeAlias = dict[str, Any]
"""Fields of the next `ExecutionState` that differ from the present one."""

SLEEPS = (TIMER, SIGNAL_WAIT, CHILD_WORKFLOW)
"""Operations in which nothing happens."""


def path_of(state: ExecutionState, event: Event) -> PathState:
    """Return the path that an event is on."""
    path = state.paths.get(event.path)
    if path is None:
        raise CorruptStoreError(
            f"event {event.sequence} ({event.event_type}) of {state.execution_id} is on path {event.path!r}, "
            "which never began"
        )
    return path


def open_step_of(state: ExecutionState, event: Event) -> tuple[PathState, OpenStep]:
    """Return the path and the open step that an event is in."""
    path = path_of(state, event)
    if path.open is None:
        raise CorruptStoreError(
            f"event {event.sequence} ({event.event_type}) of {state.execution_id} is outside any step "
            f"of path {event.path!r}"
        )
    return path, path.open


def put(state: ExecutionState, path: PathState, **changes: Any) -> Changes:
    """Return what a changed path changes in the whole."""
    return {"paths": state.paths.set(path.id, path.changed(changes))}


def is_sleeping(path: PathState) -> bool:
    """Return whether a path waits for time to pass, or for a signal."""
    return path.open is not None and sleeps(path.open)


def sleeps(opened: OpenStep) -> bool:
    """Return whether an operation in which nothing happens runs in a step."""
    records = opened.operations.values()
    return any(record.operation_type in SLEEPS and record.status == RUNNING for record in records)
