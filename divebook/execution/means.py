"""What drives executions is given this from above."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from divebook.execution.clock import Chance, Clock
from divebook.execution.step_run import Services
from divebook.workflow.definition import Workflow


@dataclass(frozen=True, slots=True)
class Means:
    """What a driver is given."""

    services: Services
    clock: Clock
    chance: Chance
    code_of: Callable[[Workflow], dict[str, str]]
    """Returns the digests of the functions that a workflow may call now."""
    stop_children: Callable[[Any], Awaitable[None]]
    """Awaited with a driver before what its execution has done is undone: executions that it started end first."""
    came_to_rest: Callable[[Any], Awaitable[None]]
    """Awaited with a driver when its execution has ended, or rests, and this process drives it no more."""
