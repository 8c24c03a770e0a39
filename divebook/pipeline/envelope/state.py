"""An envelope as plain data and back: one table of all keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from divebook.bounds import Bounds
from divebook.errors import nearest
from divebook.pipeline.envelope.audit import ProcessingRecord
from divebook.pipeline.envelope.copying import deep_copy
from divebook.pipeline.envelope.interrupt import FlowInterrupt
from divebook.pipeline.envelope.parts import Parts
from divebook.pipeline.envelope.reading import UNREADABLE, Reading
from divebook.pipeline.envelope.times import to_text

SCHEMA_VERSION = 1

READERS: Final[Mapping[str, Callable[[Reading, Any, str], Any]]] = {
    "envelope_id": Reading.text,
    "request_id": Reading.text,
    "user_id": Reading.text,
    "session_id": Reading.text,
    "raw_input": Reading.text,
    "received_at": Reading.moment,
    "created_at": Reading.moment,
    "outputs": Reading.slots,
    "current_stage": Reading.text,
    "stage_order": Reading.texts,
    "active_stages": Reading.flags,
    "completed_stage_set": Reading.flags,
    "failed_stages": Reading.text_map,
    "parallel_mode": Reading.flag,
    "bounds": Reading.bounds,
    "max_iterations": Reading.bound,
    "max_llm_calls": Reading.bound,
    "max_agent_hops": Reading.bound,
    "iteration": Reading.count,
    "llm_call_count": Reading.count,
    "agent_hop_count": Reading.count,
    "token_count": Reading.count,
    "cost": Reading.amount,
    "edge_counts": Reading.counts,
    "terminated": Reading.flag,
    "termination_reason": Reading.optional_text,
    "terminal_reason": Reading.reason,
    "interrupt_pending": Reading.flag,
    "interrupt": Reading.interrupt,
    "interrupt_queue": Reading.interrupts,
    "completed_stages": Reading.maps,
    "current_stage_number": Reading.count,
    "max_stages": Reading.count,
    "all_goals": Reading.texts,
    "remaining_goals": Reading.texts,
    "goal_completion_status": Reading.text_map,
    "prior_plans": Reading.maps,
    "loop_feedback": Reading.texts,
    "processing_history": Reading.history,
    "errors": Reading.maps,
    "completed_at": Reading.optional_moment,
    "metadata": Reading.data_map,
}
"""How each key is read; it is also the name of the envelope's field."""


def write_state(parts: Parts) -> dict[str, Any]:
    """Return everything about an envelope as plain data, which shares nothing with it.

    Raises
    ------
    UncopyableValueError
        Somebody put a value into it that cannot be copied.
    """
    written = {key: _plain(getattr(parts, key), key) for key in READERS}
    return {"schema_version": SCHEMA_VERSION, **written}


def read_state(parts: Parts, state: Any) -> list[str]:
    """Fill a fresh envelope with what can be read of a state; return what is wrong with that state."""
    reading = Reading(parts.clock())
    if not isinstance(state, Mapping):
        reading.refuse("state", state, "a mapping")
        return reading.problems
    for key, read in READERS.items():
        if key not in state:
            reading.problems.append(f"{key}: missing")
        elif (value := read(reading, state[key], key)) is not UNREADABLE:
            setattr(parts, key, value)
    return [*_strangers(state), *reading.problems]


def _strangers(state: Mapping[Any, Any]) -> list[str]:
    """Return what is wrong with the version, and keys that nobody knows."""
    version = state.get("schema_version", "missing")
    problems = [] if version == SCHEMA_VERSION else [f"schema_version: {SCHEMA_VERSION} wanted, not {version!r:.60}"]
    for key in state.keys() - READERS.keys() - {"schema_version"}:
        near = nearest(str(key), READERS)
        problems.append(f"{key!r:.60}: unknown" + (f"; did you mean {near!r}?" if near else ""))
    return sorted(problems)


def _plain(value: Any, path: str) -> Any:
    if isinstance(value, datetime):
        return to_text(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Bounds | FlowInterrupt):
        return value.to_dict()
    if isinstance(value, list) and value and isinstance(value[0], ProcessingRecord | FlowInterrupt):
        return [_plain_record(item, path) for item in value]
    return deep_copy(value, path)


def _plain_record(record: ProcessingRecord | FlowInterrupt, path: str) -> dict[str, Any]:
    if isinstance(record, FlowInterrupt):
        return record.to_dict()
    return {each.name: _plain(getattr(record, each.name), path) for each in fields(record)}
