"""Runs of agents are replayed with all that they could call blocked."""

from tests.blocked_replay import noted_environments, pytest_runtest_call

__all__ = ["noted_environments", "pytest_runtest_call"]
