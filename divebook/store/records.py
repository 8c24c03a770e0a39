"""The line of one execution in a list of executions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


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
