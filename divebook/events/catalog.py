"""Catalog of event types: one payload class each, whose required fields are checked at construction.

`PAYLOADS` maps the wire name (``step_started``) to its class. The classes are in the order in which they occur
in an execution. Values of type `Any` were normalized by `divebook.events.values.normalize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from divebook.errors import InvalidEventError
from divebook.events.payload import HOLDS, quickly_made
from divebook.events.recorded import BigInt
from divebook.events.upcast import CHANGES, FORM

PENDING = "pending"
ENQUEUED = "enqueued"
RUNNING = "running"
WAITING = "waiting"
COMPLETED = "completed"
FAILED = "failed"
CANCELLED = "cancelled"
MOVED, CONTINUED, PICTURE = "moved", "continued_as_new", "picture"
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
"""Origins of executions that are never resumed automatically: they wait, or only display something."""
ROLLBACK_PATH = "rollback-"
"""Prefix of the id of a rollback path; the number of the rollback follows."""

PAYLOADS: dict[str, type[Payload]] = {}


@dataclass(frozen=True, slots=True)
class Payload:
    """Content of an event. Each subclass has an event type and a list of fields that must not be empty."""

    event_type: ClassVar[str] = ""
    required: ClassVar[tuple[str, ...]] = ()
    field_names: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[int] = 0
    """Version of the form of its data; `divebook.events.upcast` converts older ones."""

    def __post_init__(self) -> None:
        for name in self.required:
            if not getattr(self, name):
                raise InvalidEventError(f"{self.event_type}: data validation failed: {name} is required")

    def to_data(self) -> dict[str, Any]:
        """Return the fields that are not None, ready to be encoded."""
        data: dict[str, Any] = {FORM: self.form} if self.form else {}
        for name in self.field_names:
            value = getattr(self, name)
            if value is not None:
                data[name] = value
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Payload:
        """Build the payload from plain data with valid fields; unknown keys are ignored."""
        try:
            return cls(**data)
        except TypeError:
            return cls(**{name: data[name] for name in cls.field_names if name in data})


def _event(name: str, *required: str) -> Any:  # a class decorator; Any keeps the dataclass's own type
    def register(cls: type[Payload]) -> type[Payload]:
        cls.event_type = name
        cls.required = required
        cls.form = len(CHANGES.get(name, ()))
        cls.field_names = tuple(entry.name for entry in fields(cls))
        PAYLOADS[name] = cls
        is_usual = cls.__post_init__ is Payload.__post_init__
        return quickly_made(cls, required if is_usual else None)

    return register


# --- the execution -------------------------------------------------------------------------------------------------


@_event("execution_started", "workflow_name")
@dataclass(frozen=True, slots=True)
class ExecutionStarted(Payload):
    """First event: everything needed to continue the execution without its notebook."""

    workflow_name: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    definition: Mapping[str, Any] | None = None
    """The workflow as plain data (`Workflow.to_dict`)."""
    fingerprint: str | None = None
    """SHA-256 of the behaviour of the definition, hexadecimal."""
    source: str | None = None
    """The text of the cell or file that defined it."""
    written_by: str | None = None
    """Version of divebook."""
    bounds: Mapping[str, Any] | None = None
    """Budget (`Bounds.to_dict`); None for no limit."""
    identity: Mapping[str, Any] | None = None
    """Requester: ``user_id``, ``session_id``, ``request_id``, ``metadata``."""
    parent: str | None = None
    """The execution that created this one. The parent of a child waits for its end; that of a fork is its source."""
    origin: str | None = None
    """One of `ORIGINS`; None for a child if there is a parent, and for a plain run otherwise."""
    key: str | None = None
    """Key that is unique in the store: a second start with it is refused with an error that names this execution."""
    tags: Sequence[str] | None = None
    note: str | None = None
    """Note of a person about it."""
    notebook: str | None = None
    cell: str | None = None
    """The notebook and the cell that started it, if known."""
    seed: str | None = None
    """Seed of the ids of its questions and of the idempotency keys of its calls, combined with their places.

    A copy under another id has the same seed.
    """
    code: Mapping[str, str] | None = None
    """Digests of the Python functions that it may call, by kind and name (`divebook.workflow.code`)."""
    model: str | None = None
    """Model of all its agents, if the start replaced their models."""
    state: Mapping[str, Any] | None = None
    """Initial variables: those of its predecessor, which continued as this execution."""

    @property
    def came_from(self) -> str:
        """Origin of the execution, one of `ORIGINS`."""
        return self.origin or (CHILD if self.parent else RUN)


@_event("execution_forked", "source", "workflow_name")
@dataclass(frozen=True, slots=True)
class ExecutionForked(Payload):
    """The log branches off from that of its source after the shared events up to `at`; calls in flight are dropped.

    Like `ExecutionStarted` it is an opening event. Fields that it leaves out have the values of the opening before it
    (`divebook.engine.forks.opened_as`).
    """

    source: str = ""
    """The execution whose first events it shares."""
    at: int = 0
    """Number of the last shared event."""
    workflow_name: str = ""
    previous: int = 1
    """Number of the previous opening event."""
    change: Mapping[str, Any] | None = None
    """Changes from here on (`divebook.engine.forks.Change`), except for definition and model."""
    origin: str | None = None
    """One of `ORIGINS`; None for a fork."""
    definition: Mapping[str, Any] | None = None
    """The workflow from now on."""
    text: str | None = None
    """The text of the cell or file that defined it."""
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
    """Digests of its Python functions from now on, if they differ from those of its source."""
    model: str | None = None
    tools: str | None = None
    """Policy for calls after `at`, which are replayed from the source if it has their results.

    For what-ifs and trials: which actions and tools may run, ``recorded`` (none), ``read-only`` or ``live``. For a fork
    with a changed definition: ``reuse`` runs all calls without a result in the source, ``unedited`` runs also those of
    edited functions.
    """
    only: Mapping[str, Any] | None = None
    """Scope of a trial: the ``step`` of a ``path`` at a ``visit``, or only one ``item`` of it."""
    awaited_by: str | None = None
    """The execution that waits for its end.

    It is a what-if that requests a child workflow differently from its source, or a fork with a changed definition
    whose child had not completed.
    """

    @property
    def parent(self) -> str:
        """The source execution, which does not wait for it; for a child, the execution that waits."""
        return self.awaited_by or self.source if self.came_from == CHILD else self.source

    @property
    def came_from(self) -> str:
        """Origin of the execution, one of `ORIGINS`."""
        return self.origin or FORK


@_event("execution_resumed")
@dataclass(frozen=True, slots=True)
class ExecutionResumed(Payload):
    """The execution was resumed; failed and cancelled paths return to the start of their step."""

    previous_status: str = RUNNING
    bounds: Mapping[str, Any] | None = None
    """New budget; None if it did not change."""
    recovery: int | None = None
    """Number of automatic resumptions in a row without progress; None if a person resumed it."""
    code: Mapping[str, str] | None = None
    """Digests of its Python functions from now on, if they differ from those at the start."""


@_event("execution_paused")
@dataclass(frozen=True, slots=True)
class ExecutionPaused(Payload):
    """Nothing new starts until the execution is resumed. Running calls have ended, or will be made again."""

    reason: str = ""


@_event("execution_enqueued", "queue")
@dataclass(frozen=True, slots=True)
class ExecutionEnqueued(Payload):
    """The execution waits for a worker: it is new, or a draining worker returned it."""

    queue: str = ""
    priority: int = 0
    """Priority in its queue; higher ones are run first."""
    due: int | None = None
    """Earliest start, microseconds since 1970; None for at once."""


@_event("execution_completed")
@dataclass(frozen=True, slots=True)
class ExecutionCompleted(Payload):
    """Last event of a successful execution."""

    outputs: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, int] | None = None


@_event("rollback_started")
@dataclass(frozen=True, slots=True)
class RollbackStarted(Payload):
    """The execution has failed or was cancelled: its steps are rolled back before it ends, the latest first.

    Each rollback runs on a separate path (`PathStarted.rollback`).
    """

    error: str = ""
    """Error, or reason of the cancellation, with which it ends after the rollback."""
    reason: str | None = None
    """As in `ExecutionFailed`."""
    cancelled: bool = False


@_event("execution_failed", "error")
@dataclass(frozen=True, slots=True)
class ExecutionFailed(Payload):
    """Last event of an execution that failed."""

    error: str = ""
    reason: str | None = None
    """Reason, one of `TerminalReason`, if it is not simply the failure of a step."""


@_event("execution_cancelled")
@dataclass(frozen=True, slots=True)
class ExecutionCancelled(Payload):
    """Last event of an execution that was cancelled."""

    reason: str = ""


@_event("execution_continue_as_new", "new_execution_id", "reason")
@dataclass(frozen=True, slots=True)
class ExecutionContinuedAsNew(Payload):
    """The execution continues under another id, with a new log."""

    new_execution_id: str = ""
    reason: str = ""
    new_inputs: Mapping[str, Any] | None = None
    state_transfer: Mapping[str, Any] | None = None


@_event("execution_moved")
@dataclass(frozen=True, slots=True)
class ExecutionMoved(Payload):
    """Last event of an execution that continues in another place, under the same id."""

    destination: str = ""
    """The file that its log was written to."""


@_event("execution_pictured", "status")
@dataclass(frozen=True, slots=True)
class ExecutionPictured(Payload):
    """Last event of an imported read-only snapshot of an execution that had not ended; only the original continues."""

    status: str = ""
    """Status of the original at the export."""


# --- paths ---------------------------------------------------------------------------------------------------------


@_event("path_started", "current_step")
@dataclass(frozen=True, slots=True)
class PathStarted(Payload):
    """A path starts at `current_step`."""

    current_step: str = ""
    rollback: int | None = None
    """Number of the rollback that it runs, from 1; None for any other path."""


@_event("path_branched", "new_paths")
@dataclass(frozen=True, slots=True)
class PathBranched(Payload):
    """A path splits; each new path is ``{"id", "current_step", "inherit_outputs"}``."""

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
    """A path has reached a `Join` step and waits for the paths that may still reach it."""

    join_step: str = ""


@_event("path_joined", "current_step")
@dataclass(frozen=True, slots=True)
class PathJoined(Payload):
    """A waiting path continues for itself and for the `joined` paths, which have completed."""

    current_step: str = ""
    joined: Sequence[str] = ()


@_event("path_completed", "final_step")
@dataclass(frozen=True, slots=True)
class PathCompleted(Payload):
    """A path has reached its end, has branched, or was joined into another."""

    final_step: str = ""


@_event("path_failed", "error")
@dataclass(frozen=True, slots=True)
class PathFailed(Payload):
    """A path ended with an error."""

    error: str = ""
    reason: str | None = None
    """Reason, one of `TerminalReason`, if it is not simply the failure of a step."""


@_event("path_cancelled")
@dataclass(frozen=True, slots=True)
class PathCancelled(Payload):
    """A path was stopped from outside: by a person, or because a sibling failed."""

    reason: str = ""


# --- steps ---------------------------------------------------------------------------------------------------------


@_event("step_started", "step_type")
@dataclass(frozen=True, slots=True)
class StepStarted(Payload):
    """A path enters a step; `visit` counts how often this path has entered it (1, 2, ...)."""

    step_type: str = ""
    step_params: Mapping[str, Any] | None = None
    visit: int = 1


@_event("step_completed")
@dataclass(frozen=True, slots=True)
class StepCompleted(Payload):
    """A step is done; `output` is its text."""

    output: str = ""
    stored_variable: str | None = None
    usage: Mapping[str, int] | None = None


@_event("rollback_added", "action")
@dataclass(frozen=True, slots=True)
class RollbackAdded(Payload):
    """A rollback of a step, an item or a call: this call runs if the execution fails or is cancelled."""

    action: str = ""
    """Name of the called action or function."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "action"
    """``action`` for an action, ``step`` for a function passed to ``@step(rollback=...)``."""
    function: str | None = None
    """Module and qualified name of such a function, since its name need not be unique."""


