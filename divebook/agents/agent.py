"""The class `Agent`: a model with a name, instructions and tools, whose model requests are recorded operations."""

from __future__ import annotations

import asyncio
import copy
import importlib
import operator
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeAlias, TypedDict, Unpack, overload

import anyio.to_thread

from divebook.agents.cache import lasting
from divebook.agents.models import RECORDED, check_key, model_name, without_secrets
from divebook.agents.scripted import SCRIPTED, ScriptedModel
from divebook.definitions.answer_types import allow_answers, hints_of, named_answer
from divebook.definitions.code import code_of
from divebook.definitions.json_schemas import require_possible_schema, require_schema
from divebook.definitions.resources import AgentDefinition, ApprovalRule, Approvals, ModelSettings
from divebook.definitions.servers import MCPServerDefinition, ToolServer
from divebook.definitions.step import ContentEntry, Retry
from divebook.definitions.tools import ToolFunction, tool_of
from divebook.documents.policy import Policy
from divebook.engine.operations import RunOperation
from divebook.errors import SetupError, StepError, TemplateError
from divebook.events.codec import short_hash
from divebook.questions.bounds import Bounds, agent_bounds
from divebook.scripting import render_template
from divebook.text.arguments import DurationLike, describe, list_of, plain_seconds, require, suggest_arguments
from divebook.text.protocols import require_protocol

if TYPE_CHECKING:
    from pydantic_ai import Agent as LibraryAgent
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.models import Model
    from typing_extensions import TypeVar

    from divebook.agents.turn import AgentTask, StepTurn

    Output = TypeVar("Output", default=Any)
else:
    # The default of a type variable, which makes `Agent` mean ``Agent[Any]``, is known to type checkers only.
    from typing import TypeVar

    Output = TypeVar("Output")
T = TypeVar("T")

LOOP = "divebook.agents.agent_loop"
_LOADED: dict[str, ModuleType] = {}
"""Modules that are loaded when they are first needed."""
# Reasons for a recorded turn; see `turn_reasons`.
TOOLS = "tools"
CAPABILITIES = "capabilities"
SUBORDINATES = "subordinates"
BOUNDS = "bounds of its own"
CACHE = "a cache"
OUTPUT = "an output"
RECORDED_MODEL = "the responses of a recorded run"
CONVERSATION = "a conversation"
MODEL_RETRY = Retry(
    seconds=0.5,
    max_seconds=8.0,
    jitter=0.5,
    errors=("ModelConnectionError", "ModelRateLimitError", "ModelServerError", "ModelUnavailableError"),
)
"""Default retry policy of model requests: two more attempts after a lost connection, 429 and 5xx.

It replaces the retries of provider clients, so that each attempt is recorded and counted. A retry waits at least for
the provider's Retry-After. Exhausted quotas and timeouts are not retried.
"""


class RequestsModel(Protocol):
    """Protocol of a model object: the part of `pydantic_ai.models.Model` that every model has."""

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        """Send one request and return the response."""


class AgentOptions(TypedDict, total=False):
    """Keyword arguments of `Agent` besides `output`, which decides the type of its answers."""

    model: Model | ScriptedModel | str | None
    default_provider: str
    default_model: str
    instructions: str
    tools: Iterable[ToolFunction | Callable[..., Any] | str]
    servers: Iterable[MCPServerDefinition | str]
    capabilities: Iterable[AbstractCapability[Any]]
    subordinates: Iterable[str] | None
    deps: Any
    approvals: Iterable[ApprovalRule | Mapping[str, Any]]
    bounds: Bounds | Mapping[str, Any] | None
    api_key: str | None
    cache: DurationLike | None
    workspace: str | None
    corrections: int | None


