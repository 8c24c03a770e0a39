"""Replayer: moves through a recorded log event by event, forwards and backwards, and returns the state of the execution
at each event.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from divebook.definitions.definition import Workflow
from divebook.engine.evolve import evolve, fold
from divebook.engine.operations import AGENT_RESPONSE, CACHED_RESPONSE
from divebook.engine.state import ExecutionState, PathState
from divebook.errors import DivebookError, NotFoundError
from divebook.events import Event
from divebook.events.catalog import (
    PAYLOADS,
    ExecutionFailed,
    ExecutionForked,
    InterruptRaised,
    IterationFailed,
    OperationFailed,
    OperationStarted,
    PathFailed,
    StateMutated,
    StepFailed,
    StepStarted,
)
from divebook.events.recorded import garbage_collection_paused, opened
from divebook.projections.model_requests import CallMessage, RequestView, requests_of
from divebook.runtime.run import Run

# --- states of a log by position --------------------------------------------------------------------------------------
#
# Steps back cost the same as steps forward. A state is kept every 256 events (states share their structure, so that
# this costs little memory), and events are read from the store in blocks when needed. Example: position 700 is the kept
# state 512 with the events 513 to 700 folded into it; the states in between stay in the block, so that position 699 is
# available at once. A list of all events and states would make each full garbage collection take longer than the rest.


KEPT_EVERY = 256
"""Number of events between two kept states, and in a block."""
BLOCKS = 4
"""Number of blocks in memory, those used last, so that repeated steps across the border of two blocks are cheap."""
READ_ON = 4096
"""Number of events per read when many are needed in order."""

Read: TypeAlias = Callable[[int, int], Sequence[Event]]
"""Function that returns the events after a sequence number, up to a limit."""


@dataclass(slots=True)
class _Block:
    """Block of consecutive events of a log, with the states of the execution that were computed for them."""

    events: Sequence[Event]
    states: list[ExecutionState]


class Positions:
    """Events of one log, and states of its execution, by position. Position 0 is before the first event, position n is
    after event n.

    Parameters
    ----------
    read
        Function that reads events of the log. It may be called from any thread.
    total
        Function that returns the current number of events.

    Examples
    --------
    >>> from divebook.events import Event, catalog
    >>> positions = Positions.of([Event("event_1", "exec_1", 1, 1, catalog.ExecutionStarted("demo", {"x": 1}))])
    >>> positions.state_at(0).status, positions.state_at(1).status
    ('pending', 'running')
    """

    def __init__(
        self, execution_id: str, read: Read, total: Callable[[], int], *, kept_every: int = KEPT_EVERY
    ) -> None:
        self.execution_id = execution_id
        self._read = read
        self._total = total
        self._every = kept_every
        self._kept = [ExecutionState(execution_id)]
        """States after events 0, `kept_every`, 2 `kept_every` ... as far as they were computed."""
        self._front = self._kept[0]
        """State after the last folded event."""
        self._blocks: dict[int, _Block] = {}
        # The states and blocks are shared by all threads that use these positions.
        self._lock = threading.RLock()

    @classmethod
    def of(cls, events: Sequence[Event], *, kept_every: int = KEPT_EVERY) -> Positions:
        """Create the positions for a list of events. The list may grow later."""
        execution_id = events[0].execution_id if events else ""
        return cls(
            execution_id,
            lambda after, limit: events[after : after + limit],
            lambda: len(events),
            kept_every=kept_every,
        )

    @property
    def total(self) -> int:
        """Current number of events in the log."""
        return self._total()

    def state_at(self, sequence: int) -> ExecutionState:
        """Return the state of the execution after the event with the given number; for 0, the state before the first
        event.

        Raises
        ------
        IndexError
            The event does not exist.
        CorruptStoreError
            An event up to this position contradicts the events before it.
        """
        if not 0 <= sequence <= self.total:
            raise IndexError(
                f"there is no position {sequence}: the log has {self.total} events; choose 0 to {self.total}"
            )
        # 700 -> block 2, place 188 (256 events per block).
        number, place = divmod(sequence, self._every)
        with self._lock:
            # Computes the kept state at the border of the block, which is the first of its states.
            self._fold_to(number * self._every)
            block = self._block(number, place)
            states = block.states
            # `states[0]` is before the block, so that `states[i]` belongs to `events[i - 1]`.
            for event in block.events[len(states) - 1 : place]:
                states.append(evolve(states[-1], event))
            return states[place]

    def event_at(self, sequence: int) -> Event:
        """Return the event with the given number. Raise `IndexError` if the log does not have it."""
        if not 1 <= sequence <= self.total:
            raise IndexError(f"there is no event {sequence}: the log has {self.total} events; choose 1 to {self.total}")
        # Event 256 is the last one of block 0, not the first one of block 1.
        number, place = divmod(sequence - 1, self._every)
        with self._lock:
            return self._block(number, place + 1).events[place]

    def events(self, after: int = 0, stop: int | None = None) -> Sequence[Event]:
        """Return the events that follow the event number `after`, up to and including the event number `stop` (by
        default, the last one).

        If the events follow directly after the events that are already folded, they are folded too, so that later
        look-ups of states are fast. An event that contradicts the log raises no error here, but only in `state_at`.
        """
        last = self.total if stop is None else stop
        events = self._read(after, max(0, last - after))
        with self._lock, suppress(DivebookError):
            self._fold(events)
        return events

    def onwards(self, after: int) -> Iterator[Event]:
        """Yield the events that follow the event number `after`, up to the current end of the log."""
        for begins in range(after, self.total, READ_ON):
            yield from self._read(begins, READ_ON)

    def backwards(self, before: int) -> Iterator[Event]:
        """Yield the events that precede the event number `before`, the newest first."""
        stop = min(before - 1, self.total)
        # The nearest event that fits is usually close, so that the first read is small.
        size = self._every
        while stop > 0:
            begins = max(0, stop - size)
            yield from reversed(self._read(begins, stop - begins))
            stop = begins
            size = READ_ON

    def _block(self, number: int, events: int) -> _Block:
        """Return one of the blocks of consecutive events into which the log is divided, by its number. The block has at
        least `events` events, unless the log is too short.

        Its list of states begins with the kept state before the block, if that was computed.
        """
        # `pop` and the insertion below move the block to the end of the dict, whose first entry is then the one used
        # longest ago.
        block = self._blocks.pop(number, None)
        # A block at the end of a growing log was read when it had fewer events. Its states stay valid.
        if block is None or len(block.events) < events:
            states = block.states if block is not None else []
            block = _Block(self._read(number * self._every, self._every), states)
        if not block.states and number < len(self._kept):
            block.states.append(self._kept[number])
        self._blocks[number] = block
        while len(self._blocks) > BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        return block

    def _fold_to(self, sequence: int) -> None:
        with garbage_collection_paused():
            while (last := self._front.last_sequence) < sequence:  # no further: what follows may be damaged
                self._fold(self._read(last, min(READ_ON, sequence - last)))

    def _fold(self, events: Sequence[Event]) -> None:
        """Compute the states after some events, starting from the newest computed state. Do nothing if events between
        that state and the given events are missing. The state at each border between two blocks of events is kept.
        """
        # Index of the first event that is not folded yet. A negative index means a gap before the events: nothing is
        # folded.
        begins = self._front.last_sequence - (events[0].sequence - 1 if events else 0)
        while 0 <= begins < len(events):
            # Folding stops at each border of a block, so that the state there can be kept.
            ends = begins + self._every - self._front.last_sequence % self._every
            self._front = fold(self.execution_id, events[begins:ends], self._front)
            if self._front.last_sequence == len(self._kept) * self._every:
                self._kept.append(self._front)
            begins = ends


# --- conditions on events ---------------------------------------------------------------------------------------------


Fits: TypeAlias = Callable[[Event], bool]

FAILURES = (OperationFailed, IterationFailed, StepFailed, PathFailed, ExecutionFailed)
MODEL_CALLS = (AGENT_RESPONSE, CACHED_RESPONSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Conditions on the event at which a replayer stops moving. All of them must hold.

    Raises
    ------
    NotFoundError
        The type of event does not exist.
    ValueError
        No condition is given.
    """

    where: Fits | None = None
    """Function that returns True if an event fits."""
    step: str | None = None
    """Name of the step of the event."""
    path: str | None = None
    """Id of the path of the event."""
    event: str | None = None
    """Type of the event, such as ``step_completed``."""
    operation: str | None = None
    """Name of the action, agent, function, workflow or signal of an operation that starts, or type of the operation."""
    error: bool = False
    """True to stop at failures."""
    question: bool = False
    """True to stop at questions to a person."""
    model_call: bool = False
    """True to stop at requests to models."""
    changed: str | None = None
    """Name of a variable that is set or deleted."""

    def __post_init__(self) -> None:
        # Each default means "no condition", so that an instance with only defaults would stop at every event.
        if all(getattr(self, field.name) == field.default for field in fields(self)):
            raise ValueError("no stop condition; give one of step=, event=, operation=, error=True ...")
        if self.event is not None and self.event not in PAYLOADS:
            raise NotFoundError("event type", self.event, PAYLOADS)

    def fits(self, event: Event) -> bool:
        """Return True if all conditions hold for an event."""
        data = event.data
        return (
            (self.step is None or event.step == self.step)
            and (self.path is None or event.path == self.path)
            and (self.event is None or event.event_type == self.event)
            and (self.operation is None or _calls(event, self.operation))
            and (not self.error or isinstance(data, FAILURES))
            and (not self.question or isinstance(data, InterruptRaised))
            and (not self.model_call or asks_model(event))
            and (self.changed is None or _sets(event, self.changed))
            and (self.where is None or bool(self.where(event)))
        )


