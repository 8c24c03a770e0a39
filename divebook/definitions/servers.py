"""Definitions of MCP servers, and the interface through which agents use the tools of a server.

All classes are data. `divebook.tools.mcp` connects to servers and implements `ToolServer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

from divebook.definitions import table
from divebook.definitions.resources import ALLOW, ASK, CONFIRMATION_MODES, ApprovalRule, Approvals
from divebook.definitions.stored_form import Definition, require_text, require_whole_characters
from divebook.definitions.table import Key, require_numbers
from divebook.errors import DefinitionError, Problem
from divebook.text.ranges import SOME_SECONDS

if TYPE_CHECKING:
    from divebook.text.arguments import DurationLike

# --- tool servers: the interface of an MCP server ---------------------------------------------------------------------
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
    """Callback that answers a request which an MCP server sends during a tool call (elicitation). It asks a person or a
    model.
    """

    async def __call__(self, request: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Ask a person or a model one of the server's requests (an entry of `CallOutcome.requests`). Return the
        answer.
        """

    async def withdraw(self) -> None:
        """Withdraw the open question that `__call__` asked, because the tool call has ended before the question was
        answered.
        """


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
    """Tools and instructions that an MCP server offers, as the turn of an agent records them. `to_dict` returns the
    recorded form.
    """

    tools: tuple[OfferedTool, ...] = ()
    instructions: str = ""
    """Instructions of the server for the users of its tools. They become part of an agent's instructions."""


@dataclass(frozen=True, slots=True)
class CallOutcome(Definition):
    """Result of calling a tool of an MCP server: either content, or requests of the server that must be answered before
    the tool is called again.

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
        """True if the server has sent requests instead of content, so that the tool must be called again with
        answers.
        """
        # A server may ask to be called again with its state only, without a request.
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
        """Name of the agent that answers the requests which the server sends to a model (sampling). If it is None, such
        requests are refused.
        """

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
        """Call a tool of the server. The returned outcome has either content, or requests of the server. In the second
        case call the tool again with answers to these requests, and with the `state` of the outcome.

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


# --- definitions of MCP servers ---------------------------------------------------------------------------------------


CALL_TIMEOUT = 300.0
"""Default time limit of one tool call in seconds."""
MEMORY = "memory"
FILE = "file"
KEYCHAIN = "keychain"
TOKEN_STORES = (MEMORY, FILE, KEYCHAIN)
_NO_PARAMETERS = "the MCP library builds the token request itself; no parameters can be added"


def _refused(message: str, key: str, hint: str) -> DefinitionError:
    return DefinitionError([Problem(message, key=key, hint=hint)])


@dataclass(frozen=True, slots=True)
class TokenStoreDefinition(Definition):
    """Definition of the storage for OAuth tokens: the ``memory`` of the process, or a ``file``. A keychain of the
    operating system is refused.
    """

    type: Annotated[
        str | None,
        Key(
            "Storage of the tokens: `memory` (until the process ends) or `file`.",
            kind=table.Text(choices=TOKEN_STORES, complaint="unsupported type of token store: {}"),
            example="memory",
        ),
    ] = None
    path: Annotated[str | None, Key("Path of the file.", example="tokens.json")] = None

    def __post_init__(self) -> None:
        # The choices of the key contain the keychain, so that this error can explain it.
        if self.type == KEYCHAIN:
            message = "tokens cannot be stored in a keychain: divebook includes no keychain library"
            raise _refused(message, "Type", "write Type: file; only you can read that file")
        if self.type == FILE and not self.path:
            raise _refused(
                "a token store with Type 'file' needs the key Path", "Path", "add Path: ~/.config/tokens.json"
            )