class LibraryCache:
    """Cache of tools and agents in the form of pydantic-ai, made from those of an environment. Making them takes longer
    than recording several requests.

    Only the newest of each name are kept, and none that refer to a single turn. The environment forgets them when it is
    closed, because a model has the key of its provider (`tests/runtime/test_library_cache.py`).
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[list[Any], Any]] = {}
        self._tools: dict[str, _ToolEntry] = {}
        self._agents: dict[str, _AgentEntry] = {}

    def tool(self, tool: ToolFunction) -> Any:
        """Return the tool of pydantic-ai that was made from `tool`. Return None if there is none, or if an annotation
        means another type by now, such as a class that a cell has defined again.
        """
        entry = self._tools.get(tool.name)
        if entry is None or not _is_same(entry.tool, tool) or entry.hints != _hints_for_schema(tool):
            return None
        return entry.library_tool

    def made(self, key: Hashable, inputs: list[Any], make: Callable[[], T]) -> T:
        """Return a function that is made for an agent in each turn, such as that of a built-in tool, as in an earlier
        turn if all its inputs are equal. Then its form of pydantic-ai is kept as well.

        The newest one of each key is kept.
        """
        # Read once: another thread may close the environment, which forgets them all.
        entry = self._made.get(key)
        if entry is None or entry[0] != inputs:
            entry = self._made[key] = inputs, make()
        function: T = entry[1]
        return function

    def keep_tool(self, tool: ToolFunction, library_tool: Any) -> None:
        """Keep the tool of pydantic-ai that was made from `tool`. A tool that runs inside its turn is not kept, because
        it refers to that turn.
        """
        if not tool.inline:
            self._tools[tool.name] = _ToolEntry(tool, _hints_for_schema(tool), library_tool)

    def library_agent(self, agent: Agent, model: Any, library_tools: Sequence[Any]) -> Any:
        """Return the agent of pydantic-ai that was made from the same definition, model and tools; None without one.

        `model` is the model of pydantic-ai.
        """
        entry = self._agents.get(agent.name)
        return entry.library if entry is not None and entry.fits(agent, model, library_tools) else None

    def keep_agent(self, agent: Agent, model: Any, library_tools: Sequence[Any], library: Any) -> None:
        """Keep an agent of pydantic-ai, if all its tools are kept as well."""
        tool_ids = {id(entry.library_tool) for entry in self._tools.values()}
        if all(id(tool) in tool_ids for tool in library_tools):
            loop = asyncio.get_running_loop()
            self._agents[agent.name] = _AgentEntry(agent, model, tuple(library_tools), loop, library)

    def clear(self) -> None:
        """Forget all of them."""
        self._made.clear()
        self._tools.clear()
        self._agents.clear()


def _is_same(tool: ToolFunction, other: ToolFunction) -> bool:
    """Return True if two tools call the same function with equal options: each turn makes a new tool if it has limits
    or a workspace of the agent.
    """
    return tool is other or (tool.function is other.function and tool == other)


class _ToolEntry(NamedTuple):
    tool: ToolFunction
    hints: Mapping[str, Any]
    """Types of the parameters when the tool was made."""
    library_tool: Any


class _AgentEntry(NamedTuple):
    agent: Agent
    model: Any
    library_tools: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    """Event loop of its turns, to which its locks belong."""
    library: Any

    def fits(self, agent: Agent, model: Any, library_tools: Sequence[Any]) -> bool:
        """Return True if an agent with this model and these tools would be made equal to this one."""
        # Everything is compared by identity. A model that has a name is looked up for each turn, because its key may
        # have changed. Any other model belongs to the agent, and is wrapped again for each turn.
        has_same_model = self.model is model if isinstance(agent.model, str) else self.agent.model is agent.model
        return (
            has_same_model
            and self.agent.definition is agent.definition
            and len(self.library_tools) == len(library_tools)
            and all(map(operator.is_, self.library_tools, library_tools))
            and self.loop is asyncio.get_running_loop()
        )


def _hints_for_schema(tool: ToolFunction) -> Mapping[str, Any]:
    """Return the types from which the schema of a tool is derived; nothing for a tool that states its schema."""
    return {} if tool.schema is not None else hints_of(tool.function)


class TurnServices(Protocol):
    """Protocol for the services that a turn of an agent needs of its environment."""

    library_cache: LibraryCache
    """Tools and agents that are kept between turns."""

    def limited(self, tool: ToolFunction) -> ToolFunction:
        """Return a copy of a tool with the limits, such as a time limit, that the environment's definitions set for the
        tool.
        """


@suggest_arguments
class Agent(Generic[Output]):
    """A language model with a name, a goal, instructions and tools.

    The type parameter is the type of its answers: ``Agent("clerk", output=Ticket)`` is an ``Agent[Ticket]``, and
    ``await ctx.agent(clerk).run(...)`` gives a `Ticket`. Without an output it is ``str``.

    Parameters
    ----------
    definition
        Definition of the agent, or its name.
    model
        A pydantic-ai model, a name such as ``"openai:gpt-5-mini"``, or a `ScriptedModel`. The default is the model of
        the definition, else the offline scripted model.
    default_provider, default_model
        Provider and model to use if the definition names none.
    instructions
        Instructions that replace those of the definition.
    tools
        Functions, or names of tools of the environment, in addition to the tools of the definition.
    output
        Type of the answer: a pydantic model, a dataclass or another type, or a JSON schema. The default is text.
    capabilities
        Capabilities of pydantic-ai.
    servers
        MCP servers whose tools the agent may call, or names of servers of the environment.
    subordinates
        Names of agents to which this agent may delegate tasks, in addition to the subordinates in the definition. If
        the list is empty and the definition names no subordinates, the agent cannot delegate tasks. None does not
        change the definition.
    deps
        Value of ``ctx.deps`` for its capabilities; see `Agent.of`.
    approvals
        Rules for its tool calls, in addition to those of the definition; see `ApprovalRule`.
    bounds
        Budget of one prompt, including the work of subordinates: ``{"max_cost": 0.5, "max_tokens": 20_000,
        "max_llm_calls": 8}``.
        At a bound a person is asked. With ``"on_exhausted": "fail"`` the step fails.
    api_key
        Reference to the provider's key, ``env://NAME`` or ``file://PATH``. It is resolved at each call and never
        stored.
    cache
        How long a response may be reused for the same request, in any run on the same store, for example ``"7d"``.
    workspace
        Name of the workspace in which its tools work. The agent gets tools for files and commands there.
    corrections
        How often the model may correct an invalid tool call or an invalid answer. Corrections are counted separately
        for each tool and for the answer. The default is the value in the definition, or else 1.

    Examples
    --------
    >>> agent = Agent("poet", model=ScriptedModel(["roses are red"]))
    >>> agent.model_name
    'scripted'
    """

    @overload
    def __init__(
        self: Agent[str], definition: str, *, output: None = None, **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self, definition: AgentDefinition | str, *, output: type[Output], **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any], definition: AgentDefinition | str, *, output: Any = None, **options: Unpack[AgentOptions]
    ) -> None: ...
    def __init__(
        self,
        definition: AgentDefinition | str,
        *,
        model: Model | ScriptedModel | str | None = None,
        default_provider: str = "",
        default_model: str = "",
        instructions: str = "",
        tools: Iterable[ToolFunction | Callable[..., Any] | str] = (),
        output: Any = None,
        servers: Iterable[MCPServerDefinition | str] = (),
        capabilities: Iterable[AbstractCapability[Any]] = (),
        subordinates: Iterable[str] | None = None,
        deps: Any = None,
        approvals: Iterable[ApprovalRule | Mapping[str, Any]] = (),
        bounds: Bounds | Mapping[str, Any] | None = None,
        api_key: str | None = None,
        cache: DurationLike | None = None,
        workspace: str | None = None,
        corrections: int | None = None,
    ) -> None:
        _require_definition(definition)
        _require_model(model)
        _require_strings(
            default_provider=default_provider,
            default_model=default_model,
            instructions=instructions,
            api_key=api_key,
            workspace=workspace,
        )
        self.definition = AgentDefinition(definition) if isinstance(definition, str) else definition
        # An argument overrides the definition. A model object or a script overrides a model name.
        name_argument = model if isinstance(model, str) else None
        declared = self.definition
        self._name = model_name(
            None if name_argument else declared.provider,
            name_argument or declared.model,
            default_provider,
            default_model,
        )
        self.model: Model | ScriptedModel | str = self._name if model is None or name_argument else model
        """The model: one of pydantic-ai, a scripted one, or a model name."""
        # `model_name` returns `scripted` if no model is configured anywhere: the agent then answers offline.
        if self.model == SCRIPTED:
            self.model = ScriptedModel() if declared.script is None else ScriptedModel.read(declared.script)
        tool_arguments = list_of(tools, "tools", "tools=[search]")
        self.tools = tuple(tool_of(tool) for tool in tool_arguments if not isinstance(tool, str))
        """Tools passed as functions, without those that the definition names."""
        for tool in self.tools:
            if tool.schema is not None:
                require_schema(tool.schema, f"schema of {tool.kind_and_name}", has_patterns=False)
        server_arguments = _listed_servers(servers)
        self.servers = tuple(server for server in server_arguments if not isinstance(server, str))
        """Servers passed as definitions, which the agent adds to an environment."""
        _require_output(output)
        # A dict is a JSON schema. One that no value can fit is refused here, before a model is paid for an answer.
        if isinstance(output, Mapping):
            require_possible_schema(output, "output")
        self.output = declared.output if output is None else output
        allow_answers(self.output)
        self.capabilities = tuple(
            _capability(each) for each in list_of(capabilities, "capabilities", "capabilities=[Thinking()]")
        )
        self.deps = deps
        self.policy = Policy.given().of_code()
        """Policy for references in its key and headers. An environment replaces it (`under`)."""
        self.library: LibraryAgent[Any, Any] | None = None
        """The pydantic-ai agent, if this one was created by `Agent.of`."""
        self._declare(
            instructions,
            tools=[tool for tool in tool_arguments if isinstance(tool, str)],
            servers=[server if isinstance(server, str) else server.name for server in server_arguments],
            subordinates=_subordinates(subordinates),
            approvals=Approvals().plus(list_of(approvals, "approvals", "approvals=[ApprovalRule(...)]")).rules,
        )
        if corrections is not None:
            self.definition = replace(self.definition, corrections=corrections)
        if bounds is not None:
            self.definition = replace(self.definition, bounds=agent_bounds(bounds).to_dict())
        # A definition holds plain data; a text such as "7d" stays as it is.
        plain_cache = cache if isinstance(cache, str) else plain_seconds(cache)
        options: dict[str, Any] = {"cache": plain_cache, "workspace": workspace, "api_key": api_key}
        if changes := {key: value for key, value in options.items() if value is not None}:
            self.definition = replace(self.definition, **changes)
        # Parsed only to refuse an invalid lifetime when the agent is created, not in the middle of a turn.
        if self.definition.cache is not None:
            lasting(self.definition.cache)
        check_key(self.definition, is_named=isinstance(self.model, str | ScriptedModel))

    def _declare(self, instructions: str, *, subordinates: Sequence[str] | None, **names: Sequence[Any]) -> None:
        """Add the instructions, tools and other arguments of the constructor to the agent's definition."""
        definition = self.definition
        added = dict[str, Any]()
        if instructions:
            added["instructions"] = instructions
        # Lists are extended, not replaced: {"tools": (those of the definition, then those of the constructor)}.
        added |= {field: (*getattr(definition, field), *values) for field, values in names.items() if values}
        if subordinates is not None:
            added["subordinates"] = (*(definition.subordinates or ()), *subordinates)
        self.definition = replace(definition, **added) if added else definition

    @classmethod
    def of(
        cls,
        agent: LibraryAgent[Any, T],
        *,
        name: str | None = None,
        deps: Any = None,
        approvals: Iterable[ApprovalRule | Mapping[str, Any]] = (),
        bounds: Bounds | Mapping[str, Any] | None = None,
    ) -> Agent[T]:
        """Wrap an agent of pydantic-ai without changing its model, instructions, tools, output or capabilities.

        While a workflow runs the agent, divebook records its requests and tool calls, and its answer at the end of the
        turn. It records nothing else: its hooks, validators, output functions and instructions run again on replay of
        an unfinished turn, and must behave the same each time. Other side effects, such as sending a mail, belong in a
        tool. On replay, a recorded tool call returns its recorded result, and the tool does not run. Changes that the
        tool made to ``ctx.deps`` or to variables of its module are therefore missing after a replay: a tool must return
        all data that is needed later. divebook logs a warning if it detects that a tool changes ``ctx.deps``.

        ``metadata={"divebook": {"idempotent": True}}`` on a tool repeats a call whose outcome is unknown.
        ``metadata={"divebook": False}`` leaves a call unrecorded, for a tool that only runs other agents. Ordinary
        functions run in threads. Coroutine functions run on the event loop that all executions share, so they must not
        block. The connections of the agent's toolsets are opened on this event loop too. If the agent is already open
        on another event loop, for example by ``async with agent:`` in a cell, a turn raises an error.

        Parameters
        ----------
        name
            Name of the agent. The default is the name that it already has.
        deps
            Value of ``ctx.deps`` for its tools and instructions: one object for all runs. For another object in one
            run, use ``await ctx.agent("critic").run(..., deps=...)`` in a workflow.
        approvals, bounds
            Rules for its tool calls, and the budget of a turn, as for other agents.

        Raises
        ------
        SetupError
            The agent has no name or no model, a toolset without an id, or another part that cannot be recorded.
        """
        from divebook.agents.durability import check

        if not is_library_agent(agent):
            raise SetupError(f"Agent.of expects a pydantic_ai.Agent, not {describe(agent)}; write Agent('name')")
        # The name is part of the recorded operations, so an agent without a name cannot be recorded.
        agent_name = name or agent.name
        if not agent_name:
            raise SetupError(
                "an agent needs a name; write pydantic_ai.Agent(..., name='critic') or Agent.of(agent, name='critic')"
            )
        check(agent, agent_name)
        # Tools, output and capabilities are not passed on: they stay inside the pydantic-ai agent, which runs as it is.
        wrapper: Agent[Any] = Agent(agent_name, model=agent.model, deps=deps, approvals=approvals, bounds=bounds)
        wrapper.library = agent
        allow_answers(agent.output_type)
        return wrapper

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}: {self.model_name}>"

    @property
    def name(self) -> str:
        """Name of the agent, from its definition."""
        return self.definition.name

    @property
    def is_supervisor(self) -> bool:
        """True if prompt steps that name no agent are sent to this agent."""
        return self.definition.is_supervisor

    @property
    def model_name(self) -> str:
        """Name of the model: ``provider:model``, ``recorded:RUN`` or ``scripted``."""
        if isinstance(self.model, ScriptedModel):
            return SCRIPTED
        return self.model if isinstance(self.model, str) else self.model.model_id

    @property
    def retry(self) -> Retry:
        """Retry policy of model requests. Defaults to `MODEL_RETRY`."""
        return self.definition.retry or MODEL_RETRY

    @property
    def missing(self) -> str:
        """Message that names the library or key that is missing for requests to the model. Empty if nothing is missing,
        or if the definition itself names the model.
        """
        from divebook.agents.models import examine

        if self.definition.model is not None or not isinstance(self.model, str):
            return ""
        requirements = examine(self.model)
        return requirements.library or requirements.key

    @property
    def is_scripted(self) -> bool:
        """True if the agent uses a scripted model, which takes its answers from a script."""
        return isinstance(self.model, ScriptedModel)

    @property
    def has_hands(self) -> bool:
        """True if the agent answers in a turn of several recorded model requests and tool calls, for example because
        the agent has tools. False if each answer is a single model request.
        """
        return bool(turn_reasons(self))

    def with_model(self, name: str | None) -> Self:
        """Return a copy of the agent with another model: ``provider:model``, ``recorded:RUN`` or ``scripted``. None
        keeps the model.
        """
        # A model object of the user is kept, because it cannot be built again from its name.
        if name is None or name == self.model_name:
            return self
        definition = self.definition
        # A key must never be sent to another provider.
        if name.partition(":")[0] != self.model_name.partition(":")[0]:
            definition = without_secrets(definition)
        # A temporary agent turns the name into a model or script by the rules of the constructor.
        return self._with(definition, Agent(AgentDefinition(self.name, script=definition.script), model=name).model)

    def under(self, policy: Policy) -> Self:
        """Return a copy of the agent with another access policy, which decides from which environment variables and
        files the agent's keys and headers may be read.
        """
        other = copy.copy(self)
        other.policy = policy
        return other

    def with_script(self, script: ScriptedModel) -> Self:
        """Return a copy of the agent that uses a scripted model."""
        return self._with(self.definition, script)

    def _with(self, definition: AgentDefinition, model: Model | ScriptedModel | str) -> Self:
        other = copy.copy(self)
        other.definition = definition
        other.model = model
        return other

    def with_settings(self, *, temperature: float | None = None, max_tokens: int | None = None) -> Self:
        """Return a copy of the agent with another temperature or token limit. None keeps the current setting."""
        settings_by_name = {"temperature": temperature, "max_tokens": max_tokens}
        changed = {name: value for name, value in settings_by_name.items() if value is not None}
        if not changed:
            return self
        settings = replace(self.definition.model_settings or ModelSettings(), **changed)  # type: ignore[arg-type]
        return self._with(replace(self.definition, model_settings=settings), self.model)

    def instructions(self, date: datetime | None) -> str:
        """Return the system prompt of the agent: its name, goal and instructions. If the agent is date-aware and `date`
        is not None, the date is added.
        """
        definition = self.definition
        today = f"Today is {date:%A, %d %B %Y}." if definition.date_awareness and date is not None else ""
        # A custom system prompt replaces name, goal and instructions. The date is added in both cases.
        if definition.system_prompt is not None:
            return "\n\n".join(filter(None, (self._custom_prompt(definition.system_prompt), today)))
        role = f"You are {definition.name}."
        goal = f"Your goal: {definition.goal}" if definition.goal else ""
        return "\n\n".join(filter(None, (role, goal, definition.instructions, today)))

    def _custom_prompt(self, template: str) -> str:
        definition = self.definition
        agent = {"name": definition.name, "goal": definition.goal, "instructions": definition.instructions}
        try:
            return render_template(template, {"agent": agent})
        except TemplateError as error:
            raise SetupError(f"invalid system prompt template of agent {definition.name}: {error}") from error

    async def respond(
        self,
        prompt: str,
        operation: RunOperation,
        *,
        content: Sequence[Mapping[str, Any]] = (),
        context: Sequence[Mapping[str, Any]] = (),
        date: datetime | None = None,
    ) -> str:
        """Answer a prompt with a single model request, without tools, and return the answer. `operation` makes and
        records the request.

        Parameters
        ----------
        prompt
            Text at the end of the message.
        content
            Content blocks (``{"type": "text", ...}``) before the prompt.
        context
            Content blocks that form an extra message before all others.
        date
            Current date for a date-aware agent.
        """
        loop = await loaded(LOOP)
        message = loop.Request(prompt, content, context, self.instructions(date))
        answer: str = await loop.respond(self, message, operation)
        return answer

    async def turn(
        self,
        task: AgentTask,
        context: StepTurn,
        tools: Sequence[ToolFunction],
        servers: Sequence[ToolServer],
        services: TurnServices,
    ) -> dict[str, Any]:
        """Run one turn of the agent, in which the model may call tools until it answers. Return the turn's result.
        `context` records all model requests and tool calls.
        """
        loop = await loaded(LOOP)
        result: dict[str, Any] = await loop.run_turn(self, task, context, tools, servers, services)
        return result


