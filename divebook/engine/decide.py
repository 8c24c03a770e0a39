"""Decides what happens next; no other code does.

`decide` looks at a workflow and a state and returns instructions; it never acts. A driver that runs one task per path
asks `decide_path` (one path), `decide_joins` (when a path waits or ends) and `decide_end` (when a path ends), which
together say the same as `decide` does.
"""

from __future__ import annotations

from typing import Any

from divebook.engine.bounds import (
    AwaitAnswer,
    AwaitJoin,
    CancelPaths,
    EvaluateConditions,
    Fact,
    Instruction,
    PathInstruction,
    RecordFacts,
    RunStep,
    facts_about,
    fails_at_bounds,
    step_bound,
)
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
from divebook.workflow.definition import Workflow

ROOT = "main"
"""Id of the first path."""
ASKING_TYPES = frozenset({"prompt"})
"""Types of step that ask a model."""
ANSWERED = ("recorded", "read-only")
"""What what-ifs may execute that do not act upon the world (`divebook.events.catalog.ExecutionForked.tools`)."""


def decide(workflow: Workflow, state: ExecutionState) -> tuple[Instruction, ...]:
    """Return everything that can be done now, oldest path first."""
    end = decide_end(workflow, state)
    if end:
        return (end,)
    instructions = (decide_path(workflow, state, path.id) for path in state.active_paths())
    return (*(found for found in instructions if found), *decide_joins(workflow, state))


def decide_start(workflow: Workflow) -> Fact:
    """Return the fact that begins the root path."""
    return Fact(catalog.PathStarted(workflow.start.name), ROOT)


# --- one path --------------------------------------------------------------------------------------------------------


def decide_path(workflow: Workflow, state: ExecutionState, path_id: str) -> PathInstruction | None:
    """Return what one path does next, or None if it has ended."""
    path = state.paths[path_id]
    if path.phase == ENDED:
        return None
    if state.rolling_back is not None:
        return _undo(path) if path.undoes is not None else _settle(path)
    if path.status == PENDING:
        return _begin(workflow, state, path)
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
    """Begin a path, together with its first step if that can be carried out."""
    begun = (Fact(catalog.PathStarted(path.current_step), path.id),)
    follows = None if state.stopped is not None else _enter(workflow, state, path, path.current_step)
    return (
        RunStep(path.id, follows.step, follows.visit, first=begun)
        if isinstance(follows, RunStep)
        else RecordFacts(begun)
    )


def _enter(workflow: Workflow, state: ExecutionState, path: PathState, step: str) -> PathInstruction:
    if workflow.step(step).join:
        return RecordFacts((Fact(catalog.PathWaiting(step), path.id),))
    return _run(workflow, state, path, step)


def _run(workflow: Workflow, state: ExecutionState, path: PathState, step: str) -> PathInstruction:
    """Run a step if the bounds allow it."""
    found = step_bound(state, path, workflow.step(step), ASKING_TYPES) if state.bounds is not NO_BOUNDS else None
    if found is None:
        return RunStep(path.id, step, path.visits.get(step, 0) + 1)
    if fails_at_bounds(state):
        return RecordFacts((Fact(catalog.PathFailed(str(found), found.reason), path.id),))
    return AwaitAnswer(path.id, facts_about(state, found, path.id, step))


def _route(workflow: Workflow, state: ExecutionState, path: PathState) -> PathInstruction:
    edges = workflow.step(path.current_step).edges
    if not edges:
        return _complete(path)
    if len(edges) == 1 and edges[0].condition is None:
        return _enter(workflow, state, path, edges[0].step)
    conditions = tuple((edge.condition, edge.step) for edge in edges if edge.condition is not None)
    if len(path.routing) < len(conditions):
        return EvaluateConditions(path.id, path.current_step, conditions[len(path.routing) :])
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
    taken = state.branches if workflow.manner.numbers_all_branches else path.children
    new_paths = tuple(
        {"id": f"{path.id}-{taken + position}", "current_step": target, "inherit_outputs": False}
        for position, target in enumerate(targets, start=1)
    )
    return RecordFacts(
        (
            Fact(catalog.PathBranched(new_paths), path.id, path.current_step),
            Fact(catalog.PathCompleted(path.current_step), path.id),
        )
    )


def _undo(path: PathState) -> PathInstruction:
    """Undo one thing, whatever the bounds say, or a person who wanted it to stop."""
    if path.phase in (READY, IN_STEP):
        return RunStep(path.id, path.current_step, path.visits.get(path.current_step, 1), resumed=path.phase == IN_STEP)
    return _complete(path)


def _settle(path: PathState) -> PathInstruction | None:
    """Find out what calls have done that is to be undone; nothing else begins in their step any more."""
    if not unsettled(path.open):
        return None
    return RunStep(path.id, path.current_step, path.visits[path.current_step], resumed=True)


