"""Groups of a plain list that are written more loosely: what is given and expected in each of them, as far as data go.

A case of these groups whose `given` or `expect` holds prose is left to ordinary tests: `is_data` says which can be run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from divebook.agents import Agent, ScriptedModel
from divebook.config import Sources, build_content, load, merge
from divebook.config.fetch import Page
from divebook.engine.operations import legacy_operation_id
from divebook.environment import Environment
from divebook.errors import DivebookError
from divebook.scripting.interpreter import default_interpreter
from divebook.store import MemoryStore
from divebook.workflow import AgentDefinition
from divebook.workflow.blocks import blocks_from_script_result
from divebook.workflow.content import ContentEntry
from divebook.workflow.definition import Definitions
from divebook.workflow.reader import definitions_from, read_definitions
from divebook.workflow.settings import check_default_workflow, require_name
from tests.conformance.compare import Difference, contains, same

PICTURE = Page("image/png", b"picture")
"""What stands at every address."""

Given = Mapping[str, Any]
ORDERS = {"agent_order", "workflow_order"}
"""Compared sorted: divebook keeps the order of first appearance (see the notes of those cases)."""


def _config(given: Given) -> dict[str, Any]:
    return _shown(_read(given))


def _read(given: Given) -> Definitions:
    if "yaml" in given:
        return read_definitions(given["yaml"], dialect="dive")
    if "json" in given:
        return read_definitions(given["json"], dialect="dive", format="json")
    if "base" in given:
        return merge(*(definitions_from(_with_steps(given[part]), dialect="dive") for part in ("base", "override")))
    with tempfile.TemporaryDirectory() as folder:
        if "path" in given:
            return load(Path(folder, given["path"]), dialect="dive")
        _write(folder, given["files"])
        single = len(given["files"]) == 1
        return load(Path(folder, *given["files"]) if single else folder, dialect="dive")


def _with_steps(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give workflows without steps one: it is merging that is asked about."""
    steps = [{"Name": "s", "Script": "1"}]
    workflows = [{"Steps": steps, **workflow} for workflow in data.get("Workflows", ())]
    return {**data, **({"Workflows": workflows} if workflows else {})}


def _shown(found: Definitions) -> dict[str, Any]:
    config = found.config
    return {
        "Name": found.name,
        "Description": found.description,
        "Documents": [entry.name for entry in found.documents],
        "Agents": [
            {key: to for key, to in (("Name", a.name), ("Goal", a.goal), ("Model", a.model)) if to}
            for a in found.agents
        ],
        "agent_order": [entry.name for entry in found.agents],
        "workflow_order": [entry.name for entry in found.workflows],
        "Config": _given(
            DefaultProvider=config.default_provider,
            DefaultModel=config.default_model,
            LogLevel=config.log_level,
            ConfirmationMode=config.confirmation_mode,
        ),
    }


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def _config_build(given: Given) -> dict[str, Any]:
    found = definitions_from(given["config"], dialect="dive")
    require_name(found)
    with MemoryStore() as store:
        environment = Environment(store=store)
        environment.define(found)
        check_default_workflow(found.config, environment.workflows)
        for workflow in found.workflows:
            environment.create(workflow)
        return {
            "name": environment.name,
            "description": environment.description,
            "agents": list(environment.agents),
            "supervisors": [name for name, agent in environment.agents.items() if agent.is_supervisor],
            "workflows": [workflow.name for workflow in found.workflows],
            "step_names": [step.name for workflow in found.workflows for step in workflow.steps],
        }


def _content(given: Given) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, given.get("files", {}))
        entries = definitions_from({"Agents": [{"Name": "a", "Context": given["entries"]}]}, dialect="dive").agents[0]
        blocks = build_content(
            map(ContentEntry.of, entries.context), Sources(Path(folder), fetch=lambda _url, _policy: PICTURE)
        )
    found: dict[str, Any] = {"count": len(blocks), "kinds": [block["type"] for block in blocks]}
    found["texts"] = [block["text"] for block in blocks if "text" in block]
    found["all_contain"] = "\n".join(found["texts"])
    if blocks and "source" in blocks[0]:
        found["source"] = blocks[0]["source"]
    return found


