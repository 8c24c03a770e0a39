"""The line of one execution in a list of executions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from divebook.store.durability import Durability


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """One line of a list of executions, derived from the events as they were appended."""

    execution_id: str
    workflow_name: str
    fingerprint: str | None
    status: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    last_sequence: int
    error: str | None
    size: int
    """Bytes of payload; a large value that occurs several times counts once."""
    wake_at: datetime | None
    """When it has something to do by itself, while it waits."""
    taken: int
    """Number of the last message that is in its log."""
    durability: Durability
    """What it was begun with."""

    def is_due(self, moment: datetime) -> bool:
        """Return whether it has something to do by itself at a moment."""
        return self.wake_at is not None and self.wake_at <= moment
