"""Answers of an agent: a turn, in which pydantic-ai requests responses from the model and calls tools until there is an
answer, or a single model request without that loop.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import pydantic_ai
from pydantic import ValidationError
from pydantic_ai.capabilities import AbstractCapability, CombinedCapability, ModelFallback
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings, ToolChoice
from pydantic_ai.tools import Tool
from pydantic_ai.usage import UsageLimits

from divebook.agents.budget import TurnBudget
from divebook.agents.clients import CLIENTS
from divebook.agents.durability import ENGINE, DivebookDurability, require_closed
from divebook.agents.models import RECORDED, tokens_of, tokens_of_definitions
from divebook.agents.request_record import (
    RequestRecord,
    messages_of,
    response_of,
    settings_of,
    user_block,
    whole,
    with_values,
)
from divebook.agents.requests import RequestRule, complete_response, record_request, reporting_model, stream_response
from divebook.agents.running_turn import CALL, TURN, AgentTurn
from divebook.agents.scripted import ScriptedModel
from divebook.agents.scripted_model import ScriptedFunction
from divebook.agents.server_tools import discover_tools
from divebook.agents.signatures import is_readable, library_tool, output_type, plain_result, text_of_output
from divebook.agents.turn import SPENT, AgentTask, StepTurn
from divebook.agents.turn_compatibility import (
    OriginalTurn,
    TurnCompatibility,
    accept_original_calls,
    placeholders,
    run_or_ask,
)
from divebook.definitions.answer_types import allow_answers, answer_type
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.servers import ToolServer
from divebook.definitions.tools import ToolFunction
from divebook.engine.operations import RunOperation, Write
from divebook.engine.retries import failure_text, names_of
from divebook.errors import AgentError, OperationError, StepError, ToolError
from divebook.events.codec import by_hash
from divebook.events.recorded import opened
from divebook.projections.model_requests import request_messages
from divebook.questions.bounds import Bounds
from divebook.text.format import plural
from divebook.text.redaction import logger

if TYPE_CHECKING:
    from divebook.agents.agent import Agent, LibraryCache, TurnServices


# --- last round ---------------------------------------------------------------------------------------------------
# An agent that has reached its limit of tool rounds is instructed to answer with the information it has.


ANSWER_NOW = (
    "You have called tools as often as you may for this prompt, and cannot call one any more. Answer now, with what "
    "you know."
)


_log = logger(__name__)


async def run_turn(  # noqa: PLR0917 - the arguments of `Agent.turn`
    agent: Agent,
    task: AgentTask,
    context: StepTurn,
    tools: Sequence[ToolFunction],
    servers: Sequence[ToolServer],
    services: TurnServices,
) -> dict[str, Any]:
    """Run one turn of an agent and return the turn's result; see `Agent.turn`."""
    # A tool without a workspace of its own works in the workspace of the agent.
    local_tools = [tool.inside(agent.definition.workspace) for tool in (*tools, *agent.tools)]
    names = [tool.name for tool in local_tools]
    server_tools, notes = await discover_tools(context, agent.definition, servers, names, services.library_cache.made)
    # An agent of `Agent.of` has its own instructions, which pydantic-ai adds to each request.
    instructions = agent.instructions(context.started_at) if agent.library is None else ""
    instructions = "\n\n".join(filter(None, (instructions, notes)))
    message = Request(task.prompt, task.content, task.context, instructions)
    # The type that a step declares takes precedence over that of the agent.
    output = answer_type(agent.output if task.output is None else task.output)
    allow_answers(output)
    loop = AgentLoop(agent, message, output, task, services.library_cache)
    return await loop.turn(context, [*map(services.limited, (*local_tools, *server_tools))], task.deps)


