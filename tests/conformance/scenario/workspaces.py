"""What the operations about workspaces do with the public API."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from divebook.errors import WorkspaceError
from divebook.workspaces import DockerWorkspace, LocalWorkspace, agent_tools, process_manager
from divebook.workspaces.files import CHUNK, LocalFileOperator
from divebook.workspaces.resources import ResourceRegistry
from divebook.workspaces.workspace import MAX_DEPTH, BusMessage, MessageBus, tree_text
from tests.conformance.scenario.paths import MISSING, read
from tests.conformance.scenario.resource_kinds import KINDS, factory, keyed
from tests.conformance.scenario.world import RESULT, World
from tests.workspace.fake_engine import FakeEngine

Step = Mapping[str, Any]
Operation = Callable[[World, Step], None]
USUAL = {"default": "ws", "allowed": ["ws"]}


class _FailsOnce(LocalWorkspace):
    """A workspace that cannot be set up the first time."""

    has_failed = False

    async def _setup(self) -> None:
        await super()._setup()
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("the first time it fails")


def given(world: World, value: Any) -> Any:
    """Return a literal of a case as a value: with paths in its texts, and bytes, resources, kinds, messages."""
    place = world.place
    if isinstance(value, str):
        return place.filled(value, world.names)
    if isinstance(value, list):
        return [given(world, each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if "$hex" in value:
        return bytes.fromhex(value["$hex"])
    if "$resource" in value:
        return KINDS[value["$resource"]](place, value)
    if "$factory" in value:
        return factory(place, value)
    if "$type" in value:
        return KINDS[value["$type"]]
    if "$msg" in value:
        return BusMessage(**value["$msg"])
    return {key: given(world, each) for key, each in value.items()}


def _called(world: World, step: Step, target: Any) -> Any:
    """Return what a method of something comes to."""
    arguments, named = given(world, step.get("args", [])), given(world, step.get("kwargs", {}))

    async def call() -> Any:
        found = getattr(target, step["method"])(*arguments, **named)
        return await found if inspect.isawaitable(found) else found

    return world.place.wait(call())


# --- the place -------------------------------------------------------------------------------------------------------


def _fs(world: World, step: Step) -> None:
    root = world.place.root
    for path in step.get("dirs", ()):
        (root / path).mkdir(parents=True, exist_ok=True)
    for path, told in step.get("files", {}).items():
        at = root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(told, str):
            at.write_bytes(told.encode())
            continue
        at.write_bytes(bytes.fromhex(told["hex"]) if "hex" in told else told["text"].encode())
        if "mtime" in told:
            os.utime(at, (told["mtime"], told["mtime"]))
    for path, target in step.get("links", {}).items():
        at = root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(root / target)


def _symlink(world: World, step: Step) -> None:
    Path(given(world, step["at"])).symlink_to(given(world, step["to"]))


def _setenv(_world: World, step: Step) -> None:
    os.environ[step["name"]] = step["value"]


def _remember(world: World, step: Step) -> None:
    workspace = world.place.workspace
    assert workspace is not None
    known = {"tmp": workspace.tmp_dir, "tmp_dir": workspace.tmp_dir}
    world.bind(step, RESULT, known[step["what"]])


# --- its workspace ---------------------------------------------------------------------------------------------------


def _build(world: World, step: Step) -> None:
    if "docker" in step:
        _build_contained(world, step["docker"])
        return
    told, root = step.get("workspace", USUAL), world.place.root
    kind = _FailsOnce if told.get("fail_setup_once") else LocalWorkspace
    state = read(world.names, told["state_from"]) if "state_from" in told else told.get("state")
    more: dict[str, Any] = {"shell_timeout": told["shell_timeout"]} if "shell_timeout" in told else {}
    factories = {
        key: keyed(world.place, key, factory(world.place, one)) for key, one in told.get("factories", {}).items()
    }
    world.place.workspace = kind(
        default_path=root / told.get("default", "ws"),
        allowed_paths=[root / path for path in told.get("allowed", ())],
        tmp_base_dir=root / told["tmp_base"] if "tmp_base" in told else None,
        enable_tmp_dir=told.get("tmp", True),
        resource_state=state,
        resource_factories=factories,
        **more,
    )


def _build_contained(world: World, told: Mapping[str, Any]) -> None:
    more = {name: told[name] for name in ("workdir", "container", "image") if name in told}
    world.place.workspace = DockerWorkspace(world.place.root / told["mount"], engine=world.names.get("engine"), **more)


def _fake_engine(world: World, step: Step) -> None:
    world.names["engine"] = FakeEngine(step.get("containers"), step.get("exec"))


def _engine_forget(world: World, _step: Step) -> None:
    world.names["engine"].forget()


def _enter(world: World, step: Step) -> None:
    _build(world, step)
    _enter_again(world, step)


def _enter_again(world: World, step: Step) -> None:
    workspace = _workspace(world)
    world.place.wait(workspace.__aenter__())
    if "bind" in step:
        world.names[step["bind"]] = workspace.resources.get(step["bind"])


def _enter_concurrently(world: World, step: Step) -> None:
    workspace = _workspace(world)

    async def enter() -> dict[str, int]:
        found = await asyncio.gather(*(workspace.__aenter__() for _ in range(step["times"])), return_exceptions=True)
        errors = sum(isinstance(each, WorkspaceError) for each in found)
        return {"entered": len(found) - errors, "errors": errors}

    world.bind(step, RESULT, world.place.wait(enter()))


def _exit(world: World, _step: Step) -> None:
    world.place.wait(_workspace(world).__aexit__())


def _workspace(world: World) -> LocalWorkspace:
    workspace = world.place.workspace
    assert isinstance(workspace, LocalWorkspace)
    return workspace


def _instructions(world: World, step: Step) -> None:
    world.bind(step, RESULT, world.place.wait(_workspace(world).get_context_instructions()))


def _tree(world: World, step: Step) -> None:
    files = _workspace(world).file_operator
    assert isinstance(files, LocalFileOperator)
    world.bind(step, RESULT, tree_text(files.disk, given(world, step["path"]), step.get("max_depth", MAX_DEPTH)))


# --- files and commands ----------------------------------------------------------------------------------------------


def _file(world: World, step: Step) -> None:
    world.bind(step, RESULT, _called(world, step, _workspace(world).file_operator))


def _read_stream(world: World, step: Step) -> None:
    files = _workspace(world).file_operator

    async def pieces() -> list[bytes]:
        path, size = given(world, step["path"]), step.get("chunk_size", CHUNK)
        return [piece async for piece in files.read_bytes_stream(path, chunk_size=size)]

    found = world.place.wait(pieces())
    world.bind(step, RESULT, {"bytes": b"".join(found), "chunks": len(found)})


def _write_stream(world: World, step: Step) -> None:
    files = _workspace(world).file_operator

    async def write() -> None:
        async def pieces() -> Any:
            for piece in given(world, step["chunks"]):
                yield piece.encode() if isinstance(piece, str) else piece

        await files.write_bytes_stream(given(world, step["path"]), pieces())

    world.place.wait(write())


def _shell(world: World, step: Step) -> None:
    named = {name: given(world, step[name]) for name in ("timeout", "env", "cwd") if name in step}
    shell = _workspace(world).shell
    world.bind(step, RESULT, world.place.wait(shell.execute(given(world, step["command"]), **named)))


_OF_FILES: Mapping[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        agent_tools.view,
        agent_tools.ls,
        agent_tools.glob,
        agent_tools.grep,
        agent_tools.edit,
        agent_tools.multi_edit,
        agent_tools.replace,
        agent_tools.mkdir,
        agent_tools.move,
        agent_tools.copy,
        agent_tools.delete,
    )
}


def _tool(world: World, step: Step) -> None:
    workspace, arguments = _workspace(world), given(world, step["args"])
    if "file_path" in arguments:
        arguments["path"] = arguments.pop("file_path")
    if step["name"] == "shell":
        called = agent_tools.shell(workspace.shell, workspace.file_operator, **arguments)
    else:
        called = _OF_FILES[step["name"]](workspace.file_operator, **arguments)
    world.bind(step, RESULT, world.place.wait(called))


# --- resources -------------------------------------------------------------------------------------------------------


def _resources(world: World, step: Step) -> None:
    registry = _workspace(world).resources
    if step["method"] == "register_factory":
        key, told = step["args"]
        registry.register_factory(key, keyed(world.place, key, factory(world.place, told)))
        return
    world.bind(step, RESULT, _called(world, step, registry))


def _factory_calls(world: World, step: Step) -> None:
    world.bind(step, RESULT, world.place.made.get(step["key"], 0))


def _concurrent_get_or_create(world: World, step: Step) -> None:
    registry, key = _workspace(world).resources, step["key"]

    async def ask() -> list[Any]:
        return await asyncio.gather(*(registry.get_or_create(key) for _ in range(step["times"])))

    found = world.place.wait(ask())
    same = all(each is found[0] for each in found)
    world.bind(step, RESULT, {"calls": world.place.made.get(key, 0), "same": same})


def _export_state(world: World, step: Step) -> None:
    state = world.place.wait(_workspace(world).export_resource_state())
    world.bind(step, RESULT, json.loads(json.dumps(state)) if step.get("json") else state)


def _pending_state(world: World, step: Step) -> None:
    _workspace(world).resources.pend(step["state"])


def _bind_resource(world: World, step: Step) -> None:
    world.bind(step, RESULT, _workspace(world).resources.get(step["key"]))


def _unbound_registry(world: World, _step: Step) -> None:
    registry = ResourceRegistry()
    registry.register_factory("x", factory(world.place, {"$factory": "simple"}))
    world.place.wait(registry.get_or_create("x"))


def _add_toolset(world: World, step: Step) -> None:
    _workspace(world).add_toolset(step["value"])


def _get_toolsets(world: World, step: Step) -> None:
    world.bind(step, RESULT, _workspace(world).get_toolsets())


# --- processes -------------------------------------------------------------------------------------------------------


def _process(world: World, step: Step) -> None:
    found = _called(world, step, process_manager(_workspace(world)))
    if step["method"] == "spawn":
        found = {"process_id": found.process_id, "pid": found.pid, "is_running_then": found.is_running}
    world.bind(step, RESULT, found)


def _process_wait(world: World, step: Step) -> None:
    process = process_manager(_workspace(world)).get(step["id"])
    assert process is not None
    world.place.wait(process.wait())


# --- messages --------------------------------------------------------------------------------------------------------


def _bus_new(world: World, step: Step) -> None:
    world.names["bus"] = MessageBus(step["maxlen"])


def _bus(world: World, step: Step) -> None:
    found = _called(world, step, world.names["bus"])
    world.bind(step, RESULT, [each.content for each in found] if step["method"] in {"consume", "peek"} else found)


# --- what must fail --------------------------------------------------------------------------------------------------


def _expect_error(world: World, step: Step) -> None:
    began = time.monotonic()
    try:
        WORKSPACE_OPERATIONS[step["inner"]["op"]](world, step["inner"])
    except (WorkspaceError, LookupError, TypeError, ValueError, RuntimeError) as error:
        told = {"type": type(error).__name__, "seconds": time.monotonic() - began}
        world.bind(step, RESULT, {**told, "stdout": getattr(error, "stdout", MISSING)})
        return
    raise AssertionError(f"{step['inner']['op']} did not fail")


def _nothing(_world: World, _step: Step) -> None:
    pass


WORKSPACE_OPERATIONS: Mapping[str, Operation] = {
    "fs": _fs,
    "symlink": _symlink,
    "setenv": _setenv,
    "remember": _remember,
    "build": _build,
    "fake_engine": _fake_engine,
    "engine_forget": _engine_forget,
    "enter": _enter,
    "enter_again": _enter_again,
    "enter_concurrently": _enter_concurrently,
    "exit": _exit,
    "instructions": _instructions,
    "tree": _tree,
    "file": _file,
    "read_stream": _read_stream,
    "write_stream": _write_stream,
    "shell": _shell,
    "tool": _tool,
    "resources": _resources,
    "factory_calls": _factory_calls,
    "concurrent_get_or_create": _concurrent_get_or_create,
    "export_state": _export_state,
    "pending_state": _pending_state,
    "bind_resource": _bind_resource,
    "unbound_registry_env": _unbound_registry,
    "add_toolset": _add_toolset,
    "get_toolsets": _get_toolsets,
    "process": _process,
    "process_wait": _process_wait,
    "bus_new": _bus_new,
    "bus": _bus,
    "expect_error": _expect_error,
    "noop": _nothing,
}
