"""Catalog of event types: one payload class for each type, which checks its required fields.

`PAYLOADS` maps the wire name (``step_started``) to its class. The classes are in the order in which they occur
in an execution. Values of type `Any` were normalized by `divebook.events.values.normalize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from divebook.errors import InvalidEventError
from divebook.events.payload import HOLDS, fast_init
from divebook.events.recorded import BigInt
from divebook.events.upcast import CHANGES, FORM

PENDING = "pending"
ENQUEUED = "enqueued"
RUNNING = "running"
WAITING = "waiting"
COMPLETED = "completed"
FAILED = "failed"
CANCELLED = "cancelled"
MOVED, CONTINUED, SNAPSHOT = "moved", "continued_as_new", "snapshot"
"""Statuses of an execution; `divebook.engine.lifecycle` defines the transitions."""

RUN = "run"
RESUME = "resume"
FORK = "fork"
WHAT_IF = "what-if"
TRIAL = "trial"
CHILD = "child"
IMPORT = "import"
BOOK = "book"
ORIGINS = (RUN, RESUME, FORK, WHAT_IF, TRIAL, CHILD, IMPORT, BOOK)
"""Origins of an execution: the operation that created it."""
REUSE = "reuse"
UNEDITED = "unedited"
REUSE_MODES = frozenset({REUSE, UNEDITED})
"""Results of its source that a fork with a changed definition reuses: all, or only those of unedited functions."""
UNCOUNTED = frozenset({WHAT_IF, TRIAL})
"""Origins of executions that totals leave out, because they are experiments with another execution."""
BADGED = UNCOUNTED | {FORK}
"""Origins that are displayed wherever an execution is listed."""
NOT_RESUMED_AUTOMATICALLY = UNCOUNTED | {BOOK}
"""Origins of executions that are never resumed automatically."""
ROLLBACK_PATH = "rollback-"
"""Prefix of the id of a path that runs a rollback; the number of the rollback follows."""

PAYLOADS: dict[str, type[Payload]] = {}


@dataclass(frozen=True, slots=True)
class Payload:
    """Base class of the contents of events. Each subclass is one event type with a list of required fields."""

    event_type: ClassVar[str] = ""
    required: ClassVar[tuple[str, ...]] = ()
    field_names: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[int] = 0
    """Version of the format of the payload's data; `divebook.events.upcast` converts older versions."""

    def __post_init__(self) -> None:
        # Required means not empty: "" and {} are refused like None. Types are checked elsewhere
        # (`payload.wrong_field`).
        for name in self.required:
            if not getattr(self, name):
                raise InvalidEventError(f"{self.event_type}: data validation failed: {name} is required")

    def to_data(self) -> dict[str, Any]:
        """Return the payload's fields that are not None as a dict by field name, ready to be encoded."""
        # Fields that are None are left out, so a new field with the default None leaves the bytes of old types
        # unchanged.
        data: dict[str, Any] = {FORM: self.form} if self.form else {}
        for name in self.field_names:
            value = getattr(self, name)
            if value is not None:
                data[name] = value
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Payload:
        """Build the payload from a dict of valid field values; ignore keys that are not fields of the class."""
        # The usual data have only fields of the class, and need no filter. A key that is not a field raises TypeError.
        try:
            return cls(**data)
        except TypeError:
            return cls(**{name: data[name] for name in cls.field_names if name in data})


def _event(name: str, *required: str) -> Any:  # a class decorator; Any keeps the dataclass's own type
    def register(cls: type[Payload]) -> type[Payload]:
        cls.event_type = name
        cls.required = required
        # The present format of a type is the number of changes that `divebook.events.upcast` knows for it.
        cls.form = len(CHANGES.get(name, ()))
        cls.field_names = tuple(entry.name for entry in fields(cls))
        PAYLOADS[name] = cls
        # The usual check is compiled into the constructor as one condition. Other checks are called for every object.
        is_usual = cls.__post_init__ is Payload.__post_init__
        return fast_init(cls, required if is_usual else None)

    return register


# --- the execution -------------------------------------------------------------------------------------------------
#
# The events of a short run, with the class of each. Events without a path are about the whole execution:
#
#     1  execution_started      -      -          ExecutionStarted, with definition and inputs
#     2  path_started           main   -          PathStarted
#     3  step_started           main   ask        StepStarted
#     4  operation_started      main   ask        OperationStarted, with parameters and their hash
#     5  operation_completed    main   ask        OperationCompleted, with the result
#     6  state_mutated          main   ask        StateMutated, if the step stores its result
#     7  step_completed         main   ask        StepCompleted
#     8  path_completed         main   -          PathCompleted
#     9  execution_completed    -      -          ExecutionCompleted, with the outputs


