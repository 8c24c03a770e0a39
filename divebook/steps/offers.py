"""What an environment gives to its agents while they work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from divebook.agents import Agent
from divebook.agents.cache import ResponseCache
from divebook.documents import Policy
from divebook.history.requests import RequestView
from divebook.steps.threads import ThreadBooks
from divebook.workflow.definition import AgentDefinition
from divebook.workflow.tool_servers import ToolServer
from divebook.workflow.tools import ToolFunction


class Equipment(Protocol):
    """What agents may use."""

    def agent(self, name: str) -> Agent:
        """Return the agent of that name; raises `NotFoundError`."""

    def tools_for(self, definition: AgentDefinition) -> Sequence[ToolFunction]:
        """Return the tools that an agent names."""

    def limited(self, tool: ToolFunction) -> ToolFunction:
        """Return a tool with the limits that its environment sets."""

    def servers_for(self, definition: AgentDefinition) -> Sequence[ToolServer]:
        """Return the MCP servers whose tools an agent may call."""

    def subordinates_for(self, definition: AgentDefinition) -> Sequence[Agent]:
        """Return the agents that one may give work to."""


class Offers(Equipment, Protocol):
    """What an environment gives to agents."""

    threads: ThreadBooks
    """The conversations of its store."""

    @property
    def responses(self) -> ResponseCache:
        """The responses that agents with a `Cache` use again."""

    def requests_of(self, run: str) -> Sequence[RequestView]:
        """Return the requests that a run made to models; raises `ExecutionNotFoundError`."""

    def policy_for_agent(self, name: str) -> Policy:
        """Return the permissions of an agent."""

    def check_agent(self, agent: Agent) -> None:
        """Raise unless what an agent names is there, once."""
