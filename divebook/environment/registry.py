"""What an environment holds: what its agents may use, workflows, actions, and who carries out which type of step."""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from divebook.agents import Agent
from divebook.agents.agent import agent_of
from divebook.agents.models import is_known_provider, model_name
from divebook.agents.scripted import SCRIPTED
from divebook.documents import DocumentRepository, Policy
from divebook.documents.policy import APPROVALS, KINDS, VARIABLE, require_allowed
from divebook.engine.operations import TOOL_CALL
from divebook.errors import AlreadyRegisteredError, DefinitionError, NotFoundError, Problem, SetupError
from divebook.interrupts import interruptible_result
from divebook.runtime.forks import require_definition
from divebook.runtime.loop import ENGINE
from divebook.runtime.operations import OperationRequest
from divebook.runtime.step import Handler
from divebook.steps.actions import REGISTERED, Action
from divebook.steps.agent_checks import agents_of_steps, check_agent, check_declared, check_model, require_existing
from divebook.steps.code_problems import syntax_problems
from divebook.steps.delegation import ASSIGN_WORK
from divebook.steps.function import require_function
from divebook.store import EventStore
from divebook.store.codec import Sealing
from divebook.text.arguments import list_of, require, same_name
from divebook.text.redaction import logger
from divebook.tools.builtin import ABSENT, OFFERED, declared, limited
from divebook.tools.file_tools import ToolReach
from divebook.tools.mcp.servers import ServedDocuments, Server, Servers
from divebook.tools.workspace import PROCESS_TOOLS, SHELL, WORKSPACE_TOOLS, workspace_tool
from divebook.workflow.definition import (
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
    unknown,
    with_defaults,
)
from divebook.workflow.dialect import OWN, TOOLS
from divebook.workflow.functions import FUNCTION, WORKFLOW_FUNCTIONS
from divebook.workflow.resources import AgentDefinition, Config, ScheduleDefinition, ToolDefinition
from divebook.workflow.servers import SCHEME, ApprovalRule, Approvals, MCPServerDefinition, WorkspaceDefinition
from divebook.workflow.step import STEP_TYPES
from divebook.workflow.tools import REGISTERED_TOOLS, ToolFunction, tool_of
from divebook.workspace.docker.engine import require_image

# What agents may use: tools, MCP servers, agents that they may give work to, and the rules about it.


T = TypeVar("T")
_Origin: TypeAlias = tuple[str, str]
"""``agent``, ``workspace`` or ``tool``, and its name."""
_log = logger(__name__)


