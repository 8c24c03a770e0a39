"""Definitions of agents, tools, documents, schedules, workspaces and approval rules, and settings of the environment.

Each class is a table of keys: the `Key` of a field describes the key for the reference (``divebook keys``) and for
error messages. All classes are data. `divebook.workspaces` creates workspaces, and `divebook.engine.approvals` applies
the approval rules to calls of tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from divebook import plugins
from divebook.definitions import table
from divebook.definitions.answer_types import declared_answer
from divebook.definitions.cron import require_cron, zone_called
from divebook.definitions.dialect import OWN, Dialect
from divebook.definitions.step import ContentEntry, Retry
from divebook.definitions.stored_form import Definition, json_value, require_text, require_whole_characters
from divebook.definitions.table import Key, require_numbers
from divebook.errors import DefinitionError, Problem, did_you_mean
from divebook.events.event import to_microseconds
from divebook.text import ranges
from divebook.text.format import parse_size

if TYPE_CHECKING:
    from divebook.text.arguments import DurationLike

DEFAULT_RESPONSE_TIMEOUT = 600.0
DEFAULT_TOOL_ITERATIONS = 16
DEFAULT_CORRECTIONS = 1
TOOL_CHOICES = ("auto", "any", "tool", "none")
LOG_LEVELS = ("debug", "info", "warn", "error")
DURABILITIES = ("full", "relaxed")
RECOVERIES = ("ask", "auto", "off")
NOTEBOOK_DATA = ("on", "off")
_NO_FEATURES = (
    "divebook cannot enable features of a provider; if a feature has an HTTP header, add it to RequestHeaders"
)
_NO_CACHING = "the provider decides what it caches"
_TRIMMED = table.Text(trimmed=True)
_BY_NAME = "a document is identified by its Name"
_BY_TRIGGER = "a trigger is fired by its Name: environment.schedules.fire(name)"


@dataclass(frozen=True, slots=True)
class AgentDefinition(Definition):
    """Definition of an agent: a model with a role, instructions and tools.

    Examples
    --------
    >>> AgentDefinition("editor", goal="Clear texts", model="openai:gpt-5-mini").tool_iteration_limit
    16
    """

    names = ("name",)

    name: Annotated[str, Key("Name that steps use.", kind=_TRIMMED, example="editor")]
    goal: Annotated[
        str,
        Key(
            "Goal of the agent. It is part of the instructions.",
            kind=_TRIMMED,
            example="You make texts short and clear.",
        ),
    ] = ""
    instructions: Annotated[
        str,
        Key(
            "Instructions of the agent. They are sent before each prompt.",
            kind=_TRIMMED,
            example="Keep quotations as they are.",
        ),
    ] = ""
    is_supervisor: Annotated[
        bool, Key("Let the agent answer prompts that do not name an agent, and delegate work to other agents.")
    ] = False
    subordinates: Annotated[
        tuple[str, ...] | None,
        Key(
            "Agents to which the agent may delegate work; `[]` for none. Default: all other agents, if it is the only "
            "supervisor.",
            kind=table.OptionalTexts(),
            example="[researcher]",
        ),
    ] = None
    provider: Annotated[str | None, Key("Provider of the model.", example="anthropic")] = None
    model: Annotated[
        str | None,
        Key(
            "Model of the agent: `provider:model`, a model name of the `Provider`, or `scripted` (offline).",
            example="anthropic:claude-sonnet-5-5",
        ),
    ] = None
    tools: Annotated[tuple[str, ...], Key("Tools that the agent may call.", example="[read_file, fetch]")] = ()
    tool_config: Annotated[
        Mapping[str, Any],
        Key(
            "Options of the agent's tools, by name of the tool. They override the `Parameters` of the tool.",
            example="{read_file: {}}",
        ),
    ] = field(default_factory=dict)
    servers: Annotated[
        tuple[str, ...],
        Key(
            "MCP servers of which the agent may call all tools. To allow single tools, list them in `Tools`.",
            extension=True,
            example="[files]",
        ),
    ] = ()
    workspace: Annotated[
        str | None,
        Key(
            "Workspace whose files and shell the agent may use. The agent has all tools for workspaces, or only those "
            "that are listed in `Tools`.",
            extension=True,
            example="app",
        ),
    ] = None
    response_timeout: Annotated[
        float,
        Key("Time limit of one request to the model.", kind=table.Duration(ranges.SOME_SECONDS), example="90s"),
    ] = DEFAULT_RESPONSE_TIMEOUT
    """Time limit of one request to the model in seconds."""
    retry: Annotated[
        Retry | None,
        Key(
            "Retry policy for requests to the model. Default: 3 attempts, after status 429 or 5xx and after a lost "
            "connection.",
            extension=True,
        ),
    ] = None
    tool_iteration_limit: Annotated[
        int,
        Key(
            "Maximum number of rounds of tool calls for one prompt.",
            kind=table.Number(ranges.COUNT_OR_ZERO),
            example="30",
        ),
    ] = DEFAULT_TOOL_ITERATIONS
    corrections: Annotated[
        int,
        Key(
            "Maximum number of times the model may correct a tool call or an answer that does not have the expected "
            "form.",
            kind=table.Number(ranges.COUNT_OR_ZERO),
            extension=True,
            example="3",
        ),
    ] = DEFAULT_CORRECTIONS
    date_awareness: Annotated[bool, Key("Add the date on which the run started to the instructions.")] = True
    system_prompt: Annotated[
        str | None,
        Key(
            "System prompt in place of name, goal and instructions: a template with the variable `agent`.",
            example="You are an editor.",
        ),
    ] = None
    model_settings: Annotated[ModelSettings | None, Key("Settings of the model.")] = None
    context: Annotated[tuple[ContentEntry, ...], Key("Content that precedes every prompt.")] = ()
    approvals: Annotated[
        tuple[ApprovalRule, ...], Key("Approval rules for the tool calls of the agent.", extension=True)
    ] = ()
    cache: Annotated[
        float | str | None,
        Key(
            "Time for which a response of the model is reused for the same request, in all runs, such as `7d`. "
            "Default: no reuse.",
            kind=table.Anything(),
            extension=True,
            example="7d",
        ),
    ] = None
    script: Annotated[
        Any,
        Key(
            "Replies of the agent if its model is `scripted`: a list of replies, a mapping with `turns` (a list of "
            "replies for each turn), or the path of a file.",
            kind=table.Anything(),
            extension=True,
            example="[First answer, Second answer]",
        ),
    ] = None
    output: Annotated[
        Any,
        Key(
            "Type of the answers, in place of text: a JSON schema, or the name of an allowed class.",
            extension=True,
            example="{type: object, properties: {score: {type: integer}}}",
        ),
    ] = None
    api_key: Annotated[
        str | None,
        Key(
            "Location of the provider's API key: `env://NAME` or `file://PATH`. The key is read at each call.",
            extension=True,
            example="env://EDITOR_KEY",
        ),
    ] = None
    bounds: Annotated[
        Mapping[str, Any] | None,
        Key(
            "Budget for one prompt: `MaxCost`, `MaxTokens`, `MaxLLMCalls` and `OnExhausted`.",
            extension=True,
            example="{MaxLLMCalls: 20}",
        ),
    ] = None
    dialect: Dialect = OWN
    """Dialect of the definition. An agent of the legacy dialect may name tools that do not exist; it then runs without
    these tools.
    """

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        if "*" in self.name:  # approval rules contain the name, in which ``*`` would match any characters
            message = f"{self.name!r} cannot be the name of an agent: in approval rules, * would match other agents too"
            raise DefinitionError([Problem(message, key="Name", hint="remove the *")])
        # In a file the table of keys has checked the numbers. These checks are for definitions in Python.
        require_numbers(self)
        require_whole_characters(self)
        if self.output is not None:
            self._put(output=declared_answer(self.output))


@dataclass(frozen=True, slots=True)
class ModelSettings(Definition):
    """Settings for requests to the model of an agent. None means the default of the provider."""

    temperature: Annotated[
        float | None, Key("Sampling temperature: higher values give more varied answers.", example="0.2")
    ] = None
    presence_penalty: Annotated[
        float | None,
        Key("Penalty for tokens that already occur in the text. Higher values favour new topics.", example="0.5"),
    ] = None
    frequency_penalty: Annotated[
        float | None, Key("Penalty for frequent tokens. Higher values avoid repetition.", example="0.5")
    ] = None
    reasoning_budget: Annotated[int | None, Key("Number of tokens for reasoning.", ignored="use ReasoningEffort")] = (
        None
    )
    reasoning_effort: Annotated[
        str | None, Key("Amount of reasoning, in the terms of the provider, such as `high`.", example="high")
    ] = None
    max_tokens: Annotated[
        int | None, Key("Maximum number of tokens of an answer.", kind=table.Number(ranges.COUNT), example="4096")
    ] = None
    tool_choice: Annotated[
        Mapping[str, Any] | None,
        Key(
            "Choice of the first tool call. `{type: tool, name: search}`: the model must call this tool. `any`: it "
            "must call a tool. `auto`: it decides. `none`: it may not call tools at all.",
            example="{type: auto}",
        ),
    ] = None
    parallel_tool_calls: Annotated[bool | None, Key("Allow several tool calls in one response.")] = None
    features: Annotated[tuple[str, ...], Key("Features to enable.", ignored=_NO_FEATURES)] = ()
    request_headers: Annotated[
        Mapping[str, Sequence[str]], Key("HTTP headers of each request.", example="{X-Team: docs}")
    ] = field(default_factory=dict)
    caching: Annotated[bool | None, Key("Cache prompts.", ignored=_NO_CACHING)] = None

    def __post_init__(self) -> None:
        require_numbers(self)
        require_whole_characters(self)
        choice = self.tool_choice
        if choice is None:
            return
        hint = "write {type: auto}, {type: any}, {type: none} or {type: tool, name: search}"
        if choice.get("type") not in TOOL_CHOICES or not choice.keys() <= {"type", "name"}:
            raise DefinitionError([Problem(f"ToolChoice cannot be {dict(choice)}", key="tool_choice", hint=hint)])
        # The name must be present with the type ``tool``, and absent with all others.
        if (choice["type"] == "tool") is not bool(choice.get("name")):
            message = "ToolChoice must have a name with the type tool, and no name with other types"
            raise DefinitionError([Problem(message, key="tool_choice", hint=hint)])


@dataclass(frozen=True, slots=True)
class ProviderSettings(Definition):
    """Settings that apply to all agents whose model belongs to one provider. Settings of a single agent have
    priority.
    """

    name: Annotated[
        str, Key("Provider to which these settings apply.", required="provider name is required", example="openai")
    ]
    caching: Annotated[bool | None, Key("Cache prompts.", ignored=_NO_CACHING)] = None
    features: Annotated[tuple[str, ...], Key("Features to enable.", ignored=_NO_FEATURES)] = ()
    request_headers: Annotated[
        Mapping[str, Sequence[str]],
        Key("HTTP headers of each request, in addition to those of the agent.", example="{X-Team: docs}"),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config(Definition):
    """Settings of a whole environment. An empty string means that the setting is not set."""

    names = ("default_workflow",)
    default_provider: Annotated[str, Key("Provider of agents that do not name one.", example="anthropic")] = ""
    default_model: Annotated[str, Key("Model of agents that do not name one.", example="claude-sonnet-5-5")] = ""
    default_workflow: Annotated[str, Key("Workflow to run if none is named.", example="audit")] = ""
    confirmation_mode: Annotated[
        str,
        Key(
            "Tool calls that need the approval of a person, if no approval rule matches.",
            kind=table.Text(choices=CONFIRMATION_MODES, complaint="invalid confirmation mode: {}"),
            example="if-destructive",
        ),
    ] = ""
    approvals: Annotated[
        tuple[ApprovalRule, ...],
        Key("Approval rules for tool calls. If several rules match a call, the strictest one applies.", extension=True),
    ] = ()
    log_level: Annotated[
        str,
        Key(
            "Amount of logging.",
            kind=table.Text(choices=LOG_LEVELS, complaint="invalid log level: {}"),
            ignored="the log of an execution contains all events; set the level in Python's logging module",
        ),
    ] = ""
    durability: Annotated[
        str,
        Key(
            "`full`: every event survives a power failure. `relaxed`: faster, but a power failure may lose the latest "
            "events.",
            kind=table.Text(choices=DURABILITIES, complaint="invalid durability: {}"),
        ),
    ] = ""
    recover: Annotated[
        str,
        Key(
            "Treatment of interrupted runs, whose process has died, when a notebook loads divebook. `ask`: print how "
            "to resume them. `auto`: resume them. `off`: do nothing.",
            kind=table.Text(choices=RECOVERIES, complaint="invalid way to recover: {}"),
            example="auto",
        ),
    ] = ""
    notebook_data: Annotated[
        str,
        Key(
            "`on`: save the data of each run in the output of its cell, so that the notebook can replay the run. "
            "`off`: save text and HTML only.",
            kind=table.Text(choices=NOTEBOOK_DATA, complaint="invalid setting for notebook data: {}"),
        ),
    ] = ""
    providers: Annotated[tuple[ProviderSettings, ...], Key("Settings for all agents of one provider.")] = ()


@dataclass(frozen=True, slots=True)
class ToolDefinition(Definition):
    """Options and limits of a tool, which apply to all agents that use it."""

    name: Annotated[str, Key("Name of the tool.", required="tool name is required", example="read_file")]
    enabled: Annotated[bool, Key("Allow agents to use the tool.")] = True
    parameters: Annotated[
        Mapping[str, Any],
        Key(
            "Options of the tool. For a function with `@tool`: arguments that are fixed here and hidden from the "
            "model. `env://NAME` is replaced by the value of the environment variable.",
            example="{folder: docs}",
        ),
    ] = field(default_factory=dict)
    approval: Annotated[bool, Key("Ask a person for approval before every call.", extension=True)] = False
    timeout: Annotated[
        float | None,
        Key("Time limit of one call.", kind=table.Number(ranges.SOME_SECONDS), extension=True, example="60"),
    ] = None
    retry: Annotated[Retry | None, Key("Retry policy for failed calls.", extension=True)] = None
    limit: Annotated[
        int | None,
        Key(
            "Maximum number of calls for one prompt.",
            kind=table.Number(ranges.COUNT),
            extension=True,
            example="5",
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        Key(
            "Maximum number of calls that run at the same time.",
            kind=table.Number(ranges.COUNT),
            extension=True,
            example="2",
        ),
    ] = None
    most: Annotated[
        int | None,
        Key(
            "Maximum number of characters of a result that the model gets. A longer result is cut in the middle. The "
            "log has the whole result.",
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

    name: Annotated[str, Key("Name that steps use.", required="document name is required", example="style-guide")]
    id: Annotated[str | None, Key("Another name of the document.", ignored=_BY_NAME)] = None
    description: Annotated[str, Key("Description for people.", example="How we write")] = ""
    path: Annotated[str | None, Key("Path of the file.", example="guides/style.md")] = None
    content: Annotated[
        str | None,
        Key("Text of the document.", ignored="write the text to a file, and set Path to the path of the file"),
    ] = None
    content_type: Annotated[
        str | None, Key("Media type of the document.", ignored="the suffix of Path determines the type")
    ] = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        require_whole_characters(self)


@dataclass(frozen=True, slots=True)
class TriggerDefinition(Definition):
    """Definition of a trigger: a name under which a workflow can be started."""

    name: Annotated[str, Key("Name with which the trigger is fired.", example="nightly")]
    type: Annotated[str | None, Key("Type of the event that fires the trigger.", ignored=_BY_TRIGGER)] = None
    config: Annotated[Mapping[str, Any], Key("Settings of the event that fires the trigger.", ignored=_BY_TRIGGER)] = (
        field(default_factory=dict)
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
        str,
        Key(
            "Name of the schedule. It is part of the start key of each run.",
            required="schedule name is required",
            example="nightly",
        ),
    ]
    cron: Annotated[
        str | None,
        Key("Cron expression with five fields: minute, hour, day of month, month, day of week.", example="'0 3 * * *'"),
    ] = None
    workflow: Annotated[str | None, Key("Workflow to start.", example="audit")] = None
    enabled: Annotated[bool, Key("Start the workflow at its due times.")] = True
    zone: Annotated[
        str | None,
        Key(
            "Time zone of `Cron`, a name of the tz database. Default: the zone of the machine. When clocks are "
            "set back, a time that occurs twice is due the first time. When clocks are set forward, a skipped time is "
            "due at the moment of the change.",
            extension=True,
            example="Europe/Berlin",
        ),
    ] = None
    inputs: Annotated[
        Mapping[str, Any],
        Key(
            "Inputs of the workflow. `schedule.due` is the due time as a string in ISO 8601, `schedule.name` the name "
            "of the schedule.",
            extension=True,
            example="{day: '${schedule.due[:10]}'}",
        ),
    ] = field(default_factory=dict)
    dialect: Dialect = OWN
    """Dialect of the definition. Schedules of the legacy dialect are not checked before a worker uses them."""

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        self._put(inputs=json_value(self.inputs, "inputs"))
        require_whole_characters(self)
        if self.dialect == OWN:
            self.require_due_times()

    @property
    def title(self) -> str:
        """Description of the schedule for error messages: the word "schedule" and its name."""
        return f"schedule {self.name!r}"

    def require_due_times(self) -> None:
        """Raise `DefinitionError` unless the schedule has due times: a valid `cron` and `zone`, and a `workflow` to
        start. A schedule that is not enabled may lack them.
        """
        for key, value in (("Cron", self.cron), ("Workflow", self.workflow), ("Zone", self.zone)):
            if value is not None:
                require_text(value, f"{key} of {self.title}", f"write {key.lower()}=...")
            if not value and self.enabled and key != "Zone":
                raise _wrong(f"{self.title} has no {key}", key, f"add {key}, or Enabled: false")
        if self.cron:
            require_cron(self.cron, self.title)
        if self.zone is not None:
            zone_called(self.zone, self.title)


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
WORKSPACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MOST_MEMORY_DIGITS = 16
"""Largest number of characters of an amount of memory: sufficient for exbibytes in bytes."""
OF_KINDS = {
    "python": VIRTUALENV,
    "packages": VIRTUALENV,
    "image": DOCKER,
    "hosts": DOCKER,
    "memory": DOCKER,
    "processors": DOCKER,
}
"""Keys that only one kind of workspace uses, with this kind."""


@dataclass(frozen=True, slots=True)
class WorkspaceDefinition(Definition):
    """Definition of a workspace: a place with files and a shell for agents and workflows.

    An execution works on its private copy of the folder, unless `in_place` is True. Changed files are shown to a
    person, who decides which of them are copied to the folder. ``divebook keys Workspace`` describes each field.

    Examples
    --------
    >>> WorkspaceDefinition("project", folder="src").kind
    'local'
    """

    name: Annotated[
        str, Key("Name that agents, workflows and steps use.", required="workspace name is required", example="app")
    ]
    description: Annotated[str, Key("Description for people.", example="The package to repair")] = ""
    kind: Annotated[
        str,
        Key(
            "Place where commands run. `local`: on this machine. `fenced`: on this machine, in a sandbox without "
            "network. `virtualenv`: on this machine, with a separate Python environment. `docker`: in a container "
            "without network. Commands of `local` and `virtualenv` have all your permissions.",
            kind=table.Text(
                choices=WORKSPACE_KINDS, complaint="unknown kind of workspace: {}", plugins=plugins.WORKSPACES
            ),
            example="fenced",
        ),
    ] = LOCAL
    folder: Annotated[
        str | None,
        Key(
            "Folder with the files of the workspace. Without it, each run starts with an empty folder.",
            example="project",
        ),
    ] = None
    in_place: Annotated[
        bool,
        Key(
            "Work in the original folder. By default each run works in a copy, and you apply the changes to the "
            "original folder."
        ),
    ] = False
    shell: Annotated[bool, Key("Allow commands. With `false` there are only files.", example="false")] = True
    timeout: Annotated[
        float,
        Key(
            "Time limit of one command.",
            kind=table.Duration(ranges.SOME_SECONDS),
            example="10m",
        ),
    ] = COMMAND_TIMEOUT
    environ: Annotated[Mapping[str, str], Key("Environment variables of the commands.", example="{LANG: C}")] = field(
        default_factory=dict
    )
    secrets: Annotated[
        Mapping[str, str],
        Key(
            "Environment variables with secrets: the name of each variable, and the location of its value. The values "
            "are hidden in the output of commands.",
            example="{KEY: env://MY_KEY}",
        ),
    ] = field(default_factory=dict)
    exclude: Annotated[
        tuple[str, ...],
        Key(
            "Files that are neither copied nor stored in snapshots, such as caches.", example="['*.pyc', node_modules]"
        ),
    ] = ()
    snapshots: Annotated[
        bool,
        Key("Store the files in snapshots, so that the files at each event can be shown and forks start with them."),
    ] = True
    python: Annotated[str | None, Key("For `virtualenv`: version or path of Python.", example="'3.12'")] = None
    packages: Annotated[
        tuple[str, ...], Key("For `virtualenv`: packages to install at the start.", example="[pytest]")
    ] = ()
    image: Annotated[
        str | None,
        Key("For `docker`: image of the container. The image must exist on this machine.", example="python:3.12"),
    ] = None
    hosts: Annotated[
        tuple[str, ...],
        Key(
            "For `docker`: hosts that commands may reach, each with an optional port (default 443). The image must "
            "contain Python.",
            example="[pypi.org, '*.pythonhosted.org']",
        ),
    ] = ()
    memory: Annotated[str | None, Key("For `docker`: maximum amount of memory. Default: `1g`.", example="512m")] = None
    processors: Annotated[
        float | None,
        Key(
            "For `docker`: maximum number of processors. Default: all.",
            kind=table.Number(ranges.SOME),
            example="1.5",
        ),
    ] = None

    if TYPE_CHECKING:  # more types than those of the fields: they are converted

        def __init__(
            self,
            name: str,
            description: str = "",
            kind: str = LOCAL,
            folder: str | None = None,
            *,
            in_place: bool = False,
            shell: bool = True,
            timeout: DurationLike = COMMAND_TIMEOUT,
            environ: Mapping[str, str] = ...,
            secrets: Mapping[str, str] = ...,
            exclude: list[str] | tuple[str, ...] = (),
            snapshots: bool = True,
            python: str | None = None,
            packages: list[str] | tuple[str, ...] = (),
            image: str | None = None,
            hosts: list[str] | tuple[str, ...] = (),
            memory: str | None = None,
            processors: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        # Each check raises the first error, in the order in which the fields are written.
        require_text(self.name, "the name of a workspace", 'write WorkspaceDefinition("code")')
        if not WORKSPACE_NAME.fullmatch(self.name):
            hint = "use at most 63 letters, digits, hyphens, underscores and dots"
            raise _wrong(f"{self.name!r} cannot be the name of a workspace", "Name", hint)
        if self.kind not in WORKSPACE_KINDS and self.kind not in plugins.names(plugins.WORKSPACES):
            hint = did_you_mean(self.kind, WORKSPACE_KINDS) or f"use one of {', '.join(WORKSPACE_KINDS)}"
            raise _wrong(f"unknown kind of workspace: {self.kind}", "Kind", hint)
        for name, kind in OF_KINDS.items():
            # A key of another kind would have no effect, and is an error.
            if getattr(self, name) and self.kind != kind:
                key = name.capitalize()
                message = f"{key} of workspace {self.name} has no effect: its Kind is {self.kind}"
                raise _wrong(message, key, f"write Kind: {kind}, or remove {key}")
        if self.kind == DOCKER and self.image is None:
            raise _wrong(f"workspace {self.name} has the Kind docker, but no Image", "Image", "add Image: python:3.12")
        if self.in_place and self.folder is None:
            raise _wrong(f"workspace {self.name} has InPlace: true, but no Folder", "Folder", "add Folder: .")
        require_numbers(self)
        require_whole_characters(self)
        self._require_amounts()

    def _require_amounts(self) -> None:
        for name in ("exclude", "packages", "hosts"):
            value = getattr(self, name)
            if isinstance(value, str):  # a string is iterable: each letter would become a pattern or a name
                key = name.capitalize()
                raise _wrong(
                    f"{key} of workspace {self.name} must be a list, not the string {value!r}",
                    key,
                    f"write [{value!r}]",
                )
        if self.memory is not None and not is_memory(self.memory):
            message = f"Memory of workspace {self.name} must be an amount of memory above 0, not {self.memory!r}"
            raise _wrong(message, "Memory", "write 512m, or 2g")


def is_memory(value: object) -> bool:
    """Return True if a value is a string that states an amount of memory above 0, such as ``512m``."""
    if not isinstance(value, str) or len(value) > MOST_MEMORY_DIGITS:
        return False
    try:
        return parse_size(value) > 0
    except ValueError:
        return False


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
    """Approval rule. It allows or denies calls of certain tools, or requires that a person is asked.

    If several rules match a call, the strictest rule decides. ``divebook keys ApprovalRule`` describes each field.

    A rule that allows is interpreted narrowly: case, types and Unicode forms matter, ``*`` matches any text without
    ``/`` and ``**`` any text, and a call with an argument that `Arguments` does not contain is not allowed. A rule that
    asks or denies is interpreted widely: it applies as soon as it could match a call.

    Examples
    --------
    >>> ApprovalRule("fetch", arguments={"url": "https://docs.python.org/**"}).outcome
    'allow'
    """

    tool: Annotated[
        str,
        Key(
            "Name of the tool, or `server/tool` for a tool of an MCP server. `*` matches any characters.",
            example="fetch",
        ),
    ] = "*"
    agent: Annotated[
        str | None, Key("Limits the rule to calls of this agent. `*` matches any characters.", example="researcher")
    ] = None
    server: Annotated[
        str | None, Key("Limits the rule to tools of this MCP server. `*` matches any characters.", example="files")
    ] = None
    arguments: Annotated[
        Mapping[str, Any] | None,
        Key(
            "Arguments that a call must have: a value, a pattern with `*` or `**`, or `{equals: value}`. Without this "
            "key, all arguments match.",
            example="{url: 'https://docs.python.org/*'}",
        ),
    ] = None
    when: Annotated[
        str | None,
        Key(
            "Limits the rule to tools that declare this effect.",
            kind=table.Text(choices=EFFECTS, complaint="invalid effect of a tool: {}"),
            example="destructive",
        ),
    ] = None
    outcome: Annotated[
        str,
        Key(
            "Decision for calls that match the rule.",
            kind=table.Text(choices=OUTCOMES, complaint="invalid outcome of an approval rule: {}"),
            example="ask",
        ),
    ] = ALLOW
    reason: Annotated[
        str, Key("Reason for the decision. The person and the model see it.", example="the manual may be read")
    ] = ""
    expires: Annotated[
        str | None,
        Key("Date or time at which the rule expires: `2026-12-31`, or a time with its zone.", example="2027-12-31"),
    ] = None

    def __post_init__(self) -> None:
        # Check the choices, then the names, then convert arguments and the time of expiry to their stored form.
        for name, value, choices in (("Outcome", self.outcome, OUTCOMES), ("When", self.when, EFFECTS)):
            if value is not None and value not in choices:
                raise _approval_error(name, value, did_you_mean(value, choices) or f"use one of {', '.join(choices)}")
        for name in ("tool", "agent", "server"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise _approval_error(name.capitalize(), value, "write a name; * matches any characters")
        if self.arguments is not None:
            if not isinstance(self.arguments, Mapping):
                raise _approval_error("Arguments", self.arguments, "write a mapping: {path: docs/**}")
            self._put(arguments=json_value(self.arguments, "Arguments"))
        if self.expires is not None:
            # One form for all spellings of a time, so that equal rules are stored alike.
            self._put(expires=_moment(self.expires).isoformat())

    @property
    def expires_at(self) -> datetime | None:
        """Time at which the approval rule expires; None if it never expires."""
        return None if self.expires is None else _moment(self.expires)

    @property
    def expires_us(self) -> int | None:
        """Time at which the approval rule expires, in microseconds since 1970; None if it never expires."""
        return None if self.expires_at is None else to_microseconds(self.expires_at)

    @property
    def in_words(self) -> str:
        """Description of the approval rule in a few words, for people and for the log."""
        parts = {"agent": self.agent, "server": self.server, "arguments": self.arguments, "when": self.when}
        conditions = ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
        return f"{self.outcome} {self.tool}{f' ({conditions})' if conditions else ''}"


def _moment(value: Any) -> datetime:
    """Parse the key ``Expires`` of an approval rule. A time without a zone is UTC; a date means the start of the day.
    Raise `DefinitionError` for any other value.
    """
    try:
        # ``datetime.fromisoformat`` takes a date as well, and means its beginning.
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
    """Approval policy of an environment, or of one agent in it: approval rules for tool calls, and approval modes for
    calls that no rule matches.
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
                hint = did_you_mean(mode, CONFIRMATION_MODES) or f"use one of {', '.join(CONFIRMATION_MODES)}"
                raise DefinitionError([Problem(f"invalid confirmation mode: {mode}", hint=hint)])

    @property
    def relaxations(self) -> list[str]:
        """Descriptions of those approval modes and rules of the policy that may allow a call without asking a
        person.
        """
        modes = (self.mode, *self.servers.values())
        # The other modes ask for every call that may change something.
        relaxations = [f"the mode {mode}" for mode in modes if mode in (IF_DESTRUCTIVE, NEVER)]
        return relaxations + [f"the rule: {rule.in_words}" for rule in self.rules if rule.outcome == ALLOW]

    def mode_for(self, server: str) -> str:
        """Return the approval mode for the tools of the MCP server `server`, or for tools without a server if `server`
        is ``""``. An empty result means that the properties of each tool decide.
        """
        # An empty mode of a server means that it has none of its own.
        return self.servers.get(server) or self.mode

    def plus(self, rules: Iterable[ApprovalRule | Mapping[str, Any]], agent: str | None = None) -> Self:
        """Return a copy of this policy with additional approval rules. If `agent` is not None, the additional rules
        apply only to calls of this agent.
        """
        additional = [ApprovalRule.of(rule) for rule in rules]
        # The rule of an agent may name another agent. Within the agent's own policy it applies to this one only.
        if agent is not None:
            additional = [rule.like(agent=agent) for rule in additional]
        return replace(self, rules=(*self.rules, *additional))
