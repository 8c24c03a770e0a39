"""A workflow one of whose steps has other keys: those that a person writes, each with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from textwrap import indent
from typing import Any

from divebook.dialects import Dialect
from divebook.errors import DefinitionError, NotFoundError
from divebook.workflow import located
from divebook.workflow.definition import Workflow
from divebook.workflow.located import NOWHERE, Mark, Node, Scalar, kind_of
from divebook.workflow.reader import read_workflow, workflow_of
from divebook.workflow.reading import Reading
from divebook.workflow.table import snake_case
from divebook.workflow.writer import workflow_to_mapping
from divebook.workflow.yaml_text import dump_yaml, parse_yaml


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
