"""From definitions back to a text or mapping that reads as the same definitions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from divebook.events.codec import encode, parse
from divebook.workflow.definition import Definitions, Workflow
from divebook.workflow.reading import Format
from divebook.workflow.schema import DEFINITIONS, WORKFLOW
from divebook.workflow.step import UNDECIDED, Step, chained
from divebook.workflow.yaml_text import dump_yaml


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
