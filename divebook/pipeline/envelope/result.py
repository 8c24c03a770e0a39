"""What the outside is told of an envelope: the response, and what an interface shows."""

from __future__ import annotations

from typing import Any

from divebook.pipeline.envelope.copying import copied_map, copied_maps
from divebook.pipeline.envelope.enums import InterruptKind
from divebook.pipeline.envelope.interrupt import FlowInterrupt
from divebook.pipeline.envelope.parts import Parts


def final_response(parts: Parts) -> str | None:
    """Return the text to show: a pending question, else the response slot's text, else None."""
    pending = parts.interruption.pending
    if pending and pending.kind == InterruptKind.CLARIFICATION and pending.question:
        return pending.question
    if pending and pending.kind == InterruptKind.CONFIRMATION and pending.message:
        return pending.message
    response = parts.outputs.get(parts.slot_names.response, {}).get(parts.slot_names.response_key)
    return response if isinstance(response, str) else None


def write_result(parts: Parts) -> dict[str, Any]:
    """Return what a caller of the whole request wants to know, as plain data and copies."""
    reason = parts.terminal_reason
    result: dict[str, Any] = {
        "envelope_id": parts.envelope_id,
        "request_id": parts.request_id,
        "user_id": parts.user_id,
        "session_id": parts.session_id,
        "current_stage": parts.current_stage,
        "terminated": parts.terminated,
        "termination_reason": parts.termination_reason,
        "terminal_reason": None if reason is None else str(reason),
        "response": final_response(parts),
        "interrupt_pending": parts.interrupt_pending,
        "iteration": parts.iteration,
        "llm_call_count": parts.llm_call_count,
        "processing_time_ms": parts.audit.total_ms(),
        "errors": copied_maps(parts.errors, "errors"),
    }
    if parts.outputs:
        result["outputs"] = copied_map(parts.outputs, "outputs")
    if parts.interrupt is not None:
        result |= _interrupt_keys(parts.interrupt, pending=parts.interrupt_pending)
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
