"""Resumption of an agent's turn whose agent was changed in the meantime: comparison of the settings, and the choice to
finish or to start again.

The setting of a request (model, instructions, tools, output) is recorded next to the request and not compared on
replay. A corrected model name or another model setting therefore does not affect a resumed turn. Other instructions,
tools or outputs make the agent a different one: the model's recorded answers refer to the old definition. A person then
sees the changes and chooses between two options (`tests/agents/test_changed.py`):

- finish the turn with its original setting, which the log has;
- start the turn again, under new operation keys.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext, Tool, ToolDefinition

from divebook.agents.request_record import Described
from divebook.agents.requests import RequestRule
from divebook.agents.turn import SPENT, StepTurn
from divebook.errors import AgentError
from divebook.events.recorded import opened
from divebook.questions import Question
from divebook.questions.question import AGENT_CHANGED, FINISH
from divebook.questions.wording import Wording, agent_changed

INSTRUCTIONS = "instructions"
TOOLS = "tools"
OUTPUT = "output"
_TOOL = TypeAdapter(ToolDefinition)


@dataclass
class TurnCompatibility:
    """Comparison of the current setting of an agent (instructions, tools, output) with the setting that was recorded
    when the turn began.

    Parameters
    ----------
    can_replace_tools
        True if missing tools, or tools with other arguments, can be replaced, so that recorded calls remain valid.
    """

    context: StepTurn
    agent: str
    can_replace_tools: bool
    before: Mapping[str, Any] = field(default_factory=dict)
    """Original setting of the turn, if it differs from the current one."""
    changes: Sequence[str] = ()
    can_finish: bool = True

    async def check(self, request: Described) -> None:
        """Compare the setting (instructions, tools, output) of the turn's first request with the recorded one. If they
        differ, store the differences in `changes`, and raise an error that stops the agent loop.

        Raises
        ------
        AgentError
            The setting differs. A hook of the agent may treat this as a failure of its model, so `changes` has it too.
        """
        # The first request records the whole setting, later ones only its changes, so only the first can be compared.
        if request.number > 1 or request.setting is None:
            return
        recorded_digest = self.context.recorded_digest(request.key)
        if recorded_digest is None or recorded_digest == request.setting.digest:
            return
        recorded_setting = opened((await self.context.recorded_start(request.key))[1])
        current_setting = opened(request.setting.told)
        self.before = recorded_setting
        self.changes = _changes(recorded_setting, current_setting)
        # To finish with the original setting, each recorded call needs a tool that accepts its arguments, and the
        # output must be the same. Only the tools of a built agent can be replaced.
        schemas = _schemas(current_setting)
        has_all_tools = all(schemas.get(name) == schema for name, schema in _schemas(recorded_setting).items())
        has_same_output = recorded_setting.get(OUTPUT) == current_setting.get(OUTPUT)
        self.can_finish = has_same_output and (self.can_replace_tools or has_all_tools)
        # Digests may differ without a change that counts, for example if only the order of the tools is another one.
        if self.changes:
            raise AgentError(self.agent, request.number, "it is not what it was when the turn began")


Begin = Callable[[StepTurn, TurnCompatibility | None, Mapping[str, Any], Mapping[str, int]], Awaitable[dict[str, Any]]]
"""Runs the loop at a place, either with a comparison of settings or with a setting to restore. The last argument is the
consumption of the turn at other places (calls, tokens, cost), which counts in its budget."""


async def run_or_ask(
    context: StepTurn, agent: str, begin: Begin, *, can_replace_tools: bool, has_budget: bool
) -> dict[str, Any]:
    """Run a turn and return its result. If the agent was changed after the turn began, ask a person whether to finish
    the turn with the agent's original setting or to start the turn again.

    The first attempt compares settings. After a change the answer of the person decides: FINISH runs the loop once more
    at the same place with the original setting; ANEW runs it below ``anew-1/``, where no request is recorded yet. The
    agent may change again while that turn waits, so the loop repeats with the next number.

    `has_budget` is True if the turn has a budget. What the turn consumed before the question is then recorded with it,
    because a later process cannot tell the requests before the question from those after it.
    """
    place = context
    consumed: Mapping[str, int] = {}
    number = 1
    # Keys of a turn that was started again after each of two changes: `model-1`, `changed-1`, `anew-1/model-1`,
    # `anew-1/changed-2`, `anew-2/model-1`.
    while True:
        key = f"changed-{number}"
        recorded_question = place.recorded_question(key)
        compatibility = TurnCompatibility(place, agent, can_replace_tools)
        # A recorded question means that an earlier process has found the change. Nothing is compared again then.
        if recorded_question is None:
            try:
                result = await begin(place, compatibility, {}, consumed)
            # A hook of the agent may have converted the error of `check`, so its `changes` decide.
            except Exception:
                if not compatibility.changes:
                    raise
            # A hook may also have made an answer of the error, which must not end the turn.
            else:
                if not compatibility.changes:
                    return result
        answer = await _ask(place, key, compatibility, recorded_question, has_budget=has_budget)
        if (answer.response or {}).get("choice") == FINISH:
            # The setting of the first request is the original one.
            return await begin(place, None, opened((await place.recorded_start("model-1"))[1]), consumed)
        # A turn that starts again has paid for its earlier requests. Earlier versions did not record this.
        consumed = (answer.data or {}).get(SPENT, {})
        # Always below the place of the turn, not below the previous attempt: `anew-2/model-1`.
        place = context.below(f"anew-{number}")
        number = number + 1
        place.response_source = context.response_source  # the new place belongs to the same agent


async def _ask(
    place: StepTurn,
    key: str,
    compatibility: TurnCompatibility,
    recorded_question: Question | None,
    *,
    has_budget: bool,
) -> Question:
    """Ask a person how to continue a turn whose agent was changed; return the question with the answer. If the log has
    the question already, its recorded wording is used again.
    """
    if recorded_question is not None:
        wording = Wording.of(recorded_question)
    else:
        spent = {SPENT: {name: amount for name, amount in place.consumed().items() if amount}} if has_budget else {}
        wording = agent_changed(
            compatibility.agent, compatibility.changes, can_finish=compatibility.can_finish, spent=spent
        )
    return await place.question(AGENT_CHANGED, wording.question, key=key, data=wording.data)


def _changes(old_setting: Mapping[str, Any], new_setting: Mapping[str, Any]) -> list[str]:
    """Return the differences between two settings of an agent (instructions, tools, output), as texts for people."""
    old_tools = _tools(old_setting)
    new_tools = _tools(new_setting)
    common_tools = [name for name in old_tools if name in new_tools]
    changes: list[str] = []
    if old_setting.get(INSTRUCTIONS) != new_setting.get(INSTRUCTIONS):
        changes.append(f"{INSTRUCTIONS} differ")
    changes += [f"tool {name} is gone" for name in old_tools if name not in new_tools]
    changes += [f"tool {name} is new" for name in new_tools if name not in old_tools]
    changes += [f"tool {name} is described otherwise" for name in common_tools if old_tools[name] != new_tools[name]]
    if old_setting.get(OUTPUT) != new_setting.get(OUTPUT):
        changes.append(f"{OUTPUT} differs")
    return changes


def _tools(setting: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {tool["name"]: tool for tool in setting.get(TOOLS) or ()}


def _schemas(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schemas of the arguments of each tool in an agent's setting, by tool name."""
    return {name: tool["parameters_json_schema"] for name, tool in _tools(setting).items()}


