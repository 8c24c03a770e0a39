"""The state of an execution after some number of events.

All of it is immutable and shares structure (`immutables.Map`), so that a snapshot costs nothing and a step costs the
same whether it is the tenth or the ten-thousandth. Only `engine.evolve` makes new states.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from operator import add
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from immutables import Map

from divebook.engine.approvals import StandingRule
from divebook.engine.lifecycle import FINAL, TERMINAL
from divebook.engine.operations import CHILD_WORKFLOW, SIGNAL_WAIT, TIMER, Reserved, consumption_of
from divebook.errors import SetupError, did_you_mean
from divebook.events import catalog
from divebook.events.catalog import CANCELLED, COMPLETED, ENQUEUED, FAILED, PENDING, RUNNING, WAITING
from divebook.events.event import Event, Timed, to_datetime, to_microseconds
from divebook.questions import Question
from divebook.questions.bounds import Bounds
from divebook.text.format import local_time, visible

# What a state keeps of a step that is open: its calls, what they have used, the items that are done.


EMPTY: Map[str, Any] = Map()
NO_ITEMS: Map[int, Any] = Map()
NO_PLACES: Map[Any, int] = Map()
NO_FAILURES: Map[int | str | None, tuple[int, float]] = Map()
NO_FAILURE = (0, 0.0)
NO_HOLDERS: Map[int, str] = Map()


class Usage(NamedTuple):
    """What model calls have consumed: requests, tokens, and `cost` in nanodollars, of which 1,000,000,000 are a dollar.

    `divebook.Execution.costs` and the other frames have dollars.

    Examples
    --------
    >>> Usage(1, 6, 4, cost=25_000)
    Usage(requests=1, input_tokens=6, output_tokens=4, cost=25000 nanodollars)
    """

    requests: int = 0
    input_tokens: int = 0
    """Of all requests, those that a provider's cache spared included."""
    output_tokens: int = 0
    cache_write_tokens: int = 0
    """Of the input tokens, those written to the provider's cache."""
    cache_read_tokens: int = 0
    """Of the input tokens, those read from it."""
    cost: int = 0
    """Nanodollars, as far as the prices are known; whole numbers, so that sums are exact."""

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value}" for name, value in self.to_dict().items())
        return f"Usage({told}{' nanodollars' if self.cost else ''})"

    def plus(self, more: Mapping[str, int]) -> Usage:
        """Return the sum with another usage in plain form."""
        return Usage(*map(add, self, map(more.get, self._fields, repeat(0)))) if more else self

    def to_dict(self) -> dict[str, int]:
        """Return the parts that are not zero."""
        return {name: value for name, value in zip(self._fields, self, strict=True) if value}


NO_USAGE = Usage()


Outcome: TypeAlias = tuple[Any, str | None, tuple[str, ...], Mapping[str, Any] | None]
"""`result`, `error`, `error_names` and `raised` of an operation."""


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
    raised: Mapping[str, Any] | None = None
    """What makes the same error again."""
    until: int | None = None
    """When a timer goes off, or the wait for a signal ends, microseconds since 1970."""
    signal: str | None = None
    """Name of the signal that is waited for."""
    reserved: Reserved | None = None
    """What it holds of the bounds: while it runs, and what an execution that has ended has handed on to others."""
    setting_hash: str | None = None
    within: str | None = None
    """Id of the operation that holds it."""
    holds: tuple[str, ...] = ()
    """Ids of the operations that it holds, while it has not completed."""
    undone: str | None = None
    """Where what undoes it comes from, as `divebook.events.catalog.OperationStarted` has it."""
    item: int | None = None
    """The item whose end has what undoes it."""
    is_final: bool = False
    """Whether it is an execution that has failed and cannot go on."""
    lost: Mapping[str, str] | None = None
    """The description of its result, where it returned and the log cannot hold that."""

    @property
    def consumed(self) -> Mapping[str, int]:
        """What it consumed although it failed, in the form of `OperationFailed.usage`."""
        return consumption_of((self.raised or {}).get("fields") or {}) or {}

    @classmethod
    def begun(cls, *known: Any) -> OperationRecord:
        """Return one by its first five fields; a third of the cost of calling the class, as for what follows."""
        return tuple.__new__(cls, known + _BEGUN)

    def ended(self, sequence: int, status: str, outcome: Outcome) -> OperationRecord:
        """Return it as it stands after the event of its end."""
        return tuple.__new__(
            OperationRecord, (*self[:5], sequence, status, *outcome, self.until, self.signal, None, *self[14:])
        )