@_event("execution_started", "workflow_name")
@dataclass(frozen=True, slots=True)
class ExecutionStarted(Payload):
    """First event of an execution, with everything that is needed to continue it without its notebook."""

    workflow_name: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    definition: Mapping[str, Any] | None = None
    """Workflow as plain data (`Workflow.to_dict`)."""
    fingerprint: str | None = None
    """SHA-256 (hexadecimal) of the parts of the definition that affect the workflow's behaviour."""
    source: str | None = None
    """Text of the cell or file that defined the workflow."""
    written_by: str | None = None
    """Version of divebook that wrote the event."""
    bounds: Mapping[str, Any] | None = None
    """Budget as plain data (`Bounds.to_dict`); None for no limit."""
    identity: Mapping[str, Any] | None = None
    """Person or system that requested the execution: ``user_id``, ``session_id``, ``request_id``, ``metadata``."""
    parent: str | None = None
    """Id of the execution that created this one. The parent of a child execution waits for its end. The parent of a
    fork is its source.
    """
    origin: str | None = None
    """Operation that created the execution, one of `ORIGINS`; None for a child (with a parent) or a plain run."""
    key: str | None = None
    """Start key, unique in the store: a second start with the key raises an error that names this execution."""
    tags: Sequence[str] | None = None
    note: str | None = None
    """Note of a person about the execution."""
    notebook: str | None = None
    cell: str | None = None
    """Id of the cell that started the execution, in the notebook `notebook`, if known."""
    seed: str | None = None
    """Seed from which question ids and idempotency keys of calls are derived, together with their places.

    A copy under another id has the same seed.
    """
    code: Mapping[str, str] | None = None
    """Digests of the Python functions that the execution may call, by kind and name (`divebook.definitions.code`)."""
    model: str | None = None
    """Model of all agents of the execution, if the start replaced their models."""
    state: Mapping[str, Any] | None = None
    """Initial variables, if this execution continues a predecessor: the variables of the predecessor."""

    @property
    def came_from(self) -> str:
        """Way in which the execution was created, one of `ORIGINS`, such as a run or the start of a child execution."""
        return self.origin or (CHILD if self.parent else RUN)


@_event("execution_forked", "source", "workflow_name")
@dataclass(frozen=True, slots=True)
class ExecutionForked(Payload):
    """First event of the part of a fork's log that the fork does not share with its source. It follows the events up to
    `at`, which the fork shares with its source.

    Calls of the source that were running at this event are dropped.

    Like `ExecutionStarted` it is an opening event. Fields without a value have the values of the previous opening event
    (`divebook.engine.forks.opened_as`).
    """

    source: str = ""
    """Id of the execution whose first events the fork shares."""
    at: int = 0
    """Sequence number of the last shared event."""
    workflow_name: str = ""
    previous: int = 1
    """Sequence number of the previous opening event."""
    change: Mapping[str, Any] | None = None
    """Changes that apply from this event on (`divebook.engine.forks.Change`), except for definition and model."""
    origin: str | None = None
    """Operation that created the execution, one of `ORIGINS`; None for a fork."""
    definition: Mapping[str, Any] | None = None
    """Workflow from this event on, as plain data; None if it is that of the source."""
    text: str | None = None
    """Text of the cell or file that defined the workflow."""
    fingerprint: str | None = None
    written_by: str | None = None
    bounds: Mapping[str, Any] | None = None
    identity: Mapping[str, Any] | None = None
    key: str | None = None
    tags: Sequence[str] | None = None
    note: str | None = None
    notebook: str | None = None
    cell: str | None = None
    seed: str | None = None
    """Seed of the source's question ids, so that a question that was answered there is not asked again."""
    code: Mapping[str, str] | None = None
    """Digests of the Python functions from this event on, if they differ from those of the source."""
    model: str | None = None
    tools: str | None = None
    """Policy for calls after `at` for which the source has no result. All other calls are replayed from the source.

    For what-ifs and trials: which actions and tools may run, ``recorded`` (none), ``read-only`` or ``live``. For a fork
    with a changed definition: ``reuse`` runs all calls without a result in the source, ``unedited`` runs also those of
    edited functions.
    """
    only: Mapping[str, Any] | None = None
    """Scope of a trial: the ``step`` of a ``path`` at a ``visit``, or only one ``item`` of it."""
    awaited_by: str | None = None
    """Id of the execution that waits for the end of this one, if this is a child.

    The waiting execution is a what-if that requests a child workflow differently from its source, or a fork with a
    changed definition whose child had not completed.
    """
    origin_started_us: int | None = None
    """Start time of the execution with which the shared events begin, in microseconds since 1970. The code of the fork
    sees it as the start time, for example as the date in the instructions of agents. Logs of former versions lack it:
    there, the code sees the time of the fork."""

    @property
    def parent(self) -> str:
        """Id of the execution from which this one was forked. If this is a child execution, it is the id of the
        execution that waits for its end.
        """
        return self.awaited_by or self.source if self.came_from == CHILD else self.source

    @property
    def came_from(self) -> str:
        """Way in which the execution was created, one of `ORIGINS`; ``fork`` unless the event states another one."""
        return self.origin or FORK


