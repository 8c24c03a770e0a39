"""What must hold of an envelope that is about to be used."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from divebook.pipeline.envelope.contents import MAXIMA, Contents
from divebook.workflow.pipelines import END, START

IDENTIFIERS = ("envelope_id", "request_id", "user_id", "session_id")
COUNTERS = ("iteration", "llm_call_count", "agent_hop_count", "token_count", "cost")


def problems_of(envelope: Contents) -> list[str]:
    """Return what is wrong with an envelope, one line each."""
    return [*_identity(envelope), *_numbers(envelope), *_position(envelope), *_control(envelope)]


def _identity(envelope: Contents) -> Iterator[str]:
    for name in IDENTIFIERS:
        if not getattr(envelope, name):
            yield f"{name} is empty"
    for name in ("created_at", "received_at", "completed_at"):
        moment: datetime | None = getattr(envelope, name)
        if moment is not None and moment.tzinfo is None:
            yield f"{name} has no time zone: {moment.isoformat()}"


def _numbers(envelope: Contents) -> Iterator[str]:
    for name in COUNTERS:
        if getattr(envelope, name) < 0:
            yield f"{name} is negative: {getattr(envelope, name)}"
    for name in (*MAXIMA, "max_stages"):
        maximum: Any = getattr(envelope, name)
        if maximum is not None and maximum < 1:
            yield f"{name} must be at least 1, not {maximum}"
    if envelope.current_stage_number < 1:
        yield f"current_stage_number must be at least 1, not {envelope.current_stage_number}"


def _position(envelope: Contents) -> Iterator[str]:
    known = (*envelope.stage_order, START, END)
    if envelope.stage_order and envelope.current_stage not in known:
        yield f"current_stage {envelope.current_stage!r} is not in stage_order: {', '.join(envelope.stage_order)}"
    for goal in envelope.remaining_goals:
        if goal not in envelope.all_goals:
            yield f"remaining_goals has {goal!r}, which all_goals does not have"


def _control(envelope: Contents) -> Iterator[str]:
    if envelope.interrupt_pending and envelope.interrupt is None:
        yield "interrupt_pending is set, but there is no interrupt"
    if envelope.terminated and envelope.completed_at is None:
        yield "terminated is set, but completed_at is not"