def _write(folder: str, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _dynamic(given: Given) -> dict[str, Any]:
    result = default_interpreter().run_script(given["script"], given.get("globals", {}))
    return {"count": len(blocks_from_script_result(result))}


def _operation_id(given: Given) -> dict[str, Any]:
    made = legacy_operation_id(given["type"], given["step"], given["path"], given["params"])
    return {"id": made, "prefix": made[:3], "length": len(made)}


def _environment(given: Given) -> dict[str, Any]:
    agents = [entry if isinstance(entry, Mapping) else {"name": entry} for entry in given["agents"]]
    with MemoryStore() as store:
        environment = Environment(store=store)
        for agent in agents:
            made = AgentDefinition(agent["name"], is_supervisor=agent.get("supervisor", False))
            environment.add_agent(Agent(made, model=ScriptedModel(["hi"])))
        chosen = environment.default_agent
        return {"default_agent": chosen and chosen.name}


RUN: Mapping[str, tuple[Callable[[Given], dict[str, Any]], tuple[frozenset[str], ...]]] = {
    "config": (_config, tuple(map(frozenset, (["yaml"], ["json"], ["files"], ["path"], ["base", "override"])))),
    "config_build": (_config_build, (frozenset({"config"}),)),
    "content": (_content, (frozenset({"entries"}), frozenset({"entries", "files"}))),
    "dynamic_content": (_dynamic, (frozenset({"script"}), frozenset({"script", "globals"}))),
    "operation_id": (_operation_id, (frozenset({"type", "step", "path", "params"}),)),
    "environment": (_environment, (frozenset({"agents"}), frozenset({"name", "agents"}))),
}
"""By group: what runs a case, and the keys of `given` in its cases that are data."""

ERRORS = frozenset({"error", "error_contains", "non_empty"})
UNDERSTOOD: Mapping[str, frozenset[str]] = {
    "config": frozenset({"Name", "Description", "Documents", "Agents", "Config", *ORDERS}),
    "config_build": frozenset({"name", "description", "agents", "supervisors", "workflows", "step_names"}),
    "content": frozenset({"count", "kinds", "texts", "all_contain", "source"}),
    "dynamic_content": frozenset({"count"}),
    "operation_id": frozenset({"id", "prefix", "length"}),
    "environment": frozenset({"default_agent"}),
}
"""Keys of `expect` that are data; the others of a case are prose, and not looked at."""


def is_data(case: Mapping[str, Any]) -> bool:
    """Whether a case of a loose group can be run: both what is given and some of what is expected are data."""
    _, shapes = RUN.get(case["group"], (None, ()))
    given = case.get("given")
    known = ERRORS | UNDERSTOOD.get(case["group"], frozenset())
    return isinstance(given, Mapping) and frozenset(given) in shapes and bool(known & case["expect"].keys())


def differences(case: Mapping[str, Any]) -> list[Difference]:
    """Run a case and return where what came of it differs from what is expected."""
    run, _ = RUN[case["group"]]
    error: str | None = None
    try:
        found = run(case["given"])
    except DivebookError as raised:
        found, error = {}, str(raised)
    return list(_compared(case["group"], case["expect"], found, error))


def _compared(
    group: str, expect: Mapping[str, Any], found: Mapping[str, Any], error: str | None
) -> Iterator[Difference]:
    if error is not None and not (expect.get("error") or "error_contains" in expect):
        yield Difference("error", None, error)
        return
    for key, wanted in expect.items():
        got: Any
        if key == "error":
            met, got = bool(wanted) == (error is not None), error
        elif key == "error_contains":
            met, got = contains(error, wanted), error
        elif key == "non_empty":
            names = [wanted] if isinstance(wanted, str) else wanted
            met, got = all(found.get(name) for name in names), found
        elif key not in UNDERSTOOD[group]:
            continue
        else:
            got = found.get(key)
            met = _met(key, wanted, got)
        if not met:
            yield Difference(key, wanted, got)


def _met(key: str, wanted: Any, got: Any) -> bool:
    if key in ORDERS:
        return sorted(wanted) == sorted(got)
    if key == "all_contain":
        return contains(got, wanted)
    if key == "source":
        return all(same(value, got[name]) for name, value in wanted.items())
    return same(wanted, got)