class Outfit:
    """Agents, tools and MCP servers by name, and what there is of them for one agent.

    Parameters
    ----------
    approvals
        Rules for the calls of all agents.
    sealing
        What encrypts the tokens of servers that are kept in a file, if anything does.
    """

    def __init__(self, approvals: Iterable[ApprovalRule | Mapping[str, Any]], sealing: Sealing) -> None:
        self._defined = Definitions()
        self._agents: dict[str, Agent] = {}
        self._tools: dict[str, ToolFunction] = {}
        example = "approvals=[ApprovalRule(...)]"
        self._approvals = Approvals().plus(list_of(approvals, "approvals", example))
        self._trusted: set[str] = set()
        """Workspaces that code gave it, which may run programs and lie anywhere."""
        self._of_text: set[_Origin] = set()
        """What was read from a text; a person vouches for everything else, since Python code defines it."""
        self._code_workflows: set[str] = set()
        self._text_workflows: set[str] = set()
        """Fingerprints of the workflows that Python code gave it, and of those that were read from a text."""
        self._text_config, self._code_config = Config(), Config()
        """Settings that were read from texts, and those that Python code made."""
        self.servers = Servers(_on_engine, sealing)

    def reach(self, documents: DocumentRepository, policy: Policy) -> None:
        """Let tools reach these documents, and what a policy allows."""
        self.documents = documents
        self.policy = policy
        documents.include(SCHEME, ServedDocuments(self.servers))
        self._reach = ToolReach(documents, policy, getattr(documents, "root", Path()))

    def _define_origin(self, definitions: Definitions) -> None:
        """Keep which of the definitions are of a text, and separate their settings from those of Python code.

        Something that is defined again loses the trust that it had: a text may take the name of what code defined.
        """
        names = _origins(definitions.agents, definitions.workspaces, definitions.tools)
        self._trusted -= {workspace.name for workspace in definitions.workspaces}
        if definitions.is_text:
            self._text_workflows |= {workflow.fingerprint for workflow in definitions.workflows}
            self._of_text |= names
            self._text_config = merge_config(self._text_config, definitions.config)
        else:
            self._of_text -= names
            self._code_config = merge_config(self._code_config, definitions.config)
        if definitions.is_text and APPROVALS not in self.policy.allowed and (ignored := _relaxations(definitions)):
            _log.warning(
                "the definition would ask less than a person allows: %s. This has no effect; to allow it: %s=%s or "
                "--allow %s",
                ", ".join(ignored),
                VARIABLE,
                APPROVALS,
                APPROVALS,
            )

    def take_in(self, other: Self) -> None:
        """Have all that another one has; what that has wins, and of rules all hold."""
        before = [agent for agent in self._defined.agents if agent.name not in other._agents]
        after = replaced(other._defined, warnings=())
        self._defined = merge(replaced(self._defined, agents=tuple(before)), after)
        for document in self._defined.documents:
            if document.path:
                self.documents.register(document.name, document.path)
        names = _origins(other._agents.values(), other._defined.workspaces, other._defined.tools)
        self._of_text = (self._of_text - names) | other._of_text
        self._code_workflows |= other._code_workflows
        self._text_workflows |= other._text_workflows
        self._text_config = merge_config(self._text_config, other._text_config)
        self._code_config = merge_config(self._code_config, other._code_config)
        self._agents |= other._agents
        self._tools |= other._tools
        self._trusted = (self._trusted - other.workspaces.keys()) | other._trusted
        self._approvals = self._approvals.plus(unknown(other._approvals.rules, self._approvals.rules))
        self.servers.merge_from(other.servers)

    @property
    def config(self) -> Config:
        """The settings of all definitions that were taken in."""
        return self._defined.config

    @property
    def agents(self) -> dict[str, Agent]:
        """Its agents by name, in the order in which they came."""
        return dict(self._agents)

    def agent(self, name: str) -> Agent:
        """Return the agent of that name; raises `NotFoundError`."""
        known = same_name(name, self._agents)
        if known is None:
            raise NotFoundError("agent", name, self._agents)
        return self._agents[known]

    @property
    def tools(self) -> dict[str, ToolFunction]:
        """Every tool that was made with `@tool` or given to this environment; later ones win.

        Those that come with divebook are made for each agent that names them: `divebook.tools.builtin`.
        """
        return {**REGISTERED_TOOLS, **self._tools}

    def mcp_tools(self) -> dict[str, ToolFunction]:
        """Return the tools of its MCP servers, by ``server/tool``; starts the servers that do not run.

        Each can be given to an agent, whose rules then hold for it: ``Agent("a", tools=[tools["files/read"]])``.

        Raises
        ------
        ServerError
            A server cannot be asked.
        """
        from divebook.agents.server_tools import server_tool

        return {
            f"{server.name}/{tool.name}": server_tool(server, tool)
            for server in self.servers.values()
            for tool in server.tools()
        }

    def _reads_only(self, wanted: OperationRequest) -> bool:
        """Return whether a call is one of a tool that is declared to change nothing."""
        is_own = wanted.operation_type == TOOL_CALL and not wanted.parameters.get("server")
        tool = self.tools.get(wanted.parameters.get("tool", "")) if is_own else None
        return tool is not None and tool.hints.read_only is True

    def tools_for(self, definition: AgentDefinition) -> list[ToolFunction]:
        """Return the tools that an agent names, in its order.

        Raises
        ------
        NotFoundError, SetupError
            There is no such tool, it is switched off, or an option does not fit.
        """
        names = [*definition.tools]
        if definition.workspace is not None and not set(WORKSPACE_TOOLS) & set(names):
            own = self.workspace(definition.workspace)
            names += [name for name in WORKSPACE_TOOLS if own.shell or name != SHELL]
        found = {name: self._tool(name, definition) for name in names}
        return [tool for tool in found.values() if tool is not None]

    def subordinates_for(self, definition: AgentDefinition) -> list[Agent]:
        """Return the agents that one may give work to: those it names, all others if it is the only supervisor.

        Raises
        ------
        NotFoundError
            It names one that does not exist.
        """
        if definition.subordinates:
            require_existing("agent", definition.subordinates, self._agents, definition.name)
            return [self._agents[name] for name in definition.subordinates]
        if ASSIGN_WORK not in definition.tools:
            supervisors = [agent.name for agent in self._agents.values() if agent.is_supervisor]
            if not definition.is_supervisor or len(supervisors) > 1:
                return []
        return [agent for agent in self._agents.values() if agent.name != definition.name]

    def servers_for(self, definition: AgentDefinition) -> list[Server]:
        """Return the MCP servers whose tools an agent may call: those it names, and all where a tool may be of any.

        Raises
        ------
        NotFoundError
            There is no such server.
        """
        named = {*definition.servers, *(tool.partition("/")[0] for tool in definition.tools if "/" in tool)}
        known = {tool.name for tool in self.tools_for(definition)} | set(TOOLS)
        if any("/" not in name and name not in known for name in definition.tools):
            named |= self.servers.keys()
        require_existing("mcp server", sorted(named), list(self.servers), definition.name)
        return [self.servers[name] for name in sorted(named)]

    def limited(self, tool: ToolFunction) -> ToolFunction:
        """Return a tool that an agent may call with the limits that stand about it under ``Tools``."""
        names = (tool.name, f"{tool.server}/{tool.name}")
        return limited(tool, next((said for said in self._defined.tools if said.name in names), None))

    @property
    def workspaces(self) -> dict[str, WorkspaceDefinition]:
        """Its workspaces by name."""
        return {found.name: found for found in self._defined.workspaces}

    def workspace(self, name: str) -> WorkspaceDefinition:
        """Return what is said of a workspace; raises `NotFoundError`."""
        known = self.workspaces
        if name not in known:
            raise NotFoundError("workspace", name, known)
        return known[name]

    def add_workspace(self, workspace: WorkspaceDefinition, *, replace: bool = False) -> None:
        """Take a workspace in; a taken name is an error unless `replace` is set."""
        expected = "a divebook.WorkspaceDefinition('name', ...)"
        require(workspace, "a workspace", expected, fits=isinstance(workspace, WorkspaceDefinition))
        if workspace.name in self.workspaces and not replace:
            raise AlreadyRegisteredError("workspace", workspace.name)
        self._trusted.add(workspace.name)  # who writes Python may run programs anyway
        self._of_text.discard(("workspace", workspace.name))
        self._defined = merge(replaced(self._defined, warnings=()), Definitions(workspaces=(workspace,)))

    def policy_of(self, workspace: WorkspaceDefinition) -> Policy:
        """Return what a workspace may reach: all, if code gave it, and else what is allowed."""
        return Policy(*KINDS) if workspace.name in self._trusted else self._policy_for(("workspace", workspace.name))

    def may_apply_unasked(self, workspace: WorkspaceDefinition, fingerprint: str) -> bool:
        """Return whether a workflow may have changes of a workspace applied without a question.

        Python code allows this with a workspace of its own to its own workflows only. A workflow of a text, or of a
        log that came from elsewhere, may name that workspace too, but nobody has vouched for what it writes.
        """
        is_of_code = fingerprint in self._code_workflows - self._text_workflows
        return APPROVALS in (self.policy_of(workspace) if is_of_code else self.policy).allowed

    def policy_for_agent(self, name: str) -> Policy:
        """Return the permissions of an agent: one that Python code defines has more than one of a text."""
        return self._policy_for(("agent", name))

    def _policy_for(self, *origins: _Origin) -> Policy:
        is_of_code = self._of_text.isdisjoint(origins) and not any(map(self._has_headers_of_text, origins))
        return self.policy.of_code() if is_of_code else self.policy

    def _has_headers_of_text(self, origin: _Origin) -> bool:
        """Return whether a text made the settings of an agent's provider, whichever of the two came first."""
        of_text = self._text_config.providers
        config = self._defined.config
        if origin[0] != "agent" or not of_text:
            return False
        entries = (provider_settings(agent, config) for agent in self._defined.agents if agent.name == origin[1])
        return any(entry is other for entry in entries for other in of_text)

    def folder_of(self, workspace: WorkspaceDefinition) -> Path:
        """Return the folder that a workspace names; raises `SetupError` for one that it may not reach."""
        return self.require_reachable(workspace, workspace.folder or ".")

    def require_reachable(self, workspace: WorkspaceDefinition, path: str | Path) -> Path:
        """Return a folder where a workspace may lie; raises `SetupError`."""
        folder = Path.cwd() if workspace.name in self._trusted else self._reach.folder
        return self.policy_of(workspace).file(path, folder)

    def require_permitted(self, workspace: WorkspaceDefinition) -> None:
        """Raise `SetupError` unless the policy allows the commands and the secrets of a workspace."""
        policy = self.policy_of(workspace)
        if workspace.shell:
            policy.commands(f"workspace {workspace.name}")
        require_allowed(workspace.secrets, policy)

    def check_workspace(self, name: str) -> None:
        """Raise unless there is a workspace, and what it does is allowed."""
        found = self.workspace(name)
        self.require_permitted(found)
        if found.image is not None and found.shell:
            require_image(found.image)

    def _tool(self, name: str, definition: AgentDefinition) -> ToolFunction | None:
        if name in (*WORKSPACE_TOOLS, *PROCESS_TOOLS) and name not in self.tools:
            own = None if definition.workspace is None else self.workspace(definition.workspace)
            return self.limited(workspace_tool(name, own))
        known = self.tools
        said = {tool.name: tool for tool in self._defined.tools}
        config = definition.tool_config.get(name, {})
        if not isinstance(config, Mapping):
            raise SetupError(f"ToolConfig of agent {definition.name}: {name} holds {config!r}, not options by name")
        try:
            policy = self._policy_for(("agent", definition.name), ("tool", name))
            made = declared(name, known.get(name), said.get(name), config, self._reach._replace(policy=policy))
        except SetupError as error:
            raise SetupError(f"agent {definition.name}: {error}", error.place) from error
        if made is not None or name == ASSIGN_WORK:
            return made
        if name not in ABSENT and (self.servers or "/" in name):
            return None  # servers say what they offer when they are asked
        if name not in ABSENT:
            raise NotFoundError(
                "tool", name, {*known, *OFFERED}, f"agent {definition.name} names an unknown tool: {name}"
            )
        if definition.dialect == OWN:
            raise SetupError(f"agent {definition.name} names the tool {name}, which is not there: {ABSENT[name]}")
        return None

    def check_agent(self, agent: Agent) -> None:
        """Raise unless what an agent names is there, once, and may be used: see `divebook.steps.prompt`."""
        check_agent(agent, self, self._tools)
        own = agent.definition
        headers = None if own.model_settings is None else own.model_settings.request_headers
        require_allowed([own.api_key, headers], self.policy_for_agent(agent.name))
        for server in self.servers_for(own):
            server.check()
        if own.workspace is not None:
            self.check_workspace(own.workspace)

    def approvals_for(self, agent: str) -> Approvals:
        """Return the rules and modes for the calls of an agent: those of all, and its own; '' for no agent.

        Those of texts can only make verdicts stricter, unless the policy allows more.
        """
        tables = {True: self._approvals, False: Approvals()}
        """By whether a person vouches for them."""

        def add(more: Approvals, policy: Policy, of: str | None = None) -> None:
            is_vouched = APPROVALS in policy.allowed
            table = tables[is_vouched]
            mode = more.mode or table.mode
            servers = {**table.servers, **more.servers}
            tables[is_vouched] = replaced(table, mode=mode, servers=servers).plus(more.rules, of)

        for config, policy in ((self._code_config, self.policy.of_code()), (self._text_config, self.policy)):
            add(Approvals(config.approvals, config.confirmation_mode), policy)
        for server in self.servers.values():
            add(server.definition.approvals, server.policy)
        if agent in self._agents:
            add(Approvals(self._agents[agent].definition.approvals), self.policy_for_agent(agent), agent)
        return replaced(tables[True], stricter=tables[False])

    def add_tool(self, tool: ToolFunction | Callable[..., Any], *, replace: bool = False) -> None:
        """Take a tool in; a taken name is an error unless `replace` is set."""
        made = tool_of(tool)
        if made.name in self._tools and not replace:
            raise AlreadyRegisteredError("tool", made.name)
        self._tools[made.name] = made

    def add_server(self, server: MCPServerDefinition, *, replace: bool = False) -> None:
        """Take an MCP server in; a taken name is an error unless `replace` is set.

        It is started when an agent first needs it, and ends with the environment.
        """
        expected = "a divebook.MCPServerDefinition('name', ...)"
        require(server, "a server", expected, fits=isinstance(server, MCPServerDefinition))
        self.servers.add(server, Policy(*KINDS), replace=replace)  # who writes Python may start programs anyway


