"""Registry of the workflows, agents, actions, tools and step types of an environment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from divebook import plugins
from divebook.agents import Agent
from divebook.agents.agent import LibraryCache, agent_of
from divebook.agents.cache import ResponseCache, cache_of
from divebook.agents.models import is_known_provider, model_name
from divebook.agents.scripted import SCRIPTED
from divebook.definitions.code import code_of
from divebook.definitions.definition import (
    Definitions,
    Workflow,
    check_default_workflow,
    check_providers,
    merge,
    merge_config,
    missing_actions,
    missing_agents,
    missing_workflows,
    provider_settings,
    require_definition,
    unknown,
    with_defaults,
)
from divebook.definitions.dialect import OWN, TOOLS
from divebook.definitions.functions import FUNCTION, WORKFLOW_FUNCTIONS, roots_of
from divebook.definitions.resources import (
    AgentDefinition,
    ApprovalRule,
    Approvals,
    Config,
    ScheduleDefinition,
    ToolDefinition,
    WorkspaceDefinition,
)
from divebook.definitions.servers import SCHEME, MCPServerDefinition
from divebook.definitions.step import STEP_TYPES, Step
from divebook.definitions.tools import REGISTERED_TOOLS, ToolFunction, tool_of
from divebook.documents import DocumentRepository, Policy
from divebook.documents.policy import APPROVALS, KINDS, VARIABLE, require_allowed
from divebook.engine.approvals import StandingRule
from divebook.engine.operations import TOOL_CALL
from divebook.errors import (
    AlreadyRegisteredError,
    DefinitionError,
    NameNotFoundError,
    NotFoundError,
    Problem,
    SetupError,
)
from divebook.interrupts import interruptible_result
from divebook.projections.model_requests import RequestView, requests_of
from divebook.runtime.clock import Clock
from divebook.runtime.compute.dask import Executors
from divebook.runtime.loop import ENGINE
from divebook.runtime.operations import OperationRequest
from divebook.runtime.step import Handler
from divebook.steps.actions import REGISTERED, Action
from divebook.steps.checks import (
    agents_of_steps,
    check_agent,
    check_declared,
    check_model,
    require_existing,
    syntax_problems,
)
from divebook.steps.conversations import ConversationStore, DurableLog, Entry
from divebook.steps.function import require_function
from divebook.steps.prompt import ASSIGN_WORK
from divebook.stores import EventStore
from divebook.text.arguments import describe, list_of, same_name
from divebook.text.format import local_time
from divebook.text.protocols import require_protocol
from divebook.text.redaction import logger
from divebook.tools.builtin import ABSENT, OFFERED, declared, limited
from divebook.tools.file_tools import ToolReach
from divebook.tools.mcp.servers import ServedDocuments, Server, Servers
from divebook.tools.workspace import PROCESS_TOOLS, SHELL, WORKSPACE_TOOLS, workspace_tool
from divebook.workspaces.docker.engine import require_image

T = TypeVar("T")
V = TypeVar("V")


class NamedObjects(dict[str, V]):
    """Objects of an environment by name, such as ``environment.definitions.agents``. A missing name raises
    `NameNotFoundError`, which names the existing ones, the nearest one, and the call that adds one.

    The mapping is a copy: changes of it do not change the environment.
    """

    def __init__(self, kind: str, objects: Mapping[str, V], hint: str) -> None:
        super().__init__(objects)
        self._kind = kind
        self._hint = hint

    def __missing__(self, name: object) -> V:
        shown = name if isinstance(name, str) else describe(name)
        raise NameNotFoundError(self._kind, shown, self, self._hint)

    def __reduce__(self) -> tuple[type[dict[str, V]], tuple[dict[str, V]]]:
        return dict, (dict(self),)  # a copy needs no errors of its own


_DefinitionName: TypeAlias = tuple[str, str]
"""Kind (``agent``, ``workspace`` or ``tool``) and name of a definition."""
WorkflowCheck: TypeAlias = Callable[[Workflow], None]
StepType: TypeAlias = tuple[Handler, WorkflowCheck | None]
"""Handler of all steps of a type, and an optional function that checks workflows with steps of that type."""
_log = logger(__name__)


class Registry:
    """Workflows, agents, actions, tools, servers, workspaces and step types of one environment, by name.

    The registry also checks that a workflow can run: everything that its steps name exists, and the policy allows it.
    Steps that call agents get their tools and services from it (`divebook.steps.prompt.AgentServices`).

    Parameters
    ----------
    store
        Contains the runs that model names such as ``recorded:exec_...`` refer to.
    executors
        Executors that functions and steps may name.
    actions
        Actions of this environment, besides the built-in ones and those made with `@action`.
    approvals
        Rules for the tool calls of all agents.
    threads
        Conversations of the store.
    clock
        Time, for the age of responses in the cache.
    """

    def __init__(
        self,
        store: EventStore,
        executors: Executors,
        actions: Iterable[Action],
        approvals: Iterable[ApprovalRule | Mapping[str, Any]],
        *,
        threads: ConversationStore,
        clock: Clock,
    ) -> None:
        self._store = store
        self._clock = clock
        self.threads = threads
        """Conversations of the store."""
        self._executors = executors
        self._definitions = Definitions()
        """Everything that texts define, and the workspaces and schedules that Python code added."""
        self._workflows: dict[str, Workflow] = {}
        self._agents: dict[str, Agent] = {}
        self._tools: dict[str, ToolFunction] = {}
        self._built_in_actions: dict[str, Action] = {}
        self.custom_actions = {action.name: action for action in actions}
        """Actions passed to this environment, without the built-in actions and those made with `@action`."""
        self._approvals = Approvals().plus(list_of(approvals, "approvals", "approvals=[ApprovalRule(...)]"))
        self.servers = Servers(_run_on_engine, store.sealing)
        self.origins = DefinitionOrigins()
        self.library_cache = LibraryCache()
        """Tools and agents in the form of pydantic-ai, kept between turns."""
        self.handlers: dict[str, Handler] = StepHandlers()
        """Step handlers by step type. Runners share this dictionary."""
        self._step_checks: dict[str, Callable[[Workflow], None]] = {}
        self.custom_step_types: dict[str, StepType] = {}
        """Step types that were added to this environment, without the built-in ones."""

    def reach(self, documents: DocumentRepository, policy: Policy) -> None:
        """Set the document repository that the tools of agents use, and the policy that limits the tools."""
        self.documents = documents
        self.policy = policy
        # Resources of MCP servers can be read like documents, by paths that begin with this scheme.
        documents.include(SCHEME, ServedDocuments(self.servers))
        self._tool_reach = ToolReach(documents, policy, getattr(documents, "root", Path()))

    def set_built_ins(self, actions: Mapping[str, Action], handlers: Mapping[str, Handler]) -> None:
        """Set the actions and the step handlers that divebook itself provides."""
        self._built_in_actions = dict(actions)
        self.handlers |= handlers

    # --- adding ----------------------------------------------------------------------------------------------------

    def define(self, definitions: Definitions) -> None:
        """Add all definitions of a text, file or folder; see `Environment.define`."""
        expected = (
            "Definitions; divebook.config.load('flows.yaml') reads them, and add_agent and add_workflow add single "
            "definitions"
        )
        if not isinstance(definitions, Definitions):
            raise SetupError(f"definitions must be {expected}, not {describe(definitions)}")
        # The definitions are checked before the registry changes.
        problems = syntax_problems(definitions)
        if problems:
            names = {workflow.written.name for workflow in definitions.workflows}
            raise DefinitionError(problems, names.pop() if len(names) == 1 and "" not in names else "definition")
        check_providers(definitions, is_known_provider)
        merged = merge(self._definitions, definitions)
        # All agents are built again, since settings of the new text also hold for agents that were defined before.
        agents = {agent.name: _build_agent(agent, merged.config, definitions) for agent in merged.agents}
        self._definitions = merged
        self.origins.record(definitions)
        self._warn_of_relaxations(definitions)
        self._register_documents(definitions)
        self._agents |= agents
        for server in definitions.mcp_servers:
            # The policy is stored with the server. It is that of the origin of this definition, not of a later one.
            policy = self.policy if definitions.is_text else self.policy.of_code()
            self.servers.add(server, policy, replace=True)
        for workflow in definitions.workflows:
            self.add_workflow(workflow, replace=True)

    def merge_from(self, other: Self) -> None:
        """Add all definitions of another registry to this one.

        Definitions of the other registry replace those of the same name. Approval rules of both apply.
        """
        # An agent that the other registry replaces must lose its definition here. The next `define` would build it
        # again from the old one.
        before = [agent for agent in self._definitions.agents if agent.name not in other._agents]
        # The warnings were shown when the other registry got the definitions.
        after = replaced(other._definitions, warnings=())
        self._definitions = merge(replaced(self._definitions, agents=tuple(before)), after)
        self._register_documents(self._definitions)
        names = _names_of(other._agents.values(), other._definitions.workspaces, other._definitions.tools)
        self.origins.merge_from(other.origins, names)
        self._agents |= other._agents
        self._tools |= other._tools
        # Only rules that are not there yet, so that merging twice changes nothing.
        self._approvals = self._approvals.plus(unknown(other._approvals.rules, self._approvals.rules))
        self.servers.merge_from(other.servers)
        self._workflows |= other._workflows
        self.custom_actions |= other.custom_actions
        for name, (handler, check) in {**self.custom_step_types, **other.custom_step_types}.items():
            self.add_step_type(name, handler, check)

    def add_agent(self, agent: Agent | Any, *, replace: bool = False) -> None:
        """Add an agent of divebook or pydantic-ai, and the MCP servers that the agent brings."""
        agent = agent_of(agent)
        if agent.name in self._agents and not replace:
            raise AlreadyRegisteredError("agent", agent.name)
        for server in agent.servers:
            self.add_server(server, replace=replace)
        self._agents[agent.name] = agent
        self.origins.mark_as_code("agent", agent.name)
        # Without this, the next `define` would build the agent of this name from the old definition.
        remaining = [definition for definition in self._definitions.agents if definition.name != agent.name]
        self._definitions = replaced(self._definitions, agents=tuple(remaining))

    def add_workflow(self, workflow: Workflow, *, replace: bool = False) -> None:
        """Add a workflow. Executions that are already running keep the workflow with which they started."""
        require_workflow(workflow)
        if workflow.name in self._workflows and not replace:
            raise AlreadyRegisteredError("workflow", workflow.name)
        self._workflows[workflow.name] = workflow
        self.origins.mark_workflow_as_code(workflow)

    def add_tool(self, tool: ToolFunction | Callable[..., Any], *, replace: bool = False) -> None:
        """Add a tool, or a function as a tool; raises `AlreadyRegisteredError` for a name that exists unless `replace`
        is set.
        """
        function = tool_of(tool)
        if function.name in self._tools and not replace:
            raise AlreadyRegisteredError("tool", function.name)
        self._tools[function.name] = function

    def add_server(self, server: MCPServerDefinition, *, replace: bool = False) -> None:
        """Add an MCP server. It is started for the first agent that needs it."""
        require_server(server)
        everything = Policy(*KINDS)  # who writes Python may start programs anyway
        self.servers.add(server, everything, replace=replace)

    def add_workspace(self, workspace: WorkspaceDefinition, *, replace: bool = False) -> None:
        """Add the definition of a workspace; raises `AlreadyRegisteredError` for a name that exists unless `replace` is
        set.
        """
        require_workspace(workspace)
        if workspace.name in self.workspaces and not replace:
            raise AlreadyRegisteredError("workspace", workspace.name)
        self.origins.trust_workspace(workspace.name)
        self._definitions = merge(replaced(self._definitions, warnings=()), Definitions(workspaces=(workspace,)))

    def add_action(self, action: Action, *, replace: bool = False) -> None:
        """Add an action; raises `AlreadyRegisteredError` for a name that was added unless `replace` is set."""
        if not replace and action.name in self.custom_actions:
            raise AlreadyRegisteredError("action", action.name)
        self.custom_actions[action.name] = action

    def add_schedule(self, schedule: ScheduleDefinition, *, replace: bool = False) -> None:
        """Add a schedule; raises `AlreadyRegisteredError` for a name that exists unless `replace` is set, and
        `DefinitionError` for inputs with a faulty template.
        """
        require_schedule(schedule)
        problems = syntax_problems(Definitions(schedules=(schedule,)))
        if problems:
            raise DefinitionError([replaced(problem, place=()) for problem in problems])
        if not replace and schedule.name in {definition.name for definition in self.schedules}:
            raise AlreadyRegisteredError("schedule", schedule.name)
        self._definitions = merge(replaced(self._definitions, warnings=()), Definitions(schedules=(schedule,)))

    def add_step_type(self, name: str, handler: Handler, check: Callable[[Workflow], None] | None = None) -> None:
        """Set the handler for all steps of a type; see `Environment.add_step_type`."""
        if name not in STEP_TYPES and name not in plugins.names(plugins.STEP_TYPES):
            raise NotFoundError("step type", name, STEP_TYPES)
        require_protocol(handler, Handler, "handler")
        if check is not None:
            require_protocol(check, WorkflowCheck, "check")
        self.handlers[name] = handler
        self.custom_step_types[name] = handler, check
        if check is not None:
            self._step_checks[name] = check

    def _register_documents(self, definitions: Definitions) -> None:
        for document in definitions.documents:
            if document.path:
                self.documents.register(document.name, document.path)

    def _warn_of_relaxations(self, definitions: Definitions) -> None:
        """Warn if a YAML text contains approval rules that would skip questions to a person. They have no effect unless
        the policy allows them.
        """
        if not definitions.is_text or APPROVALS in self.policy.allowed:
            return
        ignored = _relaxations(definitions)
        if ignored:
            _log.warning(
                "the definition lowers the approval settings: %s. This has no effect; to allow it: %s=%s or --allow %s",
                ", ".join(ignored),
                VARIABLE,
                APPROVALS,
                APPROVALS,
            )

    # --- finding ---------------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """Settings merged from all definitions of this registry."""
        return self._definitions.config

    @property
    def schedules(self) -> tuple[ScheduleDefinition, ...]:
        """Schedules of the environment: workflows that a worker starts at certain times."""
        return self._definitions.schedules

    @property
    def agents(self) -> dict[str, Agent]:
        """Agents by name, in the order in which they were added."""
        return dict(self._agents)

    def agent(self, name: str) -> Agent:
        """Return the agent with this name; raises `NotFoundError`."""
        # Equal, or equal in the Unicode form NFKC: a name that was typed with combining characters is found as well.
        registered_name = same_name(name, self._agents)
        if registered_name is None:
            raise NotFoundError("agent", name, self._agents)
        return self._agents[registered_name]

    @property
    def default_agent(self) -> Agent | None:
        """Agent for prompt steps without the key ``Agent``: the first supervisor, else the first agent, else None."""
        supervisors = [agent for agent in self._agents.values() if agent.is_supervisor]
        return next(iter(supervisors or self._agents.values()), None)

    def agent_or_default(self, name: str | None) -> Agent | None:
        """Return the agent with this name, or the default agent if the name is None."""
        return self.default_agent if name is None else self.agent(name)

    @property
    def workflows(self) -> dict[str, Workflow]:
        """Workflows by name: those registered with `@workflow` in this process, and those of this environment. If both
        have a name, the one of this environment is used.
        """
        return {**WORKFLOW_FUNCTIONS, **self._workflows}

    @property
    def registered_workflows(self) -> Mapping[str, Workflow]:
        """Workflows of this environment by name, without the workflows registered with `@workflow` in this process."""
        return self._workflows

    def workflow(self, name: str) -> Workflow:
        """Return the workflow with this name; raises `NotFoundError`."""
        workflows = self.workflows
        registered_name = same_name(name, workflows)
        if registered_name is None:
            raise NotFoundError("workflow", name, workflows)
        return workflows[registered_name]

    @property
    def default_workflow(self) -> Workflow | None:
        """Workflow that the settings select for runs that do not name a workflow; None if the settings select none."""
        check_default_workflow(self.config, self._workflows)
        return self._workflows.get(self.config.default_workflow)

    def as_written(self, workflow: Workflow) -> Workflow:
        """Return the registered workflow that is equal to `workflow`, which was loaded from a log; if none is equal,
        return `workflow`. The registered one also has its source text.
        """
        registered = self._workflows.get(workflow.name, workflow)
        # Equality ignores the source text. With another definition of the same name, its lines would be wrong.
        return registered if registered is workflow or registered == workflow else workflow

    def code_of(self, workflow: Workflow) -> dict[str, str]:
        """Return the hashes of the Python functions that a workflow may call, by kind and name of the function. They
        show later if a function has changed.
        """
        roots = roots_of(workflow, self.actions)
        return code_of(roots) if roots else {}

    @property
    def actions(self) -> dict[str, Action]:
        """All actions by name: built-in ones, those made with `@action`, and those of this environment. If several have
        the same name, the last of these sources is used.
        """
        return {**self._built_in_actions, **REGISTERED, **self.custom_actions}

    def action(self, name: str) -> Action:
        """Return the action with this name; raises `NotFoundError`."""
        # The reverse of the order in `actions`: the first source that has the name wins.
        for actions in (self.custom_actions, REGISTERED, self._built_in_actions):
            registered_name = name if name in actions else same_name(name, actions)
            if registered_name is not None:
                return actions[registered_name]
        raise NotFoundError("action", name, self.actions, f'action "{name}" not found')

    def step_handler(self, name: str) -> Handler:
        """Return the handler for a step type; raises `NotFoundError`."""
        return self.handlers[name]

    @property
    def tools(self) -> dict[str, ToolFunction]:
        """Tools by name: those made with `@tool`, and those added to this environment. If both have a name, the one of
        this environment is used.
        """
        return {**REGISTERED_TOOLS, **self._tools}

    @property
    def workspaces(self) -> dict[str, WorkspaceDefinition]:
        """Definitions of workspaces by name."""
        return {workspace.name: workspace for workspace in self._definitions.workspaces}

    def workspace(self, name: str) -> WorkspaceDefinition:
        """Return the definition of the workspace with this name; raises `NotFoundError`."""
        workspaces = self.workspaces
        if name not in workspaces:
            raise NotFoundError("workspace", name, workspaces)
        return workspaces[name]

    # --- tools of agents -------------------------------------------------------------------------------------------

    def tools_for(self, definition: AgentDefinition) -> list[ToolFunction]:
        """Return the tools that an agent definition names, in the same order; see `tools_for`.

        An agent with a workspace that names no workspace tool gets all workspace tools. The shell tool is added only if
        the workspace has a shell.
        """
        names = [*definition.tools]
        # Names of workspace tools in the definition are a choice, which is respected.
        if definition.workspace is not None and not set(WORKSPACE_TOOLS) & set(names):
            workspace = self.workspace(definition.workspace)
            names += [name for name in WORKSPACE_TOOLS if workspace.shell or name != SHELL]
        tools = {name: self._tool_for(name, definition) for name in names}
        return [tool for tool in tools.values() if tool is not None]

    def _tool_for(self, name: str, definition: AgentDefinition) -> ToolFunction | None:
        """Return the function of a tool that an agent definition names. Return None for a tool without such a function:
        one that each turn of an agent creates, or one of an MCP server.

        The name is looked up in this order:

        1. the workspace tools, unless a tool of this environment has the name;
        2. tools of this environment and built-in tools, with the options of ``Tools`` and ``ToolConfig``;
        3. None for ``assign_work``, which every turn makes itself;
        4. None if a server may have the tool: servers list their tools only when they are asked;
        5. None in the legacy dialect, whose agents do without tools that are not installed; else an error.
        """
        self._add_plugin_tool(name)
        tools = self.tools
        if name in (*WORKSPACE_TOOLS, *PROCESS_TOOLS) and name not in tools:
            workspace = None if definition.workspace is None else self.workspace(definition.workspace)
            return self.limited(workspace_tool(name, workspace))
        config = definition.tool_config.get(name, {})
        if not isinstance(config, Mapping):
            raise SetupError(
                f"ToolConfig of agent {definition.name}: {name} must be a mapping of options, not {config!r}"
            )
        entries = {entry.name: entry for entry in self._definitions.tools}
        # The wider permissions of code apply only if both the agent and the tool come from code.
        try:
            policy = self._policy_for(("agent", definition.name), ("tool", name))
            reach = self._tool_reach._replace(policy=policy)
            make = functools.partial(declared, name, tools.get(name), entries.get(name), config, reach)
            # A built-in tool is a new function in each turn, so it is kept.
            is_built_in = name in OFFERED and name not in tools
            tool = self.library_cache.made((definition.name, name), [*make.args], make) if is_built_in else make()
        except SetupError as error:
            raise SetupError(f"agent {definition.name}: {error}", error.place) from error
        if tool is not None or name == ASSIGN_WORK:
            return tool
        # `ABSENT` has the tools of the legacy dialect that divebook does not provide, with the reason of each.
        if name not in ABSENT:
            if self.servers or "/" in name:
                return None
            message = f"agent {definition.name} names an unknown tool: {name}"
            raise NotFoundError("tool", name, {*tools, *OFFERED}, message)
        if definition.dialect == OWN:
            raise SetupError(f"agent {definition.name} uses the tool {name}, which does not exist: {ABSENT[name]}")
        return None

    def _add_plugin_tool(self, name: str) -> None:
        """Add the tool that a plugin has under a name, if nothing else has that name."""
        other_names = (*WORKSPACE_TOOLS, *PROCESS_TOOLS, *OFFERED, *ABSENT, ASSIGN_WORK)
        if name in other_names or "/" in name or name in self.tools:
            return
        tool = plugins.find(plugins.TOOLS, name)
        if tool is not None:
            self._tools[name] = replaced(tool_of(tool), name=name)

    def limited(self, tool: ToolFunction) -> ToolFunction:
        """Return a tool function restricted by the limits (such as time and output size) that the definition of the
        tool under ``Tools`` sets.
        """
        # Tools of a server are also known by their long name: `files/read`.
        names = (tool.name, f"{tool.server}/{tool.name}")
        entry = next((entry for entry in self._definitions.tools if entry.name in names), None)
        return limited(tool, entry)

    def subordinates_for(self, definition: AgentDefinition) -> list[Agent]:
        """Return the agents to which an agent may delegate; see `Environment.subordinates_for`."""
        if definition.subordinates is not None:
            require_existing("agent", definition.subordinates, self._agents, definition.name)
            return [self._agents[name] for name in definition.subordinates]
        # The tool itself is a request to delegate. Without it, only a single supervisor delegates.
        if ASSIGN_WORK not in definition.tools:
            supervisors = [agent.name for agent in self._agents.values() if agent.is_supervisor]
            if not definition.is_supervisor or len(supervisors) > 1:
                return []
        return [agent for agent in self._agents.values() if agent.name != definition.name]

    def servers_for(self, definition: AgentDefinition) -> list[Server]:
        """Return the MCP servers whose tools an agent may call; see `Environment.servers_for`.

        ``server/tool`` names one server. A tool name that is neither a function nor built in can belong to any server,
        so all servers are returned then.
        """
        names = {*definition.servers, *(tool.partition("/")[0] for tool in definition.tools if "/" in tool)}
        functions = {tool.name for tool in self.tools_for(definition)} | set(TOOLS)
        # Servers list their tools only when they are asked, so a name that is unknown here may be any server's.
        if any("/" not in name and name not in functions for name in definition.tools):
            names |= self.servers.keys()
        require_existing("mcp server", sorted(names), list(self.servers), definition.name)
        return [self.servers[name] for name in sorted(names)]

    def mcp_tools(self) -> dict[str, ToolFunction]:
        """Return the tools of all MCP servers by ``server/tool``. Servers that do not run are started."""
        from divebook.agents.server_tools import server_tool

        return {
            f"{server.name}/{tool.name}": server_tool(server, tool)
            for server in self.servers.values()
            for tool in server.tools()
        }

    def reads_only(self, request: OperationRequest) -> bool:
        """Return whether an operation calls a tool function that is declared as read-only: it changes nothing."""
        # The hints of a server are claims of that server, so its tools count as changing something.
        if request.operation_type != TOOL_CALL or request.parameters.get("server"):
            return False
        tool = self.tools.get(request.parameters.get("tool", ""))
        return tool is not None and tool.hints.read_only is True

    @functools.cached_property
    def responses(self) -> ResponseCache:
        """Cache of model responses, used by agents with the setting `Cache`. It is a folder next to the file of the
        store.
        """
        return cache_of(self._store, lambda: self._clock.now() / 1_000_000)

    def requests_of(self, run: str) -> list[RequestView]:
        """Return all requests that an execution sent to models; raises `ExecutionNotFoundError`."""
        return requests_of(self._store.read(run))

    def approvals_for(self, agent: str) -> Approvals:
        """Return the approval rules and modes for tool calls of an agent; see `Environment.approvals_for`.

        The rules are collected in two tables. Rules of sources that the policy trusts with approvals decide alone;
        the others can only make a decision stricter. With the rules ``allow read`` of code and ``allow erase`` of a
        text, ``erase`` still needs a question.
        """
        trusted = self._approvals
        stricter = Approvals()

        def plus(table: Approvals, more: Approvals, agent_name: str | None) -> Approvals:
            servers = {**table.servers, **more.servers}
            return replaced(table, mode=more.mode or table.mode, servers=servers).plus(more.rules, agent_name)

        # In this order: the mode of a later source replaces that of an earlier one in the same table.
        sources: list[tuple[Approvals, Policy, str | None]] = [
            (Approvals(config.approvals, config.confirmation_mode), policy, None)
            for config, policy in (
                (self.origins.code_config, self.policy.of_code()),
                (self.origins.text_config, self.policy),
            )
        ]
        sources += [(server.definition.approvals, server.policy, None) for server in self.servers.values()]
        if agent in self._agents:
            rules_of_agent = Approvals(self._agents[agent].definition.approvals)
            sources.append((rules_of_agent, self.policy_for_agent(agent), agent))
        for more, policy, agent_name in sources:
            # Most sources declare nothing, and the table is made for every call of a tool.
            if not (more.rules or more.mode or more.servers):
                continue
            if APPROVALS in policy.allowed:
                trusted = plus(trusted, more, agent_name)
            else:
                stricter = plus(stricter, more, agent_name)
        return replaced(trusted, stricter=stricter)

    # --- permissions -----------------------------------------------------------------------------------------------

    def policy_of(self, workspace: WorkspaceDefinition) -> Policy:
        """Return the policy that restricts a workspace. A workspace added by Python code is not restricted."""
        if self.origins.is_trusted_workspace(workspace.name):
            return Policy(*KINDS)
        return self._policy_for(("workspace", workspace.name))

    def policy_for_agent(self, name: str) -> Policy:
        """Return the policy that restricts an agent. An agent defined in Python code may be allowed more than an agent
        defined in a text such as a YAML file.
        """
        return self._policy_for(("agent", name))

    def _policy_for(self, *names: _DefinitionName) -> Policy:
        is_code = self.origins.are_code(names) and not any(self._has_headers_of_text(name) for name in names)
        return self.policy.of_code() if is_code else self.policy

    def _has_headers_of_text(self, name: _DefinitionName) -> bool:
        """Return whether a definition is an agent with settings for its model provider, such as request headers, that
        were written in a YAML text.
        """
        text_providers = self.origins.text_config.providers
        kind, agent_name = name
        if kind != "agent" or not text_providers:
            return False
        config = self._definitions.config
        entries = [provider_settings(agent, config) for agent in self._definitions.agents if agent.name == agent_name]
        # Compared by identity: equal settings of code are not settings of a text.
        return any(entry is text_entry for entry in entries for text_entry in text_providers)

    def may_apply_unasked(self, workspace: WorkspaceDefinition, fingerprint: str) -> bool:
        """Return whether a workflow may copy changed files from a workspace back into the original folder without
        asking a person.

        Only a workflow of Python code has the permissions of a workspace of Python code. A workflow of a text, or of a
        log from elsewhere, may name that workspace as well, but no person vouches for what it writes.
        """
        policy = self.policy_of(workspace) if self.origins.is_code_workflow(fingerprint) else self.policy
        return APPROVALS in policy.allowed

    def folder_of(self, workspace: WorkspaceDefinition) -> Path:
        """Return the folder that the definition of a workspace names as the place of its files. Raise `SetupError` if
        the policy does not allow it.
        """
        return self.require_reachable(workspace, workspace.folder or ".")

    def require_reachable(self, workspace: WorkspaceDefinition, path: str | Path) -> Path:
        """Check that the policy lets a workspace use a path, and return the absolute path; raise `SetupError` if it
        does not.
        """
        is_trusted = self.origins.is_trusted_workspace(workspace.name)
        base = Path.cwd() if is_trusted else self._tool_reach.folder
        return self.policy_of(workspace).file(path, base)

    def require_permitted(self, workspace: WorkspaceDefinition) -> None:
        """Raise `SetupError` unless the policy allows the commands and secrets of a workspace."""
        policy = self.policy_of(workspace)
        if workspace.shell:
            policy.commands(f"workspace {workspace.name}")
        require_allowed(workspace.secrets, policy)

    # --- checks before a start -------------------------------------------------------------------------------------

    def check(self, workflow: Workflow, ahead: Container[str] | None = None, to_begin: Iterable[str] = ()) -> None:
        """Raise an error unless everything to which the steps of a workflow refer exists and is allowed.

        Parameters
        ----------
        ahead
            The steps that an execution may still run; None for all. What finished steps needed may be gone.
        to_begin
            Names of further workflows that must exist.
        """
        require_definition(workflow)
        for name in to_begin:
            self.workflow(name)
        steps = workflow.steps if ahead is None else [step for step in workflow.steps if step.name in ahead]
        if workflow.first_step.type == FUNCTION and workflow.manner.is_strict:
            require_function(workflow.name)
        if workflow.manner.is_strict:
            for step in steps:
                self.step_handler(step.type)  # a plugin may be missing or broken
        # Checks that other packages have added for their step types, such as those of pipelines.
        for step_type in {step.type for step in steps} & self._step_checks.keys():
            self._step_checks[step_type](workflow)
        problems = [workflow.written.located(problem) for problem in missing_agents(workflow, self._agents, ahead)]
        if problems:
            raise DefinitionError(problems, workflow.written.name or f"workflow {workflow.name!r}")
        self._check_agents_and_workspaces(workflow, steps)
        if workflow.manner.is_strict:
            # Only the strict dialect checks names in advance. A file in the legacy dialect may name things that its
            # run never reaches.
            if self._definitions.tools:
                check_declared(self._definitions.tools, self.tools, self._agents.values(), self.servers)
            self._check_names(workflow, ahead)
        for step in steps:
            if step.executor:
                self._executors.named(step.executor)

    def _check_agents_and_workspaces(self, workflow: Workflow, steps: Sequence[Step]) -> None:
        for agent in agents_of_steps(steps, self.agent_or_default, self):
            self.check_agent(agent)
        for workspace in [workflow.workspace, *[step.workspace for step in steps]]:
            if workspace is not None:
                self.check_workspace(workspace)

    def _check_names(self, workflow: Workflow, ahead: Container[str] | None) -> None:
        """Raise an error unless the actions, workflows and agents to which the steps of a workflow refer exist."""
        actions = self.actions
        _raise_first("action", missing_actions(workflow, actions, ahead), actions, workflow)
        if [step for step in workflow.steps if step.workflow]:
            workflows = self.workflows
            _raise_first("workflow", missing_workflows(workflow, workflows, ahead), workflows, workflow)
        for step in workflow.steps:
            is_ahead = ahead is None or step.name in ahead
            if is_ahead and step.type == "prompt" and step.agent is None and not self._agents:
                raise NotFoundError("agent", "", (), f'no agent specified for prompt step "{step.name}"')

    def check_agent(self, agent: Agent) -> None:
        """Raise an error unless every tool, server, agent and workspace that an agent names exists and is allowed."""
        check_agent(agent, self, self._tools)
        definition = agent.definition
        headers = None if definition.model_settings is None else definition.model_settings.request_headers
        require_allowed([definition.api_key, headers], self.policy_for_agent(agent.name))
        for server in self.servers_for(definition):
            server.check()
        if definition.workspace is not None:
            self.check_workspace(definition.workspace)

    def check_workspace(self, name: str) -> None:
        """Raise an error unless a workspace exists and the policy allows its commands, secrets and image."""
        workspace = self.workspace(name)
        self.require_permitted(workspace)
        if workspace.image is not None and workspace.shell:
            require_image(workspace.image)

    def check_models(self, workflow: Workflow, model: str | None) -> None:
        """Raise an error if the model of a run does not exist. If no model was selected for the run, check the models
        of the workflow's agents.
        """
        if model is not None:
            check_model(model, f"workflow {workflow.name}", self._store)
        elif workflow.manner.is_strict:
            for agent in agents_of_steps(workflow.steps, self.agent_or_default, self):
                check_model(agent.model, f"agent {agent.name}", self._store)

    def model_of_run(self, workflow: Workflow, name: str | None) -> str | None:
        """Check the model that a run uses for all agents, and return its full name ``provider:model``. Return None if
        `name` is None, so that each agent uses its own model; raise `SetupError` for an unusable model.
        """
        model = model_name(None, name, self.config.default_provider) if name else None
        if model:
            self.check_models(workflow, model)
        return model

    def stand_in_for(self, workflow: Workflow) -> str | None:
        """Return the name of the scripted model that replaces the models of a workflow in the legacy Dive dialect whose
        providers are all unavailable. Return None for other workflows.

        Such files leave the model to the provider, and run unchanged this way (tests/cli/test_run.py). In the
        divebook dialect the step fails, and its error names the package or key that is missing.
        """
        if workflow.manner.is_strict:
            return None
        agents = [self.agent_or_default(step.agent) for step in workflow.steps if step.type == "prompt"]
        missing = [agent.missing for agent in agents if agent is not None]
        if not missing or not all(missing):
            return None
        _log.warning(
            "the provider of workflow %r is not available, so a scripted model replaces it: this run has no real "
            "model responses, also after a resume. For real responses: %s, and start a new run",
            workflow.name,
            missing[0],
        )
        return SCRIPTED

    def not_yet(self, workflows: Iterable[Workflow]) -> list[Problem]:
        """Return a warning for each agent, action and workflow that workflows name and that is not defined yet."""
        warnings: list[Problem] = []
        for workflow in workflows:
            for problem in self._missing(workflow):
                message = problem.message.replace("not found", "is not defined yet")
                warnings.append(workflow.written.located(replaced(problem, severity="warning", message=message)))
        return warnings

    def _missing(self, workflow: Workflow) -> Iterator[Problem]:
        yield from missing_agents(workflow, self._agents)
        if workflow.manner.is_strict:
            yield from (problem for problem, _ in missing_actions(workflow, self.actions))
            yield from (problem for problem, _ in missing_workflows(workflow, self.workflows))


class StepHandlers(dict[str, Handler]):
    """Step handlers by step type. A type that is missing is looked up among the plugins."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return the handler of a step type, also that of a plugin; `default` if there is none."""
        return self[name] if name in self or plugins.find(plugins.STEP_TYPES, name) is not None else default

    def __missing__(self, name: str) -> Handler:
        """Return the handler of a plugin; raise `NotFoundError` if there is none, `SetupError` if it is broken."""
        handler: Handler | None = plugins.find(plugins.STEP_TYPES, name)
        if handler is None:
            raise NotFoundError("step type", name, self)
        self[name] = handler
        return handler


