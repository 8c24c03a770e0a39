"""Handlers that execute the steps of a workflow, one handler for each step type, and the built-in actions."""

from divebook.runtime.context import StepContext
from divebook.runtime.step import Outcome
from divebook.steps.actions import Action
from divebook.steps.conversations import Thread
from divebook.steps.function import AgentHandle, WorkspaceHandle

__all__ = ["Action", "AgentHandle", "Outcome", "StepContext", "Thread", "WorkspaceHandle"]