def asks_model(event: Event) -> bool:
    """Return True if an event records the start of a request to a model."""
    return isinstance(event.data, OperationStarted) and event.data.operation_type in MODEL_CALLS


def _calls(event: Event, name: str) -> bool:
    return isinstance(event.data, OperationStarted) and name in (event.data.name, event.data.operation_type)


def _sets(event: Event, variable: str) -> bool:
    match event.data:
        case StateMutated(mutations=mutations):
            return any(mutation.key == variable for mutation in mutations)
        # A fork changes variables without a `state_mutated` event.
        case ExecutionForked(change={"variables": Mapping() as variables}):
            return variable in variables
    return False


# --- differences between two states -----------------------------------------------------------------------------------


Kind: TypeAlias = Literal["added", "removed", "changed"]

_PARTS = ("status", "variables", "outputs", "paths", "questions", "usage", "error")
"""Parts of a state that are compared, in the order in which differences are reported."""
_ABSENT = object()


class Changed(NamedTuple):
    """One value that differs between two states of an execution, such as a variable."""

    where: str
    """Name of the value, such as ``variables.n``, ``paths.main.step`` or ``status``."""
    kind: Kind
    before: Any
    """Earlier value; None if the value was added."""
    after: Any
    """Later value; None if the value was removed."""


