"""The shell of a container: commands run inside, with the semantics of the local one."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from divebook.errors import ContainerError, EngineUnavailableError, PathNotAllowedError, ShellExecutionError
from divebook.workspace.instructions import mount_instructions, shell_instructions
from divebook.workspace.shell import AskedCommand, Shell, ShellResult, made_result, output_keeper, without_secrets

if TYPE_CHECKING:
    from divebook.workspace.docker.engine import Engine

NOTE = "Commands run in a container, which sees of this machine only the mounted folders."


class DockerShell(Shell):
    """Runs commands in a container.

    What is absolute in a command or in `cwd` is the container's own; a relative `cwd` is below `workdir`.

    Parameters
    ----------
    engine, container
        Where commands run.
    workdir, folder
        Where they begin, and the folder of this machine that is mounted there.
    scratch
        Returns the folder for output that is too long, and its name inside; None drops what is in its middle.
    user
        As whom commands run; by default as whom the container does.
    terminal
        The rows and columns of the terminal that commands find; None for none.
    """

    def __init__(
        self,
        engine: Engine,
        container: str,
        workdir: str,
        folder: str,
        *,
        scratch: Callable[[], tuple[str, str] | None] = lambda: None,
        user: str | None = None,
        terminal: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._user, self._terminal = user, terminal
        self._engine, self._container, self._workdir, self._folder = engine, container, workdir, folder
        self._scratch = scratch

    async def _run(self, asked: AskedCommand) -> ShellResult:
        command = asked.command
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        shown = command if isinstance(command, str) else " ".join(command)
        environ = asked.environ
        if self._terminal is not None:  # an image without stty has a terminal of no size
            size = 'stty rows "$1" cols "$2" 2>/dev/null; shift 2; exec "$@"'
            argv = ["/bin/sh", "-c", size, "sh", *map(str, self._terminal), *argv]
        if not asked.inherit_env:
            argv, environ = ["env", "-i", *(f"{name}={value}" for name, value in environ.items()), *argv], {}
        scratch = self._scratch()
        kept = output_keeper(self.output_limit, None if scratch is None else scratch[0])
        out, err = kept("stdout"), kept("stderr")
        try:
            ended = await self._engine.execute(
                self._container,
                argv,
                workdir=self._inside(asked.cwd),
                environ=environ,
                seconds=asked.seconds,
                out=out,
                err=err,
                stdin=asked.stdin,
                listen=asked.listen,
                begun=asked.begun,
                undecodable=asked.undecodable,
                user=self._user,
                terminal=self._terminal is not None,
            )
        except (ContainerError, EngineUnavailableError) as error:
            raise ShellExecutionError(without_secrets(shown), str(error)) from error
        result = made_result(ended.code, out, err, timed_out=ended.timed_out, duration=ended.seconds)
        if scratch is not None:
            result.stdout_file, result.stderr_file = (
                None if path is None else path.replace(*scratch, 1) for path in (result.stdout_file, result.stderr_file)
            )
        return result

    def _inside(self, cwd: str | None) -> str:
        """Return the folder in which a command begins."""
        if cwd is None:
            return self._workdir
        path = posixpath.normpath(posixpath.join(self._workdir, cwd))
        if not cwd.startswith("/") and path != self._workdir and not path.startswith(f"{self._workdir.rstrip('/')}/"):
            raise PathNotAllowedError(cwd, "leads above the root by ..", [self._workdir])
        return path

    async def get_context_instructions(self) -> str | None:
        """Return the folder with its mount, the limit of time, and what bounds commands."""
        told = shell_instructions(self._workdir, self.default_timeout, NOTE)
        return f"{mount_instructions(self._folder, self._workdir)}\n\n{told}"

    async def close(self) -> None:
        """Let go of the container, with what its commands have not ended."""
        await self._engine.leave(self._container)
