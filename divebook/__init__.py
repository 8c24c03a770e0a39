"""divebook: workflows of agents in notebook cells, on a durable engine.

Public names are loaded when first used, so that ``import divebook`` costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from divebook._version import __version__
from divebook.libraries import explain_missing

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from divebook.agents import Agent, ScriptedModel
    from divebook.definitions.definition import Workflow
    from divebook.definitions.functions import step, workflow
    from divebook.definitions.step import Ask, Catch, Each, Edge, Retry, Rollback, Step
    from divebook.definitions.tools import tool
    from divebook.environments.environment import Environment
    from divebook.errors import DivebookError
    from divebook.events.classes import allow
    from divebook.notebook.session_functions import (
        answer,
        compare,
        define,
        environment,
        frames,
        inbox,
        map,  # noqa: A004 - `divebook.map`
        resume,
        run,
        runs,
        show,
    )
    from divebook.questions.bounds import Bounds
    from divebook.runtime.run import Run
    from divebook.steps.actions import action
    from divebook.steps.function import Context

    last: Run
    """The run that a cell or a function of this session has started or continued last, also if it has failed."""

# Public names by module. The table repeats the imports above, which only type checkers execute, because `import
# divebook` shall not load all these modules.
_NAMES = {
    "divebook.agents": "Agent ScriptedModel",
    "divebook.definitions.definition": "Workflow",
    "divebook.definitions.functions": "step workflow",
    "divebook.definitions.step": "Ask Catch Each Edge Retry Rollback Step",
    "divebook.definitions.tools": "tool",
    "divebook.environments": "Environment",
    "divebook.errors": "DivebookError",
    "divebook.events.classes": "allow",
    "divebook.notebook.session_functions": ("answer compare define environment frames inbox map resume run runs show"),
    "divebook.questions.bounds": "Bounds",
    "divebook.runtime.run": "Run",
    "divebook.steps.actions": "action",
    "divebook.steps.function": "Context",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

_LAST = "last"
"""Name of the last run of the session. It is not in `__all__`: ``from divebook import last`` would keep one run."""
_SUBPACKAGES = (
    "agents",
    "config",
    "definitions",
    "devenv",
    "documents",
    "environments",
    "errors",
    "events",
    "mapping",
    "pipeline",
    "queues",
    "replay",
    "serve",
    "steps",
    "stores",
    "telemetry",
    "testing",
    "tools",
    "workspaces",
)
"""Public subpackages. Their public names are their ``__all__``."""

_FORMER_NAMES = {
    "divebook": "Execution:Run store:stores workers:queues workspace:workspaces",
    "divebook.config": "load",
    "divebook.definitions": "ApprovalRule MCPServerDefinition ScheduleDefinition WorkspaceDefinition lint",
    "divebook.documents": "FileDocuments MemoryDocuments Policy",
    "divebook.environments": "DaskCluster Formatter",
    "divebook.errors": "DefinitionError DeterminismWarning",
    "divebook.events": "Event",
    "divebook.pipeline": (
        "AgentStage Envelope FlowInterrupt InterruptKind InterruptResponse InterruptService LoopVerdict Pipeline "
        "PipelineConfig ProcessingRecord RiskApproval RiskLevel TerminalReason create_envelope"
    ),
    "divebook.queues": "Worker",
    "divebook.steps": "Action StepContext Thread",
    "divebook.stores": "MemoryStore SqliteStore open_store",
    "divebook.tools": "ToolContext ToolFunction",
    "divebook.workspaces": "present_workspace",
    "divebook.notebook.saved_notebook": "open_notebook",
}
"""Former public names by the module that has them now; ``old:new`` for a name that has changed."""

__all__ = [
    "Agent",
    "Ask",
    "Bounds",
    "Catch",
    "Context",
    "DivebookError",
    "Each",
    "Edge",
    "Environment",
    "Retry",
    "Rollback",
    "Run",
    "ScriptedModel",
    "Step",
    "Workflow",
    "__version__",
    "action",
    "allow",
    "answer",
    "compare",
    "define",
    "environment",
    "frames",
    "inbox",
    "map",
    "resume",
    "run",
    "runs",
    "show",
    "step",
    "tool",
    "workflow",
]

explain_missing()


def __getattr__(name: str) -> Any:
    # `import divebook` is enough to use a subpackage: ``divebook.stores.open_store(...)``.
    if name in _SUBPACKAGES:
        return importlib.import_module(f"divebook.{name}")
    # Another run at each access, so it is not stored.
    if name == _LAST:
        last: Run = importlib.import_module("divebook.notebook.session_functions").last_run()
        return last
    if name not in _HOMES:
        raise AttributeError(f"module 'divebook' has no attribute {name!r}{_present_name(name)}")
    # Python calls this only for a name that the module lacks. Once stored, the name is found without this function.
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def _present_name(name: str) -> str:
    """Return the part of an error text that names the present place of a former public name; empty for other names."""
    for module, entries in _FORMER_NAMES.items():
        for entry in entries.split():
            former, _, present = entry.partition(":")
            if former == name:
                return f"; use {module}.{present or former}"
    return ""


def __dir__() -> list[str]:
    # Completion in notebooks offers the public names, also those that are not loaded yet.
    return sorted({*__all__, *_SUBPACKAGES, _LAST})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics in IPython: ``%load_ext divebook``."""
    from divebook.notebook.extension import load_ipython_extension as load_extension

    load_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics from IPython: ``%unload_ext divebook``."""
    from divebook.notebook.extension import unload_ipython_extension as unload_extension

    unload_extension(shell)
