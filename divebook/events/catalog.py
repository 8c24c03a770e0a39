"""Every kind of event there is: one payload class each, checked when it is made.

`PAYLOADS` maps the wire name (``step_started``) to its class. The classes come in the order in which an execution
meets them. Values of type `Any` have been through `divebook.events.values.normalize`.
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
"""The statuses of an execution; `divebook.engine.lifecycle` says which follows which."""

RUN = "run"
RESUME = "resume"
FORK = "fork"
WHAT_IF = "what-if"
TRIAL = "trial"
CHILD = "child"
IMPORT = "import"
BOOK = "book"
ORIGINS = (RUN, RESUME, FORK, WHAT_IF, TRIAL, CHILD, IMPORT, BOOK)
"""What an execution may have come from."""
REUSE = "reuse"
UNEDITED = "unedited"
GOING_ON = frozenset({REUSE, UNEDITED})
"""Which results of its source one counts that goes on with another definition: all, or those of unedited functions."""
UNCOUNTED = frozenset({WHAT_IF, TRIAL})
"""Origins of executions that are no work of their own: totals leave them out."""
BADGED = UNCOUNTED | {FORK}
"""Origins that people are told wherever an execution is named."""
LEFT_ALONE = UNCOUNTED | {BOOK}
"""Origins of executions that nothing takes up by itself: they wait for ever, or only show something."""
ROLLBACK_PATH = "rollback-"
"""Begins the id of a path that undoes something; the number of that follows."""

PAYLOADS: dict[str, type[Payload]] = {}


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of an event; each subclass names its event type and the fields that must not be empty."""

    event_type: ClassVar[str] = ""
    required: ClassVar[tuple[str, ...]] = ()
    field_names: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[int] = 0
    """Version of what it looks like; `divebook.events.upcast` brings older ones up to date."""

    def __post_init__(self) -> None:
        for name in self.required:
            if not getattr(self, name):
                raise InvalidEventError(f"{self.event_type}: data validation failed: {name} is required")

    def to_data(self) -> dict[str, Any]:
        """Return the fields that hold something, ready to be encoded."""
        data: dict[str, Any] = {FORM: self.form} if self.form else {}
        for name in self.field_names:
            value = getattr(self, name)
            if value is not None:
                data[name] = value
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Payload:
        """Build the payload from plain data without wrong fields; keys that this version does not know are left out."""
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
    """First event: everything needed to carry the execution on without its notebook."""

    workflow_name: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    definition: Mapping[str, Any] | None = None
    """The workflow as plain data (`Workflow.to_dict`)."""
    fingerprint: str | None = None
    """SHA-256 of what the definition does, hexadecimal."""
    source: str | None = None
    """The text of the cell or file that defined it."""
    written_by: str | None = None
    """Version of divebook."""
    bounds: Mapping[str, Any] | None = None
    """What may be spent (`Bounds.to_dict`); without it there is no bound."""
    identity: Mapping[str, Any] | None = None
    """Who asked: ``user_id``, ``session_id``, ``request_id``, ``metadata``."""
    parent: str | None = None
    """The execution that this one came from: a child's waits for its end, a fork's is what it was copied from."""
    origin: str | None = None
    """How it came about, one of `ORIGINS`; where nothing is said, a child if it has a parent, and else a plain run."""
    key: str | None = None
    """Unique in its store: a second start with it is refused, and names this execution."""
    tags: Sequence[str] | None = None
    note: str | None = None
    """What a person wants to remember of it."""
    notebook: str | None = None
    cell: str | None = None
    """The notebook and the cell that started it, where they are known."""
    seed: str | None = None
    """What the ids of its questions and the idempotency keys of its calls are made of, beside their places.

    A copy under another id keeps it.
    """
    code: Mapping[str, str] | None = None
    """Digests of the Python functions that it may call, by kind and name (`divebook.workflow.code`)."""
    model: str | None = None
    """The model of all its agents, if the start named one in place of theirs."""
    state: Mapping[str, Any] | None = None
    """The variables that it begins with: those of the execution that goes on as this one."""

    @property
    def came_from(self) -> str:
        """How it came about, one of `ORIGINS`."""
        return self.origin or (CHILD if self.parent else RUN)


