"""Our workspaces over pydantic-ai's: `WorkspaceOfBackend` has our tools and functions work wherever one of its is.

Its protocol knows neither times nor modes of files, and gives commands nothing to read; so there are no snapshots, and
no processes that go on. Its backends may reach all of their machine: files are held to the working folder here, by
asking where a path leads before it is used (tests/workspace/test_backed.py).
"""

from __future__ import annotations

import asyncio
import json
import math
import posixpath
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypeVar

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.messages import WorkspaceRef
from pydantic_ai.run import AgentRunResult
from pydantic_ai.toolsets import FunctionToolset
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
from pydantic_ai.workspaces import Workspace as TheirWorkspace

from divebook.documents.repository import has_wildcards, matches
from divebook.errors import (
    ContainerError,
    FileOperationError,
    PathNotAllowedError,
    ShellExecutionError,
    ShellTimeoutError,
    WorkspaceError,
    WorkspaceGoneError,
)
from divebook.workspace.docker.workspace import DockerWorkspace
from divebook.workspace.files import CHUNK, Disk, FileOperator, LocalFileOperator, failures, require_slice
from divebook.workspace.local import FencedWorkspace, FilesWorkspace, LocalWorkspace, VirtualenvWorkspace
from divebook.workspace.paths import Root
from divebook.workspace.shell import DEFAULT_TIMEOUT, CommandRequest, Shell, ShellResult, shielded
from divebook.workspace.workspace import CURRENT_WORKSPACE, Workspace, shell_instructions

NOTE = "Commands run where the workspace is, which may be another machine."
_SHORT = "it printed more than the backend holds"


