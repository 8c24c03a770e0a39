"""How calls begin and end: their records, what they use, and what they hold back of the bounds."""

from __future__ import annotations

from collections.abc import Mapping

from divebook.engine.bounds import MICROSECONDS
from divebook.engine.changes import SLEEPS, Draft, sleeps
from divebook.engine.held import held_by, without_held
from divebook.engine.ledger import Ledger
from divebook.engine.operations import AGENT_RESPONSE, CHILD_WORKFLOW, ENCLOSING, EVENT_EMITTED, Reserved
from divebook.engine.records import OpenStep, OperationRecord, Outcome
from divebook.engine.state import COMPLETED, FAILED, PathState
from divebook.errors import CorruptStoreError
from divebook.events import catalog

_RESERVES = frozenset({AGENT_RESPONSE, CHILD_WORKFLOW})
LONGEST_SECONDS = 1000 * 365 * 86400.0
"""A timer that is set for longer counts as this long, since dates end with the year 9999."""


def operation_started(draft: Draft, data: catalog.OperationStarted) -> None:
    """Note a call; one to a model counts, and holds back what it may consume."""
    path, opened = draft.open_step(data)
    kind = data.operation_type
    record = OperationRecord.begun(data.operation_id, kind, data.parameters_hash, draft.moment, draft.last_sequence)
    if kind in _RESERVES:
        held, earlier = Reserved.of(data.reserved), opened.operations.get(data.operation_id)
        ledger = draft.ledger.holding(_held_before(earlier, data), -1).holding(held)
        record = record._replace(reserved=held)
        draft.ledger = _asking_a_model(ledger, path, data) if kind == AGENT_RESPONSE else ledger
    if data.within is not None or data.setting_hash is not None or kind in ENCLOSING:
        record, opened = held_by(opened, record, data)
    if data.undone is not None:
        record = record._replace(undone=data.undone, item=data.iteration_index)
    if kind not in SLEEPS:
        path.open = opened.with_operation(record)
        return
    until, signal = _end_of(draft, data), (data.parameters or {}).get("signal")
    _put_sleeping(draft, path, opened, record._replace(until=until, signal=signal))


def _held_before(earlier: OperationRecord | None, data: catalog.OperationStarted) -> Reserved | None:
    """Return what a call held that begins again.

    What an execution handed on in whose place another one begins stays held
    (test_it_stays_held_where_another_execution_takes_the_place).
    """
    is_same = earlier is not None and earlier.signal == (data.parameters or {}).get("signal")
    return earlier.reserved if earlier is not None and is_same else None


def _asking_a_model(ledger: Ledger, path: PathState, data: catalog.OperationStarted) -> Ledger:
    """Return the ledger once a model call has begun, perhaps for the second time."""
    ledger = ledger._replace(llm_calls=ledger.llm_calls + 1)
    if path.hop is None:
        return ledger
    agent, calls = (data.parameters or {}).get("agent"), ledger.history[path.hop].llm_calls
    return ledger.with_hop(path.hop, agent=agent, llm_calls=calls + 1)


def without_a_call(ledger: Ledger, path: PathState) -> Ledger:
    """Return the ledger once it is known that no model was called, though a call to one had begun."""
    ledger = ledger._replace(llm_calls=ledger.llm_calls - 1)
    if path.hop is None:
        return ledger
    return ledger.with_hop(path.hop, llm_calls=ledger.history[path.hop].llm_calls - 1)


def _end_of(draft: Draft, data: catalog.OperationStarted) -> int | None:
    seconds = (data.parameters or {}).get("seconds")
    if not isinstance(seconds, int | float):
        return None
    return draft.moment + round(min(seconds, LONGEST_SECONDS) * MICROSECONDS)


def operation_completed(draft: Draft, data: catalog.OperationCompleted) -> None:
    """Note what a call has given; one that waited for a signal has taken the oldest of that name."""
    begun = _ended(draft, data, COMPLETED, (data.result, None, (), None))
    if begun.signal is not None and begun.operation_type != CHILD_WORKFLOW:
        left = draft.signals.get(begun.signal, ())[1:]
        draft.signals = draft.signals.set(begun.signal, left) if left else draft.signals.delete(begun.signal)


def event_emitted(draft: Draft, data: catalog.EventEmitted) -> None:
    """Note an event of a person's own, if its code asks for it again on replay."""
    if data.operation_id is None:
        return
    path, opened = draft.open_step(data)
    moment, sequence = draft.moment, draft.last_sequence
    begun = OperationRecord.begun(data.operation_id, EVENT_EMITTED, data.parameters_hash, moment, sequence)
    path.open = opened.with_operation(begun._replace(ended_sequence=sequence, status=COMPLETED))


def operation_failed(draft: Draft, data: catalog.OperationFailed) -> None:
    """Note why a call has failed."""
    _ended(draft, data, FAILED, (None, data.error, tuple(data.error_names or ()), data.raised))
    path, opened = draft.open_step(data)
    record = opened.operations[data.operation_id]
    if data.final or data.lost != record.lost:
        is_final = record.is_final or bool(data.final)
        path.open = opened.with_operation(record._replace(is_final=is_final, lost=data.lost))


def _ended(
    draft: Draft, data: catalog.OperationCompleted | catalog.OperationFailed, status: str, outcome: Outcome
) -> OperationRecord:
    """Note the end of a call, what it has used, and what it held back; return it as it stood before."""
    path, opened = draft.open_step(data)
    begun = opened.operations.get(data.operation_id)
    if begun is None:
        raise CorruptStoreError(f"call {data.operation_id} of {draft.execution_id} ends without having begun")
    is_plain = begun.reserved is None and begun.operation_type not in SLEEPS and not data.usage and not data.served
    if is_plain and draft.ends_step and draft.bounds.max_repeats is None:
        return begun  # nothing of it is left once its step is over
    if data.usage:
        opened = opened._replace(usage=opened.usage.plus(data.usage))
        draft.usage = draft.usage.plus(data.usage)
    if begun.reserved is not None:
        draft.ledger = draft.ledger.holding(begun.reserved, -1)
    if data.served is not None and begun.operation_type == AGENT_RESPONSE:
        draft.ledger = without_a_call(draft.ledger, path)
    ended = begun.ended(draft.last_sequence, status, outcome)
    if data.held:
        draft.ledger = draft.ledger.holding(held := Reserved.of(data.held))
        ended = ended._replace(reserved=held)
    if status == COMPLETED and begun.operation_type in ENCLOSING:
        opened, ended = without_held(opened, begun), ended._replace(holds=())
    if begun.operation_type not in SLEEPS:
        path.open = opened.with_operation(ended)
        return begun
    if begun.operation_type == CHILD_WORKFLOW:
        _child_ended(draft, begun, data.usage)
    _put_sleeping(draft, path, opened, ended)
    return begun


def _child_ended(draft: Draft, begun: OperationRecord, usage: Mapping[str, int] | None) -> None:
    """Note the end of an execution that this one started: what it has consumed counts, its signals are done with."""
    child = begun.signal or ""
    draft.ledger = draft.ledger.with_child(child, usage or {})
    if child in draft.signals:
        draft.signals = draft.signals.delete(child)


def _put_sleeping(draft: Draft, path: PathState, opened: OpenStep, record: OperationRecord) -> None:
    path.open = after = opened.with_operation(record)
    draft.sleeping += sleeps(after) - sleeps(opened)
