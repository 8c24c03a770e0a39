"""Forks: fork points, the shared first events of a fork, recorded definitions, and recorded calls of changed functions.

A fork is an execution that shares the first events of another execution and runs live after them. Shared records are
not copied. Only if the fork point is inside a record, the beginning of this record is copied (`first_batch`).

Operations that started in the source and have no end there are dropped (`divebook.engine.forks`). The fork therefore
makes such a call again without asking a person, even if the call is not idempotent (`tests/runtime/test_forks.py`).

The default fork point is the latest event at which the requested change still takes effect (`point_of`). Example: event
7 completes call ``a``, and its result is to change. The fork shares events 1 to 6, so that ``a`` can end differently.

A second part finds the recorded calls of changed functions (`reached`), which decide where an edited run is forked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from divebook.definitions.definition import Sketch, Workflow, sketch_of
from divebook.definitions.functions import bind_changed
from divebook.definitions.json_schemas import FITTING
from divebook.engine.checkpoint import load_state
from divebook.engine.evolve import fold_records
from divebook.engine.forks import Change, forked_from, opened_as, snapped
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.operations import (
    ACTION_EXECUTION,
    AGENT_RESPONSE,
    CACHED_RESPONSE,
    STEP_EXECUTION,
    TOOL_CALL,
    operation_name,
)
from divebook.engine.state import ExecutionState, OpenStep, Undone, require_kept, undone_in
from divebook.errors import UNFIT, CorruptStoreError, NewerStoreError, SetupError, StoreError
from divebook.events import catalog
from divebook.events.event import Event, Record
from divebook.events.recorded import garbage_collection_paused, opened
from divebook.questions.answer import checked_answer
from divebook.questions.question import PENDING
from divebook.report.hints import advised
from divebook.stores.append import Batch, Durability
from divebook.stores.base import EventStore
from divebook.stores.history import PAGE, History
from divebook.stores.leases import Owner

# --- fork points -----------------------------------------------------------------------------------------------------


_FROM_EARLIER = frozenset({"inputs", "prompts", "model", "definition"})
"""The parts of a change that also take effect from any earlier event."""


class ForkSource:
    """Log that is to be forked. Its events are read when they are needed, and its states start from checkpoints.

    Parameters
    ----------
    events
        The events that count, if not all of the log: those before its first damaged event.
    """

    def __init__(self, store: EventStore, execution_id: str, events: Sequence[Event] | None = None) -> None:
        self._store = store
        self.execution_id = execution_id
        self._is_whole = events is None
        self.log: Sequence[Event] = store.history(execution_id) if events is None else events
        """The events, each read when it is accessed."""
        self._states: dict[int, ExecutionState] = {}

    @cached_property
    def events(self) -> Sequence[Event]:
        """All events, read at once, for a search in the whole log. They have no ids."""
        return self.log.at_once() if isinstance(self.log, History) and len(self.log) > PAGE else [*self.log]

    @cached_property
    def openings(self) -> Sequence[Event]:
        """Opening events: the start of the execution, and the event of each fork."""
        if self._is_whole:
            return recorded_openings(self.execution_id, self._store)
        return [
            event for event in self.log if isinstance(event.data, catalog.ExecutionStarted | catalog.ExecutionForked)
        ]

    def state_at(self, at: int) -> ExecutionState:
        """Return the state of the execution after event `at`."""
        if at not in self._states:
            earlier = max((number for number in self._states if number < at), default=0)
            self._states[at] = folded(self._store, self.execution_id, at, self._states.get(earlier))
        return self._states[at]

    def snapped(self, at: int) -> int:
        """Return the event nearest to `at` after which the execution can be forked; see
        `divebook.engine.forks.snapped`.
        """
        return snapped(self.log, at, self.state_at)

    def undone(self) -> Undone | None:
        """Return a description of the work that is rolled back or will be. Return None if no work is."""
        # The end of a rollback is a failure or a cancellation.
        if self._store.record(self.execution_id).status == catalog.COMPLETED:
            return None
        # A fork does not share the rollback of its source, so that the newest state tells whether there is one.
        is_rolled_back = self.state_at(len(self.log)).rolling_back is not None
        return undone_in(self.events) if is_rolled_back else None


def live_point_of(source: ForkSource, at: int | None, change: Change, *, reaching_back: bool = False) -> int:
    """Return the fork point (see `point_of`) for a fork that makes external calls. If it would lie inside or after work
    that was rolled back, it is moved to the event before that work.

    Raises
    ------
    SetupError
        As for `point_of`; or the change or the event requires effects that are already rolled back.
    """
    point = point_of(source, at, change, reaching_back=reaching_back)
    undone = source.undone()
    if undone is None or point <= undone.before:
        return point
    # Only a fork point that the caller did not choose is moved, and only if the whole change also takes effect
    # earlier.
    if at is not None or not _FROM_EARLIER.issuperset(change.named):
        require_kept(source.events, point)
    return point_before(source, undone.before)


def point_before(source: ForkSource, end: int) -> int:
    """Return the last possible fork point at or before event `end`. Events that were recorded together cannot be
    separated. If there is none, return the first possible one.
    """
    at = end = max(1, end)
    # Example: events 4 to 6 belong together and `end` is 5. `snapped` returns 6 for 5 and for 4, and 3 for 3.
    while (point := source.snapped(at)) > end and at > 1:
        at -= 1
    return point


def point_of(source: ForkSource, at: int | None, change: Change, *, reaching_back: bool = False) -> int:
    """Return the fork point: the sequence number of the last event that a fork shares with its source.

    With `at`, that is event `at`, moved to the end of the events recorded together with it. Otherwise it is the last
    event before the first changed result or answer. If the change has none, it is the end of the log. With
    `reaching_back`, it is instead the latest event from which the change takes full effect: for a variable the event
    that last set it, for a prompt the event before its step is first entered, for anything else event 1. If several
    apply, the first one is used.

    Raises
    ------
    SetupError
        The event does not exist. With `reaching_back` also: the log lacks the changed call, question or variable, or a
        variable is set again after the fork point of the rest of the change.
    """
    last = len(source.log)
    if at is not None:
        number: object = at  # user input may be of any type
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= last:
            raise SetupError(f"an execution can be forked only after one of its events, 1 to {last}, not {number!r}")
        return source.snapped(number)
    # Only results and answers are searched for in the log.
    ends = _before_ends(source.events, change) if change.results or change.answers else {}
    points = list(ends.values())
    if reaching_back:
        points += _before_effects(source, change, ends.keys())
        # The change needs one fork point for all its parts, so the earliest one is used.
        _require_one_point(source, change, min(points, default=1))
    return source.snapped(min(points, default=1 if reaching_back else last))


def _before_ends(events: Sequence[Event], change: Change) -> dict[str, int]:
    """Find where the operations and questions that a fork changes first ended or were first answered. Return by id the
    sequence number of the event before that, since the fork must begin there at the latest.
    """
    ends: dict[str, int] = {}
    results = change.results
    answers = change.answers
    for event in events:
        match event.data:
            case catalog.OperationCompleted() | catalog.OperationFailed() as data if data.operation_id in results:
                ends.setdefault(data.operation_id, event.sequence - 1)
            case catalog.InterruptResolved() as data if data.interrupt_id in answers:
                ends.setdefault(data.interrupt_id, event.sequence - 1)
    return ends


def _before_effects(source: ForkSource, change: Change, ended: Container[str]) -> Iterator[int]:
    """Yield the latest possible fork point for each part of a fork's change (an input, a prompt, a variable and so on):
    the last event after which a fork can begin so that this part still takes full effect.

    For inputs, model and definition that is event 1. For a prompt, it is the event before its step first starts. For a
    variable, an unfinished call or an open question, it is the event that last set or started it. Raises SetupError for
    a name that is not in the log.
    """
    # Event 1 starts the execution. Everything after it may depend on these parts.
    if change.inputs or change.model or change.definition:
        yield 1
    for step in change.prompts:
        entries = (e.sequence for e in source.events if isinstance(e.data, catalog.StepStarted) and e.step == step)
        yield next(entries, 2) - 1
    parts = [("variable", name) for name in change.variables]
    parts += [("operation", name) for name in change.results if name not in ended]
    parts += [("question", name) for name in change.answers if name not in ended]
    # The last event that set or started each part, because later entries replace earlier ones.
    events = source.events if parts else ()
    last = {part: event.sequence for event in events for part in _introduced_parts(event.data)}
    for kind, name in parts:
        if (kind, name) not in last:
            raise SetupError(
                f"{kind} {name!r} of execution {source.execution_id} cannot be changed, because its log has no "
                f"{kind} of that name; look at the events of the execution"
            )
        yield last[kind, name]


def _require_one_point(source: ForkSource, change: Change, at: int) -> None:
    """Raise `SetupError` if a variable that the fork changes is set again after event `at`, the fork point, so that its
    change would be lost.
    """
    for event in source.events[at:] if change.variables else ():
        for kind, name in _introduced_parts(event.data):
            if kind == "variable" and name in change.variables:
                raise SetupError(
                    f"the changes of the fork take effect after event {at}, but event {event.sequence} sets "
                    f"variable {name!r} again, so its new value would be lost. Make one change at a time, or choose "
                    "the event with at="
                )


def _introduced_parts(data: catalog.Payload) -> Iterator[tuple[str, str]]:
    """Yield the things in an event that a fork's change can name: the variables that it sets, and the operation or
    question that it starts. Each is a pair of kind and name.
    """
    match data:
        case catalog.StateMutated():
            yield from (("variable", mutation.key) for mutation in data.mutations if mutation.type == "set")
        case catalog.OperationStarted():
            yield "operation", data.operation_id
        case catalog.InterruptRaised():
            yield "question", data.interrupt_id


# --- recorded definitions --------------------------------------------------------------------------------------------
#
# The definition in the log, or for a log without one, a sketch of the entered steps.


def recorded_opening(execution_id: str, store: EventStore) -> catalog.ExecutionStarted:
    """Return the start event of an execution from the store, as if the execution had been started with the changes of
    its forks.

    Reads the opening events only.

    Raises
    ------
    ExecutionNotFoundError
        The execution does not exist.
    CorruptStoreError
        The log does not begin or continue correctly.
    """
    return opening_in(execution_id, recorded_openings(execution_id, store))


def recorded_openings(execution_id: str, store: EventStore) -> list[Event]:
    """Return the opening events of an execution from the store: its start, and the event of each fork. Errors are those
    of `recorded_opening`.
    """
    # Each fork event names the opening event before it, so the openings are read from the newest to the oldest.
    openings: list[Event] = []
    number = store.record(execution_id).opened
    # Example: the log of a fork of a fork has openings 1 (start), 8 and 20 (forks). 20 names 8, and 8 names 1.
    while not openings or (isinstance(openings[0].data, catalog.ExecutionForked) and number < openings[0].sequence):
        openings[:0] = store.read(execution_id, number - 1, 1)
        number = getattr(openings[0].data, "previous", 1) if openings else 1
    return openings


def opening_in(execution_id: str, events: Sequence[Event]) -> catalog.ExecutionStarted:
    """Return the start event among the first events of a log, as if the execution had been started with the changes of
    the forks among them.
    """
    forks = (event.data for event in events if isinstance(event.data, catalog.ExecutionForked))
    return opened_as(_first(execution_id, events), forks)


def recorded_workflow(execution_id: str, store: EventStore, opening: catalog.ExecutionStarted) -> Workflow:
    """Return the workflow definition of an execution from its start event, or a sketch from its log if the start event
    has no definition.
    """
    return workflow_in(execution_id, opening, () if opening.definition is not None else store.read(execution_id))


def workflow_in(execution_id: str, opening: catalog.ExecutionStarted, events: Sequence[Event]) -> Workflow:
    """Return the workflow definition in a start event, or a sketch made from `events` if the start event has no
    definition.
    """
    if opening.definition is None:
        return entered_workflow(opening.workflow_name, events)
    try:
        return Workflow.from_dict({**opening.definition, "source": opening.source or ""})
    except NewerStoreError:
        raise
    except UNFIT as error:
        raise CorruptStoreError(
            f"the definition in the log of execution {execution_id} cannot be read: {type(error).__name__}: {error}"
        ) from error


def _first(execution_id: str, events: Sequence[Event]) -> catalog.ExecutionStarted:
    opening = events[0].data if events else None
    if not isinstance(opening, catalog.ExecutionStarted):
        raise CorruptStoreError(
            f"the log of execution {execution_id} does not begin with execution_started; run `{advised('check')}`"
        )
    return opening


def entered_workflow(name: str, events: Sequence[Event]) -> Sketch:
    """Return a sketch of a workflow (its name, and the steps that some events have entered). A sketch cannot be run."""
    return sketch_of(name, ((e.step, e.data.step_type) for e in events if isinstance(e.data, catalog.StepStarted)))


# --- states ----------------------------------------------------------------------------------------------------------


SHORT_LOG = 1000
"""Events of a log that are folded at once, without a look for a checkpoint of another log."""


def folded(
    store: EventStore, execution_id: str, at: int = sys.maxsize, earlier: ExecutionState | None = None
) -> ExecutionState:
    """Return the state of an execution after event `at`, or the newest one. It is that of the last checkpoint until
    then, or a later one that is known (`earlier`), with the later events folded into it. For a fork without a
    checkpoint, the checkpoints of its source serve as well.
    """
    # Half of the time would be spent in the search for garbage, of which there is none.
    with garbage_collection_paused():
        state = _checkpointed_state(store, execution_id, at)
        if earlier is not None and (state is None or state.last_sequence < earlier.last_sequence):
            state = earlier
        if state is None:
            # The beginning first: only for a longer log a look for the source of a fork is worth its queries.
            state = _folded_on(store, execution_id, None, min(at, SHORT_LOG))
            if state.last_sequence < min(at, SHORT_LOG):
                return state
            state = _shared_state(store, execution_id, at) or state
        return _folded_on(store, execution_id, state, at)


def _folded_on(store: EventStore, execution_id: str, state: ExecutionState | None, at: int) -> ExecutionState:
    later = store.read_records(execution_id, 0 if state is None else state.last_sequence, at)
    # A record may continue after that event.
    return fold_records(execution_id, (record.until(at) for record in later), state)


def _shared_state(store: EventStore, execution_id: str, at: int) -> ExecutionState | None:
    """Return the state of a fork after the last event up to `at` that it shares with its source. Return None if the
    execution is not a fork, or if the source was deleted, or was replaced by another execution of its id.
    """
    try:
        forked = recorded_openings(execution_id, store)[-1].data
        if not isinstance(forked, catalog.ExecutionForked):
            return None
        source = forked.source
        end = min(at, forked.at)
        last_events = [store.read(name, end - 1, 1) for name in (execution_id, source)]
    except StoreError:  # damage is found when the log is read
        return None
    # Events have ids of their own, so the same last event proves that all are the same.
    shared, events_of_source = ([event.id for event in events] for events in last_events)
    return forked_from(folded(store, source, end), execution_id) if shared == events_of_source else None


def _checkpointed_state(store: EventStore, execution_id: str, at: int) -> ExecutionState | None:
    """Return the state in the newest checkpoint of an execution at or before event `at`. Return None if there is none,
    or if it does not match the log.
    """
    checkpoint = store.checkpoint(execution_id, at)
    if checkpoint is None:
        return None
    sequence, raw = checkpoint
    # Id and sequence number are compared as well, since a checkpoint is only a cache and may not match the log.
    state = load_state(raw, partial(store.facts, execution_id))
    return (
        state if state is not None and (state.execution_id, state.last_sequence) == (execution_id, sequence) else None
    )


# --- calls of changed functions ---------------------------------------------------------------------------------------


FUNCTION_KINDS = {ACTION_EXECUTION: "action", STEP_EXECUTION: "step"}
"""Kinds of functions in the labels of `divebook.definitions.functions`, by operation type."""

_ENDS = catalog.OperationCompleted | catalog.OperationFailed


class Epoch(NamedTuple):
    """Part of a log between two starts or resumptions. Within it the code of the user's functions did not change."""

    begins: int
    """Sequence number of its first event."""
    code: Mapping[str, str]


