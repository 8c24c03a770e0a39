"""Adapters between divebook's workspaces and pydantic-ai's workspaces, in both directions.

`WorkspaceOfBackend` lets divebook's tools and functions work in a workspace of pydantic-ai. The protocol of pydantic-ai
has no modification times or file modes, and commands get no input. Snapshots and background processes are therefore not
available there. A backend may reach all of its machine. Files are restricted to the working folder here, by resolving
each path before it is used (tests/workspace/test_backed.py).
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
from pydantic_ai.workspaces import Workspace as RemoteWorkspace

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
from divebook.workspaces.docker.workspace import DockerWorkspace
from divebook.workspaces.files import CHUNK, Disk, FileOperator, LocalFileOperator, failures, require_slice
from divebook.workspaces.local import FencedWorkspace, FilesWorkspace, LocalWorkspace, VirtualenvWorkspace
from divebook.workspaces.paths import Root
from divebook.workspaces.shell import DEFAULT_TIMEOUT, CommandRequest, Shell, ShellResult, shielded
from divebook.workspaces.workspace import CURRENT_WORKSPACE, Workspace, shell_instructions

NOTE = "Commands run where the workspace is, which may be another machine."


_SHORT = "it printed more than the backend keeps"


class WorkspaceOfBackend(Workspace):
    r"""divebook workspace whose files and commands are those of a workspace backend of pydantic-ai. The backend may be
    on this machine, in a container, or at a provider.

    Parameters
    ----------
    backend
        Backend of pydantic-ai. Leaving the workspace does not close it.
    shell_timeout
        Default time limit of a command, in seconds.

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
        self._remote = backend if isinstance(backend, RemoteWorkspace) else RemoteWorkspace(backend)
        self._shell_timeout = shell_timeout

    async def _setup(self) -> None:
        try:
            folder = await self._remote.working_dir()
        except WorkspaceUnavailableError as error:
            raise WorkspaceGoneError(str(error)) from error
        self._file_operator = files = BackedFiles(self._remote, folder)
        self._shell = BackedShell(self._remote, folder, files, default_timeout=self._shell_timeout)

    @property
    def root(self) -> Root:
        """Raise `WorkspaceError`: the files of a backend may be elsewhere, so this workspace has no folder on this
        machine.
        """
        raise WorkspaceError(
            "a workspace of a pydantic-ai backend has no folder on this machine, so it has no snapshots"
        )

    async def require_there(self) -> None:
        """Raise `WorkspaceGoneError` if the backend does not answer."""
        try:
            await self._remote.working_dir()
        except WorkspaceUnavailableError as error:
            raise WorkspaceGoneError(str(error)) from error

    @property
    def reference(self) -> dict[str, Any]:
        """Dict with provider and id, which identify the backend. Empty as long as the backend has no id."""
        ref = self._remote.ref
        return {} if ref is None else {"provider": ref.provider, "id": ref.id}


class WorkspaceTools(AbstractCapability[Any]):
    """Capability that gives a pydantic-ai agent tools from divebook, which work in the workspace of the agent's run.

    Parameters
    ----------
    functions
        Functions such as those of `divebook.tools.workspace`, or functions that
        call `divebook.workspaces.present_workspace`.
    shell_timeout
        Default time limit of a command, in seconds.

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
        """Return the toolset that contains the functions passed to this capability."""
        return self._toolset

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Run the agent. During the run, `present_workspace` returns a divebook workspace on top of the run's
        pydantic-ai workspace.
        """
        async with WorkspaceOfBackend(ctx.workspace, shell_timeout=self._shell_timeout) as workspace:
            token = CURRENT_WORKSPACE.set(workspace)
            try:
                return await handler()
            finally:
                CURRENT_WORKSPACE.reset(token)


