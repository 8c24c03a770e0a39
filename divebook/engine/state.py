"""State of an execution (`ExecutionState`, immutable), and the objects in it such as paths and counters. `Draft` is its
mutable copy, to which events are applied.

A state is immutable and shares structure with its predecessor (`immutables.Map`). A snapshot therefore costs nothing,
and the tenth step costs as much as the ten-thousandth. Only `engine.evolve` creates new states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from operator import add
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from divebook.engine.approvals import StandingRule
from divebook.engine.lifecycle import FINAL, PAUSED, TERMINAL, shown_status
from divebook.engine.maps import Map
from divebook.engine.operations import CHILD_WORKFLOW, SIGNAL_WAIT, TIMER, Reserved, consumption_of
from divebook.errors import CorruptStoreError, SetupError, did_you_mean
from divebook.events import catalog
from divebook.events.catalog import (
    CANCELLED,
    COMPLETED,
    ENQUEUED,
    FAILED,
    PENDING,
    RUNNING,
    WAITING,
    PathCompleted,
    Payload,
    StepCompleted,
)
from divebook.events.event import Event, Record, Timed, hashed_id, to_datetime, to_microseconds
from divebook.events.recorded import ATOMS
from divebook.questions import Question
from divebook.questions.bounds import Bounds
from divebook.questions.question import is_expired_unanswered, is_overdue
from divebook.text.format import local_time, visible

# --- an open step: its operations, their usage, its finished items ---------------------------------------------------


EMPTY: Map[str, Any] = Map()
NO_ITEMS: Map[int, Any] = Map()
NO_PLACES: Map[Any, int] = Map()
NO_FAILURES: Map[int | str | None, tuple[int, float]] = Map()
NO_FAILURE = (0, 0.0)
NO_HOLDERS: Map[int, str] = Map()


class Usage(NamedTuple):
    """Consumption of model calls: requests, tokens, and `cost` in nanodollars (1,000,000,000 are one US dollar).

    Frames, for example `divebook.Run.costs`, have dollars.

    Examples
    --------
    >>> Usage(1, 6, 4, cost=25_000)
    Usage(requests=1, input_tokens=6, output_tokens=4, cost=25000 nanodollars)
    """

    requests: int = 0
    input_tokens: int = 0
    """Input tokens of all requests, including those that were read from a provider's cache."""
    output_tokens: int = 0
    cache_write_tokens: int = 0
    """Input tokens that were written to the provider's cache."""
    cache_read_tokens: int = 0
    """Input tokens that were read from the provider's cache."""
    cost: int = 0
    """Nanodollars, as far as the prices are known. Integers, so that sums are exact."""

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={value}" for name, value in self.to_dict().items())
        return f"Usage({parts}{' nanodollars' if self.cost else ''})"

    def plus(self, more: Mapping[str, int]) -> Usage:
        """Return the sum of this usage and another usage, which is a mapping from field names to numbers."""
        # Fields that `more` lacks count as 0, and its other keys are ignored.
        return Usage(*map(add, self, map(more.get, self._fields, repeat(0)))) if more else self

    def to_dict(self) -> dict[str, int]:
        """Return the fields of the usage that are not zero, by name."""
        return {name: value for name, value in zip(self._fields, self, strict=True) if value}


NO_USAGE = Usage()
NO_FAILED_USAGE: Map[str, Usage] = Map()


Outcome: TypeAlias = tuple[Any, str | None, tuple[str, ...], Mapping[str, Any] | None]
"""`result`, `error`, `error_names` and `raised` of an operation."""


class OperationRecord(NamedTuple):
    """State of one operation in an open step: its status, its result or error, and the part of the budget reserved for
    it.
    """

    operation_id: str
    operation_type: str
    parameters_hash: str | None
    started_at: int
    """Microseconds since 1970."""
    started_sequence: int = 0
    """Event number of the latest start of the operation. A question about its outcome refers to this event."""
    ended_sequence: int = 0
    """Event number of the end of the operation; 0 while it runs."""
    status: str = RUNNING
    result: Any = None
    error: str | None = None
    error_names: tuple[str, ...] = ()
    """Name of the error's class, followed by the names of its base classes."""
    raised: Mapping[str, Any] | None = None
    """Data from which the same error can be raised again."""
    until: int | None = None
    """End of a timer, or of the wait for a signal, in microseconds since 1970."""
    signal: str | None = None
    """Name of the awaited signal, or id of the child execution."""
    reserved: Reserved | None = None
    """Part of the budget that is reserved for the operation while it runs. For a child execution that has ended: the
    amount that its successors may still spend.
    """
    setting_hash: str | None = None
    within: str | None = None
    """Id of the enclosing operation."""
    holds: tuple[str, ...] = ()
    """Ids of the operations that this operation encloses, until it has completed."""
    undone: str | None = None
    """Source of its rollback; see `divebook.events.catalog.OperationStarted`."""
    item: int | None = None
    """Index of the item whose end event has its rollback."""
    is_final: bool = False
    """True for a child execution that has failed and cannot be resumed."""
    lost: Mapping[str, str] | None = None
    """Description of a result that was returned but cannot be stored."""

    @property
    def consumed(self) -> Mapping[str, int]:
        """Consumption that the error of a failed operation reports, in the form of `OperationFailed.usage`; empty if it
        reports none.
        """
        return consumption_of((self.raised or {}).get("fields") or {}) or {}

    @classmethod
    def begun(cls, *fields: Any) -> OperationRecord:
        """Create the record of an operation that has just started. The arguments are the first five fields of this
        class.

        Like the other constructors here, this costs a third of calling the class.
        """
        # `tuple.__new__` skips the generated `__new__` of the named tuple, which binds arguments to fields.
        return tuple.__new__(cls, fields + _BEGUN)

    def ended(self, sequence: int, status: str, outcome: Outcome) -> OperationRecord:
        """Return a copy of the record in which the operation has ended with a status and an outcome. No budget is
        reserved for it any more.
        """
        # By position: fields 0 to 4 identify the operation; ended_sequence (5) and status (6) come next; the outcome
        # fills result, error, error_names and raised (7 to 10); `None` is the field reserved (13).
        return tuple.__new__(
            OperationRecord, (*self[:5], sequence, status, *outcome, self.until, self.signal, None, *self[14:])
        )