def epochs_of(events: Iterable[Event]) -> list[Epoch]:
    """Return the epochs of a log, oldest first: the parts in which the code of the user's functions did not change.

    A new epoch starts with each resumption, because functions may have changed. A person who resumes an ended execution
    accepts its past results. They count from then on as results of the functions at that time
    (`test_a_run_that_was_mended_is_shown_and_nothing_is_asked`).
    """
    epochs: list[Epoch] = []
    first_code: Mapping[str, str] = {}
    for event in events:
        if isinstance(event.data, catalog.ExecutionStarted):
            first_code = event.data.code or {}
            epochs.append(Epoch(event.sequence, first_code))
        elif isinstance(event.data, catalog.ExecutionForked):
            first_code = first_code if event.data.code is None else event.data.code
            # A fork runs with the code of its own time, and reuses the shared results as if that code had returned
            # them.
            epochs = [epoch._replace(code=first_code) for epoch in epochs]
        elif isinstance(event.data, catalog.ExecutionResumed):
            code = first_code if event.data.code is None else event.data.code
            # Who resumes an ended execution accepts its results, as if the present functions had returned them.
            if event.data.previous_status in TERMINAL:
                epochs = [epoch._replace(code=code) for epoch in epochs]
            epochs.append(Epoch(event.sequence, code))
    return epochs


