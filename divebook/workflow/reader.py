"""From text, or plain Python data, to definitions: every problem found, each where it stands.

``text -> located nodes -> (table of keys) -> Definitions``. A body that is one workflow or one agent (the cells
``%%dive workflow NAME`` and ``%%dive agent NAME``) is read as a file that holds just that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from divebook.dialects import OWN, Dialect
from divebook.errors import Place
from divebook.workflow import located
from divebook.workflow.definition import AgentDefinition, Definitions, Workflow
from divebook.workflow.json_text import parse_json
from divebook.workflow.kinds import INVALID
from divebook.workflow.located import MAX_TEXT, NOWHERE, Mark, Node, Scalar, kind_of
from divebook.workflow.reading import Format, Reading
from divebook.workflow.schema import AGENT, DEFINITIONS, WORKFLOW
from divebook.workflow.yaml_text import parse_yaml

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