@_event("step_failed", "error")
@dataclass(frozen=True, slots=True)
class StepFailed(Payload):
    """A step, or the choice of the next step, ended with an error."""

    error: str = ""
    operations: Sequence[str] | None = None
    """Ids of the operations whose failure ended the step of a function; a resumption runs them again."""
    iteration_index: int | None = None
    """The item of `Each` that failed."""
    trace: str | None = None
    """Traceback in user code, unless a call of the step has recorded it."""
    error_names: Sequence[str] | None = None
    """Class of the error and its base classes, unless a call of the step has recorded them."""
    place: Mapping[str, Any] | None = None
    """The line that raised it, likewise: ``label`` in words, ``line``, and the ``lines`` around it from ``first``."""


@_event("step_retried")
@dataclass(frozen=True, slots=True)
class StepRetried(Payload):
    """An attempt failed; the next one starts after `delay` seconds."""

    attempt: int = 1
    """The attempt that failed, from 1."""
    error: str = ""
    delay: float = 0.0
    iteration_index: int | None = None
    key: str | None = None
    """The call that is repeated, if a function makes several."""


@_event("step_caught", "target")
@dataclass(frozen=True, slots=True)
class StepCaught(Payload):
    """A step has failed after its last attempt; its path continues at `target` instead of failing."""

    target: str = ""
    error: str = ""


