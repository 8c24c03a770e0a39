"""Application of the file changes that a run made in its workspace to a folder of the user: all requested changes, or
none.

A file is written if the folder has one of these: the content before the change, the content after it, or a content that
the workspace had meanwhile, which was applied before. Anything else is a conflict, and nothing is written::

    workspace            folder has       result
    a: "1" -> "2"        "1"              "2" is written
                         "2"              reported as already there
                         "3"              conflict

Protected paths (`divebook.workspaces.snapshots.restore`) are written only if a person names them. A kill at any moment
leaves all old or all new files (`divebook.workspaces.snapshots.restore.FolderWriter`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from divebook.errors import NotFoundError, SnapshotError
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.restore import (
    CHANGE_FOLDER,
    READ_FOLDER,
    folder_writer,
    has_unknown_content,
    is_beneath,
    is_reserved,
    left_out_text,
    present_entry,
    protected_paths,
    require_open_folders,
    same_content,
    without_unknown_content,
)
from divebook.workspaces.snapshots.take import UNREADABLE, Snapshots, digest_of
from divebook.workspaces.snapshots.tree import (
    CHANGED,
    FOLDER,
    RENAMED,
    FileChange,
    Tree,
    TreeEntry,
    TreeProblem,
    shown_path,
)

PROTECTED = "protected, and not selected by name"
"""Reason that a restored tree gives for a protected file that it leaves out."""


@dataclass
class Applied:
    """Report about file changes that were requested for a folder: written files, files that were up to date, and
    protected files that were left out.
    """

    written: list[str] = field(default_factory=list)
    """Paths of the files that were written or removed."""
    there: list[str] = field(default_factory=list)
    """Paths of files that already had the new content."""
    left_out: list[str] = field(default_factory=list)
    """Protected paths that were not written because the caller did not name them."""

    def in_words(self, folder: object, how: str = "apply RUN {}") -> str:
        """Return the report as one text for people: which files were written, were up to date already, or were left
        out.

        Parameters
        ----------
        folder
            The folder to which the changes were applied.
        how
            Command with which a person can apply a file that was left out. It contains ``{}`` in place of the path.
        """
        there = f"; already up to date: {', '.join(self.there)}" if self.there else ""
        left_out = left_out_text(self.left_out, how)
        text = f"applied to {folder}: {', '.join(self.written) or 'nothing'}{there}"
        return f"{text}. {left_out}" if left_out else text


Meanwhile: TypeAlias = Mapping[str, Collection[TreeEntry | None]]
"""Entries that a workspace had at some time during a run, by path."""


def apply_changes(
    root: Root,
    changes: Sequence[FileChange],
    get: Callable[[str], bytes],
    meanwhile: Meanwhile | None = None,
    by_name: Collection[str] = (),
) -> Applied:
    """Apply file changes of a workspace to a folder: all of them, or none. Return a report. Raise an error if a file in
    the folder has changed otherwise in the meantime.

    Parameters
    ----------
    get
        Returns the content of a file by its digest.
    meanwhile
        Further entries that may be overwritten, since the run has recorded them.
    by_name
        Paths of files and folders that a person has named. Protected paths are only written with their names.

    Raises
    ------
    SnapshotError
        The folder has other content than before the changes, or a file cannot be written. Nothing was written.
    """
    done = Applied()
    work = list[FileChange]()
    conflicts = list[str]()
    allowed, left_out = without_protected(changes, root.path, by_name)
    done.left_out = [shown_path(change.path) for change in left_out if not _is_folder(change)]
    # All conflicts are found under the lock of the folder and before the first write.
    with folder_writer(root) as writer:
        require_open_folders(root, _paths_of(allowed), READ_FOLDER)
        # "Already there" is checked first: a repeated call must not report the changes of the first one as conflicts.
        for change in allowed:
            if _is_there(root, change):
                done.there.append(shown_path(change.path))
            elif _fits(root, change, meanwhile or {}):
                work.append(change)
            else:
                conflicts.append(shown_path(change.path))
        if conflicts:
            raise SnapshotError(
                f"these files in {root.path} have changed in the meantime: {', '.join(conflicts)}. Nothing was "
                "written. Leave these files out, or restore their old content"
            )
        require_open_folders(root, _paths_of(work), CHANGE_FOLDER)
        writer.write(_targets(work), get)
    done.written = [shown_path(change.path) for change in work]
    return done


def restore_tree(root: Root, tree: Tree, get: Callable[[str], bytes], by_name: Collection[str] = ()) -> Tree:
    """Change a folder so that it has exactly the files of a tree. Protected paths, such as hidden files, stay as they
    are unless `by_name` names them.

    Parameters
    ----------
    get
        Returns the content of a file by its digest.
    by_name
        Paths of protected files, or of protected folders with all their content, to restore as well.

    Returns
    -------
    Tree
        The entries of the tree that the folder now has. Its problems list the protected files left out.

    Raises
    ------
    SnapshotError
        A file cannot be written; the folder is unchanged.
    NotFoundError
        `by_name` names a path that the tree does not have.
    """
    for name in by_name:
        if not any(is_beneath(shown_path(path), name.rstrip("/")) for path in tree.entries):
            raise NotFoundError("file", name, map(shown_path, tree.entries))
    with folder_writer(root) as writer:
        # Scanned under the lock, so that no other writer of divebook changes the folder between the scan and the write.
        with Snapshots(root, watch=False) as snapshots:
            snapshot = snapshots.take().tree
        closed = [path for path, reason in snapshot.problems if reason == UNREADABLE and path in snapshot.entries]
        # A file below each closed folder stands for its content, of which nothing is known.
        require_open_folders(
            root, [f"{path}/*" for path in closed if not has_unknown_content(path, tree.entries)], READ_FOLDER
        )
        present = without_unknown_content(snapshot.entries, tree.entries)
        differing = [path for path in {*present, *tree.entries} if present.get(path) != tree.entries.get(path)]
        # The kind has no effect: `write` uses only the path and the entry after the change.
        changes = [FileChange(path, CHANGED, present.get(path), tree.entries.get(path)) for path in differing]
        allowed, left_out = without_protected(changes, root.path, by_name)
        writer.write({change.path: change.after for change in allowed}, get, is_exact=True)
    missing = {change.path for change in left_out if change.after is not None}
    problems = [
        TreeProblem(shown_path(path), PROTECTED) for path in sorted(missing) if tree.entries[path].kind != FOLDER
    ]
    entries = {path: entry for path, entry in tree.entries.items() if path not in missing}
    return Tree(digest_of(entries), entries, (*tree.problems, *problems))


def select_changes(changes: Sequence[FileChange], paths: Sequence[str] | None) -> list[FileChange]:
    """Return the file changes at the given paths. The path of a folder selects all changes below it. For None, return
    all changes.

    Raises
    ------
    NotFoundError
        Nothing has changed at a path.
    """
    if paths is None:
        return list(changes)
    names = [paths] if isinstance(paths, str) else [path.rstrip("/") or path for path in paths]
    by_path = {shown_path(change.path): change for change in changes}
    result: dict[str, FileChange] = {}
    for name in names:
        # An empty name would select everything, since each path lies beneath ''.
        beneath = {path: change for path, change in by_path.items() if is_beneath(path, name)} if name else {}
        if not beneath:
            raise NotFoundError("changed file", name, by_path)
        result |= beneath
    return list(result.values())


def without_protected(
    changes: Sequence[FileChange], folder: str | None, by_name: Collection[str]
) -> tuple[list[FileChange], list[FileChange]]:
    """Split file changes into two lists: changes that may be applied, and changes of protected files, such as hidden
    ones. A change of a protected file may be applied only if the caller has named its path, in `by_name`.

    Raises
    ------
    SnapshotError
        `by_name` names a path that only divebook may write.
    """
    paths = _paths_of(changes)
    names = [name.rstrip("/") for name in ([by_name] if isinstance(by_name, str) else by_name)]
    # The names are examined together with the paths, so that `is_named` can tell a hidden folder from a visible one.
    protected = protected_paths({*paths, *filter(None, names)}, folder)

    def is_named(path: str) -> bool:
        shown = shown_path(path)
        # The name of a visible folder, such as `src`, names no hidden file in it.
        return any(shown == name or (name in protected and is_beneath(shown, name)) for name in names if name)

    allowed = list[FileChange]()
    left_out = list[FileChange]()
    for change in changes:
        # A rename writes two paths. If either is protected, the whole change is.
        both = [path for path in (change.path, change.was) if path is not None]
        if any(map(is_reserved, both)):
            if any(map(is_named, both)):
                raise SnapshotError(f"{shown_path(change.path)} is a name reserved for divebook; leave this file out")
            left_out.append(change)
        elif any(path in protected for path in both) and not is_named(change.path):
            left_out.append(change)
        else:
            allowed.append(change)
    return allowed, left_out


def _paths_of(changes: Iterable[FileChange]) -> set[str]:
    return {path for change in changes for path in (change.path, change.was) if path is not None}


def _is_folder(change: FileChange) -> bool:
    return all(entry is None or entry.kind == FOLDER for entry in (change.before, change.after))


def _targets(changes: Sequence[FileChange]) -> dict[str, TreeEntry | None]:
    """Return a dict with the new tree entry of each changed path; None for a path that is removed.

    A folder that exists before and after is left out, whatever its mode.
    """
    targets: dict[str, TreeEntry | None] = {}
    for change in changes:
        # A rename is the removal of the old path and the creation of the new one.
        if change.was is not None:
            targets[change.was] = None
        if not (_is_folder(change) and change.before is not None and change.after is not None):
            targets[change.path] = change.after
    return targets


def _is_there(root: Root, change: FileChange) -> bool:
    """Return True if the folder already has the files as they are after a change, so that the change need not be
    applied.
    """
    is_gone = change.was is None or present_entry(root, change.was) is None
    present = present_entry(root, change.path)
    # Like in git, only the permission to execute counts among the bits of the mode.
    is_mode = present is None or change.after is None or (present.mode ^ change.after.mode) & 0o100 == 0
    return is_gone and is_mode and same_content(present, change.after)


def _fits(root: Root, change: FileChange, meanwhile: Meanwhile) -> bool:
    """Return True if a change can be applied: the folder still has the old version of the file, or another version that
    the workspace had. Return False if a person has changed the file.
    """

    def is_ours(path: str, expected: TreeEntry | None) -> bool:
        present = present_entry(root, path)
        # Modes are not compared: a difference of modes alone is not a person's change.
        return same_content(present, expected) or any(
            same_content(present, earlier) for earlier in meanwhile.get(path, ())
        )

    # Both paths of a rename are written: the old one must be unchanged, and the new one free.
    if change.kind == RENAMED and change.was is not None:
        return is_ours(change.was, change.before) and is_ours(change.path, None)
    return is_ours(change.path, change.before)