@_event("execution_resumed")
@dataclass(frozen=True, slots=True)
class ExecutionResumed(Payload):
    """Resumption of the execution. A path that failed or was cancelled continues at the start of the step in which it
    stopped, unless `keeps_failed` is set.
    """

    previous_status: str = RUNNING
    bounds: Mapping[str, Any] | None = None
    """New budget as plain data; None if the budget did not change."""
    recovery: int | None = None
    """Number of counted automatic resumptions without progress, including this one; see `divebook.runtime.queueing`.
    None if none was counted, or if a person resumed the execution.
    """
    code: Mapping[str, str] | None = None
    """Digests of the Python functions from this event on, if they differ from those at the start."""
    keeps_failed: bool | None = None
    """True if failed paths stay failed, because the execution had not ended: it waited, or its process died. None
    otherwise. In older logs, this field is missing, and the resumption repeated the failed steps.
    """


@_event("execution_paused")
@dataclass(frozen=True, slots=True)
class ExecutionPaused(Payload):
    """Pause of the execution: no step or call starts until the execution is resumed.

    Calls that were running have ended, or are made again after the resumption.
    """

    reason: str = ""


@_event("execution_enqueued", "queue")
@dataclass(frozen=True, slots=True)
class ExecutionEnqueued(Payload):
    """Entry of the execution into a queue. The execution is new, or a worker that stops has returned it to the
    queue.
    """

    queue: str = ""
    priority: int = 0
    """Priority in the queue; executions with higher priorities are run first."""
    due: int | None = None
    """Earliest start in microseconds since 1970; None for an immediate start."""


@_event("execution_completed")
@dataclass(frozen=True, slots=True)
class ExecutionCompleted(Payload):
    """Last event of a successful execution."""

    outputs: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, int] | None = None


@_event("rollback_started")
@dataclass(frozen=True, slots=True)
class RollbackStarted(Payload):
    """Start of the rollback of a failed or cancelled execution, whose steps are undone, the latest first.

    Each rollback runs on a separate path (`PathStarted.rollback`).
    """

    error: str = ""
    """Error, or reason of the cancellation, with which the execution ends after the rollback."""
    reason: str | None = None
    """Reason of the failure as in `ExecutionFailed`."""
    cancelled: bool = False


@_event("execution_failed", "error")
@dataclass(frozen=True, slots=True)
class ExecutionFailed(Payload):
    """Last event of an execution that failed."""

    error: str = ""
    reason: str | None = None
    """Reason of the failure, one of `TerminalReason`; None for the failure of a step."""


@_event("execution_cancelled")
@dataclass(frozen=True, slots=True)
class ExecutionCancelled(Payload):
    """Last event of an execution that was cancelled."""

    reason: str = ""


@_event("execution_continue_as_new", "new_execution_id", "reason")
@dataclass(frozen=True, slots=True)
class ExecutionContinuedAsNew(Payload):
    """Last event of an execution that continues under another id, with a new log."""

    new_execution_id: str = ""
    reason: str = ""
    new_inputs: Mapping[str, Any] | None = None
    state_transfer: Mapping[str, Any] | None = None


@_event("execution_moved")
@dataclass(frozen=True, slots=True)
class ExecutionMoved(Payload):
    """Last event of an execution that continues in another store, under the same id."""

    destination: str = ""
    """File to which the log was written."""


@_event("execution_snapshotted", "status")
@dataclass(frozen=True, slots=True)
class ExecutionSnapshotted(Payload):
    """Last event of a read-only snapshot, imported from the log of an execution that had not ended. Only the original
    execution continues.
    """

    status: str = ""
    """Status of the original execution at the time of the export."""


# --- paths ---------------------------------------------------------------------------------------------------------
#
# Two paths that meet at a join of step "d": `path_branched` and `path_completed` of "main", `path_waiting` of "main-1",
# `path_waiting` of "main-2", `path_completed` of "main-2", and `path_joined` of "main-1", which continues.


