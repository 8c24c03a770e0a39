"""Definitions of MCP servers, workspaces and approval rules.

All classes are data. `divebook.tools.mcp` connects to servers, `divebook.workspace` creates workspaces, and
`divebook.engine.approvals` applies the approval rules to calls of tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Protocol, Self, TypeAlias

from divebook.errors import DefinitionError, Problem, did_you_mean
from divebook.events.event import to_microseconds
from divebook.text import ranges
from divebook.text.ranges import SOME_SECONDS
from divebook.workflow import table
from divebook.workflow.stored_form import Definition, json_value, require_whole_characters
from divebook.workflow.table import Key, require_numbers

# --- tool servers -----------------------------------------------------------------------------------------------------
#
# `divebook.tools.mcp` implements `ToolServer`. A turn of an agent records the tools of a server as data. A resumed turn
# creates the tools from the recorded list, and starts a server only for a call that the log does not have.


SCHEME = "mcp://"
"""Prefix of the ids of an MCP server's resources: ``mcp://server/address``."""
Answers: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Answers to the requests of an MCP server, by the name of each request.

A person's answer is ``{"action": "accept" | "decline" | "cancel", "content": {...}}``, a model's answer ``{"text",
"model"}`` or ``{"error"}``.
"""


class Elicit(Protocol):
    """Callback for requests of an MCP server during a tool call (elicitation). It asks a person or a model."""

    async def __call__(self, request: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Ask a person or a model one of the `CallOutcome.requests`. Return the answer."""

    async def withdraw(self) -> None:
        """Withdraw the open question, because the tool call has ended without the answer."""


@dataclass(frozen=True, slots=True)
class OfferedTool(Definition):
    """Description of one tool of an MCP server."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, bool] = field(default_factory=dict)
    """Hints about effects of the tool, if the server is trusted. Keys are the fields of `ToolHints`."""
    output_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Discovered(Definition):
    """Tools and instructions of an MCP server, as an agent's turn records them. `to_dict` is the recorded form."""

    tools: tuple[OfferedTool, ...] = ()
    instructions: str = ""
    """Instructions of the server for the users of its tools. They become part of an agent's instructions."""


@dataclass(frozen=True, slots=True)
class CallOutcome(Definition):
    """Result of calling a tool of an MCP server: content, or requests that must be answered first.

    Examples
    --------
    >>> CallOutcome(requests={"colour": {"message": "Which?", "schema": {"type": "object"}}}).needs_input
    True
    """

    content: Any = None
    """A string, JSON, or a list of strings and JSON. Bytes have the form ``{"media_type": ..., "base64": ...}``."""
    is_error: bool = False
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Requests by name: ``{"message", "schema"}``. The schema is empty if there is nothing to fill in.

    A request for a model is ``{"agent", "messages", "system", "max_tokens", "temperature"}``.

    Requests are answered by another call with `Answers` and the `state`."""
    state: str | None = None
    """Opaque state of the server. The next call must return it to the server together with the answers."""

    @property
    def needs_input(self) -> bool:
        """True if the server has sent requests, so that the tool must be called again with answers."""
        return bool(self.requests) or self.state is not None


class ToolServer(Protocol):
    """Interface of an MCP server for agents. The server is started, or connected, when it is first used."""

    @property
    def name(self) -> str:
        """Name of the server in definitions."""

    @property
    def timeout(self) -> float:
        """Time limit of a call to a tool of the server in seconds."""

    @property
    def sampling(self) -> str | None:
        """Name of the agent that answers the server's requests to a model (sampling). None refuses such requests."""

    async def discover(self) -> Discovered:
        """Return the current tools and instructions of the server. Raise `ServerError` if the server cannot be
        reached.
        """

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        answers: Answers | None = None,
        state: str | None = None,
        elicit: Elicit | None = None,
        repeatable: bool = False,
    ) -> CallOutcome:
        """Call a tool of the server. If the outcome contains requests, call again with answers and the outcome's state.

        Parameters
        ----------
        elicit
            Function for requests during a call, as servers of the 2025 protocol make them.
        repeatable
            True if the call may be repeated after a lost connection.

        Raises
        ------
        ServerError
            The server cannot be reached or violates the protocol. It has not executed the call.
        OutcomeUnknownError
            The connection was lost after the call was sent, and it is not repeatable.
        """


