"""What stands around all tools of an agent: each call is a strand, and what the model gets of its result is limited."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from divebook.agents.present import CALL, present


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
        token = CALL.set(turn.call(ctx.tool_call_id or name))
        try:
            with turn.context.calling():
                await asyncio.sleep(0)  # those of one response are all counted before one of them can have to wait
                return await super().call_tool(name, tool_args, ctx, tool)
        finally:
            CALL.reset(token)
