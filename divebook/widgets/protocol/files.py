"""Files that a run has changed, as they are now."""

from __future__ import annotations

from typing import Literal, TypedDict


class FileView(TypedDict):
    """How one file differs from what it was when the run began to use it."""

    path: str
    kind: Literal["added", "changed", "deleted", "renamed"]
    was: str
    """The former path of what was renamed; else empty."""
    added: int | None
    removed: int | None
    """Lines that came and went; null for what is no text."""
    diff: str | None
    """The difference, as git writes it; null where it would be too long."""
    protected: bool
    """Whether it is taken over only if a person selects it: a hidden name, or version-control metadata."""


class LeftOutView(TypedDict):
    """A file of which nothing is kept."""

    path: str
    reason: str


class FilesPoint(TypedDict):
    """An event from which on a workspace has other files."""

    sequence: int
    told: str
    """What has changed with it: ``calc.py and 2 more``."""


class WorkspaceView(TypedDict):
    """What has changed in one workspace, from when the run began to use it."""

    name: str
    kind: str
    """Where its commands run: ``local``, ``fenced``, ``virtualenv``, ``docker``."""
    folder: str
    """The folder that it is a copy of; empty if it is none."""
    total: int
    """How many files have changed."""
    added: int
    removed: int
    """Lines that came and went, of the files that are shown."""
    files: list[FileView]
    """The first of them."""
    left_out: list[LeftOutView]
    """The first of those that are not kept."""
    points: list[FilesPoint]
    """The newest events at which files changed, and the one with which they began; the latest first. None in what is
    saved, where only the files of the end are."""


class Files(TypedDict):
    """Answer to `FilesQuery`."""

    type: Literal["files"]
    view: str
    version: int
    """Grows with each change."""
    at: int
    """The event up to which the changes are; 0 for now."""
    since: int
    """The event from which on they are; 0 for all of them."""
    workspaces: list[WorkspaceView] | None
    """Null if nothing has changed since the version that the view has."""


class TakingOver(TypedDict):
    """A person wants changes to be taken over into the folder that a workspace is a copy of: all of them, or none."""

    type: Literal["take_over"]
    id: str
    workspace: str
    at: int
    """The event up to which the changes are, so that no others are taken over than were shown."""
    paths: list[str]
    """Of these files."""


class FilesQuery(TypedDict):
    """A view asks for the changed files."""

    type: Literal["files"]
    view: str
    version: int
    """Of those that it has; 0 for none."""
    at: int
    """The event up to which the changes are wanted; 0 for now."""
    since: int
    """The event from which on they are wanted; 0 for all of them."""
