"""Reader of definitions from YAML, JSON or plain Python data, and writer of definitions back to text.

The reader works in two stages: text becomes nodes with positions (`divebook.definitions.yaml_text`), and tables of keys
convert nodes to `Definitions` (`divebook.definitions.schema`). All problems are collected, each with its line and
column, and raised together. The body of a cell ``%%dive workflow NAME`` or ``%%dive agent NAME`` is read like a file
that contains only this workflow or agent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from textwrap import indent
from typing import Any, Literal, get_args

from divebook.definitions.definition import Definitions, Workflow
from divebook.definitions.dialect import OWN, Dialect
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.schema import AGENT, DEFINITIONS, WORKFLOW
from divebook.definitions.step import UNDECIDED, Step, chained
from divebook.definitions.table import (
    INVALID,
    MAX_TEXT,
    NOWHERE,
    Format,
    MappingNode,
    Mark,
    Node,
    Reading,
    Scalar,
    SequenceNode,
    kind_of,
    nodes_of,
    snake_case,
)
from divebook.definitions.yaml_text import dump_yaml, parse_json, parse_yaml
from divebook.errors import DefinitionError, NotFoundError, Place, SetupError
from divebook.events.codec import tagged_form
from divebook.text.arguments import describe, require_string
from divebook.text.ranges import COUNT_OR_ZERO

Body = Literal["file", "workflow", "agent"]


def read_definitions(
    text: str,
    *,
    source_name: str = "<cell>",
    dialect: Dialect = OWN,
    format: Format = "yaml",
    line_offset: int = 0,
    body: Body = "file",
    name: str | None = None,
) -> Definitions:
    """Read definitions from YAML or JSON text: a whole file, or a single workflow or agent.

    Parameters
    ----------
    line_offset
        Number of lines in the cell before the text.
    body
        Kind of the content: a whole file, or one workflow or agent.
    name
        Name of the workflow or agent, unless the text contains the name.

    Raises
    ------
    DefinitionError
        The text has errors. The exception lists all of them.
    """
    require_string(text, "the definition")
    if not COUNT_OR_ZERO.fits(line_offset):
        raise SetupError(f"line_offset must be {COUNT_OR_ZERO}, not {describe(line_offset)}")
    if body not in get_args(Body):
        raise SetupError(f"body must be one of {', '.join(get_args(Body))}, not {describe(body)}")
    reading = Reading(text, source_name, dialect, format, line_offset)
    # The limit comes first: parsing takes time and memory in proportion to the text.
    if len(text) > MAX_TEXT:
        reading.fail(f"the text has {len(text)} characters, more than {MAX_TEXT}", Mark(1, 1), "split it into files")
    return _read(parse_json(reading) if format == "json" else parse_yaml(reading), reading, body, name)


def definitions_from(
    mapping: Mapping[str, Any],
    *,
    source_name: str = "<mapping>",
    dialect: Dialect = OWN,
    body: Body = "file",
    name: str | None = None,
) -> Definitions:
    """Read definitions from plain Python data with the keys of a definition file."""
    reading = Reading(source_name=source_name, dialect=dialect)
    try:
        node = nodes_of(mapping)
    except (TypeError, ValueError) as error:
        reading.fail(str(error), NOWHERE)
    return _read(node, reading, body, name)


def read_workflow(
    text_or_mapping: str | Mapping[str, Any],
    *,
    name: str | None = None,
    dialect: Dialect = OWN,
    source_name: str = "<workflow>",
) -> Workflow:
    """Read one workflow from text or data. The keys of the workflow (Inputs, Steps ...) are at the top level."""
    return _read_either(text_or_mapping, source_name, dialect, "workflow", name).workflows[0]


def read_agent(
    text_or_mapping: str | Mapping[str, Any],
    *,
    name: str | None = None,
    dialect: Dialect = OWN,
    source_name: str = "<agent>",
) -> AgentDefinition:
    """Read one agent from text or data. The keys of the agent (Goal, Model ...) are at the top level."""
    return _read_either(text_or_mapping, source_name, dialect, "agent", name).agents[0]


def workflow_of(node: MappingNode, reading: Reading) -> Workflow:
    """Convert a mapping node of a definition text to the workflow that it describes. Raise `DefinitionError` if the
    workflow has errors.
    """
    definitions = _single(node, reading, "workflow", None)
    reading.raise_errors()
    return definitions.workflows[0]


def _read_either(
    source: str | Mapping[str, Any], source_name: str, dialect: Dialect, body: Body, name: str | None
) -> Definitions:
    if isinstance(source, str):
        return read_definitions(source, source_name=source_name, dialect=dialect, body=body, name=name)
    return definitions_from(source, source_name=source_name, dialect=dialect, body=body, name=name)


def _read(node: Node | None, reading: Reading, body: Body, name: str | None) -> Definitions:
    # An empty text is an empty mapping, whose missing keys are reported.
    root = MappingNode(()) if node is None else node
    if not isinstance(root, MappingNode):
        reading.fail(
            f"a definition must be a mapping of keys to values, not {kind_of(root)}", root.start, "write Key: value"
        )
    definitions = _file(root, reading) if body == "file" else _single(root, reading, body, name)
    # All errors are raised together, after everything is read.
    reading.raise_errors()
    # `is_text` marks the definitions as less trusted than Python code.
    return replace(definitions, warnings=reading.warnings, positions=reading.positions, is_text=True)


def _file(root: MappingNode, reading: Reading) -> Any:
    definitions = DEFINITIONS.read(root, (), reading)
    return Definitions() if definitions is INVALID else definitions


def _single(root: MappingNode, reading: Reading, body: Body, name: str | None) -> Definitions:
    """Read the text of a single workflow or agent. Problems and positions get the same paths of keys as in a file whose
    only workflow or agent this is, such as ``Workflows``, 0, ``Steps``.
    """
    table, key = (WORKFLOW, "Workflows") if body == "workflow" else (AGENT, "Agents")
    place: Place = (key, 0)
    # The place of the workflow exists only in a file. In a cell it is the whole text.
    reading.locate(place, root.start, root.start)
    definition = table.read(_named(root, reading, place, name), place, reading)
    items = () if definition is INVALID else (definition,)
    if body == "agent":
        return Definitions(agents=items)
    # The source of a workflow in a cell is the text of the cell, with its comments.
    return Definitions(workflows=tuple(item.like(source=reading.text) for item in items))


def _named(root: MappingNode, reading: Reading, place: Place, name: str | None) -> MappingNode:
    """Add to a definition in a notebook cell the name that the magic above it states, as in ``%%dive workflow NAME``.
    Add a problem to `reading` if the definition has another name.
    """
    # In JSON the key may have any case.
    written = next((value for key, value in root.entries if key.text.casefold() == "name"), None)
    if name is None:
        return root
    if written is None:
        # The added name has the position of the whole definition.
        return replace(
            root, entries=((Scalar("Name", "Name", root.start), Scalar(name, name, root.start)), *root.entries)
        )
    if isinstance(written, Scalar) and written.value is not None and written.text.strip() != name:
        message = f"Name is {written.text!r}, but the name given to the whole definition is {name!r}"
        reading.add(message, written.start, (*place, "Name"), key="Name", hint="remove Name")
    return root


# --- writing: definitions to a mapping or text that is read as equal definitions --------------------------------------


def definitions_to_mapping(definitions: Definitions) -> dict[str, Any]:
    """Return definitions as a mapping with the keys of definition files. Keys with their default value are omitted."""
    mapping = DEFINITIONS.write(definitions)
    # Workflows of pipelines are made from them again when the text is read.
    pipelines = {pipeline.name for pipeline in definitions.pipelines}
    workflows = [workflow for workflow in definitions.workflows if workflow.name not in pipelines]
    mapping.pop("Workflows", None)
    if workflows:
        mapping["Workflows"] = [workflow_to_mapping(workflow) for workflow in workflows]
    plain: dict[str, Any] = _as_text(mapping)
    return plain


def workflow_to_mapping(workflow: Workflow) -> dict[str, Any]:
    """Return a workflow as a mapping with the keys of definition files. ``Next`` is omitted if the order of steps
    implies it.
    """
    mapping = WORKFLOW.write(workflow)
    # Keys are deleted after the table has written all of them, since only the order of the steps shows which are
    # implied.
    for written, is_implied in zip(mapping["Steps"], _implied(workflow.steps), strict=True):
        if is_implied:
            del written["Next"]
    plain: dict[str, Any] = _as_text(mapping)
    return plain


def _as_text(value: Any) -> Any:
    """Convert a value to plain data that YAML and JSON text can contain. A value that JSON lacks, such as a date, is
    replaced by its recorded form.
    """
    if isinstance(value, dict):
        return {key: _as_text(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(part) for part in value]
    if isinstance(value, int) and not isinstance(value, bool):
        # An integer beyond 64 bits has a class of its own (`BigInt`). The writer of YAML knows plain integers only.
        return int(value)
    return value if value is None or isinstance(value, str | float | bool) else tagged_form(value)


def definitions_to_text(definitions: Definitions, format: Format = "yaml") -> str:
    """Return definitions as the YAML or JSON text of a definition file."""
    mapping = definitions_to_mapping(definitions)
    return json.dumps(mapping, indent=2, ensure_ascii=False) + "\n" if format == "json" else dump_yaml(mapping)


def _implied(steps: tuple[Step, ...]) -> list[bool]:
    """Return a boolean for each step: True if its key ``Next`` can be omitted from the text, because the order of the
    steps implies the same edges.
    """
    # Edges that follow from the order are computed as if no step had the key.
    without_next = chained(replace(step, edges=UNDECIDED) for step in steps)
    return [step.edges == implied.edges for step, implied in zip(steps, without_next, strict=True)]


# --- changes of single steps ------------------------------------------------------------------------------------------


def require_step_of(workflow: Workflow, name: str) -> None:
    """Raise `NotFoundError` unless a workflow has a step with this name."""
    names = [step.name for step in workflow.steps]
    if name not in names:
        raise NotFoundError("step", name, names, f"workflow {workflow.name!r} has no step {name!r}")


def with_keys(
    workflow: Workflow, step: str, keys: str | Mapping[str, Any], *, source_name: str = "changes", line_offset: int = 0
) -> Workflow:
    """Return a copy of a workflow in which some keys of one step have new values.

    Parameters
    ----------
    keys
        Keys of a step, in YAML or as plain data: ``{"Prompt": "Shorter: ${state.text}"}``. A null value removes a key.
    line_offset
        Number of lines above the text where people see it.

    Raises
    ------
    NotFoundError
        The workflow has no such step.
    DefinitionError
        The result has errors. The exception lists all of them with their lines.
    """
    require_step_of(workflow, step)
    reading = _reading(keys, source_name, workflow.dialect, line_offset)
    # The changed workflow is read like a text, so that it passes all checks of a text.
    root = nodes_of(workflow_to_mapping(workflow))
    assert isinstance(root, MappingNode)  # noqa: S101 - a workflow is written as one
    # The source text of the workflow does not have the change.
    return workflow_of(_with_step(root, step, _keys(keys, reading)), reading).like(source="")


def workflow_text(workflow: Workflow, written: str = "", step: str = "") -> str:
    """Return a workflow as YAML text, in the form of the body of a cell ``%%dive workflow NAME``.

    Parameters
    ----------
    written
        Text that defined the workflow before `step` changed. If possible, only this step is replaced in the text, so
        that comments and layout of the rest stay (test_a_trial_is_kept_in_the_text_that_was_written).
    """
    mapping = workflow_to_mapping(workflow)
    # Without a known step, or without its former text, the whole workflow is written again.
    changed_step = next((entry for entry in mapping["Steps"] if entry["Name"] == step), None)
    text = None if changed_step is None or not written else _text_with(written, workflow, changed_step)
    return text or dump_yaml({key: value for key, value in mapping.items() if key != "Name"})


def _text_with(written: str, workflow: Workflow, step: Mapping[str, Any]) -> str | None:
    """Replace one step in the YAML text of a workflow, and return the new text. Return None if the new text would not
    define exactly the given workflow.
    """
    try:
        root = parse_yaml(Reading(written, "kept", workflow.dialect))
        entries = root.entries if isinstance(root, MappingNode) else ()
        # `items` exists only on a list. Other values under ``Steps`` have no steps.
        steps = [item for key, value in entries if key.text == "Steps" for item in getattr(value, "items", ())]
        old = next(item for item in steps if isinstance(item, MappingNode) and _is_named(item, step["Name"]))
        lines = written[old.start.index : old.end.index].split("\n")
        while not lines[-1].strip() or lines[-1].lstrip().startswith("#"):  # they belong to the next step
            lines.pop()
        end = old.start.index + len("\n".join(lines))
        # The step begins in the column of the old one, behind its "- ". Its first line needs no indentation.
        step_text = indent(dump_yaml(step).rstrip("\n"), " " * (old.start.column - 1)).lstrip()
        text = f"{written[: old.start.index]}{step_text}{written[end:]}"
        # The new text is read again, since the old step may have had an anchor that the rest uses.
        result = read_workflow(text, dialect=workflow.dialect, name=workflow.name)
    except (DefinitionError, StopIteration):
        return None
    return text if result.fingerprint == workflow.fingerprint else None


def _reading(keys: str | Mapping[str, Any], source_name: str, dialect: Dialect, line_offset: int) -> Reading:
    return Reading(keys if isinstance(keys, str) else "", source_name, dialect, line_offset=line_offset)


def _keys(keys: str | Mapping[str, Any], reading: Reading) -> MappingNode:
    """Parse the keys of a step that a user wants to change. Return a mapping node.

    Raise `DefinitionError` if the data is not a mapping, or contains a Name: a step keeps its name.
    """
    try:
        node: Node | None = parse_yaml(reading) if isinstance(keys, str) else nodes_of(dict(keys))
    except (TypeError, ValueError) as error:
        reading.fail(str(error), NOWHERE)
    reading.raise_errors()
    if node is None:
        return MappingNode(())
    if not isinstance(node, MappingNode):
        reading.fail(
            f"the changed keys of a step must be a mapping, not {kind_of(node)}",
            node.start,
            "write Prompt: another text",
        )
    for key, _ in node.entries:
        if snake_case(key.text) == "name":
            reading.fail("a step cannot be renamed in a trial", key.start, "remove Name")
    return node


def _with_step(root: MappingNode, step: str, changes: MappingNode) -> MappingNode:
    """Return a copy of a workflow's mapping node in which the keys of the step called `step` are replaced by those in
    `changes`.
    """

    def changed(key: Scalar, value: Node) -> Node:
        if key.text != "Steps" or not isinstance(value, SequenceNode):
            return value
        items = tuple(_merged(item, changes) if _is_named(item, step) else item for item in value.items)
        return replace(value, items=items)

    return replace(root, entries=tuple((key, changed(key, value)) for key, value in root.entries))


def _merged(step: Node, changes: MappingNode) -> MappingNode:
    assert isinstance(step, MappingNode)  # noqa: S101 - the node of a written step
    # A changed key replaces the old one in either spelling.
    changed_keys = {snake_case(key.text) for key, _ in changes.entries}
    unchanged = [entry for entry in step.entries if snake_case(entry[0].text) not in changed_keys]
    # A null removes the key.
    new = [entry for entry in changes.entries if not (isinstance(entry[1], Scalar) and entry[1].value is None)]
    # Errors of the merged step are shown at the changes, because the rest has no text.
    start = changes.entries[0][0].start if changes.entries else Mark()
    return replace(step, entries=(*unchanged, *new), start=start)


def _is_named(step: Node, name: str) -> bool:
    entries = step.entries if isinstance(step, MappingNode) else ()
    return any(key.text == "Name" and isinstance(value, Scalar) and value.value == name for key, value in entries)