class BackedFiles(FileOperator):
    """Files of a `WorkspaceOfBackend`. Only paths inside the working folder `folder` can be accessed."""

    def __init__(self, remote: RemoteWorkspace, folder: str) -> None:
        self._remote = remote
        self._folder = folder

    async def inside(self, path: str, *, itself: bool = False) -> str:
        """Return a path with its links resolved, which must be in the working folder.

        With `itself`, a link in the last component is not followed.

        Raises
        ------
        PathNotAllowedError
            The path leads out of the working folder.
        """
        text = posixpath.join(self._folder, path)
        if "\0" in text:
            raise PathNotAllowedError(path.replace("\0", "\\0"), "a path cannot contain NUL characters")
        # "a/b/" -> "a", "b": the last component is kept, links before it are resolved.
        head, name = posixpath.split(text.rstrip("/"))
        if itself and name in ("", ".", ".."):
            raise PathNotAllowedError(path, "a path must end with the name of a file or folder")
        # Resolve links first: a link inside the folder may lead out of it.
        real = posixpath.join(await self._remote.realpath(head), name) if itself else await self._remote.realpath(text)
        # A folder "/" has no second slash before its entries.
        if real != self._folder and not real.startswith(f"{self._folder.rstrip('/')}/"):
            raise PathNotAllowedError(path, allowed=[self._folder])
        return real

    async def read_bytes(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of a file, or a slice of them. The backend sends the whole file in both cases."""
        require_slice(offset, length)
        with _failures("read", path):
            content = await self._remote.read_bytes(await self.inside(path))
        return content[offset:] if length is None else content[offset : offset + length]

    async def write_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Replace the content of a file, or create the file. The folder of the file must exist."""
        with _failures("write", path):
            real = await self.inside(path)
            await self._require_folder(posixpath.dirname(real))
            await self._remote.write_bytes(real, content.encode(encoding) if isinstance(content, str) else content)

    async def _require_folder(self, path: str) -> None:
        if not (await self._remote.stat(path)).is_dir:
            raise NotADirectoryError(path)

    async def append_file(self, path: str, content: str | bytes, *, encoding: str = "utf-8") -> None:
        """Append to a file. The whole file is read and written again, because backends cannot append."""
        # Not atomic: a change by another process between reading and writing is lost.
        old_content = await self.read_bytes(path) if await self.exists(path) else b""
        await self.write_file(path, old_content + (content.encode(encoding) if isinstance(content, str) else content))

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        with _failures("delete", path):
            real = await self.inside(path, itself=True)
            is_link = await self._remote.realpath(real) != real
            # A link to a folder is removed itself, whatever the folder contains.
            if not is_link and (await self._remote.stat(real)).is_dir and await self._remote.list_dir(real):
                raise FileOperationError("delete", path, "Directory not empty")
            await self._remote.remove(real)

    async def list_dir_with_types(self, path: str) -> list[tuple[str, bool]]:
        """Return the names of the entries of a folder, sorted. Each name comes with True if the entry is a folder."""
        with _failures("list", path, "directory"):
            entries = await self._remote.list_dir(await self.inside(path))
        return sorted((entry.name, entry.is_dir) for entry in entries)

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Create a folder. An existing folder is not an error."""
        with _failures("mkdir", path, "parent directory"):
            real = await self.inside(path)
            if not parents and not await self._remote.exists(real):
                await self._require_folder(posixpath.dirname(real))
            await self._remote.make_dir(real)

    async def move(self, src: str, dst: str) -> None:
        """Move a file or folder: copy it, then remove the original."""
        with _failures("move", src, "source"):
            source = await self.inside(src, itself=True)
            target = await self._into(src, dst)
            # The source would be removed together with its copy.
            if target == source or target.startswith(f"{source}/"):
                raise FileOperationError("move", src, "a folder cannot be moved into itself")
            await self._copy_tree(source, target)
            await self._remote.remove(source)

    async def copy(self, src: str, dst: str) -> None:
        """Copy a file, or copy a folder to a path that does not exist yet."""
        with _failures("copy", src, "source"):
            source = await self.inside(src)
            # A file may be copied into a folder. A folder needs a new path, so that its content is not mixed with other
            # files.
            is_folder = (await self._remote.stat(source)).is_dir
            target = await self.inside(dst) if is_folder else await self._into(src, dst)
            if target == source or target.startswith(f"{source}/"):
                raise FileOperationError("copy", src, "it cannot be copied onto or into itself")
            if is_folder and await self._remote.exists(target):
                raise FileExistsError(target)
            await self._copy_tree(source, target)

    async def _into(self, source: str, target: str) -> str:
        real = await self.inside(target)
        if await self._remote.exists(real) and (await self._remote.stat(real)).is_dir:
            return posixpath.join(real, posixpath.basename(source.rstrip("/")))
        await self._require_folder(posixpath.dirname(real))
        return real

    async def _copy_tree(self, source: str, target: str) -> None:
        remaining = [(source, target)]
        while remaining:
            source_path, target_path = remaining.pop()
            # Checked for every entry, because a link inside the tree may lead out of the working folder.
            await self.inside(source_path)
            if (await self._remote.stat(source_path)).is_dir:
                await self._remote.make_dir(target_path)
                entries = await self._remote.list_dir(source_path)
                remaining += [(entry.path, posixpath.join(target_path, entry.name)) for entry in entries]
            else:
                await self._remote.write_bytes(target_path, await self._remote.read_bytes(source_path))

    async def stat(self, path: str) -> dict[str, Any]:
        """Return ``size``, ``is_file`` and ``is_dir`` of a path. ``mtime`` is None: backends do not report modification
        times.
        """
        with _failures("stat", path):
            entry = await self._remote.stat(await self.inside(path))
        return {"size": entry.size, "mtime": None, "is_file": not entry.is_dir, "is_dir": entry.is_dir}

    async def glob(self, pattern: str) -> list[str]:
        """Return the paths in the working folder that match a pattern, sorted."""
        if not pattern:
            raise FileOperationError("glob", pattern, "the pattern is empty")
        full_pattern = posixpath.normpath(posixpath.join(self._folder, pattern))
        parts = full_pattern.split("/")
        # Search below the folders before the first wildcard only.
        first_wildcard = next((at for at, part in enumerate(parts) if has_wildcards(part)), len(parts) - 1)
        folder = "/".join(parts[:first_wildcard]) or "/"
        paths = sorted([path async for path in self._below(folder) if matches(full_pattern, path)])
        prefix = f"{self._folder.rstrip('/')}/"
        # A relative pattern has relative results.
        return paths if pattern.startswith("/") else [path.removeprefix(prefix) for path in paths]

    async def _below(self, folder: str) -> AsyncIterator[str]:
        remaining = [folder]
        while remaining:
            path = remaining.pop()
            try:
                if await self.inside(path) != path:  # links are not followed
                    continue
                entries = await self._remote.list_dir(path)
            # The folder has disappeared, cannot be read, or lies outside of the working folder: it has no matches.
            except OSError:
                continue
            for entry in entries:
                remaining += [entry.path] if entry.is_dir else []
                yield entry.path

    async def read_bytes_stream(self, path: str, *, chunk_size: int = CHUNK) -> AsyncIterator[bytes]:
        """Yield the bytes of a file in chunks of `chunk_size`. The whole file is in memory, because the backend sends
        it at once.
        """
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1 byte, not {chunk_size}")
        content = await self.read_bytes(path)
        for start in range(0, len(content), chunk_size):
            yield content[start : start + chunk_size]

    async def close(self) -> None:
        """Leave the backend open: it belongs to its creator, who closes it."""


class BackedShell(Shell):
    """Shell of a `WorkspaceOfBackend`: its commands are run by the backend."""

    def __init__(self, remote: RemoteWorkspace, folder: str, files: BackedFiles, **options: Any) -> None:
        super().__init__(**options)
        self._remote = remote
        self._folder = folder
        self._files = files

    async def _run(self, command: CommandRequest) -> ShellResult:
        # Backends run programs without a shell and without input. `env -i` clears the environment if it is not
        # inherited. The backend returns the output at the end, so a listener gets it in one piece.
        shown = command.command if isinstance(command.command, str) else " ".join(command.command)
        if command.stdin or command.on_start is not None:
            feature = "reads input" if command.stdin else "runs in the background"
            raise ShellExecutionError(shown, f"a command that {feature} cannot run in a pydantic-ai backend")
        argv = ["/bin/sh", "-c", command.command] if isinstance(command.command, str) else [*command.command]
        if not command.inherit_env:
            # Without `-i`, the command would inherit the environment of the backend.
            argv = ["env", "-i", *(f"{name}={value}" for name, value in command.environ.items()), *argv]
        cwd = None if command.cwd is None else await self._files.inside(command.cwd)
        result = await self._run_to_end(argv, shown, command, cwd)
        for stream, text in (("stdout", result.stdout), ("stderr", result.stderr)):
            if command.listen is not None and text:
                command.listen(stream, text)
        return result

    async def _run_to_end(self, argv: list[str], shown: str, command: CommandRequest, cwd: str | None) -> ShellResult:
        try:
            result_of_backend = await self._remote.run(argv, env=command.environ, timeout=command.seconds, cwd=cwd)
        except WorkspaceTimeoutError as error:
            # -9: ended by SIGKILL. Callers decide by `timed_out`.
            result = ShellResult(-9, error.stdout, error.stderr)
            result.timed_out = True
            return result
        except WorkspaceOutputLimitError as error:
            raise ShellExecutionError(shown, _SHORT, stdout=error.stdout, stderr=error.stderr) from error
        except WorkspaceUnavailableError as error:
            raise WorkspaceGoneError(str(error)) from error
        except OSError as error:
            raise ShellExecutionError(shown, f"cannot run in {command.cwd or self._folder}: {error}") from error
        return ShellResult(result_of_backend.exit_code, result_of_backend.stdout, result_of_backend.stderr)

    async def get_context_instructions(self) -> str | None:
        """Return instructions for a model about running commands: the working folder, the time limit, and that commands
        may run on another machine.
        """
        return shell_instructions(self._folder, self.default_timeout, NOTE)

    async def close(self) -> None:
        """Leave the backend open: it belongs to its creator, who closes it."""


@contextmanager
def _failures(operation: str, path: str, kind: str = "file") -> Iterator[None]:
    """Convert errors that a backend of pydantic-ai raises inside the ``with`` block to divebook's file errors, which
    name the operation and the path.
    """
    with failures(operation, path, kind):
        try:
            yield
        except WorkspaceUnavailableError as error:
            raise WorkspaceGoneError(str(error)) from error


# --- divebook's workspaces as backends of pydantic-ai ----------------------------------------------------------------
# Where the rules of pydantic-ai and of `divebook.workspaces` differ, those of pydantic-ai hold here: parent folders are
# created, whole trees are removed, a command has no time limit unless the caller sets one, the exit code after a signal
# is 128 plus its number, and output that exceeds the limit is an error. Paths that lead out of the workspace are
# refused in both directions (tests/workspace/test_backends.py; pydantic-ai's own suite: tests/workspace/backends.py).


T = TypeVar("T")


PROVIDER = "divebook-"
"""Prefix of the providers in references, before the kind of the workspace."""


_KINDS: Mapping[str, type[LocalWorkspace]] = {
    each.kind: each for each in (LocalWorkspace, FilesWorkspace, FencedWorkspace, VirtualenvWorkspace, DockerWorkspace)
}


# Keys of a reference for which the parameter of the constructor has another name.
_NAMES = {"folder": "default_path", "virtualenv_path": "venv_path"}


_KILLED = 128
"""Offset that is added to the number of the signal that ended a command."""


_GONE = (WorkspaceGoneError, ContainerError)


class BackendOfWorkspace(WorkspaceBackend, SupportsCommands, SupportsFilesystem, SupportsRealpath):
    """Workspace backend of pydantic-ai whose files and commands are those of a divebook workspace: ``agent.run(...,
    workspace=BackendOfWorkspace(workspace))``.

    If the workspace is not entered yet, it is entered at the first operation. In this case, close the backend after
    use, or use it with ``async with``.

    Parameters
    ----------
    workspace
        Workspace with files on this machine, such as every kind of `divebook.workspaces`.

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
        # Without it, two first operations at once would both enter the workspace.
        self._lock = asyncio.Lock()
        self._is_open = False
        self._entered_here = False
        self._ref: WorkspaceRef | None = None

    @classmethod
    def of(cls, ref: WorkspaceRef) -> Self:
        """Create a backend from a reference that the property `ref` returned. The divebook workspace is created again
        from the reference, with default options for the rest.

        Raises
        ------
        ValueError
            The reference belongs to another provider.
        """
        kind = _KINDS.get(ref.provider.removeprefix(PROVIDER))
        if kind is None or not ref.provider.startswith(PROVIDER):
            providers = ", ".join(f"{PROVIDER}{name}" for name in _KINDS)
            raise ValueError(f"unknown provider {ref.provider!r} of workspace {ref.id}; expected one of: {providers}")
        options: dict[str, Any] = json.loads(ref.id)
        return cls(kind(**{_NAMES.get(name, name): value for name, value in options.items()}))

    @property
    def ref(self) -> WorkspaceRef | None:
        """Reference that identifies the divebook workspace, also for other processes. None while the container of a
        `DockerWorkspace` does not exist yet.
        """
        # Before its first entry, a `DockerWorkspace` has no container to refer to.
        exists = self._is_open or not isinstance(self._workspace, DockerWorkspace)
        return self._ref or (_reference(self._workspace) if exists else None)

    # --- entering and leaving --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._disk()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the divebook workspace, if this backend entered it. A later operation enters the workspace again."""
        async with self._lock:
            # Marked as left before it is left, so that a failed exit is not repeated.
            if self._entered_here:
                self._is_open = False
                self._entered_here = False
                self._ref = None
                await self._workspace.__aexit__(None, None, None)

    async def _enter(self) -> None:
        try:
            await self._workspace.__aenter__()
        except _GONE as error:
            raise WorkspaceUnavailableError(str(error)) from error
        self._entered_here = True
        self._mark_open()

    def _mark_open(self) -> None:
        self._ref = _reference(self._workspace)
        self._is_open = True

    async def _disk(self) -> Disk:
        """Return the object that reads and writes the files of the workspace. Enter the workspace first if necessary;
        raise an error if it no longer exists.
        """
        async with self._lock:
            # The user has entered the workspace, and leaves it.
            if not self._is_open and self._workspace.is_entered:
                self._mark_open()
            elif not self._is_open:
                await shielded(self._enter())  # a cancelled caller must not lose what was created
        if not self._workspace.is_entered:
            raise WorkspaceUnavailableError(
                "the workspace is no longer entered; enter it again, and create another backend from it"
            )
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
        """Run an empty command; raise `WorkspaceUnavailableError` if the workspace cannot run commands any more.

        When a container ends, its commands end before the container reports it.
        """
        try:
            result = await self._workspace.shell.execute("true")
        except ShellExecutionError as error:
            raise WorkspaceUnavailableError(str(error)) from error
        if result.exit_code:
            raise WorkspaceUnavailableError(f"the workspace can no longer run commands: {result.stderr.strip()}")

    async def working_dir(self) -> str:
        """Return the working folder of the workspace, in which commands start."""
        return (await self._disk()).policy.default.name

    # --- files -----------------------------------------------------------------------------------------------------

    async def _on_disk(self, act: Callable[[Disk], T]) -> T:
        # In a thread, because access to a disk blocks.
        return await asyncio.to_thread(act, await self._disk())

    async def read_bytes(self, path: str) -> bytes:
        """Return the content of a file."""
        return await self._on_disk(lambda disk: disk.read(path))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace the content of a file atomically. Links are followed, and parent folders are created."""

        def write(disk: Disk) -> None:
            try:
                disk.make_folder(posixpath.dirname(path), parents=True)
            # A parent is a file, which pydantic-ai reports with this error.
            except FileExistsError as error:
                raise NotADirectoryError(*error.args) from error
            disk.write(path, data)

        await self._on_disk(write)

    async def stat(self, path: str) -> FileEntry:
        """Return name, path, kind and size of a file or folder. Links are followed."""
        return await self._on_disk(lambda disk: _entry(disk, path))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Return the entries of a folder. A link is listed as a file if its target is outside the workspace or does not
        exist, or if the link is part of a loop.
        """
        return await self._on_disk(lambda disk: _entries(disk, path))

    async def make_dir(self, path: str) -> None:
        """Create a folder and its parents. An existing folder is not an error."""
        await self._on_disk(lambda disk: disk.make_folder(path, parents=True))

    async def remove(self, path: str) -> None:
        """Remove a file, a link, or a folder with its content; raise ValueError for the working folder and the folders
        above.
        """
        await self._on_disk(lambda disk: _remove(disk, path))

    async def exists(self, path: str) -> bool:
        """Return True if a path exists; raise an error if the path is outside the workspace."""
        return await self._on_disk(lambda disk: disk.exists(path))

    async def realpath(self, path: str) -> str:
        """Return a path with all links resolved."""
        return await self._on_disk(lambda disk: disk.policy.real(path))

    # --- commands --------------------------------------------------------------------------------------------------

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - time limit of the command, which is then killed
    ) -> CommandResult:
        """Run a command and wait for its end. Raise the errors that pydantic-ai documents for
        `SupportsCommands.run`.
        """
        if isinstance(command, str) != shell:
            raise TypeError(
                "pass a string with shell=True, or a list of a program and its arguments without shell=True"
            )
        if timeout is not None and not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be a number of seconds above 0, or None for no limit, not {timeout}")
        # The place may disappear during the command. Each outcome checks for it first, because its loss explains any
        # other error.
        await self._disk()
        runs = self._workspace.shell
        try:
            result = await runs.execute(command, timeout=math.inf if timeout is None else timeout, env=env)
        except ShellTimeoutError as error:
            await self._require_there()
            raise WorkspaceTimeoutError(str(error), stdout=error.stdout, stderr=error.stderr) from error
        except ShellExecutionError:
            await self._require_there()
            raise
        await self._require_there()
        # divebook reports a signal as a negative exit code, pydantic-ai as 128 plus its number.
        code = result.exit_code if result.exit_code >= 0 else _KILLED - result.exit_code
        # A container that ends kills its commands, so check whether it still runs.
        if code == _KILLED + signal.SIGKILL:
            await self._require_alive()
        if result.truncated:
            wholes = [path for path in (result.stdout_file, result.stderr_file) if path is not None]
            note = f"; the complete output is in {' and '.join(wholes)}" if wholes else ""
            raise WorkspaceOutputLimitError(
                f"the command printed more than the limit of {runs.output_limit:,} bytes{note}",
                limit=runs.output_limit,
                stdout=result.stdout,
                stderr=result.stderr,
            )
        return CommandResult(exit_code=code, stdout=result.stdout, stderr=result.stderr)


