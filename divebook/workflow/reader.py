"""From text, or plain Python data, to definitions: every problem found, each where it stands.

``text -> located nodes -> (table of keys) -> Definitions``. A body that is one workflow or one agent (the cells
``%%dive workflow NAME`` and ``%%dive agent NAME``) is read as a file that holds just that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from textwrap import indent
from typing import Any, Literal

from divebook.errors import DefinitionError, NotFoundError, Place
from divebook.events.codec import encode, parse
from divebook.workflow import table as located
from divebook.workflow.definition import Definitions, Workflow
from divebook.workflow.dialect import OWN, Dialect
from divebook.workflow.resources import AgentDefinition
from divebook.workflow.schema import AGENT, DEFINITIONS, WORKFLOW
from divebook.workflow.step import UNDECIDED, Step, chained
from divebook.workflow.table import INVALID, MAX_TEXT, NOWHERE, Format, Mark, Node, Reading, Scalar, kind_of, snake_case
from divebook.workflow.yaml_text import dump_yaml, parse_json, parse_yaml

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
    """Read a definition text.

    Parameters
    ----------
    line_offset
        How many lines of the cell come before the text.
    body
        What the text is: a whole file, or only one workflow or agent.
    name
        Name of that workflow or agent, unless the text has it.

    Raises
    ------
    DefinitionError
        With every problem found.
    """
    reading = Reading(text, source_name, dialect, format, line_offset)
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
    """Read plain Python data of the same form as a definition text."""
    reading = Reading(source_name=source_name, dialect=dialect)
    try:
        node = located.located(mapping)
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
    """Read one workflow, whose keys (Inputs, Steps ...) stand at the top."""
    found = _read_either(text_or_mapping, source_name, dialect, "workflow", name)
    return found.workflows[0]


def read_agent(
    text_or_mapping: str | Mapping[str, Any],
    *,
    name: str | None = None,
    dialect: Dialect = OWN,
    source_name: str = "<agent>",
) -> AgentDefinition:
    """Read one agent, whose keys (Goal, Model ...) stand at the top."""
    found = _read_either(text_or_mapping, source_name, dialect, "agent", name)
    return found.agents[0]


def workflow_of(node: located.Mapping, reading: Reading) -> Workflow:
    """Return the workflow that nodes say, of a text or not; raises `DefinitionError`."""
    found = _single(node, reading, "workflow", None)
    reading.raise_errors()
    return found.workflows[0]


def _read_either(
    source: str | Mapping[str, Any], source_name: str, dialect: Dialect, body: Body, name: str | None
) -> Definitions:
    if isinstance(source, str):
        return read_definitions(source, source_name=source_name, dialect=dialect, body=body, name=name)
    return definitions_from(source, source_name=source_name, dialect=dialect, body=body, name=name)


def _read(node: Node | None, reading: Reading, body: Body, name: str | None) -> Definitions:
    root = located.Mapping(()) if node is None else node
    if not isinstance(root, located.Mapping):
        reading.fail(
            f"a definition is a mapping of keys to values, not {kind_of(root)}", root.start, "write Key: value"
        )
    found = _file(root, reading) if body == "file" else _single(root, reading, body, name)
    reading.raise_errors()
    return replace(found, warnings=reading.warnings, positions=reading.positions, is_text=True)


def _file(root: located.Mapping, reading: Reading) -> Any:
    found = DEFINITIONS.read(root, (), reading)
    return Definitions() if found is INVALID else found


def _single(root: located.Mapping, reading: Reading, body: Body, name: str | None) -> Definitions:
    """Read the only item of a list, so that places and positions are those of a whole file."""
    table, key = (WORKFLOW, "Workflows") if body == "workflow" else (AGENT, "Agents")
    place: Place = (key, 0)
    reading.locate(place, root.start, root.start)
    found = table.read(_named(root, reading, place, name), place, reading)
    items = () if found is INVALID else (found,)
    if body == "agent":
        return Definitions(agents=items)
    return Definitions(workflows=tuple(item.like(source=reading.text) for item in items))


def _named(root: located.Mapping, reading: Reading, place: Place, name: str | None) -> located.Mapping:
    """Return the mapping with the name that was given outside of it."""
    written = next((value for key, value in root.entries if key.text.casefold() == "name"), None)
    if name is None:
        return root
    if written is None:
        return replace(
            root, entries=((Scalar("Name", "Name", root.start), Scalar(name, name, root.start)), *root.entries)
        )
    if isinstance(written, Scalar) and written.value is not None and written.text.strip() != name:
        message = f"Name is {written.text!r} here, but {name!r} was given as its name"
        reading.add(message, written.start, (*place, "Name"), key="Name", hint="remove Name")
    return root


# From definitions back to a text or mapping that reads as the same definitions.


def definitions_to_mapping(definitions: Definitions) -> dict[str, Any]:
    """Return definitions as a mapping in the written schema, without what is at its default."""
    mapping = DEFINITIONS.write(definitions)
    pipelines = {pipeline.name for pipeline in definitions.pipelines}
    workflows = [workflow for workflow in definitions.workflows if workflow.name not in pipelines]
    mapping.pop("Workflows", None)
    if workflows:
        mapping["Workflows"] = [workflow_to_mapping(workflow) for workflow in workflows]
    plain: dict[str, Any] = _as_text(mapping)
    return plain


def workflow_to_mapping(workflow: Workflow) -> dict[str, Any]:
    """Return a workflow as a mapping in the written schema; edges that need not be written are left out."""
    mapping = WORKFLOW.write(workflow)
    for written, is_implied in zip(mapping["Steps"], _implied(workflow.steps), strict=True):
        if is_implied:
            del written["Next"]
    plain: dict[str, Any] = _as_text(mapping)
    return plain


def _as_text(value: Any) -> Any:
    """Return written definitions as plain JSON: integers of any size as such, other defaults in the form of the log."""
    if isinstance(value, dict):
        return {key: _as_text(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(part) for part in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value if value is None or isinstance(value, str | float | bool) else parse(encode(value))


def definitions_to_text(definitions: Definitions, format: Format = "yaml") -> str:
    """Return definitions as YAML or JSON."""
    mapping = definitions_to_mapping(definitions)
    return json.dumps(mapping, indent=2, ensure_ascii=False) + "\n" if format == "json" else dump_yaml(mapping)


def _implied(steps: tuple[Step, ...]) -> list[bool]:
    """Tell for each step whether its edges are those it would have without Next."""
    alone = chained(replace(step, edges=UNDECIDED) for step in steps)
    return [step.edges == implied.edges for step, implied in zip(steps, alone, strict=True)]


# A workflow one of whose steps has other keys: those that a person writes, each with its line.


def require_step_of(workflow: Workflow, name: str) -> None:
    """Raise `NotFoundError` unless a workflow has a step of that name."""
    names = [step.name for step in workflow.steps]
    if name not in names:
        raise NotFoundError("step", name, names, f"workflow {workflow.name!r} has no step {name!r}")


def with_keys(
    workflow: Workflow, step: str, keys: str | Mapping[str, Any], *, source_name: str = "changes", line_offset: int = 0
) -> Workflow:
    """Return a workflow in which a step has these keys in place of its own; its other keys stay.

    Parameters
    ----------
    keys
        As a definition has them, in YAML or as plain data: ``{"Prompt": "Shorter: ${state.text}"}``. One that is null
        is taken away.
    line_offset
        How many lines stand above the text where people see it.

    Raises
    ------
    NotFoundError
        It has no such step.
    DefinitionError
        With every problem found, each with its line.
    """
    require_step_of(workflow, step)
    reading = _reading(keys, source_name, workflow.dialect, line_offset)
    root = located.located(workflow_to_mapping(workflow))
    assert isinstance(root, located.Mapping)  # noqa: S101 - a workflow is written as one
    return workflow_of(_with_step(root, step, _keys(keys, reading)), reading).like(source="")


def workflow_text(workflow: Workflow, written: str = "", step: str = "") -> str:
    """Return the body of a cell ``%%dive workflow NAME`` that defines a workflow.

    Parameters
    ----------
    written
        The text that defined it before one `step` changed: where it can be, only that is written anew, and comments and
        layout of the rest stay (test_a_trial_is_kept_in_the_text_that_was_written).
    """
    mapping = workflow_to_mapping(workflow)
    anew = next((given for given in mapping["Steps"] if given["Name"] == step), None)
    kept = None if anew is None or not written else _text_with(written, workflow, anew)
    return kept or dump_yaml({key: value for key, value in mapping.items() if key != "Name"})


def _text_with(written: str, workflow: Workflow, step: Mapping[str, Any]) -> str | None:
    """Return a text with a step as it is now; None if the text would not define the workflow."""
    try:
        root = parse_yaml(Reading(written, "kept", workflow.dialect))
        entries = root.entries if isinstance(root, located.Mapping) else ()
        steps = [item for key, value in entries if key.text == "Steps" for item in getattr(value, "items", ())]
        old = next(item for item in steps if isinstance(item, located.Mapping) and _is_named(item, step["Name"]))
        lines = written[old.start.index : old.end.index].split("\n")
        while not lines[-1].strip() or lines[-1].lstrip().startswith("#"):  # those belong to what follows
            lines.pop()
        end = old.start.index + len("\n".join(lines))
        anew = indent(dump_yaml(step).rstrip("\n"), " " * (old.start.column - 1)).lstrip()
        text = f"{written[: old.start.index]}{anew}{written[end:]}"
        found = read_workflow(text, dialect=workflow.dialect, name=workflow.name)
    except (DefinitionError, StopIteration):
        return None
    return text if found.fingerprint == workflow.fingerprint else None


def _reading(keys: str | Mapping[str, Any], source_name: str, dialect: Dialect, line_offset: int) -> Reading:
    return Reading(keys if isinstance(keys, str) else "", source_name, dialect, line_offset=line_offset)


def _keys(keys: str | Mapping[str, Any], reading: Reading) -> located.Mapping:
    try:
        node: Node | None = parse_yaml(reading) if isinstance(keys, str) else located.located(dict(keys))
    except (TypeError, ValueError) as error:
        reading.fail(str(error), NOWHERE)
    reading.raise_errors()
    if node is None:
        return located.Mapping(())
    if not isinstance(node, located.Mapping):
        reading.fail(
            f"the changed keys of a step are a mapping, not {kind_of(node)}", node.start, "write Prompt: another text"
        )
    for key, _ in node.entries:
        if snake_case(key.text) == "name":
            reading.fail("a step keeps its name while it is tried", key.start, "remove Name")
    return node


def _with_step(root: located.Mapping, step: str, changes: located.Mapping) -> located.Mapping:
    """Return the nodes of a workflow with those of one step changed."""

    def changed(key: Scalar, value: Node) -> Node:
        if key.text != "Steps" or not isinstance(value, located.Sequence):
            return value
        items = tuple(_merged(item, changes) if _is_named(item, step) else item for item in value.items)
        return replace(value, items=items)

    return replace(root, entries=tuple((key, changed(key, value)) for key, value in root.entries))


def _merged(step: Node, changes: located.Mapping) -> located.Mapping:
    assert isinstance(step, located.Mapping)  # noqa: S101 - that of a step that was written is one
    given = {snake_case(key.text) for key, _ in changes.entries}
    kept = [entry for entry in step.entries if snake_case(entry[0].text) not in given]
    new = [entry for entry in changes.entries if not (isinstance(entry[1], Scalar) and entry[1].value is None)]
    start = changes.entries[0][0].start if changes.entries else Mark()
    return replace(step, entries=(*kept, *new), start=start)


def _is_named(step: Node, name: str) -> bool:
    entries = step.entries if isinstance(step, located.Mapping) else ()
    return any(key.text == "Name" and isinstance(value, Scalar) and value.value == name for key, value in entries)
