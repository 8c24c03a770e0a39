"""A workspace without commands: the files of a folder, for definitions that say ``Shell: false``."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from divebook.errors import ShellExecutionError
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.policy import PathPolicy
from divebook.workspace.shell import AskedCommand, Shell


class FilesWorkspace(LocalWorkspace):
    """Files of folders on this machine. It starts no program, so it also has no container and installs no packages."""

    kind: ClassVar[str] = "files"

    def _make_shell(self, policy: PathPolicy) -> Shell:  # noqa: ARG002 - no command starts in any folder
        return _NoShell()


class _NoShell(Shell):
    async def _run(self, asked: AskedCommand) -> NoReturn:
        command = asked.command if isinstance(asked.command, str) else " ".join(asked.command)
        raise ShellExecutionError(command, "the workspace has files only: its definition says Shell: false")

    async def close(self) -> None:
        """Do nothing: no program runs."""
