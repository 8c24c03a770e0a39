"""Functions that compute the state of an execution from its events, one event after the other (a fold). No other code
changes a state.

`evolve` accepts every event of the catalogue. `_CHANGES` has a function for each event that changes more than the
sequence number. These functions modify a draft, so that folding a record or a whole log creates one new state only.
Example: after `path_started`, `step_started`, `operation_started` of a log, the path "main" is in phase `in_step` and
has one running operation; `operation_completed` stores its result in the record; `step_completed` drops the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from divebook.definitions.step import STAGE
from divebook.engine.approvals import StandingRule
from divebook.engine.bounds import follow_about_bounds
from divebook.engine.changes import (
    files_changed,
    path_branched,
    path_cancelled,
    path_completed,
    path_failed,
    path_joined,
    path_started,
    path_waiting,
    release_calls,
    with_child_reservations,
    with_enclosing,
    without_a_call,
    without_enclosed,
    workspace_opened,
)
from divebook.engine.forks import execution_forked
from divebook.engine.lifecycle import STATUS_AFTER, TERMINAL
from divebook.engine.maps import Map
from divebook.engine.operations import AGENT_RESPONSE, CHILD_WORKFLOW, ENCLOSING, EVENT_EMITTED, VERDICT, Reserved
from divebook.engine.state import (
    ABANDONED,
    EMPTY,
    ENDED,
    IN_STEP,
    JOINING,
    NO_BOUNDS,
    NO_USAGE,
    READY,
    ROUTING,
    SLEEPS,
    Draft,
    ExecutionState,
    Hop,
    Ledger,
    OpenStep,
    OperationRecord,
    Outcome,
    PathState,
    RollingBack,
    Undoing,
    is_sleeping,
    sleeps,
    with_place,
)
from divebook.errors import UNFIT, CorruptStoreError, InterruptExpiredError
from divebook.events import catalog
from divebook.events.catalog import CANCELLED, COMPLETED, FAILED, PENDING, RUNNING, WAITING, Payload
from divebook.events.event import MICROSECONDS, Event, Record
from divebook.questions import Question
from divebook.questions.bounds import Bounds, edge_key
from divebook.questions.question import RESOURCE_EXHAUSTED, is_expired_unanswered

PROMPT = "prompt"
FUNCTION = "function"


# --- the fold --------------------------------------------------------------------------------------------------------
#
# The state after event n depends only on the state after event n - 1 and on event n: no clock, no chance, no I/O. The
# process that drives an execution, a process that resumes it and a reader of its store therefore compute the same
# state. Example, one step with one call on the path "main":
#
#     event                                    phase     operations of the open step       output
#     3  path_started("a")                     ready     (no open step)
#     4  step_started(visit=1)                 in_step   {}
#     5  operation_started("op_1")             in_step   {"op_1": running}
#     6  operation_completed("op_1", 7)        in_step   {"op_1": completed, result 7}
#     7  step_completed("7")                   routing   (no open step)                    {"a": "7"}
#
# If the process dies after event 5, the state says that the call began and has no end. If it dies after event 6, the
# step runs again, and its call returns 7 from the record without being made.


def evolve(state: ExecutionState, event: Event) -> ExecutionState:
    """Return the state of an execution after one more event.

    Raises
    ------
    CorruptStoreError
        The event does not follow the state: the log has a gap, or its path never began.
    """
    draft = Draft(state)
    _change(draft, event, (event.data,))
    return draft.sealed()


def evolve_records(state: ExecutionState, records: Iterable[tuple[Record, int]]) -> ExecutionState:
    """Return the state of an execution after some records of its log. A record has one or more events that were written
    together.

    Each record comes with the number of its events that the state has already. Errors are those of `evolve`.
    """
    draft = Draft(state)
    follow(draft, records)
    return draft.sealed()


def follow(draft: Draft, records: Iterable[tuple[Record, int]]) -> None:
    """Apply records to a mutable draft of a state, with the same arguments and errors as `evolve_records`. After an
    error the draft must not be used any more.
    """
    for record, folded in records:
        _change(draft, record, record.facts, folded)


def fold(execution_id: str, events: Iterable[Event], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state of an execution after all events, starting from `state` or from an empty state.

    Raises
    ------
    CorruptStoreError
        An event does not follow those before it, or its contents are invalid. The engine did not write this log.
    """
    draft = Draft(state or ExecutionState(execution_id))
    for event in events:
        try:
            _change(draft, event, (event.data,))
        # `UNFIT` includes this class, as it is a `DivebookError`. Its text names the execution already.
        except CorruptStoreError:
            raise
        except UNFIT as error:
            raise _refused(draft, event.data, error) from error
    return draft.sealed()


