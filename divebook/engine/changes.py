"""A state on its way over some events, and what the functions that change it share."""

from __future__ import annotations

from collections.abc import Sequence

from divebook.engine.operations import CHILD_WORKFLOW, SIGNAL_WAIT, TIMER
from divebook.engine.records import OpenStep
from divebook.engine.state import RUNNING, ExecutionState, PathState
from divebook.errors import CorruptStoreError
from divebook.events.catalog import PathCompleted, Payload, StepCompleted
from divebook.events.event import Event
from divebook.events.record import Record

SLEEPS = frozenset({TIMER, SIGNAL_WAIT, CHILD_WORKFLOW})
"""Operations in which nothing happens."""

_ENDS_OF_STEPS = frozenset({StepCompleted, PathCompleted})

_new, _set = object.__new__, object.__setattr__


class _Own(PathState):
    """A path that a draft has copied, and may change."""

    # Both of them: with one alone Python looks for them at each assignment, which takes eight times as long.
    __setattr__, __delattr__ = object.__setattr__, object.__delattr__


class Draft(ExecutionState):
    """A state on its way over several events: what was copied for one of them is changed in place by the next.

    Nobody else has it, nor the paths that it has copied, before it is `sealed`
    (test_events_that_are_folded_together_change_the_state_as_one_by_one). A function that changes it asks first for all
    that it needs to know of it, and changes it then.
    """

    __slots__ = ("_facts", "_own", "_present", "moment", "path_id", "step")
    __setattr__, __delattr__ = object.__setattr__, object.__delattr__

    _facts: Sequence[Payload]
    _own: dict[str, PathState]
    """The paths that it has copied, by id."""
    _present: PathState | None
    """The one of them that the present event is on."""
    moment: int
    """When the present event was recorded; `last_us` is when the one before was."""
    path_id: str
    step: str
    """Where the present event is."""

    def __init__(self, state: ExecutionState) -> None:
        self.__dict__ = state.__dict__.copy()
        self._own, self._present, self.path_id = {}, None, ""

    def go_to(self, entry: Event | Record, facts: Sequence[Payload]) -> None:
        """Come to facts that were recorded together."""
        self.step, self.moment, self._facts = entry.step, entry.recorded_at, facts
        if entry.path != self.path_id:
            self.path_id = entry.path
            self._present = self._own.get(entry.path)

    @property
    def ends_step(self) -> bool:
        """Whether the step that is open is over once the present facts are folded: nobody asks what is in it then."""
        return type(self._facts[-1]) in _ENDS_OF_STEPS

    def path(self, data: Payload) -> PathState:
        """Return the path that the present event is on, to be changed."""
        path = self._present
        if path is None:
            if self.path_id not in self.paths:
                raise CorruptStoreError(f"{self._event(data)} is on path {self.path_id!r}, which never began")
            path = self._present = self.own(self.path_id)
        return path

    def open_step(self, data: Payload) -> tuple[PathState, OpenStep]:
        """Return the path that the present event is on, to be changed, and the open step that it is in."""
        path = self._present or self.path(data)
        opened = path.open
        if opened is None:
            raise CorruptStoreError(f"{self._event(data)} is outside any step of path {self.path_id!r}")
        return path, opened

    def _event(self, data: Payload) -> str:
        return f"event {self.last_sequence} ({data.event_type}) of {self.execution_id}"

    def own(self, path_id: str) -> PathState:
        """Return a path, to be changed; KeyError if there is none."""
        path = self._own.get(path_id)
        if path is None:
            path = self._own[path_id] = _new(_Own)
            path.__dict__ = self.paths[path_id].__dict__.copy()
            self.paths = self.paths.set(path_id, path)
        return path

    def add(self, path: PathState) -> None:
        """Take in a path, in place of the one with its id if there is one."""
        self._own.pop(path.id, None)
        self._present = None
        self.paths = self.paths.set(path.id, path)

    def sealed(self) -> ExecutionState:
        """Return the state it has come to; the draft must not be used any more."""
        for path in self._own.values():
            _set(path, "__class__", PathState)
        state = _new(ExecutionState)
        _set(state, "__dict__", self.__dict__)
        return state


def is_sleeping(path: PathState) -> bool:
    """Return whether a path waits for time to pass, or for a signal."""
    return path.open is not None and sleeps(path.open)


def sleeps(opened: OpenStep) -> bool:
    """Return whether an operation in which nothing happens runs in a step."""
    records = opened.operations.values()
    return any(record.operation_type in SLEEPS and record.status == RUNNING for record in records)
