"""What an execution looks like after some number of events.

All of it is immutable and shares structure (`immutables.Map`), so that a snapshot costs nothing and a step costs the
same whether it is the tenth or the ten-thousandth. Only `engine.evolve` makes new states.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from immutables import Map

from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, PENDING, RUNNING, TERMINAL, WAITING
from divebook.events.event import to_datetime, to_microseconds

EMPTY: Map[str, Any] = Map()
NO_ITEMS: Map[int, Any] = Map()
NO_FAILURES: Map[int | str | None, tuple[int, float]] = Map()
NO_FAILURE = (0, 0.0)

READY, IN_STEP, ROUTING, BRANCHED = "ready", "in_step", "routing", "branched"
JOINING, JOINED, ENDED = "joining", "joined", "ended"
"""Phases of a path: before a step, inside it, choosing what follows, split up, waiting at a join, released, over."""


class Usage(NamedTuple):
    """What model calls have consumed."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0

    def plus(self, more: Mapping[str, int]) -> Usage:
        """Return the sum with another usage in plain form."""
        return Usage(*(own + more.get(name, 0) for name, own in zip(self._fields, self, strict=True)))

    def to_dict(self) -> dict[str, int]:
        """Return the parts that are not zero."""
        return {name: value for name, value in zip(self._fields, self, strict=True) if value}


NO_USAGE = Usage()


class OperationRecord(NamedTuple):
    """What the log says of one operation of a step that is still open."""

    operation_id: str
    operation_type: str
    parameters_hash: str | None
    started_at: int
    """Microseconds since 1970."""
    started_sequence: int = 0
    """The event of its latest beginning, which a question about its outcome belongs to."""
    ended_sequence: int = 0
    """The event of its end; 0 while it has none."""
    status: str = RUNNING
    result: Any = None
    error: str | None = None
    error_names: tuple[str, ...] = ()
    """The class of the error, and those it derives from."""
    until: int | None = None
    """When a timer goes off, microseconds since 1970."""


class OpenStep(NamedTuple):
    """A step that has begun and not ended."""

    entry_variables: Map[str, Any]
    """The variables as they stood when it began."""
    operations: Map[str, OperationRecord] = EMPTY
    """By operation id."""
    iterations: Map[int, Any] = NO_ITEMS
    """Results of the finished items of `Each`, by index."""
    usage: Usage = NO_USAGE
    failures: Map[int | str | None, tuple[int, float]] = NO_FAILURES
    """By item, or by call of a function: attempts that failed and are followed by another, and the seconds between."""
    step_type: str = ""


class Interrupt(NamedTuple):
    """A question and, once there is one, its answer."""

    interrupt_id: str
    kind: str
    question: str
    path: str
    step: str
    data: Mapping[str, Any] | None = None
    operation_id: str | None = None
    raised_us: int = 0
    status: str = PENDING
    """``pending`` or ``completed``."""
    response: Any = None


class PathState(NamedTuple):
    """One line of progress through the graph."""

    id: str
    number: int
    """Order of creation, from 0 for the root."""
    current_step: str
    parent: str | None = None
    status: str = PENDING
    phase: str = READY
    left: str = READY
    """The phase in which it ended."""
    last_step: str | None = None
    """The step it completed last."""
    step_outputs: Map[str, str] = EMPTY
    """Text of every completed step; a repeated step overwrites."""
    visits: Map[str, int] = EMPTY
    """How often this path has entered each step."""
    variables: Map[str, Any] = EMPTY
    """The variables as the present step, or the choice after it, reads them."""
    open: OpenStep | None = None
    routing: tuple[bool, ...] = ()
    """Results of the conditions already evaluated after the present step, in the order they are written."""
    children: int = 0
    asking: int = 0
    """Questions that wait for an answer."""
    error: str | None = None
    started_us: int | None = None
    ended_us: int | None = None

    @property
    def started_at(self) -> datetime | None:
        """When it began, UTC."""
        return None if self.started_us is None else to_datetime(self.started_us)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, UTC."""
        return None if self.ended_us is None else to_datetime(self.ended_us)

    def to_dict(self) -> dict[str, Any]:
        """Return the path's public facts under the seed's keys; what is empty is left out."""
        record = {
            "id": self.id,
            "status": self.status,
            "current_step": self.current_step,
            "start_time": self.started_at and self.started_at.isoformat(),
            "end_time": self.ended_at and self.ended_at.isoformat(),
            "error_message": self.error,
        }
        return {key: value for key, value in record.items() if value} | {"step_outputs": dict(self.step_outputs)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PathState:
        """Build a path from `to_dict`'s form."""

        def moment(key: str) -> int | None:
            text = record.get(key)
            return None if text is None else to_microseconds(datetime.fromisoformat(text))

        return cls(
            id=record["id"],
            number=0,
            current_step=record["current_step"],
            status=record["status"],
            step_outputs=Map(record.get("step_outputs", {})),
            error=record.get("error_message"),
            started_us=moment("start_time"),
            ended_us=moment("end_time"),
        )