_BEGUN = tuple(OperationRecord._field_defaults[name] for name in OperationRecord._fields[5:])


class OpenStep(NamedTuple):
    """State of a step that has started and not ended: its operations, finished items, failures and usage."""

    entry_variables: Map[str, Any]
    """Variables at the start of the step."""
    operations: Map[str, OperationRecord] = EMPTY
    """Records of the operations of the step, by operation id."""
    iterations: Map[int, Any] = NO_ITEMS
    """Results of the finished items of `Each`, by index."""
    usage: Usage = NO_USAGE
    failures: Map[int | str | None, tuple[int, float]] = NO_FAILURES
    """Number of failed attempts that were repeated, and the seconds of the pause between them.

    The key is the index of an item, the key of a function call, or None for the step.
    """
    step_type: str = ""
    ended_by: tuple[str, ...] | None = None
    """Ids of the operations whose failure ended the step, if the log has them."""
    entry_at: Map[str, int] = NO_PLACES
    """Events that hold the large values of `entry_variables`."""
    iterations_at: Map[int, int] = NO_PLACES
    """Events that hold the large values of `iterations`."""
    holders: Map[int, str] = NO_HOLDERS
    """Ids of the enclosing operations that have not completed, by the events of their start."""
    failed_usage: Map[str, Usage] = NO_FAILED_USAGE
    """Usage of failed model calls whose records a resumption has removed because they run again, by operation id.

    `requests` is the number of these calls.
    """

    @classmethod
    def begun(cls, step_type: str, variables: Map[str, Any], places: Map[str, int]) -> OpenStep:
        """Create the state of a step without operations. It is faster than calling the class: it takes a third of the
        time.
        """
        return tuple.__new__(
            cls,
            (
                *(variables, EMPTY, NO_ITEMS, NO_USAGE, NO_FAILURES),
                *(step_type, None, places, NO_PLACES, NO_HOLDERS, NO_FAILED_USAGE),
            ),
        )

    def with_operation(self, record: OperationRecord) -> OpenStep:
        """Return the state of the step with a new or changed operation. Must be fast, because it is called twice for
        each operation.
        """
        # By position: entry_variables is 0, operations is 1.
        return tuple.__new__(OpenStep, (self[0], self.operations.set(record.operation_id, record), *self[2:]))

    def with_items(self, iterations: Map[int, Any], places: Map[int, int]) -> OpenStep:
        """Return the state of the step with new results of its finished items. `places` maps the items with large
        results to the numbers of the events that hold these results.
        """
        # By position: iterations is 2, iterations_at is 8.
        return tuple.__new__(OpenStep, (*self[:2], iterations, *self[3:8], places, *self[9:]))


# --- the ledger: what an execution has spent and done, apart from tokens ---------------------------------------------
#
# Costs are integers of nanodollars, so that sums are exact. Example: a call that may cost 500 reserves 500 at its start
# (`reserved_cost`). It ends with a cost of 120: the reservation is removed, and 120 is added to `ExecutionState.usage`.
# Spent and reserved together fall from 500 to 120.


NO_BOUNDS = Bounds()
NO_EDGES: Map[str, int] = Map()
NO_CHILDREN: Map[str, Usage] = Map()


class Hop(NamedTuple):
    """One visit of an agent step by a path (an agent hop): its times, status, error and number of model calls."""

    step: str
    path: str
    started_us: int
    agent: str | None = None
    """Name of the agent; None before its first request."""
    ended_us: int | None = None
    status: str = "running"
    """``running``, ``success`` or ``error``."""
    error: str | None = None
    llm_calls: int = 0


NO_HOPS: Map[int, Hop] = Map()
NO_ERRORS: Map[int, Mapping[str, Any]] = Map()


class Ledger(NamedTuple):
    """Counters of an execution: its model calls, agent steps and loops, and the amounts reserved from its budget. Also
    lists the visits of agent steps and the errors. A call counts from its start.
    """

    llm_calls: int = 0
    agent_hops: int = 0
    iterations: int = 0
    """Passes through loops, without the first pass of each loop."""
    reserved_tokens: int = 0
    reserved_cost: int = 0
    """Nanodollars that running calls may still cost. `reserved_tokens` are the tokens that these calls may
    still use.
    """
    reserved_calls: int = 0
    """Model calls that running child executions may still make."""
    edges: Map[str, int] = NO_EDGES
    """Number of times that each bounded edge was followed, by ``"from->to"``."""
    history: Map[int, Hop] = NO_HOPS
    """Visits of agent steps, by number."""
    children: Map[str, Usage] = NO_CHILDREN
    """Usage of the child executions by id. It is part of the usage of this execution."""
    errors: Map[int, Mapping[str, Any]] = NO_ERRORS
    """Errors of steps: ``agent``, ``error``, ``error_type``, ``timestamp`` (microseconds)."""

    def holding(self, reserved: Reserved | None, sign: int = 1) -> Ledger:
        """Return the budget counters after a call has reserved a part of the budget, or with `sign` -1 after it has
        returned the part. None means that nothing is reserved.
        """
        if reserved is None:
            return self
        return self._replace(
            reserved_tokens=self.reserved_tokens + sign * reserved.tokens,
            reserved_cost=self.reserved_cost + sign * reserved.cost,
            reserved_calls=self.reserved_calls + sign * reserved.calls,
        )

    def with_child(self, child: str, usage: Mapping[str, int]) -> Ledger:
        """Return the counters after a child execution has ended, with its usage added and its model calls counted."""
        # A child that is resumed ends again, and reports only the usage since its last end. Both parts are added.
        counted = self.children.set(child, self.children.get(child, NO_USAGE).plus(usage))
        return self._replace(llm_calls=self.llm_calls + usage.get("requests", 0), children=counted)

    def with_error(self, step: str, error: str, at: int) -> Ledger:
        """Return the counters with the error of one more failed step in their list of errors."""
        record = {"agent": step, "error": error, "error_type": "ProcessingError", "timestamp": at}
        return self._replace(errors=self.errors.set(len(self.errors), record))

    def with_hop(self, number: int, **changes: Any) -> Ledger:
        """Return the counters with changed fields of one visit of an agent step. `number` identifies the visit."""
        return self._replace(history=self.history.set(number, self.history[number]._replace(**changes)))


