"""Calls that an agent of pydantic-ai puts off until a person has approved them, or has said what they come to."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from divebook.agents.present import AgentTurn
from divebook.agents.side_by_side import side_by_side
from divebook.engine.approvals import Denied, ToolCall
from divebook.engine.argument_patterns import is_same
from divebook.events.recorded import opened
from divebook.questions.answer import value_of
from divebook.questions.kinds import CLARIFICATION


async def deferred(turn: AgentTurn, requests: DeferredToolRequests) -> DeferredToolResults:
    """Return what becomes of them."""
    asked: list[Awaitable[Any]] = [_approval(turn, call) for call in requests.approvals]
    asked += [_question(turn, call) for call in requests.calls]
    found = await side_by_side(turn.context, asked)
    ids = [call.tool_call_id for call in (*requests.approvals, *requests.calls)]
    count = len(requests.approvals)
    return requests.build_results(
        approvals=dict(zip(ids[:count], found[:count], strict=True)),
        calls=dict(zip(ids[count:], found[count:], strict=True)),
    )


async def _approval(turn: AgentTurn, part: ToolCallPart) -> ToolApproved | ToolDenied:
    given, place = part.args_as_dict(), turn.call(part.tool_call_id)
    if place.put_off is not None and turn.context.asked(f"approve-{place.put_off}") is not None:
        return ToolApproved()  # by a person, before the tool was called and wanted it
    call = ToolCall(part.tool_name, given, agent=turn.record.agent, asks=True)
    found = await turn.context.approve(call, {}, place=place.name, description="")
    if isinstance(found, Denied):
        return ToolDenied(found.text)
    return ToolApproved(override_args=None if is_same(found.arguments, given) else found.arguments)


async def _question(turn: AgentTurn, part: ToolCallPart) -> Any:
    told = {"tool": part.tool_name, "parameters": part.args_as_dict(), "agent": turn.record.agent}
    text = f"What is the result of {part.tool_name}?"
    answered = await turn.context.question(
        CLARIFICATION, text, key=f"ask-{turn.call(part.tool_call_id).name}", data=told
    )
    return opened(value_of(answered))
