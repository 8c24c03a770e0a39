"""A workspace with a Python environment of its own: made by uv where that is found, and else by venv and pip."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from divebook.errors import ShellExecutionError
from divebook.workspace.given import several
from divebook.workspace.local import LocalWorkspace, ToldShell
from divebook.workspace.policy import PathPolicy

_READY = "divebook-ready"
"""A file in the environment, once all is installed: one that was left half made is made anew."""


class VirtualenvWorkspace(LocalWorkspace):
    """Files of folders on this machine, and commands with a Python environment of their own.

    The environment lies beside the folder and stays, so that it is there when the workspace is entered again.

    Parameters
    ----------
    default_path
        The folder, as of `LocalWorkspace`, whose other parameters it has too.
    python
        The Python to use: a version (``3.12``) or a path; by default this one.
    packages
        What is installed into it at first.
    venv_path
        Where it lies; by default beside the folder, under its name and ``.venv``.
    """

    kind: ClassVar[str] = "virtualenv"

    def __init__(
        self,
        default_path: str | Path | None = None,
        *,
        python: str | None = None,
        packages: Sequence[str] = (),
        venv_path: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(default_path, **options)
        self._python, self._packages = python, several(packages, "packages")
        self.venv_path = (
            Path(venv_path) if venv_path is not None else self._default.with_name(f"{self._default.name}.venv")
        )

    async def _setup(self) -> None:
        await super()._setup()
        if not await asyncio.to_thread((self.venv_path / _READY).exists):
            await self._make()

    async def _make(self) -> None:
        """Make the environment, and install what is to be there."""
        await asyncio.to_thread(shutil.rmtree, self.venv_path, ignore_errors=True)
        place, uv = str(self.venv_path), shutil.which("uv")
        if uv is not None:
            made = [uv, "venv", "--quiet", *(["--python", self._python] if self._python else []), place]
            install = [uv, "pip", "install", "--quiet", "--python", f"{place}/bin/python", *self._packages]
        else:
            made = [_interpreter(self._python), "-m", "venv", place]
            install = [f"{place}/bin/python", "-m", "pip", "install", "--quiet", *self._packages]
        for command in (made, install) if self._packages else (made,):
            found = await self.shell.execute(command, timeout=float("inf"))
            if found.exit_code:
                told = found.stderr.strip()[-2000:] or found.stdout.strip()[-2000:]
                raise ShellExecutionError(" ".join(command), f"the environment {place} cannot be made: {told}")
        await asyncio.to_thread((self.venv_path / _READY).touch)

    async def requirements(self) -> list[str]:
        """Return what is installed, a requirement each: `install` of these has the same again."""
        return (await self._pip(["freeze", "--all"], "freeze")).splitlines()

    async def install(self, requirements: Sequence[str]) -> None:
        """Have these requirements installed, and nothing else; raises `ShellExecutionError`."""
        extra = sorted({_project(line) for line in await self.requirements()} - set(map(_project, requirements)))
        if requirements:
            await self._pip(["install", "--quiet", *requirements], "install")
        if extra:
            await self._pip(["uninstall", "--quiet", "--yes", *extra], "uninstall")

    async def _pip(self, words: Sequence[str], verb: str) -> str:
        """Return what pip prints, or uv in its place."""
        python, uv = f"{self.venv_path}/bin/python", shutil.which("uv")
        own = [word for word in words[1:] if word not in ("--all", "--yes")]
        command = [python, "-m", "pip", *words] if uv is None else [uv, "pip", verb, "--python", python, *own]
        found = await self.shell.execute(command, timeout=float("inf"))
        if found.exit_code:
            told = found.stderr.strip()[-2000:] or found.stdout.strip()[-2000:]
            raise ShellExecutionError(" ".join(command), f"the environment {self.venv_path} cannot be changed: {told}")
        return found.stdout

    def _make_shell(self, policy: PathPolicy) -> ToldShell:
        shell = self._shell_with(policy, None)
        shell.activate(self.activated)
        return shell

    def activated(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of commands with the environment in front."""
        programs = f"{self.venv_path}/bin"
        told = {name: value for name, value in environ.items() if name != "PYTHONHOME"}
        path = told.get("PATH", "")
        return {**told, "VIRTUAL_ENV": str(self.venv_path), "PATH": f"{programs}:{path}" if path else programs}

    @property
    def reference(self) -> dict[str, Any]:
        """The folder, and where its environment lies."""
        return {**super().reference, "virtualenv_path": str(self.venv_path)}


def _project(requirement: str) -> str:
    """Return the name that a requirement begins with, as indexes compare names."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found.group()).lower() if found else requirement


def _interpreter(python: str | None) -> str:
    """Return the program of a Python; raises `ShellExecutionError` for a version that is not there."""
    if python is None:
        return sys.executable
    found = shutil.which(python) or shutil.which(f"python{python}")
    if found is None:
        raise ShellExecutionError("", f"there is no Python {python} here: install it, or uv, which can")
    return found