def changed_between(before: ExecutionState, after: ExecutionState) -> list[Changed]:
    """Return the differences between an earlier and a later state of an execution.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from divebook.engine.maps import Map
    >>> from divebook.engine.state import ExecutionState
    >>> old = ExecutionState("exec_1", variables=Map(n=1))
    >>> changed_between(old, replace(old, variables=Map(n=2)))
    [Changed(where='variables.n', kind='changed', before=1, after=2)]
    """
    return [change for part in _PARTS for change in _between(part, _part(before, part), _part(after, part))]


def _part(state: ExecutionState, part: str) -> Any:
    match part:
        case "paths":
            return {
                path.id: {"status": path.status, "phase": path.phase, "step": path.current_step, "error": path.error}
                for path in state.paths.values()
            }
        case "questions":
            return {question.id: str(question.status) for question in state.interrupts.values()}
        case "usage":
            return state.usage.to_dict()
    return getattr(state, part)


def _between(where: str, before: Any, after: Any) -> Iterator[Changed]:
    # Consecutive states share unchanged parts, so that most parts are skipped by identity. Types are compared as well,
    # because 1 == True == 1.0.
    if before is after:
        return
    # `variables` and `variables.x`: only the parts of a state and the paths are compared key by key. The value of a
    # variable is compared as a whole, even if it is a mapping.
    has_parts = where in _PARTS or (where.startswith("paths.") and where.count(".") == 1)
    if has_parts and isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            yield from _between(f"{where}.{name}", before.get(name, _ABSENT), after.get(name, _ABSENT))
        return
    if before is _ABSENT:
        # `lenient`: a value that cannot be opened here is shown in its recorded form.
        yield Changed(where, "added", None, opened(after, lenient=True))
    elif after is _ABSENT:
        yield Changed(where, "removed", opened(before, lenient=True), None)
    elif before != after or type(before) is not type(after):
        yield Changed(where, "changed", opened(before, lenient=True), opened(after, lenient=True))


