"""Runs of agents are replayed with all that they could call blocked; a tool notes what it is called with."""

import pytest

from divebook import tool
from tests.blocked_replay import noted_environments, pytest_runtest_call

__all__ = ["noted_environments", "pytest_runtest_call"]


@pytest.fixture
def noted():
    """Return what the tool `note` was called with."""
    return []


@pytest.fixture
def note(noted):
    """Return a tool that notes what it is called with."""

    @tool
    async def note(text: str) -> str:
        """Note a text."""
        noted.append(text)
        return f"noted {text}"

    return note