@_event("condition_evaluated", "condition", "target")
@dataclass(frozen=True, slots=True)
class ConditionEvaluated(Payload):
    """The condition of an edge to `target` evaluated to `result`."""

    condition: str = ""
    target: str = ""
    result: bool = False


def _check_index(payload: IterationStarted | IterationCompleted | IterationFailed | RowsCompleted) -> None:
    if payload.iteration_index < 0:
        raise InvalidEventError(f"{payload.event_type}: data validation failed: iteration_index must not be negative")


@_event("iteration_started")
@dataclass(frozen=True, slots=True)
class IterationStarted(Payload):
    """`Each` starts one item."""

    iteration_index: int = -1
    item: Any = None
    item_key: str | None = None
    total: int | None = None
    """Number of items, recorded with the first item that a process starts."""

    def __post_init__(self) -> None:
        _check_index(self)


@_event("iteration_completed")
@dataclass(frozen=True, slots=True)
class IterationCompleted(Payload):
    """`Each` has completed one item; `result` is its text."""

    iteration_index: int = -1
    result: Any = None
    item: Any = None
    item_key: str | None = None

    def __post_init__(self) -> None:
        _check_index(self)


@_event("iteration_failed", "error")
@dataclass(frozen=True, slots=True)
class IterationFailed(Payload):
    """The last attempt at one item of `Each` failed; without a `result` the step fails with it."""

    iteration_index: int = -1
    error: str = ""
    error_names: Sequence[str] | None = None
    attempts: int = 1
    result: Mapping[str, Any] | None = None
    """Result of the item in spite of the failure: its error as data, or a note that it was skipped."""
    trace: str | None = None
    place: Mapping[str, Any] | None = None
    """As for `StepFailed`, unless a call of the item has recorded them."""

    def __post_init__(self) -> None:
        Payload.__post_init__(self)
        _check_index(self)


