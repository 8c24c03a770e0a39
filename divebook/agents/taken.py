"""Agents of pydantic-ai, taken as they are: what is refused is said before anything is recorded."""

from __future__ import annotations

from typing import Any

import pydantic_ai
from pydantic_ai.exceptions import UserError

from divebook.agents.durability import DivebookDurability
from divebook.errors import SetupError


def check(agent: pydantic_ai.Agent[Any, Any], name: str) -> None:
    """Raise `SetupError` if what an agent does cannot all be recorded."""
    if DivebookDurability.from_agent(agent) is not None:
        raise SetupError(f"agent {name} has DivebookDurability already: leave it out, Agent.of adds it")
    try:
        DivebookDurability(name=name).for_agent(agent)
    except UserError as error:
        raise SetupError(f"agent {name} cannot be taken as it is: {error}") from error


def require_closed(agent: pydantic_ai.Agent[Any, Any], name: str) -> None:
    """Raise `SetupError` while a person holds an agent open: what is open answers on the loop of that person only.

    A call from the loop of all executions would wait for ever. Nothing public tells that it is open; a run does not
    count as holding it (`tests/agents/test_own_loops.py`).
    """
    if agent._entered_count:  # noqa: SLF001 - see above
        raise SetupError(
            f"agent {name} is held open by `async with agent:`, and its servers and connections answer on the loop of "
            "that block only: leave the block and resume the run, which opens what it needs by itself"
        )