class DefinitionOrigins:
    """Origins of definitions: Python code, or a text such as a YAML file. The origin of a definition determines its
    permissions.

    A person vouches for Python code, which can do anything anyway. A text, or a log, may come from elsewhere. A
    definition of code therefore gets the permissions of `Policy.of_code`, a definition of a text only those of the
    environment's policy. The latest definition of a name counts, so that a text cannot use the permissions of code
    by taking the name of something that code defined.
    """

    def __init__(self) -> None:
        self._trusted_workspaces: set[str] = set()
        """Workspaces that Python code added. They may run programs and use any folder."""
        self._from_text: set[_DefinitionName] = set()
        """Names of the definitions that come from texts. All other definitions come from Python code."""
        self._code_workflows: set[str] = set()
        self._text_workflows: set[str] = set()
        """Fingerprints of the workflows that Python code added, and of those that texts define."""
        self.text_config = Config()
        self.code_config = Config()
        """Merged settings of texts, and of Python code."""

    def record(self, definitions: Definitions) -> None:
        """Store the origin of new definitions: Python code or a text such as a YAML file. The origins of older
        definitions with the same names are replaced.
        """
        names = _names_of(definitions.agents, definitions.workspaces, definitions.tools)
        # Only `add_workspace` makes a workspace trusted. A later definition of the same name ends that.
        self._trusted_workspaces -= {workspace.name for workspace in definitions.workspaces}
        if definitions.is_text:
            self._text_workflows |= {workflow.fingerprint for workflow in definitions.workflows}
            self._from_text |= names
            self.text_config = merge_config(self.text_config, definitions.config)
        else:
            self._from_text -= names
            self.code_config = merge_config(self.code_config, definitions.config)

    def merge_from(self, other: DefinitionOrigins, names: set[_DefinitionName]) -> None:
        """Add the recorded origins of another registry. `names` are the names of all definitions of that registry."""
        workspaces = {name for kind, name in names if kind == "workspace"}
        # The other registry decides about its names, and this one about all others.
        self._trusted_workspaces = (self._trusted_workspaces - workspaces) | other._trusted_workspaces
        self._from_text = (self._from_text - names) | other._from_text
        self._code_workflows |= other._code_workflows
        self._text_workflows |= other._text_workflows
        self.text_config = merge_config(self.text_config, other.text_config)
        self.code_config = merge_config(self.code_config, other.code_config)

    def mark_as_code(self, kind: str, name: str) -> None:
        """Record that Python code, not a text, defined something, such as the agent of a name."""
        self._from_text.discard((kind, name))

    def mark_workflow_as_code(self, workflow: Workflow) -> None:
        """Record that Python code added or started a workflow, which therefore has the permissions of code."""
        self._code_workflows.add(workflow.fingerprint)

    def trust_workspace(self, name: str) -> None:
        """Record that Python code added a workspace, which may therefore run programs and use any folder."""
        self._trusted_workspaces.add(name)
        self.mark_as_code("workspace", name)

    def is_trusted_workspace(self, name: str) -> bool:
        """Return whether Python code added the workspace, which may therefore run programs and use any folder."""
        return name in self._trusted_workspaces

    def is_code_workflow(self, fingerprint: str) -> bool:
        """Return whether Python code added the workflow with this fingerprint, and no text defines the same
        workflow.
        """
        return fingerprint in self._code_workflows and fingerprint not in self._text_workflows

    def are_code(self, names: Iterable[_DefinitionName]) -> bool:
        """Return whether none of these definitions comes from a text, so that all of them have the permissions of
        Python code.
        """
        return self._from_text.isdisjoint(names)


