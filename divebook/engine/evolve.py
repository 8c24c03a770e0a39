"""How each event changes the state: the only code that does.

`evolve` is total over the catalogue: events that change nothing but the sequence number have no entry in `_CHANGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from immutables import Map

from divebook.engine.state import (
    BRANCHED,
    CANCELLED,
    COMPLETED,
    EMPTY,
    ENDED,
    FAILED,
    IN_STEP,
    JOINED,
    JOINING,
    PENDING,
    READY,
    ROUTING,
    RUNNING,
    ExecutionState,
    Interrupt,
    OpenStep,
    OperationRecord,
    PathState,
)
from divebook.errors import CorruptStoreError
from divebook.events import catalog
from divebook.events.event import Event

FUNCTION = "function"
TIMER = "timer"
LONGEST_SECONDS = 1000 * 365 * 86400.0
"""A timer that is set for longer counts as this long, since dates end with the year 9999."""
"""Type of the operation that lets time pass."""


def evolve(state: ExecutionState, event: Event) -> ExecutionState:
    """Return the state after one more event.

    Raises
    ------
    CorruptStoreError
        The event does not follow the state: a gap in the log, or a path that was never begun.
    """
    if event.sequence != state.last_sequence + 1:
        raise CorruptStoreError(
            f"the log of {state.execution_id} goes from event {state.last_sequence} to {event.sequence}"
        )
    change = _CHANGES.get(type(event.data))
    if change is not None:
        state = change(state, event, event.data)
    return state._replace(last_sequence=event.sequence)


def fold(execution_id: str, events: Iterable[Event], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state after all the events, beginning from `state` or from nothing."""
    state = state or ExecutionState(execution_id)
    for event in events:
        state = evolve(state, event)
    return state


# --- the execution -------------------------------------------------------------------------------------------------


def _execution_started(state: ExecutionState, event: Event, data: catalog.ExecutionStarted) -> ExecutionState:
    return state._replace(
        workflow_name=data.workflow_name,
        inputs=data.inputs,
        fingerprint=data.fingerprint,
        lifecycle=RUNNING,
        started_us=event.recorded_at,
    )


def _execution_resumed(state: ExecutionState, _event: Event, _data: catalog.ExecutionResumed) -> ExecutionState:
    paths = state.paths
    for path in state.paths.values():
        if path.status in (FAILED, CANCELLED) or path.phase != ENDED:
            paths = paths.set(path.id, _reopened(path))
    active = [path for path in paths.values() if path.phase != ENDED]
    return state._replace(
        lifecycle=RUNNING,
        error=None,
        failed_path=None,
        ended_us=None,
        paths=paths,
        active=len(active),
        joining=sum(path.phase == JOINING for path in active),
        asking=sum(path.asking > 0 for path in active),
        sleeping=sum(map(_is_sleeping, active)),
    )


def _reopened(path: PathState) -> PathState:
    """Return the path at the point it can go on from: what succeeded in its step stays, what failed is dropped."""
    if path.open is None:
        phase = path.phase if path.phase != ENDED else path.left
        return path._replace(status=_status_of(path), phase=phase, routing=(), error=None, ended_us=None)
    opened = path.open if path.phase != ENDED else path.open._replace(operations=_without_failures(path.open))
    return path._replace(
        status=RUNNING, phase=IN_STEP, open=opened, variables=opened.entry_variables, error=None, ended_us=None
    )


def _without_failures(opened: OpenStep) -> Map[str, OperationRecord]:
    """Return the operations of a step that failed without those to be made again.

    Any failed call ends a step, but a function may have caught some and gone on: there only the last counts.
    """
    failures = (record for record in opened.operations.values() if record.status == FAILED)
    failed = sorted(failures, key=lambda record: record.ended_sequence)
    forgotten = {record.operation_id for record in (failed[-1:] if opened.step_type == FUNCTION else failed)}
    return Map({key: record for key, record in opened.operations.items() if key not in forgotten})


def _status_of(path: PathState) -> str:
    return PENDING if path.started_us is None else RUNNING


