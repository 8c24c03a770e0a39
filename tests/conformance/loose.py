"""Groups of a plain list that are written more loosely: what is given and expected in each of them, as far as data go.

A case of these groups whose `given` or `expect` holds prose is left to ordinary tests: `is_data` says which can be run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from divebook.agents import Agent, ScriptedModel
from divebook.config import Sources, build_content, load, merge
from divebook.definitions import AgentDefinition
from divebook.definitions.definition import Definitions, Workflow, check_default_workflow, require_name
from divebook.definitions.reader import definitions_from, read_definitions, read_workflow
from divebook.definitions.resources import Config
from divebook.definitions.step import ContentEntry, blocks_from_script_result
from divebook.documents.fetch import Page
from divebook.documents.repository import has_wildcards
from divebook.engine.operations import DYNAMIC_CONTENT, Place
from divebook.environments.environment import Environment
from divebook.errors import DivebookError
from divebook.events.catalog import OperationCompleted
from divebook.scripting.interpreter import default_interpreter
from divebook.steps.prompt import run_program
from divebook.stores import MemoryStore
from tests.conformance.compare import Difference, contains, same
from tests.conformance.old_ids import legacy_operation_id

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
        check_default_workflow(found.config, environment.definitions.workflows)
        for workflow in found.workflows:
            environment.create(workflow)
        return {
            "name": environment.name,
            "description": environment.description,
            "agents": list(environment.definitions.agents),
            "supervisors": [name for name, agent in environment.definitions.agents.items() if agent.is_supervisor],
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
    if "path" in given:
        return {"count": len(run_program(given["path"], {}))}
    if "script_stdout" in given:
        return {"count": len(_printed(given["script_stdout"]))}
    if not given:
        entries = [ContentEntry(dynamic="'a'"), ContentEntry(dynamic_from="a.sh")]
        return {"type": "".join({block["type"] for block in build_content(entries)})}
    if "agent" in given:
        return {"globals": _names_of_dynamic(given)}
    result = default_interpreter().run_script(given["script"], given.get("globals", {}))
    return {"count": len(blocks_from_script_result(result))}


def _printed(text: str) -> list[Any]:
    """Return the blocks that a program gives which prints a text."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.sh")
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n", encoding="utf-8")
        program.chmod(0o700)
        return run_program(str(program), {})


def _names_of_dynamic(given: Given) -> dict[str, Any]:
    """Return the names that a dynamic content of a step finds, as far as the case knows them."""
    script = "'{0}|{1}|{2}|{3}|{4}'.format(workflow, step, agent, len(inputs), len(state))"
    content = [{"Dynamic": script}]
    step = {"Name": given["step"], "Type": "prompt", "Agent": given["agent"], "Content": content}
    workflow = read_workflow({"Name": given["workflow"], "Steps": [step]}, dialect="dive")
    with MemoryStore() as store:
        agent = Agent(given["agent"], model=ScriptedModel(["x"]))
        execution = Environment(store=store, agents=[agent], workflows=[workflow]).start(workflow).wait(30)
        (made,) = [
            event.data.result
            for event in execution.history()
            if isinstance(event.data, OperationCompleted) and event.data.operation_type == DYNAMIC_CONTENT
        ]
    return dict(zip(("workflow", "step", "agent"), made[0]["text"].split("|"), strict=False))


def _operation_id(given: Given) -> dict[str, Any]:
    if "a" in given:
        first, second = (Place(part["path"], part["step"], 1, None, part["type"]) for part in (given["a"], given["b"]))
        return {"equal": first.operation_id == second.operation_id}  # those of the old formula are
    made = legacy_operation_id(given["type"], given["step"], given["path"], given["params"])
    return {"id": made, "prefix": made[:3], "length": len(made)}


def _environment(given: Given) -> dict[str, Any]:
    if "calls" in given:
        return {"results": list(_results(given["calls"]))}
    if "default_workflow" in given:
        with MemoryStore() as store:
            environment = Environment(store=store)
            environment.define(Definitions(config=Config(default_workflow=given["default_workflow"])))
            return {"default_workflow": environment.internals.registry.default_workflow}
    if "subscribed" in given:
        return _fired(given["subscribed"])
    agents = [entry if isinstance(entry, Mapping) else {"name": entry} for entry in given["agents"]]
    with MemoryStore() as store:
        environment = Environment(store=store)
        for agent in agents:
            made = AgentDefinition(agent["name"], is_supervisor=agent.get("supervisor", False))
            environment.add_agent(Agent(made, model=ScriptedModel(["hi"])))
        chosen = environment.internals.registry.default_agent
        return {"default_agent": chosen and chosen.name}


SAID = {"not found": "not found", "already present": "already registered"}
"""What cases say of calls that are refused, and the words for it here."""


def _results(calls: Iterable[str]) -> Iterator[str]:
    """Add and get agents and workflows by name; return what comes of each call, in the words of the cases."""
    kind = ""
    with MemoryStore() as store:
        environment = Environment(store=store)
        for call in calls:
            verb, name = call.split()
            kind = kind or name.rpartition("-")[2]
            try:
                if verb == "get":
                    yield getattr(environment.internals.registry, kind)(name).name
                elif kind == "agent":
                    environment.add_agent(Agent(name))
                    yield "ok"
                else:
                    environment.add_workflow(_workflow(name))
                    yield "ok"
            except DivebookError as error:
                said = [f"{kind} {shown}" for shown, words in SAID.items() if words in str(error)]
                yield f"error: {' '.join(said) or error}"