class AgentLoop:
    """One turn of an agent, run by pydantic-ai's agent loop.

    Parameters
    ----------
    output
        Type of the answer: None for text, a type, or a JSON schema.
    task
        The task, with the conversation that it continues, if there is one.
    cache
        Tools and agents of pydantic-ai that the environment keeps.
    """

    def __init__(self, agent: Agent, message: Request, output: Any, task: AgentTask, cache: LibraryCache) -> None:
        self._agent = agent
        self._message = message
        self._output = output
        self._task = task
        self._cache = cache

    async def turn(self, context: StepTurn, tools: Sequence[ToolFunction], deps: Any) -> dict[str, Any]:
        """Run the turn and return its result: the agent's output, the output as text, the number of model requests, and
        for a conversation the messages.

        If the agent has changed since the turn began, a person chooses how to continue.
        """

        async def begin(
            place: StepTurn,
            compatibility: TurnCompatibility | None,
            original_setting: Mapping[str, Any],
            consumed: Mapping[str, int],
        ) -> dict[str, Any]:
            return await self._run(place, tools, deps, compatibility, original_setting, consumed=consumed)

        return await run_or_ask(
            context,
            self._agent.name,
            begin,
            can_replace_tools=self._agent.library is None,
            has_budget=self._budget() is not None,
        )

    async def _run(
        self,
        context: StepTurn,
        tools: Sequence[ToolFunction],
        deps: Any,
        compatibility: TurnCompatibility | None,
        original_setting: Mapping[str, Any],
        *,
        consumed: Mapping[str, int],
    ) -> dict[str, Any]:
        agent = self._agent
        definition = self._agent.definition
        # The history is grouped by turn, [[message, ...], ...], and becomes one list here.
        earlier_messages = [message for chunk in self._task.history for message in opened(chunk)]
        record = RequestRecord(agent.name, earlier_messages)
        functions = {tool.name: tool for tool in tools}
        seconds = definition.response_timeout
        budget = self._budget()
        if budget is not None:
            budget.count(consumed)
        deps = agent.deps if deps is None else deps
        turn = AgentTurn(
            context, record, agent.model_name, agent.retry, seconds, functions, budget, compatibility, agent.policy
        )
        # Not empty if a person chose to finish the turn with the setting that it began with (`run_or_ask`).
        turn.keeps_original = bool(original_setting)
        turn.fallbacks = _fallbacks(agent.capabilities)
        turn.corrections = definition.corrections if agent.library is None else None
        history, prompt = _messages(self._message)
        if agent.library is not None and deps is None:
            _warn_of_none(agent.name, agent.library.deps_type)
        # An agent of `Agent.of` runs as the user built it. For all others a pydantic-ai agent is built for this turn.
        if agent.library is not None:
            options = await self._supplied_agent(original_setting)
        else:
            options = await self._built_agent(tools, original_setting)
        # Without an output type, a supplied agent keeps its own, and a built agent answers with text.
        if self._output is not None:
            options["output_type"] = output_type(self._output)
        # pydantic-ai calls `DivebookDurability`, which finds the turn in this variable.
        token = TURN.set(turn)
        try:
            with answering(turn):
                result = await options.pop("library").run(
                    prompt,
                    message_history=[*messages_of(earlier_messages), *history] or None,
                    deps=deps,
                    # `UsageLimits()` keeps pydantic-ai's own limit of 50 requests, which a supplied agent expects.
                    # `LastRound` limits a built agent.
                    usage_limits=UsageLimits() if agent.library is not None else UsageLimits(request_limit=None),
                    infer_name=False,
                    **options,
                )
        finally:
            TURN.reset(token)
        # The text of a text answer would only repeat the output.
        text = {} if isinstance(result.output, str) else {TEXT: text_of_output(result.output)}
        facts = {REQUESTS: record.requests, FINISH_REASON: result.response.finish_reason}
        # Only a conversation needs its messages again: they precede the first request of its next turn.
        if self._task.thread is not None:
            facts[MESSAGES] = by_hash(list(map(whole, result.new_messages())), MESSAGES)
        spent = None if budget is None else budget.spent
        return {OUTPUT: result.output, **text, **facts, **({} if spent is None else {SPENT: spent})}

    def _budget(self) -> TurnBudget | None:
        """Return the budget that limits the requests of the turn. Return None if the turn is unlimited: neither this
        agent nor an agent that delegated the task to it has bounds.
        """
        bounds = self._agent.definition.bounds
        delegating_turn = TURN.get()
        budget_above = None if delegating_turn is None else delegating_turn.budget
        if not bounds and budget_above is None:
            return None
        # A task that was delegated beside others gets a share of the rest of the delegating agent's budget.
        share = None if self._task.share is None else Bounds.from_dict(self._task.share)
        return TurnBudget(self._agent.name, Bounds.from_dict(bounds or {}), budget_above, share)

    async def _built_agent(self, tools: Sequence[ToolFunction], original_setting: Mapping[str, Any]) -> dict[str, Any]:
        """Return a dict with a pydantic-ai agent that is built from the agent's definition (key ``library``), and the
        arguments for its run.
        """
        agent = self._agent
        # After a change of the agent, recorded calls must stay valid: tools accept their original arguments as well,
        # and a placeholder stands for each tool that no longer exists.
        library_tools = [accept_original_calls(self._library_tool(tool), original_setting) for tool in tools]
        library_tools += placeholders(original_setting, {tool.name: tool for tool in tools})
        model = await resolved(agent)
        # Capabilities may have a state, and the rules of a turn that began with another agent hold for that turn only.
        may_keep = not agent.capabilities and not original_setting
        library = self._cache.library_agent(agent, model, library_tools) if may_keep else None
        if library is None:
            durability = DivebookDurability(
                # A recorded request names its model by id, so pydantic-ai must have the models behind a fallback by
                # their ids.
                models=_fallbacks(agent.capabilities),
                rules=[
                    *_tool_choice(agent.definition),
                    *_restoring(original_setting),
                    LastRound(agent.name, agent.definition.tool_iteration_limit),
                ],
                is_alone=not agent.capabilities,
            )
            library = pydantic_ai.Agent(
                model,
                name=agent.name,
                tools=library_tools,
                retries=agent.definition.corrections,
                capabilities=[*agent.capabilities, durability],
            )
            library._root_capability = DefinedHooks.of(library._root_capability)  # noqa: SLF001 - see its class
            if may_keep:
                self._cache.keep_agent(agent, model, library_tools, library)
        settings = settings_of(agent.definition)
        return {"library": library, "instructions": self._message.instructions or None, "model_settings": settings}

    def _library_tool(self, tool: ToolFunction) -> Tool[Any]:
        cached_tool: Tool[Any] | None = self._cache.tool(tool)
        if cached_tool is not None:
            return cached_tool
        converted = library_tool(tool, _call)
        # The requests and calls inside an inline tool are recorded instead of the call of the tool itself.
        if tool.inline:
            converted.metadata = {ENGINE: False}
        self._cache.keep_tool(tool, converted)
        return converted

    async def _supplied_agent(self, original_setting: Mapping[str, Any]) -> dict[str, Any]:
        """Return a dict with the pydantic-ai agent that the user passed to `Agent.of` (key ``library``) and the
        arguments for its run.

        The model may be overridden.
        """
        agent = self._agent
        model = await resolved(self._agent)
        assert agent.library is not None  # noqa: S101 - only an agent with a library gets here
        require_closed(agent.library, agent.name)
        durability = DivebookDurability(
            name=agent.name, models={agent.model_name: model}, rules=_restoring(original_setting)
        )
        settings = ModelSettings(max_retries=0)  # divebook retries, so that the log has each attempt
        return {"library": agent.library, "model": model, "capabilities": [durability], "model_settings": settings}


