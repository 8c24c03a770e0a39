"""How what happens to the files of workspaces changes the state."""

from __future__ import annotations

from immutables import Map

from divebook.engine.changes import Draft
from divebook.engine.workspaces import HeldWorkspace
from divebook.events import catalog


def workspace_opened(draft: Draft, data: catalog.WorkspaceOpened) -> None:
    """Note where a workspace is, and the files that it has at first.

    A fork that makes a place of its own goes on from the files of its source: what it has changed is counted from
    where that began.
    """
    known = draft.workspaces.get(data.workspace)
    first = data.tree if known is None else known.first
    at = draft.last_sequence if data.files is not None or known is None else known.at
    held = HeldWorkspace(data.kind, data.reference, data.source, first, data.tree, at, is_own=bool(data.reference))
    draft.workspaces = draft.workspaces.set(data.workspace, held)


def files_changed(draft: Draft, data: catalog.FilesChanged) -> None:
    """Note which files a workspace has now."""
    known = draft.workspaces.get(data.workspace)
    if known is not None:
        draft.workspaces = draft.workspaces.set(data.workspace, known._replace(tree=data.after, at=draft.last_sequence))


def of_the_source(workspaces: Map[str, HeldWorkspace]) -> Map[str, HeldWorkspace]:
    """Return the workspaces of a source as its fork has them: their files, and no place of its own."""
    for name, held in workspaces.items():
        workspaces = workspaces.set(name, held._replace(is_own=False))
    return workspaces