def fold_records(execution_id: str, records: Iterable[Record], state: ExecutionState | None = None) -> ExecutionState:
    """Return the state of an execution after all events of some log records, starting from `state` or from an empty
    state. Errors are those of `fold`.

    `state` may have the first events of the first record already.
    """
    draft = Draft(state or ExecutionState(execution_id))
    for record in records:
        # A checkpoint may end inside a record. State at event 8, record with the events 7 to 9: two of them are
        # skipped.
        folded = 0 if record.sequence > draft.last_sequence else draft.last_sequence + 1 - record.sequence
        try:
            _change(draft, record, record.facts, folded)
        except CorruptStoreError:
            raise
        except UNFIT as error:
            # `_change` raises `last_sequence` before it applies an event, so this is the event that failed.
            raise _refused(draft, record.facts[draft.last_sequence - record.sequence], error) from error
    return draft.sealed()


def _refused(draft: Draft, data: Payload, error: Exception) -> CorruptStoreError:
    """Return the error for an event that cannot be applied to the state after the events before it
    (test_a_forged_log_is_a_corrupt_log).
    """
    return CorruptStoreError(
        f"event {draft.last_sequence} ({data.event_type}) of execution {draft.execution_id} does not fit the log: "
        f"{type(error).__name__}: {error}"
    )


def _change(draft: Draft, entry: Event | Record, facts: Sequence[Payload], folded: int = 0) -> None:
    """Apply the events of a record, or a single event, to a draft of a state. The first `folded` events of the record
    are skipped, because the draft has them already.
    """
    sequence = entry.sequence + folded
    moment = entry.recorded_at
    if sequence != draft.last_sequence + 1:
        raise CorruptStoreError(f"the log of {draft.execution_id} jumps from event {draft.last_sequence} to {sequence}")
    draft.go_to(entry, facts)
    # With `folded` the fold begins inside the record: the journal folds a record while events are still added to it.
    for data in facts[folded:] if folded else facts:
        # The number of the event is set first, because the state stores it (`started_sequence`, `annotated_at`, the
        # places of large values). Its time is set last: `last_us` has to be the time of the previous event, from which
        # pauses are measured.
        draft.last_sequence = sequence
        change = _CHANGES.get(type(data))
        # Five types have no function, for example `time_accessed` and `iteration_started`: they only inform readers.
        if change is not None:
            change(draft, data)
        draft.last_us = moment
        sequence += 1


# --- the execution ---------------------------------------------------------------------------------------------------


def _execution_started(draft: Draft, data: catalog.ExecutionStarted) -> None:
    draft.workflow_name = data.workflow_name
    # The seed is not always the id: a copy under another id keeps it, and with it the ids of its questions.
    draft.seed = data.seed or draft.execution_id
    draft.inputs = data.inputs
    draft.identity = data.identity or EMPTY
    draft.fingerprint = data.fingerprint
    draft.code = data.code or EMPTY
    draft.model = data.model
    draft.lifecycle = RUNNING
    draft.started_us = draft.moment
    draft.bounds = Bounds.from_dict(data.bounds) if data.bounds else NO_BOUNDS
    # `data.parent` is also the source of a copy, and a source does not wait for the end of its copies.
    draft.parent = data.parent if data.came_from == catalog.CHILD else None
    if data.state:
        draft.variables = draft.variables.update(data.state)


def _execution_resumed(draft: Draft, data: catalog.ExecutionResumed) -> None:
    # During a rollback only the paths of rollbacks, and those with a call of unknown outcome, continue.
    resumable = draft.paths.values() if draft.rolling_back is None else (*draft.undoing, *draft.unsettled)
    for path in resumable:
        if path.phase != ENDED or (path.status in (FAILED, CANCELLED) and not data.keeps_failed):
            # `path` is the state before the resumption. `_reopen` below changes the phase and the status that these two
            # read.
            draft.ledger = with_child_reservations(path, draft.ledger)
            was_denied = data.previous_status in TERMINAL and _was_denied(draft, path)
            _ask_again(draft, path)
            release_calls(draft, draft.own(path.id))
            _reopen(draft.own(path.id))
            if was_denied:  # the person is asked again about this rollback, as another visit of its step
                visits = draft.own(path.id).visits
                draft.own(path.id).visits = visits.set(path.current_step, visits.get(path.current_step, 0) + 1)
            draft.ledger = _within_its_hop(draft.own(path.id), draft.ledger)
    # Paths that had ended are active again, so all active paths are counted again.
    active = [path for path in draft.paths.values() if path.phase != ENDED]
    draft.lifecycle = RUNNING
    draft.ended_us = None
    # A resumed rollback still ends with the failure that caused it.
    if draft.rolling_back is None and not data.keeps_failed:
        draft.failed_path = None
    draft.error = draft.stopped = draft.reason = draft.paused = None
    draft.active = len(active)
    draft.joining = sum(path.phase == JOINING for path in active)
    draft.asking = sum(path.asking > 0 for path in active)
    draft.sleeping = sum(map(is_sleeping, active))
    # From the last event until the resumption, no process ran the execution.
    draft.paused_us += max(0, draft.moment - draft.last_us)
    if data.bounds is not None:
        draft.bounds = Bounds.from_dict(data.bounds)


