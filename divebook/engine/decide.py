"""Rules that decide which instruction a driver carries out next: run a step, record events, wait, or end. They also
decide joins, branches, rollbacks and the end of an execution. One decision is made elsewhere:
`divebook.runtime.recorder` decides whether a call of unknown outcome is repeated or a person is asked about it.

`decide` returns instructions for a workflow and a state; it never acts. A driver that runs one task per path calls
`decide_path` (for one path), `decide_joins` (when a path waits or ends) and `decide_end` (when a path ends). Together
they return the same instructions as `decide`.

Example: in a state whose path "main" is `READY` at step "a", `decide_path` returns ``RunStep("main", "a", 1)``. After
the events of that step the path is `ROUTING`, and `decide_path` returns the conditions to evaluate, or the next step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from divebook.definitions.definition import Workflow
from divebook.engine.bounds import facts_about, fails_at_bounds, step_bound
from divebook.engine.instructions import (
    AwaitAnswer,
    AwaitJoin,
    CancelPaths,
    EvaluateConditions,
    Fact,
    Instruction,
    PathInstruction,
    RecordFacts,
    RunStep,
)
from divebook.engine.lifecycle import TERMINAL
from divebook.engine.operations import Place
from divebook.engine.state import (
    BRANCHED,
    ENDED,
    IN_STEP,
    JOINED,
    JOINING,
    NO_BOUNDS,
    READY,
    ExecutionState,
    PathState,
    unknown,
    unsettled,
)
from divebook.events import catalog
from divebook.events.catalog import COMPLETED, FAILED, PENDING

ROOT = "main"
"""Id of the first path."""
ASKING_TYPES = frozenset({"prompt"})
"""Step types that call a model."""
ANSWERED = ("recorded", "read-only")
"""Values of `divebook.events.catalog.ExecutionForked.tools` with which a what-if has no side effects."""


def decide(workflow: Workflow, state: ExecutionState) -> tuple[Instruction, ...]:
    """Return all instructions that a driver can carry out now in this state, those of the oldest path first."""
    # An end comes first. While it is due, no path begins another step.
    end = decide_end(workflow, state)
    if end:
        return (end,)
    by_path = (decide_path(workflow, state, path.id) for path in state.active_paths())
    return (*(instruction for instruction in by_path if instruction), *decide_joins(workflow, state))


def decide_start(workflow: Workflow) -> Fact:
    """Return the event that starts the first path (the root path) of an execution."""
    return Fact(catalog.PathStarted(workflow.first_step.name), ROOT)


# --- one path --------------------------------------------------------------------------------------------------------
#
# A path moves through phases, which the fold of its events sets (`engine.evolve`). Each phase has one next instruction:
#
#     phase     set by                        next instruction
#     ready     path_started, step_caught     run the step; at a join, record path_waiting
#     in_step   step_started                  run the step again, with its recorded calls
#     routing   step_completed                evaluate conditions; then enter a step, branch or complete
#     branched  path_branched                 complete
#     joining   path_waiting                  wait
#     joined    path_joined                   run the step with the join
#
# Example with the edges a -> b (`n > 1`) and a -> c (`n < 9`), after step "a" with n = 5: `EvaluateConditions` records
# two events `condition_evaluated`. Both are true, so `path_branched` creates "main-1" at "b" and "main-2" at "c".


def decide_path(workflow: Workflow, state: ExecutionState, path_id: str) -> PathInstruction | None:
    """Return the next instruction for one path, or None if the path has ended or has nothing to do at present.

    The phase of the path determines the instruction. While the execution is rolled back, only paths that run rollbacks,
    or that must find out whether a call took effect, get one. After a person answered "stop" at a bound, paths fail
    before their next step.
    """
    path = state.paths[path_id]
    if path.phase == ENDED:
        return None
    if state.rolling_back is not None:
        return _undo(path) if path.undoes is not None else _settle(path)
    # `path_branched` creates a path before it has begun.
    if path.status == PENDING:
        return _begin(workflow, state, path)
    # An open step continues. Its path fails before the next step.
    if state.stopped is not None and path.phase != IN_STEP:
        return RecordFacts((Fact(catalog.PathFailed(*state.stopped), path_id),))
    if path.phase == READY:
        return _enter(workflow, state, path, path.current_step)
    if path.phase == IN_STEP:
        return RunStep(path_id, path.current_step, path.visits[path.current_step], resumed=True)
    if path.phase == JOINED:
        return _run(workflow, state, path, path.current_step)
    if path.phase == JOINING:
        return AwaitJoin(path_id)
    if path.phase == BRANCHED:
        return _complete(path)
    return _route(workflow, state, path)


def _begin(workflow: Workflow, state: ExecutionState, path: PathState) -> PathInstruction:
    """Return the instruction that records the start of a path. If the first step of the path can run at once, the same
    instruction runs it.
    """
    start = (Fact(catalog.PathStarted(path.current_step), path.id),)
    # `RunStep` records the start of the path first. Any other instruction follows once the path has started.
    following = None if state.stopped is not None else _enter(workflow, state, path, path.current_step)
    if isinstance(following, RunStep):
        return RunStep(path.id, following.step, following.visit, first=start)
    return RecordFacts(start)


def _enter(workflow: Workflow, state: ExecutionState, path: PathState, step: str) -> PathInstruction:
    # The phase after `path_waiting` is `JOINING`. Once released, the path is `JOINED` and does not come here again.
    if workflow.step(step).join:
        return RecordFacts((Fact(catalog.PathWaiting(step), path.id),))
    return _run(workflow, state, path, step)


def _run(workflow: Workflow, state: ExecutionState, path: PathState, step: str) -> PathInstruction:
    """Return the instruction to run a step, if the bounds allow it. Otherwise return the instruction that makes the
    path fail, or that asks a person whether to raise the bound.
    """
    # `NO_BOUNDS` is one shared object, so executions without bounds skip all checks.
    exhausted = step_bound(state, path, workflow.step(step), ASKING_TYPES) if state.bounds is not NO_BOUNDS else None
    if exhausted is None:
        return RunStep(path.id, step, path.visits.get(step, 0) + 1)
    if fails_at_bounds(state):
        return RecordFacts((Fact(catalog.PathFailed(str(exhausted), exhausted.reason), path.id),))
    return AwaitAnswer(path.id, facts_about(state, exhausted, path.id, step))


def _route(workflow: Workflow, state: ExecutionState, path: PathState) -> PathInstruction:
    edges = workflow.step(path.current_step).edges
    if not edges:
        return _complete(path)
    if len(edges) == 1 and edges[0].condition is None:
        return _enter(workflow, state, path, edges[0].step)
    # The log may have the results of the first conditions already; only the others are evaluated.
    conditions = tuple((edge.condition, edge.step) for edge in edges if edge.condition is not None)
    if len(path.routing) < len(conditions):
        return EvaluateConditions(path.id, path.current_step, conditions[len(path.routing) :])
    # All conditions are evaluated: `routing` has their results in the order of the edges with a condition.
    results = iter(path.routing)
    targets = [edge.step for edge in edges if edge.condition is None or next(results)]
    if not targets:
        return _complete(path)
    if len(targets) == 1:
        return _enter(workflow, state, path, targets[0])
    return _branch(workflow, state, path, targets)


def _complete(path: PathState) -> RecordFacts:
    return RecordFacts((Fact(catalog.PathCompleted(path.current_step), path.id),))


def _branch(workflow: Workflow, state: ExecutionState, path: PathState, targets: list[str]) -> RecordFacts:
    # Dialects differ: new paths are numbered within the whole execution, or within the path that branches.
    count = state.branches if workflow.manner.numbers_all_branches else path.children
    new_paths = tuple(
        {"id": f"{path.id}-{count + position}", "current_step": target, "inherit_outputs": False}
        for position, target in enumerate(targets, start=1)
    )
    # The path that branches ends in the same record, and only its children continue.
    return RecordFacts(
        (
            Fact(catalog.PathBranched(new_paths), path.id, path.current_step),
            Fact(catalog.PathCompleted(path.current_step), path.id),
        )
    )


def _undo(path: PathState) -> PathInstruction:
    """Return the instruction for a path that runs one rollback, regardless of bounds and of a person's answer "stop" at
    a bound. Once its step has run, the path completes.
    """
    # A rollback that was denied runs again as another visit, which the fold of `execution_resumed` has counted.
    if path.phase in (READY, IN_STEP):
        return RunStep(path.id, path.current_step, path.visits.get(path.current_step, 1), resumed=path.phase == IN_STEP)
    return _complete(path)


def _settle(path: PathState) -> PathInstruction | None:
    """Return the instruction to find out whether the calls in the open step of a path took effect and must be rolled
    back. The step runs again for this, but starts no other call. Return None if there are no such calls.
    """
    if not unsettled(path.open):
        return None
    return RunStep(path.id, path.current_step, path.visits[path.current_step], resumed=True)


def only_settles(state: ExecutionState, place: Place) -> bool:
    """Return whether a path must not make or continue the call or question at a place. While an execution is rolled
    back, a path runs only to find out whether its interrupted calls took effect. It may then make these calls, and no
    others.

    Nothing else starts, and nothing else that has started continues: a child, a timer, a wait, a question, or a call
    without a rollback (test_rollback_unknown.py).
    """
    path = state.paths[place.path]
    if not state.settles_only(path):
        return False
    return all(record.operation_id != place.operation_id for record in unknown(path.open))


# --- joins -----------------------------------------------------------------------------------------------------------
#
# A path that reaches a step with `Join` waits until no other path can still reach the step. Example with the edges a ->
# b, a -> c, b -> d, c -> d and a join at "d": "main-1" has arrived at "d", and "main-2" is in step "c", from which "d"
# can be reached. So "main-1" waits. If "main-2" arrives too, both are released: "main-2" completes, and "main-1", the
# older one, runs "d" with the outputs of both. If "main-2" ends before "d", "main-1" is released alone.


def decide_joins(workflow: Workflow, state: ExecutionState) -> tuple[RecordFacts, ...]:
    """Return the instructions that release paths from joins which no other path can reach any more. Return nothing if
    no join can be released.

    Paths that wait for each other at different joins are released in order of age, so that none waits for ever.
    """
    # After a failure the waiting paths are cancelled instead (`decide_end`).
    if not state.joining or (state.failed_path is not None and not workflow.continue_on_failure):
        return ()
    active = state.active_paths()
    waiting = [path for path in active if path.phase == JOINING]
    # Waiting paths by join step, the oldest path first: {"d": [main-1, main-2]}.
    groups = {step: [path for path in waiting if path.current_step == step] for step in _steps(waiting)}
    free = [step for step in groups if not any(_may_reach(workflow, path, step) for path in active)]
    # All paths wait, each for another one: the oldest path continues without the others. Example: "main-1" waits at "d"
    # and "main-2" at "e", and each of the two steps is reachable from the other.
    if not free and len(waiting) == len(active):
        free = [waiting[0].current_step]
    return tuple(_join(groups[step]) for step in free)


def _steps(paths: list[PathState]) -> list[str]:
    return list(dict.fromkeys(path.current_step for path in paths))


def _may_reach(workflow: Workflow, path: PathState, step: str) -> bool:
    # A path that waits at the join has arrived. A path that is about to enter the join has not.
    if path.current_step == step and path.phase in (JOINING, READY):
        return path.phase == READY
    return step in workflow.reachable(path.current_step)


def _join(paths: list[PathState]) -> RecordFacts:
    # The others end before `path_joined`, whose fold merges their outputs.
    survivor, *joining = paths
    facts = [Fact(catalog.PathCompleted(_last_step(path)), path.id) for path in joining]
    joined = tuple(path.id for path in joining)
    return RecordFacts((*facts, Fact(catalog.PathJoined(survivor.current_step, joined), survivor.id)))


def _last_step(path: PathState) -> str:
    """Return the last step that a path has completed before it reached a join. If it has completed none, return the
    step with the join.
    """
    return path.last_step or path.current_step


# --- the end ---------------------------------------------------------------------------------------------------------


def decide_end(workflow: Workflow, state: ExecutionState, *, is_left: bool = False) -> RecordFacts | CancelPaths | None:
    """Return the events that end an execution or start its rollback, or None while the execution continues.

    If a path has failed while others are active, an instruction to cancel these is returned first. `is_left` means that
    they are cancelled already, except for the paths that `decide_leaving` keeps active.
    """
    # A rollback ends after all its paths: those that run rollbacks, and those that find out an outcome.
    if state.rolling_back is not None:
        return None if state.active or state.is_over else RecordFacts((_undone(state),))
    # After a failure the other paths are cancelled first. With `continue_on_failure` they run to their own ends.
    if state.failed_path is not None and state.active and not workflow.continue_on_failure:
        if not is_left:
            return CancelPaths(f"path {state.failed_path} failed")
    # Without any path the execution has only just started.
    elif state.active or state.is_over or not state.paths:
        return None
    # The first failure is the error of the execution. Its rollback begins before the final event is recorded.
    if state.failed_path is not None:
        failed = state.paths[state.failed_path]
        end = catalog.ExecutionFailed(failed.error or "unknown error", failed.reason)
        if _needs_rollback(state):
            return RecordFacts(_start_of_rollback(state, catalog.RollbackStarted(end.error, end.reason)))
        return RecordFacts((Fact(catalog.ExecutionFailed(end.error + _unsure(state), end.reason)),))
    # A fork does not report the usage that its source has reported already.
    usage = state.own_usage.to_dict() or None
    return RecordFacts((Fact(catalog.ExecutionCompleted(outputs_of(workflow, state), usage)),))


def decide_leaving(state: ExecutionState, reason: str) -> RecordFacts:
    """Return the events that cancel the active paths of an execution, because one path has failed or the execution was
    cancelled.

    A path with a call of unknown outcome that needs a rollback stays active until the outcome is known.
    """
    is_settling = state.rolling_back is None and _needs_rollback(state)
    # Such a path is cancelled by `decide_settled` after it has found out whether its call took effect.
    unsettled_ids = {path.id for path in state.unsettled} if is_settling else ()
    cancelled_ids = (path.id for path in state.active_paths() if path.id not in unsettled_ids)
    return RecordFacts(tuple(Fact(catalog.PathCancelled(reason), path_id) for path_id in cancelled_ids))


def decide_settled(state: ExecutionState, path_id: str) -> RecordFacts | None:
    """Return the event that cancels a path of a failed or cancelled execution which stayed active until the outcomes of
    its calls were known. Return None if an outcome is still unknown, or for any other path.
    """
    path = state.paths[path_id]
    ending = state.rolling_back
    if ending is None or path.undoes is not None or path.phase == ENDED or unknown(path.open):
        return None
    return RecordFacts((Fact(catalog.PathCancelled(ending.error), path_id),))


def decide_cancellation(state: ExecutionState, reason: str, *, is_here: bool = True) -> RecordFacts:
    """Return the events to record when all paths of a cancelled execution have ended: the start of its rollback, or its
    end as cancelled.

    The execution is rolled back if necessary. If this process cannot do that (`is_here` is False), it returns to its
    queue, if it has one. An execution that is already being rolled back ends; resuming it continues the rollback.
    """
    if state.rolling_back is None and _needs_rollback(state):
        # A process does not roll back an execution that workers drive, or one for which it lacks a function. A worker
        # or the next process that resumes the execution does.
        start = _start_of_rollback(state, catalog.RollbackStarted(reason, cancelled=True))
        return RecordFacts(start if is_here else (*start, *decide_return(state)))
    remaining = _not_undone(state)
    if remaining:
        reason += f"; not rolled back: {', '.join(remaining)}. Resume the run to roll that back"
    return RecordFacts((Fact(catalog.ExecutionCancelled(reason)),))


def decide_opening(opening: catalog.ExecutionStarted, comes_from: ExecutionState | None = None) -> tuple[Fact, ...]:
    """Return the first events of an execution: its start event and, if its parent or predecessor is in a queue, two
    more. These put the execution into the same queue and resume it at once.

    `comes_from` is the state of its parent or predecessor.
    """
    if comes_from is None or comes_from.queue is None:
        return (Fact(opening),)
    # The resumption leaves the queue at once: the process that starts the execution drives it. The log still names the
    # queue, so that a worker can take the execution later if it is given back.
    enqueued = catalog.ExecutionEnqueued(comes_from.queue, comes_from.priority)
    return (Fact(opening), Fact(enqueued), Fact(catalog.ExecutionResumed(catalog.ENQUEUED)))


def decide_resumption(state: ExecutionState, resumption: catalog.ExecutionResumed) -> Fact:
    """Return the event that resumes an execution. If the execution had not ended, its failed paths stay failed.

    Example: with `ContinueOnFailure`, one path has failed, and another one waits for an answer. The answer continues
    the second path. Only a person who resumes the ended execution has the failed step repeated.
    """
    # A fork of a failed execution has no failed path of its own: it repeats the failed step of its source.
    has_failed = state.failed_path is not None or any(path.status == FAILED for path in state.undoing)
    if resumption.previous_status not in TERMINAL and has_failed:
        resumption = replace(resumption, keeps_failed=True)
    return Fact(resumption)


def decide_return(state: ExecutionState) -> tuple[Fact, ...]:
    """Return the events that put an execution back into its queue. Return no events if it has no queue."""
    return () if state.queue is None else (Fact(catalog.ExecutionEnqueued(state.queue, state.priority)),)


def _needs_rollback(state: ExecutionState) -> bool:
    """Return whether something must be rolled back in an execution: completed work with rollbacks, or calls with
    rollbacks whose outcome is unknown. It is False for a what-if without side effects.
    """
    return bool(state.rollbacks or state.unsettled) and state.tools not in ANSWERED


def _start_of_rollback(state: ExecutionState, started: catalog.RollbackStarted) -> tuple[Fact, ...]:
    # Active paths here have calls of unknown outcome, which may add rollbacks. The first rollback starts after them.
    return (Fact(started),) if state.active else (Fact(started), _next_undoing(state, len(state.rollbacks)))


def _not_undone(state: ExecutionState) -> list[str]:
    """Return the names of the steps whose work is not rolled back yet, in the order in which it would be rolled back.
    Empty if no rollback has started.
    """
    if state.rolling_back is None:
        return []
    settling = [path.current_step for path in state.unsettled]
    started = [path.current_step for path in state.undoing if path.status != COMPLETED]
    # `undone_from` is the number of the rollback that started last, so those below it have not started.
    later = [state.rollbacks[number].step for number in range(state.undone_from - 1, 0, -1)]
    return list(dict.fromkeys((*settling, *started, *later)))


def _next_undoing(state: ExecutionState, number: int) -> Fact:
    started = catalog.PathStarted(state.rollbacks[number].step, number)
    return Fact(started, f"{catalog.ROLLBACK_PATH}{number}")


def _undone(state: ExecutionState) -> Fact:
    """Return the event that starts the next rollback, that of the latest work first. If all rollbacks have started,
    return the event that ends the execution as failed or cancelled.
    """
    # Rollbacks run one at a time, from the highest number down to 1. A failed one does not stop the others.
    if state.undone_from > 1:
        return _next_undoing(state, state.undone_from - 1)
    assert state.rolling_back is not None  # noqa: S101 - the caller has checked it
    error, reason, is_cancelled = state.rolling_back
    failures = [f"{path.current_step}: {path.error}" for path in state.undoing if path.status != COMPLETED]
    if failures:
        error += f"; not rolled back: {'; '.join(failures)}. Fix that, then resume the run"
    error += _unsure(state)
    return Fact(catalog.ExecutionCancelled(error) if is_cancelled else catalog.ExecutionFailed(error, reason))


def _unsure(state: ExecutionState) -> str:
    """Return a warning about failed steps with a call that is not rolled back although it needs a rollback, because it
    is unknown whether it took effect. The warning is added to the final error; it is empty without such steps.
    """
    steps = [path.current_step for path in state.paths.values() if path.status == FAILED and unknown(path.open)]
    if not steps:
        return ""
    return f"; not rolled back, because it is unknown whether it took effect: a call of {', '.join(steps)}"


def outputs_of(workflow: Workflow, state: ExecutionState) -> dict[str, Any]:
    """Return the declared outputs of a workflow, by name. The value of an output is the variable with its name, else
    the default of the output, else None.

    If a workflow has a single output without a variable and a default, its value is the text of the last step.
    """
    outputs: dict[str, Any] = {}
    for output in workflow.outputs:
        if output.name in state.variables:
            outputs[output.name] = state.variables[output.name]
        elif output.has_default:
            outputs[output.name] = output.default
        else:
            outputs[output.name] = _last_output(state) if len(workflow.outputs) == 1 else None
    return outputs


def _last_output(state: ExecutionState) -> str | None:
    # Of paths that ended at the same time, the youngest counts as the last.
    last = max(state.paths.values(), key=lambda path: (path.ended_us or 0, path.number))
    return last.step_outputs.get(last.current_step)


# --- steps that are still needed -------------------------------------------------------------------------------------


def steps_ahead(workflow: Workflow, state: ExecutionState) -> frozenset[str]:
    """Return the names of the steps in which the paths of an execution are now, and of the steps that they can still
    reach.

    Their agents, actions and functions must exist; those of finished steps need not. An execution that has ended can be
    resumed at any of its steps.
    """
    if state.rolling_back is not None:
        return steps_to_undo(state)
    # Each path may still run its present step and every step that can follow.
    present = frozenset(path.current_step for path in state.active_paths())
    if not present:
        return frozenset(step.name for step in workflow.steps)
    return present.union(*map(workflow.reachable, present))


def steps_to_undo(state: ExecutionState) -> frozenset[str]:
    """Return the names of the steps whose work is being rolled back, or will be if the execution fails or is
    cancelled.
    """
    done = {undoing.step for undoing in state.rollbacks.values()}
    return frozenset(done.union(path.current_step for path in state.unsettled))
