"""Whether what a definition does is what its log says: payloads byte for byte, but for what no rule determines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from divebook.engine.operations import operation_kind
from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.events.codec import canonical_hash
from divebook.events.values import normalize
from divebook.execution.divergence import changes_between, in_short, operation_text

_SPENT = frozenset({"duration", "usage", "held", "served", "trace", "raised"})
FREE: Mapping[str, frozenset[str]] = {
    "operation_started": frozenset({"reserved"}),
    "operation_completed": _SPENT,
    "operation_failed": _SPENT,
    "interrupt_raised": frozenset({"expires_at"}),
    "step_retried": frozenset({"delay"}),
    "step_failed": frozenset({"trace", "place"}),
    "iteration_failed": frozenset({"trace", "place"}),
    "iteration_started": frozenset({"total"}),
}
"""Fields that come from a clock, a price list or chance outside any operation, or say where code stands and who began.

They are taken as they are recorded (`tests/replay/test_verify.py`)."""
_HASHES = ("parameters_hash", "setting_hash")
"""Fields that differ where others do, and say nothing to people."""
_REPLACEABLE = frozenset({"model", "settings"})
"""Of what a request is made with: may be put right while a turn waits, and makes no other agent."""


def is_same(recorded: Payload, data: Payload) -> bool:
    """Whether two payloads are equal, byte for byte with sorted keys, but for what is `FREE`."""
    return type(recorded) is type(data) and canonical_hash(_compared(recorded)) == canonical_hash(_compared(data))


def _compared(data: Payload) -> Any:
    free = FREE.get(data.event_type, frozenset())
    told = {name: value for name, value in data.to_data().items() if name not in free}
    if isinstance(data, catalog.OperationStarted) and data.setting is not None:
        told["setting"] = {name: value for name, value in data.setting.items() if name not in _REPLACEABLE}
    return normalize(told)


def differing(recorded: Payload, data: Payload) -> Iterator[str]:
    """Yield what differs between two payloads of one kind, in words."""
    if type(recorded) is type(data):
        before, now = ({**_compared(one), **dict.fromkeys(_HASHES)} for one in (recorded, data))
        yield from changes_between(before, now)


def told(data: Payload, step: str) -> str:
    """Return an event in a few words: ``action 'pay' with {"amount":5} in step 'pay'``."""
    where = f" in step {step!r}" if step else ""
    return f"{_what(data)}{where}"


def _what(data: Payload) -> str:
    match data:
        case catalog.OperationStarted():
            return operation_text(data.operation_type, data.parameters or {})
        case catalog.OperationCompleted():
            return f"{_named(data)} returned {in_short(data.result)}"
        case catalog.OperationFailed():
            return f"{_named(data)} failed: {in_short(data.error)}"
        case catalog.InterruptRaised():
            return f"the {data.kind} {in_short(data.question)}"
        case catalog.StateMutated():
            return ", ".join(
                f"{change.key} = {in_short(change.value)}" if change.type == "set" else f"{change.key} deleted"
                for change in data.mutations
            )
    told = {name: value for name, value in _compared(data).items() if name != "form"}
    return f"{data.event_type} {in_short(told)}"


def _named(data: catalog.OperationCompleted | catalog.OperationFailed) -> str:
    return operation_kind(data.operation_type)
