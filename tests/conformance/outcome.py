"""What was observed of one case, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REJECTED = "rejected"
"""Status of what was refused before it ran."""


@dataclass(frozen=True)
class ObservedEvent:
    """One event of a log."""

    event_type: str
    path: str = ""
    step: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """A run of a workflow, seen from outside."""

    status: str
    error: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Defaults included."""
    paths: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By id: status, current_step, step_outputs, error."""
    usage: Mapping[str, int] = field(default_factory=dict)
    events: Sequence[ObservedEvent] = ()
    status_sequence: Sequence[str] = ()
    """Every status it had, in order."""
    agent_calls: Sequence[Mapping[str, Any]] = ()
    """``{"agent", "prompt"}`` in order."""
    operation_ids: Sequence[str] = ()
    """By the old formula, in order."""
    printed: Sequence[str] = ()
    documents: Mapping[str, str] = field(default_factory=dict)
    """All there are afterwards."""
    initial_documents: Mapping[str, str] = field(default_factory=dict)

    @property
    def stats(self) -> dict[str, Any]:
        """How many paths there were, and how many of them ended how; what was used."""
        statuses = [path["status"] for path in self.paths.values()]
        ended = {name: statuses.count(name) for name in ("completed", "failed")}
        counts = {"total": len(statuses), "active": len(statuses) - sum(ended.values()), **ended}
        return {**counts, **{f"{name}_paths": count for name, count in counts.items()}, "total_usage": self.usage}


@dataclass(frozen=True)
class Evaluation:
    """A condition's value or a template's text, or the error instead."""

    value: Any = None
    error: str | None = None
