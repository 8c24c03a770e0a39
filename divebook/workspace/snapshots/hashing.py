"""The digest of a tree: a hash of hashes, so that only the folders above a change are hashed anew. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256

from divebook.workspace.snapshots.trees import FOLDER, TreeEntry


class Digests:
    """The digests of the folders of one tree, as it changes."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}
        self._stale: set[str] = {""}

    def is_stale(self, folder: str) -> None:
        """Note that something in a folder has changed, and with it all folders around it."""
        while folder not in self._stale:
            self._stale.add(folder)
            folder = folder.rpartition("/")[0]

    def forget(self, folder: str) -> None:
        """Note that a folder is gone."""
        self._known.pop(folder, None)
        self._stale.discard(folder)

    def of(self, entries: Mapping[str, TreeEntry], children: Mapping[str, set[str]]) -> str:
        """Return the digest of the whole tree, hexadecimal."""
        for folder in sorted(self._stale, key=_depth, reverse=True):
            if folder in children:
                self._known[folder] = self._folder(folder, entries, children[folder])
        self._stale = set()
        return self._known[""].hex()

    def _folder(self, folder: str, entries: Mapping[str, TreeEntry], names: set[str]) -> bytes:
        hasher, prefix = sha256(), f"{folder}/" if folder else ""
        for name in sorted(names):
            entry = entries[prefix + name]
            content = self._known[prefix + name] if entry.kind == FOLDER else os.fsencode(entry.content)
            hasher.update(f"{entry.kind} {entry.mode:o} {len(content)} ".encode() + os.fsencode(name) + b"\0" + content)
        return hasher.digest()


def _depth(folder: str) -> int:
    return folder.count("/") + bool(folder)


def digest_of(entries: Mapping[str, TreeEntry]) -> str:
    """Return the digest of a tree of which only the entries are known, hexadecimal."""
    children: dict[str, set[str]] = {"": set()}
    digests = Digests()
    for path, entry in entries.items():
        folder, _, name = path.rpartition("/")
        children.setdefault(folder, set()).add(name)
        if entry.kind == FOLDER:
            children.setdefault(path, set())
            digests.is_stale(path)
    return digests.of(entries, children)