class OriginalTurn(RequestRule):
    """Rule for a turn whose agent was changed after the turn had begun: its requests have the original instructions and
    tools.

    Parameters
    ----------
    setting
        Setting of the first request.
    """

    def __init__(self, setting: Mapping[str, Any]) -> None:
        self._tools = [_TOOL.validate_python(tool) for tool in _tools(setting).values()]
        self._instructions = setting.get(INSTRUCTIONS)

    def before_request(self, step: int, request: ModelRequestContext) -> ModelRequestContext:
        """Replace the current instructions and tools in a request with the original ones."""
        del step
        instructions = [] if self._instructions is None else [InstructionPart(content=self._instructions)]
        parameters = replace(
            request.model_request_parameters, function_tools=self._tools, instruction_parts=instructions
        )
        return replace(request, model_request_parameters=parameters)


def accept_original_calls(tool: Tool[Any], setting: Mapping[str, Any]) -> Tool[Any]:
    """Return a tool that also accepts the arguments that were valid when the turn began, so that recorded calls can be
    replayed. A tool whose parameters have not changed is returned unchanged.

    Recorded calls are not validated against the current form. New calls must be valid in it.
    """
    original_schema = _schemas(setting).get(tool.name)
    # A new tool has no original form.
    if original_schema in (None, tool.tool_def.parameters_json_schema):
        return tool

    async def call_current_tool(ctx: RunContext[Any], /, **arguments: Any) -> Any:
        # Reached for new calls only: a recorded call returns its result before the tool is called.
        try:
            valid_arguments = tool.function_schema.validator.validate_python(arguments)
        except ValidationError as error:
            raise ToolFailed(f"{tool.name} takes other arguments by now: {error}") from error
        return await tool.function_schema.call(valid_arguments, ctx)

    replacement = Tool.from_schema(
        call_current_tool, tool.name, tool.description, dict(original_schema), takes_ctx=True
    )
    replacement.metadata = tool.metadata
    return replacement


def placeholders(setting: Mapping[str, Any], current_tools: Mapping[str, Any]) -> list[Tool[Any]]:
    """Return a substitute for each tool that the agent had when the turn began and that no longer exists. Recorded
    results of the tool can then be replayed; a new call of a substitute fails.
    """
    tools: list[Tool[Any]] = []
    for name, tool in _tools(setting).items():
        if name not in current_tools:
            schema = tool["parameters_json_schema"]
            tools.append(Tool.from_schema(_failing_function(name), name, tool.get("description"), schema))
    return tools


def _failing_function(name: str) -> Callable[..., Any]:
    async def fail(**_arguments: Any) -> None:
        raise ToolFailed(f"{name} is not there any more")

    return fail