AnyAgent: TypeAlias = "Agent[Any] | LibraryAgent[Any, Any]"
"""An agent of divebook or of pydantic-ai."""


def agent_of(value: Any) -> Agent:
    """Return a value as a divebook agent: a divebook agent unchanged, a pydantic-ai agent wrapped by `Agent.of`.

    Raises
    ------
    SetupError
        The object is neither.
    """
    if isinstance(value, Agent):
        return value
    if not is_library_agent(value):
        raise SetupError(
            f"an agent must be a divebook.Agent or a pydantic_ai.Agent, not {describe(value)}; "
            "write Agent('name', instructions=...)"
        )
    return Agent.of(value)


def _require_definition(definition: object) -> None:
    if not isinstance(definition, str | AgentDefinition):
        expected = "the name of the agent, or an AgentDefinition"
        raise SetupError(f"definition must be {expected}, not {describe(definition)}")
    if isinstance(definition, str) and not definition.strip():
        raise SetupError('an agent needs a name; write Agent("writer")')


def _require_output(output: object) -> None:
    """Raise `SetupError` for an output that cannot be a type, such as a number. Pydantic checks types when it reads
    them.
    """
    alternatives = output if isinstance(output, list | tuple) else [output]
    is_value = any(isinstance(part, int | float | complex | bytes) or part == "" for part in alternatives)
    require(output, "output", "a type, a list of types or a JSON schema", fits=bool(alternatives) and not is_value)


