"""Old forms of events brought up to date, so that a log once written loads for ever.

One function per change, applied in order of age; each takes and returns ``(event_type, data)``.
"""

from __future__ import annotations

from typing import Any


def upcast(event_type: str, data: Any) -> tuple[str, Any]:
    """Return the present form of an event's type and data."""
    if not isinstance(data, dict):
        return event_type, data
    if event_type in ("state_set", "state_deleted"):
        return _single_state_event(event_type, data)
    if event_type == "path_branched":
        return event_type, _lower_case_paths(data)
    return event_type, data


def _single_state_event(event_type: str, data: dict[str, Any]) -> tuple[str, Any]:
    kind = "set" if event_type == "state_set" else "delete"
    return "state_mutated", {"mutations": [{**data, "type": kind}]}


_PATH_KEYS = {"ID": "id", "CurrentStep": "current_step", "InheritOutputs": "inherit_outputs"}


def _lower_case_paths(data: dict[str, Any]) -> dict[str, Any]:
    new_paths = data.get("new_paths") or ()
    return {**data, "new_paths": [{_PATH_KEYS.get(k, k): v for k, v in new_path.items()} for new_path in new_paths]}
