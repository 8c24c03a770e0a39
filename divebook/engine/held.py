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
    holds = () if earlier is None or record.operation_type not in ENCLOSING else earlier.holds
    outer = None if data.within is None else _begun_at(opened, data.within)
    within = None if outer is None else outer.operation_id
    record = record._replace(setting_hash=data.setting_hash, within=within, holds=holds)
    if outer is not None and record.operation_id not in outer.holds:
        opened = opened.with_operation(outer._replace(holds=(*outer.holds, record.operation_id)))
    return record, opened


def _begun_at(opened: OpenStep, sequence: int) -> OperationRecord | None:
    return next((record for record in opened.operations.values() if record.started_sequence == sequence), None)


def without_held(opened: OpenStep, outer: OperationRecord) -> OpenStep:
    """Return a step without what an operation has held; what of it is still under way stays until it has ended."""
    operations = opened.operations
    left = list(outer.holds)
    while left:
        record = operations.get(left.pop())
        if record is not None and record.status != RUNNING:
            left += record.holds
            operations = operations.delete(record.operation_id)
    return opened._replace(operations=operations)
