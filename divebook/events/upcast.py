"""Upcasts: conversion of event payloads in old formats to the present format, so that every recorded log still loads.

The payload of an event states the version of its format under the key `FORM`. Version 0, the first, has no such key.
Each change of a type's format is one function in `CHANGES`. Function n turns version n into version n + 1, and `upcast`
applies all functions from the recorded version on. If `CHANGES` had ``{"step_started": [add_visit, rename_kind]}``:

- data without `FORM` pass through ``add_visit`` and ``rename_kind``;
- data with ``{"form": 1}`` pass through ``rename_kind`` only;
- data with ``{"form": 2}`` are in the present format;
- data with ``{"form": 3}`` come from a newer version of divebook: `NewerStoreError`.

Payloads of the legacy Dive dialect, and types that were renamed, are translated to version 0 of the present type first.
Logs recorded before a change are in ``tests/events/recorded``. Stores never rewrite recorded events, since checksums
cover the types. A store therefore still contains the former type, and readers translate it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from divebook.errors import NewerStoreError

FORM = "form"
Data: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Data], Data]


def upcast(
    event_type: str,
    data: Any,
    changes: Mapping[str, Sequence[Change]] | None = None,
) -> tuple[str, Any]:
    """Convert an event of any older version to the present format; return its type and its data.

    `changes` replaces `CHANGES`, for tests.

    Raises
    ------
    NewerStoreError
        The form is newer than the newest one of this version of divebook.
    """
    # The usual case: no format of this type has ever changed. The caller refuses data that are not a dict.
    if not isinstance(data, dict) or (changes is None and FORM not in data and event_type not in _CHANGED):
        return event_type, data
    event_type = present_type(event_type)
    # {"key": "n", "value": 1} of `state_set` becomes {"mutations": [{"type": "set", "key": "n", "value": 1}]}.
    if event_type in _FORMER_TYPES:
        event_type, change = _FORMER_TYPES[event_type]
        return event_type, change(data)
    version = data.get(FORM, 0)
    # Logs of the Dive dialect have no `FORM`. Their data become version 0, and then pass through all changes.
    if not version and event_type in _DIVE_DIALECT:
        data = _DIVE_DIALECT[event_type](data)
    changes_of_type = (CHANGES if changes is None else changes).get(event_type, ())
    if not changes_of_type and not version:
        return event_type, data
    return event_type, apply_changes(data, version, changes_of_type, f"a {event_type} event")


def present_type(event_type: str) -> str:
    """Return the present name of an event type that was renamed without a change of its data; other names unchanged.

    >>> present_type("execution_pictured"), present_type("step_started")
    ('execution_snapshotted', 'step_started')
    """
    return RENAMED_TYPES.get(event_type, event_type)


def present_status(status: str) -> str:
    """Return the present name of an execution's status that was renamed; other names unchanged.

    >>> present_status("picture"), present_status("failed")
    ('snapshot', 'failed')
    """
    return RENAMED_STATUSES.get(status, status)


def apply_changes(data: Data, version: int, changes: Sequence[Change], source: str) -> Data:
    """Convert the data of an event from format number `version` to the present format, by the changes made since then.
    The result does not have the key `FORM`, which contains that number.

    `source` names the data in the error; raises `NewerStoreError` for a version above the number of changes.
    """
    # Reading a newer format as the present one could drop or misread fields without an error.
    if version > len(changes):
        raise NewerStoreError(
            f"{source} has format version {version}, but this version of divebook reads format versions up to "
            f"{len(changes)}; upgrade divebook"
        )
    # The changes get a copy without the number of the format. Their result is in the present format.
    data = {name: value for name, value in data.items() if name != FORM}
    for change in changes[version:]:
        data = change(data)
    return data


def _single_set(data: Data) -> Data:
    return {"mutations": [{**data, "type": "set"}]}


def _single_delete(data: Data) -> Data:
    return {"mutations": [{**data, "type": "delete"}]}


_PATH_KEYS = {"ID": "id", "CurrentStep": "current_step", "InheritOutputs": "inherit_outputs"}


def _lower_case_paths(data: Data) -> Data:
    new_paths = data.get("new_paths")
    if not isinstance(new_paths, list) or not all(isinstance(new_path, dict) for new_path in new_paths):
        return data  # the check of all fields reports the error
    return {
        **data,
        "new_paths": [{_PATH_KEYS.get(key, key): value for key, value in new_path.items()} for new_path in new_paths],
    }


def _change_id_of_dive_dialect(data: Data) -> Data:
    """Convert an old version decision (which version of changed code an execution uses) to the present format. The
    legacy Dive dialect named versions; now they are numbered.

    A name such as ``v3`` becomes its number, any other name its position in the list of versions, from 1.
    """
    # {"decision_type": "api", "selected_version": "v3", "available_versions": ["v2", "v3"]} becomes version 3 of 2 to
    # 3. With the names ["old", "new"], "new" becomes version 2 of 1 to 2.
    if "decision_type" not in data:
        return data
    selected = data.get("selected_version")
    available = data.get("available_versions") or ()
    numbers = {name: _number(name) or place for place, name in enumerate(available, 1)}
    version = numbers.get(selected) or _number(selected) or 1
    span = [version, *numbers.values()]
    original: Data = {name: data[name] for name in ("selected_version", "available_versions", "reason") if name in data}
    versions: Data = {"version": version, "min_version": min(span), "max_version": max(span)}
    return {"change_id": data["decision_type"], **versions, **original}


def _number(name: Any) -> int | None:
    text = str(name).removeprefix("v")
    return int(text) if text.isascii() and text.isdigit() else None


RENAMED_TYPES: Mapping[str, str] = {"execution_pictured": "execution_snapshotted"}
"""Present type by former type, of types that were renamed without a change of their data."""
RENAMED_STATUSES: Mapping[str, str] = {"picture": "snapshot"}
"""Present status of an execution by its former name, which older exports and saved notebooks contain."""
_FORMER_TYPES: Mapping[str, tuple[str, Change]] = {
    "state_set": ("state_mutated", _single_set),
    "state_deleted": ("state_mutated", _single_delete),
}
"""Present type, and function that converts the data to version 0 of the present type, by former type name."""
_DIVE_DIALECT: Mapping[str, Change] = {
    "path_branched": _lower_case_paths,
    "version_decision": _change_id_of_dive_dialect,
}
"""Function that converts data of the Dive dialect to version 0, by type. Data of version 0 are unchanged."""
CHANGES: Mapping[str, Sequence[Change]] = {}
"""Functions that change the format of a type, oldest first, by type.

The version of a format is the number of changes before it. No format has changed yet.
"""
_CHANGED = frozenset({*RENAMED_TYPES, *_FORMER_TYPES, *_DIVE_DIALECT, *CHANGES})
"""Event types of which logs may contain an older format."""