@_event("path_started", "current_step")
@dataclass(frozen=True, slots=True)
class PathStarted(Payload):
    """Start of a path at the step `current_step`."""

    current_step: str = ""
    rollback: int | None = None
    """Number of the rollback that the path runs, from 1; None for any other path."""


@_event("path_branched", "new_paths")
@dataclass(frozen=True, slots=True)
class PathBranched(Payload):
    """Split of a path into new paths, each ``{"id", "current_step", "inherit_outputs"}``."""

    new_paths: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        Payload.__post_init__(self)
        for index, new_path in enumerate(self.new_paths):
            for key in ("id", "current_step"):
                if not isinstance(new_path.get(key), str) or not new_path[key]:
                    raise InvalidEventError(
                        f"path_branched: data validation failed: new_paths[{index}].{key} is required, and must be text"
                    )


@_event("path_waiting", "join_step")
@dataclass(frozen=True, slots=True)
class PathWaiting(Payload):
    """Arrival of a path at a `Join` step, where it waits for the paths that may still reach the step."""

    join_step: str = ""


@_event("path_joined", "current_step")
@dataclass(frozen=True, slots=True)
class PathJoined(Payload):
    """Continuation of a path after a `Join` step. The paths in `joined` arrived at the step as well; they are
    completed, and only this path continues.
    """

    current_step: str = ""
    joined: Sequence[str] = ()


@_event("path_completed", "final_step")
@dataclass(frozen=True, slots=True)
class PathCompleted(Payload):
    """End of a path without an error: its last step was completed, it was split into new paths, or it was joined into
    another path.
    """

    final_step: str = ""


@_event("path_failed", "error")
@dataclass(frozen=True, slots=True)
class PathFailed(Payload):
    """End of a path with an error."""

    error: str = ""
    reason: str | None = None
    """Reason of the failure, one of `TerminalReason`; None for the failure of a step."""


@_event("path_cancelled")
@dataclass(frozen=True, slots=True)
class PathCancelled(Payload):
    """End of a path (a branch of the execution) that was stopped by a person, or because another path failed."""

    reason: str = ""


# --- steps ---------------------------------------------------------------------------------------------------------
#
# A step that fails twice and is then caught: `step_started`, `step_retried` with a pause, another attempt,
# `step_failed` with the last error, and `step_caught` with the step at which the path continues. Without a `Catch`
# policy, `path_failed` comes in place of `step_caught`. All attempts belong to one visit, so `step_started` occurs
# once.


@_event("step_started", "step_type")
@dataclass(frozen=True, slots=True)
class StepStarted(Payload):
    """Entry of a path into a step; `visit` counts the entries of this path into the step (1, 2, ...)."""

    step_type: str = ""
    step_params: Mapping[str, Any] | None = None
    visit: int = 1


@_event("step_completed")
@dataclass(frozen=True, slots=True)
class StepCompleted(Payload):
    """Successful end of a step; `output` is the step's result as text."""

    output: str = ""
    stored_variable: str | None = None
    usage: Mapping[str, int] | None = None


@_event("rollback_added", "action")
@dataclass(frozen=True, slots=True)
class RollbackAdded(Payload):
    """Registration of an action or function that undoes a step, an item of an `Each` step, or a call. It runs if the
    execution fails or is cancelled.
    """

    action: str = ""
    """Name of the action or function that performs the rollback."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "action"
    """``action`` for an action, ``step`` for a function passed to ``@step(rollback=...)``."""
    function: str | None = None
    """Module and qualified name of the function, if `kind` is ``step``, since its name need not be unique."""


@_event("step_failed", "error")
@dataclass(frozen=True, slots=True)
class StepFailed(Payload):
    """Failure of a step with an error, or an error in the choice of the next step."""

    error: str = ""
    operations: Sequence[str] | None = None
    """Ids of the operations whose failure ended the step of a function. A resumption runs these operations again."""
    iteration_index: int | None = None
    """Index of the failed item of `Each`; None if the step has no items."""
    trace: str | None = None
    """Traceback in user code, unless an operation of the step has recorded the traceback."""
    error_names: Sequence[str] | None = None
    """Names of the error's class and its base classes, unless an operation of the step has recorded them."""
    place: Mapping[str, Any] | None = None
    """Source line that raised the error, unless an operation has recorded it: ``label``, ``line``, ``lines``,
    ``first``.

    ``label`` is in words; ``lines`` are the lines around ``line``, beginning with the number ``first``.
    """