def _ask_again(draft: Draft, path: PathState) -> None:
    """Mark the question whose expiry made a path fail, so that its code asks again. The old question stays; no path
    waits for it any more, which the search for its successor relies on (`OperationLog.question_id`).
    """
    for name in path.open.ended_by or () if path.phase == ENDED and path.open is not None else ():
        question = draft.interrupts.get(name)
        if question is not None and is_expired_unanswered(question):
            draft.interrupts = draft.interrupts.set(name, question._replace(waiting=()))


def _was_denied(draft: Draft, path: PathState) -> bool:
    """Return whether a person or an approval rule denied the rollback that a path runs, so that none of its calls was
    made.
    """
    if path.undoes is None or path.status != FAILED:
        return False
    # A denial by a rule is recorded as an operation of type `VERDICT`, one by a person as an answered question. Any
    # other operation is a call that was made, perhaps without success.
    operations = path.open.operations.values() if path.open is not None else ()
    if any(record.operation_type != VERDICT for record in operations):
        return False
    questions = draft.interrupts.values()
    return bool(operations) or any(question.path == path.id and not question.is_open for question in questions)


def _reopen(path: PathState) -> None:
    """Reset a failed or cancelled path to the point from which it continues when its execution is resumed. In its open
    step, successful operations stay, and failed operations are removed so that they run again.
    """
    has_ended = path.phase == ENDED
    open_step = path.open
    # Between two steps, the path keeps its phase, or gets back the one in which it ended. Its conditions are evaluated
    # again.
    if open_step is None:
        path.status = _status_of(path)
        path.phase = path.left if has_ended else path.phase
        path.routing = ()
    else:
        # A path that is still active was only interrupted. Its recorded failures stay, and its code meets them again.
        path.open = _without_failures(path, open_step) if has_ended else open_step
        # The step runs again from its start, so it reads the variables as they were then.
        path.variables = open_step.entry_variables
        path.variables_at = open_step.entry_at
        path.status = RUNNING
        path.phase = IN_STEP
    path.error = path.reason = path.ended_us = None


def _within_its_hop(path: PathState, ledger: Ledger) -> Ledger:
    """Return the counters of an execution (`Ledger`) after a path was resumed inside an agent step. The path's visit of
    this step is marked as running again, and is not counted a second time.
    """
    # A path that did not end still has its hop: its process died inside the agent step.
    if path.hop is not None or path.open is None or path.open.step_type != PROMPT:
        return ledger
    place = (path.id, path.current_step)
    # Hops are numbered by their start, so the highest number is the latest visit of this step.
    path.hop = number = max(number for number, hop in ledger.history.items() if (hop.path, hop.step) == place)
    return ledger.with_hop(number, ended_us=None, status="running", error=None)


def _without_failures(path: PathState, open_step: OpenStep) -> OpenStep:
    """Return an ended step without the failed operations, which run again when the execution is resumed. The usage of
    failed model calls stays.
    """
    operations = open_step.operations
    failed_usage = open_step.failed_usage
    # The failure because of which the code has abandoned a wait may not happen again.
    for record in operations.values():
        if record.status == ABANDONED:
            operations = operations.set(record.operation_id, record._replace(status=RUNNING))
    for record in _ending_failures(path, open_step):
        # A child is resumed, not started a second time, unless it cannot be resumed. A turn keeps its requests and
        # calls. A person is asked about a call whose result was lost.
        stays = record.operation_type == CHILD_WORKFLOW or record.operation_type in ENCLOSING or record.lost
        if stays:
            # Without an id of a child, the next start of this operation creates a new child.
            signal = None if record.is_final else record.signal
            operations = operations.set(record.operation_id, record._replace(status=PENDING, signal=signal))
        else:
            operations = operations.delete(record.operation_id)
        # The budget of an agent counts these calls (test_what_a_failed_turn_has_spent_counts_after_it_is_resumed).
        if record.operation_type == AGENT_RESPONSE:
            used = failed_usage.get(record.operation_id, NO_USAGE).plus({**record.consumed, "requests": 1})
            failed_usage = failed_usage.set(record.operation_id, used)
    return open_step._replace(operations=operations, failed_usage=failed_usage)


