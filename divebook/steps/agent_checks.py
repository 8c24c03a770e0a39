"""Checks of agents before anything is recorded: unknown names, ambiguous names, and tools without a JSON schema.

Workflow functions name their agents at run time. Those agents are checked when the function asks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from divebook.agents import Agent
from divebook.agents.models import DEFAULT_MODELS, RECORDED, is_known_provider
from divebook.errors import (
    DefinitionError,
    ExecutionNotFoundError,
    NotFoundError,
    SetupError,
    nearest,
)
from divebook.steps.step_turn import AgentToolkit
from divebook.store import EventStore
from divebook.text.redaction import logger
from divebook.tools.builtin import ABSENT, OFFERED
from divebook.workflow.resources import ToolDefinition
from divebook.workflow.step import (
    Step,
)
from divebook.workflow.tools import ToolFunction

if TYPE_CHECKING:
    pass
from divebook.steps.delegation import ASSIGN_WORK

N = TypeVar("N", str, str | None)


_log = logger(__name__)


OurTools: TypeAlias = Mapping[str, ToolFunction]
"""Tools that were passed to the environment itself, by name."""


def require_existing(kind: str, names: Iterable[str], existing: Iterable[str], agent: str) -> None:
    """Raise `NotFoundError` unless all names that an agent uses exist."""
    for name in names:
        if name not in existing:
            raise NotFoundError(kind, name, existing, f"{kind} not found: {name}, which agent {agent} names")


def agents_of_steps(
    steps: Iterable[Step], find: Callable[[str | None], Agent | None], toolkit: AgentToolkit
) -> list[Agent]:
    """Return the agents of prompt steps and all their subordinates, once each."""
    return agents_with_subordinates({step.agent for step in steps if step.type == "prompt"}, find, toolkit)


def agents_with_subordinates(
    names: Iterable[N], find: Callable[[N], Agent | None], toolkit: AgentToolkit
) -> list[Agent]:
    """Return the named agents and all their subordinates, once each."""
    agents: dict[str, Agent] = {}
    remaining = [agent for agent in map(find, names) if agent is not None]
    while remaining:
        agent = remaining.pop()
        if agent.name not in agents:
            agents[agent.name] = agent
            remaining += toolkit.subordinates_for(agent.definition)
    return [*agents.values()]


def check_declared(
    declared: Iterable[ToolDefinition], existing: Iterable[str], agents: Iterable[Agent], servers: Iterable[str]
) -> None:
    """Raise `NotFoundError` if ``Tools`` configures an unknown tool: the entry would have no effect."""
    names = {*existing, *OFFERED, *ABSENT, ASSIGN_WORK, *(tool.name for agent in agents for tool in agent.tools)}
    for entry in declared:
        if entry.name not in names and not any(servers):  # of a server's tools we know when it was asked
            missing = f"Tools of the definition says something of an unknown tool: {entry.name}"
            raise NotFoundError("tool", entry.name, names, missing)


def check_agent(agent: Agent, toolkit: AgentToolkit, environment_tools: OurTools) -> None:
    """Raise unless each name that an agent uses exists and is unambiguous. An agent of the legacy Dive dialect runs
    without tools of services that divebook does not have.

    Raises
    ------
    NotFoundError, SetupError, DefinitionError
        It is not, or a tool cannot be shown to a model.
    """
    definition = agent.definition
    for name in definition.tool_config:
        if name not in definition.tools:
            raise SetupError(f"ToolConfig of agent {agent.name} names {name}, which is not among its Tools: add it")
    toolkit.subordinates_for(definition)
    toolkit.servers_for(definition)
    tools = [toolkit.limited(tool) for tool in (*toolkit.tools_for(definition), *agent.tools)]
    _check_names(agent, tools, environment_tools)
    _check_signatures(agent, tools)
    for name in ABSENT.keys() & set(definition.tools) - {tool.name for tool in tools}:
        _log.warning("agent %s goes without the tool %s: %s", agent.name, name, ABSENT[name])


def _check_names(agent: Agent, tools: Iterable[ToolFunction], environment_tools: OurTools) -> None:
    """Raise if two tools have one name: a rule or an `approval` for one would apply to the other."""
    by_name: dict[str, ToolFunction] = {}
    for tool in tools:
        if tool.name in by_name:
            both = f"{_place(by_name[tool.name].function)} and {_place(tool.function)}"
            raise SetupError(
                f"agent {agent.name} has two tools called {tool.name}: {both}; leave one out, or give it another name "
                "with @tool(name=...)"
            )
        by_name[tool.name] = tool
    for tool in agent.tools:
        other = environment_tools.get(tool.name)
        if other is not None and not _is_same(tool.function, other.function):
            raise SetupError(
                f"agent {agent.name} has a tool called {tool.name} of its own, {_place(tool.function)}, and its "
                f"environment another one, {_place(other.function)}: give one of them another name with "
                f'@tool(name=...), or let the agent have the other with tools=["{tool.name}"]'
            )


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return True if two functions are the same, or one is the other after its cell has run again. Functions that a
    call creates may differ.
    """
    return one == other or (_place(one) == _place(other) and "<locals>" not in _place(one))


def _place(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{function.__module__}.{name}"


def _check_signatures(agent: Agent, tools: Iterable[ToolFunction]) -> None:
    """Raise unless each function of a user has a JSON schema. Functions of divebook and tools of servers have one."""
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
    """Raise `SetupError` if a model name refers to an unknown provider or run. `whose` is the beginning of the error.

    A missing library or key is reported when the model is used: it can be fixed while the run waits.
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