HOOKS = (
    *("before_run", "wrap_run", "after_run", "before_node_run", "wrap_node_run", "after_node_run"),
    *("prepare_tools", "prepare_output_tools"),
    *("before_model_request", "prepare_model_request", "wrap_model_request", "after_model_request"),
    *("before_tool_validate", "wrap_tool_validate", "after_tool_validate"),
    *("before_tool_execute", "wrap_tool_execute", "after_tool_execute"),
    *("before_output_validate", "wrap_output_validate", "after_output_validate"),
    *("before_output_process", "wrap_output_process", "after_output_process"),
)
"""Hooks of capabilities that do nothing by default: they return what they get, or call their handler."""


class DefinedHooks(CombinedCapability[Any]):
    """All capabilities of an agent, of which each hook calls only those that define it.

    pydantic-ai calls all hooks of all capabilities, each with a new copy of the run context: of an agent that has no
    capabilities of its user, some 60 copies a request, of which 8 are needed (``python -m benchmarks.calls``). The
    order and the run contexts of hooks that are defined stay the same
    (test_capabilities_get_the_hooks_that_they_define_as_without_divebook).
    """

    _by_hook: tuple[Sequence[AbstractCapability[Any]], dict[str, CombinedCapability[Any]]]

    @classmethod
    def of(cls, combined: CombinedCapability[Any]) -> CombinedCapability[Any]:
        """Return a copy of the capabilities of an agent whose hooks call only those that define them. If this version
        of pydantic-ai keeps them under another private name, return them unchanged.
        """
        if type(combined) is not CombinedCapability or not hasattr(combined, "_dispatch"):
            return combined
        defined = copy.copy(combined)
        defined.__class__ = cls
        return defined

    def _defining(self, hook: str) -> CombinedCapability[Any]:
        """Return the capabilities that define a hook, in their order."""
        by_hook: dict[str, CombinedCapability[Any]]
        dispatch, by_hook = vars(self).get("_by_hook", (None, {}))
        # A run may have a copy with other capabilities, which begins with the entries of its original.
        if dispatch is not self._dispatch:
            by_hook = {}
            self._by_hook = self._dispatch, by_hook
        if hook not in by_hook:
            default = getattr(AbstractCapability, hook)
            defining = [
                each for each in self._dispatch if getattr(type(each), hook) is not default or hook in vars(each)
            ]
            by_hook[hook] = copy.copy(self)
            by_hook[hook].__class__ = CombinedCapability
            by_hook[hook]._dispatch = defining  # noqa: SLF001 - no public name has the order of hooks
        return by_hook[hook]