NOTHING_SPENT = Ledger()


# --- workspaces: their place, and their files at each event ----------------------------------------------------------


ABOUT_FILES = "files-"
"""Prefix of the operation id of a question about workspace files that were changed from outside.

The name of the workspace follows it."""


class HeldWorkspace(NamedTuple):
    """State of a workspace that an execution has used: its folder or container, and the digest of its files."""

    kind: str
    """Kind of place where commands run: ``local``, ``fenced``, ``virtualenv``."""
    reference: Mapping[str, Any] = EMPTY
    """Data that identifies it: its folder or its container."""
    source: str | None = None
    """Folder that was copied into it; None if it is that folder."""
    first: str | None = None
    """Digest of its files when the execution began to use it."""
    tree: str | None = None
    """Digest of its files now."""
    at: int = 0
    """Event that has its files or their last changes; 0 if none has."""
    is_own: bool = True
    """True if it has a folder. A fork refers to its source's files until it works in the workspace for the first time;
    then it gets a folder."""


# --- rolled back work ------------------------------------------------------------------------------------------------
#
# Work that was rolled back, or will be, cannot be shared with a fork. A fork must begin before it, and a run that is
# continued with another definition does it again (`tests/replay/test_undone.py`).


class Undone(NamedTuple):
    """Description of the work in a log that is rolled back, or will be: the last event before it, its steps and its
    operations.
    """

    before: int
    """Last event before any of the rolled back work began."""
    steps: tuple[str, ...]
    operations: frozenset[str]
    """Ids of the operations whose results do not count."""


def undone_in(events: Sequence[Event], *, is_left: bool = False) -> Undone | None:
    """Return a description of the work in a log that is rolled back or will be. Return None if no work is.

    Parameters
    ----------
    events
        The whole log, from event 1.
    is_left
        True if another execution continues in place of this one. If this one has not completed, it is then cancelled,
        and so rolled back.
    """
    # Work of a completed execution is never rolled back, even if another execution continues in its place.
    is_done = any(isinstance(event.data, catalog.ExecutionCompleted) for event in events)
    if not (is_left and not is_done) and not any(isinstance(event.data, catalog.RollbackStarted) for event in events):
        return None
    # The source rolls back its own work, so only events of this log after its last fork event count.
    shared = max((e.sequence for e in events if isinstance(e.data, catalog.ExecutionForked)), default=0)
    added = [event for event in events[shared:] if isinstance(event.data, catalog.RollbackAdded)]
    if not added:
        return None
    parts = [_part(events, event) for event in added]
    # Example: events 9 to 12 are the step "pay" and event 12 registers its rollback. Then `before` is 8, and the
    # operations that started in the events 9 to 12 are undone.
    begins = min(part[0].sequence for part in parts)
    operations = (event.data for part in parts for event in part)
    undone = frozenset(data.operation_id for data in operations if isinstance(data, catalog.OperationStarted))
    return Undone(begins - 1, tuple(dict.fromkeys(event.step for event in added)), undone)


def _part(events: Sequence[Event], added: Event) -> list[Event]:
    """Return the events of the work that one rollback undoes: a call, an item of `Each`, or a whole step. `added` is
    the event of type `rollback_added` that registers the rollback.
    """
    # Events are numbered from 1, so `events[: n - 1]` are those before event n.
    before = [event for event in events[: added.sequence - 1] if event.path == added.path]
    # A `@step` function registers its rollback directly after its own call, so the part is the start of this call.
    if getattr(added.data, "kind", "") == "step":
        ended = next(event.data for event in reversed(before) if isinstance(event.data, catalog.OperationCompleted))
        return [e for e in before if isinstance(e.data, catalog.OperationStarted) and _is_of(e, ended)][-1:]
    # Otherwise the part is the latest visit of the step, or one item in it: the end of an item follows its rollback.
    entered = max(number for number, event in enumerate(before) if isinstance(event.data, catalog.StepStarted))
    following = events[added.sequence].data if added.sequence < len(events) else None
    if not isinstance(following, catalog.IterationCompleted):
        return before[entered:]
    item = following.iteration_index
    return [event for event in before[entered:] if getattr(event.data, "iteration_index", None) == item]


def _is_of(event: Event, ended: catalog.Payload) -> bool:
    return getattr(event.data, "operation_id", "") == getattr(ended, "operation_id", None)


