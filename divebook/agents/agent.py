"""An agent: a model with a role and instructions, whose every model request is a recorded operation."""

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


DURABLE, LOOP = "divebook.agents.batches", "divebook.agents.loop"
_LOADED: dict[str, ModuleType] = {}
"""The modules that were loaded when they were first needed."""
MODEL_RETRY = Retry(
    seconds=0.5,
    max_seconds=8.0,
    jitter=0.5,
    errors=("ModelConnectionError", "ModelRateLimitError", "ModelServerError", "ModelUnavailableError"),
)
"""What the clients of providers do by themselves, here recorded and counted: two more attempts after a lost connection,
429 and 5xx, no sooner than the provider's Retry-After. A quota that is used up, and a time-out, are not tried again."""


class Agent:
    """A model with a name, a goal and instructions.

    Parameters
    ----------
    definition
        What it is; a plain text is its name.
    model
        A pydantic-ai model, a name such as ``"openai:gpt-5-mini"``, or a `ScriptedModel`. By default what the
        definition says; without any, the offline scripted model.
    default_provider, default_model
        Used where the definition is silent.
    instructions
        In place of those of its definition.
    tools
        Functions that it may call, or names of tools of its environment, beside those of its definition.
    output
        What it answers with: a pydantic model, a dataclass or another type, or a JSON schema. By default text.
    capabilities
        Capabilities of pydantic-ai.
    servers
        MCP servers, or names of those of its environment, whose tools it may call.
    subordinates
        Names of agents that it may hand work to, beside those of its definition.
    deps
        What its capabilities get as ``ctx.deps``; see `Agent.of`.
    approvals
        Rules for its calls of tools, beside those of its definition; see `ApprovalRule`.
    bounds
        What it may spend for one prompt, the work of its subordinates included: ``{"max_cost": 0.5, "max_tokens":
        20_000, "max_llm_calls": 8}``. At a bound a person is asked; with ``"on_exhausted": "fail"`` its step fails.
    api_key
        Where the key of its provider is, ``env://NAME`` or ``file://PATH``: looked up at each call and kept nowhere.
    cache
        How long responses of its model are used again, in any run on the same store, for the same request: ``"7d"``.
    workspace
        Name of the workspace in which its tools work; it has tools for files and commands there.
    corrections
        How often its model may correct a call of a tool, or an answer, that does not have the expected form: counted
        for each tool, and for the answer. By default what its definition says, which is 1 by default.

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
        """What it asks: a model of pydantic-ai, one with a script, or the name of a model."""
        if self.model == SCRIPTED:
            self.model = ScriptedModel() if own.script is None else ScriptedModel.read(own.script)
        given = list_of(tools, "tools", "tools=[search]")
        self.tools = tuple(tool_of(tool) for tool in given if not isinstance(tool, str))
        """Those that it was given, beside those that its definition names."""
        for tool in self.tools:
            if tool.schema is not None:
                require_schema(tool.schema, f"schema of {tool.label}", has_patterns=False)
        named_servers = list_of(servers, "servers", "servers=['search']")
        self.servers = tuple(server for server in named_servers if not isinstance(server, str))
        """Those that it brings along to an environment."""
        if isinstance(output, Mapping):
            require_possible_schema(output, "output")
        self.output = own.output if output is None else output
        allow_answers(self.output)
        self.capabilities, self.deps = tuple(capabilities), deps
        self.policy = Policy.given().of_code()
        """What its key and its headers may name; an environment sets its own policy (`under`)."""
        self.library: LibraryAgent[Any, Any] | None = None
        """The agent of pydantic-ai that it is, where it was taken as it is."""
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
        """Add to the definition what was given beside it."""
        own, added = self.definition, dict[str, Any]()
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
        """Its name."""
        return self.definition.name

    @property
    def is_supervisor(self) -> bool:
        """Whether it answers prompts that name no agent."""
        return self.definition.is_supervisor

    @property
    def model_name(self) -> str:
        """``provider:model`` or ``scripted``."""
        if isinstance(self.model, ScriptedModel):
            return SCRIPTED
        return self.model if isinstance(self.model, str) else self.model.model_id

    @property
    def retry(self) -> Retry:
        """How a request to its model is tried again: its own policy, else `MODEL_RETRY`."""
        return self.definition.retry or MODEL_RETRY

    @property
    def missing(self) -> str:
        """What its provider's default model, which it did not name itself, lacks here; empty if it can be asked."""
        from divebook.agents.models import examine

        if self.definition.model is not None or not isinstance(self.model, str):
            return ""
        found = examine(self.model)
        return found.library or found.key

    @property
    def is_scripted(self) -> bool:
        """Whether its answers come from a script."""
        return isinstance(self.model, ScriptedModel)

    @property
    def has_hands(self) -> bool:
        """Whether it may do more than answer: then what it does is a turn of requests and calls."""
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
        """Return this agent with another model, ``provider:model`` or ``scripted``; None leaves it its own."""
        if name is None or name == self.model_name:
            return self
        own = self.definition
        if name.partition(":")[0] != self.model_name.partition(":")[0]:
            own = without_secrets(own)
        return self._with(own, Agent(AgentDefinition(self.name, script=own.script), model=name).model)

    def under(self, policy: Policy) -> Agent:
        """Return this agent with the permissions of a policy, for its key and its headers."""
        other = copy.copy(self)
        other.policy = policy
        return other

    def with_script(self, script: ScriptedModel) -> Agent:
        """Return this agent with a script in place of its model."""
        return self._with(self.definition, script)

    def _with(self, definition: AgentDefinition, model: Model | ScriptedModel | str) -> Agent:
        other = copy.copy(self)
        other.definition, other.model = definition, model
        return other

    def with_settings(self, *, temperature: float | None = None, max_tokens: int | None = None) -> Agent:
        """Return this agent with other settings of its model; None leaves one as it is."""
        given = {"temperature": temperature, "max_tokens": max_tokens}
        changed = {name: value for name, value in given.items() if value is not None}
        if not changed:
            return self
        settings = replace(self.definition.model_settings or ModelSettings(), **changed)  # type: ignore[arg-type]
        return self._with(replace(self.definition, model_settings=settings), self.model)

    def instructions(self, date: datetime | None) -> str:
        """Return the system prompt; `date` is what a date-aware agent takes for today."""
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
        """Answer a prompt; every request to the model goes through `operation`.

        Parameters
        ----------
        prompt
            The text, which comes last in the message.
        content
            Blocks (``{"type": "text", ...}``) that come before it.
        context
            Blocks that make an extra message in front of everything.
        date
            What to take for today.
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
        """Answer with requests and calls of tools that `context` records; return what the turn comes to.

        `limited` gives a tool the limits that its environment sets.
        """
        loop, durable = await loaded(LOOP), await loaded(DURABLE)
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
    """Return an agent as it is, and one of pydantic-ai taken as it is."""
    if isinstance(given, Agent):
        return given
    if not (hasattr(given, "output_type") and hasattr(given, "run")):
        raise SetupError(f"an agent is a divebook.Agent or a pydantic_ai.Agent, not {given!r:.100}")
    return Agent.of(given)


async def loaded(name: str) -> Any:
    """Return a module that needs pydantic-ai, which takes half a second to load.

    One that is among `sys.modules` is perhaps half loaded, by another thread
    (test_a_module_that_another_thread_loads_is_waited_for).
    """
    if name not in _LOADED:  # in a thread, so that other paths go on meanwhile
        _LOADED[name] = await anyio.to_thread.run_sync(importlib.import_module, name)
    return _LOADED[name]


# A digest of what an agent does, by which one is told from another of the same name.


def digest_of(agent: Agent) -> str:
    """Return a digest of an agent's definition, its model, what it answers with, and the code of its tools.

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


# Models that are never asked, since a log answers for them: no key, no client and no network.


def unasked(agent: Agent) -> Agent:
    """Return an agent whose requests are what they are live, as its model has the same name; it needs no key."""
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
    except (ImportError, ValueError):  # its library is not here, or nobody knows it: the usual form of requests
        profile = None
    return Unasked(answer, model_name=name, profile=profile)