def _calling_defined(hook: str) -> Any:
    call = getattr(CombinedCapability, hook)

    def run(self: DefinedHooks, *arguments: Any, **options: Any) -> Any:
        return call(self._defining(hook), *arguments, **options)

    return run


for _hook in HOOKS:
    setattr(DefinedHooks, _hook, _calling_defined(_hook))


class LastRound(RequestRule):
    """Rule that limits how many requests of a turn may call tools. After the limit, the model gets one more request, in
    which it may not call tools.

    Parameters
    ----------
    agent
        Name of the agent.
    limit
        Number of requests in which tools may be called.
    """

    def __init__(self, agent: str, limit: int) -> None:
        self._agent = agent
        self._limit = limit

    def before_request(self, step: int, request: ModelRequestContext) -> ModelRequestContext:
        """Change the request after the last one that may call tools: tell the model to answer now, and forbid tool
        calls. Earlier requests stay unchanged.
        """
        if step <= self._limit:
            return request
        parameters = request.model_request_parameters
        instructions = [*(parameters.instruction_parts or ()), InstructionPart(content=ANSWER_NOW)]
        return replace(
            request,
            model_request_parameters=replace(parameters, instruction_parts=instructions),
            model_settings={**(request.model_settings or {}), "tool_choice": "none"},
        )

    def after_request(self, step: int, request: ModelRequestContext, response: ModelResponse) -> None:
        """Raise `AgentError` if the model calls a tool in its last response of the turn, although tool calls were
        forbidden there. The tool is not called.
        """
        if step <= self._limit:
            return
        # Structured output arrives as the call of an output tool. It is the answer, and so it is allowed.
        outputs = {tool.name for tool in request.model_request_parameters.output_tools}
        called_tools = [call.tool_name for call in response.tool_calls if call.tool_name not in outputs]
        # A model may ignore `tool_choice`, so the limit is checked in the response as well.
        if called_tools:
            raise AgentError(
                self._agent,
                step,
                f"its model called {called_tools[0]} again after {self._limit} rounds of calls. That call was not "
                "made; raise its ToolIterationLimit",
            )


