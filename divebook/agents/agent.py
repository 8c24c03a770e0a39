"""Agents: a model with a role and instructions, whose model requests are recorded operations."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from divebook.agents.cache import lasting
from divebook.agents.models import RECORDED, check_key, model_name, without_secrets
from divebook.agents.scripted import SCRIPTED, ScriptedModel
from divebook.agents.tools import served_tools
from divebook.documents.policy import Policy
from divebook.engine.operations import RunOperation
from divebook.errors import SetupError, StepError, TemplateError
from divebook.events.codec import short_hash
from divebook.questions.bounds import Bounds, agent_bounds
from divebook.scripting import render_template
from divebook.text.arguments import has_methods, list_of, require
from divebook.workflow.answer_types import allow_answers, answer_type, named_answer
from divebook.workflow.code import code_of
from divebook.workflow.json_schemas import require_possible_schema, require_schema
from divebook.workflow.resources import AgentDefinition, ModelSettings
from divebook.workflow.servers import ApprovalRule, Approvals, MCPServerDefinition, ToolServer
from divebook.workflow.step import ContentEntry, Retry
from divebook.workflow.tools import ToolFunction, tool_of

if TYPE_CHECKING:
    from pydantic_ai import Agent as LibraryAgent
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.models import Model

    from divebook.agents.turn import AgentTask, TurnContext


DURABLE = "divebook.agents.batches"
LOOP = "divebook.agents.loop"
_LOADED: dict[str, ModuleType] = {}
"""Modules that are loaded when they are first needed."""
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


class Agent:
    """A model with a name, a goal and instructions.

    Parameters
    ----------
    definition
        Definition of the agent, or its name.
    model
        A pydantic-ai model, a name such as ``"openai:gpt-5-mini"``, or a `ScriptedModel`. The default is the model of
        the
        definition, else the offline scripted model.
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
        Names of agents to which it may delegate tasks, in addition to those of the definition.
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
        How long a response may be reused for the same request, in any run on the same store: ``"7d"``.
    workspace
        Name of the workspace in which its tools work. The agent gets tools for files and commands there.
    corrections
        How often the model may correct an invalid tool call or answer, counted per tool and for the answer. The default
        is that
        of the definition, which is 1 by default.

    Examples
    --------
    >>> agent = Agent("poet", model=ScriptedModel(["roses are red"]))
    >>> agent.model_name
    'scripted'
    """

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
        subordinates: Iterable[str] = (),
        deps: Any = None,
        approvals: Iterable[ApprovalRule | Mapping[str, Any]] = (),
        bounds: Bounds | Mapping[str, Any] | None = None,
        api_key: str | None = None,
        cache: str | float | None = None,
        workspace: str | None = None,
        corrections: int | None = None,
    ) -> None:
        expected = "the name of the agent, or an AgentDefinition"
        require(definition, "definition", expected, fits=isinstance(definition, str | AgentDefinition))
        fits = isinstance(model, str | ScriptedModel) or has_methods(model, "request")
        require(model, "model", "a name such as 'openai:gpt-5-mini', or a model of pydantic-ai", fits=fits)
        self.definition = AgentDefinition(definition) if isinstance(definition, str) else definition
        named = model if isinstance(model, str) else None
        own = self.definition
        self._name = model_name(None if named else own.provider, named or own.model, default_provider, default_model)
        self.model: Model | ScriptedModel | str = self._name if model is None or named else model
        """The model: one of pydantic-ai, a scripted one, or a model name."""
        if self.model == SCRIPTED:
            self.model = ScriptedModel() if own.script is None else ScriptedModel.read(own.script)
        given = list_of(tools, "tools", "tools=[search]")
        self.tools = tuple(tool_of(tool) for tool in given if not isinstance(tool, str))
        """Tools passed as functions, without those that the definition names."""
        for tool in self.tools:
            if tool.schema is not None:
                require_schema(tool.schema, f"schema of {tool.label}", has_patterns=False)
        named_servers = list_of(servers, "servers", "servers=['search']")
        self.servers = tuple(server for server in named_servers if not isinstance(server, str))
        """Servers passed as definitions, which the agent adds to an environment."""
        if isinstance(output, Mapping):
            require_possible_schema(output, "output")
        self.output = own.output if output is None else output
        allow_answers(self.output)
        self.capabilities = tuple(capabilities)
        self.deps = deps
        self.policy = Policy.given().of_code()
        """Policy for references in its key and headers. An environment replaces it (`under`)."""
        self.library: LibraryAgent[Any, Any] | None = None
        """The pydantic-ai agent, if this one was created by `Agent.of`."""
        self._declare(
            instructions,
            tools=[tool for tool in given if isinstance(tool, str)],
            servers=[server if isinstance(server, str) else server.name for server in named_servers],
            subordinates=list(subordinates),
            approvals=Approvals().plus(approvals).rules,
        )
        if corrections is not None:
            self.definition = replace(self.definition, corrections=corrections)
        if bounds is not None:
            self.definition = replace(self.definition, bounds=agent_bounds(bounds).to_dict())
        beside: dict[str, Any] = {"cache": cache, "workspace": workspace, "api_key": api_key}
        if given_beside := {key: value for key, value in beside.items() if value is not None}:
            self.definition = replace(self.definition, **given_beside)
        if self.definition.cache is not None:
            lasting(self.definition.cache)
        check_key(self.definition, is_named=isinstance(self.model, str | ScriptedModel))

    def _declare(self, instructions: str, **names: Sequence[Any]) -> None:
        """Add the constructor's arguments to the definition."""
        own = self.definition
        added = dict[str, Any]()
        if instructions:
            added["instructions"] = instructions
        added |= {field: (*getattr(own, field), *given) for field, given in names.items() if given}
        self.definition = replace(own, **added) if added else own

    @classmethod
    def of(
        cls,
        agent: LibraryAgent[Any, Any],
        *,
        name: str | None = None,
        deps: Any = None,
        approvals: Iterable[ApprovalRule | Mapping[str, Any]] = (),
        bounds: Bounds | Mapping[str, Any] | None = None,
    ) -> Agent:
        """Take an agent of pydantic-ai as it is: its model, instructions, tools, output and capabilities.

        Its requests and calls are recorded while a workflow runs it, and its answer when its turn ends. All else is
        not: its hooks, validators, output functions and instructions run again on replay of an unfinished turn, and
        should do the same each time; what they do besides, such as sending a mail, belongs in a tool. A call that is
        recorded gives its result on replay and does nothing again, so what a tool changes besides, in ``ctx.deps`` or a
        variable of its module, is as it was before the call: let tools return what is to last. A change of
        ``ctx.deps`` is warned of where it can be seen.

        ``metadata={"divebook": {"idempotent": True}}`` on a tool has it called again where it is not known whether a
        call took effect; ``metadata={"divebook": False}`` leaves a call unrecorded, for a tool that only runs other
        agents. Ordinary functions run in threads; coroutine functions run on the loop of all executions, and may not
        block. What its toolsets hold open is opened there too: a turn of an agent that is held open elsewhere, by
        ``async with agent:`` in a cell, is refused.

        Parameters
        ----------
        name
            By default the agent's own.
        deps
            What its tools and instructions get as ``ctx.deps``: one object for all runs. For one of its own, a
            workflow gives ``await ctx.agent("critic").run(..., deps=...)``.
        approvals, bounds
            Rules for its calls of tools, and what a turn of it may consume, as for an agent of ours.

        Raises
        ------
        SetupError
            It has no name or no model, a toolset without an id, or anything else that cannot be recorded.
        """
        from divebook.agents.durability import check

        known = name or agent.name
        if not known:
            raise SetupError("an agent needs a name: pydantic_ai.Agent(..., name='critic'), or Agent.of(agent, name=)")
        check(agent, known)
        taken = cls(known, model=agent.model, deps=deps, approvals=approvals, bounds=bounds)
        taken.library = agent
        allow_answers(agent.output_type)
        return taken

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}: {self.model_name}>"

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self.definition.name

    @property
    def is_supervisor(self) -> bool:
        """True if the agent answers prompts that name no agent."""
        return self.definition.is_supervisor

    @property
    def model_name(self) -> str:
        """Name of the model: ``provider:model`` or ``scripted``."""
        if isinstance(self.model, ScriptedModel):
            return SCRIPTED
        return self.model if isinstance(self.model, str) else self.model.model_id

    @property
    def retry(self) -> Retry:
        """Retry policy of model requests: that of the definition, else `MODEL_RETRY`."""
        return self.definition.retry or MODEL_RETRY

    @property
    def missing(self) -> str:
        """Missing library or key of the provider's default model.

        Empty if it is usable or the definition names a model.
        """
        from divebook.agents.models import examine

        if self.definition.model is not None or not isinstance(self.model, str):
            return ""
        found = examine(self.model)
        return found.library or found.key

    @property
    def is_scripted(self) -> bool:
        """True if the answers come from a script."""
        return isinstance(self.model, ScriptedModel)

    @property
    def has_hands(self) -> bool:
        """True if the agent needs a turn of several recorded requests and calls, for example because it has tools."""
        own = self.definition
        more = (
            self.tools,
            self.capabilities,
            own.tools,
            own.servers,
            own.subordinates,
            own.bounds,
            own.cache,
            own.workspace,
        )
        is_played = self.model_name.startswith(RECORDED)
        return is_played or self.library is not None or self.output is not None or any(more)

    def with_model(self, name: str | None) -> Agent:
        """Return a copy with another model, ``provider:model`` or ``scripted``. None keeps the model."""
        if name is None or name == self.model_name:
            return self
        own = self.definition
        if name.partition(":")[0] != self.model_name.partition(":")[0]:
            own = without_secrets(own)
        return self._with(own, Agent(AgentDefinition(self.name, script=own.script), model=name).model)

    def under(self, policy: Policy) -> Agent:
        """Return a copy that resolves its key and headers under a policy."""
        other = copy.copy(self)
        other.policy = policy
        return other

    def with_script(self, script: ScriptedModel) -> Agent:
        """Return a copy with a scripted model."""
        return self._with(self.definition, script)

    def _with(self, definition: AgentDefinition, model: Model | ScriptedModel | str) -> Agent:
        other = copy.copy(self)
        other.definition = definition
        other.model = model
        return other

    def with_settings(self, *, temperature: float | None = None, max_tokens: int | None = None) -> Agent:
        """Return a copy with other model settings. None keeps a setting."""
        given = {"temperature": temperature, "max_tokens": max_tokens}
        changed = {name: value for name, value in given.items() if value is not None}
        if not changed:
            return self
        settings = replace(self.definition.model_settings or ModelSettings(), **changed)  # type: ignore[arg-type]
        return self._with(replace(self.definition, model_settings=settings), self.model)

    def instructions(self, date: datetime | None) -> str:
        """Return the system prompt. `date` is the current date for a date-aware agent."""
        own = self.definition
        today = f"Today is {date:%A, %d %B %Y}." if own.date_awareness and date is not None else ""
        if own.system_prompt is not None:
            return "\n\n".join(filter(None, (self._custom_prompt(own.system_prompt), today)))
        role = f"You are {own.name}."
        goal = f"Your goal: {own.goal}" if own.goal else ""
        return "\n\n".join(filter(None, (role, goal, own.instructions, today)))

    def _custom_prompt(self, template: str) -> str:
        own = self.definition
        agent = {"name": own.name, "goal": own.goal, "instructions": own.instructions}
        try:
            return render_template(template, {"agent": agent})
        except TemplateError as error:
            raise SetupError(f"invalid system prompt template of agent {own.name}: {error}") from error

    async def respond(
        self,
        prompt: str,
        operation: RunOperation,
        *,
        content: Sequence[Mapping[str, Any]] = (),
        context: Sequence[Mapping[str, Any]] = (),
        date: datetime | None = None,
    ) -> str:
        """Answer a prompt with model requests that `operation` runs and records.

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
        durable = await loaded(DURABLE)
        message = durable.Request(prompt, content, context, self.instructions(date))
        answer: str = await durable.respond(self, message, operation)
        return answer

    async def turn(
        self,
        asked: AgentTask,
        context: TurnContext,
        tools: Sequence[ToolFunction],
        servers: Sequence[ToolServer],
        limited: Callable[[ToolFunction], ToolFunction],
    ) -> dict[str, Any]:
        """Answer with model requests and tool calls that `context` records; return the result of the turn.

        `limited` applies the environment's limits to a tool.
        """
        loop = await loaded(LOOP)
        durable = await loaded(DURABLE)
        own = [tool.inside(self.definition.workspace) for tool in (*tools, *self.tools)]
        served, notes = await served_tools(context, self.definition, servers, [tool.name for tool in own])
        instructions = self.instructions(context.started_at) if self.library is None else ""
        instructions = "\n\n".join(filter(None, (instructions, notes)))
        message = durable.Request(asked.prompt, asked.content, asked.context, instructions)
        output = answer_type(self.output if asked.output is None else asked.output)
        allow_answers(output)
        run = loop.LoopRun(self, message, output, asked)
        result: dict[str, Any] = await run.turn(context, [*map(limited, own), *map(limited, served)], asked.deps)
        return result


def agent_of(given: Any) -> Agent:
    """Return an agent unchanged, or wrap a pydantic-ai agent.

    Raises
    ------
    SetupError
        The object is neither.
    """
    if isinstance(given, Agent):
        return given
    if not (hasattr(given, "output_type") and hasattr(given, "run")):
        raise SetupError(f"an agent is a divebook.Agent or a pydantic_ai.Agent, not {given!r:.100}")
    return Agent.of(given)


async def loaded(name: str) -> Any:
    """Return a module that imports pydantic-ai, which takes half a second.

    `sys.modules` is not consulted, because another thread may have loaded the module only partly
    (test_a_module_that_another_thread_loads_is_waited_for).
    """
    if name not in _LOADED:  # in a thread, to keep the event loop free for other paths
        _LOADED[name] = await anyio.to_thread.run_sync(importlib.import_module, name)
    return _LOADED[name]


# --- digest ---------------------------------------------------------------------------------------------------------
# It distinguishes agents of the same name with different behaviour.


def digest_of(agent: Agent) -> str:
    """Return a digest of an agent's definition, model, output type and tool code.

    Examples
    --------
    >>> digest_of(Agent("critic")) == digest_of(Agent("critic"))
    True
    >>> digest_of(Agent("critic")) == digest_of(Agent("critic", instructions="Be harsh."))
    False
    """
    own = {key: value for key, value in agent.definition.to_dict().items() if key != "api_key"}
    if "context" in own:
        own["context"] = ContentEntry.without_fingerprints(own["context"])
    tools = code_of({tool.name: tool.function for tool in agent.tools})
    return short_hash([own, agent.model_name, repr(named_answer(agent.output)), tools])


# --- placeholder models ---------------------------------------------------------------------------------------------
# A replay answers all requests from the log, so it needs no key, client or network.


def unasked(agent: Agent) -> Agent:
    """Return a copy whose model has the same name but needs no key. Its requests are the same as live ones."""
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

    async def answer(*_: Any) -> Any:
        raise StepError(f"model {model!r} was asked for an answer that its log does not have")

    try:
        profile = infer_provider_class(provider).model_profile(name)
    except (ImportError, ValueError):  # library missing or provider unknown: use the default form of requests
        profile = None
    return Unasked(answer, model_name=name, profile=profile)
