"""What a person can ask of an execution now, and what it waits for where asking would not help."""

from __future__ import annotations

from divebook.engine.waiting import awaited_signals
from divebook.events.catalog import ENQUEUED, WAITING
from divebook.execution.execution import Execution
from divebook.widgets.protocol.views import Command


def commands_of(execution: Execution, driven_by: str | None = None) -> list[Command]:
    """Return what a person can ask of an execution now; to resume it only where it would then go on.

    One that another process drives, or that waits for a worker, is left to those.
    """
    if execution.is_live:
        return ["pause", "cancel"]
    if execution.status == ENQUEUED or driven_by is not None:
        return ["cancel"]
    if execution.state.is_over:
        return [] if execution.state.is_final else ["resume"]
    return ["cancel"] if awaited_from_outside(execution) else ["resume", "cancel"]


def awaited_from_outside(execution: Execution) -> str:
    """Return what to do where only an answer or a signal helps an execution on; empty where it can be taken up."""
    state = execution.state
    if state.status != WAITING or state.paused is not None or execution.store.has_untaken(execution.id):
        return ""
    if execution.interrupts:
        return "Answer the question to continue"
    signals = [str(awaited) for awaited in awaited_signals(state) if awaited.until_us is None]
    return f"It waits for {signals[0]}: send that to continue" if signals else ""
