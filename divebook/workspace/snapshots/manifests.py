"""Trees as events hold them: rows of paths and what stands there, of a whole tree or of what has changed. Pure.

A row is ``[path, kind, mode, content, mtime]``, of what is gone ``[path]``. A path that is no UTF-8 is bytes. The
content of a file is a `StoredFile`, which a store keeps once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from divebook.events.stored_file import StoredFile
from divebook.workspace.snapshots.hashing import digest_of
from divebook.workspace.snapshots.trees import FILE, NO_ENTRIES, Tree, TreeEntries, TreeEntry

Manifest = Sequence[Sequence[Any]]


def manifest_of(delta: Mapping[str, TreeEntry | None], contents: Mapping[str, bytes]) -> list[list[Any]]:
    """Return rows of what has changed; None stands for what is gone.

    Parameters
    ----------
    contents
        What is to be kept with them, by digest.
    """
    return [_row(path, entry, contents) for path, entry in sorted(delta.items())]


def _row(path: str, entry: TreeEntry | None, contents: Mapping[str, bytes]) -> list[Any]:
    if entry is None:
        return [_written(path)]
    if entry.kind != FILE:
        return [_written(path), entry.kind, entry.mode, _written(entry.content)]
    content = StoredFile(entry.content, entry.size, contents.get(entry.content))
    return [_written(path), entry.kind, entry.mode, content, entry.mtime]


def _written(text: str) -> str | bytes:
    """Return a name as JSON can have it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def tree_of(manifests: Iterable[Manifest]) -> Tree:
    """Return the tree that manifests come to, the oldest first."""
    return changed_tree(NO_ENTRIES, manifests)


def changed_tree(entries: TreeEntries, manifests: Iterable[Manifest]) -> Tree:
    """Return the tree that the entries of one come to with changes, the oldest first."""
    found = dict(entries)
    for manifest in manifests:
        for row in manifest:
            path = _read(row[0])
            if len(row) > 1:
                found[path] = _entry(row[1:])
            else:
                found.pop(path, None)
    return Tree(digest_of(found), found)


def versions_in(manifests: Iterable[Manifest]) -> dict[str, set[TreeEntry | None]]:
    """Return what stood at each path at some time; None where it was gone."""
    found: dict[str, set[TreeEntry | None]] = {}
    for manifest in manifests:
        for row in manifest:
            found.setdefault(_read(row[0]), set()).add(_entry(row[1:]) if len(row) > 1 else None)
    return found


def _entry(told: Sequence[Any]) -> TreeEntry:
    kind, mode, content, *more = told
    if isinstance(content, StoredFile):
        return TreeEntry(kind, mode, content.digest, content.size, more[0])
    return TreeEntry(kind, mode, _read(content))


def _read(name: str | bytes) -> str:
    return os.fsdecode(name) if isinstance(name, bytes) else name