@contextmanager
def answering(turn: AgentTurn) -> Iterator[None]:
    """Convert the errors that pydantic-ai raises inside the ``with`` block when a turn gets no answer. The new error
    has the agent's name, the number of requests and a clear reason.

    Raises
    ------
    AgentError
        The model did not produce a valid answer, or not within its limits.
    ToolError
        A tool raised an error, and no hook of the agent handled it.
    """
    record = turn.record
    try:
        yield
    except (UnexpectedModelBehavior, UsageLimitExceeded) as error:
        raise AgentError(record.agent, record.requests, _reason(turn, error)) from error
    except OperationError as error:
        if isinstance(error, ToolError):  # raised by a subordinate agent
            raise ToolError(error.agent, error.tool, error.cause, names_of(error)) from error
        # [(tool, error), ...]. Other failed operations of the turn, such as a model request, keep their own error.
        tool = next((tool for tool, raised in turn.failed if raised is error), None)
        if tool is None:
            raise
        raise ToolError(record.agent, tool, failure_text(error), names_of(error)) from error


def _reason(turn: AgentTurn, error: Exception) -> str:
    """Return the reason, as text for people, why a turn ended without an answer. If a limit of divebook was reached,
    the text names the key of the agent's definition that raises the limit.
    """
    # pydantic-ai asks the model to correct an unknown tool name, and gives up at its limit with `ModelRetry` as cause.
    if turn.unknown_tools and isinstance(error.__cause__, ModelRetry):
        return (
            f'its model called unknown tool "{turn.unknown_tools[0]}", got an error for it, and called it again; '
            f"give the agent that tool, or another Model, {_ASK_AGAIN}"
        )
    limit = _CORRECTIONS_USED.match(str(error))
    if limit is None:
        return str(error)
    subject = f"its call of tool {limit['tool']}" if limit["tool"] else "its answer"
    # An agent of pydantic-ai has its own limit for each tool. The message names that limit.
    count = int(limit["tool_limit"] or limit["output_limit"])
    key = "`retries` of its pydantic_ai.Agent" if turn.corrections is None else "its Corrections"
    return (
        f"{subject} did not have the expected form ({_fault(error)}), even after {plural(count, 'correction')}; raise "
        f"{key} and resume the run, or use another Model, {_ASK_AGAIN}"
    )


# A resumption replays the replies that the log has.
_ASK_AGAIN = "and fork the run before this step. A resumed run keeps its recorded replies"
"""Advice to ask the model again from the beginning of its turn."""


_CORRECTIONS_USED = re.compile(
    r"Tool '(?P<tool>.+)' exceeded max retries count of (?P<tool_limit>\d+)"
    r"|Exceeded maximum output retries \((?P<output_limit>\d+)\)"
)
"""Messages of pydantic-ai for a model that has used up its corrections.

`test_a_model_that_has_used_up_its_corrections_is_told_which_key_allows_more` pins the texts.
"""


def _fault(error: Exception) -> str:
    """Return the validation problem of the model's last tool call or answer as one line. The line does not contain the
    invalid value.
    """
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        # Neither the invalid value nor the link to pydantic's documentation belongs in the message.
        first = cause.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = first["msg"].removeprefix("Value error, ")
        return f"{place}: {text}" if place else text
    return next(iter(str(cause).strip().splitlines()), "") or type(cause).__name__


# Keys of the result of a turn.
OUTPUT = "output"
TEXT = "text"
REQUESTS = "requests"
FINISH_REASON = "finish_reason"
MESSAGES = "messages"


def _warn_of_none(agent: str, expected_type: Any) -> None:
    """Log a warning that an agent of `Agent.of` declares a type for its dependencies (``deps``) but gets None. Do
    nothing if it declares no specific type.
    """
    # `object` and `NoneType` (pydantic-ai's default) declare no dependencies, so None is a valid value.
    if isinstance(expected_type, type) and expected_type not in (object, type(None)):
        _log.warning(
            "agent %s needs ctx.deps of type %s, but no dependencies were passed. Pass them with "
            "Agent.of(agent, deps=...), or in a workflow with ctx.agent(%r).run(..., deps=...)",
            agent,
            expected_type.__name__,
            agent,
        )


