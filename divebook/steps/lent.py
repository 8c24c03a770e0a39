"""A workspace as a workflow function has it: each use is a recorded call, the same that steps and agents make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from divebook.workspace.shell import ShellResult

CallInWorkspace = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Makes a call of an action of workspaces, by its name, with its parameters."""


class WorkspaceOfContext:
    """A workspace as a workflow function has it: its files, a shell, and what becomes of them.

    Examples
    --------
    ::

        app = ctx.workspace("app")
        tested = await app.shell("pytest -q", check=False)
        if tested.exit_code == 0:
            await app.apply()  # a person chooses among the changed files
    """

    def __init__(self, name: str, call: CallInWorkspace) -> None:
        self.name, self._call = name, call

    async def shell(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it is of the command
        cwd: str | None = None,
        check: bool = True,
    ) -> ShellResult:
        """Run a command and return its exit code and what it printed.

        Parameters
        ----------
        timeout
            Seconds that it may take, by default as many as the workspace says.
        cwd
            The folder to run it in.
        check
            Whether a command that fails is an error (`OperationError`).
        """
        given = {"Command": command, "Timeout": timeout, "Cwd": cwd, "Check": check}
        told = await self._call("Workspace.Shell", {name: value for name, value in given.items() if value is not None})
        return ShellResult(told["exit_code"], told["stdout"], told["stderr"])

    async def read(self, path: str) -> str:
        """Return the text of a file."""
        return str(await self._call("Workspace.Read", {"Path": path}))

    async def write(self, path: str, content: str) -> None:
        """Write a file whole; folders are made."""
        await self._call("Workspace.Write", {"Path": path, "Content": content})

    async def list(self, path: str = ".") -> Sequence[str]:
        """Return the names in a folder."""
        found: Sequence[str] = await self._call("Workspace.List", {"Path": path})
        return found

    async def glob(self, pattern: str) -> Sequence[str]:
        """Return the paths that a pattern means, the newest first."""
        found: Sequence[str] = await self._call("Workspace.Glob", {"Pattern": pattern})
        return found

    async def delete(self, path: str) -> None:
        """Remove a file or an empty folder."""
        await self._call("Workspace.Delete", {"Path": path})

    async def apply(self, paths: Sequence[str] | None = None, *, ask: bool = True) -> Mapping[str, Sequence[str]]:
        """Take changed files over into the folder that this is a copy of; a person chooses among them.

        They are written as they were shown, whatever has become of them meanwhile.
        Returned are the paths that were ``written``, were ``there`` already, and were ``left`` as they are.
        Hidden files and version-control metadata (``.git``) are left, unless `paths` or the person names them.

        Parameters
        ----------
        paths
            Of which files; by default of all.
        ask
            Whether a person chooses.

        Raises
        ------
        OperationError
            The folder has something else than the changes began with; nothing was written.
        """
        given = {"Ask": ask} if paths is None else {"Ask": ask, "Paths": [*paths]}
        found: Mapping[str, Sequence[str]] = await self._call("Workspace.Apply", given)
        return found