@_event("rows_completed", "operation_id")
@dataclass(frozen=True, slots=True)
class RowsCompleted(Payload):
    """Rows of a frame have ended: those of `Each` with `Rows` since the previous event."""

    iteration_index: int = -1
    """Number of this event within the step, from 0."""
    operation_id: str = ""
    """The call that got the range of these rows."""
    result: Any = None
    """Frame with the result or the ``error`` of each row, indexed by position."""
    rows: int = 0
    failed: int = 0
    """Number of them with an error."""
    total: int = 0
    """Number of rows of the frame."""

    def __post_init__(self) -> None:
        Payload.__post_init__(self)
        _check_index(self)


# --- operations ----------------------------------------------------------------------------------------------------


@_event("operation_started", "operation_id", "operation_type")
@dataclass(frozen=True, slots=True)
class OperationStarted(Payload):
    """A non-deterministic call is about to be made."""

    operation_id: str = ""
    operation_type: str = ""
    parameters: Mapping[str, Any] | None = None
    parameters_hash: str | None = None
    """Digest of `parameters`; compared when the operation is requested again."""
    iteration_index: int | None = None
    key: str | int | None = None
    """Its place within the step: a number in the order of calls, or a name such as a tool-call id."""
    reserved: Mapping[str, int] | None = None
    """Upper limit of its usage, counted as spent until it ends: ``tokens``, ``cost`` in nanodollars."""
    name: str | None = None
    """Name of the called action, agent, function, workflow or signal."""
    setting: Mapping[str, Any] | None = None
    """Settings of the call for readers, never compared: only the differences from the previous request."""
    setting_hash: str | None = None
    """Digest of the whole setting."""
    within: int | None = None
    """Number of the event that started the enclosing operation."""
    undone: str | None = None
    """Event that registers its rollback: the end of the operation (``call``, for a call of ``@step``), of its ``step``,
    or of its item."""


