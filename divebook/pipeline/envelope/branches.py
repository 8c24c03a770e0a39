"""Joining what parallel branches did to their clones of one envelope.

Each branch counts by how it differs from the envelope it was cloned from, so that what was there before counts once.
Branches are given in the order of their stages; where two wrote the same, the later one wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from divebook.pipeline.envelope.envelope import Envelope

T = TypeVar("T")

COUNTERS = ("iteration", "llm_call_count", "agent_hop_count", "token_count", "cost")
LISTS = ("prior_plans", "loop_feedback", "processing_history", "errors", "completed_stages")
MAPS = ("active_stages", "completed_stage_set", "failed_stages", "goal_completion_status")
ENDING = ("terminated", "termination_reason", "terminal_reason", "completed_at")
_ABSENT: Any = object()


def merge_branches(envelope: Envelope, branches: Sequence[Envelope]) -> None:
    """Take over what clones of an envelope have become.

    Counters are added; history, errors, feedback and plans are joined; outputs and metadata are merged, metadata in
    depth; the first question becomes the envelope's, the others wait their turn; the first end counts.

    Parameters
    ----------
    envelope
        Unchanged since it was cloned; receives everything.
    branches
        The clones, in the order of their stages.

    Raises
    ------
    UncopyableValueError
        A branch holds a value that cannot be copied; the envelope is unchanged.
    """
    before = envelope.clone()
    for branch in [branch.clone() for branch in branches]:
        _add_counters(envelope, before, branch)
        _join_lists(envelope, before, branch)
        _merge_maps(envelope, before, branch)
        _merge_goals(envelope, before, branch)
        _queue_question(envelope, before, branch)
        if branch.terminated and not envelope.terminated:
            for name in ENDING:
                setattr(envelope, name, getattr(branch, name))


def _add_counters(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    for name in COUNTERS:
        grown = getattr(branch, name) - getattr(before, name)
        setattr(envelope, name, getattr(envelope, name) + grown)
    for edge, count in branch.edge_counts.items():
        grown = count - before.edge_counts.get(edge, 0)
        envelope.edge_counts[edge] = envelope.edge_counts.get(edge, 0) + grown


def _join_lists(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    for name in LISTS:
        getattr(envelope, name).extend(getattr(branch, name)[len(getattr(before, name)) :])


def _merge_maps(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    for name in MAPS:
        setattr(envelope, name, _merged(getattr(envelope, name), getattr(before, name), getattr(branch, name), depth=1))
    envelope.outputs = _merged(envelope.outputs, before.outputs, branch.outputs, depth=1)
    envelope.metadata = _merged(envelope.metadata, before.metadata, branch.metadata, depth=None)


def _merge_goals(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    done = set(before.remaining_goals) - set(branch.remaining_goals)
    envelope.remaining_goals = [goal for goal in envelope.remaining_goals if goal not in done]
    envelope.all_goals += [goal for goal in branch.all_goals if goal not in envelope.all_goals]
    envelope.remaining_goals += [goal for goal in branch.remaining_goals if goal not in before.remaining_goals]
    envelope.current_stage_number = max(envelope.current_stage_number, branch.current_stage_number)


def _queue_question(envelope: Envelope, before: Envelope, branch: Envelope) -> None:
    pending = branch.pending_interrupt
    raised = [] if pending is None or pending == before.interrupt else [pending]
    envelope.interrupt_queue += [*raised, *branch.interrupt_queue[len(before.interrupt_queue) :]]
    envelope.ask_next_interrupt()


def _merged(own: Mapping[str, Any], before: Mapping[str, Any], branch: Mapping[str, Any], depth: int | None) -> Any:
    """Return `own` with what `branch` changed of `before`; to that depth mappings are merged, not replaced."""
    merged = dict(own)
    for key in before.keys() - branch.keys():
        merged.pop(key, None)
    deeper = None if depth is None else depth - 1
    for key, value in branch.items():
        old, present = before.get(key, _ABSENT), merged.get(key)
        if value == old:
            continue
        if deeper != 0 and isinstance(value, Mapping) and isinstance(present, Mapping):
            merged[key] = _merged(present, old if isinstance(old, Mapping) else {}, value, deeper)
        else:
            merged[key] = value
    return merged
