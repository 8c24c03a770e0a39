"""Operations that others hold: a turn of an agent holds its requests and calls, and lets go of them when it completes.

Replay takes the result of a turn that has completed and asks for nothing inside it, so that a state need not keep that,
nor would the log be ahead of the code for ever because of it.
"""

from __future__ import annotations

from divebook.engine.operations import ENCLOSING
from divebook.engine.records import OpenStep, OperationRecord
from divebook.events import catalog
from divebook.events.catalog import RUNNING


def held_by(
    opened: OpenStep, record: OperationRecord, data: catalog.OperationStarted
) -> tuple[OperationRecord, OpenStep]:
    """Return an operation that begins with what its event says of its place among others, and the step around it."""
    earlier = opened.operations.get(record.operation_id)
    if record.operation_type in ENCLOSING:
        opened = _holding(opened, record, earlier)
    outer = opened.operations.get(opened.holders.get(data.within, "")) if data.within is not None else None
    record = record._replace(
        setting_hash=data.setting_hash,
        within=None if outer is None else outer.operation_id,
        holds=() if earlier is None else earlier.holds,
    )
    if outer is not None and earlier is None:
        opened = opened.with_operation(outer._replace(holds=(*outer.holds, record.operation_id)))
    return record, opened


def _holding(opened: OpenStep, record: OperationRecord, earlier: OperationRecord | None) -> OpenStep:
    """Return a step in which others may begin within an operation, which perhaps begins once more."""
    holders = opened.holders if earlier is None else opened.holders.delete(earlier.started_sequence)
    return opened._replace(holders=holders.set(record.started_sequence, record.operation_id))


def without_held(opened: OpenStep, outer: OperationRecord) -> OpenStep:
    """Return a step without what an operation has held; what of it is still under way stays until it has ended."""
    operations, holders = opened.operations, opened.holders.delete(outer.started_sequence)
    left = list(outer.holds)
    while left:
        record = operations.get(left.pop())
        if record is not None and record.status != RUNNING:
            left += record.holds
            operations = operations.delete(record.operation_id)
            if record.started_sequence in holders:
                holders = holders.delete(record.started_sequence)
    return opened._replace(operations=operations, holders=holders)
