"""Life cycle of an execution as a table: its statuses, the events that lead to each status, and the events that may
follow.

The store's `append` refuses an event that `LIFE_CYCLE` does not allow, `check` and the simulator compare logs with it,
and CONTRIBUTING.md shows it as a table (tests/engine/test_lifecycle.py). `violations` checks the order of all events of
a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from divebook.engine.operations import ENCLOSING
from divebook.errors import ExecutionEndedError, NotFoundError
from divebook.events import catalog
from divebook.events.catalog import (
    CANCELLED,
    COMPLETED,
    CONTINUED,
    ENQUEUED,
    FAILED,
    MOVED,
    PENDING,
    RUNNING,
    SNAPSHOT,
    WAITING,
    ExecutionAnnotated,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionContinuedAsNew,
    ExecutionEnqueued,
    ExecutionFailed,
    ExecutionForked,
    ExecutionMoved,
    ExecutionResumed,
    ExecutionSnapshotted,
    ExecutionStarted,
    Payload,
)
from divebook.events.event import Event
from divebook.events.upcast import RENAMED_STATUSES

Kind: TypeAlias = type[Payload]

_DRIVER = "the driver of the execution"
_LEASE_HOLDER = "the process that appends it, with a separate lease"
_START_NEW = "start a new execution to run the workflow again"


@dataclass(frozen=True, slots=True)
class StatusRow:
    """Row of the life-cycle table: a status of an execution, the events that lead to it, and the events that may
    follow.
    """

    status: str
    entered_by: tuple[Kind, ...]
    """Types of events after which an execution has the status. If empty, `explanation` says when it has the status."""
    allows: tuple[Kind, ...] | None
    """Types of events that may be appended; None for all types except `ExecutionStarted`."""
    writer: str
    """Phrase that says who may append the events."""
    explanation: str = ""
    advice: str = ""
    """Advice of a final status, for a person who wants the execution to continue."""


LIFE_CYCLE: tuple[StatusRow, ...] = (
    StatusRow(PENDING, (), (ExecutionStarted,), "the process that starts it", "nothing is recorded yet"),
    StatusRow(ENQUEUED, (ExecutionEnqueued,), None, "the worker that claims it"),
    StatusRow(RUNNING, (ExecutionStarted, ExecutionForked, ExecutionResumed), None, _DRIVER),
    StatusRow(WAITING, (), None, _DRIVER, "set by the driver together with the events that it appends"),
    StatusRow(COMPLETED, (ExecutionCompleted,), (ExecutionAnnotated,), _LEASE_HOLDER, advice=_START_NEW),
    StatusRow(
        FAILED, (ExecutionFailed,), (ExecutionResumed, ExecutionAnnotated), _LEASE_HOLDER, advice="resume it first"
    ),
    StatusRow(
        CANCELLED,
        (ExecutionCancelled,),
        (ExecutionResumed, ExecutionAnnotated),
        _LEASE_HOLDER,
        advice="resume it first",
    ),
    StatusRow(
        MOVED,
        (ExecutionMoved,),
        (ExecutionAnnotated,),
        _LEASE_HOLDER,
        advice="continue it where its file was imported",
    ),
    StatusRow(
        CONTINUED,
        (ExecutionContinuedAsNew,),
        (ExecutionAnnotated,),
        _LEASE_HOLDER,
        advice="continue its successor",
    ),
    StatusRow(
        SNAPSHOT,
        (ExecutionSnapshotted,),
        (ExecutionAnnotated,),
        _LEASE_HOLDER,
        advice=(
            "continue the original, move it here (export with --move), or import the file as a separate execution "
            "(import with --as-fork)"
        ),
    ),
)
"""The life-cycle table: one row for each status.

