"""Executions that others started: begun once, taken up with their parent, and their parent told of their end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from divebook.bounds import Bounds
from divebook.engine.operations import CHILD_WORKFLOW
from divebook.engine.state import RUNNING, ExecutionState
from divebook.events.ids import type_id

ID_BITS = 74


class Child(NamedTuple):
    """What a step asks for when it runs another workflow."""

    id: str
    parent: str
    """Id of the execution that asks."""
    workflow: str
    inputs: Mapping[str, Any]
    bounds: Bounds
    """What is left of the parent's."""


class DriveChild(Protocol):
    """Begins a child, or takes it up; returns its state once it has ended, or rests."""

    async def __call__(self, child: Child, *, again: bool) -> ExecutionState:
        """Do so; `again`: also where it has failed or was cancelled."""


def child_id(parent: ExecutionState, operation_id: str) -> str:
    """Return the id of the execution that an operation starts: always the same, so that it is started once."""
    digest = hashlib.sha256(f"{parent.execution_id}/{operation_id}".encode()).digest()
    return type_id("exec", (parent.started_us or 0) // 1000, int.from_bytes(digest) >> (256 - ID_BITS))


def running_children(state: ExecutionState) -> list[str]:
    """Return the ids of the executions whose end an execution waits for, or waited for when it ended."""
    opened = [path.open for path in state.paths.values() if path.open is not None]
    records = [record for found in opened for record in found.operations.values()]
    return [
        record.signal
        for record in records
        if record.operation_type == CHILD_WORKFLOW and record.status == RUNNING and record.signal is not None
    ]
