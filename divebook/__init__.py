"""divebook: workflows of agents in notebook cells, on a durable engine.

Public names are loaded when first used, so that ``import divebook`` costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from divebook._version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from divebook.agents import Agent, ScriptedModel
    from divebook.config import load
    from divebook.definitions.definition import Workflow
    from divebook.definitions.functions import lint, step, workflow
    from divebook.definitions.resources import ApprovalRule, ScheduleDefinition, WorkspaceDefinition
    from divebook.definitions.servers import MCPServerDefinition
    from divebook.definitions.step import Catch, Each, Edge, Retry, Rollback, Step
    from divebook.definitions.tools import ToolFunction, tool
    from divebook.documents import FileDocuments, MemoryDocuments, Policy
    from divebook.environments.environment import Environment
    from divebook.errors import DefinitionError, DeterminismWarning, DivebookError
    from divebook.events import Event
    from divebook.events.classes import allow
    from divebook.notebook.saved_notebook import open_notebook
    from divebook.notebook.session_functions import (
        answer,
        compare,
        define,
        frames,
        inbox,
        map,  # noqa: A004 - `divebook.map`
        resume,
        run,
        runs,
        show,
    )
    from divebook.pipeline import AgentStage, Pipeline, PipelineConfig
    from divebook.pipeline.envelope import (
        Envelope,
        FlowInterrupt,
        InterruptKind,
        InterruptResponse,
        InterruptService,
        LoopVerdict,
        ProcessingRecord,
        RiskApproval,
        RiskLevel,
        TerminalReason,
        create_envelope,
    )
    from divebook.projections.spans import Formatter
    from divebook.questions.bounds import Bounds
    from divebook.queues import Worker
    from divebook.runtime.calls import ToolContext
    from divebook.runtime.compute.dask import DaskCluster
    from divebook.runtime.context import StepContext
    from divebook.runtime.run import Run
    from divebook.steps.actions import Action, action
    from divebook.steps.conversations import Thread
    from divebook.steps.function import Context
    from divebook.stores import MemoryStore, SqliteStore, open_store
    from divebook.workspaces.workspace import present_workspace

# Public names by module. The table repeats the imports above, which only type checkers execute, because `import
# divebook` shall not load all these modules.
_NAMES = {
    "divebook.agents": "Agent ScriptedModel",
    "divebook.config": "load",
    "divebook.documents": "FileDocuments MemoryDocuments Policy",
    "divebook.environments": "Environment",
    "divebook.errors": "DefinitionError DeterminismWarning DivebookError",
    "divebook.events": "Event",
    "divebook.events.classes": "allow",
    "divebook.notebook.saved_notebook": "open_notebook",
    "divebook.notebook.session_functions": "answer compare define frames inbox map resume run runs show",
    "divebook.pipeline": "AgentStage Pipeline PipelineConfig",
    "divebook.pipeline.envelope": (
        "Envelope FlowInterrupt InterruptKind InterruptResponse InterruptService "
        "LoopVerdict ProcessingRecord RiskApproval RiskLevel TerminalReason create_envelope"
    ),
    "divebook.projections.spans": "Formatter",
    "divebook.questions.bounds": "Bounds",
    "divebook.runtime.calls": "ToolContext",
    "divebook.runtime.compute.dask": "DaskCluster",
    "divebook.runtime.context": "StepContext",
    "divebook.runtime.run": "Run",
    "divebook.steps.actions": "Action action",
    "divebook.steps.conversations": "Thread",
    "divebook.steps.function": "Context",
    "divebook.stores": "MemoryStore SqliteStore open_store",
    "divebook.queues": "Worker",
    "divebook.definitions.definition": "Workflow",
    "divebook.definitions.functions": "lint step workflow",
    "divebook.definitions.resources": "ApprovalRule ScheduleDefinition WorkspaceDefinition",
    "divebook.definitions.servers": "MCPServerDefinition",
    "divebook.definitions.step": "Catch Each Edge Retry Rollback Step",
    "divebook.definitions.tools": "ToolFunction tool",
    "divebook.workspaces.workspace": "present_workspace",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Action",
    "Agent",
    "AgentStage",
    "ApprovalRule",
    "Bounds",
    "Catch",
    "Context",
    "DaskCluster",
    "DefinitionError",
    "DeterminismWarning",
    "DivebookError",
    "Each",
    "Edge",
    "Envelope",
    "Environment",
    "Event",
    "FileDocuments",
    "FlowInterrupt",
    "Formatter",
    "InterruptKind",
    "InterruptResponse",
    "InterruptService",
    "LoopVerdict",
    "MCPServerDefinition",
    "MemoryDocuments",
    "MemoryStore",
    "Pipeline",
    "PipelineConfig",
    "Policy",
    "ProcessingRecord",
    "Retry",
    "RiskApproval",
    "RiskLevel",
    "Rollback",
    "Run",
    "ScheduleDefinition",
    "ScriptedModel",
    "SqliteStore",
    "Step",
    "StepContext",
    "TerminalReason",
    "Thread",
    "ToolContext",
    "ToolFunction",
    "Worker",
    "Workflow",
    "WorkspaceDefinition",
    "__version__",
    "action",
    "allow",
    "answer",
    "compare",
    "create_envelope",
    "define",
    "frames",
    "inbox",
    "lint",
    "load",
    "map",
    "open_notebook",
    "open_store",
    "present_workspace",
    "resume",
    "run",
    "runs",
    "show",
    "step",
    "tool",
    "workflow",
]


_RENAMED = {"Execution": "divebook.Run"}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        raise AttributeError(f"divebook.{name} is {_RENAMED[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module 'divebook' has no attribute {name!r}")
    # Python calls this only for a name that the module lacks. Once stored, the name is found without this function.
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # Completion in notebooks also has to offer the names that are not loaded yet.
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics in IPython: ``%load_ext divebook``."""
    from divebook.notebook.extension import load_ipython_extension as load_extension

    load_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics from IPython: ``%unload_ext divebook``."""
    from divebook.notebook.extension import unload_ipython_extension as unload_extension

    unload_extension(shell)
