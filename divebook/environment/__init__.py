"""An environment: a store, what it offers to executions, and everything that is started in it."""

from divebook.environment.environment import Environment

__all__ = ["Environment"]
