"""The state of an execution after some number of events.

All of it is immutable and shares structure (`immutables.Map`), so that a snapshot costs nothing and a step costs the
same whether it is the tenth or the ten-thousandth. Only `engine.evolve` makes new states.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from immutables import Map

from divebook.bounds import Bounds
from divebook.engine.ledger import NO_BOUNDS, NOTHING_SPENT, Ledger
from divebook.engine.lifecycle import FINAL, TERMINAL
from divebook.engine.operations import TIMER
from divebook.engine.records import EMPTY, NO_PLACES, NO_USAGE, OpenStep, Usage
from divebook.engine.rolling_back import RollingBack, Undoing, unsettled
from divebook.engine.rules import StandingRule
from divebook.engine.workspaces import HeldWorkspace
from divebook.events.catalog import CANCELLED, COMPLETED, ENQUEUED, FAILED, PENDING, RUNNING, WAITING
from divebook.events.event import Timed, to_microseconds
from divebook.questions import Question

NO_REPEATS: Map[str, tuple[str, int]] = Map()
NO_SIGNALS: Map[str, tuple[Any, ...]] = Map()
NO_RULES: Map[str, StandingRule] = Map()
NO_WORKSPACES: Map[str, HeldWorkspace] = Map()
NO_ROLLBACKS: Map[int, Undoing] = Map()

READY, IN_STEP, ROUTING, BRANCHED = "ready", "in_step", "routing", "branched"
JOINING, JOINED, ENDED = "joining", "joined", "ended"
"""Phases of a path: before a step, inside it, choosing what follows, split up, waiting at a join, released, over."""


if TYPE_CHECKING:  # a draft of a state is changed in place (`divebook.engine.changes`)
    from dataclasses import dataclass as snapshot
else:
    snapshot = dataclass(frozen=True)


@snapshot
class PathState(Timed):
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
    outputs_at: Map[str, int] = NO_PLACES
    """The events that hold the large ones of `step_outputs`."""
    visits: Map[str, int] = EMPTY
    """How often this path has entered each step."""
    variables: Map[str, Any] = EMPTY
    """The variables as the present step, or the choice after it, reads them."""
    variables_at: Map[str, int] = NO_PLACES
    """The events that hold the large ones of `variables`."""
    open: OpenStep | None = None
    routing: tuple[bool, ...] = ()
    """Results of the conditions already evaluated after the present step, in the order they are written."""
    children: int = 0
    asking: int = 0
    """Questions that wait for an answer."""
    woken: int = 0
    """How often something has come from outside that it waited for."""
    error: str | None = None
    reason: str | None = None
    """The typed reason of its failure, where there is one."""
    came_from: str | None = None
    """The step its parent branched at."""
    before: Map[str, int] = EMPTY
    """How often the paths it comes from had entered each step."""
    repeats: Map[str, tuple[str, int]] = NO_REPEATS
    """By step: digest of what it did last, and how often in a row it did just that; kept where a bound needs it."""
    undoes: int | None = None
    """Which of `ExecutionState.rollbacks` it carries out; None for any other path."""
    hop: int | None = None
    """Number of its agent step that has begun and not ended, in `Ledger.history`."""
    started_us: int | None = None
    ended_us: int | None = None

    @property
    def source(self) -> str | None:
        """The step from which it enters the next one."""
        return self.last_step or self.came_from

    def entries(self, step: str) -> int:
        """Return how often this path, or those it comes from, has entered a step."""
        return self.visits.get(step, 0) + self.before.get(step, 0)

    def loops_to(self, step: str) -> bool:
        """Return whether to enter a step now would begin a new pass through a loop."""
        entered = self.visits.get(step, 0) + self.before.get(step, 0)
        return entered > 0 and (self.source is None or entered + 1 > self.entries(self.source))

    def repeats_of(self, step: str) -> int:
        """Return how often in a row a step has done the same."""
        return self.repeats.get(step, ("", 0))[1]

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


NO_INTERRUPTS: Map[str, Question] = Map()


@snapshot
class ExecutionState(Timed):
    """The fold of an execution's log up to `last_sequence`."""

    execution_id: str
    workflow_name: str = ""
    seed: str = ""
    """What the ids of its questions, and idempotency keys, are made of beside places: a copy of the log keeps it."""
    lifecycle: str = PENDING
    """Status without regard to waiting; `status` is what to show."""
    inputs: Mapping[str, Any] = EMPTY
    outputs: Mapping[str, Any] = EMPTY
    error: str | None = None
    variables: Map[str, Any] = EMPTY
    variables_at: Map[str, int] = NO_PLACES
    """The events that hold the large ones of `variables`."""
    paths: Map[str, PathState] = EMPTY
    usage: Usage = NO_USAGE
    inherited: Usage = NO_USAGE
    """What of it was consumed in the events that it shares with its source; it counts for its bounds only."""
    edited_inputs: tuple[str, ...] = ()
    """The inputs that are not those of the first event, since a fork changed them."""
    tools: str | None = None
    """Of a what-if or a trial: which actions and tools it may execute; None of any other execution."""
    only: Mapping[str, Any] = EMPTY
    """Of a trial: the one step that is done, as `divebook.events.catalog.ExecutionForked` has it."""
    last_sequence: int = 0
    active: int = 0
    """Paths that have not ended."""
    joining: int = 0
    """Active paths that wait at a join."""
    sleeping: int = 0
    """Active paths that wait for a timer or a signal."""
    asking: int = 0
    """Active paths with a question that waits for an answer."""
    interrupts: Map[str, Question] = NO_INTERRUPTS
    """Every question ever asked, by id."""
    branches: int = 0
    """Paths ever made by branching."""
    failed_path: str | None = None
    """The first path that failed."""
    fingerprint: str | None = None
    code: Mapping[str, str] = EMPTY
    """Digests of the Python functions that it was started with, by kind and name."""
    model: str | None = None
    """The model of all its agents, in place of theirs."""
    started_us: int | None = None
    ended_us: int | None = None
    last_us: int = 0
    """When the last event was recorded."""
    paused_us: int = 0
    """How long it has waited for people, or for a process to drive it."""
    identity: Mapping[str, Any] = EMPTY
    """Who asked for it."""
    continued_as: str | None = None
    """The execution as which this one goes on."""
    parent: str | None = None
    """The execution that started it and waits for its end."""
    bounds: Bounds = NO_BOUNDS
    ledger: Ledger = NOTHING_SPENT
    stops: int = 0
    """How often a person said stop at a bound."""
    stopped: tuple[str, str] | None = None
    """Error and typed reason, from when a person said stop until somebody resumes it."""
    reason: str | None = None
    """The typed reason for which it ended."""
    paused: str | None = None
    """Why nothing more begins until it is resumed, where somebody has paused it."""
    queue: str | None = None
    """The queue whose workers drive it; None if it was never put into one."""
    priority: int = 0
    """Of those in its queue, higher ones are taken first."""
    due_us: int | None = None
    """When a worker may take it at the earliest; None for at once."""
    signals: Map[str, tuple[Any, ...]] = NO_SIGNALS
    """Payloads of the signals that no step has taken yet, by name, oldest first."""
    taken: int = 0
    """Number of the last message from the inbox that stands in the log."""
    labels: Map[str, Any] = EMPTY
    """What people have said of it, by name."""
    annotated_at: int = 0
    """The last event in which somebody said something of it."""
    rules: Map[str, StandingRule] = NO_RULES
    """What people have approved for calls to come, and not revoked, by id."""
    workspaces: Map[str, HeldWorkspace] = NO_WORKSPACES
    """The workspaces that it has used, by name, each with the files that it has."""
    rollbacks: Map[int, Undoing] = NO_ROLLBACKS
    """What is undone if it fails or is cancelled, counted from 1."""
    rolling_back: RollingBack | None = None
    """How it ends, from when what it has done is undone."""
    undone_from: int = 0
    """The number in `rollbacks` of what was begun to be undone last: the latest comes first."""

    @property
    def status(self) -> str:
        """One of pending, enqueued, running, waiting, completed, failed, cancelled."""
        if self.paused is not None and self.lifecycle == RUNNING:
            return WAITING
        waits = self.sleeping + self.asking
        if self.lifecycle == RUNNING and waits and waits + self.joining >= self.active:
            return WAITING
        return self.lifecycle

    @property
    def shown_status(self) -> str:
        """The status for people: what waits only because somebody paused it is ``paused``."""
        return "paused" if self.is_shown_paused else self.status

    @property
    def is_shown_paused(self) -> bool:
        """Whether it waits, or is in a queue, and goes on when the person who has paused it resumes it."""
        return self.paused is not None and self.status in (WAITING, ENQUEUED)

    @property
    def running_us(self) -> int:
        """How long it has run, in microseconds, without the time in which it waited for people or for a driver."""
        return 0 if self.started_us is None else max(0, self.last_us - self.started_us - self.paused_us)

    @property
    def own_usage(self) -> Usage:
        """What it has consumed itself, without what its source had before it was forked."""
        return Usage(*(now - before for now, before in zip(self.usage, self.inherited, strict=True)))

    def deadlines(self) -> list[tuple[str, int]]:
        """Return the paths that are to be looked at again at some time, though nothing happens, and the time."""
        questions = (q for q in self.pending_interrupts() if q.expires_us is not None)
        found = [(path, q.expires_us) for q in questions for path in q.waiting if q.expires_us is not None]
        return found + [
            (path.id, record.until)
            for path in self.active_paths()
            if path.open is not None
            for record in path.open.operations.values()
            if record.status == RUNNING and record.until is not None
        ]

    @property
    def wake_at(self) -> int | None:
        """When a waiting execution has something to do even without an answer; None for never.

        One that sleeps has at any time: somebody must be there to wake it. One in a queue has when it is due.
        """
        if self.lifecycle == ENQUEUED:
            return self.due_us
        if self.status != WAITING or self.paused is not None:
            return None
        if self.is_asleep:
            return self.last_us
        return min((deadline for _, deadline in self.deadlines()), default=None)

    @property
    def is_asleep(self) -> bool:
        """Whether a path sleeps, or pauses before it tries something again."""
        steps = (path.open for path in self.paths.values() if path.open is not None and path.phase != ENDED)
        records = (record for opened in steps for record in opened.operations.values())
        return any(record.operation_type == TIMER and record.status == RUNNING for record in records)

    @property
    def is_over(self) -> bool:
        """Whether it has ended (it may still be resumed)."""
        return self.lifecycle in TERMINAL

    @property
    def undoing(self) -> list[PathState]:
        """The paths that undo what others have done, in the order in which they began."""
        return [] if self.rolling_back is None else [p for p in self.paths.values() if p.undoes is not None]

    @property
    def is_final(self) -> bool:
        """Whether it has ended and cannot be resumed."""
        return self.lifecycle in FINAL or (self.is_over and self.is_rolled_back)

    @property
    def is_rolled_back(self) -> bool:
        """Whether all that it has done is undone, so that nothing of it can go on."""
        return (
            self.rolling_back is not None
            and self.undone_from <= 1
            and all(path.status == COMPLETED for path in self.undoing)
            and not self.unsettled
        )

    @property
    def unsettled(self) -> list[PathState]:
        """The paths that have begun what is to be undone, and that the log does not say the undoing of yet."""
        return [p for p in self.paths.values() if p.undoes is None and p.status != FAILED and unsettled(p.open)]

    def question_id(self, *about: object) -> str:
        """Return the id of the question about something, the same in every copy of the log."""
        text = "/".join(map(str, (self.seed or self.execution_id, *about)))
        return f"ask_{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def pending_interrupts(self) -> list[Question]:
        """Return the questions without an answer, oldest first."""
        pending = (found for found in self.interrupts.values() if found.is_open)
        return sorted(pending, key=lambda found: found.order)

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
    "PathState",
]