class InWorkspace(AbstractCapability[Any]):
    """Capability that makes a divebook workspace the workspace of a pydantic-ai agent, for its tools and other
    capabilities.

    Parameters
    ----------
    workspace
        Workspace, as for `BackendOfWorkspace`. If it is not entered, it is left when the last run in it has ended.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.id = "divebook_workspace"
        self._backend = BackendOfWorkspace(workspace)
        self._runs = 0

    def get_workspace(self, ctx: RunContext[Any], *, ref: WorkspaceRef | None) -> WorkspaceBackend | None:
        """Return the backend of the divebook workspace. Return None if `ref`, from the message history, refers to
        another workspace.
        """
        del ctx
        # Without a reference, the history does not bind the run to a workspace.
        return self._backend if ref is None or ref == self._backend.ref else None

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Run the agent. Leave the workspace when the last of the agent's concurrent runs has ended."""
        del ctx
        self._runs += 1
        try:
            return await handler()
        finally:
            self._runs -= 1
            if not self._runs:
                await self._backend.close()


def _reference(workspace: Workspace) -> WorkspaceRef:
    options = workspace.reference
    if isinstance(workspace, DockerWorkspace) and workspace.container is not None:
        options = {"folder": options["folder"], "container": workspace.container}
    return WorkspaceRef(provider=f"{PROVIDER}{workspace.kind}", id=json.dumps(options, sort_keys=True))