def require_kept(events: Sequence[Event], at: int) -> None:
    """Raise `SetupError` if a fork after event `at` would start from work that its source has rolled back or will roll
    back. Otherwise do nothing.
    """
    undone = undone_in(events)
    if undone is not None and at > undone.before:
        steps = ", ".join(map(repr, undone.steps))
        raise SetupError(
            f"execution {events[0].execution_id} is rolled back: its calls in {steps} have been or will be undone, "
            f"so it cannot continue or be forked after event {at}. Fork it at event {max(1, undone.before)} or "
            "earlier, which repeats those calls, or start a new run"
        )


# --- pending rollbacks -----------------------------------------------------------------------------------------------


BY_CALL: Final = "call"
BY_STEP: Final = "step"
"""Event that carries the rollback of a call: the end of the call (`BY_CALL`), or the end of its step or item
(`BY_STEP`).
"""


class Undoing(NamedTuple):
    """Call of a function that undoes a step, an item of `Each`, or an operation: the name of the function and its
    arguments.
    """

    step: str
    action: str
    """Name of the action or function to call."""
    parameters: Mapping[str, Any]
    kind: str
    """``action`` for an action, ``step`` for a function that was given to a `@step`."""
    function: str | None = None
    """Module and qualified name of such a function; None in older logs."""

    @property
    def called(self) -> str:
        """Name of the function or action that rolls back the work."""
        return self.function or self.action


class RollingBack(NamedTuple):
    """Outcome that an execution gets once its rollback has ended: the status (failed or cancelled), the error and its
    reason.
    """

    error: str
    reason: str | None
    is_cancelled: bool


def unsettled(open_step: OpenStep | None) -> list[OperationRecord]:
    """Return the operations of an open step that may have to be rolled back, although the log does not have the
    function call for their rollback yet.

    Either it is unknown whether the call took effect, or the parameters of its rollback still need its result.
    """
    records = () if open_step is None else open_step.operations.values()
    return [record for record in records if record.undone is not None and _is_unsettled(record, open_step)]


def unknown(open_step: OpenStep | None) -> list[OperationRecord]:
    """Return the operations of an open step that need a rollback but have no recorded end, so that it is unknown
    whether they took effect.
    """
    return [record for record in unsettled(open_step) if record.status == RUNNING]


ABANDONED = "abandoned"
"""Status of a timer, or wait for a signal, that the code has abandoned."""
SLEEPS = frozenset({TIMER, SIGNAL_WAIT, CHILD_WORKFLOW})
"""Types of operations that only wait: timers, signal waits and child executions."""


def is_sleeping(path: PathState) -> bool:
    """Return whether a path waits for a timer, a signal or a child execution."""
    return path.open is not None and sleeps(path.open)


def sleeps(open_step: OpenStep) -> bool:
    """Return whether an operation that only waits (a timer, signal wait or child execution) is running in this open
    step.
    """
    records = open_step.operations.values()
    return any(record.operation_type in SLEEPS and record.status == RUNNING for record in records)


def _is_unsettled(record: OperationRecord, open_step: OpenStep | None) -> bool:
    if record.status == RUNNING:
        return True
    # The parameters of the rollback of a step or item may use its result, which exists when the step or item ends.
    is_in_step = record.undone == BY_STEP and open_step is not None and record.item not in open_step.iterations
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
"""Phases of a path: before a step, inside a step, choosing an edge, branched, waiting at a join, released from a join,
ended.
"""


if TYPE_CHECKING:  # a draft of a state is modified in place (`Draft`)
    from dataclasses import dataclass as snapshot
else:
    snapshot = dataclass(frozen=True)


