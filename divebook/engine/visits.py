"""How steps begin, end, fail and are tried again; their items, and the variables they change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from immutables import Map

from divebook.bounds import edge_key
from divebook.engine.changes import Changes, Draft, Happening, is_sleeping, open_step_of, path_of, put
from divebook.engine.ledger import Hop, Ledger
from divebook.engine.places import placed
from divebook.engine.state import IN_STEP, READY, ROUTING, OpenStep, PathState
from divebook.events import catalog

PROMPT = "prompt"


def step_started(state: Draft, event: Happening, data: catalog.StepStarted) -> Changes:
    """Let a path enter a step."""
    path = path_of(state, event)
    is_hop = data.step_type == PROMPT
    is_counted = is_hop or state.bounds.edges or path.loops_to(event.step)
    changes: Changes = {"ledger": _entered(state, path, event, is_hop=is_hop)} if is_counted else {}
    return changes | put(
        state,
        path,
        current_step=event.step,
        phase=IN_STEP,
        visits=path.visits.set(event.step, data.visit),
        variables=state.variables,
        variables_at=state.variables_at,
        open=OpenStep(state.variables, step_type=data.step_type, entry_at=state.variables_at),
        routing=(),
        hop=state.ledger.agent_hops if is_hop else None,
    )


def _entered(state: Draft, path: PathState, event: Happening, *, is_hop: bool) -> Ledger:
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


def step_completed(state: Draft, event: Happening, data: catalog.StepCompleted) -> Changes:
    """Let a path choose what follows a step."""
    path = path_of(state, event)
    hop = path.hop
    changes = put(
        state,
        path,
        phase=ROUTING,
        open=None,
        last_step=event.step,
        variables=state.variables,
        variables_at=state.variables_at,
        step_outputs=path.step_outputs.set(event.step, data.output),
        outputs_at=placed(path.outputs_at, event.step, data.output, event.sequence),
        hop=None,
        repeats=path.repeats if state.bounds.max_repeats is None else _repeats(path, event, data.output),
    )
    if hop is not None:
        changes["ledger"] = state.ledger.with_hop(hop, status="success", ended_us=event.recorded_at)
    return changes


def _repeats(path: PathState, event: Happening, output: str) -> Map[str, tuple[str, int]]:
    """Return how often in a row each step has done the same, once one more is done."""
    done = path.open.operations.values() if path.open is not None else ()
    told = sorted(f"{record.operation_type} {record.parameters_hash}" for record in done)
    digest = hashlib.sha256("\x1f".join((*told, output)).encode()).hexdigest()[:16]
    before, count = path.repeats.get(event.step, ("", 0))
    return path.repeats.set(event.step, (digest, count + 1 if digest == before else 1))


def step_failed(state: Draft, event: Happening, data: catalog.StepFailed) -> Changes:
    """Note why a step has failed."""
    path = path_of(state, event)
    ledger = state.ledger.with_error(event.step, data.error, event.recorded_at)
    if path.hop is not None:
        ledger = ledger.with_hop(path.hop, status="error", error=data.error, ended_us=event.recorded_at)
    failed = path.open
    if failed is not None and data.operations is not None:
        failed = failed._replace(ended_by=tuple(data.operations))
    return {**put(state, path, error=data.error, hop=None, open=failed), "ledger": ledger}


def step_retried(state: Draft, event: Happening, data: catalog.StepRetried) -> Changes:
    """Note that a step, an item or a call is to be tried again."""
    path, opened = open_step_of(state, event)
    item = data.iteration_index if data.key is None else data.key
    failures = opened.failures.set(item, (data.attempt, data.delay))
    return put(state, path, open=opened._replace(failures=failures))


def step_caught(state: Draft, event: Happening, data: catalog.StepCaught) -> Changes:
    """Let a path go on where the failure of its step is caught."""
    path = path_of(state, event)
    sleeping = state.sleeping - is_sleeping(path)
    read = {"variables": state.variables, "variables_at": state.variables_at}
    changes = put(state, path, phase=READY, current_step=data.target, open=None, error=None, **read)
    return {**changes, "sleeping": sleeping}


def condition_evaluated(state: Draft, event: Happening, data: catalog.ConditionEvaluated) -> Changes:
    """Note the result of a condition after a step."""
    path = path_of(state, event)
    return put(state, path, routing=(*path.routing, data.result))


def iteration_completed(state: Draft, event: Happening, data: catalog.IterationCompleted) -> Changes:
    """Note what an item has given."""
    path, opened = open_step_of(state, event)
    return put(state, path, open=_with_item(opened, event, data))


def iteration_failed(state: Draft, event: Happening, data: catalog.IterationFailed) -> Changes:
    """Note what an item that has failed counts as, if its step goes on."""
    path, opened = open_step_of(state, event)
    if data.result is None:
        return {}
    return put(state, path, open=_with_item(opened, event, data))


def _with_item(
    opened: OpenStep, event: Happening, data: catalog.IterationCompleted | catalog.IterationFailed
) -> OpenStep:
    index, result = data.iteration_index, data.result
    places = placed(opened.iterations_at, index, result, event.sequence)
    return opened._replace(iterations=opened.iterations.set(index, result), iterations_at=places)


def state_mutated(state: Draft, event: Happening, data: catalog.StateMutated) -> Changes:
    """Change variables, for the whole and for the path that changes them."""
    changes = _mutated(state, event, data.mutations)
    path = state.paths.get(event.path)
    if path is None:
        return changes
    alone = path.variables is state.variables  # no other path has written since the step began
    return changes | put(state, path, **(changes if alone else _mutated(path, event, data.mutations)))


def _mutated(holder: Draft | PathState, event: Happening, mutations: Iterable[catalog.Mutation]) -> Changes:
    """Return what some changes make of the variables that the whole or a path holds."""
    variables, places = holder.variables, holder.variables_at
    for mutation in mutations:
        key = mutation.key
        if mutation.type == "set":
            variables, places = variables.set(key, mutation.value), placed(places, key, mutation.value, event.sequence)
        elif key in variables:
            variables, places = variables.delete(key), placed(places, key, None, event.sequence)
    return {"variables": variables, "variables_at": places}
