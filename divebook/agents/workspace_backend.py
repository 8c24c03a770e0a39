"""pydantic-ai's workspaces over ours: `BackendOfWorkspace` gives its capabilities and tools a workspace to work in.

Where its rules and those of `divebook.workspace` differ, its own hold here: folders around a file are made, whole trees
are removed, a command has no limit of time unless it is given one, a signal is 128 and its number, and output that is
too long to be held is an error. Paths that lead out of the workspace are refused all the same
(tests/workspace/test_backends.py; its own suite: tests/workspace/backends.py).
"""

from __future__ import annotations

import asyncio
import json
import math
import posixpath
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.messages import WorkspaceRef
from pydantic_ai.run import AgentRunResult
from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    SupportsCommands,
    SupportsFilesystem,
    SupportsRealpath,
    WorkspaceBackend,
    WorkspaceCommand,
    WorkspaceOutputLimitError,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from divebook.errors import ContainerError, ShellExecutionError, ShellTimeoutError, WorkspaceGoneError
from divebook.workspace.disk import Disk
from divebook.workspace.docker.workspace import DockerWorkspace
from divebook.workspace.fenced import FencedWorkspace
from divebook.workspace.files import LocalFileOperator
from divebook.workspace.files_only import FilesWorkspace
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.shielding import shielded
from divebook.workspace.virtualenv import VirtualenvWorkspace
from divebook.workspace.workspace import Workspace

T = TypeVar("T")
PROVIDER = "divebook-"
"""What the providers of references begin with, before the kind of the workspace."""
_KINDS: Mapping[str, type[LocalWorkspace]] = {
    each.kind: each for each in (LocalWorkspace, FilesWorkspace, FencedWorkspace, VirtualenvWorkspace, DockerWorkspace)
}
_NAMES = {"folder": "default_path", "virtualenv_path": "venv_path"}
_KILLED = 128
"""What the number of a signal that has ended a command is added to."""
_GONE = (WorkspaceGoneError, ContainerError)


class BackendOfWorkspace(WorkspaceBackend, SupportsCommands, SupportsFilesystem, SupportsRealpath):
    """A workspace, as pydantic-ai knows workspaces: ``agent.run(..., workspace=BackendOfWorkspace(workspace))``.

    A workspace that is entered is used as it is. Another one is entered with the first operation; then this is to be
    closed, or used with ``async with``.

    Parameters
    ----------
    workspace
        One whose files are on this machine, as those of all kinds of `divebook.workspace` are.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> async def listed(folder):
    ...     async with BackendOfWorkspace(LocalWorkspace(folder)) as backend:
    ...         await backend.write_bytes(f"{await backend.working_dir()}/a/b.txt", b"text")
    ...         return (await backend.run("cat a/b.txt", shell=True)).stdout
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(listed(folder))
    'text'
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = asyncio.Lock()
        self._has_begun, self._is_own = False, False
        self._ref: WorkspaceRef | None = None

    @classmethod
    def of(cls, ref: WorkspaceRef) -> Self:
        """Return the backend of the workspace that a reference names, with the options that workspaces have by default.

        Raises
        ------
        ValueError
            The reference is not one of ours.
        """
        kind = _KINDS.get(ref.provider.removeprefix(PROVIDER))
        if kind is None or not ref.provider.startswith(PROVIDER):
            known = ", ".join(f"{PROVIDER}{name}" for name in _KINDS)
            raise ValueError(f"the provider {ref.provider!r} of workspace {ref.id} is not one of {known}")
        told: dict[str, Any] = json.loads(ref.id)
        return cls(kind(**{_NAMES.get(name, name): value for name, value in told.items()}))

    @property
    def ref(self) -> WorkspaceRef | None:
        """What it is found again by; None for a container that is not made yet."""
        is_made = self._has_begun or not isinstance(self._workspace, DockerWorkspace)
        return self._ref or (_reference(self._workspace) if is_made else None)

    # --- entering and leaving --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._disk()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the workspace if this has entered it; the next operation enters it again."""
        async with self._lock:
            if self._is_own:
                self._has_begun, self._is_own, self._ref = False, False, None
                await self._workspace.__aexit__(None, None, None)

    async def _enter(self) -> None:
        try:
            await self._workspace.__aenter__()
        except _GONE as error:
            raise WorkspaceUnavailableError(str(error)) from error
        self._is_own = True
        self._begin()

    def _begin(self) -> None:
        self._ref, self._has_begun = _reference(self._workspace), True

    async def _disk(self) -> Disk:
        """Return the files of the workspace, which is entered by then, and is there."""
        async with self._lock:
            if not self._has_begun and self._workspace.is_entered:
                self._begin()
            elif not self._has_begun:
                await shielded(self._enter())  # what was made is known, also where who asked is cancelled
        if not self._workspace.is_entered:
            raise WorkspaceUnavailableError("the workspace was left: enter it again, and make another backend of it")
        await self._require_there()
        files = self._workspace.file_operator
        if not isinstance(files, LocalFileOperator):
            raise TypeError(f"the files of {type(self._workspace).__name__} are not on this machine")
        return files.disk

    async def _require_there(self) -> None:
        try:
            await self._workspace.require_there()
        except _GONE as error:
            raise WorkspaceUnavailableError(str(error)) from error

    async def _require_alive(self) -> None:
        """Raise unless another command runs: the commands of a container that ends do so before it says that itself."""
        try:
            found = await self._workspace.shell.execute("true")
        except ShellExecutionError as error:
            raise WorkspaceUnavailableError(str(error)) from error
        if found.exit_code:
            raise WorkspaceUnavailableError(f"the workspace runs no more commands: {found.stderr.strip()}")

    async def working_dir(self) -> str:
        """Return the folder in which commands start."""
        return (await self._disk()).policy.default.name

    # --- files -----------------------------------------------------------------------------------------------------

    async def _done(self, act: Callable[[Disk], T]) -> T:
        return await asyncio.to_thread(act, await self._disk())

    async def read_bytes(self, path: str) -> bytes:
        """Return the bytes of a file."""
        return await self._done(lambda disk: disk.read(path))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace the content of a file in one step, through a link; the folders around it are made."""

        def write(disk: Disk) -> None:
            try:
                disk.make_folder(posixpath.dirname(path), parents=True)
            except FileExistsError as error:
                raise NotADirectoryError(*error.args) from error
            disk.write(path, data)

        await self._done(write)

    async def stat(self, path: str) -> FileEntry:
        """Return what is at a path, links followed."""
        return await self._done(lambda disk: _entry(disk, path))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Return what is in a folder; a link that leads out, in circles or nowhere is told as a file."""
        return await self._done(lambda disk: _entries(disk, path))

    async def make_dir(self, path: str) -> None:
        """Make a folder, and those around it; one that is there is fine."""
        await self._done(lambda disk: disk.make_folder(path, parents=True))

    async def remove(self, path: str) -> None:
        """Remove a file or link, or a folder with all in it; raises ValueError for the working folder and above."""
        await self._done(lambda disk: _remove(disk, path))

    async def exists(self, path: str) -> bool:
        """Return whether something is at a path; one that may not be reached is refused."""
        return await self._done(lambda disk: disk.exists(path))

    async def realpath(self, path: str) -> str:
        """Return a path without links."""
        return await self._done(lambda disk: disk.policy.real(path))

    # --- commands --------------------------------------------------------------------------------------------------

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is of the command, which is ended when its time is up
    ) -> CommandResult:
        """Run a command to its end; see `SupportsCommands.run` of pydantic-ai for what it raises."""
        if isinstance(command, str) != shell:
            raise TypeError("a text is run with shell=True, a program and its arguments without it")
        if timeout is not None and not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be a number of seconds above 0, or None for no limit, not {timeout}")
        await self._disk()
        runs = self._workspace.shell
        try:
            found = await runs.execute(command, timeout=math.inf if timeout is None else timeout, env=env)
        except ShellTimeoutError as error:
            await self._require_there()
            raise WorkspaceTimeoutError(str(error), stdout=error.stdout, stderr=error.stderr) from error
        except ShellExecutionError:
            await self._require_there()
            raise
        await self._require_there()
        code = found.exit_code if found.exit_code >= 0 else _KILLED - found.exit_code
        if code == _KILLED + signal.SIGKILL:
            await self._require_alive()
        if found.truncated:
            wholes = [path for path in (found.stdout_file, found.stderr_file) if path is not None]
            told = f"; the whole is in {' and '.join(wholes)}" if wholes else ""
            raise WorkspaceOutputLimitError(
                f"the command printed more than the {runs.output_limit:,} bytes that are held{told}",
                limit=runs.output_limit,
                stdout=found.stdout,
                stderr=found.stderr,
            )
        return CommandResult(exit_code=code, stdout=found.stdout, stderr=found.stderr)


