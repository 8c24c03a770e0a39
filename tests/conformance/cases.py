"""Case files: which formats there are and what can be run of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance import facts, loose

WHOLE = ("workflow", "condition", "template")
"""Groups of a plain list whose cases a machine can run, all of them."""

GROUPS = (*WHOLE, *loose.RUN, *facts.RUN)
"""Groups with cases that a machine can run; the others of such a file are prose for ordinary tests."""

SUBJECTS = ("Envelope", "Workspace (files + shell + resources)")
"""Subjects whose language (key `dsl`) `scenario` knows; of such a file a machine can run every group."""


class UnusableFileError(Exception):
    """The file, or what was asked of it, cannot be run; the text says why."""


@dataclass(frozen=True)
class Case:
    """One case: what to do, and what must come of it."""

    name: str
    group: str
    data: Mapping[str, Any]

    @property
    def is_scenario(self) -> bool:
        """Whether it is written as steps."""
        return "action" in self.data

    @property
    def expect(self) -> Mapping[str, Any]:
        """What must be observed."""
        expect: Mapping[str, Any] = self.data["expect"]
        return expect


def load(path: Path, groups: Collection[str] = ()) -> list[Case]:
    """Return the cases of a file that can be run, of the given groups or of all.

    Raises
    ------
    UnusableFileError
        Not JSON, not a known format, or a group without runnable cases.
    """
    content = _content(path)
    entries = _entries(path, content)
    present = {entry["group"] for entry in entries}
    runnable = present if isinstance(content, Mapping) else set(GROUPS)
    _check_groups(path, groups, present, runnable)
    wanted = groups or runnable
    cases = [
        Case(entry["name"], entry["group"], entry) for entry in entries if entry["group"] in wanted and _is_data(entry)
    ]
    if not cases:
        raise UnusableFileError(f"{path} has no case of the groups {', '.join(GROUPS)}")
    return cases


def left_out(path: Path, groups: Collection[str] = ()) -> list[Case]:
    """Return the cases of a file, of the given groups or of all, that cannot be run."""
    entries = _entries(path, _content(path))
    return [
        Case(entry["name"], entry["group"], entry)
        for entry in entries
        if not _is_data(entry) and (not groups or entry["group"] in groups)
    ]


def _content(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnusableFileError(f"{path}: {error}") from error


def _is_data(entry: Mapping[str, Any]) -> bool:
    if "action" in entry or entry["group"] in WHOLE:
        return True
    return facts.is_data(entry) or loose.is_data(entry)


def _entries(path: Path, content: Any) -> Sequence[Mapping[str, Any]]:
    keys, entries = {"name", "group", "expect"}, content
    if isinstance(content, Mapping) and "dsl" in content:
        if content.get("subject") not in SUBJECTS:
            raise UnusableFileError(
                f"{path}: its cases are written in a language of their own (key `dsl`), which this runner does not "
                f"know yet; it knows those about {', '.join(SUBJECTS)}"
            )
        keys, entries = keys | {"setup", "action"}, content.get("cases")
    if not isinstance(entries, list) or not all(
        isinstance(entry, Mapping) and keys <= entry.keys() for entry in entries
    ):
        raise UnusableFileError(f"{path}: not a list of cases with {', '.join(f'`{key}`' for key in sorted(keys))}")
    return entries


def _check_groups(path: Path, asked: Collection[str], present: Collection[str], runnable: Collection[str]) -> None:
    for group in asked:
        if group not in present:
            raise UnusableFileError(f"{path}: no group {group!r}; there are {', '.join(sorted(present))}")
        if group not in runnable:
            raise UnusableFileError(
                f"{path}: the cases of group {group!r} are written for people; runnable are {', '.join(GROUPS)}"
            )
