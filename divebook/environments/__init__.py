"""Environments: agents, workflows and settings over one store, and the executions of that store."""

from divebook.environments.environment import Environment

__all__ = ["Environment"]