def _fallbacks(capabilities: Sequence[Any]) -> dict[str, Model]:
    """Return the models of all `ModelFallback` capabilities of an agent, by model id. If several have one id, a number
    is appended. Only model objects are returned; models given by their name are left out, because
    `DivebookDurability` creates them when they are needed.
    """
    fallbacks: dict[str, Model] = {}
    for capability in capabilities:
        for model in capability.models if isinstance(capability, ModelFallback) else ():
            if isinstance(model, Model) and all(model is not other for other in fallbacks.values()):
                number = sum(other.model_id == model.model_id for other in fallbacks.values())
                fallbacks[f"{model.model_id}#{number + 1}" if number else model.model_id] = model
    return fallbacks


def _restoring(original_setting: Mapping[str, Any]) -> list[OriginalTurn]:
    return [OriginalTurn(original_setting)] if original_setting else []


async def _call(tool: ToolFunction, arguments: Mapping[str, Any]) -> Any:
    """Call the function of a divebook tool, after pydantic-ai has started the recorded tool call. Return the function's
    result.
    """
    call = CALL.get()
    assert call is not None  # noqa: S101 - the guard around all tools has set it
    result = await call.turn.context.invoke(tool, arguments, key=call.key)
    # pydantic-ai inspects every result. The function has been called then, so that a result which raises an error on
    # inspection is converted.
    return result if is_readable(result) else plain_result(result)


def _messages(message: Request) -> tuple[list[ModelMessage], str | Sequence[UserContent]]:
    """Split a request into the messages before the prompt, and the prompt with its content blocks. Return both."""
    # The agent's `Context` forms a message of its own before the prompt.
    *history, last = message.messages()
    (part,) = last.parts
    assert isinstance(part, UserPromptPart)  # noqa: S101 - `Request.messages` creates this part
    return history, part.content


# --- tool choice --------------------------------------------------------------------------------------------------
# The key ``ToolChoice`` of an agent's ``ModelSettings`` forces a tool call.


def _tool_choice(definition: AgentDefinition) -> list[ChosenTool]:
    settings = definition.model_settings
    return [] if settings is None or settings.tool_choice is None else [ChosenTool(settings.tool_choice)]


class ChosenTool(RequestRule):
    """Rule for the key ``ToolChoice`` of an agent's definition: the model may not call tools, must call one, or must
    call a certain one. A forced tool call applies only to the first request of a turn.

    With a forced call in every request, no turn would end.
    """

    def __init__(self, choice: Mapping[str, Any]) -> None:
        # {"type": "any"} -> "required", {"type": "tool", "name": "search"} -> ["search"], {"type": "auto"} -> None
        choices: dict[str, ToolChoice] = {"any": "required", "tool": [str(choice.get("name"))]}
        self._always: ToolChoice = "none" if choice["type"] == "none" else None
        self._first = choices.get(choice["type"])

    def before_request(self, step: int, request: ModelRequestContext) -> ModelRequestContext:
        """Add the agent's tool choice to the settings of a model request. A forced tool call is added only to the first
        request of a turn.
        """
        choice = self._always or (self._first if step == 1 else None)
        if choice is None:
            return request
        settings = ModelSettings(**(request.model_settings or {}))
        settings["tool_choice"] = choice
        return replace(request, model_settings=settings)


# --- single requests -------------------------------------------------------------------------------------------------
#
# `RecordedModel` stands between pydantic-ai and the real model, and answers recorded requests from the log. An agent
# without tools needs one request and no loop. The loop would take more time than everything else here together
# (``python -m benchmarks.labelling``).