@_event("execution_forked", "source", "workflow_name")
@dataclass(frozen=True, slots=True)
class ExecutionForked(Payload):
    """The log goes on apart from that of its source, whose events up to `at` it shares; what was in flight is dropped.

    It is an opening as `ExecutionStarted` is one: what it leaves out is as the opening before it says
    (`divebook.engine.forks.opened_as`).
    """

    source: str = ""
    """The execution whose first events these are."""
    at: int = 0
    """The last event of the source that counts."""
    workflow_name: str = ""
    previous: int = 1
    """The number of the opening before this one."""
    change: Mapping[str, Any] | None = None
    """What is otherwise from here on (`divebook.engine.forks.Change`), but for definition and model."""
    origin: str | None = None
    """How it came about, one of `ORIGINS`; where nothing is said, a fork."""
    definition: Mapping[str, Any] | None = None
    """The workflow from now on."""
    text: str | None = None
    """The text of the cell or file that defined that."""
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
    """What the ids of its source's questions are made of: a question that was answered there is not asked again."""
    code: Mapping[str, str] | None = None
    """Digests of its Python functions from now on, where they are not those of its source."""
    model: str | None = None
    tools: str | None = None
    """Of what is answered from its source also behind `at`. What-ifs and trials may execute actions and tools:
    ``recorded`` (none), ``read-only`` or ``live``. What goes on with another definition executes all that its source
    has no result for, ``reuse``, or no result of functions that are as they were, ``unedited``."""
    only: Mapping[str, Any] | None = None
    """Of a trial alone: what is done, the ``step`` of a ``path`` as its ``visit``, or of that one ``item``."""
    awaited_by: str | None = None
    """The execution that waits for its end: a what-if that asks for another workflow otherwise than its source did, or
    what goes on with another definition and asks for one that had not completed."""

    @property
    def parent(self) -> str:
        """The execution that it came from, and that does not wait for it; of a child the one that does."""
        return self.awaited_by or self.source if self.came_from == CHILD else self.source

    @property
    def came_from(self) -> str:
        """How it came about, one of `ORIGINS`."""
        return self.origin or FORK


@_event("execution_resumed")
@dataclass(frozen=True, slots=True)
class ExecutionResumed(Payload):
    """The execution was resumed; failed and cancelled paths go back to the start of their step."""

    previous_status: str = RUNNING
    bounds: Mapping[str, Any] | None = None
    """New bounds, if the resumption gave some."""
    recovery: int | None = None
    """How many times in a row it was resumed automatically without progress; None where a person resumed it."""
    code: Mapping[str, str] | None = None
    """Digests of its Python functions from now on, where they are not those that it was started with."""


@_event("execution_paused")
@dataclass(frozen=True, slots=True)
class ExecutionPaused(Payload):
    """Nothing more begins until the execution is resumed; what was under way has ended or is made again."""

    reason: str = ""


@_event("execution_enqueued", "queue")
@dataclass(frozen=True, slots=True)
class ExecutionEnqueued(Payload):
    """The execution waits for a worker: it is to begin, or was given back by one that drains."""

    queue: str = ""
    priority: int = 0
    """Of those that wait in a queue, higher ones are taken first."""
    due: int | None = None
    """When it may be taken at the earliest, microseconds since 1970; None for at once."""


@_event("execution_completed")
@dataclass(frozen=True, slots=True)
class ExecutionCompleted(Payload):
    """Last event of a successful execution."""

    outputs: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, int] | None = None


@_event("rollback_started")
@dataclass(frozen=True, slots=True)
class RollbackStarted(Payload):
    """The execution has failed or was cancelled: what its steps have done is undone, the latest first, before it ends.

    Each is undone on a path of its own (`PathStarted.rollback`).
    """

    error: str = ""
    """Error, or reason of the cancellation, with which it ends then."""
    reason: str | None = None
    """As in `ExecutionFailed`."""
    cancelled: bool = False


