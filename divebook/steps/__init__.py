"""Handlers that execute the steps of a workflow, one handler for each step type, and the built-in actions."""