def _require_strings(**values: object) -> None:
    for name, value in values.items():
        require(value, name, "a string", fits=isinstance(value, str))


def _listed_servers(servers: Any) -> list[MCPServerDefinition | str]:
    listed = list_of(servers, "servers", "servers=['search']")
    for server in listed:
        expected = "names of MCP servers, or MCPServerDefinitions"
        require(server, "servers", expected, fits=isinstance(server, str | MCPServerDefinition))
    return listed


def _require_model(model: object) -> None:
    if model is not None and not isinstance(model, str | ScriptedModel):
        names = "a name such as 'openai:gpt-5-mini', a model of pydantic-ai"
        require_protocol(model, RequestsModel, "model", or_else=names, page="agents")


def is_library_agent(value: object) -> bool:
    """Return whether a value is an agent of pydantic-ai."""
    # An agent of the library can only exist if the library is loaded.
    library = sys.modules.get("pydantic_ai.agent")
    return library is not None and isinstance(value, library.AbstractAgent)


def _capability(value: Any) -> Any:
    """Return a capability of pydantic-ai, or a function that makes one; raise `SetupError` for another object."""
    library = sys.modules.get("pydantic_ai.capabilities")
    is_capability = library is not None and isinstance(value, library.AbstractCapability)
    if not is_capability and (isinstance(value, type) or not callable(value)):
        hint = f"; write {value.__name__}()" if isinstance(value, type) else ""
        raise SetupError(f"capabilities must be pydantic-ai capabilities, not {describe(value)}{hint}")
    if library is None or not isinstance(value, library.ModelFallback):
        return value
    fallback = copy.copy(value)  # the object of the caller stays as it is
    fallback.models = [_fallback_model(model) for model in value.models]
    return fallback