@snapshot
class PathState(Timed):
    """State of one path (branch) of an execution: its current step, phase, variables and open step."""

    id: str
    number: int
    """Order of creation, from 0 for the root."""
    current_step: str
    parent: str | None = None
    status: str = PENDING
    phase: str = READY
    left: str = READY
    """Phase in which the path was when it ended."""
    last_step: str | None = None
    """Step that the path completed last."""
    step_outputs: Map[str, str] = EMPTY
    """Output text of each completed step. A repeated step overwrites it."""
    outputs_at: Map[str, int] = NO_PLACES
    """Events that hold the large values of `step_outputs`."""
    visits: Map[str, int] = EMPTY
    """Number of times that this path has entered each step."""
    variables: Map[str, Any] = EMPTY
    """Variables as the current step, or the conditions after this step, read them."""
    variables_at: Map[str, int] = NO_PLACES
    """Events that hold the large values of `variables`."""
    open: OpenStep | None = None
    routing: tuple[bool, ...] = ()
    """Results of the evaluated conditions after the current step, in their written order."""
    children: int = 0
    asking: int = 0
    """Number of open questions."""
    woken: int = 0
    """Number of answers, signals and ends of child executions that the path has received."""
    error: str | None = None
    reason: str | None = None
    """Reason of the failure for programs (`TerminalReason`), if there is one."""
    came_from: str | None = None
    """Step at which the parent of the path branched."""
    before: Map[str, int] = EMPTY
    """Number of times that its ancestors had entered each step."""
    repeats: Map[str, tuple[str, int]] = NO_REPEATS
    """By step: digest of the last result of the step, and the number of times in a row that the step had this result.
    Filled only if a bound needs it.
    """
    undoes: int | None = None
    """Number of the rollback in `ExecutionState.rollbacks` that the path runs; None for any other path."""
    hop: int | None = None
    """Number of its open agent step in `Ledger.history`."""
    started_us: int | None = None
    ended_us: int | None = None

    @property
    def source(self) -> str | None:
        """Step from which the path enters its next step, which determines the edge. It is the step that the path
        completed last, or for a new branch the step at which it branched off. None for a root path before its first
        step has ended.
        """
        return self.last_step or self.came_from

    def entries(self, step: str) -> int:
        """Return how often this path, and the paths from which it branched, have entered a step."""
        return self.visits.get(step, 0) + self.before.get(step, 0)

    def loops_to(self, step: str) -> bool:
        """Return whether the path would begin a new pass through a loop if it entered a step now."""
        # In a straight line, a step is entered as often as the step before it. Entering it once more closes a loop.
        # Example with the loop a -> b -> a: after the first pass, "a" and "b" have 1 entry each. Entering "a" gives 2 >
        # 1, a new pass. Entering "b" after that gives 2 > 2, which is false: it belongs to the same pass.
        entered = self.visits.get(step, 0) + self.before.get(step, 0)
        return entered > 0 and (self.source is None or entered + 1 > self.entries(self.source))

    def repeats_of(self, step: str) -> int:
        """Return how many times in a row a step has ended with the same result on this path, up to now; 0 if this is
        not counted.
        """
        return self.repeats.get(step, ("", 0))[1]

    def to_dict(self) -> dict[str, Any]:
        """Return the public fields of the path under their documented keys. Empty fields are left out."""
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
        """Create the state of a path from the dict that `to_dict` returns."""

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
    """State of an execution, computed from its log up to event `last_sequence`."""

    execution_id: str
    workflow_name: str = ""
    seed: str = ""
    """Seed of question ids and idempotency keys. A copy of the log has the same seed."""
    lifecycle: str = PENDING
    """Status of the execution without "waiting", which `status` derives from the paths."""
    inputs: Mapping[str, Any] = EMPTY
    outputs: Mapping[str, Any] = EMPTY
    error: str | None = None
    variables: Map[str, Any] = EMPTY
    variables_at: Map[str, int] = NO_PLACES
    """Events that hold the large values of `variables`."""
    paths: Map[str, PathState] = EMPTY
    usage: Usage = NO_USAGE
    inherited: Usage = NO_USAGE
    """Part of `usage` from the events that a fork shares with its source. It counts for the bounds only."""
    edited_inputs: tuple[str, ...] = ()
    """Names of the inputs that a fork changed."""
    tools: str | None = None
    """Setting of a what-if or trial that says which actions and tools may run; None for other executions."""
    only: Mapping[str, Any] = EMPTY
    """Scope of a trial: step, path, visit and perhaps one item; see `divebook.events.catalog.ExecutionForked`."""
    last_sequence: int = 0
    active: int = 0
    """Number of paths that have not ended."""
    joining: int = 0
    """Number of active paths that wait at a join."""
    sleeping: int = 0
    """Number of active paths that wait for a timer, a signal or a child."""
    asking: int = 0
    """Number of active paths with an open question."""
    interrupts: Map[str, Question] = NO_INTERRUPTS
    """All questions by id, also answered ones."""
    branches: int = 0
    """Number of paths that branching has created."""
    failed_path: str | None = None
    """Id of the first path that failed."""
    fingerprint: str | None = None
    code: Mapping[str, str] = EMPTY
    """Digests of the Python functions at the start of the execution, by kind and name."""
    model: str | None = None
    """Model that replaces the models of all agents of the execution."""
    started_us: int | None = None
    origin_started_us: int | None = None
    """For a fork: start time of the execution with which its log begins; None for other executions."""
    ended_us: int | None = None
    last_us: int = 0
    """Time of the last event, in microseconds since 1970."""
    paused_us: int = 0
    """Time in microseconds during which the execution waited for people, or for a process to drive it."""
    identity: Mapping[str, Any] = EMPTY
    """Person or program that requested the execution."""
    continued_as: str | None = None
    """Id of the successor of the execution."""
    parent: str | None = None
    """Id of the parent: the execution that started this one and waits for its end."""
    bounds: Bounds = NO_BOUNDS
    ledger: Ledger = NOTHING_SPENT
    stops: int = 0
    """Number of times that a person answered "stop" at a bound."""
    stopped: tuple[str, str] | None = None
    """Error and reason (`TerminalReason`) after a person answered "stop" at a bound, until the execution is resumed."""
    reason: str | None = None
    """Typed reason of its end."""
    paused: str | None = None
    """Reason of the pause, if a person has paused it."""
    queue: str | None = None
    """Queue whose workers drive the execution; None if the execution was never enqueued."""
    priority: int = 0
    """Priority in the queue. Workers claim executions with a higher priority first."""
    due_us: int | None = None
    """Earliest time at which a worker may claim the execution, in microseconds since 1970; None if there is no such
    limit.
    """
    signals: Map[str, tuple[Any, ...]] = NO_SIGNALS
    """Payloads of the signals that no step has received yet, by name, oldest first."""
    taken: int = 0
    """Number of the last message of the inbox that is in the log."""
    labels: Map[str, Any] = EMPTY
    """Labels by name."""
    annotated_at: int = 0
    """Last event that set tags, labels or a note."""
    rules: Map[str, StandingRule] = NO_RULES
    """Standing approval rules that are not revoked, by id."""
    workspaces: Map[str, HeldWorkspace] = NO_WORKSPACES
    """Workspaces that the execution has used, by name."""
    rollbacks: Map[int, Undoing] = NO_ROLLBACKS
    """Rollback calls in the order of the work that they undo, counted from 1. They run if the execution fails or is
    cancelled.
    """
    rolling_back: RollingBack | None = None
    """Outcome that the execution will have when its rollback has ended; None if it is not being rolled back."""
    undone_from: int = 0
    """Number in `rollbacks` of the rollback that began last. Rollbacks run from the highest number to the lowest."""

    @property
    def status(self) -> str:
        """Status of the execution, such as ``running`` or ``completed``. It is ``waiting`` if the execution is paused,
        or if each active path waits and at least one waits for a timer, signal, child or answer.
        """
        if self.paused is not None and self.lifecycle == RUNNING:
            return WAITING
        # Waiting means: each active path sleeps, asks or waits at a join, and at least one sleeps or asks.
        waits = self.sleeping + self.asking if self.rolling_back is None else self._waits_in_rollback()
        if self.lifecycle == RUNNING and waits and waits + self.joining >= self.active:
            return WAITING
        return self.lifecycle

    def _waits_in_rollback(self) -> int:
        """Return the number of active paths that wait while the execution is rolled back. A path that only settles
        waits if a person is asked about the outcome of one of its calls.
        """
        count = 0
        for path in self.active_paths():
            if not self.settles_only(path):
                count += is_sleeping(path) or path.asking > 0
                continue
            # The other questions of the path, its timers and its children do not continue any more.
            unknown_ids = {record.operation_id for record in unknown(path.open)}
            questions = (question for question in self.interrupts.values() if question.is_open)
            count += any(path.id in question.waiting and question.operation_id in unknown_ids for question in questions)
        return count

    def is_withdrawn(self, question: Question) -> bool:
        """Return True if the answer to an open question would have no effect, because the execution is being rolled
        back. During a rollback, paths may only find out whether their interrupted calls took effect, and the question
        does not serve this purpose.
        """
        if self.rolling_back is None:
            return False
        paths = [self.paths[name] for name in question.waiting]
        unknown_ids = {record.operation_id for path in paths for record in unknown(path.open)}
        return all(map(self.settles_only, paths)) and question.operation_id not in unknown_ids

    def settles_only(self, path: PathState) -> bool:
        """Return True if a path may only find out whether its interrupted calls took effect, because the execution is
        being rolled back. Nothing else in the path starts or continues.
        """
        return self.rolling_back is not None and path.undoes is None

    @property
    def shown_status(self) -> str:
        """Status for people: like `status`, but ``paused`` if a person has paused the execution. Whether a process
        drives the execution is not in its log; see `divebook.Run.status`.
        """
        return shown_status(self.status, is_paused=self.paused is not None)

    @property
    def is_shown_paused(self) -> bool:
        """True if the execution waits, or is in a queue, because a person has paused it."""
        return self.shown_status == PAUSED

    @property
    def code_started_us(self) -> int | None:
        """Start time that the code of the execution sees. A fork has that of its source, so that its code makes the
        same calls as the shared part of the log, on whatever day it was forked.
        """
        return self.started_us if self.origin_started_us is None else self.origin_started_us

    @property
    def running_us(self) -> int:
        """Microseconds that the execution has run. Time in which it waited for people or for a driver does not
        count.
        """
        return 0 if self.started_us is None else max(0, self.last_us - self.started_us - self.paused_us)

    @property
    def own_usage(self) -> Usage:
        """Usage of this execution, without the part that it inherited from the source of which it is a fork."""
        if self.inherited is NO_USAGE:  # every execution but a fork
            return self.usage
        return Usage(*(now - before for now, before in zip(self.usage, self.inherited, strict=True)))

    def deadlines(self) -> list[tuple[str, int]]:
        """Return the times at which a waiting path continues without a message, as pairs of path id and microseconds
        since 1970.

        At these times questions expire, and timers and signal waits end, even if no message arrives.
        """
        # Questions first, then running timers and signal waits. A path may have several deadlines.
        deadlines = [
            (path, question.expires_us)
            for question in self.pending_interrupts()
            if question.expires_us is not None
            for path in question.waiting
        ]
        for path in self.active_paths():
            records = () if path.open is None or self.settles_only(path) else path.open.operations.values()
            deadlines += [
                (path.id, record.until) for record in records if record.status == RUNNING and record.until is not None
            ]
        return deadlines

    @property
    def wake_at(self) -> int | None:
        """Time in microseconds since 1970 at which a process must resume the execution, even if no answer or signal
        arrives; None for never.

        For a waiting execution that sleeps, it is a time in the past: a process must drive the execution, so that the
        sleep ends in time. For an execution in a queue, it is the time at which a worker may claim it.
        """
        if self.lifecycle == ENQUEUED:
            return self.due_us
        if self.status != WAITING or self.paused is not None:
            return None
        # A sleeping execution needs a process all the time, so it is always due. Others are due at their first
        # deadline.
        if self.is_asleep:
            return self.last_us
        return min((deadline for _, deadline in self.deadlines()), default=None)

    def deadline_after(self, moment: int) -> int | None:
        """Return the first deadline of a waiting execution after `moment`, in microseconds since 1970; None if there is
        none, or if the execution is paused.

        A deadline that had passed when a drive began, and that the drive has left open, belongs to a call that the code
        has given up, for example because another call of the same `gather` has failed.
        """
        if self.status != WAITING or self.paused is not None:
            return None
        return min((deadline for _, deadline in self.deadlines() if deadline > moment), default=None)

    @property
    def is_asleep(self) -> bool:
        """True if a path sleeps in a timer, or pauses before another attempt."""
        # Waits for signals, children and answers do not count: a message or a deadline wakes their paths.
        paths = [path for path in self.paths.values() if path.phase != ENDED and not self.settles_only(path)]
        records = (record for path in paths if path.open is not None for record in path.open.operations.values())
        return any(record.operation_type == TIMER and record.status == RUNNING for record in records)

    @property
    def is_over(self) -> bool:
        """True if the execution has ended. It may still be resumed."""
        return self.lifecycle in TERMINAL

    @property
    def undoing(self) -> list[PathState]:
        """Paths that run the rollbacks of this execution, in the order of their start; empty if it is not
        rolled back.
        """
        return [] if self.rolling_back is None else [p for p in self.paths.values() if p.undoes is not None]

    @property
    def is_final(self) -> bool:
        """True if the execution has ended and cannot be resumed."""
        return self.lifecycle in FINAL or (self.is_over and self.is_rolled_back)

    @property
    def failed_by_expiry(self) -> frozenset[str]:
        """Ids of the questions that expired without an answer, because of which the execution has failed. Empty if
        anything is rolled back.
        """
        names = (name for path in self.paths.values() if path.open is not None for name in path.open.ended_by or ())
        questions = (self.interrupts[name] for name in names if name in self.interrupts)
        is_resumable = self.lifecycle == FAILED and self.rolling_back is None
        # No path waits any more for a question that was asked again.
        expired_ids = (each.id for each in questions if each.waiting and is_expired_unanswered(each))
        return frozenset(expired_ids if is_resumable else ())

    def overdue_ids(self, now: int) -> frozenset[str]:
        """Return the ids of the open questions without a default that have expired by `now`, in microseconds since
        1970.
        """
        pending = self.pending_interrupts()
        return frozenset(each.id for each in pending if each.default is None and is_overdue(each.expires_us, now))

    @property
    def is_rolled_back(self) -> bool:
        """True if all work of the execution is rolled back, so that it cannot be resumed."""
        return (
            self.rolling_back is not None
            # All rollbacks have started (they run down to number 1), all succeeded, and no call is left to be settled.
            and self.undone_from <= 1
            and all(path.status == COMPLETED for path in self.undoing)
            and not self.unsettled
        )

    @property
    def unsettled(self) -> list[PathState]:
        """Paths with operations that may have to be rolled back, although the log has no rollback for them yet; see the
        function `unsettled`. Failed paths are left out.
        """
        return [p for p in self.paths.values() if p.undoes is None and p.status != FAILED and unsettled(p.open)]

    def question_id(self, *about: object) -> str:
        """Return the id of a question, computed from values that identify it, such as its place. It is therefore the
        same in all copies of a log.
        """
        return hashed_id("ask", self.seed or self.execution_id, *about)

    def pending_interrupts(self) -> list[Question]:
        """Return the questions of the execution that have no answer and are not withdrawn, oldest first."""
        if not self.interrupts:  # the usual case
            return []
        pending = (
            question for question in self.interrupts.values() if question.is_open and not self.is_withdrawn(question)
        )
        return sorted(pending, key=lambda question: question.order)

    def active_paths(self) -> list[PathState]:
        """Return the paths that have not ended, oldest first."""
        active = [path for path in self.paths.values() if path.phase != ENDED]
        return sorted(active, key=lambda path: path.number) if len(active) > 1 else active


