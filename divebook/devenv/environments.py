"""The environments below one root: found by name, held by one process at a time, and who may use them."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divebook.devenv.configuration import Configuration
from divebook.devenv.containers import DockerIsolation
from divebook.devenv.isolation import Isolation, NativeIsolation, State
from divebook.devenv.layout import Layout, write_json
from divebook.devenv.locking import locked
from divebook.devenv.retrying import Retrying
from divebook.devenv.settings import RootSettings
from divebook.devenv.virtualenvs import VirtualenvIsolation
from divebook.errors import DevEnvError, DivebookError, EnvironmentDeniedError, EnvironmentNotFoundError

CREATING, REMOVING = HALF = ("creating", "removing")
"""The phases of an environment that is being made or removed, or whose maker or remover was killed."""
_GONE = ".gone-"
RUNNING, STOPPED, ERROR = STATUSES = ("running", "stopped", "error")
_KINDS: dict[str, type[Isolation]] = {
    "docker": DockerIsolation,
    "virtualenv": VirtualenvIsolation,
    "native": NativeIsolation,
}


@dataclass
class Environments:
    """The environments below one root, as one owner of one tenant sees them."""

    layout: Layout
    tenant: str
    owner: str
    wait: float
    now: Callable[[], str]
    retrying: Retrying

    @property
    def settings(self) -> RootSettings:
        """Return what holds for the root."""
        return RootSettings.read(self.layout.settings)

    def folders(self) -> list[Path]:
        """Return the folders of all environments, by name."""
        self.layout.require_own()
        return sorted(self.layout.environments.glob("[!.]*")) if self.layout.environments.is_dir() else []

    def found(self, name: str, *, phases: Collection[str] = ()) -> Path:
        """Return an environment's folder; raises `EnvironmentNotFoundError`, or `EnvironmentDeniedError`.

        One that is half made or half removed is not found, but in some phases.
        """
        folder = self.layout.environment(name)
        self.layout.require_own()
        state = self.state(folder) if folder.is_dir() else {}
        if not (folder / "state.json").exists() or state.get("phase") in {*HALF} - {*phases}:
            raise EnvironmentNotFoundError(f"there is no environment {name!r}: create it first")
        settings = self.settings
        if state.get("tenant", self.tenant) != self.tenant:
            if settings.hide_foreign:
                raise EnvironmentNotFoundError(f"there is no environment {name!r}: create it first")
            raise EnvironmentDeniedError(f"the environment {name!r} belongs to another tenant")
        if settings.owner_only and state.get("owner", self.owner) != self.owner:
            raise EnvironmentDeniedError(f"the environment {name!r} belongs to {state['owner']!r}")
        if state.get("error", {}).get("code") == EnvironmentDeniedError.exit_code:
            raise EnvironmentDeniedError(f"the state of {name!r} cannot be read: {state['error']['message']}")
        return folder

    @asynccontextmanager
    async def held(self, name: str, *, phases: Collection[str] = ()) -> AsyncIterator[Path]:
        """Hold an environment, and give its folder; raises as `found`, and `DevEnvError` if another process does."""
        self.found(name, phases=phases)
        async with self.lock(name):
            folder = self.found(name, phases=phases)
            self.adopt(folder)
            yield folder

    @asynccontextmanager
    async def lock(self, name: str, *, wait: float | None = None) -> AsyncIterator[None]:
        """Hold a name, whether or not there is an environment; others are waited for as usual, or some seconds."""
        self.layout.locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        seconds = self.wait if wait is None else wait
        async with locked(self.layout.locks / name.lower(), f"the environment {name!r}", wait=seconds):
            yield

    def state(self, folder: Path) -> State:
        """Return what is recorded of an environment; where that is damaged, a state that says so."""
        try:
            found: State = json.loads((folder / "state.json").read_text("utf-8"))
            _ = found["id"], found["status"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            code = EnvironmentDeniedError.exit_code if isinstance(error, PermissionError) else DevEnvError.exit_code
            told = {"code": code, "message": str(error), "at": self.now()}
            return {"name": folder.name, "status": "error", "tenant": self.tenant, "error": told}
        return found

    def tidy(self) -> None:
        """Remove the files of environments that are gone, where whoever removed them was killed."""
        for left in self.layout.environments.glob(f"{_GONE}*"):
            shutil.rmtree(left, ignore_errors=True)

    def begin(self, folder: Path, configuration: Configuration, state: State) -> None:
        """Have a folder for an environment that is being made."""
        folder.mkdir(mode=0o700)
        write_json(folder / "config.json", configuration)
        self.write(folder, state)

    def write(self, folder: Path, state: State) -> None:
        """Record the state of an environment."""
        write_json(folder / "state.json", state)

    def configuration(self, folder: Path) -> Configuration:
        """Return with what an environment was made."""
        try:
            found: Configuration = json.loads((folder / "config.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise DevEnvError(f"the configuration of {folder.name!r} cannot be read: {error}; destroy it") from error
        return found

    def isolation(self, folder: Path, state: State, configuration: Configuration | None = None) -> Isolation:
        """Return what keeps an environment apart; raises `DevEnvError` where its configuration is damaged."""
        said = self.configuration(folder) if configuration is None else configuration
        return _KINDS[said["isolation_type"]](folder, said, state, self.layout.secrets, self.retrying)

    async def remove(self, folder: Path, state: State, *, keeps_checkpoints: bool = False) -> None:
        """Remove an environment; its name is free at once, so that what a kill leaves blocks nobody."""
        if (folder / "config.json").exists() and "id" in state:
            isolation = self.isolation(folder, state)
            self.write(folder, {**state, "status": ERROR, "phase": REMOVING})
            try:
                await isolation.remove(keeps_checkpoints=keeps_checkpoints)
            except DivebookError:  # it is as it was: no engine has answered
                self.write(folder, state)
                raise
        self.forget(folder, state, keeps_checkpoints=keeps_checkpoints)

    def forget(self, folder: Path, state: State, *, keeps_checkpoints: bool = False) -> None:
        """Remove the folder of an environment, and nothing that it has elsewhere but a working folder of its own."""
        checkpoints, kept = folder / "checkpoints", self.layout.kept / state["tenant"] / folder.name
        if keeps_checkpoints and checkpoints.exists() and not kept.exists():
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            checkpoints.rename(kept)
        gone = folder.with_name(f"{_GONE}{secrets.token_hex(6)}")
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        if state.get("owns_working_dir"):
            shutil.rmtree(state["working_dir"], ignore_errors=True)

    def adopt(self, folder: Path) -> None:
        """Have an environment's checkpoints those that were kept when another one of its name was destroyed."""
        kept = self.layout.kept / self.tenant / folder.name
        if kept.is_dir() and not (folder / "checkpoints").exists():
            kept.rename(folder / "checkpoints")

    def error_state(self, state: State, error: DivebookError) -> State:
        """Return a state that says what went wrong."""
        told: dict[str, Any] = {
            "code": getattr(error, "exit_code", DevEnvError.exit_code),
            "message": str(error),
            "at": self.now(),
        }
        return {**state, "status": "error", "error": told}
