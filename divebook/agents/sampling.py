"""What an MCP server asks of a model where its definition names an agent for that: a request recorded in the turn.

It is counted, bounded and tried again as the turn's own requests are. Its key says what was asked, so that a call which
is made again after a kill finds its answers whatever order it asks in (``tests/tools/test_mcp_sampling.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from divebook.errors import OperationError, SetupError
from divebook.events.codec import short_hash

if TYPE_CHECKING:
    from divebook.agents.present import AgentTurn
    from divebook.agents.turn import Sampler, TurnContext

MESSAGES = "messages"
"""What a request has that is for a model, and one for a person has not."""


def require_sampler(context: TurnContext, name: str, server: str) -> None:
    """Raise unless an agent may answer what a server asks: what a server writes is to call no tools."""
    if context.sampler(name).has_hands:
        raise SetupError(
            f"agent {name} answers what MCP server {server} asks of a model, but has tools, servers, an output, bounds "
            f"or a cache: name one in its Sampling that has none of these"
        )


async def sampled(turn: AgentTurn, call: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the agent that a request names answers, or why it does not.

    Parameters
    ----------
    call
        The call's part of keys: ``<n>-<id>``.
    """
    context = turn.context
    agent = context.sampler(asked["agent"]).with_settings(
        temperature=asked.get("temperature"), max_tokens=asked["max_tokens"]
    )
    *before, last = asked[MESSAGES]
    said = [asked["system"]] if asked.get("system") else []
    said += [f"{message['role']}: {message['text']}" for message in before]
    told = [{"type": "text", "text": "\n\n".join(said)}] if said else []
    key = turn.key(f"sample-{call}-{short_hash(asked)}")
    try:
        text = await agent.respond(last["text"], _recorded(turn, agent, key), context=told)
    except OperationError as error:
        return {"error": str(error)}
    return {"text": text, "model": agent.model_name}


def _recorded(turn: AgentTurn, agent: Sampler, key: str) -> Any:
    """Return how a request is made: once, under a key, within the bounds of the turn."""

    async def operation(
        kind: str, parameters: Mapping[str, Any], call: Callable[[], Awaitable[Any]], **options: Any
    ) -> Any:
        async with turn.spending(key, options["reserved"]):
            recorded = await turn.context.operation(kind, parameters, call, key=key, retry=agent.retry, **options)
        if turn.budget is not None:
            turn.budget.spend(options["usage"](recorded))
        return recorded

    return operation
