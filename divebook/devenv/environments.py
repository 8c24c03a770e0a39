"""Storage of development environments below one root folder: look-up by name, permissions, recorded states, and locks
between processes.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divebook.devenv.docker import DockerIsolation
from divebook.devenv.isolation import Isolation, NativeIsolation, State, VirtualenvIsolation
from divebook.devenv.templates import Configuration, Layout, Retrying, RootSettings, write_json
from divebook.errors import DevEnvError, DivebookError, EnvironmentDeniedError, EnvironmentNotFoundError
from divebook.workspaces.locks import open_locked, release

WAIT = 30.0
"""Seconds to wait for a lock, unless the caller sets another time."""


@asynccontextmanager
async def locked(path: Path, subject: str, *, wait: float = WAIT) -> AsyncIterator[None]:
    """Hold the lock file `path` during the ``with`` block. Raise `DevEnvError` if another process holds it for more
    than `wait` seconds, or if it cannot be locked. The error calls the locked object `subject`.

    The kernel releases the lock of a process that is killed.
    """
    # An environment that an earlier version locks with the library filelock is busy here, and the other way round: on
    # Linux and macOS, the library calls `flock` on the same file.
    try:
        descriptor = await open_locked(path, wait)
    except OSError as error:
        raise DevEnvError(f"{path} cannot be locked: {error.strerror}; use another root") from error
    if descriptor is None:
        raise DevEnvError(f"{subject} is in use by another process; to wait longer, use --wait SECONDS")
    try:
        yield
    finally:
        release(descriptor)


_DELETED_PREFIX = ".gone-"


def discard(folder: Path) -> None:
    """Delete the folder of an environment or of a checkpoint.

    It is renamed first: its name is free at once, and a kill leaves no partly deleted folder that would be listed or
    taken for a complete one.
    """
    deleted = folder.with_name(f"{_DELETED_PREFIX}{secrets.token_hex(6)}")
    folder.rename(deleted)
    shutil.rmtree(deleted, ignore_errors=True)


def delete_discarded(parent: Path) -> None:
    """Delete the folders below `parent` whose deletion by `discard` was interrupted."""
    for deleted in parent.glob(f"{_DELETED_PREFIX}*"):
        shutil.rmtree(deleted, ignore_errors=True)


CREATING = "creating"
REMOVING = "removing"
UNFINISHED = (CREATING, REMOVING)
"""Phases of an environment that is not usable: it is being created or removed, or that was interrupted by a kill."""
RUNNING = "running"
STOPPED = "stopped"
ERROR = "error"
STATUSES = (RUNNING, STOPPED, ERROR)
_KINDS: dict[str, type[Isolation]] = {
    "docker": DockerIsolation,
    "virtualenv": VirtualenvIsolation,
    "native": NativeIsolation,
}


@dataclass
class Environments:
    """All development environments below one root folder, as one user (`owner`) of one tenant may access them."""

    layout: Layout
    tenant: str
    owner: str
    wait: float
    now: Callable[[], str]
    retrying: Retrying

    @property
    def settings(self) -> RootSettings:
        """Return the settings of the root folder. They are read from the file at each access."""
        return RootSettings.read(self.layout.settings)

    def folders(self) -> list[Path]:
        """Return the folders of all environments, sorted by name."""
        self.layout.require_own()
        # Names that begin with a dot are internal: locks, kept checkpoints, and removed environments.
        return sorted(self.layout.environments.glob("[!.]*")) if self.layout.environments.is_dir() else []

    def folder_of(self, name: str, *, phases: Collection[str] = ()) -> Path:
        """Return the folder of the environment with this name.

        An environment that is being created or removed counts as absent, except in `phases`.

        Raises
        ------
        EnvironmentNotFoundError
            The environment does not exist, or it belongs to another tenant and the settings hide other tenants.
        EnvironmentDeniedError
            The environment belongs to another tenant or owner, or its state cannot be read.
        """
        folder = self.layout.environment(name)
        self.layout.require_own()
        state = self.state(folder) if folder.is_dir() else {}
        # A folder without a state was left by a creation that was killed before it wrote the state.
        if not (folder / "state.json").exists() or state.get("phase") in {*UNFINISHED} - {*phases}:
            raise EnvironmentNotFoundError(f"there is no environment {name!r}; create it first")
        settings = self.settings
        if state.get("tenant", self.tenant) != self.tenant:
            if settings.hide_foreign:
                raise EnvironmentNotFoundError(f"there is no environment {name!r}; create it first")
            raise EnvironmentDeniedError(f"the environment {name!r} belongs to another tenant")
        if settings.owner_only and state.get("owner", self.owner) != self.owner:
            raise EnvironmentDeniedError(f"the environment {name!r} belongs to {state['owner']!r}")
        if state.get("error", {}).get("code") == EnvironmentDeniedError.exit_code:
            raise EnvironmentDeniedError(
                f"the state of environment {name!r} cannot be read: {state['error']['message']}"
            )
        return folder

    @asynccontextmanager
    async def hold(self, name: str, *, phases: Collection[str] = ()) -> AsyncIterator[Path]:
        """Lock an environment during the ``with`` block, so that no other process changes it, and yield its folder.

        Raises the errors of `folder_of`, and `DevEnvError` if the environment stays locked.
        """
        self.folder_of(name, phases=phases)
        # Looked up before, since the caller must not wait for the lock of an environment that it may not use, and again
        # after, since another process may have removed the environment meanwhile.
        async with self.lock(name):
            folder = self.folder_of(name, phases=phases)
            self.adopt_checkpoints(folder)
            yield folder

    @asynccontextmanager
    async def lock(self, name: str, *, wait: float | None = None) -> AsyncIterator[None]:
        """Hold the lock for an environment's name during the ``with`` block, so that no other process creates, changes
        or removes an environment of that name.

        No environment of that name needs to exist. `wait` is in seconds; None means the `wait` of this object.
        """
        self.layout.locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        seconds = self.wait if wait is None else wait
        # File systems may ignore case, so that "App" and "app" would have the same folder.
        async with locked(self.layout.locks / name.lower(), f"the environment {name!r}", wait=seconds):
            yield

    def state(self, folder: Path) -> State:
        """Return the recorded state of the environment in a folder. If the state cannot be read, return one with the
        status ``error`` and the reason.
        """
        try:
            state: State = json.loads((folder / "state.json").read_text("utf-8"))
            # Every state has these. A file without them counts as damaged.
            _ = state["id"], state["status"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            code = EnvironmentDeniedError.exit_code if isinstance(error, PermissionError) else DevEnvError.exit_code
            # The tenant of a damaged state is unknown. It counts as the tenant that looks, who can then destroy it.
            failure = {"code": code, "message": str(error), "at": self.now()}
            return {"name": folder.name, "status": "error", "tenant": self.tenant, "error": failure}
        return state

    def tidy(self) -> None:
        """Delete the files of environments whose removal was interrupted."""
        delete_discarded(self.layout.environments)

    def create_folder(self, folder: Path, configuration: Configuration, state: State) -> None:
        """Create the folder of a new environment and write its configuration and state."""
        folder.mkdir(mode=0o700)
        write_json(folder / "config.json", configuration)
        self.write(folder, state)

    def write(self, folder: Path, state: State) -> None:
        """Write the state of an environment to its file ``state.json``."""
        write_json(folder / "state.json", state)

    def configuration(self, folder: Path) -> Configuration:
        """Return the configuration with which an environment was created. Raise `DevEnvError` if its file cannot be
        read.
        """
        try:
            result: Configuration = json.loads((folder / "config.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise DevEnvError(
                f"the configuration of environment {folder.name!r} cannot be read: {error}; destroy the environment"
            ) from error
        return result

    def isolation(self, folder: Path, state: State, configuration: Configuration | None = None) -> Isolation:
        """Create the object that isolates an environment (an `Isolation`) from the environment's configuration and
        recorded state.

        Raises `DevEnvError` if the configuration is damaged.
        """
        settings = self.configuration(folder) if configuration is None else configuration
        return _KINDS[settings["isolation_type"]](folder, settings, state, self.layout.secrets, self.retrying)

    async def remove(self, folder: Path, state: State, *, keeps_checkpoints: bool = False) -> None:
        """Remove an environment: its container or other isolation, its folder, and its checkpoints unless
        `keeps_checkpoints` is true.

        The phase ``removing`` is recorded first. If this process is killed, the name is free all the same, and the next
        process removes the rest.
        """
        # `create_folder` writes both before anything outside the folder is created.
        if (folder / "config.json").exists() and "id" in state:
            isolation = self.isolation(folder, state)
            self.write(folder, {**state, "status": ERROR, "phase": REMOVING})
            try:
                await isolation.remove(keeps_checkpoints=keeps_checkpoints)
            except DivebookError:  # no engine answered, so nothing was removed
                self.write(folder, state)
                raise
        self.forget(folder, state, keeps_checkpoints=keeps_checkpoints)

    def forget(self, folder: Path, state: State, *, keeps_checkpoints: bool = False) -> None:
        """Remove the folder of an environment, and its working folder if that was created together with the
        environment. If `keeps_checkpoints` is true, the checkpoints are moved to another folder first.

        Nothing else is removed.
        """
        checkpoints = folder / "checkpoints"
        target = self.layout.destroyed_checkpoints / state["tenant"] / folder.name
        # Checkpoints that are kept from an earlier environment of this name are not replaced.
        if keeps_checkpoints and checkpoints.exists() and not target.exists():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            checkpoints.rename(target)
        discard(folder)
        if state.get("owns_working_dir"):
            shutil.rmtree(state["working_dir"], ignore_errors=True)

    def adopt_checkpoints(self, folder: Path) -> None:
        """Give an environment the checkpoints that were kept when an earlier environment of the same name was
        destroyed. Do nothing if there are none, or if the environment has its own.
        """
        checkpoints = self.layout.destroyed_checkpoints / self.tenant / folder.name
        if checkpoints.is_dir() and not (folder / "checkpoints").exists():
            checkpoints.rename(folder / "checkpoints")

    def error_state(self, state: State, error: DivebookError) -> State:
        """Return a copy of an environment's state with the status ``error``, and with code, message and time of the
        error.
        """
        failure: dict[str, Any] = {
            "code": getattr(error, "exit_code", DevEnvError.exit_code),
            "message": str(error),
            "at": self.now(),
        }
        return {**state, "status": "error", "error": failure}
