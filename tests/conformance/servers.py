"""Cases about MCP servers: each is asked of servers that are written for the tests, or of what reads their answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp.types import BlobResourceContents, TextResourceContents

from divebook.agents import Agent, ScriptedModel
from divebook.definitions.definition import Workflow
from divebook.definitions.reader import definitions_from
from divebook.definitions.resources import ASK, NEVER
from divebook.definitions.step import Step
from divebook.documents import Policy
from divebook.documents.policy import expanded
from divebook.engine.approvals import ToolCall, verdict_of
from divebook.environments.environment import Environment
from divebook.errors import DivebookError
from divebook.stores import MemoryStore
from divebook.tools.mcp.calls import document_of

Data = Mapping[str, Any]
ROUGH = Path(__file__).parent.parent / "tools" / "servers" / "rough.py"
TIMEOUT = 60


def _definition(name: str, tools: list[str], configuration: Data | None = None) -> dict[str, Any]:
    """Return a server that offers tools of these names, as a definition writes it."""
    program = {"Command": sys.executable, "Args": [str(ROUGH), "offers", *tools]}
    return {"Name": name, "Type": "stdio", **program, **({"ToolConfiguration": configuration} if configuration else {})}


@contextmanager
def _environment(*servers: Data) -> Iterator[Environment]:
    policy = Policy("programs", "addresses")
    with MemoryStore() as store, Environment(store=store, policy=policy) as environment:
        for server in servers:
            environment.define(definitions_from({"MCPServers": [server]}, dialect="dive"))
        yield environment


def _asked(environment: Environment) -> str:
    """Return the error of a run whose agent may call all tools of all servers; empty if there is none."""
    environment.add_agent(
        Agent("a", model=ScriptedModel(["done"]), servers=list(environment.internals.registry.servers))
    )
    workflow = Workflow("w", [Step("s", prompt="Go", agent="a")], dialect="dive")
    execution = environment.start(workflow).wait(TIMEOUT)
    return execution.error or ", ".join(tool["name"] for tool in execution.requests[0].tools)


def _filtered(given: Data, _expect: Data) -> dict[str, Any]:
    with _environment(_definition("s", given["server_tools"], given["tool_configuration"])) as environment:
        said = _asked(environment)
        return {"tools": said.split(", ") if said else []}


def _twice(given: Data, _expect: Data) -> dict[str, Any]:
    with _environment(*(_definition(name, ["t"]) for name in given["initialize"])) as environment:
        return {"error": False, "servers": list(environment.internals.registry.servers)}


def _several(given: Data, _expect: Data) -> dict[str, Any]:
    with _environment(*(_definition(name, tools) for name, tools in given["servers"].items())) as environment:
        raise DivebookError(_asked(environment))


def _wrong(given: Data, _expect: Data) -> dict[str, Any]:
    with _environment(given["server"]) as environment:
        raise DivebookError(_asked(environment))


def _expanded(given: Data, _expect: Data) -> dict[str, Any]:
    before = dict(os.environ)
    os.environ.update(given["process_env"])
    try:
        allowed = Policy("environment")
        env = {name: expanded(value, allowed) for name, value in given["env"].items()}
        return {"args": [expanded(part, allowed) for part in given["args"]], "env": env}
    finally:
        os.environ.clear()
        os.environ.update(before)


def _unconnected(given: Data, _expect: Data) -> dict[str, Any]:
    missing = {"Name": "s", "Type": "stdio", "Command": "no-such-program"}
    with _environment(missing) as environment:
        server = environment.internals.registry.servers["s"]
        asked: dict[str, Callable[[], object]] = {
            "list_tools": lambda: _asked(environment),
            "list_resources": server.resources,
            "read_resource": lambda: server.read("file:///a"),
        }
        raise DivebookError(str(asked[given["call"]]()))


def _document(given: Data, expect: Data) -> dict[str, Any]:
    found = given["resource"]
    kept = {"uri": found["uri"], "mime_type": found["mime"]}
    part = (
        BlobResourceContents(**kept, blob="AAE=")
        if "blob" in found
        else TextResourceContents(**kept, text=found["text"])
    )
    made = document_of("test-server", [part])
    fields = ("content", "content_type", "path", "name")
    seen = {name: getattr(made, name) for name in fields if name in expect}
    holds = {f"{name}_contains": getattr(made, name) for name in ("id", "content")}
    return seen | {key: expect[key] if expect[key] in text else text for key, text in holds.items() if key in expect}


def _judged(given: Data, _expect: Data) -> dict[str, Any]:
    with _environment(_definition("s", ["t"], given["tool_configuration"])) as environment:
        verdict = verdict_of(
            environment.internals.registry.approvals_for(""), (), ToolCall("t", {}, server="s", mode=NEVER), 0
        )
        return {"enforced": verdict.outcome == ASK}


_RUN: Mapping[str, Callable[[Data, Data], dict[str, Any]]] = {
    "server_tools tool_configuration": _filtered,
    "initialize": _twice,
    "servers": _several,
    "server": _wrong,
    "args env process_env": _expanded,
    "connected call": _unconnected,
    "resource": _document,
    "tool_configuration": _judged,
}
SHAPES = tuple(_RUN)
"""Keys of `given` in cases that can be run."""


def run(case: Data) -> dict[str, Any]:
    """Return what comes of a case."""
    (found,) = (asked for shape, asked in _RUN.items() if set(shape.split()) == set(case["given"]))
    return found(case["given"], case["expect"])