class BackedFiles(FileOperator):
    """Files of one of pydantic-ai's workspaces; `folder` is its working folder."""

    def __init__(self, theirs: TheirWorkspace, folder: str) -> None:
        self._theirs = theirs
        self._folder = folder

    async def inside(self, path: str, *, itself: bool = False) -> str:
        """Return where a path leads, or with `itself` where its last name stands; raises `PathNotAllowedError`."""
        text = posixpath.join(self._folder, path)
        if "\0" in text:
            raise PathNotAllowedError(path.replace("\0", "\\0"), "a path cannot hold NUL")
        head, name = posixpath.split(text.rstrip("/"))
        if itself and name in ("", ".", ".."):
            raise PathNotAllowedError(path, "names no entry of a folder")
        real = posixpath.join(await self._theirs.realpath(head), name) if itself else await self._theirs.realpath(text)
        if real != self._folder and not real.startswith(f"{self._folder.rstrip('/')}/"):
            raise PathNotAllowedError(path, allowed=[self._folder])
        return real

    async def read_bytes(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, or some of them; it is read whole."""
        require_slice(offset, length)
        with _failures("read", path):
            content = await self._theirs.read_bytes(await self.inside(path))
        return content[offset:] if length is None else content[offset : offset + length]

    async def write_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Replace the content of a file; its folder must be there."""
        with _failures("write", path):
            real = await self.inside(path)
            await self._require_folder(posixpath.dirname(real))
            await self._theirs.write_bytes(real, content.encode(encoding) if isinstance(content, str) else content)

    async def _require_folder(self, path: str) -> None:
        if not (await self._theirs.stat(path)).is_dir:
            raise NotADirectoryError(path)

    async def append_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Add to the end of a file, which is written whole."""
        before = await self.read_bytes(path) if await self.exists(path) else b""
        await self.write_file(path, before + (content.encode(encoding) if isinstance(content, str) else content))

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        with _failures("delete", path):
            real = await self.inside(path, itself=True)
            is_link = await self._theirs.realpath(real) != real
            if not is_link and (await self._theirs.stat(real)).is_dir and await self._theirs.list_dir(real):
                raise FileOperationError("delete", path, "Directory not empty")
            await self._theirs.remove(real)

    async def list_dir_with_types(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, sorted, and whether each is a folder."""
        with _failures("list", path, "directory"):
            found = await self._theirs.list_dir(await self.inside(path))
        return sorted((entry.name, entry.is_dir) for entry in found)

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Make a folder; one that is there is fine."""
        with _failures("mkdir", path, "parent directory"):
            real = await self.inside(path)
            if not parents and not await self._theirs.exists(real):
                await self._require_folder(posixpath.dirname(real))
            await self._theirs.make_dir(real)

    async def move(self, src: str, dst: str) -> None:
        """Move a file or folder, which is copied and then removed."""
        with _failures("move", src, "source"):
            source = await self.inside(src, itself=True)
            target = await self._into(src, dst)
            if target == source or target.startswith(f"{source}/"):
                raise FileOperationError("move", src, "a folder cannot be moved into itself")
            await self._copied(source, target)
            await self._theirs.remove(source)

    async def copy(self, src: str, dst: str) -> None:
        """Copy a file, or a whole folder to where nothing is."""
        with _failures("copy", src, "source"):
            source = await self.inside(src)
            is_folder = (await self._theirs.stat(source)).is_dir
            target = await self.inside(dst) if is_folder else await self._into(src, dst)
            if target == source or target.startswith(f"{source}/"):
                raise FileOperationError("copy", src, "it cannot be copied onto or into itself")
            if is_folder and await self._theirs.exists(target):
                raise FileExistsError(target)
            await self._copied(source, target)

    async def _into(self, source: str, target: str) -> str:
        real = await self.inside(target)
        if await self._theirs.exists(real) and (await self._theirs.stat(real)).is_dir:
            return posixpath.join(real, posixpath.basename(source.rstrip("/")))
        await self._require_folder(posixpath.dirname(real))
        return real

    async def _copied(self, source: str, target: str) -> None:
        left = [(source, target)]
        while left:
            old, new = left.pop()
            await self.inside(old)
            if (await self._theirs.stat(old)).is_dir:
                await self._theirs.make_dir(new)
                left += [(entry.path, posixpath.join(new, entry.name)) for entry in await self._theirs.list_dir(old)]
            else:
                await self._theirs.write_bytes(new, await self._theirs.read_bytes(old))

    async def stat(self, path: str) -> dict[str, Any]:
        """Return ``size``, ``is_file`` and ``is_dir`` of what is at a path; ``mtime`` is None, which nobody knows."""
        with _failures("stat", path):
            found = await self._theirs.stat(await self.inside(path))
        return {"size": found.size, "mtime": None, "is_file": not found.is_dir, "is_dir": found.is_dir}

    async def glob(self, pattern: str) -> list[str]:
        """Return the paths that a pattern means, by name."""
        if not pattern:
            raise FileOperationError("glob", pattern, "the pattern is empty")
        whole = posixpath.normpath(posixpath.join(self._folder, pattern))
        parts = whole.split("/")
        plain = next((at for at, part in enumerate(parts) if has_wildcards(part)), len(parts) - 1)
        found = sorted([path async for path in self._below("/".join(parts[:plain]) or "/") if matches(whole, path)])
        prefix = f"{self._folder.rstrip('/')}/"
        return found if pattern.startswith("/") else [path.removeprefix(prefix) for path in found]

    async def _below(self, folder: str) -> AsyncIterator[str]:
        left = [folder]
        while left:
            place = left.pop()
            try:
                if await self.inside(place) != place:  # a link is not gone through
                    continue
                found = await self._theirs.list_dir(place)
            except OSError:
                continue
            for entry in found:
                left += [entry.path] if entry.is_dir else []
                yield entry.path

    async def read_bytes_stream(self, path: str, *, chunk_size: int = CHUNK) -> AsyncIterator[bytes]:
        """Give the bytes of a file piece by piece; it is read whole."""
        if chunk_size < 1:
            raise ValueError(f"a chunk must have 1 byte or more, not {chunk_size}")
        content = await self.read_bytes(path)
        for start in range(0, len(content), chunk_size):
            yield content[start : start + chunk_size]

    async def close(self) -> None:
        """Do nothing: the backend belongs to whoever has made it."""


class BackedShell(Shell):
    """The shell of one of pydantic-ai's workspaces."""

    def __init__(self, theirs: TheirWorkspace, folder: str, files: BackedFiles, **options: Any) -> None:
        super().__init__(**options)
        self._theirs = theirs
        self._folder = folder
        self._files = files

    async def _run(self, asked: CommandRequest) -> ShellResult:
        shown = asked.command if isinstance(asked.command, str) else " ".join(asked.command)
        if asked.stdin or asked.on_start is not None:
            what = "reads input" if asked.stdin else "goes on beside others"
            raise ShellExecutionError(shown, f"no command that {what} can be run by a backend of pydantic-ai's")
        argv = ["/bin/sh", "-c", asked.command] if isinstance(asked.command, str) else [*asked.command]
        if not asked.inherit_env:
            argv = ["env", "-i", *(f"{name}={value}" for name, value in asked.environ.items()), *argv]
        cwd = None if asked.cwd is None else await self._files.inside(asked.cwd)
        result = await self._ended(argv, shown, asked, cwd)
        for stream, text in (("stdout", result.stdout), ("stderr", result.stderr)):
            if asked.listen is not None and text:
                asked.listen(stream, text)
        return result

    async def _ended(self, argv: list[str], shown: str, asked: CommandRequest, cwd: str | None) -> ShellResult:
        try:
            found = await self._theirs.run(argv, env=asked.environ, timeout=asked.seconds, cwd=cwd)
        except WorkspaceTimeoutError as error:
            result = ShellResult(-9, error.stdout, error.stderr)
            result.timed_out = True
            return result
        except WorkspaceOutputLimitError as error:
            raise ShellExecutionError(shown, _SHORT, stdout=error.stdout, stderr=error.stderr) from error
        except WorkspaceUnavailableError as error:
            raise WorkspaceGoneError(str(error)) from error
        except OSError as error:
            raise ShellExecutionError(shown, f"cannot run in {asked.cwd or self._folder}: {error}") from error
        return ShellResult(found.exit_code, found.stdout, found.stderr)

    async def get_context_instructions(self) -> str | None:
        """Return the folder, the limit of time, and what bounds commands."""
        return shell_instructions(self._folder, self.default_timeout, NOTE)

    async def close(self) -> None:
        """Do nothing: the backend belongs to whoever has made it."""


class WorkspaceOfBackend(Workspace):
    r"""A workspace over a backend of pydantic-ai's: on this machine, in a container, or with a provider.

    Parameters
    ----------
    backend
        It stays open when the workspace is left.
    shell_timeout
        Seconds that a command may take which says nothing else.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> from pydantic_ai.workspaces import LocalWorkspaceBackend
    >>> async def listed(folder):
    ...     async with WorkspaceOfBackend(LocalWorkspaceBackend(folder)) as workspace:
    ...         await workspace.file_operator.write_file("a.txt", "text")
    ...         return (await workspace.shell.execute("ls")).stdout
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(listed(folder))
    'a.txt\n'
    """

    kind: ClassVar[str] = "backend"

    def __init__(self, backend: WorkspaceBackend, *, shell_timeout: float = DEFAULT_TIMEOUT, **options: Any) -> None:
        super().__init__(**options)
        self._theirs = backend if isinstance(backend, TheirWorkspace) else TheirWorkspace(backend)
        self._shell_timeout = shell_timeout

    async def _setup(self) -> None:
        try:
            folder = await self._theirs.working_dir()
        except WorkspaceUnavailableError as error:
            raise WorkspaceGoneError(str(error)) from error
        self._file_operator = files = BackedFiles(self._theirs, folder)
        self._shell = BackedShell(self._theirs, folder, files, default_timeout=self._shell_timeout)

    @property
    def root(self) -> Root:
        """Raise: it is nowhere on this machine that could be relied on."""
        raise WorkspaceError("a workspace over a backend has no folder on this machine, and so no snapshots")

    async def require_there(self) -> None:
        """Raise `WorkspaceGoneError` unless the backend answers."""
        try:
            await self._theirs.working_dir()
        except WorkspaceUnavailableError as error:
            raise WorkspaceGoneError(str(error)) from error

    @property
    def reference(self) -> dict[str, Any]:
        """The backend's own reference; nothing before there is one."""
        ref = self._theirs.ref
        return {} if ref is None else {"provider": ref.provider, "id": ref.id}


class WorkspaceTools(AbstractCapability[Any]):
    """A capability that gives an agent functions which ask for the present workspace, over the workspace of its run.

    Parameters
    ----------
    functions
        Such as those of `divebook.tools.workspace`, or your own that call `divebook.present_workspace`.
    shell_timeout
        Seconds that a command may take which says nothing else.

    Examples
    --------
    ::

        from divebook.tools.workspace import edit, grep, shell, view

        agent = pydantic_ai.Agent(model, capabilities=[WorkspaceTools(view, grep, edit, shell)])
        await agent.run("Repair it", workspace=LocalWorkspaceBackend("project"))
    """

    def __init__(self, *functions: Callable[..., Any], shell_timeout: float = DEFAULT_TIMEOUT) -> None:
        self.id = "divebook_workspace_tools"
        self._toolset: FunctionToolset[Any] = FunctionToolset([*functions], id=self.id)
        self._shell_timeout = shell_timeout

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the functions."""
        return self._toolset

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Surround a run."""
        async with WorkspaceOfBackend(ctx.workspace, shell_timeout=self._shell_timeout) as workspace:
            token = CURRENT_WORKSPACE.set(workspace)
            try:
                return await handler()
            finally:
                CURRENT_WORKSPACE.reset(token)


@contextmanager
def _failures(operation: str, path: str, kind: str = "file") -> Iterator[None]:
    """Say of what fails which operation it was, and on which path."""
    with failures(operation, path, kind):
        try:
            yield
        except WorkspaceUnavailableError as error:
            raise WorkspaceGoneError(str(error)) from error


# pydantic-ai's workspaces over ours: `BackendOfWorkspace` gives its capabilities and tools a workspace to work in.
#
# Where its rules and those of `divebook.workspace` differ, its own hold here: folders around a file are made, whole
# trees are removed, a command has no limit of time unless it is given one, a signal is 128 and its number, and output
# that is too long to be held is an error. Paths that lead out of the workspace are refused all the same
# (tests/workspace/test_backends.py; its own suite: tests/workspace/backends.py).


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
        self._has_begun = False
        self._is_own = False
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
                self._has_begun = False
                self._is_own = False
                self._ref = None
                await self._workspace.__aexit__(None, None, None)

    async def _enter(self) -> None:
        try:
            await self._workspace.__aenter__()
        except _GONE as error:
            raise WorkspaceUnavailableError(str(error)) from error
        self._is_own = True
        self._begin()

    def _begin(self) -> None:
        self._ref = _reference(self._workspace)
        self._has_begun = True

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
    found = disk.status(path)
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