def reused_calls_of(events: Sequence[Event], labels: Callable[[Epoch], Container[str]]) -> Iterator[tuple[int, str]]:
    """Yield the recorded calls of certain functions (such as changed ones) whose results would be reused. Each is a
    pair of the number of its start event and its operation id.

    `labels` returns the labels of these functions for an epoch.

    A call without an end, or whose failure ended an execution, is not yielded: resuming repeats it anyway.
    """
    repeated = made_again(events)
    # Results that a resumption reuses. A failed call that is repeated anyway needs no decision.
    counts = {data.operation_id for data in _payloads(events) if isinstance(data, _ENDS)} - repeated
    starts = [(event.sequence, event.data) for event in events if isinstance(event.data, catalog.OperationStarted)]
    # A call may have started several times. Only the result of its latest start counts.
    latest = {data.operation_id: sequence for sequence, data in starts}
    epochs = epochs_of(events)
    labels_of = {epoch.begins: labels(epoch) for epoch in epochs}
    for sequence, data in starts:
        epoch = max(other.begins for other in epochs if other.begins <= sequence)
        is_latest = latest[data.operation_id] == sequence
        if is_latest and data.operation_id in counts and _label(data) in labels_of[epoch]:
            yield sequence, data.operation_id


def calls_in(events: Iterable[Event]) -> int:
    """Return the number of completed operations among some events."""
    return sum(isinstance(data, catalog.OperationCompleted) for data in _payloads(events))


