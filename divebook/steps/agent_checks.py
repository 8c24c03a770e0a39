"""What is wrong with agents, said before anything is recorded: names that nothing has, and names that two things have.

Workflow functions name their agents while they run, so that theirs are looked at when they ask them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from divebook.agents import Agent
from divebook.agents.models import DEFAULT_MODELS, RECORDED, is_known_provider
from divebook.errors import DefinitionError, ExecutionNotFoundError, NotFoundError, SetupError, nearest
from divebook.steps.offers import Equipment
from divebook.steps.work import ASSIGN_WORK
from divebook.store import EventStore
from divebook.text.logs import logger
from divebook.tools.offered import ABSENT, OFFERED
from divebook.workflow.resources import ToolDefinition
from divebook.workflow.step import Step
from divebook.workflow.tools import ToolFunction

N = TypeVar("N", str, str | None)
_log = logger(__name__)
OurTools: TypeAlias = Mapping[str, ToolFunction]
"""The tools that were given to an environment itself, by name."""


def require_named(kind: str, names: Iterable[str], known: Iterable[str], agent: str) -> None:
    """Raise NotFoundError unless all that an agent names is known."""
    for name in names:
        if name not in known:
            raise NotFoundError(kind, name, known, f"{kind} not found: {name}, which agent {agent} names")


def asked_agents(
    steps: Iterable[Step], find: Callable[[str | None], Agent | None], equipment: Equipment
) -> list[Agent]:
    """Return the agents that prompt steps ask, and all that may do work for them, once each."""
    return all_asked({step.agent for step in steps if step.type == "prompt"}, find, equipment)


def all_asked(names: Iterable[N], find: Callable[[N], Agent | None], equipment: Equipment) -> list[Agent]:
    """Return the agents of some names, and all that may do work for them, once each."""
    found: dict[str, Agent] = {}
    left = [agent for agent in map(find, names) if agent is not None]
    while left:
        one = left.pop()
        if one.name not in found:
            found[one.name] = one
            left += equipment.subordinates_for(one.definition)
    return [*found.values()]


def check_declared(
    said: Iterable[ToolDefinition], known: Iterable[str], agents: Iterable[Agent], servers: Iterable[str]
) -> None:
    """Raise NotFoundError if ``Tools`` says something of a tool that is none: it would have no effect."""
    names = {*known, *OFFERED, *ABSENT, ASSIGN_WORK, *(tool.name for agent in agents for tool in agent.tools)}
    for entry in said:
        if entry.name not in names and not any(servers):  # of a server's tools we know when it was asked
            missing = f"Tools of the definition says something of an unknown tool: {entry.name}"
            raise NotFoundError("tool", entry.name, names, missing)


def check_agent(agent: Agent, equipment: Equipment, ours: OurTools) -> None:
    """Raise unless what an agent names is there, once; one of the old system goes without tools of services.

    Raises
    ------
    NotFoundError, SetupError, DefinitionError
        It is not, or a tool cannot be shown to a model.
    """
    definition = agent.definition
    for name in definition.tool_config:
        if name not in definition.tools:
            raise SetupError(f"ToolConfig of agent {agent.name} names {name}, which is not among its Tools: add it")
    equipment.subordinates_for(definition)
    equipment.servers_for(definition)
    tools = [equipment.limited(tool) for tool in (*equipment.tools_for(definition), *agent.tools)]
    _check_names(agent, tools, ours)
    _check_signatures(agent, tools)
    for name in ABSENT.keys() & set(definition.tools) - {tool.name for tool in tools}:
        _log.warning("agent %s goes without the tool %s: %s", agent.name, name, ABSENT[name])


def _check_names(agent: Agent, tools: Iterable[ToolFunction], ours: OurTools) -> None:
    """Raise if two tools have one name: a rule for one, or its `approval`, would be taken for that of the other."""
    found: dict[str, ToolFunction] = {}
    for tool in tools:
        if tool.name in found:
            both = f"{_place(found[tool.name].function)} and {_place(tool.function)}"
            raise SetupError(
                f"agent {agent.name} has two tools called {tool.name}: {both}; leave one out, or give it another name "
                "with @tool(name=...)"
            )
        found[tool.name] = tool
    for tool in agent.tools:
        other = ours.get(tool.name)
        if other is not None and not _is_same(tool.function, other.function):
            raise SetupError(
                f"agent {agent.name} has a tool called {tool.name} of its own, {_place(tool.function)}, and its "
                f"environment another one, {_place(other.function)}: give one of them another name with "
                f'@tool(name=...), or let the agent have the other with tools=["{tool.name}"]'
            )


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions are one, or one that a cell has made again; those made in a call may differ."""
    return one == other or (_place(one) == _place(other) and "<locals>" not in _place(one))


def _place(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{function.__module__}.{name}"


def _check_signatures(agent: Agent, tools: Iterable[ToolFunction]) -> None:
    """Raise unless the functions of a person can be shown to a model; ours and those of servers can."""
    for tool in tools:
        if tool.schema is None and not _place(tool.function).startswith("divebook."):
            from divebook.agents.signatures import library_tool  # half a second; asked only for agents with tools

            try:
                library_tool(tool, _never)
            except DefinitionError as error:
                raise DefinitionError(error.problems, f"agent {agent.name}") from error


async def _never(*_: Any) -> Any:
    raise AssertionError("a tool that is only looked at is not called")


def check_model(model: Any, whose: str, store: EventStore) -> None:
    """Raise SetupError if a model is named that nobody has; `whose` begins the error.

    Whether its library and key are there is said when it is asked: that can be mended while the run waits.
    """
    if not isinstance(model, str) or ":" not in model:
        return
    provider, _, name = model.partition(":")
    if model.startswith(RECORDED):
        try:
            store.record(name)
        except ExecutionNotFoundError as error:
            raise SetupError(f"{whose}: {model} names a run that is not there: {error}") from error
    elif provider not in DEFAULT_MODELS and not is_known_provider(provider):
        close = nearest(provider, DEFAULT_MODELS)
        advice = f"did you mean {close}:{name}?" if close else f"use one of pydantic-ai's, such as openai:{name}"
        raise SetupError(f"{whose}: no provider of models is called {provider!r}, as {model!r} says; {advice}")
