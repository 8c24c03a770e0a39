"""Data types and engine interface of one agent turn inside a step.

`divebook.agents` does not import `divebook.runtime`. An agent with tools records its operations through a
`TurnContext`. `divebook.steps.step_turn` implements that protocol for a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypedDict, TypeVar, Unpack, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext, Tool, ToolDefinition

from divebook.agents.request_record import Described
from divebook.errors import AgentError
from divebook.events.recorded import opened
from divebook.questions import Question
from divebook.questions.question import AGENT_CHANGED, ANEW, FINISH

if TYPE_CHECKING:
    from divebook.agents.request_record import ResponseSource
    from divebook.engine.approvals import Approved, Denied, ToolCall
    from divebook.engine.operations import Reserved, RunOperation, Setting, Slot, StreamedCall
    from divebook.workflow.step import Retry
    from divebook.workflow.tools import FileSpellings, ToolFunction


SPENT = "spent"
"""Key in the result of a turn for its consumption. Present if the turn worked for another turn that has a budget."""


class Answer(NamedTuple):
    """The answer of an agent."""

    text: str
    value: Any
    """The same text, or the recorded form of its structured output."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One task for an agent: prompt, content, expected output and conversation."""

    prompt: str
    content: Sequence[Mapping[str, Any]] = ()
    """Content blocks that precede the prompt."""
    context: Sequence[Mapping[str, Any]] = ()
    """Content blocks of the agent's own `Context`. They form an extra message before all others."""
    output: Any = None
    """Type or JSON schema of the answer. Overrides that of the agent."""
    deps: Any = None
    """Dependencies for tools. Override those of the agent."""
    prefix: str = ""
    """Prefix of the operation keys of the turn, for a step that runs several turns."""
    thread: str | None = None
    """Name of the conversation that the turn continues."""
    history: Sequence[Any] = ()
    """Earlier messages of that conversation in their recorded form, grouped by turn."""

    share: Mapping[str, Any] | None = None
    """Bounds that the delegating agent assigns to this task, in addition to the agent's own bounds."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are compared with the log. Empty fields except the prompt are left out."""
        fields = {"prompt": self.prompt, "content": self.content, "context": self.context, "thread": self.thread}
        return {name: value for name, value in fields.items() if value or name == "prompt"}


class Sampler(Protocol):
    """Agent that answers sampling requests in place of a model; see `divebook.agents.Agent`."""

    @property
    def model_name(self) -> str:
        """Name of the model."""

    @property
    def has_hands(self) -> bool:
        """True if the agent may use tools."""

    @property
    def retry(self) -> Retry:
        """Retry policy of a request."""

    def with_settings(self, *, temperature: float | None = None, max_tokens: int | None = None) -> Self:
        """Return a copy with other settings."""

    async def respond(self, prompt: str, operation: RunOperation, *, context: Sequence[Mapping[str, Any]] = ()) -> str:
        """Answer a prompt with one model request, which `operation` runs."""


class OperationOptions(TypedDict, total=False):
    """Optional arguments of an operation; see `divebook.runtime.context.StepContext.operation`."""

    setting: Setting | None
    usage: Callable[[Any], Mapping[str, int]]
    repeatable: bool
    reserved: Reserved
    streamed: StreamedCall
    slot: Slot | None
    done: Callable[[Any], Any]