@_event("step_retried")
@dataclass(frozen=True, slots=True)
class StepRetried(Payload):
    """Failure of an attempt at a step; the next attempt starts after `delay` seconds."""

    attempt: int = 1
    """Number of the attempt that failed, from 1."""
    error: str = ""
    delay: float = 0.0
    iteration_index: int | None = None
    key: str | None = None
    """Key of the call that is repeated, if a function makes several calls."""


@_event("step_caught", "target")
@dataclass(frozen=True, slots=True)
class StepCaught(Payload):
    """Failure of a step whose path continues at the step `target` instead of failing."""

    target: str = ""
    error: str = ""


@_event("condition_evaluated", "condition", "target")
@dataclass(frozen=True, slots=True)
class ConditionEvaluated(Payload):
    """Evaluation of the condition of an edge to the step `target`, with the outcome `result`."""

    condition: str = ""
    target: str = ""
    result: bool = False


def _check_index(payload: IterationStarted | IterationCompleted | IterationFailed | RowsCompleted) -> None:
    # The default -1 makes the index a required field, although 0 is a valid value and counts as empty.
    if payload.iteration_index < 0:
        raise InvalidEventError(f"{payload.event_type}: data validation failed: iteration_index must not be negative")


@_event("iteration_started")
@dataclass(frozen=True, slots=True)
class IterationStarted(Payload):
    """Start of the work of an `Each` step on one of its items."""

    iteration_index: int = -1
    item: Any = None
    item_key: str | None = None
    total: int | None = None
    """Number of items of the step, recorded with the first item that a process starts."""

    def __post_init__(self) -> None:
        _check_index(self)


@_event("iteration_completed")
@dataclass(frozen=True, slots=True)
class IterationCompleted(Payload):
    """Successful end of the work of an `Each` step on one item; `result` is the item's result as text."""

    iteration_index: int = -1
    result: Any = None
    item: Any = None
    item_key: str | None = None

    def __post_init__(self) -> None:
        _check_index(self)


@_event("iteration_failed", "error")
@dataclass(frozen=True, slots=True)
class IterationFailed(Payload):
    """Failure of the last attempt at one item of an `Each` step. The step fails, unless `result` replaces the item's
    result.
    """

    iteration_index: int = -1
    error: str = ""
    error_names: Sequence[str] | None = None
    attempts: int = 1
    result: Mapping[str, Any] | None = None
    """Value that replaces the result of the failed item: the error as data, or a note that the item was skipped."""
    trace: str | None = None
    place: Mapping[str, Any] | None = None
    """Source line as in `StepFailed`; `trace` and `place` are None if a call of the item has recorded them."""

    def __post_init__(self) -> None:
        Payload.__post_init__(self)
        _check_index(self)


@_event("rows_completed", "operation_id")
@dataclass(frozen=True, slots=True)
class RowsCompleted(Payload):
    """Results of rows of a frame in an `Each` step with `Rows`, which handles a frame row by row. The event contains
    all rows that ended since the previous event of this type.
    """

    iteration_index: int = -1
    """Number of this event within the step, from 0."""
    operation_id: str = ""
    """Id of the operation to which these rows were assigned."""
    result: Any = None
    """Frame with the result or the ``error`` of each row, indexed by row position."""
    rows: int = 0
    failed: int = 0
    """Number of these rows that ended with an error."""
    total: int = 0
    """Number of rows of the whole frame."""

    def __post_init__(self) -> None:
        Payload.__post_init__(self)
        _check_index(self)


# --- operations ----------------------------------------------------------------------------------------------------
#
# An operation has two events, so that a process that dies in between leaves a trace: with the start alone, the outcome
# of the call is unknown. A call that is known to be repeatable is made again; otherwise a person is asked
# (`divebook.runtime.recorder`).


@_event("operation_started", "operation_id", "operation_type")
@dataclass(frozen=True, slots=True)
class OperationStarted(Payload):
    """Start of an operation: a call whose result is not deterministic, such as a model call, action or timer."""

    operation_id: str = ""
    operation_type: str = ""
    parameters: Mapping[str, Any] | None = None
    parameters_hash: str | None = None
    """Digest of `parameters`, which is compared when the operation is requested again."""
    iteration_index: int | None = None
    key: str | int | None = None
    """Position of the operation within its step: a number in the order of calls, or a name such as a tool-call id."""
    reserved: Mapping[str, int] | None = None
    """Upper limit of the operation's usage, counted as spent until it ends: ``tokens``, ``cost`` in nanodollars."""
    name: str | None = None
    """Name of the called action, agent, function, workflow or signal."""
    setting: Mapping[str, Any] | None = None
    """Settings of the call for readers, which are never compared: only the differences from the previous request."""
    setting_hash: str | None = None
    """Digest of all settings of the call."""
    within: int | None = None
    """Sequence number of the event that started the enclosing operation, or None."""
    undone: str | None = None
    """Time at which the operation's rollback is registered: at the end of the ``call``, of its ``step``, or of its
    item."""