No event leads to the status waiting. `divebook.engine.state.ExecutionState.status` derives it: the execution is paused,
or each of its active paths waits. The process that appends events stores the derived status with them.
"""

_ALLOWED = {row.status: row.allows for row in LIFE_CYCLE}
STATUSES = tuple(row.status for row in LIFE_CYCLE)
_UNENDED = (PENDING, ENQUEUED, RUNNING, WAITING)
TERMINAL = frozenset(STATUSES) - set(_UNENDED)
"""Final statuses: the execution has ended. Some of them still allow a resumption."""
FINAL = frozenset(status for status in TERMINAL if ExecutionResumed not in (_ALLOWED[status] or ()))
"""Final statuses that allow no resumption. Only annotations may still be appended."""
STATUS_AFTER: Mapping[Kind, str] = {kind: row.status for row in LIFE_CYCLE for kind in row.entered_by}
"""Status of an execution after each type of event that changes the status."""
WAY_ON: Mapping[str, str] = {row.status: row.advice for row in LIFE_CYCLE if row.advice}
"""Advice by final status, for a person who wants the execution to continue."""


# --- statuses that people see ----------------------------------------------------------------------------------------
#
# A log does not say everything. It has the status "running" also if the process that drove the execution has died, and
# "waiting" also if a person has paused it. Every interface shows the status that `shown_status` returns, and filters by
# the same words (tests/commands/test_statuses.py).

PAUSED = "paused"
"""Status that people see of an execution that a person has paused. It continues when a person resumes it."""
INTERRUPTED = "interrupted"
"""Status that people see of an execution whose process ended while it was running. It can be resumed."""
SHOWN_STATUSES = (PENDING, ENQUEUED, RUNNING, WAITING, PAUSED, INTERRUPTED, *STATUSES[len(_UNENDED) :])
"""All statuses that people see."""
RECORDED_AS: Mapping[str, tuple[str, ...]] = {
    **{status: (status,) for status in STATUSES},
    PAUSED: (WAITING, ENQUEUED),
    INTERRUPTED: (RUNNING,),
}
"""Recorded statuses that an execution can have, by the status that people see."""


def shown_status(status: str, *, is_paused: bool = False, is_driven: bool = True) -> str:
    """Return the status of an execution for people.

    Parameters
    ----------
    status
        The recorded status.
    is_paused
        True if a person has paused the execution.
    is_driven
        True if a process drives the execution. This matters only if the recorded status is ``running``.

    >>> shown_status("waiting", is_paused=True), shown_status("running", is_driven=False), shown_status("failed")
    ('paused', 'interrupted', 'failed')
    """
    if is_paused and status in RECORDED_AS[PAUSED]:
        return PAUSED
    return status if is_driven or status != RUNNING else INTERRUPTED


def unknown_status(status: str, available: Iterable[str], message: str | None = None) -> NotFoundError:
    """Return the error for a status that does not exist. For a status that was renamed, it suggests the present name.

    `message` is the text before the suggestion.

    >>> str(unknown_status("picture", STATUSES))
    "status not found: picture (did you mean 'snapshot'?)"
    """
    present: object = status  # the type hint does not bind callers, and the value may not be hashable
    suggestion = RENAMED_STATUSES.get(present) if isinstance(present, str) else None
    return NotFoundError("status", status, available, message, suggestion=suggestion)


def may_follow(status: str, kind: Kind) -> bool:
    """Return whether an event of a type may be appended to an execution that has a status.

    Examples
    --------
    >>> may_follow("completed", ExecutionCancelled), may_follow("failed", ExecutionResumed)
    (False, True)
    """
    allowed = _ALLOWED[status]
    return kind is not ExecutionStarted if allowed is None else kind in allowed


def check_may_follow(execution_id: str, status: str, kind: Kind) -> None:
    """Raise `ExecutionEndedError` if an execution with this status has ended and an event of this type may not be
    appended to it. Otherwise do nothing.
    """
    if status in TERMINAL and not may_follow(status, kind):
        raise ExecutionEndedError(execution_id, status, kind.event_type, WAY_ON[status])


def check_may_receive(execution_id: str, status: str, kind: str) -> None:
    """Raise `ExecutionEndedError` if an execution with this status can never continue, so that nothing would ever read
    a message to it. `kind` is the kind of the message. Otherwise do nothing.
    """
    if status in FINAL:
        raise ExecutionEndedError(execution_id, status, kind, WAY_ON[status])


def as_table() -> str:
    """Return the life-cycle table as Markdown, for CONTRIBUTING.md."""
    rows = ["| status | entered with | events that may be appended | appended by |", "|---|---|---|---|"]
    rows += [
        f"| {row.status} | {_named(row.entered_by) or row.explanation} | {_followers(row.allows)} | {row.writer} |"
        for row in LIFE_CYCLE
    ]
    return "\n".join(rows)


def _followers(allowed: tuple[Kind, ...] | None) -> str:
    return f"all but `{ExecutionStarted.event_type}`" if allowed is None else _named(allowed) or "nothing"


def _named(kinds: tuple[Kind, ...]) -> str:
    return ", ".join(f"`{kind.event_type}`" for kind in kinds)


# --- order of the events of a log ------------------------------------------------------------------------------------
#
# A sound log has one beginning and one end, and nothing ends before it began. `divebook check` and the simulator
# compare logs with these rules. Example of a log that breaks two of them:
#
#     1  execution_started
#     2  path_started           main
#     3  operation_completed    main   call op_1 ends without having started
#     4  path_completed         main
#     5  step_started           main   path main has ended
#
# The rules beyond beginning and end hold for logs that this engine wrote, which contain a definition. Logs of other
# programs may lack required events.


_PATH_ENDS = (catalog.PathCompleted, catalog.PathFailed, catalog.PathCancelled)


def violations(events: Iterable[Event]) -> Iterator[tuple[int, str]]:
    """Yield the sequence number of each event of a log that may not follow the events before it, with the reason."""
    checker = _LogChecker()
    for event in events:
        for text in checker.check(event):
            yield event.sequence, f"event {event.sequence} ({event.event_type}): {text}"


class _LogChecker:
    """Checker that reads the events of a log in order and reports those that contradict earlier ones. It knows which
    paths, operations and questions are open.
    """

    def __init__(self) -> None:
        self.status = catalog.PENDING
        self.is_ours = False
        self.paths: dict[str, bool] = {}
        """By id: True for an active path, False for an ended one."""
        self.operations: dict[str, bool] = {}
        """By id: True for a running operation, False for an ended one."""
        self.holders: set[str] = set()
        """Ids of the operations that enclose other operations."""
        self.begun_at: dict[int, str] = {}
        """Ids of operations, by the sequence number of their start event."""
        self.sequence = 0
        self.questions: dict[str, bool] = {}
        """By id: True for an open question, False for a settled one."""

    def check(self, event: Event) -> Iterator[str]:
        """Yield a text for each way in which the next event contradicts earlier ones. Then update the active paths,
        running operations and open questions.
        """
        kind = type(event.data)
        self.sequence = event.sequence
        if not may_follow(self.status, kind):
            yield f"it may not follow the status {self.status}"
        # The next events are checked with the status that this one claims, so that one fault is reported once.
        self.status = STATUS_AFTER.get(kind, self.status)
        if isinstance(event.data, catalog.ExecutionStarted):
            # Only a log with a definition was written by this engine. Of any other log, only the statuses are checked.
            self.is_ours = event.data.definition is not None
        if not self.is_ours:
            return
        if event.path:
            yield from self._on_path(event)
        rule = _RULES.get(kind)
        if rule is not None:
            yield from rule(self, event.data)

    def _on_path(self, event: Event) -> Iterator[str]:
        if isinstance(event.data, catalog.PathStarted):
            self.paths[event.path] = True
        elif event.path not in self.paths:
            yield f"path {event.path} has not started"
        # After the end of the execution, the check of the status has reported the event already.
        elif not self.paths[event.path] and self.status not in TERMINAL:
            yield f"path {event.path} has ended"
        if isinstance(event.data, _PATH_ENDS):
            self.paths[event.path] = False

    def branched(self, data: catalog.PathBranched) -> Iterator[str]:
        """Register the new paths into which a path branches. Yield an error text for each path that exists already."""
        for new in data.new_paths:
            if new["id"] in self.paths:
                yield f"path {new['id']} starts a second time"
            self.paths[new["id"]] = True

    def resumed(self, _data: catalog.ExecutionResumed) -> Iterator[str]:
        """Mark all paths as active again, because the execution is resumed. Yields no error text, because a resumption
        cannot contradict earlier events.
        """
        # The event does not name the paths that continue, so all count as active.
        self.paths = dict.fromkeys(self.paths, True)
        return iter(())

    def forked(self, data: catalog.ExecutionForked) -> Iterator[str]:
        """Close the operations and questions that were open in the source execution, because the fork starts them
        again. Operations that enclose others stay open. Yield an error text if the fork event does not follow the
        events shared with the source.
        """
        if self.sequence <= data.at:
            yield f"it is not later than event {data.at}, after which it forks"
        # The end of a dropped operation would belong to the log of the source.
        self.operations = {name: running and name in self.holders for name, running in self.operations.items()}
        self.questions = dict.fromkeys(self.questions, False)

    def begun(self, data: catalog.OperationStarted) -> Iterator[str]:
        """Register an operation as running, perhaps for a second time. Yield an error text if it is inside another
        operation that is not running.
        """
        # `within` is the number of a start event. An operation that starts twice has two of them, and both lead to its
        # id.
        if data.within is not None and not self.operations.get(self.begun_at.get(data.within, "")):
            yield f"call {data.operation_id} starts inside the call of event {data.within}, which is not running"
        self.operations[data.operation_id] = True
        if data.operation_type in ENCLOSING:
            self.holders.add(data.operation_id)
        self.begun_at[self.sequence] = data.operation_id

    def ended(self, data: catalog.OperationCompleted | catalog.OperationFailed) -> Iterator[str]:
        """Register the end of an operation. Yield an error text if the operation was not running."""
        if not self.operations.get(data.operation_id):
            yield f"call {data.operation_id} ends without having started"
        # A person may provide the result later if it was lost.
        self.operations[data.operation_id] = isinstance(data, catalog.OperationFailed) and data.lost is not None

    def asked(self, data: catalog.InterruptRaised) -> Iterator[str]:
        """Register a question as open. Yield an error text if it is open already."""
        if self.questions.get(data.interrupt_id):
            yield f"question {data.interrupt_id} is already open"
        self.questions[data.interrupt_id] = True

    def settled(self, data: catalog.InterruptResolved | catalog.InterruptExpired) -> Iterator[str]:
        """Register the answer or expiry of a question. Yield an error text if the question was not open."""
        if not self.questions.get(data.interrupt_id):
            is_settled = data.interrupt_id in self.questions
            yield f"question {data.interrupt_id} {'is already closed' if is_settled else 'was never asked'}"
        self.questions[data.interrupt_id] = False

    def joined(self, data: catalog.InterruptJoined) -> Iterator[str]:
        """Yield an error text if a path waits for a question that no earlier event has asked."""
        if data.interrupt_id not in self.questions:
            yield f"question {data.interrupt_id} was never asked"


_RULES: dict[type[catalog.Payload], Callable[[_LogChecker, Any], Iterator[str]]] = {
    catalog.PathBranched: _LogChecker.branched,
    catalog.ExecutionForked: _LogChecker.forked,
    catalog.ExecutionResumed: _LogChecker.resumed,
    catalog.OperationStarted: _LogChecker.begun,
    catalog.OperationCompleted: _LogChecker.ended,
    catalog.OperationFailed: _LogChecker.ended,
    catalog.InterruptRaised: _LogChecker.asked,
    catalog.InterruptResolved: _LogChecker.settled,
    catalog.InterruptExpired: _LogChecker.settled,
    catalog.InterruptJoined: _LogChecker.joined,
}
