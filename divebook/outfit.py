"""What agents may use: tools, MCP servers, agents that they may give work to, and the rules about it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from divebook.agents import Agent
from divebook.dialects import OWN
from divebook.dialects.dive import TOOLS
from divebook.documents import DocumentRepository, Policy
from divebook.documents.policy import APPROVALS, KINDS, VARIABLE
from divebook.documents.references import require_allowed
from divebook.engine.operations import TOOL_CALL
from divebook.errors import (
    AlreadyRegisteredError,
    NotFoundError,
    SetupError,
)
from divebook.execution.engine_thread import ENGINE
from divebook.execution.wanted import Wanted
from divebook.keyboard import interruptible_result
from divebook.steps.agent_checks import check_agent, require_named
from divebook.steps.work import ASSIGN_WORK
from divebook.store.codec import Sealing
from divebook.text.arguments import list_of, require
from divebook.text.logs import logger
from divebook.text.names import same_name
from divebook.tools.declared import declared, limited
from divebook.tools.mcp.servers import ServedDocuments, Server, Servers
from divebook.tools.offered import ABSENT, OFFERED
from divebook.tools.reach import ToolReach
from divebook.tools.workspaces import PROCESS_TOOLS, SHELL, WORKSPACE_TOOLS, workspace_tool
from divebook.workflow.approvals import ApprovalRule, Approvals
from divebook.workflow.definition import AgentDefinition, Config, Definitions, ToolDefinition
from divebook.workflow.merge import merge, merge_config, unknown
from divebook.workflow.servers import MCPServerDefinition
from divebook.workflow.settings import provider_settings
from divebook.workflow.tool_servers import SCHEME
from divebook.workflow.tools import REGISTERED_TOOLS, ToolFunction, tool_of
from divebook.workflow.workspaces import WorkspaceDefinition
from divebook.workspace.docker.engine import require_image

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
        self.documents, self.policy = documents, policy
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
        self.servers.take_in(other.servers)

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

        Those that come with divebook are made for each agent that names them: `divebook.tools.offered`.
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
        from divebook.agents.served_tools import served_tool

        return {
            f"{server.name}/{tool.name}": served_tool(server, tool)
            for server in self.servers.values()
            for tool in server.tools()
        }

    def _reads_only(self, wanted: Wanted) -> bool:
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
            require_named("agent", definition.subordinates, self._agents, definition.name)
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
        require_named("mcp server", sorted(named), list(self.servers), definition.name)
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
        of_text, config = self._text_config.providers, self._defined.config
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
        known, said = self.tools, {tool.name: tool for tool in self._defined.tools}
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
        """Raise unless what an agent names is there, once, and may be used: see `divebook.steps.agent_checks`."""
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
            mode, servers = more.mode or table.mode, {**table.servers, **more.servers}
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
    config, agents = definitions.config, definitions.agents
    tables = [Approvals(config.approvals, config.confirmation_mode), *(Approvals(agent.approvals) for agent in agents)]
    tables += [server.approvals for server in definitions.mcp_servers]
    trusted = [f"Trusted of mcp server {server.name}" for server in definitions.mcp_servers if server.trusted]
    return [words for table in tables for words in table.relaxations] + trusted


def _on_engine(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run something on the engine's loop, and wait for it in another thread."""
    if ENGINE.is_current():
        raise SetupError("an MCP server cannot be read here: read it in an action, a tool or a script")
    return interruptible_result(ENGINE.call(lambda: ENGINE.promise(work())))