class Prefix(NamedTuple):
    """The first events of a log that a fork shares with its source: the last of these events, and the state and the
    workflow of the source at this event.
    """

    source: str
    at: int
    """Sequence number of its last event."""
    state: ExecutionState
    """State of the source after that event."""
    workflow: Workflow
    """Workflow of the source at that event."""
    opened: int
    """Sequence number of the newest opening event in it."""
    change: Change
    """The change with which the fork begins there: the requested one, and those of earlier forks after this point."""


def prefix_of(
    store: EventStore,
    source: str,
    at: int | None,
    change: Change,
    *,
    reaching_back: bool = False,
    is_live: bool = False,
) -> Prefix:
    """Return the first events of a log that a fork shares with its source, as a `Prefix`.

    If the log is damaged, events before the damage count. Damage before the checkpoint from which the state is read is
    not noticed, as when an execution is resumed. If the source is a fork itself, and the default fork point
    lies before the event with which it was forked, its own change is part of the new one.

    Parameters
    ----------
    at
        The event after which the execution is forked; None for the default of `divebook.runtime.forks.point_of`.
    is_live
        True if the fork makes calls after it.

    Raises
    ------
    SetupError
        The log has no such event; or an earlier fork after the default fork point changed variables.
    CorruptStoreError
        The log is damaged before the event, and after the checkpoint.
    """
    try:
        return _prefix(ForkSource(store, source), at, change, reaching_back=reaching_back, is_live=is_live)
    except (CorruptStoreError, NewerStoreError):
        events, damage = store.read_sound(source)
        # A fork before the damage is possible, because it needs only the events before its fork point.
        if damage is not None and (not events or (at is not None and at > len(events))):
            raise damage from None
        return _prefix(ForkSource(store, source, events), at, change, reaching_back=reaching_back, is_live=is_live)


