"""How steps begin, end, fail and are tried again; their items, and the variables they change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, TypeAlias

from immutables import Map

from divebook.bounds import edge_key
from divebook.engine.changes import Draft, is_sleeping
from divebook.engine.ledger import NO_BOUNDS, Hop, Ledger
from divebook.engine.paths import let_calls_go
from divebook.engine.places import placed
from divebook.engine.records import OpenStep
from divebook.engine.state import IN_STEP, READY, ROUTING, PathState
from divebook.events import catalog

PROMPT = "prompt"


def step_started(draft: Draft, data: catalog.StepStarted) -> None:
    """Let a path enter a step."""
    path, step = draft.path(data), draft.step
    is_hop = data.step_type == PROMPT
    path.hop = draft.ledger.agent_hops if is_hop else None
    if is_hop or step in path.visits or step in path.before or draft.bounds is not NO_BOUNDS:
        draft.ledger = _entered(draft, path, is_hop=is_hop)
    path.current_step, path.phase, path.routing = step, IN_STEP, ()
    path.visits = path.visits.set(step, data.visit)
    path.variables, path.variables_at = draft.variables, draft.variables_at
    path.open = OpenStep.begun(data.step_type, draft.variables, draft.variables_at)


def _entered(draft: Draft, path: PathState, *, is_hop: bool) -> Ledger:
    """Return the ledger once a path has entered a step."""
    ledger, step = draft.ledger, draft.step
    if path.loops_to(step):
        ledger = ledger._replace(iterations=ledger.iterations + 1)
    key = edge_key(path.source or "", step)
    if key in draft.bounds.edges:
        ledger = ledger._replace(edges=ledger.edges.set(key, ledger.edges.get(key, 0) + 1))
    if not is_hop:
        return ledger
    hop = Hop(step, path.id, draft.moment)
    return ledger._replace(agent_hops=ledger.agent_hops + 1, history=ledger.history.set(ledger.agent_hops, hop))


def step_completed(draft: Draft, data: catalog.StepCompleted) -> None:
    """Let a path choose what follows a step."""
    path, step, output = draft.path(data), draft.step, data.output
    if draft.bounds.max_repeats is not None:
        path.repeats = _repeats(path, step, output)
    if path.hop is not None:
        draft.ledger = draft.ledger.with_hop(path.hop, status="success", ended_us=draft.moment)
        path.hop = None
    let_calls_go(draft, path)
    path.phase, path.open, path.last_step = ROUTING, None, step
    path.variables, path.variables_at = draft.variables, draft.variables_at
    path.step_outputs = path.step_outputs.set(step, output)
    path.outputs_at = placed(path.outputs_at, step, output, draft.last_sequence)


def _repeats(path: PathState, step: str, output: str) -> Map[str, tuple[str, int]]:
    """Return how often in a row each step has done the same, once one more is done."""
    done = path.open.operations.values() if path.open is not None else ()
    told = sorted(f"{record.operation_type} {record.parameters_hash}" for record in done)
    digest = hashlib.sha256("\x1f".join((*told, output)).encode()).hexdigest()[:16]
    before, count = path.repeats.get(step, ("", 0))
    return path.repeats.set(step, (digest, count + 1 if digest == before else 1))


def step_failed(draft: Draft, data: catalog.StepFailed) -> None:
    """Note why a step has failed."""
    path = draft.path(data)
    ledger = draft.ledger.with_error(draft.step, data.error, draft.moment)
    if path.hop is not None:
        ledger = ledger.with_hop(path.hop, status="error", error=data.error, ended_us=draft.moment)
    draft.ledger = ledger
    path.error, path.hop = data.error, None
    if path.open is not None and data.operations is not None:
        path.open = path.open._replace(ended_by=tuple(data.operations))


def step_retried(draft: Draft, data: catalog.StepRetried) -> None:
    """Note that a step, an item or a call is to be tried again."""
    path, opened = draft.open_step(data)
    item = data.iteration_index if data.key is None else data.key
    path.open = opened._replace(failures=opened.failures.set(item, (data.attempt, data.delay)))


def step_caught(draft: Draft, data: catalog.StepCaught) -> None:
    """Let a path go on where the failure of its step is caught."""
    path = draft.path(data)
    draft.sleeping -= is_sleeping(path)
    let_calls_go(draft, path)
    path.phase, path.current_step, path.open, path.error = READY, data.target, None, None
    path.variables, path.variables_at = draft.variables, draft.variables_at


def condition_evaluated(draft: Draft, data: catalog.ConditionEvaluated) -> None:
    """Note the result of a condition after a step."""
    path = draft.path(data)
    path.routing = (*path.routing, data.result)


def iteration_completed(draft: Draft, data: catalog.IterationCompleted) -> None:
    """Note what an item has given."""
    path, opened = draft.open_step(data)
    path.open = _with_item(draft, opened, data)


def rows_completed(draft: Draft, data: catalog.RowsCompleted) -> None:
    """Note what some rows have given, as of one item."""
    path, opened = draft.open_step(data)
    path.open = _with_item(draft, opened, data)


def iteration_failed(draft: Draft, data: catalog.IterationFailed) -> None:
    """Note what an item that has failed counts as, if its step goes on."""
    path, opened = draft.open_step(data)
    if data.result is not None:
        path.open = _with_item(draft, opened, data)


Item: TypeAlias = catalog.IterationCompleted | catalog.IterationFailed | catalog.RowsCompleted


def _with_item(draft: Draft, opened: OpenStep, data: Item) -> OpenStep:
    index, result = data.iteration_index, data.result
    places = placed(opened.iterations_at, index, result, draft.last_sequence)
    return opened.with_items(opened.iterations.set(index, result), places)


def state_mutated(draft: Draft, data: catalog.StateMutated) -> None:
    """Change variables, for the whole and for the path that changes them."""
    before, sequence = draft.variables, draft.last_sequence
    changed = draft.variables, draft.variables_at = _mutated(before, draft.variables_at, data.mutations, sequence)
    if draft.path_id not in draft.paths:
        return
    path = draft.path(data)
    if path.variables is not before:  # another path has written since the step began
        changed = _mutated(path.variables, path.variables_at, data.mutations, sequence)
    path.variables, path.variables_at = changed


def _mutated(
    variables: Map[str, Any], places: Map[str, int], mutations: Iterable[catalog.Mutation], sequence: int
) -> tuple[Map[str, Any], Map[str, int]]:
    """Return variables, and the places of the large ones, after some changes."""
    for mutation in mutations:
        key = mutation.key
        if mutation.type == "set":
            variables, places = variables.set(key, mutation.value), placed(places, key, mutation.value, sequence)
        elif key in variables:
            variables, places = variables.delete(key), placed(places, key, None, sequence)
    return variables, places
