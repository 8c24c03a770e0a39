"""A workspace: a place with files, a shell and resources, which it owns as long as it is entered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from divebook.errors import WorkspaceEnteredError, WorkspaceGoneError, WorkspaceNotEnteredError
from divebook.workspace.files import FileOperator, LocalFileOperator
from divebook.workspace.instructions import resource_instructions, whole_instructions
from divebook.workspace.paths import Root
from divebook.workspace.resources import ResourceFactory, ResourceRegistry, SavedResources
from divebook.workspace.shell import Shell
from divebook.workspace.shielding import shielded


class Workspace(ABC):
    """A place with files, a shell and resources.

    A subclass assigns `_file_operator` and `_shell` in `_setup`, and releases what is its own in `_teardown`; entering
    and leaving are here. Whatever was set up is undone if setting up fails, and everything is closed in reverse order,
    whatever fails meanwhile.

    Examples
    --------
    ::

        class Project(Workspace):
            async def _setup(self):
                self._file_operator = LocalFileOperator("project")
                self._shell = LocalShell("project")
                self._resources.set("database", await connect())

        async with Project() as workspace:
            await workspace.shell.execute("ls")

    Parameters
    ----------
    resource_state
        What was saved of resources, to be restored when it is entered.
    resource_factories
        How resources are made that are asked for, by key.
    """

    kind: ClassVar[str] = ""
    """What kind of workspace it is, as definitions name it."""

    def __init__(
        self,
        resource_state: SavedResources | None = None,
        resource_factories: Mapping[str, ResourceFactory] | None = None,
    ) -> None:
        self._file_operator: FileOperator | None = None
        self._shell: Shell | None = None
        self._resources = ResourceRegistry()
        self._toolsets: list[Any] = []
        self._is_entered = False
        self._resources.pend(resource_state)
        for key, factory in (resource_factories or {}).items():
            self._resources.register_factory(key, factory)

    @abstractmethod
    async def _setup(self) -> None:
        """Make the file operator and the shell; resources and toolsets may be added."""

    async def _teardown(self) -> None:  # noqa: B027 - many have nothing else to let go
        """Let go of what is this kind's own; files and shell are closed after it."""

    # --- entering and leaving --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise WorkspaceEnteredError(f"{type(self).__name__} has already been entered; leave it first")
        self._is_entered = True
        try:
            await self._setup()
            self._resources.bind(self)
            await self._resources.restore_all()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        """Close everything, also while being cancelled; the first fault is raised when all is done."""
        await shielded(self._closed())

    async def _closed(self) -> None:
        # A `_teardown` may set both to None, as that of the pai-agent-sdk does: they are closed all the same.
        shell, files = self._shell, self._file_operator
        try:
            await self._resources.close_all()
        finally:
            try:
                await self._teardown()
            finally:
                await self._close_parts(shell, files)

    async def _close_parts(self, shell: Shell | None, files: FileOperator | None) -> None:
        self._shell, self._file_operator, self._is_entered = None, None, False
        self._toolsets.clear()
        self._resources.bind(None)
        try:
            if shell is not None:
                await shell.close()
        finally:
            if files is not None:
                await files.close()

    # --- what it has -----------------------------------------------------------------------------------------------

    def _require(self, part: Any) -> Any:
        if not self._is_entered or part is None:
            raise WorkspaceNotEnteredError(
                f"Environment not entered: write `async with {type(self).__name__}(...) as workspace:`"
            )
        return part

    @property
    def is_entered(self) -> bool:
        """Whether it can be used."""
        return self._is_entered

    @property
    def file_operator(self) -> FileOperator:
        """Its files; raises `WorkspaceNotEnteredError`."""
        found: FileOperator = self._require(self._file_operator)
        return found

    @property
    def shell(self) -> Shell:
        """Its shell; raises `WorkspaceNotEnteredError`."""
        found: Shell = self._require(self._shell)
        return found

    @property
    def resources(self) -> ResourceRegistry:
        """Its resources; factories may be registered before it is entered."""
        return self._resources

    @property
    def tmp_dir(self) -> str | None:
        """Its folder for what is passing, if it has one and is entered."""
        return None if self._file_operator is None else self._file_operator.tmp_dir

    @property
    def root(self) -> Root:
        """The folder with its files, on this machine.

        Raises
        ------
        WorkspaceNotEnteredError
            The workspace is not entered.
        WorkspaceGoneError
            Its files are not in one folder of this machine. Runs need that folder: they keep a copy of its files.
        """
        files = self.file_operator
        if not isinstance(files, LocalFileOperator):
            raise WorkspaceGoneError(
                f"{type(self).__name__} has no folder on this machine: use a LocalFileOperator, or override `root`"
            )
        return files.policy.default

    async def require_there(self) -> None:
        """Raise `WorkspaceGoneError` unless what it was entered with is still there."""
        if not self.root.is_there():
            raise WorkspaceGoneError(
                f"the folder {self.root.path} of a workspace is not there any more: leave the workspace, and restore it"
            )

    @property
    def reference(self) -> dict[str, Any]:
        """Plain data by which the workspace is found again after a restart; by default its folder, while entered."""
        has_folder = self._is_entered and isinstance(self._file_operator, LocalFileOperator)
        return {"folder": self.root.path} if has_folder else {}

    def add_toolset(self, toolset: Any) -> None:
        """Offer a toolset to agents, until it is left."""
        self._toolsets.append(toolset)

    def get_toolsets(self) -> list[Any]:
        """Return its toolsets, and those of its resources."""
        return [*self._toolsets, *self._resources.get_toolsets()]

    def with_resource_factory(self, key: str, factory: ResourceFactory) -> Self:
        """Say how a resource is made; returns itself."""
        self._resources.register_factory(key, factory)
        return self

    def with_resource_state(self, saved: SavedResources | None) -> Self:
        """Have resources restored; None leaves things as they are. Returns itself."""
        self._resources.pend(saved)
        return self

    async def export_resource_state(self) -> dict[str, Any]:
        """Return the states of its resources, plain data."""
        return await self._resources.export_state()

    async def get_context_instructions(self) -> str:
        """Return what an agent is told of it."""
        parts = [await self.file_operator.get_context_instructions(), await self.shell.get_context_instructions()]
        told = await self._resources.instructions()
        return whole_instructions([*(part or "" for part in parts), resource_instructions(told) if told else ""])


Environment = Workspace
"""The name of `Workspace` in the pai-agent-sdk."""