@_event("execution_failed", "error")
@dataclass(frozen=True, slots=True)
class ExecutionFailed(Payload):
    """Last event of an execution that failed."""

    error: str = ""
    reason: str | None = None
    """Why, as one of `TerminalReason`, where it is not simply that a step failed."""


@_event("execution_cancelled")
@dataclass(frozen=True, slots=True)
class ExecutionCancelled(Payload):
    """Last event of an execution that was cancelled."""

    reason: str = ""


@_event("execution_continue_as_new", "new_execution_id", "reason")
@dataclass(frozen=True, slots=True)
class ExecutionContinuedAsNew(Payload):
    """The execution goes on under another id, with a fresh log."""

    new_execution_id: str = ""
    reason: str = ""
    new_inputs: Mapping[str, Any] | None = None
    state_transfer: Mapping[str, Any] | None = None


@_event("execution_moved")
@dataclass(frozen=True, slots=True)
class ExecutionMoved(Payload):
    """Last event of an execution that goes on elsewhere, under the same id."""

    destination: str = ""
    """Where it went: the file that its log was written to."""


@_event("execution_pictured", "status")
@dataclass(frozen=True, slots=True)
class ExecutionPictured(Payload):
    """Last event of a copy, made by an import, of an execution that had not ended: only the original may go on."""

    status: str = ""
    """What the original was doing when it was exported."""


# --- paths ---------------------------------------------------------------------------------------------------------


@_event("path_started", "current_step")
@dataclass(frozen=True, slots=True)
class PathStarted(Payload):
    """A line of progress begins at `current_step`."""

    current_step: str = ""
    rollback: int | None = None
    """Which of the things that are to be undone it undoes, counted from 1; None for any other path."""


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
    """A path has come to a `Join` step and waits for those that may still come."""

    join_step: str = ""


@_event("path_joined", "current_step")
@dataclass(frozen=True, slots=True)
class PathJoined(Payload):
    """A waiting path goes on alone, for itself and for the `joined` paths, which have completed."""

    current_step: str = ""
    joined: Sequence[str] = ()


@_event("path_completed", "final_step")
@dataclass(frozen=True, slots=True)
class PathCompleted(Payload):
    """A path has nowhere further to go, has branched, or was joined into another."""

    final_step: str = ""


@_event("path_failed", "error")
@dataclass(frozen=True, slots=True)
class PathFailed(Payload):
    """A path ended with an error."""

    error: str = ""
    reason: str | None = None
    """Why, as one of `TerminalReason`, where it is not simply that a step failed."""


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
    """What a step, an item of it or a call has done is undone by a call if the execution fails or is cancelled."""

    action: str = ""
    """Name of what is called."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "action"
    """Whether that is an action, or a function given to ``@step(rollback=...)``."""
    function: str | None = None
    """Module and qualified name of such a function: others may have its name."""


@_event("step_failed", "error")
@dataclass(frozen=True, slots=True)
class StepFailed(Payload):
    """A step, or the choice of what follows it, ended with an error."""

    error: str = ""
    operations: Sequence[str] | None = None
    """Ids of the operations whose failure ended the step of a function: a resumption carries out these again."""
    iteration_index: int | None = None
    """The item of `Each` that failed."""
    trace: str | None = None
    """Where in a person's code it was raised, unless a call of the step has that already."""
    error_names: Sequence[str] | None = None
    """The class of the error and those it derives from, likewise."""
    place: Mapping[str, Any] | None = None
    """The line that raised it, likewise: ``label`` in words, ``line``, and the ``lines`` around it from ``first``."""


@_event("step_retried")
@dataclass(frozen=True, slots=True)
class StepRetried(Payload):
    """An attempt failed; the next one begins after `delay` seconds."""

    attempt: int = 1
    """The attempt that failed, from 1."""
    error: str = ""
    delay: float = 0.0
    iteration_index: int | None = None
    key: str | None = None
    """The call that is made again, where a function makes several."""


