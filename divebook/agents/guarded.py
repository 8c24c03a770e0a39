"""What stands around all tools of an agent: each call is a strand, and what the model gets is limited."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from divebook.agents.present import CALL, AgentTurn, present
from divebook.agents.shortened import shortened
from divebook.workflow.tools import MOST

TOLD = ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, ValidationError
"""What a tool raises to say something to the model: it ends no other call."""


@dataclass
class GuardedToolset(WrapperToolset[Any]):
    """Sees every call of a tool before it is recorded, and its result before the model does."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Make a call that counts as a strand of the step from before it can have to wait until it is over."""
        turn = present()
        if turn is None:
            return await super().call_tool(name, tool_args, ctx, tool)
        place = turn.call(ctx.tool_call_id or name)
        token = CALL.set(place)
        try:
            with turn.context.calling():
                await asyncio.sleep(0)  # those of one response are all counted before one of them can have to wait
                return await self._made(turn, (name, tool_args, ctx, tool))
        finally:
            CALL.reset(token)

    async def _made(self, turn: AgentTurn, call: tuple[str, dict[str, Any], RunContext[Any], ToolsetTool[Any]]) -> Any:
        name, given, ctx, tool = call
        own = turn.tools.get(name)
        turn.count(name, None if own is None else own.limit)
        try:
            result = await super().call_tool(name, given, ctx, tool)
        except TOLD:
            raise
        except Exception:
            # it ends the turn, which cancels the calls beside it: those that are under way come to their end first
            await turn.context.alone()
            raise
        return shortened(result, MOST if own is None else own.most)
