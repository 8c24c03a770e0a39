"""Files of a workspace after each event of an execution, and the differences between two events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from divebook.errors import FileOperationError, NotFoundError, SetupError
from divebook.events import catalog
from divebook.events.event import Event
from divebook.report.hints import advised
from divebook.report.model import Items, Line, Patch, Report, Text
from divebook.report.shown import Shown
from divebook.stores.base import EventStore
from divebook.stores.maintenance import file_content
from divebook.text.arguments import require
from divebook.text.format import lines_in, plural
from divebook.text.redaction import shared
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.applying import Applied, apply_changes, restore_tree, select_changes
from divebook.workspaces.snapshots.take import tree_of, versions_in
from divebook.workspaces.snapshots.tree import (
    FILE,
    FOLDER,
    FileChange,
    FileDiff,
    Tree,
    changes_between,
    diffs_of,
    shown_path,
)


class KeptFiles(Shown):
    """Files of one workspace after every event of an execution, with differences, export and restore.

    Parameters
    ----------
    events
        All events of the log, from event 1 on.
    workspace
        Name of the workspace. Required if the execution has used several workspaces.

    Raises
    ------
    NotFoundError
        The execution did not use this workspace, or no workspace whose files are stored.
    """

    def __init__(self, store: EventStore, events: Iterable[Event], workspace: str | None = None) -> None:
        self._store = store
        # {workspace: the latest event that opened it}, and {workspace: [event with all files, events with changes,
        # ...]}.
        opened: dict[str, catalog.WorkspaceOpened] = {}
        points: dict[str, list[_Point]] = {}
        self.last = 0
        """The number of the last event."""
        # A workspace without recorded initial files has no points: its later changes could not be applied to anything.
        for event in events:
            self.last = event.sequence
            match event.data:
                case catalog.WorkspaceOpened() as data:
                    opened[data.workspace] = data
                    if data.files is not None and data.tree is not None:
                        # Each opening with files replaces the earlier points, because it lists all files of the
                        # workspace.
                        points[data.workspace] = [_Point(event.sequence, data.tree, data.files, data.problems or ())]
                case catalog.FilesChanged() as data if data.workspace in points:
                    points[data.workspace].append(
                        _Point(event.sequence, data.after, data.files or (), data.problems or ())
                    )
        # Without a name, the workspace that was opened first is meant.
        workspace_name = workspace or next(iter(points), "")
        require(workspace, "workspace", "the name of a workspace", fits=isinstance(workspace, str))
        if workspace_name not in points:
            what = (
                f"workspace {workspace_name!r} with stored files" if workspace_name else "workspace with stored files"
            )
            raise NotFoundError("workspace", workspace_name, points, f"the run has no {what}")
        self.workspace = workspace_name
        """Name of the workspace."""
        self.others = tuple(name for name in points if name != workspace_name)
        """The other workspaces of the execution."""
        self.opened = opened[workspace_name]
        self._points = points[workspace_name]

    @property
    def first(self) -> int:
        """Number of the event that recorded the initial files of the workspace."""
        return self._points[0].sequence

    @property
    def changed_at(self) -> list[int]:
        """Numbers of the events that recorded changes of the files of the workspace."""
        return [point.sequence for point in self._points[1:]]

    @property
    def folder(self) -> Path | None:
        """Folder in which the workspace has its files now; None if the folder does not exist any more."""
        folder = self.opened.reference.get("folder")
        return Path(folder) if folder is not None and Path(folder).is_dir() else None

    @property
    def source(self) -> Path | None:
        """Folder from which the files of the workspace were copied, or in which the workspace works directly; None
        without such a folder.
        """
        source = self.opened.source or self.opened.reference.get("folder")
        return None if source is None else Path(source)

    def content(self, digest: str) -> bytes:
        """Return the content of a file of the workspace by the digest (hash) of the content."""
        return file_content(self._store, digest)

    def at(self, sequence: int | None = None) -> Tree:
        """Return the files of the workspace after an event, by default after the last one. Raise `SetupError` if the
        workspace was not open yet.
        """
        points = self._points_until(sequence)
        return tree_of([point.files for point in points])  # type: ignore[misc]  # they are manifests, as they are written

    def _points_until(self, sequence: int | None) -> list[_Point]:
        points = self._points if sequence is None else [each for each in self._points if each.sequence <= sequence]
        if not points:
            raise SetupError(
                f"workspace {self.workspace} does not exist yet at event {sequence}: it was opened at "
                f"event {self.first}. Choose that event or a later event"
            )
        return points

    def read(self, path: str, sequence: int | None = None) -> bytes:
        """Return the content that a file of the workspace had after an event, by default after the last one.

        Raises
        ------
        NotFoundError
            The file did not exist then.
        FileOperationError
            The path was a folder or a link.
        """
        tree = self.at(sequence)
        entry = tree.entries.get(path)
        if entry is None:  # try the path as it is displayed: bytes of a name that are not UTF-8 are shown as escapes
            shown = {shown_path(entry_path): tree_entry for entry_path, tree_entry in tree.entries.items()}
            if (entry := shown.get(path)) is None:
                raise NotFoundError("file", path, shown)
        if entry.kind != FILE:
            what = (
                "it is a folder: read the files in it" if entry.kind == FOLDER else f"it is a link to {entry.content}"
            )
            raise FileOperationError("read", path, what)
        return self.content(entry.content)

    def changes(self, since: int | None = None, until: int | None = None) -> list[FileChange]:
        """Return the files of the workspace that differ between two events, by default between the first and the last
        one.
        """
        before = self.at(self.first if since is None else since)
        after = self.at(until)
        return changes_between(before.entries, after.entries)

    def diff(
        self, since: int | None = None, until: int | None = None, paths: Sequence[str] | None = None
    ) -> list[FileDiff]:
        """Return the line-by-line differences of each file that changed between two events, by default between the
        first and the last one.
        """
        return diffs_of(select_changes(self.changes(since, until), paths), self.content)

    def changed(
        self,
        since: int | None = None,
        until: int | None = None,
        paths: Sequence[str] | None = None,
        *,
        whole: bool = True,
        most: int | None = None,
    ) -> ChangedFiles:
        """Return the files that changed between two events as an object that notebooks display.

        At most `most` files are compared; with ``whole=False`` only a list of the files is shown.
        """
        changes = select_changes(self.changes(since, until), paths)
        files = diffs_of(changes[:most], self.content)
        more = len(changes) - len(changes[:most])
        # The last point lists the files whose content is not stored; it is the list of the newest snapshot, not only of
        # its changes.
        left_out = [(each["path"], each["reason"]) for each in self._points_until(until)[-1].left_out]
        begin = since or self.first
        end = until or self.last
        return ChangedFiles(self.workspace, files, begin, end, whole, left_out, more)

    def report(self) -> Report:
        """Return the list of the changed files."""
        return self.changed(whole=False).report()

    def apply(
        self,
        folder: str | Path | None = None,
        paths: Sequence[str] | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
    ) -> Applied:
        """Apply the changes of the workspace's files to a folder, by default to the one from which the workspace was
        copied. Either all changes are applied or none.

        Parameters
        ----------
        paths
            Files and folders whose changes are applied; by default all. Hidden names and version-control metadata are
            changed only if they are named here, by their own path or by the path of a hidden folder around them.

        Raises
        ------
        SnapshotError
            The folder differs from the files before the changes. Nothing was written.
        SetupError
            No folder was named, and the workspace was not copied from one; or the folder does not exist.
        """
        target = Path(folder) if folder is not None else self.source
        if target is None:
            raise SetupError(f"workspace {self.workspace} started with an empty folder: name the folder for its files")
        if not target.is_dir():
            raise SetupError(f"{target} does not exist or is not a folder: create it, or name another one")
        root = Root(target)
        try:
            # The versions that a file had during the run. A file of the target with one of them may be replaced; any
            # other content was written by someone else.
            meanwhile = versions_in(point.files for point in self._points)  # type: ignore[misc]  # as in `at`
            changes = select_changes(self.changes(since, until), paths)
            return apply_changes(root, changes, self.content, meanwhile, by_name=paths or ())
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
        """Replace the content of a folder by the files that the workspace had after an event. Either all files are
        replaced or none.

        Hidden names and version-control metadata in the folder do not change, unless they are named.

        Parameters
        ----------
        force
            True if the folder may contain files. These files are deleted.
        by_name
            Paths of protected files or folders that are restored as well. Folders are restored with their content.

        Returns
        -------
        Tree
            The restored files. `problems` names the protected files that were left out.

        Raises
        ------
        SetupError
            The path is not a folder, or the folder is not empty and `force` is not set.
        SnapshotError
            A file cannot be written. The folder was not changed.
        NotFoundError
            A name in `by_name` does not exist.
        """
        place = Path(folder)
        tree = self.at(sequence)
        # `exists` is False for a broken link, and `mkdir` would fail on it with an unclear error.
        if not place.is_dir() and (place.exists() or place.is_symlink()):
            raise SetupError(f"{place} is not a folder: name an empty folder, or a new one")
        place.mkdir(parents=True, exist_ok=True)
        if not force and any(place.iterdir()):
            raise SetupError(f"{place} is not empty, and its files would be lost: name an empty folder, or add --force")
        root = Root(folder)
        try:
            return restore_tree(root, tree, self.content, by_name)
        finally:
            root.close()


# --- report of differences: a patch in a terminal, parts that unfold in a notebook ------------------------------------


SIGNS = {"added": "A", "changed": "M", "deleted": "D", "renamed": "R"}
MOST_LEFT_OUT = 20
"""Maximum number of files without stored content that are named."""
MOST_LINES = 2_000
"""Maximum number of lines shown of the difference of one file in a notebook."""
MOST_OPEN = 3
"""Maximum number of files whose differences a notebook unfolds at first."""


@dataclass(frozen=True, repr=False)
class ChangedFiles(Shown):
    """Differences between the files of a workspace after two events of an execution.

    `patch` is a patch that git can apply. The printed form also has lines with the names of the files, which git skips.
    In the printed form control characters are shown as escapes; `patch` contains them unchanged.
    """

    workspace: str
    files: Sequence[FileDiff]
    since: int
    """Number of the first of the two events."""
    until: int
    """Number of the second of the two events."""
    whole: bool = True
    """True if the changed lines of each file are shown, False if only a list of the files is shown."""
    left_out: Sequence[tuple[str, str]] = ()
    """Paths of files whose content is not stored, each with the reason."""
    more: int = 0
    """Number of further changed files that are not in `files`."""

    @property
    def added(self) -> int:
        """Number of lines that were added, in all changed files together."""
        return sum(diff.added or 0 for diff in self.files)

    @property
    def removed(self) -> int:
        """Number of lines that were removed, in all changed files together."""
        return sum(diff.removed or 0 for diff in self.files)

    @property
    def patch(self) -> str:
        """Differences of all files in git's patch format, with secrets removed."""
        return str(shared().text("".join(diff.text for diff in self.files)))

    def to_dict(self) -> dict[str, Any]:
        """Return the differences as plain data."""
        fields = {"workspace": self.workspace, "since": self.since, "until": self.until}
        return {**fields, "files": [shared().value(diff.to_dict()) for diff in self.files]}

    def __len__(self) -> int:
        return len(self.files) + self.more

    def __iter__(self) -> Iterator[FileDiff]:
        return iter(self.files)

    @property
    def head(self) -> str:
        """Summary of the changed files in one line: the numbers of files and lines, and the two events that are
        compared.
        """
        if not self.files:
            return f"workspace {self.workspace}: no file has changed from event {self.since} to event {self.until}"
        lines = f"+{self.added} -{self.removed}"
        where = f"from event {self.since} to event {self.until}"
        shown = f", of which the first {len(self.files)} are shown" if self.more else ""
        return f"workspace {self.workspace}: {plural(len(self), 'file')} changed{shown} ({lines}), {where}"

    def report(self) -> Report:
        """Return the changed files, each with its differences."""
        is_open = self.whole and len(self.files) <= MOST_OPEN
        patches = [_patch(diff, is_open=is_open, in_text=self.whole) for diff in self.files]
        return Report(self.head, blocks=(Items(tuple(self._not_kept())), *patches))

    def _not_kept(self) -> list[Line]:
        examples = ", ".join(f"{path} ({reason})" for path, reason in self.left_out[:MOST_LEFT_OUT])
        more = f" and {len(self.left_out) - MOST_LEFT_OUT} more" if len(self.left_out) > MOST_LEFT_OUT else ""
        return [Text(f"not stored: {examples}{more}", "faint")] if examples else []

    def within(self, characters: int) -> ChangedFiles:
        """Return a copy of these differences that is small enough to be saved: the patches of all files together are
        cut to `characters` characters.

        A patch that would exceed the limit is replaced by a hint.
        """
        remaining = characters
        diffs = []
        # The patches are cut as a whole: half a patch could not be applied.
        hint = f"Too long to show here: {advised('diff', 'run.files().changed()')} shows it."
        for diff in self.files:
            is_long = len(diff.text) > remaining
            remaining -= 0 if is_long else len(diff.text)
            diffs.append(replace(diff, text=hint) if is_long else diff)
        return replace(self, files=diffs)


def _patch(diff: FileDiff, *, is_open: bool, in_text: bool) -> Patch:
    """Return the differences in one file, with its name and the number of changed lines."""
    counts = "binary" if diff.added is None else f"+{diff.added} -{diff.removed}"
    was = f" (was {diff.was})" if diff.was is not None else ""
    title = (Text(SIGNS[diff.kind], "strong"), " ", Text(diff.path, "code"), was, Text(f"  {counts}", "faint"))
    lines = lines_in(str(shared().text(diff.text)))
    # Half a patch could not be applied, so that only readers of a page get one.
    if len(lines) > MOST_LINES and not in_text:
        lines = [*lines[:MOST_LINES], f"… {len(lines) - MOST_LINES:,} more lines"]
    return Patch(title, "".join(lines), is_open, in_text)


class _Point(NamedTuple):
    """Event that recorded the files of a workspace: the opening of the workspace, or a later change of its files."""

    sequence: int
    digest: str
    files: Sequence[object]
    left_out: Sequence[Mapping[str, str]]
    """Files whose content is not stored: ``path`` and ``reason``."""
