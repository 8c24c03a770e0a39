"""Old forms of events brought up to date, so that a log once written loads for ever.

An event carries the version of its form under `FORM`; version 0, the first, carries none. Each change of a type's form
is one function in `CHANGES`, in order of age, that makes version n + 1 of version n: whatever was written at any time
walks through those that came after it. What the old system wrote is translated into version 0 before that. Logs
recorded before a change are kept in ``tests/events/recorded``.
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
    """Return the present form of an event's type and data.

    Raises
    ------
    NewerStoreError
        Its form is newer than those that this version of divebook knows.
    """
    if not isinstance(data, dict) or (changes is None and FORM not in data and event_type not in _CHANGED):
        return event_type, data
    if event_type in _FORMER_TYPES:
        event_type, change = _FORMER_TYPES[event_type]
        return event_type, change(data)
    version = data.get(FORM, 0)
    if not version and event_type in _OLD_SYSTEM:
        data = _OLD_SYSTEM[event_type](data)
    known = (CHANGES if changes is None else changes).get(event_type, ())
    if not known and not version:
        return event_type, data
    return event_type, walked(data, version, known, f"a {event_type} event")


def walked(data: Data, version: int, changes: Sequence[Change], what: str) -> Data:
    """Return data of some version in its present form; raises `NewerStoreError`."""
    if version > len(changes):
        raise NewerStoreError(
            f"{what} has form {version}, this version of divebook knows forms up to {len(changes)}; upgrade divebook"
        )
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
        return data  # what is wrong with it is said by those who look at every field
    return {**data, "new_paths": [{_PATH_KEYS.get(k, k): v for k, v in new_path.items()} for new_path in new_paths]}


def _change_id_of_the_old_system(data: Data) -> Data:
    """Return the versions that the old system named by numbers: those in their names, else their places from 1."""
    if "decision_type" not in data:
        return data
    selected = data.get("selected_version")
    available = data.get("available_versions") or ()
    numbers = {name: _number(name) or place for place, name in enumerate(available, 1)}
    version = numbers.get(selected) or _number(selected) or 1
    span = [version, *numbers.values()]
    kept: Data = {name: data[name] for name in ("selected_version", "available_versions", "reason") if name in data}
    numbered: Data = {"version": version, "min_version": min(span), "max_version": max(span)}
    return {"change_id": data["decision_type"], **numbered, **kept}


def _number(name: Any) -> int | None:
    text = str(name).removeprefix("v")
    return int(text) if text.isascii() and text.isdigit() else None


_FORMER_TYPES: Mapping[str, tuple[str, Change]] = {
    "state_set": ("state_mutated", _single_set),
    "state_deleted": ("state_mutated", _single_delete),
}
"""What types were called once, with what makes the first form of the present type of them."""
_OLD_SYSTEM: Mapping[str, Change] = {
    "path_branched": _lower_case_paths,
    "version_decision": _change_id_of_the_old_system,
}
"""Translations by type; they leave our own first form as it is."""
CHANGES: Mapping[str, Sequence[Change]] = {}
"""By type; a form's version is the number of changes before it. No form of ours has changed yet."""
_CHANGED = frozenset({*_FORMER_TYPES, *_OLD_SYSTEM, *CHANGES})
"""The types that may come in an older form."""
