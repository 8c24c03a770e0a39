"""What is undone when an execution fails or is cancelled, as its state has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from divebook.engine.records import OpenStep, OperationRecord
from divebook.events.catalog import COMPLETED, RUNNING

BY_CALL: Final = "call"
BY_STEP: Final = "step"
"""What has the undoing of a call: its own end, or that of its step or item."""


class Undoing(NamedTuple):
    """A call that undoes what a step, an item of it or a call has done."""

    step: str
    action: str
    """Name of what is called."""
    parameters: Mapping[str, Any]
    kind: str
    """Whether that is an ``action``, or a function given to a ``step``."""
    function: str | None = None
    """Where such a function is defined; None in older logs."""

    @property
    def called(self) -> str:
        """By what it is found."""
        return self.function or self.action


class RollingBack(NamedTuple):
    """How an execution ends that is being rolled back."""

    error: str
    reason: str | None
    is_cancelled: bool


def unsettled(opened: OpenStep | None) -> list[OperationRecord]:
    """Return the calls of a step whose undoing the log is still to have: nobody knows yet whether they took effect.

    Or they did, and what they gave is still to be filled in.
    """
    records = () if opened is None else opened.operations.values()
    return [record for record in records if record.undone is not None and _is_unsettled(record, opened)]


def unknown(opened: OpenStep | None) -> list[OperationRecord]:
    """Return those of which nobody knows whether they took effect."""
    return [record for record in unsettled(opened) if record.status == RUNNING]


def _is_unsettled(record: OperationRecord, opened: OpenStep | None) -> bool:
    if record.status == RUNNING:
        return True
    is_in_step = record.undone == BY_STEP and opened is not None and record.item not in opened.iterations
    return record.status == COMPLETED and is_in_step
