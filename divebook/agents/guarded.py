"""What stands around all tools of an agent: each call is a strand, is approved, and what the model gets is limited."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_ai._function_schema import FunctionSchema
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from divebook.agents.present import CALL, AgentTurn, CallPlace, present
from divebook.agents.shortened import shortened
from divebook.agents.wire import plainly
from divebook.engine.approvals import Denied, ToolCall
from divebook.engine.argument_patterns import is_same
from divebook.engine.cards import embedded
from divebook.engine.operations import TOOL_CALL
from divebook.errors import OperationError
from divebook.workflow.approvals import IF_DESTRUCTIVE
from divebook.workflow.tools import MOST

TOLD = ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, ValidationError
"""What a tool raises to say something to the model: it ends no other call."""
_Call: TypeAlias = tuple[str, dict[str, Any], RunContext[Any], ToolsetTool[Any]]


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
                return await self._made(turn, place, (name, tool_args, ctx, tool))
        finally:
            CALL.reset(token)

    async def _made(self, turn: AgentTurn, place: CallPlace, call: _Call) -> Any:
        name, given, ctx, tool = call
        own = turn.tools.get(name)
        if place.put_off is None:
            turn.count(name, None if own is None else own.limit)
        try:
            arguments = given if ctx.tool_call_approved else await _approved(turn, place, name, given, tool)
            result = await super().call_tool(name, arguments, ctx, tool)
        except ApprovalRequired:
            turn.put_off.add(place.name)
            raise
        except TOLD:
            raise
        except Exception as error:
            if isinstance(error, OperationError) and error.operation_type == TOOL_CALL:
                turn.failed.append((name, error))
            # it ends the turn, which cancels the calls beside it: those that are under way come to their end first
            await turn.context.alone()
            raise
        return shortened(result, MOST if own is None else own.most)


async def _approved(
    turn: AgentTurn, place: CallPlace, name: str, given: dict[str, Any], tool: ToolsetTool[Any]
) -> dict[str, Any]:
    """Return the arguments with which a call may be made; `ToolFailed` tells the model why it may not."""
    told: Mapping[str, Any] = plainly(given)
    asked = turn.context.asked(f"approve-{place.name}") if turn.is_as_begun else None
    if asked is not None:
        told = given = dict((asked.data or {})["parameters"])  # what its tool took then, and a person saw
    own = turn.tools.get(name)
    call = ToolCall(name, told, agent=turn.record.agent, mode=IF_DESTRUCTIVE)
    if own is not None:
        call = replace(
            call, tool=own.own_name, server=own.server, hints=own.hints, asks=own.approval, mode=own.confirmation
        )
        call = replace(call, files=turn.context.files_of(own), fixed=own.fixed, rule_name=own.rule_name)
    definition, single = tool.tool_def, _of_single_argument(tool)
    schema = definition.parameters_json_schema
    if single is not None:
        schema = _under(str(single.single_arg_name), schema)
    found = await turn.context.approve(call, schema, place=place.name, description=definition.description or "")
    if isinstance(found, Denied):
        raise ToolFailed(found.text)
    place.rule = "" if found.rule == call.mode else found.rule
    if is_same(found.arguments, told):
        return given
    try:
        validate = tool.args_validator.validate_python if single is None else single.revalidate
        validated: dict[str, Any] = validate(dict(found.arguments))
    except ValidationError as error:
        raise ToolFailed(f"{name} was approved with arguments that do not fit: {error}") from error
    return validated


def _of_single_argument(tool: ToolsetTool[Any]) -> FunctionSchema | None:
    """Return the schema of a function whose one parameter is a model, if the tool is one.

    The library shows a model the fields of that parameter as the arguments of the tool, and calls the function with the
    parameter by its name, as a person sees it (test_arguments_that_are_shown_can_be_given_back).
    """
    while hasattr(tool, "source_tool"):
        tool = tool.source_tool
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    return schema if isinstance(schema, FunctionSchema) and schema.single_arg_name is not None else None


def _under(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that holds what fits a schema under one name."""
    properties = {name: embedded(schema, f"#/properties/{name}")}
    return {"type": "object", "properties": properties, "required": [name], "additionalProperties": False}
