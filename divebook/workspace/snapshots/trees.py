"""A tree: all files of a folder at one moment, under one digest. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

FILE, FOLDER, LINK = "f", "d", "l"


class TreeEntry(NamedTuple):
    """A file, folder or link."""

    kind: str
    """`FILE`, `FOLDER` or `LINK`."""
    mode: int = 0
    """Permission bits; 0 of a link."""
    content: str = ""
    """Of a file its SHA-256, hexadecimal; of a link where it leads."""
    size: int = 0
    """Bytes, of a file."""
    mtime: int = 0
    """Nanoseconds, of a file; it is put back, and changes no digest."""

    def is_like(self, other: TreeEntry | None) -> bool:
        """Return whether another one is the same but for its mtime."""
        return other is not None and self[:3] == other[:3]


TreeEntries: TypeAlias = Mapping[str, TreeEntry]
"""By path below the folder; names that are no UTF-8 are written as `os.fsdecode` does."""
NO_ENTRIES: TreeEntries = {}


class LeftOut(NamedTuple):
    """A file that a tree leaves out, or of which it has what was there for a moment."""

    path: str
    reason: str


class Tree(NamedTuple):
    """All files of a folder at one moment."""

    digest: str
    """SHA-256 over names, kinds, modes and contents, hexadecimal."""
    entries: TreeEntries
    problems: tuple[LeftOut, ...] = ()


class FileChange(NamedTuple):
    """How one path differs between two trees."""

    path: str
    kind: str
    """``added``, ``changed``, ``deleted`` or ``renamed``."""
    before: TreeEntry | None
    after: TreeEntry | None
    was: str | None = None
    """The former path of what was renamed."""


ADDED, CHANGED, DELETED, RENAMED = "added", "changed", "deleted", "renamed"


def changes_between(before: Mapping[str, TreeEntry], after: Mapping[str, TreeEntry]) -> list[FileChange]:
    """Return how two trees differ, by path; a file that stands elsewhere unchanged was renamed.

    Examples
    --------
    >>> old, new = {"a": TreeEntry("f", 0o644, "11", 9)}, {"b": TreeEntry("f", 0o644, "11", 9), "c": TreeEntry("l")}
    >>> [(change.kind, change.was, change.path) for change in changes_between(old, new)]
    [('renamed', 'a', 'b'), ('added', None, 'c')]
    """
    found = {path: (old, new) for path, old, new in _differing(before, after)}
    gone: dict[tuple[str, int], list[str]] = {}
    for path, (old, new) in found.items():
        if new is None and old is not None and old.kind == FILE:
            gone.setdefault((old.content, old.mode), []).append(path)
    changes: list[FileChange] = []
    moved: set[str] = set()
    for path, (old, new) in sorted(found.items()):
        if old is None and new is not None:
            former = gone.get((new.content, new.mode)) if new.kind == FILE and new.size else None
            was = former.pop(0) if former else None
            if was is not None:
                moved.add(was)
            changes.append(
                FileChange(path, ADDED if was is None else RENAMED, found[was][0] if was else None, new, was)
            )
        else:
            changes.append(FileChange(path, DELETED if new is None else CHANGED, old, new))
    return [change for change in changes if change.kind != DELETED or change.path not in moved]


def _differing(
    before: Mapping[str, TreeEntry], after: Mapping[str, TreeEntry]
) -> Iterator[tuple[str, TreeEntry | None, TreeEntry | None]]:
    for path, old in before.items():
        new = after.get(path)
        if not old.is_like(new):
            yield path, old, new
    for path, new in after.items():
        if path not in before:
            yield path, None, new


def shown_path(path: str) -> str:
    """Return a path as people and logs can have it: bytes that are no UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
