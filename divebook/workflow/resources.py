"""What a definition file declares besides workflows: agents, tools, documents, servers, schedules and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from divebook.workflow.content import ContentEntry
from divebook.workflow.policies import Retry
from divebook.workflow.record import Record, many, one

DEFAULT_RESPONSE_TIMEOUT = 600.0
DEFAULT_TOOL_ITERATIONS = 16
CONFIRMATION_MODES = ("always", "if-not-read-only", "if-destructive", "never")
LOG_LEVELS = ("debug", "info", "warn", "error")
DURABILITIES = ("full", "relaxed")
RECOVERIES = ("ask", "auto", "off")
NOTEBOOK_DATA = ("on", "off")


@dataclass(frozen=True, slots=True)
class ModelSettings(Record):
    """How an agent's model is to answer; None leaves it to the provider."""

    temperature: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    reasoning_budget: int | None = None
    reasoning_effort: str | None = None
    max_tokens: int | None = None
    tool_choice: Mapping[str, Any] | None = None
    """``{"type": "auto" | "any" | "tool" | "none", "name": ...}``"""
    parallel_tool_calls: bool | None = None
    features: tuple[str, ...] = ()
    request_headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    caching: bool | None = None


@dataclass(frozen=True, slots=True)
class ProviderSettings(Record):
    """What holds for every agent of one provider; an agent's own settings win."""

    name: str
    caching: bool | None = None
    features: tuple[str, ...] = ()
    request_headers: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config(Record):
    """Settings that hold for a whole environment; an empty text means that nothing was said."""

    default_provider: str = ""
    default_model: str = ""
    default_workflow: str = ""
    confirmation_mode: str = ""
    log_level: str = ""
    durability: str = ""
    """``full`` or ``relaxed``: how the logs of executions are written."""
    recover: str = ""
    """What becomes of executions that a dead process left, as definitions are loaded: ``ask``, ``auto`` or ``off``."""
    notebook_data: str = ""
    """Whether outputs of notebooks carry the data of their run, to be stepped through anywhere: ``on`` or ``off``."""
    providers: tuple[ProviderSettings, ...] = many(ProviderSettings)


@dataclass(frozen=True, slots=True)
class AgentDefinition(Record):
    """A model with a role, instructions and tools.

    Examples
    --------
    >>> AgentDefinition("editor", goal="Clear texts", model="openai:gpt-5-mini").tool_iteration_limit
    16
    """

    name: str
    goal: str = ""
    instructions: str = ""
    is_supervisor: bool = False
    subordinates: tuple[str, ...] = ()
    provider: str | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()
    tool_config: Mapping[str, Any] = field(default_factory=dict)
    response_timeout: float = DEFAULT_RESPONSE_TIMEOUT
    """Seconds that one request to the model may take."""
    retry: Retry | None = one(Retry)
    """How requests to the model are tried again."""
    tool_iteration_limit: int = DEFAULT_TOOL_ITERATIONS
    date_awareness: bool = True
    system_prompt: str | None = None
    model_settings: ModelSettings | None = one(ModelSettings)
    context: tuple[ContentEntry, ...] = many(ContentEntry)


@dataclass(frozen=True, slots=True)
class ToolDefinition(Record):
    """A tool with its options."""

    name: str
    enabled: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DocumentDefinition(Record):
    """A document that steps can name."""

    name: str
    id: str | None = None
    description: str = ""
    path: str | None = None
    content: str | None = None
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class TriggerDefinition(Record):
    """What may start workflows."""

    name: str
    type: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScheduleDefinition(Record):
    """When to start a workflow."""

    name: str
    cron: str | None = None
    workflow: str | None = None
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class TokenStoreDefinition(Record):
    """Where OAuth tokens are kept: ``memory``, ``file`` or ``keychain``."""

    type: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class OAuthDefinition(Record):
    """How to obtain a token for an MCP server."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    redirect_uri: str | None = None
    scopes: tuple[str, ...] = ()
    pkce_enabled: bool | None = None
    token_store: TokenStoreDefinition | None = one(TokenStoreDefinition)
    extra_params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApprovalFilterDefinition(Record):
    """Tools that always, or never, ask before they run."""

    always: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolConfigurationDefinition(Record):
    """Which tools of an MCP server may be used, and when they ask."""

    enabled: bool = True
    allowed_tools: tuple[str, ...] = ()
    """Empty allows all."""
    approval_mode: str | None = None
    approval_filter: ApprovalFilterDefinition | None = one(ApprovalFilterDefinition)


@dataclass(frozen=True, slots=True)
class MCPServerDefinition(Record):
    """An MCP server: a program to start (``stdio``) or an address (``http``)."""

    name: str
    type: str = ""
    command: str | None = None
    url: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    authorization_token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthDefinition | None = one(OAuthDefinition)
    tool_configuration: ToolConfigurationDefinition | None = one(ToolConfigurationDefinition)
