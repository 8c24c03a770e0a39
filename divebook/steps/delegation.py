"""Delegation of work between agents: the tool ``assign_work``, each call of which is a turn of another agent.

The turn is recorded in the same log, under the key of the call, with its own questions and its own lane. The budget of
the execution applies to it like to every other turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from divebook.agents import Agent
from divebook.workflow.tools import ToolFunction, ToolHints

if TYPE_CHECKING:
    pass


ASSIGN_WORK = "assign_work"


MOST_DEEP = 4
"""Maximum length of a delegation chain, in agents."""


Delegate = Callable[[Agent, str], Awaitable[str]]
"""Asks an agent to answer a prompt; returns its answer."""


def work_tool(agents: Sequence[Agent], above: Iterable[str], delegate: Delegate) -> ToolFunction | None:
    """Return the tool by which an agent delegates work to others; None if no agent is available.

    Parameters
    ----------
    agents
        The agents that may be given work.
    above
        The names of the agents at work already: the one that assigns, and those it works for.
    """
    chain = list(above)
    available = (
        {candidate.name: candidate for candidate in agents if candidate.name not in chain}
        if len(chain) < MOST_DEEP
        else {}
    )
    if not available:
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
        details = [f"{title}: {text}" for title, text in work.items() if text]
        return await delegate(available[agent], "\n\n".join([description, *details]))

    assign_work.__annotations__["agent"] = Literal[tuple(available)]
    assign_work.__doc__ = _DESCRIPTION.format("\n".join(map(_list_entry, available.values())))
    return ToolFunction(
        ASSIGN_WORK,
        assign_work,
        assign_work.__doc__,
        hints=ToolHints(read_only=True, destructive=False, open_world=False),
        inline=True,
    )


def _list_entry(agent: Agent) -> str:
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


class DelegationChain(NamedTuple):
    """Turns that wait for a turn, and their agents."""

    within: str | None = None
    """Id of the nearest waiting turn."""
    agents: tuple[str, ...] = ()


ALONE = DelegationChain()
