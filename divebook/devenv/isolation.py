"""How environments are kept apart from this machine: what all kinds have in common, and the one that does not."""

from __future__ import annotations

import asyncio
import getpass
import os
import posixpath
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

from divebook.devenv.templates import Configuration, Retrying, at_start, is_secret
from divebook.errors import CommandFailedError, DevEnvError, ShellExecutionError
from divebook.text.format import size
from divebook.workspace import terminal
from divebook.workspace.local import LocalWorkspace, VirtualenvWorkspace
from divebook.workspace.shell import Command, ShellResult

# What an environment uses of this machine: its processes, which bear its mark, and its folders.


MARK = "DEV_ENV_ID"
"""The variable of all commands of an environment; its value is the environment's id."""
_SAMPLE = 0.1
_LONGEST = 5.0


class ResourceUsage(NamedTuple):
    """What an environment uses now."""

    cpu_percent: float
    """100 is one core."""
    memory_bytes: int
    disk_bytes: int

    def shown(self) -> dict[str, str]:
        """Return it as people read it; 1 MB is 10^6 bytes."""
        return {
            "cpu": f"{self.cpu_percent:.1f}%",
            "memory": size(self.memory_bytes),
            "disk": size(self.disk_bytes),
        }

    def told(self) -> dict[str, Any]:
        """Return it as people and programs read it."""
        return {
            **self.shown(),
            "cpu_percent": round(self.cpu_percent, 1),
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
        }


def marked_processes(environment_id: str) -> list[Any]:
    """Return the live processes of an environment's commands."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == environment_id and process.pid != os.getpid():
                found.append(process)
        except (psutil.Error, OSError):  # it is gone, or somebody else's
            continue
    return found


def use_of_processes(environment_id: str) -> tuple[float, int]:
    """Return percents of a core, measured for a moment, and bytes of memory."""
    import psutil

    processes = marked_processes(environment_id)
    began = time.monotonic()
    before = _times(processes)
    if processes:
        time.sleep(_SAMPLE)
    spent = _times(processes) - before
    memory = 0
    for process in processes:
        try:
            memory += process.memory_info().rss
        except psutil.Error:
            continue
    return (100 * max(0.0, spent) / (time.monotonic() - began) if processes else 0.0), memory


def _times(processes: Iterable[Any]) -> float:
    import psutil

    total = 0.0
    for process in processes:
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.Error:
            continue
    return total


def end_processes(environment_id: str) -> None:
    """End all commands of an environment, and wait until they are gone."""
    import psutil

    while found := marked_processes(environment_id):
        for process in found:
            try:
                process.kill()
            except psutil.Error:
                continue
        _, alive = psutil.wait_procs(found, timeout=1)
        if {process.pid for process in alive} == {process.pid for process in found}:
            return  # they are stuck in the kernel, which nobody can end


def size_of(folder: Path) -> int:
    """Return the bytes of the files below a folder; what is counted within five seconds, of a huge one."""
    total = 0
    limit = time.monotonic() + _LONGEST
    folders = [str(folder)]
    while folders and time.monotonic() < limit:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # it went meanwhile, or may not be read
            continue
    return total


State = dict[str, Any]
Artefacts = Mapping[str, Mapping[str, Any]]
"""What a checkpoint has, by its kind."""
PASSED_ON = ("PATH", "HOME", "LANG", "TERM", "TMPDIR")
"""Variables of this process that commands on this machine get; they get no others."""
ENFORCED = "enforced"
CHECKED = "checked"
ADVISORY = "advisory"
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


# Environments with a Python of their own: a workspace with a virtual environment, and its lock file.


_PYTHON = re.compile(r"python(3\.\d+)")
LOCK = "lock"
LOCK_FILE = "requirements.txt"


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


# The tools that a template names, installed by whatever the environment has for that: pip, apk, apt-get or dnf.


_PYTHON_PACKAGES = {
    *("pytest", "hypothesis", "coverage", "tox", "nox", "mypy", "ruff", "black", "flake8", "pylint", "isort"),
    *("ipython", "ipdb", "pudb", "debugpy", "jupyterlab", "notebook", "pre-commit", "uv", "build", "twine"),
}
"""Tools whose package in the index of Python's is named as they are."""
_PACKAGES = {"node": "nodejs", "python": "python3", "pip": "python3-pip", "gcc": "gcc", "neovim": "neovim"}
"""Packages of systems that are named otherwise than their tool."""
_INSTALLERS = {
    "apk": "apk add --no-cache {}",
    "apt-get": "apt-get -o APT::Sandbox::User=root update -q && apt-get -o APT::Sandbox::User=root install -qy {}",
    "dnf": "dnf install -qy {}",
    "microdnf": "microdnf install -y {}",
}
_TOOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*")
_ROOT = "0:0"
Run = Callable[..., Awaitable[ShellResult]]


