"""An execution as the envelope of one request: read off its state, so that it is a fold of the log like the state.

What the envelope calls stages are the steps of the workflow, and its slots are the outputs of the agent steps. Goals
have no part in an execution.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from divebook.engine.bounds import dollars
from divebook.engine.ledger import Hop
from divebook.engine.state import ENDED, FAILED, IN_STEP, ExecutionState
from divebook.events.event import to_datetime
from divebook.pipeline.envelope.contents import ProcessingRecord
from divebook.pipeline.envelope.enums import ProcessingStatus, TerminalReason
from divebook.pipeline.envelope.envelope import Envelope
from divebook.pipeline.envelope.interrupt import FlowInterrupt
from divebook.pipeline.envelope.plain import copied_map, to_text
from divebook.workflow.pipelines import END, START

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for the beginning of what has not begun."""


def envelope_of(state: ExecutionState, steps: Sequence[str] = ()) -> Envelope:
    """Return the envelope of an execution as it stands: the same for the same events, however they were folded.

    Parameters
    ----------
    steps
        The steps of the workflow, as they are written.
    """
    ledger, used = state.ledger, state.usage
    return Envelope(
        bounds=state.bounds,
        clock=lambda: to_datetime(state.last_us),
        new_id=lambda _: "",
        iteration=ledger.iterations,
        llm_call_count=ledger.llm_calls,
        agent_hop_count=ledger.agent_hops,
        token_count=used.input_tokens + used.output_tokens,
        cost=dollars(used.cost),
        edge_counts=dict(sorted(ledger.edges.items())),
        processing_history=_history(state, steps),
        errors=_errors(state),
        outputs=_outputs(state),
        **_identity(state),
        **_termination(state),
        **_interruption(state),
        **_stages(state, steps),
    )


def _moment(microseconds: int | None) -> datetime:
    return NEVER if microseconds is None else to_datetime(microseconds)


def _identity(state: ExecutionState) -> dict[str, Any]:
    given, began = state.identity, _moment(state.started_us)
    return {
        "envelope_id": state.execution_id,
        "request_id": str(given.get("request_id") or state.execution_id),
        "session_id": str(given.get("session_id") or ""),
        "created_at": began,
        "received_at": began,
        "user_id": str(given.get("user_id") or "anonymous"),
        "raw_input": str(given.get("raw_input") or ""),
        "metadata": copied_map(given.get("metadata") or {}, "metadata"),
    }


def _termination(state: ExecutionState) -> dict[str, Any]:
    """Return how it ended; before that, the bound at which it waits."""
    if not state.is_over:
        asked = (question.data or {} for question in state.pending_interrupts())
        reason = next((data["reason"] for data in asked if "bound" in data and data.get("reason")), None)
        return {"terminal_reason": None if reason is None else TerminalReason.read(reason)}
    ended = None if state.ended_us is None else to_datetime(state.ended_us)
    reason = None if state.reason is None else TerminalReason.read(state.reason)
    return {
        "terminated": True,
        "termination_reason": state.error or state.lifecycle,
        "terminal_reason": reason,
        "completed_at": ended,
    }


# --- questions -----------------------------------------------------------------------------------------------------


def _interruption(state: ExecutionState) -> dict[str, Any]:
    """Return the oldest open question and those after it; where none is open, the one that was settled last."""
    pending = [FlowInterrupt.of(found) for found in state.pending_interrupts()]
    if pending and not state.is_over:
        return {"interrupt_pending": True, "interrupt": pending[0], "interrupt_queue": pending[1:]}
    settled = [found for found in state.interrupts.values() if not found.is_open]
    if not settled:
        return {}
    last = max(settled, key=lambda found: (found.settled_us or 0, found.raised_us, found.interrupt_id))
    return {"interrupt": FlowInterrupt.of(last)}


# --- agent steps ---------------------------------------------------------------------------------------------------


def _history(state: ExecutionState, steps: Sequence[str]) -> list[ProcessingRecord]:
    order = {name: number for number, name in enumerate(steps)}
    return [_record(hop, order.get(hop.step, 0)) for _, hop in sorted(state.ledger.history.items())]


def _record(hop: Hop, stage_order: int) -> ProcessingRecord:
    began, ended = _moment(hop.started_us), None if hop.ended_us is None else to_datetime(hop.ended_us)
    took = 0 if ended is None else (ended - began) // timedelta(milliseconds=1)
    status = ProcessingStatus.read(hop.status)
    return ProcessingRecord(hop.step, stage_order, began, ended, max(took, 0), status, hop.error, hop.llm_calls)


def _errors(state: ExecutionState) -> list[dict[str, Any] | None]:
    errors = (error for _, error in sorted(state.ledger.errors.items()))
    return [{**error, "timestamp": to_text(to_datetime(error["timestamp"]))} for error in errors]


def _outputs(state: ExecutionState) -> dict[str, dict[str, Any]]:
    """Return a slot for each agent step that has completed: the mapping that its text is in JSON, else the text."""
    outputs: dict[str, dict[str, Any]] = {}
    for _, hop in sorted(state.ledger.history.items()):
        text = state.paths[hop.path].step_outputs.get(hop.step)
        if text is not None:
            outputs[hop.step] = _slot(text)
    return outputs


def _slot(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_constant=_refuse) if text.startswith("{") else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"text": text}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


# --- stages --------------------------------------------------------------------------------------------------------


def _stages(state: ExecutionState, steps: Sequence[str]) -> dict[str, Any]:
    paths = sorted(state.paths.values(), key=lambda path: path.number)
    active = [path for path in paths if path.phase != ENDED]
    failed = {path.current_step: path.error for path in paths if path.status == FAILED and path.error}
    return {
        "current_stage": active[0].current_step if active else END if state.paths else START,
        "stage_order": list(steps),
        "active_stages": {path.current_step: True for path in active if path.phase == IN_STEP},
        "completed_stage_set": _completed(state, steps),
        "failed_stages": failed,
        "parallel_mode": len(active) > 1,
    }


def _completed(state: ExecutionState, steps: Sequence[str]) -> dict[str, bool]:
    done = {step for path in state.paths.values() for step in path.step_outputs}
    order = {name: number for number, name in enumerate(steps)}
    return dict.fromkeys(sorted(done, key=lambda name: (order.get(name, len(order)), name)), True)
