"""Which facts take long to write: those that hold a large value. They are told by a glance, for it is asked of all."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from divebook.events import catalog
from divebook.events.recorded import ATOMS, Recorded

HEAVY = 1024 * 1024
"""Characters or bytes from which on it pays to hand a commit to a thread."""
_MANY = 16 * 1024
"""Parts of a list or mapping that count as much."""
_FEW = 16
"""Parts that are looked at."""
_LEVELS = 3
_LIGHT = ATOMS - {str}
_HELD = {
    catalog.ExecutionStarted: attrgetter("inputs"),
    catalog.ExecutionCompleted: attrgetter("outputs"),
    catalog.OperationStarted: attrgetter("parameters"),
    catalog.OperationCompleted: attrgetter("result"),
    catalog.StepCompleted: attrgetter("output"),
    catalog.IterationStarted: attrgetter("item"),
    catalog.EventEmitted: attrgetter("data"),
}
"""What facts hold that may be large; the value of a variable was the result of a call before."""


def is_heavy(fact: catalog.Payload) -> bool:
    """Return whether a fact holds a value that is seen to be large."""
    held = _HELD.get(type(fact))
    if held is None:
        return False
    value = held(fact)
    return type(value) not in _LIGHT and _is_heavy(value, _LEVELS)


def _is_heavy(value: Any, levels: int) -> bool:
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) > HEAVY
    if kind is dict or kind is list:
        if len(value) > _FEW or not levels:
            return len(value) > _MANY
        for part in value.values() if kind is dict else value:  # noqa: SIM110 - a generator takes twice as long
            if _is_heavy(part, levels - 1):
                return True
        return False
    return kind not in _LIGHT and isinstance(value, Recorded) and value.least_bytes() > HEAVY
