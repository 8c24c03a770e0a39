"""Workflows as tools of the Model Context Protocol: their names, what they take, and what they give."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations

from divebook.errors import SetupError
from divebook.events.catalog import COMPLETED
from divebook.events.readable import json_form
from divebook.events.recorded import opened
from divebook.execution.execution import Execution
from divebook.questions.wording import address_of, example_answer
from divebook.text.redaction import shared
from divebook.workflow.definition import InputDefinition, Workflow
from divebook.workflow.functions import declared_type
from divebook.workflow.json_schemas import complaint
from divebook.workflow.kinds import INPUT_TYPES
from divebook.workflow.parameter_types import combine

STATUS_TOOL = "divebook_status"
"""Name of the tool that looks at an execution, and waits for it again."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_JSON_TYPES: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}
_RESULT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "execution": {"type": "string", "description": "Id of the run, which divebook_status takes."},
        "status": {"type": "string"},
        "outputs": {"type": "object"},
        "error": {"type": "string"},
    },
    "required": ["execution", "status", "outputs"],
}


def tool_names(workflows: Iterable[Workflow]) -> dict[str, Workflow]:
    """Return workflows by the names of their tools, which hold no blanks.

    Raises
    ------
    SetupError
        Two workflows would have one name.
    """
    named: dict[str, Workflow] = {}
    for workflow in workflows:
        name = _NO_NAME.sub("_", workflow.name)[:128] or "_"
        other = STATUS_TOOL if name == STATUS_TOOL else named[name].name if name in named else None
        if other is not None:
            raise SetupError(f"workflows {workflow.name!r} and {other!r} would both be the tool {name!r}; rename one")
        named[name] = workflow
    return named


def tool_of(name: str, workflow: Workflow) -> Tool:
    """Return the tool that runs a workflow."""
    told = workflow.description or f"Run the workflow {workflow.name!r}."
    schema = {
        **combine({entry.name: _input_schema(workflow, entry) for entry in workflow.inputs}),
        "required": [entry.name for entry in workflow.inputs if _is_required(entry)],
        "additionalProperties": False,
    }
    return Tool(
        name=name,
        title=workflow.name,
        description=f"{told} It may ask a person on the way.",
        input_schema=schema,
        output_schema=dict(_RESULT),
    )


def status_tool() -> Tool:
    """Return the tool that looks at an execution."""
    return Tool(
        name=STATUS_TOOL,
        description="Wait for a run that a tool of this server has begun, and return what has become of it.",
        input_schema={
            "type": "object",
            "properties": {"execution": {"type": "string", "description": "Id of the run; without it, those open."}},
            "additionalProperties": False,
        },
        annotations=ToolAnnotations(read_only_hint=True),
    )


def _is_required(entry: InputDefinition) -> bool:
    return not entry.has_default and entry.required is not False


def _input_schema(workflow: Workflow, entry: InputDefinition) -> dict[str, Any]:
    types, annotated = INPUT_TYPES.get((entry.type or "").lower(), ()), declared_type(workflow, entry)
    schema: dict[str, Any] = {"type": _JSON_TYPES[float if float in types else types[0]]} if types else {}
    if annotated is not None:
        schema = annotated.schema()
    if entry.description:
        schema["description"] = entry.description
    if entry.has_default:
        default = json_form(entry.default) if annotated is None else annotated.json_form(opened(entry.default))
        # A client may send the default back, so one that its own schema refuses is not published.
        fits = complaint(schema, default) is None if annotated is None else annotated.takes(default)
        if fits:
            schema["default"] = default
    return schema


def result_of(execution: Execution) -> CallToolResult:
    """Return what has become of an execution, in words and as data."""
    told = {"execution": execution.id, "status": execution.status, "outputs": json_form(dict(execution.state.outputs))}
    if execution.error:
        told["error"] = execution.error
    is_over = execution.state.is_over
    text = (
        json.dumps(told["outputs"], ensure_ascii=False, allow_nan=False)
        if execution.status == COMPLETED
        else _standing(execution)
    )
    return shown_result(text, told, is_error=is_over and execution.status != COMPLETED)


def shown_result(text: str, data: Mapping[str, Any] | None = None, *, is_error: bool = False) -> CallToolResult:
    """Return a result without what looks like a credential."""
    cleaned = None if data is None else shared().value(dict(data))
    return CallToolResult(
        content=[TextContent(type="text", text=shared().text(text))], structured_content=cleaned, is_error=is_error
    )


def _standing(execution: Execution) -> str:
    if execution.state.is_over:
        return f"The run {execution.id} is {execution.status}: {execution.error or 'no reason was given'}"
    asked = "; ".join(
        f"{question.question} (divebook answer {address_of(execution.id, question)} "
        f"{shlex.quote(example_answer(question))})"
        for question in execution.interrupts
    )
    waits = f"It waits for a person, who can also answer in a shell: {asked}." if asked else "It goes on."
    return f"The run {execution.id} is {execution.status}. {waits} Call {STATUS_TOOL} with its id to look again."