def _fallback_model(model: Any) -> Any:
    """Return a model of `ModelFallback` as pydantic-ai can use it. It knows names and its own models, but not the
    scripted model.
    """
    if not isinstance(model, ScriptedModel) and model != SCRIPTED:
        return model
    from divebook.agents.scripted_model import ScriptedFunction

    return ScriptedFunction(model if isinstance(model, ScriptedModel) else ScriptedModel())


def _name_of_agent(value: Any) -> str:
    if not isinstance(value, str):
        hint = f"; write {value.name!r}" if isinstance(value, Agent) else ""
        raise SetupError(f"subordinates must be names of agents, not {describe(value)}{hint}")
    return value


def _subordinates(value: Any) -> Sequence[str] | None:
    """Return the names of the agents that the argument `subordinates` names; None without it."""
    if value is None:
        return None
    return [_name_of_agent(each) for each in list_of(value, "subordinates", "subordinates=['critic']")]


def turn_reasons(
    agent: Agent, *, output: Any = None, thread: str | None = None, subordinates: Sequence[Agent] = ()
) -> list[str]:
    """Return the reasons why an agent answers in a recorded turn and not with a single model request, as words for
    people. Return an empty list if it answers with a single request.

    Parameters
    ----------
    output
        Type of the answer that the task requires, if any.
    thread
        Name of the conversation that the task continues, if any.
    subordinates
        Agents to which the agent may delegate tasks in its environment.
    """
    definition = agent.definition
    reasons = {
        TOOLS: agent.tools or definition.tools or definition.servers or definition.workspace,
        CAPABILITIES: agent.capabilities or agent.library is not None,
        SUBORDINATES: definition.subordinates or subordinates,
        BOUNDS: definition.bounds,
        CACHE: definition.cache,
        OUTPUT: agent.output is not None or output is not None,
        # The responses of a recorded run are looked up by the turn (`Cassette`). A single request has no such source.
        RECORDED_MODEL: agent.model_name.startswith(RECORDED),
        CONVERSATION: thread is not None,
    }
    return [reason for reason, is_present in reasons.items() if is_present]