def require_workflow(workflow: Any) -> Workflow:
    """Return an argument that must be a workflow; raise `SetupError` for another object."""
    return _required(workflow, Workflow, "write @workflow above an async function, or Workflow('name', [Step(...)])")


def require_server(server: Any) -> MCPServerDefinition:
    """Return an argument that must be the definition of an MCP server; raise `SetupError` for another object."""
    return _required(server, MCPServerDefinition, "write MCPServerDefinition('name', ...)")


def require_schedule(schedule: Any) -> ScheduleDefinition:
    """Return an argument that must be the definition of a schedule; raise `SetupError` for another object."""
    return _required(schedule, ScheduleDefinition, "write ScheduleDefinition('name', ...)")


def require_workspace(workspace: Any) -> WorkspaceDefinition:
    """Return an argument that must be the definition of a workspace; raise `SetupError` for another object."""
    return _required(workspace, WorkspaceDefinition, "write WorkspaceDefinition('name', ...)")


def _required(value: Any, cls: type[T], advice: str) -> T:
    if not isinstance(value, cls):
        raise SetupError(f"a {cls.__name__} is expected, not {describe(value)}; {advice}")
    return value


def _names_of(
    agents: Iterable[AgentDefinition | Agent],
    workspaces: Iterable[WorkspaceDefinition],
    tools: Iterable[ToolDefinition],
) -> set[_DefinitionName]:
    kinds = {"agent": agents, "workspace": workspaces, "tool": tools}
    return {(kind, definition.name) for kind, definitions in kinds.items() for definition in definitions}


