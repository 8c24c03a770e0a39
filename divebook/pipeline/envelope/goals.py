"""Goals that several stages of work satisfy one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from divebook.pipeline.envelope.copying import copied_maps, deep_copy
from divebook.pipeline.envelope.enums import GoalStatus


@dataclass(slots=True)
class Goals:
    """What is wanted, what of it is done, and in which stage."""

    completed_stages: list[dict[str, Any] | None] = field(default_factory=list)
    current_stage_number: int = 1
    max_stages: int = 5
    all_goals: list[str] = field(default_factory=list)
    remaining_goals: list[str] = field(default_factory=list)
    goal_completion_status: dict[str, str] = field(default_factory=dict)

    def initialize(self, goals: Iterable[str]) -> None:
        """Begin with these goals; completed stages and the stage number stay."""
        self.all_goals = list(goals)
        self.remaining_goals = list(self.all_goals)
        self.goal_completion_status = dict.fromkeys(self.all_goals, str(GoalStatus.PENDING))

    def advance(self, satisfied: Iterable[str], summary: Any, plan_id: Any) -> bool:
        """Record a completed stage; return whether another one follows, whose number is then the current one."""
        satisfied = list(satisfied)
        known = self.goal_completion_status or {}  # callers may have set it to None
        self.goal_completion_status = known | dict.fromkeys(satisfied, str(GoalStatus.SATISFIED))
        self.remaining_goals = [goal for goal in self.remaining_goals if goal not in satisfied]
        self.completed_stages.append(
            {
                "stage_number": self.current_stage_number,
                "satisfied_goals": satisfied,
                "summary": deep_copy(summary, "summary"),
                "plan_id": plan_id,
            }
        )
        if not self.remaining_goals or self.current_stage_number >= self.max_stages:
            return False
        self.current_stage_number += 1
        return True

    def satisfied(self) -> list[str]:
        """Return the satisfied goals in the order in which they first were."""
        recorded = [goal for stage in self.completed_stages if stage for goal in _goals_of(stage)]
        known = {goal for goal, status in self.goal_completion_status.items() if status == GoalStatus.SATISFIED}
        return [goal for goal in dict.fromkeys([*recorded, *self.goal_completion_status]) if goal in known]

    def context(self) -> dict[str, Any]:
        """Return what an agent of the current stage should know, as copies."""
        return {
            "current_stage": self.current_stage_number,
            "completed_stages": copied_maps(self.completed_stages, "completed_stages"),
            "remaining_goals": list(self.remaining_goals),
            "goal_completion_status": dict(self.goal_completion_status),
            "satisfied_goals": self.satisfied(),
        }

    def is_stuck(self, min_stages: int) -> bool:
        """Whether that stage has been reached with no goal satisfied."""
        return self.current_stage_number >= min_stages and not self.satisfied()


def _goals_of(stage: dict[str, Any]) -> list[str]:
    """Return the satisfied goals of a recorded stage, which may have been restored from anything."""
    goals = stage.get("satisfied_goals")
    return [goal for goal in goals if isinstance(goal, str)] if isinstance(goals, list) else []
