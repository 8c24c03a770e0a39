"""How environments are kept apart from this machine: what all kinds have in common, and the one that does not."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from divebook.devenv.configuration import Configuration
from divebook.devenv.interpolating import at_start, is_secret
from divebook.devenv.retrying import Retrying
from divebook.devenv.usage import MARK, ResourceUsage, end_processes, marked_processes, size_of, use_of_processes
from divebook.errors import DevEnvError
from divebook.workspace.commands import terminal
from divebook.workspace.local import LocalWorkspace
from divebook.workspace.shell import Command

State = dict[str, Any]
Artefacts = Mapping[str, Mapping[str, Any]]
"""What a checkpoint has, by its kind."""
PASSED_ON = ("PATH", "HOME", "LANG", "TERM", "TMPDIR")
"""Variables of this process that commands on this machine get; they get no others."""
ENFORCED, CHECKED, ADVISORY = "enforced", "checked", "advisory"
NO_BOUNDARY = "commands run as you, and may reach all that you may: this is no security boundary"


class CommandManner(NamedTuple):
    """How commands are run for once."""

    user: str | None = None
    """As whom; None for the environment's own."""
    terminal: tuple[int, int] | None = None
    """The rows and columns of the terminal that they find; None for none."""
    has_secrets: bool = True
    """Whether they get the secrets, which are hidden in what they print."""


USUAL = CommandManner()