def _prefix(source: ForkSource, at: int | None, change: Change, *, reaching_back: bool, is_live: bool) -> Prefix:
    find_point = live_point_of if is_live else point_of
    point = find_point(source, at, change, reaching_back=reaching_back)
    requested = change
    # The changes of earlier forks may need an even earlier fork point, before which there may be further forks.
    while at is None:
        earlier = [event for event in source.openings if event.sequence > point]
        change_of_all = _with_earlier_forks(earlier, requested)
        if change_of_all == change:
            break
        change = change_of_all
        point = find_point(source, at, change, reaching_back=reaching_back)
    state = source.state_at(point)
    openings = [event for event in source.openings if event.sequence <= point]
    opening = opening_in(source.execution_id, openings)
    # Without a recorded definition, the workflow is a sketch of the entered steps.
    shared = source.events[:point] if opening.definition is None else ()
    if change != requested:
        change = _known_at(state, change, requested)
    workflow = workflow_in(source.execution_id, opening, shared)
    return Prefix(source.execution_id, point, state, workflow, openings[-1].sequence, change)


def _known_at(state: ExecutionState, change: Change, requested: Change) -> Change:
    """Return a change without the answers and results of earlier forks for questions and calls that do not exist yet in
    a state: the new fork asks these questions, and makes these calls, again. Those in `requested` stay.
    """
    calls = {name for step in _open_steps(state) for name in step.operations}
    return replace(
        change,
        answers={
            name: value
            for name, value in change.answers.items()
            if name in state.interrupts or name in requested.answers
        },
        results={name: value for name, value in change.results.items() if name in calls or name in requested.results},
    )


