"""What must hold of an envelope that is about to be used."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from divebook.pipeline.envelope.parts import Parts
from divebook.pipeline.envelope.stages import END, START

IDENTIFIERS = ("envelope_id", "request_id", "user_id", "session_id")
COUNTERS = ("iteration", "llm_call_count", "agent_hop_count", "token_count", "cost")
MAXIMA = ("max_iterations", "max_llm_calls", "max_agent_hops", "max_stages")


def problems_of(parts: Parts) -> list[str]:
    """Return what is wrong with an envelope, one line each."""
    return [*_identity(parts), *_numbers(parts), *_position(parts), *_control(parts)]


def _identity(parts: Parts) -> Iterator[str]:
    for name in IDENTIFIERS:
        if not getattr(parts, name):
            yield f"{name} is empty"
    for name in ("created_at", "received_at", "completed_at"):
        moment: datetime | None = getattr(parts, name)
        if moment is not None and moment.tzinfo is None:
            yield f"{name} has no time zone: {moment.isoformat()}"


def _numbers(parts: Parts) -> Iterator[str]:
    for name in COUNTERS:
        if getattr(parts, name) < 0:
            yield f"{name} is negative: {getattr(parts, name)}"
    for name in MAXIMA:
        maximum: Any = getattr(parts, name)
        if maximum is not None and maximum < 1:
            yield f"{name} must be at least 1, not {maximum}"
    if parts.current_stage_number < 1:
        yield f"current_stage_number must be at least 1, not {parts.current_stage_number}"


def _position(parts: Parts) -> Iterator[str]:
    known = (*parts.stage_order, START, END)
    if parts.stage_order and parts.current_stage not in known:
        yield f"current_stage {parts.current_stage!r} is not in stage_order: {', '.join(parts.stage_order)}"
    for goal in parts.remaining_goals:
        if goal not in parts.all_goals:
            yield f"remaining_goals has {goal!r}, which all_goals does not have"


def _control(parts: Parts) -> Iterator[str]:
    if parts.interrupt_pending and parts.interrupt is None:
        yield "interrupt_pending is set, but there is no interrupt"
    if parts.terminated and parts.completed_at is None:
        yield "terminated is set, but completed_at is not"
