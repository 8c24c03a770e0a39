"""What callers get of an envelope: the response, and what an interface shows."""

from __future__ import annotations

from typing import Any

from divebook.pipeline.envelope.contents import Contents
from divebook.pipeline.envelope.enums import InterruptKind
from divebook.pipeline.envelope.interrupt import FlowInterrupt
from divebook.pipeline.envelope.plain import copied_map, copied_maps


def final_response(envelope: Contents) -> str | None:
    """Return the text to show: a pending question, else the response slot's text, else None."""
    pending = envelope.pending_interrupt
    if pending and pending.kind == InterruptKind.CLARIFICATION and pending.question:
        return pending.question
    if pending and pending.kind == InterruptKind.CONFIRMATION and pending.message:
        return pending.message
    response = envelope.outputs.get(envelope.slot_names.response, {}).get(envelope.slot_names.response_key)
    return response if isinstance(response, str) else None


def write_result(envelope: Contents) -> dict[str, Any]:
    """Return what a caller of the whole request wants to know, as plain data and copies."""
    reason = envelope.terminal_reason
    result: dict[str, Any] = {
        "envelope_id": envelope.envelope_id,
        "request_id": envelope.request_id,
        "user_id": envelope.user_id,
        "session_id": envelope.session_id,
        "current_stage": envelope.current_stage,
        "terminated": envelope.terminated,
        "termination_reason": envelope.termination_reason,
        "terminal_reason": None if reason is None else str(reason),
        "response": final_response(envelope),
        "interrupt_pending": envelope.interrupt_pending,
        "iteration": envelope.iteration,
        "llm_call_count": envelope.llm_call_count,
        "processing_time_ms": sum(record.duration_ms for record in envelope.processing_history),
        "errors": copied_maps(envelope.errors, "errors"),
    }
    if envelope.outputs:
        result["outputs"] = copied_map(envelope.outputs, "outputs")
    if envelope.interrupt is not None:
        result |= _interrupt_keys(envelope.interrupt, pending=envelope.interrupt_pending)
    return result


def _interrupt_keys(interrupt: FlowInterrupt, *, pending: bool) -> dict[str, Any]:
    shown = interrupt.to_dict()
    keys: dict[str, Any] = {"interrupt": {k: shown[k] for k in ("kind", "id", "question", "message", "created_at")}}
    if interrupt.kind == InterruptKind.CLARIFICATION:
        keys |= {"clarification_needed": pending, "clarification_question": interrupt.question}
    elif interrupt.kind == InterruptKind.CONFIRMATION:
        keys |= {
            "confirmation_needed": pending,
            "confirmation_message": interrupt.message,
            "confirmation_id": interrupt.id,
        }
    return keys
