"""A workspace that is entered for an execution, and what lends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from divebook.documents.protected import patterns_of_stores
from divebook.engine.operations import OUTPUT, Place, StreamedCall, Write
from divebook.events import catalog
from divebook.workflow.workspaces import WorkspaceDefinition
from divebook.workspace.egress.answers import EgressAnswer
from divebook.workspace.present import PRESENT
from divebook.workspace.shell import PRINTED
from divebook.workspace.snapshots.snapshots import Snapshots, Taken
from divebook.workspace.snapshots.trees import Tree
from divebook.workspace.workspace import Workspace

TellEgress: TypeAlias = Callable[[EgressAnswer], None]
"""Hears of each host that is asked for from a workspace, and what became of that."""


class Lender(Protocol):
    """What gives an execution its workspaces."""

    def definition(self, name: str) -> WorkspaceDefinition:
        """Return what is said of a workspace; raises `NotFoundError`."""

    def may_go_unasked(self, name: str, fingerprint: str) -> bool:
        """Return whether a workflow may have changes of a workspace applied without a question."""

    def folder_for(self, execution_id: str, name: str) -> Path:
        """Return the folder that an execution has for the files of a workspace, which is made if it is not there."""

    def is_of_another(self, folder: Path, execution_id: str) -> bool:
        """Return whether a folder is one that another execution has for its files."""

    def source_of(self, definition: WorkspaceDefinition) -> Path | None:
        """Return the folder whose files a workspace begins with; None for an empty one."""

    def made(self, definition: WorkspaceDefinition, folder: Path, told: TellEgress) -> Workspace:
        """Return a workspace over a folder, to be entered; it tells of each host that is asked for from there."""

    def content(self, digest: str) -> bytes:
        """Return the content of a file that the store keeps."""


class OpenWorkspace:
    """A workspace that is entered, and what is known of its files."""

    def __init__(self, workspace: Workspace, snapshots: Snapshots | None, *, is_copy: bool) -> None:
        self.workspace, self.snapshots, self.is_copy = workspace, snapshots, is_copy
        self.known: Tree | None = None
        """What the log says that it holds."""
        self.at: int | None = None
        """The event that says so."""
        self.found: Taken | None = None
        """What it holds instead, from when that was seen until it is settled."""
        self.unrecorded: dict[str, bytes] = {}
        """What files hold, by digest, that was read and is not in the log yet."""
        self.under_way: dict[str, Place] = {}
        """The calls that work in it, by their ids."""
        self.lock = asyncio.Lock()
        self.is_behind = False
        """Whether the log has changes that were made elsewhere and are not made here yet."""


class Stay:
    """A call's stay in a workspace.

    Parameters
    ----------
    left
        Returns what is to be recorded of the files, once the call of an id has ended.
    """

    def __init__(self, opened: OpenWorkspace, left: Callable[[str], Awaitable[list[catalog.Payload]]]) -> None:
        self._open, self.left = opened, left

    def around(self, call: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """Return the call as one that works there."""

        async def made() -> Any:
            token = PRESENT.set(self._open.workspace)
            try:
                return await call()
            finally:
                PRESENT.reset(token)

        return made

    def heard(self, call: Callable[[], Awaitable[Any]]) -> StreamedCall:
        """Return the call as one that works there and hands on what commands print, as it comes."""
        inside = self.around(call)

        async def made(write: Write) -> Any:
            token = PRINTED.set(lambda _, text: write(text, OUTPUT))
            try:
                return await inside()
            finally:
                PRINTED.reset(token)

        return made

    @contextmanager
    def staying(self, operation_id: str, place: Place) -> Iterator[None]:
        """Surround the call."""
        self._open.under_way[operation_id] = place
        try:
            yield
        finally:
            del self._open.under_way[operation_id]


async def entered(
    lender: Lender, definition: WorkspaceDefinition, told: TellEgress, folder: Path, *, is_copy: bool
) -> OpenWorkspace:
    """Enter a workspace over a folder."""
    workspace = lender.made(definition, folder, told)
    await workspace.__aenter__()
    # A store that kept its own files would double with each run.
    exclude = [*definition.exclude, *patterns_of_stores(folder)]
    snapshots = Snapshots(workspace.root, exclude=exclude) if definition.snapshots else None
    return OpenWorkspace(workspace, snapshots, is_copy=is_copy)


async def taken_of(opened: OpenWorkspace, *, everything: bool = False) -> Taken | None:
    """Look at its files; None where nothing is kept of them."""
    if opened.snapshots is None:
        return None
    taken = await asyncio.to_thread(opened.snapshots.take, everything=everything)
    opened.unrecorded |= taken.contents  # who looked may have been cancelled before it recorded what it had seen
    return taken._replace(contents=opened.unrecorded)
