"""The files of an execution's workspace as the log has them: at any event, and how they differ between two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from divebook.errors import FileOperationError, NotFoundError, SetupError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.replay.changed_files import ChangedFiles
from divebook.store.base import EventStore
from divebook.store.contents import file_content
from divebook.workspace.paths import Root
from divebook.workspace.snapshots.applying import Applied, applied, chosen, restored
from divebook.workspace.snapshots.diffs import FileDiff, diffs_of
from divebook.workspace.snapshots.manifests import tree_of, versions_in
from divebook.workspace.snapshots.trees import FILE, FOLDER, FileChange, Tree, changes_between, shown_path


class _Point(NamedTuple):
    """An event that says which files there are from then on."""

    sequence: int
    digest: str
    files: Sequence[object]
    left_out: Sequence[Mapping[str, str]]
    """Files that it does not have: ``path`` and ``reason``."""


class KeptFiles:
    """The files of one workspace, at every event of an execution.

    Parameters
    ----------
    events
        The log, from event 1 on.
    workspace
        Which one, where the execution has used several.

    Raises
    ------
    NotFoundError
        It has used no such workspace, or none whose files are kept.
    """

    def __init__(self, store: EventStore, events: Iterable[Event], workspace: str | None = None) -> None:
        self._store = store
        opened: dict[str, catalog.WorkspaceOpened] = {}
        points: dict[str, list[_Point]] = {}
        self.last = 0
        """The number of the last event."""
        for event in events:
            self.last = event.sequence
            match event.data:
                case catalog.WorkspaceOpened() as data:
                    opened[data.workspace] = data
                    if data.files is not None and data.tree is not None:
                        points[data.workspace] = [_Point(event.sequence, data.tree, data.files, data.problems or ())]
                case catalog.FilesChanged() as data if data.workspace in points:
                    points[data.workspace].append(
                        _Point(event.sequence, data.after, data.files or (), data.problems or ())
                    )
        found = workspace or next(iter(points), "")
        if found not in points:
            what = f"workspace {found!r} of which files are kept" if found else "workspace of which files are kept"
            raise NotFoundError("workspace", found, points, f"the run has used no {what}")
        self.workspace = found
        """Its name."""
        self.others = tuple(name for name in points if name != found)
        """The other workspaces of the execution."""
        self.opened, self._points = opened[found], points[found]

    @property
    def first(self) -> int:
        """The event with which the files begin."""
        return self._points[0].sequence

    @property
    def changed_at(self) -> list[int]:
        """The events at which files changed."""
        return [point.sequence for point in self._points[1:]]

    @property
    def folder(self) -> Path | None:
        """Where they are now, if the execution still has them there."""
        found = self.opened.reference.get("folder")
        return Path(found) if found is not None and Path(found).is_dir() else None

    @property
    def source(self) -> Path | None:
        """The folder that they are a copy of, or that they are in."""
        found = self.opened.source or self.opened.reference.get("folder")
        return None if found is None else Path(found)

    def content(self, digest: str) -> bytes:
        """Return the content of a file by its digest."""
        return file_content(self._store, digest)

    def at(self, sequence: int | None = None) -> Tree:
        """Return the files at an event, by default the last one; `SetupError` before they begin."""
        known = self._known(sequence)
        return tree_of([point.files for point in known])  # type: ignore[misc]  # they are manifests, as they are written

    def _known(self, sequence: int | None) -> list[_Point]:
        known = self._points if sequence is None else [each for each in self._points if each.sequence <= sequence]
        if not known:
            raise SetupError(f"workspace {self.workspace} was opened at event {self.first}, after event {sequence}")
        return known

    def read(self, path: str, sequence: int | None = None) -> bytes:
        """Return what a file held at an event.

        Raises
        ------
        NotFoundError
            It was not there.
        FileOperationError
            It was a folder or a link.
        """
        tree = self.at(sequence)
        entry = tree.entries.get(path)
        if entry is None:  # as lists show it: of a name that is no UTF-8 its bytes are spelled out
            shown = {shown_path(known): found for known, found in tree.entries.items()}
            if (entry := shown.get(path)) is None:
                raise NotFoundError("file", path, shown)
        if entry.kind != FILE:
            what = (
                "it is a folder: read the files in it" if entry.kind == FOLDER else f"it is a link to {entry.content}"
            )
            raise FileOperationError("read", path, what)
        return self.content(entry.content)

    def changes(self, since: int | None = None, until: int | None = None) -> list[FileChange]:
        """Return what is otherwise at one event than at another, by default from the first to the last."""
        before, after = self.at(self.first if since is None else since), self.at(until)
        return changes_between(before.entries, after.entries)

    def diff(
        self, since: int | None = None, until: int | None = None, paths: Sequence[str] | None = None
    ) -> list[FileDiff]:
        """Return the difference of each file between two events, by default from the first to the last."""
        return diffs_of(chosen(self.changes(since, until), paths), self.content)

    def changed(
        self,
        since: int | None = None,
        until: int | None = None,
        paths: Sequence[str] | None = None,
        *,
        whole: bool = True,
        most: int | None = None,
    ) -> ChangedFiles:
        """Return the same to be shown, of so many files at most; with ``whole=False`` as a list."""
        changes = chosen(self.changes(since, until), paths)
        files = diffs_of(changes[:most], self.content)
        more = len(changes) - len(changes[:most])
        left_out = [(each["path"], each["reason"]) for each in self._known(until)[-1].left_out]
        begin, end = since or self.first, until or self.last
        return ChangedFiles(self.workspace, files, begin, end, whole, left_out, more)

    def __repr__(self) -> str:
        return str(self.changed(whole=False))

    def _repr_html_(self) -> str:
        return self.changed(whole=False)._repr_html_()

    def apply(
        self,
        folder: str | Path | None = None,
        paths: Sequence[str] | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
    ) -> Applied:
        """Take changes over into a folder, by default the one that the files are a copy of: all of them, or none.

        Parameters
        ----------
        paths
            Of which files and folders; by default of all. Hidden names and version-control metadata are taken over
            only if they are named here, by their own path or that of a hidden folder around them.

        Raises
        ------
        SnapshotError
            The folder has something else than the changes began with; nothing was written.
        SetupError
            There is no folder to take them over into.
        """
        target = Path(folder) if folder is not None else self.source
        if target is None:
            raise SetupError(f"workspace {self.workspace} began with an empty folder: say where its files are to go")
        if not target.is_dir():
            raise SetupError(f"{target} is not there, or is no folder: make it, or say another one")
        root = Root(target)
        try:
            meanwhile = versions_in(point.files for point in self._points)  # type: ignore[misc]  # as in `at`
            changes = chosen(self.changes(since, until), paths)
            return applied(root, changes, self.content, meanwhile, by_name=paths or ())
        finally:
            root.close()

    def restore(
        self,
        folder: str | Path,
        sequence: int | None = None,
        *,
        force: bool = False,
        by_name: Sequence[str] = (),
    ) -> Tree:
        """Make a folder hold what the workspace held at an event, and nothing else: all of it, or no change.

        Hidden names and version-control metadata are left as they are in the folder, unless they are named.

        Parameters
        ----------
        force
            Whether the folder may hold something, which is lost.
        by_name
            Paths of protected files, or of protected folders with all in them, that are restored as well.

        Returns
        -------
        Tree
            What was restored. Its `problems` name the protected files that were left out.

        Raises
        ------
        SetupError
            It is not a folder; or it holds something, and `force` is not set.
        SnapshotError
            A file cannot be written; the folder is as it was.
        NotFoundError
            There is no file of a name.
        """
        place, tree = Path(folder), self.at(sequence)
        if not place.is_dir() and (place.exists() or place.is_symlink()):
            raise SetupError(f"{place} is no folder: name an empty one, or one that is not there yet")
        place.mkdir(parents=True, exist_ok=True)
        if not force and any(place.iterdir()):
            raise SetupError(f"{place} holds something, which would be lost: name an empty folder, or add --force")
        root = Root(folder)
        try:
            return restored(root, tree, self.content, by_name)
        finally:
            root.close()
