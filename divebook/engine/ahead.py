"""Which steps an execution can still come to: pure."""

from __future__ import annotations

from divebook.engine.state import ExecutionState
from divebook.workflow.definition import Workflow


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
