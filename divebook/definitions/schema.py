"""Tables of the keys of all definition classes, and the page that describes all keys (``notebooks/KEYS.md``).

Each `Table` at the middle of the module connects a definition class with its label, an example and hints. The functions
before the tables create definitions that need more than their constructor. The functions after the tables generate the
reference of keys (``divebook keys``), help on a single key, and the page ``notebooks/KEYS.md``.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from divebook.definitions import cron, dialect
from divebook.definitions.definition import Definitions, InputDefinition, OutputDefinition, Workflow, Written, declared
from divebook.definitions.graph import SETTINGS, check_workflow, duplicate_names
from divebook.definitions.pipelines import AgentStage, EdgeLimit, PipelineConfig, RoutingRule
from divebook.definitions.resources import (
    DOCKER,
    OF_KINDS,
    WORKSPACE_NAME,
    AgentDefinition,
    ApprovalRule,
    Config,
    DocumentDefinition,
    ModelSettings,
    ProviderSettings,
    ScheduleDefinition,
    ToolDefinition,
    TriggerDefinition,
    WorkspaceDefinition,
)
from divebook.definitions.servers import (
    ApprovalFilterDefinition,
    MCPServerDefinition,
    OAuthDefinition,
    TokenStoreDefinition,
    ToolConfigurationDefinition,
)
from divebook.definitions.step import (
    EXACTLY_ONE,
    INFERRED_TYPES,
    NEEDED,
    SOURCES,
    USED,
    Ask,
    Catch,
    ContentEntry,
    Each,
    Edge,
    Retry,
    Rollback,
    Step,
    chained,
)
from divebook.definitions.stored_form import defaults
from divebook.definitions.table import (
    INPUT_TYPES,
    INVALID,
    Flag,
    Key,
    Many,
    One,
    ParsedMapping,
    Reading,
    Table,
    Text,
    or_null,
    snake_case,
)
from divebook.errors import BoundsError, DefinitionError, NotFoundError, Place, Problem, SetupError, Severity
from divebook.questions import bounds
from divebook.questions.bounds import Bounds, agent_bounds
from divebook.questions.question import DEFINABLE
from divebook.text.arguments import plain_seconds
from divebook.text.ranges import SOME_SECONDS

# --- functions that create definitions from parsed mappings -----------------------------------------------------------


PROVIDER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
LISTS = {
    "tools": ("Tools", "tool"),
    "documents": ("Documents", "document"),
    "agents": ("Agents", "agent"),
    "workflows": ("Workflows", "workflow"),
    "pipelines": ("Pipelines", "pipeline"),
    "triggers": ("Triggers", "trigger"),
    "schedules": ("Schedules", "schedule"),
    "mcp_servers": ("MCPServers", "mcp server"),
    "workspaces": ("Workspaces", "workspace"),
}
FATAL_DUPLICATES = {"agents", "workflows", "pipelines"}
"""Lists in which a repeated name is an error in the dialect ``dive``, too."""


def content_entry(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create a content entry from its parsed keys. If it does not have exactly one source, such as `Path`, add a
    problem to `reading` and return `INVALID`.
    """
    entry = ContentEntry(**(parsed.values if reading.strict else dialect.content(parsed.values)))
    if parsed.is_sound and not entry.is_complete:
        reading.add(
            EXACTLY_ONE,
            parsed.node.start,
            parsed.place,
            hint=f"this entry has {', '.join(entry.present_sources) or 'none'}",
        )
    return entry if entry.is_complete else INVALID


