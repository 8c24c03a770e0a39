"""Changes the state, event by event; no other code does.

`evolve` is total over the catalogue: events that change nothing but the sequence number have no entry in `_CHANGES`.
The functions named there change a draft, so that a record, or a whole log, makes one new state for all of its events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from immutables import Map

from divebook.engine.approvals import StandingRule
from divebook.engine.bounds import (
    event_emitted,
    interrupt_expired,
    interrupt_joined,
    interrupt_raised,
    interrupt_resolved,
    operation_completed,
    operation_failed,
    operation_started,
    signal_received,
)
from divebook.engine.changes import (
    Draft,
    files_changed,
    is_sleeping,
    let_calls_go,
    path_branched,
    path_cancelled,
    path_completed,
    path_failed,
    path_joined,
    path_started,
    path_waiting,
    with_handed_on,
    workspace_opened,
)
from divebook.engine.checkpoint import placed
from divebook.engine.forks import execution_forked
from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.engine.operations import CHILD_WORKFLOW, ENCLOSING, VERDICT
from divebook.engine.state import (
    EMPTY,
    ENDED,
    IN_STEP,
    JOINING,
    NO_BOUNDS,
    READY,
    ROUTING,
    ExecutionState,
    Hop,
    Ledger,
    OpenStep,
    OperationRecord,
    PathState,
    RollingBack,
    Undoing,
)
from divebook.errors import UNFIT, CorruptStoreError
from divebook.events import catalog
from divebook.events.catalog import CANCELLED, FAILED, PENDING, RUNNING, Payload
from divebook.events.event import Event, Record
from divebook.questions.bounds import Bounds, edge_key
from divebook.workflow.step import STAGE

# How steps begin, end, fail and are tried again; their items, and the variables they change.


PROMPT = "prompt"


def step_started(draft: Draft, data: catalog.StepStarted) -> None:
    """Let a path enter a step."""
    path = draft.path(data)
    step = draft.step
    is_hop = data.step_type == PROMPT
    path.hop = draft.ledger.agent_hops if is_hop else None
    if is_hop or step in path.visits or step in path.before or draft.bounds is not NO_BOUNDS:
        draft.ledger = _entered(draft, path, is_hop=is_hop)
    path.current_step = step
    path.phase = IN_STEP
    path.routing = ()
    path.visits = path.visits.set(step, data.visit)
    path.variables = draft.variables
    path.variables_at = draft.variables_at
    path.open = OpenStep.begun(data.step_type, draft.variables, draft.variables_at)


def _entered(draft: Draft, path: PathState, *, is_hop: bool) -> Ledger:
    """Return the ledger once a path has entered a step."""
    ledger = draft.ledger
    step = draft.step
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
    path = draft.path(data)
    step = draft.step
    output = data.output
    if draft.bounds.max_repeats is not None:
        path.repeats = _repeats(path, step, output)
    if path.hop is not None:
        draft.ledger = draft.ledger.with_hop(path.hop, status="success", ended_us=draft.moment)
        path.hop = None
    let_calls_go(draft, path)
    path.phase = ROUTING
    path.open = None
    path.last_step = step
    path.variables = draft.variables
    path.variables_at = draft.variables_at
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
    path.error = data.error
    path.hop = None
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
    path.phase = READY
    path.current_step = data.target
    path.open = None
    path.error = None
    path.variables = draft.variables
    path.variables_at = draft.variables_at


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
    index = data.iteration_index
    result = data.result
    places = placed(opened.iterations_at, index, result, draft.last_sequence)
    return opened.with_items(opened.iterations.set(index, result), places)


def state_mutated(draft: Draft, data: catalog.StateMutated) -> None:
    """Change variables, for the whole and for the path that changes them."""
    before = draft.variables
    sequence = draft.last_sequence
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
            variables = variables.set(key, mutation.value)
            places = placed(places, key, mutation.value, sequence)
        elif key in variables:
            variables = variables.delete(key)
            places = placed(places, key, None, sequence)
    return variables, places


# How rules that people make for calls to come change the state.


def rule_added(draft: Draft, data: catalog.ApprovalRuleAdded) -> None:
    """Note a rule, in place of one with its id."""
    rule = StandingRule(
        data.rule_id,
        data.outcome,
        data.tool,
        data.kind or "tool",
        data.agent,
        data.server,
        data.arguments,
        data.scope or "run",
        data.expires_at,
        data.question,
        data.by,
        draft.moment,
    )
    draft.rules = draft.rules.set(rule.rule_id, rule)


def rule_revoked(draft: Draft, data: catalog.ApprovalRuleRevoked) -> None:
    """Forget a rule, if it is known."""
    if data.message is not None:
        draft.taken = max(draft.taken, data.message)
    if data.rule_id in draft.rules:
        draft.rules = draft.rules.delete(data.rule_id)


FUNCTION = "function"


def evolve(state: ExecutionState, event: Event) -> ExecutionState:
    """Return the state after one more event.

    Raises
    ------
    CorruptStoreError
        The event does not follow the state: a gap in the log, or a path that was never begun.
    """
    draft = Draft(state)
    _change(draft, event, (event.data,))
    return draft.sealed()


def evolve_records(state: ExecutionState, records: Iterable[tuple[Record, int]]) -> ExecutionState:
    """Return the state after the events of records, each with how many of them it has; raises as `evolve` does."""
    draft = Draft(state)
    follow(draft, records)
    return draft.sealed()


def follow(draft: Draft, records: Iterable[tuple[Record, int]]) -> None:
    """Change a draft as `evolve_records` says; one that an error is raised about must not be used any more."""
    for record, known in records:
        _change(draft, record, record.facts, known)


def fold(execution_id: str, events: Iterable[Event], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state after all the events, beginning from `state` or from nothing.

    Raises
    ------
    CorruptStoreError
        An event does not follow those before it, or its contents make no sense: the log was not written by an engine.
    """
    draft = Draft(state or ExecutionState(execution_id))
    for event in events:
        try:
            _change(draft, event, (event.data,))
        except CorruptStoreError:
            raise
        except UNFIT as error:
            raise _refused(draft, event.data, error) from error
    return draft.sealed()