def _with_earlier_forks(events: Sequence[Event], change: Change) -> Change:
    """Return a change together with the changes of the forks that begin among some events, which a new fork does not
    share. Without them, the new fork would lose what they changed.

    Raises
    ------
    SetupError
        Such a fork changed a variable or skipped a step, which has its effect at that event only, and the change does
        not replace that.
    """
    earlier = Change()
    for event in events:
        if not isinstance(event.data, catalog.ExecutionForked):
            continue
        forked = Change.recorded(event.data)
        lost = [f"variable {name!r}" for name in forked.variables if name not in change.variables]
        lost += ["a skipped step" for path in forked.skipped if path not in change.skipped]
        if lost:
            raise SetupError(
                f"execution {event.execution_id} was forked at event {event.sequence} with another change ({lost[0]}). "
                "The new change takes effect before that event, so the older change would be lost. Fork the source "
                "of that execution with both changes, or choose a later event with at="
            )
        earlier = forked.over(earlier)
    return change.over(earlier)


def fitting(change: Change, state: ExecutionState, now: int) -> Change:
    """Convert the answers and results in a fork's change to the form in which the log stores them, and return the
    change. `state` is the state of the source at the fork point.

    Raises
    ------
    InterruptError
        An answer does not fit its question.
    SetupError
        The value is not a valid result of a model call.
    """
    answers = {
        name: checked_answer(state.interrupts[name]._replace(status=PENDING, expires_us=None), response, FITTING, now)
        for name, response in change.answers.items()
        if name in state.interrupts
    }
    types = {key: record.operation_type for step in _open_steps(state) for key, record in step.operations.items()}
    results = {name: _as_recorded(types.get(name), name, result) for name, result in change.results.items()}
    return replace(change, answers={**change.answers, **answers}, results=results)