@dataclass(frozen=True, slots=True)
class OAuthDefinition(Definition):
    """OAuth settings with which divebook obtains a token for an MCP server."""

    client_id: Annotated[
        str | None,
        Key("Id of the OAuth client. Without it, divebook registers a client with the server.", example="divebook"),
    ] = None
    client_secret: Annotated[str | None, Key("Secret of the OAuth client.", example="env://OAUTH_SECRET")] = field(
        default=None, repr=False
    )
    redirect_uri: Annotated[
        str | None,
        Key("Address to which the browser is redirected after the sign-in.", example="http://127.0.0.1:8765/callback"),
    ] = None
    scopes: Annotated[tuple[str, ...], Key("Permissions to request.", example="[read]")] = ()
    pkce_enabled: Annotated[
        bool | None, Key("Protect the sign-in with PKCE. PKCE is always used; `false` is an error.")
    ] = None
    token_store: Annotated[TokenStoreDefinition | None, Key("Storage of the tokens.")] = None
    extra_params: Annotated[
        Mapping[str, str], Key("Additional parameters of the token request.", ignored=_NO_PARAMETERS)
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # None is the default. Only an explicit false is refused.
        if self.pkce_enabled is False:
            message = (
                "PKCEEnabled: false is refused: without PKCE, any program that sees the browser's redirect can get "
                "the token"
            )
            raise _refused(message, "PKCEEnabled", "remove PKCEEnabled")


@dataclass(frozen=True, slots=True)
class ApprovalFilterDefinition(Definition):
    """Names of the tools of an MCP server that always, or never, need approval."""

    always: Annotated[tuple[str, ...], Key("Tools whose calls always need approval.", example="[delete_file]")] = ()
    never: Annotated[tuple[str, ...], Key("Tools whose calls never need approval.", example="[read_file]")] = ()


@dataclass(frozen=True, slots=True)
class ToolConfigurationDefinition(Definition):
    """Selection of the tools of an MCP server that agents may use, and approval modes of these tools."""

    enabled: Annotated[bool, Key("Allow agents to use the tools of the server.")] = True
    allowed_tools: Annotated[
        tuple[str, ...] | None,
        Key(
            "Tools that agents may use; `[]` for none. Default: all tools.",
            kind=table.OptionalTexts(),
            example="[read_file]",
        ),
    ] = None
    approval_mode: Annotated[
        str | None,
        Key(
            "Tool calls that need the approval of a person, if no approval rule matches.",
            kind=table.Text(choices=CONFIRMATION_MODES, complaint="invalid approval mode: {}"),
            example="if-destructive",
        ),
    ] = None
    approval_filter: Annotated[ApprovalFilterDefinition | None, Key("Tools that always, or never, need approval.")] = (
        None
    )


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

    name: Annotated[str, Key("Name of the server.", required="mcp server name is required", example="files")]
    type: Annotated[str, Key("Type of the connection: `stdio` or `http`.", example="stdio")] = ""
    command: Annotated[str | None, Key("For `stdio`: program to start.", example="mcp-server-git")] = None
    url: Annotated[str | None, Key("For `http`: address of the server.", example="https://mcp.example.org")] = None
    args: Annotated[tuple[str, ...], Key("For `stdio`: arguments of the program.", example="[--repository, .]")] = ()
    env: Annotated[
        Mapping[str, str], Key("For `stdio`: environment variables of the program.", example="{GIT_PAGER: cat}")
    ] = field(default_factory=dict, repr=False)
    authorization_token: Annotated[
        str | None, Key("Token that is sent with each request.", example="env://FILES_TOKEN")
    ] = field(default=None, repr=False)
    headers: Annotated[Mapping[str, str], Key("HTTP headers of each request.", example="{X-Team: docs}")] = field(
        default_factory=dict, repr=False
    )
    oauth: Annotated[OAuthDefinition | None, Key("Settings for obtaining a token with OAuth.")] = None
    tool_configuration: Annotated[
        ToolConfigurationDefinition | None, Key("Selection of the server's tools, and their approval.")
    ] = None
    timeout: Annotated[
        float,
        Key(
            "Time limit of one call.",
            kind=table.Duration(SOME_SECONDS),
            extension=True,
            example="60s",
        ),
    ] = CALL_TIMEOUT
    trusted: Annotated[
        bool, Key("Trust the hints of the server about its tools, such as that a tool is read-only.", extension=True)
    ] = False
    sampling: Annotated[
        str | None,
        Key(
            "Agent whose model answers sampling requests of the server. The agent must not have tools. Without this "
            "key, such requests are refused.",
            extension=True,
            example="editor",
        ),
    ] = None
    asks_within_calls: Annotated[
        bool,
        Key(
            "Use the MCP protocol of 2025, in which the server asks questions during a call. The call stays open "
            "until the answer arrives. If the process ends before that, the call is interrupted, and you are asked "
            "for its outcome when the run is resumed.",
            extension=True,
        ),
    ] = False
    folder: str = field(default="", init=False, compare=False, repr=False)
    """Folder of the definition, in which its relative file paths start; empty for the current folder. It is set when a
    definition file is read, and is not part of the stored form."""

    if TYPE_CHECKING:  # more types than those of the fields: they are converted

        def __init__(
            self,
            name: str,
            type: str = "",
            command: str | None = None,
            url: str | None = None,
            args: list[str] | tuple[str, ...] = (),
            *,
            env: Mapping[str, str] = ...,
            authorization_token: str | None = None,
            headers: Mapping[str, str] = ...,
            oauth: OAuthDefinition | None = None,
            tool_configuration: ToolConfigurationDefinition | None = None,
            timeout: DurationLike = CALL_TIMEOUT,
            trusted: bool = False,
            sampling: str | None = None,
            asks_within_calls: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        require_numbers(self)
        require_whole_characters(self)
        require_text(self.name, "the name of an MCP server", 'write MCPServerDefinition("files", command="...")')
        args: object = self.args  # the type hint does not bind callers
        if isinstance(args, str):  # each letter would become an argument
            raise _refused(
                f"args of mcp server {self.name!r} must be a list, not the string {args!r}",
                "Args",
                f"write args=[{args!r}]",
            )
        if "*" in self.name:  # approval rules contain the name, in which ``*`` would match any characters
            message = (
                f"{self.name!r} cannot be the name of an mcp server: in approval rules, * would match other servers too"
            )
            raise _refused(message, "Name", "remove the *")

    def allows(self, tool: str) -> bool:
        """Return True if the server's tool configuration allows agents to use a tool of the server."""
        settings = self.tool_configuration
        if settings is None:
            return True
        # Without a list of allowed tools, all are allowed.
        return settings.enabled and (settings.allowed_tools is None or tool in settings.allowed_tools)

    def _in_rules(self, tool: str) -> str:
        """Return the name of a tool of this server for approval rules. A name with ``/`` is prefixed with the name of
        the server, because ``/`` separates server and tool in a rule.
        """
        return f"{self.name}/{tool}" if "/" in tool else tool

    @property
    def approvals(self) -> Approvals:
        """Approval policy for the server's tools, as its tool configuration states it."""
        # Absent settings are those of an empty definition: no rules and no mode.
        settings = self.tool_configuration or ToolConfigurationDefinition()
        tools = settings.approval_filter or ApprovalFilterDefinition()
        rules = [ApprovalRule(self._in_rules(tool), server=self.name, outcome=ASK) for tool in tools.always]
        rules += [ApprovalRule(self._in_rules(tool), server=self.name, outcome=ALLOW) for tool in tools.never]
        return Approvals(tuple(rules), servers={self.name: settings.approval_mode} if settings.approval_mode else {})
