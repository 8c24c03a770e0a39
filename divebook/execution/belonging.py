"""To which queue and worker an execution belongs: what it starts, and what it goes on as, belongs to the same.

So a child or a successor is found by the workers of that queue wherever its first worker ends, an answer to it is
taken up, and each counts for itself how often it was interrupted (`tests/queues/test_families.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from divebook.engine.state import ExecutionState


class Employer(Protocol):
    """A worker, as far as those know it that it has driven."""

    @property
    def is_running(self) -> bool:
        """Whether it takes executions."""


class Belonging(ABC):
    """The part of a driver that tells for whom it drives."""

    def __init__(self) -> None:
        self.worker: Employer | None = None
        """The worker of this process that drives it, or has driven it."""
        self.comes_from: ExecutionState | None = None
        """How the execution stood that has started it, or goes on as it, while it is pending."""
        self._paused: tuple[str, bool] | None = None  # why, and whether to give it back to its queue

    @property
    @abstractmethod
    def state(self) -> ExecutionState:
        """The fold of the log so far."""

    def serve_with(self, other: Belonging) -> None:
        """Be driven for the same worker as another execution, if that is driven for one."""
        self.worker = other.worker or self.worker

    def come_from(self, other: Belonging) -> None:
        """Belong, while it is pending, to the queue and worker of the execution from which it comes.

        It begins nothing where that one is given back at present.
        """
        self.serve_with(other)
        self.comes_from = other.state
        if other._paused is not None and other._paused[1]:
            self._paused = self._paused or other._paused