# --- drafts: states that are modified in place while a log is folded -------------------------------------------------
#
# A draft is a subclass, so that functions which read a state also read a draft. It takes over the fields of its state
# as a copied `__dict__` and becomes a state again by a change of class. A wrapper around the state would cost one more
# attribute access for each field that an event reads or sets.


_ENDS_OF_STEPS = frozenset({StepCompleted, PathCompleted})

_new = object.__new__
_set = object.__setattr__


class _DraftPath(PathState):
    """Mutable copy of the state of one path inside a `Draft`."""

    # Both methods must be set: with only one of them, Python looks up the other at each assignment, which takes eight
    # times as long.
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


class Draft(ExecutionState):
    """Mutable copy of an execution's state, to which several events are applied. The state of a path is copied when an
    event changes it for the first time.

    No other code may refer to the draft or its copied paths before it is sealed
    (test_events_that_are_folded_together_change_the_state_as_one_by_one). A function that modifies the draft reads
    everything that it needs first, so that an error leaves the draft unchanged.
    """

    __slots__ = ("_copied", "_facts", "_present", "moment", "path_id", "step")
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__

    _facts: Sequence[Payload]
    _copied: dict[str, PathState]
    """Copied paths by id."""
    _present: PathState | None
    """Copied path of the current event, if it was copied."""
    moment: int
    """Time of the current event in microseconds since 1970. `last_us` is the time of the previous event."""
    path_id: str
    """Path of the current event."""
    step: str
    """Step of the current event."""

    def __init__(self, state: ExecutionState) -> None:
        self.__dict__ = state.__dict__.copy()
        self._copied = {}
        self._present = None
        self.path_id = ""

    def go_to(self, entry: Event | Record, facts: Sequence[Payload]) -> None:
        """Set the record (or single event) that is applied next, with the payloads of its events (`facts`). The draft
        takes time, step and path from it.
        """
        self.step = entry.step
        self.moment = entry.recorded_at
        self._facts = facts
        if entry.path != self.path_id:
            # Consecutive records mostly belong to one path, so its copy is looked up only when the path changes.
            self.path_id = entry.path
            self._present = self._copied.get(entry.path)

    @property
    def ends_step(self) -> bool:
        """True if the record that is applied now also contains the end of the open step, so that the operations of the
        step need not be kept.
        """
        return type(self._facts[-1]) in _ENDS_OF_STEPS

    def path(self, data: Payload) -> PathState:
        """Return the mutable state of the path on which the current event happened.

        Raises
        ------
        CorruptStoreError
            The path never began.
        """
        path = self._present
        if path is None:
            if self.path_id not in self.paths:
                raise CorruptStoreError(f"{self._event(data)} is on path {self.path_id!r}, which never started")
            path = self._present = self.own(self.path_id)
        return path

    def open_step(self, data: Payload) -> tuple[PathState, OpenStep]:
        """Return the mutable state of the path on which the current event happened, and the step that is open on it.

        Raises
        ------
        CorruptStoreError
            The path never began, or is outside any step.
        """
        # The common case needs no call of `path`: the path was copied by an earlier event.
        path = self._present or self.path(data)
        open_step = path.open
        if open_step is None:
            raise CorruptStoreError(f"{self._event(data)} is outside any step of path {self.path_id!r}")
        return path, open_step

    def _event(self, data: Payload) -> str:
        return f"event {self.last_sequence} ({data.event_type}) of {self.execution_id}"

    def own(self, path_id: str) -> PathState:
        """Return a path's state for changing: a mutable copy that belongs to this draft. Raise KeyError if the path
        does not exist.
        """
        path = self._copied.get(path_id)
        if path is None:
            path = self._copied[path_id] = _new(_DraftPath)
            path.__dict__ = self.paths[path_id].__dict__.copy()
            # The copy replaces the path in the map, so that readers of the draft see the changes.
            self.paths = self.paths.set(path_id, path)
        return path

    def add(self, path: PathState) -> None:
        """Add the state of a path to the draft. It replaces an earlier state of the same path."""
        # A new path is immutable. The next event that changes it copies it.
        self._copied.pop(path.id, None)
        self._present = None
        self.paths = self.paths.set(path.id, path)

    def sealed(self) -> ExecutionState:
        """Return the state that results from the applied events. It is immutable. The draft must not be used
        afterwards.
        """
        # The map of paths refers to the copies already. With their class they become immutable in place, without a new
        # map.
        for path in self._copied.values():
            _set(path, "__class__", PathState)
        state = _new(ExecutionState)
        _set(state, "__dict__", self.__dict__)
        return state


