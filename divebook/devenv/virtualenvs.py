"""Environments with a Python of their own: a workspace with a virtual environment, and its lock file."""

from __future__ import annotations

import os
import re
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

from divebook.devenv.isolation import USUAL, Artefacts, CommandManner, Isolation, State
from divebook.errors import DevEnvError, ShellExecutionError
from divebook.workspace.virtualenv import VirtualenvWorkspace

_PYTHON = re.compile(r"python(3\.\d+)")
LOCK, LOCK_FILE = "lock", "requirements.txt"


def found_pythons() -> list[str]:
    """Return the versions of the Pythons that can be named here, the newest first."""
    found = set()
    for folder in os.get_exec_path():
        names = (_PYTHON.fullmatch(path.name) for path in Path(folder).glob("python3.*"))
        found |= {match[1] for match in names if match is not None and shutil.which(match.string)}
    return sorted(found, key=lambda version: int(version.partition(".")[2]), reverse=True)


class VirtualenvIsolation(Isolation):
    """A virtual environment and a folder, both in the environment's own folder."""

    def planned(self) -> State:
        """Return where the virtual environment lies; raises `DevEnvError` for a Python that is not here."""
        version = self.section["python_version"]
        if shutil.which("uv") is None and shutil.which(f"python{version}") is None:
            found = ", ".join(found_pythons()) or "none"
            raise DevEnvError(f"virtualenv.python_version: there is no Python {version} here, but {found}; uv has all")
        return {"virtualenv_path": str(self._path)}

    @property
    def _path(self) -> Path:
        return self.folder / "venv"

    async def build(self) -> State:
        """Make the virtual environment, and install what is configured."""
        (self.folder / "work").mkdir(exist_ok=True)

        async def make() -> None:
            async with self.workspace():
                pass

        try:
            await self.retrying(make)
        except ShellExecutionError as error:
            raise DevEnvError(str(error)) from error
        return {}

    def workspace(self, manner: CommandManner = USUAL) -> VirtualenvWorkspace:
        """Return the folder as a workspace with the virtual environment."""
        return VirtualenvWorkspace(
            self.folder / "work",
            python=self.section["python_version"],
            packages=self.section.get("packages", ()),
            venv_path=self._path,
            environ=self.variables(),
            secrets=self.secrets_for(manner),
        )

    def host_variables(self) -> dict[str, str]:
        """Return what commands get of this process's variables, with the virtual environment in front."""
        return self.workspace().activated(super().host_variables())

    def folders(self) -> dict[str, Path]:
        """Return the folder in which commands run; the virtual environment comes from its lock file."""
        return {"work": self.folder / "work"}

    async def keep(self, folder: Path, checkpoint: str) -> list[dict[str, Any]]:
        """Write what is installed as a file of requirements."""
        _ = checkpoint
        text = "".join(f"{line}\n" for line in await self._installed())
        (folder / LOCK_FILE).write_text(text, encoding="utf-8")
        return [{"kind": LOCK, "path": LOCK_FILE, "sha256": sha256(text.encode()).hexdigest()}]

    async def _installed(self) -> list[str]:
        async with self.workspace() as workspace:
            return await workspace.requirements()

    async def put_back(self, folder: Path, artefacts: Artefacts) -> State:
        """Install what was installed then, and nothing else."""
        wanted = (folder / artefacts[LOCK]["path"]).read_text("utf-8").splitlines()
        if await self._installed() == wanted:
            return {}

        async def install() -> None:
            async with self.workspace() as workspace:
                await workspace.install(wanted)

        try:
            await self.retrying(install)
        except ShellExecutionError as error:
            raise DevEnvError(str(error)) from error
        if (found := await self._installed()) != wanted:
            other = ", ".join(sorted(set(found) ^ set(wanted)))
            raise DevEnvError(f"what is installed is not what it was, but differs in {other}")
        return {}
