"""A turn that goes on with an agent that is not what it was when the turn began: a person says what is to become of it.

What a request is made with is kept beside it in the log and not compared: a fix of a model's name or of a setting lets
a turn go on. Other instructions, tools or outputs make an agent another one: the model has answered what it was told
then. So a person is told what has changed, and says whether the turn is finished with what it began with, which the
log has, or begun anew, at places of its own (`tests/agents/test_changed.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext, Tool, ToolDefinition

from divebook.agents.requests import Described
from divebook.agents.turn import TurnContext
from divebook.errors import AgentError
from divebook.events.recorded import opened
from divebook.questions import Question
from divebook.questions.question import AGENT_CHANGED, ANEW, FINISH

INSTRUCTIONS, TOOLS, OUTPUT = "instructions", "tools", "output"
_TOOL = TypeAdapter(ToolDefinition)


@dataclass
class TurnCompatibility:
    """Whether a turn that goes on is made with what it began with; its first request shows it.

    Parameters
    ----------
    stands_in
        Whether tools that are gone, or take other arguments, can be replaced, so that calls in the log still fit.
    """

    context: TurnContext
    agent: str
    stands_in: bool
    before: Mapping[str, Any] = field(default_factory=dict)
    """What it was made with when it began, once that is known to be something else."""
    changes: Sequence[str] = ()
    can_finish: bool = True

    async def check(self, told: Described) -> None:
        """Break the loop off if the log has the first request, and it was made with something else.

        Raises
        ------
        AgentError
            It was. A hook of the agent may take this for a failure of its model: `changes` say it as well.
        """
        if (
            told.number > 1
            or told.setting is None
            or self.context.recorded_digest(told.key) in (None, told.setting.digest)
        ):
            return
        before = opened((await self.context.recorded_start(told.key))[1])
        now = opened(told.setting.told)
        self.before, self.changes = before, _changes(before, now)
        taken = _schemas(now)
        are_there = all(taken.get(name) == schema for name, schema in _schemas(before).items())
        self.can_finish = before.get(OUTPUT) == now.get(OUTPUT) and (self.stands_in or are_there)
        if self.changes:
            raise AgentError(self.agent, told.number, "it is not what it was when the turn began")


Begin = Callable[[TurnContext, TurnCompatibility | None, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Runs the loop at a place: with a check of what it is made with, or with what it is to be made with."""


async def carried_on(context: TurnContext, agent: str, begin: Begin, *, stands_in: bool) -> dict[str, Any]:
    """Return what a turn comes to; where its agent has changed, as a person says."""
    place, number = context, 1
    while True:
        key = f"changed-{number}"
        asked, agreement = place.asked(key), TurnCompatibility(place, agent, stands_in)
        if asked is None:
            try:
                result = await begin(place, agreement, {})
            except Exception:
                if not agreement.changes:
                    raise
            else:
                if not agreement.changes:
                    return result
        answered = await _ask(place, key, agreement, asked)
        if (answered.response or {}).get("choice") == FINISH:
            return await begin(place, None, opened((await place.recorded_start("model-1"))[1]))
        place, number = context.below(f"anew-{number}"), number + 1
        place.recall = context.recall  # it is the same agent that asks


async def _ask(place: TurnContext, key: str, agreement: TurnCompatibility, asked: Question | None) -> Question:
    """Ask what is to become of the turn; a question that was asked stands as it is, whatever has changed since."""
    if asked is not None:
        return await place.question(AGENT_CHANGED, asked.question, key=key, data=asked.data)
    what, choices = "; ".join(agreement.changes), [FINISH, ANEW] if agreement.can_finish else [ANEW]
    finish = f"{FINISH} to go on with what it began with, or " if agreement.can_finish else ""
    text = (
        f"Agent {agreement.agent} is not what it was when this turn began ({what}). Answer {finish}{ANEW} to begin the "
        "turn again: its calls of tools are then made again as well"
    )
    data = {"agent": agreement.agent, "changes": list(agreement.changes), "choices": choices}
    return await place.question(AGENT_CHANGED, text, key=key, data=data)


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs, for people."""
    old, new = _tools(before), _tools(now)
    return [
        *(f"{name} differ" for name in (INSTRUCTIONS,) if before.get(name) != now.get(name)),
        *(f"tool {name} is gone" for name in old if name not in new),
        *(f"tool {name} is new" for name in new if name not in old),
        *(f"tool {name} is described otherwise" for name in old if name in new and old[name] != new[name]),
        *(f"{name} differs" for name in (OUTPUT,) if before.get(name) != now.get(name)),
    ]


def _tools(setting: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {tool["name"]: tool for tool in setting.get(TOOLS) or ()}


def _schemas(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the arguments of each tool are."""
    return {name: tool["parameters_json_schema"] for name, tool in _tools(setting).items()}


class OriginalTurn(AbstractCapability[Any]):
    """Has the model told what it was told when the turn began.

    Parameters
    ----------
    setting
        What the first request was made with.
    """

    def __init__(self, setting: Mapping[str, Any]) -> None:
        self._tools = [_TOOL.validate_python(tool) for tool in _tools(setting).values()]
        self._instructions = setting.get(INSTRUCTIONS)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put the instructions and tools of then in place of those of now."""
        del ctx
        told = [] if self._instructions is None else [InstructionPart(content=self._instructions)]
        given = replace(request_context.model_request_parameters, function_tools=self._tools, instruction_parts=told)
        return replace(request_context, model_request_parameters=given)


def in_old_form(tool: Tool[Any], setting: Mapping[str, Any]) -> Tool[Any]:
    """Return a tool that takes calls in the form in which a turn began.

    Calls that the log has are not held against what it takes now; one that is yet to be made must fit that.
    """
    before = _schemas(setting).get(tool.name)
    if before in (None, tool.tool_def.parameters_json_schema):
        return tool

    async def called(ctx: RunContext[Any], /, **arguments: Any) -> Any:
        try:
            fitting = tool.function_schema.validator.validate_python(arguments)
        except ValidationError as error:
            raise ToolFailed(f"{tool.name} takes other arguments by now: {error}") from error
        return await tool.function_schema.call(fitting, ctx)

    made = Tool.from_schema(called, tool.name, tool.description, dict(before), takes_ctx=True)
    made.metadata = tool.metadata
    return made


def stand_ins(setting: Mapping[str, Any], known: Mapping[str, Any]) -> list[Tool[Any]]:
    """Return tools in place of those that are gone: what they returned is in the log, and no more calls are made."""
    gone = (tool for name, tool in _tools(setting).items() if name not in known)
    return [
        Tool.from_schema(_gone(tool["name"]), tool["name"], tool.get("description"), tool["parameters_json_schema"])
        for tool in gone
    ]


def _gone(name: str) -> Callable[..., Any]:
    async def gone(**_arguments: Any) -> None:
        raise ToolFailed(f"{name} is not there any more")

    return gone
