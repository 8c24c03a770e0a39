"""Pipelines: each request passes through a sequence of stages (agents, tools or functions).

The package contains the state of a request (the envelope) and the `Pipeline` that runs requests as executions. An
envelope can also be used without an execution. Inside an execution, it is computed from the event log. Only budgets are
defined in a lower layer (`divebook.questions.bounds`), because workflows and the engine use them as well. Modules of
lower layers do not import this package when they are loaded: `Environment` adds the step type of stages, and
`Run.envelope` imports the package when the property is first used.
"""

from divebook.definitions.pipelines import AgentStage, EdgeLimit, PipelineConfig, RoutingRule
from divebook.pipeline.envelope import (
    DEFAULT_BOUNDS,
    END,
    START,
    Bounds,
    Envelope,
    FlowInterrupt,
    GoalStatus,
    InterruptKind,
    InterruptPolicy,
    InterruptRecord,
    InterruptResponse,
    InterruptService,
    InterruptStatus,
    LoopVerdict,
    MergeStrategy,
    Origin,
    ProcessingRecord,
    ProcessingStatus,
    ReasonClass,
    RiskApproval,
    RiskLevel,
    SlotNames,
    TerminalReason,
    create_envelope,
    edge_key,
    exceeded_edge,
    merge_branches,
    merge_state,
)
from divebook.pipeline.pipeline import Pipeline, StageOutput
from divebook.pipeline.stages import StageResult

__all__ = [
    "DEFAULT_BOUNDS",
    "END",
    "START",
    "AgentStage",
    "Bounds",
    "EdgeLimit",
    "Envelope",
    "FlowInterrupt",
    "GoalStatus",
    "InterruptKind",
    "InterruptPolicy",
    "InterruptRecord",
    "InterruptResponse",
    "InterruptService",
    "InterruptStatus",
    "LoopVerdict",
    "MergeStrategy",
    "Origin",
    "Pipeline",
    "PipelineConfig",
    "ProcessingRecord",
    "ProcessingStatus",
    "ReasonClass",
    "RiskApproval",
    "RiskLevel",
    "RoutingRule",
    "SlotNames",
    "StageOutput",
    "StageResult",
    "TerminalReason",
    "create_envelope",
    "edge_key",
    "exceeded_edge",
    "merge_branches",
    "merge_state",
]
