"""Generated parts of pages about data: types of events, columns of frames, and JSON that commands print.

`documentation.reference` calls the functions of this module for the markers ``event``, ``events``, ``frame``,
``dtypes`` and ``json``.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from documentation import reference

EXAMPLES = Path(__file__).parents[1] / "tests" / "events" / "examples.jsonl"
"""One recorded event of each type."""

# --- events ----------------------------------------------------------------------------------------------------------


MEANINGS: Mapping[str, str] = {
    "after": "Hash of all files after the change.",
    "agent": "Name of the agent.",
    "available_versions": "Names of the versions. Only in logs of the legacy Dive dialect.",
    "before": "Hash of all files before the change.",
    "bounds": "Budget as plain data. None if the fork has the same budget as its source.",
    "by": "Person or program that caused the event.",
    "change_id": "Name of the change, the first argument of `ctx.version`.",
    "current_step": "Name of the step at which the path continues.",
    "error": "Type and message of the error.",
    "host": "Name or address of the host.",
    "identity": "Person or system that requested the execution.",
    "inputs": "Inputs by name, with default values.",
    "interrupt_id": "Id of the question.",
    "item": "Value of the item.",
    "item_key": "Key of the item, if `Each` iterates over a mapping.",
    "iteration_index": "Index of the item of `Each`, from 0.",
    "kind": "Kind of the question, such as ``confirmation``.",
    "model": "Model that all agents use in place of their own models. None if each agent uses its own model.",
    "name": "Name of the event, the first argument of `ctx.emit`.",
    "notebook": "Notebook that started the execution.",
    "operation_id": "Id of the operation.",
    "operation_type": "Type of the operation, such as ``agent_response``, ``action_execution`` or ``timer``.",
    "parameters": "Parameters by name.",
    "parameters_hash": "Hash of the parameters. A replay or a resumed run compares it with the hash of its own call.",
    "port": "Port of the host.",
    "queue": "Name of the queue.",
    "reason": "Reason as text.",
    "tags": "Tags of the execution.",
    "target": "Name of the step.",
    "usage": "Usage of model calls: tokens, number of calls, and ``cost`` in nanodollars.",
    "workflow_name": "Name of the workflow.",
    "workspace": "Name of the workspace.",
    "written_by": "Version of divebook that wrote the event.",
}
"""Meanings of fields without a text in the source, by field."""
MEANINGS_OF_EVENTS: Mapping[tuple[str, str], str] = {
    ("approval_rule_added", "outcome"): "Decision about later calls: ``allow`` or ``deny``.",
    ("approval_rule_added", "rule_id"): "Id of the rule.",
    ("approval_rule_added", "server"): "Name of the MCP server that has the tool.",
    ("approval_rule_revoked", "rule_id"): "Id of the rule.",
    ("condition_evaluated", "condition"): "Text of the condition.",
    ("condition_evaluated", "result"): "True if the path continues at `target`.",
    ("event_emitted", "data"): "Data of the event.",
    ("execution_completed", "outputs"): "Outputs of the workflow by name.",
    ("execution_continue_as_new", "new_execution_id"): "Id of the successor.",
    ("execution_continue_as_new", "new_inputs"): "Inputs of the successor.",
    ("execution_continue_as_new", "state_transfer"): "Variables with which the successor starts.",
    ("execution_forked", "cell"): "Id of the cell that started the fork, if known.",
    ("execution_forked", "fingerprint"): "Fingerprint of the definition, if the fork changed the definition.",
    ("execution_forked", "key"): "Start key of the fork.",
    ("execution_forked", "note"): "Note that a person has written about the fork.",
    ("execution_resumed", "previous_status"): "Status before the execution was resumed.",
    ("interrupt_raised", "data"): "Additional data for the person who answers.",
    ("interrupt_raised", "question"): "Text of the question.",
    ("interrupt_resolved", "answered_by"): "Person or program that answered.",
    ("interrupt_resolved", "response"): "The answer: ``approved``, ``text``, ``decision`` or ``data``.",
    ("iteration_completed", "result"): "Result of the item.",
    ("iteration_failed", "attempts"): "Number of attempts.",
    ("iteration_failed", "error_names"): "Names of the class of the error and of its base classes.",
    ("iteration_failed", "trace"): "Traceback in user code.",
    ("operation_completed", "duration"): "Time from the start to the end, in nanoseconds.",
    ("operation_completed", "result"): "Result of the operation.",
    ("operation_failed", "duration"): "Time from the start to the end, in nanoseconds.",
    (
        "operation_failed",
        "held",
    ): "Part of the budget that the ended child execution had passed to executions that are still running.",
    ("operations_abandoned", "operation_ids"): "Ids of the abandoned operations.",
    ("path_branched", "new_paths"): "New paths. Each path has ``id``, ``current_step`` and ``inherit_outputs``.",
    ("path_completed", "final_step"): "Name of the last step.",
    ("path_joined", "joined"): "Ids of the other paths that arrived at the step.",
    ("path_waiting", "join_step"): "Name of the step at which the path waits.",
    ("random_generated", "method"): "Name of the function that generated the value.",
    ("random_generated", "seed"): "The seed, if the method is ``seed``.",
    ("random_generated", "value"): "The random value.",
    ("rollback_started", "cancelled"): "True if the execution was cancelled, False if it failed.",
    ("rows_completed", "rows"): "Number of rows in the event.",
    ("signal_received", "payload"): "Data of the signal.",
    ("signal_received", "signal_type"): "Name of the signal.",
    (
        "state_mutated",
        "mutations",
    ): "Changes in order. Each change has ``type`` (``set`` or ``delete``), ``key`` and ``value``.",
    ("step_completed", "output"): "Result of the step as text.",
    ("step_completed", "stored_variable"): "Variable in which the result was stored.",
    ("step_retried", "delay"): "Pause before the next attempt, in seconds.",
    ("step_started", "step_params"): "Parameters of the step.",
    ("step_started", "step_type"): "Type of the step, such as ``prompt``, ``action`` or ``script``.",
    ("step_started", "visit"): "Number of times that the path has entered the step, from 1.",
    ("time_accessed", "accessed_at"): "Time at which the code read the clock.",
    ("time_accessed", "value"): "Time that was returned to the code.",
    ("version_decision", "max_version"): "Newest version that the code supported.",
    ("version_decision", "min_version"): "Oldest version that the code supported.",
    ("version_decision", "reason"): "Reason of the decision. Only in logs of the legacy Dive dialect.",
    ("version_decision", "version"): "Version that the execution uses.",
}
"""Meanings of fields without a text in the source, by event and field."""


def meaning(event_type: str, field: str) -> str:
    """Return the meaning of a field of a type of event."""
    from divebook.events.catalog import PAYLOADS

    text = reference.attribute_texts(PAYLOADS[event_type]).get(field)
    text = text or MEANINGS_OF_EVENTS.get((event_type, field)) or MEANINGS.get(field)
    if text is None:
        raise LookupError(f"{event_type}.{field} has no meaning; write a text below it in divebook/events/catalog.py")
    return text


def examples() -> dict[str, dict[str, Any]]:
    """Return a recorded event of each type."""
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()
    return {event["event_type"]: event for event in map(json.loads, lines)}


def all_events(_: str, __: int, scope: reference.Scope) -> Iterator[str]:
    """Yield a table of all types of events."""
    from divebook.events.catalog import PAYLOADS

    rows = []
    for event_type, payload in PAYLOADS.items():
        text = _event_text(inspect.getdoc(payload) or "").partition("\n\n")[0]
        sentence = re.split(r"(?<=\.) ", " ".join(text.split()))[0]
        rows.append([f"[`{event_type}`](#{event_type})", reference.inline(sentence, scope)])
    yield "\n".join(reference.table(["event", "description"], rows))


def event(argument: str, level: int, scope: reference.Scope) -> Iterator[str]:
    """Yield the description of a type of event: text, fields and an example."""
    from divebook.events.catalog import PAYLOADS

    payload = PAYLOADS[argument]
    scope_of_payload = scope._replace(local_names=frozenset(payload.field_names))
    yield reference.heading(argument, level)
    yield from reference.paragraphs(_event_text(inspect.getdoc(payload) or ""), scope_of_payload)
    annotations = vars(payload)["__annotations__"]
    rows = [
        [
            f"`{name}`",
            f"`{_plain_type(annotations[name])}`",
            "yes" if name in payload.required else "",
            reference.inline(_event_text(meaning(argument, name)), scope_of_payload),
        ]
        for name in payload.field_names
    ]
    yield "\n".join(reference.table(["field", "type", "required", "meaning"], rows))
    yield f"```json\n{json.dumps(_shortened(examples()[argument]), indent=2, ensure_ascii=False)}\n```"


def _event_text(text: str) -> str:
    """Return a text with the names of events (``step_started``) in place of their classes (`StepStarted`)."""
    from divebook.events.catalog import PAYLOADS

    names = {payload.__name__: event_type for event_type, payload in PAYLOADS.items()}
    return re.sub(
        r"`([A-Z]\w+)((?:\.\w+)?)`",
        lambda match: f"``{names[match[1]]}{match[2]}``" if match[1] in names else match[0],
        text,
    )


_PLAIN_TYPES = (
    (r"Mapping\[str, Any\]", "object"),
    (r"Mapping\[str, (\w+)\]", r"object of \1"),
    (r"Sequence\[(?:Any|object|Mutation)\]", "list"),
    (r"Sequence\[(\w+)\]", r"list of \1"),
    (r"\bAny\b", "any"),
    (r"\bstr\b", "string"),
    (r"\bint\b", "integer"),
    (r"\bfloat\b", "number"),
    (r"\bbool\b", "boolean"),
    (r" \| None", ""),
    (r" \| ", " or "),
)


def _plain_type(annotation: str) -> str:
    """Return the JSON type of a field. Fields that may be None are left out of the JSON."""
    for pattern, replacement in _PLAIN_TYPES:
        annotation = re.sub(pattern, replacement, annotation)
    return annotation


def _shortened(value: Any) -> Any:
    """Return data with long texts and lists cut off."""
    if isinstance(value, str):
        return value if len(value) <= 100 else f"{value[:90]}..."
    if isinstance(value, dict):
        return {key: _shortened(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_shortened(part) for part in value[:4]] + ["..."] * (len(value) > 4)
    return value


# --- frames ----------------------------------------------------------------------------------------------------------


def frame(argument: str, level: int, scope: reference.Scope) -> Iterator[str]:
    """Yield the description of a frame: ``run.steps = divebook.analysis.log.steps_frame``."""
    shown, _, dotted = argument.partition(" = ")
    function = reference.object_of(dotted)
    text, _, table = (inspect.getdoc(function) or "").rpartition("\n\n")
    yield reference.heading(dotted.rpartition(".")[2], level, shown)
    text = text.removeprefix("Return ").replace(
        " The argument contains pairs: the id of the execution that asks, and the question.", ""
    )
    text = text[0].upper() + text[1:]
    yield from reference.paragraphs(text, scope)
    rule, _, *lines, _ = table.split("\n")
    ends = [match.end() for match in re.finditer("=+", rule)]
    rows = []
    for line in lines[1:]:
        name, dtype, content = line[: ends[0]].strip(), line[ends[0] : ends[1]].strip(), line[ends[1] :].strip()
        rows.append([f"`{name}`", f"`{dtype}`", _unit(name, dtype), reference.inline(content, scope)])
    yield "\n".join(reference.table(["column", "dtype", "unit", "content"], rows))


def _unit(name: str, dtype: str) -> str:
    from divebook.analysis import columns

    if dtype == columns.MOMENT:
        return "UTC"
    if dtype == columns.SPAN:
        return "duration"
    if name.endswith("tokens"):
        return "tokens"
    return "US dollars" if "cost" in name and dtype == columns.MONEY else ""


# --- JSON that commands print ----------------------------------------------------------------------------------------


def json_output(_: str, __: int, ___: reference.Scope) -> Iterator[str]:
    """Yield a table of the commands with ``--json``: the keys that they print, and the file with the schema."""
    from divebook.commands.reference import schema
    from divebook.commands.table import COMMANDS, GROUPS

    of_run = _keys(_options(schema(COMMANDS["run"]))[0])
    yield f"An object of a run has the keys {of_run}."
    for group in GROUPS:
        rows = []
        for command in COMMANDS.values():
            if command.group is group and command.data is not None:
                keys = "; or ".join(_keys(option) for option in _options(schema(command)))
                keys = keys.replace(of_run, "the keys of a run")
                anchor = f"divebook-{command.name}"
                rows.append(
                    [
                        f"[`{command.name}`](../COMMANDS.md#{anchor})",
                        keys,
                        f"[{command.name}.json](schemas/{command.name}.json)",
                    ]
                )
        if rows:
            yield f"**{group.title}**"
            yield "\n".join(reference.table(["command", "keys other than `divebook`", "schema"], rows))


def _options(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the alternatives of a schema that are objects."""
    return [part for part in schema.get("anyOf", [schema]) if part.get("properties", {}).keys() - {"divebook"}]


def _keys(part: Mapping[str, Any]) -> str:
    required = part.get("required", ())
    return ", ".join(
        f"`{name}`" + ("" if name in required else "?") for name in part["properties"] if name != "divebook"
    )
