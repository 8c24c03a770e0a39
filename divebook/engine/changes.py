"""What the functions that change the state share: finding what an event is about, and saying what differs."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from divebook.engine.operations import CHILD_WORKFLOW, SIGNAL_WAIT, TIMER
from divebook.engine.state import RUNNING, ExecutionState, OpenStep, PathState
from divebook.errors import CorruptStoreError
from divebook.events.catalog import Payload

Changes: TypeAlias = dict[str, Any]
"""Fields of the next `ExecutionState` that differ from the present one."""

SLEEPS = (TIMER, SIGNAL_WAIT, CHILD_WORKFLOW)
"""Operations in which nothing happens."""

_new, _set = object.__new__, object.__setattr__
_NO = False


class Happening(Protocol):
    """Where and when something happened: what a change asks of an event beside its payload."""

    @property
    def sequence(self) -> int:
        """Of the event."""

    @property
    def recorded_at(self) -> int:
        """Microseconds since 1970."""

    @property
    def path(self) -> str:
        """Id of the path."""

    @property
    def step(self) -> str:
        """Name of the step."""

    @property
    def event_type(self) -> str:
        """Name of the payload's type."""

    @property
    def data(self) -> Payload:
        """The payload."""


class Draft(ExecutionState):
    """A state on its way over several events: what was copied for one of them is changed in place by the next.

    Nobody else has it, nor the paths in `fresh`, before it is `sealed`
    (test_events_that_are_folded_together_change_the_state_as_one_by_one).
    """

    __slots__ = ("ends_step", "fresh")
    fresh: dict[str, PathState]
    """The paths that have been copied, by id."""
    ends_step: bool
    """Whether the step that is open is over once the present record is folded, so that nobody asks what is in it."""

    @classmethod
    def of(cls, state: ExecutionState) -> Draft:
        """Begin from a state."""
        draft = _new(cls)
        _set(draft, "__dict__", {**state.__dict__})
        _set(draft, "fresh", {})
        _set(draft, "ends_step", _NO)
        return draft

    def let_end(self, *, ends_step: bool) -> None:
        """Say whether the next events end the step that is open."""
        _set(self, "ends_step", ends_step)

    def sealed(self) -> ExecutionState:
        """Return the state it has come to; the draft must not be used any more."""
        state = _new(ExecutionState)
        _set(state, "__dict__", self.__dict__)
        return state


def path_of(state: ExecutionState, event: Happening) -> PathState:
    """Return the path that an event is on."""
    path = state.paths.get(event.path)
    if path is None:
        raise CorruptStoreError(
            f"event {event.sequence} ({event.event_type}) of {state.execution_id} is on path {event.path!r}, "
            "which never began"
        )
    return path


def open_step_of(state: ExecutionState, event: Happening) -> tuple[PathState, OpenStep]:
    """Return the path and the open step that an event is in."""
    path = path_of(state, event)
    if path.open is None:
        raise CorruptStoreError(
            f"event {event.sequence} ({event.event_type}) of {state.execution_id} is outside any step "
            f"of path {event.path!r}"
        )
    return path, path.open


def put(draft: Draft, path: PathState, **changes: Any) -> Changes:
    """Change a path; return what that changes in the whole. What is asked of the path before the change comes first."""
    if draft.fresh.get(path.id) is path:
        path.__dict__.update(changes)
        return {}
    copy = draft.fresh[path.id] = path.changed(changes)
    return {"paths": draft.paths.set(path.id, copy)}


def is_sleeping(path: PathState) -> bool:
    """Return whether a path waits for time to pass, or for a signal."""
    return path.open is not None and sleeps(path.open)


def sleeps(opened: OpenStep) -> bool:
    """Return whether an operation in which nothing happens runs in a step."""
    records = opened.operations.values()
    return any(record.operation_type in SLEEPS and record.status == RUNNING for record in records)