def _execution_completed(state: ExecutionState, event: Event, data: catalog.ExecutionCompleted) -> ExecutionState:
    return state._replace(lifecycle=COMPLETED, outputs=data.outputs, ended_us=event.recorded_at)


def _execution_failed(state: ExecutionState, event: Event, data: catalog.ExecutionFailed) -> ExecutionState:
    return state._replace(lifecycle=FAILED, error=data.error, ended_us=event.recorded_at)


def _execution_cancelled(state: ExecutionState, event: Event, data: catalog.ExecutionCancelled) -> ExecutionState:
    return state._replace(lifecycle=CANCELLED, error=data.reason or None, ended_us=event.recorded_at)


# --- paths ---------------------------------------------------------------------------------------------------------


def _path(state: ExecutionState, event: Event) -> PathState:
    path = state.paths.get(event.path)
    if path is None:
        raise CorruptStoreError(
            f"event {event.sequence} ({event.event_type}) of {state.execution_id} is on path {event.path!r}, "
            "which never began"
        )
    return path


def _put(state: ExecutionState, path: PathState) -> ExecutionState:
    return state._replace(paths=state.paths.set(path.id, path))


def _path_started(state: ExecutionState, event: Event, data: catalog.PathStarted) -> ExecutionState:
    path = state.paths.get(event.path)
    if path is None:
        path = PathState(event.path, number=0, current_step=data.current_step)
        state = state._replace(active=state.active + 1)
    return _put(state, path._replace(status=RUNNING, started_us=event.recorded_at))


def _path_branched(state: ExecutionState, event: Event, data: catalog.PathBranched) -> ExecutionState:
    parent = _path(state, event)
    paths, branches = state.paths, state.branches
    for new_path in data.new_paths:
        branches += 1
        child = PathState(new_path["id"], number=branches, current_step=new_path["current_step"], parent=parent.id)
        paths = paths.set(child.id, child)
    count = len(data.new_paths)
    paths = paths.set(parent.id, parent._replace(phase=BRANCHED, children=parent.children + count))
    return state._replace(paths=paths, branches=branches, active=state.active + count)


def _path_waiting(state: ExecutionState, event: Event, data: catalog.PathWaiting) -> ExecutionState:
    path = _path(state, event)._replace(phase=JOINING, current_step=data.join_step, routing=())
    return _put(state, path)._replace(joining=state.joining + 1)


def _path_joined(state: ExecutionState, event: Event, data: catalog.PathJoined) -> ExecutionState:
    path = _path(state, event)
    outputs = path.step_outputs
    for other in data.joined:
        outputs = outputs.update(state.paths[other].step_outputs)
    path = path._replace(phase=JOINED, step_outputs=outputs, variables=state.variables)
    return _put(state, path)._replace(joining=state.joining - 1)


def _path_ended(state: ExecutionState, event: Event, status: str, error: str | None) -> ExecutionState:
    path = _path(state, event)
    ended = path._replace(status=status, phase=ENDED, left=path.phase, error=error, ended_us=event.recorded_at)
    return _put(state, ended)._replace(
        active=state.active - 1,
        joining=state.joining - (path.phase == JOINING),
        sleeping=state.sleeping - _is_sleeping(path),
        asking=state.asking - (path.asking > 0),
    )


def _is_sleeping(path: PathState) -> bool:
    return path.open is not None and any(
        record.operation_type == TIMER and record.status == RUNNING for record in path.open.operations.values()
    )


def _path_completed(state: ExecutionState, event: Event, data: catalog.PathCompleted) -> ExecutionState:
    state = _path_ended(state, event, COMPLETED, None)
    path = state.paths[event.path]
    return _put(state, path._replace(current_step=data.final_step, open=None, variables=EMPTY))


def _path_failed(state: ExecutionState, event: Event, data: catalog.PathFailed) -> ExecutionState:
    return _path_ended(state, event, FAILED, data.error)._replace(failed_path=state.failed_path or event.path)


def _path_cancelled(state: ExecutionState, event: Event, data: catalog.PathCancelled) -> ExecutionState:
    return _path_ended(state, event, CANCELLED, data.reason or None)


