"""Records from the values that were read, for tables that need more than passing them on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from divebook.bounds import Bounds, agent_bounds
from divebook.dialects import dive
from divebook.errors import BoundsError, DefinitionError, Place, Problem, Severity
from divebook.workflow.content import EXACTLY_ONE, ContentEntry
from divebook.workflow.definition import (
    Config,
    Definitions,
    MCPServerDefinition,
    OutputDefinition,
    TriggerDefinition,
    Workflow,
)
from divebook.workflow.graph import check_workflow, duplicate_names
from divebook.workflow.kinds import INVALID
from divebook.workflow.pipeline_steps import declared
from divebook.workflow.pipelines import AgentStage, PipelineConfig
from divebook.workflow.reading import Reading
from divebook.workflow.resources import AgentDefinition
from divebook.workflow.step import Step, chained
from divebook.workflow.table import Made
from divebook.workflow.written import Written

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
"""Lists in which the dialect ``dive`` rejects a repeated name too."""


def content_entry(made: Made, reading: Reading) -> Any:
    """Make a content entry: exactly one source."""
    entry = ContentEntry(**(made.values if reading.strict else dive.content(made.values)))
    if made.is_sound and not entry.is_complete:
        reading.add(EXACTLY_ONE, made.node.start, made.place, hint=f"this one has {', '.join(entry.given) or 'none'}")
    return entry if entry.is_complete else INVALID


def step(made: Made, reading: Reading) -> Any:
    """Make a step, its type inferred; a step that is wrong already is not checked again later."""
    if not made.is_sound:
        reading.broken.add(made.place)
    values = {"name": "", **made.values}
    if not reading.strict:
        values = dive.step(values)
    return Step(**values)


def _bounds(values: dict[str, Any], made: Made, reading: Reading, read: Callable[[Any], Bounds] = Bounds.read) -> None:
    """Bring what may be spent into its plain form."""
    if "bounds" not in values:
        return
    try:
        values["bounds"] = read(values["bounds"]).to_dict()
    except BoundsError as error:
        reading.add(str(error), made.node.start, (*made.place, "Bounds"), key="Bounds")


def output(made: Made, reading: Reading) -> Any:
    """Make an output; without a name it is nothing."""
    if made.values.get("name"):
        return OutputDefinition(**made.values)
    message = "output name is required"
    reading.add(message, made.node.start, made.place, key="Name", severity=reading.severity)
    return INVALID


def trigger(made: Made, reading: Reading) -> Any:
    """Make a trigger; the dialect ``dive`` takes one without a name."""
    if reading.strict and made.is_sound and not made.values.get("name"):
        reading.add("trigger name is required", made.node.start, made.place, key="Name")
    return TriggerDefinition(**{"name": "", **made.values})


def workflow(made: Made, reading: Reading) -> Any:
    """Make a workflow if its parts fit together; otherwise note everything that does not."""
    values = {"name": "", "steps": (), "inputs": (), **made.values}
    _bounds(values, made, reading)
    single = values.pop("output", None)
    outputs = (*([single] if single else []), *values.pop("outputs", ()))
    steps_place = (*made.place, "Steps")
    is_whole = not any(place[: len(steps_place)] == steps_place for place in reading.refused)
    if "steps" not in made.failed and is_whole:
        steps, inputs = values["steps"], values["inputs"]
        names = {"inputs": [entry.name for entry in inputs], "outputs": [entry.name for entry in outputs]}
        found = check_workflow(values["name"], steps, chained(steps), reading.manner, **names)
        reading.add_found(p.below(*made.place) for p in found if not _is_echo(p, made.place, reading))
    if reading.errors:
        return INVALID
    written = Written(reading.source_name, reading.positions, made.place, reading.text, reading.line_offset)
    source = reading.source_of(made.node)
    return Workflow(**values, outputs=outputs, dialect=reading.dialect, source=source, written=written)


def _is_echo(problem: Problem, place: Place, reading: Reading) -> bool:
    """Whether the problem is about a step with something wrong in it already, and likely follows from that."""
    in_broken_step = (*place, *problem.place[:2]) in reading.broken
    return in_broken_step and problem.place[2:3] not in (("Next",), ("Name",))


def agent(made: Made, reading: Reading) -> Any:
    """Make an agent; the dialect ``dive`` names a nameless one after its position."""
    values = {"name": "", **made.values}
    if not values["name"] and reading.strict:
        reading.add("agent name is required", made.node.start, made.place, key="Name", hint="add Name")
    elif not values["name"]:
        values["name"] = f"agent-{_number(made.place)}"
    _bounds(values, made, reading, agent_bounds)
    _check_provider(values.get("provider"), (*made.place, "Provider"), reading)
    if not values.get("response_timeout", 1):
        del values["response_timeout"]
    if values.get("tool_iteration_limit", 1) <= 0:
        del values["tool_iteration_limit"]
    return AgentDefinition(**values, dialect=reading.dialect)


def _number(place: Place) -> int:
    return next((part for part in reversed(place) if isinstance(part, int)), 0) + 1


def config(made: Made, reading: Reading) -> Any:
    """Make the settings that hold for everything."""
    _check_provider(made.values.get("default_provider"), (*made.place, "DefaultProvider"), reading)
    return Config(**made.values)


def _check_provider(name: str | None, place: Place, reading: Reading) -> None:
    if name is None or (name == "" and not reading.strict):
        return
    if reading.strict and not PROVIDER_NAME.fullmatch(name):
        hint = "write its name alone, such as openai; Model takes the model"
    elif not reading.strict and name not in dive.PROVIDERS:
        hint = f"one of {', '.join(dive.PROVIDERS)}"
    else:
        return
    reading.add_found([Problem(f'unsupported provider: "{name}"', key=str(place[-1]), hint=hint, place=place)])


def mcp_server(made: Made, reading: Reading) -> Any:
    """Make an MCP server; the strict dialect asks at once for what connecting would miss."""
    if "name" in made.failed:
        return INVALID
    server = MCPServerDefinition(**made.values)
    needs = {"stdio": ("command", "Command"), "http": ("url", "URL")}.get(server.type)
    if reading.strict and made.is_sound and needs is None:
        message = f"unsupported mcp server type: {server.type}"
        reading.add(message, made.node.start, made.place, key="Type", hint="one of stdio, http")
    elif reading.strict and needs is not None and made.is_sound and not getattr(server, needs[0]):
        message = f"{needs[0]} is required for {server.type} mcp server"
        reading.add(message, made.node.start, made.place, key=needs[1], hint=f"add {needs[1]}")
    return server


def definitions(made: Made, reading: Reading) -> Any:
    """Make the whole of a file or cell; names are unique in each list."""
    for name, (key, label) in LISTS.items():
        names = [item.name for item in made.values.get(name, ())]
        severity: Severity = "error" if name in FATAL_DUPLICATES else reading.severity
        reading.add_found(duplicate_names(label, names, (*made.place, key), severity, manner=reading.manner))
    if reading.errors:
        return INVALID
    workflows, pipelines = made.values.get("workflows", ()), made.values.get("pipelines", ())
    for place, pipeline in enumerate(pipelines):
        if pipeline.name in {workflow.name for workflow in workflows}:
            message = f"pipeline {pipeline.name!r} has the name of a workflow"
            reading.add(message, made.node.start, (*made.place, "Pipelines", place, "Name"), key="Name")
    return Definitions(**{**made.values, "workflows": (*workflows, *map(declared, pipelines))})


def stage(made: Made, _reading: Reading) -> Any:
    """Make a stage of a pipeline; one that names an agent is one where it answers."""
    has_llm = {"has_llm": True} if made.values.get("model_role") else {}
    return AgentStage(**{**has_llm, **made.values}) if made.is_sound else INVALID


def pipeline(made: Made, reading: Reading) -> Any:
    """Make a pipeline, or note everything in it that does not fit together."""
    if not made.is_sound:
        return INVALID
    try:
        return PipelineConfig(**made.values)
    except DefinitionError as error:
        for problem in error.problems:
            place = (*made.place, problem.key or "")
            reading.add(problem.message, made.node.start, place, key=problem.key, hint=problem.hint)
        return INVALID