def _ending_failures(path: PathState, open_step: OpenStep) -> list[OperationRecord]:
    """Return the records of the failed operations that made a step fail, so that a resumption repeats exactly these.

    These are all failed operations of the step. But the code of a function, an agent or a pipeline stage may have
    caught some failures and continued; those are not included.
    """
    records = open_step.operations.values()
    failures = [record for record in records if record.status == FAILED]
    if open_step.step_type == STAGE and open_step.ended_by is None:  # a log of before stages named them
        return failures
    if open_step.step_type not in {FUNCTION, STAGE} and not any(
        record.operation_type in ENCLOSING for record in records
    ):
        return failures
    # Code of a function or an agent may catch an error and continue. `step_failed` names the failures that ended it.
    if open_step.ended_by is not None:
        return [record for record in failures if record.operation_id in open_step.ended_by]
    # Without these names, the latest failure is taken. A cancelled path did not end because of a failure.
    return sorted(failures, key=lambda record: record.ended_sequence)[-1:] if path.status == FAILED else []


def _status_of(path: PathState) -> str:
    return PENDING if path.started_us is None else RUNNING


def _execution_paused(draft: Draft, data: catalog.ExecutionPaused) -> None:
    draft.paused = data.reason or "paused"


def _execution_enqueued(draft: Draft, data: catalog.ExecutionEnqueued) -> None:
    draft.lifecycle = STATUS_AFTER[type(data)]
    # A worker that drains records a pause before this event. The pause ends, so that another worker takes the
    # execution.
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
    # Rollbacks are numbered from 1 and run downwards. With 3 of them: 4 (none has started), 3, 2, 1.
    draft.undone_from = len(draft.rollbacks) + 1


def _rollback_added(draft: Draft, data: catalog.RollbackAdded) -> None:
    undoing = Undoing(draft.step, data.action, data.parameters, data.kind, data.function)
    draft.rollbacks = draft.rollbacks.set(len(draft.rollbacks) + 1, undoing)
    if draft.rolling_back is not None:  # the outcome of its call was settled after the failure, before any rollback
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


# --- steps, their items, and the variables that they change ----------------------------------------------------------


def step_started(draft: Draft, data: catalog.StepStarted) -> None:
    """Apply `step_started`: count the visit of the step, and open the step with the variables of the execution at this
    event.
    """
    path = draft.path(data)
    step = draft.step
    is_hop = data.step_type == PROMPT
    # `_entered` adds this hop to the history under the same number.
    path.hop = draft.ledger.agent_hops if is_hop else None
    # For a first visit without bounds, the ledger stays as it is: this is the usual case.
    if is_hop or step in path.visits or step in path.before or draft.bounds is not NO_BOUNDS:
        draft.ledger = _entered(draft, path, is_hop=is_hop)
    path.current_step = step
    path.phase = IN_STEP
    path.routing = ()
    path.visits = path.visits.set(step, data.visit)
    # The step reads the variables of this event until it ends, whatever other paths write meanwhile.
    path.variables = draft.variables
    path.variables_at = draft.variables_at
    path.open = OpenStep.begun(data.step_type, draft.variables, draft.variables_at)


def _entered(draft: Draft, path: PathState, *, is_hop: bool) -> Ledger:
    """Return the counters of an execution (`Ledger`) after a path has entered a step. They count passes through loops,
    visits of agent steps, and passages of those edges that have a bound.
    """
    ledger = draft.ledger
    step = draft.step
    # `path.visits` does not have this visit yet: the caller adds it afterwards.
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
    """Apply `step_completed`: close a step and store its output. The path then chooses an edge."""
    path = draft.path(data)
    step = draft.step
    output = data.output
    # Counted only if a bound needs it, because it hashes operations and output.
    if draft.bounds.max_repeats is not None:
        path.repeats = _repeats(path, step, output)
    if path.hop is not None:
        draft.ledger = draft.ledger.with_hop(path.hop, status="success", ended_us=draft.moment)
        path.hop = None
    # A call without a recorded end was cancelled by the code of the step. It does not hold budget any longer.
    if draft.ledger.reserved_tokens or draft.ledger.reserved_cost:
        release_calls(draft, path)
    path.phase = ROUTING
    path.open = None
    path.last_step = step
    # The conditions of the edges read the variables as they are at the end of the step.
    path.variables = draft.variables
    path.variables_at = draft.variables_at
    path.step_outputs = path.step_outputs.set(step, output)
    path.outputs_at = with_place(path.outputs_at, step, output, draft.last_sequence)


def _repeats(path: PathState, step: str, output: str) -> Map[str, tuple[str, int]]:
    """Count how often in a row each step of a path had the same result, after one more result of `step`. Return, by
    step, the digest of its last result and this number.

    Results are equal if the operations and the output text are.
    """
    records = path.open.operations.values() if path.open is not None else ()
    # Sorted, because concurrent calls of one step start in any order.
    operations = sorted(f"{record.operation_type} {record.parameters_hash}" for record in records)
    digest = hashlib.sha256("\x1f".join((*operations, output)).encode()).hexdigest()[:16]
    before, count = path.repeats.get(step, ("", 0))
    return path.repeats.set(step, (digest, count + 1 if digest == before else 1))