# --- steps ---------------------------------------------------------------------------------------------------------


def _step_started(state: ExecutionState, event: Event, data: catalog.StepStarted) -> ExecutionState:
    path = _path(state, event)
    return _put(
        state,
        path._replace(
            current_step=event.step,
            phase=IN_STEP,
            visits=path.visits.set(event.step, data.visit),
            variables=state.variables,
            open=OpenStep(state.variables, step_type=data.step_type),
            routing=(),
        ),
    )


def _step_completed(state: ExecutionState, event: Event, data: catalog.StepCompleted) -> ExecutionState:
    path = _path(state, event)
    return _put(
        state,
        path._replace(
            phase=ROUTING,
            open=None,
            last_step=event.step,
            variables=state.variables,
            step_outputs=path.step_outputs.set(event.step, data.output),
        ),
    )


def _step_failed(state: ExecutionState, event: Event, data: catalog.StepFailed) -> ExecutionState:
    return _put(state, _path(state, event)._replace(error=data.error))


def _step_retried(state: ExecutionState, event: Event, data: catalog.StepRetried) -> ExecutionState:
    path, opened = _open(state, event)
    item = data.iteration_index if data.key is None else data.key
    failures = opened.failures.set(item, (data.attempt, data.delay))
    return _put(state, path._replace(open=opened._replace(failures=failures)))


def _step_caught(state: ExecutionState, event: Event, data: catalog.StepCaught) -> ExecutionState:
    path = _path(state, event)
    caught = path._replace(phase=READY, current_step=data.target, open=None, error=None, variables=state.variables)
    return _put(state, caught)._replace(sleeping=state.sleeping - _is_sleeping(path))


def _condition_evaluated(state: ExecutionState, event: Event, data: catalog.ConditionEvaluated) -> ExecutionState:
    path = _path(state, event)
    return _put(state, path._replace(routing=(*path.routing, data.result)))


def _iteration_completed(state: ExecutionState, event: Event, data: catalog.IterationCompleted) -> ExecutionState:
    path, opened = _open(state, event)
    iterations = opened.iterations.set(data.iteration_index, data.result)
    return _put(state, path._replace(open=opened._replace(iterations=iterations)))


def _open(state: ExecutionState, event: Event) -> tuple[PathState, OpenStep]:
    path = _path(state, event)
    if path.open is None:
        raise CorruptStoreError(
            f"event {event.sequence} ({event.event_type}) of {state.execution_id} is outside any step "
            f"of path {event.path!r}"
        )
    return path, path.open


# --- operations and variables --------------------------------------------------------------------------------------


def _operation_started(state: ExecutionState, event: Event, data: catalog.OperationStarted) -> ExecutionState:
    record = OperationRecord(
        data.operation_id,
        data.operation_type,
        data.parameters_hash,
        event.recorded_at,
        started_sequence=event.sequence,
        until=_timer_end(event, data) if data.operation_type == TIMER else None,
    )
    return _put_operation(state, event, record)


def _timer_end(event: Event, data: catalog.OperationStarted) -> int | None:
    seconds = (data.parameters or {}).get("seconds")
    if not isinstance(seconds, int | float):
        return None
    return event.recorded_at + round(min(seconds, LONGEST_SECONDS) * 1_000_000)


def _operation_completed(state: ExecutionState, event: Event, data: catalog.OperationCompleted) -> ExecutionState:
    state = _end_operation(state, event, data.operation_id, status=COMPLETED, result=data.result)
    if not data.usage:
        return state
    path, opened = _open(state, event)
    path = path._replace(open=opened._replace(usage=opened.usage.plus(data.usage)))
    return _put(state, path)._replace(usage=state.usage.plus(data.usage))


def _operation_failed(state: ExecutionState, event: Event, data: catalog.OperationFailed) -> ExecutionState:
    names = tuple(data.error_names or ())
    return _end_operation(state, event, data.operation_id, status=FAILED, error=data.error, error_names=names)


