"""Changes the state, event by event; no other code does.

`evolve` is total over the catalogue: events that change nothing but the sequence number have no entry in `_CHANGES`.
The functions named there return only what changes, so that an event makes one new state and not one for each thing,
and a record, or a whole log, one for all of its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from immutables import Map

from divebook.bounds import Bounds
from divebook.engine.answers import (
    interrupt_expired,
    interrupt_joined,
    interrupt_raised,
    interrupt_resolved,
    signal_received,
)
from divebook.engine.calls import event_emitted, operation_completed, operation_failed, operation_started
from divebook.engine.changes import Changes, Draft, Happening, is_sleeping
from divebook.engine.ledger import NO_BOUNDS, Ledger
from divebook.engine.lifecycle import STATUS_AFTER
from divebook.engine.operations import CHILD_WORKFLOW
from divebook.engine.paths import (
    path_branched,
    path_cancelled,
    path_completed,
    path_failed,
    path_joined,
    path_started,
    path_waiting,
)
from divebook.engine.state import (
    CANCELLED,
    COMPLETED,
    EMPTY,
    ENDED,
    FAILED,
    IN_STEP,
    JOINING,
    PENDING,
    RUNNING,
    ExecutionState,
    OpenStep,
    OperationRecord,
    PathState,
)
from divebook.engine.visits import (
    PROMPT,
    condition_evaluated,
    iteration_completed,
    iteration_failed,
    state_mutated,
    step_caught,
    step_completed,
    step_failed,
    step_retried,
    step_started,
)
from divebook.errors import UNFIT, CorruptStoreError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.events.record import Record

FUNCTION = "function"


def evolve(state: ExecutionState, event: Event) -> ExecutionState:
    """Return the state after one more event.

    Raises
    ------
    CorruptStoreError
        The event does not follow the state: a gap in the log, or a path that was never begun.
    """
    draft = Draft.of(state)
    _change(draft, event, event.data)
    return draft.sealed()


def evolve_records(state: ExecutionState, records: Iterable[tuple[Record, int]]) -> ExecutionState:
    """Return the state after the events of records, each with how many of them it has; raises as `evolve` does."""
    draft = Draft.of(state)
    for record, known in records:
        draft.let_end(ends_step=catalog.StepCompleted in map(type, record.facts))
        for happening in _happenings(record, known):
            _change(draft, happening, happening.data)
    return draft.sealed()


class _Happened:
    """Each event of a record in turn; to make the events themselves would take as long as to fold them."""

    __slots__ = ("data", "path", "recorded_at", "sequence", "step")

    def __init__(self, record: Record, known: int) -> None:
        self.sequence, self.recorded_at = record.sequence + known, record.recorded_at
        self.path, self.step, self.data = record.path, record.step, record.facts[0]

    @property
    def event_type(self) -> str:
        """Name of the payload's type."""
        return self.data.event_type


def _happenings(record: Record, known: int) -> Iterator[_Happened]:
    """Give what each event of a record says but the first `known`: the same object every time."""
    happened = _Happened(record, known)
    for data in record.facts[known:]:
        happened.data, happened.step = data, record.step_of(data)
        yield happened
        happened.sequence += 1