def step_failed(draft: Draft, data: catalog.StepFailed) -> None:
    """Apply `step_failed`: store the error of a step, and the failed operations that caused it."""
    path = draft.path(data)
    ledger = draft.ledger.with_error(draft.step, data.error, draft.moment)
    if path.hop is not None:
        ledger = ledger.with_hop(path.hop, status="error", error=data.error, ended_us=draft.moment)
    draft.ledger = ledger
    path.error = data.error
    path.hop = None
    if path.open is not None and data.operations is not None:
        # An item that failed because a question expired has left the id of the question.
        questions = (name for name in path.open.ended_by or () if name in draft.interrupts)
        path.open = path.open._replace(ended_by=(*data.operations, *questions))
    _note_expired_questions(draft, path, data.error_names, data.operations or ())


def _note_expired_questions(
    draft: Draft, path: PathState, error_names: Sequence[str] | None, causes: Iterable[str] = ()
) -> None:
    """Add to the causes of a step's failure the questions whose expiry made it fail, so that a resumption asks again.

    `error_names` are the names of the error's class and its base classes. `causes` has the id of the question if the
    error wraps that of a question.
    """
    wrapped = [draft.interrupts[name] for name in causes if name in draft.interrupts]
    if path.open is None or not (wrapped or InterruptExpiredError.__name__ in (error_names or ())):
        return
    expired = [q for q in draft.interrupts.values() if path.id in q.waiting and is_expired_unanswered(q)]
    # Code may have caught the expiry of earlier questions. The latest one has ended the step, together with those that
    # were open at the same time, such as the questions of other items.
    last_raised_us = max((question.raised_us for question in wrapped or expired), default=0)
    names = [q.id for q in expired if q.raised_us == last_raised_us or (q.settled_us or 0) > last_raised_us]
    path.open = path.open._replace(ended_by=(*(path.open.ended_by or ()), *names))


def step_retried(draft: Draft, data: catalog.StepRetried) -> None:
    """Apply `step_retried`: store that a step, an item of `Each` or a call has failed and will be repeated after a
    pause.
    """
    path, open_step = draft.open_step(data)
    item = data.iteration_index if data.key is None else data.key
    path.open = open_step._replace(failures=open_step.failures.set(item, (data.attempt, data.delay)))


def step_caught(draft: Draft, data: catalog.StepCaught) -> None:
    """Apply `step_caught`: move a path to the step that handles the failure of its current step."""
    path = draft.path(data)
    draft.sleeping -= is_sleeping(path)
    release_calls(draft, path)
    # The path has not entered the step that handles the error: its `step_started` follows.
    path.phase = READY
    path.current_step = data.target
    path.open = None
    path.error = None
    path.variables = draft.variables
    path.variables_at = draft.variables_at


def condition_evaluated(draft: Draft, data: catalog.ConditionEvaluated) -> None:
    """Apply `condition_evaluated`: store the result of a condition after a step."""
    path = draft.path(data)
    path.routing = (*path.routing, data.result)


def iteration_completed(draft: Draft, data: catalog.IterationCompleted) -> None:
    """Apply `iteration_completed`: store the result of an item of `Each`."""
    path, open_step = draft.open_step(data)
    path.open = _with_item(draft, open_step, data)


def rows_completed(draft: Draft, data: catalog.RowsCompleted) -> None:
    """Apply `rows_completed`: store the results of some rows of a frame (DataFrame). A group of rows counts as one
    item.
    """
    path, open_step = draft.open_step(data)
    path.open = _with_item(draft, open_step, data)


def iteration_failed(draft: Draft, data: catalog.IterationFailed) -> None:
    """Apply `iteration_failed`: if the step continues after a failed item, store the recorded result that stands for
    the item.
    """
    path, open_step = draft.open_step(data)
    if data.result is not None:
        path.open = _with_item(draft, open_step, data)
    else:
        _note_expired_questions(draft, path, data.error_names)


Item: TypeAlias = catalog.IterationCompleted | catalog.IterationFailed | catalog.RowsCompleted


def _with_item(draft: Draft, open_step: OpenStep, data: Item) -> OpenStep:
    index = data.iteration_index
    result = data.result
    places = with_place(open_step.iterations_at, index, result, draft.last_sequence)
    return open_step.with_items(open_step.iterations.set(index, result), places)


