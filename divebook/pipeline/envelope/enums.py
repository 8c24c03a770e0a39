"""The words of the envelope: texts with a closed meaning, which compare equal to their plain form.

`read` keeps a text that no member has, so that a state written by another version stays readable.
"""

from __future__ import annotations

from divebook.questions.kinds import InterruptKind, InterruptStatus, Word


class ReasonClass(Word):
    """What a terminal reason amounts to."""

    COMPLETED = "completed"
    WAITING = "waiting"
    BOUNDS_EXCEEDED = "bounds_exceeded"
    FAILED = "failed"


class TerminalReason(Word):
    """Why an envelope ended, or may not go on."""

    COMPLETED_SUCCESSFULLY = "completed_successfully"
    COMPLETED = "completed"
    CLARIFICATION_REQUIRED = "clarification_required"
    CONFIRMATION_REQUIRED = "confirmation_required"
    DENIED_BY_POLICY = "denied_by_policy"
    POLICY_VIOLATION = "policy_violation"
    TOOL_FAILED_RECOVERABLY = "tool_failed_recoverably"
    TOOL_FAILED_FATALLY = "tool_failed_fatally"
    LLM_FAILED_FATALLY = "llm_failed_fatally"
    MAX_ITERATIONS_EXCEEDED = "max_iterations_exceeded"
    MAX_LLM_CALLS_EXCEEDED = "max_llm_calls_exceeded"
    MAX_AGENT_HOPS_EXCEEDED = "max_agent_hops_exceeded"
    MAX_LOOP_EXCEEDED = "max_loop_exceeded"
    MAX_TOKENS_EXCEEDED = "max_tokens_exceeded"
    MAX_COST_EXCEEDED = "max_cost_exceeded"
    MAX_SECONDS_EXCEEDED = "max_seconds_exceeded"
    MAX_REPEATS_EXCEEDED = "max_repeats_exceeded"
    MAX_DEPTH_EXCEEDED = "max_depth_exceeded"
    MAX_DESCENDANTS_EXCEEDED = "max_descendants_exceeded"
    MAX_STAGE_VISITS_EXCEEDED = "max_stage_visits_exceeded"
    BREAK_REQUESTED = "break_requested"
    USER_CANCELLED = "user_cancelled"

    @property
    def classification(self) -> ReasonClass:
        """Whether the work was done, waits for a person, ran into a bound, or failed."""
        if self.value.startswith("max_"):
            return ReasonClass.BOUNDS_EXCEEDED
        if self.value.endswith("_required"):
            return ReasonClass.WAITING
        done = (TerminalReason.COMPLETED_SUCCESSFULLY, TerminalReason.COMPLETED, TerminalReason.BREAK_REQUESTED)
        return ReasonClass.COMPLETED if self in done else ReasonClass.FAILED


class RiskApproval(Word):
    """What became of a risky call."""

    APPROVED = "approved"
    DENIED = "denied"
    REQUIRES_CONFIRMATION = "requires_confirmation"
    PENDING = "pending"


class RiskLevel(Word):
    """How much harm a call can do."""

    READ_ONLY = "read_only"
    WRITE = "write"
    DESTRUCTIVE = "destructive"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def requires_confirmation(self) -> bool:
        """Whether a person is asked before."""
        return self in (RiskLevel.DESTRUCTIVE, RiskLevel.HIGH, RiskLevel.CRITICAL)


class LoopVerdict(Word):
    """What a reviewing stage says of the work; routing rules give it its effect."""

    PROCEED = "proceed"
    LOOP_BACK = "loop_back"
    ADVANCE = "advance"
    ESCALATE = "escalate"


class ProcessingStatus(Word):
    """Where an agent's step stands; other texts are kept as they are."""

    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    SKIPPED = "skipped"


class GoalStatus(Word):
    """Where a goal stands."""

    PENDING = "pending"
    SATISFIED = "satisfied"


__all__ = [
    "GoalStatus",
    "InterruptKind",
    "InterruptStatus",
    "LoopVerdict",
    "ProcessingStatus",
    "ReasonClass",
    "RiskApproval",
    "RiskLevel",
    "TerminalReason",
]