@_event("operation_completed", "operation_id", "operation_type")
@dataclass(frozen=True, slots=True)
class OperationCompleted(Payload):
    """Successful end of an operation with `result`, after `duration` nanoseconds."""

    operation_id: str = ""
    operation_type: str = ""
    duration: int = 0
    result: Any = None
    usage: Mapping[str, int] | None = None
    held: Mapping[str, int] | None = None
    """Part of the budget that a child execution had passed on to executions that are still running when the child ends;
    keys as in `OperationStarted.reserved`.
    """
    served: Mapping[str, Any] | None = None
    """Source of the result in a what-if, where the call was not made.

    ``execution`` and ``sequence`` of another log, or ``blocked`` with the reason why there is no result.
    """


@_event("operations_abandoned")
@dataclass(frozen=True, slots=True)
class OperationsAbandoned(Payload):
    """Timers and waits for signals that the code no longer waits for, because another branch of the same `ctx.gather`
    has failed. When such a timer or wait ends, no code continues.
    """

    operation_ids: Sequence[str] = ()


@_event("operation_failed", "operation_id", "operation_type", "error")
@dataclass(frozen=True, slots=True)
class OperationFailed(Payload):
    """End of an operation with an error, after `duration` nanoseconds."""

    operation_id: str = ""
    operation_type: str = ""
    duration: int = 0
    error: str = ""
    error_names: Sequence[str] | None = None
    """Names of the error's class and its base classes, so that retry policies match the error after a restart."""
    usage: Mapping[str, int] | None = None
    """Usage that the failed operation caused."""
    raised: Mapping[str, Any] | None = None
    """Data from which the same error is built again: ``types`` as ``module:name``, ``args``, ``fields`` and ``place``.

    ``place`` is as in `StepFailed`.
    """
    trace: str | None = None
    """Traceback in user code, the innermost function call last."""
    held: Mapping[str, int] | None = None
    served: Mapping[str, Any] | None = None
    """Source of the result, as in `OperationCompleted.served`. `held` has the same meaning as there."""
    final: bool | None = None
    """True if the child execution cannot continue because it was rolled back. A resumption starts a new child."""
    lost: Mapping[str, str] | None = None
    """Result of a call that took effect, if the log cannot store the result: ``type``, ``text`` and ``digest``.

    ``text`` is cut and without secrets. A resumption asks a person for the result before it makes the call again.
    """


@_event("time_accessed", "accessed_at", "value")
@dataclass(frozen=True, slots=True)
class TimeAccessed(Payload):
    """Read of the clock by user code. The event is only information for readers of the log.

    Replay uses the operation of type ``time_access`` that is recorded with it.
    """

    accessed_at: str = ""
    value: str = ""


@_event("random_generated", "method")
@dataclass(frozen=True, slots=True)
class RandomGenerated(Payload):
    """Use of random numbers by user code. The event is only information for readers of the log.

    Replay uses the operation of type ``random_generation`` that is recorded with it.
    """

    method: str = ""
    value: Any = None
    # A seed may have more than 64 bits, which the check of other integers refuses.
    seed: int | None = field(default=None, metadata={HOLDS: int | BigInt | None})

    def __post_init__(self) -> None:
        Payload.__post_init__(self)
        # 0 and "" are valid random values, so the check for required fields, which refuses them, does not cover
        # `value`.
        if self.value is None:
            raise InvalidEventError("random_generated: data validation failed: value is required")


@_event("version_decision", "change_id")
@dataclass(frozen=True, slots=True)
class VersionDecision(Payload):
    """Choice of the version of a changed part of a workflow; this execution uses that version to its end."""

    change_id: str = ""
    version: int = 1
    min_version: int = 1
    max_version: int = 1
    selected_version: Any = None
    """Name of the version, in logs of the legacy Dive dialect."""
    available_versions: Sequence[Any] | None = None
    reason: str | None = None


# --- questions -----------------------------------------------------------------------------------------------------
#
# A question is asked once (`interrupt_raised`), further paths may wait for it (`interrupt_joined`), and one event
# settles it (`interrupt_resolved` or `interrupt_expired`). The id is computed from the place of the question, so code
# that runs again finds its question instead of asking another one.