def state_mutated(draft: Draft, data: catalog.StateMutated) -> None:
    """Apply `state_mutated`: set or delete variables of the execution, also in the copy of the variables that the path
    reads.
    """
    # The variables of the execution and the copy that the path reads differ if another path has written since the step
    # began. Example: "main-1" and "main-2" both begin a step with {"n": 0}; "main-1" sets n=1, then "main-2" sets m=2.
    #
    #     execution   {"n": 1, "m": 2}
    #     main-1      {"n": 1}
    #     main-2      {"n": 0, "m": 2}
    before = draft.variables
    sequence = draft.last_sequence
    new_variables = draft.variables, draft.variables_at = _mutated(before, draft.variables_at, data.mutations, sequence)
    # An event about the whole execution has no path.
    if draft.path_id not in draft.paths:
        return
    path = draft.path(data)
    # Otherwise the path shares the new object with the execution, and a checkpoint writes it once.
    if path.variables is not before:
        new_variables = _mutated(path.variables, path.variables_at, data.mutations, sequence)
    path.variables, path.variables_at = new_variables


def _mutated(
    variables: Map[str, Any], places: Map[str, int], mutations: Iterable[catalog.Mutation], sequence: int
) -> tuple[Map[str, Any], Map[str, int]]:
    """Return variables after some of them were set or deleted, together with the sequence numbers of the events that
    hold the large values.
    """
    for mutation in mutations:
        key = mutation.key
        if mutation.type == "set":
            variables = variables.set(key, mutation.value)
            places = with_place(places, key, mutation.value, sequence)
        elif key in variables:
            variables = variables.delete(key)
            # None is a small value, so this removes the place of the deleted variable.
            places = with_place(places, key, None, sequence)
    return variables, places


# --- operations ------------------------------------------------------------------------------------------------------


# Types that may reserve a part of the budget at their start: model calls and child executions.
_RESERVES = frozenset({AGENT_RESPONSE, CHILD_WORKFLOW})
LONGEST_SECONDS = 1000 * 365 * 86400.0
"""Longest timer in seconds. Longer ones count as this long, because dates end with the year 9999."""


def operation_started(draft: Draft, data: catalog.OperationStarted) -> None:
    """Apply `operation_started`: add the record of an operation. A model call is also counted, and the most that it may
    consume is reserved from the budget.
    """
    path, open_step = draft.open_step(data)
    kind = data.operation_type
    record = OperationRecord.begun(data.operation_id, kind, data.parameters_hash, draft.moment, draft.last_sequence)
    if kind in _RESERVES:
        reservation = Reserved.of(data.reserved)
        earlier = open_step.operations.get(data.operation_id)
        # A call that starts again replaces the reservation of its earlier start.
        ledger = draft.ledger.holding(_held_before(earlier, data), -1).holding(reservation)
        record = record._replace(reserved=reservation)
        draft.ledger = _asking_a_model(ledger, path, data) if kind == AGENT_RESPONSE else ledger
    # Most calls have none of these. Their record stays as `begun` made it, which keeps the common case fast.
    if data.within is not None or data.setting_hash is not None or kind in ENCLOSING:
        record, open_step = with_enclosing(open_step, record, data)
    if data.undone is not None:
        record = record._replace(undone=data.undone, item=data.iteration_index)
    if kind not in SLEEPS:
        path.open = open_step.with_operation(record)
        return
    # Timers, signal waits and children count for the status "waiting", so the number of sleeping paths is updated.
    until = _end_of(draft, data)
    signal = (data.parameters or {}).get("signal")
    _put_sleeping(draft, path, open_step, record._replace(until=until, signal=signal))


def _held_before(earlier: OperationRecord | None, data: catalog.OperationStarted) -> Reserved | None:
    """Return the part of the budget that an operation reserved when it started earlier. It is released when the
    operation starts again. Return None if nothing was reserved.

    The reservation of a child that another child replaces stays
    (test_it_stays_held_where_another_execution_takes_the_place).
    """
    is_same = earlier is not None and earlier.signal == (data.parameters or {}).get("signal")
    return earlier.reserved if earlier is not None and is_same else None


def _asking_a_model(ledger: Ledger, path: PathState, data: catalog.OperationStarted) -> Ledger:
    """Return the counters of an execution (`Ledger`) after one more model call has started. A repeated call counts
    again.
    """
    ledger = ledger._replace(llm_calls=ledger.llm_calls + 1)
    if path.hop is None:
        return ledger
    agent = (data.parameters or {}).get("agent")
    calls = ledger.history[path.hop].llm_calls
    return ledger.with_hop(path.hop, agent=agent, llm_calls=calls + 1)


def _end_of(draft: Draft, data: catalog.OperationStarted) -> int | None:
    seconds = (data.parameters or {}).get("seconds")
    if not isinstance(seconds, int | float):
        return None
    # The end counts from the recorded start. A process that resumes the timer waits for the rest only.
    return draft.moment + round(min(seconds, LONGEST_SECONDS) * MICROSECONDS)


