"""What each operation of a case does with the public API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import divebook.pipeline.envelope
from divebook.errors import (
    DefinitionError,
    FileOperationError,
    InvalidEnvelopeError,
    PathNotAllowedError,
    ResumeError,
    ShellExecutionError,
    ShellTimeoutError,
    WorkspaceEnteredError,
    WorkspaceNotEnteredError,
)
from divebook.pipeline import Envelope, InterruptService, create_envelope
from divebook.pipeline.envelope import InterruptRecord, Origin, merge_state
from tests.conformance.scenario.paths import assign, read
from tests.conformance.scenario.pipelines import PIPELINE_OPERATIONS
from tests.conformance.scenario.workspaces import WORKSPACE_OPERATIONS
from tests.conformance.scenario.world import ENVELOPE, RESULT, World

Step = Mapping[str, Any]
Operation = Callable[[World, Step], None]

USUAL_ORIGIN = {"request_id": "req-1", "user_id": "user-1", "session_id": "sess-1"}
"""Where questions come from whose case says nothing else."""

ERRORS: dict[str, type[Exception]] = {
    "ConfigError": DefinitionError,
    "ResumeError": ResumeError,
    "ValidationError": InvalidEnvelopeError,
    "PathNotAllowed": PathNotAllowedError,
    "FileOperation": FileOperationError,
    "ShellExecution": ShellExecutionError,
    "ShellTimeout": ShellTimeoutError,
    "NotEntered": WorkspaceNotEnteredError,
    "AlreadyEntered": WorkspaceEnteredError,
    "Key": KeyError,
    "Type": TypeError,
    "Value": ValueError,
    "Runtime": RuntimeError,
}
"""What the errors that cases name are called here."""


class Service:
    """An `InterruptService` whose questions come from the usual request, user and session."""

    def __init__(self, service: InterruptService) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def create(self, kind: str, **details: Any) -> InterruptRecord:
        """Ask; parts of the origin may be among the details."""
        return self._service.create(kind, origin=_origin(details), **details)

    def create_resource_exhausted(self, *arguments: Any, **details: Any) -> InterruptRecord:
        """Tell of a resource; parts of the origin may be among the details."""
        return self._service.create_resource_exhausted(*arguments, origin=_origin(details), **details)


def _origin(details: dict[str, Any]) -> Origin:
    """Take the parts of an origin out of the details."""
    given = {name: details.pop(name) for name in Origin.__dataclass_fields__ if name in details}
    return Origin(**{**USUAL_ORIGIN, **given})


def _new(world: World, step: Step) -> None:
    world.bind(step, ENVELOPE, Envelope(clock=world.clock))


def _create(world: World, step: Step) -> None:
    world.bind(step, ENVELOPE, create_envelope(**world.resolved(step["args"]), clock=world.clock))


def _from_state_dict(world: World, step: Step) -> None:
    state = read(world.names, step["from"]) if "from" in step else world.resolved(step["state"])
    world.bind(step, ENVELOPE, Envelope.from_state_dict(state, clock=world.clock))


def _service(world: World, step: Step) -> None:
    world.bind(step, "svc", Service(InterruptService(clock=world.clock)))


def _call(world: World, step: Step) -> None:
    method = getattr(read(world.names, step.get("on", ENVELOPE)), step["method"])
    arguments, named = world.resolved(step.get("args", [])), world.resolved(step.get("kwargs", {}))
    world.bind(step, RESULT, method(*arguments, **named))


def _set(world: World, step: Step) -> None:
    assign(world.names, step["path"], world.resolved(step["value"]))


def _let(world: World, step: Step) -> None:
    world.bind(step, RESULT, world.resolved(step["value"]))


def _advance_clock(world: World, step: Step) -> None:
    world.clock.advance(step["seconds"])


def _json_roundtrip(world: World, step: Step) -> None:
    world.bind(step, RESULT, json.loads(json.dumps(read(world.names, step.get("from", RESULT)))))


def _enum(world: World, step: Step) -> None:
    world.bind(step, RESULT, [str(member) for member in getattr(divebook.pipeline.envelope, step["name"])])


def _validate(world: World, step: Step) -> None:
    world.bind(step, RESULT, read(world.names, step.get("on", ENVELOPE)).validate())


def _merge_state(world: World, step: Step) -> None:
    existing, value = world.resolved(step.get("existing")), world.resolved(step["value"])
    world.bind(step, RESULT, merge_state(existing, value, step["strategy"]))


OPERATIONS: Mapping[str, Operation] = {
    "new": _new,
    "create": _create,
    "from_state_dict": _from_state_dict,
    "service": _service,
    "call": _call,
    "set": _set,
    "let": _let,
    "advance_clock": _advance_clock,
    "json_roundtrip": _json_roundtrip,
    "enum": _enum,
    "validate": _validate,
    "merge_state": _merge_state,
    **PIPELINE_OPERATIONS,
    **WORKSPACE_OPERATIONS,
}
