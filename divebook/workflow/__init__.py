"""Definitions of workflows, agents and other resources as plain data, read from text or written in Python.

A definition file passes through three modules: `yaml_text` parses YAML or JSON into nodes with positions, `table` and
`schema` map the keys of nodes to the fields of definition classes, and `graph` checks the steps of a workflow together.
`reader` connects the three modules. `stored_form` converts definitions to JSON for the log and back.
"""

from __future__ import annotations

from divebook.errors import Problem
from divebook.workflow.definition import Definitions, InputDefinition, OutputDefinition, Workflow
from divebook.workflow.dialect import Dialect
from divebook.workflow.functions import step, workflow
from divebook.workflow.reader import definitions_from, read_agent, read_definitions, read_workflow
from divebook.workflow.resources import AgentDefinition
from divebook.workflow.step import Catch, Each, Edge, Retry, Rollback, Step

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