# --- workspaces: files, commands and containers for agents and workflows ----------------------------------------------


LOCAL = "local"
FENCED = "fenced"
VIRTUALENV = "virtualenv"
DOCKER = "docker"
WORKSPACE_KINDS = (LOCAL, FENCED, VIRTUALENV, DOCKER)
"""Kinds of workspaces: commands run on this machine, on this machine with restrictions, in a Python environment, or in
a container.
"""
CONTAINED = frozenset({FENCED, DOCKER})
"""Kinds of workspaces whose commands can access only the workspace."""
COMMAND_TIMEOUT = 180.0
"""Default time limit of a command in seconds."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MEMORY = re.compile(r"(?=.*[1-9])\d+(\.\d+)?[kmgt]?b?", re.IGNORECASE)
MOST_MEMORY_DIGITS = 16
"""Largest number of characters of an amount of memory: sufficient for exbibytes in bytes."""
_OF_KINDS = {
    "python": VIRTUALENV,
    "packages": VIRTUALENV,
    "image": DOCKER,
    "hosts": DOCKER,
    "memory": DOCKER,
    "processors": DOCKER,
}


@dataclass(frozen=True, slots=True)
class WorkspaceDefinition(Definition):
    """Definition of a workspace: a place with files and a shell for agents and workflows.

    An execution works on its private copy of the folder, unless `in_place` is True. Changed files are shown, and copied
    to the folder when a person decides so. ``divebook keys Workspace`` describes each field.

    Examples
    --------
    >>> WorkspaceDefinition("project", folder="src").kind
    'local'
    """

    name: Annotated[
        str, Key("The name that agents, workflows and steps use.", required="workspace name is required", example="app")
    ]
    description: Annotated[str, Key("A description for people.", example="The package to repair")] = ""
    kind: Annotated[
        str,
        Key(
            "Where its commands run: on this machine, in a fence on it without network, with a Python environment of "
            "its own, or in a container without network. Commands of `local` and `virtualenv` may do whatever you may.",
            kind=table.Text(choices=WORKSPACE_KINDS, complaint="unknown kind of workspace: {}"),
            example="fenced",
        ),
    ] = LOCAL
    folder: Annotated[
        str | None,
        Key("The folder with its files; without it, each run begins with an empty one.", example="project"),
    ] = None
    in_place: Annotated[
        bool, Key("Whether runs work in that very folder; by default each has a copy, and you take changes over.")
    ] = False
    shell: Annotated[bool, Key("Whether commands may be run; else there are only files.", example="false")] = True
    timeout: Annotated[
        float,
        Key(
            "How long a command may take; 3 minutes by default.",
            kind=table.ResponseTimeout(ranges.SOME_SECONDS),
            example="10m",
        ),
    ] = COMMAND_TIMEOUT
    environ: Annotated[Mapping[str, str], Key("Variables of its commands.", example="{LANG: C}")] = field(
        default_factory=dict
    )
    secrets: Annotated[
        Mapping[str, str],
        Key("Variables with secrets, by where they are; hidden in what commands print.", example="{KEY: env://MY_KEY}"),
    ] = field(default_factory=dict)
    exclude: Annotated[
        tuple[str, ...],
        Key("Files that are neither copied nor kept, such as caches.", example="['*.pyc', node_modules]"),
    ] = ()
    snapshots: Annotated[
        bool, Key("Whether the history keeps its files, so that each event knows them and forks get them.")
    ] = True
    python: Annotated[str | None, Key("Of `virtualenv`: the Python to use.", example="'3.12'")] = None
    packages: Annotated[
        tuple[str, ...], Key("Of `virtualenv`: packages that are installed at first.", example="[pytest]")
    ] = ()
    image: Annotated[
        str | None,
        Key("Of `docker`: what its container is made of; it must be on this machine.", example="python:3.12"),
    ] = None
    hosts: Annotated[
        tuple[str, ...],
        Key(
            "Of `docker`: hosts that its commands may reach all the same, with Python in the image; port 443 if it "
            "says no other.",
            example="[pypi.org, '*.pythonhosted.org']",
        ),
    ] = ()
    memory: Annotated[str | None, Key("Of `docker`: how much memory it may use; 1g by default.", example="512m")] = None
    processors: Annotated[
        float | None,
        Key(
            "Of `docker`: how many processors it may use; all by default.",
            kind=table.Number(ranges.SOME),
            example="1.5",
        ),
    ] = None

    def __post_init__(self) -> None:
        # Each check raises the first error, in the order in which the fields are written.
        if not _NAME.fullmatch(self.name):
            hint = "use letters, digits, - _ and . only, at most 63"
            raise _wrong(f"{self.name!r} cannot be the name of a workspace", "Name", hint)
        if self.kind not in WORKSPACE_KINDS:
            hint = did_you_mean(self.kind, WORKSPACE_KINDS) or f"one of {', '.join(WORKSPACE_KINDS)}"
            raise _wrong(f"unknown kind of workspace: {self.kind}", "Kind", hint)
        for name, kind in _OF_KINDS.items():
            if getattr(self, name) and self.kind != kind:
                key = name.capitalize()
                message = f"{key} of workspace {self.name} has no effect: its Kind is {self.kind}"
                raise _wrong(message, key, f"write Kind: {kind}, or leave {key} out")
        if self.kind == DOCKER and self.image is None:
            raise _wrong(f"workspace {self.name} needs an image for its container", "Image", "add Image: python:3.12")
        if self.in_place and self.folder is None:
            raise _wrong(f"workspace {self.name} works in place, and names no folder", "Folder", "add Folder: .")
        require_numbers(self)
        require_whole_characters(self)
        self._require_amounts()

    def _require_amounts(self) -> None:
        for name in ("exclude", "packages", "hosts"):
            value = getattr(self, name)
            if isinstance(value, str):  # a string is iterable: each letter would become a pattern or a name
                key = name.capitalize()
                raise _wrong(f"{key} of workspace {self.name} is one text: {value!r}", key, f"write [{value!r}]")
        if self.memory is not None and not is_memory(self.memory):
            message = f"workspace {self.name}: {self.memory!r} is no amount of memory above 0"
            raise _wrong(message, "Memory", "write 512m, or 2g")


def is_memory(value: object) -> bool:
    """Return True if a value is a string that states an amount of memory above 0, such as ``512m``."""
    return isinstance(value, str) and len(value) <= MOST_MEMORY_DIGITS and _MEMORY.fullmatch(value) is not None


def _wrong(message: str, key: str, hint: str) -> DefinitionError:
    return DefinitionError([Problem(message, key=key, hint=hint)])


# --- approval of tool calls: rules, and modes for calls without a rule ------------------------------------------------
#
# A rule is a definition: ``{Tool: read_file, Arguments: {path: docs/**}, Outcome: allow}``.
# `divebook.engine.approvals` applies rules and modes to a call.


ALLOW = "allow"
ASK = "ask"
DENY = "deny"
OUTCOMES: Final = (ALLOW, ASK, DENY)
"""Outcomes of rules, from the mildest to the strictest."""
ALWAYS = "always"
IF_NOT_READ_ONLY = "if-not-read-only"
IF_DESTRUCTIVE = "if-destructive"
NEVER = "never"
CONFIRMATION_MODES: Final = (ALWAYS, IF_NOT_READ_ONLY, IF_DESTRUCTIVE, NEVER)
"""Approval modes: they determine for which calls without a matching rule a person is asked."""
READ_ONLY = "read-only"
DESTRUCTIVE = "destructive"
UNKNOWN = "unknown"
EFFECTS: Final = (READ_ONLY, DESTRUCTIVE, UNKNOWN)
"""Effects of a tool according to its hints, for the key `When` of a rule."""


@dataclass(frozen=True, slots=True)
class ApprovalRule(Definition):
    """Approval rule: allows or denies calls of certain tools, or requires that a person is asked.

    If several rules match, the strictest decides. ``divebook keys ApprovalRule`` describes each field.

    A rule that allows is interpreted narrowly: case, types and Unicode forms matter, ``*`` matches any text without
    ``/`` and ``**`` any text, and a call with an argument that `Arguments` does not contain is not allowed. A rule that
    asks or denies is interpreted widely: it applies as soon as it could match a call.

    Examples
    --------
    >>> ApprovalRule("fetch", arguments={"url": "https://docs.python.org/**"}).outcome
    'allow'
    """

    tool: Annotated[
        str, Key("The tool, or `server/tool` of an MCP server; `*` stands for any characters.", example="fetch")
    ] = "*"
    agent: Annotated[
        str | None, Key("Only calls of this agent; `*` stands for any characters.", example="researcher")
    ] = None
    server: Annotated[
        str | None, Key("Only tools of this MCP server; `*` stands for any characters.", example="files")
    ] = None
    arguments: Annotated[
        Mapping[str, Any] | None,
        Key(
            "What its arguments must be: values, texts with `*` or `**`, or `{equals: value}`; without it, anything.",
            example="{url: 'https://docs.python.org/*'}",
        ),
    ] = None
    when: Annotated[
        str | None,
        Key(
            "Only tools that say this of themselves.",
            kind=table.Text(choices=EFFECTS, complaint="invalid effect of a tool: {}"),
            example="destructive",
        ),
    ] = None
    outcome: Annotated[
        str,
        Key(
            "What becomes of such a call.",
            kind=table.Text(choices=OUTCOMES, complaint="invalid outcome of an approval rule: {}"),
            example="ask",
        ),
    ] = ALLOW
    reason: Annotated[
        str, Key("Why, for the person and the model that hear of it.", example="the manual may be read")
    ] = ""
    expires: Annotated[
        str | None, Key("When it ceases to hold: 2026-12-31, or with the time and its zone.", example="2027-12-31")
    ] = None

    def __post_init__(self) -> None:
        # Check the choices, then the names, then convert arguments and the time of expiry to their stored form.
        for name, value, choices in (("Outcome", self.outcome, OUTCOMES), ("When", self.when, EFFECTS)):
            if value is not None and value not in choices:
                raise _approval_error(name, value, did_you_mean(value, choices) or f"one of {', '.join(choices)}")
        for name in ("tool", "agent", "server"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise _approval_error(name.capitalize(), value, "write a name; * stands for any characters")
        if self.arguments is not None:
            if not isinstance(self.arguments, Mapping):
                raise _approval_error("Arguments", self.arguments, "write a mapping: {path: docs/**}")
            self._put(arguments=json_value(self.arguments, "Arguments"))
        if self.expires is not None:
            self._put(expires=_moment(self.expires).isoformat())

    @property
    def expires_us(self) -> int | None:
        """Time of expiry in microseconds since 1970; None if the rule never expires."""
        return None if self.expires is None else to_microseconds(_moment(self.expires))

    @property
    def in_words(self) -> str:
        """Description of the rule in a few words, for people and for the log."""
        parts = {"agent": self.agent, "server": self.server, "arguments": self.arguments, "when": self.when}
        conditions = ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
        return f"{self.outcome} {self.tool}{f' ({conditions})' if conditions else ''}"


def _moment(value: Any) -> datetime:
    """Parse the time of expiry of an approval rule. A time without a zone is UTC; a date means the start of the day."""
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise _approval_error(
            "Expires", value, "write a date or a time: 2026-12-31, 2026-12-31T12:00:00+01:00"
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _approval_error(key: str, value: Any, hint: str) -> DefinitionError:
    return DefinitionError([Problem(f"{key} of an approval rule cannot be {value!r}", key=key, hint=hint)])


@dataclass(frozen=True, slots=True)
class Approvals:
    """Approval policy of an environment, or of one agent in it: approval rules, and modes for calls that no rule
    matches.
    """

    rules: tuple[ApprovalRule, ...] = ()
    mode: str = ""
    """Approval mode for all tools. Empty if each tool decides."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """Approval modes for the tools of single MCP servers, by name of the server."""
    stricter: Approvals | None = None
    """Rules and modes of untrusted definitions. They can restrict an allowed call (ask or deny), but never allow a
    call.
    """

    def __post_init__(self) -> None:
        for mode in (self.mode, *self.servers.values()):
            if mode and mode not in CONFIRMATION_MODES:
                hint = did_you_mean(mode, CONFIRMATION_MODES) or f"one of {', '.join(CONFIRMATION_MODES)}"
                raise DefinitionError([Problem(f"invalid confirmation mode: {mode}", hint=hint)])

    @property
    def relaxations(self) -> list[str]:
        """Descriptions of the modes and rules that may allow a call without asking a person."""
        modes = (self.mode, *self.servers.values())
        relaxations = [f"the mode {mode}" for mode in modes if mode in (IF_DESTRUCTIVE, NEVER)]
        return relaxations + [f"the rule: {rule.in_words}" for rule in self.rules if rule.outcome == ALLOW]

    def mode_for(self, server: str) -> str:
        """Return the approval mode for the tools of an MCP server (``""``: tools without a server). Empty if each tool
        decides.
        """
        return self.servers.get(server) or self.mode

    def plus(self, rules: Iterable[ApprovalRule | Mapping[str, Any]], agent: str | None = None) -> Self:
        """Return a copy of the policy with additional rules. If `agent` is not None, they apply only to calls of this
        agent.
        """
        additional = [ApprovalRule.of(rule) for rule in rules]
        if agent is not None:
            additional = [rule.like(agent=agent) for rule in additional]
        return replace(self, rules=(*self.rules, *additional))


# --- MCP servers ------------------------------------------------------------------------------------------------------


CALL_TIMEOUT = 300.0
"""Default time limit of one tool call in seconds."""
MEMORY = "memory"
FILE = "file"
KEYCHAIN = "keychain"
TOKEN_STORES = (MEMORY, FILE, KEYCHAIN)
_NO_PARAMETERS = "the MCP library builds the request for a token itself; nothing can be added to it"


def _refused(message: str, key: str, hint: str) -> DefinitionError:
    return DefinitionError([Problem(message, key=key, hint=hint)])


@dataclass(frozen=True, slots=True)
class TokenStoreDefinition(Definition):
    """Storage of OAuth tokens: ``memory`` of the process, or a ``file``. A keychain is refused."""

    type: Annotated[
        str | None,
        Key(
            "`memory` or `file`.",
            kind=table.Text(choices=TOKEN_STORES, complaint="unsupported type of token store: {}"),
            example="memory",
        ),
    ] = None
    path: Annotated[str | None, Key("The file.", example="tokens.json")] = None

    def __post_init__(self) -> None:
        if self.type == KEYCHAIN:
            message = "tokens cannot be kept in a keychain: no library for keychains comes with divebook"
            raise _refused(message, "Type", "write Type: file, which only you can read")
        if self.type == FILE and not self.path:
            raise _refused("a token store of type file needs a Path", "Path", "add Path: ~/.config/tokens.json")


@dataclass(frozen=True, slots=True)
class OAuthDefinition(Definition):
    """OAuth settings with which divebook obtains a token for an MCP server."""

    client_id: Annotated[
        str | None, Key("The id of the OAuth client; without it, the server is asked for one.", example="divebook")
    ] = None
    client_secret: Annotated[str | None, Key("The secret of the OAuth client.", example="env://OAUTH_SECRET")] = field(
        default=None, repr=False
    )
    redirect_uri: Annotated[
        str | None, Key("The address that the browser is sent back to.", example="http://127.0.0.1:8765/callback")
    ] = None
    scopes: Annotated[tuple[str, ...], Key("The permissions that are asked for.", example="[read]")] = ()
    pkce_enabled: Annotated[bool | None, Key("Whether the exchange is protected by PKCE; it always is.")] = None
    token_store: Annotated[TokenStoreDefinition | None, Key("Where tokens are kept.")] = None
    extra_params: Annotated[Mapping[str, str], Key("More parameters.", ignored=_NO_PARAMETERS)] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        if self.pkce_enabled is False:
            message = "PKCEEnabled: false is refused: without PKCE whoever sees the answer of the browser has the token"
            raise _refused(message, "PKCEEnabled", "leave PKCEEnabled out")


@dataclass(frozen=True, slots=True)
class ApprovalFilterDefinition(Definition):
    """Names of the tools of an MCP server that always, or never, need approval."""

    always: Annotated[tuple[str, ...], Key("Tools that always ask.", example="[delete_file]")] = ()
    never: Annotated[tuple[str, ...], Key("Tools that never ask.", example="[read_file]")] = ()


@dataclass(frozen=True, slots=True)
class ToolConfigurationDefinition(Definition):
    """Selection of the tools of an MCP server that agents may use, and approval modes of these tools."""

    enabled: Annotated[bool, Key("Whether its tools may be used.")] = True
    allowed_tools: Annotated[tuple[str, ...], Key("Those that may be used; all if empty.", example="[read_file]")] = ()
    approval_mode: Annotated[
        str | None,
        Key(
            "When a person is asked.",
            kind=table.Text(choices=CONFIRMATION_MODES, complaint="invalid approval mode: {}"),
            example="if-destructive",
        ),
    ] = None
    approval_filter: Annotated[ApprovalFilterDefinition | None, Key("Which tools ask.")] = None


@dataclass(frozen=True, slots=True)
class MCPServerDefinition(Definition):
    """Definition of an MCP server: a program to start (``stdio``) or an address to connect to (``http``).

    ``divebook keys MCPServer`` describes each field.

    Examples
    --------
    >>> git = MCPServerDefinition("git", "stdio", command="uvx", args=("mcp-server-git",))
    >>> git.allows("git_log")
    True
    """

    name: Annotated[str, Key("Its name.", required="mcp server name is required", example="files")]
    type: Annotated[str, Key("`stdio` or `http`.", example="stdio")] = ""
    command: Annotated[str | None, Key("The program to start.", example="mcp-server-git")] = None
    url: Annotated[str | None, Key("Its address.", example="https://mcp.example.org")] = None
    args: Annotated[tuple[str, ...], Key("Arguments of the program.", example="[--repository, .]")] = ()
    env: Annotated[Mapping[str, str], Key("Variables of the program.", example="{GIT_PAGER: cat}")] = field(
        default_factory=dict, repr=False
    )
    authorization_token: Annotated[
        str | None, Key("A token that each request carries.", example="env://FILES_TOKEN")
    ] = field(default=None, repr=False)
    headers: Annotated[Mapping[str, str], Key("HTTP headers of each request.", example="{X-Team: docs}")] = field(
        default_factory=dict, repr=False
    )
    oauth: Annotated[OAuthDefinition | None, Key("How to get a token.")] = None
    tool_configuration: Annotated[ToolConfigurationDefinition | None, Key("Which of its tools may be used.")] = None
    timeout: Annotated[
        float,
        Key(
            "How long one call may take; 5 minutes by default.",
            kind=table.ResponseTimeout(SOME_SECONDS),
            extension=True,
            example="60s",
        ),
    ] = CALL_TIMEOUT
    trusted: Annotated[
        bool, Key("Whether it is believed what it says of its tools, such as that one changes nothing.", extension=True)
    ] = False
    sampling: Annotated[
        str | None,
        Key(
            "The agent whose model answers what it asks of a model: one without tools. Without it such requests are "
            "refused.",
            extension=True,
            example="editor",
        ),
    ] = None
    asks_within_calls: Annotated[
        bool,
        Key(
            "Whether it asks while a call is under way, as servers of 2025 do: it is spoken to in their protocol. The "
            "call is open until the answer comes. If this process ends before, the call is cut off, and a person is "
            "asked what became of it when the run is resumed.",
            extension=True,
        ),
    ] = False

    def __post_init__(self) -> None:
        require_numbers(self)
        require_whole_characters(self)
        if "*" in self.name:  # approval rules contain the name, in which ``*`` would match any characters
            message = f"{self.name!r} cannot be the name of an mcp server: what is said of it would hold for others"
            raise _refused(message, "Name", "leave out the *")

    def allows(self, tool: str) -> bool:
        """Return True if agents may use a tool of the server."""
        settings = self.tool_configuration
        if settings is None:
            return True
        return settings.enabled and (not settings.allowed_tools or tool in settings.allowed_tools)

    def _in_rules(self, tool: str) -> str:
        """Return the name of a tool in approval rules. A name that contains ``/`` is prefixed with the name of the
        server.
        """
        return f"{self.name}/{tool}" if "/" in tool else tool

    @property
    def approvals(self) -> Approvals:
        """Approval policy that follows from the server's tool configuration."""
        settings = self.tool_configuration or ToolConfigurationDefinition()
        tools = settings.approval_filter or ApprovalFilterDefinition()
        rules = [ApprovalRule(self._in_rules(tool), server=self.name, outcome=ASK) for tool in tools.always]
        rules += [ApprovalRule(self._in_rules(tool), server=self.name, outcome=ALLOW) for tool in tools.never]
        return Approvals(tuple(rules), servers={self.name: settings.approval_mode} if settings.approval_mode else {})