def only_settles(state: ExecutionState, place: Place) -> bool:
    """Return whether nothing may begin at a place, where it is only found out what is to be undone that had begun.

    So a call may be made again whose outcome is not known, and no other is (test_rollback_unknown.py).
    """
    path = state.paths[place.path]
    if state.rolling_back is None or path.undoes is not None:
        return False
    return all(record.operation_id != place.operation_id for record in unknown(path.open))


# --- joins -----------------------------------------------------------------------------------------------------------


def decide_joins(workflow: Workflow, state: ExecutionState) -> tuple[RecordFacts, ...]:
    """Return the joins that need wait no longer: no other path can still come to them.

    Paths that wait for each other at different joins are let go in order of age, so that nothing waits for ever.
    """
    if not state.joining or (state.failed_path is not None and not workflow.continue_on_failure):
        return ()
    active = state.active_paths()
    waiting = [path for path in active if path.phase == JOINING]
    groups = {step: [path for path in waiting if path.current_step == step] for step in _steps(waiting)}
    free = [step for step in groups if not any(_may_reach(workflow, path, step) for path in active)]
    if not free and len(waiting) == len(active):
        free = [waiting[0].current_step]
    return tuple(_join(groups[step]) for step in free)


def _steps(paths: list[PathState]) -> list[str]:
    return list(dict.fromkeys(path.current_step for path in paths))


def _may_reach(workflow: Workflow, path: PathState, step: str) -> bool:
    if path.current_step == step and path.phase in (JOINING, READY):
        return path.phase == READY
    return step in workflow.reachable(path.current_step)


def _join(paths: list[PathState]) -> RecordFacts:
    survivor, *others = paths
    facts = [Fact(catalog.PathCompleted(_last_step(path)), path.id) for path in others]
    joined = tuple(path.id for path in others)
    return RecordFacts((*facts, Fact(catalog.PathJoined(survivor.current_step, joined), survivor.id)))


def _last_step(path: PathState) -> str:
    """Return the step a waiting path completed last, or the join itself if it has done nothing yet."""
    return path.last_step or path.current_step


# --- the end ---------------------------------------------------------------------------------------------------------


def decide_end(workflow: Workflow, state: ExecutionState, *, is_left: bool = False) -> RecordFacts | CancelPaths | None:
    """Return how the execution ends, or what is undone before that, or None while it goes on.

    With `is_left` all paths are left, but for those that `decide_leaving` keeps.
    """
    if state.rolling_back is not None:
        return None if state.active or state.is_over else RecordFacts((_undone(state),))
    if state.failed_path is not None and state.active and not workflow.continue_on_failure:
        if not is_left:
            return CancelPaths(f"path {state.failed_path} failed")
    elif state.active or state.is_over or not state.paths:
        return None
    if state.failed_path is not None:
        failed = state.paths[state.failed_path]
        end = catalog.ExecutionFailed(failed.error or "unknown error", failed.reason)
        begun = catalog.RollbackStarted(end.error, end.reason)
        if _is_to_undo(state):
            return RecordFacts(_begun_to_undo(state, begun))
        return RecordFacts((Fact(catalog.ExecutionFailed(end.error + _unsure(state), end.reason)),))
    usage = state.own_usage.to_dict() or None
    return RecordFacts((Fact(catalog.ExecutionCompleted(outputs_of(workflow, state), usage)),))


def decide_leaving(state: ExecutionState, reason: str) -> RecordFacts:
    """Return the end of all paths that are left, since one has failed, or the execution was cancelled.

    A path stays that has called something of which it is not known what is to be undone: that is found out first.
    """
    kept = {path.id for path in state.unsettled} if state.rolling_back is None and _is_to_undo(state) else ()
    left = (path.id for path in state.active_paths() if path.id not in kept)
    return RecordFacts(tuple(Fact(catalog.PathCancelled(reason), path) for path in left))


def decide_settled(state: ExecutionState, path_id: str) -> RecordFacts | None:
    """Return the end of a path that was kept by `decide_leaving`, once it is known what is to be undone of it."""
    path = state.paths[path_id]
    ending = state.rolling_back
    if ending is None or path.undoes is not None or path.phase == ENDED or unknown(path.open):
        return None
    return RecordFacts((Fact(catalog.PathCancelled(ending.error), path_id),))


