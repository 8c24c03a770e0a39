"""Where a request stands among its stages, which may run in parallel."""

from __future__ import annotations

from dataclasses import dataclass, field

START, END = "start", "end"
"""Stages before the first and after the last one."""


@dataclass(slots=True)
class Stages:
    """The current stage, their order, and which of them are active, completed or failed."""

    current_stage: str = START
    stage_order: list[str] = field(default_factory=list)
    active_stages: dict[str, bool] = field(default_factory=dict)
    completed_stage_set: dict[str, bool] = field(default_factory=dict)
    failed_stages: dict[str, str] = field(default_factory=dict)
    """The error by stage."""
    parallel_mode: bool = False

    def start(self, name: str) -> None:
        """Mark a stage as active."""
        self.active_stages[name] = True

    def complete(self, name: str) -> None:
        """Mark a stage as completed, active no more."""
        self.completed_stage_set[name] = True
        self.active_stages.pop(name, None)

    def fail(self, name: str, error: str) -> None:
        """Mark a stage as failed, active no more."""
        self.failed_stages[name] = error
        self.active_stages.pop(name, None)

    def all_complete(self) -> bool:
        """Whether there is an order and every stage in it is completed."""
        return bool(self.stage_order) and all(self.completed_stage_set.get(name) for name in self.stage_order)
