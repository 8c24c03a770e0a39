"""What the log says of files of a workspace: rows of what has changed, and the same in a few words; blocking."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from divebook.documents.protected import patterns_of_stores
from divebook.workflow.workspaces import WorkspaceDefinition
from divebook.workspace.paths import Root
from divebook.workspace.snapshots.applying import Applied, Meanwhile, applied, chosen, without_protected
from divebook.workspace.snapshots.diffs import FileDiff, diffs_of
from divebook.workspace.snapshots.manifests import Manifest, manifest_of, tree_of, versions_in
from divebook.workspace.snapshots.protected import JOURNAL_FOLDER
from divebook.workspace.snapshots.snapshots import Snapshots, Taken
from divebook.workspace.snapshots.summary import summary_of
from divebook.workspace.snapshots.trees import FileChange, Tree, changes_between, shown_path

MOST_CHANGES = 1_000
"""Changes of files that an event lists by name."""


def copied(source: Path, folder: Path, definition: WorkspaceDefinition) -> None:
    """Copy the files of a folder into one that an execution has for them, without the stores that are there."""
    root, target = Root(source), Root(folder)
    try:
        # A copy of a store would not be protected.
        exclude = [*definition.exclude, JOURNAL_FOLDER, *patterns_of_stores(source)]
        with Snapshots(root, exclude=exclude, watch=False) as snapshots:
            taken = snapshots.take()
        with Snapshots(target, watch=False) as copies:
            copies.restore(taken.tree, taken.contents.__getitem__)
    finally:
        root.close()
        target.close()


class OwnChanges(NamedTuple):
    """How the files of a workspace differ from those that it began with, a copy of a folder."""

    folder: Path
    """The folder."""
    tree: str
    """Digest of the files."""
    changes: list[FileChange]
    meanwhile: Meanwhile
    content: Callable[[str], bytes]
    """Returns what a file held, by its digest."""

    @classmethod
    def of(cls, folder: Path, tree: str, manifests: Sequence[Manifest], content: Callable[[str], bytes]) -> OwnChanges:
        """Return what has changed since the first of the manifests."""
        changes = changes_between(tree_of(manifests[:1]).entries, tree_of(manifests).entries)
        return cls(folder, tree, changes, versions_in(manifests), content)

    def diffs(self) -> list[FileDiff]:
        """Return the difference of each file."""
        return diffs_of(self.changes, self.content)

    def protected(self) -> set[str]:
        """Return the paths that are taken over only if they are named."""
        _, left_out = without_protected(self.changes, str(self.folder), ())
        return {shown_path(change.path) for change in left_out}

    def take_over(self, paths: Sequence[str] | None, by_name: Collection[str] = ()) -> Applied:
        """Take changes over into the folder, of some paths or of all; raises as `applied` does.

        Parameters
        ----------
        by_name
            Protected paths that are taken over as well, beside those of `paths`.
        """
        root = Root(self.folder)
        try:
            return applied(
                root, chosen(self.changes, paths), self.content, self.meanwhile, by_name=[*(paths or ()), *by_name]
            )
        finally:
            root.close()


class ToldChanges(NamedTuple):
    """What has changed in a workspace."""

    changes: list[dict[str, Any]]
    """For readers: the first of them."""
    number: int
    files: list[list[Any]]
    """As a manifest."""


def told_of(known: Tree, taken: Taken, content: Callable[[str], bytes]) -> ToldChanges:
    """Return what has changed, for readers and as a manifest."""
    entries = taken.tree.entries
    changes = changes_between(known.entries, entries)
    paths = {path for change in changes for path in (change.path, change.was) if path is not None}
    mtimes = {path for path in taken.delta if known.entries.get(path) != entries.get(path)}
    delta = {path: entries.get(path) for path in paths | mtimes}

    def get(digest: str) -> bytes:
        return taken.contents[digest] if digest in taken.contents else content(digest)

    told = summary_of(changes[:MOST_CHANGES], get)
    return ToldChanges(told, len(changes), manifest_of(delta, taken.contents))


def plain(change: FileChange) -> dict[str, Any]:
    """Return a change as an event or a question has it."""
    told = {"path": shown_path(change.path), "kind": change.kind}
    return told if change.was is None else {**told, "was": shown_path(change.was)}


def problems(taken: Taken) -> list[dict[str, Any]] | None:
    """Return the files that a tree leaves out, as an event has them; None for none."""
    told = [{"path": shown_path(path), "reason": reason} for path, reason in taken.tree.problems]
    return told or None
