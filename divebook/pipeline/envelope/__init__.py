"""Envelope: identity, budget, outputs and result of one pipeline request.

Inside an execution, the envelope is computed from the event log.
"""

from divebook.definitions.pipelines import END, START
from divebook.pipeline.envelope.envelope import (
    Envelope,
    MergeStrategy,
    ProcessingRecord,
    SlotNames,
    create_envelope,
    merge_branches,
    merge_state,
)
from divebook.pipeline.envelope.interrupts import (
    FlowInterrupt,
    GoalStatus,
    InterruptRecord,
    InterruptResponse,
    LoopVerdict,
    Origin,
    ProcessingStatus,
    ReasonClass,
    RiskApproval,
    RiskLevel,
    TerminalReason,
)
from divebook.pipeline.envelope.service import InterruptPolicy, InterruptService
from divebook.questions.bounds import DEFAULT_BOUNDS, Bounds, edge_key, exceeded_edge
from divebook.questions.question import InterruptKind, InterruptStatus

__all__ = [
    "DEFAULT_BOUNDS",
    "END",
    "START",
    "Bounds",
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
    "ProcessingRecord",
    "ProcessingStatus",
    "ReasonClass",
    "RiskApproval",
    "RiskLevel",
    "SlotNames",
    "TerminalReason",
    "create_envelope",
    "edge_key",
    "exceeded_edge",
    "merge_branches",
    "merge_state",
]