@dataclass(frozen=True, slots=True)
class Request:
    """Input of one model request: a prompt with its content blocks, the content blocks of the agent's ``Context``, and
    the instructions; see `Agent.respond`.
    """

    prompt: str
    content: Sequence[Mapping[str, Any]]
    context: Sequence[Mapping[str, Any]]
    instructions: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the model request by name, without empty fields."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}

    def messages(self) -> list[ModelMessage]:
        """Return the request as messages of pydantic-ai. `divebook.projections.model_requests` rebuilds equal messages
        from the log.
        """
        # The instructions are not a message: pydantic-ai sends them with the last one.
        messages = [message for message in request_messages(self.to_dict()) if message.role != "system"]
        bodies: list[str | list[UserContent]] = [
            [user_block(block) for block in message.content] for message in messages
        ]
        # A prompt without content blocks is sent as plain text, not as a list with a single block.
        if not self.content:
            bodies[-1] = self.prompt
        *context, prompt_message = [ModelRequest(parts=[UserPromptPart(body)]) for body in bodies]
        return [*context, replace(prompt_message, instructions=self.instructions or None)]


async def respond(agent: Agent, message: Request, operation: RunOperation) -> str:
    """Make a single recorded model request; return the text of the response. See `Agent.respond`.

    Raises
    ------
    StepError
        The model answered without any text.
    """
    # `to_dict` leaves out empty fields, but the log always has the prompt.
    parameters = {"agent": agent.name, "prompt": "", "model": agent.model_name, **message.to_dict()}
    recorded = RecordedModel(await resolved(agent), operation, parameters, agent)
    definition = agent.definition
    answer = await model_request(recorded, message.messages(), model_settings=settings_of(definition), instrument=False)
    if not answer.text and answer.tool_calls:
        tool_name = answer.tool_calls[0].tool_name
        raise StepError(
            f'the model of agent {agent.name} called unknown tool "{tool_name}": the agent has no tools; give it that '
            "tool, or another Model"
        )
    if not answer.text:
        raise StepError(
            f"the model of agent {agent.name} answered without text (it ended with {answer.finish_reason}); "
            "try again, or give it more MaxTokens"
        )
    return answer.text


async def resolved(agent: Agent) -> Model:
    """Return the pydantic-ai model that an agent uses, created with the agent's key."""
    model = agent.model
    if isinstance(model, ScriptedModel):
        return ScriptedFunction(model)
    if not isinstance(model, str):
        return reporting_model(model)
    if model.startswith(RECORDED):
        return _recorded_run_model()
    return await CLIENTS.model(model, agent.definition.api_key, agent.policy)


class RecordedModel(WrapperModel):
    """Model wrapper that makes each request as a recorded operation. If the log has the response to a request, the
    request is not sent again.

    Parameters
    ----------
    agent
        Agent with the time limit of a request, streamed or not, and the policy for references in headers.
    """

    def __init__(self, wrapped: Model, operation: RunOperation, parameters: Mapping[str, Any], agent: Agent) -> None:
        super().__init__(wrapped)
        self._operation = operation
        self._parameters = dict(parameters)
        self._seconds = agent.definition.response_timeout
        self._policy = agent.policy

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the recorded response to a model request; if the log has none, send the request to the model."""
        wrapped = self.wrapped

        # References are resolved only for the real request: their values are secrets and must not be recorded.
        async def call() -> dict[str, Any]:
            settings = with_values(model_settings, self._policy)
            return await self._complete(wrapped.request(messages, settings, model_request_parameters))

        async def streamed(write: Write) -> dict[str, Any]:
            settings = with_values(model_settings, self._policy)
            return await self._complete(stream_response(wrapped, messages, settings, model_request_parameters, write))

        recorded = await record_request(
            self._operation,
            self._parameters,
            wrapped,
            call,
            streamed=streamed,
            tokens=sum(map(tokens_of, messages)) + tokens_of_definitions(model_request_parameters),
            settings=model_settings,
        )
        return response_of(recorded)

    def _complete(self, request: Awaitable[ModelResponse]) -> Awaitable[dict[str, Any]]:
        model = self.wrapped
        return complete_response(request, model, self._parameters["agent"], self._seconds, name=model.model_name)


def _recorded_run_model() -> Model:
    """Return a placeholder for the model ``recorded:RUN``. The responses come from the run RUN, so the placeholder
    itself raises an error if a request is sent to it.
    """

    async def respond(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        raise StepError("the log of the replayed run has no response to this model request")

    return FunctionModel(respond, model_name=RECORDED)
