"""How the operations of a what-if, or of a trial, were answered, as the events at their ends say. Pure."""

from __future__ import annotations

from typing import Any

from divebook.engine.operations import (
    CHILD_WORKFLOW,
    ENCLOSING,
    RANDOM_GENERATION,
    SCRIPT_EXECUTION,
    STAGE_ATTEMPT,
    TIME_ACCESS,
    TIMER,
    VERDICT,
    VERSION_DECISION,
)

SERVED, LIVE, BLOCKED, COMPUTED, SKIPPED, OTHER = "served", "live", "blocked", "computed", "skipped", "other"
IS_COMPUTED = frozenset({SCRIPT_EXECUTION, TIME_ACCESS, RANDOM_GENERATION, VERDICT, STAGE_ATTEMPT, VERSION_DECISION})


def way_of(data: Any) -> str:
    """Return how the operation or question was answered whose end an event says.

    ``served`` from the log of another execution, ``blocked``: not executed, ``skipped``: a sleep, ``computed``: a
    script, or a reading of clock or chance; ``live``: executed; ``other`` is what only holds others, and an answer that
    a person gave.
    """
    told, kind = data.served, getattr(data, "operation_type", "")
    if told is not None:
        return BLOCKED if "blocked" in told else SERVED
    if kind == TIMER:
        return SKIPPED
    if kind in IS_COMPUTED:
        return COMPUTED
    return LIVE if kind and kind not in ENCLOSING and kind != CHILD_WORKFLOW else OTHER