# --- the latest request to a model ------------------------------------------------------------------------------------


def request_at(positions: Positions, position: int) -> RequestView | None:
    """Return the latest model request that started up to a position in a log, with the response received by then; None
    if there was no request.

    Only the events of the request's visit to its step are read, however long the log is.
    """
    # Events are read backwards from the position until the visit to the step of the latest request has begun. Example:
    # step_started 5, request 7, request 9, position 9: the events 9 to 5 are read, newest first.
    visit_events: list[Event] = []
    request_event: Event | None = None
    for event in positions.backwards(position + 1):
        visit_events.append(event)
        if request_event is None and asks_model(event):
            request_event = event
            # From the request on, only events of its path and step count; those that were read before are filtered
            # here.
            visit_events = [later for later in visit_events if (later.path, later.step) == (event.path, event.step)]
        elif request_event is not None and (event.path, event.step) != (request_event.path, request_event.step):
            # The event was added above, and belongs to another path or step.
            visit_events.pop()
        elif request_event is not None and isinstance(event.data, StepStarted):
            break
    if request_event is None:
        return None
    return next(
        (view for view in requests_of(reversed(visit_events)) if request_event.sequence in view.span.sequences),
        None,
    )


class LogWalk:
    """Position in the log of a run, which can be moved from event to event. Base class of `Replayer`, and of the widget
    for stepping through a run.
    """

    _positions: Positions
    _workflow: Workflow | None = None
    """Workflow of the execution; None if it is not known."""
    _position = 0

    # --- movement --------------------------------------------------------------------------------------------------

    def seek(self, sequence: int) -> Self:
        """Move to a position; return this object. Raise `IndexError` if the log has no such position."""
        self._positions.state_at(sequence)
        self._position = sequence
        self._moved()
        return self

    def step_forward(self) -> Self:
        """Move forward by one event, but not beyond the end of the log; return this object."""
        return self.seek(min(self._position + 1, self.total))

    def step_back(self) -> Self:
        """Move back by one event, but not before the first event; return this object."""
        return self.seek(max(self._position - 1, 0))

    def run_to(self, where: Fits | None = None, **stop: Any) -> Self | None:
        """Move forward to the next event for which all given conditions hold; return this object.

        If no event fits, return None and do not move.

        Parameters
        ----------
        where
            Function that returns True if an event fits, such as ``lambda event: "limit" in str(event.data)``.
        **stop
            Conditions, all of which the event must fulfil: ``step="parse"``, ``path="main"``,
            ``event="step_completed"``, ``operation="fetch"`` (a name that is called, or a type of operation),
            ``error=True``, ``question=True``, ``model_call=True``, ``changed="x"`` (variable x is set or deleted).

        Raises
        ------
        NotFoundError
            The workflow has no such step, or the type of event does not exist.
        ValueError
            No condition is given.
        """
        return self._run(self._stop(where, stop), self._positions.onwards(self._position))

    def run_back_to(self, where: Fits | None = None, **stop: Any) -> Self | None:
        """Move back to the nearest earlier event for which all given conditions hold; arguments and result as in
        `run_to`.
        """
        return self._run(self._stop(where, stop), self._positions.backwards(self._position))

    def _stop(self, where: Fits | None, stop: dict[str, Any]) -> Stop:
        step_name = stop.get("step")
        steps = [] if self._workflow is None else [step.name for step in self._workflow.steps]
        if step_name is not None and steps and step_name not in steps:
            raise NotFoundError("step", step_name, steps)
        return Stop(where=where, **stop)

    def _run(self, stop: Stop, events: Iterable[Event]) -> Self | None:
        sequence = next((event.sequence for event in events if stop.fits(event)), None)
        return None if sequence is None else self.seek(sequence)

    def _moved(self) -> None:
        """Handle a change of the position. Does nothing here; subclasses that show the position override it."""

    # --- state at the position -------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """Current number of events of the log."""
        return self._positions.total

    @property
    def position(self) -> int:
        """Current position: the number of the event that happened last; 0 before the first event."""
        return self._position

    @property
    def event(self) -> Event | None:
        """Event at the current position; None before the first event."""
        return self._positions.event_at(self._position) if self._position else None

    @property
    def state(self) -> ExecutionState:
        """State of the execution after the event at the current position."""
        return self._positions.state_at(self._position)

    @property
    def variables(self) -> dict[str, Any]:
        """Variables of the workflow at the current position, sorted by name; a new copy each time."""
        return {name: opened(value, lenient=True) for name, value in sorted(self.state.variables.items())}

    @property
    def paths(self) -> dict[str, PathState]:
        """Paths of the execution at the current position, by id, oldest first."""
        return {path.id: path for path in sorted(self.state.paths.values(), key=lambda path: path.number)}

    @property
    def envelope(self) -> Any:
        """State of the pipeline request at the current position, as a `divebook.pipeline.Envelope`."""
        # Replay must not import the pipeline, which is a higher layer, so it is loaded when it is used.
        from divebook.pipeline.progress import envelope_of

        return envelope_of(self.state, self._workflow)

    @property
    def diff(self) -> list[Changed]:
        """Differences between the state at the current position and the state one event before."""
        return changed_between(self._positions.state_at(self._position - 1), self.state) if self._position else []

    @property
    def messages(self) -> list[CallMessage]:
        """Messages of the latest model request up to the current position, with the response so far.

        The list is empty before the first request.

        Only the events of the request's visit to its step are read, however long the log is.
        """
        request = request_at(self._positions, self._position)
        return [] if request is None else request.said