def _end_operation(state: ExecutionState, event: Event, operation_id: str, **outcome: Any) -> ExecutionState:
    _, opened = _open(state, event)
    record = opened.operations.get(operation_id)
    if record is None:
        raise CorruptStoreError(f"operation {operation_id} of {state.execution_id} ends without having begun")
    return _put_operation(state, event, record._replace(ended_sequence=event.sequence, **outcome))


def _put_operation(state: ExecutionState, event: Event, record: OperationRecord) -> ExecutionState:
    path, opened = _open(state, event)
    opened = opened._replace(operations=opened.operations.set(record.operation_id, record))
    after = path._replace(open=opened)
    change = _is_sleeping(after) - _is_sleeping(path) if record.operation_type == TIMER else 0
    return _put(state, after)._replace(sleeping=state.sleeping + change)


def _interrupt_raised(state: ExecutionState, event: Event, data: catalog.InterruptRaised) -> ExecutionState:
    path = _path(state, event)
    question = Interrupt(
        data.interrupt_id,
        data.kind,
        data.question,
        event.path,
        event.step,
        data.data,
        data.operation_id,
        event.recorded_at,
    )
    state = _put(state, path._replace(asking=path.asking + 1))
    interrupts = state.interrupts.set(data.interrupt_id, question)
    return state._replace(interrupts=interrupts, asking=state.asking + (path.asking == 0))


def _interrupt_resolved(state: ExecutionState, _event: Event, data: catalog.InterruptResolved) -> ExecutionState:
    question = state.interrupts.get(data.interrupt_id)
    if question is None or question.status != PENDING:
        raise CorruptStoreError(f"interrupt {data.interrupt_id} of {state.execution_id} is answered without being open")
    answered = question._replace(status=COMPLETED, response=data.response)
    path = state.paths[question.path]
    state = _put(state, path._replace(asking=path.asking - 1))
    asking = state.asking - (path.asking == 1 and path.phase != ENDED)
    return state._replace(interrupts=state.interrupts.set(data.interrupt_id, answered), asking=asking)


def _state_mutated(state: ExecutionState, event: Event, data: catalog.StateMutated) -> ExecutionState:
    state = state._replace(variables=_mutated(state.variables, data.mutations))
    path = state.paths.get(event.path)
    if path is None:
        return state
    return _put(state, path._replace(variables=_mutated(path.variables, data.mutations)))


def _mutated(variables: Map[str, Any], mutations: Iterable[catalog.Mutation]) -> Map[str, Any]:
    for mutation in mutations:
        if mutation.type == "set":
            variables = variables.set(mutation.key, mutation.value)
        elif mutation.key in variables:
            variables = variables.delete(mutation.key)
    return variables


_CHANGES: dict[type, Callable[[ExecutionState, Event, Any], ExecutionState]] = {
    catalog.ExecutionStarted: _execution_started,
    catalog.ExecutionResumed: _execution_resumed,
    catalog.ExecutionCompleted: _execution_completed,
    catalog.ExecutionFailed: _execution_failed,
    catalog.ExecutionCancelled: _execution_cancelled,
    catalog.PathStarted: _path_started,
    catalog.PathBranched: _path_branched,
    catalog.PathWaiting: _path_waiting,
    catalog.PathJoined: _path_joined,
    catalog.PathCompleted: _path_completed,
    catalog.PathFailed: _path_failed,
    catalog.PathCancelled: _path_cancelled,
    catalog.StepStarted: _step_started,
    catalog.StepCompleted: _step_completed,
    catalog.StepFailed: _step_failed,
    catalog.StepRetried: _step_retried,
    catalog.StepCaught: _step_caught,
    catalog.ConditionEvaluated: _condition_evaluated,
    catalog.IterationCompleted: _iteration_completed,
    catalog.OperationStarted: _operation_started,
    catalog.OperationCompleted: _operation_completed,
    catalog.OperationFailed: _operation_failed,
    catalog.InterruptRaised: _interrupt_raised,
    catalog.InterruptResolved: _interrupt_resolved,
    catalog.StateMutated: _state_mutated,
}
