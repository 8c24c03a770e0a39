"""How calls begin and end: their records, what they use, and what they hold back of the bounds."""

from __future__ import annotations

from collections.abc import Mapping

from divebook.engine.bounds import MICROSECONDS
from divebook.engine.changes import SLEEPS, Changes, Draft, Happening, open_step_of, put, sleeps
from divebook.engine.ledger import Ledger
from divebook.engine.operations import AGENT_RESPONSE, CHILD_WORKFLOW, EVENT_EMITTED, Reserved
from divebook.engine.state import (
    COMPLETED,
    FAILED,
    OpenStep,
    OperationRecord,
    Outcome,
    PathState,
)
from divebook.errors import CorruptStoreError
from divebook.events import catalog

LONGEST_SECONDS = 1000 * 365 * 86400.0
"""A timer that is set for longer counts as this long, since dates end with the year 9999."""


def operation_started(state: Draft, event: Happening, data: catalog.OperationStarted) -> Changes:
    """Note a call; one to a model counts, and holds back what it may consume."""
    path, opened = open_step_of(state, event)
    kind, digest = data.operation_type, data.parameters_hash
    record = OperationRecord.begun(data.operation_id, kind, digest, event.recorded_at, event.sequence)
    if kind in SLEEPS:
        record = record._replace(until=_end_of(event, data), signal=(data.parameters or {}).get("signal"))
    if kind != AGENT_RESPONSE:
        return _put_operation(state, path, opened, record)
    held = Reserved(data.reserved.get("tokens", 0), data.reserved.get("cost", 0)) if data.reserved else None
    changes = _put_operation(state, path, opened, record._replace(reserved=held))
    changes["ledger"] = _asking_a_model(state, path, opened.operations.get(data.operation_id), data).holding(held)
    return changes


def _asking_a_model(
    state: Draft, path: PathState, earlier: OperationRecord | None, data: catalog.OperationStarted
) -> Ledger:
    """Return the ledger once a model call has begun, perhaps for the second time."""
    ledger = state.ledger.holding(None if earlier is None else earlier.reserved, -1)
    ledger = ledger._replace(llm_calls=ledger.llm_calls + 1)
    if path.hop is None:
        return ledger
    agent, calls = (data.parameters or {}).get("agent"), ledger.history[path.hop].llm_calls
    return ledger.with_hop(path.hop, agent=agent, llm_calls=calls + 1)


def _end_of(event: Happening, data: catalog.OperationStarted) -> int | None:
    seconds = (data.parameters or {}).get("seconds")
    if not isinstance(seconds, int | float):
        return None
    return event.recorded_at + round(min(seconds, LONGEST_SECONDS) * MICROSECONDS)


def operation_completed(state: Draft, event: Happening, data: catalog.OperationCompleted) -> Changes:
    """Note what a call has given; one that waited for a signal has taken the oldest of that name."""
    begun, changes = _ended(state, event, data, COMPLETED, (data.result, None, (), None))
    if begun.operation_type != CHILD_WORKFLOW and begun.signal is not None:
        left = state.signals.get(begun.signal, ())[1:]
        changes["signals"] = state.signals.set(begun.signal, left) if left else state.signals.delete(begun.signal)
    return changes


def event_emitted(state: Draft, event: Happening, data: catalog.EventEmitted) -> Changes:
    """Note an event of a person's own, if its code asks for it again on replay."""
    if data.operation_id is None:
        return {}
    path, opened = open_step_of(state, event)
    record = OperationRecord(
        data.operation_id,
        EVENT_EMITTED,
        data.parameters_hash,
        event.recorded_at,
        event.sequence,
        event.sequence,
        COMPLETED,
    )
    return put(state, path, open=opened.with_operation(record))


def operation_failed(state: Draft, event: Happening, data: catalog.OperationFailed) -> Changes:
    """Note why a call has failed."""
    names = tuple(data.error_names or ())
    return _ended(state, event, data, FAILED, (None, data.error, names, data.raised))[1]


def _ended(
    state: Draft,
    event: Happening,
    data: catalog.OperationCompleted | catalog.OperationFailed,
    status: str,
    outcome: Outcome,
) -> tuple[OperationRecord, Changes]:
    """Return a call as it stood before its end, and what the end changes: what it has used, and what it held back."""
    path, opened = open_step_of(state, event)
    begun = _begun(state, opened, data.operation_id)
    if state.ends_step and _leaves_nothing(state, begun, data.usage):
        return begun, {}
    record = begun.ended(event.sequence, status, outcome)
    if data.usage:
        opened = opened._replace(usage=opened.usage.plus(data.usage))
    changes = _put_operation(state, path, opened, record)
    if data.usage:
        changes["usage"] = state.usage.plus(data.usage)
    if begun.reserved is not None:
        changes["ledger"] = state.ledger.holding(begun.reserved, -1)
    if begun.operation_type == CHILD_WORKFLOW:
        changes |= _child_ended(state, begun, data.usage)
    return begun, changes


def _leaves_nothing(state: Draft, begun: OperationRecord, usage: Mapping[str, int] | None) -> bool:
    """Return whether a call that has ended leaves nothing behind once its step is over."""
    is_plain = begun.reserved is None and begun.operation_type not in SLEEPS
    return is_plain and not usage and state.bounds.max_repeats is None


def _child_ended(state: Draft, begun: OperationRecord, usage: Mapping[str, int] | None) -> Changes:
    """Return what the end of an execution that this one started changes: its calls count, its signals are done with."""
    child, calls = begun.signal or "", (usage or {}).get("requests", 0)
    changes: Changes = {"ledger": state.ledger.with_child(child, calls)}
    return changes | ({"signals": state.signals.delete(child)} if child in state.signals else {})


def _begun(state: Draft, opened: OpenStep, operation_id: str) -> OperationRecord:
    record = opened.operations.get(operation_id)
    if record is None:
        raise CorruptStoreError(f"operation {operation_id} of {state.execution_id} ends without having begun")
    return record


def _put_operation(state: Draft, path: PathState, opened: OpenStep, record: OperationRecord) -> Changes:
    after = opened.with_operation(record)
    changes = put(state, path, open=after)
    if record.operation_type in SLEEPS:
        changes["sleeping"] = state.sleeping + sleeps(after) - sleeps(opened)
    return changes