_BEGUN = tuple(OperationRecord._field_defaults[name] for name in OperationRecord._fields[5:])


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
    ended_by: tuple[str, ...] | None = None
    """Ids of the operations whose failure ended it, where the log says so."""
    entry_at: Map[str, int] = NO_PLACES
    iterations_at: Map[int, int] = NO_PLACES
    """The events that hold the large ones of `entry_variables` and `iterations`."""
    holders: Map[int, str] = NO_HOLDERS
    """Ids of the operations that can hold others, by the events with which they began, until they have completed."""

    @classmethod
    def begun(cls, step_type: str, variables: Map[str, Any], places: Map[str, int]) -> OpenStep:
        """Return one in which nothing has happened; a third of the cost of calling the class."""
        return tuple.__new__(
            cls, (variables, EMPTY, NO_ITEMS, NO_USAGE, NO_FAILURES, step_type, None, places, NO_PLACES, NO_HOLDERS)
        )

    def with_operation(self, record: OperationRecord) -> OpenStep:
        """Return it with a new or changed operation, twice for each call."""
        return tuple.__new__(OpenStep, (self[0], self.operations.set(record.operation_id, record), *self[2:]))

    def with_items(self, iterations: Map[int, Any], places: Map[int, int]) -> OpenStep:
        """Return it with other results of items, and the events that hold the large ones: once for each item."""
        return tuple.__new__(OpenStep, (*self[:2], iterations, *self[3:8], places, *self[9:]))


# What an execution has spent and done so far, apart from tokens: part of its state.


NO_BOUNDS = Bounds()
NO_EDGES: Map[str, int] = Map()
NO_CHILDREN: Map[str, Usage] = Map()


class Hop(NamedTuple):
    """One agent step."""

    step: str
    path: str
    started_us: int
    agent: str | None = None
    """The agent that was asked; None until it has been."""
    ended_us: int | None = None
    status: str = "running"
    """``running``, ``success`` or ``error``."""
    error: str | None = None
    llm_calls: int = 0


NO_HOPS: Map[int, Hop] = Map()
NO_ERRORS: Map[int, Mapping[str, Any]] = Map()


class Ledger(NamedTuple):
    """Counters, history and errors; every call counts from when it has begun."""

    llm_calls: int = 0
    agent_hops: int = 0
    iterations: int = 0
    """Passes through loops beyond the first."""
    reserved_tokens: int = 0
    reserved_cost: int = 0
    """What the calls that run may still consume; cost in nanodollars."""
    reserved_calls: int = 0
    """What the executions that it started, and that run, may still ask of models."""
    edges: Map[str, int] = NO_EDGES
    """Passages by ``"from->to"``, of the edges that have a bound."""
    history: Map[int, Hop] = NO_HOPS
    """The agent steps, by number."""
    children: Map[str, Usage] = NO_CHILDREN
    """What the executions that it started have consumed, by id; it counts here as well."""
    errors: Map[int, Mapping[str, Any]] = NO_ERRORS
    """Errors of steps: ``agent``, ``error``, ``error_type``, ``timestamp`` (microseconds)."""

    def holding(self, reserved: Reserved | None, sign: int = 1) -> Ledger:
        """Return the ledger with more reserved, or less if `sign` is -1."""
        if reserved is None:
            return self
        return self._replace(
            reserved_tokens=self.reserved_tokens + sign * reserved.tokens,
            reserved_cost=self.reserved_cost + sign * reserved.cost,
            reserved_calls=self.reserved_calls + sign * reserved.calls,
        )

    def with_child(self, child: str, usage: Mapping[str, int]) -> Ledger:
        """Return the ledger with more that an execution has consumed which this one started."""
        counted = self.children.set(child, self.children.get(child, NO_USAGE).plus(usage))
        return self._replace(llm_calls=self.llm_calls + usage.get("requests", 0), children=counted)

    def with_error(self, step: str, error: str, at: int) -> Ledger:
        """Return the ledger with one more error."""
        told = {"agent": step, "error": error, "error_type": "ProcessingError", "timestamp": at}
        return self._replace(errors=self.errors.set(len(self.errors), told))

    def with_hop(self, number: int, **changes: Any) -> Ledger:
        """Return the ledger with something more known of an agent step."""
        return self._replace(history=self.history.set(number, self.history[number]._replace(**changes)))