@_event("operation_completed", "operation_id", "operation_type")
@dataclass(frozen=True, slots=True)
class OperationCompleted(Payload):
    """The call returned `result`; `duration` in nanoseconds."""

    operation_id: str = ""
    operation_type: str = ""
    duration: int = 0
    result: Any = None
    usage: Mapping[str, int] | None = None
    held: Mapping[str, int] | None = None
    """Budget that an ended execution had passed on to running executions; keys as in `OperationStarted.reserved`."""
    served: Mapping[str, Any] | None = None
    """Source of the result in a what-if, where the call was not made: ``execution`` and ``sequence`` of another log, or
    ``blocked`` with the reason why there is no result."""


@_event("operation_failed", "operation_id", "operation_type", "error")
@dataclass(frozen=True, slots=True)
class OperationFailed(Payload):
    """The call raised; `duration` in nanoseconds."""

    operation_id: str = ""
    operation_type: str = ""
    duration: int = 0
    error: str = ""
    error_names: Sequence[str] | None = None
    """Class of the error and its base classes, so that policies match it after a restart too."""
    usage: Mapping[str, int] | None = None
    """Usage in spite of the failure."""
    raised: Mapping[str, Any] | None = None
    """Data to build the same error again: ``types`` as ``module:name``, ``args`` and ``fields``; and its ``place``, as
    in `StepFailed`."""
    trace: str | None = None
    """Traceback in user code, the innermost call last."""
    held: Mapping[str, int] | None = None
    served: Mapping[str, Any] | None = None
    """`held` and `served` as for `OperationCompleted`."""
    final: bool | None = None
    """True if the child execution cannot continue because it was rolled back; a new one is started instead."""
    lost: Mapping[str, str] | None = None
    """Result of a call that took effect, if the log cannot store it: ``type``, ``text`` (cut, without secrets) and
    ``digest``. A resumption asks a person for the result before it makes the call again."""


@_event("time_accessed", "accessed_at", "value")
@dataclass(frozen=True, slots=True)
class TimeAccessed(Payload):
    """Code read the clock; recorded beside the operation of type ``time_access``, which replay uses."""

    accessed_at: str = ""
    value: str = ""


@_event("random_generated", "method")
@dataclass(frozen=True, slots=True)
class RandomGenerated(Payload):
    """Code used random numbers; recorded beside the operation of type ``random_generation``, which replay uses."""

    method: str = ""
    value: Any = None
    seed: int | None = field(default=None, metadata={HOLDS: int | BigInt | None})

    def __post_init__(self) -> None:
        Payload.__post_init__(self)
        if self.value is None:
            raise InvalidEventError("random_generated: data validation failed: value is required")


@_event("version_decision", "change_id")
@dataclass(frozen=True, slots=True)
class VersionDecision(Payload):
    """Choice of the version of a changed part of a workflow that this execution follows."""

    change_id: str = ""
    version: int = 1
    min_version: int = 1
    max_version: int = 1
    selected_version: Any = None
    """Name of the version, in logs of the legacy Dive dialect."""
    available_versions: Sequence[Any] | None = None
    reason: str | None = None


