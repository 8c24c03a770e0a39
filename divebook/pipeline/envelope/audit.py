"""Which agent worked when, with which result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self

from divebook.pipeline.envelope.enums import ProcessingStatus


@dataclass(slots=True)
class ProcessingRecord:
    """One agent's step; `completed_at` and `duration_ms` come with its end."""

    agent: str
    stage_order: int
    started_at: datetime
    completed_at: datetime | None = None
    duration_ms: int = 0
    status: str = ProcessingStatus.RUNNING
    error: str | None = None
    llm_calls: int = 0

    def close(self, status: str, error: str | None, llm_calls: int, duration_ms: int, now: datetime) -> None:
        """Note the end; a duration of 0 is computed from the two times."""
        self.completed_at, self.llm_calls = now, llm_calls
        self.status, self.error = ProcessingStatus.read(status), error
        self.duration_ms = duration_ms if duration_ms > 0 else (now - self.started_at) // timedelta(milliseconds=1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return replace(self)  # all of it is immutable


@dataclass(slots=True)
class Audit:
    """The trail of one request."""

    processing_history: list[ProcessingRecord] = field(default_factory=list)
    errors: list[dict[str, Any] | None] = field(default_factory=list)

    def newest_running(self, agent: str) -> ProcessingRecord | None:
        """Return the agent's latest record that has no end."""
        running = (
            record
            for record in reversed(self.processing_history)
            if record.agent == agent and record.status == ProcessingStatus.RUNNING
        )
        return next(running, None)

    def total_ms(self) -> int:
        """Return the sum of all durations, in milliseconds."""
        return sum(record.duration_ms for record in self.processing_history)
