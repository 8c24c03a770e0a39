"""Work that one agent hands to another: the tool ``assign_work``, each call of which is a turn of the other agent.

The turn is recorded in the same log, under the key of the call, with its own questions and its own lane; the budget of
the execution holds for it as for every other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal

from divebook.agents import Agent
from divebook.workflow.tools import ToolFunction, ToolHints

ASSIGN_WORK = "assign_work"
MOST_DEEP = 4
"""How many agents may stand in one line, each working for the one before."""

Hand = Callable[[Agent, str], Awaitable[str]]
"""Has an agent do what a prompt says, and returns its answer."""


def work_tool(others: Sequence[Agent], above: Iterable[str], hand: Hand) -> ToolFunction | None:
    """Return the tool by which an agent gives work to others, or None if there is nobody that it could be given to.

    Parameters
    ----------
    others
        The agents that may be given work.
    above
        The names of the agents at work already: the one that assigns, and those it works for.
    """
    line = list(above)
    free = {other.name: other for other in others if other.name not in line} if len(line) < MOST_DEEP else {}
    if not free:
        return None

    async def assign_work(  # noqa: PLR0917 - a model gives them by name
        agent: str,
        name: str,
        description: str,
        expected_output: str,
        output_format: str | None = None,
        context: str | None = None,
    ) -> str:
        work = {"Work": name, "Expected output": expected_output, "Format": output_format, "Context": context}
        said = [f"{title}: {text}" for title, text in work.items() if text]
        return await hand(free[agent], "\n\n".join([description, *said]))

    assign_work.__annotations__["agent"] = Literal[tuple(free)]
    assign_work.__doc__ = _DESCRIPTION.format("\n".join(map(_introduced, free.values())))
    return ToolFunction(
        ASSIGN_WORK,
        assign_work,
        assign_work.__doc__,
        hints=ToolHints(read_only=True, destructive=False, open_world=False),
        inline=True,
    )


def _introduced(agent: Agent) -> str:
    goal = agent.definition.goal
    return f"- {agent.name}: {goal}" if goal else f"- {agent.name}"


_DESCRIPTION = """Have another agent do a part of the work, and get what it answers. It knows nothing but what you say.

The agents:
{}

Parameters
----------
agent
    Who is to do it.
name
    A short name of the work.
description
    What is to be done, in full.
expected_output
    What the answer is to hold.
output_format
    How it is to be written.
context
    What the agent must know for it.
"""
