"""The snapshots of one folder: taken as it changes, and put back."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from divebook.documents.globs import matches
from divebook.workspace.given import several
from divebook.workspace.paths import Root
from divebook.workspace.snapshots.looking import Looker
from divebook.workspace.snapshots.restoring import GetContent, put_back
from divebook.workspace.snapshots.trees import NO_ENTRIES, Tree, TreeEntry
from divebook.workspace.snapshots.watch import FolderWatch

LARGEST = 100_000_000
"""Bytes of a file that is still kept."""


class Taken(NamedTuple):
    """A tree, and what is new in it."""

    tree: Tree
    delta: Mapping[str, TreeEntry | None]
    """What is otherwise than in the tree before, by path; None is gone."""
    contents: Mapping[str, bytes]
    """What files hold that are new in it, by digest."""


class Snapshots:
    """What a folder holds at each look; one object for a live folder, in any thread, one look at a time.

    Parameters
    ----------
    root
        The folder; who made it closes it.
    exclude
        Patterns of what is left out and left alone: of names (``*.pyc``), or of paths (``build/**``).
    largest
        Bytes of a file that is still kept; what is larger is told among the problems.
    watch
        Whether the kernel is asked what has changed, where it can tell; else everything is looked at.
    """

    def __init__(self, root: Root, *, exclude: Sequence[str] = (), largest: int = LARGEST, watch: bool = True) -> None:
        self.root = root
        self._watch = FolderWatch.made() if watch else None
        is_left_out = functools.partial(_is_left_out, _Patterns.of(several(exclude, "exclude")))
        self._looker = Looker(root, is_left_out, largest, self._watch)
        self._lock = threading.Lock()
        self.tree = Tree("", NO_ENTRIES)
        """As it was at the last look."""

    def take(self, *, everything: bool = False) -> Taken:
        """Look what the folder holds now.

        Parameters
        ----------
        everything
            Look at each file, whatever is told of it.
        """
        with self._lock:
            return self._take(everything=everything)

    def _take(self, *, everything: bool) -> Taken:
        looker = self._looker
        try:
            digest = looker.look(everything=everything)
        except BaseException:
            looker.forget()
            raise
        entries = dict(looker.entries) if looker.delta or not self.tree.digest else self.tree.entries
        self.tree = Tree(digest, entries, looker.told())
        return Taken(self.tree, looker.delta, looker.contents)

    def restore(self, tree: Tree, get: GetContent) -> Taken:
        """Make the folder hold what a tree has, and nothing else; return it, with what was changed to come there.

        What is left out of snapshots is left alone. Whatever is there now and stands in no tree is lost: take it first.

        Parameters
        ----------
        get
            Returns the content of a file by its digest.
        """
        with self._lock:
            self._take(everything=True)
            put_back(self.root, self.tree.entries, tree.entries, get)
            return self._take(everything=True)

    def close(self) -> None:
        """Let go of what watches the folder; twice is once."""
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Patterns(NamedTuple):
    """What is left out."""

    names: tuple[str, ...]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, written: Sequence[str]) -> Self:
        """Return patterns as they are written: one without a slash is of a name at any depth."""
        trimmed = [pattern.rstrip("/") for pattern in written]
        names = tuple(pattern for pattern in trimmed if "/" not in pattern)
        return cls(names, tuple(pattern.lstrip("/") for pattern in trimmed if "/" in pattern))


def _is_left_out(patterns: _Patterns, path: str, name: str) -> bool:
    return any(matches(pattern, name) for pattern in patterns.names) or any(
        matches(pattern, path) for pattern in patterns.paths
    )
