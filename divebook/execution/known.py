"""What this process knows of an execution: what its log says, read when somebody asks, and the newest state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from divebook.engine.state import ExecutionState
from divebook.errors import StoreError
from divebook.execution.belonging import Belonging
from divebook.workflow.definition import Workflow


@dataclass(frozen=True, slots=True)
class Past:
    """What the log of an execution says."""

    workflow: Workflow
    state: ExecutionState
    damage: StoreError | None = None
    """What is wrong with the event after those that this was read from; None if the whole log can be read."""


class KnownExecution(Belonging):
    """One execution, whose log is read once, when somebody asks what it says (tests/execution/test_looked_up.py).

    Parameters
    ----------
    past
        What its log says, or what reads that.
    """

    def __init__(self, execution_id: str, past: Past | Callable[[], Past]) -> None:
        super().__init__()
        self.id, self._past = execution_id, past
        self._latest: ExecutionState | None = None
        """The newest state; None as long as it is that of its past."""

    @property
    def is_read(self) -> bool:
        """Whether it is known what its log says."""
        return isinstance(self._past, Past)

    def read(self) -> Past:
        """Return what its log said when this was asked first."""
        past = self._past
        if not isinstance(past, Past):
            self._past = past = past()
        return past

    @property
    def workflow(self) -> Workflow:
        """The definition that it was started with."""
        return self.read().workflow

    @property
    def damage(self) -> StoreError | None:
        """What is wrong with the event after those that this was read from; None if the whole log can be read."""
        return self.read().damage

    @property
    def _state(self) -> ExecutionState:
        return self.read().state if self._latest is None else self._latest

    @_state.setter
    def _state(self, state: ExecutionState) -> None:
        self._latest = state