def _open_steps(state: ExecutionState) -> Iterator[OpenStep]:
    yield from (path.open for path in state.paths.values() if path.open is not None)


def _as_recorded(operation_type: str | None, name: str, result: Any) -> Any:
    """Convert a result that a user wants to give a call in a fork to the form in which the log stores results of this
    type of call, and return it.

    A response of a model contains more than its text. The result of a tool is wrapped in ``result``. A string for a
    model call becomes a response with one text part and no cost.
    """
    if operation_type == TOOL_CALL and not (isinstance(result, Mapping) and "result" in result):
        return {"result": result}
    if operation_type not in (AGENT_RESPONSE, CACHED_RESPONSE) or (isinstance(result, Mapping) and "parts" in result):
        return result
    if isinstance(result, str):
        return {"parts": [{"content": result, "part_kind": "text"}], "usage": {}, "cost_nanodollars": 0}
    raise SetupError(
        f"{name} is a model call: its result must be a string, or a response in the form that frames show, with "
        f"'parts', not {type(result).__name__}"
    )


def fitting_inputs(change: Change, workflow: Workflow, *, coerce_text: bool = False) -> Change:
    """Check and convert the inputs in a fork's change, like those of a new execution of the workflow. Return the
    change.
    """
    # A change has the recorded form of a value, such as that of a path.
    inputs = {name: opened(value) for name, value in change.inputs.items()}
    return replace(change, inputs=bind_changed(workflow, inputs, coerce_text=coerce_text))


def first_batch(store: EventStore, source: str, forked: Event, owner: Owner, durability: Durability | None) -> Batch:
    """Return the first records of a fork as a batch to write. `forked` is the event with which the fork begins. The
    events before it are shared with the source, so they are not written.

    Logs share whole records. If a record continues after that event, its beginning is copied
    (test_a_fork_inside_a_record_has_a_copy_of_its_beginning).
    """
    at = forked.sequence - 1
    # The record that contains event `at`. Records are rows, and a row has up to several events.
    last = store.read_records(source, at - 1, at)[0]
    shared = last.last_sequence
    rows = [Record.of(forked)]
    # The record also has events after the fork point. Records are shared as a whole, so its beginning is copied.
    if shared >= forked.sequence:
        shared = last.sequence - 1
        rows.insert(0, replace(last.until(at), execution_id=forked.execution_id))
    return Batch(
        forked.execution_id, shared, rows, acquire=owner, durability=durability, source=source if shared else None
    )


def _label(data: catalog.OperationStarted) -> str:
    name = data.name or operation_name(data.operation_type, data.parameters)
    return f"{FUNCTION_KINDS.get(data.operation_type, data.operation_type)} {name}"


def _payloads(events: Iterable[Event]) -> Iterable[catalog.Payload]:
    return (event.data for event in events)


def made_again(events: Iterable[Event]) -> set[str]:
    """Return the ids of the failed operations that a resumption of the execution runs again.

    Follows the log: failures of a path are candidates until its step fails, which names those that caused it. A later
    resumption or completion clears them.
    """
    # Example: `a` and `b` fail on one path, and the code of the step catches the failure of `a`. The step then fails
    # because of `b`, and names it. `{b}` runs again, and the failure of `a` is final.
    failing: dict[str, set[str]] = {}
    repeated: set[str] = set()
    for event in events:
        data = event.data
        if isinstance(data, catalog.OperationFailed):
            failing.setdefault(event.path, set()).add(data.operation_id)
        elif isinstance(data, catalog.StepStarted):
            failing.pop(event.path, None)
        elif isinstance(data, catalog.StepFailed):
            repeated |= failing.pop(event.path, set()) if data.operations is None else set(data.operations)
        elif isinstance(data, catalog.ExecutionCompleted) or (
            isinstance(data, catalog.ExecutionResumed) and not data.keeps_failed
        ):
            repeated.clear()
    return repeated
