"""Runs pydantic-ai's loop for one turn of an agent: requests and calls in turn, until there is an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pydantic_ai
from pydantic_ai.messages import ModelMessage, UserContent, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.tools import RunContext, Tool
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import UsageLimits

from divebook.agents.durability import ENGINE, DivebookDurability
from divebook.agents.durable import Request, resolved
from divebook.agents.present import CALL, TURN, AgentTurn
from divebook.agents.requests import RequestRecord
from divebook.agents.signatures import library_tool
from divebook.agents.turn import TurnContext
from divebook.agents.wire import settings_of
from divebook.workflow.tools import ToolFunction

if TYPE_CHECKING:
    from divebook.agents.agent import Agent

TOOLSET = "divebook-tools"
"""Id of the toolset of our functions; pydantic-ai wants one, and nothing of it is recorded."""
OUTPUT, REQUESTS, FINISH_REASON = "output", "requests", "finish_reason"
"""What the result of a turn says."""


async def run_turn(
    agent: Agent, message: Request, context: TurnContext, tools: Sequence[ToolFunction]
) -> dict[str, Any]:
    """Return what a turn of an agent comes to."""
    definition, record = agent.definition, RequestRecord(agent.name)
    known = {tool.name: tool for tool in tools}
    turn = AgentTurn(context, record, agent.model_name, agent.retry, definition.response_timeout, known)
    library = _library_agent(agent, await resolved(agent.model), tools)
    history, asked = _messages(message)
    token = TURN.set(turn)
    try:
        result = await library.run(
            asked,
            message_history=history or None,
            instructions=message.instructions or None,
            model_settings=settings_of(definition),
            usage_limits=UsageLimits(request_limit=None),
            infer_name=False,
        )
    finally:
        TURN.reset(token)
    return {OUTPUT: result.output, REQUESTS: record.requests, FINISH_REASON: result.response.finish_reason}


def _library_agent(agent: Agent, model: Model, tools: Sequence[ToolFunction]) -> pydantic_ai.Agent[None, Any]:
    made = [_library_tool(tool) for tool in tools]
    toolsets = [FunctionToolset(made, id=TOOLSET)] if made else []
    return pydantic_ai.Agent(model, name=agent.name, toolsets=toolsets, capabilities=[DivebookDurability()])


def _library_tool(tool: ToolFunction) -> Tool[Any]:
    made = library_tool(tool, _call)
    if tool.inline:
        made.metadata = {ENGINE: False}
    return made


async def _call(tool: ToolFunction, context: RunContext[Any], arguments: Mapping[str, Any]) -> Any:
    """Call one of our functions, inside its operation."""
    del context
    call = CALL.get()
    assert call is not None  # noqa: S101 - the guard around all tools has set it
    return await call.turn.context.invoke(tool, arguments, key=call.key)


def _messages(message: Request) -> tuple[list[ModelMessage], str | Sequence[UserContent]]:
    """Return what stands in front of a prompt, and the prompt with its content."""
    *history, last = message.messages()
    (part,) = last.parts
    assert isinstance(part, UserPromptPart)  # noqa: S101 - that is what `Request` makes
    return history, part.content