# --- places of large values in the log -------------------------------------------------------------------------------


K = TypeVar("K")

SMALL = 64
"""Longest string in characters that a checkpoint copies."""


def is_large(value: Any) -> bool:
    """Return whether a value is so large that a checkpoint refers to the event with the value, instead of copying the
    value.
    """
    # Numbers, booleans and None are never large. Any other value except a short string is, unless it is empty.
    kind = type(value)
    return len(value) > SMALL if kind is str else kind not in ATOMS and bool(value)


def with_place(places: Map[K, int], key: K, value: Any, sequence: int) -> Map[K, int]:
    """Return the mapping from keys to the events that hold their large values, after event `sequence` has set the value
    of `key`. A small value has no entry.
    """
    # Most values are small, and replace no large one.
    if not places and type(value) in ATOMS and (type(value) is not str or len(value) <= SMALL):
        return places
    # The new event replaces the place of an earlier large value. A small value removes it.
    if is_large(value):
        return places.set(key, sequence)
    return places.delete(key) if key in places else places


def with_places(places: Map[K, int], new_places: Map[K, int], keys: Map[K, Any]) -> Map[K, int]:
    """Update the mapping from keys to the events that hold their large values, because values of some keys were
    replaced by values from another path. Return the new mapping.

    `new_places` has the event numbers of the new values, `keys` has all replaced keys.
    """
    # A replaced key whose new value is small has no place any more.
    for key in keys if places else ():
        if key in places and key not in new_places:
            places = places.delete(key)
    return places.update(new_places) if new_places else places


