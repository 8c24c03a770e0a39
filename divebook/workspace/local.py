"""A workspace on this machine: a folder, and commands that run as the person whose process this is."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from divebook.errors import WorkspaceGoneError, WorkspaceNotEnteredError
from divebook.workspace.commands.reapers import Reapers
from divebook.workspace.files import LocalFileOperator
from divebook.workspace.given import several
from divebook.workspace.instructions import file_instructions, shell_instructions
from divebook.workspace.paths import Root
from divebook.workspace.policy import Guard, PathPolicy
from divebook.workspace.resources import ResourceFactory, SavedResources
from divebook.workspace.shell import DEFAULT_TIMEOUT, LocalShell, Shell
from divebook.workspace.workspace import Workspace

NO_FENCE = "Commands run as the user of this machine and may reach beyond the directory: a local shell is no sandbox."


class _Files(LocalFileOperator):
    """The files of a local workspace, which are told to agents as a tree."""

    async def get_context_instructions(self) -> str | None:
        folders = [root.name for root in self.policy.roots if root.name != self.tmp_dir]
        return await asyncio.to_thread(file_instructions, self.disk, folders, self.tmp_dir)


class ToldShell(LocalShell):
    """The shell of a local workspace."""

    note, folder = NO_FENCE, ""
    _activated: Callable[[Mapping[str, str]], dict[str, str]] = dict

    def activate(self, activated: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        """Have the variables that commands inherit changed."""
        self._activated = activated

    def _inherited(self) -> dict[str, str]:
        return self._activated(super()._inherited())

    async def get_context_instructions(self) -> str | None:
        """Return the folder, the limit of time, and what bounds commands."""
        return shell_instructions(self.folder, self.default_timeout, self.note)


class LocalWorkspace(Workspace):
    """Files of folders on this machine, and commands that run there.

    Commands may do whatever the person may do whose process this is: that is no security boundary. For one, see
    `FencedWorkspace` and `DockerWorkspace`.

    Parameters
    ----------
    default_path
        The folder that relative paths are of, and in which commands start; by default the current one. It must exist.
    allowed_paths
        Other folders whose files may be reached.
    shell_timeout
        Seconds that a command may take which says nothing else.
    tmp_base_dir
        Where the folder for what is passing is made.
    enable_tmp_dir
        Whether there is such a folder.
    environ, secrets
        Variables of all commands; those of `secrets` are hidden in what they print.
    openat2
        Whether the kernel opens files; by default if it can.
    guard
        Refuses files of the folders all the same; see `divebook.workspace.policy.PathPolicy`. Commands do not ask it.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> async def listed(folder):
    ...     async with LocalWorkspace(default_path=folder) as workspace:
    ...         await workspace.file_operator.write_file("a.txt", "text")
    ...         return (await workspace.shell.execute("ls")).stdout.split()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(listed(folder))
    ['a.txt']
    """

    kind: ClassVar[str] = "local"

    def __init__(
        self,
        default_path: str | Path | None = None,
        *,
        allowed_paths: Sequence[str | Path] = (),
        shell_timeout: float = DEFAULT_TIMEOUT,
        tmp_base_dir: str | Path | None = None,
        enable_tmp_dir: bool = True,
        environ: Mapping[str, str] | None = None,
        secrets: Callable[[], Mapping[str, str]] | None = None,
        resource_state: SavedResources | None = None,
        resource_factories: Mapping[str, ResourceFactory] | None = None,
        openat2: bool | None = None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__(resource_state, resource_factories)
        self._default, self._allowed = (
            Path(default_path or Path.cwd()).resolve(),
            [Path(path).resolve() for path in several(allowed_paths, "allowed_paths")],
        )
        self._shell_timeout, self._environ, self._secrets = shell_timeout, environ, secrets
        self._tmp_base, self._has_tmp, self._openat2 = tmp_base_dir, enable_tmp_dir, openat2
        self._guard = guard
        self._scratch: str | None = None

    async def _setup(self) -> None:
        policy = self._policy()
        self._shell = self._make_shell(policy)

    def _policy(self) -> PathPolicy:
        """Return the folders that may be reached, with that for what is passing; its files are there by then."""
        if not os.path.isdir(self._default):
            raise WorkspaceGoneError(f"the folder {self._default} of a workspace is not there: make it first")
        if self._has_tmp and self._tmp_base is not None and not os.path.isdir(self._tmp_base):
            raise WorkspaceGoneError(f"tmp_base_dir {self._tmp_base} of a workspace is not there: make it first")
        policy = PathPolicy(self._rooted(str(self._default)), guard=self._guard)
        self._file_operator = files = _Files(policy)
        for folder in self._allowed:
            if not folder.is_dir():
                raise WorkspaceGoneError(f"the allowed folder {folder} of a workspace is not there: make it first")
            if folder != self._default:
                policy.add(self._rooted(str(folder)))
        if self._has_tmp:
            self._scratch = os.path.realpath(tempfile.mkdtemp(prefix="divebook-", dir=self._tmp_base))
            scratch = self._rooted(self._scratch)
            policy.add(scratch)
            files.tmp_dir = scratch.name
        return policy

    def _rooted(self, folder: str) -> Root:
        """Return a folder that may be reached; other kinds give it another name."""
        return Root(folder, openat2=self._openat2)

    def _make_shell(self, policy: PathPolicy) -> Shell:
        """Return the shell; other kinds of workspaces on this machine have others."""
        return self._shell_with(policy, None)

    def _shell_with(self, policy: PathPolicy, reapers: Reapers | None) -> ToldShell:
        """Return a shell whose commands are run by some reapers; None for those of its own."""
        shell = ToldShell(
            policy.folder,
            reapers=reapers,
            scratch=lambda: self._scratch,
            default_timeout=self._shell_timeout,
            environ=self._environ,
            secrets=self._secrets,
        )
        shell.folder = policy.default.name
        return shell

    async def _teardown(self) -> None:
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    @property
    def root(self) -> Root:
        """The folder with its files."""
        if not isinstance(self._file_operator, LocalFileOperator):
            raise WorkspaceNotEnteredError("Environment not entered: a workspace has a folder while it is entered")
        return self._file_operator.policy.default

    @property
    def reference(self) -> dict[str, Any]:
        """The folder."""
        return {"folder": str(self._default)}


LocalEnvironment = LocalWorkspace
"""The name of `LocalWorkspace` in the pai-agent-sdk."""
