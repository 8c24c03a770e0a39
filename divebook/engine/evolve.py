"""Changes the state, event by event; no other code does.

`evolve` is total over the catalogue: events that change nothing but the sequence number have no entry in `_CHANGES`.
The functions named there return only what changes, so that an event makes one new state and not one for each thing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from immutables import Map

from divebook.bounds import Bounds, edge_key
from divebook.engine.answers import (
    interrupt_expired,
    interrupt_joined,
    interrupt_raised,
    interrupt_resolved,
    signal_received,
)
from divebook.engine.calls import event_emitted, operation_completed, operation_failed, operation_started
from divebook.engine.changes import Changes, is_sleeping, open_step_of, path_of, put
from divebook.engine.ledger import NO_BOUNDS, Hop, Ledger
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
    READY,
    ROUTING,
    RUNNING,
    ExecutionState,
    OpenStep,
    OperationRecord,
    PathState,
)
from divebook.errors import UNFIT, CorruptStoreError
from divebook.events import catalog
from divebook.events.event import Event

FUNCTION, PROMPT = "function", "prompt"


def evolve(state: ExecutionState, event: Event) -> ExecutionState:
    """Return the state after one more event.

    Raises
    ------
    CorruptStoreError
        The event does not follow the state: a gap in the log, or a path that was never begun.
    """
    if event.sequence != state.last_sequence + 1:
        raise CorruptStoreError(
            f"the log of {state.execution_id} jumps from event {state.last_sequence} to {event.sequence}"
        )
    change = _CHANGES.get(type(event.data))
    changes = {} if change is None else change(state, event, event.data)
    changes["last_sequence"] = event.sequence
    changes["last_us"] = event.recorded_at
    return state.changed(changes)


def fold(execution_id: str, events: Iterable[Event], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state after all the events, beginning from `state` or from nothing.

    Raises
    ------
    CorruptStoreError
        An event does not follow those before it, or its contents make no sense: the log was not written by an engine.
    """
    state = state or ExecutionState(execution_id)
    for event in events:
        try:
            state = evolve(state, event)
        except CorruptStoreError:
            raise
        except UNFIT as error:  # test_a_forged_log_is_a_corrupt_log
            raise CorruptStoreError(
                f"event {event.sequence} ({event.event_type}) of execution {execution_id} does not fit the log: "
                f"{type(error).__name__}: {error}"
            ) from error
    return state


# --- the execution -------------------------------------------------------------------------------------------------