@_event("step_caught", "target")
@dataclass(frozen=True, slots=True)
class StepCaught(Payload):
    """A step has failed for good; its path goes to `target` and not on to failure."""

    target: str = ""
    error: str = ""


@_event("condition_evaluated", "condition", "target")
@dataclass(frozen=True, slots=True)
class ConditionEvaluated(Payload):
    """The condition of an edge to `target` came out as `result`."""

    condition: str = ""
    target: str = ""
    result: bool = False


def _check_index(payload: IterationStarted | IterationCompleted | IterationFailed | RowsCompleted) -> None:
    if payload.iteration_index < 0:
        raise InvalidEventError(f"{payload.event_type}: data validation failed: iteration_index must not be negative")


@_event("iteration_started")
@dataclass(frozen=True, slots=True)
class IterationStarted(Payload):
    """`Each` begins one item."""

    iteration_index: int = -1
    item: Any = None
    item_key: str | None = None
    total: int | None = None
    """How many items there are, with the first one that a process begins."""

    def __post_init__(self) -> None:
        _check_index(self)


@_event("iteration_completed")
@dataclass(frozen=True, slots=True)
class IterationCompleted(Payload):
    """`Each` is done with one item; `result` is its text."""

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
    """What the step has for the item nevertheless: its error as data, or that it was skipped."""
    trace: str | None = None
    place: Mapping[str, Any] | None = None
    """As for `StepFailed`, unless a call of the item has them already."""

    def __post_init__(self) -> None:
        Payload.__post_init__(self)
        _check_index(self)


@_event("rows_completed", "operation_id")
@dataclass(frozen=True, slots=True)
class RowsCompleted(Payload):
    """Rows of a frame are done with: those of `Each` with `Rows` that have ended since the event before."""

    iteration_index: int = -1
    """Numbers these events within the step, from 0."""
    operation_id: str = ""
    """The call that was handed the range they are of."""
    result: Any = None
    """A frame: a row for each, by its position, with what it gave, or its ``error``."""
    rows: int = 0
    failed: int = 0
    """How many of them have an error."""
    total: int = 0
    """How many rows the frame has."""

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
    """Digest of `parameters`; compared when the operation is met again."""
    iteration_index: int | None = None
    key: str | int | None = None
    """Its place within the step: a number in order of calls, or a name such as a tool-call id."""
    reserved: Mapping[str, int] | None = None
    """What it may consume at most, counted as spent until it has ended: ``tokens``, ``cost`` in nanodollars."""
    name: str | None = None
    """What is called: the action, agent, function, workflow or signal."""
    setting: Mapping[str, Any] | None = None
    """What the call is made with and is kept for readers only, never compared: what differs from the request before."""
    setting_hash: str | None = None
    """Digest of the whole setting."""
    within: int | None = None
    """Number of the event with which the operation began that holds this one."""
    undone: str | None = None
    """Where what it does is undone if the execution fails later or is cancelled: whether its end has its undoing, as a
    ``call`` of ``@step``, or that of its ``step``, or of its item."""


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
    """What an execution that has ended had handed on to others that were under way, as in `OperationStarted`."""
    served: Mapping[str, Any] | None = None
    """In a what-if, where the result is from, since the call was not made: ``execution`` and ``sequence`` of another
    log, or ``blocked``, which says why there is none."""