def fold_records(execution_id: str, records: Iterable[Record], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state after all the events of some records; of the first one `state` may have some. As `fold`."""
    draft = Draft(state or ExecutionState(execution_id))
    for record in records:
        known = 0 if record.sequence > draft.last_sequence else draft.last_sequence + 1 - record.sequence
        try:
            _change(draft, record, record.facts, known)
        except CorruptStoreError:
            raise
        except UNFIT as error:
            raise _refused(draft, record.facts[draft.last_sequence - record.sequence], error) from error
    return draft.sealed()


def _refused(draft: Draft, data: Payload, error: Exception) -> CorruptStoreError:
    """Return the error for an event that does not fit the log (test_a_forged_log_is_a_corrupt_log)."""
    return CorruptStoreError(
        f"event {draft.last_sequence} ({data.event_type}) of execution {draft.execution_id} does not fit the log: "
        f"{type(error).__name__}: {error}"
    )


def _change(draft: Draft, entry: Event | Record, facts: Sequence[Payload], known: int = 0) -> None:
    """Change a draft as an event says, or a record, of whose facts it has the first `known`."""
    sequence = entry.sequence + known
    moment = entry.recorded_at
    if sequence != draft.last_sequence + 1:
        raise CorruptStoreError(f"the log of {draft.execution_id} jumps from event {draft.last_sequence} to {sequence}")
    draft.go_to(entry, facts)
    for data in facts[known:] if known else facts:
        draft.last_sequence = sequence
        change = _CHANGES.get(type(data))
        if change is not None:
            change(draft, data)
        draft.last_us = moment
        sequence += 1


# --- the execution -------------------------------------------------------------------------------------------------


def _execution_started(draft: Draft, data: catalog.ExecutionStarted) -> None:
    draft.workflow_name = data.workflow_name
    draft.seed = data.seed or draft.execution_id
    draft.inputs = data.inputs
    draft.identity = data.identity or EMPTY
    draft.fingerprint = data.fingerprint
    draft.code = data.code or EMPTY
    draft.model = data.model
    draft.lifecycle = RUNNING
    draft.started_us = draft.moment
    draft.bounds = Bounds.from_dict(data.bounds) if data.bounds else NO_BOUNDS
    draft.parent = data.parent if data.came_from == catalog.CHILD else None
    if data.state:
        draft.variables = draft.variables.update(data.state)


def _execution_resumed(draft: Draft, data: catalog.ExecutionResumed) -> None:
    going_on = draft.paths.values() if draft.rolling_back is None else (*draft.undoing, *draft.unsettled)
    for path in going_on:
        if path.status in (FAILED, CANCELLED) or path.phase != ENDED:
            draft.ledger = with_handed_on(path, draft.ledger)
            was_denied = data.previous_status in TERMINAL and _was_denied(draft, path)
            let_calls_go(draft, draft.own(path.id))
            _reopen(draft.own(path.id))
            if was_denied:  # what a person wants undone after all is asked again, as another visit of its step
                own = draft.own(path.id)
                own.visits = own.visits.set(own.current_step, own.visits.get(own.current_step, 0) + 1)
            draft.ledger = _within_its_hop(draft.own(path.id), draft.ledger)
    active = [path for path in draft.paths.values() if path.phase != ENDED]
    draft.lifecycle = RUNNING
    draft.ended_us = None
    draft.failed_path = draft.failed_path if draft.rolling_back is not None else None
    draft.error = draft.stopped = draft.reason = draft.paused = None
    draft.active = len(active)
    draft.joining = sum(path.phase == JOINING for path in active)
    draft.asking = sum(path.asking > 0 for path in active)
    draft.sleeping = sum(map(is_sleeping, active))
    draft.paused_us += max(0, draft.moment - draft.last_us)
    if data.bounds is not None:
        draft.bounds = Bounds.from_dict(data.bounds)


def _was_denied(draft: Draft, path: PathState) -> bool:
    """Whether a person, or a rule, has said no to what a path was to undo: nothing of it was ever called."""
    if path.undoes is None or path.status != FAILED:
        return False
    operations = path.open.operations.values() if path.open is not None else ()
    if any(record.operation_type != VERDICT for record in operations):
        return False
    return bool(operations) or any(asked.path == path.id and not asked.is_open for asked in draft.interrupts.values())


def _reopen(path: PathState) -> None:
    """Bring a path to the point it can go on from: what succeeded in its step stays, what failed is dropped."""
    has_ended = path.phase == ENDED
    opened = path.open
    if opened is None:
        path.status = _status_of(path)
        path.phase = path.left if has_ended else path.phase
        path.routing = ()
    else:
        path.open = opened._replace(operations=_without_failures(path, opened)) if has_ended else opened
        path.variables = opened.entry_variables
        path.variables_at = opened.entry_at
        path.status = RUNNING
        path.phase = IN_STEP
    path.error = path.reason = path.ended_us = None


def _within_its_hop(path: PathState, ledger: Ledger) -> Ledger:
    """Let a path that is resumed inside an agent step be on the same hop as before: it counts once."""
    if path.hop is not None or path.open is None or path.open.step_type != PROMPT:
        return ledger
    place = (path.id, path.current_step)
    path.hop = number = max(number for number, hop in ledger.history.items() if (hop.path, hop.step) == place)
    return ledger.with_hop(number, ended_us=None, status="running", error=None)


def _without_failures(path: PathState, opened: OpenStep) -> Map[str, OperationRecord]:
    """Return the operations of a step that has ended without those to be carried out again."""
    kept = opened.operations
    for record in _ending_failures(path, opened):
        # A child is resumed, not started a second time, unless it cannot go on, and a turn keeps what it holds.
        # A call whose result was lost is asked about.
        is_kept = record.operation_type == CHILD_WORKFLOW or record.operation_type in ENCLOSING or record.lost
        again = record._replace(status=PENDING, signal=None if record.is_final else record.signal)
        kept = kept.set(record.operation_id, again) if is_kept else kept.delete(record.operation_id)
    return kept


def _ending_failures(path: PathState, opened: OpenStep) -> list[OperationRecord]:
    """Return the failures that ended a step.

    These are all of them, but a function, an agent or a stage of a pipeline may have continued after some.
    """
    records = opened.operations.values()
    failed = [record for record in records if record.status == FAILED]
    if opened.step_type == STAGE and opened.ended_by is None:  # a log of before stages named them
        return failed
    if opened.step_type not in {FUNCTION, STAGE} and not any(record.operation_type in ENCLOSING for record in records):
        return failed
    if opened.ended_by is not None:
        return [record for record in failed if record.operation_id in opened.ended_by]
    return sorted(failed, key=lambda record: record.ended_sequence)[-1:] if path.status == FAILED else []


def _status_of(path: PathState) -> str:
    return PENDING if path.started_us is None else RUNNING


def _execution_paused(draft: Draft, data: catalog.ExecutionPaused) -> None:
    draft.paused = data.reason or "paused"


def _execution_enqueued(draft: Draft, data: catalog.ExecutionEnqueued) -> None:
    draft.lifecycle = STATUS_AFTER[type(data)]
    draft.paused = None
    draft.queue = data.queue
    draft.priority = data.priority
    draft.due_us = data.due


def _execution_completed(draft: Draft, data: catalog.ExecutionCompleted) -> None:
    draft.outputs = data.outputs
    draft.reason = "completed"
    _leave(draft, data)


def _rollback_started(draft: Draft, data: catalog.RollbackStarted) -> None:
    draft.rolling_back = RollingBack(data.error, data.reason, data.cancelled)
    draft.undone_from = len(draft.rollbacks) + 1


def _rollback_added(draft: Draft, data: catalog.RollbackAdded) -> None:
    undoing = Undoing(draft.step, data.action, data.parameters, data.kind, data.function)
    draft.rollbacks = draft.rollbacks.set(len(draft.rollbacks) + 1, undoing)
    if draft.rolling_back is not None:  # it was asked what had become of it before anything is undone
        draft.undone_from = len(draft.rollbacks) + 1


def _execution_failed(draft: Draft, data: catalog.ExecutionFailed) -> None:
    draft.error = data.error
    draft.reason = data.reason
    _leave(draft, data)


def _execution_cancelled(draft: Draft, data: catalog.ExecutionCancelled) -> None:
    draft.error = data.reason or None
    draft.reason = "user_cancelled"
    _leave(draft, data)


def _execution_continued(draft: Draft, data: catalog.ExecutionContinuedAsNew) -> None:
    draft.continued_as = data.new_execution_id
    _leave(draft, data)


def _annotated(draft: Draft, data: catalog.ExecutionAnnotated) -> None:
    if data.message is not None:
        draft.taken = max(draft.taken, data.message)
    for name, value in (data.labels or {}).items():
        if value is not None:
            draft.labels = draft.labels.set(name, value)
        elif name in draft.labels:
            draft.labels = draft.labels.delete(name)
    draft.annotated_at = draft.last_sequence


def _leave(draft: Draft, data: Payload) -> None:
    draft.lifecycle = STATUS_AFTER[type(data)]
    draft.ended_us = draft.moment


_CHANGES: dict[type, Callable[[Draft, Any], None]] = {
    catalog.ExecutionStarted: _execution_started,
    catalog.ExecutionForked: execution_forked,
    catalog.ExecutionResumed: _execution_resumed,
    catalog.ExecutionPaused: _execution_paused,
    catalog.ExecutionEnqueued: _execution_enqueued,
    catalog.ExecutionCompleted: _execution_completed,
    catalog.RollbackStarted: _rollback_started,
    catalog.RollbackAdded: _rollback_added,
    catalog.ExecutionFailed: _execution_failed,
    catalog.ExecutionCancelled: _execution_cancelled,
    catalog.ExecutionAnnotated: _annotated,
    catalog.ExecutionMoved: _leave,
    catalog.ExecutionContinuedAsNew: _execution_continued,
    catalog.ExecutionPictured: _leave,
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
    catalog.RowsCompleted: rows_completed,
    catalog.OperationStarted: operation_started,
    catalog.OperationCompleted: operation_completed,
    catalog.OperationFailed: operation_failed,
    catalog.EventEmitted: event_emitted,
    catalog.InterruptRaised: interrupt_raised,
    catalog.InterruptJoined: interrupt_joined,
    catalog.InterruptResolved: interrupt_resolved,
    catalog.InterruptExpired: interrupt_expired,
    catalog.SignalReceived: signal_received,
    catalog.ApprovalRuleAdded: rule_added,
    catalog.ApprovalRuleRevoked: rule_revoked,
    catalog.StateMutated: state_mutated,
    catalog.WorkspaceOpened: workspace_opened,
    catalog.FilesChanged: files_changed,
}