class InWorkspace(AbstractCapability[Any]):
    """A capability that has an agent's other capabilities and tools work in a workspace of ours.

    Parameters
    ----------
    workspace
        As of `BackendOfWorkspace`; one that is not entered is left when the last run in it has ended.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.id = "divebook_workspace"
        self._backend = BackendOfWorkspace(workspace)
        self._runs = 0

    def get_workspace(self, ctx: RunContext[Any], *, ref: WorkspaceRef | None) -> WorkspaceBackend | None:
        """Return the workspace, unless a history asks for another one."""
        del ctx
        return self._backend if ref is None or ref == self._backend.ref else None

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Surround a run."""
        del ctx
        self._runs += 1
        try:
            return await handler()
        finally:
            self._runs -= 1
            if not self._runs:
                await self._backend.close()


def _reference(workspace: Workspace) -> WorkspaceRef:
    told = workspace.reference
    if isinstance(workspace, DockerWorkspace) and workspace.container is not None:
        told = {"folder": told["folder"], "container": workspace.container}
    return WorkspaceRef(provider=f"{PROVIDER}{workspace.kind}", id=json.dumps(told, sort_keys=True))


def _entry(disk: Disk, path: str) -> FileEntry:
    found = disk.look(path)
    return FileEntry(
        name=posixpath.basename(path), path=path, is_dir=found.is_dir, size=found.size if found.is_file else None
    )


def _entries(disk: Disk, path: str) -> list[FileEntry]:
    told = []
    for name in disk.names(path):
        place = f"{path.rstrip('/')}/{name}"
        try:
            told.append(_entry(disk, place))
        except OSError:
            told.append(FileEntry(name=name, path=place, is_dir=False, size=None))
    return told


def _remove(disk: Disk, path: str) -> None:
    """Remove what is at a path, unless that is the working folder or holds it, by whatever name."""
    _require_below(disk, posixpath.normpath(path), path)
    head, name = posixpath.split(path.rstrip("/"))
    _require_below(disk, posixpath.normpath(f"{disk.policy.real(head)}/{name}"), path)
    disk.delete_tree(path)


def _require_below(disk: Disk, real: str, path: str) -> None:
    kept = disk.policy.default.name
    if kept == real or kept.startswith(f"{real.rstrip('/')}/"):
        raise ValueError(f"{path} is the working folder {kept}, or holds it: that is not removed")