def fold(execution_id: str, events: Iterable[Happening], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state after all the events, beginning from `state` or from nothing.

    Raises
    ------
    CorruptStoreError
        An event does not follow those before it, or its contents make no sense: the log was not written by an engine.
    """
    draft = Draft.of(state or ExecutionState(execution_id))
    for event in events:
        try:
            _change(draft, event, event.data)
        except CorruptStoreError:
            raise
        except UNFIT as error:  # test_a_forged_log_is_a_corrupt_log
            raise CorruptStoreError(
                f"event {event.sequence} ({event.event_type}) of execution {execution_id} does not fit the log: "
                f"{type(error).__name__}: {error}"
            ) from error
    return draft.sealed()


def fold_records(execution_id: str, records: Iterable[Record], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state after all the events of some records; of the first one `state` may have some. As `fold`."""
    known = 0 if state is None else state.last_sequence
    events = (event for record in records for event in _happenings(record, max(0, known + 1 - record.sequence)))
    return fold(execution_id, events, state)


def _change(draft: Draft, event: Happening, data: catalog.Payload) -> None:
    """Change a draft as one event says."""
    state = draft.__dict__
    if event.sequence != state["last_sequence"] + 1:
        raise CorruptStoreError(
            f"the log of {draft.execution_id} jumps from event {draft.last_sequence} to {event.sequence}"
        )
    change = _CHANGES.get(type(data))
    if change is not None:
        state.update(change(draft, event, data))
    state["last_sequence"] = event.sequence
    state["last_us"] = event.recorded_at


# --- the execution -------------------------------------------------------------------------------------------------


def _execution_started(state: Draft, event: Happening, data: catalog.ExecutionStarted) -> Changes:
    return {
        "workflow_name": data.workflow_name,
        "seed": data.seed or state.execution_id,
        "inputs": data.inputs,
        "fingerprint": data.fingerprint,
        "code": data.code or EMPTY,
        "model": data.model,
        "lifecycle": RUNNING,
        "started_us": event.recorded_at,
        "bounds": Bounds.from_dict(data.bounds) if data.bounds else NO_BOUNDS,
        "identity": data.identity or EMPTY,
        "parent": data.parent if data.came_from == catalog.CHILD else None,
    }


def _execution_resumed(state: Draft, event: Happening, data: catalog.ExecutionResumed) -> Changes:
    paths, ledger = state.paths, state.ledger
    for path in state.paths.values():
        if path.status in (FAILED, CANCELLED) or path.phase != ENDED:
            reopened, ledger = _within_its_hop(_reopened(path), ledger)
            paths = paths.set(path.id, reopened)
    active = [path for path in paths.values() if path.phase != ENDED]
    return {
        "ledger": ledger,
        "lifecycle": RUNNING,
        "error": None,
        "failed_path": None,
        "ended_us": None,
        "paths": paths,
        "active": len(active),
        "joining": sum(path.phase == JOINING for path in active),
        "asking": sum(path.asking > 0 for path in active),
        "sleeping": sum(map(is_sleeping, active)),
        "stopped": None,
        "reason": None,
        "paused": None,
        "paused_us": state.paused_us + max(0, event.recorded_at - state.last_us),
        "bounds": state.bounds if data.bounds is None else Bounds.from_dict(data.bounds),
    }


def _reopened(path: PathState) -> PathState:
    """Return the path at the point it can go on from: what succeeded in its step stays, what failed is dropped."""
    again: Changes = {"error": None, "reason": None, "ended_us": None}
    if path.open is None:
        phase = path.phase if path.phase != ENDED else path.left
        return path.changed(again | {"status": _status_of(path), "phase": phase, "routing": ()})
    opened = path.open if path.phase != ENDED else path.open._replace(operations=_without_failures(path, path.open))
    read = {"variables": opened.entry_variables, "variables_at": opened.entry_at}
    return path.changed({**again, **read, "status": RUNNING, "phase": IN_STEP, "open": opened})


def _within_its_hop(path: PathState, ledger: Ledger) -> tuple[PathState, Ledger]:
    """Return a path that is resumed inside an agent step as on the same hop as before: it counts once."""
    if path.hop is not None or path.open is None or path.open.step_type != PROMPT:
        return path, ledger
    place = (path.id, path.current_step)
    number = max(number for number, hop in ledger.history.items() if (hop.path, hop.step) == place)
    hop = ledger.history[number]._replace(ended_us=None, status="running", error=None)
    return path.changed({"hop": number}), ledger._replace(history=ledger.history.set(number, hop))


def _without_failures(path: PathState, opened: OpenStep) -> Map[str, OperationRecord]:
    """Return the operations of a step that has ended without those to be carried out again."""
    kept = opened.operations
    for record in _ending_failures(path, opened):
        is_child = record.operation_type == CHILD_WORKFLOW  # which is resumed, not started a second time
        again = record._replace(status=PENDING)
        kept = kept.set(record.operation_id, again) if is_child else kept.delete(record.operation_id)
    return kept


def _ending_failures(path: PathState, opened: OpenStep) -> list[OperationRecord]:
    """Return the failures that ended a step: all of them, but a function may have caught some and gone on."""
    failed = [record for record in opened.operations.values() if record.status == FAILED]
    if opened.step_type != FUNCTION:
        return failed
    if opened.ended_by is not None:
        return [record for record in failed if record.operation_id in opened.ended_by]
    return sorted(failed, key=lambda record: record.ended_sequence)[-1:] if path.status == FAILED else []


def _status_of(path: PathState) -> str:
    return PENDING if path.started_us is None else RUNNING


def _execution_paused(_state: Draft, _event: Happening, data: catalog.ExecutionPaused) -> Changes:
    return {"paused": data.reason or "paused"}


def _execution_completed(_state: Draft, event: Happening, data: catalog.ExecutionCompleted) -> Changes:
    return {
        "lifecycle": COMPLETED,
        "outputs": data.outputs,
        "ended_us": event.recorded_at,
        "reason": "completed",
    }


def _execution_failed(_state: Draft, event: Happening, data: catalog.ExecutionFailed) -> Changes:
    return {"lifecycle": FAILED, "error": data.error, "ended_us": event.recorded_at, "reason": data.reason}


def _execution_cancelled(_state: Draft, event: Happening, data: catalog.ExecutionCancelled) -> Changes:
    return {
        "lifecycle": CANCELLED,
        "error": data.reason or None,
        "ended_us": event.recorded_at,
        "reason": "user_cancelled",
    }


def _execution_continued(_state: Draft, event: Happening, data: catalog.ExecutionContinuedAsNew) -> Changes:
    return {**_execution_left(_state, event, data), "continued_as": data.new_execution_id}


def _execution_left(_state: Draft, event: Happening, data: catalog.Payload) -> Changes:
    return {"lifecycle": STATUS_AFTER[type(data)], "ended_us": event.recorded_at}


_CHANGES: dict[type, Callable[[Draft, Happening, Any], Changes]] = {
    catalog.ExecutionStarted: _execution_started,
    catalog.ExecutionResumed: _execution_resumed,
    catalog.ExecutionPaused: _execution_paused,
    catalog.ExecutionCompleted: _execution_completed,
    catalog.ExecutionFailed: _execution_failed,
    catalog.ExecutionCancelled: _execution_cancelled,
    catalog.ExecutionMoved: _execution_left,
    catalog.ExecutionContinuedAsNew: _execution_continued,
    catalog.ExecutionPictured: _execution_left,
    catalog.PathStarted: path_started,
    catalog.PathBranched: path_branched,
    catalog.PathWaiting: path_waiting,
    catalog.PathJoined: path_joined,
    catalog.PathCompleted: path_completed,
    catalog.PathFailed: path_failed,
    catalog.PathCancelled: path_cancelled,
    catalog.StepStarted: step_started,
    catalog.StepCompleted: step_completed,
    catalog.StepFailed: step_failed,
    catalog.StepRetried: step_retried,
    catalog.StepCaught: step_caught,
    catalog.ConditionEvaluated: condition_evaluated,
    catalog.IterationCompleted: iteration_completed,
    catalog.IterationFailed: iteration_failed,
    catalog.OperationStarted: operation_started,
    catalog.OperationCompleted: operation_completed,
    catalog.OperationFailed: operation_failed,
    catalog.EventEmitted: event_emitted,
    catalog.InterruptRaised: interrupt_raised,
    catalog.InterruptJoined: interrupt_joined,
    catalog.InterruptResolved: interrupt_resolved,
    catalog.InterruptExpired: interrupt_expired,
    catalog.SignalReceived: signal_received,
    catalog.StateMutated: state_mutated,
}