def _build_agent(definition: AgentDefinition, config: Config, new: Definitions) -> Agent:
    """Build an agent from its definition and the merged settings of all definitions. An error names the line in the
    newly added definitions.
    """
    try:
        return Agent(
            with_defaults(definition, config),
            default_provider=config.default_provider,
            default_model=config.default_model,
        )
    except SetupError as error:
        place = ("Agents", new.agents.index(definition), *error.place) if definition in new.agents else error.place
        raise SetupError(str(error), place) from error


def _relaxations(definitions: Definitions) -> list[str]:
    """Return descriptions of all settings in the given definitions that would let tool calls run without asking a
    person.
    """
    config = definitions.config
    tables = [Approvals(config.approvals, config.confirmation_mode)]
    tables += [Approvals(agent.approvals) for agent in definitions.agents]
    tables += [server.approvals for server in definitions.mcp_servers]
    trusted = [f"Trusted of mcp server {server.name}" for server in definitions.mcp_servers if server.trusted]
    return [text for table in tables for text in table.relaxations] + trusted


def _raise_first(kind: str, missing: Iterable[tuple[Problem, str]], names: Iterable[str], workflow: Workflow) -> None:
    for problem, name in missing:
        where = workflow.written.where(problem.place)
        raise NotFoundError(kind, name, names, f"{where}: {problem.message}" if where else problem.message)


