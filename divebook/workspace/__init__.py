"""Workspaces: files, commands and resources that an execution may touch; the names below are public.

They can be used by themselves: ``async with LocalWorkspace("project") as workspace: ...``.
"""

from divebook.workspace.docker.workspace import DockerEnvironment, DockerWorkspace
from divebook.workspace.fenced import FencedWorkspace
from divebook.workspace.files import FileOperator, LocalFileOperator
from divebook.workspace.local import LocalEnvironment, LocalWorkspace
from divebook.workspace.paths import Root
from divebook.workspace.policy import PathPolicy
from divebook.workspace.processes import BackgroundProcess, OutputLine, ProcessManager, process_manager
from divebook.workspace.resources import Resource, ResourceRegistry
from divebook.workspace.session import AgentContext, AgentSession, BusMessage, MessageBus
from divebook.workspace.shell import LocalShell, Shell, ShellResult
from divebook.workspace.virtualenv import VirtualenvWorkspace
from divebook.workspace.workspace import Environment, Workspace

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
    "process_manager",
]