async def loaded(name: str) -> Any:
    """Import the module called `name` in a thread and return it, so that the event loop stays free. Importing
    pydantic-ai takes half a second.

    `sys.modules` is not consulted, because another thread may have loaded the module only partly
    (test_a_module_that_another_thread_loads_is_waited_for).
    """
    if name not in _LOADED:
        _LOADED[name] = await anyio.to_thread.run_sync(importlib.import_module, name)
    return _LOADED[name]


# --- digest ---------------------------------------------------------------------------------------------------------
# It distinguishes agents of the same name with different behaviour.


def digest_of(agent: Agent) -> str:
    """Return a hash of everything that determines an agent's behaviour: its definition, model, output type and the code
    of its tools.

    Examples
    --------
    >>> digest_of(Agent("critic")) == digest_of(Agent("critic"))
    True
    >>> digest_of(Agent("critic")) == digest_of(Agent("critic", instructions="Be harsh."))
    False
    """
    # The key does not change the agent's behaviour.
    definition = {key: value for key, value in agent.definition.to_dict().items() if key != "api_key"}
    if "context" in definition:
        definition["context"] = ContentEntry.without_fingerprints(definition["context"])
    # The code of the tools is included: a changed function body makes a different agent.
    tools = code_of({tool.name: tool.function for tool in agent.tools})
    return short_hash([definition, agent.model_name, repr(named_answer(agent.output)), tools])


