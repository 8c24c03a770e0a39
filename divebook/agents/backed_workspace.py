"""Our workspaces over pydantic-ai's: `WorkspaceOfBackend` has our tools and functions work wherever one of its is.

Its protocol knows neither times nor modes of files, and gives commands nothing to read; so there are no snapshots, and
no processes that go on. Its backends may reach all of their machine: files are held to the working folder here, by
asking where a path leads before it is used (tests/workspace/test_backed.py).
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.run import AgentRunResult
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.workspaces import Workspace as TheirWorkspace
from pydantic_ai.workspaces import (
    WorkspaceBackend,
    WorkspaceOutputLimitError,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from divebook.documents.globs import has_wildcards, matches
from divebook.errors import (
    FileOperationError,
    PathNotAllowedError,
    ShellExecutionError,
    WorkspaceError,
    WorkspaceGoneError,
)
from divebook.workspace.files import CHUNK, FileOperator, failures, require_slice
from divebook.workspace.instructions import shell_instructions
from divebook.workspace.paths import Root
from divebook.workspace.present import PRESENT
from divebook.workspace.shell import DEFAULT_TIMEOUT, AskedCommand, Shell, ShellResult
from divebook.workspace.workspace import Workspace

NOTE = "Commands run where the workspace is, which may be another machine."
_SHORT = "it printed more than the backend holds"


class BackedFiles(FileOperator):
    """Files of one of pydantic-ai's workspaces; `folder` is its working folder."""

    def __init__(self, theirs: TheirWorkspace, folder: str) -> None:
        self._theirs, self._folder = theirs, folder

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
            source, target = await self.inside(src, itself=True), await self._into(src, dst)
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
        self._theirs, self._folder, self._files = theirs, folder, files

    async def _run(self, asked: AskedCommand) -> ShellResult:
        shown = asked.command if isinstance(asked.command, str) else " ".join(asked.command)
        if asked.stdin or asked.begun is not None:
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

    async def _ended(self, argv: list[str], shown: str, asked: AskedCommand, cwd: str | None) -> ShellResult:
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
        Such as those of `divebook.tools.workspaces`, or your own that call `divebook.present_workspace`.
    shell_timeout
        Seconds that a command may take which says nothing else.

    Examples
    --------
    ::

        from divebook.tools.workspaces import edit, grep, shell, view

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
            token = PRESENT.set(workspace)
            try:
                return await handler()
            finally:
                PRESENT.reset(token)


@contextmanager
def _failures(operation: str, path: str, kind: str = "file") -> Iterator[None]:
    """Say of what fails which operation it was, and on which path."""
    with failures(operation, path, kind):
        try:
            yield
        except WorkspaceUnavailableError as error:
            raise WorkspaceGoneError(str(error)) from error
