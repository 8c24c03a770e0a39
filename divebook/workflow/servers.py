"""What a definition file declares of MCP servers: how each is reached, and which of its tools may be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from divebook.errors import DefinitionError, Problem
from divebook.text.ranges import SOME_SECONDS
from divebook.workflow import kinds
from divebook.workflow.approvals import ALLOW, ASK, CONFIRMATION_MODES, ApprovalRule, Approvals
from divebook.workflow.stored_form import Definition, require_whole_characters
from divebook.workflow.table import Key, require_numbers

CALL_TIMEOUT = 300.0
MEMORY, FILE, KEYCHAIN = TOKEN_STORES = ("memory", "file", "keychain")
_NO_PARAMETERS = "the MCP library builds the request for a token itself; nothing can be added to it"


def _refused(message: str, key: str, hint: str) -> DefinitionError:
    return DefinitionError([Problem(message, key=key, hint=hint)])


@dataclass(frozen=True, slots=True)
class TokenStoreDefinition(Definition):
    """Where OAuth tokens are kept: ``memory`` or ``file``."""

    type: Annotated[
        str | None,
        Key(
            "`memory` or `file`.",
            kind=kinds.Text(choices=TOKEN_STORES, complaint="unsupported type of token store: {}"),
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
    """How to obtain a token for an MCP server."""

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
    """Tools that always, or never, ask before they run."""

    always: Annotated[tuple[str, ...], Key("Tools that always ask.", example="[delete_file]")] = ()
    never: Annotated[tuple[str, ...], Key("Tools that never ask.", example="[read_file]")] = ()


@dataclass(frozen=True, slots=True)
class ToolConfigurationDefinition(Definition):
    """Which tools of an MCP server may be used, and when they ask."""

    enabled: Annotated[bool, Key("Whether its tools may be used.")] = True
    allowed_tools: Annotated[tuple[str, ...], Key("Those that may be used; all if empty.", example="[read_file]")] = ()
    approval_mode: Annotated[
        str | None,
        Key(
            "When a person is asked.",
            kind=kinds.Text(choices=CONFIRMATION_MODES, complaint="invalid approval mode: {}"),
            example="if-destructive",
        ),
    ] = None
    approval_filter: Annotated[ApprovalFilterDefinition | None, Key("Which tools ask.")] = None


@dataclass(frozen=True, slots=True)
class MCPServerDefinition(Definition):
    """An MCP server: a program to start (``stdio``) or an address (``http``).

    ``divebook keys MCPServer`` says what each of its fields means.

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
            kind=kinds.ResponseTimeout(SOME_SECONDS),
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
        if "*" in self.name:  # its rules are made of its name, and in a rule that stands for any characters
            message = f"{self.name!r} cannot be the name of an mcp server: what is said of it would hold for others"
            raise _refused(message, "Name", "leave out the *")

    def allows(self, tool: str) -> bool:
        """Whether a tool of it may be used."""
        given = self.tool_configuration
        return given is None or (given.enabled and (not given.allowed_tools or tool in given.allowed_tools))

    def _in_rules(self, tool: str) -> str:
        """Return a tool as rules name it: in front of a ``/`` stands a server."""
        return f"{self.name}/{tool}" if "/" in tool else tool

    @property
    def approvals(self) -> Approvals:
        """What it says of approvals, as a table."""
        given = self.tool_configuration or ToolConfigurationDefinition()
        listed = given.approval_filter or ApprovalFilterDefinition()
        rules = [ApprovalRule(self._in_rules(tool), server=self.name, outcome=ASK) for tool in listed.always]
        rules += [ApprovalRule(self._in_rules(tool), server=self.name, outcome=ALLOW) for tool in listed.never]
        return Approvals(tuple(rules), servers={self.name: given.approval_mode} if given.approval_mode else {})
