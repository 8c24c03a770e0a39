"""Random bounds and envelopes, on a clock that stands still."""

from datetime import UTC, datetime

from hypothesis import strategies as st

from divebook.pipeline.envelope import (
    Bounds,
    Envelope,
    FlowInterrupt,
    InterruptKind,
    InterruptResponse,
    ProcessingRecord,
    TerminalReason,
    edge_key,
)

NOW = datetime(2026, 1, 25, 10, tzinfo=UTC)


def fresh(**settings):
    """Return an envelope whose clock and identifiers are fixed."""
    return Envelope(clock=lambda: NOW, new_id=lambda prefix: f"{prefix}_fixed", **settings)


texts = st.text('aZ0 .-é\u2603\x00"\\${', max_size=5)
names = st.text("aZ0_é", min_size=1, max_size=5)
numbers = st.integers(-(10**20), 10**20)
limits = st.none() | st.integers(0, 10**9)
moments = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
atoms = st.none() | st.booleans() | numbers | st.floats(allow_nan=False) | texts
json_values = st.recursive(
    atoms, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
maps = st.dictionaries(texts, json_values, max_size=3)

bounds = st.builds(
    Bounds,
    max_iterations=limits,
    max_llm_calls=limits,
    max_agent_hops=limits,
    max_tokens=limits,
    max_cost=st.none() | st.decimals(0, 10**6, places=4),
    max_seconds=st.none() | st.floats(0, 1e9),
    edges=st.dictionaries(st.builds(edge_key, names, names), st.integers(0, 99), max_size=3),
    max_repeats=st.none() | st.integers(1, 99),
)
responses = st.builds(
    InterruptResponse,
    text=st.none() | texts,
    approved=st.none() | st.booleans(),
    decision=st.none() | texts,
    data=st.none() | maps,
    received_at=st.none() | moments,
)
interrupts = st.builds(
    FlowInterrupt,
    kind=st.sampled_from(InterruptKind) | texts,
    id=texts,
    created_at=moments,
    question=texts,
    message=texts,
    data=st.none() | maps,
    response=st.none() | responses,
    expires_at=st.none() | moments,
)
records = st.builds(
    ProcessingRecord,
    agent=texts,
    stage_order=numbers,
    started_at=moments,
    completed_at=st.none() | moments,
    duration_ms=numbers,
    status=st.sampled_from(["running", "success"]) | texts,
    error=st.none() | texts,
    llm_calls=numbers,
)

FIELDS = {
    **dict.fromkeys(("envelope_id", "request_id", "user_id", "session_id", "raw_input", "current_stage"), texts),
    **dict.fromkeys(("received_at", "created_at"), moments),
    **dict.fromkeys(("iteration", "llm_call_count", "agent_hop_count", "token_count"), numbers),
    **dict.fromkeys(("current_stage_number", "max_stages"), numbers),
    **dict.fromkeys(("parallel_mode", "terminated", "interrupt_pending"), st.booleans()),
    **dict.fromkeys(("active_stages", "completed_stage_set"), st.dictionaries(texts, st.booleans(), max_size=3)),
    **dict.fromkeys(("failed_stages", "goal_completion_status"), st.dictionaries(texts, texts, max_size=3)),
    **dict.fromkeys(("stage_order", "all_goals", "remaining_goals", "loop_feedback"), st.lists(texts, max_size=3)),
    **dict.fromkeys(("completed_stages", "prior_plans", "errors"), st.lists(st.none() | maps, max_size=2)),
    "bounds": bounds,
    "cost": st.decimals(-(10**6), 10**6, places=4),
    "edge_counts": st.dictionaries(texts, numbers, max_size=2),
    "termination_reason": st.none() | texts,
    "terminal_reason": st.none() | st.sampled_from(TerminalReason) | texts,
    "completed_at": st.none() | moments,
    "interrupt": st.none() | interrupts,
    "interrupt_queue": st.lists(interrupts, max_size=2),
    "outputs": st.dictionaries(texts, maps, max_size=2),
    "processing_history": st.lists(records, max_size=2),
    "metadata": maps,
}


def filled(fields):
    """Return a fresh envelope with these fields."""
    envelope = fresh()
    for name, value in fields.items():
        setattr(envelope, name, value)
    return envelope


envelopes = st.fixed_dictionaries({}, optional=FIELDS).map(filled)
"""Some of an envelope's fields, each with any value it can have."""