NOTHING_SPENT = Ledger()


# A workspace as the log has it: where it is, and which files it has at a place of the log. Pure.


ABOUT_FILES = "files-"
"""Begins what a question stands for, in place of an operation, that asks what is to be done with files that were found
otherwise than the execution had left them; the name of the workspace follows."""


class HeldWorkspace(NamedTuple):
    """A workspace that an execution has used."""

    kind: str
    """Where its commands run: ``local``, ``fenced``, ``virtualenv``."""
    reference: Mapping[str, Any] = EMPTY
    """What it is found again by: its folder, its container."""
    source: str | None = None
    """The folder that its files are a copy of; None where it is that folder itself."""
    first: str | None = None
    """Digest of the files that it had when the execution began to use it."""
    tree: str | None = None
    """Digest of the files that it has now."""
    at: int = 0
    """The event that has its files, or what has changed of them last; 0 where nothing is known of them."""
    is_own: bool = True
    """Whether it has a place; a fork has the files of its source, and makes a place of its own for them once it works
    there."""


# What an execution has undone of what it did, or is to undo: none of that is there for those that go on from its log.
#
# Pure. A fork begins before the first of it, and a run that goes on with another definition does it again
# (`tests/replay/test_undone.py`).


class Undone(NamedTuple):
    """What is undone of what a log says was done."""

    before: int
    """The last event before any of it began."""
    steps: tuple[str, ...]
    operations: frozenset[str]
    """Ids of the operations whose results do not count."""


def undone_in(events: Sequence[Event], *, is_left: bool = False) -> Undone | None:
    """Return what a log says of what is undone, if anything is.

    Parameters
    ----------
    events
        The log, from event 1 on.
    is_left
        Whether others go on in the place of an execution that has not completed: it is cancelled then, and so undone.
    """
    is_done = any(isinstance(event.data, catalog.ExecutionCompleted) for event in events)
    if not (is_left and not is_done) and not any(isinstance(event.data, catalog.RollbackStarted) for event in events):
        return None
    own = max((e.sequence for e in events if isinstance(e.data, catalog.ExecutionForked)), default=0)
    added = [event for event in events[own:] if isinstance(event.data, catalog.RollbackAdded)]
    if not added:
        return None
    parts = [_part(events, event) for event in added]
    begins = min(part[0].sequence for part in parts)
    operations = (event.data for part in parts for event in part)
    undone = frozenset(data.operation_id for data in operations if isinstance(data, catalog.OperationStarted))
    return Undone(begins - 1, tuple(dict.fromkeys(event.step for event in added)), undone)


def _part(events: Sequence[Event], added: Event) -> list[Event]:
    """Return the events of a call, an item or a step of which an event says how it is undone; its calls at least."""
    before = [event for event in events[: added.sequence - 1] if event.path == added.path]
    if getattr(added.data, "kind", "") == "step":
        ended = next(event.data for event in reversed(before) if isinstance(event.data, catalog.OperationCompleted))
        return [e for e in before if isinstance(e.data, catalog.OperationStarted) and _is_of(e, ended)][-1:]
    entered = max(number for number, event in enumerate(before) if isinstance(event.data, catalog.StepStarted))
    following = events[added.sequence].data if added.sequence < len(events) else None
    if not isinstance(following, catalog.IterationCompleted):
        return before[entered:]
    item = following.iteration_index
    return [event for event in before[entered:] if getattr(event.data, "iteration_index", None) == item]


def _is_of(event: Event, ended: catalog.Payload) -> bool:
    return getattr(event.data, "operation_id", "") == getattr(ended, "operation_id", None)


def require_kept(events: Sequence[Event], at: int) -> None:
    """Raise `SetupError` for a fork after an event, where something before that is undone."""
    undone = undone_in(events)
    if undone is not None and at > undone.before:
        steps = ", ".join(map(repr, undone.steps))
        raise SetupError(
            f"execution {events[0].execution_id} is rolled back: what it did in {steps} is undone, or is to be, so "
            f"that nothing can go on from it after event {at}; fork it at event {max(1, undone.before)}, or before "
            "that, where that is done again, or start a new run"
        )


# What is undone when an execution fails or is cancelled, as its state has it.