# --- questions -----------------------------------------------------------------------------------------------------


@_event("interrupt_raised", "interrupt_id", "kind")
@dataclass(frozen=True, slots=True)
class InterruptRaised(Payload):
    """A path asks a question and waits for the answer."""

    interrupt_id: str = ""
    kind: str = ""
    question: str = ""
    message: str | None = None
    """Further text for people."""
    data: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None
    """JSON schema of the answer."""
    operation_id: str | None = None
    """The operation that waits, if any: a call with an unknown outcome, or a turn of an agent."""
    expires_at: int | None = None
    """Microseconds since 1970; without it the question never expires."""
    default: Mapping[str, Any] | None = None
    """Response that is used when the question expires; without one the step fails."""
    optional: bool | None = None
    """True if the answer may be empty."""


@_event("interrupt_joined", "interrupt_id")
@dataclass(frozen=True, slots=True)
class InterruptJoined(Payload):
    """Another path waits for the answer to an open question."""

    interrupt_id: str = ""


@_event("interrupt_resolved", "interrupt_id")
@dataclass(frozen=True, slots=True)
class InterruptResolved(Payload):
    """A question was answered."""

    interrupt_id: str = ""
    response: Any = None
    answered_by: str | None = None
    message: int | None = None
    """Number of the message in the inbox that brought the answer."""
    served: Mapping[str, Any] | None = None
    """As for `OperationCompleted`, if the answer was taken from another log."""


@_event("interrupt_expired", "interrupt_id")
@dataclass(frozen=True, slots=True)
class InterruptExpired(Payload):
    """A question expired without an answer; its default is used, if it has one."""

    interrupt_id: str = ""
    message: int | None = None
    """Number of the inbox message that ended the question."""
    served: Mapping[str, Any] | None = None
    """As for `InterruptResolved`."""


# --- variables and the outside -------------------------------------------------------------------------------------