class TurnContext(Protocol):
    """Services of the engine for one turn of an agent.

    Keys are names inside the turn. The recorded key is the prefix of the turn plus this name.
    """

    prefix: str
    """Prefix of the recorded keys."""
    response_source: ResponseSource | None
    """Source of model responses that is asked before the model; None to always ask the model."""

    @property
    def run_id(self) -> str:
        """Id of the turn: unique in the execution and the same when the turn runs again."""

    @property
    def started_at(self) -> datetime | None:
        """Start time of the execution (UTC). It is in the log already, so a replay needs no operation for it."""

    @property
    def qualifies_tools(self) -> bool:
        """True if tools with the same name are prefixed with the name of their server.

        If False, an agent cannot have both.
        """

    def sampler(self, name: str) -> Sampler:
        """Return the agent of the environment that answers sampling requests of servers.

        Raises
        ------
        NotFoundError
            The environment has no agent of this name.
        """

    def recorded_type(self, key: str) -> str | None:
        """Return the type of the operation recorded under a key; None if the log has no such operation."""

    def consumed_by_failures(self, key: str) -> Mapping[str, int]:
        """Return the consumption of the failed attempts of an operation."""

    async def operation(
        self,
        kind: str,
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str,
        retry: Retry | None = None,
        **options: Unpack[OperationOptions],
    ) -> Any:
        """Run a call as an operation: return the recorded result, or make the call with retries."""

    async def call(
        self,
        tool: ToolFunction,
        arguments: Mapping[str, Any],
        parameters: Mapping[str, Any],
        call: Callable[[], Awaitable[Any]],
        *,
        key: str,
        setting: Setting | None,
        done: Callable[[Any], Any],
    ) -> Any:
        """Run a tool call as an operation, with the tool's own retries, time limit and concurrency limit.

        `parameters` are recorded in the log. `call` makes the call and must call `invoke` inside.
        """

    async def invoke(self, tool: ToolFunction, arguments: Mapping[str, Any], *, key: str) -> Any:
        """Call the tool function in its executor, without recording it. Its idempotency key is derived from `key`."""

    async def question(
        self,
        kind: str,
        text: str,
        *,
        key: str,
        data: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        message: str | None = None,
        expires_in: float | None = None,
        default: Any = None,
    ) -> Question:
        """Ask a person; return the question with its answer."""

    async def withdraw(self, key: str) -> None:
        """Withdraw an open question: it expires, and its default becomes the answer."""

    def recorded_question(self, key: str) -> Question | None:
        """Return a recorded question, with its answer if it has one; None if the log has no such question."""

    def began_at(self, key: str) -> datetime:
        """Return the start time of a recorded operation."""

    def recorded_digest(self, key: str) -> str | None:
        """Return the digest of the setting that an operation was recorded with; None if it has none."""

    async def recorded_start(self, key: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the parameters and the recorded setting of such an operation."""

    async def approve(
        self, call: ToolCall, schema: Mapping[str, Any], *, place: str, description: str
    ) -> Approved | Denied:
        """Decide whether a tool call may be made, and with which arguments. This may ask a person.

        `place` identifies the call: the question has the key ``approve-<place>``, the call ``tool-<place>``.
        """

    def files_of(self, tool: ToolFunction) -> FileSpellings | None:
        """Return which arguments of a tool name files; None if none do."""

    def below(self, key: str) -> TurnContext:
        """Return the context of an agent that one of the calls runs. Its keys begin with the key of that call."""

    async def wait_beside_others(self, change: asyncio.Future[None]) -> bool:
        """Wait for a change caused by a concurrent call of the step. Return False once no such call is left."""

    async def alone(self) -> None:
        """Wait until every other call of the step has ended or waits for an external event."""

    def open_call(self) -> AbstractContextManager[None]:
        """Keep a call open while a question inside the block waits for its answer."""

    def calling(self) -> AbstractContextManager[None]:
        """Count a running call inside the block. The step pauses once all counted calls are parked."""


# --- concurrent calls ---------------------------------------------------------------------------------------------
# All calls of a group are counted before the first of them can wait. Otherwise the step could pause too early.


T = TypeVar("T")


async def side_by_side(context: TurnContext, calls: Sequence[Awaitable[T]]) -> list[T]:
    """Run several calls concurrently and return their results in order.

    Wait until all calls have ended. If calls raised, raise the error of the first of them in order.
    """
    stacks = [ExitStack() for _ in calls]

    async def awaited(stack: ExitStack, call: Awaitable[T]) -> T:
        with stack:
            return await call

    with ExitStack() as open_counts:  # ends the count of calls that are cancelled before they start
        for strand in stacks:
            strand.enter_context(context.calling())
            open_counts.callback(strand.close)
        results = await asyncio.gather(*map(awaited, stacks, calls), return_exceptions=True)
    # The first error in the order of the calls, not of time, so that a replay raises the same one.
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)


# --- turn compatibility ----------------------------------------------------------------------------------------------
#
# Resuming a turn whose agent has changed since the turn began.
#
# The setting of a request (model, instructions, tools, output) is recorded next to it and not compared on replay. A
# fixed model name or another model setting therefore does not affect a resumed turn. Other instructions, tools or
# outputs make it a different agent: the model's recorded answers refer to the old ones. A person then sees the changes
# and chooses between two options (`tests/agents/test_changed.py`):
#
# - finish the turn with its original setting, which the log has;
# - start the turn again, under new operation keys.


INSTRUCTIONS = "instructions"
TOOLS = "tools"
OUTPUT = "output"
_TOOL = TypeAdapter(ToolDefinition)


@dataclass
class TurnCompatibility:
    """Comparison of a resumed turn with the setting that it began with, made at its first request.

    Parameters
    ----------
    can_replace_tools
        True if missing tools, or tools with other arguments, can be replaced, so that recorded calls remain valid.
    """

    context: TurnContext
    agent: str
    can_replace_tools: bool
    before: Mapping[str, Any] = field(default_factory=dict)
    """Original setting of the turn, if it differs from the current one."""
    changes: Sequence[str] = ()
    can_finish: bool = True

    async def check(self, request: Described) -> None:
        """Stop the loop if the first request is recorded with another setting.

        Raises
        ------
        AgentError
            The setting differs. A hook of the agent may treat this as a failure of its model, so `changes` has it too.
        """
        # Only the first request is compared: later ones of a resumed turn have the setting that was checked there.
        if request.number > 1 or request.setting is None:
            return
        recorded_digest = self.context.recorded_digest(request.key)
        if recorded_digest is None or recorded_digest == request.setting.digest:
            return
        # The digests differ, so only now is the recorded setting read, which may be large.
        before = opened((await self.context.recorded_start(request.key))[1])
        now = opened(request.setting.told)
        self.before = before
        self.changes = _changes(before, now)
        schemas = _schemas(now)
        are_there = all(schemas.get(name) == schema for name, schema in _schemas(before).items())
        self.can_finish = before.get(OUTPUT) == now.get(OUTPUT) and (self.can_replace_tools or are_there)
        if self.changes:
            raise AgentError(self.agent, request.number, "it is not what it was when the turn began")


Begin = Callable[[TurnContext, TurnCompatibility | None, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Runs the loop at a place, either with a comparison of settings or with a setting to restore."""


async def run_or_ask(context: TurnContext, agent: str, begin: Begin, *, can_replace_tools: bool) -> dict[str, Any]:
    """Return the result of a turn. If its agent has changed, ask a person how to continue.

    The first attempt compares settings. After a change the answer of the person decides: FINISH runs the loop once more
    at the same place with the original setting; ANEW runs it below ``anew-1/``, where no request is recorded yet. The
    agent may change again while that turn waits, so the loop repeats with the next number.
    """
    place = context
    number = 1
    while True:
        key = f"changed-{number}"
        recorded_question = place.recorded_question(key)
        compatibility = TurnCompatibility(place, agent, can_replace_tools)
        if recorded_question is None:
            try:
                result = await begin(place, compatibility, {})
            # A hook of the agent may have replaced the AgentError of `check`, so its type says nothing.
            except Exception:
                if not compatibility.changes:
                    raise
            else:
                if not compatibility.changes:
                    return result
        answer = await _ask(place, key, compatibility, recorded_question)
        if (answer.response or {}).get("choice") == FINISH:
            return await begin(place, None, opened((await place.recorded_start("model-1"))[1]))
        place = context.below(f"anew-{number}")
        number = number + 1
        place.response_source = context.response_source  # the new place belongs to the same agent


async def _ask(
    place: TurnContext, key: str, compatibility: TurnCompatibility, recorded_question: Question | None
) -> Question:
    """Ask how to continue the turn. A recorded question keeps its wording, whatever has changed since."""
    if recorded_question is not None:
        return await place.question(AGENT_CHANGED, recorded_question.question, key=key, data=recorded_question.data)
    what = "; ".join(compatibility.changes)
    choices = [FINISH, ANEW] if compatibility.can_finish else [ANEW]
    finish = f"{FINISH} to go on with what it began with, or " if compatibility.can_finish else ""
    text = (
        f"Agent {compatibility.agent} is not what it was when this turn began ({what}). Answer {finish}{ANEW} to begin "
        "the turn again: its calls of tools are then made again as well"
    )
    data = {"agent": compatibility.agent, "changes": list(compatibility.changes), "choices": choices}
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
        instructions = [] if self._instructions is None else [InstructionPart(content=self._instructions)]
        parameters = replace(
            request_context.model_request_parameters, function_tools=self._tools, instruction_parts=instructions
        )
        return replace(request_context, model_request_parameters=parameters)


def accept_original_calls(tool: Tool[Any], setting: Mapping[str, Any]) -> Tool[Any]:
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

    replacement = Tool.from_schema(called, tool.name, tool.description, dict(before), takes_ctx=True)
    replacement.metadata = tool.metadata
    return replacement


def placeholders(setting: Mapping[str, Any], current_tools: Mapping[str, Any]) -> list[Tool[Any]]:
    """Return placeholders for tools that no longer exist. Recorded results remain usable; new calls fail."""
    gone = (tool for name, tool in _tools(setting).items() if name not in current_tools)
    return [
        Tool.from_schema(_gone(tool["name"]), tool["name"], tool.get("description"), tool["parameters_json_schema"])
        for tool in gone
    ]


def _gone(name: str) -> Callable[..., Any]:
    async def gone(**_arguments: Any) -> None:
        raise ToolFailed(f"{name} is not there any more")

    return gone