class Replayer(LogWalk):
    """Position in one recorded log, which can be moved event by event: 0 is before the first event, n is after event n.

    A replayer runs no code and writes nothing. If the execution still runs, the log and `total` grow.

    Parameters
    ----------
    steps
        The names of the workflow's steps, in the order of the definition.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> world = Environment(store="memory:")
    >>> steps = [Step("add", script="1 + 1", store="n"), Step("more", script="state.n * 2", store="n")]
    >>> replay = world.start(Workflow("sum", steps)).wait().replay()
    >>> replay.seek(replay.total).variables
    {'n': 4}
    >>> replay.run_back_to(changed="n").position, replay.diff[0].before, replay.diff[0].after
    (11, 2, 4)
    >>> replay.step_back().variables
    {'n': 2}
    """

    def __init__(self, positions: Positions, workflow: Workflow) -> None:
        self._positions = positions
        self._workflow = workflow

    def __repr__(self) -> str:
        event = self.event
        at = "before the first event" if event is None else f"{event.event_type} {event.step}".strip()
        return f"<LogWalk of {self._positions.execution_id} at {self._position:,} of {self.total:,}: {at}>"


def replayer_of(execution: Run) -> Replayer:
    """Return a replayer for the log of an execution, at position 0."""
    return Replayer(positions_of(execution), execution.workflow)


def positions_of(execution: Run) -> Positions:
    """Return the `Positions` (events and states by number) of the log of an execution. They grow with the log."""
    store = execution.store
    name = execution.id
    # The length of the history is asked for each time, so that positions follow a running execution.
    return Positions(name, lambda after, limit: store.read(name, after, limit), lambda: len(execution.history()))
