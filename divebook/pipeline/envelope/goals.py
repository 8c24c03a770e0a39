"""Where a request stands: its goals, which stages of work satisfy one after the other, and its parallel stages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from divebook.pipeline.envelope.contents import Contents
from divebook.pipeline.envelope.enums import GoalStatus
from divebook.pipeline.envelope.plain import copied_map, copied_maps, deep_copy


class StagedContents(Contents):
    """An envelope's goals, attempts and stages."""

    # --- goals and retries

    def initialize_goals(self, goals: Iterable[str]) -> None:
        """Begin with these goals, all pending; completed stages and the stage number stay."""
        self.all_goals = list(goals)
        self.remaining_goals = list(self.all_goals)
        self.goal_completion_status = dict.fromkeys(self.all_goals, str(GoalStatus.PENDING))

    def advance_stage(self, satisfied_goals: Iterable[str], summary: Any = None) -> bool:
        """Record a completed stage of goals.

        Returns
        -------
        bool
            Whether goals and stages are left; only then does the number grow and are the slots of the stage dropped.
        """
        satisfied = list(satisfied_goals)
        known = self.goal_completion_status or {}  # callers may have set it to None
        self.goal_completion_status = known | dict.fromkeys(satisfied, str(GoalStatus.SATISFIED))
        self.remaining_goals = [goal for goal in self.remaining_goals if goal not in satisfied]
        self.completed_stages.append(
            {
                "stage_number": self.current_stage_number,
                "satisfied_goals": satisfied,
                "summary": deep_copy(summary, "summary"),
                "plan_id": self.outputs.get(self.slot_names.archive, {}).get("plan_id"),
            }
        )
        if not self.remaining_goals or self.current_stage_number >= self.max_stages:
            return False
        self.current_stage_number += 1
        self._drop(self.slot_names.advance_reset)
        return True

    def satisfied_goals(self) -> list[str]:
        """Return the satisfied goals in the order in which they first were."""
        recorded = [goal for stage in self.completed_stages if stage for goal in _goals_of(stage)]
        known = {goal for goal, status in self.goal_completion_status.items() if status == GoalStatus.SATISFIED}
        return [goal for goal in dict.fromkeys([*recorded, *self.goal_completion_status]) if goal in known]

    def get_stage_context(self) -> dict[str, Any]:
        """Return number, completed stages, and goals by their standing, as copies."""
        return {
            "current_stage": self.current_stage_number,
            "completed_stages": copied_maps(self.completed_stages, "completed_stages"),
            "remaining_goals": list(self.remaining_goals),
            "goal_completion_status": dict(self.goal_completion_status),
            "satisfied_goals": self.satisfied_goals(),
        }

    def is_stuck(self, min_stages: int = 2) -> bool:
        """Whether that stage number has been reached with no goal satisfied."""
        return self.current_stage_number >= min_stages and not self.satisfied_goals()

    def increment_iteration(self, feedback: str | None = None) -> None:
        """Begin a new attempt: keep the feedback and the plan, drop what is to be made again."""
        self.iteration += 1
        if feedback is not None:
            self.loop_feedback.append(feedback)
        archive = self.slot_names.archive
        if archive in self.outputs:
            self.prior_plans.append(copied_map(self.outputs[archive], f"outputs.{archive}"))
        self._drop(self.slot_names.retry_reset)

    def _drop(self, slots: Collection[str]) -> None:
        for key in slots:
            self.outputs.pop(key, None)

    # --- parallel stages

    def start_stage(self, name: str) -> None:
        """Mark a stage as active."""
        self.active_stages[name] = True

    def complete_stage(self, name: str) -> None:
        """Mark a stage as completed, whether or not it was started."""
        self.completed_stage_set[name] = True
        self.active_stages.pop(name, None)

    def fail_stage(self, name: str, error: str) -> None:
        """Mark a stage as failed."""
        self.failed_stages[name] = error
        self.active_stages.pop(name, None)

    def is_stage_active(self, name: str) -> bool:
        """Whether the stage is active."""
        return self.active_stages.get(name, False)

    def is_stage_completed(self, name: str) -> bool:
        """Whether the stage is completed."""
        return self.completed_stage_set.get(name, False)

    def is_stage_failed(self, name: str) -> bool:
        """Whether the stage failed, be it without a message."""
        return name in self.failed_stages

    def get_active_stage_count(self) -> int:
        """Return how many stages are listed as active."""
        return len(self.active_stages)

    def get_completed_stage_count(self) -> int:
        """Return how many stages are listed as completed."""
        return len(self.completed_stage_set)

    def all_stages_complete(self) -> bool:
        """Whether there is an order of stages and all in it are completed."""
        return bool(self.stage_order) and all(self.completed_stage_set.get(name) for name in self.stage_order)

    def has_failures(self) -> bool:
        """Whether any stage failed."""
        return bool(self.failed_stages)


def _goals_of(stage: dict[str, Any]) -> list[str]:
    """Return the satisfied goals of a recorded stage, which may have been restored from anything."""
    goals = stage.get("satisfied_goals")
    return [goal for goal in goals if isinstance(goal, str)] if isinstance(goals, list) else []
