"""divebook: workflows of agents in notebook cells, on a durable engine.

Public names are loaded when first used, so that ``import divebook`` costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from divebook import extensions
from divebook._version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from divebook.agents import Agent, ScriptedModel
    from divebook.bounds import Bounds
    from divebook.config import load
    from divebook.documents import FileDocuments, MemoryDocuments, Policy
    from divebook.environment import Environment
    from divebook.errors import DefinitionError, DeterminismWarning, DivebookError
    from divebook.events import Event
    from divebook.events.classes import allow
    from divebook.execution.context import StepContext
    from divebook.execution.dask_cluster import DaskCluster
    from divebook.execution.execution import Execution
    from divebook.history.formatter import Formatter
    from divebook.notebook.functions import answer, compare, define, frames, inbox, resume, run, runs, show
    from divebook.notebook.mapping import map  # noqa: A004 - `divebook.map`
    from divebook.notebook.run import Run
    from divebook.notebook.saved import open_notebook
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
    from divebook.steps.actions import Action, action
    from divebook.steps.threads import Thread
    from divebook.store import MemoryStore, SqliteStore, open_store
    from divebook.workers import Worker
    from divebook.workflow.approvals import ApprovalRule
    from divebook.workflow.definition import Each, Edge, MCPServerDefinition, ScheduleDefinition, Step, Workflow
    from divebook.workflow.lint import lint
    from divebook.workflow.policies import Catch, Retry, Rollback
    from divebook.workflow.tools import ToolFunction, tool
    from divebook.workflow.workspaces import WorkspaceDefinition
    from divebook.workspace.present import present_workspace

_NAMES = {
    "divebook.agents": "Agent ScriptedModel",
    "divebook.bounds": "Bounds",
    "divebook.config": "load",
    "divebook.documents": "FileDocuments MemoryDocuments Policy",
    "divebook.environment": "Environment",
    "divebook.errors": "DefinitionError DeterminismWarning DivebookError",
    "divebook.events": "Event",
    "divebook.events.classes": "allow",
    "divebook.execution.context": "StepContext",
    "divebook.execution.dask_cluster": "DaskCluster",
    "divebook.execution.execution": "Execution",
    "divebook.history.formatter": "Formatter",
    "divebook.notebook.functions": "answer compare define frames inbox resume run runs show",
    "divebook.notebook.mapping": "map",
    "divebook.notebook.run": "Run",
    "divebook.notebook.saved": "open_notebook",
    "divebook.pipeline": "AgentStage Pipeline PipelineConfig",
    "divebook.pipeline.envelope": (
        "Envelope FlowInterrupt InterruptKind InterruptResponse InterruptService LoopVerdict "
        "ProcessingRecord RiskApproval RiskLevel TerminalReason create_envelope"
    ),
    "divebook.steps.actions": "Action action",
    "divebook.steps.threads": "Thread",
    "divebook.store": "MemoryStore SqliteStore open_store",
    "divebook.workers": "Worker",
    "divebook.workflow.approvals": "ApprovalRule",
    "divebook.workflow.definition": "Each Edge MCPServerDefinition ScheduleDefinition Step Workflow",
    "divebook.workflow.lint": "lint",
    "divebook.workflow.policies": "Catch Retry Rollback",
    "divebook.workflow.tools": "ToolFunction tool",
    "divebook.workflow.workspaces": "WorkspaceDefinition",
    "divebook.workspace.present": "present_workspace",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Action",
    "Agent",
    "AgentStage",
    "ApprovalRule",
    "Bounds",
    "Catch",
    "DaskCluster",
    "DefinitionError",
    "DeterminismWarning",
    "DivebookError",
    "Each",
    "Edge",
    "Envelope",
    "Environment",
    "Event",
    "Execution",
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
    "tool",
]

extensions.extend(extensions.ENVELOPE, "divebook.pipeline.reflection:envelope_of")
extensions.extend(extensions.CODE_CELLS, "divebook.notebook.code_cells:run_cells")
extensions.extend(extensions.CELL_OF_CODE, "divebook.notebook.code_places:cell_of")
extensions.extend(extensions.FRAMES, "divebook.analysis.listings:frame_of")
extensions.extend(extensions.INSPECT, "divebook.replay.inspection:Inspection")
extensions.extend(extensions.WHY, "divebook.replay.why:why")
extensions.extend(extensions.COMPARED, "divebook.analysis.compared:compared_frame")
extensions.extend(extensions.REPLAY, "divebook.replay.replayer:replayer_of")
extensions.extend(extensions.VERIFY, "divebook.replay.verify:verified")
extensions.extend(extensions.PAGE, "divebook.export.page:write_page")
extensions.extend(extensions.NOTEBOOK, "divebook.export.notebook:write_notebook")
extensions.extend(extensions.KEEP, "divebook.notebook.trying:keep")
extensions.extend(extensions.STEP_TYPES, "divebook.pipeline.stages:add_stages")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'divebook' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Make the magics available: ``%load_ext divebook``."""
    from divebook.notebook.extension import load_ipython_extension as load_extension

    load_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics away again: ``%unload_ext divebook``."""
    from divebook.notebook.extension import unload_ipython_extension as unload_extension

    unload_extension(shell)
