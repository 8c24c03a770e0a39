"""What a definition file declares of MCP servers: how each is reached, and which of its tools may be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from divebook.workflow.stored_form import Definition
from divebook.workflow.table import Key


@dataclass(frozen=True, slots=True)
class TokenStoreDefinition(Definition):
    """Where OAuth tokens are kept: ``memory``, ``file`` or ``keychain``."""

    type: Annotated[str | None, Key("`memory`, `file` or `keychain`.")] = None
    path: Annotated[str | None, Key("The file.")] = None


@dataclass(frozen=True, slots=True)
class OAuthDefinition(Definition):
    """How to obtain a token for an MCP server."""

    client_id: Annotated[str | None, Key("The id of the OAuth client.")] = None
    client_secret: Annotated[str | None, Key("The secret of the OAuth client.")] = field(default=None, repr=False)
    redirect_uri: Annotated[str | None, Key("The address that the browser is sent back to.")] = None
    scopes: Annotated[tuple[str, ...], Key("The permissions that are asked for.")] = ()
    pkce_enabled: Annotated[bool | None, Key("Whether the exchange is protected by PKCE.")] = None
    token_store: Annotated[TokenStoreDefinition | None, Key("Where tokens are kept.")] = None
    extra_params: Annotated[Mapping[str, str], Key("More parameters.")] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApprovalFilterDefinition(Definition):
    """Tools that always, or never, ask before they run."""

    always: Annotated[tuple[str, ...], Key("Tools that always ask.")] = ()
    never: Annotated[tuple[str, ...], Key("Tools that never ask.")] = ()


@dataclass(frozen=True, slots=True)
class ToolConfigurationDefinition(Definition):
    """Which tools of an MCP server may be used, and when they ask."""

    enabled: Annotated[bool, Key("Whether its tools may be used.")] = True
    allowed_tools: Annotated[tuple[str, ...], Key("Those that may be used; all if empty.")] = ()
    approval_mode: Annotated[str | None, Key("When a person is asked.")] = None
    approval_filter: Annotated[ApprovalFilterDefinition | None, Key("Which tools ask.")] = None


@dataclass(frozen=True, slots=True)
class MCPServerDefinition(Definition):
    """An MCP server: a program to start (``stdio``) or an address (``http``)."""

    name: Annotated[str, Key("Its name.", required="mcp server name is required")]
    type: Annotated[str, Key("`stdio` or `http`.")] = ""
    command: Annotated[str | None, Key("The program to start.")] = None
    url: Annotated[str | None, Key("Its address.")] = None
    args: Annotated[tuple[str, ...], Key("Arguments of the program.")] = ()
    env: Annotated[Mapping[str, str], Key("Variables of the program.")] = field(default_factory=dict)
    authorization_token: Annotated[str | None, Key("A token that each request carries.")] = field(
        default=None, repr=False
    )
    headers: Annotated[Mapping[str, str], Key("HTTP headers of each request.")] = field(
        default_factory=dict, repr=False
    )
    oauth: Annotated[OAuthDefinition | None, Key("How to get a token.")] = None
    tool_configuration: Annotated[ToolConfigurationDefinition | None, Key("Which of its tools may be used.")] = None