@_event("interrupt_raised", "interrupt_id", "kind")
@dataclass(frozen=True, slots=True)
class InterruptRaised(Payload):
    """Question to a person. A path of the execution waits for the answer."""

    interrupt_id: str = ""
    kind: str = ""
    question: str = ""
    message: str | None = None
    """Further text for the person who answers."""
    data: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None
    """JSON schema that the answer must match."""
    operation_id: str | None = None
    """Id of the operation that waits for the answer: a call with an unknown outcome, or a turn of an agent."""
    expires_at: int | None = None
    """Time at which the question expires, in microseconds since 1970; None if it never expires."""
    default: Mapping[str, Any] | None = None
    """Response that is used when the question expires; if None, the step then fails."""
    optional: bool | None = None
    """True if the answer may be empty."""


@_event("interrupt_joined", "interrupt_id")
@dataclass(frozen=True, slots=True)
class InterruptJoined(Payload):
    """Start of a path's wait for the answer to a question that another path has already asked."""

    interrupt_id: str = ""


@_event("interrupt_resolved", "interrupt_id")
@dataclass(frozen=True, slots=True)
class InterruptResolved(Payload):
    """Answer to a question that an earlier event (`InterruptRaised`) asked."""

    interrupt_id: str = ""
    response: Any = None
    answered_by: str | None = None
    message: int | None = None
    """Number of the inbox message with the answer."""
    served: Mapping[str, Any] | None = None
    """Source of the answer as in `OperationCompleted.served`, if it was taken from another log."""


@_event("interrupt_expired", "interrupt_id")
@dataclass(frozen=True, slots=True)
class InterruptExpired(Payload):
    """Expiry of a question that was not answered in time; if the question has a default, it is used as the answer."""

    interrupt_id: str = ""
    message: int | None = None
    """Number of the inbox message that ended the question."""
    served: Mapping[str, Any] | None = None
    """Source of the outcome as in `OperationCompleted.served`, if it was taken from another log."""


# --- variables and the outside -------------------------------------------------------------------------------------


@fast_init
@dataclass(frozen=True, slots=True)
class Mutation:
    """Assignment (``set``) or deletion (``delete``) of one variable."""

    type: Literal["set", "delete"]
    key: str
    value: Any = None

    # A mutation is not a payload, so the checks of payloads do not reach its fields.
    def __post_init__(self) -> None:
        if self.type not in ("set", "delete"):
            raise InvalidEventError(f"state_mutated: data validation failed: unknown mutation type {self.type!r}")
        key: Any = self.key  # the type hint does not bind logs and callers
        if not isinstance(key, str) or not key:
            raise InvalidEventError("state_mutated: data validation failed: key is required, and must be text")

    def to_data(self) -> dict[str, Any]:
        """Return the mutation (one change of a variable) as plain data; a deletion has no key ``value``."""
        if self.type == "delete":
            return {"type": "delete", "key": self.key}
        return {"type": "set", "key": self.key, "value": self.value}