def _execution_started(_state: ExecutionState, event: Event, data: catalog.ExecutionStarted) -> Changes:
    return {
        "workflow_name": data.workflow_name,
        "seed": data.seed or event.execution_id,
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


def _execution_resumed(state: ExecutionState, event: Event, data: catalog.ExecutionResumed) -> Changes:
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
    inside = {"status": RUNNING, "phase": IN_STEP, "open": opened, "variables": opened.entry_variables}
    return path.changed(again | inside)


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


def _execution_paused(_state: ExecutionState, _event: Event, data: catalog.ExecutionPaused) -> Changes:
    return {"paused": data.reason or "paused"}


def _execution_completed(_state: ExecutionState, event: Event, data: catalog.ExecutionCompleted) -> Changes:
    return {
        "lifecycle": COMPLETED,
        "outputs": data.outputs,
        "ended_us": event.recorded_at,
        "reason": "completed",
    }


def _execution_failed(_state: ExecutionState, event: Event, data: catalog.ExecutionFailed) -> Changes:
    return {"lifecycle": FAILED, "error": data.error, "ended_us": event.recorded_at, "reason": data.reason}


def _execution_cancelled(_state: ExecutionState, event: Event, data: catalog.ExecutionCancelled) -> Changes:
    return {
        "lifecycle": CANCELLED,
        "error": data.reason or None,
        "ended_us": event.recorded_at,
        "reason": "user_cancelled",
    }


def _execution_continued(_state: ExecutionState, event: Event, data: catalog.ExecutionContinuedAsNew) -> Changes:
    return {**_execution_left(_state, event, data), "continued_as": data.new_execution_id}


def _execution_left(_state: ExecutionState, event: Event, _data: catalog.Payload) -> Changes:
    return {"lifecycle": STATUS_AFTER[type(event.data)], "ended_us": event.recorded_at}


# --- steps ---------------------------------------------------------------------------------------------------------


def _step_started(state: ExecutionState, event: Event, data: catalog.StepStarted) -> Changes:
    path = path_of(state, event)
    is_hop = data.step_type == PROMPT
    changes = put(
        state,
        path,
        current_step=event.step,
        phase=IN_STEP,
        visits=path.visits.set(event.step, data.visit),
        variables=state.variables,
        open=OpenStep(state.variables, step_type=data.step_type),
        routing=(),
        hop=state.ledger.agent_hops if is_hop else None,
    )
    if is_hop or state.bounds.edges or path.loops_to(event.step):
        changes["ledger"] = _entered(state, path, event, is_hop=is_hop)
    return changes


def _entered(state: ExecutionState, path: PathState, event: Event, *, is_hop: bool) -> Ledger:
    """Return the ledger once a path has entered a step."""
    ledger = state.ledger
    if path.loops_to(event.step):
        ledger = ledger._replace(iterations=ledger.iterations + 1)
    key = edge_key(path.source or "", event.step)
    if key in state.bounds.edges:
        ledger = ledger._replace(edges=ledger.edges.set(key, ledger.edges.get(key, 0) + 1))
    if not is_hop:
        return ledger
    hop = Hop(event.step, event.path, event.recorded_at)
    return ledger._replace(agent_hops=ledger.agent_hops + 1, history=ledger.history.set(ledger.agent_hops, hop))


def _step_completed(state: ExecutionState, event: Event, data: catalog.StepCompleted) -> Changes:
    path = path_of(state, event)
    changes = put(
        state,
        path,
        phase=ROUTING,
        open=None,
        last_step=event.step,
        variables=state.variables,
        step_outputs=path.step_outputs.set(event.step, data.output),
        hop=None,
        repeats=path.repeats if state.bounds.max_repeats is None else _repeats(path, event, data.output),
    )
    if path.hop is not None:
        changes["ledger"] = state.ledger.with_hop(path.hop, status="success", ended_us=event.recorded_at)
    return changes


def _repeats(path: PathState, event: Event, output: str) -> Map[str, tuple[str, int]]:
    """Return how often in a row each step has done the same, once one more is done."""
    done = path.open.operations.values() if path.open is not None else ()
    told = sorted(f"{record.operation_type} {record.parameters_hash}" for record in done)
    digest = hashlib.sha256("\x1f".join((*told, output)).encode()).hexdigest()[:16]
    before, count = path.repeats.get(event.step, ("", 0))
    return path.repeats.set(event.step, (digest, count + 1 if digest == before else 1))


def _step_failed(state: ExecutionState, event: Event, data: catalog.StepFailed) -> Changes:
    path = path_of(state, event)
    ledger = state.ledger.with_error(event.step, data.error, event.recorded_at)
    if path.hop is not None:
        ledger = ledger.with_hop(path.hop, status="error", error=data.error, ended_us=event.recorded_at)
    failed = path.open
    if failed is not None and data.operations is not None:
        failed = failed._replace(ended_by=tuple(data.operations))
    return {**put(state, path, error=data.error, hop=None, open=failed), "ledger": ledger}


def _step_retried(state: ExecutionState, event: Event, data: catalog.StepRetried) -> Changes:
    path, opened = open_step_of(state, event)
    item = data.iteration_index if data.key is None else data.key
    failures = opened.failures.set(item, (data.attempt, data.delay))
    return put(state, path, open=opened._replace(failures=failures))


def _step_caught(state: ExecutionState, event: Event, data: catalog.StepCaught) -> Changes:
    path = path_of(state, event)
    changes = put(state, path, phase=READY, current_step=data.target, open=None, error=None, variables=state.variables)
    return {**changes, "sleeping": state.sleeping - is_sleeping(path)}


def _condition_evaluated(state: ExecutionState, event: Event, data: catalog.ConditionEvaluated) -> Changes:
    path = path_of(state, event)
    return put(state, path, routing=(*path.routing, data.result))


def _iteration_completed(state: ExecutionState, event: Event, data: catalog.IterationCompleted) -> Changes:
    path, opened = open_step_of(state, event)
    iterations = opened.iterations.set(data.iteration_index, data.result)
    return put(state, path, open=opened._replace(iterations=iterations))


def _iteration_failed(state: ExecutionState, event: Event, data: catalog.IterationFailed) -> Changes:
    path, opened = open_step_of(state, event)
    if data.result is None:
        return {}
    iterations = opened.iterations.set(data.iteration_index, data.result)
    return put(state, path, open=opened._replace(iterations=iterations))


# --- variables -----------------------------------------------------------------------------------------------------


def _state_mutated(state: ExecutionState, event: Event, data: catalog.StateMutated) -> Changes:
    variables = _mutated(state.variables, data.mutations)
    path = state.paths.get(event.path)
    if path is None:
        return {"variables": variables}
    alone = path.variables is state.variables  # no other path has written since the step began
    own = variables if alone else _mutated(path.variables, data.mutations)
    return {**put(state, path, variables=own), "variables": variables}


def _mutated(variables: Map[str, Any], mutations: Iterable[catalog.Mutation]) -> Map[str, Any]:
    for mutation in mutations:
        if mutation.type == "set":
            variables = variables.set(mutation.key, mutation.value)
        elif mutation.key in variables:
            variables = variables.delete(mutation.key)
    return variables


_CHANGES: dict[type, Callable[[ExecutionState, Event, Any], Changes]] = {
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
    catalog.StepStarted: _step_started,
    catalog.StepCompleted: _step_completed,
    catalog.StepFailed: _step_failed,
    catalog.StepRetried: _step_retried,
    catalog.StepCaught: _step_caught,
    catalog.ConditionEvaluated: _condition_evaluated,
    catalog.IterationCompleted: _iteration_completed,
    catalog.IterationFailed: _iteration_failed,
    catalog.OperationStarted: operation_started,
    catalog.OperationCompleted: operation_completed,
    catalog.OperationFailed: operation_failed,
    catalog.EventEmitted: event_emitted,
    catalog.InterruptRaised: interrupt_raised,
    catalog.InterruptJoined: interrupt_joined,
    catalog.InterruptResolved: interrupt_resolved,
    catalog.InterruptExpired: interrupt_expired,
    catalog.SignalReceived: signal_received,
    catalog.StateMutated: _state_mutated,
}