# --- what a waiting execution waits for ------------------------------------------------------------------------------


class AwaitedSignal(NamedTuple):
    """Signal for which a step waits: its name, the step, and the time at which the wait ends without it."""

    name: str
    step: str
    until_us: int | None = None
    """End of the wait in microseconds since 1970; None for never."""

    def __str__(self) -> str:
        until = "" if self.until_us is None else f" until {local_time(to_datetime(self.until_us))}"
        return f"the signal {visible(self.name)!r}{until}"


def awaited_signals(state: ExecutionState) -> list[AwaitedSignal]:
    """Return the signals for which an execution waits and which it has not received yet, each name once."""
    signals = {
        record.signal: AwaitedSignal(record.signal, step, record.until)
        for step, record in _open_records(state, SIGNAL_WAIT)
        if record.signal is not None and record.signal not in state.signals
    }
    return list(signals.values())


def kept_until_taken(state: ExecutionState, name: str) -> str | None:
    """Return a warning for the sender of a signal that no step waits for, so that it is only stored. Return None if a
    step waits for a signal of this name, or if the execution has ended.
    """
    awaited = {signal.name for signal in awaited_signals(state)}
    if name in awaited or state.is_over:
        return None
    waits = f"it waits for {', '.join(map(repr, sorted(awaited)))}" if awaited else "it is not waiting for a signal"
    hint = did_you_mean(name, awaited)
    return (
        f"no step waits for the signal {name!r}. It is kept until a step waits for it; "
        f"{waits}{f': {hint}' if hint else ''}"
    )


def waits_for(state: ExecutionState, questions: Iterable[Question]) -> list[str]:
    """Return texts for people that name the answers, signals and children for which an execution waits. Return an empty
    list if it is not waiting or is paused.
    """
    if state.status != WAITING or state.paused is not None:
        return []
    return [
        *(f"an answer to {question.id}: {question.question}" for question in questions if question.is_open),
        *map(str, awaited_signals(state)),
        *(f"execution {record.signal}" for _, record in _open_records(state, CHILD_WORKFLOW) if record.signal),
    ]


def _open_records(state: ExecutionState, operation_type: str) -> Iterator[tuple[str, OperationRecord]]:
    for path in state.active_paths():
        for record in path.open.operations.values() if path.open is not None else ():
            if record.operation_type == operation_type and record.status == RUNNING:
                yield path.current_step, record


__all__ = ["CANCELLED", "COMPLETED", "FAILED", "PENDING", "RUNNING", "WAITING", "ExecutionState", "PathState"]
