"""Definitions of agents, tools, documents, triggers and schedules, and settings of the environment.

Each class is a table of keys: the `Key` of a field describes the key for the reference (``divebook keys``) and for
error messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from divebook.errors import DefinitionError, Problem
from divebook.text import ranges
from divebook.workflow import table
from divebook.workflow.answer_types import declared_answer
from divebook.workflow.dialect import OWN, Dialect
from divebook.workflow.servers import CONFIRMATION_MODES, ApprovalRule
from divebook.workflow.step import ContentEntry, Retry
from divebook.workflow.stored_form import Definition, json_value, require_whole_characters
from divebook.workflow.table import Key, require_numbers

DEFAULT_RESPONSE_TIMEOUT = 600.0
DEFAULT_TOOL_ITERATIONS = 16
DEFAULT_CORRECTIONS = 1
TOOL_CHOICES = ("auto", "any", "tool", "none")
LOG_LEVELS = ("debug", "info", "warn", "error")
DURABILITIES = ("full", "relaxed")
RECOVERIES = ("ask", "auto", "off")
NOTEBOOK_DATA = ("on", "off")
_NO_FEATURES = "no feature of a provider can be named; say it in RequestHeaders if the provider takes a header"
_NO_CACHING = "what a provider caches is its own choice"
_TRIMMED = table.Text(trimmed=True)
_BY_NAME = "it is known by its Name"
_BY_TRIGGER = "a trigger is fired by its Name: environment.fire(name)"


@dataclass(frozen=True, slots=True)
class ModelSettings(Definition):
    """Settings for requests to the model of an agent. None means the default of the provider."""

    temperature: Annotated[float | None, Key("How freely words are chosen.", example="0.2")] = None
    presence_penalty: Annotated[float | None, Key("How much new subjects are preferred.", example="0.5")] = None
    frequency_penalty: Annotated[float | None, Key("How much repeated words are avoided.", example="0.5")] = None
    reasoning_budget: Annotated[int | None, Key("Tokens for thinking.", ignored="write ReasoningEffort")] = None
    reasoning_effort: Annotated[
        str | None, Key("How much it thinks, in the words of its provider.", example="high")
    ] = None
    max_tokens: Annotated[
        int | None, Key("The most tokens of an answer.", kind=table.Number(ranges.COUNT), example="4096")
    ] = None
    tool_choice: Annotated[
        Mapping[str, Any] | None,
        Key(
            "Which tool it must call first: `{type: tool, name: search}`, or type `any`, `auto` or `none`.",
            example="{Mode: auto}",
        ),
    ] = None
    parallel_tool_calls: Annotated[bool | None, Key("Whether it may call several tools at once.")] = None
    features: Annotated[tuple[str, ...], Key("Features to switch on.", ignored=_NO_FEATURES)] = ()
    request_headers: Annotated[
        Mapping[str, Sequence[str]], Key("HTTP headers of each request.", example="{X-Team: docs}")
    ] = field(default_factory=dict)
    caching: Annotated[bool | None, Key("Whether prompts are cached.", ignored=_NO_CACHING)] = None

    def __post_init__(self) -> None:
        require_numbers(self)
        require_whole_characters(self)
        choice = self.tool_choice
        if choice is None:
            return
        hint = "write {type: auto}, {type: any}, {type: none} or {type: tool, name: search}"
        if choice.get("type") not in TOOL_CHOICES or not choice.keys() <= {"type", "name"}:
            raise DefinitionError([Problem(f"ToolChoice cannot be {dict(choice)}", key="tool_choice", hint=hint)])
        if (choice["type"] == "tool") is not bool(choice.get("name")):
            message = "ToolChoice names a tool with the type tool, and only then"
            raise DefinitionError([Problem(message, key="tool_choice", hint=hint)])


@dataclass(frozen=True, slots=True)
class ProviderSettings(Definition):
    """Settings for all agents of one provider. The settings of an agent have priority."""

    name: Annotated[
        str, Key("The provider that these settings are for.", required="provider name is required", example="openai")
    ]
    caching: Annotated[bool | None, Key("Whether it caches prompts.", ignored=_NO_CACHING)] = None
    features: Annotated[tuple[str, ...], Key("Features to switch on.", ignored=_NO_FEATURES)] = ()
    request_headers: Annotated[
        Mapping[str, Sequence[str]],
        Key("HTTP headers of each request; those of an agent are added.", example="{X-Team: docs}"),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config(Definition):
    """Settings of a whole environment. An empty string means that the setting is not set."""

    names = ("default_workflow",)
    default_provider: Annotated[str, Key("The provider of agents that name none.", example="anthropic")] = ""
    default_model: Annotated[str, Key("The model of agents that name none.", example="claude-sonnet-5-5")] = ""
    default_workflow: Annotated[str, Key("The workflow of a run that names none.", example="audit")] = ""
    confirmation_mode: Annotated[
        str,
        Key(
            "Which tools ask before they run.",
            kind=table.Text(choices=CONFIRMATION_MODES, complaint="invalid confirmation mode: {}"),
            example="if-destructive",
        ),
    ] = ""
    approvals: Annotated[
        tuple[ApprovalRule, ...],
        Key("Rules for calls of tools; of those that match the strictest holds.", extension=True),
    ] = ()
    log_level: Annotated[
        str,
        Key(
            "How much is logged.",
            kind=table.Text(choices=LOG_LEVELS, complaint="invalid log level: {}"),
            ignored="the log of an execution has all; set the level of Python's own logging",
        ),
    ] = ""
    durability: Annotated[
        str,
        Key(
            "Whether each event is safe on disk at once (full), or soon after (relaxed).",
            kind=table.Text(choices=DURABILITIES, complaint="invalid durability: {}"),
        ),
    ] = ""
    recover: Annotated[
        str,
        Key(
            "What happens to executions whose process has died, when a notebook loads.",
            kind=table.Text(choices=RECOVERIES, complaint="invalid way to recover: {}"),
            example="auto",
        ),
    ] = ""
    notebook_data: Annotated[
        str,
        Key(
            "Whether outputs in notebooks carry the data of their run.",
            kind=table.Text(choices=NOTEBOOK_DATA, complaint="invalid setting for notebook data: {}"),
        ),
    ] = ""
    providers: Annotated[tuple[ProviderSettings, ...], Key("Settings for all agents of one provider.")] = ()


@dataclass(frozen=True, slots=True)
class AgentDefinition(Definition):
    """Definition of an agent: a model with a role, instructions and tools.

    Examples
    --------
    >>> AgentDefinition("editor", goal="Clear texts", model="openai:gpt-5-mini").tool_iteration_limit
    16
    """

    names = ("name",)

    name: Annotated[str, Key("The name that steps use.", kind=_TRIMMED, example="editor")]
    goal: Annotated[
        str,
        Key(
            "What it is to achieve; part of its instructions.", kind=_TRIMMED, example="You make texts short and clear."
        ),
    ] = ""
    instructions: Annotated[
        str, Key("Its instructions, sent before each prompt.", kind=_TRIMMED, example="Keep quotations as they are.")
    ] = ""
    is_supervisor: Annotated[
        bool, Key("Whether it answers prompts that name no agent, and may give work to others.")
    ] = False
    subordinates: Annotated[
        tuple[str, ...],
        Key("Agents it may give work to; by default all others, if it is the only supervisor.", example="[researcher]"),
    ] = ()
    provider: Annotated[str | None, Key("The service that runs its model.", example="anthropic")] = None
    model: Annotated[
        str | None,
        Key(
            "Its model: `provider:model`, a name of its provider, or `scripted` (offline).",
            example="anthropic:claude-sonnet-5-5",
        ),
    ] = None
    tools: Annotated[tuple[str, ...], Key("Tools it may call.", example="[read_file, fetch]")] = ()
    tool_config: Annotated[
        Mapping[str, Any],
        Key("Options of its tools, by name; they win over a tool's Parameters.", example="{read_file: {}}"),
    ] = field(default_factory=dict)
    servers: Annotated[
        tuple[str, ...],
        Key("MCP servers whose tools it may all call; Tools names single ones.", extension=True, example="[files]"),
    ] = ()
    workspace: Annotated[
        str | None,
        Key(
            "The workspace whose files and shell it may use. It has all tools for that, or those that Tools names.",
            extension=True,
            example="app",
        ),
    ] = None
    response_timeout: Annotated[
        float, Key("How long one request may take.", kind=table.ResponseTimeout(), example="90s")
    ] = DEFAULT_RESPONSE_TIMEOUT
    """Time limit of one request to the model in seconds."""
    retry: Annotated[
        Retry | None,
        Key("How requests are tried again; by default 3 attempts after 429, 5xx and lost connections.", extension=True),
    ] = None
    tool_iteration_limit: Annotated[
        int,
        Key("How often it may call tools for one prompt.", kind=table.Number(ranges.COUNT_OR_ZERO), example="30"),
    ] = DEFAULT_TOOL_ITERATIONS
    corrections: Annotated[
        int,
        Key(
            "How often its model may correct a call of a tool, or an answer, that does not have the expected form.",
            kind=table.Number(ranges.COUNT_OR_ZERO),
            extension=True,
            example="3",
        ),
    ] = DEFAULT_CORRECTIONS
    date_awareness: Annotated[bool, Key("Whether its instructions hold today's date.")] = True
    system_prompt: Annotated[
        str | None, Key("Its whole instructions, as a template over `agent`.", example="You are an editor.")
    ] = None
    model_settings: Annotated[ModelSettings | None, Key("Settings of its model.")] = None
    context: Annotated[tuple[ContentEntry, ...], Key("What every prompt begins with.")] = ()
    approvals: Annotated[tuple[ApprovalRule, ...], Key("Rules for its calls of tools.", extension=True)] = ()
    cache: Annotated[
        float | str | None,
        Key(
            "How long its model's responses are used again, in any run, for the same request: `7d`.",
            kind=table.Anything(),
            extension=True,
            example="true",
        ),
    ] = None
    script: Annotated[
        Any,
        Key(
            "What it answers while its model is `scripted`: a list of replies, `turns` with a list for each, a file.",
            kind=table.Anything(),
            extension=True,
            example="[First answer, Second answer]",
        ),
    ] = None
    output: Annotated[
        Any,
        Key(
            "What it answers with, in place of text: a JSON schema, or the name of an allowed class.",
            extension=True,
            example="{type: object, properties: {score: {type: integer}}}",
        ),
    ] = None
    api_key: Annotated[
        str | None,
        Key(
            "Where the key of its provider is: `env://NAME` or `file://PATH`; looked up at each call.",
            extension=True,
            example="env://EDITOR_KEY",
        ),
    ] = None
    bounds: Annotated[
        Mapping[str, Any] | None,
        Key(
            "What it may spend for one prompt: MaxCost, MaxTokens, MaxLLMCalls, OnExhausted.",
            extension=True,
            example="{MaxLLMCalls: 20}",
        ),
    ] = None
    dialect: Dialect = OWN
    """Dialect of the definition. An agent of the legacy dialect may name missing tools, which it then does not have."""

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        if "*" in self.name:  # approval rules contain the name, in which ``*`` would match any characters
            message = f"{self.name!r} cannot be the name of an agent: what is said of it would hold for others"
            raise DefinitionError([Problem(message, key="Name", hint="leave out the *")])
        require_numbers(self)
        require_whole_characters(self)
        self._put(output=declared_answer(self.output))


@dataclass(frozen=True, slots=True)
class ToolDefinition(Definition):
    """Options and limits of a tool, which apply to all agents that use it."""

    name: Annotated[str, Key("Its name.", required="tool name is required", example="read_file")]
    enabled: Annotated[bool, Key("Whether it may be used.")] = True
    parameters: Annotated[
        Mapping[str, Any],
        Key(
            "Its options; of a function made with `@tool`, arguments that no model gives. `env://NAME` is looked up.",
            example="{folder: docs}",
        ),
    ] = field(default_factory=dict)
    approval: Annotated[bool, Key("Whether a person must approve every call first.", extension=True)] = False
    timeout: Annotated[
        float | None,
        Key("Seconds that a call may take.", kind=table.Number(ranges.SOME_SECONDS), extension=True, example="60"),
    ] = None
    retry: Annotated[Retry | None, Key("How a call that failed is made again.", extension=True)] = None
    limit: Annotated[
        int | None,
        Key(
            "How often it may be called for one prompt.",
            kind=table.Number(ranges.COUNT),
            extension=True,
            example="5",
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        Key("How many of its calls may run at once.", kind=table.Number(ranges.COUNT), extension=True, example="2"),
    ] = None
    most: Annotated[
        int | None,
        Key(
            "Characters of a result that the model gets, head and tail; the log has the whole.",
            kind=table.Number(ranges.CHARACTERS),
            extension=True,
            example="4000",
        ),
    ] = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        require_numbers(self)
        require_whole_characters(self)


@dataclass(frozen=True, slots=True)
class DocumentDefinition(Definition):
    """Definition of a document: a name under which steps can use a file."""

    name: Annotated[str, Key("The name that steps use.", required="document name is required", example="style-guide")]
    id: Annotated[str | None, Key("Another name.", ignored=_BY_NAME)] = None
    description: Annotated[str, Key("A description for people.", example="How we write")] = ""
    path: Annotated[str | None, Key("The file.", example="guides/style.md")] = None
    content: Annotated[
        str | None,
        Key("Its text.", ignored="write it into a file, and the file's Path here"),
    ] = None
    content_type: Annotated[str | None, Key("Its media type.", ignored="the ending of its Path tells the type")] = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        require_whole_characters(self)


@dataclass(frozen=True, slots=True)
class TriggerDefinition(Definition):
    """Definition of a trigger: a name under which a workflow can be started."""

    name: Annotated[str, Key("The name it is fired by.", example="nightly")]
    type: Annotated[str | None, Key("What fires it.", ignored=_BY_TRIGGER)] = None
    config: Annotated[Mapping[str, Any], Key("More about what fires it.", ignored=_BY_TRIGGER)] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        require_whole_characters(self)


@dataclass(frozen=True, slots=True)
class ScheduleDefinition(Definition):
    """Definition of a schedule: the times at which a workflow is started.

    ``divebook keys Schedule`` describes each field.
    """

    names = ("name", "workflow")

    name: Annotated[
        str, Key("Its name; part of the key of each start.", required="schedule name is required", example="nightly")
    ]
    cron: Annotated[
        str | None, Key("When, in five fields: minute, hour, day of month, month, day of week.", example="'0 3 * * *'")
    ] = None
    workflow: Annotated[str | None, Key("What is started.", example="audit")] = None
    enabled: Annotated[bool, Key("Whether it is active.")] = True
    zone: Annotated[
        str | None,
        Key(
            "The time zone of its Cron, a name of the tz database; by default the machine's. A time that the clock "
            "shows twice is due the first time, one that it skips when it is moved.",
            extension=True,
            example="Europe/Berlin",
        ),
    ] = None
    inputs: Annotated[
        Mapping[str, Any],
        Key(
            "What the workflow is given; `schedule.due` is the due time as text in ISO 8601, `schedule.name` the name.",
            extension=True,
            example="{day: '${schedule.due[:10]}'}",
        ),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        self._put(inputs=json_value(self.inputs, "inputs"))
        require_whole_characters(self)
