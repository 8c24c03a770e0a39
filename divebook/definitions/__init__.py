"""Definitions of workflows, agents and other resources as plain data, read from text or written in Python.

A definition file passes through three modules: `yaml_text` parses YAML or JSON into nodes with positions, `table` and
`schema` map the keys of nodes to the fields of definition classes, and `graph` checks the steps of a workflow together.
`reader` connects the three modules. `stored_form` converts definitions to JSON for the log and back.
"""

from __future__ import annotations

from divebook.definitions.definition import Definitions, InputDefinition, OutputDefinition, Workflow
from divebook.definitions.dialect import Dialect
from divebook.definitions.functions import step, workflow
from divebook.definitions.reader import definitions_from, read_agent, read_definitions, read_workflow
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import Catch, Each, Edge, Retry, Rollback, Step
from divebook.errors import Problem

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