@dataclass
class Isolation(ABC):
    """What keeps one environment apart.

    Parameters
    ----------
    folder
        Of the environment.
    configuration
        As it was resolved when the environment was made.
    state
        What is recorded of it; `build` and `put_back` return what is to be recorded anew.
    secrets
        The folder with a file for each secret.
    """

    folder: Path
    configuration: Configuration
    state: State
    secrets: Path
    retrying: Retrying

    enforcement: ClassVar[Mapping[str, str]] = {"cpu": ADVISORY, "memory": ADVISORY, "disk": CHECKED}
    """How each limit is kept."""
    warning: ClassVar[str | None] = NO_BOUNDARY

    @property
    def section(self) -> Mapping[str, Any]:
        """Return what is configured for this kind."""
        found: Mapping[str, Any] = self.configuration[self.configuration["isolation_type"]]
        return found

    def text(self, said: str) -> str:
        """Return a configured text with what is looked up now."""
        return at_start(said, self.secrets)

    # --- its life --------------------------------------------------------------------------------------------------

    def planned(self) -> State:
        """Return what is recorded before it is made; raises `DevEnvError` for what cannot be."""
        return {}

    @abstractmethod
    async def build(self) -> State:
        """Make it; return what is to be recorded."""

    async def start(self) -> None:  # noqa: B027 - many need nothing to be started
        """Have it ready for commands."""

    async def stop(self) -> None:
        """End its commands."""
        await asyncio.to_thread(end_processes, self.state["id"])

    async def status(self) -> str:
        """Return its status as it is found; by default as it is recorded."""
        return str(self.state["status"])

    async def is_gone(self) -> bool:
        """Return whether something else has removed it, so that only a checkpoint has it."""
        return False

    async def remove(self, *, keeps_checkpoints: bool = False) -> None:
        """Remove what is not in its folder, but for what checkpoints have; twice is once."""
        _ = keeps_checkpoints
        await asyncio.to_thread(end_processes, self.state["id"])

    async def is_busy(self) -> bool:
        """Return whether commands run in it."""
        return bool(await asyncio.to_thread(marked_processes, self.state["id"]))

    # --- commands --------------------------------------------------------------------------------------------------

    @abstractmethod
    def workspace(self, manner: CommandManner = USUAL) -> LocalWorkspace:
        """Return the workspace in which its commands run, to be entered."""

    def asked(self, command: Command, manner: CommandManner) -> Command:
        """Return a command as its workspace is to run it; raises `DevEnvError` for what cannot be.

        By default it runs on this machine: as whoever asks, in a terminal that a program beside it makes.
        """
        if manner.user not in (None, getpass.getuser(), str(os.getuid())):
            kind = self.state["isolation_type"]
            raise DevEnvError(
                f"--user {manner.user}: commands of {kind} environments run as you; a container has users"
            )
        if manner.terminal is None:
            return command
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        return [sys.executable, "-I", "-S", terminal.__file__, *map(str, manner.terminal), *words]

    def host_variables(self) -> dict[str, str]:
        """Return what commands get of this process's variables."""
        return {name: os.environ[name] for name in PASSED_ON if name in os.environ}

    def variables(self) -> dict[str, str]:
        """Return the environment's own variables, but for secrets; its workspace has them all."""
        said: Mapping[str, str] = self.section.get("env", {})
        plain = {name: self.text(text) for name, text in said.items() if not is_secret(text)}
        return {MARK: self.state["id"], **plain}

    def secret_variables(self) -> dict[str, str]:
        """Return the variables that name secrets, looked up now."""
        said: Mapping[str, str] = self.section.get("env", {})
        return {name: self.text(text) for name, text in said.items() if is_secret(text)}

    def secrets_for(self, manner: CommandManner) -> Callable[[], Mapping[str, str]] | None:
        """Return what looks up the variables that name secrets; None where commands get none."""
        return self.secret_variables if manner.has_secrets else None

    @property
    def inherits(self) -> bool:
        """Return whether commands get the variables of the place where they run."""
        return False

    async def memory_kills(self, workspace: LocalWorkspace) -> int:
        """Return how many processes its memory limit has ended since it was started; `workspace` is entered."""
        _ = workspace
        return 0

    # --- checkpoints and use ---------------------------------------------------------------------------------------

    @abstractmethod
    def folders(self) -> dict[str, Path]:
        """Return the folders with its files, by the names that checkpoints give them."""

    def mounts(self) -> dict[str, Path]:
        """Return folders of the person's own that it sees."""
        return {}

    async def keep(self, folder: Path, checkpoint: str) -> list[dict[str, Any]]:
        """Keep what is not in its folders, for a checkpoint; return its artefacts (kind, path or image, sha256)."""
        _ = folder, checkpoint
        return []

    async def export(self, folder: Path, artefacts: Artefacts) -> list[dict[str, Any]]:
        """Add what another machine needs to put back what `keep` has kept; return the artefacts of that."""
        _ = folder, artefacts
        return []

    async def require(self, folder: Path, artefacts: Artefacts) -> None:  # noqa: B027 - files are looked at by who asks
        """Raise `DevEnvError` unless what `keep` has kept is still there; the environment is not changed."""

    async def put_back(self, folder: Path, artefacts: Artefacts) -> State:
        """Restore what `keep` has kept; return what is to be recorded.

        Raises
        ------
        NotReplacedError
            It could not be restored, and the environment is as it was.
        DevEnvError, ContainerError
            It could not be restored, and nothing is known of the environment.
        """
        _ = folder, artefacts
        return {}

    async def forget_but(self, kept: Iterable[Artefacts]) -> None:  # noqa: B027 - what lies in folders goes with them
        """Remove what checkpoints have outside their folders, but for those that are still there."""

    async def use(self) -> ResourceUsage:
        """Measure what it uses now."""
        cpu, memory = await asyncio.to_thread(use_of_processes, self.state["id"])
        return ResourceUsage(cpu, memory, await asyncio.to_thread(self.disk))

    def disk(self) -> int:
        """Return the bytes of its files."""
        return size_of(self.folder)


class NativeIsolation(Isolation):
    """A folder of this machine, without isolation."""

    def planned(self) -> State:
        """Return the folder, and whether it is made with the environment, and so goes with it."""
        working = Path(os.path.realpath(self.text(self.section["working_dir"])))
        owns = not working.exists() and not working.is_relative_to(self.folder)
        return {"working_dir": str(working), "owns_working_dir": owns}

    @property
    def _working(self) -> Path:
        return Path(self.state["working_dir"])

    async def build(self) -> State:
        """Make the folder, if it is not there."""
        try:
            self._working.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DevEnvError(f"native.working_dir: {self._working} cannot be made: {error}") from error
        return {}

    def workspace(self, manner: CommandManner = USUAL) -> LocalWorkspace:
        """Return the folder as a workspace."""
        return LocalWorkspace(self._working, environ=self.variables(), secrets=self.secrets_for(manner))

    def folders(self) -> dict[str, Path]:
        """Return the folder."""
        return {"work": self._working}

    def disk(self) -> int:
        """Return the bytes of the files in the folder."""
        return size_of(self._working)