def _origins(
    agents: Iterable[AgentDefinition | Agent],
    workspaces: Iterable[WorkspaceDefinition],
    tools: Iterable[ToolDefinition],
) -> set[_Origin]:
    lists = {"agent": agents, "workspace": workspaces, "tool": tools}
    return {(kind, one.name) for kind, several in lists.items() for one in several}


def _relaxations(definitions: Definitions) -> list[str]:
    """Return what of definitions could make calls of tools go unasked, in words."""
    config = definitions.config
    agents = definitions.agents
    tables = [Approvals(config.approvals, config.confirmation_mode), *(Approvals(agent.approvals) for agent in agents)]
    tables += [server.approvals for server in definitions.mcp_servers]
    trusted = [f"Trusted of mcp server {server.name}" for server in definitions.mcp_servers if server.trusted]
    return [words for table in tables for words in table.relaxations] + trusted


def _on_engine(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run something on the engine's loop, and wait for it in another thread."""
    if ENGINE.is_current():
        raise SetupError("an MCP server cannot be read here: read it in an action, a tool or a script")
    return interruptible_result(ENGINE.call(lambda: ENGINE.promise(work())))


StepType: TypeAlias = tuple[Handler, Callable[[Workflow], None] | None]
"""What carries out steps of a type, and looks at a workflow with such."""


class Holdings(Outfit):
    """Agents, workflows, actions, tools and types of step by name; `divebook.Environment` runs them."""

    def __init__(
        self,
        name: str,
        own_actions: Mapping[str, Action],
        approvals: Iterable[ApprovalRule | Mapping[str, Any]],
        sealing: Sealing,
    ) -> None:
        super().__init__(approvals, sealing)
        self.name = name
        self.description = ""
        self._workflows: dict[str, Workflow] = {}
        self._actions: dict[str, Action] = {}
        """Those that come with divebook."""
        self._own_actions = dict(own_actions)
        self._handlers: dict[str, Handler] = {}
        self._checks: dict[str, Callable[[Workflow], None]] = {}
        self._step_types: dict[str, StepType] = {}
        """Those that were given to it."""

    def take_in(self, other: Self) -> None:
        """Have all that another one has; what that has wins."""
        super().take_in(other)
        self.name = other.name
        self.description = other.description or self.description
        self._workflows |= other._workflows
        self._own_actions |= other._own_actions
        for name, (handler, check) in {**self._step_types, **other._step_types}.items():
            self.add_step_type(name, handler, check)

    @property
    def workflows(self) -> dict[str, Workflow]:
        """Its workflows by name: those of this process made with `@workflow`, and its own, which win."""
        return {name: entry.workflow for name, entry in WORKFLOW_FUNCTIONS.items()} | self._workflows

    @property
    def own_workflows(self) -> tuple[Workflow, ...]:
        """Its own workflows, without those of the process."""
        return tuple(self._workflows.values())

    @property
    def actions(self) -> dict[str, Action]:
        """Every action steps may call: built in, made with `@action`, given to this environment; later ones win."""
        return {**self._actions, **REGISTERED, **self._own_actions}

    def action(self, name: str) -> Action:
        """Return the action of that name; raises `NotFoundError`."""
        for known in (self._own_actions, REGISTERED, self._actions):
            registered = same_name(name, known)
            if registered is not None:
                return known[registered]
        raise NotFoundError("action", name, self.actions, f'action "{name}" not found')

    @property
    def default_agent(self) -> Agent | None:
        """The agent of prompt steps that name none: the first supervisor, else the first agent."""
        supervisors = [agent for agent in self._agents.values() if agent.is_supervisor]
        return next(iter(supervisors or self._agents.values()), None)

    def workflow(self, name: str) -> Workflow:
        """Return the workflow of that name; raises `NotFoundError`."""
        workflows = self.workflows
        known = same_name(name, workflows)
        if known is None:
            raise NotFoundError("workflow", name, workflows)
        return workflows[known]

    def as_written(self, workflow: Workflow) -> Workflow:
        """Return a workflow of a log with the text that it was read from here, if it was: errors name lines of that."""
        known = self._workflows.get(workflow.name, workflow)
        return known if known == workflow else workflow

    @property
    def default_workflow(self) -> Workflow | None:
        """The workflow that the settings name for runs that name none."""
        check_default_workflow(self.config, self._workflows)
        return self._workflows.get(self.config.default_workflow)

    def _agent_for(self, name: str | None) -> Agent | None:
        return self.default_agent if name is None else self.agent(name)

    def add_agent(self, agent: Agent | Any, *, replace: bool = False) -> None:
        """Take an agent in, also one of pydantic-ai as it is; a taken name is an error unless `replace` is set."""
        agent = agent_of(agent)
        if agent.name in self._agents and not replace:
            raise AlreadyRegisteredError("agent", agent.name)
        for server in agent.servers:
            self.add_server(server, replace=replace)
        self._agents[agent.name] = agent
        self._of_text.discard(("agent", agent.name))
        others = [other for other in self._defined.agents if other.name != agent.name]
        self._defined = replaced(self._defined, agents=tuple(others))  # so that settings do not make it anew

    @property
    def schedules(self) -> tuple[ScheduleDefinition, ...]:
        """Its schedules; a worker that is given them enqueues their workflows when they are due."""
        return self._defined.schedules

    def add_schedule(self, schedule: ScheduleDefinition, *, replace: bool = False) -> None:
        """Take a schedule in; a taken name is an error unless `replace` is set."""
        if not replace and schedule.name in {known.name for known in self.schedules}:
            raise AlreadyRegisteredError("schedule", schedule.name)
        self._defined = merge(replaced(self._defined, warnings=()), Definitions(schedules=(schedule,)))

    def add_workflow(self, workflow: Workflow, *, replace: bool = False) -> None:
        """Take a workflow in; executions that are already running keep the one they were started with."""
        expected = "a Workflow; write @workflow above an async function, or Workflow('name', [Step(...)])"
        require(workflow, "a workflow", expected, fits=isinstance(workflow, Workflow))
        if workflow.name in self._workflows and not replace:
            raise AlreadyRegisteredError("workflow", workflow.name)
        self._workflows[workflow.name] = workflow
        self._code_workflows.add(workflow.fingerprint)

    def add_step_type(self, name: str, handler: Handler, check: Callable[[Workflow], None] | None = None) -> None:
        """Let steps of a type be carried out by a handler; one that was there before goes.

        Parameters
        ----------
        name
            One of `divebook.workflow.step.STEP_TYPES`.
        handler
            Coroutine function from a `StepContext` to an `Outcome`.
        check
            Raises before anything is recorded, unless all that a workflow with such steps needs is there.
        """
        if name not in STEP_TYPES:
            raise NotFoundError("step type", name, STEP_TYPES)
        self._handlers[name] = handler
        self._step_types[name] = handler, check
        if check is not None:
            self._checks[name] = check

    def step_handler(self, name: str) -> Handler:
        """Return what carries out steps of a type; raises `NotFoundError`."""
        if name not in self._handlers:
            raise NotFoundError("step type", name, self._handlers)
        return self._handlers[name]

    def define(self, definitions: Definitions) -> None:
        """Take in all that a text, file or folder defines; what has the name of something old replaces it.

        Two texts, one after the other, are what a folder of both is: settings hold for agents that came before them.
        Agents named by steps must be known by the time an execution starts, not before, so that cells can come in any
        order.
        """
        expected = "Definitions; divebook.load('flows.yaml') reads them, and add_agent and add_workflow take one thing"
        require(definitions, "definitions", expected, fits=isinstance(definitions, Definitions))
        problems = syntax_problems(definitions)
        if problems:
            names = {workflow.written.name for workflow in definitions.workflows}
            raise DefinitionError(problems, names.pop() if len(names) == 1 and "" not in names else "definition")
        check_providers(definitions, is_known_provider)
        defined = merge(self._defined, definitions)
        agents = {agent.name: self._agent_of(agent, defined.config, definitions) for agent in defined.agents}
        self._defined = defined
        self._define_origin(definitions)
        self.name = definitions.name or self.name
        self.description = definitions.description or self.description
        for document in definitions.documents:
            if document.path:
                self.documents.register(document.name, document.path)
        self._agents |= agents
        for server in definitions.mcp_servers:
            self.servers.add(server, self.policy if definitions.is_text else self.policy.of_code(), replace=True)
        for workflow in definitions.workflows:
            self.add_workflow(workflow, replace=True)

    @staticmethod
    def _agent_of(definition: AgentDefinition, config: Config, new: Definitions) -> Agent:
        try:
            return Agent(
                with_defaults(definition, config),
                default_provider=config.default_provider,
                default_model=config.default_model,
            )
        except SetupError as error:
            place = ("Agents", new.agents.index(definition), *error.place) if definition in new.agents else error.place
            raise SetupError(str(error), place) from error

    def _stand_in_for(self, workflow: Workflow) -> str | None:
        """Return the scripted model where a file of the old system names a provider that cannot be asked here.

        Such files, which leave the model to the provider, run as they are that way (tests/cli/test_run.py). In our own
        dialect the step fails, and says what to install or set.
        """
        if workflow.manner.is_strict:
            return None
        asked = [self._agent_for(step.agent) for step in workflow.steps if step.type == "prompt"]
        lacking = [agent.missing for agent in asked if agent is not None]
        if not lacking or not all(lacking):
            return None
        _log.warning(
            "the provider that workflow %r names cannot be asked here, so a scripted model stands in for it: this run "
            "and what resumes it hold no text of a model. For real answers: %s, and start it anew",
            workflow.name,
            lacking[0],
        )
        return SCRIPTED

    def _check(self, workflow: Workflow, ahead: Container[str] | None = None, to_begin: Iterable[str] = ()) -> None:
        """Raise unless the agents, and in our own dialect the actions, that the steps name exist.

        Of an execution that goes on only the steps `ahead` count: what finished steps needed may be gone. The workflows
        `to_begin` must exist as well.
        """
        require_definition(workflow)
        for name in to_begin:
            self.workflow(name)
        steps = [step for step in workflow.steps if ahead is None or step.name in ahead]
        if workflow.start.type == FUNCTION and workflow.manner.is_strict:
            require_function(workflow.name)
        for step_type in {step.type for step in steps} & self._checks.keys():
            self._checks[step_type](workflow)
        problems = [workflow.written.located(found) for found in missing_agents(workflow, self._agents, ahead)]
        if problems:
            raise DefinitionError(problems, workflow.written.name or f"workflow {workflow.name!r}")
        for agent in agents_of_steps(steps, self._agent_for, self):
            self.check_agent(agent)
        for named in (workflow.workspace, *(step.workspace for step in steps)):
            if named is not None:
                self.check_workspace(named)
        if workflow.manner.is_strict:
            check_declared(self._defined.tools, self.tools, self._agents.values(), self.servers)
            self._check_names(workflow, ahead)

    def _model_called(self, workflow: Workflow, named: str | None, store: EventStore) -> str | None:
        """Return the full name of the model that a run has in place of its agents'; SetupError if nobody has it."""
        if model := model_name(None, named, self.config.default_provider) if named else None:
            self._check_models(workflow, model, store)
        return model

    def _check_models(self, workflow: Workflow, model: str | None, store: EventStore) -> None:
        """Raise unless there can be the model of a run, or where it has none, that of each of its agents."""
        if model is not None:
            check_model(model, f"workflow {workflow.name}", store)
        elif workflow.manner.is_strict:
            for agent in agents_of_steps(workflow.steps, self._agent_for, self):
                check_model(agent.model, f"agent {agent.name}", store)

    def _check_names(self, workflow: Workflow, ahead: Container[str] | None) -> None:
        """Raise unless what the steps name is there."""
        actions = self.actions
        self._raise_first("action", missing_actions(workflow, actions, ahead), actions, workflow)
        if any(step.workflow for step in workflow.steps):
            workflows = self.workflows
            self._raise_first("workflow", missing_workflows(workflow, workflows, ahead), workflows, workflow)
        for step in workflow.steps:
            is_ahead = ahead is None or step.name in ahead
            if is_ahead and step.type == "prompt" and step.agent is None and not self._agents:
                raise NotFoundError("agent", "", (), f'no agent specified for prompt step "{step.name}"')

    @staticmethod
    def _raise_first(
        kind: str, missing: Iterable[tuple[Problem, str]], known: Iterable[str], workflow: Workflow
    ) -> None:
        for found, name in missing:
            where = workflow.written.where(found.place)
            raise NotFoundError(kind, name, known, f"{where}: {found.message}" if where else found.message)

    def not_yet(self, definitions: Definitions) -> list[Problem]:
        """Return warnings of what the steps of definitions name and that is not there yet.

        They may come later, by the time an execution starts.
        """
        return [
            workflow.written.located(
                replaced(found, severity="warning", message=found.message.replace("not found", "is not defined yet"))
            )
            for workflow in definitions.workflows
            for found in self._missing(workflow)
        ]

    def _missing(self, workflow: Workflow) -> Iterator[Problem]:
        yield from missing_agents(workflow, self._agents)
        if workflow.manner.is_strict:
            yield from (found for found, _ in missing_actions(workflow, self.actions))
            yield from (found for found, _ in missing_workflows(workflow, self.workflows))
