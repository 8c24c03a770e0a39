"""Workspaces: the files, commands and resources that the calls of an execution can use.

The names in `__all__` are public. Workspaces can also be used without an execution:
``async with LocalWorkspace("project") as workspace: ...``.
"""

from divebook.workspaces.background import BackgroundProcess, OutputLine, ProcessManager, process_manager
from divebook.workspaces.docker.workspace import DockerEnvironment, DockerWorkspace
from divebook.workspaces.files import FileOperator, LocalFileOperator
from divebook.workspaces.local import FencedWorkspace, LocalEnvironment, LocalWorkspace, VirtualenvWorkspace
from divebook.workspaces.paths import PathPolicy, Root
from divebook.workspaces.resources import Resource, ResourceRegistry
from divebook.workspaces.shell import LocalShell, Shell, ShellResult
from divebook.workspaces.workspace import (
    AgentContext,
    AgentSession,
    BusMessage,
    Environment,
    MessageBus,
    Workspace,
    present_workspace,
)

__all__ = [
    "AgentContext",
    "AgentSession",
    "BackgroundProcess",
    "BusMessage",
    "DockerEnvironment",
    "DockerWorkspace",
    "Environment",
    "FencedWorkspace",
    "FileOperator",
    "LocalEnvironment",
    "LocalFileOperator",
    "LocalShell",
    "LocalWorkspace",
    "MessageBus",
    "OutputLine",
    "PathPolicy",
    "ProcessManager",
    "Resource",
    "ResourceRegistry",
    "Root",
    "Shell",
    "ShellResult",
    "VirtualenvWorkspace",
    "Workspace",
    "present_workspace",
    "process_manager",
]