NO_INTERRUPTS: Map[str, Interrupt] = Map()


class ExecutionState(NamedTuple):
    """The fold of an execution's log up to `last_sequence`."""

    execution_id: str
    workflow_name: str = ""
    lifecycle: str = PENDING
    """Status without regard to waiting; `status` is what to show."""
    inputs: Mapping[str, Any] = EMPTY
    outputs: Mapping[str, Any] = EMPTY
    error: str | None = None
    variables: Map[str, Any] = EMPTY
    paths: Map[str, PathState] = EMPTY
    usage: Usage = NO_USAGE
    last_sequence: int = 0
    active: int = 0
    """Paths that have not ended."""
    joining: int = 0
    """Active paths that wait at a join."""
    sleeping: int = 0
    """Active paths that wait for a timer."""
    asking: int = 0
    """Active paths with a question that waits for an answer."""
    interrupts: Map[str, Interrupt] = NO_INTERRUPTS
    """Every question ever asked, by id."""
    branches: int = 0
    """Paths ever made by branching."""
    failed_path: str | None = None
    """The first path that failed."""
    fingerprint: str | None = None
    started_us: int | None = None
    ended_us: int | None = None

    @property
    def status(self) -> str:
        """One of pending, running, waiting, completed, failed, cancelled."""
        waits = self.sleeping + self.asking
        if self.lifecycle == RUNNING and waits and waits + self.joining >= self.active:
            return WAITING
        return self.lifecycle

    @property
    def wake_at(self) -> int | None:
        """When the first timer of a waiting execution goes off, microseconds since 1970; None if it has none."""
        if self.status != WAITING or not self.sleeping:
            return None
        opened = (path.open for path in self.paths.values() if path.open is not None and path.phase != ENDED)
        timers = (record for step in opened for record in step.operations.values() if record.status == RUNNING)
        return min((record.until for record in timers if record.until is not None), default=None)

    @property
    def is_over(self) -> bool:
        """Whether it has ended (it may still be resumed)."""
        return self.lifecycle in TERMINAL

    @property
    def started_at(self) -> datetime | None:
        """When it began, UTC."""
        return None if self.started_us is None else to_datetime(self.started_us)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, UTC."""
        return None if self.ended_us is None else to_datetime(self.ended_us)

    def pending_interrupts(self) -> list[Interrupt]:
        """Return the questions without an answer, oldest first."""
        pending = (found for found in self.interrupts.values() if found.status == PENDING)
        return sorted(pending, key=lambda found: (found.raised_us, found.interrupt_id))

    def active_paths(self) -> list[PathState]:
        """Return the paths that have not ended, oldest first."""
        return sorted((p for p in self.paths.values() if p.phase != ENDED), key=lambda path: path.number)


__all__ = [
    "CANCELLED",
    "COMPLETED",
    "FAILED",
    "PENDING",
    "RUNNING",
    "WAITING",
    "ExecutionState",
    "Interrupt",
    "OpenStep",
    "OperationRecord",
    "PathState",
    "Usage",
]