def decide_cancellation(state: ExecutionState, reason: str, *, is_here: bool = True) -> RecordFacts:
    """Return what follows when all paths of an execution were left that is cancelled.

    One that is being rolled back already ends; a resumption takes up again what is left to be undone. If it cannot be
    rolled back by who cancels it, it goes back to its queue, where it has one.
    """
    if state.rolling_back is None and _is_to_undo(state):
        begun = _begun_to_undo(state, catalog.RollbackStarted(reason, cancelled=True))
        return RecordFacts(begun if is_here else (*begun, *decide_return(state)))
    left = _not_undone(state)
    if left:
        reason += f"; not rolled back: {', '.join(left)}. Resume it, to have that undone"
    return RecordFacts((Fact(catalog.ExecutionCancelled(reason)),))


def decide_opening(opening: catalog.ExecutionStarted, comes_from: ExecutionState | None = None) -> tuple[Fact, ...]:
    """Return what begins an execution. One that comes from an execution of a queue is in that queue as well.

    `comes_from` is how the one stood that starts it, or goes on as it.
    """
    if comes_from is None or comes_from.queue is None:
        return (Fact(opening),)
    enqueued = catalog.ExecutionEnqueued(comes_from.queue, comes_from.priority)
    return (Fact(opening), Fact(enqueued), Fact(catalog.ExecutionResumed(catalog.ENQUEUED)))


def decide_return(state: ExecutionState) -> tuple[Fact, ...]:
    """Return what gives an execution back to the workers of its queue, if it has one."""
    return () if state.queue is None else (Fact(catalog.ExecutionEnqueued(state.queue, state.priority)),)


def _is_to_undo(state: ExecutionState) -> bool:
    """Whether it has done anything that is to be undone: what answers a what-if has done it in its source."""
    return bool(state.rollbacks or state.unsettled) and state.tools not in ANSWERED


def _begun_to_undo(state: ExecutionState, begun: catalog.RollbackStarted) -> tuple[Fact, ...]:
    return (Fact(begun),) if state.active else (Fact(begun), _next_undoing(state, len(state.rollbacks)))


def _not_undone(state: ExecutionState) -> list[str]:
    """Return the steps of which something is left to be undone, in the order in which it would be."""
    if state.rolling_back is None:
        return []
    settling = [path.current_step for path in state.unsettled]
    begun = [path.current_step for path in state.undoing if path.status != COMPLETED]
    later = [state.rollbacks[number].step for number in range(state.undone_from - 1, 0, -1)]
    return list(dict.fromkeys((*settling, *begun, *later)))


def _next_undoing(state: ExecutionState, number: int) -> Fact:
    started = catalog.PathStarted(state.rollbacks[number].step, number)
    return Fact(started, f"{catalog.ROLLBACK_PATH}{number}")


def _undone(state: ExecutionState) -> Fact:
    """Return the beginning of what is undone next, the latest first, or the end."""
    if state.undone_from > 1:
        return _next_undoing(state, state.undone_from - 1)
    assert state.rolling_back is not None  # noqa: S101 - who asks has looked
    error, reason, is_cancelled = state.rolling_back
    left = [f"{path.current_step}: {path.error}" for path in state.undoing if path.status != COMPLETED]
    if left:
        error += f"; not rolled back: {'; '.join(left)}. Mend that, then resume it"
    error += _unsure(state)
    return Fact(catalog.ExecutionCancelled(error) if is_cancelled else catalog.ExecutionFailed(error, reason))


def _unsure(state: ExecutionState) -> str:
    """Return the steps that have failed in the middle of a call that would have to be undone, to be told at the end."""
    steps = [path.current_step for path in state.paths.values() if path.status == FAILED and unknown(path.open)]
    if not steps:
        return ""
    return f"; not rolled back, since nobody knows whether it took effect: a call of {', '.join(steps)}"


def outputs_of(workflow: Workflow, state: ExecutionState) -> dict[str, Any]:
    """Return the declared outputs: the variable of that name, else the default.

    A workflow with a single declared output that is neither stored nor has a default gives the text of the step that
    ended last.
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
    last = max(state.paths.values(), key=lambda path: (path.ended_us or 0, path.number))
    return last.step_outputs.get(last.current_step)


# Which steps an execution can still come to: pure.


def steps_ahead(workflow: Workflow, state: ExecutionState) -> frozenset[str]:
    """Return the names of the steps that an execution is in, or can still come to: what they need must be there.

    What only finished steps needed may be gone. One that has ended can be resumed at any of its steps.
    """
    if state.rolling_back is not None:
        return steps_to_undo(state)
    present = frozenset(path.current_step for path in state.active_paths())
    if not present:
        return frozenset(step.name for step in workflow.steps)
    return present.union(*map(workflow.reachable, present))


def steps_to_undo(state: ExecutionState) -> frozenset[str]:
    """Return the names of the steps of which something is to be undone, or may be."""
    done = {undoing.step for undoing in state.rollbacks.values()}
    return frozenset(done.union(path.current_step for path in state.unsettled))
