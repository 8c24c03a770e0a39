"""Definitions of what should happen, as plain data: read from text, or written in Python."""

from __future__ import annotations

from divebook.dialects import Dialect
from divebook.workflow.definition import (
    AgentDefinition,
    Definitions,
    Each,
    Edge,
    InputDefinition,
    OutputDefinition,
    Problem,
    Step,
    Workflow,
)
from divebook.workflow.functions import step, workflow
from divebook.workflow.policies import Catch, Retry, Rollback
from divebook.workflow.reader import definitions_from, read_agent, read_definitions, read_workflow

__all__ = [
    "AgentDefinition",
    "Catch",
    "Definitions",
    "Dialect",
    "Each",
    "Edge",
    "InputDefinition",
    "OutputDefinition",
    "Problem",
    "Retry",
    "Rollback",
    "Step",
    "Workflow",
    "definitions_from",
    "read_agent",
    "read_definitions",
    "read_workflow",
    "step",
    "workflow",
]
