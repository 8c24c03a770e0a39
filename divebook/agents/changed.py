"""Resuming a turn whose agent has changed since the turn began.

The setting of a request (model, instructions, tools, output) is recorded next to it and not compared on replay. A fixed
model name or another model setting therefore does not affect a resumed turn. Other instructions, tools or outputs make
it a different agent: the model's recorded answers refer to the old ones. A person then sees the changes and chooses
between two options (`tests/agents/test_changed.py`):

- finish the turn with its original setting, which the log has;
- start the turn again, under new operation keys.
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

INSTRUCTIONS = "instructions"
TOOLS = "tools"
OUTPUT = "output"
_TOOL = TypeAdapter(ToolDefinition)


@dataclass
class TurnCompatibility:
    """Comparison of a resumed turn with the setting that it began with, made at its first request.

    Parameters
    ----------
    stands_in
        True if missing tools, or tools with other arguments, can be replaced, so that recorded calls remain valid.
    """

    context: TurnContext
    agent: str
    stands_in: bool
    before: Mapping[str, Any] = field(default_factory=dict)
    """Original setting of the turn, if it differs from the current one."""
    changes: Sequence[str] = ()
    can_finish: bool = True

    async def check(self, told: Described) -> None:
        """Stop the loop if the first request is recorded with another setting.

        Raises
        ------
        AgentError
            The setting differs. A hook of the agent may treat this as a failure of its model, so `changes` has it too.
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
"""Runs the loop at a place, either with a comparison of settings or with a setting to restore."""


async def carried_on(context: TurnContext, agent: str, begin: Begin, *, stands_in: bool) -> dict[str, Any]:
    """Return the result of a turn. If its agent has changed, ask a person how to continue."""
    place = context
    number = 1
    while True:
        key = f"changed-{number}"
        asked = place.asked(key)
        agreement = TurnCompatibility(place, agent, stands_in)
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
        place = context.below(f"anew-{number}")
        number = number + 1
        place.recall = context.recall  # the new place belongs to the same agent


async def _ask(place: TurnContext, key: str, agreement: TurnCompatibility, asked: Question | None) -> Question:
    """Ask how to continue the turn. A recorded question keeps its wording, whatever has changed since."""
    if asked is not None:
        return await place.question(AGENT_CHANGED, asked.question, key=key, data=asked.data)
    what = "; ".join(agreement.changes)
    choices = [FINISH, ANEW] if agreement.can_finish else [ANEW]
    finish = f"{FINISH} to go on with what it began with, or " if agreement.can_finish else ""
    text = (
        f"Agent {agreement.agent} is not what it was when this turn began ({what}). Answer {finish}{ANEW} to begin the "
        "turn again: its calls of tools are then made again as well"
    )
    data = {"agent": agreement.agent, "changes": list(agreement.changes), "choices": choices}
    return await place.question(AGENT_CHANGED, text, key=key, data=data)


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences as text for people."""
    old = _tools(before)
    new = _tools(now)
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
    """Return the argument schema of each tool."""
    return {name: tool["parameters_json_schema"] for name, tool in _tools(setting).items()}


class OriginalTurn(AbstractCapability[Any]):
    """Capability that restores the instructions and tools with which the turn began.

    Parameters
    ----------
    setting
        Setting of the first request.
    """

    def __init__(self, setting: Mapping[str, Any]) -> None:
        self._tools = [_TOOL.validate_python(tool) for tool in _tools(setting).values()]
        self._instructions = setting.get(INSTRUCTIONS)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replace the current instructions and tools with the original ones."""
        del ctx
        told = [] if self._instructions is None else [InstructionPart(content=self._instructions)]
        given = replace(request_context.model_request_parameters, function_tools=self._tools, instruction_parts=told)
        return replace(request_context, model_request_parameters=given)


def in_old_form(tool: Tool[Any], setting: Mapping[str, Any]) -> Tool[Any]:
    """Return a tool that accepts calls in the form that was valid when the turn began.

    Recorded calls are not validated against the current form. New calls must be valid in it.
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
    """Return placeholders for tools that no longer exist. Recorded results remain usable; new calls fail."""
    gone = (tool for name, tool in _tools(setting).items() if name not in known)
    return [
        Tool.from_schema(_gone(tool["name"]), tool["name"], tool.get("description"), tool["parameters_json_schema"])
        for tool in gone
    ]


def _gone(name: str) -> Callable[..., Any]:
    async def gone(**_arguments: Any) -> None:
        raise ToolFailed(f"{name} is not there any more")

    return gone