def step(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create a step from its parsed keys. If the keys have errors, remember the step in `reading.broken`: later checks
    then report no further errors of this step that follow from the first ones.
    """
    if not parsed.is_sound:
        # `_is_consequence` looks the place up.
        reading.broken.add(parsed.place)
    values = {"name": "", **parsed.values}
    # The legacy dialect derives the type of a step by its own rules, and translates its code.
    if not reading.strict:
        values = dialect.step(values)
    return Step(**values)


def _bounds(
    values: dict[str, Any], parsed: ParsedMapping, reading: Reading, read: Callable[[Any], Bounds] = Bounds.read
) -> None:
    """Replace the value of the key ``Bounds`` (the budget) in `values` by its plain JSON form. Add a problem to
    `reading` if the value is not valid.
    """
    if "bounds" not in values:
        return
    try:
        values["bounds"] = read(values["bounds"]).to_dict()
    except BoundsError as error:
        reading.add(str(error), parsed.node.start, (*parsed.place, "Bounds"), key="Bounds")


def output(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create the definition of one output of a workflow from its parsed keys. If it has no name, add a problem to
    `reading` and return `INVALID`.
    """
    if parsed.values.get("name"):
        return OutputDefinition(**parsed.values)
    message = "output name is required"
    reading.add(message, parsed.node.start, parsed.place, key="Name", severity=reading.severity)
    return INVALID


def trigger(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create the definition of a trigger from its parsed keys. A missing name is a problem, except in the dialect
    ``dive``.
    """
    if reading.strict and parsed.is_sound and not parsed.values.get("name"):
        reading.add("trigger name is required", parsed.node.start, parsed.place, key="Name")
    return TriggerDefinition(**{"name": "", **parsed.values})


def schedule(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create the definition of a schedule from its parsed keys. One without due times is a problem; in the dialect
    ``dive``, which does not use schedules, it is a warning.
    """
    if "name" in parsed.failed or (reading.strict and not parsed.is_sound):
        return INVALID
    definition = ScheduleDefinition(**parsed.values, dialect=reading.dialect)
    if not reading.strict:
        try:
            definition.require_due_times()
        except DefinitionError as error:
            for problem in error.problems:
                place = (*parsed.place, problem.key or "")
                reading.add_located([replace(problem, severity="warning", place=place)])
    return definition


def document(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create the definition of a document from its parsed keys. One without a file is a problem, except in the dialect
    ``dive``.
    """
    if "name" in parsed.failed:
        return INVALID
    if reading.strict and parsed.is_sound and not parsed.values.get("path"):
        message = f"document {parsed.values['name']!r} has no Path"
        reading.add(message, parsed.node.start, (*parsed.place, "Path"), key="Path", hint="add Path: guides/style.md")
    return DocumentDefinition(**parsed.values)


def approval_rule(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create an approval rule from its parsed keys. A rule without keys would allow every call of every tool, and is a
    problem.
    """
    if not parsed.is_sound:
        return INVALID
    if not parsed.node.entries:
        reading.add("an approval rule needs a Tool", parsed.node.start, parsed.place, key="Tool", hint="add Tool: '*'")
    return ApprovalRule(**parsed.values)


def workflow(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create a workflow from its parsed keys, after checking that its parts fit together. If they do not, add all
    problems to `reading` and return `INVALID`.
    """
    values = {"name": "", "steps": (), "inputs": (), **parsed.values}
    _bounds(values, parsed, reading)
    # ``Output`` is the single form of ``Outputs``. The two may be written together.
    single = values.pop("output", None)
    outputs = (*([single] if single else []), *values.pop("outputs", ()))
    steps_place = (*parsed.place, "Steps")
    # The graph is checked only if no step is missing. Edges to a missing step would be reported as errors, too.
    is_whole = not any(place[: len(steps_place)] == steps_place for place in reading.refused)
    if "steps" not in parsed.failed and is_whole:
        steps = values["steps"]
        inputs = values["inputs"]
        names = {"inputs": [entry.name for entry in inputs], "outputs": [entry.name for entry in outputs]}
        problems = check_workflow(values["name"], steps, chained(steps), reading.rules, **names)
        # Places become absolute: ("Steps", 2) of this workflow -> ("Workflows", 0, "Steps", 2).
        reading.add_located(
            problem.below(*parsed.place) for problem in problems if not _is_consequence(problem, parsed.place, reading)
        )
    # Any error so far ends with an exception after the whole text is read, so that no workflow is needed.
    if reading.errors:
        return INVALID
    written = Written(reading.source_name, reading.positions, parsed.place, reading.text, reading.line_offset)
    source = reading.source_of(parsed.node)
    return Workflow(**values, outputs=outputs, dialect=reading.dialect, source=source, written=written)


def _is_consequence(problem: Problem, place: Place, reading: Reading) -> bool:
    """Return True if a problem was probably caused by another error in the same step. It need not be reported, because
    the other error has been reported already.
    """
    in_broken_step = (*place, *problem.place[:2]) in reading.broken
    # Faults of edges and names have their cause outside of the step, and are reported in any case.
    return in_broken_step and problem.place[2:3] not in (("Next",), ("Name",))


def input_definition(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create the definition of an input from its parsed keys. In the strict dialect, a default of another type than the
    input is a problem.
    """
    values = parsed.values
    if "name" not in values:  # reported already
        return INVALID
    types = INPUT_TYPES.get((values.get("type") or "").lower())
    default = values.get("default")
    # A boolean is an integer in Python.
    is_wrong = not isinstance(default, types or object) or (
        isinstance(default, bool) and bool not in (types or (bool,))
    )
    if reading.strict and default is not None and is_wrong:
        message = f"Default of input {values['name']!r} must be of type {values['type']}, not {default!r:.60}"
        place = (*parsed.place, "Default")
        reading.add_located([Problem(message, key="Default", hint="change the Default or the Type", place=place)])
    return InputDefinition(**values)


def agent(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create the definition of an agent from its parsed keys. A missing name is a problem; in the dialect ``dive`` the
    name is then ``agent-`` with the agent's number in the list.
    """
    values = {"name": "", **parsed.values}
    if not values["name"] and reading.strict:
        reading.add("agent name is required", parsed.node.start, parsed.place, key="Name", hint="add Name")
    elif not values["name"]:
        values["name"] = f"agent-{_number(parsed.place)}"
    _bounds(values, parsed, reading, agent_bounds)
    _check_provider(values.get("provider"), (*parsed.place, "Provider"), reading)
    if reading.strict:
        _check_values_of_agent(values, parsed.place, reading)
    # In the legacy dialect 0 stands for the default. Here it is refused, because no request is answered in no time.
    if values.get("response_timeout") == 0:
        del values["response_timeout"]
    # In the legacy dialect 0 and less stand for the default. Here an agent with the limit 0 must not call tools.
    if not reading.strict and values.get("tool_iteration_limit", 1) <= 0:
        del values["tool_iteration_limit"]
    return AgentDefinition(**values, dialect=reading.dialect)


def _check_values_of_agent(values: Mapping[str, Any], place: Place, reading: Reading) -> None:
    """Add a problem to `reading` for each value of an agent that any environment would refuse."""
    cache, key, script = values.get("cache"), values.get("api_key"), values.get("script")
    problems = []
    if cache is not None and not _is_lifetime(cache):
        problems.append(
            Problem(f"Cache must be a duration such as 7d or 12h, not {cache!r:.60}", key="Cache", hint="write 7d")
        )
    if key and re.fullmatch(KEY_PATTERN, key) is None:
        message = "ApiKey contains the key itself, which definitions and logs would then contain"
        problems.append(Problem(message, key="ApiKey", hint="write env://NAME or file://PATH"))
    if script is not None and not (isinstance(script, str | list) or (isinstance(script, dict) and "turns" in script)):
        hint = "write a list of replies, {turns: [[...]]}, or the path of a file"
        problems.append(Problem(f"Script cannot be {script!r:.60}", key="Script", hint=hint))
    reading.add_located([replace(problem, place=(*place, problem.key or "")) for problem in problems])


def _is_lifetime(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        seconds = plain_seconds(value)
    except (SetupError, DefinitionError, ValueError):
        return False
    return isinstance(seconds, int | float) and SOME_SECONDS.fits(seconds)


KEY_PATTERN = r"^([A-Za-z]+ )?(env|file)://.+"
"""Pattern of the reference to the key of a provider (`divebook.documents.policy.is_reference`)."""


def _number(place: Place) -> int:
    return next((part for part in reversed(place) if isinstance(part, int)), 0) + 1


def config(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create the settings of the environment from their parsed keys. An unknown default provider is a problem."""
    _check_provider(parsed.values.get("default_provider"), (*parsed.place, "DefaultProvider"), reading)
    return Config(**parsed.values)


def _check_provider(name: str | None, place: Place, reading: Reading) -> None:
    # In the legacy dialect an empty provider is an omitted one.
    if name is None or (name == "" and not reading.strict):
        return
    if reading.strict and not PROVIDER_NAME.fullmatch(name):
        hint = "write only the name of the provider, such as openai; write the model under Model"
    elif not reading.strict and name not in dialect.PROVIDERS:
        hint = f"use one of {', '.join(dialect.PROVIDERS)}"
    else:
        return
    reading.add_located([Problem(f'unsupported provider: "{name}"', key=str(place[-1]), hint=hint, place=place)])


def mcp_server(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create the definition of an MCP server from its parsed keys. In the strict dialect, a missing command (for
    ``stdio``) or URL (for ``http``) is a problem.
    """
    if "name" in parsed.failed:
        return INVALID
    server = MCPServerDefinition(**parsed.values)
    needs = {"stdio": ("command", "Command"), "http": ("url", "URL")}.get(server.type)
    # Further faults of a server that has an error already would mostly follow from it.
    if reading.strict and parsed.is_sound and needs is None:
        message = f"unsupported mcp server type: {server.type}"
        reading.add(message, parsed.node.start, parsed.place, key="Type", hint="use stdio or http")
    elif reading.strict and needs is not None and parsed.is_sound and not getattr(server, needs[0]):
        message = f"{needs[0]} is required for {server.type} mcp server"
        reading.add(message, parsed.node.start, parsed.place, key=needs[1], hint=f"add {needs[1]}")
    return server


def definitions(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create all definitions of a file or cell from parsed keys. A name that occurs twice in one list, such as two
    agents called `a`, is a problem.
    """
    for name, (key, label) in LISTS.items():
        names = [item.name for item in parsed.values.get(name, ())]
        # Agents, workflows and pipelines are found by name, so that a second one could never be used.
        severity: Severity = "error" if name in FATAL_DUPLICATES else reading.severity
        reading.add_located(duplicate_names(label, names, (*parsed.place, key), severity, rules=reading.rules))
    if reading.errors:
        return INVALID
    workflows = parsed.values.get("workflows", ())
    pipelines = parsed.values.get("pipelines", ())
    for place, pipeline in enumerate(pipelines):
        # Both become workflows, which need different names.
        if pipeline.name in {workflow.name for workflow in workflows}:
            message = f"pipeline {pipeline.name!r} has the same name as a workflow"
            reading.add(message, parsed.node.start, (*parsed.place, "Pipelines", place, "Name"), key="Name")
    return Definitions(**{**parsed.values, "workflows": (*workflows, *map(declared, pipelines))})


def stage(parsed: ParsedMapping, _reading: Reading) -> Any:
    """Create a pipeline stage from its parsed keys; return `INVALID` if a key has an error. If the keys name an agent,
    the stage is marked as one that asks a model.
    """
    # An explicit ``HasLLM: false`` has priority over the agent.
    has_llm = {"has_llm": True} if parsed.values.get("model_role") else {}
    return AgentStage(**{**has_llm, **parsed.values}) if parsed.is_sound else INVALID


def pipeline(parsed: ParsedMapping, reading: Reading) -> Any:
    """Create the definition of a pipeline from its parsed keys. If it is not valid, add the problems of all its parts
    to `reading` and return `INVALID`.
    """
    if parsed.is_sound and not parsed.values.get("agents"):
        reading.add("a pipeline needs Stages", parsed.node.start, parsed.place, key="Stages", hint="add Stages")
    if not parsed.is_sound:
        return INVALID
    try:
        return PipelineConfig(**parsed.values)
    except DefinitionError as error:
        for problem in error.problems:
            if problem.place:
                reading.add_located([problem.below(*parsed.place)])
                continue
            # Most problems of a pipeline name the field, not its place in the text.
            place = (*parsed.place, problem.key or "")
            reading.add(problem.message, parsed.node.start, place, key=problem.key, hint=problem.hint)
        return INVALID


CONTENT = Table("content entry", ContentEntry, content_entry, example="{Text: ...}")
EDGE = Table(
    "Next entry",
    Edge,
    example="{Step: name}",
    advice={"If": "write Condition", "When": "write Condition", "To": "write Step"},
)
EACH = Table("Each", Each, example="{Items: [...], As: name}", advice={"In": "write Items", "Array": "write Items"})
RETRY = Table(
    "Retry",
    Retry,
    example="{Attempts: 3}",
    advice={
        "Delay": "write Seconds",
        "Backoff": "write Factor",
        "Times": "write Attempts",
        "MaxAttempts": "write Attempts",
    },
)
ROLLBACK = Table("Rollback", Rollback, example="{Action: name}", text_key="Action", advice={"Step": "write Action"})
CATCH = Table("Catch", Catch, example="{Step: name}", advice={"Next": "write Step", "Error": "write Errors"})
ASK = Table(
    "Ask",
    Ask,
    example="{Question: ...}",
    text_key="Question",
    advice={
        "Type": "write Kind",
        "Prompt": "write Question",
        "Timeout": "write ExpiresIn",
        "Expires": "write ExpiresIn",
    },
)
STEP = Table(
    "step",
    Step,
    step,
    example="{Name: first, Prompt: ...}",
    advice={
        "OutputFormat": "write Output: a JSON schema of the answer",
        "With": "write Parameters",
        "Task": "write Prompt",
        "Var": "write Store",
    },
)
INPUT = Table("input", InputDefinition, input_definition, example="{Name: topic}")
OUTPUT = Table("output", OutputDefinition, output, example="{Name: report}")
TRIGGER = Table("trigger", TriggerDefinition, trigger)
WORKFLOW = Table(
    "workflow",
    Workflow,
    workflow,
    example="{Name: main, Steps: [{Name: first, Prompt: ...}]}",
    advice={
        "Retry": "add it to a step",
        "Catch": "add it to a step",
        "Start": "remove it: the first step in the list is the start",
    },
    more=(
        Key(
            "Single output of the workflow, in place of `Outputs`.",
            "Output",
            "output",
            One(OutputDefinition, ", or Outputs for a list"),
        ),
    ),
)
ROUTING_RULE = Table("route", RoutingRule, example="{Condition: verdict, Value: loop_back, Target: draft}")
EDGE_LIMIT = Table("edge limit", EdgeLimit, example="{Source: check, Target: draft, MaxCount: 2}")
STAGE = Table(
    "stage",
    AgentStage,
    stage,
    example="{Name: draft, Agent: writer, Next: check}",
    advice={"Steps": "a stage has Agent in place of steps; steps belong to Workflows", "Order": "write StageOrder"},
)
PIPELINE = Table(
    "pipeline",
    PipelineConfig,
    pipeline,
    example="{Name: review, Stages: [{Name: draft, Agent: writer}]}",
    advice={"Agents": "write Stages", "Steps": "write Stages"},
)
APPROVAL_RULE = Table(
    "approval rule",
    ApprovalRule,
    approval_rule,
    example="{Tool: fetch, Outcome: allow}",
    advice={"Name": "write Tool", "Mode": "write Outcome", "Parameters": "write Arguments"},
)
MODEL_SETTINGS = Table("ModelSettings", ModelSettings)
AGENT = Table(
    "agent",
    AgentDefinition,
    agent,
    example="{Name: editor, Goal: ...}",
    advice={
        "Backstory": "write it into Instructions",
        "Role": "write it into Goal",
        "Description": "write it into Goal",
        "Temperature": "write it under ModelSettings",
        "MaxTokens": "write it under ModelSettings",
    },
)
TOOL = Table("tool", ToolDefinition, example="{Name: read_file}")
DOCUMENT = Table("document", DocumentDefinition, document, example="{Name: style-guide, Path: guides/style.md}")
SCHEDULE = Table(
    "schedule", ScheduleDefinition, schedule, example="{Name: nightly, Cron: '0 3 * * *', Workflow: audit}"
)
TOKEN_STORE = Table("TokenStore", TokenStoreDefinition)
OAUTH = Table("OAuth", OAuthDefinition)
APPROVAL_FILTER = Table("ApprovalFilter", ApprovalFilterDefinition)
TOOL_CONFIGURATION = Table("ToolConfiguration", ToolConfigurationDefinition)
MCP_SERVER = Table(
    "MCP server",
    MCPServerDefinition,
    mcp_server,
    example="{Name: files, Type: stdio, Command: mcp-server-git}",
)
WORKSPACE = Table(
    "workspace",
    WorkspaceDefinition,
    example="{Name: app, Folder: project}",
    advice={"Type": "write Kind", "Path": "write Folder", "Env": "write Environ"},
)
PROVIDER = Table("provider", ProviderSettings)
CONFIG = Table("Config", Config, config)
DEFINITIONS = Table(
    "definition",
    Definitions,
    definitions,
    advice={
        "Steps": "steps belong under Workflows: [{Name: ..., Steps: [...]}]",
        "Environment": "write its Name, Description and Config at the top",
        "Workflow": "write Workflows: [{Name: ..., Steps: [...]}]",
        "Agent": "write Agents: [{Name: ..., Goal: ...}]",
    },
)


# --- reference of all keys, for ``divebook keys``, ``%dive keys`` and the page ``notebooks/KEYS.md`` ------------------


_NOTHING: tuple[Any, ...] = (None, "", [], {})
"""Default values that the reference does not show."""
# `globals` has the tables of this module in the order of their definition.
TABLES: dict[str, Table] = {table.label: table for table in tuple(globals().values()) if isinstance(table, Table)}
"""All tables by label, such as ``step``."""

INTRODUCTION = """\
# Every key of a definition

All keys of definition files, with their types, defaults and examples. `divebook keys Step` and `%dive keys Step` list
the keys of one part. Each key can also be written in snake case, such as `max_tokens`.

In a template, `${...}` contains a Python expression and is replaced by the value of the expression as text. In
`Parameters`, `Inputs`, `Data` and `Items`, strings at any depth are templates, and a string that consists of `$(...)`
is replaced by the value itself, which keeps its type. An additional dollar sign is an escape: `$${HOME}` is the string
`${HOME}`, and `$$(date)` is the string `$(date)`.

`divebook keys --schema > definitions.schema.json` writes the JSON schema of definition files. With the first line
`# yaml-language-server: $schema=definitions.schema.json` in a definition file, editors complete its keys and mark
mistakes. `check-jsonschema --schemafile definitions.schema.json FILE` checks a file without divebook. The package
contains the schema as `divebook/definitions/definitions.schema.json`.

This page is generated with `divebook keys --markdown > notebooks/KEYS.md`.
"""


@dataclass(frozen=True, slots=True)
class KeyLine:
    """Row for one key on the page of all keys of definition files (``notebooks/KEYS.md``). All columns are strings."""

    key: str
    holds: str
    """Description of the values of the key."""
    means: str
    notes: str
    """Notes: required, refused, not in a dialect, former names."""
    default: str = ""
    """Default value as JSON; empty if there is none."""
    example: str = ""
    """Example of the key with a value."""


def reference(name: str) -> tuple[str, list[KeyLine]]:
    """Return the section about one table of keys for the page of all keys (``notebooks/KEYS.md``): the label of the
    table, such as ``step``, and a row for each of its keys.

    Parameters
    ----------
    name
        Its label (``step``), in any case, or the key that holds it (``Steps``).

    Examples
    --------
    >>> [line.key for line in reference("Catch")[1]]
    ['Step', 'Errors', 'Store']
    """
    table = table_called(name)
    return table.label, [line_of(key, table) for key in table.keys]


def table_called(name: str) -> Table:
    """Return the table of keys with a name. The name is the label of the table, such as ``step``, or a key whose value
    is described by the table, such as ``Steps``.

    Raise `NotFoundError` if no table has this name.
    """
    # "ModelSettings", "model settings" and "model_settings" -> "modelsettings".
    folded = snake_case(name.replace(" ", "")).replace("_", "").casefold()
    for label, table in TABLES.items():
        names = {label.replace(" ", "").casefold(), *_holders(label)}
        # A plural such as "Steps" names the table of one step.
        if folded in names or folded.removesuffix("s") in names:
            return table
    raise NotFoundError("part of a definition", name, TABLES)


def page() -> str:
    """Return the page of all keys of definition files in Markdown, which is stored as ``notebooks/KEYS.md``."""
    return "\n".join([INTRODUCTION, *(line for label in _ordered() for line in _section(label))])


def _ordered() -> list[str]:
    """Return the labels of all tables of keys in breadth-first order, beginning with the table for a whole definition
    file.
    """
    labels = [DEFINITIONS.label]
    # The list grows while it is iterated: breadth first, each table once.
    for label in labels:
        for key in TABLES[label].keys:
            if isinstance(key.kind, One | Many) and key.kind.table.label not in labels:
                labels.append(key.kind.table.label)
    return labels


def _section(label: str) -> Iterator[str]:
    yield f"## {label[0].upper()}{label[1:]}\n"
    yield "| key | type | default | description | example | notes |\n|---|---|---|---|---|---|"
    for line in reference(label)[1]:
        default, example = (f"`{text}`" if text else "" for text in (line.default, line.example))
        yield f"| `{line.key}` | {line.holds} | {default} | {line.means} | {example} | {line.notes} |"
    yield ""


def _holders(label: str) -> set[str]:
    holders = [
        key
        for table in TABLES.values()
        for key in table.keys
        if isinstance(key.kind, One | Many) and key.kind.table is TABLES[label]
    ]
    return {snake_case(key.name).replace("_", "") for key in holders}


def line_of(key: Key, table: Table) -> KeyLine:
    """Return the row for a key of a table, for the page of all keys (``notebooks/KEYS.md``)."""
    default = defaults(table.definition).get(key.field)
    written = None if default is None else key.kind.write(default)
    # A default is shown in the form in which a person would write it.
    shown = "" if written in _NOTHING else json.dumps(written)
    return KeyLine(key.name, _holds(key, table), key.means, "; ".join(_notes(key)), shown, _example(key, default))


def _example(key: Key, default: Any) -> str:
    """Return the example of a key for the page of all keys: the key with a value, such as ``Parallel: 4``. Return an
    empty string for a key without effect.
    """
    # The order of the cases is their priority: an explicit example, a nested one, then a value that is not the default.
    match key.kind:
        case _ if key.ignored:
            return ""
        case _ if key.example:
            text = key.example
        case One() | Many():
            inner = key.kind.table.example or f"{{{_example(key.kind.table.keys[0], None)}}}"
            text = f"[{inner}]" if isinstance(key.kind, Many) else inner
        case Flag():
            text = json.dumps(not default)
        case Text(choices=(*_, last)):
            text = last
        case _ if default in _NOTHING:  # no key of divebook (tests/definitions/test_examples.py)
            return ""
        case _:
            text = json.dumps(key.kind.write(default))
    return f"{key.name}: {text}"


def _holds(key: Key, table: Table) -> str:
    if key.name != "Bounds":
        return key.kind.holds
    # The budget of an agent has fewer limits than that of a run.
    names = [name for name in bounds.KEYS if table is not AGENT or snake_case(name) in bounds.OF_AGENTS]
    return f"mapping of {', '.join(names)}"


def _notes(key: Key) -> Iterator[str]:
    if key.required:
        yield "required"
    if key.ignored:
        yield f"an error (in the dialect dive a warning): {key.ignored}"
    if key.extension:
        yield "not in the dialect dive"
    if key.formerly:
        yield f"formerly {', '.join(key.formerly)}"


# --- JSON schema of definition files, for ``divebook keys --schema`` and editors --------------------------------------


def json_schema(language: dialect.Dialect = dialect.OWN) -> dict[str, Any]:
    """Return the JSON schema of a definition file in YAML, for editors. The reader refuses some files that fit it, such
    as one in which two agents have the same name; it accepts no file that does not fit.
    """
    strict = language == dialect.OWN
    tables = {TABLES[label].reference.rpartition("/")[2]: TABLES[label] for label in _ordered()}
    parts = {name: table.json_schema(strict=strict) for name, table in tables.items()}
    for name, part in parts.items():
        # The table does not describe bounds, which have a reader of their own.
        if "Bounds" in part["properties"]:
            limits = bounds.json_schema(bounds.OF_AGENTS if name == AGENT.label else None)
            part["properties"]["Bounds"] = {
                "description": part["properties"]["Bounds"]["description"],
                **or_null(limits),
            }
    if strict:
        for table, rule in _rules():
            parts[table.reference.rpartition("/")[2]].setdefault("allOf", []).append(rule)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"divebook definitions, dialect {language}",
        "allOf": [{"$ref": DEFINITIONS.reference}],
        "definitions": dict(sorted({**parts, **(_SHARED if strict else {})}.items())),
    }


# Rules about the value of one key or several keys of a mapping, which the strict dialect checks after it has read the
# keys. A part that several rules need is a definition of its own, which they refer to.


_EMPTY: tuple[Any, ...] = (None, "", [], {})
"""Values of a key that count as if the key were missing."""
_EMPTY_PART = {"$ref": "#/definitions/empty"}
_SHARED: dict[str, dict[str, Any]] = {"empty": {"enum": [*_EMPTY]}}
"""Parts of the rules by the name under which the schema has them."""
_NAME_PATTERN = r"^(?![0-9])[^\s!-/:-@\[-^`{-~]*$"
"""Pattern of the names of variables, for editors. It accepts keywords and some more, which the reader refuses."""


_DEFAULTS_OF_TYPES: Mapping[str, Sequence[str]] = {
    "[sS][tT][rR]([iI][nN][gG])?|[tT][eE][xX][tT]": ["string"],
    "[iI][nN][tT]([eE][gG][eE][rR])?": ["integer"],
    "[fF][lL][oO][aA][tT]|[nN][uU][mM][bB][eE][rR]": ["number"],
    "[bB][oO][oO][lL]([eE][aA][nN])?": ["boolean"],
    "[lL][iI][sS][tT]|[aA][rR][rR][aA][yY]": ["array"],
    "[mM][aA][pP]|[dD][iI][cC][tT]|[oO][bB][jJ][eE][cC][tT]": ["object"],
}
"""Types of JSON of a default, by a pattern of the names of the type of the input."""
JSON_TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")
MEMORY_PATTERN = r"^([0-9]+\.?|(?=\.[0-9])\.)[0-9]*([eE][+-]?[0-9]{1,2})?[kmgtKMGT]?[bB]?$"


def _shared(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to a part of the rules, which the schema of definition files has once."""
    _SHARED[name] = schema
    return {"$ref": f"#/definitions/{name}"}


def _has(table: Table, key: str) -> dict[str, Any]:
    """Return the JSON schema of a mapping in which a key has a value."""
    spellings = [
        {"required": [spelling], "patternProperties": {f"^{spelling}$": {"not": _EMPTY_PART}}}
        for spelling in table.spellings_of(key)
    ]
    return _shared(f"{table.label.replace(' ', '_')}_has_{key}", {"anyOf": spellings})


def _present(table: Table, *keys: str) -> dict[str, Any]:
    """Return the JSON schema of a mapping in which one of some keys has a value."""
    parts = [_has(table, key) for key in keys]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _limited(table: Table, key: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a mapping in which the value of a key, if it has one, fits another schema."""
    return {"patternProperties": {_pattern(table, key): schema}}


def _pattern(table: Table, key: str) -> str:
    """Return a pattern of the spellings of a key. Editors do not offer keys under patterns."""
    return f"^({'|'.join(table.spellings_of(key))})$"


def _absent(table: Table, *keys: str) -> dict[str, Any]:
    """Return the JSON schema of a mapping in which some keys have no value. A key that has one is the place of the
    error.
    """
    return {"patternProperties": {_pattern(table, key): _EMPTY_PART for key in keys}}


def _is(table: Table, key: str, value: Any) -> dict[str, Any]:
    """Return the JSON schema of a mapping in which a key has one value, or a value that fits a schema."""
    part = value if isinstance(value, dict) else {"const": value}
    return {"anyOf": [{"required": [spelling], "properties": {spelling: part}} for spelling in table.spellings_of(key)]}


def _text(pattern: str) -> dict[str, Any]:
    """Return the JSON schema of an empty value, or of a text that matches a pattern. A boolean is read as a text."""
    return {"anyOf": [_EMPTY_PART, {"type": "boolean"}, {"type": "string", "pattern": pattern}]}


def _rules() -> Iterator[tuple[Table, dict[str, Any]]]:
    yield WORKFLOW, _present(WORKFLOW, "Steps")
    json_type = {"enum": [*JSON_TYPES]}
    typed = {"properties": {"type": {"anyOf": [json_type, {"type": "array", "items": json_type}]}}}
    for table, key in ((AGENT, "Output"), (STEP, "Output"), (ASK, "Schema")):
        yield table, _limited(table, key, {"type": ["object", "string", "null"], "minLength": 1, **typed})
    for table in (WORKFLOW, STEP):
        yield table, _limited(table, "Name", {"not": {"const": ""}})
    for name, fitting in _DEFAULTS_OF_TYPES.items():
        is_typed = _is(INPUT, "Type", {"type": "string", "pattern": f"^({name})$"})
        yield INPUT, {"if": is_typed, "then": _limited(INPUT, "Default", {"type": [*fitting, "null"]})}
    yield AGENT, _limited(AGENT, "ApiKey", {"anyOf": [_EMPTY_PART, {"type": "string", "pattern": KEY_PATTERN}]})
    lifetime = [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": "^\\s*[0-9.]+\\s*[a-zA-Z]"},
        {"type": "null"},
    ]
    yield AGENT, _limited(AGENT, "Cache", {"anyOf": lifetime})
    yield (
        AGENT,
        _limited(
            AGENT,
            "Script",
            {"type": ["array", "string", "object", "null"], "if": {"type": "object"}, "then": {"required": ["turns"]}},
        ),
    )
    yield PIPELINE, _present(PIPELINE, "Stages")
    tool_choice = {"properties": {"type": {"enum": ["auto", "any", "none", "tool"]}}}
    yield MODEL_SETTINGS, _limited(MODEL_SETTINGS, "ToolChoice", tool_choice)
    # Plugins have names of their own, but no capital letters, and none of these words for other keys.
    confused = {"anyOf": [{"enum": ["agent", "ask", "each", "loop", "question", "signal"]}, {"type": "number"}]}
    yield STEP, _limited(STEP, "Type", {"not": confused, "pattern": "^[^A-Z]*$"})
    yield MCP_SERVER, _present(MCP_SERVER, "Type")
    yield MCP_SERVER, _limited(MCP_SERVER, "Type", {"enum": ["stdio", "http"]})
    for server_type, key in (("stdio", "Command"), ("http", "URL")):
        yield MCP_SERVER, {"if": _is(MCP_SERVER, "Type", server_type), "then": _present(MCP_SERVER, key)}
    yield TOKEN_STORE, {"if": _is(TOKEN_STORE, "Type", "file"), "then": _present(TOKEN_STORE, "Path")}
    yield STEP, {"if": _is(STEP, "End", value=True), "then": _absent(STEP, "Next")}
    # An empty text is a content, too.
    yield CONTENT, {"oneOf": [_is(CONTENT, key, {"not": {"type": "null"}}) for key in SOURCES.values()]}
    yield DOCUMENT, _present(DOCUMENT, "Path")
    yield ASK, _limited(ASK, "Kind", {"enum": [None, *DEFINABLE]})
    has_default = _is(ASK, "Default", {"not": {"type": "null"}})
    yield ASK, {"if": has_default, "then": _present(ASK, "ExpiresIn")}
    yield EACH, {"oneOf": [_is(EACH, "Items", {"not": {"type": "null"}}), _has(EACH, "Rows")]}
    yield EACH, _limited(EACH, "Items", {"type": ["array", "string", "null"], "pattern": r"\$[({]"})
    yield EACH, _limited(EACH, "Rows", {"type": ["string", "null"], "pattern": r"\$\("})
    yield (
        APPROVAL_RULE,
        _limited(APPROVAL_RULE, "Expires", {"type": ["string", "null"], "pattern": "^[0-9]{4}-?[0-9W]"}),
    )
    yield APPROVAL_RULE, {"minProperties": 1}
    for table, key in ((STEP, "Store"), (CATCH, "Store"), (EACH, "As"), (INPUT, "Name")):
        yield table, _limited(table, key, {**_text(_NAME_PATTERN), "not": _shared("keyword", {"enum": keyword.kwlist})})
    for table, key in ((AGENT, "Provider"), (CONFIG, "DefaultProvider")):
        yield table, _limited(table, key, _text(f"^{PROVIDER_NAME.pattern}$"))
    yield from _rules_of_schedules()
    yield from _rules_of_workspaces()
    yield from _rules_of_step_types()


def _rules_of_schedules() -> Iterator[tuple[Table, dict[str, Any]]]:
    needed = {"allOf": [_present(SCHEDULE, "Cron"), _present(SCHEDULE, "Workflow")]}
    yield SCHEDULE, {"if": {"not": _is(SCHEDULE, "Enabled", value=False)}, "then": needed}
    yield SCHEDULE, _limited(SCHEDULE, "Cron", _text(cron.PATTERN))
    yield SCHEDULE, _limited(SCHEDULE, "Zone", _text("^[A-Za-z]"))


def _rules_of_workspaces() -> Iterator[tuple[Table, dict[str, Any]]]:
    yield (
        WORKSPACE,
        _limited(WORKSPACE, "Memory", {"anyOf": [_EMPTY_PART, {"type": "number"}, {"pattern": MEMORY_PATTERN}]}),
    )
    yield WORKSPACE, _limited(WORKSPACE, "Name", {"pattern": f"^{WORKSPACE_NAME.pattern}$"})
    for field, kind in OF_KINDS.items():
        key = field.capitalize()
        yield WORKSPACE, {"if": _has(WORKSPACE, key), "then": _is(WORKSPACE, "Kind", kind)}
    yield WORKSPACE, {"if": _is(WORKSPACE, "Kind", DOCKER), "then": _present(WORKSPACE, "Image")}
    yield WORKSPACE, {"if": _is(WORKSPACE, "InPlace", value=True), "then": _present(WORKSPACE, "Folder")}


def _rules_of_step_types() -> Iterator[tuple[Table, dict[str, Any]]]:
    """Yield a rule for each step type: a step of the type has one of the keys that the type needs, and none of those
    that have no effect on it.
    """
    # The type of a step without Type follows from its keys, the first of these counts (`inferred_type`).
    inferred = [(field, SETTINGS[field]) for field in INFERRED_TYPES]
    inferred += [("prompt", "Content"), ("workflow", "Workflow"), ("interrupt", "Ask"), ("wait", "Seconds")]
    inferred += [("wait", "Signal")]
    for step_type, used in USED.items():
        fields, _, _ = NEEDED.get(step_type, ((), "", ""))
        needed = [_present(STEP, *(used[field] for field in fields))] if fields else []
        unused = [key for key in SETTINGS.values() if key not in used.values()]
        then = _shared(f"step_of_type_{step_type}", {"allOf": [_absent(STEP, *unused), *needed]})
        yield STEP, {"if": _is(STEP, "Type", step_type), "then": then}
        for index, (name, key) in enumerate(inferred):
            if name == step_type:
                earlier = [earlier_key for _, earlier_key in inferred[:index]]
                parts = [_absent(STEP, "Type", *earlier), _present(STEP, key)]
                yield STEP, {"if": {"allOf": parts}, "then": then}
    # Without a type and such a key, a step does nothing.
    yield STEP, _present(STEP, "Type", *(key for _, key in inferred))


def schema_text() -> str:
    """Return the JSON schema of a definition file in the dialect ``divebook``, as ``definitions.schema.json`` in this
    package contains it.
    """
    return _laid_out(json_schema(), "") + "\n"


_WIDTH = 120
"""Length up to which a part of the schema stands on one line."""


def _laid_out(value: Any, margin: str) -> str:
    """Return JSON text in which each part that fits on one line stands on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(margin) + len(line) <= _WIDTH:
        return line
    inner = margin + " "
    if isinstance(value, list):
        parts = [f"{inner}{_laid_out(item, inner)}" for item in value]
        return "[\n" + ",\n".join(parts) + f"\n{margin}]"
    parts = [f"{inner}{json.dumps(key)}: {_laid_out(item, inner)}" for key, item in value.items()]
    return "{\n" + ",\n".join(parts) + f"\n{margin}}}"


# --- help on one key, for ``%dive help KEY`` and Shift+Tab on a key in a cell -----------------------------------------


def help_about(name: str) -> str:
    """Return the help for a name that a user typed. It describes each key with this name, and the part of definitions
    with this name, such as ``step``. Case is ignored.

    Raises
    ------
    NotFoundError
        Neither a key nor a part has this name.

    Examples
    --------
    >>> print(help_about("parallel"))
    Parallel: Maximum number of items that run at the same time.
        part of  Each
        type     integer
        default  1
        example  Parallel: 4
        note     not in the dialect dive
    """
    matches = [(table, key) for table in TABLES.values() for key in table.keys if _is_called(key, name)]
    # A name may be a key in several tables, and a part of its own: "Each" is a key of steps and a table.
    parts = {table.label: table for _, key in matches for table in _below(key)}
    try:
        part = table_called(name)
    except NotFoundError:
        if not matches:
            raise NotFoundError("key", name, [*key_names(), *TABLES]) from None
    else:
        parts[part.label] = part
    return "\n\n".join([*(_key(table, key) for table, key in matches), *map(_part, parts.values())])


def key_names() -> list[str]:
    """Return the names of all keys in all tables, without duplicates."""
    return list(dict.fromkeys(key.name for table in TABLES.values() for key in table.keys))


def help_for(table: Table, key: Key) -> str:
    """Return help for users on one key of a table. If the value of the key is a nested definition, the help lists the
    keys of that definition.
    """
    return "\n\n".join([_key(table, key), *map(_part, _below(key))])


def _below(key: Key) -> list[Table]:
    return [key.kind.table] if isinstance(key.kind, One | Many) else []


def _key(table: Table, key: Key) -> str:
    line = line_of(key, table)
    facts = {
        "part of": table.label,
        "type": line.holds,
        "default": line.default,
        "example": line.example,
        "note": line.notes,
    }
    rows = [f"    {name:8} {text}" for name, text in facts.items() if text]
    return "\n".join([f"{line.key}: {line.means}", *rows])


def _is_called(key: Key, name: str) -> bool:
    return name.casefold() in (key.name.casefold(), snake_case(key.name))


def _part(table: Table) -> str:
    return "\n".join([f"Keys of {table.label}:", *_rows([line_of(key, table) for key in table.keys])])


def _rows(lines: list[KeyLine]) -> Iterator[str]:
    width = max(len(line.key) for line in lines)
    for line in lines:
        default = f" Default: {line.default}." if line.default else ""
        yield f"    {line.key:{width}}  {line.means} Type: {line.holds}.{default}"