@_event("operation_failed", "operation_id", "operation_type", "error")
@dataclass(frozen=True, slots=True)
class OperationFailed(Payload):
    """The call raised; `duration` in nanoseconds."""

    operation_id: str = ""
    operation_type: str = ""
    duration: int = 0
    error: str = ""
    error_names: Sequence[str] | None = None
    """The class of the error and those it derives from, so that policies that name one fit after a restart as well."""
    usage: Mapping[str, int] | None = None
    """What was consumed all the same."""
    raised: Mapping[str, Any] | None = None
    """What makes the same error again: ``types`` as ``module:name``, ``args`` and ``fields``; and its ``place``, as of
    `StepFailed`."""
    trace: str | None = None
    """Where in a person's code it was raised, the innermost call last."""
    held: Mapping[str, int] | None = None
    served: Mapping[str, Any] | None = None
    """As for `OperationCompleted`, both."""
    final: bool | None = None
    """Whether the execution that was started cannot go on, since it was rolled back: another begins in its place."""
    lost: Mapping[str, str] | None = None
    """The result of a call that took effect, where the log cannot hold it: ``type``, ``text`` (cut, without secrets)
    and ``digest``. A resumption asks what its result was, and does not make the call again unasked."""


@_event("time_accessed", "accessed_at", "value")
@dataclass(frozen=True, slots=True)
class TimeAccessed(Payload):
    """Code read the clock; beside the operation of type ``time_access`` that holds it for replay."""

    accessed_at: str = ""
    value: str = ""


@_event("random_generated", "method")
@dataclass(frozen=True, slots=True)
class RandomGenerated(Payload):
    """Code used chance; beside the operation of type ``random_generation`` that holds it for replay."""

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
    """Which version of a changed piece of workflow this execution follows."""

    change_id: str = ""
    version: int = 1
    min_version: int = 1
    max_version: int = 1
    selected_version: Any = None
    """What the old system called it, in logs that it wrote."""
    available_versions: Sequence[Any] | None = None
    reason: str | None = None


# --- questions -----------------------------------------------------------------------------------------------------


@_event("interrupt_raised", "interrupt_id", "kind")
@dataclass(frozen=True, slots=True)
class InterruptRaised(Payload):
    """A path asks and waits for the answer."""

    interrupt_id: str = ""
    kind: str = ""
    question: str = ""
    message: str | None = None
    """More than the question itself, for people."""
    data: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None
    """JSON schema of the value that is asked for."""
    operation_id: str | None = None
    """The operation that waits, if it is one: a call of unknown outcome, or the turn of an agent."""
    expires_at: int | None = None
    """Microseconds since 1970; without it the question never expires."""
    default: Mapping[str, Any] | None = None
    """The response that holds once the question has expired; without one the step fails then."""
    optional: bool | None = None
    """Whether an empty answer will do."""


@_event("interrupt_joined", "interrupt_id")
@dataclass(frozen=True, slots=True)
class InterruptJoined(Payload):
    """Another path waits for the answer to a question that has been asked already."""

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
    """As for `OperationCompleted`, where nobody was asked."""


@_event("interrupt_expired", "interrupt_id")
@dataclass(frozen=True, slots=True)
class InterruptExpired(Payload):
    """A question expired without an answer; its default holds, if it has one."""

    interrupt_id: str = ""
    message: int | None = None
    """Number of the message in the inbox that settled that the time was up."""
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
        key: Any = self.key  # whatever a log or a caller has
        if not isinstance(key, str) or not key:
            raise InvalidEventError("state_mutated: data validation failed: key is required, and must be text")

    def to_data(self) -> dict[str, Any]:
        """Return the change as plain data; a deletion carries no value."""
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
    """An event of a person's own: ``ctx.emit("name", data)`` in a workflow function, ``context.emit`` in an action."""

    name: str = ""
    data: Any = None
    operation_id: str | None = None
    """Of its place in a workflow function, which asks for it again whenever it runs again."""
    parameters_hash: str | None = None


@_event("approval_rule_added", "rule_id", "outcome", "tool")
@dataclass(frozen=True, slots=True)
class ApprovalRuleAdded(Payload):
    """A person made a rule for calls to come."""

    rule_id: str = ""
    outcome: str = ""
    tool: str = ""
    """Name of the tool, action or step."""
    kind: str | None = None
    """``action`` or ``step``; without it, ``tool``."""
    agent: str | None = None
    server: str | None = None
    arguments: Mapping[str, Any] | None = None
    """What the arguments must be, by name."""
    scope: str | None = None
    """``run`` or ``always``."""
    expires_at: int | None = None
    """Microseconds since 1970."""
    question: str | None = None
    """Id of the question whose answer made it."""
    by: str | None = None