async def install(isolation: Isolation, run: Run) -> list[str]:
    """Have an environment's tools there; return what is to be told of those that are not.

    Raises `CommandFailedError` where an installer fails.
    """
    tools = [tool for names in isolation.configuration.get("tools", {}).values() for tool in names]
    known = [tool for tool in dict.fromkeys(tools) if _TOOL.fullmatch(tool)]
    async with isolation.workspace() as workspace:
        missing = [tool for tool in known if not await _has(run, workspace, tool)]
        kind = isolation.state["isolation_type"]
        if kind == "virtualenv" and (packages := [tool for tool in missing if tool in _PYTHON_PACKAGES]):
            await _done(run, workspace, "python -m pip install --quiet " + " ".join(packages))
        elif kind == "docker" and missing:
            await _install_in_image(isolation, run, workspace, missing)
        left = [tool for tool in missing if not await _has(run, workspace, tool)]
    return [f"the tool {tool!r} is not installed: install it by an init command" for tool in left]


async def _has(run: Run, workspace: LocalWorkspace, tool: str) -> bool:
    return not (await run(workspace, f"command -v {tool}")).exit_code


async def _install_in_image(isolation: Isolation, run: Run, workspace: LocalWorkspace, tools: list[str]) -> None:
    """Install tools by the first installer that the image has, which needs its root."""
    for installer, command in _INSTALLERS.items():
        if await _has(run, workspace, installer):
            manner = CommandManner(user=_ROOT)
            async with isolation.workspace(manner) as as_root:
                packages = " ".join(_PACKAGES.get(tool, tool) for tool in tools)
                await _done(run, as_root, command.format(packages), manner=manner)
            return


async def _done(run: Run, workspace: LocalWorkspace, command: str, **options: Any) -> None:
    ended = await run(workspace, command, **options)
    if ended.exit_code:
        told = (ended.stderr.strip() or ended.stdout.strip())[-2000:]
        raise CommandFailedError(f"installing tools, {command!r} ended with {ended.exit_code}: {told}")


# Files are copied into an environment and out of it by its ``tar``: with their modes, and as its commands may.


_PIECE = 1 << 16


async def copy_in(run: Run, source: Path, target: str) -> str:
    """Copy a file or folder of this machine; return where it is in the environment.

    Where `target` is a folder it gets below that, else that is what it is called.
    """
    into, name = posixpath.split(target)
    if target.endswith("/") or not (await run(f"test -d {shlex.quote(target)}")).exit_code:
        into = target
        name = _name_of(source)
    with tempfile.TemporaryFile() as file:
        await asyncio.to_thread(_pack, source, name, file)
        place = shlex.quote(into or ".")
        await _run_checked(run, f"mkdir -p {place} && tar -xof - -C {place}", stdin=_pieces(file))
    return posixpath.join(into, name)


async def copy_out(run: Run, source: str, target: Path) -> Path:
    """Copy a file or folder of the environment; return where it is on this machine, as `copy_in` says of names."""
    folder, name = posixpath.split(source.rstrip("/") or "/")
    with _beside(target) as passing:
        archive = passing / "archive"
        with archive.open("wb") as file:

            def keep(stream: str, text: str) -> None:
                if stream == "stdout":
                    file.write(text.encode(errors="surrogateescape"))

            command = f"tar -cf - -C {shlex.quote(folder or '.')} {shlex.quote(name or '.')}"
            await _run_checked(run, command, listen=keep, undecodable="surrogateescape")
        return await asyncio.to_thread(_put, archive, name or ".", target)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """Give a folder for what is passing, on the disk on which the files are to be."""
    place = target if target.is_dir() else target.parent
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".dev_env-") as passing:
            yield Path(passing)
    except FileNotFoundError as error:
        raise DevEnvError(f"there is no folder {place} on this machine: make it first") from error


async def _run_checked(run: Run, command: str, **options: object) -> None:
    ended = await run(command, **options)
    if ended.exit_code:
        raise DevEnvError(f"the files cannot be copied: {ended.stderr.strip()[-2000:] or 'tar has failed'}")


def _name_of(source: Path) -> str:
    return source.resolve().name


def _pack(source: Path, name: str, file: BinaryIO) -> None:
    try:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(source, name)
    except OSError as error:
        raise DevEnvError(f"{source} of this machine cannot be read: {error}") from error
    file.seek(0)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece


def _put(archive: Path, name: str, target: Path) -> Path:
    """Put at its place what an archive has, which may hold anything; return the place."""
    folder = archive.with_name("files")
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")  # refuses what would lead out
        found = folder / name
        place = target / name if target.is_dir() and name not in (".", "..") else target
        if found.is_dir() and not found.is_symlink():
            shutil.copytree(found, place, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.move(found, place)
    except (tarfile.TarError, OSError) as error:
        raise DevEnvError(f"the files cannot be written at {target}: {error}") from error
    return place
