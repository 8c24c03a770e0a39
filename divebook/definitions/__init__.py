"""Definitions of workflows, agents and other resources as plain data, read from text or written in Python.

A definition file passes through three modules: `yaml_text` parses YAML or JSON into nodes with positions, `table` and
`schema` map the keys of nodes to the fields of definition classes, and `graph` checks the steps of a workflow together.
`reader` connects the three modules. `stored_form` converts definitions to JSON for the log and back.
"""

from __future__ import annotations

from divebook.definitions.definition import Definitions, InputDefinition, OutputDefinition, Workflow
from divebook.definitions.dialect import Dialect
from divebook.definitions.functions import AsyncStepFunction, StepFunction, WorkflowFunction, lint, step, workflow
from divebook.definitions.reader import definitions_from, read_agent, read_definitions, read_workflow
from divebook.definitions.resources import AgentDefinition, ApprovalRule, ScheduleDefinition, WorkspaceDefinition
from divebook.definitions.servers import (
    ApprovalFilterDefinition,
    MCPServerDefinition,
    OAuthDefinition,
    TokenStoreDefinition,
    ToolConfigurationDefinition,
)
from divebook.definitions.step import Ask, Catch, Each, Edge, Retry, Rollback, Step
from divebook.errors import Problem

__all__ = [
    "AgentDefinition",
    "ApprovalFilterDefinition",
    "ApprovalRule",
    "Ask",
    "AsyncStepFunction",
    "Catch",
    "Definitions",
    "Dialect",
    "Each",
    "Edge",
    "InputDefinition",
    "MCPServerDefinition",
    "OAuthDefinition",
    "OutputDefinition",
    "Problem",
    "Retry",
    "Rollback",
    "ScheduleDefinition",
    "Step",
    "StepFunction",
    "TokenStoreDefinition",
    "ToolConfigurationDefinition",
    "Workflow",
    "WorkflowFunction",
    "WorkspaceDefinition",
    "definitions_from",
    "lint",
    "read_agent",
    "read_definitions",
    "read_workflow",
    "step",
    "workflow",
]