@_event("state_mutated", "mutations")
@dataclass(frozen=True, slots=True)
class StateMutated(Payload):
    """Assignments and deletions of variables of a workflow, in order."""

    mutations: Sequence[Mutation] = field(default=(), metadata={HOLDS: Sequence[Mapping[str, Any]]})

    def to_data(self) -> dict[str, Any]:
        """Return the event's list of mutations (changes of variables) as plain data."""
        return {"mutations": [mutation.to_data() for mutation in self.mutations]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> StateMutated:
        """Build the payload from a dict with the list of mutations as plain data, which must be valid."""
        return cls(
            tuple(
                [
                    Mutation(entry.get("type", ""), entry.get("key", ""), entry.get("value"))
                    for entry in data.get("mutations", ())
                ]
            )
        )


@_event("event_emitted", "name")
@dataclass(frozen=True, slots=True)
class EventEmitted(Payload):
    """Event of user code, from ``ctx.emit("name", data)`` in a workflow function or ``context.emit`` in an action."""

    name: str = ""
    data: Any = None
    operation_id: str | None = None
    """Id of the operation in a workflow function. Whenever the function runs again, it requests this operation
    again.
    """
    parameters_hash: str | None = None


@_event("approval_rule_added", "rule_id", "outcome", "tool")
@dataclass(frozen=True, slots=True)
class ApprovalRuleAdded(Payload):
    """Addition of a rule by which a person decides in advance about the approval of later calls."""

    rule_id: str = ""
    outcome: str = ""
    tool: str = ""
    """Name of the tool, action or step to which the rule applies."""
    kind: str | None = None
    """Kind of the name in `tool`: ``action`` or ``step``; None for a tool."""
    agent: str | None = None
    server: str | None = None
    arguments: Mapping[str, Any] | None = None
    """Arguments that a call must have for the rule to apply, by name."""
    scope: str | None = None
    """Executions to which the rule applies: ``run`` or ``always``."""
    expires_at: int | None = None
    """Time at which the rule expires, in microseconds since 1970; None if it does not expire."""
    question: str | None = None
    """Id of the question whose answer added the rule."""
    by: str | None = None


@_event("execution_annotated")
@dataclass(frozen=True, slots=True)
class ExecutionAnnotated(Payload):
    """Annotation of the execution by a person: tags, note, labels.

    Possible at any time, even after the end; annotations do not affect the execution's behaviour.
    """

    tags: Sequence[str] | None = None
    """Tags that the annotation adds."""
    untagged: Sequence[str] | None = None
    """Tags that the annotation removes."""
    note: str | None = None
    """New note; an empty string removes the note, None leaves it unchanged."""
    labels: Mapping[str, Any] | None = None
    """New values of labels by name; None as a value removes the label."""
    by: str | None = None
    message: int | None = None
    """Number of the inbox message with the annotation."""


@_event("workspace_opened", "workspace", "kind")
@dataclass(frozen=True, slots=True)
class WorkspaceOpened(Payload):
    """First use of a workspace by the execution, with the location and the files of the workspace."""

    workspace: str = ""
    """Name of the workspace's definition."""
    kind: str = ""
    """Isolation of the commands in the workspace: ``local``, ``fenced``, ``virtualenv``."""
    reference: Mapping[str, Any] = field(default_factory=dict)
    """Data with which the workspace can be found after a restart, such as its folder or container.

    Empty if the calls in the workspace were replayed from another log, so that the workspace has no location yet.
    """
    source: str | None = None
    """Folder from which the files were copied; None if the workspace is that folder itself."""
    tree: str | None = None
    """Digest of all files of the workspace; None if the files are unknown."""
    files: Sequence[Any] | None = None
    """All files, in the format of `divebook.workspaces.snapshots.take`; None if the files are the same as in the
    source.
    """
    problems: Sequence[Mapping[str, Any]] | None = None
    """Files that the digest and the list omit, each with ``path`` and ``reason``."""


@_event("files_changed", "workspace", "after")
@dataclass(frozen=True, slots=True)
class FilesChanged(Payload):
    """Change of files in a workspace. The change was made by a call that has just ended, or by a program outside of the
    execution.
    """

    workspace: str = ""
    before: str | None = None
    after: str = ""
    """Digest of all files after the change; `before` is the digest before it."""
    operation_id: str | None = None
    """Id of the operation that changed the files; None if unknown."""
    cause: str | None = None
    """Cause of the change if it was not an operation: ``outside``, ``restored``."""
    files: Sequence[Any] | None = None
    """Changed files, in the format of `divebook.workspaces.snapshots.take`."""
    previous: int | None = None
    """Sequence number of the previous event that lists files of the workspace."""
    changes: Sequence[Mapping[str, Any]] | None = None
    """Description of the first thousand changed files.

    Each has ``path``, ``kind`` (``added``, ``changed``, ``deleted``, ``renamed``), ``was``, and the numbers of
    ``added`` and ``removed`` lines.
    """
    count: int | None = None
    """Number of all changed files."""
    beside: Sequence[str] | None = None
    """Ids of other operations that ran in the workspace and may have made some of the changes."""
    problems: Sequence[Mapping[str, Any]] | None = None
    """Files that the digest and the list omit, each with ``path`` and ``reason``."""


@_event("egress_answered", "workspace", "host")
@dataclass(frozen=True, slots=True)
class EgressAnswered(Payload):
    """Attempt of a command in a workspace to connect to an outside host, and the outcome: connected or refused."""

    workspace: str = ""
    host: str = ""
    port: int = 0
    refused: str | None = None
    """Reason of a refusal; None if the connection was made."""
    operation_id: str | None = None
    """Id of the operation that ran the command; None if several operations ran."""


@_event("approval_rule_revoked", "rule_id")
@dataclass(frozen=True, slots=True)
class ApprovalRuleRevoked(Payload):
    """Revocation of a rule about the approval of calls, which `ApprovalRuleAdded` recorded."""

    rule_id: str = ""
    by: str | None = None
    message: int | None = None
    """Number of the inbox message with the revocation."""


@_event("signal_received", "signal_type")
@dataclass(frozen=True, slots=True)
class SignalReceived(Payload):
    """Arrival of a signal: a message from outside that does not answer a question."""

    signal_type: str = ""
    payload: Any = None
    source: str = ""
    """Name of the sender; for the end of a child execution, the child's id."""
    message: int | None = None
    """Number of the inbox message with the signal."""