BY_CALL: Final = "call"
BY_STEP: Final = "step"
"""What has the undoing of a call: its own end, or that of its step or item."""


class Undoing(NamedTuple):
    """A call that undoes what a step, an item of it or a call has done."""

    step: str
    action: str
    """Name of what is called."""
    parameters: Mapping[str, Any]
    kind: str
    """Whether that is an ``action``, or a function given to a ``step``."""
    function: str | None = None
    """Where such a function is defined; None in older logs."""

    @property
    def called(self) -> str:
        """By what it is found."""
        return self.function or self.action


class RollingBack(NamedTuple):
    """How an execution ends that is being rolled back."""

    error: str
    reason: str | None
    is_cancelled: bool


def unsettled(opened: OpenStep | None) -> list[OperationRecord]:
    """Return the calls of a step whose undoing the log is still to have: nobody knows yet whether they took effect.

    Or they did, and what they gave is still to be filled in.
    """
    records = () if opened is None else opened.operations.values()
    return [record for record in records if record.undone is not None and _is_unsettled(record, opened)]


def unknown(opened: OpenStep | None) -> list[OperationRecord]:
    """Return those of which nobody knows whether they took effect."""
    return [record for record in unsettled(opened) if record.status == RUNNING]


def _is_unsettled(record: OperationRecord, opened: OpenStep | None) -> bool:
    if record.status == RUNNING:
        return True
    is_in_step = record.undone == BY_STEP and opened is not None and record.item not in opened.iterations
    return record.status == COMPLETED and is_in_step


NO_REPEATS: Map[str, tuple[str, int]] = Map()
NO_SIGNALS: Map[str, tuple[Any, ...]] = Map()
NO_RULES: Map[str, StandingRule] = Map()
NO_WORKSPACES: Map[str, HeldWorkspace] = Map()
NO_ROLLBACKS: Map[int, Undoing] = Map()

READY = "ready"
IN_STEP = "in_step"
ROUTING = "routing"
BRANCHED = "branched"
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


# What a waiting execution waits for: answers, signals, a time; pure.


class AwaitedSignal(NamedTuple):
    """A signal that a step waits for."""

    name: str
    step: str
    until_us: int | None = None
    """When it stops waiting, microseconds since 1970; None for never."""

    def __str__(self) -> str:
        until = "" if self.until_us is None else f" until {local_time(to_datetime(self.until_us))}"
        return f"the signal {visible(self.name)!r}{until}"


def awaited_signals(state: ExecutionState) -> list[AwaitedSignal]:
    """Return the signals that an execution waits for and that have not come, each name once."""
    found = {
        record.signal: AwaitedSignal(record.signal, step, record.until)
        for step, record in _open_records(state, SIGNAL_WAIT)
        if record.signal is not None and record.signal not in state.signals
    }
    return list(found.values())


def kept_until_taken(state: ExecutionState, name: str) -> str | None:
    """Return in words that no step waits for a signal of that name, which may be misspelled; None if one does."""
    awaited = {signal.name for signal in awaited_signals(state)}
    if name in awaited or state.is_over:
        return None
    waits = f"it waits for {', '.join(map(repr, sorted(awaited)))}" if awaited else "it waits for no signal at present"
    hint = did_you_mean(name, awaited)
    return f"no step waits for the signal {name!r}, which is kept until one does; {waits}{f': {hint}' if hint else ''}"


def waits_for(state: ExecutionState, questions: Iterable[Question]) -> list[str]:
    """Return in words what an execution waits for, if it does: answers to these open questions, signals, children."""
    if state.status != WAITING or state.paused is not None:
        return []
    return [
        *(f"an answer to {asked.id}: {asked.question}" for asked in questions if asked.is_open),
        *map(str, awaited_signals(state)),
        *(f"execution {record.signal}" for _, record in _open_records(state, CHILD_WORKFLOW) if record.signal),
    ]


def _open_records(state: ExecutionState, operation_type: str) -> Iterator[tuple[str, OperationRecord]]:
    for path in state.active_paths():
        for record in path.open.operations.values() if path.open is not None else ():
            if record.operation_type == operation_type and record.status == RUNNING:
                yield path.current_step, record


__all__ = ["CANCELLED", "COMPLETED", "FAILED", "PENDING", "RUNNING", "WAITING", "ExecutionState", "PathState"]
