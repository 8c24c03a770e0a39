"""Files that an execution has changed, as views show them: the first of them, with what has changed in each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypedDict, cast

from divebook.engine.workspaces import HeldWorkspace
from divebook.events import catalog
from divebook.execution.execution import Execution
from divebook.replay.changed_files import MOST_LEFT_OUT
from divebook.store.contents import file_content
from divebook.text.redaction import Redactor
from divebook.widgets.protocol.files import FilesPoint, FileView, LeftOutView, WorkspaceView
from divebook.workspace.snapshots.applying import without_protected
from divebook.workspace.snapshots.diffs import FileDiff, diffs_of
from divebook.workspace.snapshots.manifests import Manifest, changed_tree, tree_of
from divebook.workspace.snapshots.trees import Tree, changes_between, shown_path

MOST_FILES, MOST_POINTS = 500, 200
LONGEST, MOST_CHARACTERS = 50_000, 200_000
"""Characters of one difference, and of all."""


class _Point(NamedTuple):
    """An event from which on a workspace has other files."""

    sequence: int
    files: Manifest
    told: str
    left_out: Sequence[Mapping[str, str]]


class _Changes(TypedDict):
    total: int
    added: int
    removed: int
    files: list[FileView]


class FilesReader:
    """Makes views of the files that one execution has changed; each event is read once."""

    def __init__(self, execution: Execution, redactor: Redactor) -> None:
        self._execution, self._redactor = execution, redactor
        self._known: dict[str, tuple[int, Tree, Tree]] = {}
        """By workspace: the event up to which it was read, the files that it had at first, and those of that event."""
        self._made: dict[str, tuple[str, WorkspaceView]] = {}
        """By workspace: the digest of its files, and the view of them."""
        self._points: dict[str, list[_Point]] = {}
        """By workspace: the events with which it had other files, the first one first."""

    def of(self, at: int = 0, since: int = 0) -> list[WorkspaceView]:
        """Return what has changed by an event, or by now, of each workspace in which something has by now.

        With `since` it is what is otherwise than at that event, be it an earlier or a later one.
        """
        held = [(name, held) for name, held in sorted(self._execution.state.workspaces.items()) if held.tree]
        now = [view for name, one in held if (view := self._of_now(name, one))["total"]]
        return [self._of_then(view, at, since) for view in now] if at or since else now

    def _of_now(self, name: str, held: HeldWorkspace) -> WorkspaceView:
        known = self._made.get(name)
        if known is None or known[0] != held.tree:
            first, now = self._trees(name, held)
            points = self._points[name]
            told = [FilesPoint(sequence=point.sequence, told=point.told) for point in points[1:][-MOST_POINTS:]]
            view = WorkspaceView(
                name=name,
                kind=held.kind,
                folder=held.source or "",
                **self._changes(first, now, held.source),
                left_out=_left_out(points[-1]),
                points=[*told[::-1], FilesPoint(sequence=points[0].sequence, told="begin")],
            )
            known = self._made[name] = held.tree or "", cast("WorkspaceView", self._redactor.value(view))
        return known[1]

    def _of_then(self, now: WorkspaceView, at: int, since: int) -> WorkspaceView:
        points = self._points[now["name"]]
        before, known = _until(points, since), points if at == 0 else _until(points, at)
        first, then = (tree_of([point.files for point in part]) for part in (before, known))
        changed = {**self._changes(first, then, now["folder"]), "left_out": _left_out(known[-1])}
        return WorkspaceView(**{**now, **cast("WorkspaceView", self._redactor.value(changed))})

    def _changes(self, first: Tree, then: Tree, folder: str | None) -> _Changes:
        changes = changes_between(first.entries, then.entries)
        diffs = diffs_of(changes[:MOST_FILES], lambda digest: file_content(self._execution.store, digest))
        _, left_out = without_protected(changes, folder or None, ())
        protected = {shown_path(change.path) for change in left_out}
        return _Changes(
            total=len(changes) - len(changes[:MOST_FILES]) + len(diffs),
            added=sum(diff.added or 0 for diff in diffs),
            removed=sum(diff.removed or 0 for diff in diffs),
            files=_views(diffs, protected),
        )

    def _trees(self, name: str, held: HeldWorkspace) -> tuple[Tree, Tree]:
        """Return the files that a workspace had at first, and those that it has; what was read before is not again."""
        until, first, now = self._known.get(name, (0, None, None))
        came: list[_Point] = []
        at: int | None = held.at
        while at and at > until:
            (event,) = self._execution.store.read(self._execution.id, at - 1, 1)
            data = event.data
            assert isinstance(data, catalog.WorkspaceOpened | catalog.FilesChanged)  # noqa: S101 - `held.at` counts one
            came.append(_Point(at, data.files or (), _told(data), data.problems or ()))
            at = data.previous if isinstance(data, catalog.FilesChanged) else None
        came.reverse()
        manifests = [point.files for point in came]
        self._points.setdefault(name, []).extend(came)
        if first is None or now is None:
            first, now = tree_of(manifests[:1]), tree_of(manifests)
        else:
            now = changed_tree(now.entries, manifests)
        self._known[name] = held.at, first, now
        return first, now


def _until(points: list[_Point], sequence: int) -> list[_Point]:
    """Return those up to an event, of which the first is always one."""
    return [point for point in points if point.sequence <= sequence] or points[:1]


def _told(data: catalog.WorkspaceOpened | catalog.FilesChanged) -> str:
    """Return in a few words what has changed with an event."""
    changes = data.changes or () if isinstance(data, catalog.FilesChanged) else ()
    if not changes:
        return ""
    count = data.count if isinstance(data, catalog.FilesChanged) else None
    more = (count or len(changes)) - 1
    return f"{changes[0]['path']} and {more} more" if more else str(changes[0]["path"])


def _left_out(point: _Point) -> list[LeftOutView]:
    return [LeftOutView(path=each["path"], reason=each["reason"]) for each in point.left_out[:MOST_LEFT_OUT]]


def _views(diffs: Sequence[FileDiff], protected: Collection[str]) -> list[FileView]:
    left, views = MOST_CHARACTERS, []
    for diff in diffs:
        is_shown = len(diff.text) <= min(LONGEST, left)
        left -= len(diff.text) if is_shown else 0
        views.append(
            FileView(
                path=diff.path,
                kind=cast("FileView", {"kind": diff.kind})["kind"],
                was=diff.was or "",
                added=diff.added,
                removed=diff.removed,
                diff=diff.text if is_shown else None,
                protected=diff.path in protected,
            )
        )
    return views


def within(views: Iterable[WorkspaceView], most: int) -> list[WorkspaceView]:
    """Return views to be saved: differences of so many characters together at most, longer ones are left out."""
    left, found = most, []
    for view in views:
        files = []
        for file in view["files"]:
            length = len(file["diff"] or "")
            files.append(file if length <= left else FileView(**{**file, "diff": None}))
            left -= length if length <= left else 0
        found.append(WorkspaceView(**{**view, "files": files, "points": []}))
    return found