def operation_completed(draft: Draft, data: catalog.OperationCompleted) -> None:
    """Apply `operation_completed`: store the result of an operation. A signal wait also removes the signal that it
    received.
    """
    record = _ended(draft, data, COMPLETED, (data.result, None, (), None))
    if record.signal is not None and record.operation_type != CHILD_WORKFLOW:
        # The oldest signal of this name is the one that the wait has received.
        remaining = draft.signals.get(record.signal, ())[1:]
        draft.signals = (
            draft.signals.set(record.signal, remaining) if remaining else draft.signals.delete(record.signal)
        )


def event_emitted(draft: Draft, data: catalog.EventEmitted) -> None:
    """Apply `event_emitted`: store an event that user code emitted as a completed operation, so that replay finds it.
    Without an operation id, nothing is stored.
    """
    # Events of actions have no id: an action does not run again at a replay, so nothing looks for them.
    if data.operation_id is None:
        return
    path, open_step = draft.open_step(data)
    moment = draft.moment
    sequence = draft.last_sequence
    record = OperationRecord.begun(data.operation_id, EVENT_EMITTED, data.parameters_hash, moment, sequence)
    path.open = open_step.with_operation(record._replace(ended_sequence=sequence, status=COMPLETED))


def operation_failed(draft: Draft, data: catalog.OperationFailed) -> None:
    """Apply `operation_failed`: store the error of an operation."""
    _ended(draft, data, FAILED, (None, data.error, tuple(data.error_names or ()), data.raised))
    path, open_step = draft.open_step(data)
    record = open_step.operations[data.operation_id]
    # Rare fields, so most failures change the record only once.
    if data.final or data.lost != record.lost:
        is_final = record.is_final or bool(data.final)
        path.open = open_step.with_operation(record._replace(is_final=is_final, lost=data.lost))


def operations_abandoned(draft: Draft, data: catalog.OperationsAbandoned) -> None:
    """Apply `operations_abandoned`: timers and waits for signals do not count as waits of their path any more."""
    path, _ = draft.open_step(data)
    for operation_id in data.operation_ids:
        assert path.open is not None  # noqa: S101 - `draft.open_step` has checked it
        record = path.open.operations.get(operation_id)
        if record is None:
            raise CorruptStoreError(f"wait {operation_id} of {draft.execution_id} is abandoned without having started")
        _put_sleeping(draft, path, path.open, record._replace(status=ABANDONED))


def _ended(
    draft: Draft, data: catalog.OperationCompleted | catalog.OperationFailed, status: str, outcome: Outcome
) -> OperationRecord:
    """Store the end of an operation: its outcome and usage. The part of the budget that was reserved for it is
    released. Return the operation's record as it was before.

    Usage is added to the step and the execution. A call that was replayed from another log does not count as a model
    call. With `data.held`, the call keeps a reservation although it has ended.
    """
    path, open_step = draft.open_step(data)
    record = open_step.operations.get(data.operation_id)
    # A log that this engine wrote always has the start. Only a damaged or forged log reaches this.
    if record is None:
        raise CorruptStoreError(f"call {data.operation_id} of {draft.execution_id} ends without having started")
    # Example: a step with one call ends with the record (operation_completed, step_completed). The second event drops
    # the operations of the step, so storing the result of the first is useless, unless it also changes counters.
    is_plain = record.reserved is None and record.operation_type not in SLEEPS and not data.usage and not data.served
    if is_plain and draft.ends_step and draft.bounds.max_repeats is None:
        return record  # the step ends with this event, so its records are dropped at once
    if data.usage:
        open_step = open_step._replace(usage=open_step.usage.plus(data.usage))
        draft.usage = draft.usage.plus(data.usage)
    if record.reserved is not None:
        draft.ledger = draft.ledger.holding(record.reserved, -1)
    # The start has counted a model call. Its answer came from another log, so no model was called.
    if data.served is not None and record.operation_type == AGENT_RESPONSE:
        draft.ledger = without_a_call(draft.ledger, path)
    ended_record = record.ended(draft.last_sequence, status, outcome)
    # An ended child may still hold budget for children of its own, whose usage is not counted yet.
    if data.held:
        reservation = Reserved.of(data.held)
        draft.ledger = draft.ledger.holding(reservation)
        ended_record = ended_record._replace(reserved=reservation)
    if status == COMPLETED and record.operation_type in ENCLOSING:
        open_step = without_enclosed(open_step, record)
        ended_record = ended_record._replace(holds=())
    if record.operation_type not in SLEEPS:
        path.open = open_step.with_operation(ended_record)
        return record
    if record.operation_type == CHILD_WORKFLOW:
        _child_ended(draft, record, data.usage)
    _put_sleeping(draft, path, open_step, ended_record)
    return record


def _child_ended(draft: Draft, record: OperationRecord, usage: Mapping[str, int] | None) -> None:
    """Store the end of a child execution in the counters of its parent (`Ledger`): its usage is counted. The signals
    that have announced its end are removed.
    """
    child = record.signal or ""
    draft.ledger = draft.ledger.with_child(child, usage or {})
    if child in draft.signals:
        draft.signals = draft.signals.delete(child)