@quickly_made
@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one variable."""

    type: Literal["set", "delete"]
    key: str
    value: Any = None

    def __post_init__(self) -> None:
        if self.type not in ("set", "delete"):
            raise InvalidEventError(f"state_mutated: data validation failed: unknown mutation type {self.type!r}")
        key: Any = self.key  # the type hint does not bind logs and callers
        if not isinstance(key, str) or not key:
            raise InvalidEventError("state_mutated: data validation failed: key is required, and must be text")

    def to_data(self) -> dict[str, Any]:
        """Return the change as plain data; a deletion has no value."""
        if self.type == "delete":
            return {"type": "delete", "key": self.key}
        return {"type": "set", "key": self.key, "value": self.value}


@_event("state_mutated", "mutations")
@dataclass(frozen=True, slots=True)
class StateMutated(Payload):
    """Variables changed."""

    mutations: Sequence[Mutation] = field(default=(), metadata={HOLDS: Sequence[Mapping[str, Any]]})

    def to_data(self) -> dict[str, Any]:
        """Return the changes as plain data."""
        return {"mutations": [mutation.to_data() for mutation in self.mutations]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> StateMutated:
        """Build the payload from plain data without wrong fields."""
        return cls(
            tuple([Mutation(e.get("type", ""), e.get("key", ""), e.get("value")) for e in data.get("mutations", ())])
        )


@_event("event_emitted", "name")
@dataclass(frozen=True, slots=True)
class EventEmitted(Payload):
    """An event of user code: ``ctx.emit("name", data)`` in a workflow function, ``context.emit`` in an action."""

    name: str = ""
    data: Any = None
    operation_id: str | None = None
    """Operation at its place in a workflow function, which requests it again whenever the function runs again."""
    parameters_hash: str | None = None


@_event("approval_rule_added", "rule_id", "outcome", "tool")
@dataclass(frozen=True, slots=True)
class ApprovalRuleAdded(Payload):
    """A person added a rule for the approval of later calls."""

    rule_id: str = ""
    outcome: str = ""
    tool: str = ""
    """Name of the tool, action or step."""
    kind: str | None = None
    """``action`` or ``step``; without it, ``tool``."""
    agent: str | None = None
    server: str | None = None
    arguments: Mapping[str, Any] | None = None
    """Required arguments, by name."""
    scope: str | None = None
    """``run`` or ``always``."""
    expires_at: int | None = None
    """Microseconds since 1970."""
    question: str | None = None
    """Id of the question whose answer added the rule."""
    by: str | None = None


@_event("execution_annotated")
@dataclass(frozen=True, slots=True)
class ExecutionAnnotated(Payload):
    """Annotations of the execution by a person, at any time, even after its end; they do not affect its behaviour."""

    tags: Sequence[str] | None = None
    """Tags that are added."""
    untagged: Sequence[str] | None = None
    """Tags that are removed."""
    note: str | None = None
    """The new note; empty to remove it."""
    labels: Mapping[str, Any] | None = None
    """Labels by name, which replace labels of the same name; None removes a label."""
    by: str | None = None
    message: int | None = None
    """Number of the message in the inbox that brought it."""


@_event("workspace_opened", "workspace", "kind")
@dataclass(frozen=True, slots=True)
class WorkspaceOpened(Payload):
    """The execution starts to use a workspace: its place and its files."""

    workspace: str = ""
    """The name of its definition."""
    kind: str = ""
    """Where its commands run: ``local``, ``fenced``, ``virtualenv``."""
    reference: Mapping[str, Any] = field(default_factory=dict)
    """Data to find it again after a restart, such as its folder or container; empty if it has no place yet because its
    calls were replayed from another log."""
    source: str | None = None
    """The folder that its files were copied from; None if it is that folder itself."""
    tree: str | None = None
    """Digest of all of its files; None if they are unknown."""
    files: Sequence[Any] | None = None
    """All files, in the form of `divebook.workspace.snapshots.take`; None if they are those of its source."""
    problems: Sequence[Mapping[str, Any]] | None = None
    """Files that the tree leaves out: ``path`` and ``reason``."""


@_event("files_changed", "workspace", "after")
@dataclass(frozen=True, slots=True)
class FilesChanged(Payload):
    """Files of a workspace changed, by a call that has just ended or from outside."""

    workspace: str = ""
    before: str | None = None
    after: str = ""
    """Digests of all files, before and after."""
    operation_id: str | None = None
    """The call that changed them; None if unknown."""
    cause: str | None = None
    """Another cause: ``outside``, ``restored``."""
    files: Sequence[Any] | None = None
    """The changed files, in the form of `divebook.workspace.snapshots.take`."""
    previous: int | None = None
    """Number of the previous event with files of the workspace."""
    changes: Sequence[Mapping[str, Any]] | None = None
    """For each file ``path``, ``kind`` (``added``, ``changed``, ``deleted``, ``renamed``), ``was``, ``added`` and
    ``removed`` lines; the first thousand."""
    count: int | None = None
    """Number of changed files."""
    beside: Sequence[str] | None = None
    """Other running calls in the workspace, which may have made some of the changes."""
    problems: Sequence[Mapping[str, Any]] | None = None
    """Files that the tree leaves out: ``path`` and ``reason``."""


@_event("egress_answered", "workspace", "host")
@dataclass(frozen=True, slots=True)
class EgressAnswered(Payload):
    """A command in a workspace requested a connection to an outside host."""

    workspace: str = ""
    host: str = ""
    port: int = 0
    refused: str | None = None
    """Reason of a refusal; None if it was connected."""
    operation_id: str | None = None
    """The running call; None if there were several."""


@_event("approval_rule_revoked", "rule_id")
@dataclass(frozen=True, slots=True)
class ApprovalRuleRevoked(Payload):
    """A rule for the approval of later calls was revoked."""

    rule_id: str = ""
    by: str | None = None
    message: int | None = None
    """Number of the message in the inbox that brought it."""


@_event("signal_received", "signal_type")
@dataclass(frozen=True, slots=True)
class SignalReceived(Payload):
    """A message from outside arrived."""

    signal_type: str = ""
    payload: Any = None
    source: str = ""
    """Name of the sender; for the end of a child execution, its id."""
    message: int | None = None
    """Number of the message in the inbox that brought it."""