def _entry(disk: Disk, path: str) -> FileEntry:
    status = disk.status(path)
    return FileEntry(
        name=posixpath.basename(path), path=path, is_dir=status.is_dir, size=status.size if status.is_file else None
    )


def _entries(disk: Disk, path: str) -> list[FileEntry]:
    entries = []
    for name in disk.names(path):
        place = f"{path.rstrip('/')}/{name}"
        try:
            entries.append(_entry(disk, place))
        except OSError:
            # The target of a link cannot be inspected, but the link is still an entry.
            entries.append(FileEntry(name=name, path=place, is_dir=False, size=None))
    return entries


def _remove(disk: Disk, path: str) -> None:
    """Remove a file, or a folder with its content. Raise ValueError for the working folder and the folders that contain
    it, also if the path leads to them through a link.
    """
    # Both the written and the resolved path are checked, because a link may lead to a folder above.
    _require_below(disk, posixpath.normpath(path), path)
    head, name = posixpath.split(path.rstrip("/"))
    _require_below(disk, posixpath.normpath(f"{disk.policy.real(head)}/{name}"), path)
    disk.delete_tree(path)


def _require_below(disk: Disk, real: str, path: str) -> None:
    working_folder = disk.policy.default.name
    if working_folder == real or working_folder.startswith(f"{real.rstrip('/')}/"):
        raise ValueError(f"{path} is the working folder {working_folder} or contains it, so it cannot be removed")