def _put_sleeping(draft: Draft, path: PathState, open_step: OpenStep, record: OperationRecord) -> None:
    path.open = after = open_step.with_operation(record)
    # A path counts once, however many timers it has: the difference of two booleans is 1, 0 or -1.
    draft.sleeping += sleeps(after) - sleeps(open_step)


# --- questions, answers and signals ----------------------------------------------------------------------------------


def interrupt_raised(draft: Draft, data: catalog.InterruptRaised) -> None:
    """Apply `interrupt_raised`: add a question, for which its path waits."""
    path = draft.path(data)
    question = Question(
        data.interrupt_id,
        data.kind,
        data.question,
        path.id,
        draft.step,
        message=data.message,
        data=data.data,
        schema=data.schema,
        operation_id=data.operation_id,
        raised_us=draft.moment,
        expires_us=data.expires_at,
        default=data.default,
        optional=bool(data.optional),
        waiting=(path.id,),
    )
    _wait(draft, path, question)


def interrupt_joined(draft: Draft, data: catalog.InterruptJoined) -> None:
    """Apply `interrupt_joined`: add a path to the paths that wait for a question."""
    question = _open_question(draft, data.interrupt_id)
    path = draft.path(data)
    _wait(draft, path, question._replace(waiting=(*question.waiting, path.id)))


def _wait(draft: Draft, path: PathState, question: Question) -> None:
    draft.interrupts = draft.interrupts.set(question.id, question)
    # The path counts as asking with its first open question.
    draft.asking += path.asking == 0
    path.asking += 1


def _open_question(state: ExecutionState, interrupt_id: str) -> Question:
    question = state.interrupts.get(interrupt_id)
    if question is None or not question.is_open:
        raise CorruptStoreError(f"question {interrupt_id} of {state.execution_id} is closed, but was not open")
    return question


def interrupt_resolved(draft: Draft, data: catalog.InterruptResolved) -> None:
    """Apply `interrupt_resolved`: store the answer to a question, and wake the paths that waited for it."""
    question = _open_question(draft, data.interrupt_id)
    answered_question = question.resolved(data)
    _settle(draft, answered_question, data.message)
    # The answer raises a bound, or stops the execution.
    if question.kind == RESOURCE_EXHAUSTED:
        follow_about_bounds(draft, answered_question)


def interrupt_expired(draft: Draft, data: catalog.InterruptExpired) -> None:
    """Apply `interrupt_expired`: mark a question as expired. Its default answer, if it has one, becomes the answer."""
    question = _open_question(draft, data.interrupt_id)
    _settle(draft, question.expired(), data.message)


def _settle(draft: Draft, question: Question, message: int | None) -> None:
    # Time counts as a pause only if the whole execution waited for people. The status is read before the question is
    # settled, as it may be "running" afterwards.
    if draft.status == WAITING and draft.asking:  # it has done nothing else since the last event
        draft.paused_us += max(0, draft.moment - draft.last_us)
    for path_id in question.waiting:
        path = draft.own(path_id)
        # A path may wait for several questions. It is counted as asking until the last one is settled.
        draft.asking -= path.asking == 1 and path.phase != ENDED
        path.asking -= 1
        # Its runner compares this number before and after the code of the step unwinds. No message is missed in
        # between.
        path.woken += 1
    draft.interrupts = draft.interrupts.set(question.id, question._replace(settled_us=draft.moment))
    _take(draft, message)


def _take(draft: Draft, message: int | None) -> None:
    if message is not None:
        draft.taken = max(draft.taken, message)


def signal_received(draft: Draft, data: catalog.SignalReceived) -> None:
    """Apply `signal_received`: store a signal until a signal wait consumes it."""
    name = data.signal_type
    draft.signals = draft.signals.set(name, (*draft.signals.get(name, ()), data.payload))
    _take(draft, data.message)
    for path in draft.active_paths():
        # Every path with a running wait for this signal checks again; one of them gets the signal.
        records = path.open.operations.values() if path.open is not None else ()
        if any(record.signal == name and record.status == RUNNING for record in records):
            draft.own(path.id).woken += 1


# --- standing approval rules -----------------------------------------------------------------------------------------


def rule_added(draft: Draft, data: catalog.ApprovalRuleAdded) -> None:
    """Apply `approval_rule_added`: add a standing approval rule, or replace the rule with the same id."""
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
    """Apply `approval_rule_revoked`: remove a standing approval rule, if it exists."""
    if data.message is not None:
        draft.taken = max(draft.taken, data.message)
    if data.rule_id in draft.rules:
        draft.rules = draft.rules.delete(data.rule_id)


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
    catalog.ExecutionSnapshotted: _leave,
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
    catalog.OperationsAbandoned: operations_abandoned,
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