@_event("execution_annotated")
@dataclass(frozen=True, slots=True)
class ExecutionAnnotated(Payload):
    """What a person says of the execution, at any time, also after its end; nothing that it does depends on it."""

    tags: Sequence[str] | None = None
    """Tags that it has from now on."""
    untagged: Sequence[str] | None = None
    """Tags that it has no more."""
    note: str | None = None
    """Its note from now on; empty for none."""
    labels: Mapping[str, Any] | None = None
    """Labels by name, in place of those of that name; None takes one away."""
    by: str | None = None
    message: int | None = None
    """Number of the message in the inbox that brought it."""


@_event("workspace_opened", "workspace", "kind")
@dataclass(frozen=True, slots=True)
class WorkspaceOpened(Payload):
    """The execution begins to use a workspace: where it is, and which files it has there."""

    workspace: str = ""
    """The name of its definition."""
    kind: str = ""
    """Where its commands run: ``local``, ``fenced``, ``virtualenv``."""
    reference: Mapping[str, Any] = field(default_factory=dict)
    """What it is found again by after a restart: its folder, its container; empty where it has no place yet, since what
    works there was answered from another log."""
    source: str | None = None
    """The folder that its files are a copy of; None where it is that folder itself."""
    tree: str | None = None
    """Digest of all of its files; None where nothing is known of them."""
    files: Sequence[Any] | None = None
    """All of them, as `divebook.workspace.snapshots.take` writes them; None where they are those of its source."""
    problems: Sequence[Mapping[str, Any]] | None = None
    """Files that the tree leaves out: ``path`` and ``reason``."""


@_event("files_changed", "workspace", "after")
@dataclass(frozen=True, slots=True)
class FilesChanged(Payload):
    """Files of a workspace are others than they were: by a call that has ended just before, or from outside."""

    workspace: str = ""
    before: str | None = None
    after: str = ""
    """Digests of all files, before and after."""
    operation_id: str | None = None
    """The call that did it; None where that is not known."""
    cause: str | None = None
    """What else did it: ``outside``, ``restored``."""
    files: Sequence[Any] | None = None
    """Those that are others, as `divebook.workspace.snapshots.take` writes them."""
    previous: int | None = None
    """The event that had the files before."""
    changes: Sequence[Mapping[str, Any]] | None = None
    """Of each file ``path``, ``kind`` (``added``, ``changed``, ``deleted``, ``renamed``), ``was``, ``added`` and
    ``removed`` lines; the first thousand."""
    count: int | None = None
    """How many files there are of them."""
    beside: Sequence[str] | None = None
    """Other calls that were under way in the workspace, whose changes may be among them."""
    problems: Sequence[Mapping[str, Any]] | None = None
    """Files that the tree leaves out: ``path`` and ``reason``."""


@_event("egress_answered", "workspace", "host")
@dataclass(frozen=True, slots=True)
class EgressAnswered(Payload):
    """A command in a workspace has asked for a host outside."""

    workspace: str = ""
    host: str = ""
    port: int = 0
    refused: str | None = None
    """Why it was not connected; None where it was."""
    operation_id: str | None = None
    """The call that was under way; None where there were several."""


@_event("approval_rule_revoked", "rule_id")
@dataclass(frozen=True, slots=True)
class ApprovalRuleRevoked(Payload):
    """A rule for calls to come holds no more."""

    rule_id: str = ""
    by: str | None = None
    message: int | None = None
    """Number of the message in the inbox that brought it."""


@_event("signal_received", "signal_type")
@dataclass(frozen=True, slots=True)
class SignalReceived(Payload):
    """A message came from outside."""

    signal_type: str = ""
    payload: Any = None
    source: str = ""
    """The name of the sender; of the end of a child, the id of that."""
    message: int | None = None
    """Number of the message in the inbox that brought it."""