def _workflow(name: str, **more: Any) -> Workflow:
    return read_workflow({"Name": name, "Steps": [{"Name": "s", "Script": "1"}], **more}, dialect="dive")


def _fired(names: Iterable[str]) -> dict[str, Any]:
    with MemoryStore() as store:
        environment = Environment(store=store, workflows=[_workflow(n, Triggers=[{"Name": "t"}]) for n in names])
        fired = environment.schedules.fire("t")
        return {"executions": len(fired), "status": "".join({execution.status for execution in fired})}


def _build_or_settings(given: Given) -> dict[str, Any]:
    if "values" in given:
        agents = [{"Name": f"a{n}", "ResponseTimeout": value} for n, value in enumerate(given["values"])]
        read = definitions_from({"Agents": agents}, dialect="dive").agents
        return {"seconds": [int(agent.response_timeout or 0) for agent in read]}
    if "steps" in given:
        _workflow("w", Steps=[{"Name": name, "Script": "1"} for name in given["steps"]])
        return {}
    return _config_build(given)


def _content_or_path(given: Given) -> dict[str, Any]:
    return {"wildcard": has_wildcards(given["path"])} if "path" in given else _content(given)


RUN: Mapping[str, tuple[Callable[[Given], dict[str, Any]], tuple[frozenset[str], ...]]] = {
    "config": (_config, tuple(map(frozenset, (["yaml"], ["json"], ["files"], ["path"], ["base", "override"])))),
    "config_build": (_build_or_settings, tuple(map(frozenset, (["config"], ["values"], ["steps"])))),
    "content": (_content_or_path, tuple(map(frozenset, (["entries"], ["entries", "files"], ["path"])))),
    "dynamic_content": (
        _dynamic,
        tuple(
            map(
                frozenset,
                (["script"], ["script", "globals"], ["script_stdout"], ["path"], [], ["workflow", "step", "agent"]),
            )
        ),
    ),
    "operation_id": (_operation_id, tuple(map(frozenset, (["type", "step", "path", "params"], ["a", "b"])))),
    "environment": (
        _environment,
        tuple(map(frozenset, (["agents"], ["name", "agents"], ["calls"], ["default_workflow"], ["subscribed"]))),
    ),
}
"""By group: what runs a case, and the keys of `given` in its cases that are data."""

REFUSED = {"valid": False, "ok": False, "status": "rejected", "stored": 0, "found": False, "body_runs": 0}
"""What holds of what was refused."""
PARTS = ("checkpoint", "restored")
"""Mappings of which the listed keys count."""
ERRORS = frozenset({"error", "error_contains", "non_empty"})
UNDERSTOOD: Mapping[str, frozenset[str]] = {
    "config": frozenset({"Name", "Description", "Documents", "Agents", "Config", *ORDERS}),
    "config_build": frozenset({"seconds", "name", "description", "agents", "supervisors", "workflows", "step_names"}),
    "content": frozenset({"wildcard", "count", "kinds", "texts", "all_contain", "source"}),
    "dynamic_content": frozenset({"count", "type", "globals"}),
    "operation_id": frozenset({"id", "prefix", "length", "equal"}),
    "environment": frozenset({"default_agent", "results", "executions", "status"}),
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
    return compared(lambda: run(case["given"]), case["expect"], UNDERSTOOD[case["group"]])


def compared(
    run: Callable[[], Mapping[str, Any]], expect: Mapping[str, Any], understood: Collection[str]
) -> list[Difference]:
    """Run something and hold what it finds, or its error, against what is expected; other keys are not looked at."""
    try:
        return list(_compared(expect, run(), None, understood))
    except DivebookError as raised:
        return list(_compared(expect, REFUSED, str(raised), understood))


def _compared(
    expect: Mapping[str, Any], found: Mapping[str, Any], error: str | None, understood: Collection[str]
) -> Iterator[Difference]:
    refusal = expect.get("error") or "error_contains" in expect or expect.get("valid") is False
    if error is not None and not refusal:
        yield Difference("error", None, error)
        return
    for key, wanted in expect.items():
        got: Any
        if key == "error" and isinstance(wanted, str):
            got = error or found.get(key)
            met = contains(got, wanted)
        elif key == "error":
            met, got = bool(wanted) == (error is not None), error
        elif key == "error_contains":
            met, got = contains(error, wanted), error
        elif key == "non_empty":
            names = [wanted] if isinstance(wanted, str) else wanted
            met, got = all(found.get(name) for name in names), found
        elif key not in understood:
            continue
        else:
            got = found.get(key)
            met = _met(key, wanted, got)
        if not met:
            yield Difference(key, wanted, got)


def _met(key: str, wanted: Any, got: Any) -> bool:
    if key in PARTS and isinstance(got, Mapping):
        return all(_met(name, value, got.get(name)) for name, value in wanted.items())
    if key.startswith("min_"):
        return bool(got >= wanted)
    if key == "contains":
        return str(got).endswith(wanted)
    if key in ORDERS:
        return sorted(wanted) == sorted(got)
    if key == "all_contain":
        return contains(got, wanted)
    if key == "source" and isinstance(wanted, Mapping):
        return all(same(value, got[name]) for name, value in wanted.items())
    return same(wanted, got)