def _run_on_engine(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the engine's event loop, which has its own thread, and block the calling thread until it
    ends.
    """
    if ENGINE.is_current():
        raise SetupError("MCP servers are not available here: read from one in an action, a tool or a script")
    return interruptible_result(ENGINE.call(lambda: ENGINE.promise(work())))


# --- approval policy -------------------------------------------------------------------------------------------------
#
# Rules and modes of the definitions, and permanent rules that people created in their answers.
# `divebook.runtime.calls.approve` applies them to a call.


class EnvironmentApprovalPolicy:
    """Approval policy of an environment: its table of rules and modes, and the permanent rules in its store.

    Implements the protocol `divebook.runtime.waiting.ApprovalPolicy`.

    Parameters
    ----------
    table
        Returns the rules and modes for an agent's name. An empty name stands for calls without an agent.
    """

    def __init__(self, table: Callable[[str], Approvals], log: DurableLog) -> None:
        self._table = table
        self._log = log

    def table(self, agent: str) -> Approvals:
        """Return the configured approval rules and modes that apply to the calls of one agent."""
        return self._table(agent)

    async def lasting(self) -> Iterable[StandingRule]:
        """Read from the store the active permanent rules: approval rules that a person created for all executions and
        that are not revoked. Call on the engine's event loop.
        """
        return await self._log.on_loop(self.standing)

    async def keep(self, rule: StandingRule) -> None:
        """Store a permanent approval rule, so that it applies to all executions from now on. A rule that was revoked
        stays revoked.
        """
        # The id of the rule is the key of the entry, so keeping a rule twice has no effect.
        entry = {ADDED: rule._asdict()}
        await self._log.on_loop(lambda: self._log.write(RULES, rule.rule_id, entry, rule.by or NOBODY))

    def standing(self) -> list[StandingRule]:
        """Read from the store the active permanent approval rules, like `lasting`, but blocking and from any thread."""
        return rules_in(self._log.entries(RULES))

    def revoke(self, rule_id: str, by: str) -> None:
        """Revoke a permanent approval rule, so that it no longer applies to any execution."""
        self._log.write(RULES, f"{REVOKED}/{rule_id}", {REVOKED: rule_id}, by)


RULES = "divebook/rules"
"""Start key of the durable log of rules."""


# Keys and values of the entries.
ADDED = "added"
REVOKED = "revoked"
NOBODY = "nobody"


def rules_in(entries: Iterable[Entry]) -> list[StandingRule]:
    """Compute the permanent approval rules from the entries of their durable log. Return the rules that are not
    revoked, oldest first.
    """
    rules: dict[str, StandingRule] = {}
    revoked_ids: set[str] = set()
    for entry in entries:
        # Another version of divebook may have written further fields.
        if ADDED in entry.value:
            fields = {name: value for name, value in entry.value[ADDED].items() if name in StandingRule._fields}
            rules[fields["rule_id"]] = StandingRule(**fields)
        elif REVOKED in entry.value:
            revoked_ids.add(entry.value[REVOKED])
    # A revocation counts wherever it stands in the log.
    return [rule for rule in rules.values() if rule.rule_id not in revoked_ids]


def rule_in_words(rule: StandingRule, execution_id: str | None) -> str:
    """Describe an approval rule in one sentence for people. `execution_id` is the run that the rule is limited to; None
    for all runs.
    """
    server = f" of {rule.server}" if rule.server else ""
    agent = f" by agent {rule.agent}" if rule.agent else ""
    until = "" if rule.expires_at is None else f", until {local_time(rule.expires_at)}"
    scope = "every run" if execution_id is None else execution_id
    author = f" (created by {rule.by})" if rule.by else ""
    return f"{rule.outcome} {rule.kind} {rule.tool}{server}{agent} with {rule.arguments} in {scope}{until}{author}"