# --- placeholder models ---------------------------------------------------------------------------------------------
# A replay answers all requests from the log, so it needs no key, client or network.


def unasked(agent: Agent) -> Agent:
    """Return a copy of an agent for the replay of recorded requests: its model is a placeholder that needs no key. The
    placeholder raises an error for a request whose response is not in the log. Scripted models, ``recorded:RUN`` and
    model objects stay unchanged.

    The placeholder has the name and the request form of the original model, so that recorded requests are recognized.
    """
    if not isinstance(agent.model, str) or agent.model == SCRIPTED or agent.model.startswith(RECORDED):
        return agent
    other = copy.copy(agent)
    other.model = _model_called(agent.model)
    return other


def _model_called(model: str) -> Model:
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.providers import infer_provider_class

    provider, _, name = model.partition(":")

    class Unasked(FunctionModel):
        @property
        def system(self) -> str:
            return provider

    async def respond(*_: Any) -> Any:
        raise StepError(f"the log has no response of model {model!r} to this request")

    # The profile decides the form of requests, for example how structured output is requested.
    try:
        profile = infer_provider_class(provider).model_profile(name)
    except (ImportError, ValueError):  # library missing or provider unknown: use the default form of requests
        profile = None
    return Unasked(respond, model_name=name, profile=profile)
